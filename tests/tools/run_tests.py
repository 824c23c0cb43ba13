#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run pytest: run_tests.py ARGUMENTS FOLDER. What failed beside other tests is run once more, alone.

Many tests hold a measured speed, or a time within which something ends, and a machine may stop for a second while four of them run. A test
that fails alone too is a failure. One that passes then is named in the last lines: it depends on its neighbours or on time, and is to be
mended. More than AGAIN failures are not the machine's, and are not run again.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

AGAIN = 5


class Failures:
    """A plugin of pytest: the ids of tests that failed, or whose fixtures did."""

    def __init__(self) -> None:
        self.ids: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.ids[report.nodeid] = None


def main(arguments: list[str]) -> int:
    failures = Failures()
    status = pytest.main(arguments, plugins=[failures])
    ids = list(failures.ids)
    if status != pytest.ExitCode.TESTS_FAILED or not 1 <= len(ids) <= AGAIN:
        return int(status)
    print(f"=== once more, alone: {', '.join(ids)}", flush=True)
    again = subprocess.run([sys.executable, "-m", "pytest", *arguments[:-1], "-n", "1", *ids], check=False).returncode
    if not again:
        print(f"=== passed only alone, to be mended: {', '.join(ids)}", flush=True)
    return again


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
