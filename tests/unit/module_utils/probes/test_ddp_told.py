# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the head of a group that trains makes of what ranks printed: nothing passes that was not wholly measured."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import hangs, launching
from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise import hang
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import ddp as reading
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import ddp
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import ddp as workload
from harness import trained

CHECKS = trained.CHECKS


def codes(found: ddp.LaunchReport) -> dict[str, str]:
    return {check: found.of(check)[0] for check in CHECKS}


def test_a_healthy_group_passes() -> None:
    found = trained.told()
    assert codes(found) == dict.fromkeys(CHECKS, "") and not found.findings({"check": "pace", "variant": ""})
    assert found.of("all_reduce")[2]["metrics"]["busbw"]["value"] == 150.0


@pytest.mark.parametrize(
    ("change", "of_job", "code"),
    [
        (trained.on_another_node, {}, "rank_mismatch"),
        (trained.of_another_world, {}, "rank_mismatch"),
        (trained.twice, {}, "rank_mismatch"),
        (trained.on_one_gpu, {}, "rank_mismatch"),
        (trained.killed_later, {"rc": 1}, "rank_died"),
        (None, {"rc": 3}, "tool_failed"),
        (None, {"missing": "not found"}, "tool_missing"),
    ],
)
def test_nothing_of_a_group_counts_that_is_not_the_asked_one_or_did_not_end(
    change: trained.Change | None, of_job: trained.Record, code: str
) -> None:
    assert codes(trained.told(change, **of_job)) == dict.fromkeys(CHECKS, code)


def test_a_launch_over_a_rail_counts_where_nccl_says_that_it_was_that_rail() -> None:
    found = trained.told()
    found.job.order["rail"] = "mlx5_1"
    code, reason, _ranks = found._cause() or ("", "", ())
    assert code == "other_way" and "gpu-01 does not say which RDMA devices it uses" in reason and "may not be rail mlx5_1" in reason
    debug = "[default0]:{0}:7:7 [0] NCCL INFO NET/IB : Using [0]mlx5_1:1/IB; OOB ib0:10.0.0.1<0>\n"
    debug += "[default0]:{0}:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0\n"
    found.job.out += debug.format("gpu-01") + debug.format("gpu-02")
    assert found._cause() is None


def test_a_rank_that_hung_before_it_said_who_it_is_has_its_finding() -> None:
    found = trained.told()
    record = found.parsed["ranks"].pop(1)
    found.cause = reading.Failure("rank_hung", "rank 1 is stopped", (1,))
    assert not found.findings({"check": "training", "variant": "op=training"})
    look = hang.Look("T"), hang.Look("T")
    found.evidence = hangs.Evidence(found.head.group)
    answer = hangs.Answer((hang.RankSeen(1, record["node"], look),), {1: record["local"]})
    found.evidence.answers = {record["node"]: answer}
    (finding,) = found.findings({"check": "training", "variant": "op=training"})
    assert finding["subject"]["kind"] == "gpu" and finding["subject"]["members"] == [record["node"]]
    assert finding["reason_code"] == "rank_hung" and "rank 1 is stopped" in finding["reason"]
    found.job.ranks //= 2  # of some GPUs of each node
    assert not found.findings({"check": "training", "variant": "op=training"})


WAITS = (hang.Look("S", frames=(hang.Frame("all_reduce", "/v/torch/distributed/distributed_c10d.py", 9),)),) * 2
STOPPED = (hang.Look("T"),) * 2


@pytest.mark.parametrize(
    ("looks", "code", "ranks", "words"),
    [
        ({0: WAITS, 1: WAITS, 2: WAITS, 3: WAITS}, "timeout", (), "3 of 4 ranks waited in all_reduce int32 (operation 6); the evidence"),
        ({0: WAITS, 1: STOPPED, 2: WAITS, 3: WAITS}, "rank_hung", (1,), "is stopped (state T); 3 of 4 ranks waited in all_reduce int32"),
        ({0: WAITS, 1: WAITS, 2: WAITS, 3: STOPPED}, "rank_hung", (3,), "last in model (operation 5) did not come to all_reduce int32"),
    ],
)
def test_no_other_rank_is_named_by_words_than_by_what_was_seen(
    looks: dict[int, tuple[hang.Look, hang.Look]], code: str, ranks: tuple[int, ...], words: str
) -> None:
    """Rank 3 is behind by its word, as one is that waits for data which was lost."""
    found = trained.told(given={"backend": "nccl"})
    nodes = {rank: record["node"] for rank, record in found.parsed["ranks"].items()}
    told = {rank: ("all_reduce int32", 6) if rank < 3 else ("model", 5) for rank in nodes}
    found.parsed["done"] = set()
    found.parsed["at"] = {rank: {"rank": rank, "node": nodes[rank], "op": op, "seq": seq} for rank, (op, seq) in told.items()}
    timeout = {"kind": "fault", "code": "timeout", "reason": "Timed out"}
    found.parsed["faults"] = [{**timeout, "rank": rank, "node": nodes[rank], "op": told[rank][0], "seq": 6} for rank in range(3)]
    evidence = hangs.Evidence(found.head.group)
    evidence.gathered, evidence.places = True, reading.places(found.parsed)
    for node in sorted(set(nodes.values())):
        of = [rank for rank in nodes if nodes[rank] == node]
        answer = hangs.Answer(tuple(hang.RankSeen(rank, node, looks[rank]) for rank in of), {rank: rank % 2 for rank in of})
        evidence.answers[node] = answer
    cause = reading.cause(found.parsed, {}, "", 4)
    assert cause and (cause.code, cause.ranks) == ("rank_hung", (3,))
    judged = found._looked_at(cause, evidence)
    assert (judged.code, judged.ranks) == (code, ranks) and words in judged.reason, judged
    cleared = "rank 3 is behind the others, in model (operation 5), and waits itself"
    assert ("rank 3" in judged.reason.replace(cleared, "")) is (ranks == (3,))


def test_what_is_wrong_for_sure_comes_before_why_a_group_ended() -> None:
    def broken(one: trained.Record) -> trained.Record | None:
        if one["kind"] == "checked":
            return {**one, "wrong": 1, "example": "element 7"}
        return {**one, "last": 0.9} if one["kind"] == "training" else trained.on_another_node(one)

    found = codes(trained.told(broken))
    assert (found["collectives"], found["training"], found["pace"]) == ("wrong_results", "not_trained", "rank_mismatch")


@pytest.mark.parametrize(
    ("check", "change", "code"),
    [
        ("collectives", trained.one_of("checked", 3), "incomplete_output"),
        ("collectives", trained.one_of("checked", 3, type="int32"), "incomplete_output"),  # as many, and one of them trained.twice
        ("collectives", trained.one_of("checked", 0, elements=0), "incomplete_output"),
        ("collectives", trained.one_of("checked", 0, elements=4096 * trained.WORLD * 2), "incomplete_output"),  # a round less
        ("collectives", trained.one_of("checked", 1, elements=0, unsupported="bfloat16 is not supported"), "unsupported"),  # NCCL has it
        ("all_reduce", trained.one_of("bandwidth", 1), "incomplete_output"),
        ("all_reduce", trained.one_of("bandwidth", 1, size=1 << 21), "incomplete_output"),
        ("all_reduce", trained.one_of("bandwidth", 0, time_us=0), "bad_output"),
        ("all_reduce", trained.one_of("bandwidth", 0, time_us=-1.0, busbw=-1.0), "bad_output"),
        ("all_reduce", trained.one_of("bandwidth", 0, busbw=1500.0), "bad_output"),
        ("all_reduce", trained.one_of("bandwidth", 0, type="float16"), "bad_output"),
        ("all_reduce", trained.one_of("bandwidth", 0, time_us=10**400), "incomplete_output"),
        ("training", trained.one_of("training", 0), "incomplete_output"),
        ("training", trained.one_of("training", 0, steps=3), "incomplete_output"),
        ("training", trained.one_of("training", 0, last=0.9, limit=1.0), "not_trained"),
        ("training", trained.one_of("training", 0, last=0.9, ratio=0.1), "not_trained"),
        ("training", trained.one_of("training", 0, first=None), "bad_output"),
        ("training", trained.one_of("training", 0, last=-3.0), "bad_output"),
        ("training", trained.one_of("training", 0, identical=False), "wrong_results"),
        ("training", trained.one_of("training", 0, finite=False), "not_trained"),
        ("pace", trained.one_of("pace", 2), "incomplete_output"),
        ("pace", trained.one_of("pace", 2, compute_ms=0), "bad_output"),
        ("pace", trained.one_of("pace", 2, rank=5), "incomplete_output"),
    ],
)
def test_what_is_missing_or_absurd_is_no_measurement(check: str, change: trained.Change, code: str) -> None:
    assert codes(trained.told(change)) == {**dict.fromkeys(CHECKS, ""), check: code}


@pytest.mark.parametrize("given", [{"rounds": 0}, {"rounds": -1}, {"types": []}])
def test_what_compares_nothing_passes_nothing(given: trained.Record) -> None:
    found = trained.told(lambda one: {**one, "elements": 0} if one["kind"] == "checked" else None, given)
    assert found.of("collectives")[0] in ("incomplete_output", "unsupported")


def test_a_rank_that_computes_slower_is_a_finding_whatever_it_says_of_itself() -> None:
    found = trained.told(trained.one_of("pace", 3, compute_ms=34.0, slower_percent=0.0, straggler=False))
    (slow,) = found.findings({"check": "pace", "variant": ""})
    assert slow["subject"]["id"] == "gpu-02/gpu/slot-1" and slow["context"]["findings"][0]["code"] == "straggler"
    assert "13 % more than on the fastest node" in slow["context"]["findings"][0]["text"]


def test_a_slow_node_is_named_by_the_planned_check_too() -> None:
    found = trained.told(trained.slow_from(2))
    code, _reason, more = found.of("pace")
    assert code == "" and [one["code"] for one in more["context"]["findings"]] == ["straggler"] * 2
    assert "rank 2 (gpu-02/gpu/slot-0): computing takes 36.00 ms" in more["context"]["findings"][0]["text"]


@pytest.mark.parametrize(
    ("times", "devices", "late"),
    [
        ([30, 36, 36], ["H200"] * 3, [1, 2]),  # the median is slow
        ([30, 31, 32.5], ["H200"] * 3, []),
        ([30, 60, 60], ["H200", "H100", "H100"], []),
        ([30, 36, 36], ["npu:0", "npu:1", "npu:2"], [1, 2]),
    ],
)
def test_ranks_are_held_against_the_fastest_node_with_the_same_device(times: list[float], devices: list[str], late: list[int]) -> None:
    behind = workload.slower(times, ["a", "b", "c"], devices)
    assert [rank for rank, by in enumerate(behind) if by > 10] == late


def test_one_quick_gpu_is_not_the_reference_of_a_node() -> None:
    assert max(workload.slower([27, 30, 30, 31, 30, 30], ["a"] * 3 + ["b"] * 3, ["H200"] * 6)) < 4


def test_gloo_need_not_have_everything() -> None:
    lacking = trained.one_of("checked", 1, elements=0, unsupported="Invalid scalar type")
    found = trained.told(lacking, {"backend": "gloo"}).of("collectives")
    assert found[0] == "" and found[2]["context"]["not_of_the_backend"] == ["all_reduce bfloat16"]
    rank = object.__new__(workload.Rank)
    rank.order = {"backend": "nccl", "lacks": ()}
    broken = RuntimeError("CUDA error: operation not supported")
    assert not rank.lacks("all_reduce", "bfloat16", broken)
    rank.order = {"backend": "gloo", "lacks": workload.GLOO_LACKS}
    assert rank.lacks("reduce_scatter", "int32", RuntimeError("ProcessGroupGloo does not support reduce_scatter"))
    assert not rank.lacks("all_reduce", "int32", broken)


def test_the_files_of_other_tools_say_the_same() -> None:
    assert trained.told().files()["ddp_tests_result.json"]["ok"]
    left = trained.told(trained.one_of("checked", 3)).files()
    assert not left["ddp_tests_result.json"]["ok"] and "all_gather of bfloat16" in left["ddp_tests_result.json"]["reason"]
    assert left["summary.json"]["ddp_tests"]["returncode"] == 3 and left["summary.json"]["ddp_train"]["returncode"] == 0


def test_the_search_measures_no_better() -> None:
    found = trained.told(trained.one_of("bandwidth", 1))
    head = t.cast(ddp.Trainer, found.head)
    assert head.read_job(found.job).code == "incomplete_output"
    assert head.read_job(trained.told().job).outcome == "measured"
    assert isinstance(found.job, launching.Job)


@pytest.mark.parametrize(("broken", "memos"), [(None, 4), ("member", 0), ("timeout", 0), ("wrong_results", 4)])
def test_of_a_launch_all_is_left_for_a_resume_or_nothing(broken: str | None, memos: int) -> None:
    """An error may be what a head sees of members that are ended; what is wrong for sure is not. A finding is kept with the first check."""
    head = t.cast(ddp.Trainer, trained.told().head)
    head.node.checkpoints = []
    checks = ddp.default_checks(head.params)
    assert head.batches(checks) == [checks] and len(head.batches([*checks, {"check": "pace", "variant": "backend=nccl gpus=1"}])) == 2
    made = [observation.measured(one["check"], variant=one["variant"], subject=head.subject_of()) for one in checks]
    if broken:
        made[3] = observation.failed(checks[3]["check"], broken, "it is", variant=checks[3]["variant"], subject=head.subject_of())
    made.append(observation.measured("localise", subject={"kind": "gpu", "id": "gpu-02/gpu/1", "members": ["gpu-02"]}))
    said = list(head._remembered([head._name(check) for check in checks], iter(made)))
    left = [one["memo"] for one in said if "memo" in one]
    assert said[:5] == made and len(left) == memos
    assert [[of["check"] for of in one["observations"]] for one in left] == [
        ["collectives", "localise"], ["all_reduce"], ["training"], ["pace"]
    ][:memos]  # fmt: skip


def test_files_of_a_group_that_was_not_whole_say_that_nothing_is_well(tmp_path: pathlib.Path) -> None:
    found = trained.told(None, {"results_dir": str(tmp_path / "reports")})
    head = t.cast(ddp.Trainer, found.head)
    files = found.files(["gpu-03"])
    assert not files["ddp_tests_result.json"]["ok"] and "gpu-03" in files["ddp_tests_result.json"]["reason"]
    assert files["summary.json"]["ddp_train"]["returncode"] == 3 and not files["ddp_training_result.json"]["improved"]
    head._leave(found.files())
    assert sorted(path.name for path in (tmp_path / "reports").iterdir()) == sorted(ddp.FILES)
    assert set(found.files()["ddp_training_result.json"]) == {
        "world", "epochs", "batch_size", "steps", "loss_start", "loss_end", "improved"
    }  # fmt: skip
    head._leave({})
    assert not list((tmp_path / "reports").iterdir()), "what an earlier launch left is no answer of this one"
