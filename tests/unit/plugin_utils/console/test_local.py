# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The actions of a laptop, and what a controller does of them before anything runs."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import (
    actions,
    calendar,
    conditions,
    hosts,
    queue,
    request,
    runner,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.actions import Filters
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.controller import Controller
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.local import LocalActions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import base
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from harness import journals

NOW = calendar.moment("2026-11-22T00:00:00Z")
STACK = {"stages": {"names": ["stack"], "nodes": ["gpu-01"]}}
INVENTORY = """
all:
  hosts:
    gpu-01: {acceptance_gpu_count: 8}
    gpu-02:
    twice:
    lab: {acceptance_plane: kubernetes}
    lost: {acceptance_plane: nowhere}
    "gpu-03;id":
  children:
    rack_a: {hosts: {gpu-01: , gpu-02: }}
    twice: {hosts: {gpu-02: }}
"""


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def local(tmp_path: pathlib.Path, clock: Clock) -> LocalActions:
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    return LocalActions(tmp_path / "console", str(tmp_path / "hosts.yml"), clock)


@pytest.fixture
def controller(local: LocalActions, tmp_path: pathlib.Path, clock: Clock) -> Controller:
    """One that begins nothing: no run may be there at once."""
    return Controller(local, runner.Runner(tmp_path / "console/actions", local.inventory, tmp_path / "results"), 0, clock=clock)


# Keeping -----------------------------------------------------------------------------------------------------------------


def test_the_nodes_are_the_hosts_behind_ssh_and_say_why_one_cannot_be_meant(local: LocalActions) -> None:
    found = {node.name: node for node in local.nodes()}
    assert set(found) == {"gpu-01", "gpu-02", "twice", "gpu-03;id"}
    assert found["gpu-01"].gpus == 8 and found["gpu-01"].labels == {"group/rack_a": "true"} and not found["gpu-01"].problem
    assert "group" in found["twice"].problem and "pattern" in found["gpu-03;id"].problem
    for name in ("twice", "gpu-03;id", "lab", "lost", "rack_a", "all"):
        with pytest.raises(request.RequestError):
            local.create(None, {"stages": {"names": ["stack"], "nodes": [name]}}, "me")


def test_a_host_of_any_plane_is_a_node_if_it_stands_for_itself(local: LocalActions, monkeypatch: pytest.MonkeyPatch) -> None:
    class Box(base.Plane):
        name = "box"

    class Rack(base.Plane):
        name = "rack"

        def reachability_domain(self, host: str) -> str:
            return host

    of_hosts = {"gpu-01": Box(), "lab": Rack(), "lost": Box()}
    monkeypatch.setattr(hosts.planes, "of", lambda _settings, host: of_hosts.get(host, Rack()))
    assert [node.name for node in hosts.of(local.inventory)] == ["gpu-01", "lost"]


@pytest.mark.parametrize("name", ["", "A", "a_b", "../a", "-a", "a-", "a" * 64, "a\n", "{{ x }}", "\uff41"], ids=ascii)
def test_a_name_that_the_api_would_refuse_is_refused(local: LocalActions, name: str) -> None:
    with pytest.raises(request.RequestError, match=r"metadata\.name"):
        local.create(name, STACK, "me")


def test_a_second_action_of_one_name_is_a_conflict(local: LocalActions) -> None:
    first = local.create("one", STACK, "Łukasz <b>")
    assert (first.name, first.who, first.status.phase, first.spec) == ("one", "Łukasz <b>", actions.PENDING, STACK)
    with pytest.raises(actions.Conflict):
        local.create("one", STACK, "me")
    with pytest.raises(actions.NotFound):
        local.get("two")
    assert local.create(None, STACK, "me").name.startswith("stages-")


def test_actions_are_listed_by_pages_the_newest_first(local: LocalActions) -> None:
    for number in range(5):
        local.create(f"a-{number}", STACK, "somebody" if number % 2 else "100%_me")
    page = local.list(Filters(limit=2))
    assert [action.name for action in page.actions] == ["a-4", "a-3"]
    page = local.list(Filters(limit=2, after=page.more))
    assert [action.name for action in page.actions] == ["a-2", "a-1"]
    page = local.list(Filters(limit=2, after=page.more))
    assert [action.name for action in page.actions] == ["a-0"] and not page.more
    assert [action.name for action in local.list(Filters(text="%_")).actions] == ["a-4", "a-2", "a-0"]
    assert not local.list(Filters(kind="rdma")).actions and len(local.list(Filters(kind="stages", phase="Pending")).actions) == 5
    everybody = [local.list(Filters(sort="who", limit=2))]
    while everybody[-1].more:
        everybody.append(local.list(Filters(sort="who", limit=2, after=everybody[-1].more)))
    assert [[action.name for action in page.actions] for page in everybody] == [["a-0", "a-2"], ["a-4", "a-1"], ["a-3"]]
    for hostile in ("' OR 1=1 --", "\\", "9" * 40, "-1", "\x00", "[1,2]", '["a"]', "[" * 900):
        assert not local.list(Filters(phase=hostile)).actions and not local.list(Filters(kind=hostile)).actions
        assert len(local.list(Filters(text=hostile, limit=-5)).actions) <= 1
        for wrong in (Filters(after=hostile), Filters(sort=hostile)):
            with pytest.raises(actions.ActionError):
                local.list(wrong)


def test_changes_are_told_from_where_one_was(local: LocalActions, controller: Controller) -> None:
    local.create("one", STACK, "me")
    told = local.changes()
    version, action = next(told)
    assert action.name == "one"
    local.set("one", suspend=True)
    version, action = next(told)
    assert action.spec["suspend"] is True
    local.delete("one")
    controller.round()
    later = list(t.cast("t.Any", _take(local.changes(version), 1)))
    assert later[0][1].gone and later[0][1].name == "one"
    assert list(local.changes("999999")) == [], "nobody has been there: list again"


def _take(found: t.Iterator[t.Any], count: int) -> list[t.Any]:
    return [next(found) for _ in range(count)]


# What a controller does ----------------------------------------------------------------------------------------------------


def test_what_waits_says_for_what(local: LocalActions, controller: Controller) -> None:
    local.create("one", STACK, "me")
    local.create("two", {**STACK, "suspend": True}, "me")
    controller.round()
    one = local.get("one").status
    assert one.phase == actions.QUEUED and one.queue_position == 1 and "run at once" in one.waiting_for and one.nodes == 1
    assert local.get("two").status.phase == actions.SUSPENDED
    local.set("one", cancel=True)
    local.set("two", suspend=False)
    controller.round()
    assert local.get("one").status.phase == actions.CANCELLED and local.get("two").status.phase == actions.QUEUED
    accepted = {c["type"]: c for c in local.get("one").status.conditions}["Accepted"]
    assert accepted["status"] == "False" and accepted["reason"] == "Cancelled"


def test_of_those_that_wait_nothing_is_worked_out_twice_and_nothing_is_missed(
    local: LocalActions, controller: Controller, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked: list[str] = []
    module = "ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.controller"
    real_of, real_read = conditions.of, request.read
    monkeypatch.setattr(f"{module}.conditions.of", lambda *given: worked.append("conditions") or real_of(*given))
    monkeypatch.setattr(f"{module}.read", lambda *given: worked.append("read") or real_read(*given))
    for name in ("one", "two"):
        local.create(name, STACK, "me")
    controller.round()
    controller.round()
    worked.clear()
    controller.round()
    assert not worked
    local.set("one", suspend=True)
    controller.round()
    assert local.get("one").status.phase == actions.SUSPENDED and local.get("two").status.phase == actions.QUEUED
    local.set("one", suspend=False)
    controller.round()
    assert local.get("one").status.phase == actions.QUEUED
    (tmp_path / "hosts.yml").write_text("all: {hosts: {gpu-02: }}")
    local._hosts = (0.0, ())
    controller.round()
    assert {local.get(name).status.phase for name in ("one", "two")} == {actions.REFUSED}


def test_what_has_become_impossible_is_refused(local: LocalActions, controller: Controller) -> None:
    local.create("one", STACK, "me")
    pathlib.Path(local.inventory).write_text("all: {hosts: {gpu-02: }}")
    local._hosts = (0.0, ())
    controller.round()
    status = local.get("one").status
    assert status.phase == actions.REFUSED and "stages.nodes[0]: found 'gpu-01'" in status.message
    assert {c["type"]: c["status"] for c in status.conditions} == {
        "Admitted": "False", "Running": "False", "Finished": "True", "Accepted": "False",
    }  # fmt: skip


def test_the_time_of_an_action_ends_when_it_said(local: LocalActions, controller: Controller, clock: Clock) -> None:
    local.create("one", {**STACK, "cancel": True, "ttlSecondsAfterFinished": 60}, "me")
    controller.round()
    clock.now += 59
    controller.round()
    assert local.get("one").status.phase == actions.CANCELLED
    clock.now += 1
    controller.round()
    controller.round()
    with pytest.raises(actions.NotFound):
        local.get("one")


def test_a_schedule_begins_one_at_a_time_and_each_once(local: LocalActions, controller: Controller, clock: Clock) -> None:
    local.create("daily", {**STACK, "schedule": {"cron": "0 3 * * *", "timeZone": "Asia/Shanghai"}}, "me")
    controller.round()
    status = local.get("daily").status
    assert status.phase == actions.SCHEDULED and status.next_scheduled == "2026-11-22T19:00:00Z"
    clock.now = calendar.moment("2026-11-22T19:00:00Z")
    for _again in range(3):
        controller.round()
    children = [action for action in local.list(Filters()).actions if action.schedule == "daily"]
    assert len(children) == 1 and "schedule" not in children[0].spec and children[0].who == "me"
    clock.now += 86400  # the first has not ended
    controller.round()
    assert len(local.list(Filters()).actions) == 2
    assert f"{children[0].name} has not ended" in local.get("daily").status.message
    for day in range(1, 6):  # one that was cancelled is not accepted; three of those are kept
        for action in local.list(Filters(phase=actions.QUEUED)).actions:
            local.set(action.name, cancel=True)
        controller.round()
        clock.now += 86400 * day  # days on which nobody was here are not made up for
        controller.round()
    controller.round()
    children = [action for action in local.list(Filters()).actions if action.schedule == "daily"]
    assert len(children) == 4 and len({action.name for action in children}) == 4
    local.delete("daily")
    controller.round()
    assert not local.list(Filters()).actions


def test_one_who_asked_for_what_is_never_due_is_told(local: LocalActions) -> None:
    for cron in ("61 * * * *", "0 0 31 2 *"):
        with pytest.raises(request.RequestError, match=r"schedule\.cron"):
            local.create(None, {**STACK, "schedule": {"cron": cron}}, "me")


def test_a_file_that_is_away_is_one_sentence(local: LocalActions) -> None:
    del local._mine.db
    for path in local.file.parent.glob("console.db*"):
        path.unlink()
    local.file.mkdir()
    with pytest.raises(actions.Unavailable, match=r"console\.db"):
        local.get("one")


def test_the_key_of_a_run_is_no_path(tmp_path: pathlib.Path) -> None:
    runs = runner.Runner(tmp_path / "actions", "inventory", tmp_path / "results")
    for key in ("..", "a/b", "", "-a", "a" * 64, "a\n"):
        with pytest.raises(ValueError, match="id of an action"):
            runs.work(key)
    for run_id in ("..", "20261122T000000Z-0a1b2c\n", "../20261122T000000Z-0a1b2c"):
        with pytest.raises(ValueError, match="id of a run"):
            runs.work("a").begin(None, run_id)


def test_a_run_that_somebody_else_drives_is_waited_for_and_not_called_failed(tmp_path: pathlib.Path, monkeypatch: t.Any) -> None:
    runs = runner.Runner(tmp_path / "actions", "inventory", tmp_path / "results")
    work, run = runs.work("a"), Run(tmp_path / "results", "20261122T000000Z-0a1b2c")
    run.make()
    (run.dir / "plan.json").write_text("{}")
    work.folder.mkdir()
    (work.folder / "variables.json").write_text("{}")
    work._note(begins=1, rc=2)  # its playbook was refused, as there was a controller
    run.claim(os.getppid())
    assert work.outcome(run.id).cut_off and not work.begin(None, run.id, take_over=True) and not work.alive()
    monkeypatch.setattr(runner, "DRIVEN_S", -1.0)
    assert not work.outcome(run.id).cut_off and "another process" in work.outcome(run.id).why, "not for ever"
    run.release()
    assert work.outcome(run.id).cut_off, "now its turn has come"
    monkeypatch.setattr(runner, "program", lambda: "false")
    assert work.begin(None, run.id, take_over=True)
    runs.children["a"].wait()
    assert not work.alive() and not work.outcome(run.id).cut_off, "whoever was refused for another reason has failed"


def test_a_run_that_a_full_disk_ended_waits_for_room_and_is_resumed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = runner.Runner(tmp_path / "actions", "inventory", tmp_path / "results")
    work, run = runs.work("a"), Run(tmp_path / "results", "20261122T000000Z-0a1b2c")
    run.make()
    work.folder.mkdir()
    (work.folder / "log").write_text("fatal: [a]: No space left on device\n")
    work._note(begins=1, rc=2)
    monkeypatch.setattr(runner, "LEAST_FREE_BYTES", 1 << 62)
    assert work.outcome(run.id).waits_for == f"room in {tmp_path / 'results'}"
    monkeypatch.setattr(runner, "LEAST_FREE_BYTES", 0)
    assert work.outcome(run.id) == runner.RunOutcome(cut_off=True)
    # What an earlier begin printed says nothing of this one.
    work._note(log_begins=(work.folder / "log").stat().st_size)
    assert not work.outcome(run.id).cut_off


# Whose turn it is ------------------------------------------------------------------------------------------------------------


def claim(name: str, nodes: str, running: bool = False) -> queue.Claim:
    return queue.Claim(name, name, nodes.split(), running)


def test_one_at_a_time_on_a_node_and_nobody_overtakes() -> None:
    turns = queue.turns([claim("a", "1 2", True), claim("b", "2 3"), claim("c", "3"), claim("d", "4"), claim("e", "5")], 3)
    assert turns["d"].go and turns["e"].go
    assert turns["b"] == queue.Turn(1, "a (running) on 2")
    assert turns["c"] == queue.Turn(2, "b (waits, too) on 3")
    turns = queue.turns([claim("a", "1", True), claim("b", "2")], 1)
    assert turns["b"].position == 1 and "run at once" in turns["b"].waits


def test_thousands_of_nodes_are_said_in_few_words() -> None:
    many = " ".join(f"n{number:04}" for number in range(5000))
    turns = queue.turns([claim(f"a{number}", many, number == 0) for number in range(50)], 9)
    assert all(len(turn.waits) < 100 for turn in turns.values()) and turns["a49"].position == 49


def test_whoever_ends_in_a_long_queue_changes_what_few_others_are_told() -> None:
    claims = [claim(f"a{number}", "1", number == 0) for number in range(2000)]
    before = queue.turns(claims, 9)
    after = queue.turns([claims[1]._replace(running=True), *claims[2:]], 9)
    assert before["a1"].waits == "a0 (running) on 1" and after["a2"].waits == "a1 (running) on 1"
    assert before["a99"].position == 99 and before["a250"].position == 200
    assert sum(turn != before[key] for key, turn in after.items()) < queue.ROUGH + 2000 / queue.ROUGH + 2


def test_a_condition_keeps_the_moment_of_its_last_change() -> None:
    first = conditions.of(actions.QUEUED, "", "waits", [], "2026-11-22T00:00:00Z")
    later = conditions.of(actions.RUNNING, "", "runs", first, "2026-11-22T00:01:00Z", 2)
    moments = {condition["type"]: condition["lastTransitionTime"] for condition in later}
    assert moments["Admitted"] == "2026-11-22T00:00:00Z" and moments["Running"] == "2026-11-22T00:01:00Z"
    assert all(condition["observedGeneration"] == 2 and condition["reason"].isalpha() for condition in later)


@pytest.mark.parametrize("name", ["journal.jsonl.gz", "journal.jsonl"])
def test_progress_counts_planned_checks_and_not_their_parts(tmp_path: pathlib.Path, name: str) -> None:
    journal = tmp_path / name
    line = {"stage": "gemm", "check": "bf16", "variant": "", "subject": {"kind": "node", "id": "a"}}
    gpu = {**line, "subject": {"kind": "gpu", "id": "a/gpu/GPU-1"}}
    again = {**line, "attempt": 2}
    text = "".join(json.dumps(record) + "\n" for record in (line, gpu, again, {**line, "check": "fp8"}))
    late = json.dumps({**line, "check": "tf32"}) + "\n"
    checks = runner.MeasuredChecks(tmp_path)
    journals.write(journal, (text + late[:20]).encode())
    assert checks.count() == 2
    # What was being written counts once it is whole, and a shorter journal is another one.
    journals.write(journal, (text + late).encode())
    assert checks.count() == 3
    journals.write(journal, late.encode())
    assert checks.count() == 1
