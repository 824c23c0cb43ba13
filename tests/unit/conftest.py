# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of tests side by side: those that take longest are begun first, as whoever begins them last waits for them alone."""

from __future__ import annotations

import pytest

# A minute each, where others take seconds; the more tests a file has says nothing of it.
LONGEST = ("test_lies.py", "test_localise.py", "test_perftest_rounds.py", "test_guardian_pod.py", "test_earlier.py", "test_session.py")


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False  # in the order in which they were collected


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))
