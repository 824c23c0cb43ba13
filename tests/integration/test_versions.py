# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs and a history that version 0.1.0 wrote (tests/fixtures/runs-0.1.0) are read by this version, as docs/versions.md says."""

from __future__ import annotations

import json
import pathlib
import shutil
import sqlite3

import pytest
import yaml
from harness import console_memory
from harness.demo_runs import Done, play

ROOT = pathlib.Path(__file__).resolve().parents[2]
OURS = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"]
# The first version without chain and digests; one with them, judged; one whose controller was killed in the middle.
UNCHAINED, JUDGED, KILLED = "20261125T203139Z-782de9", "20261125T203150Z-cdb1eb", "20261125T203209Z-190120"
SLOW = "h100-03/gpu/GPU-00000003-0000-4000-8000-000000000007"


@pytest.fixture
def results(tmp_path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(ROOT / "tests/fixtures/runs-0.1.0", tmp_path / "results"))


def ask(results: pathlib.Path, playbook: str, *arguments: str) -> Done:
    return play(results, *arguments, playbook=f"playbooks/{playbook}.yml")


def flat(done: Done) -> str:
    """The output without line breaks, which Ansible puts anywhere."""
    return " ".join(done.output.split())


def verdicts(folder: pathlib.Path) -> dict[tuple[str, str, str], str]:
    found = [json.loads(line) for line in (folder / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()]
    return {(v["stage"], v["variant"], v["subject"]["id"]): v["verdict"] for v in found}


@pytest.mark.parametrize("run", [UNCHAINED, JUDGED])
def test_a_run_is_judged_again_with_the_same_findings(results: pathlib.Path, run: str) -> None:
    done = ask(results, "judge", "-e", f"run_id={run}")
    assert done.recap() == {"h100-01": 0, "h100-03": 1}, done.output[-3000:]
    (again,) = (results / run / "judged").iterdir()
    before, after = verdicts(results / run), verdicts(again)
    bad = {key for key, verdict in before.items() if verdict == "FAIL"}
    assert {key[2] for key in bad} == {"h100-03", SLOW}
    assert {key for key, verdict in after.items() if verdict == "FAIL"} == bad and before.keys() <= after.keys()
    assert (again / "report.html").stat().st_size > 100_000
    assert ("not chained, as older versions wrote it" in flat(done)) == (run == UNCHAINED)


def test_a_run_is_verified_if_its_version_could_prove_it(results: pathlib.Path) -> None:
    whole, unproven = ask(results, "verify", "-e", f"run_id={JUDGED}"), ask(results, "verify", "-e", f"run_id={UNCHAINED}")
    assert whole.status == 0 and f"run {JUDGED} is whole: 60 measurements" in flat(whole), whole.output[-2000:]
    assert unproven.status and "made by an older version, whose journal is not chained: nobody can say" in flat(unproven)


def test_a_killed_run_of_another_version_is_not_resumed_but_judged(results: pathlib.Path) -> None:
    shown = ask(results, "resume", "-e", f"run_id={KILLED}", "--check")
    refused = ask(results, "resume", "-e", f"run_id={KILLED}")
    for done in (shown, refused):
        assert done.status and not (results / KILLED / "controller.json").exists()
        assert (
            f"run {KILLED}: gpufleet.acceptance 0.1.0 began it and left 6 checks unmeasured; {OURS} does not measure them, since numbers "
            "of two versions may differ: resume it with 0.1.0, begin a new run, or judge what was measured by playbooks/judge.yml"
        ) in flat(done), done.output[-3000:]
    judged = ask(results, "judge", "-e", f"run_id={KILLED}")
    assert judged.status and "6 UNKNOWN of 12 planned checks" in flat(judged), judged.output[-3000:]


def test_a_run_of_another_version_that_is_complete_is_resumed_to_its_verdict(results: pathlib.Path) -> None:
    done = ask(results, "resume", "-e", f"run_id={JUDGED}")
    assert "0.1.0 began it" not in flat(done) and "NOT ACCEPTED, report: " in flat(done), done.output[-3000:]


def test_an_old_history_is_upgraded_filled_and_compared_with_a_run_of_today(results: pathlib.Path) -> None:
    with sqlite3.connect(results / "history.db") as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchall() == [("0001",)]
    imported = ask(results, "history_import")
    assert imported.status == 0, imported.output[-3000:]
    left_out = f"left out: run {UNCHAINED}: an older version wrote no report.sha256; playbooks/judge.yml judges it again for the history"
    assert left_out in flat(imported), imported.output[-3000:]
    play(results, "--limit", "h100-02,h100-03", "--tags", "stack,nccl_node,gemm")
    (today,) = {path.parent.name for path in results.glob("*/plan.json")} - {UNCHAINED, JUDGED, KILLED}
    searched = ask(results, "history", "-e", "node=h100-03", "-e", "verdict=FAIL", "-e", "stage=gemm")
    assert searched.status == 0 and f"{JUDGED} {SLOW}" in flat(searched) and f"{today} {SLOW}" in flat(searched), searched.output[-3000:]
    compared = ask(results, "compare", "-e", f"runs={JUDGED},{today}")
    assert compared.status == 0 and f"run {today} against {JUDGED}" in flat(compared), compared.output[-3000:]
    assert "38 numbers compared, 0 beyond the scatter" in flat(compared)


def test_the_console_shows_old_runs(results: pathlib.Path) -> None:
    client = console_memory.opened(results).signed_in()
    assert JUDGED in client.get("/runs").text
    page = client.get(f"/results/{JUDGED}")
    assert page.status_code == 200 and "h100-03" in page.text and "NOT ACCEPTED" in page.text
    answer = client.get(f"/api/v1/runs/{JUDGED}")
    assert answer.status_code == 200 and "NOT ACCEPTED" in answer.text
    assert client.get("/node?name=h100-03").status_code == 200
    assert client.get(f"/results/{UNCHAINED}").status_code in (200, 404)


def test_what_a_newer_version_wrote_is_refused_in_one_sentence(results: pathlib.Path) -> None:
    plan = json.loads((results / JUDGED / "plan.json").read_text(encoding="utf-8"))
    (results / JUDGED / "plan.json").write_text(json.dumps({**plan, "schema": "plan/v2", "collection_version": "2.0.0", "more": {}}))
    for playbook in ("judge", "resume", "verify", "baseline"):
        done = ask(results, playbook, "-e", f"run_id={JUDGED}")
        assert done.status and (
            f"run {JUDGED}: plan.json: found schema plan/v2 of gpufleet.acceptance 2.0.0, expected plan/v1, which gpufleet.acceptance "
            f"{OURS} reads; update the collection"
        ) in flat(done), done.output[-3000:]
    (results / "history.db").unlink()
    imported = ask(results, "history_import")
    assert imported.status == 0 and "found schema plan/v2 of gpufleet.acceptance 2.0.0" in flat(imported), imported.output[-3000:]


def test_a_run_with_a_stage_of_a_newer_version_names_both_versions(results: pathlib.Path) -> None:
    plan = json.loads((results / UNCHAINED / "plan.json").read_text(encoding="utf-8"))
    plan["stages"].append({"name": "levitation", "role": "gpufleet.acceptance.levitation"})
    (results / UNCHAINED / "plan.json").write_text(json.dumps({**plan, "collection_version": "1.9.0"}))
    done = ask(results, "judge", "-e", f"run_id={UNCHAINED}")
    assert done.status and "of stage 'levitation' cannot be loaded" in flat(done), done.output[-3000:]
    assert f"gpufleet.acceptance 1.9.0 made the run, this is {OURS}" in flat(done)


def test_a_resume_that_leaves_out_hosts_of_its_run_says_so(results: pathlib.Path) -> None:
    done = ask(results, "resume", "-e", f"run_id={JUDGED}", "--limit", "h100-02")
    assert done.status, done.output[-3000:]
    assert f"--limit: it leaves out h100-03 of run {JUDGED}; resume a run with all its hosts" in flat(done), done.output[-3000:]
