# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults of a real Slurm in the middle of a run: the node that is hit is UNKNOWN in Slurm's words, the others are measured, and nothing is
left behind."""

from __future__ import annotations

import json
import pathlib
import subprocess
import time

import pytest
from harness import journals
from harness.fleet_runs import ROOT, Done, run_folder, wait
from harness.slurm_runs import Controller, Runs
from rigs.simulated import nodes
from rigs.slurm.slurm import Slurm

pytestmark = pytest.mark.fleet

WELL = {("PASS", None)}
# By then slurmctld has written down what it knows: it waits for 5 s at most.
SAVED_S = 6


@pytest.fixture(scope="module")
def runs(rig_slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(rig_slurm, tmp_path_factory.mktemp("slurm"))


def on(done: Done, node: str) -> set[tuple[str, str | None]]:
    return {(v["verdict"], v["reason_code"]) for v in done.verdicts if v["subject"]["id"].startswith(f"rig/{node}")}


def reason(done: Done, node: str) -> str:
    return next(v["reason"] or "" for v in done.verdicts if v["subject"]["id"].startswith(f"rig/{node}"))


def others_are_well(runs: Runs, done: Done, *hit: str) -> None:
    """Fail unless all nodes but those are accepted, and nothing is left of the run."""
    others = [host for host in runs.slurm.fleet.hosts if host not in hit]
    assert {host: on(done, host) for host in others} == dict.fromkeys(others, WELL), done.output
    runs.nothing_left(60)


def opened(gates: dict[str, pathlib.Path]) -> None:
    for gate in gates.values():
        (gate / "open").touch()


def job_of(slurm: Slurm, node: str) -> str:
    return next(line.split()[0] for line in slurm.jobs() if line.endswith(f" {node}"))


def killed(slurm: Slurm, host: str, daemon: str) -> None:
    if daemon == "slurmctld":  # started again, it would go on with jobs whose end it has not written down
        time.sleep(SAVED_S)
    slurm.fleet.inside(host, "sh", "-c", f"kill -9 $(cat /run/slurm/{daemon}.pid)")


def test_a_node_that_somebody_drains_meanwhile_is_unknown_with_the_reason(runs: Runs) -> None:
    controller, gates = runs.at_gate()
    hostile = "a disk\n|gpu-01|all|drained \u202e\x1b]0;x\x07 {{ 1 }} $(touch /tmp/planted) "
    runs.slurm.drain("gpu-02", hostile + "A" * 3000)
    try:
        opened(gates)
        done = controller.end()
        assert on(done, "gpu-02") == {("UNKNOWN", "node_drained")}, done.output
        said = reason(done, "gpu-02")
        assert "taken out of service while it was measured" in said and "Reason 'a disk\\x0a|gpu-01" in said
        assert said.isprintable() and len(said) < 1000
        later = runs.run(["stack"])
        assert on(later, "gpu-02") == {("UNKNOWN", "node_drained")}
        assert {verdict for verdict, _code in on(later, "gpu-01")} <= {"PASS", "WARN"}
    finally:
        runs.slurm.resume("gpu-02")
    others_are_well(runs, done, "gpu-02")


def test_jobs_that_somebody_cancels_or_preempts_or_whose_node_goes_down(runs: Runs) -> None:
    slurm = runs.slurm
    controller, gates = runs.at_gate()
    slurm.client("scancel", job_of(slurm, "gpu-02"))
    preempting = slurm.client(
        "sbatch", "--parsable", "-p", "urgent", "-w", "gpu-03", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 300"
    ).strip()  # fmt: skip
    slurm.client("scontrol", "update", "nodename=gpu-04", "state=down", "reason=pulled out")
    try:
        wait(lambda: not any("gpufleet" in line and not line.endswith("gpu-01") for line in slurm.jobs()), controller.process)
        opened(gates)
        done = controller.end()
    finally:
        slurm.client("scancel", preempting)
        if slurm.states()["gpu-04"] == "down":  # one whose slurmd registers again is up by itself
            slurm.resume("gpu-04")
        slurm.until_idle("gpu-03", "gpu-04")
    assert [on(done, f"gpu-0{n}") for n in (2, 3, 4)] == [{("UNKNOWN", "job_ended")}] * 3, done.output
    assert "CANCELLED AT" in reason(done, "gpu-02") and "DUE TO PREEMPTION" in reason(done, "gpu-03")
    assert "Node failure on gpu-04" in reason(done, "gpu-04")
    others_are_well(runs, done, "gpu-02", "gpu-03", "gpu-04")


@pytest.mark.long
def test_nodes_that_share_a_job_keep_their_answers_and_what_had_begun_is_not_begun_again(runs: Runs) -> None:
    """One goes down, and the job goes on. Another is preempted, and the job ends: what had no answer then is UNKNOWN."""
    slurm = runs.slurm
    controller, gates = runs.at_gate(acceptance_slurm_nodes_per_job=64)
    slurm.client("scontrol", "update", "nodename=gpu-04", "state=down", "reason=pulled out")
    try:
        time.sleep(2)
        assert len(slurm.jobs()) == 1
        (gates["gpu-01"] / "open").touch()
        wait(lambda: "gpu-01" in " ".join(_answered(controller)), controller.process)
        preempting = slurm.client(
            "sbatch", "--parsable", "-p", "urgent", "-w", "gpu-03", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 300"
        ).strip()  # fmt: skip
        try:
            wait(lambda: any(line.startswith(f"{preempting} RUNNING") for line in slurm.jobs()), controller.process)
            opened(gates)
            done = controller.end()
        finally:
            slurm.client("scancel", preempting)
    finally:
        if slurm.states()["gpu-04"] == "down":  # one whose slurmd registers again is up by itself
            slurm.resume("gpu-04")
        slurm.until_idle("gpu-03", "gpu-04")
    for node in ("gpu-02", "gpu-03", "gpu-04"):
        assert {verdict for verdict, _code in on(done, node)} == {"UNKNOWN"}, done.output
    # Slurm kills all of ours on a node that goes down in the middle of a job of several nodes; the next start there gives back.
    runs.run(["stack"])
    others_are_well(runs, done, "gpu-02", "gpu-03", "gpu-04")


def _answered(controller: Controller) -> set[str]:
    """Return the nodes of which the journal of a run has a measurement."""
    folder = run_folder(controller.folder / "results")
    return {m["subject"]["id"].split("/")[1] for m in journals.of(folder)} if folder else set()


def test_a_slurmctld_that_is_killed_and_comes_back_costs_no_result(runs: Runs) -> None:
    """The steps of jobs, and what feeds them, do not need it meanwhile."""
    slurm = runs.slurm
    controller, gates = runs.at_gate()
    killed(slurm, slurm.controller, "slurmctld")
    (gates["gpu-02"] / "open").touch()
    time.sleep(3)
    slurm.fleet.inside(slurm.controller, "slurmctld")
    opened(gates)
    others_are_well(runs, controller.end())
    slurm.until_idle(*slurm.fleet.hosts)


def test_a_slurmd_that_is_killed_costs_at_most_its_own_node(runs: Runs) -> None:
    slurm = runs.slurm
    controller, gates = runs.at_gate()
    killed(slurm, "gpu-03", "slurmd")
    time.sleep(2)
    slurm.fleet.inside("gpu-03", "slurmd")
    opened(gates)
    done = controller.end()
    assert on(done, "gpu-03") in (WELL, {("UNKNOWN", "job_ended")}), done.output
    others_are_well(runs, done, "gpu-03")
    slurm.until_idle(*slurm.fleet.hosts)


def test_a_slurmctld_that_does_not_answer_is_said(runs: Runs) -> None:
    slurm = runs.slurm
    killed(slurm, slurm.controller, "slurmctld")
    try:
        done = runs.run(["stack"])
    finally:
        slurm.fleet.inside(slurm.controller, "slurmctld")
        slurm.until_idle(*slurm.fleet.hosts)
    assert {code for host in slurm.fleet.hosts for _verdict, code in on(done, host)} == {"slurm_unreachable"}, done.output
    assert "Unable to contact slurm controller" in done.output


def test_a_partition_that_goes_down_ends_no_job_and_starts_none(runs: Runs) -> None:
    slurm = runs.slurm
    controller, gates = runs.at_gate()
    slurm.client("scontrol", "update", "partitionname=all", "state=down")
    try:
        opened(gates)
        done = controller.end()
        later = runs.run(["stack"], acceptance_slurm_wait=3)
    finally:
        slurm.client("scontrol", "update", "partitionname=all", "state=up")
    others_are_well(runs, done)
    assert {pair for host in slurm.fleet.hosts for pair in on(later, host)} == {("UNKNOWN", "job_refused")}, later.output
    assert "PartitionDown" in reason(later, "gpu-01")


def test_200_mb_of_output_of_one_node_cost_no_node_its_result(runs: Runs) -> None:
    for host in runs.slurm.fleet.hosts:
        loud = runs.slurm.fleet.plant(host) / "loud"
        loud.mkdir(exist_ok=True)
        noise = "yes gpufleet-noise | head -c 200000000\n" if host == "gpu-02" else ""
        (loud / "all_reduce_perf").write_text(f'#!/bin/sh\n{noise}exec /opt/simulated/bin/${{0##*/}} "$@"\n')
        (loud / "all_reduce_perf").chmod(0o755)
    done = runs.run(["nccl_node"], nccl_node_binary_dir="/opt/simulated/loud")
    assert on(done, "gpu-02") == WELL or {verdict for verdict, _code in on(done, "gpu-02")} == {"UNKNOWN"}, done.output
    assert done.folder and sum(path.stat().st_size for path in done.folder.rglob("*") if path.is_file()) < 20_000_000
    others_are_well(runs, done, "gpu-02")


def test_a_machine_behind_ssh_and_in_slurm_is_not_measured_twice_at_once(runs: Runs, tmp_path: pathlib.Path) -> None:
    """With state directories that differ, as those of two users do."""
    fleet = runs.slurm.fleet
    controller, gates = runs.at_gate()
    machine = {
        "ansible_host": fleet.address("gpu-02"), "ansible_user": "root", "ansible_ssh_common_args": f"-F {fleet.ssh_config}",
        "acceptance_state_dir": "/var/tmp/another", "acceptance_gpu_count": 8, **nodes.tools_at("/opt/simulated/bin"),
    }  # fmt: skip
    (tmp_path / "inventory.yml").write_text(json.dumps({"all": {"hosts": {"gpu-02": machine}}}))
    extra = {"acceptance_results_dir": str(tmp_path / "results"), "acceptance_simulated": True, "acceptance_stages": ["stack"]}
    argv = [str(ROOT / ".venv/bin/ansible-playbook"), "acceptance.yml", "-i", str(tmp_path / "inventory.yml"), "-e", json.dumps(extra)]
    behind = Controller(argv, tmp_path).end()
    assert {(v["verdict"], v["reason_code"]) for v in behind.verdicts} == {("UNKNOWN", "duplicate_identity")}, behind.output
    assert "a job of a cluster measures this very machine" in behind.output
    opened(gates)
    others_are_well(runs, controller.end())


def test_a_repaired_node_is_measured_in_a_maintenance_reservation(runs: Runs) -> None:
    """As docs/slurm.md has it. On a node that is still drained Slurm starts no job there either."""
    slurm = runs.slurm
    own = {"acceptance_slurm_reservation": "repair", "acceptance_nodes": {"names": ["gpu-02"]}}
    slurm.drain("gpu-02", "a repaired disk")
    words = ("reservationname=repair", "nodes=gpu-02", "users=root", "starttime=now", "duration=240", "flags=maint,ignore_jobs")
    slurm.client("scontrol", "create", "reservation", *words)
    try:
        assert on(runs.run(["nccl_node"], **own), "gpu-02") == {("UNKNOWN", "node_drained")}
        slurm.client("scontrol", "update", "nodename=gpu-02", "state=resume")
        wait(lambda: slurm.states()["gpu-02"] == "maint")
        assert on(runs.run(["nccl_node"], **own), "gpu-02") == WELL
        assert on(runs.run(["nccl_node"]), "gpu-02") == {("UNKNOWN", "node_reserved")}
    finally:
        slurm.client("scontrol", "delete", "reservationname=repair")
        if slurm.states()["gpu-02"] == "drained":
            slurm.resume("gpu-02")
        slurm.until_idle("gpu-02")


@pytest.mark.long
def test_a_detached_run_is_collected_by_a_resume(runs: Runs) -> None:
    """Also what has not begun when the resume does. Nothing is left on the nodes behind it."""
    slurm = runs.slurm
    other = slurm.client("sbatch", "--parsable", "-w", "gpu-03", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 300").strip()
    try:
        begun = runs.start(["stack", "nccl_node"], "-e", "acceptance_detach=true")
        first = begun.end()
        assert first.status == 2 and "DETACHED: run " in first.output and not first.verdicts, first.output
        # Those of the node that is in use: squeue names no node of a job that waits.
        wait(lambda: [line.split()[1] for line in slurm.jobs() if "gpufleet" in line] == ["PENDING", "PENDING"])
    finally:
        slurm.client("scancel", other)
    assert first.folder
    argv = [str(ROOT / ".venv/bin/ansible-playbook"), "playbooks/resume.yml", "-i", str(begun.folder / "inventory.yml")]
    extra = {"acceptance_results_dir": str(first.folder.parent), "run_id": first.folder.name, "acceptance_simulated": True}
    resumed = Controller([*argv, "-e", json.dumps(extra)], begun.folder).end()
    assert resumed.status == 0, resumed.output
    for host in slurm.fleet.hosts:
        assert {verdict for verdict, _code in on(resumed, host)} <= {"PASS", "WARN"}, resumed.output
    assert {m["attempt"] for m in resumed.journal} == {1}
    runs.nothing_left(10)


def test_logs_show_the_tools_that_run_and_detach_is_refused_between_nodes(runs: Runs) -> None:
    controller, gates = runs.at_gate()
    argv = [str(ROOT / ".venv/bin/ansible-playbook"), "playbooks/logs.yml", "-i", str(controller.folder / "inventory.yml")]
    made = subprocess.run(argv, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    opened(gates)
    assert made.returncode == 0, made.stdout + made.stderr
    for host in runs.slurm.fleet.hosts:
        assert f"rig/{host}: runs for " in made.stdout and "gate/all_reduce_perf" in made.stdout, made.stdout
    others_are_well(runs, controller.end())
    refused = runs.run(["ddp"], "-e", "acceptance_detach=true")
    assert refused.status != 0 and "stage ddp runs between nodes and needs its controller" in refused.output and not runs.slurm.jobs()


@pytest.mark.long
def test_the_time_limit_of_a_job_is_said(runs: Runs) -> None:
    """Slurm's shortest limit is a minute."""
    controller, gates = runs.at_gate(acceptance_slurm_time=1)
    opened({host: gate for host, gate in gates.items() if host != "gpu-02"})
    done = controller.end()
    assert on(done, "gpu-02") == {("UNKNOWN", "job_ended")} and "DUE TO TIME LIMIT" in reason(done, "gpu-02"), done.output
    others_are_well(runs, done, "gpu-02")


@pytest.mark.long
def test_a_node_without_munge_is_unknown_in_the_words_of_slurm(runs: Runs) -> None:
    slurm = runs.slurm
    controller, gates = runs.at_gate()
    slurm.fleet.inside("gpu-03", "sh", "-c", "kill -9 $(cat /run/munge/munged.pid); rm -f /run/munge/munge.socket*")
    try:
        opened(gates)
        done = controller.end()
        assert {verdict for verdict, _code in on(done, "gpu-03")} == {"UNKNOWN"} and "Not responding" in reason(done, "gpu-03"), done.output
    finally:
        slurm.fleet.inside("gpu-03", "sh", "-c", "runuser -u munge -- munged --force")
        slurm.until_idle("gpu-03")
    others_are_well(runs, done, "gpu-03")
