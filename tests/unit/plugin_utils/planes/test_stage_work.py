# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The work of a target, from Stage.work to the arguments of the module."""

from __future__ import annotations

import json
import pathlib
import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import base
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import ALONE, ROUNDS, Stage, StageWork
from harness.records import make_plan

PAIR = ("reach", "", "a|b")
ANSWER = {"state": "done", "end": "done", "observations": []}


class Reach(Stage):
    name = "reach"
    topology = ROUNDS

    def __init__(self, works: dict[str, t.Any]) -> None:
        self.returned, self.calls = works, 0

    def work(self, run: Run, plan: dict[str, t.Any], todos: dict[str, t.Any]) -> dict[str, t.Any]:
        self.calls += 1
        return self.returned


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Run:
    run = Run(tmp_path, "20260101T000000Z-0a1b2c")
    run.make()
    (run.dir / "plan.json").write_text(json.dumps(make_plan({}).as_dict()))
    run.mailbox.assign("a", {"settings": {}})
    run.mailbox.assign("cluster", {"settings": {"acceptance_realm": "cluster"}})
    return run


def target(run: Run, stage: Stage, host: str) -> base.StageOnTarget:
    made = base.StageOnTarget.__new__(base.StageOnTarget)
    made.acting, made.description, made.stage, made.host = run, stage, stage.name, host
    made.planned, made.spec, made.settings, made.phase = {PAIR: {}, ("timetable", "", host): {}}, {}, {}, "all"
    made.action = types.SimpleNamespace(_task=types.SimpleNamespace(args={"limit": 3, "unset": None}))
    made.vars = {"acceptance_stage": {}}
    return made


def test_each_target_has_its_own_work_which_is_computed_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1e9
    monkeypatch.setattr(base.time, "time", lambda: now)
    stage = Reach({
        "a": StageWork({"pairs": [1], "limit": 1}, keep=[PAIR], starts_in=30.0),
        "cluster": StageWork({"slot": 2}, starts_in=30.0, per_node={"cluster/n": {"rounds": []}}),
        "b": StageWork(answer=ANSWER),
    })  # fmt: skip
    first = target(run, stage, "a")
    now += 10  # the targets' workers do not come at once
    assert first.work == StageWork({"pairs": [1], "limit": 1}, keep=[list(PAIR)], starts_in=30.0)  # type: ignore[list-item]
    now += 10
    later = target(run, stage, "a")
    args = later.args()
    assert (args["pairs"], args["limit"], args["begins_in"]) == ([1], 3, 20.0), "what the task gives wins"
    assert args["checks"] == [{"check": "timetable", "variant": ""}] and PAIR not in later.planned
    now += 60
    assert target(run, stage, "a").work.starts_in == 0.0
    on_cluster = target(run, stage, "cluster").work
    assert on_cluster.starts_in == 30.0 and on_cluster.per_node == {"cluster/n": {"rounds": []}}
    assert target(run, stage, "b").work.answer == ANSWER and "begins_in" not in target(run, stage, "b").args()
    assert target(run, stage, "c").work == StageWork() and stage.calls == 1


def test_a_stage_that_returns_plain_dicts_works_with_a_warning(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(base.Display, "warning", lambda _self, text: said.append(text))
    monkeypatch.setattr(base.time, "time", lambda: 1e9)
    stage = Reach({
        "a": {"pairs": [1], "nodes": 2, "kept": [PAIR], "begins_at": 1e9 + 30},
        "cluster": {"slot": 2, "nodes": {"cluster/n": {}}},
        "b": {"answer": ANSWER},
    })  # fmt: skip
    args = target(run, stage, "a").args()
    assert (args["pairs"], args["nodes"], args["begins_in"]) == ([1], 2, 30.0) and "kept" not in args
    assert args["checks"] == [{"check": "timetable", "variant": ""}]
    assert target(run, stage, "cluster").work == StageWork({"slot": 2}, keep=[], per_node={"cluster/n": {}})
    assert target(run, stage, "b").work.answer == ANSWER
    assert len(said) == 1 and "stage reach: its work() returned plain dicts" in said[0] and "docs/stages.md" in said[0]


def test_a_stage_of_single_nodes_is_not_asked(run: Run) -> None:
    stage = Reach({"a": StageWork({"pairs": [1]})})
    stage.topology = ALONE
    assert target(run, stage, "a").work == StageWork() and stage.calls == 0


def test_a_second_look_has_the_settings_of_the_first() -> None:
    stage = base.StageOnTarget.__new__(base.StageOnTarget)
    stage.stage, stage.description = "host_health_after", registry.shipped()["host_health_after"]
    stage.settings = {"host_health_timeout": 77.0, "host_health_ras_days": 5.0, "host_health_after_long": True, "acceptance_root": "/r"}
    assert stage.settled(["timeout", "ras_days", "long", "root", "look"]) == {"timeout": 77.0, "ras_days": 5.0, "long": True, "root": "/r"}
    stage.stage, stage.description = "gemm", registry.shipped()["gemm"]
    assert stage.settled(["timeout", "ras_days"]) == {}
