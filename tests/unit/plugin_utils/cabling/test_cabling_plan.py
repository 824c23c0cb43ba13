# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fabrics held to a plan of their cables."""

from __future__ import annotations

import pathlib

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
        ("", "found an empty file, expected a heading with the columns node, port, switch, switch_port"),
        ("node,port,switch\na,1,b\n", "found the columns node, port, switch, expected a heading with the columns node, port, switch, s"),
        ("node,port,switch,switch_port\n", "found no cable"),
        ("node,port,switch,switch_port\na,1,b,\n", "line 2: found no switch_port"),
        ("\nnode,port,switch,switch_port\n\na,1,b,1\n\n# spare\n", "line 6: found no port"),
        ("sep=;\r\nnode;port;switch;switch_port\r\na;1;b;\r\n", "line 3: found no switch_port"),
        ("A-Node Name,A-Port,Z-Node Name\na,1,b\n", "found the columns a_node_name, a_port, z_node_name, expected a heading"),
        ("node,port,switch,switch_port\na,1,b,1\na,1,b,2\n", "found a 1 in line 2 and line 3"),
    ],
)
def test_a_plan_with_a_mistake_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(RunError, match=words):
        plan.parse(text, "cables.csv")


def test_a_plan_that_is_not_there_is_named_with_the_folder_in_which_it_was_sought(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match=f"acceptance_fabric_plan: {tmp_path}/cables.csv cannot be read: No such file"):
        plan.load("cables.csv")


def test_a_plan_may_say_the_rack_of_a_switch() -> None:
    assert plan.parse("node,port,switch,switch_port,rack\na,1,leaf-1,3,R7\n", "cables.csv")[0].rack == "R7"


def test_a_yaml_list_is_a_plan_too() -> None:
    text = "- {node: a, port: mlx5_0, switch: leaf-1, switch_port: 3}"
    assert plan.parse(text, "cables.yml") == [("a", "mlx5_0", "leaf-1", "3", "")]
    with pytest.raises(RunError, match="expected a list"):
        plan.parse("a: 1", "cables.yml")


@pytest.mark.parametrize("suffix", [".cluster.local", ""])
def test_names_of_nodes_with_and_without_their_domain_are_the_same(suffix: str) -> None:
    tree = FatTree(16)
    cables = [cable._replace(node=f"{cable.node}{suffix}" if cable.node.startswith("gpu") else cable.node) for cable in planned(tree)]
    tree.swap("gpu-0003:1", "gpu-0005:1")
    assert [finding.code for finding in found(tree, cables)] == ["cable_swapped"]


def test_a_node_that_the_plan_has_by_another_name_is_not_held_to_it() -> None:
    tree = FatTree(16)
    cables = [cable._replace(node=cable.node.replace("gpu", "node")) for cable in planned(tree)]
    tree.swap("gpu-0003:1", "gpu-0005:1")
    findings = found(tree, cables)
    assert {(finding.verdict, finding.code) for finding in findings} == {("UNKNOWN", "cable_unknown")} and len(findings) == 16
    assert findings[0].words == (
        "the plan names no cable of gpu-0001, and has node-0001, which is no node of this run, where gpu-0001 mlx5_0/1 is plugged in "
        "(port 1 of leaf-1): is it another name of gpu-0001?"
    )


def test_a_cable_that_the_plan_does_not_have_at_either_end_is_a_warning() -> None:
    tree = FatTree(16)
    cables = [cable for cable in planned(tree) if cable.node != "gpu-0003"]
    assert [(finding.verdict, finding.code) for finding in found(tree, cables)] == [("WARN", "cable_unknown")]


def test_a_plan_of_switches_alone_leaves_the_nodes_to_each_other() -> None:
    tree = FatTree(32, 4, 8, 2, 8)
    cables = [cable for cable in planned(tree) if cable.node.startswith("leaf")]
    assert found(tree, cables) == []
    tree.swap("gpu-0003:1", "gpu-0003:3")
    assert [finding.code for finding in found(tree, cables)] == ["cable_swapped"]


def test_a_port_with_two_cables_by_two_of_its_names_is_unknown() -> None:
    tree = FatTree(16)
    cables = [*planned(tree), plan.Cable("gpu-0001", "1", "leaf-4", "9")]
    assert [(finding.verdict, finding.code) for finding in found(tree, cables)] == [("UNKNOWN", "cable_unknown")]


@pytest.mark.parametrize("value", ["1.10", "true", "0xfc6a1c0300020040", "[1]"])
def test_a_name_that_yaml_does_not_read_as_it_is_written_is_refused(value: str) -> None:
    with pytest.raises(RunError, match=r"entry 1: found .*put it between quotes"):
        plan.parse(f"[{{node: a, port: 1, switch: leaf, switch_port: {value}}}]", "cables.yml")


@pytest.mark.parametrize("label", ["1/{}", "Eth1/{}", "swp{}"])
def test_a_plan_with_other_names_of_the_switches_ports_blames_no_node(label: str) -> None:
    """As the labels of the front, where the tools have numbers."""
    tree = FatTree(16)
    cables = [cable._replace(switch_port=label.format(cable.switch_port)) for cable in planned(tree)]
    (finding,) = found(tree, [cable for cable in cables if cable.node.startswith("gpu")])
    assert (finding.verdict, finding.code) == ("UNKNOWN", "cable_unknown")
    assert f"a port {label.format(1)} of leaf-1, whose ports have names as 1" in finding.words
    cables = [*planned(tree)[1:], planned(tree)[0]._replace(switch_port="60")]
    assert [each.code for each in found(tree, cables)] == ["cable_wrong"]


def test_a_switch_may_be_named_by_its_guid() -> None:
    tree = FatTree(16)
    for form in ("{}", "0x{}", "0x{}".upper()):
        cables = [cable._replace(switch=form.format(tree.guid(cable.switch))) for cable in planned(tree) if cable.node.startswith("gpu")]
        assert found(tree, cables) == []


@pytest.mark.parametrize(
    "heading",
    [
        "node,port,switch,switch port,rack", "A-Node Name,A-Port,Z-Node Name,Z-Port,Z-Rack", "A-Node,A-Port,Z-Node,Z-Port,Z-Rack",
        "SRC_NAME,SRC_PORT,DST_NAME,DST_PORT,DST_RACK", "Source Device,Source Port,Destination Device,Destination Port,Destination Rack",
        "A-Side Name,A-Side Port,Z-Side Name,Z-Side Port,Z-Side Rack", "Cables of pod 1,,,,\nNode,Port,Switch,Switch Port,Rack",
        "Source,,Destination,,\nName,HCA/Port,Name,Port,Rack", "sep=,\nnode,port,switch,switch_port,rack",
    ],
)  # fmt: skip
@pytest.mark.parametrize(("separator", "end"), [(",", "\n"), (";", "\r\n"), ("\t", "\r\n")])
def test_a_sheet_of_another_tool_is_a_plan_too(heading: str, separator: str, end: str) -> None:
    """Columns of NVIDIA's Cable Validation Tool and of sheets with sides, titles and joined columns above, as Excel exports them."""
    lines = [*heading.split("\n"), "gpu-01,mlx5_0,leaf-1,3,R7", "gpu-02,2,leaf-1,4,R7"]
    text = end.join(line.replace(",", separator) for line in lines) + end
    assert plan.parse(text, "cables.csv") == [("gpu-01", "mlx5_0", "leaf-1", "3", "R7"), ("gpu-02", "2", "leaf-1", "4", "R7")]


def test_columns_of_one_name_at_both_sides_are_told_by_their_order() -> None:
    text = "Rack,U,Name,HCA/Port,Rack,U,Name,Port\n316,22,gpu-01,1,R113,22,leaf-1,1/2\n"
    assert plan.parse(text, "cables.csv") == [("gpu-01", "1", "leaf-1", "1/2", "R113")]


def test_a_heading_that_is_there_once_more_is_no_cable() -> None:
    heading = "A-Node,A-Port,Z-Node,Z-Port"
    assert len(plan.parse(f"{heading}\na,1,leaf,1\n{heading}\nb,1,leaf,2\n{heading}\n", "cables.csv")) == 2


def test_a_row_that_begins_at_a_switch_is_turned_to_its_node() -> None:
    text = "A-Rack,A-Node,A-Type,A-Port,Z-Rack,Z-Node,Z-Type,Z-Port\nR7,leaf-1,Switch,swp3,R1,gpu-01,Host,mlx5_0\n"
    text += "R7,leaf-1,Switch,swp9,R8,spine-1,Switch,swp1\n"
    assert plan.parse(text, "cables.csv") == [
        ("gpu-01", "mlx5_0", "leaf-1", "swp3", "R7"), ("leaf-1", "swp9", "spine-1", "swp1", "R8"),
    ]  # fmt: skip


def test_a_cable_that_is_written_from_its_switch_is_the_same_cable() -> None:
    tree = FatTree(16)
    cables = [plan.Cable(c.switch, c.switch_port, c.node, c.port) if c.node.startswith("gpu") else c for c in planned(tree)]
    assert found(tree, cables) == [] and plan.ports_of(cables, tree.hosts) == plan.ports_of(planned(tree), tree.hosts)
    tree.swap("gpu-0003:1", "gpu-0005:1")
    assert [finding.code for finding in found(tree, cables)] == ["cable_swapped"]


def test_a_file_of_excel_in_utf_16_is_read(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "cables.csv"
    file.write_bytes("node\tport\tswitch\tswitch_port\r\na\t1\tleaf-\u00e9\t1\r\n".encode("utf-16"))
    assert plan.load(str(file)) == [("a", "1", "leaf-\u00e9", "1", "")]
    file.write_bytes("node;port;switch;switch_port\na;1;leaf-\u00e9;1\n".encode("latin-1"))
    with pytest.raises(RunError, match="it is not UTF-8"):
        plan.load(str(file))
