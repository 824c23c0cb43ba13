# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs over a real Slurm: stages of nodes and of groups as jobs, and that nothing is left of them."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import live
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from harness.fleet_runs import GATE, ROOT, Done, wait
from harness.quarantine_worlds import Sequence, SlurmWorld
from harness.slurm_runs import Runs
from rigs.simulated import nodes
from rigs.simulated.mpi import build
from rigs.slurm.slurm import FEWER, PROCESSORS, Slurm

pytestmark = pytest.mark.fleet

STAGES = ("stack", "nccl_node")


@pytest.fixture(scope="module")
def runs(rig_slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(rig_slurm, tmp_path_factory.mktemp("slurm"))


def on(verdicts: t.Iterable[dict[str, t.Any]], node: str) -> set[tuple[str, str | None]]:
    return {(v["verdict"], v["reason_code"]) for v in verdicts if v["subject"]["id"].startswith(f"rig/{node}")}


def test_four_nodes_are_accepted_and_left_as_they_were(runs: Runs) -> None:
    done = runs.run(STAGES)
    assert done.status == 0, done.output
    for host in runs.slurm.fleet.hosts:
        assert {verdict for verdict, _code in on(done.verdicts, host)} <= {"PASS", "WARN"}, done.output
    measured = [m for m in done.journal if m["outcome"] == "measured"]
    assert {m["plane"] for m in measured} == {"slurm"} and {m["target"] for m in measured} == {"rig"}
    assert all(m["context"]["slurm_job"].isdecimal() and m["context"]["slurm_waited_s"] < 30 for m in measured)
    assert len({(m["context"]["slurm_job"], m["subject"]["id"].split("/")[1]) for m in measured}) == 8
    assert len({m["context"]["slurm_job"] for m in measured}) == 8
    runs.nothing_left(10)


@pytest.mark.long
def test_free_nodes_share_a_job(runs: Runs) -> None:
    """Not a node that others use, which waits for itself."""
    slurm = runs.slurm
    done = runs.run(STAGES, acceptance_slurm_nodes_per_job=64)
    assert done.status == 0, done.output
    assert len({m["context"]["slurm_job"] for m in done.journal if m["outcome"] == "measured"}) == 2
    runs.nothing_left(10)
    other = slurm.client("sbatch", "--parsable", "-w", "gpu-03", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 300").strip()
    try:
        done = runs.run(["stack"], acceptance_slurm_nodes_per_job=64, acceptance_slurm_wait=5)
    finally:
        slurm.client("scancel", other)
        slurm.until_idle("gpu-03")
    assert on(done.verdicts, "gpu-03") == {("UNKNOWN", "node_busy")}
    jobs = {m["subject"]["id"].split("/")[1]: m["context"].get("slurm_job") for m in done.journal if m["outcome"] == "measured"}
    assert jobs.keys() == {"gpu-01", "gpu-02", "gpu-04"} and len(set(jobs.values())) == 1, jobs


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_shared_job_ends_with_its_controller(runs: Runs, number: signal.Signals) -> None:
    controller, _gates = runs.at_gate(acceptance_slurm_nodes_per_job=64)
    os.kill(controller.process.pid, number)
    runs.nothing_left(60)
    controller.process.wait(30)


def test_a_job_has_nothing_of_the_environment_of_who_starts_it(runs: Runs) -> None:
    argv = settings.of("rig", {}).job("gpufleet-environment", "a test", runs.slurm.fleet.hosts[:1], "", 60.0)
    said = runs.slurm.client("env", "NCCL_ALGO=Ring", "A_TOKEN=secret", *argv, "env").splitlines()
    assert f"PATH={settings.PATH}" in said and not [line for line in said if line.startswith(("NCCL_", "A_TOKEN"))]


def test_a_task_has_all_processors_of_its_node(runs: Runs) -> None:
    """Also in a job over nodes with different numbers."""
    first, last = runs.slurm.fleet.hosts[0], runs.slurm.fleet.hosts[-1]
    one, two = (settings.of("rig", {}).job("gpufleet-processors", "a test", nodes, "", 60.0) for nodes in ([first], [first, last]))
    assert [int(runs.slurm.client(*one, "printenv", name)) for name in ("SLURM_CPUS_ON_NODE", "SLURM_NTASKS")] == [PROCESSORS, 1]
    said = runs.slurm.client(*two, "sh", "-c", "echo $SLURMD_NODENAME $SLURM_CPUS_ON_NODE").splitlines()
    assert sorted(line.split()[1:] for line in said) == [[first, str(PROCESSORS)], [last, str(FEWER)]]


def test_a_drained_node_is_unknown_with_its_reason_and_a_busy_one_holds_nobody_up(runs: Runs) -> None:
    slurm = runs.slurm
    slurm.drain("gpu-02", "NHC: check_gpu \x1b[31mfailed")
    other = slurm.client("sbatch", "--parsable", "-w", "gpu-03", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 300").strip()
    try:
        controller = runs.start(["stack"])
        wait(lambda: any("PENDING gpufleet" in job for job in slurm.jobs()), controller.process)
        time.sleep(6)
        slurm.client("scancel", other)
        done = controller.end()
    finally:
        slurm.client("scancel", other)
        slurm.resume("gpu-02")
    assert done.status != 0 and on(done.verdicts, "gpu-02") == {("UNKNOWN", "node_drained")}
    reason = next(v["reason"] for v in done.verdicts if v["subject"]["id"] == "rig/gpu-02")
    assert "Reason 'NHC: check_gpu \\x1b[31mfailed' [root, " in reason and "the health checker NHC" in reason
    waited = {m["subject"]["id"].split("/")[1]: m["context"].get("slurm_waited_s", 0.0) for m in done.journal}
    assert waited["gpu-03"] > 5 and waited["gpu-03"] > max(waited["gpu-01"], waited["gpu-04"]), waited
    assert {verdict for verdict, _code in on(done.verdicts, "gpu-03")} <= {"PASS", "WARN"}


def test_a_node_that_stays_busy_is_unknown_in_the_words_of_slurm(runs: Runs) -> None:
    other = runs.slurm.client("sbatch", "--parsable", "-w", "gpu-03", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 300").strip()
    try:
        done = runs.run(["stack"], acceptance_slurm_wait=3)
        assert on(done.verdicts, "gpu-03") == {("UNKNOWN", "node_busy")} and "PENDING, " in done.output
        assert [job.split()[0] for job in runs.slurm.jobs()] == [other]  # nobody else's job is touched
    finally:
        runs.slurm.client("scancel", other)
        runs.slurm.until_idle("gpu-03")


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"acceptance_slurm_partition": "closed"}, "is PENDING, PartitionDown"),
        ({"acceptance_slurm_gres": "gpu:b300:1"}, "Requested node configuration is not available"),
        ({"acceptance_slurm_reservation": "none"}, "Requested reservation is invalid"),
    ],
)
def test_a_refusal_is_in_the_words_of_slurm(runs: Runs, variables: dict[str, t.Any], words: str) -> None:
    done = runs.run(["stack"], acceptance_slurm_wait=5, **variables)
    found = {(v["verdict"], v["reason_code"]) for v in done.verdicts}
    assert found == {("UNKNOWN", "job_refused")} and all(words in v["reason"] for v in done.verdicts), done.output
    runs.nothing_left(10)


# A group over three of the four nodes, two ranks on each: a real mpirun, and a real MPI program that stands in for nccl-tests.
GROUP = {
    "acceptance_nodes": {"names": ["gpu-01", "gpu-02", "gpu-03"]}, "nccl_fabric_gpus": [2], "nccl_fabric_sizes": ["256M:1G"],
    "nccl_fabric_binary_dir": "/opt/simulated/bin", "nccl_fabric_binary_suffix": "_mpi", "nccl_fabric_mpirun": "/usr/bin/mpirun.openmpi",
    "nccl_fabric_mpi_args": ["--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0"],
    "nccl_fabric_join_timeout": 60, "nccl_fabric_test_timeout": 90, "nccl_fabric_timeout": 300, "nccl_fabric_repeats": 1,
    "acceptance_expectations": [
        {"id": "test-fabric", "match": {"stage": "nccl_fabric", "check": "all_reduce", "size": 1073741824}, "metric": "busbw", "value": 375,
         "unit": "GB/s", "source": "test", "date": "2026-11", "confidence": "measured"}
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def fabric(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    build.plant(runs.slurm.fleet, build.build("openmpi", tmp_path_factory.mktemp("mpi")))
    return runs


def test_a_group_is_one_job_and_is_accepted(fabric: Runs) -> None:
    done = fabric.run(["nccl_fabric"], **GROUP)
    assert done.status == 0, done.output
    (group,) = [m for m in done.journal if m["subject"]["kind"] == "group"]
    assert group["context"]["hosts"] == dict.fromkeys(("gpu-01", "gpu-02", "gpu-03"), 2) and group["subject"]["id"] == "nccl_fabric/rig"
    assert {v["subject"]["id"]: v["verdict"] for v in done.verdicts} == {
        "nccl_fabric/rig": "PASS", "rig/gpu-01": "PASS", "rig/gpu-02": "PASS", "rig/gpu-03": "PASS",
    }  # fmt: skip
    assert len({m["context"]["slurm_job"] for m in done.journal}) == 1
    fabric.nothing_left(10)


@pytest.fixture
def without_sshd(fabric: Runs) -> t.Iterator[list[str]]:
    """Nodes that have no sshd; the first node of the rig has one, by which the controller comes."""
    hosts, path = fabric.slurm.fleet.hosts[1:], "/usr/sbin/sshd"
    for host in hosts:
        fabric.slurm.fleet.inside(host, "mv", path, f"{path}.away")
    yield hosts
    for host in hosts:
        fabric.slurm.fleet.inside(host, "mv", f"{path}.away", path)


def test_ranks_are_a_step_of_the_job_where_the_nodes_have_no_sshd(fabric: Runs, without_sshd: list[str]) -> None:
    """By PMIx, and with different numbers of processors."""
    done = fabric.run(["nccl_fabric"], **{**GROUP, "acceptance_nodes": {"names": without_sshd}})
    assert done.status == 0, done.output
    (group,) = [m for m in done.journal if m["subject"]["kind"] == "group"]
    assert group["context"]["hosts"] == dict.fromkeys(without_sshd, 2) and group["context"]["launcher"].startswith("srun, pmix")
    assert group["command"][0] == "srun" and "--mpi=pmix" in group["command"] and "GPUFLEET" not in " ".join(group["command"])
    fabric.nothing_left(10)


def test_a_slow_node_is_found_by_steps_of_the_job(fabric: Runs) -> None:
    build.behave(fabric.slurm.fleet, "gpu-03", slow=0.5)
    try:
        done = fabric.run(
            ["nccl_fabric"], **{**GROUP, "acceptance_nodes": {"names": fabric.slurm.fleet.hosts}, "acceptance_slurm_launcher": "srun"}
        )
    finally:
        build.behave(fabric.slurm.fleet, "gpu-03")
    (group,) = [v for v in done.verdicts if v["subject"]["kind"] == "group"]
    assert group["verdict"] == "FAIL", done.output
    assert [on(done.verdicts, f"gpu-0{n}") for n in (1, 2, 3, 4)] == [
        {("PASS", None)}, {("PASS", None)}, {("PASS", None), ("FAIL", "localised")}, {("PASS", None)},
    ]  # fmt: skip
    fabric.nothing_left(10)


def test_a_group_goes_on_without_a_node_that_is_drained_or_stays_busy(fabric: Runs) -> None:
    slurm = fabric.slurm
    slurm.drain("gpu-02", "a test")
    other = slurm.client("sbatch", "--parsable", "-w", "gpu-03", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 300").strip()
    try:
        nodes = {"names": slurm.fleet.hosts}
        done = fabric.run(["nccl_fabric"], **{**GROUP, "acceptance_nodes": nodes, "acceptance_slurm_wait": 5})
    finally:
        slurm.client("scancel", other)
        slurm.resume("gpu-02")
        slurm.until_idle("gpu-03")
    assert [on(done.verdicts, f"gpu-0{n}") for n in (2, 3)] == [{("UNKNOWN", "node_drained")}, {("UNKNOWN", "node_busy")}], done.output
    assert on(done.verdicts, "gpu-01") == on(done.verdicts, "gpu-04") == {("PASS", None)}, done.output
    (group,) = [v for v in done.verdicts if v["subject"]["kind"] == "group"]
    assert group["verdict"] == "UNKNOWN" and "gpu-03 is in use" in group["reason"], group


@pytest.mark.parametrize("launcher", ["ssh", "srun"])
def test_after_kill_9_of_the_controller_no_job_of_a_group_is_left(fabric: Runs, launcher: str) -> None:
    gates = {host: fabric.slurm.fleet.plant(host) / "gate" for host in ("gpu-01", "gpu-02", "gpu-03")}
    for gate in gates.values():
        gate.mkdir(exist_ok=True)
        (gate / "reached").unlink(missing_ok=True)
        (gate / "all_reduce_perf_mpi").write_text(GATE)
        (gate / "all_reduce_perf_mpi").chmod(0o755)
    variables = {**GROUP, "nccl_fabric_binary_dir": "/opt/simulated/gate", "acceptance_slurm_launcher": launcher}
    controller = fabric.start(["nccl_fabric"], **variables)
    wait(lambda: all((gate / "reached").exists() for gate in gates.values()), controller.process)
    assert len(fabric.slurm.jobs()) == 1
    os.killpg(controller.process.pid, signal.SIGKILL)
    fabric.nothing_left(60)
    controller.process.wait(30)


def quarantine(done: Done, **variables: t.Any) -> str:
    """Run playbooks/quarantine.yml for the nodes of a run that are not well. Return what it says."""
    assert done.folder is not None
    results = done.folder.parent
    extra = {"acceptance_results_dir": str(results), "acceptance_simulated": True, "run_id": done.folder.name, "quarantine_unknown": True}
    argv = [str(ROOT / ".venv/bin/ansible-playbook"), "playbooks/quarantine.yml", "-i", str(results.parent / "inventory.yml")]
    argv += ["-e", json.dumps({**extra, **variables})]
    made = subprocess.run(argv, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    return made.stdout


def test_quarantine_drains_a_node_without_ending_its_job_and_gives_it_back(runs: Runs) -> None:
    slurm = runs.slurm
    slurm.drain("gpu-02", "NHC: check_gpu")
    try:
        done = runs.run(["stack"])
        assert "rig/gpu-02: left: its reason is not ours: 'NHC: check_gpu'" in quarantine(done)
    finally:
        slurm.resume("gpu-02")
    job = slurm.client("sbatch", "--parsable", "-w", "gpu-02", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 300").strip()
    try:
        wait(lambda: any(line.startswith(f"{job} RUNNING") for line in slurm.jobs()))
        assert "rig/gpu-02: would be drained: UNKNOWN" in quarantine(done) and slurm.states()["gpu-02"] == "allocated"
        assert "rig/gpu-02: commented" in quarantine(done, confirm=True, mode="comment") and slurm.states()["gpu-02"] == "allocated"
        assert "rig/gpu-02: drained" in quarantine(done, confirm=True) and slurm.states()["gpu-02"] == "draining"
        assert any(line.startswith(f"{job} RUNNING") for line in slurm.jobs()), "the job goes on"
        shown = slurm.client("scontrol", "show", "node", "gpu-02")
        assert done.folder and shown.count(f"gpufleet.acceptance {done.folder.name} ") == 2, shown  # the reason and the comment
        undone = quarantine(done, confirm=True, undo=True)
        assert "rig/gpu-02: resumed" in undone and "rig/gpu-02: comment removed" in undone
        assert slurm.states()["gpu-02"] == "allocated" and "gpufleet" not in slurm.client("scontrol", "show", "node", "gpu-02")
    finally:
        slurm.client("scancel", job)
        slurm.until_idle("gpu-02")


def test_a_node_that_others_drained_and_gave_back_is_left(runs: Runs) -> None:
    slurm = runs.slurm
    slurm.drain("gpu-02", "NHC: check_gpu")
    try:
        done = runs.run(["stack"])
        assert "rig/gpu-02: left: its reason is not ours: 'NHC: check_gpu'" in quarantine(done, confirm=True)
        assert "NHC: check_gpu" in slurm.client("scontrol", "show", "node", "gpu-02")
    finally:
        slurm.resume("gpu-02")
    assert "rig/gpu-02: left: it was out of service at " in quarantine(done, confirm=True) and slurm.states()["gpu-02"] == "idle"


def test_a_run_measures_again_what_is_slow_and_quarantines_by_itself_what_somebody_has_confirmed(runs: Runs) -> None:
    """The first run may only comment: nobody has confirmed its check. A person drains for it, and then a run does, but not a node that is
    slow only once."""
    slurm = runs.slurm
    nodes.planted(slurm.fleet.plant("gpu-03"), 3, BUSBW=200)
    try:
        first = runs.run(["nccl_node"], acceptance_quarantine=True)
        assert first.status != 0 and "rig/gpu-03: commented: only a comment, since nobody has confirmed nccl_node" in first.output
        assert "nccl_node is measured again on rig/gpu-03: what only rates speak against" not in first.output, "a comment needs none"
        assert slurm.states()["gpu-03"] == "idle"
        said = quarantine(first, confirm=True, retest=True)
        assert "nccl_node is measured again on rig/gpu-03: what only rates speak against" in said and "rig/gpu-03: drained: FAIL" in said
        assert slurm.states()["gpu-03"] == "drained"
        slurm.resume("gpu-03")
        assert "rig/gpu-03: left: it was taken at" in quarantine(first, confirm=True)
        nodes.planted(slurm.fleet.plant("gpu-03"), 3)
        nodes.planted(slurm.fleet.plant("gpu-04"), 4, BUSBW=200)
        assert first.folder is not None
        together = json.dumps({"acceptance_results_dir": str(first.folder.parent)})
        by_run = runs.run(["nccl_node"], "-e", together, acceptance_quarantine=True, quarantine_percent_per_hour=100)
        assert by_run.status != 0 and "rig/gpu-04: drained: FAIL" in by_run.output, by_run.output
        assert "rig/gpu-03: " not in by_run.output.partition("nccl_node is measured again on rig/gpu-04: ")[2]
        assert slurm.states()["gpu-04"] == "drained" and "msg: not accepted" in by_run.output
    finally:
        for number in (3, 4):
            nodes.planted(slurm.fleet.plant(f"gpu-0{number}"), number)
            if slurm.states()[f"gpu-0{number}"] == "drained":
                slurm.resume(f"gpu-0{number}")
    runs.nothing_left(10)


def test_random_sequences_of_quarantine_touch_nothing_of_others(runs: Runs, tmp_path: pathlib.Path) -> None:
    """The short version of tests/drills/quarantine.py."""
    world = SlurmWorld(runs.slurm, tmp_path)
    played = [Sequence(world, tmp_path / str(seed), seed, restarts=False) for seed in (1, 2)]
    try:
        for sequence in played:
            assert not sequence.play(6), [f"seed {sequence.seed}", *sequence.told]
        assert sum(sequence.drained for sequence in played)
    finally:
        for name in world.names:
            world.clean(name)
        world.rest()


def test_whoever_looks_sees_what_the_tool_of_a_job_prints(runs: Runs) -> None:
    controller, _gates = runs.at_gate()
    (plan,) = (controller.folder / "results").glob("*/plan.json")
    run = Run(controller.folder / "results", plan.parent.name)

    def shown() -> live.Output | None:
        output = live.look(run, "rig/gpu-02")
        return output if output and (output.lines or output.problem) else None

    wait(shown, controller.process)
    output = shown()
    assert output and output.lines[0].startswith("$ /opt/simulated/gate/all_reduce_perf"), output
    assert output.stage == "nccl_node" and len(runs.slurm.jobs()) == 4, "a step of the same job"
    os.kill(controller.process.pid, signal.SIGTERM)
    runs.nothing_left(20)
    controller.process.wait(30)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_all_jobs_at_once(runs: Runs, number: signal.Signals) -> None:
    controller, _gates = runs.at_gate()
    os.kill(controller.process.pid, number)
    runs.nothing_left(20)
    controller.process.wait(30)


@pytest.mark.parametrize("whole_group", [False, True])
def test_after_kill_9_of_the_controller_no_job_is_left(runs: Runs, whole_group: bool) -> None:
    """Its workers notice that it is gone; if they were killed with it, the machine with the client commands does."""
    controller, _gates = runs.at_gate()
    (os.killpg if whole_group else os.kill)(controller.process.pid, signal.SIGKILL)
    runs.nothing_left(60)
    controller.process.wait(30)


def test_jobs_end_with_what_feeds_them(runs: Runs) -> None:
    """The program on the machine with the client commands is killed: each srun goes with it, and the run goes on without its nodes."""
    controller, _gates = runs.at_gate()
    fleet = runs.slurm.fleet
    feeders = [
        pid for pid, argv in fleet.processes("gpu-01").items() if "/usr/bin/python3 -c" in " ".join(argv)[:20] and parent_is_sshd(pid)
    ]
    assert len(feeders) == 1
    os.kill(feeders[0], signal.SIGKILL)
    runs.nothing_left(60)
    done = controller.end()
    assert {(v["verdict"], v["reason_code"]) for v in done.verdicts} == {("UNKNOWN", "slurm_unreachable")}, done.output


def parent_is_sshd(pid: int) -> bool:
    """Return True if an ancestor of the process below its shell is sshd, and not slurmd."""
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    parent = int(stat.rsplit(")", 1)[1].split()[1])
    return "sshd" in pathlib.Path(f"/proc/{parent}/cmdline").read_text()


def test_after_kill_9_of_srun_its_job_is_gone_with_the_stage(runs: Runs) -> None:
    """With the process that srun has for such a case. Slurm keeps a job whose srun is gone to its time limit."""
    controller, gates = runs.at_gate()
    sruns = [pid for pid, argv in runs.slurm.fleet.processes("gpu-01").items() if argv[0] == "srun" and "--nodelist=gpu-02" in argv]
    assert sruns
    for number in (signal.SIGSTOP, signal.SIGKILL):  # left running, the second would kill the job's guardian when the first has ended
        for pid in sruns:
            os.kill(pid, number)
    for host in ("gpu-01", "gpu-03", "gpu-04"):
        (gates[host] / "open").touch()
    done = controller.end()
    assert ("UNKNOWN", "job_ended") in on(done.verdicts, "gpu-02"), done.output
    runs.nothing_left(40)
