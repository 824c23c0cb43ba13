# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Jobs that go on without their controller: what sbatch is told, how a later controller waits for them, and when it removes answers."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import keeping
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import detached, jobs, nodes, settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.client import Client
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run

Program = t.Callable[[str, str], None]
COMMON = """import types
class job:
    def main(request, nonce, number, node):
        print(request["probe"], nonce, number, node)
import sys
sys.modules["ansible_collections.gpufleet.acceptance.plugins.module_utils.program"] = types.SimpleNamespace(job=job)
"""


def made(node: str) -> jobs.Job:
    argv = settings.of("lab", {"acceptance_slurm_qos": "long"}).detached("gpufleet-x", "a run", node, "gpu:8", 600.0)
    return jobs.Job((node,), argv, {"": {"probe": "stack", "params": {}}})


def test_a_detached_job_has_one_node_whole_and_leaves_no_file_of_slurm() -> None:
    argv = made("n1").argv
    assert argv[0] == "sbatch" and {
        "--parsable", "--no-requeue", "--output=/dev/null", "--error=/dev/null", "--exclusive", "--mem=0", "--nodelist=n1", "--nodes=1",
        "--gres=gpu:8", "--qos=long", "--time=12", "--job-name=gpufleet-x", "--propagate=NONE", f"--export=PATH={settings.PATH}",
    } <= set(argv)  # fmt: skip
    assert not [word for word in argv if word.startswith(("--mpi", "--cpu-bind", "--kill-on-bad-exit", "--unbuffered"))]


def test_an_answer_is_fetched_beside_the_jobs_of_others() -> None:
    argv = settings.of("lab", {"acceptance_slurm_gres": "gpu:4"}).fetching("gpufleet-x", "a run", "n1")
    assert argv[0] == "srun" and {"--ntasks=1", "--mem=100M", "--nodelist=n1"} <= set(argv)
    assert not [word for word in argv if word.startswith(("--exclusive", "--gres"))]


def test_the_script_of_a_job_is_its_program(tmp_path: pathlib.Path) -> None:
    job = made("n1")
    script = tmp_path / "script"
    script.write_text(detached.script_of(sys.executable, COMMON, job))
    script.chmod(0o755)
    said = subprocess.run([script], capture_output=True, text=True, check=True, env={"SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "7"})
    assert said.stdout == f"stack {job.nonce} 7 n1\n"
    assert detached.script_of("python3", "", job).startswith("#!/usr/bin/env python3\n")


def test_each_job_has_its_number_or_the_words_of_slurm(program: Program) -> None:
    program("sbatch", """case "$*" in
*n1*) cat > /dev/null; echo '12;lab';;
*n2*) echo 'sbatch: error: Batch job submission failed: Invalid qos specification' >&2; exit 1;;
*) echo 'Welcome';; esac""")
    found = detached.submitted(Client("lab", ()), "/usr/bin/python3", {name: made(name) for name in ("n1", "n2", "n3")}, COMMON)
    assert found["n1"] == ("12", "") and found["n2"][0] == found["n3"][0] == ""
    assert "Invalid qos specification" in found["n2"][1] and "sbatch says no number of a job: Welcome" in found["n3"][1]


def queue(program: Program, tmp_path: pathlib.Path, *answers: str) -> None:
    """Let squeue say each of the answers once, and then nothing."""
    for number, answer in enumerate(answers):
        (tmp_path / f"answer{number}").write_text(answer)
    program("squeue", f"""n=$(cat {tmp_path}/asked 2> /dev/null || echo 0); echo $((n + 1)) > {tmp_path}/asked
for last in "$@"; do :; done; [ -e {tmp_path}/answer$n ] && sed "s/^/${{last%%|*}}/" {tmp_path}/answer$n; exit 0""")


def test_a_resume_waits_for_the_jobs_of_its_run_alone(program: Program, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detached, "LOOK_S", 0.01)
    program("scancel", f'echo "$@" >> {tmp_path}/cancelled')
    foreign = "|9|x|PENDING|Resources|n2\n"
    queue(program, tmp_path, "|5|x|RUNNING|None|n1\n", "|5|x|COMPLETING|None|n1\n" + foreign, foreign)
    detached.wait(Client("lab", ()), "x", {"5"}, 600.0)
    assert (tmp_path / "asked").read_text() == "3\n" and not (tmp_path / "cancelled").exists()


def test_a_job_of_which_we_know_no_number_is_waited_for_too(
    program: Program, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detached, "LOOK_S", 0.01)
    queue(program, tmp_path, "|5|x|RUNNING|None|n1\n")
    detached.wait(Client("lab", ()), "x", {""}, 600.0)
    assert (tmp_path / "asked").read_text() == "2\n"


def test_a_job_that_waits_for_its_node_for_too_long_is_cancelled(
    program: Program, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detached, "LOOK_S", 0.01)
    program("scancel", f'echo "$@" >> {tmp_path}/cancelled')
    queue(program, tmp_path, "|5|x|PENDING|Resources|n1\n|6|x|RUNNING|None|n2\n", "|6|x|RUNNING|None|n2\n")
    detached.wait(Client("lab", ()), "x", {"5", "6"}, -1.0)
    assert (tmp_path / "cancelled").read_text() == "5\n"


class Collecting(nodes.StageOnSlurm):
    """A stage that collects kept answers. A node of `silent` starts no job. `events`: what the journal gets and what is removed."""

    def __init__(self, run: Run, unanswered: t.Collection[str], silent: t.Collection[str]) -> None:
        self.host, self.stage, self.settings, self.acting, self.controller = "lab", "gemm", {}, t.cast("t.Any", run), os.getppid()
        self.unanswered = {f"lab/{name}" for name in unanswered}
        self.silent = silent
        self.events: list[str] = []

    def _record(self, subject: str, result: t.Any) -> None:
        self.unanswered.discard(subject)
        self.events.append(f"journal {subject}")

    def launch(self, *_given: t.Any) -> t.Any:
        def answers(made: t.Sequence[jobs.Job], _common: str) -> t.Iterator[jobs.Answered]:
            for job in made:
                job.begun_at = float(job.nodes[0] not in self.silent)
                if job.requests[""]["probe"] == keeping.COLLECTED:
                    self.events.append(f"removed on {job.nodes[0]}")
                yield jobs.Answered(job, {job.nodes[0]: {"state": "done", "observations": []}})

        return types.SimpleNamespace(run=answers, close=lambda: None)

    def collect(self) -> None:
        self._collect(Client("lab", ()), settings.of("lab", {}))


def test_an_answer_is_removed_on_its_node_when_the_journal_has_it(program: Program, tmp_path: pathlib.Path) -> None:
    """Also one that an earlier resume wrote down before it was interrupted. A node that starts no job has its answer still."""
    program("squeue", "exit 0")
    run = Run(tmp_path, "20260101T000000Z-0a1b2c")
    run.make()
    secrets = {name: {"nonce": "0" * 32, "job": "5"} for name in ("n1", "n2", "n3")}
    run.save_detached("gemm", "lab", {"nodes": secrets})
    first = Collecting(run, ["n2", "n3"], silent=["n3"])
    first.collect()
    assert first.events[:2] == ["journal lab/n2", "journal lab/n3"] and sorted(first.events[2:]) == ["removed on n1", "removed on n2"]
    assert run.load_detached("gemm", "lab") == {"nodes": {"n3": secrets["n3"]}}
    second = Collecting(run, ["n3"], silent=[])
    second.collect()
    assert second.events == ["journal lab/n3", "removed on n3"] and run.load_detached("gemm", "lab") is None
