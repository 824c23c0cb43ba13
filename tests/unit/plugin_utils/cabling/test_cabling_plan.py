# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fabrics held to a plan of their cables."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import judgement, plan, reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import Finding
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from harness.fat_tree import FatTree


def planned(tree: FatTree) -> list[plan.Cable]:
    """Return the plan of a fabric as it is cabled now."""
    rows = ["node;port;switch;switch port"]
    for (host, rail), (leaf, port) in tree.cables.values():
        rows.append(f"{host};{f'mlx5_{rail - 1}' if host in tree.hosts else rail};{leaf};{port}")
    return plan.parse("\n".join(rows), "cables.csv")


def found(tree: FatTree, cables: list[plan.Cable]) -> list[Finding]:
    return judgement.findings(reading.read(tree.measured()).fabric, judgement.Wanted(cables, tree.hosts))


def test_a_fabric_that_is_cabled_as_planned_has_no_findings() -> None:
    tree = FatTree(16)
    assert found(tree, planned(tree)) == []


def test_exchanged_cables_of_nodes_with_one_port_are_found_by_the_plan_alone() -> None:
    tree = FatTree(16)
    cables = planned(tree)
    tree.swap("gpu-0003:1", "gpu-0005:1")
    tree.swap("leaf-1:5", "leaf-2:7")
    findings = found(tree, cables)
    assert [finding.code for finding in findings] == ["cable_swapped", "cable_swapped"]
    assert "gpu-0003 mlx5_0/1 and gpu-0005 mlx5_0/1 are exchanged by the plan" in findings[0].words


def test_missing_and_wrong_cables_are_told_apart() -> None:
    tree = FatTree(16)
    cables = planned(tree)
    del tree.cables["gpu-0007:1"]
    tree.cables["gpu-0009:1"][1] = ("leaf-1", 30)
    assert {finding.code: finding.ends[0].device for finding in found(tree, cables)} == {
        "cable_missing": "gpu-0007",
        "cable_wrong": "gpu-0009",
    }


def test_what_the_plan_names_and_nobody_saw_is_unknown() -> None:
    tree = FatTree(16)
    cables = [*planned(tree), plan.Cable("gpu-0001", "mlx5_0", "leaf-99", "1")]
    assert [(finding.verdict, finding.code) for finding in found(tree, cables)] == [("UNKNOWN", "cable_unknown")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "found the columns"),
        ("node,port,switch\na,1,b\n", "expected node, port, switch, switch_port"),
        ("node,port,switch,switch_port\n", "found no cable"),
        ("node,port,switch,switch_port\na,1,b,\n", "entry 2: found no switch_port"),
        ("node,port,switch,switch_port\na,1,b,1\na,1,b,2\n", "found a 1 in the entries 2 and 3"),
    ],
)
def test_a_plan_with_a_mistake_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(RunError, match=words):
        plan.parse(text, "cables.csv")


def test_a_plan_may_say_the_rack_of_a_switch() -> None:
    assert plan.parse("node,port,switch,switch_port,rack\na,1,leaf-1,3,R7\n", "cables.csv")[0].rack == "R7"


def test_a_yaml_list_is_a_plan_too() -> None:
    text = "- {node: a, port: mlx5_0, switch: leaf-1, switch_port: 3}"
    assert plan.parse(text, "cables.yml") == [("a", "mlx5_0", "leaf-1", "3", "")]
    with pytest.raises(RunError, match="expected a list"):
        plan.parse("a: 1", "cables.yml")
