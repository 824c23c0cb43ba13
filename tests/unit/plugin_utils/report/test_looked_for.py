# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A report says which classes of faults the run has looked for, on how many nodes, and which it has not."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats, looked_for, model, page, terminal
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from harness import report_samples as samples


def built(checks: list[tuple[str, str, str]], nodes: t.Sequence[str] = ("a", "b"), **about: t.Any) -> t.Any:
    """The model of a run with (node, stage, check)."""
    stages = sorted({stage for _node, stage, _check in checks})
    verdicts = [{**samples.verdict(node, stage, check), **about} for node, stage, check in checks]
    found = [samples.measurement(node, stage, check) for node, stage, check in checks]
    items = [{key: m[key] for key in ("stage", "check", "variant", "subject", "target")} for m in found]
    plan = samples.plan(list(nodes), stages, items=items)
    plan.stages = [{"name": stage, "role": f"gpufleet.acceptance.{stage}"} for stage in stages]
    return model.build(plan, t.cast(t.Any, samples.judgement(verdicts, found)))


def row(made: t.Any, name: str) -> dict[str, t.Any]:
    return next(one for one in made["looked_for"]["rows"] if one["fault"] == looked_for.CLASSES[name][0])


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
        assert set(stage.sees) <= set(looked_for.CLASSES), stage.name


def test_what_a_check_could_not_see_is_named() -> None:
    found = samples.measurement("a", "host_health", "memory", context={"not_looked_for": {"edac": "memory errors: no driver"}})
    verdicts = [samples.verdict("a", "host_health", "memory")]
    items = [{key: found[key] for key in ("stage", "check", "variant", "subject", "target")}]
    made: t.Any = model.build(samples.plan(["a"], ["host_health"], items=items), t.cast(t.Any, samples.judgement(verdicts, [found])))
    assert made["looked_for"]["unseen"] == ["memory errors: no driver (host_health memory on 1 of 1 nodes)"]
    for text in (page.render(made), formats.markdown(made)):
        assert "memory errors: no driver" in text
