# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Events of judged runs: what is new, what is yielded again after a restart, and what is not."""

from __future__ import annotations

import asyncio
import json
import pathlib
import runpy
import typing as t

import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.observing import events, following
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.observing.position import Delivery, Position
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from harness import history_runs as runs

SOURCES = pathlib.Path(__file__).resolve().parents[4] / "extensions/eda/plugins/event_source"
Event = t.Dict[str, t.Any]


def said(made: t.Iterable[Event]) -> list[tuple[str, ...]]:
    """Type and run of each event, subject and verdict of a finding."""
    return [
        (event["type"], event["run"]["run"], *((of["subject"].split("/")[0], of["verdict"]) if of else ()))
        for event in made
        for of in [event.get("finding") or event.get("regression")]
    ]


class Looking:
    """A source over a results folder that is begun again for every look, as after a restart."""

    def __init__(self, folder: pathlib.Path, every: bool = False) -> None:
        self.results, self.file, self.every = folder / "results", folder / "position.json", every
        self.results.mkdir()

    def look(self, confirmed: bool = True) -> list[Event]:
        position = Position(str(self.file))
        following.Folder(str(self.results), position, self.every).look()
        pending = list(position.pending.values())
        if confirmed:
            position.pending.clear()
            position.save()
        position.close()
        return pending


@pytest.fixture
def looking(tmp_path: pathlib.Path) -> Looking:
    return Looking(tmp_path)


def test_a_finding_is_new_once_and_again_after_it_was_over(looking: Looking) -> None:
    results = looking.results
    assert looking.look() == []
    runs.judged(results, 1, runs.fleet(a=670, b=500))
    first, *found = looking.look()
    assert first["type"] == "run" and first["run"]["accepted"] is False and first["run"]["counts"]["FAIL"] == 2
    assert said(found) == [("finding", runs.run_id(1), "b", "FAIL")]
    assert found[0]["finding"]["node"] == "b" and found[0]["finding"]["checks"] == ["gemm bf16"]
    runs.judged(results, 2, runs.fleet(a=670, b=510))
    assert said(looking.look()) == [("run", runs.run_id(2))]  # still the same
    runs.judged(results, 3, runs.fleet(a=670))
    assert said(looking.look()) == [("run", runs.run_id(3))]  # b was not measured: nothing is over
    runs.judged(results, 4, runs.fleet(a=670, b=500))
    assert said(looking.look()) == [("run", runs.run_id(4))]
    runs.judged(results, 5, runs.fleet(a=670, b=670))
    assert said(looking.look()) == [("run", runs.run_id(5))]
    runs.judged(results, 6, runs.fleet(a=670, b=500))
    assert said(looking.look())[1:] == [("finding", runs.run_id(6), "b", "FAIL")]


def test_a_node_that_was_silent_in_between_is_not_new_again(looking: Looking) -> None:
    looking.look()
    for day, machines in enumerate((runs.fleet(a=670, b=500), runs.fleet(a=670, b=500), runs.fleet(a=670, b=500)), 1):
        machines["b"].silent = day == 2
        runs.judged(looking.results, day, machines)
    found = [line for line in said(looking.look()) if line[0] == "finding"]
    assert {line[1:] for line in found} == {(runs.run_id(1), "b", "FAIL"), (runs.run_id(2), "b", "UNKNOWN")}


def test_without_a_position_what_is_there_is_known_and_yielded_only_if_asked_for(tmp_path: pathlib.Path, looking: Looking) -> None:
    runs.judged(looking.results, 1, runs.fleet(a=670, b=500))
    assert looking.look() == []
    runs.judged(looking.results, 2, runs.fleet(a=500, b=500))
    assert said(looking.look()) == [("run", runs.run_id(2)), ("finding", runs.run_id(2), "a", "FAIL")]
    (tmp_path / "all").mkdir()
    every = Looking(tmp_path / "all", every=True)
    runs.judged(every.results, 1, runs.fleet(a=500))
    assert len(every.look()) == 2


def test_what_was_not_confirmed_comes_again_with_the_same_ids(looking: Looking) -> None:
    looking.look()
    runs.judged(looking.results, 1, runs.fleet(a=500))
    first = looking.look(confirmed=False)
    assert len(first) == 2 and len({event["id"] for event in first}) == 2
    assert looking.look(confirmed=True) == first
    assert looking.look() == []


def test_a_run_that_is_judged_again_is_an_event_and_its_findings_are_not_new(looking: Looking) -> None:
    looking.look()
    run = runs.judged(looking.results, 1, runs.fleet(a=500))
    assert len(looking.look()) == 2
    runs.judge(run)
    assert said(looking.look()) == [("run", run.id)]


def test_a_report_that_was_changed_is_named_once_and_yields_nothing(looking: Looking, tmp_path: pathlib.Path) -> None:
    looking.look()
    run = runs.judged(looking.results, 1, runs.fleet(a=500))
    path = run.dir / "report.json"
    path.write_text(path.read_text().replace('"accepted": false', '"accepted": true'))
    digests = (run.dir / "report.sha256").read_text()
    position = Position(str(looking.file))
    folder = following.Folder(str(looking.results), position)
    assert folder.look() == [f"run {run.id}: {path} is not what was written (see playbooks/verify.yml)"] and folder.look() == []
    (run.dir / "report.sha256").unlink()  # as while it is written
    assert following.Folder(str(looking.results), position).look() == [] and not position.pending
    path.write_text(path.read_text().replace('"accepted": true', '"accepted": false'))
    (run.dir / "report.sha256").write_text(digests)
    assert folder.look() == [] and len(position.pending) == 2


def test_a_text_of_a_node_is_no_template() -> None:
    causes: t.Any = [{
        "subject": "{{ x }}", "kind": "node", "verdict": "FAIL", "convicted": False, "findings": [{"stage": "s", "check": "c"}],
        "said": "{{ lookup('pipe', 'id') }} {% raw %} {# x #}\x1b[2J {{{{", "simulated": False,
    }]  # fmt: skip
    run = {name: "" for name in events.RUN}
    _run, finding = events.new(run, events.findings(causes), {}, lambda *_of: False)
    text = json.dumps(finding)
    assert not any(begin in text for begin in ("{{", "{%", "{#")) and "lookup" in text
    assert "\x1b" not in finding["finding"]["said"]


def test_regressions_are_findings_of_their_own() -> None:
    change = {
        "kind": "step", "subject": "a/gpu/GPU-1", "stage": "gemm", "check": "bf16", "variant": "", "metric": "tflops", "simulated": False,
        "sentence": "3 % below", "reason": "", "regression": True,
    }  # fmt: skip
    past: t.Any = {"changes": [change, {**change, "regression": False}, {**change, "subject": "a|b"}]}
    run = {name: "" for name in events.RUN}
    known: events.Open = {}
    _run, first, second = events.new(run, events.regressions(past), known, lambda *_of: False)
    assert first["type"] == "regression" and first["regression"]["node"] == "a" and second["regression"]["node"] == ""
    assert first["regression"]["checks"] == ["gemm bf16 tflops"] and events.regressions(None) == []
    assert len(events.new(run, events.regressions(past), known, lambda *_of: False)) == 1


# Messages --------------------------------------------------------------------------------------------------------------------------------

FINDING = {
    "subject": "b", "kind": "node", "node": "b", "verdict": "FAIL", "convicted": False, "checks": ["gemm bf16"], "said": "b: slow",
    "simulated": False,
}  # fmt: skip


def message(day: int, *findings: Event, **fields: t.Any) -> bytes:
    texts = dict.fromkeys(("planned_at", "word", "why"), "x")
    whole = {"inventory": "lab", "judged_at": str(day), "mode": "run", "accepted": not findings, "partial": False, "simulated": False}
    content = {"run": runs.run_id(day), **texts, **whole, "counts": {"FAIL": len(findings)}, "findings": findings, "cut": False, **fields}
    return json.dumps({"text": "for chats", **content}).encode()


def test_messages_are_followed_like_a_folder(tmp_path: pathlib.Path) -> None:
    position = Position(str(tmp_path / "position"))

    def receive(body: bytes) -> list[str]:
        position.pending.clear()
        following.receive(body, position)
        return [event["type"] for event in position.pending.values()]

    assert receive(message(1, FINDING)) == ["run", "finding"]
    assert receive(message(1, FINDING)) == []  # sent again
    assert receive(message(1, FINDING, judged_at="later")) == ["run"]
    for not_whole in ({"partial": True}, {"cut": True}, {"mode": "quick"}, {"inventory": "other"}):
        assert receive(message(2, **not_whole, judged_at=str(not_whole))) == ["run"]
        assert position.open["lab\tb"]
    assert receive(message(3)) == ["run"] and not position.open
    assert receive(message(4, FINDING)) == ["run", "finding"]


def test_nodes_of_two_inventories_have_findings_of_their_own(tmp_path: pathlib.Path) -> None:
    position = Position(str(tmp_path / "position"))
    for day, inventory in ((1, "lab"), (2, "hall")):
        following.receive(message(day, FINDING, inventory=inventory), position)
    assert [event["type"] for event in position.pending.values()] == ["run", "finding"] * 2
    following.receive(message(3, inventory="hall"), position)
    assert list(position.open) == ["lab\tb"]


@pytest.mark.parametrize("token", ["", "/"])
def test_a_webhook_without_a_secret_is_refused(tmp_path: pathlib.Path, token: str) -> None:
    main = runpy.run_path(str(SOURCES / "webhook.py"))["main"]
    with pytest.raises(RunError, match="token: found nothing, expected a secret"):
        asyncio.run(main(asyncio.Queue(), {"position": str(tmp_path / "position"), "token": token, "port": 0}))


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"\xff", b"[]", b"{}", message(1, run="../../x"), message(1, accepted="yes"), message(1, {"subject": "b"})),
        message(1, counts=None),
    ],
)
def test_what_is_no_message_is_one_sentence_and_changes_nothing(tmp_path: pathlib.Path, body: bytes) -> None:
    position = Position(str(tmp_path / "position"))
    with pytest.raises(RunError, match="no message of acceptance_webhook: "):
        following.receive(body, position)
    assert not position.seen and not position.pending and not (tmp_path / "position").exists()


# The position and the delivery -----------------------------------------------------------------------------------------------------------


def test_a_position_is_held_by_one_source_and_a_broken_one_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "deep/position"
    first = Position(str(path))
    with pytest.raises(RunError, match="another source uses this file"):
        Position(str(path))
    first.close()
    for content in ("{", '{"schema": "eda-position/v9"}', '{"schema": "eda-position/v1", "seen": {}, "open": {}, "pending": [1]}'):
        path.write_text(content)
        with pytest.raises(RunError, match=r"expected a file that a source of events wrote \(eda-position/v1\); remove it"):
            Position(str(path))
        path.unlink()
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="expected a file that can be written"):
        Position(str(tmp_path / "file/position"))


def test_an_event_is_pending_until_the_rulebook_has_stored_it_or_some_time_has_passed(tmp_path: pathlib.Path) -> None:
    async def check() -> None:
        queue: asyncio.Queue[Event] = asyncio.Queue()
        feedback: asyncio.Queue[Event] = asyncio.Queue()
        position = Position(str(tmp_path / "position"))
        following.receive(message(1, FINDING), position)
        await feedback.put({})
        waiting = asyncio.create_task(Delivery(queue, position, feedback).deliver())
        await asyncio.sleep(0.05)
        assert queue.qsize() == 2 and len(position.pending) == 1 and not waiting.done()
        waiting.cancel()
        for confirm_after, left in ((1000.0, 1), (0.0, 0)):
            delivery = Delivery(queue, position, None, confirm_after)
            await asyncio.gather(delivery.deliver(), delivery.deliver())
            delivery.confirm()
            assert len(position.pending) == left
        assert queue.qsize() == 4 and json.loads((tmp_path / "position").read_text())["pending"] == []

    asyncio.run(check())


@pytest.mark.parametrize("name", ["results_folder", "webhook"])
def test_the_options_of_a_source_are_those_of_its_documentation(name: str) -> None:
    pytest.importorskip("aiohttp") if name == "webhook" else None
    source = runpy.run_path(str(SOURCES / f"{name}.py"))
    written = yaml.safe_load(source["DOCUMENTATION"])["options"]
    keys = ("type", "required", "default", "choices")
    assert {option: {key: of[key] for key in keys if key in of} for option, of in written.items()} == {
        option: {key: of[key] for key in keys if key in of} for option, of in source["OPTIONS"].items()
    }
    with pytest.raises(RunError, match="missing required arguments: "):
        asyncio.run(source["main"](asyncio.Queue(), {}))


def test_the_source_yields_events_and_ends_with_one_sentence(tmp_path: pathlib.Path) -> None:
    source = runpy.run_path(str(SOURCES / "results_folder.py"))
    results = tmp_path / "results"
    args = {"results_dir": str(results), "position": str(tmp_path / "position"), "interval": "0.05", "confirm_after": 0.0}

    async def take(count: int) -> list[Event]:
        queue: asyncio.Queue[Event] = asyncio.Queue()
        running = asyncio.create_task(source["main"](queue, args))
        while not (tmp_path / "position").exists():
            await asyncio.sleep(0.01)
        if count:
            await asyncio.to_thread(runs.judged, results, 1, runs.fleet(a=500))
        taken = [await queue.get() for _number in range(count)]
        await asyncio.sleep(0.3)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert queue.empty()
        return taken

    with pytest.raises(RunError, match=r"results_dir .*: No such file or directory"):
        asyncio.run(source["main"](asyncio.Queue(), args))
    results.mkdir()
    assert [event["type"] for event in asyncio.run(take(2))] == ["run", "finding"]
    asyncio.run(take(0))  # nothing twice
