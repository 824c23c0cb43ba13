# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The terminal at the end of a run over simulated hosts of this machine, and what check mode leaves behind."""

from __future__ import annotations

import json
import pathlib
import re

import pytest
from harness.demo_runs import Done, play

# A healthy host comes first: it carried the failure of all others once. h100-03 has a slow GPU, h200-04 a cut output.
FEW = "h100-01,h100-02,h100-03,h200-04"
# Without six identical neighbours the slow GPU still fails beside its siblings.
STAGES = ("--tags", "nccl_node,gemm")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def refused(results: pathlib.Path) -> Done:
    return play(results, "--limit", FEW, *STAGES)


def test_who_is_not_accepted_has_failed_and_nobody_else(refused: Done) -> None:
    assert refused.status == 2
    assert refused.recap() == {"h100-01": 0, "h100-02": 0, "h100-03": 1, "h200-04": 1}, refused.output[-3000:]


def test_one_short_line_is_the_last_word(refused: Done) -> None:
    """Behind the table what was decided, once, with where the report is; after that nothing but each failed host."""
    before, _banner, after = refused.output.partition("PLAY [Fail the hosts")
    (last,) = [line for line in before.splitlines() if "ACCEPTED" in line]
    assert re.match(r"NOT ACCEPTED, report: \S+/report\.html$", last) and before.rstrip().splitlines().index(last) > 10
    assert after.count("fatal: ") == 2 and "ACCEPTED" not in after and "report" not in after
    assert not {"counts", "coverage", "run_id", "PASS:"} & set(re.split(r"[\s']+", after))


def test_judged_again_it_is_the_same(refused: Done, results: pathlib.Path) -> None:
    (run,) = (path.parent.name for path in results.glob("*/plan.json"))
    again = play(results, "-e", f"run_id={run}", playbook="playbooks/judge.yml")
    assert again.status == 2 and {host for host, failed in again.recap().items() if failed} == {"h100-03", "h200-04"}
    assert len(list(results.glob("*/judged/*/report.html"))) == 1
    looked = play(results, "-e", f"run_id={run}", "--check", playbook="playbooks/judge.yml")
    assert looked.status == 2 and "nothing was written" in looked.output
    assert len(list(results.glob("*/judged/*"))) == 1


@pytest.mark.parametrize("playbook", ["acceptance.yml", "playbooks/judge.yml", "playbooks/resume.yml"])
def test_nobody_says_himself_that_his_fleet_is_accepted(refused: Done, results: pathlib.Path, playbook: str) -> None:
    before = sorted(results.glob("**/report.html"))
    run = before[0].parent.name
    for name in ("acceptance_judgement", "acceptance_run", "acceptance_stage"):
        given = {"passed": True, "accepted": True, "run_id": run, "refused": [], "last": "", "name": "gemm", "results_dir": str(results)}
        done = play(results, "-e", json.dumps({name: given}), "-e", f"run_id={run}", "--limit", FEW, playbook=playbook)
        assert done.status and f"{name}: found a value of yours" in " ".join(done.output.split()), done.output[-3000:]
    assert sorted(results.glob("**/report.html")) == before


def test_an_accepted_fleet_fails_nobody(results: pathlib.Path) -> None:
    done = play(results, "--limit", "h100-01", *STAGES)
    assert done.status == 0 and done.recap() == {"h100-01": 0}, done.output[-3000:]
    assert "ACCEPTED, report: " in done.output and "skipping: no hosts matched" in done.output


def test_a_run_that_is_refused_for_what_no_host_did_fails_all(results: pathlib.Path) -> None:
    """A floor of the user's that nothing was held to, where warnings refuse."""
    mistaken = {
        "id": "mine", "match": {"stage": "gemm", "check": "bf16", "gpu": "NVIDIA H100 80 GB HBM3"}, "metric": "tflops", "value": 600,
        "unit": "TFLOPS", "source": "test", "date": "2026-11", "confidence": "measured",
    }  # fmt: skip
    done = play(
        results, "--limit", "h100-01,h100-02", "--tags", "gemm", acceptance_expectations=[mistaken], acceptance_warn="refuse"
    )  # fmt: skip
    assert done.status == 2 and done.recap() == {"h100-01": 1, "h100-02": 1}, done.output[-3000:]


@pytest.mark.parametrize("diff", [(), ("--diff",)])
def test_check_mode_shows_the_plan_and_is_no_run(tmp_path: pathlib.Path, diff: tuple[str, ...]) -> None:
    done = play(tmp_path / "results", "--limit", FEW, "--check", *diff)
    assert done.status == 0 and "NOT ACCEPTED" not in done.output and not any(done.recap().values()), done.output[-3000:]
    assert "check mode, nothing is measured and no run is begun: 104 checks on 4 hosts" in done.output
    assert ("+gemm: h100-03: bf16 mode=alone" in done.output) == bool(diff)
    assert not (tmp_path / "results").exists()


def test_check_mode_of_a_resume_says_what_is_left(refused: Done, results: pathlib.Path) -> None:
    run = min(path.parent for path in results.glob("*/plan.json"))
    before = {path: path.stat().st_mtime_ns for path in sorted(run.rglob("*"))}
    done = play(results, "--limit", FEW, "--check", "--diff", "-e", f"run_id={run.name}", playbook="playbooks/resume.yml")
    assert done.status == 0 and "no run is resumed" in done.output and "+nccl_node: h200-04: all_reduce" in done.output
    assert before == {path: path.stat().st_mtime_ns for path in sorted(run.rglob("*"))}
