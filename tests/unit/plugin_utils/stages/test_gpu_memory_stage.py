# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The description of the stage gpu_memory."""

from __future__ import annotations

import itertools
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import measurement_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.gpu_memory import STAGE
from hypothesis import given
from hypothesis import strategies as st


def row(node: str, check: str, series: list[dict[str, t.Any]]) -> t.Any:
    record = {
        "schema": "measurement/v1", "run_id": "20261124T160000Z-abcdef", "plane": "ssh", "stage": "gpu_memory", "check": check,
        "variant": "", "target": node, "attempt": 1, "subject": {"kind": "node", "id": node, "members": []}, "outcome": "measured",
        "reason_code": None, "reason": None, "simulated": True, "metrics": {}, "series": series, "context": {}, "evidence": {},
        "started_at": "2026-11-24T16:00:00Z", "duration_s": 0.0, "tool_version": None, "command": [], "raw": None, "raw_sha256": None,
    }  # fmt: skip
    return None, measurement_of(record)


def pairs(gpus: int, rate: t.Any, direct: bool = True) -> list[dict[str, t.Any]]:
    return [{"gpu": a, "to": b, "bandwidth": rate, "direct": direct} for a in range(gpus) for b in range(gpus) if a != b]


def test_the_matrix_of_the_slowest_nodes_is_shown() -> None:
    rows = [row(f"n{n}", "peer", pairs(3, 390.0 - n)) for n in range(5)] + [row("slow", "peer", pairs(2, 30.0, direct=False))]
    found = STAGE.sections(rows)
    assert [one["title"] for one in found] == [f"Copies between the GPUs of {node}" for node in ("slow", "n4", "n3")]
    (crowd,) = STAGE.sections([row("a", "peer_all", pairs(2, 200.0)), row("b", "peer_all", pairs(2, 390.0))])
    assert crowd["title"] == "Copies between the GPUs of a, all at once" and "all GPUs sending at once" in crowd["said"][0]
    assert found[0]["rows"] == [["GPU 0", "", "30 *"], ["GPU 1", "30 *", ""]] and found[0]["columns"] == ["", "GPU 0", "GPU 1"]
    assert found[1]["rows"] == [["GPU 0", "", "386", "386"], ["GPU 1", "386", "", "386"], ["GPU 2", "386", "386", ""]]


def opinions(check: str, series: list[dict[str, t.Any]]) -> list[tuple[str, str]]:
    _none, m = row("a", check, series)
    found = list(STAGE.opinions({m.key: m}, [m], lambda _node, _target: None, []))  # type: ignore[arg-type, return-value]
    assert {one.reason_code for _key, one in found} <= {"below_siblings"}
    return [(one.verdict, one.reason.partition(" (")[0]) for _key, one in found]


def test_a_gpu_that_all_others_reach_slowly_is_found() -> None:
    """Each sender's number is that of its slowest copy, so that all of them are equally low, or the bad GPU is the best."""
    for gpus in (4, 8):
        both = [{**of, "bandwidth": 20.0 if 2 in (of["gpu"], of["to"]) else 390.0} for of in pairs(gpus, 0)]
        assert opinions("peer_all", both) == [("FAIL", "GPU 2 sends at 20 GB/s"), ("FAIL", "GPU 2 receives at 20 GB/s")]
    series = [{**of, "bandwidth": 20.0 if of["to"] == 5 else 390.0 - of["gpu"]} for of in pairs(8, 0)]
    for check in ("peer", "peer_all"):
        assert opinions(check, series) == [("FAIL", "GPU 5 receives at 20 GB/s")]
        assert opinions(check, [{**of, "direct": False} for of in series]) == []
        assert opinions(check, pairs(8, 390.0)) == [] and opinions(check, pairs(8, None)) == []
    assert opinions("h2d", series) == []


def test_a_slow_gpu_is_judged_itself_if_its_own_check_is_known() -> None:
    series = [{**of, "bandwidth": 20.0 if of["to"] == 5 else 390.0} for of in pairs(8, 0)]
    _none, node = row("a", "peer", series)
    node.context["gpu_uuids"] = [f"GPU-{number}" for number in range(8)]
    part = node.key._replace(subject="a/gpu/GPU-5")
    for deciding, subject in (({node.key: node, part: node}, "a/gpu/GPU-5"), ({node.key: node}, "a")):
        found = STAGE.opinions(deciding, [node], lambda _node, _target: None, [])  # type: ignore[arg-type, return-value]
        assert {key.subject for key, _opinion in found} == {subject}


# Copies through the host's memory ---------------------------------------------------------------------------------------


def joined(gpus: int, direct: t.Callable[[int, int], bool], board: bool, node: t.Callable[[int], t.Any]) -> list[dict[str, t.Any]]:
    """The rows of a node whose GPUs reach one another as `direct` says; `node` is the NUMA node of a GPU, None if nobody knows."""
    rows = []
    for a, b in itertools.permutations(range(gpus), 2):
        near = None if None in (node(a), node(b)) else node(a) == node(b)
        is_direct = direct(a, b)
        rows.append({"gpu": a, "to": b, "bandwidth": 730.0 if is_direct else 18.0, "direct": is_direct, "board": board, "near": near})
    return rows


def indirect(series: list[dict[str, t.Any]]) -> dict[t.Any, str]:
    """Return {GPU: verdict} of the GPUs that the rule names; "all" for the node."""
    _none, m = row("a", "peer", series)
    m.context["gpu_uuids"] = [str(gpu) for gpu in dict.fromkeys(one["gpu"] for one in series)]
    _none, part = row("a", "peer", [])
    deciding = {m.key: m, **{m.key._replace(subject=f"a/gpu/{gpu}"): part for gpu in m.context["gpu_uuids"]}}
    found = STAGE.opinions(deciding, [m], lambda _node, _target: None, [])  # type: ignore[arg-type, return-value]
    named = {}
    for key, one in found:
        if one.reason_code == "no_peer_access":
            assert "18 GB/s through the host's memory" in one.reason
            named[int(key.subject.rpartition("/")[2]) if "/gpu/" in key.subject else "all"] = one.verdict
    return named


@given(gpus=st.integers(2, 16), nodes=st.integers(1, 4), data=st.data())
def test_gpus_of_a_board_reach_one_another_directly(gpus: int, nodes: int, data: st.DataObject) -> None:
    """Whichever do not: one, some, all, or single ways."""
    lost = data.draw(st.sets(st.integers(0, gpus - 1), max_size=gpus))
    gpu = st.integers(0, gpus - 1)
    ways = data.draw(st.sets(st.tuples(gpu, gpu).filter(lambda way: way[0] != way[1]), max_size=3))
    series = joined(gpus, lambda a, b: not {a, b} & lost and (a, b) not in ways, True, lambda gpu: gpu % nodes)
    found = indirect(series)
    if all(one["direct"] for one in series):
        assert found == {}
    else:
        assert found and set(found.values()) == {"FAIL"}
        if not any(one["direct"] for one in series):
            assert found == {"all": "FAIL"}
        elif lost:
            assert lost <= set(found)


@given(gpus=st.integers(2, 16), nodes=st.sampled_from([None, 1, 2, 4]))
def test_cards_that_nobody_lets_reach_one_another_are_not_refused(gpus: int, nodes: int | None) -> None:
    """Consumer cards, virtual machines, ACS."""
    assert indirect(joined(gpus, lambda _a, _b: False, False, lambda gpu: None if nodes is None else gpu % nodes)) == {}


@pytest.mark.parametrize(
    ("what", "gpus", "direct", "node", "expected"),
    [
        ("one of eight cards without", 8, lambda a, b: 5 not in (a, b), lambda gpu: gpu // 4, {5: "FAIL"}),
        ("two of eight cards without", 8, lambda a, b: not {2, 5} & {a, b}, lambda gpu: gpu // 4, {2: "FAIL", 5: "FAIL"}),
        ("one of four cards of a socket without", 4, lambda a, b: 3 not in (a, b), lambda gpu: 0, {3: "FAIL"}),
        ("one without, and nobody knows where it is", 4, lambda a, b: 3 not in (a, b), lambda gpu: None, {3: "UNKNOWN"}),
        ("four on one socket, one on the other", 5, lambda a, b: 4 not in (a, b), lambda gpu: gpu // 4, {}),
        ("nothing reaches across the sockets", 8, lambda a, b: a // 4 == b // 4, lambda gpu: gpu // 4, {}),
        ("bridged pairs", 8, lambda a, b: a // 2 == b // 2, lambda gpu: gpu // 4, {}),
        ("a bridge is missing", 8, lambda a, b: a // 2 == b // 2 and a < 6 and b < 6, lambda gpu: gpu // 4, {6: "WARN", 7: "WARN"}),
        ("a bridge is missing, in a virtual machine", 6, lambda a, b: a // 2 == b // 2 < 2, lambda gpu: None, {4: "WARN", 5: "WARN"}),
        ("all reach all", 8, lambda a, b: True, lambda gpu: gpu // 4, {}),
    ],
)
def test_cards_in_slots_are_held_to_their_siblings(what: str, gpus: int, direct: t.Any, node: t.Any, expected: t.Any) -> None:
    assert indirect(joined(gpus, direct, False, node)) == expected, what


def test_two_bad_gpus_of_eight_are_found() -> None:
    series = [{**of, "bandwidth": 200.0 if {1, 6} & {of["gpu"], of["to"]} else 390.0} for of in pairs(8, 0)]
    assert [words for _verdict, words in opinions("peer", series)] == [
        f"GPU {gpu} {does} at 200 GB/s" for gpu in (1, 6) for does in ("sends", "receives")
    ]


@pytest.mark.parametrize(
    ("near", "rates"),
    [((0, 1, 2, 3), (50.0, 30.0)), ((0, 1), (500.0, 30.0)), ((0, 1, 2), (50.0, 30.0))],
)
def test_a_gpu_that_is_far_from_the_others_is_not_slow(near: tuple[int, ...], rates: tuple[float, float]) -> None:
    """Four GPUs on one socket and two on the other, two with a bridge, three behind one switch."""
    for gpus in (len(near) + 1, 6):
        series = [{**of, "bandwidth": rates[(of["gpu"] in near) != (of["to"] in near)]} for of in pairs(gpus, 0)]
        assert opinions("peer", series) == []


def test_one_dead_direction_between_two_gpus() -> None:
    series = [{**of, "bandwidth": (390.0, 270.0)[of["to"]]} for of in pairs(2, 0)]
    assert opinions("peer", series) == [("FAIL", "GPU 1 receives at 270 GB/s")]
    assert opinions("peer", [{**of, "bandwidth": (390.0, 280.0)[of["to"]]} for of in pairs(2, 0)]) == []


def test_the_slowest_ways_from_far_memory_are_shown() -> None:
    rows = [row("a", "numa", [{"gpu": n, "node": 1, "h2d": 48.0 - n, "d2h": 50.0} for n in range(30)])]
    (found,) = STAGE.sections(rows)
    assert len(found["rows"]) == 20 and found["rows"][0] == ["a", "GPU 29 from NUMA node 1", "19.0"]


@pytest.mark.parametrize("value", [None, "x", float("nan")])
def test_rows_without_a_number_are_left_out(value: t.Any) -> None:
    series = [{"gpu": 0, "to": 1, "bandwidth": value, "direct": True}, {"gpu": 0, "to": 2, "bandwidth": 390.0, "direct": True}]
    (found,) = STAGE.sections([row("a", "peer", series)])
    assert found["rows"] == [["GPU 0", "390"]]


def test_a_test_that_does_not_exist_is_refused_in_the_plan() -> None:
    assert STAGE.problem({"gpu_memory_tests": ["h2d", "h2h"]}) == (
        "gpu_memory_tests: found 'h2h', expected h2d, d2h, bidirectional, h2d_all, d2h_all, bidirectional_all, numa, peer, peer_all, "
        "device, latency, pattern"
    )
    assert STAGE.problem({"gpu_memory_tests": ["h2d"]}) is None
