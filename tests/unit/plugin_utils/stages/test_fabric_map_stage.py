# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdicts of the stage fabric_map, from measurements of all nodes to those of nodes and switches."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.fabric_map import STAGE
from harness import report_samples as samples
from harness.fat_tree import FatTree


def judged(tree: FatTree) -> dict[tuple[str, str], tuple[str, str | None]]:
    records = tree.measured()
    items = [{"stage": r.stage, "check": r.check, "variant": r.variant, "subject": r.subject, "target": r.target} for r in records]
    plan: t.Any = samples.plan(tree.hosts, ["fabric_map"], items=items)
    records = [record.replaced(run_id=plan.run_id) for record in records]
    found = verdict.judge(plan, records, lambda *_who: expectations.shipped(), stages=[STAGE])
    return {(v["subject"]["id"], v["check"]): (v["verdict"], v["reason_code"]) for v in found.verdicts}


def test_a_healthy_fabric_passes_with_each_of_its_switches() -> None:
    found = judged(FatTree(16))
    assert {word for word, _code in found.values()} == {"PASS"} and found["leaf-1", "cables"] and found["spine-2", "cables"]


def test_a_node_or_a_switch_bears_what_is_wrong_with_its_cables() -> None:
    tree = FatTree(16)
    del tree.cables["gpu-0007:1"]
    del tree.cables["leaf-3:6"]
    bad = {who: code for who, (word, code) in judged(tree).items() if word != "PASS"}
    assert bad == {("gpu-0007", "ports"): "cable_missing", ("leaf-3", "cables"): "cable_missing"}


def test_two_nodes_of_a_fabric_discover_it() -> None:
    checks = [(check, "") for check in ("ports", "optics", "discovery")]
    names = [f"gpu-{number}" for number in range(4)]
    settings = {name: {"fabric_map_fabric": "all", "fabric_map_checks": checks} for name in names}
    items, _notes = STAGE.items({name: name for name in names}, settings)
    assert [item.target for item in items if item.check == "discovery"] == names[:2]  # type: ignore[union-attr]
    assert len(items) == 10
