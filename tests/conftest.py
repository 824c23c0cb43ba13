# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Makes the checkout importable as ansible_collections.gpufleet.acceptance, wherever it lies."""

from __future__ import annotations

import pathlib

import hypothesis
import pytest
from harness import signals
from harness.heartbeat import Heartbeat

signals.restore()
# The machine may be busy with something else; a slow example is no wrong one.
hypothesis.settings.register_profile("patient", deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
hypothesis.settings.load_profile("patient")

ROOT = pathlib.Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    # Only in the process that gives tests to others: one that runs them captures what is printed meanwhile.
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Heartbeat(config))


@pytest.fixture(scope="session")
def root() -> pathlib.Path:
    return ROOT


@pytest.fixture(scope="session")
def fixtures() -> pathlib.Path:
    """Recorded output of real tools (tests/fixtures/README.md says how each was made)."""
    return ROOT / "tests" / "fixtures"
