# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine that is started anew during a run is not accepted, unless somebody announced it and everything was measured again."""

from __future__ import annotations

import datetime
import itertools
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import todo
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import measurement_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from harness.records import make_plan
from unit.plugin_utils.judging.test_verdict import GEMM, NCCL, RUN, Record, item, judge, record

BEGAN = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)
STAGES = (("stack", "cuda"), ("nccl_node", "all_reduce"), ("gemm", "bf16"))
NUMBERS = {"stack": ({}, {"gpu": "NVIDIA H200", "gpus": 4}), "nccl_node": ("busbw", NCCL), "gemm": ("tflops", GEMM)}


def at(minutes: float) -> str:
    return f"{BEGAN + datetime.timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%SZ}"


def boot(name: str, minutes: float | None = -1000.0, **more: t.Any) -> Record:
    """The identity of a machine that started so many minutes after the run."""
    booted = {} if minutes is None else {"booted": int(BEGAN.timestamp() + 60 * minutes)}
    return {"machine_id": "a" * 32, "boot_id": name, **booted, **more}


A, B, C = boot("a"), boot("b", 15.0), boot("c", 35.0)


def seen(number: int, who: Record | None, attempt: int = 1, minutes: float | None = None, node: str = "n1") -> Record:
    """A record of the stage with this number, at 10 minutes for each."""
    (stage, check), (_metric, context) = STAGES[number], NUMBERS[STAGES[number][0]]
    metrics = {"nccl_node": {"busbw": {"value": 354.0, "unit": "GB/s"}}, "gemm": {"tflops": {"value": 690.0, "unit": "TFLOPS"}}}
    fields: Record = {"metrics": metrics.get(stage, {}), "context": {**context, **({"identities": {node: who}} if who else {})}}
    if stage == "nccl_node":
        fields["series"] = [{"size": 1 << 30, "busbw": 354.0}]
    return record(node, stage, check, started_at=at(10.0 * number if minutes is None else minutes), attempt=attempt, **fields)


def verdicts(*records: Record) -> dict[str, tuple[str, str | None]]:
    """Verdict and code by stage, which the order of the journal does not change."""
    items = [item("n1", stage, check) for stage, check in STAGES]
    found = [judge(items, list(order)) for order in itertools.islice(itertools.permutations(records), 24)]
    assert all(other.verdicts == found[0].verdicts for other in found)
    return {v["stage"]: (v["verdict"], v["reason_code"]) for v in found[0].planned}


REBOOTED = ("FAIL", "rebooted")


@pytest.mark.parametrize("behind", [1, 2])
@pytest.mark.parametrize("since", [True, False])
def test_a_restart_between_two_stages_fails_the_first_stage_after_it(behind: int, since: bool) -> None:
    before, after = (boot("a"), boot("b", 10.0 * behind - 5)) if since else (boot("a", None), boot("b", None))
    found = verdicts(*(seen(number, after if number >= behind else before) for number in range(3)))
    assert [stage for stage, verdict in found.items() if verdict == REBOOTED] == [STAGES[behind][0]]


def test_the_words_name_the_node_the_stages_and_what_to_do() -> None:
    items = [item("n1", stage, check) for stage, check in STAGES]
    found = judge(items, [seen(0, A), seen(1, A), seen(2, B)])
    reason = next(v["reason"] for v in found.planned if v["stage"] == "gemm")
    assert "n1 was started anew in this run at 2026-11-21T00:15:00Z" in reason and not found.accepted
    assert "between nccl_node all_reduce (2026-11-21T00:10:00Z) and gemm bf16" in reason and "acceptance_rebooted" in reason


SAME: dict[str, tuple[Record | None, ...]] = {
    "one boot": (A, A, A),
    "nothing is known": (None, None, None),
    "a clock that was set": (A, boot("a", 5.0), boot("a", -99999.0)),
    "a snapshot that was restored": (A, boot("a", 1.0), A),
    "a container with an id of its own each time": (boot("x"), boot("y"), boot("z", -1000.02)),
    "a pod in a virtual machine of its own": (boot("v", 0, node_boot="n"), boot("w", 9, node_boot="n"), boot("x", 19, node_boot="n")),
    "a stage that saw nothing": (A, None, A),
    "pods that know their kernel and pods that do not": (boot("a", node_boot="a"), {"node_boot": "a"}, A),
}


@pytest.mark.parametrize("what", SAME)
def test_a_change_that_is_no_restart_is_not_taken_for_one(what: str) -> None:
    assert "rebooted" not in {code for _verdict, code in verdicts(*(seen(n, who) for n, who in enumerate(SAME[what]))).values()}


RESTARTS: dict[str, tuple[Record | None, ...]] = {
    "once": (A, A, B),
    "twice": (A, B, C),
    "kexec": (A, A, boot("b", 15.0)),
    "back and forth": (B, A, B),
    "between the others, which saw nothing": (A, None, B),
    "a cluster's node": (boot("a", node_boot="a"), boot("a", node_boot="a"), boot("b", 15.0, node_boot="b")),
    "a cluster's node, whose API is late": (boot("a", node_boot="a"), boot("a", node_boot="a"), boot("b", 15.0, node_boot="a")),
    "a cluster's node by its API alone": ({"node_boot": "a"}, {"node_boot": "a"}, {"node_boot": "b"}),
    "pods of virtual machines on a node that restarts": (
        boot("v", 0, node_boot="n"), boot("w", 9, node_boot="n"), boot("x", 19, node_boot="m"),
    ),
    "a clock that is wrong after it": (A, A, boot("b", -9e6)),
}  # fmt: skip


@pytest.mark.parametrize("what", RESTARTS)
def test_every_restart_that_nobody_announced(what: str) -> None:
    assert REBOOTED in verdicts(*(seen(n, who) for n, who in enumerate(RESTARTS[what]))).values()


def test_another_machine_is_not_a_restart_of_this_one() -> None:
    found = verdicts(seen(0, A), seen(1, A), seen(2, {**B, "machine_id": "b" * 32}))
    assert set(found.values()) == {("UNKNOWN", "identity_changed")}


def test_a_restart_on_an_attempt_that_does_not_count() -> None:
    lost = {**seen(2, None), "outcome": "missing", "reason_code": "unreachable", "reason": "gone", "metrics": {}}
    assert verdicts(seen(0, A), seen(1, A), lost, seen(2, B, 2, 30))["gemm"] == REBOOTED
    assert REBOOTED in verdicts(seen(0, A), seen(1, B), seen(2, A), seen(1, A, 2, 30)).values()


# Announced -----------------------------------------------------------------------------------------------------------


def announced(who: Record, minutes: float) -> Record:
    return {**who, "announced": at(minutes)}


def again(who: Record, since: float = 40.0) -> list[Record]:
    return [seen(number, who, 2, since + number) for number in range(3)]


def test_an_announced_restart_after_which_everything_was_measured_again() -> None:
    first = [seen(0, A), seen(1, A), seen(2, A)]
    assert set(verdicts(*first, *again(announced(B, 39))).values()) == {("WARN", "later_attempt")}
    items = [item("n1", stage, check) for stage, check in STAGES]
    assert "n1 was started anew in this run" in str(judge(items, [*first, *again(announced(B, 39))]).notes)


def test_what_was_not_measured_again_is_unknown() -> None:
    found = verdicts(seen(0, A), seen(1, A), seen(2, A), *again(announced(B, 39))[1:])
    assert found["stack"] == ("UNKNOWN", "rebooted") and found["gemm"] == ("WARN", "later_attempt")


def test_an_announcement_excuses_no_later_restart() -> None:
    first = [seen(0, A), seen(1, A), seen(2, A)]
    found = verdicts(*first, *again(announced(B, 39))[:2], seen(2, announced(boot("c", 42.5), 39), 2, 45))
    assert REBOOTED in found.values(), "it restarted again while the resumed run went on"
    assert REBOOTED in verdicts(*first, *again(announced(A, 5))[:2], seen(2, announced(B, 5), 2, 45)).values()


@pytest.mark.parametrize("since", [(25.0, 31.5), (None, None), (25.0, None), (None, 31.5)])
@pytest.mark.parametrize("crash", [31.5, 300.0])
def test_one_announcement_excuses_one_restart(since: tuple[float | None, float | None], crash: float) -> None:
    b, c = announced(boot("b", since[0]), 30), announced(boot("c", since[1]), 30)
    found = [seen(0, boot("a")), seen(0, b, 2, 30.2), seen(1, c, 1, crash + 1), seen(2, c, 1, crash + 2)]
    assert REBOOTED in verdicts(*found).values()
    later = {**c, "announced": at(400)}
    assert REBOOTED in verdicts(*found, seen(0, later, 3, 400.1), seen(1, later, 2, 401)).values(), "announced to one more resume"


def test_each_restart_has_its_own_announcement() -> None:
    found = [seen(0, A), *again(announced(boot("b", 15), 39)), *(seen(n, announced(boot("c", 60), 70), 3, 71 + n) for n in range(3))]
    assert REBOOTED not in verdicts(*found).values()


def test_a_fatal_finding_stays_fail_after_an_announced_restart() -> None:
    broken = seen(2, A)
    broken = {**broken, "outcome": "error", "reason_code": "ecc", "reason": "an uncorrectable error", "metrics": {}}
    assert verdicts(seen(0, A), seen(1, A), broken, *again(announced(B, 39)))["gemm"] == ("FAIL", "ecc")


def test_a_restart_that_a_soak_judges() -> None:
    soaked = seen(2, B)
    soaked["context"]["boots"] = ["a", "b"]
    assert "rebooted" not in {code for _verdict, code in verdicts(seen(0, A), seen(1, A), soaked).values()}


def test_a_restart_of_one_member_fails_its_group() -> None:
    members = ["n1", "n2"]
    group = {"kind": "group", "id": "nccl_fabric", "members": members}
    other = {"machine_id": "b" * 32}
    context = {"identities": {"n1": A, "n2": boot("z", 15, **other)}}
    among = record(stage="nccl_fabric", subject="nccl_fabric", started_at=at(20), context=context)
    among["subject"] = group
    planned = {**item("n1", "nccl_fabric"), "subject": group}
    found = judge([item("n2", "stack", "cuda"), planned], [seen(0, boot("y", **other), node="n2"), among])
    assert ("FAIL", "rebooted") in {(v["verdict"], v["reason_code"]) for v in found.planned}
    assert "n2 was started anew" in str(found.verdicts)


# What a resume measures ----------------------------------------------------------------------------------------------


def left(records: list[Record], names: t.Sequence[str] = (), items: list[Record] | None = None) -> list[str]:
    plan = make_plan({"run_id": RUN, "items": items or [item("n1", stage, check) for stage, check in STAGES]})
    work = todo.remaining(plan, [measurement_of(each) for each in records], list(registry.shipped().values()), names)
    return [stage for of in work.values() for stage in of]


def test_a_resume_measures_again_what_was_measured_before_an_announced_restart() -> None:
    first = [seen(0, A), seen(1, A), seen(2, A)]
    assert left(first) == [] and left(first, ["n2"]) == []
    assert left(first, ["n1"]) == left(first, ["*"]) == ["stack", "nccl_node", "gemm"]


def test_a_resume_that_was_killed_goes_on_where_it_was() -> None:
    first, after = [seen(0, A), seen(1, A), seen(2, A)], again(announced(B, 39))
    assert left([*first, after[0]], ["n1"]) == ["nccl_node", "gemm"], "announced once more"
    assert left([*first, after[0]]) == ["nccl_node", "gemm"], "or not: the journal has it"
    assert left([*first, *after]) == left([*first, *after], ["n1"]) == []
    assert left([*first, seen(0, B, 2, 40)]) == [], "nobody announced it: that is a FAIL"


def test_groups_and_pairs_of_a_restarted_node_are_measured_again() -> None:
    pair = {"kind": "pair", "id": "n1/nic/mlx5_0/1|n2/nic/mlx5_0/1", "members": []}
    group = {"kind": "group", "id": "nccl_fabric", "members": ["n1", "n2"]}
    items = [{**item("n1", "nccl_fabric"), "subject": group}, item("n2", "stack", "cuda")]
    among = record(stage="nccl_fabric", subject="nccl_fabric", started_at=at(20))
    among["subject"] = group
    assert left([among, seen(0, boot("y"), node="n2")], ["n1"], items) == ["nccl_fabric"]
    tested = record(stage="nccl_node", subject=pair["id"], started_at=at(20))
    tested["subject"] = pair
    items = [{**item("n1"), "subject": pair}, item("n2", "stack", "cuda")]
    assert left([tested, seen(0, boot("y"), node="n2")], ["n2"], items) == ["nccl_node", "stack"]
