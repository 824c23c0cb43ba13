# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was changed in a run's folder is noticed when it is judged again, and named by verify."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import typing as t
import zlib

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import conclude
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import planner as plan
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import integrity, measurement, members, model, raw
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run, facts_of, node_file, readable
from harness import journals
from harness.records import make_plan

NODES = ("gpu-01", "gpu-02", "gpu-03")
ID = "20260101T000000Z-0a1b2c"


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Run:
    made = Run(tmp_path, ID)
    made.make()
    items = [
        {"stage": "stack", "check": "cuda", "variant": "", "subject": {"kind": "node", "id": n, "members": []}, "target": n} for n in NODES
    ]
    written = {
        "schema": "plan/v1", "run_id": ID, "created_at": "2026-01-01T00:00:00Z", "mode": "run", "chained": True,
        "collection_version": "1", "ansible_version": "2", "python_version": "3", "partial": False, "left_out": [],
        "skipped_stages": [], "stages": [{"name": "stack", "role": "gpufleet.acceptance.stack"}],
        "targets": {n: {"plane": "ssh"} for n in NODES}, "items": items, "sample": {}, "check_seconds": {}, "notes": [],
        "judging": {"sets": [], "of": {}, "waivers": [], "warn": "accept", "stack": {}, "notes": []},
    }  # fmt: skip
    (made.dir / "plan.json").write_text(plan.dump(make_plan(written)))
    for number, node in enumerate(NODES):
        made.journal.append([measured(made, node, f"output {number}")])
    return made


def measured(run: Run, node: str, said: str = "", **fields: t.Any) -> dict[str, t.Any]:
    seen = observation.measured("cuda", context={"machine_id": f"{node[-1]}" * 32}, **fields)
    seen["raw_z"] = base64.b64encode(zlib.compress(said.encode())).decode() if said else None
    return measurement.Completer(run, "stack", node, "ssh", {}).complete(seen)


def judge(run: Run) -> tuple[dict[str, t.Any], dict[str, dict[str, t.Any]]]:
    """The judgement, and the newest verdict of each node."""
    done = conclude.judge({}, None, None, {"acceptance_run": {"results_dir": str(run.dir.parent), "run_id": run.id}})
    path = pathlib.Path(done["report"][0]).parent / "verdicts.jsonl"
    return done, {v["subject"]["id"]: v for v in map(json.loads, path.read_text().splitlines())}


def change(path: pathlib.Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def unchained(lines: list[dict[str, t.Any]]) -> bytes:
    return b"".join(json.dumps({k: v for k, v in line.items() if k != "chain"}).encode() + b"\n" for line in lines)


def test_a_run_is_whole_as_it_was_written_and_after_every_further_judgement(run: Run) -> None:
    assert judge(run)[0]["accepted"]
    line = integrity.verify(run)
    assert line.startswith(f"run {ID} is whole: 3 measurements, 3 raw texts, 1 report; fingerprint ")
    run.journal.append([measured(run, "gpu-01", "again")])  # a resume
    with open(run.journal.path, "a") as target:
        target.write('{"half a li')
    judge(run)
    run.journal.repair()
    assert "4 measurements, 4 raw texts, 2 reports" in integrity.verify(run)
    assert subprocess.run(["sha256sum", "-c", "report.sha256"], cwd=run.dir, capture_output=True, check=False).returncode == 0


def test_the_fingerprint_is_that_of_the_files_as_sha256sum_prints_them(run: Run) -> None:
    judge(run)
    report = json.loads((run.dir / "report.json").read_text())
    files = [file["path"] for file in [*report["files"], *report["raw"]]]
    assert files[:3] == ["plan.json", "journal.jsonl.gz", "verdicts.jsonl"] and len(files) == 6
    printed = subprocess.run(["sha256sum", *files[:3]], cwd=run.dir, capture_output=True, check=True).stdout
    printed += b"".join(f"{hashlib.sha256(raw.read(run.dir, name)).hexdigest()}  {name}\n".encode() for name in files[3:])
    assert report["fingerprint"] == hashlib.sha256(printed).hexdigest()


def test_an_edited_line_and_all_after_it_are_unknown_and_the_run_is_not_accepted(run: Run) -> None:
    assert judge(run)[0]["accepted"]
    journals.write(run.journal.path, journals.text(run.journal.path).replace(b'"target": "gpu-02"', b'"target": "gpu-0x"'))
    done, verdicts = judge(run)
    assert not done["accepted"] and "journal.jsonl.gz line 2 was changed, or a line before it is missing" in done["why"]
    assert [verdicts[n]["verdict"] for n in NODES] == ["PASS", "UNKNOWN", "UNKNOWN"]
    assert verdicts["gpu-03"]["reason_code"] == "tampered"
    with pytest.raises(RunError, match=r"is not whole: journal\.jsonl\.gz line 2 was changed"):
        integrity.verify(run)


def test_an_added_better_line_and_a_journal_that_lost_its_chain_are_not_accepted(run: Run) -> None:
    whole = journals.text(run.journal.path)
    journals.add(run.journal.path, json.dumps({**measured(run, "gpu-01"), "attempt": 2}).encode() + b"\n")
    done, verdicts = judge(run)
    assert not done["accepted"] and verdicts["gpu-01"]["verdict"] == "UNKNOWN"
    lines = [json.loads(line) for line in whole.splitlines()]
    journals.write(run.journal.path, unchained(lines))
    done, verdicts = judge(run)
    assert not done["accepted"] and {v["verdict"] for v in verdicts.values()} == {"UNKNOWN"}


@pytest.mark.parametrize("how", ["edited", "damaged", "deleted", "exchanged"])
def test_a_raw_file_that_is_not_what_was_written_makes_its_measurement_unknown(run: Run, how: str) -> None:
    judge(run)
    paths = sorted(run.dir.glob("raw/*"))
    if how == "edited":
        paths[1].unlink()
        raw.store(run.dir, "gpu-02", "stack, attempt 1", b"better output")
    elif how == "damaged":
        whole = paths[1].read_bytes()
        paths[1].write_bytes(whole[:30] + b"x" + whole[31:])
    elif how == "deleted":
        paths[1].unlink()
    else:
        shutil.copy(paths[0], paths[1])
    name = paths[1].relative_to(run.dir).as_posix()
    done, verdicts = judge(run)
    assert not done["accepted"] and name in done["why"]
    assert [(verdicts[n]["verdict"], verdicts[n]["reason_code"]) for n in NODES[1:]] == [("UNKNOWN", "raw_changed"), ("PASS", None)]
    assert name in verdicts["gpu-02"]["reason"]
    words = {"deleted": "missing", "damaged": "damaged"}.get(how, "not what the journal says")
    with pytest.raises(RunError, match=f"not whole: {name}#0 is {words}"):
        integrity.verify(run)


def test_a_lost_raw_file_takes_no_fault_back(run: Run) -> None:
    bad = observation.failed("cuda", "wrong_results", "wrong")
    bad["raw_z"] = base64.b64encode(zlib.compress(b"wrong")).decode()
    made = measurement.Completer(run, "stack", "gpu-01", "ssh", {}).complete(bad)
    run.journal.append([made, {**measured(run, "gpu-01"), "attempt": 2}])
    (run.dir / raw.file_of(made["raw"])).unlink()
    done, verdicts = judge(run)
    assert verdicts["gpu-01"]["verdict"] == "FAIL" and raw.file_of(made["raw"]) in done["why"]


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("plan.json", '"partial": false', '"partial": true', "journal.jsonl.gz line 1 does not fit to plan.json: one of the two was chan"),
        ("verdicts.jsonl", '"PASS"', '"WARN"', "report.json is about another verdicts.jsonl"),
        ("report.html", "gpu-02", "gpu-09", "report.html is not what was written, by report.sha256"),
        ("report.json", '"mode": "run"', '"mode": "ran"', "report.json is not what was written, by report.sha256"),
        ("report.sha256", "report.md", "report.mx", "report.mx is not what was written"),
    ],
)
def test_verify_names_the_file_that_is_not_what_was_written(run: Run, name: str, old: str, new: str, words: str) -> None:
    judge(run)
    change(run.dir / name, old, new)
    with pytest.raises(RunError, match=words):
        integrity.verify(run)


def with_facts(run: Run, node: str = "gpu-01") -> pathlib.Path:
    """Facts of a node as a stage keeps them; its file in nodes/."""
    made = measurement.Completer(run, "stack", node, "ssh", {}).complete(
        observation.measured("facts", context={"gpu": "NVIDIA H200", "facts": {"driver": "580.1", "kernel": "6.8"}})
    )
    path = run.dir / "nodes" / node_file(node)
    path.write_text(readable(facts_of(made)))
    run.journal.append([made])
    return path


def test_verify_covers_the_files_of_the_nodes(run: Run) -> None:
    path = with_facts(run)
    judge(run)
    integrity.verify(run)
    whole = path.read_text()
    change(path, "580.1", "570.1")
    with pytest.raises(RunError, match=r"nodes/gpu-01\.json is not what the journal says: driver is 570\.1, in the journal 580\.1"):
        integrity.verify(run)
    path.write_text(whole.replace('"gpu": "NVIDIA H200"', '"gpu": "NVIDIA H100"'))
    with pytest.raises(RunError, match=r"nodes/gpu-01\.json is not what the journal says"):
        integrity.verify(run)
    path.write_text("{")
    with pytest.raises(RunError, match=r"nodes/gpu-01\.json cannot be read"):
        integrity.verify(run)
    path.unlink()
    with pytest.raises(RunError, match=r"nodes/gpu-01\.json is missing"):
        integrity.verify(run)
    path.write_text(whole)
    (run.dir / "nodes" / "gpu-09.json").write_text("{}")
    with pytest.raises(RunError, match=r"nodes/gpu-09\.json is about a node of which the journal has no facts"):
        integrity.verify(run)
    (run.dir / "nodes" / "gpu-09.json").unlink()
    with_facts(run)  # a resume
    judge(run)
    integrity.verify(run)


def test_a_report_that_is_not_listed_is_none_of_ours(run: Run) -> None:
    """An edited page whose line was taken out of the list."""
    judge(run)
    change(run.dir / "report.html", "gpu-02", "gpu-09")
    listed = (run.dir / "report.sha256").read_text().splitlines(keepends=True)
    (run.dir / "report.sha256").write_text("".join(line for line in listed if "report.html" not in line))
    with pytest.raises(RunError, match=r"report\.html is not listed in report\.sha256"):
        integrity.verify(run)


def test_an_accepted_run_under_the_name_of_another_is_not_accepted(run: Run) -> None:
    assert judge(run)[0]["accepted"]
    other = Run(run.dir.parent, "20260102T000000Z-0a1b2c")
    shutil.copytree(run.dir, other.dir)
    done, _verdicts = judge(other)
    assert not done["accepted"] and f"plan.json is that of run {ID}" in done["why"]
    with pytest.raises(RunError, match=rf"not whole: plan\.json is that of run {ID}"):
        integrity.verify(other)


def test_lines_taken_off_the_end_are_missed_by_the_chain_and_found_by_verify(run: Run) -> None:
    judge(run)
    (run.dir / "journal.end").unlink()  # as a run of an older version has none; its report knows the journal
    os.truncate(run.journal.path, [part.end for part in members.parts(run.journal.path)][1])
    with pytest.raises(RunError, match=r"report\.json is about another journal\.jsonl\.gz"):
        integrity.verify(run)


def test_a_run_of_an_older_version_is_judged_with_a_note_and_never_called_whole(run: Run) -> None:
    written = {name: value for name, value in run.plan().as_dict().items() if name != "chained"}
    (run.dir / "plan.json").write_text(json.dumps(written))
    lines = journals.of(run.dir)
    run.journal.path.unlink()
    (run.dir / "journal.jsonl").write_bytes(unchained(lines))
    run = Run(run.dir.parent, run.id)
    done, _verdicts = judge(run)
    assert done["accepted"]
    assert any("not chained" in note for note in json.loads((run.dir / "report.json").read_text())["notes"])
    with pytest.raises(RunError, match="older version"):
        integrity.verify(run)


def test_a_run_that_was_not_judged_is_not_called_whole(run: Run) -> None:
    with pytest.raises(RunError, match="has no report"):
        integrity.verify(run)


def test_a_raw_file_never_takes_the_place_of_another(run: Run) -> None:
    first, second, third = (measured(run, "gpu-01", text) for text in ("output 0", "other words", "third"))
    assert len({first["raw"], second["raw"], third["raw"]}) == 3
    for made in (first, second, third):
        assert integrity.digest(run.dir, made["raw"]) == made["raw_sha256"]


def test_a_line_of_a_chained_journal_is_still_a_measurement(run: Run) -> None:
    record = json.loads(journals.lines(run.journal.path)[0])
    assert set(record) == {*model.Measurement.__struct_fields__, "chain"} and measurement.problem(record) is None


def test_a_journal_that_lost_its_end_after_it_was_judged_is_not_accepted_again(run: Run) -> None:
    assert judge(run)[0]["accepted"]
    run.journal.append([measured(run, "gpu-01", "again")])
    assert judge(run)[0]["passed"]
    os.truncate(run.journal.path, list(members.parts(run.journal.path))[-1].begin)
    done, _verdicts = judge(run)
    assert not done["passed"] and "its end is lost" in done["why"]
    with pytest.raises(RunError, match="its end is lost"):
        integrity.verify(run)
    run.journal.append([measured(run, "gpu-02", "another, so that the journal is no shorter than it was")] * 2)
    assert "its end was replaced" in judge(run)[0]["why"]


def test_a_torn_end_that_was_cut_off_stays_a_note(run: Run) -> None:
    with open(run.journal.path, "a") as target:
        target.write('{"half a li')
    run.journal.repair()
    assert integrity.gather(run, run.plan()).notes == ["journal.jsonl.gz: a half-written end of 11 bytes was cut off"]
