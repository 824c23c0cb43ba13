# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run's files: nothing that was measured is lost, nothing half-written is believed."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import typing as t

import jsonschema
import msgspec
import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import driver, journal, measurement, members
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import file_name
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.journal import Journal
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run, readable
from harness import journals
from harness import report_samples as samples
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture(params=[journal.NAME, journal.PLAIN_NAME])
def run(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Run:
    """A run with a journal as it is written now, and one as older versions began it."""
    made = Run(tmp_path, "20260101T000000Z-0a1b2c")
    made.make()
    if request.param == journal.PLAIN_NAME:
        made.journal.path.rename(made.dir / journal.PLAIN_NAME)
        made = Run(tmp_path, made.id)
    assert made.journal.path.name == request.param
    return made


def test_a_half_written_last_line_is_cut_off_and_reported(run: Run) -> None:
    run.journal.append([{"n": 1}, {"n": 2}])
    with open(run.journal.path, "ab") as target:
        target.write(b'{"n": 3, "cut')
    assert [m["n"] for m in run.journal.examine()[0]] == [1, 2]
    assert "half-written" in run.journal.repair()[0]
    assert run.journal.repair() == []
    run.journal.append([{"n": 4}])
    assert run.journal.examine()[:2] == ([{"n": 1}, {"n": 2}, {"n": 4}], []) and run.journal.read() == ([], [])


RECORDS = st.lists(st.dictionaries(st.text().filter(lambda name: name != "chain"), st.text(), min_size=1), min_size=1, max_size=5)


@given(RECORDS, st.integers(min_value=0))
def test_wherever_a_plain_journal_is_cut_whole_lines_survive(tmp_path_factory, records, at) -> None:  # type: ignore[no-untyped-def]
    plain = Journal(tmp_path_factory.mktemp("journal") / "journal.jsonl")
    plain.append(records)
    data = plain.path.read_bytes()
    at %= len(data) + 1
    plain.path.write_bytes(data[:at])
    plain.append([{"after": "the cut"}])
    found, notes, chain = plain.examine()
    assert chain.chained and not chain.broken and chain.whole == len(found), "a cut is no change"
    whole = data[:at].count(b"\n")
    # Cut right before its newline, a record is whole and is kept.
    assert found[:whole] == records[:whole] and found[-1] == {"after": "the cut"}
    assert len(found) - 1 - whole in (0, 1) and len(notes) <= 1


def alike(count: int) -> list[dict[str, t.Any]]:
    """Return measurements that have command and identities in common."""
    same = {"command": ["tool", "-x" * 60], "evidence": {}, "raw": None}
    who = {"gpu-01": {"machine_id": "a" * 32, "gpu_uuids": [f"GPU-{n}" for n in range(8)]}}
    return [samples.measurement("gpu-01", "gemm", "bf16", **same, attempt=n + 1, context={"identities": who}) for n in range(count)]


def test_values_that_measurements_have_in_common_are_written_once_and_read_with_each(run: Run) -> None:
    records = alike(5)
    other = {**records[0], "command": ["another" * 20], "attempt": 9}
    run.journal.append([*records, other])
    run.journal.append(records[:1])
    found, notes, chain = run.journal.examine()
    expected = [*records, other, records[0]]
    assert [msgspec.to_builtins(one) for one in found] == expected and not notes and chain.whole == 7 and not chain.broken
    assert [{name: value for name, value in one.items() if name != "chain"} for one in run.journal.as_data()] == expected
    text = journals.text(run.journal.path)
    if run.journal.path.name == journal.PLAIN_NAME:
        assert text.count(b'"-x-x') == 6 and b"shared" not in text, "the version that began it reads on"
    else:
        assert text.count(b'"-x-x') == 2 and text.count(b'"gpu_uuids": ["GPU-0"') == 2, "once for each append"
        for line in map(json.loads, text.splitlines()):
            name = "shared-v1" if line["schema"] == "shared/v1" else "measurement-v1"
            jsonschema.validate(line, measurement.schema(name))


def test_a_measurement_whose_shared_value_is_gone_is_none(tmp_path: pathlib.Path) -> None:
    made = Journal(tmp_path / journal.NAME)
    made.append(alike(3))
    lines = journals.lines(made.path)
    for without in (0, 1):
        journals.write(made.path, b"".join(line for number, line in enumerate(lines) if number != without))
        found, _notes, chain = made.examine()
        assert chain.broken and not any(isinstance(one, Measurement) for one in found) and not list(made.as_data())


SENT = ["ü", 1e-321, -0.0, 10**30, {"command": ["x"]}, {"identities": {}}, {"shared": {"command": "0" * 16}}, None, "\ud800"]


@given(st.lists(st.tuples(st.sampled_from(SENT), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12))
def test_whatever_measurements_have_in_common_they_are_read_as_they_were(tmp_path_factory, chosen) -> None:  # type: ignore[no-untyped-def]
    who = [{}, {"a": {"gpu_uuids": ["GPU-\ud800"] * 20}}, {"command": {"shared": "b" * 120}, "b": 10**30}]
    commands = [[], ["a\ud800" * 120], ["b", '"shared": {' * 20]]
    records = [
        samples.measurement("a", "gemm", "bf16", command=commands[command], evidence={}, raw=None, series=[{"size": sent}],
                            context={"sent": sent, "identities": who[identity]})
        for sent, command, identity in chosen
    ]  # fmt: skip
    made = Journal(tmp_path_factory.mktemp("journal") / journal.NAME)
    made.append(records)
    found, notes, chain = made.examine()
    texts = [json.dumps(record, sort_keys=True) for record in records]
    assert [json.dumps(msgspec.to_builtins(one), sort_keys=True) for one in found] == texts
    assert not notes and not chain.broken and chain.whole == len(records)
    made.path.unlink()
    made.append({**one, "chain": "0"} for one in records)
    assert len(list(made.as_data())) == len(records)


def sealed(tmp_path: pathlib.Path) -> tuple[Run, bytes, list[members.Part]]:
    """A run with a journal of several appends, its bytes, and its parts."""
    made = Run(tmp_path, "20260101T000000Z-0a1b2c")
    made.make()
    (made.dir / "plan.json").write_text("{}")
    for count in (1, 3, 2):
        made.journal.append(alike(count))
    return made, made.journal.path.read_bytes(), list(members.parts(made.journal.path))


def test_wherever_a_journal_is_cut_whole_appends_survive_and_it_goes_on(tmp_path: pathlib.Path) -> None:
    made, data, parts = sealed(tmp_path)
    counts = [1, 3, 2]
    for at in range(len(data) + 1):
        made.journal.path.write_bytes(data[:at])
        whole = sum(part.end <= at for part in parts)
        torn = at - (parts[whole - 1].end if whole else 0)
        found, notes, chain = made.journal.examine()
        assert len(found) == chain.whole == sum(counts[:whole]) and not chain.broken and len(notes) == bool(torn)
        assert chain.bytes == at - torn and chain.sha256 == hashlib.sha256(data[: at - torn]).hexdigest()
        assert made.journal.lost_end() == ""
        if at % 2:
            assert len(made.journal.repair()) == bool(torn)
        made.journal.append(alike(2))
        found, notes, chain = made.journal.examine()
        assert len(found) == chain.whole == sum(counts[:whole]) + 2 and not chain.broken and not notes
    assert len(made.journal.cuts()) == len(data) - len(parts)


def test_after_a_judgement_a_cut_anywhere_is_a_lost_end(tmp_path: pathlib.Path) -> None:
    made, data, _parts = sealed(tmp_path)
    made.journal.mark_end(6, len(data))
    assert made.journal.lost_end() == ""
    for at in range(len(data)):
        made.journal.path.write_bytes(data[:at])
        assert "its end is lost" in made.journal.lost_end()
        made.journal.repair()
        made.journal.append(alike(9))
        assert made.journal.lost_end()


def test_a_damaged_byte_anywhere_is_told_and_nothing_behind_it_is_trusted(tmp_path: pathlib.Path) -> None:
    made, data, parts = sealed(tmp_path)
    whole, _notes, chain = made.journal.examine()
    texts, before = [one.as_text() for one in whole if isinstance(one, Measurement)], [0, 1, 4]
    made.journal.mark_end(len(whole), len(data))
    for at in range(len(data)):
        made.journal.path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        found, notes, now = made.journal.examine()
        part = next(number for number, part in enumerate(parts) if at < part.end)
        assert now.sha256 != chain.sha256, "so a report is about another journal"
        same = [one.as_text() for one in found if isinstance(one, Measurement)] == texts
        last = part == len(parts) - 1  # it may be one that a killed writer left, but for the end that was marked
        assert same or now.broken or (last and notes and made.journal.lost_end())
        assert now.whole >= before[part]
        if now.broken and "are damaged" in now.broken:
            assert f"the bytes {parts[part].begin} to " in now.broken and notes


def test_a_seal_that_does_not_fit_to_its_lines_is_a_change(tmp_path: pathlib.Path) -> None:
    made, data, parts = sealed(tmp_path)
    content = parts[1].content
    assert content
    forged = members.part(content, bytes(32), parts[1].begin)
    made.journal.path.write_bytes(data[: parts[1].begin] + forged + data[parts[1].end :])
    _found, _notes, chain = made.journal.examine()
    assert "was changed" in chain.broken and chain.whole == 4


def test_a_writer_that_is_killed_at_any_moment_loses_no_append_that_had_ended(tmp_path: pathlib.Path) -> None:
    program = (
        "import pathlib, sys\n"
        "from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.journal import Journal\n"
        "made = Journal(pathlib.Path(sys.argv[1]))\n"
        "for number in range(1000):\n"
        "    made.append([{'n': number, 'command': ['x' * 200]}] * 3)\n"
        "    print(number, flush=True)\n"
    )
    made = Journal(tmp_path / journal.NAME)
    ended = 0
    for lines in (1, 7, 40, 3):
        writer = subprocess.Popen([sys.executable, "-c", program, made.path], stdout=subprocess.PIPE, text=True)
        assert writer.stdout
        said = [writer.stdout.readline() for _line in range(lines)]
        writer.kill()
        said += writer.stdout.readlines()
        writer.wait()
        ended += len(said)
        made.repair()
        found, notes, chain = made.examine()
        assert chain.whole == len(found) and not notes and not chain.broken
        assert len(found) in (3 * ended, 3 * ended + 3), "one append may have ended without being told"
        ended = len(found) // 3


def test_a_bad_line_among_thousands_is_named_by_its_number(run: Run) -> None:
    records = [{"n": number} for number in range(2500)]
    run.journal.append(records[:1500])
    journals.add(run.journal.path, b'{"n": 1, "cut\n[1]\n\n')
    run.journal.append(records[1500:])
    found, notes, chain = run.journal.examine()
    assert found == records and not chain.broken and chain.whole == 2500
    name = run.journal.path.name
    assert [note.split(" is ")[0] for note in notes] == [f"{name} line 1501", f"{name} line 1502"]
    assert "(13 bytes)" in notes[0]


def _append(path: pathlib.Path, number: int) -> None:
    for count in range(20):
        Journal(path).append([{"writer": number, "count": count, "text": "x" * 5000}, {"writer": number}])


def test_many_writers_do_not_mix_their_lines_and_make_one_chain(run: Run) -> None:
    (run.dir / "plan.json").write_text("{}")
    writers = [multiprocessing.Process(target=_append, args=(run.journal.path, n)) for n in range(64)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found, notes, chain = run.journal.examine()
    assert len(found) == chain.whole == 64 * 40 and not notes and not chain.broken
    assert chain.sha256 == hashlib.sha256(run.journal.path.read_bytes()).hexdigest()


def chained(run: Run, count: int = 6) -> list[bytes]:
    (run.dir / "plan.json").write_text('{"run_id": 1}')
    for number in range(count):
        run.journal.append([{"n": number, "value": 100.0 + number}])
    return journals.lines(run.journal.path)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda lines: [*lines[:2], lines[2].replace(b"102.0", b"902.0"), *lines[3:]], 3),
        (lambda lines: [*lines[:-1], lines[-1].replace(b"105.0", b"905.0")], 6),
        (lambda lines: [*lines[:2], *lines[3:]], 3),
        (lambda lines: lines[1:], 1),
        (lambda lines: [lines[1], lines[0], *lines[2:]], 1),
        (lambda lines: [*lines, b'{"n": 5, "value": 999.0}\n'], 7),
        (lambda lines: [*lines, lines[-1]], 7),
        (lambda lines: [*lines[:3], b'{"n": 2, "value": 999.0}\n', *lines[3:]], 4),
    ],
    ids=["edited", "the last edited", "removed", "the first removed", "exchanged", "added", "repeated", "added in the middle"],
)
def test_the_first_line_that_was_changed_is_named_and_none_after_it_is_trusted(
    run: Run, change: t.Callable[[list[bytes]], list[bytes]], line: int
) -> None:
    journals.write(run.journal.path, b"".join(change(chained(run))))
    run.journal.append([{"n": 99}])  # whoever goes on does not repair it
    _found, _notes, chain = run.journal.examine()
    words = "was changed" if line > 1 else "does not fit to plan.json"
    assert chain.broken.startswith(f"{run.journal.path.name} line {line} {words}") and chain.whole == line - 1


def test_the_chain_begins_with_the_plan(run: Run) -> None:
    chained(run)
    (run.dir / "plan.json").write_text('{"run_id": 2}')
    assert run.journal.examine()[2].broken.startswith(f"{run.journal.path.name} line 1 ")


def test_a_journal_without_a_chain_is_read_and_stays_without_one(tmp_path: pathlib.Path) -> None:
    plain = Journal(tmp_path / journal.PLAIN_NAME)
    plain.path.write_text('{"n": 1}\n{"n": 2}\n')
    plain.append([{"n": 3}])
    found, notes, chain = plain.examine()
    assert [m["n"] for m in found] == [1, 2, 3] and not notes and not chain.chained and not chain.broken


def test_a_repaired_journal_goes_on_with_its_chain(run: Run) -> None:
    lines = chained(run)
    journals.add(run.journal.path, lines[-1][:40])
    assert run.journal.repair()
    run.journal.append([{"n": 7}])
    found, notes, chain = run.journal.examine()
    assert chain.whole == len(found) == 7 and not chain.broken and not notes


def test_a_full_disk_is_an_error_and_leaves_the_journal_whole(tmp_path: pathlib.Path) -> None:
    journal = Journal(pathlib.Path("/dev/full"))
    with pytest.raises(RunError, match="No space left on device"):
        journal.append([{"n": 1}])


def test_a_run_that_exists_is_not_made_again(run: Run) -> None:
    with pytest.raises(RunError, match="acceptance_results_dir"):
        Run(run.dir.parent, run.id).make()


def test_a_run_that_does_not_exist_names_those_that_do(run: Run) -> None:
    (run.dir / "plan.json").write_text("{}")
    with pytest.raises(RunError, match=r"20260101T000000Z-ffffff does not exist.*20260101T000000Z-0a1b2c"):
        Run.open(str(run.dir.parent), "20260101T000000Z-ffffff")
    with pytest.raises(RunError, match=r"found '\.\./x', expected the id of a run"):
        Run.open(str(run.dir.parent), "../x")


def test_a_run_that_another_controller_drives_is_refused(run: Run) -> None:
    run.claim(os.getpid())
    run.claim(os.getpid())
    with pytest.raises(RunError, match=f"driven by process {os.getpid()}"):
        run.claim(1)
    (run.dir / "controller.json").write_text(json.dumps({"pid": os.getpid(), "started": -1}))  # dead, its pid reused
    run.claim(1)
    assert run.is_mine(1) and not run.is_mine(os.getpid())


def _claims(run: Run, said: t.Any, go_on: t.Any) -> None:
    """A worker: makes the run its controller's, when that one is gone."""
    said.send(os.getpid())
    go_on.recv()
    try:
        run.claim(driver.parent())
    except RunError as error:
        said.send(str(error))
    said.send((driver.parent(), os.getppid(), run.driven(), driver.state(driver.of())))


def _controls(run: Run, said: t.Any, go_on: t.Any) -> None:
    multiprocessing.get_context("fork").Process(target=_claims, args=(run, said, go_on)).start()
    signal.pause()


def test_a_worker_that_outlived_its_controller_does_not_make_the_run_init_s(run: Run) -> None:
    fork = multiprocessing.get_context("fork")
    (hear, said), (go_on, tell) = fork.Pipe(False), fork.Pipe(False)
    controller = fork.Process(target=_controls, args=(run, said, go_on))
    controller.start()
    hear.recv()
    controller.kill()
    controller.join()
    tell.send(True)
    assert "has ended" in hear.recv()
    parent, now, driven, state = hear.recv()
    assert parent == controller.pid != now and driven == "" and state == "gone"
    run.claim(os.getpid(), take_over=True)


def test_who_takes_over_waits_for_one_that_is_ending_and_for_no_other(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run.ENDING_S", 5)
    ending = subprocess.Popen(["sleep", "1"])
    run.claim(ending.pid)
    with pytest.raises(RunError, match="still being driven"):
        run.claim(os.getpid())
    threading.Thread(target=ending.wait).start()
    run.claim(os.getpid(), take_over=True)
    assert run.is_mine(os.getpid())
    monkeypatch.setattr("ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run.ENDING_S", 0.3)
    with pytest.raises(RunError, match="still being driven"):
        run.claim(os.getppid(), take_over=True)
    assert run.is_mine(os.getpid())


@given(st.text(min_size=1, max_size=400))
def test_a_name_stays_one_file_in_one_folder(name: str) -> None:
    made = file_name(name)
    assert "/" not in made and made not in (".", "..", "") and len(made) < 150
    assert file_name(name + "x") != made


def test_what_people_read_is_json_with_a_line_for_each_fact() -> None:
    record = {"node": "a", "facts": {"kernel": "6.8.0", "disks": [{"b": 1, "a": 2}], "empty": {}}, "none": {}}
    text = readable(record)
    assert json.loads(text) == record
    assert text.splitlines()[1:5] == [' "facts": {', '  "disks": [{"a": 2, "b": 1}],', '  "empty": {},', '  "kernel": "6.8.0"']


def test_records_are_read_as_json_says_but_for_the_samples_beside_a_test(run: Run) -> None:
    window = {"GPU-1": {"samples": 12, "throttle": []}}
    text = {
        "large": 100000000000000000001, "lone": "\ud800", "float": 1e-321, "name": "ü\n", "flag": True,
        "identities": {"a": {"machine_id": "m", "gpu_uuids": ["GPU-1"]}}, "gpu_uuids": ["GPU-1"],
    }  # fmt: skip
    whole = {
        **dict.fromkeys(("stage", "check", "variant", "plane", "target"), "x"), "schema": "measurement/v1", "run_id": run.id,
        "outcome": "measured", "started_at": "2026-01-01T00:00:00Z",
        **dict.fromkeys(("reason_code", "reason", "raw", "raw_sha256", "tool_version")), "attempt": 1, "duration_s": 2, "simulated": False,
        "series": [{"size": 8, "type": "float"}], "command": ["tool", "-n"], "subject": {"kind": "node", "id": "a", "members": []},
        "context": text,
        "metrics": {"busbw": {"value": 1, "unit": "GB/s"}}, "evidence": {"changes": [{"code": "xid"}], "window": window},
    }  # fmt: skip
    strange = {**whole, "stage": 1, "command": [True], "subject": "a", "metrics": [], "context": {"identities": {"a": 1}}, "evidence": None}
    run.journal.append([whole, strange, whole])
    found, notes, chain = run.journal.examine()
    lean = {**whole, "evidence": {"changes": [{"code": "xid"}], "window": {}}}
    told = [json.dumps(msgspec.to_builtins(one), sort_keys=True) for one in found]
    assert told == [json.dumps(one, sort_keys=True) for one in (lean, strange, lean)]
    assert [isinstance(one, Measurement) for one in found] == [True, False, True]
    assert not notes and chain.whole == 3 and not chain.broken


def test_what_only_python_takes_for_json_is_read_as_before(run: Run) -> None:
    journals.write(run.journal.path, b'{"n": NaN}\n{"n": 1, "n": 2}\n{"n": 1} 2\n"text"\n')
    found, notes, _chain = run.journal.examine()
    assert str(found) == "[{'n': nan}, {'n': 2}]" and [note.split(" is ")[0][-1] for note in notes] == ["3", "4"]


def test_a_new_run_gets_the_id_that_was_given_once(run: Run) -> None:
    parent = str(run.dir.parent)
    assert Run.new(parent, "20260101T000000Z-ffffff").dir.name == "20260101T000000Z-ffffff"
    with pytest.raises(RunError, match="goes on with it"):
        Run.new(parent, run.id)
    with pytest.raises(RunError, match="expected the id of a run"):
        Run.new(parent, "../x")
