# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tests of `make test` exist: a name that no test has would be a promise without a run."""

from __future__ import annotations

import ast
import pathlib

import pytest
from integration import quick

SIGNAL = "a_signal_ends_what_was_started_detached_and_says_so"
HERE = pathlib.Path(__file__).resolve().parents[1] / "integration"


@pytest.mark.parametrize("name", sorted(quick.TESTS))
def test_a_test_of_make_test_exists_and_is_none_of_the_long_ones(name: str) -> None:
    file, _, test = name.partition("::")
    functions = {node.name: node for node in ast.parse((HERE / file).read_text()).body if isinstance(node, ast.FunctionDef)}
    assert test.partition("[")[0] in functions
    assert not [mark for mark in functions[test.partition("[")[0]].decorator_list if ast.unparse(mark) == "pytest.mark.long"]


def test_parameters_need_not_be_named() -> None:
    kill, signal = (f"test_stop.py::test_{name}" for name in ("a_killed_controller_is_missed_at_once", SIGNAL))
    found = [quick.is_quick(f"tests/integration/{name}{more}") for name in (kill, signal) for more in ("", "[x]", "[ctrl-c]")]
    assert found == [True, True, True, False, False, True]
