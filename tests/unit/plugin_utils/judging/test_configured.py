# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node that is configured in another way than its identical neighbours is said to be, and has no softer floor for it."""

from __future__ import annotations

import typing as t

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
    assert words([node(n, 366.0, BY_MACHINE) for n in nodes]) == {"PASS"}
    other = {**OFF, "gpus": 4}
    mixed = [node("n0", 480.0, NVLS), node("n1", 480.0, NVLS), node("n2", 354.0, other), node("n3", 354.0, other)]
    assert all(v["reason_code"] != "settings_differ" for v in judge([item(n) for n in nodes], mixed).planned), "other hardware"
