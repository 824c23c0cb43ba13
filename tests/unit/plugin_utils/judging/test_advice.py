# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to do about each reason code."""

from __future__ import annotations

import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import advice, drift


def test_every_reason_code_of_a_verdict_that_is_no_pass_has_advice() -> None:
    shared = {*reasons.FATAL, *reasons.ERRORS, *reasons.MILD, *reasons.VERDICTS, *reasons.SKIP_WARNS}
    assert advice.ADVICE.keys() == shared | reasons.BROUGHT.keys()
    assert all(step.endswith(".") and step[0].isupper() for step in advice.ADVICE.values())


def verdict(word: str, code: str | None) -> t.Any:
    return types.SimpleNamespace(verdict=word, reason_code=code, subject=types.SimpleNamespace(id="gpu-01"))


def test_advice_begins_with_the_worst_verdict_and_says_each_step_once() -> None:
    verdicts = [verdict("WARN", "pcie_slot"), verdict("FAIL", "below_floor"), verdict("FAIL", "below_neighbours"), verdict("PASS", None)]
    assert advice.of(verdicts, {}) == [advice.ADVICE["below_floor"], advice.ADVICE["pcie_slot"]]
    assert len(advice.of((verdict("WARN", code) for code in reasons.MILD), {})) == advice.MOST


SLOTS = ["DIMM_A1: 64 GiB at 4800 MT/s", "DIMM_B1: 64 GiB at 4800 MT/s"]


@pytest.mark.parametrize(
    ("facts", "words", "not_words"),
    [
        ({"dimms": [SLOTS[0], "DIMM_B1: empty"]}, ["Reseat the memory module"], ["version"]),
        ({"dimms": "unreadable: /sys/firmware/dmi/tables/DMI is missing or may not be read"}, ["needs to read"], ["Reseat", "version"]),
        ({"driver": "570"}, ["Install the version", "stack_golden"], ["Reseat"]),
        ({"nic_count_MT_0000000838": 7}, ["missing NIC"], ["version"]),
        ({"iommu": "DMA", "dimms": [SLOTS[0]]}, ["Reseat the memory module", "Install the version"], []),
    ],
)
def test_advice_about_facts_is_that_of_the_fact(facts: dict[str, t.Any], words: list[str], not_words: list[str]) -> None:
    usual = {"dimms": SLOTS, "driver": "580", "nic_count_MT_0000000838": 8, "iommu": "off"}
    deviations = drift.drift({"gpu-01": {**usual, **facts}, "gpu-02": usual, "gpu-03": usual})
    items = {node: [{**item, "severity": drift.severity(item)} for item in of] for node, of in deviations.items()}
    steps = " ".join(advice.of([verdict("FAIL", "drift")], items))
    assert [steps.find(text) >= 0 for text in words] == [True] * len(words), steps
    assert [steps.find(text) for text in words] == sorted(steps.find(text) for text in words), "what fails comes first"
    assert not any(text in steps for text in not_words), steps
