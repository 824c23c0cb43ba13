# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The jobs of a stage over a stand-in for srun, with the real programs between: feeding on the way, a frame at the end."""

from __future__ import annotations

import pathlib
import sys
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import jobs, reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.client import Client

Program = t.Callable[[str, str], None]
# In place of the node half: a job that answers with its request.
COMMON = f"""import os, sys, types
sys.path[:0] = {sys.path!r}
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import job
def main(request, nonce, number):
    os.write(1, f"gpufleet-job/1 {{nonce}} begun {{number}}\\n".encode())
    exec(request["params"].get("do", ""))
    frame.write({{"state": "done", "observations": [], "probe": request["probe"]}}, nonce, 1)
job.main = main
"""
SRUN = """export SLURM_JOB_ID=7
while [[ $1 == -* ]]; do case $1 in --nodelist=*) node=${1#*=};; esac; shift; done
case $node in
refused*) echo "srun: error: Unable to allocate resources: Invalid account or account/partition combination specified" >&2; exit 1;;
waits*) echo "srun: job 9 queued and waiting for resources" >&2; exec sleep 60;;
esac
"$@"; status=$?
echo "srun: error: $node: task 0: Exited with exit code $status" >&2
exit $status
"""


@pytest.fixture
def run(program: Program, tmp_path: pathlib.Path) -> t.Callable[..., dict[str, jobs.Answered]]:
    program("srun", SRUN)
    program("scancel", f'echo "$@" >> {tmp_path}/cancelled')
    program("sinfo", "exit 1")
    program("scontrol", "exit 1")
    program("squeue", 'for last in "$@"; do :; done; echo "${last%%|*}|9|x|PENDING|Resources|waits-1"')

    def of(wait_s: float = 30.0, run_s: float = 30.0, **actions: str) -> dict[str, jobs.Answered]:
        launch = jobs.Launch(Client("lab", ()), sys.executable, "gpufleet-run", wait_s, run_s)
        try:
            made = [
                jobs.Job(
                    node.replace("_", "-"), ["srun", f"--nodelist={node.replace('_', '-')}", sys.executable, "-c", jobs.READ_EXACTLY],
                    {"probe": "stack", "params": {"do": action}},
                )
                for node, action in actions.items()
            ]  # fmt: skip
            return {answered.job.node: answered for answered in launch.run(made, COMMON)}
        finally:
            launch.close()

    return of


def test_each_node_answers_for_itself(run: t.Callable[..., dict[str, jobs.Answered]]) -> None:
    found = run(n1="", n2="print('noise')")
    for node in ("n1", "n2"):
        assert found[node].answer["state"] == "done" and found[node].job.number == "7" and found[node].job.facts()["slurm_waited_s"] < 20


def test_a_frame_of_another_job_is_no_answer(run: t.Callable[..., dict[str, jobs.Answered]]) -> None:
    forged = f"frame.write({{'state': 'done', 'observations': []}}, '{frame.nonce_of('a', 'b')}', 1); os._exit(0)"
    assert run(n1=forged)["n1"].answer["reason_code"] == "forged_frame"


def test_why_a_node_has_no_answer(run: t.Callable[..., dict[str, jobs.Answered]], tmp_path: pathlib.Path) -> None:
    found = run(wait_s=3.0, refused_1="", waits_1="", ends_1="os._exit(3)", good_1="")
    answers = {node: (a.answer.get("reason_code"), a.answer.get("reason")) for node, a in found.items()}
    account = "Unable to allocate resources: Invalid account or account/partition combination specified"
    assert answers["refused-1"] == ("job_refused", f"no job of ours runs on refused-1: {account}")
    assert answers["waits-1"] == (
        "node_busy", "no job of ours started on waits-1 in the 3 s of acceptance_slurm_wait: job 9 is PENDING, Resources"
    )  # fmt: skip
    assert answers["ends-1"] == ("job_ended", "job 7 on ends-1 ended before its answer: ends-1: task 0: Exited with exit code 3")
    assert answers["good-1"] == (None, None)


def test_a_job_that_waits_for_what_time_does_not_change_is_refused(
    run: t.Callable[..., dict[str, jobs.Answered]], program: Program
) -> None:
    program("squeue", 'for last in "$@"; do :; done; echo "${last%%|*}|9|x|PENDING|QOSMaxJobsPerUserLimit|waits-1"')
    answer = run(wait_s=1.0, waits_1="")["waits-1"].answer
    assert answer["reason_code"] == "job_refused" and "job 9 is PENDING, QOSMaxJobsPerUserLimit" in answer["reason"]


def test_a_job_that_runs_for_too_long_is_ended(run: t.Callable[..., dict[str, jobs.Answered]]) -> None:
    began = time.monotonic()
    assert run(run_s=1.0, n1="sys.stdin.buffer.raw.read(); [None for _ in iter(lambda: os.read(0, 9), b'')]; os._exit(0)")["n1"].answer == {
        "state": "running"
    }
    assert time.monotonic() - began < 25


def test_a_connection_that_ends_loses_its_nodes_and_cancels_what_waits(program: Program, tmp_path: pathlib.Path) -> None:
    program("ssh", "echo 'kex_exchange_identification: Connection closed' >&2; exit 255")
    launch = jobs.Launch(Client("lab", ("ssh", "login")), sys.executable, "gpufleet-run", 30.0, 30.0)
    (found,) = launch.run([jobs.Job("n1", ["srun"], {"probe": "stack", "params": {}})], COMMON)
    launch.close()
    assert found.answer["reason_code"] == "slurm_unreachable" and "Connection closed" in found.answer["reason"]


def test_words_of_srun_that_matter() -> None:
    said = "srun: job 3 queued and waiting for resources\nsrun: error: a\nsrun: error: a\nsrun: \x1b[1mb\n"
    assert reasons.words_of(said) == "a; \\x1b[1mb"
