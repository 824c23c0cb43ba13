# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The causes behind verdicts: each bad thing once, with what is bad because of it."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import causes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.causes import Blame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, key_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Cause
from harness import report_samples as samples
from harness.records import measurement, verdict

Record = dict[str, t.Any]
PORT = "b/nic/mlx5_0/1"
OWN = Key("rdma", "timetable", "", "b")


def pair(a: str, b: str, word: str = "FAIL", code: str | None = "below_floor", check: str = "write_bw") -> Record:
    subject = {"kind": "pair", "id": f"{a}|{b}", "members": []}
    return samples.verdict("x", "rdma", check, word, subject=subject, reason=f"{a}|{b}: slow", reason_code=code)


def node(name: str, word: str, code: str | None = None, reason: str = "", stage: str = "rdma", check: str = "timetable") -> Record:
    return samples.verdict(name, stage, check, word, reason=reason or f"{name}: {code}", reason_code=code)


def found(verdicts: list[Record], *blames: Blame, records: t.Iterable[Record] = ()) -> list[Cause]:
    deciding = {key_of(record): measurement(record) for record in records}
    return causes.found(list(map(verdict, verdicts)), blames, deciding)


def blame(*explained: Record, **fields: t.Any) -> Blame:
    return Blame(PORT, "nic", fields.pop("said", "slow"), own=(OWN,), explains=frozenset(map(key_of, explained)), **fields)


def test_what_was_convicted_comes_first_and_its_pairs_stand_under_it() -> None:
    pairs = [pair("a", "b"), pair("b", "c")]
    verdicts = [*pairs, pair("c", "d"), node("a", "FAIL", "drift", stage="stack"), node("b", "FAIL", "bad_rail"), node("c", "PASS")]
    first, *others = found(verdicts, blame(*pairs))
    assert (first["subject"], first["kind"], first["verdict"], first["convicted"]) == (PORT, "nic", "FAIL", True)
    assert first["said"] == "b mlx5_0 port 1: slow; 2 pairs are low because of it"
    assert first["own"] == [OWN] and first["explains"] == sorted(map(key_of, pairs))
    assert {c["subject"] for c in others} == {"c|d", "a"}


def test_no_verdict_is_lost_and_none_stands_under_two() -> None:
    pairs = [pair("a", "b"), pair("b", "c")]
    verdicts = [*pairs, node("b", "FAIL", "bad_rail"), node("a", "WARN", "drift", stage="stack")]
    other = Blame("a", "node", "late", own=(Key("rdma", "timetable", "", "a"),), explains=frozenset(map(key_of, pairs)))
    made = found(verdicts, blame(*pairs), other)
    placed = [key for c in made for key in (*c["own"], *c["explains"])]
    assert sorted(placed) == sorted(map(key_of, verdicts))


def test_another_finding_of_an_explained_pair_is_its_own() -> None:
    """Wrong results, or two sides that speak of different tests, are not the port's slowness."""
    slow, wrong = pair("a", "b"), pair("b", "c", code="wrong_results")
    made = found([slow, wrong, node("b", "FAIL", "bad_rail")], blame(slow, wrong))
    assert {c["subject"] for c in made} == {PORT, "b|c"}


def test_another_reason_of_the_nodes_own_check_is_not_covered() -> None:
    slow = pair("a", "b")
    made = found([slow, node("b", "UNKNOWN", "identity_changed", "b: it was another machine")], blame(slow))
    assert {c["subject"]: c["said"] for c in made} == {
        PORT: "b mlx5_0 port 1: slow; 1 pair is low because of it", "b": "b: rdma timetable: it was another machine",
    }  # fmt: skip


def test_counters_are_one_line_for_each_port_and_explain_no_number() -> None:
    warned, slow = pair("a", "b", "WARN", "evidence"), pair("b", "c")
    told = blame(warned, slow, said="error counters rose", counters=True)
    made = {c["subject"]: c for c in found([warned, slow, node("b", "WARN", "evidence")], told)}
    assert made[PORT]["said"] == "b mlx5_0 port 1: error counters rose; 1 pair is a WARN because of it" and made[PORT]["whole"]
    assert set(made) == {PORT, "b|c"} and not made[PORT]["convicted"]


def test_counters_of_a_gpu_are_said_once_for_all_its_tests() -> None:
    change = {"code": "ecc_corrected", "part": "gpu/G1", "text": "GPU 0: ecc_corrected rose from 0 to 4"}
    records = [samples.measurement("a", stage, "x", evidence={"changes": [change]}) for stage in ("nccl_node", "gemm")]
    verdicts = [
        samples.verdict("a", stage, "x", "WARN", reason_code="evidence", reason="a: it passed, but") for stage in ("nccl_node", "gemm")
    ]
    (cause,) = found(verdicts, records=records)
    assert cause["said"] == "a G1: error counters rose in 2 tests: GPU 0: ecc_corrected rose from 0 to 4" and cause["subject"] == "a/gpu/G1"


def test_a_gpu_stands_for_its_node_and_its_worst_is_said_first() -> None:
    slow = "a/gpu/G1: tflops 600 is 0.84 of the median"
    verdicts = [
        samples.verdict("a", "gemm", "bf16", "FAIL", part="G1", reason=slow),
        samples.verdict("a", "gemm", "bf16", "FAIL", reason=slow),
        samples.verdict("a", "stack", "gpu_health", "WARN", reason="a/gpu/G1: hot", part="G1"),
    ]
    (cause,) = found(verdicts)
    assert cause["said"] == "a G1: gemm bf16: tflops 600 is 0.84 of the median; also stack gpu_health: hot"
    assert len(cause["own"]) == 3 and not cause["whole"]


def test_a_node_whose_number_is_that_of_one_gpu_is_no_second_cause() -> None:
    number = {"metric": "bandwidth", "value": 25.6, "unit": "GB/s", "reason_code": "below_floor"}
    node_low = samples.verdict("a", "gpu_memory", "h2d", "FAIL", reason="a: bandwidth 25.6 GB/s is low", **number)
    first, second = (
        samples.verdict("a", "gpu_memory", "h2d", "FAIL", part=part, reason=f"a/gpu/{part}: bandwidth 25.6 GB/s is low", **number)
        for part in ("G1", "G2")
    )
    assert [cause["subject"] for cause in found([node_low, first])] == ["a/gpu/G1"]
    # Of two with the same number, and of another number, nobody knows.
    assert [cause["subject"] for cause in found([node_low, first, second])] == ["a", "a/gpu/G1", "a/gpu/G2"]
    assert [cause["subject"] for cause in found([node_low, {**first, "value": 25.7}])] == ["a", "a/gpu/G1"]


def test_a_count_of_a_node_is_not_that_of_its_gpu() -> None:
    count = {"value": 1.0, "unit": "count"}
    restarted = samples.verdict("a", "soak", "load", "FAIL", reason="a: it was started anew once", reason_code="rebooted", **count)
    counted = samples.verdict("a", "soak", "load", "FAIL", part="G1", reason="a/gpu/G1: 1 error", reason_code="errors_counted", **count)
    assert {cause["subject"] for cause in found([restarted, counted])} == {"a", "a/gpu/G1"}


def test_no_finding_hides_behind_another_one() -> None:
    def slow(stage: str, check: str, variant: str = "") -> Record:
        return samples.verdict("a", stage, check, "FAIL", part="G1", variant=variant, reason=f"a/gpu/G1: {stage} {check} {variant} slow")

    alone, together = (slow("gemm", "bf16", f"mode={mode} shape=8x8x8") for mode in ("alone", "together"))
    (cause,) = found([alone, together])
    assert cause["said"].endswith("slow; also mode=together")
    (cause,) = found([alone, together, slow("nccl_node", "all_reduce"), slow("stack", "ecc")])
    assert cause["said"].endswith("slow; also mode=together, nccl_node all_reduce, stack ecc")
    (cause,) = found([alone, together, *(slow("z", f"c{number}") for number in range(6))])
    assert cause["said"].endswith("slow; also mode=together, z c0, z c1, z c2 and 3 more")
    (cause,) = found([alone, {**alone, "variant": "shape=8x8x8", "reason": "a/gpu/G1: other"}])
    assert cause["said"].endswith("slow; also another finding of this check")
    home, *others = (slow("disks", check, f"of={name}") for check, name in (("mount", "home"), ("read", "scratch"), ("verify", "home")))
    (cause,) = found([home, *others])
    assert cause["said"].endswith("slow; also disks read of=scratch, disks verify")


def test_what_a_node_says_of_its_gpu_is_not_hidden_by_a_milder_check_of_the_gpu() -> None:
    broken = samples.verdict("a", "gemm", "bf16", "FAIL", reason="a/gpu/G1: it was lost", reason_code="gpu_lost")
    mild = samples.verdict("a", "gemm", "bf16", "WARN", part="G1", reason="a/gpu/G1: a little slow", reason_code="below_warn")
    (cause,) = found([broken, mild])
    assert cause["verdict"] == "FAIL" and cause["said"].startswith("a G1: gemm bf16: it was lost")


def test_pairs_and_groups_of_a_node_that_was_lost_are_its() -> None:
    group = {"kind": "group", "id": "rdma/all", "members": ["a", "b", "c"]}
    verdicts = [
        *(node("b", "UNKNOWN", "unreachable", "b: b cannot be reached", stage=stage) for stage in ("rdma", "gemm")),
        pair("a", "b", "UNKNOWN", "partner"),
        samples.verdict("x", "rdma", "all", "UNKNOWN", subject=group, reason_code="incomplete"),
        pair("a", "c", "UNKNOWN", "tool_failed"),
    ]
    lost, alone = found(verdicts)
    assert lost["said"] == "b: b cannot be reached; 1 pair and 1 group were not measured because of it"
    assert alone["subject"] == "a|c"


def test_what_is_good_has_no_cause() -> None:
    assert found([node("a", "PASS"), node("b", "SKIPPED")], blame(pair("a", "b"))) == []
