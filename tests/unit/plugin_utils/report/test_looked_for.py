# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A report says which classes of faults the run has looked for, on how many nodes, and which it has not."""

from __future__ import annotations

import html
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats, model, page, terminal
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import faults, host_health, registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import LEVELS
from harness import report_samples as samples

NUMBER = {"metrics": {"bandwidth": {"value": 1.0, "unit": "GB/s"}}}


def built(
    checks: list[tuple[str, str, str]], nodes: t.Sequence[str] = ("a", "b"), record: t.Mapping[str, t.Any] = NUMBER, **about: t.Any
) -> t.Any:
    """The model of a run with (node, stage, check), each with what `record` has."""
    stages = sorted({stage for _node, stage, _check in checks})
    verdicts = [{**samples.verdict(node, stage, check), **about} for node, stage, check in checks]
    found = [samples.measurement(node, stage, check, **record) for node, stage, check in checks]
    items = [{key: m[key] for key in ("stage", "check", "variant", "subject", "target")} for m in found]
    plan = samples.plan(list(nodes), stages, items=items)
    plan.stages = [{"name": stage, "role": f"gpufleet.acceptance.{stage}"} for stage in stages]
    return model.build(plan, t.cast(t.Any, samples.judgement(verdicts, found)))


def row(made: t.Any, name: str) -> dict[str, t.Any]:
    return next(one for one in made["looked_for"]["rows"] if one["fault"] == faults.CLASSES[name].words)


def test_classes_are_those_whose_checks_were_measured() -> None:
    made = built([("a", "gpu_memory", "h2d"), ("b", "gpu_memory", "h2d"), ("a", "gpu_memory", "pattern")])
    pcie, memory = row(made, "pcie"), row(made, "device_memory")
    assert (pcie["checks"], pcie["nodes"], pcie["of"]) == (["gpu_memory h2d"], 2, 2)
    assert (memory["checks"], memory["nodes"]) == (["gpu_memory pattern"], 1)
    assert made["looked_for"]["partly"] == ["GPU memory (on 1 of 2 nodes)"]
    assert "NIC or its slot" in made["looked_for"]["missing"] and "GPU's PCIe link" not in made["looked_for"]["missing"]


def test_what_was_not_measured_did_not_look() -> None:
    for verdict in ("UNKNOWN", "SKIPPED"):
        made = built([("a", "gpu_memory", "h2d")], verdict=verdict)
        assert row(made, "pcie")["nodes"] == 0 and row(made, "pcie")["checks"] == []


HEALTH = "host_health"
# (class, stage, check, what the record must have, what takes the claim away: more of the context, or another duration)
Claim = tuple[str, str, str, dict[str, t.Any], dict[str, t.Any]]
CLAIMS: list[Claim] = [
    *(
        (fault, HEALTH, check, {"context": {"looked_for": ["parts"]}}, {"not_looked_for": dict.fromkeys(codes.split("|"), "unreadable")})
        for fault, checks in host_health.NEEDED.items()
        for check, needed in checks.items()
        for codes in needed
    ),
    ("host_memory", HEALTH, "kernel", {"context": {"looked_for": ["the log"]}}, {"place": "virtual machine"}),
    ("thermal", "train", "burn_in", {**NUMBER, "duration_s": 600.0}, {"duration_s": 60.0}),
    ("thermal", "dcgm", "targeted_power", {"duration_s": 600.0}, {"duration_s": 30.0}),
    ("thermal", "soak", "cooling", {**NUMBER, "duration_s": 7200.0}, {"duration_s": 20.0}),
    ("software", "stack", "facts", {"context": {"facts": {"kernel": "6.8"}}}, {"facts": {}}),
    ("nic", "nccl_fabric", "all_reduce", {**NUMBER, "context": {"nics": 8, "nics_used": 8}}, {"nics_used": 0}),
    ("fabric", "nccl_fabric", "all_reduce", {**NUMBER, "context": {"nics": 8, "gpu": "NVIDIA H200"}}, {"mnnvl": True}),
    ("fabric", "ddp", "all_reduce", {**NUMBER, "context": {"nics": 8, "gpu": "NVIDIA H200"}}, {"nics": 0}),
]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: "-".join(claim[:3]))
def test_a_class_is_looked_for_only_by_a_check_that_could_have_seen_it(claim: Claim) -> None:
    """On one of two nodes the same check could not: the class counts there no more, and the reason is said."""
    fault, stage, check, has, takes = claim
    duration = {name: value for name, value in takes.items() if name == "duration_s"}
    less = {name: value for name, value in takes.items() if name not in duration}
    blind = {**has, **duration, "context": {**has.get("context", {}), **less}}
    for records, nodes in (((has, has), 2), ((has, blind), 1), ((blind, blind), 0)):
        found = [samples.measurement(node, stage, check, **record) for node, record in zip("ab", records, strict=True)]
        verdicts = [samples.verdict(node, stage, check) for node in "ab"]
        items = [{key: m[key] for key in ("stage", "check", "variant", "subject", "target")} for m in found]
        plan = samples.plan(["a", "b"], [stage], items=items)
        plan.stages = [{"name": stage, "role": f"gpufleet.acceptance.{stage}"}]
        made: t.Any = model.build(plan, t.cast(t.Any, samples.judgement(verdicts, found)))
        one = row(made, fault)
        assert one["nodes"] == nodes, one
        assert bool(one["why"]) == (nodes < 2) and all(f"{stage} {check}: " in why for why in one["why"])
        for why in one["why"]:
            assert formats.cell(why) in formats.markdown(made) and why in html.unescape(page.render(made))


def test_a_check_that_says_nothing_of_what_it_looked_at_did_not_look() -> None:
    for check in ("memory", "storage", "bmc", "pcie"):
        made = built([("a", HEALTH, check), ("b", HEALTH, check)], record={})
        assert all(one["nodes"] == 0 for one in made["looked_for"]["rows"])
        assert any("does not say what it looked at" in why for one in made["looked_for"]["rows"] for why in one["why"])


def test_a_defect_that_was_found_was_looked_for_and_one_source_of_several_is_enough() -> None:
    said: dict[str, t.Any] = {"context": {"looked_for": ["counters"], "not_looked_for": {"kernel_log": "it cannot be read"}}}
    assert row(built([("a", HEALTH, "memory")], nodes=["a"], record=said), "host_memory")["nodes"] == 1
    found = {
        "outcome": "error", "reason_code": "host_memory", "reason": "an error",
        "context": {"not_looked_for": {"edac": "none", "kernel_log": "it cannot be read"}},
    }  # fmt: skip
    made = built([("a", HEALTH, "memory")], nodes=["a"], record=found, verdict="FAIL", reason_code="host_memory")
    assert row(made, "host_memory")["nodes"] == 1


def test_a_controller_that_was_read_at_rest_says_nothing_of_heat_over_time() -> None:
    made = built([("a", HEALTH, "bmc"), ("b", HEALTH, "redfish")], record={"context": {"looked_for": ["9 sensors"]}})
    assert row(made, "power")["nodes"] == 2 and row(made, "thermal")["nodes"] == 0
    (why,) = row(made, "thermal")["why"]
    assert "no check of this run can show it" in why and "soak" in why


def test_facts_of_one_node_are_compared_with_nothing() -> None:
    facts = {"context": {"facts": {"kernel": "6.8"}}}
    assert row(built([("a", "stack", "facts")], nodes=["a"], record=facts), "software")["nodes"] == 0
    assert row(built([("a", "stack", "facts"), ("b", "stack", "facts")], record=facts), "software")["nodes"] == 2


def test_what_a_level_does_not_look_for_is_on_the_list() -> None:
    """Of each level each class is looked for by a check of it, or is named with the stages that have one."""
    for level in LEVELS:
        names = registry.of_level(level)
        made = built([("a", name, "member") for name in names], record={})
        for one in made["looked_for"]["rows"]:
            assert one["nodes"] == 0 and one["why"], one


def test_a_gpu_that_mig_parts_is_named() -> None:
    made = built([("a", "gemm", "bf16")], nodes=["a"], record={**NUMBER, "context": {"set_aside": {"GPU-1": "GPU 3"}}})
    assert "GPU 3: MIG is on (gemm bf16 on 1 of 1 nodes)" in made["looked_for"]["unseen"]


def test_a_timetable_that_was_walked_shows_no_fault_by_itself() -> None:
    made = built([("a", "rdma", "timetable"), ("b", "rdma", "timetable")])
    assert row(made, "nic")["nodes"] == 0 and "NIC or its slot" in made["looked_for"]["missing"]


def test_every_form_says_what_was_not_looked_for() -> None:
    made = built([("a", "gemm", "bf16"), ("b", "gemm", "bf16")])
    assert "nothing: not looked for" in formats.markdown(made) and "Looked for, and not looked for" in formats.markdown(made)
    assert "<strong>not looked for</strong>" in page.render(made)
    lines = " ".join(line for line, _colour in terminal.coloured(made, 200))
    assert "not looked for: NIC or its slot; GPU's PCIe link; GPU memory" in " ".join(lines.split())


def test_stages_name_classes_and_checks_that_exist() -> None:
    for stage in registry.shipped().values():
        assert set(stage.sees) <= set(faults.CLASSES), stage.name


def test_what_a_check_could_not_see_is_named() -> None:
    found = samples.measurement("a", "host_health", "memory", context={"not_looked_for": {"edac": "memory errors: no driver"}})
    verdicts = [samples.verdict("a", "host_health", "memory")]
    items = [{key: found[key] for key in ("stage", "check", "variant", "subject", "target")}]
    made: t.Any = model.build(samples.plan(["a"], ["host_health"], items=items), t.cast(t.Any, samples.judgement(verdicts, [found])))
    assert made["looked_for"]["unseen"] == ["memory errors: no driver (host_health memory on 1 of 1 nodes)"]
    for text in (page.render(made), formats.markdown(made)):
        assert "memory errors: no driver" in text
