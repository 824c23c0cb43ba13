# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node that is configured in another way than its identical neighbours is said to be, and has no softer floor for it."""

from __future__ import annotations

import typing as t

import pytest
from unit.plugin_utils.judging.test_verdict import Record, item, judge, nccl

NVLS = {"gpu": "NVIDIA H200", "gpus": 8, "nvls": True, "algorithm": "auto", "series_units": {"busbw": "GB/s"}}
OFF = {**NVLS, "nvls": False}
BY_MACHINE = {**OFF, "nccl_machine": {"NCCL_NVLS_ENABLE": "0"}}
SIZE = 16 << 30


def node(name: str, busbw: float, context: Record) -> Record:
    return nccl(name, busbw, SIZE, context=context)


def fleet(odd: list[Record], healthy: int = 5) -> list[tuple[str, str | None, str]]:
    """The verdicts of the odd ones among healthy nodes that use NVLS."""
    records = [*odd, *(node(f"h{n}", 480.0, NVLS) for n in range(healthy))]
    found = judge([item(r["subject"]["id"]) for r in records], records)
    assert all(v["verdict"] == "PASS" for v in found.planned[len(odd) :]) or healthy < 2
    return [(v["verdict"], v["reason_code"], " ".join([v["reason"], *v["findings"]])) for v in found.planned[: len(odd)]]


def test_a_setting_of_the_machine_itself_gives_it_no_softer_floor() -> None:
    ((verdict, code, said),) = fleet([node("odd", 366.0, BY_MACHINE)])
    assert (verdict, code) == ("FAIL", "below_floor"), "366 GB/s are those of the ring"
    assert "NCCL_NVLS_ENABLE=0 of the machine itself" in said and "nvls is False, of 5 of 6 True" in said
    ((verdict, code, said),) = fleet([node("odd", 480.0, BY_MACHINE)])
    assert (verdict, code) == ("WARN", "settings_differ"), "fast enough, and still configured otherwise"


@pytest.mark.parametrize("machine", ["0", "1"])
def test_a_setting_of_the_machine_that_nccl_got_gives_it_no_softer_floor(machine: str) -> None:
    """NCCL's environment holds what the run has set and what the machine has by itself; only the former chooses a floor."""
    context = {**OFF, "nccl_env": {"NCCL_NVLS_ENABLE": "0"}, "nccl_machine": {"NCCL_NVLS_ENABLE": machine}}
    ((verdict, code, _said),) = fleet([node("odd", 366.0, context)])
    assert (verdict, code) == ("FAIL", "below_floor")


def test_what_the_run_sets_for_one_node_is_a_warning() -> None:
    ((verdict, code, said),) = fleet([node("odd", 366.0, OFF)])
    assert (verdict, code) == ("WARN", "settings_differ") and "machine itself" not in said
    ((verdict, code, _said),) = fleet([node("odd", 366.0, {**OFF, "algorithm": "ring"})])
    assert (verdict, code) == ("WARN", "settings_differ")


def test_of_two_nodes_neither_is_in_the_majority() -> None:
    assert [one[:2] for one in fleet([node("odd", 366.0, BY_MACHINE)], healthy=1)] == [("FAIL", "below_floor")]
    found = judge([item("a"), item("b")], [node("a", 480.0, NVLS), node("b", 480.0, OFF)])
    assert [(v["verdict"], v["reason_code"]) for v in found.planned] == [("WARN", "settings_differ")] * 2


def test_nothing_is_said_where_all_are_alike() -> None:
    nodes = [f"n{number}" for number in range(4)]

    def words(records: list[Record]) -> set[t.Any]:
        return {v["verdict"] for v in judge([item(n) for n in nodes], records).planned}

    assert words([node(n, 366.0, OFF) for n in nodes]) == {"PASS"}, "nccl_node_env of the inventory, for all"
    assert words([node(n, 480.0, BY_MACHINE) for n in nodes]) == {"PASS"}, "fast enough for any floor"
    other = {**OFF, "gpus": 4}
    mixed = [node("n0", 480.0, NVLS), node("n1", 480.0, NVLS), node("n2", 354.0, other), node("n3", 354.0, other)]
    assert all(v["reason_code"] != "settings_differ" for v in judge([item(n) for n in nodes], mixed).planned), "other hardware"


def test_settings_of_all_machines_that_select_a_softer_floor_are_said() -> None:
    """Nobody differs, as where an image brings them along; and there may be but one node."""
    for names in (["n1"], ["n1", "n2", "n3"]):
        found = judge([item(n) for n in names], [node(n, 366.0, BY_MACHINE) for n in names]).planned
        assert [(v["verdict"], v["reason_code"]) for v in found] == [("FAIL", "below_floor")] * len(names), "a state selects no floor"
        assert any("NCCL_NVLS_ENABLE=0" in words and "the run sets them" in words for words in found[0]["findings"])
    # What the run says itself is meant, and what is too slow for any floor stays what it is.
    by_run = {**BY_MACHINE, "nccl_env": {"NCCL_NVLS_ENABLE": "0", "NCCL_ALGO": "Ring"}, "nccl_machine": {"NCCL_ALGO": "Ring"}}
    ((own,), (slow,)) = (judge([item()], [node("n1", busbw, by_run)]).planned for busbw in (366.0, 300.0))
    assert own["verdict"] == "PASS" and (slow["verdict"], slow["reason_code"]) == ("FAIL", "below_floor")


FABRIC = {**NVLS, "nodes": 2, "nics": 8, "nic_gbps": 400, "mnnvl": False, "link_layer": "InfiniBand", "nics_down": 0}


def groups(*each: tuple[float, Record]) -> list[Record]:
    """The verdicts of groups of two nodes with this busbw and this in their context."""
    items, records = [], []
    for number, (busbw, more) in enumerate(each):
        subject = {"kind": "group", "id": f"g{number}", "members": [f"g{number}a", f"g{number}b"]}
        about = {"stage": "nccl_fabric", "subject": subject, "target": f"g{number}a"}
        items.append({**item(), **about})
        records.append({**node("n1", busbw, {**FABRIC, **more}), **about})
    return judge(items, records).planned


@pytest.mark.parametrize("left", [1, 4])
def test_nics_that_are_not_active_give_a_group_no_softer_floor(left: int) -> None:
    """The same ports of all its nodes are down: a switch of theirs is."""
    busbw = 54.0 * left
    (found,) = groups((busbw, {"nics_used": left, "nics_down": 8 - left}))
    assert (found["verdict"], found["reason_code"]) == ("UNKNOWN", "port_down") and "not active" in found["reason"]
    (found,) = groups((busbw, {"nics_used": left}))
    assert (found["verdict"], found["reason_code"]) == ("UNKNOWN", "port_down") and "settings of the machines leave out" in found["reason"]
    assert groups((busbw, {"nics": left}))[0]["verdict"] == "PASS", "there are no others, or NCCL_IB_HCA leaves them out"
    assert groups((430.0, {"nics_used": 7, "nics_down": 1}))[0]["verdict"] == "PASS", "as fast as all of them"
    assert groups((50.0, {"nics_used": 4, "nics_down": 4}))[0]["verdict"] == "FAIL"


def test_a_group_with_fewer_or_slower_nics_than_others_is_said_to_have_them() -> None:
    for slow in ({"nics": 4}, {"nic_gbps": 200}):
        found = groups((430.0, {}), (192.0, slow), (430.0, {}))
        assert [v["verdict"] for v in found] == ["PASS", "WARN", "PASS"] and found[1]["reason_code"] == "link_slow"
    assert [v["verdict"] for v in groups((430.0, {}), (192.0, {"nics": 4, "gpus": 4}))] == ["PASS", "PASS"], "other nodes"
