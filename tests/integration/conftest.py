# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rigs for integration tests: each is put up once per session and taken down at its end."""

from __future__ import annotations

import os
import typing as t

import pytest
from rigs.fleet.fleet import Fleet
from rigs.rdma.rdma import Guests, Options


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "browser: needs chromium")
    config.addinivalue_line("markers", "fleet: needs the fleet rig (root)")
    config.addinivalue_line("markers", "rdma: needs the soft-RoCE guests (root, minutes)")


@pytest.fixture(scope="session")
def rig_fleet() -> t.Iterator[Fleet]:
    """A fleet of our own, still without hosts: call `up`."""
    if os.geteuid():
        pytest.skip("the fleet rig needs root")
    fleet = Fleet.reserve()
    try:
        yield fleet
    finally:
        fleet.down()


@pytest.fixture(scope="session")
def rig_rdma() -> t.Iterator[Guests]:
    """Four guests, of which rdma-04 has two CPUs. A test leaves them as it found them."""
    if os.geteuid():
        pytest.skip("the rdma rig needs root")
    with Guests().reserved() as guests:
        guests.down()
        try:
            guests.up(4, {"rdma-04": Options(cpus=2)})
            yield guests
        finally:
            guests.down()
