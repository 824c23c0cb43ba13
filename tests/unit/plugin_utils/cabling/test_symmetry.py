# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fabrics without a plan, healthy and with planted faults: what most nodes and leaves have in common shows what the others lack."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import changes, judgement, reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import Finding
from harness.fat_tree import FatTree

SIZES = [
    {"hosts": 16}, {"hosts": 16, "rails": 4}, {"hosts": 64, "rails": 8, "per_leaf": 16, "spines": 4, "uplinks": 16},
    {"hosts": 128, "rails": 2, "per_leaf": 32, "spines": 8, "uplinks": 32},
]  # fmt: skip
RAILS = {"hosts": 32, "rails": 4, "per_leaf": 8, "spines": 2, "uplinks": 8}


def found(tree: FatTree, witness: FatTree | None = None, **wanted: object) -> list[Finding]:
    fabric, differing = reading.read(tree.measured(witness))
    return [*differing, *judgement.findings(fabric, judgement.Wanted(nodes=tree.hosts, **wanted))]  # type: ignore[arg-type]


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, findings
    return findings[0]


@pytest.mark.parametrize("size", [*SIZES, {"hosts": 20, "rails": 8, "per_leaf": 16, "spines": 4, "uplinks": 16}])
def test_a_healthy_fabric_has_no_findings(size: dict[str, int]) -> None:
    assert found(FatTree(**size), FatTree(**size)) == []


def test_a_healthy_fabric_of_1024_hosts_has_no_findings() -> None:
    assert found(FatTree(1024, 1, 32, 16, 32)) == []


def test_leaves_with_their_uplinks_in_another_order_are_as_good() -> None:
    tree = FatTree(**SIZES[2])
    tree.swap("leaf-3:17", "leaf-3:32")
    assert found(tree) == []


@pytest.mark.parametrize("size", SIZES)
def test_the_cable_of_a_host_that_is_missing_is_found(size: dict[str, int]) -> None:
    tree = FatTree(**size)
    del tree.cables["gpu-0007:1"]
    finding = only(found(tree))
    assert (finding.verdict, finding.code) == ("FAIL", "cable_missing") and finding.ends[0] == ("gpu-0007", "mlx5_0/1")
    assert finding.words.startswith("gpu-0007 mlx5_0/1 has no link (DOWN, Polling)")


@pytest.mark.parametrize("size", SIZES)
def test_an_uplink_that_is_missing_is_found_with_its_port(size: dict[str, int]) -> None:
    tree = FatTree(**size)
    port = tree.per_leaf + 2
    spine = tree.cables.pop(f"leaf-3:{port}")[1][0]
    finding = only(found(tree))
    assert finding.code == "cable_missing" and "leaf leaf-3 has" in finding.words and f"missing to {spine}" in finding.words
    assert finding.words.endswith(f"without a link: port {port}")


def test_two_cables_of_one_node_that_are_exchanged_are_named_as_a_pair() -> None:
    tree = FatTree(**RAILS)
    tree.swap("gpu-0003:1", "gpu-0003:3")
    finding = only(found(tree))
    assert finding.code == "cable_swapped" and finding.ends[:2] == (("gpu-0003", "mlx5_0/1"), ("gpu-0003", "mlx5_2/1"))


def test_cables_of_two_nodes_of_different_groups_that_are_exchanged_are_named_as_a_pair() -> None:
    tree = FatTree(**RAILS)
    tree.swap("gpu-0003:2", "gpu-0020:2")
    finding = only(found(tree))
    assert finding.code == "cable_swapped" and {end.device for end in finding.ends[:2]} == {"gpu-0003", "gpu-0020"}


def test_several_exchanged_pairs_are_each_named() -> None:
    tree = FatTree(**RAILS)
    tree.swap("gpu-0003:1", "gpu-0003:3")
    tree.swap("gpu-0004:1", "gpu-0004:3")
    tree.swap("gpu-0010:2", "gpu-0030:2")
    pairs = [{end.device for end in finding.ends[:2]} for finding in found(tree) if finding.code == "cable_swapped"]
    assert len(found(tree)) == 3 and sorted(map(sorted, pairs)) == [["gpu-0003"], ["gpu-0004"], ["gpu-0010", "gpu-0030"]]


def test_a_port_on_a_wrong_rail_is_found() -> None:
    tree = FatTree(**RAILS)
    tree.cables["gpu-0003:2"][1] = ("leaf-4", 60)
    finding = only(found(tree))
    assert finding.code == "cable_wrong" and "a leaf of port 4 of the nodes; expected leaf-2" in finding.words


def test_two_ports_of_a_node_on_one_leaf_are_found_where_most_nodes_have_them_apart() -> None:
    tree = FatTree(16, 2, 8, 2, 4)
    tree.cables["gpu-0003:2"][1] = ("leaf-1", 60)
    finding = only(found(tree))
    assert finding.code == "cable_wrong" and "gpu-0003 mlx5_1/1 is plugged into port 60 of leaf-1" in finding.words


@pytest.mark.parametrize("size", SIZES[2:])
def test_uplinks_that_are_exchanged_are_named_as_a_pair(size: dict[str, int]) -> None:
    tree = FatTree(**size)
    first, last = tree.per_leaf + 1, tree.per_leaf + size.get("uplinks", 4)
    tree.swap(f"leaf-1:{first}", f"leaf-2:{last}")
    finding = only(found(tree))
    assert finding.code == "cable_swapped" and f"port {first} of leaf-1 and port {last} of leaf-2" in finding.words


@pytest.mark.parametrize("size", SIZES)
def test_a_link_that_trained_down_is_found_with_its_ends(size: dict[str, int]) -> None:
    tree = FatTree(**size)
    tree.rates["gpu-0006:1"], tree.rates[f"leaf-1:{tree.per_leaf + 1}"] = "4xSDR", "1xHDR"
    host, uplink = sorted(found(tree), key=lambda finding: "gpu" not in finding.words)
    assert host.code == uplink.code == "link_slow" and "gpu-0006 mlx5_0/1" in host.words and "at 10 Gb/s (4x SDR)" in host.words
    assert "53.125 Gb/s (1x HDR), links of its kind at 212.5" in uplink.words and f"port {tree.per_leaf + 1} of leaf-1" in uplink.words


def test_the_end_whose_device_has_more_such_links_is_the_one_to_look_at() -> None:
    tree = FatTree(**RAILS)
    for rail in (1, 2, 3):
        tree.rates[f"gpu-0006:{rail}"] = "2xHDR"
    assert all("look at gpu-0006" in finding.words and finding.ends[0].device == "gpu-0006" for finding in found(tree))


def test_counters_of_errors_are_found_at_their_port() -> None:
    tree = FatTree(16)
    tree.errors[("leaf-1", 5)] = {"SymbolErrorCounter": 65535}
    finding = only(found(tree))
    assert (
        (finding.verdict, finding.code) == ("WARN", "port_errors") and "port 5 of leaf-1" in finding.words and "its limit" in finding.words
    )


def test_adapters_of_no_node_are_found_unless_they_may_be_there() -> None:
    tree = FatTree(16)
    records = [record for record in tree.measured() if record.subject.id != "gpu-0016"]
    fabric = reading.read(records).fabric
    nodes = tree.hosts[:-1]
    assert only(judgement.findings(fabric, judgement.Wanted(nodes=nodes))).code == "unknown_device"
    assert judgement.findings(fabric, judgement.Wanted(nodes=nodes, others=["gpu-0016 *"])) == []
    assert judgement.findings(fabric, judgement.Wanted(nodes=nodes, left_out=True)) == []


def test_two_nodes_that_see_different_fabrics_are_not_believed() -> None:
    other = FatTree(16)
    del other.cables["leaf-2:5"]
    finding = only(found(FatTree(16), other))
    assert finding.verdict == "UNKNOWN" and "only gpu-0001 mlx5_0/1 sees 1 links" in finding.words


@pytest.mark.parametrize(("lids", "words"), [([1, 1, 2], "2 subnet managers"), ([0, 0, 0], "")])
def test_one_subnet_manager_too_many_is_found(lids: list[int], words: str) -> None:
    tree = FatTree(16)
    records = tree.measured()
    for record, lid in zip(records, lids, strict=False):
        record.context["ports"][0]["sm_lid"] = lid
    codes = [finding for finding in judgement.findings(reading.read(records).fabric, judgement.Wanted(nodes=tree.hosts))]
    assert [finding.code for finding in codes] == (["subnet_manager"] if words else [])


def test_a_subnet_manager_that_answers_no_node_is_found_and_one_that_answers_the_witness_is_there() -> None:
    tree = FatTree(16)
    records = tree.measured(witness=tree)
    looks = [record.context["fabrics"][0] for record in records if record.check == "discovery"]
    for look in looks:
        look.update(manager_lid=None, manager_silent=True)
    (finding,) = judgement.findings(reading.read(records).fabric, judgement.Wanted(nodes=tree.hosts))
    assert (finding.verdict, finding.code) == ("FAIL", "subnet_manager") and "no subnet manager answers" in finding.words
    looks[1].update(manager_lid=1, manager_silent=False)
    assert not judgement.findings(reading.read(records).fabric, judgement.Wanted(nodes=tree.hosts))


def test_a_subnet_manager_that_goes_during_the_run_is_found_at_its_end() -> None:
    records = FatTree(16).measured()
    before = reading.read(records).fabric
    records[-1].context["fabrics"][0].update(manager_lid=None, manager_silent=True)
    assert [finding.code for finding in changes.findings(before, reading.read(records).fabric, True)] == ["subnet_manager"]
    assert not changes.findings(before, before, True)


def test_what_is_wrong_far_from_the_nodes_of_the_run_is_a_warning() -> None:
    tree = FatTree(32)
    tree.rates["leaf-8:5"] = tree.rates["leaf-1:5"] = "1xHDR"
    records = tree.measured()
    few = [record for record in records if record.subject.id in tree.hosts[:16]]
    found = judgement.findings(reading.read(few).fabric, judgement.Wanted(nodes=tree.hosts[:16], others=["gpu-*"]))
    assert [finding.verdict for finding in found] == ["FAIL", "WARN"]
    assert "leaf-1" in found[0].words and "leaf-8" in found[1].words and "no node of this run is plugged in there" in found[1].words
    whole = judgement.findings(reading.read(records).fabric, judgement.Wanted(nodes=tree.hosts))
    assert [finding.verdict for finding in whole] == ["FAIL", "FAIL"]
