# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user's expectation that held for nothing is said where it was meant for this run, and only there."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import unused_expectations, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import resolve
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import JudgingInputs
from harness.records import measurement
from unit.plugin_utils.judging.test_verdict import TODAY, Record, gemm, item, nccl, plan_of

H200 = {
    "gpu": "NVIDIA H200", "gpus": 8, "nvls": True, "algorithm": "auto", "op": "all_reduce", "type": "float", "nodes": 1,
    "series_units": {"busbw": "GB/s"},
}  # fmt: skip
MINE: dict[str, t.Any] = {
    "id": "mine", "metric": "busbw", "value": 440, "unit": "GB/s", "source": "contract", "date": "2026-11", "confidence": "vendor",
    "note": "as signed",
}  # fmt: skip
STAGES = [{"name": "nccl_node"}, {"name": "gemm"}]


def entry(id_: str = "mine", **match: t.Any) -> Record:
    usual = {"stage": "nccl_node", "check": "all_reduce", "gpu": "NVIDIA H200", "gpus": 8, "nvls": True, "size": "plateau"}
    return {**MINE, "id": id_, "match": {k: v for k, v in {**usual, **match}.items() if v is not None}}


def said(*entries: Record, records: list[Record] | None = None, layer: str = "group", **plan: t.Any) -> list[str]:
    if records is None:
        records = [nccl("n1", 478.0, 16 << 30, context=H200), gemm("n1", 670.0)]
    items = [item(r["subject"]["id"], r["stage"], r["check"]) for r in records]
    written = plan_of(*items, **{"stages": STAGES, "skipped_stages": [], "left_out": [], "sample": {}, **plan})
    inputs = JudgingInputs([resolve([(layer, list(entries))]).dump()], {"n1": 0})
    return unused_expectations.warnings(written, list(map(measurement, records)), inputs)


@pytest.mark.parametrize(
    ("match", "words"),
    [
        ({"gpu": "NVIDIA H2OO"}, "did you mean 'NVIDIA H200'?"),
        ({"gpu": "H200"}, "did you mean 'NVIDIA H200'?"),
        ({"gpu": "NVIDIA H200 SXM"}, "did you mean 'NVIDIA H200'?"),
        ({"gpu": "Nvidia H200"}, "did you mean 'NVIDIA H200'?"),
        ({"size": 3 << 29}, "match.size: found 1.5 GiB, measured were 1 sizes from 16 GiB to 16 GiB"),
        ({"gpus": 4}, "match.gpus: found 4, measured was 8"),
        ({"nvls": False}, "match.nvls: found False, measured was True"),
        ({"algorithm": "rign"}, "match.algorithm: found rign, measured was auto"),
        ({"check": "all_reduec"}, "match.check: found 'all_reduec', did you mean 'all_reduce'?"),
        ({"stage": "ncl_node"}, "match.stage: found 'ncl_node', did you mean 'nccl_node'?"),
    ],
)
def test_what_was_meant_for_this_run_and_held_for_nothing(match: dict[str, t.Any], words: str) -> None:
    (line,) = said(entry(**match))
    assert line.startswith("acceptance_expectations (group), entry 1 `mine`: no measurement was held to it: ") and words in line


@pytest.mark.parametrize(
    "match",
    [
        {},
        {"gpu": "NVIDIA B200"},  # hardware that is not here
        {"gpu": "NVIDIA H20"},
        {"gpu": "NVIDIA H200 NVL"},
        {"gpu": "Somebody's GPU"},
        {"check": "all_gather"},  # a check that was not planned
        {"stage": "nccl_fabric", "nodes": 2},  # a stage that did not run
        {"stage": "ours"},
        {"size": ["plateau", 3 << 29]},
    ],
)
def test_a_shared_inventory_is_no_mistake(match: dict[str, t.Any]) -> None:
    assert said(entry(**match)) == []


def test_variants_of_what_held_are_no_mistake() -> None:
    variants = [entry("eight"), entry("four", gpus=4, nvls=False), entry("two", gpus=2, nvls=False), entry("ring", nvls=False)]
    assert said(*variants) == []
    assert said(*variants, entry("other", gpu="NVIDIA B200"), entry("typo", gpu="NVIDIA H220")) != []


def test_where_nodes_were_left_out_only_misspellings_are_said() -> None:
    for left in ({"left_out": ["n2"]}, {"sample": {"nccl_node": {"nodes": ["n1"]}}}):
        assert said(entry(gpus=4), **left) == [] and said(entry(gpu="NVIDIA H2O0"), **left) and said(entry(size=3 << 29), **left)


def test_a_stronger_layer_or_a_failed_run_takes_nothing_from_it() -> None:
    lost = {**nccl("n1", context={}), "outcome": "error", "reason_code": "timeout", "reason": "x", "metrics": {}, "series": []}
    assert said(entry(gpu="NVIDIA H2O0"), records=[lost]) == [], "nobody knows what hardware it would have been"
    assert said(entry(), {**entry("stronger", algorithm="auto"), "value": 475}) == []


def test_changes_of_shipped_entries_are_a_users_too() -> None:
    written = plan_of(item("n1"), stages=STAGES, skipped_stages=[], left_out=[], sample={})
    changed = resolve([("host", {"h200-8-all_reduce-nvls-plateau": {"value": 475}, "h100-8-all_reduce-nvls-plateau": {"value": 475}})])
    short = [nccl("n1", 460.0, 1 << 30, context=H200)]
    (line,) = unused_expectations.warnings(written, list(map(measurement, short)), JudgingInputs([changed.dump()], {"n1": 0}))
    assert "h200-8-all_reduce-nvls-plateau" in line and "found plateau, measured were 1 sizes from 1 GiB to 1 GiB" in line


def test_it_is_a_warn_of_the_run() -> None:
    records = [nccl("n1", 478.0, 16 << 30, context=H200)]
    plan, stated = plan_of(item("n1")), {"n1": {"gpu_count": 8}}
    lines = said(entry(gpu="NVIDIA H2O0"), records=records)
    for warn, accepted in (("accept", True), ("refuse", False)):
        inputs = JudgingInputs(warn=warn, stated=stated)
        found = verdict.judge(plan, records, lambda *_who: resolve([]), inputs, today=TODAY, warnings=lines)
        assert found.accepted is accepted and found.warnings == lines
        assert ("1 WARN of the run" if accepted else "1 WARN, and acceptance_warn is refuse") in found.why
