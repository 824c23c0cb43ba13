# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The output of a group of ranks, and why it ended: the precedence of causes, and whom values blame."""

from __future__ import annotations

import json
import pathlib
import random
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import ddp

RECORDED = pathlib.Path(__file__).resolve().parents[3] / "fixtures/ddp-h200"
RANKS = [{"kind": "rank", "rank": n, "world": 4, "node": f"gpu-0{n // 2 + 1}", "local": n % 2, "uuid": f"GPU-{n}"} for n in range(4)]
ENDS = [{"kind": "end", "rank": n, "node": f"gpu-0{n // 2 + 1}"} for n in range(4)]


def text(*records: dict[str, t.Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in (*RANKS, *records))


def fault(rank: int, code: str, reason: str = "why", **more: t.Any) -> dict[str, t.Any]:
    where = {"rank": rank, "node": f"gpu-0{rank // 2 + 1}", "op": "all_reduce int32", "seq": 5}
    return {"kind": "fault", **where, "code": code, "reason": reason, **more}


def cause(*records: dict[str, t.Any], ends: dict[str, int] | None = None, errors: str = "") -> ddp.Failure | None:
    return ddp.cause(ddp.parse(text(*records)), ends or {}, errors, 4)


def test_a_group_that_came_to_its_end_has_no_cause() -> None:
    assert cause(*ENDS) is None
    found = ddp.parse("[default0]:" + text(*ENDS).replace("\n", "\n[default0]:"))
    assert found["done"] == {0, 1, 2, 3} and found["ranks"][3]["node"] == "gpu-02"


def test_ranks_without_an_end_are_named() -> None:
    said = cause(*ENDS[:3])
    assert said and said.code == "incomplete_output" and "rank 3 on gpu-02 (GPU-3)" in said.reason


def test_who_hangs_is_who_is_behind() -> None:
    """As gloo and the pulse of ranks print it: three time out in an operation that the fourth has not come to."""
    at = {"kind": "at", "rank": 3, "node": "gpu-02", "op": "init_process_group", "seq": 4, "busy": 9.0}
    said = cause(*(fault(n, "timeout", "Timed out waiting 10000ms") for n in range(3)), at)
    assert said and (said.code, said.ranks) == ("rank_hung", (3,))
    assert "rank 3 on gpu-02" in said.reason and "all_reduce int32 (operation 5), in which 3 of 4 ranks waited" in said.reason


def test_those_that_wait_are_not_named_because_a_few_have_gone_on() -> None:
    """In a broadcast the root does not wait for the others: what it sent may be lost."""
    at = {"kind": "at", "rank": 0, "node": "gpu-01", "op": "all_gather int32", "seq": 6, "busy": 9.0}
    said = cause(*(fault(n, "timeout") for n in (1, 2, 3)), at)
    assert said and (said.code, said.ranks) == ("timeout", ()) and "3 of 4 ranks did not come to all_gather int32" in said.reason


def test_of_several_that_are_behind_the_last_is_named() -> None:
    at = [{"kind": "at", "rank": n, "node": "gpu-02", "op": f"operation {seq}", "seq": seq, "busy": 9.0} for n, seq in ((2, 4), (3, 3))]
    said = cause(*(fault(n, "timeout") for n in (0, 1)), *at)
    assert said and (said.code, said.ranks) == ("rank_hung", (3,)) and "rank 2" not in said.reason


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=60000) ran for 60", "NCCL's watchdog named ALLREDUCE"),
        ("WorkNCCL(OpType=BROADCAST, TensorShape=[8], Timeout(ms)=60000) ran for 60", "NCCL's watchdog named BROADCAST"),
        ("WorkNCCL(SeqNum=7, OpType=_ALLGATHER_BASE, NumelIn=8, NumelOut=64, Timeout", "named _ALLGATHER_BASE, sequence number 7"),
        ("WorkHCCL(SeqNum=3, OpType=ALLREDUCE, Timeout(ms)=60000) ran for 60", "HCCL's watchdog named ALLREDUCE, sequence number 3"),
    ],
)
def test_watchdogs_of_all_versions_are_read(words: str, named: str) -> None:
    dog = "[E ProcessGroup.cpp:4] [Rank 1] Watchdog caught collective operation timeout: "
    said = cause(*(fault(n, "timeout") for n in range(4)), errors=dog + words)
    assert said and said.reason.endswith(named)
    later = f"{dog}WorkNCCL(SeqNum=90, OpType=GATHER, NumelIn=1\n{dog}WorkNCCL(SeqNum=12, OpType=BROADCAST, NumelIn=1\n"
    said = cause(*(fault(n, "timeout") for n in range(4)), errors=later)
    assert said and said.reason.endswith("BROADCAST, sequence number 12 and GATHER, sequence number 90")


def test_nobody_is_behind_where_all_are_in_the_same_operation() -> None:
    dog = "[rank0]:[E1122] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=1048576"
    said = cause(*(fault(n, "timeout") for n in range(4)), errors=dog)
    assert said and (said.code, said.ranks) == ("timeout", ()) and "ALLREDUCE, sequence number 2" in said.reason


def test_what_a_rank_died_of_comes_before_what_others_say_of_it() -> None:
    ended = {"kind": "ended", "node": "gpu-02", "rank": 3, "local": 1, "exitcode": -9}
    said = cause(fault(0, "partner", "Connection closed by peer"), fault(2, "cuda_failed", "NCCL error"), ended)
    assert said and (said.code, said.ranks) == ("rank_died", (3,)) and "killed by signal 9" in said.reason


def test_a_rank_that_speaks_comes_before_those_that_lost_it() -> None:
    ended = [{"kind": "ended", "node": "gpu-01", "rank": n, "local": n, "exitcode": code} for n, code in ((0, -15), (1, 1))]
    said = cause(fault(0, "partner"), fault(1, "out_of_memory", "CUDA out of memory"), *ended)
    assert said and (said.code, said.ranks) == ("out_of_memory", (1,)) and "rank 1 on gpu-01" in said.reason


def test_a_killed_agent_is_the_cause_and_not_its_partners() -> None:
    said = cause(fault(2, "agent_lost"), fault(3, "agent_lost"), fault(0, "partner"), ends={"gpu-02": 137, "gpu-01": 1})
    assert said and said.code == "agent_lost" and "gpu-02 (status 137)" in said.reason and "gpu-01" not in said.reason


def test_a_lost_node_is_the_cause_and_not_its_partners() -> None:
    said = cause(fault(0, "partner"), ends={"gpu-02": 255})
    assert said and said.code == "lost_node" and "gpu-02" in said.reason


def test_who_could_not_come_knows_better_than_who_waited() -> None:
    waited = {"kind": "fault", "node": "gpu-01", "code": "rendezvous", "reason": "gpu-02 did not come"}
    visited = {"kind": "fault", "node": "gpu-02", "code": "name_resolution", "reason": "gpu-02: the name gpu-01 does not resolve here"}
    said = cause(waited, visited)
    assert said and said.code == "name_resolution" and "gpu-02 did not come" not in said.reason


def checked(op: str, wrong: int, ranks: list[int], senders: dict[str, int]) -> dict[str, t.Any]:
    return {"kind": "checked", "op": op, "type": "int32", "elements": 4096, "wrong": wrong, "ranks": ranks, "senders": senders,
            "example": "element 7", "unsupported": ""}  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "blamed"),
    [
        ([checked("all_gather", 4, [0, 1, 2, 3], {"2": 4})], (2,)),
        ([checked("all_reduce", 4, [1], {})], (1,)),
        ([checked("all_reduce", 4, [0, 1, 2, 3], {})], ()),
        ([checked("all_reduce", 4, [0, 1, 2, 3], {}), checked("broadcast", 2, [0, 1, 3], {"2": 6})], (2,)),
        ([checked("all_gather", 4, [0, 1, 2, 3], {"2": 4, "3": 1})], ()),
    ],
)
def test_wrong_values_blame_the_rank_that_differs(rows: list[dict[str, t.Any]], blamed: tuple[int, ...]) -> None:
    found = ddp.wrong(ddp.parse(text(*rows)))
    assert found and found[1] == blamed and "element 7" in found[0]
    assert ddp.wrong(ddp.parse(text(checked("all_reduce", 0, [], {})))) is None


def test_bad_text_never_raises() -> None:
    good = text(*ENDS, fault(1, "timeout"), checked("all_reduce", 4, [0], {"x": 1}), {"kind": "pace", "rank": 1})
    dice = random.Random(4)
    for _unused in range(300):
        at = dice.randrange(len(good))
        piece = dice.choice(['{"kind":"rank","rank":true}', "null", "[", '"', "\n", "NaN", "1e999", ""])
        broken = good[:at] + piece + good[at + dice.randrange(9) :]
        found = ddp.parse(broken)
        ddp.cause(found, {"gpu-01": dice.choice([-9, 0, 1, 255])}, broken, 4)
        ddp.wrong(found)


def recorded(name: str) -> dict[str, t.Any]:
    return ddp.parse((RECORDED / f"{name}.txt").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "code", "what"),
    [
        ("rank-stopped", "rank_hung", "did not come to all_reduce int32 (operation 5), in which 1 of 2 ranks waited"),
        ("rank-killed", "rank_died", "was killed by signal 9"),
    ],
)
def test_a_rank_that_is_lost_on_real_gpus_is_named(name: str, code: str, what: str) -> None:
    lost = ddp.cause(recorded(name), {}, "", 2)
    assert lost and (lost.code, lost.ranks) == (code, (1,)) and what in lost.reason and "gpu-02 (GPU-2222" in lost.reason


def test_two_real_gpus_of_two_hosts_train_and_a_fault_shows_in_its_own_part_only() -> None:
    seen = {}
    for name in ("healthy", "wrong-sum", "slow-rank", "parameters-differ", "loss-not-finite"):
        group = recorded(name)
        assert ddp.cause(group, {}, "", 2) is None and group["done"] == {0, 1} and len(group["ranks"]) == 2
        training, (first, second) = group["training"], (group["pace"][rank]["compute_ms"] for rank in (0, 1))
        seen[name] = (ddp.wrong(group) is not None, training["identical"], training["finite"], second > 1.1 * first)
    assert seen == {
        "healthy": (False, True, True, False),
        "wrong-sum": (True, True, True, False),
        "slow-rank": (False, True, True, True),
        "parameters-differ": (False, False, True, False),
        "loss-not-finite": (False, True, False, False),
    }
