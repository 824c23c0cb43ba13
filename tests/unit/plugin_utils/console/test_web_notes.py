# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Notes on runs: who wrote them, where they are shown, and what they leave as it is."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import types
import typing as t

import jsonschema
import pytest
from ansible_collections.gpufleet.acceptance.plugins.action import history_prune
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import notes, openapi
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import pruning, store
from harness import console_memory as memory
from harness import history_runs as runs

RUN = runs.run_id(1)


class Noted(t.NamedTuple):
    """A console over one judged run, which the action `mine` began."""

    results: pathlib.Path
    console: memory.Opened
    client: t.Any
    csrf: str

    def add(self, run: str = RUN, **form: str) -> t.Any:
        return self.client.post(f"/results/{run}/notes", data={"csrf": self.csrf, **form})


@pytest.fixture
def noted(tmp_path: pathlib.Path) -> Noted:
    runs.judged(tmp_path, 1, runs.fleet(a=670.0), acceptance_history=True)
    console = memory.opened(tmp_path)
    status = actions.Status(phase=actions.FINISHED, run_id=RUN, verdict=actions.ACCEPTED)
    console.actions.put(actions.Action("mine", "", {"stages": {"names": ["gemm"], "nodes": ["a"]}}, status, "2026-11-22T10:00:00Z"))
    client = console.signed_in()
    found = re.search(r'name="csrf" value="([^"]+)"', client.get(f"/results/{RUN}").text)
    assert found
    return Noted(tmp_path, console, client, found[1])


def files_of(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_is_handed_to_a_colleague_and_every_page_says_so(noted: Noted) -> None:
    before = files_of(noted.results / RUN)
    assert noted.add(text="Looked at it <b>twice</b>\r\nIt was the cable").headers["location"] == f"/results/{RUN}#notes"
    assert noted.add(text="Röck, please replace the cable", to="ann", action="mine").headers["location"] == "/runs/mine#notes"
    assert files_of(noted.results / RUN) == before
    for page in (f"/results/{RUN}", "/runs/mine"):
        text = noted.client.get(page).text
        listed = text.partition('id="all-notes"')[2].partition("</div>")[0]
        assert re.findall(r"<b>(.*?)</b>", listed) == ["tester → ann", "tester"] and "<time datetime=" in listed
        assert "Looked at it &lt;b&gt;twice&lt;/b&gt;\nIt was the cable" in listed
    for page in ("/runs", "/history"):
        text = noted.client.get(page).text
        assert "Note → ann: Röck, please replace the cable" in text and "twice" not in text
    told = noted.client.get(f"/api/v1/runs/{RUN}").json()
    assert [(note["text"], note["to"], note["who"]) for note in told["notes"]] == [
        ("Röck, please replace the cable", "ann", "tester"), ("Looked at it <b>twice</b>\nIt was the cable", "", "tester"),
    ]  # fmt: skip
    listed = noted.client.get("/api/v1/runs").json()
    assert listed["runs"][0]["note"] == told["notes"][0]
    jsonschema.validate(told, openapi.RUN)
    jsonschema.validate(listed, openapi.RUNS)
    audited = [json.loads(line) for line in noted.console.audit.getvalue().splitlines()]
    assert [(line["who"], line["what"], line["about"]) for line in audited[-2:]] == [("tester", "note", RUN)] * 2


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"text": ""}, 422), ({"text": " \n "}, 422), ({"text": "x" * 2001}, 422), ({"text": "x", "to": "y" * 81}, 422), ({}, 422),
        ({"text": "ü" * 2000, "to": "ü" * 80}, 303), ({"text": "x", "action": "//evil.example"}, 303), ({"text": "x", "csrf": "no"}, 403),
    ],
)  # fmt: skip
def test_a_note_has_bounds_and_leads_nowhere_else(noted: Noted, form: dict[str, str], status: int) -> None:
    answer = noted.add(**form)
    assert answer.status_code == status
    assert answer.headers.get("location", f"/results/{RUN}#notes") == f"/results/{RUN}#notes"
    assert len(notes.Notes(noted.results).all(RUN)) == (status == 303)
    assert status != 422 or "A note has 1 to 2000 characters" in answer.text


def test_a_run_that_never_was_has_no_notes_and_no_run_has_too_many(noted: Noted, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [noted.add(run, text="x").status_code for run in (runs.run_id(9), "..", "x")] == [404] * 3
    assert not (noted.results / notes.FOLDER).exists()
    monkeypatch.setattr(notes, "MOST", 2)
    assert [noted.add(text="x").status_code for _number in range(3)] == [303, 303, 409]


def test_no_note_of_writers_at_the_same_moment_is_hidden(noted: Noted, monkeypatch: pytest.MonkeyPatch) -> None:
    of_run = notes.Notes(noted.results)
    with monkeypatch.context() as patch:
        patch.setattr(notes.Notes, "_paths", lambda _notes, _run: [])  # each counts before the others have written
        for number in range(notes.MOST + 3):
            of_run.add(RUN, str(number), "", "ann")
    assert {note.text for note in of_run.all(RUN)} == set(map(str, range(notes.MOST + 3)))
    assert noted.add(text="one more").status_code == 409


def test_a_note_stays_when_the_folder_of_its_run_goes(noted: Noted) -> None:
    noted.add(text="the cable")
    (noted.results / RUN).rename(noted.results.with_name("away"))
    assert "the cable" in noted.client.get(f"/results/{RUN}").text
    assert noted.add(text="the plug").status_code == 303


@pytest.mark.parametrize("content", ["", "no json", "[]", '{"text": "x"}', "[" * 100_000])
def test_a_file_that_is_no_note_is_left_out(noted: Noted, content: str) -> None:
    noted.add(text="good")
    (noted.results / notes.FOLDER / RUN / "9.json").write_text(content)
    assert [note.text for note in notes.Notes(noted.results).all(RUN)] == ["good"]
    assert noted.client.get("/api/v1/runs").json()["runs"][0]["note"]["text"] == "good"


def test_a_note_that_cannot_be_written_is_named(noted: Noted) -> None:
    (noted.results / ".console").mkdir()
    (noted.results / notes.FOLDER).write_text("a file in the way")
    answer = noted.add(text="x")
    assert answer.status_code == 503 and "the note cannot be saved" in answer.text
    assert noted.client.get(f"/results/{RUN}").status_code == 200


def test_who_may_only_look_sees_notes_and_no_form(noted: Noted, monkeypatch: pytest.MonkeyPatch) -> None:
    noted.add(text="the cable")
    monkeypatch.setattr(type(noted.console.auth), "may", lambda _auth, _who, verb, _name="": verb in ("list", "get"))
    text = noted.client.get(f"/results/{RUN}").text
    assert "the cable" in text and f'action="/results/{RUN}/notes"' not in text
    assert noted.add(text="x").status_code == 403


def test_a_run_that_has_not_begun_has_no_place_for_notes_yet(noted: Noted) -> None:
    status = actions.Status(phase=actions.QUEUED, run_id=runs.run_id(8))
    noted.console.actions.put(actions.Action("later", "", {"stages": {"names": ["gemm"], "nodes": ["a"]}}, status, "2026-11-22T10:00:00Z"))
    assert 'id="notes"' not in noted.client.get("/runs/later").text
    # The page of a run needs no history.
    for path in noted.results.glob("history.*"):
        path.write_bytes(b"no database")
    answer = noted.client.get("/runs/later")
    assert answer.status_code == 200 and 'id="notes"' not in answer.text


def test_notes_go_with_a_run_that_is_pruned_and_has_no_folder(noted: Noted) -> None:
    """Notes on a run whose folder is there, or that the history still has, are on a page that opens."""
    address = store.url_of(str(noted.results), "")
    kept = notes.Notes(noted.results)
    runs.judged(noted.results, 2, runs.fleet(a=671.0), acceptance_history=True)
    noted.add(text="the cable")
    noted.add(run=runs.run_id(2), text="the switch")

    def prune() -> dict[str, t.Any]:
        task = types.SimpleNamespace(args={"results_dir": str(noted.results), "older_than": "2027-01-01", "really": True}, check_mode=False)
        action = history_prune.ActionModule.__new__(history_prune.ActionModule)
        action._task = task
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(history_prune.ActionBase, "run", lambda *_: {})
            return action.run()

    shutil.rmtree(noted.results / RUN)
    with store.Store(address) as history:
        assert kept.remove(pruning.taken_out(history)) == [] and kept.last(RUN)
    assert "notes on 1 of the removed runs" in prune()["msg"]
    assert kept.last(RUN) is None and kept.last(runs.run_id(2))
    shutil.rmtree(noted.results / runs.run_id(2))
    assert prune()["changed"] and kept.last(runs.run_id(2)) is None
    assert not prune()["changed"]
