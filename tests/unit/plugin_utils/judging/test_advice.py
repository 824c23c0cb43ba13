# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to do about each reason code."""

from __future__ import annotations

import types
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import advice


def test_every_reason_code_of_a_verdict_that_is_no_pass_has_advice() -> None:
    assert advice.ADVICE.keys() == {*reasons.FATAL, *reasons.ERRORS, *reasons.MILD, *reasons.VERDICTS}
    assert all(step.endswith(".") and step[0].isupper() for step in advice.ADVICE.values())


def verdict(word: str, code: str | None) -> t.Any:
    return types.SimpleNamespace(verdict=word, reason_code=code)


def test_advice_begins_with_the_worst_verdict_and_says_each_step_once() -> None:
    verdicts = [verdict("WARN", "pcie_slot"), verdict("FAIL", "below_floor"), verdict("FAIL", "below_neighbours"), verdict("PASS", None)]
    assert advice.of(verdicts) == [advice.ADVICE["below_floor"], advice.ADVICE["pcie_slot"]]
    assert len(advice.of(verdict("WARN", code) for code in reasons.MILD)) == advice.MOST
