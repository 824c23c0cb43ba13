# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A judgement to which a second process adds is the one that a single process comes to."""

from __future__ import annotations

import os
import pathlib
import typing as t

import msgspec
import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.judgement import Judgement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import forked_worker
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import JudgingInputs
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from harness import large_run

Record = t.Dict[str, t.Any]
NODES = 7


@pytest.fixture(name="run")
def _run(tmp_path: pathlib.Path) -> tuple[Record, list[Record]]:
    """A run in which nodes differ in what is no number: their facts, their machine, their GPUs, how NCCL was set there."""
    made = large_run.make(tmp_path, NODES).run
    records = [msgspec.to_builtins(record) for record in made.journal.read()[0]]
    for record in records:
        node, context = record["target"], dict(record["context"])
        if node == "node00001" and "facts" in context:
            context["facts"] = {**context["facts"], "kernel": "another"}
        if node == "node00002" and record["stage"] == "gemm":
            context["identities"] = {node: {**context["identities"][node], "machine_id": "another"}}
        if node == "node00003" and record["subject"]["kind"] == "node" and record["stage"] == "nccl_node":
            context["gpus"], context["gpu_uuids"] = 7, context["gpu_uuids"][:7]
            context["identities"] = {node: {**context["identities"][node], "gpu_uuids": context["gpu_uuids"]}}
        if node == "node00004" and "nvls" in context:
            context["nvls"] = not context["nvls"]
        record["context"] = context
    return made.plan(), records


def judged(run: tuple[Record, list[Record]]) -> Judgement:
    plan, records = run
    inputs = plan.judging
    stages = [registry.of(entry) for entry in plan.stages]
    return verdict.judge(plan, records, expectations.of_run(inputs), JudgingInputs(stack=inputs.stack, stated=inputs.stated), stages=stages)


def test_a_second_process_changes_nothing(run: tuple[Record, list[Record]], monkeypatch: pytest.MonkeyPatch) -> None:
    here: list[int] = []
    among = verdict.Judge._among_nodes

    def told(judge_of_run: t.Any) -> t.Any:
        here.append(os.getpid())
        return among(judge_of_run)

    monkeypatch.setattr(verdict.Judge, "_among_nodes", told)
    alone = judged(run)
    assert here == [os.getpid()]
    monkeypatch.setattr(forked_worker, "MIN_ITEMS", 0)
    monkeypatch.setattr(forked_worker.os, "sched_getaffinity", lambda _pid: {0, 1})
    monkeypatch.setattr(forked_worker.threading, "active_count", lambda: 1)  # the runner of tests has threads of its own
    assert judged(run) == alone
    assert len(here) == 1, "the second process did it"
    codes = {one["reason_code"] for one in alone.verdicts}
    assert {"drift", "identity_changed", "gpu_lost"} <= codes
    assert alone.drift["node00001"][0]["item"] == "kernel"
