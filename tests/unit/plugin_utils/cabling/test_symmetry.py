# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fabrics without a plan, healthy and with planted faults: what most nodes and leaves have in common shows what the others lack."""

from __future__ import annotations

import random
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import changes, judgement, reading, unseen
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import End, Finding
from harness.fat_tree import FatTree
from hypothesis import given
from hypothesis import strategies as st

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


def three_tiers() -> FatTree:
    """Return a fabric whose four spines have two cables to each of two switches above them."""
    tree = FatTree(32, 1, 8, 4, 8)
    for number, spine in enumerate(tree.spines):
        for up in range(4):
            tree.cables[f"{spine}:{41 + up}"] = [(spine, 41 + up), (f"core-{1 + up // 2}", 2 * number + up % 2 + 1)]
    tree.numbers.update({"core-1": 91, "core-2": 92})
    return tree


def test_uplinks_that_many_leaves_lack_are_missing() -> None:
    """Three of 8 leaves, so that no number is usual: the others have as many to each spine."""
    tree = FatTree(32, per_leaf=4)
    lacking = {f"leaf-{number}" for number in (1, 2, 5)}
    for leaf in lacking:
        del tree.cables[f"{leaf}:6"]
    named = found(tree)
    assert {finding.code for finding in named} == {"cable_missing"} and [finding.ends[0].port for finding in named] == ["6"] * 3
    assert {finding.words.partition(" has")[0] for finding in named} == {f"leaf {leaf}" for leaf in lacking}
    assert all("missing to spine-1 (1 of 2)" in finding.words for finding in named)


@pytest.mark.parametrize(("without", "verdict"), [(4, "FAIL"), (6, "UNKNOWN"), (9, "UNKNOWN"), (10, ""), (16, "")])
def test_a_port_without_a_cable_on_many_nodes_is_not_accepted(without: int, verdict: str) -> None:
    tree = FatTree(20, rails=2, per_leaf=10)
    for host in tree.hosts[:without]:
        del tree.cables[f"{host}:2"]
    assert [finding.verdict for finding in found(tree)] == [verdict] * (without if verdict else 0)


def test_a_leaf_without_any_uplink_is_an_island() -> None:
    """A node with a port there and one elsewhere sees both fabrics, so that all ports are in one."""
    tree = FatTree(32, rails=2, per_leaf=8, uplinks=4)
    for up in range(1, 5):
        del tree.cables[f"leaf-4:{8 + up}"]
    finding = only(found(tree))
    assert (finding.verdict, finding.code) == ("FAIL", "cable_missing") and "leaf leaf-4 has no uplink, 3 leaves" in finding.words
    for leaf in ("leaf-2", "leaf-6", "leaf-8"):  # each switch of the second port is alone, as those of a network for storage
        for up in range(1, 5):
            del tree.cables[f"{leaf}:{8 + up}"]
    assert found(tree) == []


@pytest.mark.parametrize(
    ("slow", "verdicts"), [(5, {"FAIL"}), (10, {"FAIL"}), (12, {"UNKNOWN"}), (17, {"UNKNOWN"}), (18, set()), (20, set())]
)
def test_links_slower_than_several_of_their_kind_are_not_accepted_as_they_are_the_most(slow: int, verdicts: set[str]) -> None:
    tree = FatTree(20, per_leaf=10)
    tree.rates.update({f"{host}:1": "1xHDR" for host in tree.hosts[:slow]})
    named = found(tree)
    assert {finding.verdict for finding in named} == verdicts and len(named) == (slow if verdicts else 0)


def test_uplinks_of_spines_are_held_to_each_other_too() -> None:
    assert found(three_tiers()) == []
    tree = three_tiers()
    del tree.cables["spine-3:42"]
    missing = only(found(tree))
    assert missing.code == "cable_missing" and missing.words.startswith("switch spine-3 has 3 uplinks, its siblings have 4")
    assert "missing to core-1 (1 of 2); without a link: port 42" in missing.words


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


def exchanged(tree: FatTree, count: int, is_within: bool, seed: int) -> list[Finding]:
    """Return the findings about cables after so many random exchanges, within nodes or between them."""
    source = random.Random(seed)
    ports = [name for name in tree.cables if name.startswith("gpu")]
    for _exchange in range(count):
        host = source.choice(tree.hosts)
        tree.swap(*source.sample([name for name in ports if not is_within or name.startswith(f"{host}:")], 2))
    return [finding for finding in found(tree) if finding.code.startswith("cable")]


@pytest.mark.parametrize("is_within", [True, False])
@pytest.mark.parametrize("count", [25, 51, 85, 110])
def test_a_fabric_with_many_exchanged_cables_is_not_accepted(count: int, is_within: bool) -> None:
    """Of 512 ports. Up to a quarter of them are named; of more it is not known which are right."""
    named = exchanged(FatTree(64, rails=8, per_leaf=16, spines=4, uplinks=16), count, is_within, 1)
    if count < 60:
        assert {finding.verdict for finding in named} == {"FAIL"} and len(named) > 0.9 * count
    else:
        assert [(finding.verdict, finding.code) for finding in named] == [("UNKNOWN", "cable_unknown")] or len(named) > 0.9 * count


@pytest.mark.parametrize("rails", [2, 4, 8])
def test_a_last_group_of_few_nodes_is_no_fault_of_them(rails: int) -> None:
    """Two nodes say of no leaf which rail it has."""
    assert found(FatTree(18, rails=rails, per_leaf=8, spines=2, uplinks=4)) == []


@pytest.mark.parametrize("rails", [2, 4, 8])
def test_nodes_whose_ports_have_no_order_are_no_faults_of_each_other(rails: int) -> None:
    """The network is as good with them."""
    for seed in range(20):
        tree, source = FatTree(24, rails=rails, per_leaf=8, spines=2, uplinks=4), random.Random(seed)
        for host in tree.hosts:
            names = [f"{host}:{rail}" for rail in range(1, rails + 1)]
            ends = [tree.cables[name][1] for name in names]
            source.shuffle(ends)
            for name, end in zip(names, ends, strict=True):
                tree.cables[name][1] = end
        assert found(tree) == []


def sharing(width: int, hosts: int = 18) -> FatTree:
    """Return a fabric in which `width` neighbouring ones of 8 ports of a node are plugged into one leaf."""
    tree = FatTree(hosts, rails=8, per_leaf=8, uplinks=4)
    for place, host in enumerate(tree.hosts):
        for rail in range(8):
            leaf = tree.leaves[place // 8 * 8 + rail // width * width]
            tree.cables[f"{host}:{rail + 1}"][1] = (leaf, 100 + place % 8 * 8 + rail)
    used = {ends[1][0] for name, ends in tree.cables.items() if name.startswith("gpu")}
    tree.cables = {name: ends for name, ends in tree.cables.items() if name.startswith("gpu") or ends[0][0] in used}
    return tree


@pytest.mark.parametrize("width", [2, 4, 8])
def test_ports_that_share_leaves_are_held_to_the_nodes_that_are_plugged_in_alike(width: int) -> None:
    assert found(sharing(width)) == []
    tree = sharing(width)
    tree.swap("gpu-0001:1", "gpu-0009:8")
    finding = only(found(tree))
    assert finding.code == "cable_swapped" and {end.device for end in finding.ends[:2]} == {"gpu-0001", "gpu-0009"}
    tree = sharing(width)
    tree.cables["gpu-0003:1"][1] = ("leaf-9", 250)
    finding = only(found(tree))
    assert finding.code == "cable_wrong" and finding.ends[0] == End("gpu-0003", "mlx5_0/1") and "expected leaf-1" in finding.words


@pytest.mark.parametrize(("rails", "moved"), [(2, 1), (8, 4)])
def test_a_node_that_is_half_at_the_leaves_of_other_nodes_is_found(rails: int, moved: int) -> None:
    tree = FatTree(24, rails=rails, per_leaf=8, spines=2, uplinks=4)
    for rail in range(1, moved + 1):
        tree.cables[f"gpu-0002:{rail}"][1] = (tree.leaves[rails + rail - 1], 60)
    finding = only(found(tree))
    assert (finding.verdict, finding.code) == ("FAIL", "cable_wrong") and {end.device for end in finding.ends} == {"gpu-0002"}
    assert "gpu-0002 is plugged into leaves of different nodes" in finding.words


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
def test_a_link_that_trained_down_is_found(size: dict[str, int]) -> None:
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
    for look in looks:
        look.update(manager_state="STANDBY")
    (finding,) = judgement.findings(reading.read(records).fabric, judgement.Wanted(nodes=tree.hosts))
    assert "the subnet manager that answers is no master (STANDBY)" in finding.words
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


def test_a_few_adapters_of_others_do_not_make_the_nodes_a_part_of_the_fabric() -> None:
    """As one of a storage server: what is wrong between switches that nobody is plugged into is a fault of this fabric."""
    tree = FatTree(32)
    for number, spine in enumerate(("spine-1", "spine-2", "spine-1", "spine-2"), 1):
        tree.cables[f"core:{number}"] = [(spine, 59 + number), ("core-1", number)]
    tree.numbers["core-1"] = 99
    tree.rates["core:1"] = tree.rates["leaf-8:5"] = "1xHDR"
    for host in tree.hosts[28:31]:  # the only other adapter is that of the last host, at leaf-8
        del tree.cables[f"{host}:1"]
    for hosts, verdicts in ((tree.hosts[:28], ["FAIL", "WARN"]), (tree.hosts[:16], ["WARN", "WARN"])):
        records = [record for record in tree.measured() if record.subject.id in hosts]
        found = judgement.findings(reading.read(records).fabric, judgement.Wanted(nodes=hosts, others=["gpu-*"]))
        slow = {"core-1" in finding.words: finding.verdict for finding in found if finding.code == "link_slow"}
        assert [slow[True], slow[False]] == verdicts


def test_counters_that_were_cleared_during_the_run_have_counted_what_they_show() -> None:
    tree, later = FatTree(16), FatTree(16)
    tree.errors[("leaf-1", 2)] = {"SymbolErrorCounter": 5000}
    later.errors[("leaf-1", 2)] = {"SymbolErrorCounter": 1100}
    (finding,) = changes.findings(reading.read(tree.measured()).fabric, reading.read(later.measured()).fabric, True)
    assert finding.code == "port_errors" and "SymbolErrorCounter by 1100 to 1100" in finding.words


def test_adapters_of_another_chip_are_held_to_their_own_kind() -> None:
    tree = FatTree(**RAILS)
    newer = tree.hosts[8:]
    tree.rates.update({name: "4xNDR" for name in tree.cables if name.partition(":")[0] in newer})
    measured = tree.measured()
    for record in measured:
        for port in record.context.get("ports", ()):
            port["model"] = "MT4129" if record.subject.id in newer else "MT4123"
    measured[9].context["ports"][0]["model"] = None  # a broken one does not say it
    fabric = reading.read(measured).fabric
    assert judgement.findings(fabric, judgement.Wanted(nodes=tree.hosts)) == []
    broken = End("gpu-0010", "mlx5_0/1")
    fabric.rates.update(dict.fromkeys((broken, fabric.links[broken]), fabric.rates[End("gpu-0001", "mlx5_0/1")]))
    slow = only(judgement.findings(fabric, judgement.Wanted(nodes=tree.hosts)))
    assert slow.code == "link_slow" and slow.ends[0] == broken and "links of its kind at 425" in slow.words


@pytest.mark.parametrize("name", ["gpu-0002:1", "leaf-1:3"])
def test_of_two_links_of_a_kind_neither_is_right_if_their_rates_differ(name: str) -> None:
    tree = FatTree(2, per_leaf=2, uplinks=2)
    tree.rates[name] = "1xHDR"
    finding = only(found(tree))
    assert (finding.verdict, finding.code) == ("UNKNOWN", "unresolved") and "the other link of its kind at 212.5" in finding.words


def test_a_lost_adapter_does_not_move_the_others_to_another_rail() -> None:
    tree = FatTree(**RAILS)
    measured = tree.measured()
    measured[2].context["ports"].pop(0)
    fabric = reading.read(measured).fabric
    judged = judgement.findings(fabric, judgement.Wanted(nodes=tree.hosts))
    assert [finding.code for finding in judged] == ["unknown_device"] or judged == []
    tree.swap("gpu-0003:2", "gpu-0003:3")
    measured = tree.measured()
    measured[2].context["ports"].pop(0)
    codes = [finding.code for finding in judgement.findings(reading.read(measured).fabric, judgement.Wanted(nodes=tree.hosts))]
    assert "cable_swapped" in codes


def test_links_whose_ends_could_be_faster_are_named_although_all_are_alike() -> None:
    tree = FatTree(4, per_leaf=2, uplinks=2)
    measured = tree.measured()
    seen = next(record.context["fabrics"][0] for record in measured if record.check == "discovery")
    seen["could"] = [[tree.port_guid("gpu-0001", 1), 1, 106.25], [tree.guid("leaf-1"), 1, 106.25]]
    finding = only(judgement.findings(reading.read(measured).fabric, judgement.Wanted(nodes=tree.hosts)))
    assert (finding.verdict, finding.code) == ("WARN", "link_slow") and "4x HDR, and both ends can do 106.25" in finding.words


def test_a_port_that_is_up_and_leads_to_nobody_is_not_accepted() -> None:
    tree = FatTree(4, per_leaf=2, uplinks=2)
    measured = tree.measured()
    seen = next(record.context["fabrics"][0] for record in measured if record.check == "discovery")
    seen["down"] = [[tree.guid("leaf-1"), 30, "Initialize", "LinkUp"], [tree.guid("leaf-1"), 31, "Down", "Polling"]]
    fabric = reading.read(measured).fabric
    finding = only(judgement.findings(fabric, judgement.Wanted(nodes=tree.hosts)))
    assert (finding.verdict, finding.code, finding.ends) == ("UNKNOWN", "no_answer", ((tree.guid("leaf-1"), "30"),))


def silent_in_part(switch: str, change: t.Callable[[list[t.Any]], t.Any] = len) -> tuple[str, str]:
    """Return verdict and words of a port of a switch that is up and leads to nobody, where the last of 16 hosts with two ports is none of
    the run. `change` alters the measurements."""
    tree = FatTree(16, rails=2, per_leaf=8, uplinks=4)
    tree.hosts, others = tree.hosts[:15], tree.hosts[15]
    tree.described[others] = "storage-1 HCA-1"
    measured = tree.measured()
    seen = next(record.context["fabrics"][0] for record in measured if record.check == "discovery")
    seen["down"] = [[tree.guid(switch), 30, "Initialize", "LinkUp"]]
    change(measured)
    wanted = judgement.Wanted(nodes=tree.hosts, others=["storage-*"])
    (finding,) = [each for each in judgement.findings(reading.read(measured).fabric, wanted) if each.code == "no_answer"]
    return finding.verdict, finding.words


def test_a_device_that_does_not_answer_is_of_others_if_all_nodes_of_the_run_are_seen() -> None:
    verdict, words = silent_in_part("leaf-1")
    assert verdict == "WARN" and "it may be of" not in words
    assert silent_in_part("leaf-4")[0] == "WARN"


def test_a_device_that_does_not_answer_between_switches_is_no_adapter_of_others() -> None:
    assert silent_in_part("spine-1")[0] == "UNKNOWN"


def lose_an_adapter(measured: list[t.Any]) -> None:
    measured[3].context["ports"].pop()


def hear_nothing(measured: list[t.Any]) -> None:
    """A node says nothing of its ports, and no adapter in the fabric has its name."""
    del measured[3]
    fabric = measured[-1].context["fabrics"][0]
    lost = {device[0] for device in fabric["devices"] if device[2].startswith("gpu-0004")}
    fabric["devices"] = [device for device in fabric["devices"] if device[0] not in lost]
    fabric["links"] = [link for link in fabric["links"] if not lost & {link[0], link[2]}]


def lead_nowhere(measured: list[t.Any]) -> None:
    measured[3].context["ports"][0]["guid"] = "00000000000000ff"


def come_up(measured: list[t.Any]) -> None:
    measured[3].context["ports"][0].update(state="INIT", guid=None)


@pytest.mark.parametrize("change", [lose_an_adapter, hear_nothing, lead_nowhere, come_up])
def test_a_device_that_does_not_answer_may_be_of_a_node_that_is_not_seen_whole(change: t.Callable[[list[t.Any]], t.Any]) -> None:
    verdict, words = silent_in_part("leaf-1", change)
    assert verdict == "UNKNOWN" and "it may be of gpu-0004" in words


def test_adapters_of_a_node_that_says_nothing_are_not_those_of_others() -> None:
    """They have its name, and the name may have a domain."""
    tree = FatTree(16)
    measured = tree.measured()
    seen = next(record.context["fabrics"][0] for record in measured if record.check == "discovery")
    seen["down"] = [[tree.guid("leaf-1"), 30, "Initialize", "LinkUp"]]
    fabric = reading.read(measured[:3] + measured[4:]).fabric
    for domain in ("", ".site"):
        nodes = [f"{host}{domain}" if host == "gpu-0004" else host for host in tree.hosts]
        judged = judgement.findings(fabric, judgement.Wanted(nodes=nodes))
        assert [(each.verdict, each.code) for each in judged] == [("UNKNOWN", "no_answer")]
    judged = judgement.findings(fabric, judgement.Wanted(nodes=[host for host in tree.hosts if host != "gpu-0004"], left_out=True))
    assert [(each.verdict, each.code) for each in judged] == [("WARN", "no_answer")]


def test_switches_of_two_fabrics_with_one_name_are_told_apart() -> None:
    planes = [FatTree(4, per_leaf=2, uplinks=2) for _plane in range(2)]
    planes[1].guid = lambda name, rail=1: "b" + FatTree.guid(planes[1], name, rail)[1:]  # type: ignore[method-assign]
    measured = planes[0].measured()
    second = planes[1].measured()
    for one, other in zip(measured, second, strict=True):
        one.context.get("ports", []).extend({**port, "device": "mlx5_1"} for port in other.context.get("ports", ()))
        one.context.get("fabrics", []).extend(other.context.get("fabrics", ()))
    fabric = reading.read(measured).fabric
    names = [device.name for device in fabric.devices.values()]
    assert len(names) == len(set(names)) == 4 + 2 * 4 and judgement.findings(fabric, judgement.Wanted(nodes=planes[0].hosts)) == []


def test_switches_that_have_the_name_of_their_maker_are_told_apart_by_their_ids() -> None:
    measured = FatTree(2, per_leaf=2, uplinks=0).measured()[:2]
    for number, record in enumerate(measured):
        record.context["ports"][0].update(netdev="eth0", heard=[["sonic", "Ethernet0", f"aa:{number}"]], link_layer="Ethernet")
    fabric = reading.read(measured).fabric
    assert fabric.unread == [] and {fabric.name(leaf) for leaf in fabric.leaves()} == {"sonic (aa:0)", "sonic (aa:1)"}


@pytest.mark.parametrize("number", [0, 5])
def test_what_has_another_form_than_the_probes_is_not_read_and_said(number: int) -> None:
    """A node may say anything: texts in place of numbers, short rows, something that is no list."""
    for wrong in ("x", [1], {"ports": [{"port": "1"}]}, None):
        tree = FatTree(4, per_leaf=2, uplinks=2)
        measured = tree.measured()
        for name in measured[-1 if number else 0].context:
            measured[-1 if number else 0].context[name] = wrong
        fabric, _differing = reading.read(measured)
        judged = judgement.findings(fabric, judgement.Wanted(nodes=tree.hosts))
        words = [finding.words for finding in judged if finding.code == "unresolved"]
        if wrong is not None:
            assert words == [f"what gpu-0001 says in the check {'discovery' if number else 'ports'} has not the form of the probe"]


@given(st.data())
def test_no_reader_fails_on_what_a_node_makes_up(data: st.DataObject) -> None:
    tree = FatTree(2, per_leaf=2, uplinks=2)
    values = st.sampled_from([None, "", 0, -1, 1e308, float("inf"), "N/A", [], {}, [[]], True, "1"])

    def changed(value: object) -> object:
        if data.draw(st.integers(0, 60)) == 0:
            return data.draw(values)
        if isinstance(value, dict):
            return {name: changed(each) for name, each in value.items()}
        return [changed(each) for each in value] if isinstance(value, list) else value

    measured = [record.replaced(context=changed(record.context)) for record in tree.measured()]
    measured = [record for record in measured if isinstance(record.context, dict)]
    fabric, _differing = reading.read(measured)
    judgement.findings(fabric, judgement.Wanted(nodes=tree.hosts))
    list(unseen.findings({record.key: record for record in measured}))
