# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Losses in mid-run: hosts lost in mid-probe, killed controllers, two runs on one node. A gate holds the tool while it happens."""

from __future__ import annotations

import contextlib
import os
import signal
import typing as t

import pytest
from harness import journals
from harness.fleet_runs import Acceptance, Done, results_of, run_folder, wait
from rigs import common

pytestmark = pytest.mark.fleet
LOST = ("gpu-01", "gpu-02", "gpu-03", "gpu-04")
KEPT = ("gpu-05", "gpu-06")
COUNTED = '#!/bin/sh\necho once >> /opt/simulated/gate/gathered\nexec /opt/simulated/bin/${0##*/} "$@"\n'
RESUME, RESTORE = "playbooks/resume.yml", "playbooks/restore.yml"


def run_id(command: list[str]) -> str:
    folder = run_folder(results_of(command))
    assert folder
    return folder.name


class Loss(t.NamedTuple):
    done: Done
    resumed: Done
    connected_again: list[str]
    left_by_power: list[str]


@pytest.fixture(scope="module")
def loss(acceptance: Acceptance) -> Loss:
    """Four hosts are lost while their all_reduce_perf runs, each in its way, and are back before the next stage begins."""
    fleet = acceptance.fleet
    for host in fleet.hosts:
        acceptance.plant(host)
    hosts = (*LOST, *KEPT)
    variables = acceptance.gate(*hosts)
    command = acceptance.command(hosts, variables=variables)
    running = acceptance.start(command)
    acceptance.at_gate(running, *hosts)
    fleet.cut("gpu-01")
    fleet.kill_sshd("gpu-02")
    fleet.freeze("gpu-03")
    fleet.power_off("gpu-04")
    todo = results_of(command) / run_id(command) / "todo"
    wait(lambda: {path.stem for path in todo.glob("*.lost")} >= set(LOST), running)
    fleet.heal("gpu-01")
    acceptance.restart_sshd("gpu-02")
    fleet.thaw("gpu-03")
    fleet.power_on("gpu-04")
    wait(lambda: all(common.answers_ssh(fleet.address(host)) for host in LOST), running)
    before = {host: acceptance.logins(host) for host in LOST}
    acceptance.open(*KEPT)
    done = acceptance.end(command, running)
    again = [host for host in LOST if acceptance.logins(host) != before[host]]
    acceptance.nothing_left("gpu-01", "gpu-02", "gpu-03", *KEPT)
    by_power = acceptance.left("gpu-04")
    acceptance.open(*LOST)
    more = {"variables": variables, "results": results_of(command), "playbook": RESUME}
    resumed = acceptance.run(hosts, "-e", f"run_id={run_id(command)}", **more)
    return Loss(done, resumed, again, by_power)


@pytest.mark.parametrize("host", LOST, ids=("cut", "sshd-killed", "frozen", "powered-off"))
def test_a_host_lost_in_mid_probe_is_named_and_not_connected_to_again(loss: Loss, host: str) -> None:
    assert loss.done.status != 0
    assert loss.done.of(host, "stack") <= {"PASS", "WARN"}
    for stage in ("nccl_node", "gemm"):
        assert loss.done.of(host, stage) == {"UNKNOWN"} and loss.done.codes(host, stage) == {"unreachable"}
    assert all(host in v["reason"] for v in loss.done.on(host, "gemm"))
    assert host not in loss.connected_again


def test_the_other_hosts_are_fine(loss: Loss) -> None:
    assert all(loss.done.good(host) for host in KEPT)


def test_resume_measures_what_was_lost_and_nothing_else(loss: Loss, acceptance: Acceptance) -> None:
    assert loss.resumed.status == 0, loss.resumed.output[-3000:]
    assert all(loss.resumed.good(host) for host in (*LOST, *KEPT))
    # On the second attempt a pass is a WARN.
    assert all(loss.resumed.of(host, "nccl_node") == {"WARN"} for host in LOST)
    assert all(loss.resumed.of(host, "nccl_node") == {"PASS"} for host in KEPT)
    added = loss.resumed.journal[len(loss.done.journal) :]
    assert {m["target"] for m in added} == set(LOST) and {m["stage"] for m in added} == {"nccl_node", "gemm", "train", "host_health_after"}
    assert loss.left_by_power  # what the power cut left was there, and the next run's janitor has removed it
    acceptance.nothing_left(*LOST)


def test_all_hosts_down(healthy: Acceptance) -> None:
    down = ("gpu-09", "gpu-10")
    for host in down:
        healthy.fleet.cut(host)
    try:
        done = healthy.run(down, environment={"ANSIBLE_TIMEOUT": "3"})
    finally:
        for host in down:
            healthy.fleet.heal(host)
    assert done.status != 0 and {v["verdict"] for v in done.verdicts} == {"UNKNOWN"}
    assert all(done.codes(host) == {"unreachable"} for host in down)
    assert done.folder and (done.folder / "report.html").exists()


# Killed controllers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whom", ["controller", "group", "ctrl-c"])
def test_a_controller_that_is_killed_leaves_nothing_and_resumes(healthy: Acceptance, whom: str) -> None:
    hosts = ("gpu-01", "gpu-02")
    healthy.plant("gpu-02", FAULTS="gemm_slow=0.8")
    undisturbed = healthy.run(hosts)
    variables = healthy.gate("gpu-01")
    command = healthy.command(hosts, variables=variables)
    running = healthy.start(command)
    healthy.at_gate(running, "gpu-01")
    if whom == "controller":
        running.kill()
    else:
        os.killpg(running.pid, signal.SIGKILL if whom == "group" else signal.SIGINT)
    assert running.wait(120) != 0
    healthy.nothing_left(*hosts, but_results=True)
    with open(results_of(command) / run_id(command) / "journal.jsonl.gz", "ab") as journal:
        journal.write(b'{"half": "written')
    healthy.open("gpu-01")
    more = {"variables": variables, "results": results_of(command), "playbook": RESUME}
    done = healthy.run(hosts, "-e", f"run_id={run_id(command)}", **more)
    assert "half-written" in done.output
    assert done.status == undisturbed.status != 0 and done.essence() == undisturbed.essence()
    healthy.nothing_left(*hosts)


def test_what_a_node_had_finished_when_the_controller_was_killed_is_not_measured_again(healthy: Acceptance) -> None:
    hosts = ("gpu-01", "gpu-02")
    variables = healthy.gate(*hosts)
    for host in hosts:
        gate = healthy.fleet.plant(host) / "gate"
        (gate / "all_gather_perf").write_text(COUNTED)
        (gate / "all_gather_perf").chmod(0o755)
        variables[host]["nccl_node_ops"] = ["all_gather", "all_reduce"]
    command = healthy.command(hosts, "--tags", "nccl_node", variables=variables)
    running = healthy.start(command)
    healthy.at_gate(running, *hosts)
    os.killpg(running.pid, signal.SIGKILL)
    assert running.wait(120) != 0
    assert not any(m["check"] == "all_gather" for m in journals.of(results_of(command) / run_id(command)))
    # A worker outlives its controller for a moment; what it is still told is nobody's.
    wait(lambda: not any("/gate/" in " ".join(argv) for host in hosts for argv in healthy.fleet.processes(host).values()))
    healthy.open(*hosts)
    more = {"variables": variables, "results": results_of(command), "playbook": RESUME}
    done = healthy.run(hosts, "-e", f"run_id={run_id(command)}", **more)
    # Nothing is a later attempt; that all_gather has no expectation here is another matter.
    assert {m["attempt"] for m in done.journal} == {1} and {m["outcome"] for m in done.journal} == {"measured"}, done.output[-3000:]
    assert {v["verdict"] for v in done.verdicts if v["check"] == "all_reduce"} == {"PASS"}
    for host in hosts:
        assert {m["check"] for m in done.journal if m["target"] == host} == {"all_gather", "all_reduce"}
        assert (healthy.fleet.plant(host) / "gate/gathered").read_text() == "once\n"
    healthy.nothing_left(*hosts)


def test_a_name_that_is_another_machine_after_a_resume_is_not_accepted(healthy: Acceptance) -> None:
    hosts = ("gpu-01", "gpu-02")
    command = healthy.command(hosts, variables=healthy.gate("gpu-01"))
    running = healthy.start(command)
    healthy.at_gate(running, "gpu-01")
    os.killpg(running.pid, signal.SIGKILL)
    assert running.wait(120) != 0
    moved = {"gpu-01": {"ansible_host": healthy.fleet.address("gpu-03")}}
    more = {"variables": moved, "results": results_of(command), "playbook": RESUME}
    done = healthy.run(hosts, "-e", f"run_id={run_id(command)}", **more)
    assert done.status != 0 and done.good("gpu-02"), done.output[-3000:]
    assert done.of("gpu-01") == {"UNKNOWN"} and done.codes("gpu-01") == {"identity_changed"}
    said = done.on("gpu-01")[0]["reason"]
    assert "gpu_memory" in said and "nccl_node" in said and "machine-id" in said
    healthy.nothing_left(*hosts, "gpu-03")


def test_a_second_controller_of_the_same_run_is_refused(healthy: Acceptance) -> None:
    command = healthy.command(["gpu-01"], "--tags", "nccl_node", variables=healthy.gate("gpu-01"))
    running = healthy.start(command)
    healthy.at_gate(running, "gpu-01")
    more = {"results": results_of(command), "playbook": RESUME}
    second = healthy.run(["gpu-01"], "-e", f"run_id={run_id(command)}", **more)
    assert second.status != 0
    assert f"run {run_id(command)} is still being driven by process {running.pid}" in " ".join(second.output.split())
    healthy.open("gpu-01")
    assert healthy.end(command, running).status == 0


@pytest.mark.parametrize(
    ("asked", "words"),
    [("20260101T000000Z-0a1b2c", "does not exist in"), ("../../etc", "expected the id of a run"), ("", "expected the id of a run")],
)
def test_resume_of_a_run_that_is_not_there(healthy: Acceptance, asked: str, words: str) -> None:
    done = healthy.run(["gpu-01"], "-e", f"run_id={asked}", playbook=RESUME)
    assert done.status != 0 and words in " ".join(done.output.split()), done.output


# Two runs on one node ------------------------------------------------------------------------------------------------


def test_a_second_run_is_refused_by_name_or_waits(healthy: Acceptance) -> None:
    command = healthy.command(["gpu-01"], "--tags", "nccl_node", variables=healthy.gate("gpu-01"))
    running = healthy.start(command)
    healthy.at_gate(running, "gpu-01")
    second = healthy.run(["gpu-01", "gpu-02"], "--tags", "nccl_node")
    assert second.status != 0 and second.codes("gpu-01") == {"busy_run"} and second.good("gpu-02")
    assert run_id(command) in second.on("gpu-01")[0]["reason"]

    def modules() -> int:
        return sum("python3" in argv[0] for argv in healthy.fleet.processes("gpu-01").values())

    held = modules()
    patient = healthy.command(["gpu-01"], "--tags", "nccl_node", "-e", "acceptance_lock_wait=600")
    waiting = healthy.start(patient)
    wait(lambda: modules() > held, waiting)
    restored = healthy.run(["gpu-01"], playbook=RESTORE)  # what a run that lives holds is left alone
    assert restored.folder is None and healthy.fleet.plant("gpu-01").joinpath("gate/reached").exists()
    assert waiting.poll() is None and running.poll() is None
    healthy.open("gpu-01")
    assert healthy.end(command, running).status == 0
    assert healthy.end(patient, waiting).status == 0
    healthy.nothing_left("gpu-01")


def test_restore_ends_what_killed_guardians_have_left(healthy: Acceptance) -> None:
    stray = "setsid sleep 4711 > /dev/null 2>&1 < /dev/null &\n"
    variables = healthy.gate("gpu-01", "gpu-02")
    gate = healthy.fleet.plant("gpu-01") / "gate/all_reduce_perf"
    gate.write_text(gate.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{stray}"))
    command = healthy.command(["gpu-01", "gpu-02"], "--tags", "nccl_node", variables=variables)
    running = healthy.start(command)
    healthy.at_gate(running, "gpu-01", "gpu-02")
    running.kill()
    running.wait()
    ours = [pid for pid, argv in healthy.fleet.processes("gpu-01").items() if "python3" in argv[0]]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # module, guardian and probe at one stroke: none has time to clean up
        for pid in ours:
            with contextlib.suppress(ProcessLookupError):  # a probe dies with its guardian
                os.kill(pid, number)
    healthy.nothing_left("gpu-02")
    left = healthy.left("gpu-01")
    assert any("sleep 4711" in line for line in left) and any("ledger" in line for line in left), left
    for _again in range(2):
        done = healthy.run(["gpu-01", "gpu-02"], playbook=RESTORE)
        assert done.status == 0, done.output
    healthy.nothing_left("gpu-01")
