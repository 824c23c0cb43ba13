# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The jobs of a stage over a stand-in for srun, with the real programs between: feeding on the way, a frame at the end."""

from __future__ import annotations

import dataclasses
import json
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
def main(request, nonce, number, name):
    name = request["params"].get("claims", name)
    os.write(1, f"gpufleet-job/1 {{nonce}} begun {{number}} {{name}}\\n".encode())
    exec(request["params"].get("do", ""))
    of_slurm = [name for name in os.environ if name.startswith(("SLURM", "PMI"))]
    frame.write({{"state": "done", "observations": [], "probe": request["probe"], "of_slurm": of_slurm}}, nonce, 1, 1000)
job.main = main
"""
SRUN = """export SLURM_JOB_ID=7
while [[ $1 == -* ]]; do case $1 in --nodelist=*) node=${1#*=};; esac; shift; done
case $node in
waits* | refused*) ;;
*,*) # a task on each node, each with the whole of standard input, and its lines labelled
    task=0; outs=()
    for name in ${node//,/ }; do
        [[ $name == lost* ]] && continue
        mkfifo $TMPDIR/$name
        SLURMD_NODENAME=$name "$@" < $TMPDIR/$name > >(sed "s/^/$task: /") & outs+=($TMPDIR/$name); task=$((task + 1))
    done
    exec 3<&0; tee "${outs[@]}" <&3 > /dev/null &
    wait $(jobs -p | head -$task); cat $TMPDIR/words >&2 2> /dev/null; exit 1;;
esac
case $node in
refused*) echo "srun: error: Unable to allocate resources: Invalid account or account/partition combination specified" >&2; exit 1;;
waits*) echo "srun: job 9 queued and waiting for resources" >&2; exec sleep 60;;
esac
"$@"; status=$?
echo "srun: error: $node: task 0: Exited with exit code $status" >&2
exit $status
"""


class Single(t.NamedTuple):
    """The answer of one node."""

    job: jobs.Job
    answer: jobs.NodeAnswer


@pytest.fixture
def run(program: Program, tmp_path: pathlib.Path) -> t.Callable[..., dict[str, Single]]:
    program("srun", SRUN)
    program("scancel", f'echo "$@" >> {tmp_path}/cancelled')
    program("sinfo", "exit 1")
    program("scontrol", "exit 1")
    program("squeue", 'for last in "$@"; do :; done; echo "${last%%|*}|9|x|PENDING|Resources|waits-1"')

    def of(wait_s: float = 30.0, run_s: float = 30.0, **actions: str) -> dict[str, Single]:
        launch = jobs.Launch(Client("lab", ()), sys.executable, "gpufleet-run", wait_s, run_s)
        try:
            made = [
                jobs.Job(
                    (node.replace("_", "-"),), ["srun", f"--nodelist={node.replace('_', '-')}", sys.executable, "-c", jobs.READ_EXACTLY],
                    {"": {"probe": "stack", "params": {"do": action}}},
                )
                for node, action in actions.items()
            ]  # fmt: skip
            return {node: Single(a.job, answer) for a in launch.run(made, COMMON) for node, answer in a.answers.items()}
        finally:
            launch.close()

    return of


def test_each_node_answers_for_itself(run: t.Callable[..., dict[str, Single]]) -> None:
    found = run(n1="", n2="print('noise')")
    for node in ("n1", "n2"):
        assert found[node].answer["state"] == "done" and found[node].job.number == "7" and found[node].job.facts()["slurm_waited_s"] < 20


def test_numbers_of_a_node_that_is_drained_meanwhile_are_not_used(run: t.Callable[..., dict[str, Single]], program: Program) -> None:
    drained = {"name": "n2", "state": ["ALLOCATED", "DRAIN"], "reason": "a disk", "reason_set_by_user": "root"}
    nodes = [{"name": "n1", "state": ["ALLOCATED", "NOT_RESPONDING"]}, drained]
    program("scontrol", f"echo '{json.dumps({'nodes': nodes})}'")
    found = run(n1="", n2="")
    assert found["n1"].answer["state"] == "done"
    answer = found["n2"].answer
    assert answer["reason_code"] == "node_drained" and "taken out of service while it was measured" in answer["reason"]
    assert "Reason 'a disk' [root" in answer["reason"]


def test_a_state_that_slurm_does_not_say_at_the_end_is_noted(run: t.Callable[..., dict[str, Single]]) -> None:
    found = run(n1="")["n1"]
    assert found.answer["state"] == "done" and "sinfo fails" in found.job.facts()["slurm_unread"]


def test_a_frame_of_another_job_is_no_answer(run: t.Callable[..., dict[str, Single]]) -> None:
    forged = f"frame.write({{'state': 'done', 'observations': []}}, '{frame.nonce_of('a', 'b')}', 1); os._exit(0)"
    assert run(n1=forged)["n1"].answer["reason_code"] == "forged_frame"


def test_why_a_node_has_no_answer(run: t.Callable[..., dict[str, Single]], tmp_path: pathlib.Path) -> None:
    found = run(wait_s=8.0, refused_1="", waits_1="", ends_1="os._exit(3)", good_1="")
    answers = {node: (a.answer.get("reason_code"), a.answer.get("reason")) for node, a in found.items()}
    account = "Unable to allocate resources: Invalid account or account/partition combination specified"
    assert answers["refused-1"] == ("job_refused", f"no job of ours runs on refused-1: {account}")
    assert answers["waits-1"] == (
        "node_busy", "no job of ours started on waits-1 in the 8 s of acceptance_slurm_wait: job 9 is PENDING, Resources"
    )  # fmt: skip
    assert answers["ends-1"] == ("job_ended", "job 7 on ends-1 ended before its answer: ends-1: task 0: Exited with exit code 3")
    assert answers["good-1"] == (None, None)


def test_a_job_that_waits_for_what_time_does_not_change_is_refused(run: t.Callable[..., dict[str, Single]], program: Program) -> None:
    program("squeue", 'for last in "$@"; do :; done; echo "${last%%|*}|9|x|PENDING|QOSMaxJobsPerUserLimit|waits-1"')
    answer = run(wait_s=1.0, waits_1="")["waits-1"].answer
    assert answer["reason_code"] == "job_refused" and "job 9 is PENDING, QOSMaxJobsPerUserLimit" in answer["reason"]


def test_a_job_that_runs_for_too_long_is_ended(run: t.Callable[..., dict[str, Single]]) -> None:
    began = time.monotonic()
    assert run(run_s=1.0, n1="sys.stdin.buffer.raw.read(); [None for _ in iter(lambda: os.read(0, 9), b'')]; os._exit(0)")["n1"].answer == {
        "state": "running"
    }
    assert time.monotonic() - began < 25


def test_a_connection_that_ends_loses_its_nodes_and_cancels_what_waits(program: Program, tmp_path: pathlib.Path) -> None:
    program("ssh", "echo 'kex_exchange_identification: Connection closed' >&2; exit 255")
    launch = jobs.Launch(Client("lab", ("ssh", "login")), sys.executable, "gpufleet-run", 30.0, 30.0)
    (found,) = launch.run([jobs.Job(("n1",), ["srun"], {"": {"probe": "stack", "params": {}}})], COMMON)
    launch.close()
    answer = found.answers["n1"]
    assert answer["reason_code"] == "slurm_unreachable" and "Connection closed" in answer["reason"]


Group = t.Callable[..., jobs.Answered]


@pytest.fixture
def group(run: t.Callable[..., dict[str, Single]], program: Program, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Group:
    """Return what runs one job over nodes, with the parameters of some of them."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def of(nodes: tuple[str, ...], wait_s: float = 30.0, reservation: str = "", **params: t.Any) -> jobs.Answered:
        launch = jobs.Launch(Client("lab", ()), sys.executable, "gpufleet-run", wait_s, 30.0, reservation)
        requests: dict[str, jobs.NodeWork] = {"": {"probe": "worker", "params": {}}}
        requests.update({node: {"probe": f"of {node}", "params": own} for node, own in params.items()})
        argv = ["srun", f"--nodelist={','.join(nodes)}", sys.executable, "-c", jobs.READ_EXACTLY]
        try:
            (answered,) = launch.run([jobs.Job(nodes, argv, requests)], COMMON)
        finally:
            launch.close()
        return answered

    return of


def test_each_node_of_a_group_answers_its_own_request(group: Group) -> None:
    found = group(("n1", "n2", "n3"), n1={"do": "print('0: noise', flush=True)"})
    assert {node: answer.get("probe") for node, answer in found.answers.items()} == {"n1": "of n1", "n2": "worker", "n3": "worker"}
    assert found.job.number == "7" and found.job.facts()["slurm_waited_s"] < 20
    assert all(answer.get("of_slurm") == [] for answer in found.answers.values())  # mpirun would start steps of the job


def test_a_node_of_a_group_that_two_claim_is_nobody_s(group: Group) -> None:
    codes = {node: answer.get("reason_code") for node, answer in group(("n1", "n2", "n3"), n2={"claims": "n1"}).answers.items()}
    assert codes == {"n1": "forged_frame", "n2": "job_ended", "n3": None}


def test_a_group_that_waits_says_for_which_of_its_nodes(group: Group, program: Program) -> None:
    states = '{"nodes": [{"name": "waits-1", "state": ["IDLE"]}, {"name": "b", "state": ["MIXED"]}, {"name": "c", "state": ["DOWN"]}]}'
    program("scontrol", f"echo '{states}'")
    program("squeue", 'for last in "$@"; do :; done; echo "${last%%|*}|9|x|PENDING|Resources|b,waits-1"')
    found = group(("waits-1", "b", "c"), wait_s=1.0)
    assert {answer["reason_code"] for answer in found.answers.values()} == {"node_busy"}
    assert "job 9 is PENDING, Resources" in found.answers["b"]["reason"]
    assert {node: answer["reason_code"] for node, answer in found.blockers.items()} == {"b": "node_busy", "c": "node_down"}
    assert "node b is in use" in found.blockers["b"]["reason"]


def test_a_reservation_of_ours_blocks_no_node_of_a_group(group: Group, program: Program) -> None:
    states = {"waits-1": ["IDLE", "RESERVED"], "b": ["MIXED", "RESERVED"]}
    nodes = [{"name": name, "state": states_of, "reservation": "ours"} for name, states_of in states.items()]
    program("scontrol", f"echo '{json.dumps({'nodes': nodes})}'")
    program("squeue", 'for last in "$@"; do :; done; echo "${last%%|*}|9|x|PENDING|Resources|b,waits-1"')
    blockers = group(("waits-1", "b"), wait_s=1.0, reservation="ours").blockers
    assert {node: answer["reason_code"] for node, answer in blockers.items()} == {"b": "node_busy"}


class Shared(t.NamedTuple):
    """The answers of nodes that shared a job, in their order, the jobs that srun was asked for, and the number of the job of each node."""

    answers: dict[str, jobs.NodeAnswer]
    asked: list[str]


@pytest.fixture
def shared(
    run: t.Callable[..., dict[str, Single]], program: Program, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> t.Callable[..., Shared]:
    """Return what runs one job that nodes share."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    program("srun", f'echo "$1" >> {tmp_path}/asked\n' + SRUN)
    program("squeue", 'for last in "$@"; do :; done; echo "${last%%|*}|9|x|PENDING|Resources|waits-1,n2"')

    def of(nodes: tuple[str, ...], words: str = "", wait_s: float = 30.0, run_s: float = 30.0, **actions: str) -> Shared:
        (tmp_path / "words").write_text(words)
        launch = jobs.Launch(Client("lab", ()), sys.executable, "gpufleet-run", wait_s, run_s)

        def made(*names: str) -> jobs.Job:
            requests: dict[str, jobs.NodeWork] = {"": {"probe": "all", "params": {}}}
            requests.update({name: {"probe": f"of {name}", "params": {"do": do}} for name, do in actions.items()})
            return jobs.Job(names, ["srun", f"--nodelist={','.join(names)}", sys.executable, "-c", jobs.READ_EXACTLY], requests)

        answers: dict[str, jobs.NodeAnswer] = {}
        try:
            for answered in launch.run([dataclasses.replace(made(*nodes), alone=made)], COMMON):
                assert not set(answers) & set(answered.answers), "each node answers once"
                answers.update(answered.answers)
        finally:
            launch.close()
        return Shared(answers, [line.partition("=")[2] for line in (tmp_path / "asked").read_text().splitlines()])

    return of


def codes(found: Shared) -> dict[str, str | None]:
    return {node: answer.get("reason_code") for node, answer in found.answers.items()}


def test_nodes_that_share_a_job_answer_each_when_it_is_ready(shared: t.Callable[..., Shared]) -> None:
    found = shared(("n1", "n2", "n3"), n1="import time; time.sleep(3)")
    assert list(found.answers)[-1] == "n1" and codes(found) == dict.fromkeys(("n1", "n2", "n3")) and found.asked == ["n1,n2,n3"]


def test_a_node_that_fails_in_a_shared_job_costs_no_other_its_answer(shared: t.Callable[..., Shared]) -> None:
    found = shared(("n1", "n2"), "srun: error: n1: task 0: Exited with exit code 3\n", n1="os._exit(3)")
    assert codes(found) == {"n1": "job_ended", "n2": None} and found.asked == ["n1,n2"], "what has begun is not begun again"
    assert "n1: task 0: Exited with exit code 3" in found.answers["n1"]["reason"]


def test_nodes_whose_shared_job_is_refused_are_asked_one_by_one(shared: t.Callable[..., Shared]) -> None:
    """A limit may be that of a job of several nodes; else each gets the words of Slurm."""
    found = shared(("refused-1", "n2"))
    assert codes(found) == {"refused-1": "job_refused", "n2": None} and found.asked[1:] in (["refused-1", "n2"], ["n2", "refused-1"])


def test_nodes_whose_shared_job_stays_in_the_queue_do_not_wait_for_one_another(shared: t.Callable[..., Shared]) -> None:
    found = shared(("waits-1", "n2"), wait_s=12.0)
    assert codes(found) == {"n2": None, "waits-1": "node_busy"} and len(found.asked) == 3


def test_a_node_on_which_a_shared_job_does_not_begin_is_asked_alone(shared: t.Callable[..., Shared]) -> None:
    found = shared(("n1", "lost-2", "n3"))
    assert codes(found) == dict.fromkeys(("n1", "lost-2", "n3")) and found.asked == ["n1,lost-2,n3", "lost-2"]


@pytest.mark.parametrize(
    "words",
    [
        "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-27T10:00:00 DUE TO PREEMPTION ***",
        "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-27T10:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
        "srun: error: Task launch for StepId=7.0 failed on node lost-3: Communication connection failure\n"
        "srun: error: Application launch failed: Communication connection failure",
    ],
)
def test_only_what_a_shared_job_has_not_begun_is_asked_alone(shared: t.Callable[..., Shared], words: str) -> None:
    """A node that failed in the middle would be accepted by a second try."""
    once = "path = os.environ['TMPDIR'] + '/once'; os.path.exists(path) or (open(path, 'w').close(), os._exit(143))"
    found = shared(("n1", "n2", "lost-3"), words, n1=once)
    assert codes(found) == {"n1": "job_ended", "n2": None, "lost-3": None} and found.asked == ["n1,n2,lost-3", "lost-3"]


def test_a_shared_job_that_somebody_cancels_is_not_begun_again(shared: t.Callable[..., Shared]) -> None:
    words = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-27T10:00:00 ***"
    found = shared(("n1", "lost-2", "n3"), words, n1="os._exit(143)")
    assert codes(found) == {"n1": "job_ended", "lost-2": "job_ended", "n3": None} and len(found.asked) == 1


def test_a_node_that_two_tasks_of_a_shared_job_claim_is_nobody_s(shared: t.Callable[..., Shared]) -> None:
    lies = "os.write(1, f'gpufleet-job/1 {nonce} begun 7 n2\\n'.encode())"
    found = shared(("n1", "n2"), n1=lies)
    assert codes(found) == {"n1": None, "n2": None}, "a task has the node of its first line"


def test_words_of_srun_that_matter() -> None:
    said = "srun: job 3 queued and waiting for resources\nsrun: error: a\nsrun: error: a\nsrun: \x1b[1mb\n"
    assert reasons.words_of(said) == "a; \\x1b[1mb"
