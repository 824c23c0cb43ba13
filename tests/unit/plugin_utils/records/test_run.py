# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run's files: nothing that was measured is lost, nothing half-written is believed."""

from __future__ import annotations

import json
import multiprocessing
import os
import pathlib

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Journal, Run, RunError, file_name
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Run:
    made = Run(tmp_path, "20260101T000000Z-0a1b2c")
    made.make()
    return made


def test_a_half_written_last_line_is_cut_off_and_reported(run: Run) -> None:
    run.journal.append([{"n": 1}, {"n": 2}])
    with open(run.journal.path, "a", encoding="utf-8") as target:
        target.write('{"n": 3, "cut')
    assert [m["n"] for m in run.journal.read()[0]] == [1, 2]
    assert "half-written" in run.journal.repair()[0]
    assert run.journal.repair() == []
    run.journal.append([{"n": 4}])
    assert run.journal.read() == ([{"n": 1}, {"n": 2}, {"n": 4}], [])


@given(st.lists(st.dictionaries(st.text(), st.text(), min_size=1), min_size=1, max_size=5), st.integers(min_value=0))
def test_wherever_a_journal_is_cut_whole_lines_survive(tmp_path_factory, records, at) -> None:  # type: ignore[no-untyped-def]
    journal = Journal(tmp_path_factory.mktemp("journal") / "journal.jsonl")
    journal.append(records)
    data = journal.path.read_bytes()
    at %= len(data) + 1
    journal.path.write_bytes(data[:at])
    journal.append([{"after": "the cut"}])
    found, notes = journal.read()
    whole = data[:at].count(b"\n")
    # Cut right before its newline, a record is whole and is kept.
    assert found[:whole] == records[:whole] and found[-1] == {"after": "the cut"}
    assert len(found) - 1 - whole in (0, 1) and len(notes) <= 1


def test_a_bad_line_among_thousands_is_named_by_its_number(run: Run) -> None:
    records = [{"n": number} for number in range(2500)]
    run.journal.append(records[:1500])
    with open(run.journal.path, "a", encoding="utf-8") as target:
        target.write('{"n": 1, "cut\n[1]\n\n')
    run.journal.append(records[1500:])
    found, notes = run.journal.read()
    assert found == records
    assert [note.split(" is ")[0] for note in notes] == ["journal.jsonl line 1501", "journal.jsonl line 1502"]
    assert "(13 bytes)" in notes[0]


def _append(path: pathlib.Path, number: int) -> None:
    for count in range(50):
        Journal(path).append([{"writer": number, "count": count, "text": "x" * 5000}])


def test_many_writers_do_not_mix_their_lines(run: Run) -> None:
    writers = [multiprocessing.Process(target=_append, args=(run.journal.path, n)) for n in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found, notes = run.journal.read()
    assert len(found) == 300 and not notes


def test_a_full_disk_is_an_error_and_leaves_the_journal_whole(tmp_path: pathlib.Path) -> None:
    journal = Journal(pathlib.Path("/dev/full"))
    with pytest.raises(RunError, match="No space left on device"):
        journal.append([{"n": 1}])


def test_nothing_is_overwritten(run: Run) -> None:
    with pytest.raises(RunError, match="acceptance_results_dir"):
        Run(run.dir.parent, run.id).make()


def test_a_run_that_does_not_exist_names_those_that_do(run: Run) -> None:
    (run.dir / "plan.json").write_text("{}")
    with pytest.raises(RunError, match=r"20260101T000000Z-ffffff does not exist.*20260101T000000Z-0a1b2c"):
        Run.open(str(run.dir.parent), "20260101T000000Z-ffffff")
    with pytest.raises(RunError, match=r"found '\.\./x', expected the id of a run"):
        Run.open(str(run.dir.parent), "../x")


def test_one_controller_at_a_time(run: Run) -> None:
    run.claim(os.getpid())
    run.claim(os.getpid())
    with pytest.raises(RunError, match=f"driven by process {os.getpid()}"):
        run.claim(1)
    (run.dir / "controller.json").write_text(json.dumps({"pid": os.getpid(), "started": -1}))  # dead, its pid reused
    run.claim(1)
    assert run.is_mine(1) and not run.is_mine(os.getpid())


def test_lost_hosts_and_todo_survive_odd_names(run: Run) -> None:
    for name in ("gpu/../01", "[::1]", "..", "ж" * 20):
        run.assign(name, {"stages": {"stack": 1}})
        run.lose(name, "unreachable", "gone")
        assert run.todo(name) == {"stages": {"stack": 1}} and run.lost(name) == ("unreachable", "gone")
    assert run.todo("other") == {} and run.lost("other") is None


@given(st.text(min_size=1, max_size=60))
def test_a_name_stays_one_file_in_one_folder(name: str) -> None:
    made = file_name(name)
    assert "/" not in made and made not in (".", "..", "")


def test_a_share_is_made_once_and_each_target_reads_its_own(run: Run) -> None:
    made: list[int] = []

    def make() -> dict[str, dict[str, int]]:
        made.append(1)
        return {"a/../b": {"own": 1}, "c": {"own": 2}}

    assert [run.share("rdma", name, make) for name in ("a/../b", "c", "nobody")] == [{"own": 1}, {"own": 2}, {}]
    assert made == [1]
    assert {path.stat().st_mode & 0o777 for path in (run.dir / "todo").glob("*.share")} == {0o600}
