#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run pytest: run_tests.py ARGUMENTS FOLDER. What failed beside other tests is run once more, alone.

Many tests hold a measured speed, or a time within which something ends, and a machine may stop for a second while four of them run. A test
that fails alone too is a failure. One that passes then is named in the last lines: it depends on its neighbours or on time, and is to be
mended. More than AGAIN failures are not the machine's, and are not run again.

Integration tests that have not begun at the time in the variable UNTIL (seconds since 1970), if it is set, are not run, and the last lines
name them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

AGAIN = 5
UNTIL = "ACCEPTANCE_TESTS_UNTIL"
OVER = "not run: its time was over"


@pytest.hookimpl(tryfirst=True)  # before the rigs of the test are put up
def pytest_runtest_setup() -> None:
    """Leave a test out that would begin too late; a conftest.py that imports this asks for it."""
    if time.time() > float(os.environ.get(UNTIL) or "inf"):
        pytest.skip(OVER)


class Results:
    """A plugin of pytest: the ids of tests that failed, or whose fixtures did, and of those that were not run."""

    def __init__(self) -> None:
        self.ids: dict[str, None] = {}
        self.not_run: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.ids[report.nodeid] = None
        elif report.skipped and OVER in str(report.longrepr):
            self.not_run.append(report.nodeid)


def main(arguments: list[str]) -> int:
    results = Results()
    status = pytest.main(arguments, plugins=[results])
    ids = list(results.ids)
    if results.not_run:
        print(f"=== NOT RUN, the time was over: {len(results.not_run)} tests: {', '.join(results.not_run)}", flush=True)
    if status != pytest.ExitCode.TESTS_FAILED or not 1 <= len(ids) <= AGAIN:
        return int(status)
    print(f"=== once more, alone: {', '.join(ids)}", flush=True)
    os.environ.pop(UNTIL, None)  # what failed is not left out
    again = subprocess.run([sys.executable, "-m", "pytest", *arguments[:-1], "-n", "1", *ids], check=False).returncode
    if not again:
        print(f"=== passed only alone, to be mended: {', '.join(ids)}", flush=True)
    return again


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
