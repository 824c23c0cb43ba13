# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The line that pytest prints where no test has ended for a while."""

from __future__ import annotations

import pytest
from harness.heartbeat import Heartbeat


def test_a_line_names_the_tests_that_run_the_longest_first(pytestconfig: pytest.Config) -> None:
    beat = Heartbeat(pytestconfig)
    beat.began = 0.0
    assert beat.line(5.0) == "  5 s: collecting tests"
    beat.pytest_xdist_node_collection_finished(["tests/a.py::test_a", "tests/a.py::test_b", "tests/a.py::test_c"])
    for nodeid, since in (("tests/a.py::test_b", 10.0), ("tests/a.py::test_c", 11.0), ("tests/a.py::test_a", 2.0)):
        beat.pytest_runtest_logstart(nodeid)
        beat.running[nodeid] = since
    beat.pytest_runtest_logfinish("tests/a.py::test_c")
    assert beat.line(14.0) == "  14 s: 1 of 3 tests done; running: test_a (12 s), test_b (4 s)"
