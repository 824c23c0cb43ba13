# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The expressions of cases: what holds, what does not, and what nobody knows."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import expressions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.expressions import Absent, ExpressionError

KNOWN = {"fast": 100.0, "slow": 400.0}


def ask(word: str, args: t.Sequence[str | float]) -> float | bool:
    if word == "yes":
        return True
    if args[0] not in KNOWN:
        raise Absent(f"{args[0]} says no runtime")
    return KNOWN[str(args[0])]


def held(text: str) -> expressions.Outcome:
    return expressions.evaluate(text, ask, {"limit": 5.0, "count": 3.0})


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("runtime(slow) > runtime(fast)", True),
        ("runtime(fast) > runtime(slow)", False),
        ("runtime(gone) > 1", None),
        ("not runtime(gone) > 1", None),
        ("runtime(fast) > runtime(slow) > runtime(gone)", False),
        ("runtime(slow) > runtime(fast) > runtime(gone)", None),
        ("runtime(gone) > 1 or runtime(fast) > 1", True),
        ("runtime(gone) > 1 or runtime(fast) < 1", None),
        ("runtime(gone) > 1 and runtime(fast) < 1", False),
        ("runtime(gone) > 1 and runtime(fast) > 1", None),
        ("yes()", True),
        ("not yes()", False),
        ("(runtime(slow) - runtime(fast)) / runtime(fast) * 100 <= limit", False),
        ("runtime(fast) / (limit - 5) > 0", None),
        ("nobody > 1", None),
        ("-limit < count", True),
    ],
)
def test_what_is_not_known_stays_unknown_unless_the_rest_settles_it(text: str, holds: bool | None) -> None:
    found = held(text)
    assert found.holds is holds
    assert bool(found.lacking) is (holds is None)


def test_an_expression_is_said_with_its_numbers() -> None:
    assert held("runtime(slow) > runtime(fast) and limit < 6").words == "runtime(slow)=400 > runtime(fast)=100 and limit=5 < 6"
    assert held("runtime(gone) > 1").words == "runtime(gone)=? > 1"
    assert held("runtime(gone) > 1").lacking == ("gone says no runtime",)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_is_no_number_is_not_known(number: float) -> None:
    assert expressions.evaluate("runtime(fast) <= 5", lambda _word, _args: number, {}).holds is None


@pytest.mark.parametrize(
    "text",
    ["", "runtime(", "x = 1", "__import__('os').system('true')", "[1]", "runtime(fast=1)", "a if b else c", "lambda: 1",
     "runtime(1 + 1)", "a.b", "True", "None == 1", "f'{x}'", "runtime(*x)", "x[0]", "1 << 2", "a ** b"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError, match="found"):
        expressions.parse(text)


def test_parameters_are_told_from_names_inside_of_calls() -> None:
    tree = expressions.parse("runtime(slow) <= limit * runtime(fast)")
    assert expressions.names(tree) == ["limit"]
    assert [(call.word, call.args) for call in expressions.calls(tree)] == [("runtime", ("slow",)), ("runtime", ("fast",))]


def test_a_pod_that_says_it_took_no_time_is_no_measurement_and_no_traceback() -> None:
    outcome = expressions.evaluate("share(full, part) > 40", lambda word, args: 100.0 / 0.0, {})
    assert outcome.holds is None and "cannot be computed" in outcome.lacking[0]
