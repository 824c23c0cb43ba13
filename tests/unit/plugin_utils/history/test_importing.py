# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What comes into the history: everything of a judged run, once, however and however often it is brought."""

from __future__ import annotations

import json
import multiprocessing
import os
import pathlib
import signal
import time
import typing as t

import pytest
import sqlalchemy as sa
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import folders, importing, schema
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import HistoryError, Store, url_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from harness import history_runs as runs
from harness import journals
from harness.history_content import content
from harness.history_runs import Machine

HISTORY = {"acceptance_history": True}


def rows(store: Store) -> dict[str, list[tuple[t.Any, ...]]]:
    """Everything, with names in place of numbers where numbers are given by the order of coming."""
    found = {}
    with store.reading() as connection:
        for name, of in {
            "run": "SELECT name, partial, simulated, journal_sha256 FROM run",
            "judgement": "SELECT r.name, folder, digest, accepted, why, counts FROM judgement j JOIN run r ON r.id = j.run_id",
            "subject": "SELECT kind, identity, simulated FROM subject",
            "placement": """SELECT r.name, s.identity, n.identity, w.text, m.text FROM placement p JOIN run r ON r.id = p.run_id
                JOIN subject s ON s.id = p.subject_id JOIN subject n ON n.id = p.node_id JOIN word w ON w.id = p.name_id
                JOIN word m ON m.id = p.model_id""",
            "metric": """SELECT r.name, s.identity, c.stage, c.check_, q.metric, q.unit, m.value FROM metric m JOIN run r ON r.id = m.run_id
                JOIN subject s ON s.id = m.subject_id JOIN quantity q ON q.id = m.quantity_id
                JOIN (SELECT id, stage, "check" AS check_ FROM check_of) c ON c.id = q.check_id""",
            "measurement": "SELECT r.name, s.identity, outcome, attempt, started_at FROM measurement m JOIN run r ON r.id = m.run_id "
            "JOIN subject s ON s.id = m.subject_id",
            "verdict": """SELECT j.digest, s.identity, v.verdict, v.value, v.floor, b.layer, b.source, v.reason FROM verdict v
                JOIN judgement j ON j.id = v.judgement_id JOIN subject s ON s.id = v.subject_id JOIN basis b ON b.id = v.basis_id""",
            "fact": "SELECT r.name, s.identity, h.digest FROM fact f JOIN run r ON r.id = f.run_id JOIN subject s ON s.id = f.subject_id "
            "JOIN sheet h ON h.id = f.sheet_id",
            "sweep": "SELECT r.name, s.identity FROM sweep w JOIN run r ON r.id = w.run_id JOIN subject s ON s.id = w.subject_id",
        }.items():
            found[name] = sorted((tuple(row) for row in connection.execute(sa.text(of))), key=repr)
    return found


@pytest.fixture
def store(tmp_path: pathlib.Path) -> t.Iterator[Store]:
    with Store(url_of(tmp_path), make=True) as made:
        yield made


def test_a_run_that_is_judged_is_in_the_history_with_everything_that_it_had(tmp_path: pathlib.Path) -> None:
    done = runs.judge(runs.measured(tmp_path, 1, runs.fleet(a=670.0, b=540.0)), **HISTORY)
    assert not done["accepted"] and not [line for line in done["said"] if "note:" in line]
    with Store(url_of(tmp_path)) as store:
        found = rows(store)
        assert found["subject"] == sorted(
            [(kind, f"{kind}:{name}".replace("node:", "machine:"), 0) for kind, name in
             [("node", "a" * 32), ("node", "b" * 32), ("gpu", runs.uuid(ord("a"))), ("gpu", runs.uuid(ord("b")))]]
        )  # fmt: skip
        ours = ("run", "our own")
        assert {(row[1], *row[2:7]) for row in found["verdict"] if row[3]} == {
            (f"machine:{'a' * 32}", "PASS", 670.0, 636.5, *ours), (f"gpu:{runs.uuid(ord('a'))}", "PASS", 670.0, 636.5, *ours),
            (f"machine:{'b' * 32}", "FAIL", 540.0, 636.5, *ours), (f"gpu:{runs.uuid(ord('b'))}", "FAIL", 540.0, 636.5, *ours),
        }  # fmt: skip
        assert len(found["metric"]) == 8 and len(found["sweep"]) == 2 and {row[3:5] for row in found["placement"]} >= {("a", runs.GPU)}
        with store.reading() as connection:
            sheets = [importing.unpacked(of) for of in connection.execute(sa.select(schema.sheet.c.facts)).scalars()]
            sweep = importing.unpacked(connection.execute(sa.select(schema.sweep.c.rows)).scalars().first())
        assert sheets == [{"driver": "580.1", "kernel": "6.1"}] and sweep[3] == {"size": 64, "busbw": 103.0}


def test_the_folders_make_the_same_history_again(tmp_path: pathlib.Path) -> None:
    first = runs.judged(tmp_path, 1, runs.fleet(a=670.0, b=660.0), **HISTORY)
    runs.judged(tmp_path, 2, runs.fleet(a=671.0, b=540.0), **HISTORY)
    runs.judge(first, **HISTORY)
    with Store(url_of(tmp_path)) as store:
        told = rows(store)
    assert len(told["judgement"]) == 3
    with Store(f"sqlite:///{tmp_path}/again.db", make=True) as again:
        brought = folders.bring(again, str(tmp_path))
        assert brought[:3] == (2, [runs.run_id(1), runs.run_id(2)], 16) and rows(again) == told
        assert folders.bring(again, str(tmp_path)) == (2, [], 0, []) and rows(again) == told


def test_what_a_resume_measured_takes_the_place_of_what_was_there(tmp_path: pathlib.Path) -> None:
    run = runs.measured(tmp_path, 1, {"a": Machine("a" * 32, {1: 670.0}), "b": Machine("", {}, silent=True)})
    runs.judge(run, **HISTORY)
    run.journal.append([{**m, "attempt": 2} for m in runs._observed(run, "b", Machine("b" * 32, {2: 650.0}))])
    runs.judge(run, **HISTORY)
    with Store(url_of(tmp_path)) as store:
        found = rows(store)
        assert {row[1] for row in found["metric"]} >= {f"machine:{'b' * 32}", f"gpu:{runs.uuid(2)}"}
        assert len(found["judgement"]) == 2 and "name:b" not in {row[1] for row in found["subject"]}
        with Store(f"sqlite:///{tmp_path}/again.db", make=True) as again:
            folders.bring(again, str(tmp_path))
            assert rows(again) == found


def test_a_renamed_node_a_moved_gpu_and_a_silent_node_are_who_they_were(tmp_path: pathlib.Path, store: Store) -> None:
    runs.judged(tmp_path, 1, {"old": Machine("1" * 32, {1: 670.0, 2: 671.0}), "b": Machine("2" * 32, {3: 672.0})})
    runs.judged(tmp_path, 2, {"new": Machine("1" * 32, {1: 670.0}), "b": Machine("2" * 32, {3: 672.0, 2: 670.0})})
    runs.judged(tmp_path, 3, {"new": Machine("", {}, silent=True), "old": Machine("", {}, silent=True)})
    assert folders.bring(store, str(tmp_path)).left_out == []
    with store.reading() as connection:
        placed = [
            tuple(row)
            for row in connection.execute(
                sa.text("""SELECT r.name, s.identity, n.identity, w.text FROM placement p JOIN run r ON r.id = p.run_id
            JOIN subject s ON s.id = p.subject_id JOIN subject n ON n.id = p.node_id JOIN word w ON w.id = p.name_id""")
            )
        ]
    first, second = f"machine:{'1' * 32}", f"machine:{'2' * 32}"
    moved = f"gpu:{runs.uuid(2)}"
    assert (runs.run_id(1), first, first, "old") in placed and (runs.run_id(2), first, first, "new") in placed
    assert (runs.run_id(1), moved, first, f"old/gpu/{runs.uuid(2)}") in placed
    assert (runs.run_id(2), moved, second, f"b/gpu/{runs.uuid(2)}") in placed
    # In the third run two are silent. The machine has been `new` since the second; who `old` is now, nobody knows.
    assert (runs.run_id(3), first, first, "new") in placed and (runs.run_id(3), "name:old", "name:old", "old") in placed


def test_machines_that_say_they_are_the_same_one_are_known_by_their_names(tmp_path: pathlib.Path, store: Store) -> None:
    runs.judged(tmp_path, 1, {"a": Machine("c" * 32, {1: 670.0}), "b": Machine("c" * 32, {1: 671.0})})
    folders.bring(store, str(tmp_path))
    assert {row[1] for row in rows(store)["subject"]} == {"name:a", "name:b", *(f"name:{n}/gpu/{runs.uuid(1)}" for n in "ab")}


def test_a_node_that_says_who_it_is_takes_nothing_of_one_that_is_written_in_capitals(tmp_path: pathlib.Path, store: Store) -> None:
    runs.judged(tmp_path, 1, {"a": Machine("c" * 32, {1: 670.0}), "A": Machine("c" * 32, {1: 671.0})})
    runs.judged(tmp_path, 2, {"a": Machine("a" * 32, {1: 670.0})})
    folders.bring(store, str(tmp_path))
    found = {row[1] for row in rows(store)["subject"]}
    assert {"name:A", f"name:A/gpu/{runs.uuid(1)}", f"machine:{'a' * 32}"} <= found and f"machine:{'a' * 32}/gpu/{runs.uuid(1)}" in found


def test_a_number_of_more_than_64_bits_comes_in_too(store: Store) -> None:
    huge = content(["a"], [])
    huge.measurements[0].duration_s = 10**30
    huge.judgements[0].verdicts[0].value = 10**30
    importing.write(store, huge)
    assert [row[3] for row in rows(store)["verdict"]] == [1e30]


def test_a_simulated_subject_is_another_one(tmp_path: pathlib.Path, store: Store) -> None:
    runs.judged(tmp_path, 1, {"a": Machine("a" * 32, {1: 670.0})})
    runs.judged(tmp_path, 2, {"a": Machine("a" * 32, {1: 670.0}, simulated=True)})
    folders.bring(store, str(tmp_path))
    found = rows(store)
    assert sorted(row[2] for row in found["subject"]) == [0, 0, 1, 1] and sorted(row[2] for row in found["run"]) == [0, 1]


def test_a_node_can_send_what_no_database_takes(tmp_path: pathlib.Path, store: Store) -> None:
    hostile = "a\0b\ud800';DROP TABLE run;--"
    run = runs.measured(tmp_path, 1, {"a": Machine(hostile, {1: 670.0}, driver=hostile)})
    runs.judge(run)
    assert folders.bring(store, str(tmp_path)).left_out == []
    assert ("node", "machine:a\\x00b\\ud800';DROP TABLE run;--", 0) in rows(store)["subject"]


def edit(path: pathlib.Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def edit_journal(run: Run) -> None:
    text = journals.text(run.journal.path)
    assert b"670.0" in text
    journals.write(run.journal.path, text.replace(b"670.0", b"690.0", 1))


def test_a_damaged_folder_is_named_and_skipped_and_the_others_come(tmp_path: pathlib.Path, store: Store) -> None:
    damages = {
        1: lambda run: None,
        2: edit_journal,
        3: lambda run: edit(run.dir / "verdicts.jsonl", "PASS", "FAIL"),
        4: lambda run: edit(run.dir / "report.json", '"accepted": true', '"accepted": false'),
        5: lambda run: (run.dir / "plan.json").write_text("{"),
        6: lambda run: (run.dir / "report.json").unlink(),
        7: lambda run: (run.dir / "report.sha256").unlink(),
        8: lambda run: None,
    }
    for day, damage in damages.items():
        damage(runs.judged(tmp_path, day, runs.fleet(a=670.0)))
    brought = folders.bring(store, str(tmp_path))
    assert brought.new == [runs.run_id(1), runs.run_id(8)]
    said = [line.split(": ", 1)[1] for line in brought.left_out]
    for day, why in zip(
        range(2, 8),
        ["journal.jsonl.gz line", "verdicts.jsonl is not", "report.json is not", "plan.json", "not judged", "report.sha256"],
        strict=True,
    ):
        assert brought.left_out[day - 2].startswith(f"run {runs.run_id(day)}: ") and why in said[day - 2]


def test_a_run_that_is_not_what_was_written_does_not_come_when_it_is_judged(tmp_path: pathlib.Path) -> None:
    run = runs.measured(tmp_path, 1, runs.fleet(a=670.0))
    edit_journal(run)
    said = runs.judge(run, **HISTORY)["said"]
    assert [line for line in said if "sink history was not told" in line and "is left out of the history" in line]
    with Store(url_of(tmp_path), make=True) as store:
        assert not rows(store)["run"]


def bring(results: str, url: str, ready: t.Any, hold: float = 0.0) -> None:
    """In a process of its own; `hold` seconds in the middle of a run's rows."""
    if hold:
        insert = importing.insert

        def slow(connection: t.Any, table: t.Any, of: t.Any) -> int:
            count = insert(connection, table, of)
            if table.name == "metric":
                ready.set()
                time.sleep(hold)
            return count

        importing.insert = slow
    with Store(url, make=True) as store:
        folders.bring(store, results)
    ready.set()


def start(*args: t.Any) -> t.Any:
    process = multiprocessing.get_context("fork").Process(target=bring, args=args)
    process.start()
    return process


def test_two_at_once_and_one_that_is_killed_leave_everything_once(tmp_path: pathlib.Path) -> None:
    for day in range(1, 7):
        runs.judged(tmp_path, day, runs.fleet(a=670.0 + day, b=660.0))
    with Store(f"sqlite:///{tmp_path}/alone.db", make=True) as alone:
        folders.bring(alone, str(tmp_path))
        expected = rows(alone)
    url = f"sqlite:///{tmp_path}/both.db"
    event = multiprocessing.get_context("fork").Event
    ready = event()
    killed = start(str(tmp_path), url, ready, 600.0)
    assert ready.wait(120)
    os.kill(killed.pid, signal.SIGKILL)
    killed.join()
    with Store(url) as store:
        assert not rows(store)["run"] and not rows(store)["metric"]
    both = [start(str(tmp_path), url, event()) for _ in range(3)]
    for process in both:
        process.join(300)
        assert process.exitcode == 0
    with Store(url) as store:
        assert rows(store) == expected


def test_a_full_disk_costs_the_run_nothing_and_what_is_missing_comes_later(tmp_path: pathlib.Path) -> None:
    runs.judged(tmp_path, 1, runs.fleet(a=670.0), **HISTORY)
    run = runs.measured(tmp_path, 2, {"a": Machine("a" * 32, {n: 670.0 for n in range(1, 200)})})
    content: list[importing.Content] = []
    runs.judge(run)
    content.append(folders.of_folder(run))
    with Store(url_of(tmp_path)) as store:
        with store.reading() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()

        @sa.event.listens_for(store.engine, "connect")
        def _small(connection: t.Any, _record: t.Any) -> None:
            connection.execute(f"PRAGMA max_page_count={pages + 2}")

        store.engine.dispose()
        with pytest.raises(HistoryError, match="database or disk is full"):
            importing.write(store, content[0])
        assert [row[0] for row in rows(store)["run"]] == [runs.run_id(1)]
    with Store(url_of(tmp_path)) as store:
        assert folders.bring(store, str(tmp_path)).new == [runs.run_id(2)]


def test_whoever_holds_the_database_is_a_note_and_the_verdict_stands(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.judged(tmp_path, 1, runs.fleet(a=670.0), **HISTORY)
    monkeypatch.setattr(Store.__init__, "__defaults__", (False, 0.2))
    with Store(url_of(tmp_path)) as store, store.writing():
        done = runs.judge(runs.measured(tmp_path, 2, runs.fleet(a=670.0)), **HISTORY)
    assert done["accepted"] and done["said"][-1].startswith("ACCEPTED, report: ")
    (note,) = [line for line in done["said"] if line.startswith("note:")]
    assert (
        "sink history was not told of the judgement: HistoryError: " in note
        and "another process has been writing for more than 0.2 s" in note
    )


def test_the_report_says_what_is_different_since_the_last_accepted_run(tmp_path: pathlib.Path) -> None:
    first = runs.judged(tmp_path, 1, runs.fleet(a=670.0, b=671.0), **HISTORY)
    assert json.loads((first.dir / "report.json").read_text())["since"] is None
    runs.judged(tmp_path, 2, runs.fleet(a=670.0, b=500.0), **HISTORY)
    machines = {"a": Machine("a" * 32, {97: 670.0}, driver="590.2"), "b": Machine("", {}, silent=True)}
    third = runs.measured(tmp_path, 3, machines)
    said = runs.judge(third, **HISTORY)["said"]
    assert f"since the last accepted run, {runs.run_id(1)}, changed: verdicts 2, places 1, facts 1" in " ".join(" ".join(said).split())
    since = json.loads((third.dir / "report.json").read_text())["since"]
    assert since["before"] == runs.run_id(1)
    assert "b gemm bf16: PASS before, UNKNOWN now: b: nobody answers" in since["said"]
    assert f"b GPU-{98:08x}-0000-4000-8000-000000000000 is gone from b" in since["said"]
    assert "driver is 590.2, 580.1 before, on a" in since["said"]
    for name in ("report.html", "report.md"):
        text = (third.dir / name).read_text().replace("\\", "")
        assert "Since the last accepted run" in text and "driver is 590.2, 580.1 before, on a" in text


def test_a_newer_schema_is_a_note_and_an_unusable_place_too(tmp_path: pathlib.Path) -> None:
    with Store(url_of(tmp_path), make=True) as store, store.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    done = runs.judge(runs.measured(tmp_path, 1, runs.fleet(a=670.0)), **HISTORY)
    assert done["accepted"] and any("found schema 9999, expected at most" in line and "a newer version" in line for line in done["said"])
    (tmp_path / "history.db").unlink()
    (tmp_path / "history.db-wal").unlink(missing_ok=True)
    (tmp_path / "history.db").write_text("this is no database")
    done = runs.judge(runs.measured(tmp_path, 2, runs.fleet(a=670.0)), **HISTORY)
    assert done["accepted"] and any("file is not a database" in line for line in done["said"])


def test_a_secret_of_the_url_is_said_nowhere(tmp_path: pathlib.Path) -> None:
    url = "postgresql://acceptance:s3cret@127.0.0.1:1/history"
    done = runs.judge(runs.measured(tmp_path, 1, runs.fleet(a=670.0)), acceptance_history=True, acceptance_history_url=url)
    assert done["accepted"] and any("sink history was not told" in line for line in done["said"])
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and "s3cret" in path.read_text(errors="replace")]
    assert "s3cret" not in json.dumps(done["said"])
    for wrong in ("mysql://u:s3cret@h/d", "nonsense s3cret", "sqlite://"):
        with pytest.raises(HistoryError, match="acceptance_history_url: expected postgresql://") as error:
            Store(wrong)
        assert "s3cret" not in str(error.value)
    nobody = "127.0.0.1:1/history"
    for url in (
        f"postgresql://{nobody}?user=u&password=s3cret", f"postgresql://u:other@{nobody}?sslkey=/x&sslpassword=s3cret",
        f"postgresql://u@{nobody}?options=-c%20x%3Ds3cret", f"postgresql://u:one/and@s3cret@{nobody}",
    ):  # fmt: skip
        with pytest.raises(HistoryError) as error:
            Store(url)
        assert "s3cret" not in str(error.value)
    with pytest.raises(HistoryError, match="there is no history yet"):
        Store(url_of(tmp_path / "elsewhere"))
