# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The picture of a fabric, and the ports to look at in the order of a walk."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import judgement, picture, reading, walk
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import Finding, Map
from harness.fat_tree import FatTree

RED = picture._COLOURS["FAIL"]


def seen(tree: FatTree) -> tuple[Map, list[Finding]]:
    fabric = reading.read(tree.measured()).fabric
    return fabric, judgement.findings(fabric, judgement.Wanted(nodes=tree.hosts))


def words(svg: str) -> set[str]:
    return {element.text or "" for element in ET.fromstring(svg).iter() if element.tag.endswith("text")}


def test_a_small_fabric_is_drawn_with_each_node_and_nothing_in_red() -> None:
    svg = picture.draw(*seen(FatTree(16)))
    assert {"gpu-0001", "gpu-0016", "leaf-4", "spine-2"} <= words(svg) and RED not in svg


def test_of_a_large_fabric_only_nodes_with_a_finding_are_drawn() -> None:
    tree = FatTree(256, rails=4, per_leaf=32, spines=8, uplinks=32)
    healthy = picture.draw(*seen(tree))
    tree.swap("gpu-0100:3", "gpu-0200:3")
    svg = picture.draw(*seen(tree))
    assert {"gpu-0100", "gpu-0200", "31 nodes", "leaf-32", "rail 4"} <= words(svg) and "gpu-0101" not in words(svg)
    assert RED in svg and RED not in healthy and len(healthy) < 40_000


def test_a_port_without_a_cable_is_a_dashed_end_and_its_node_is_drawn_although_it_is_at_no_leaf() -> None:
    tree = FatTree(16)
    del tree.cables["gpu-0007:1"]
    svg = picture.draw(*seen(tree))
    assert "gpu-0007" in words(svg) and 'stroke-dasharray="3 2"' in svg


def test_a_fabric_of_which_no_node_knows_its_switch_has_no_picture() -> None:
    assert picture.draw(Map(), []) == ""


def test_ports_are_listed_by_rack_switch_and_port_and_both_of_exchanged_cables() -> None:
    tree = FatTree(40, rails=4, per_leaf=8)
    tree.swap("gpu-0003:2", "gpu-0012:2")
    tree.errors[("leaf-1", 2)] = {"SymbolErrorCounter": 1200}
    fabric, findings = seen(tree)
    racks = {"leaf-2": "R10", "leaf-1": "R9", "leaf-6": "R9"}
    found = [(stop.rack, stop.device, stop.port, stop.other) for stop in walk.stops(fabric, findings, racks)]
    assert found == [
        ("R9", "leaf-1", "2", "gpu-0002 mlx5_0/1"),
        ("R9", "leaf-6", "4", "gpu-0003 mlx5_1/1"),
        ("R10", "leaf-2", "3", "gpu-0012 mlx5_1/1"),
    ]


def test_a_leaf_is_in_the_rack_of_its_nodes_if_they_are_in_one() -> None:
    tree = FatTree(16)
    tree.errors[("leaf-2", 1)] = {"SymbolErrorCounter": 1200}
    fabric, findings = seen(tree)
    near = {f"gpu-{number:04d}": "R7" for number in range(5, 9)}
    assert [stop.rack for stop in walk.stops(fabric, findings, near)] == ["R7"]
    assert [stop.rack for stop in walk.stops(fabric, findings, {**near, "gpu-0005": "R8"})] == [""]
