# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a resume measures again: what is left, the second look at what it works, and what was disturbed."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import todo
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import measurement_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from harness.records import make_plan
from unit.plugin_utils.judging.test_second_look import load, look
from unit.plugin_utils.judging.test_verdict import RUN, Record, gemm, item

LOOKS = [item("n1", "host_health", "kernel"), item("n1", "host_health_after", "kernel")]
TIMEOUT = {"outcome": "timeout", "reason_code": "timeout", "reason": "x"}
SECOND = ("host_health_after", "kernel", 2)


def left(items: list[Record], records: t.Sequence[Record], **options: t.Any) -> set[tuple[str, str, int]]:
    """What is left as (stage, check, attempt), whatever the order of the journal."""
    plan = make_plan({"run_id": RUN, "items": items})
    found = []
    for order in (records, records[::-1]):
        work = todo.remaining(plan, list(map(measurement_of, order)), list(registry.shipped().values()), **options)
        found.append({(s, i["check"], i["attempt"]) for of in work.values() for s, left_of in of.items() for i in left_of})
    assert found[0] == found[1]
    return found[0]


def of(stage: str, kind: str = "node", name: str = "n1", members: t.Sequence[str] = ()) -> Record:
    return {**item(name, stage, "bf16"), "subject": {"kind": kind, "id": name, "members": list(members)}, "target": "n1"}


@pytest.mark.parametrize(
    "worked", [of("gemm"), of("train"), of("mine"), of("nccl_fabric", "group", "fleet", ["n0", "n1"]), of("nccl_fabric", "pair", "n0|n1")]
)
def test_a_node_that_is_worked_again_is_looked_at_again(worked: Record) -> None:
    done = {**load(), "stage": worked["stage"], "subject": worked["subject"]}
    looks = [look("host_health"), look("host_health_after")]
    items = [*LOOKS, worked]
    assert not left(items, [*looks, done])
    again = (worked["stage"], "bf16", 2)
    assert left(items, [*looks, {**done, **TIMEOUT}]) == {again, SECOND}
    # The resume was killed between the load and the look.
    anew = {**done, "attempt": 2, "started_at": "2026-11-21T02:00:00Z"}
    assert left(items, [*looks, {**done, **TIMEOUT}, anew]) == {SECOND}
    assert not left(items, [*looks, {**done, **TIMEOUT}, anew, {**looks[1], "attempt": 2, "started_at": "2026-11-21T02:10:00Z"}])


@pytest.mark.parametrize("other", [of("gemm", name="n2"), of("nccl_fabric", "pair", "n2|n3"), {**LOOKS[0], "check": "bf16"}, of("stack")])
def test_what_works_another_node_or_none_needs_no_second_look(other: Record) -> None:
    assert left([*LOOKS, other], [look("host_health"), look("host_health_after")]) == {(other["stage"], "bf16", 1)}


BUSY = {"of": 16, "processors": 15.0, "stolen": 0, "stalled": 0.07, "programs": ["stress"]}
LOST = {"code": "port_down", "part": "", "text": "the network interface eno3 has no link after the test, and had one before"}
COUNTED = {"code": "link_errors", "part": "", "text": "the network interface eno3: carrier_down_count rose from 1 to 2"}


def beside(*changes: Record, **others: t.Any) -> Record:
    return {"window": {}, "changes": list(changes), "unreadable": [], **others}


@pytest.mark.parametrize(("evidence", "again"), [
    (beside(others=BUSY), True), (beside(LOST), True), (beside(COUNTED, LOST), True), (beside(COUNTED), False), (beside(), False),
    (beside(others={**BUSY, "processors": 0.1, "stalled": 0}), False),
    (beside({"code": "disk", "part": "", "text": "gone"}), False),  # it stays a FAIL
])  # fmt: skip
def test_what_was_disturbed_is_measured_again(evidence: Record, again: bool) -> None:
    items = [*LOOKS, of("gemm")]
    looks = [look("host_health"), look("host_health_after")]
    disturbed = load(evidence=evidence)
    assert left(items, [*looks, disturbed]) == ({("gemm", "bf16", 2), SECOND} if again else set())
    second = {**looks[1], "attempt": 2, "started_at": "2026-11-21T02:10:00Z"}
    assert not left(items, [*looks, disturbed, load(attempt=2, at="2026-11-21T02:00:00Z"), second])


def test_a_pass_beside_busy_processors_is_kept() -> None:
    items, records = [of("gemm")], [gemm("n1", 600.0, evidence=beside(others=BUSY))]
    key = Key("gemm", "bf16", "", "n1")
    assert left(items, records, unknown=lambda: {key}) == {("gemm", "bf16", 2)}
    assert not left(items, records, unknown=set)
