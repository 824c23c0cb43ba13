# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A test that fails beside others is run once more, alone; one that fails alone too is a failure."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time

import pytest
from tools import run_tests

TOOL = pathlib.Path(__file__).resolve().parents[1] / "tools" / "run_tests.py"
FAILS_ONCE = """
import pathlib
def test_fails_once():
    seen = pathlib.Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""


def run(folder: pathlib.Path, tests: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\n")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHONPATH"))}
    command = [sys.executable, str(TOOL), "-q", "-p", "no:cacheprovider", "-n", "2", "."]
    return subprocess.run(command, cwd=folder, env={**plain, **variables}, text=True, capture_output=True, check=False)


def test_what_fails_once_passes_and_is_named(tmp_path: pathlib.Path) -> None:
    ran = run(tmp_path, FAILS_ONCE + "def test_good(): pass\n")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1] == "=== passed only alone, to be mended: test_it.py::test_fails_once"
    assert "1 passed" in ran.stdout  # the good one is not run again


def test_what_fails_alone_too_fails(tmp_path: pathlib.Path) -> None:
    ran = run(tmp_path, FAILS_ONCE + "def test_bad(): assert False\n")
    assert ran.returncode == 1
    assert "=== once more, alone: " in ran.stdout
    assert "passed only alone" not in ran.stdout


def test_many_failures_are_not_run_again(tmp_path: pathlib.Path) -> None:
    ran = run(tmp_path, "import pytest\n@pytest.mark.parametrize('n', range(6))\ndef test_bad(n): assert False\n")
    assert ran.returncode == 1
    assert "once more" not in ran.stdout


def test_tests_that_cannot_be_read_fail(tmp_path: pathlib.Path) -> None:
    assert run(tmp_path, "import nothing_of_the_kind\n").returncode not in (0, 5)


def test_all_good_is_run_once(tmp_path: pathlib.Path) -> None:
    ran = run(tmp_path, "def test_good(): pass\n")
    assert ran.returncode == 0
    assert "===" not in ran.stdout


def test_tests_that_would_begin_too_late_are_left_out_and_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "conftest.py").write_text(f"import sys\nsys.path.append({str(TOOL.parents[1])!r})\nfrom tools.run_tests import *\n")
    tests = "def test_good(): pass\n"
    assert "NOT RUN" not in run(tmp_path, tests, ACCEPTANCE_TESTS_UNTIL=str(time.time() + 600)).stdout
    ran = run(tmp_path, tests, ACCEPTANCE_TESTS_UNTIL=str(time.time() - 1))
    assert ran.returncode == 0
    assert ran.stdout.splitlines()[-1] == "=== NOT RUN, the time was over: 1 tests: test_it.py::test_good"


def test_what_failed_is_run_again_though_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_arguments: list[str], plugins: list[run_tests.Results]) -> pytest.ExitCode:
        plugins[0].ids["test_it.py::test_bad"] = None
        return pytest.ExitCode.TESTS_FAILED

    def again(*_arguments: object, **_options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0 if run_tests.UNTIL in os.environ else 1)

    monkeypatch.setenv(run_tests.UNTIL, "1")
    monkeypatch.setattr(pytest, "main", failing)
    monkeypatch.setattr(subprocess, "run", again)
    assert run_tests.main(["tests"]) == 1
