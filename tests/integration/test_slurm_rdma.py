# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests of pairs of nodes over a real Slurm: one job in which every node walks its timetable, with the simulated perftest."""

from __future__ import annotations

import os
import signal
import time
import typing as t

import pytest
from harness.fleet_runs import Done, wait
from harness.own_rig import own
from harness.slurm_runs import Runs
from rigs.fleet.fleet import Fleet, Options
from rigs.simulated import nodes, pairs
from rigs.slurm.slurm import Slurm

pytestmark = pytest.mark.fleet

STAGES = ("rdma_ports", "rdma", "rdma_again")
VARIABLES: dict[str, t.Any] = {
    "rdma_binary_dir": "/opt/simulated/bin", "rdma_iterations": 1000, "rdma_qps": 1, "rdma_test_timeout": 20, "rdma_patience": 20,
}  # fmt: skip
CPUS, POLICY = "/sys/devices/system/cpu", "cpufreq/policy0"
HOSTS = ["gpu-01", "gpu-02", "gpu-03", "gpu-04"]
PAIRS = {f"{a}|{b}" for a in HOSTS for b in HOSTS if a < b}
GOOD = dict.fromkeys([*HOSTS, *PAIRS], "PASS")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Runs]:
    """A Slurm on four hosts, each with one port of RDMA and a governor of its own."""
    folder = tmp_path_factory.mktemp("trees")
    with own(Fleet) as fleet:
        options = {}
        for host in HOSTS:
            pairs.sysfs(folder / host, [fleet.address(host)], seed=host)
            policy = folder / host / "cpu" / POLICY
            policy.mkdir(parents=True)
            for name, value in {
                "scaling_governor": "powersave", "scaling_available_governors": "performance powersave", "scaling_driver": "acpi-cpufreq",
                "affected_cpus": "0",
            }.items():  # fmt: skip
                (policy / name).write_text(f"{value}\n")
            overlays = ((str(folder / host / "sys/class"), "/sys/class"), (str(folder / host / "cpu"), CPUS))
            options[host] = Options(overlays=overlays)
        for number, host in enumerate(fleet.up(len(HOSTS), options), 1):
            nodes.planted(fleet.plant(host), number)
            pairs.planted(fleet.plant(host))
        slurm = Slurm(fleet)
        slurm.up()
        yield Runs(slurm, tmp_path_factory.mktemp("runs"))


@pytest.fixture
def healthy(runs: Runs) -> t.Iterator[Runs]:
    planted(runs)
    yield runs
    runs.nothing_left(60)
    assert governors(runs) == dict.fromkeys(HOSTS, "powersave")


def planted(runs: Runs, *lines: str) -> None:
    """Set what the tools do on every host, as perftest.c says."""
    for host in HOSTS:
        pairs.settings(runs.slurm.fleet.plant(host), "seconds 0.3", *lines)


def governors(runs: Runs) -> dict[str, str]:
    return {host: runs.slurm.fleet.inside(host, "cat", f"{CPUS}/{POLICY}/scaling_governor").strip() for host in HOSTS}


def words(done: Done) -> dict[str, str]:
    """Return the worst verdict of each subject of stage rdma, without the name of the cluster."""
    return {v["subject"]["id"].replace("rig/", ""): v["verdict"] for v in reversed(done.verdicts) if v["stage"] == "rdma"}


def pairs_of(done: Done) -> list[dict[str, t.Any]]:
    return [m for m in done.journal if m["subject"]["kind"] == "pair"]


def test_a_slow_node_is_convicted_and_governors_come_back(healthy: Runs) -> None:
    planted(healthy, f"slow {healthy.slurm.fleet.address('gpu-03')} 0.4")
    done = healthy.run(STAGES, **VARIABLES)
    bad = {name for name in GOOD if "gpu-03" in name}
    assert words(done) == {**GOOD, **dict.fromkeys(bad, "FAIL")}, done.output
    (said,) = [
        " ".join([v["reason"], *v["findings"]]) for v in done.verdicts if v["subject"]["id"] == "rig/gpu-03" and v["stage"] == "rdma"
    ]
    assert "bad row" in said and "convicted" in said
    measured = [m for m in pairs_of(done) if m["stage"] == "rdma"]
    assert {m["plane"] for m in measured} == {"slurm"} and len({m["context"]["slurm_job"] for m in measured}) == 1
    assert {m["context"]["governor"]["state"] for m in measured} == {"switched"}


def test_a_drained_and_a_busy_node_are_named_and_the_others_are_tested(healthy: Runs) -> None:
    """Somebody takes a node between the stage that reads the ports and that of the pairs."""
    slurm = healthy.slurm
    slurm.drain("gpu-02", "a test")
    other = ""
    try:
        controller = healthy.start(STAGES, **VARIABLES, acceptance_slurm_wait=5)
        wait(lambda: any(all(word in line for word in ("rdma_ports", "RUNNING", "gpu-03")) for line in slurm.jobs()), controller.process)
        other = slurm.client("sbatch", "--parsable", "-w", "gpu-03", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 300").strip()
        done = controller.end()
        assert [line.split()[0] for line in slurm.jobs()] == [other]
    finally:
        slurm.client("scancel", other)
        slurm.resume("gpu-02")
        slurm.until_idle("gpu-03")
    unknown = {name for name in GOOD if "gpu-02" in name or "gpu-03" in name}
    assert words(done) == {**GOOD, **dict.fromkeys(unknown, "UNKNOWN")}, done.output
    reasons = {m["subject"]["id"].replace("rig/", ""): (m["reason_code"], m["reason"]) for m in pairs_of(done)}
    assert reasons["gpu-01|gpu-02"][0] == "partner" and reasons["gpu-03|gpu-04"][0] == "node_busy", reasons
    assert "gpu-03 is in use" in reasons["gpu-03|gpu-04"][1]
    assert reasons["gpu-01|gpu-04"] == (None, None)
    (drained,) = [v["reason"] for v in done.verdicts if v["subject"]["id"] == "rig/gpu-02" and v["stage"] == "rdma"]
    assert "gpu-02 is drained" in drained


def test_a_node_without_python_costs_its_own_pairs(healthy: Runs) -> None:
    """It is lost between the stage that reads the ports and that of the pairs."""
    slurm, python = healthy.slurm, "/opt/python-of-a-test"
    for host in HOSTS:
        slurm.fleet.inside(host, "ln", "-sf", "/usr/bin/python3", python)
    quick = {**VARIABLES, "rdma_test_timeout": 3, "rdma_patience": 2, "rdma_start_window": 3}
    controller = healthy.start(STAGES, **quick, acceptance_slurm_python=python)
    wait(lambda: any(all(word in line for word in ("rdma_ports", "RUNNING", "gpu-04")) for line in slurm.jobs()), controller.process)
    wait(lambda: not any("rdma_ports" in line and "gpu-04" in line for line in slurm.jobs()), controller.process)
    slurm.fleet.inside("gpu-04", "rm", python)
    done = controller.end()
    alone = {name for name in GOOD if "gpu-04" in name}
    assert words(done) == {**GOOD, **dict.fromkeys(alone, "UNKNOWN")}, done.output
    assert {m["reason_code"] for m in done.journal if m["subject"]["id"] == "rig/gpu-04" and m["stage"] == "rdma"} == {"no_python"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_whoever_ends_the_controller_leaves_nothing_behind(healthy: Runs, number: signal.Signals) -> None:
    planted(healthy, "seconds 60")
    controller = healthy.start(STAGES, **{**VARIABLES, "rdma_test_timeout": 120})
    wait(lambda: set(governors(healthy).values()) == {"performance"}, controller.process)
    assert len(healthy.slurm.jobs()) == 1
    began = time.monotonic()
    os.kill(controller.process.pid, number)
    healthy.nothing_left(60)
    controller.process.wait(60)
    print(f"nothing is left {time.monotonic() - began:.1f} s after {number.name}")
