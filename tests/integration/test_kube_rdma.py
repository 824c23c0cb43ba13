# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The RDMA stages on nodes of a cluster: real pods on real kubelets meet over TCP with the simulated perftest.

The pods see simulated ports in place of /sys/class, which come from a folder of their node.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import rendezvous
from harness import journals
from harness import rails as rails_of
from harness.fleet_runs import ROOT, Done, latest, run_folder
from harness.kube_runs import KubeRuns
from harness.own_rig import own
from rigs.kubernetes.kubernetes import Kubernetes

pytestmark = pytest.mark.kubernetes(own=True)
NODES = 3
RIGHTS = ("probe", "rdma")
STAGES = ["rdma_ports", "rdma", "rdma_again"]


VARIABLES: dict[str, t.Any] = {
    "acceptance_stages": STAGES,
    **rails_of.VARIABLES,
}


class Rails(KubeRuns):
    """A cluster whose nodes have one RDMA device each."""

    def plant(self, *lines: str, state: str = "ACTIVE") -> None:
        """Ports and tools of every node; `lines` are what the tools do, as perftest.c says."""
        for node in self.cluster.nodes:
            self.node(node, *lines, state=state)

    def node(self, node: str, *lines: str, state: str = "ACTIVE") -> None:
        rails_of.plant(self.cluster, node, *lines, state=state)

    def address(self, node: str) -> str:
        return rails_of.address(self.cluster, node)

    def offer(self, count: int, *nodes: str) -> None:
        rails_of.offer(self.cluster, count, *nodes)

    def measure(self, **variables: t.Any) -> Done:
        return self.run(**{**VARIABLES, **variables})


def words(done: Done, stage: str = "rdma") -> dict[str, str]:
    """The worst verdict of a stage by subject, without the cluster's name."""
    return {name: v["verdict"] for name, v in worst(done.verdicts, stage).items()}


def worst(verdicts: list[dict[str, t.Any]], stage: str = "rdma") -> dict[str, dict[str, t.Any]]:
    """Return the worst verdict of each subject, of a pair the worse of its directions."""
    return {v["subject"]["id"].replace("lab/", ""): v for v in reversed(verdicts) if v["stage"] == stage}


@pytest.fixture(scope="module")
def cluster() -> t.Iterator[Kubernetes]:
    with own(Kubernetes) as found:
        found.up(NODES, 0, operators=())
        yield found


@pytest.fixture
def rails(cluster: Kubernetes, tmp_path: pathlib.Path) -> t.Iterator[Rails]:
    found = Rails(cluster, tmp_path, *RIGHTS)
    found.plant()
    found.offer(1)
    yield found
    found.nothing_left()


PAIRS = {"kube-01|kube-02", "kube-01|kube-03", "kube-02|kube-03"}
GOOD = dict.fromkeys([*PAIRS, "kube-01", "kube-02", "kube-03"], "PASS")


@pytest.mark.long
def test_a_slow_node_is_convicted_by_two_others(rails: Rails) -> None:
    rails.plant(f"slow {rails.address('kube-03')} 0.4")
    done = rails.measure()
    assert done.status != 0
    assert words(done) == {**GOOD, "kube-01|kube-03": "FAIL", "kube-02|kube-03": "FAIL", "kube-03": "FAIL"}, done.output[-3000:]
    (said,) = [
        " ".join([v["reason"], *v["findings"]]) for v in done.verdicts if v["subject"]["id"] == "lab/kube-03" and v["stage"] == "rdma"
    ]
    assert "bad row" in said and "convicted" in said
    assert set(words(done, "rdma_ports").values()) == {"PASS"}
    measured = [m for m in done.journal if m["subject"]["kind"] == "pair"]
    assert {m["plane"] for m in measured} == {"kubernetes"} and all(m["simulated"] and m["context"]["image_id"] for m in measured)
    assert all(m["context"]["governor"]["state"] == "not_switched" for m in measured)
    page = (done.folder / "report.html").read_text()  # type: ignore[operator]
    assert "Rail 0" in page and "The worst pairs" in page and "Timetable: 6 rounds" in page


def test_of_two_nodes_none_is_convicted(rig_kubernetes: Kubernetes, tmp_path: pathlib.Path) -> None:
    rails = Rails(rig_kubernetes, tmp_path, *RIGHTS)
    rails.plant(f"slow {rails.address('kube-02')} 0.4")
    rails.offer(1)
    done = rails.measure()
    assert words(done) == {"kube-01": "PASS", "kube-02": "PASS", "kube-01|kube-02": "FAIL"}
    rails.nothing_left()


@pytest.mark.long
def test_pods_in_their_own_network_choose_their_own_devices(rails: Rails) -> None:
    done = rails.measure(rdma_kube_host_network=False)
    assert words(done) == GOOD, done.output[-3000:]


@pytest.mark.long
def test_pods_of_a_daemonset(rails: Rails) -> None:
    rails.allow(*RIGHTS, "daemonset")
    done = rails.measure(acceptance_kube_launcher="daemonset")
    assert words(done) == GOOD, done.output[-3000:]


@pytest.mark.long
def test_a_node_without_the_resource_is_named_and_costs_its_own_pairs(rails: Rails) -> None:
    rails.offer(0, "kube-02")
    done = rails.measure()
    assert words(done)["kube-01|kube-03"] == "PASS"
    assert {name for name, word in words(done).items() if word == "UNKNOWN"} == {"kube-02", "kube-01|kube-02", "kube-02|kube-03"}
    (said,) = [m["reason"] for m in done.journal if m["stage"] == "rdma_ports" and m["outcome"] != "measured"]
    assert "node kube-02 has 0 allocatable rdma/hca, its pod asks for 1: does the device plugin for it run there?" in said


@pytest.mark.long
def test_a_port_that_is_down_is_named_in_each_test_of_its_pairs(rails: Rails) -> None:
    rails.node("kube-02", state="DOWN")
    done = rails.measure(rdma_tests=["read_bw", "write_bw"])
    assert words(done, "rdma_ports") == {"kube-01": "PASS", "kube-02": "FAIL", "kube-03": "PASS"}
    found = {(m["subject"]["id"].replace("lab/", ""), m["check"]): m["reason_code"] for m in done.journal if m["subject"]["kind"] == "pair"}
    down = {(pair, check): "port_down" for pair in ("kube-01|kube-02", "kube-02|kube-03") for check in ("read_bw", "write_bw")}
    assert found == {**down, ("kube-01|kube-03", "read_bw"): None, ("kube-01|kube-03", "write_bw"): None}
    assert len([m for m in done.journal if m["subject"]["kind"] == "pair"]) == 12


@pytest.mark.long
def test_a_right_that_is_missing_is_named(rails: Rails) -> None:
    rails.allow("probe")
    done = rails.measure()
    assert set(words(done, "rdma_ports").values()) == {"PASS"} and set(words(done).values()) == {"UNKNOWN"}
    reasons = {m["reason"] for m in done.journal if m["stage"] == "rdma"}
    assert all("we may not patch pods; apply the role of files/rbac" in reason for reason in reasons), reasons


@pytest.mark.long
def test_a_pod_killed_in_its_rounds_costs_its_own_pairs_and_a_resume_measures_them(rails: Rails) -> None:
    rails.plant("seconds 6")
    command = rails.command(**VARIABLES)
    running = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        end = time.monotonic() + 120
        while not (there := [pod for pod in rails.pods() if rendezvous.RENDEZVOUS in pod["metadata"]["annotations"]]):
            assert running.poll() is None and time.monotonic() < end
            time.sleep(0.2)
        time.sleep(2)  # the first round has begun
        (victim,) = [pod["metadata"]["name"] for pod in there if pod["spec"]["nodeName"] == "kube-02"] or [""]
        rails.admin.delete(f"/api/v1/namespaces/{rails.namespace}/pods/{victim}", gracePeriodSeconds=0)
        running.wait(240)
    finally:
        running.kill()
        running.wait()
    folder = run_folder(rails.folder / "results")
    assert folder
    found = worst(latest(folder))
    assert found["kube-01|kube-03"]["verdict"] == "PASS"
    assert "FAIL" not in {v["verdict"] for v in found.values()} and found["kube-02"]["verdict"] == "UNKNOWN", found
    assert {m["reason_code"] for m in journals.of(folder) if m["subject"]["id"] == "lab/kube-02" and m["stage"] == "rdma"} == {
        "pod_deleted"
    }
    rails.plant()
    again = [word if word != "acceptance.yml" else "playbooks/resume.yml" for word in command]
    done = subprocess.run([*again, "-e", f"run_id={folder.name}"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    late = {name: v["verdict"] for name, v in worst(latest(folder)).items()}
    assert done.returncode == 0 and set(late) == set(GOOD) and set(late.values()) <= {"PASS", "WARN"}, done.stdout[-3000:]


# The governor --------------------------------------------------------------------------------------------------------

CPUFREQ = "/sys/devices/system/cpu/cpufreq"
OWN = ["powersave", "schedutil", "performance"]
SWITCHED = ["performance"] * len(OWN)
GUARDED: dict[str, t.Any] = {"rdma_kube_guardian": True, "acceptance_kube_allow": ["privileged"], "acceptance_stages": STAGES[:2]}


class Frequencies:
    """CPU frequency control on nodes that have none: a folder of files where the kernel has its own."""

    def __init__(self, cluster: Kubernetes, nodes: t.Sequence[str]) -> None:
        self.cluster, self.nodes = cluster, nodes

    def __enter__(self) -> Frequencies:
        for node in self.nodes:
            for number, value in enumerate(OWN):
                policy = self._folder(node) / f"policy{number}"
                policy.mkdir(parents=True)
                for name, text in (("scaling_governor", value), ("affected_cpus", str(number)), ("scaling_driver", "acpi-cpufreq")):
                    (policy / name).write_text(text + "\n")
            self.cluster.inside(node, "mount", "--bind", "/rig/cpufreq", CPUFREQ)
        return self

    def __exit__(self, *_exception: object) -> None:
        for node in self.nodes:
            self.cluster.inside(node, "umount", CPUFREQ)
            shutil.rmtree(self._folder(node))

    def of(self, node: str) -> list[str]:
        return [path.read_text().strip() for path in sorted(self._folder(node).glob("*/scaling_governor"))]

    def ledger(self, node: str) -> pathlib.Path:
        """The state directory of a node."""
        return self.cluster.folder(node) / "lib/gpufleet-acceptance"

    def _folder(self, node: str) -> pathlib.Path:
        return self.cluster.folder(node) / "cpufreq"


def until(what: t.Callable[[], t.Any], running: subprocess.Popen[bytes], seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert running.poll() is None and time.monotonic() < end
        time.sleep(0.05)


def kill_9(pod: dict[str, t.Any]) -> None:
    """SIGKILL to what a pod's container runs of ours."""
    killed = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            ours = entry.name.isdigit() and pod["metadata"]["uid"] in (entry / "cgroup").read_text()
            if ours and b"payload.zip" in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
                killed.append(entry.name)
    assert killed


def held(records: list[dict[str, t.Any]], name: str) -> dict[str, t.Any]:
    """Return what the measurements of a subject in the stage rdma say of its governor, those of both directions of a pair the same."""
    found, *_others = [m["context"] for m in records if m["stage"] == "rdma" and m["subject"]["id"].replace("lab/", "") == name]
    return t.cast("dict[str, t.Any]", {**found["governor"], "allowed": found["allowed"]})


def test_a_guardian_holds_the_governor_while_the_rounds_last(rig_kubernetes: Kubernetes, tmp_path: pathlib.Path) -> None:
    rails = Rails(rig_kubernetes, tmp_path, *RIGHTS)
    rails.plant("seconds 2")
    rails.offer(1)
    with Frequencies(rig_kubernetes, ["kube-01"]) as found:
        command = rails.command(**{**VARIABLES, **GUARDED})
        running = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            until(lambda: found.of("kube-01") == SWITCHED, running)
            assert found.ledger("kube-01").exists()
            assert running.wait(300) == 0
        finally:
            running.kill()
            running.wait()
        assert found.of("kube-01") == OWN and not found.ledger("kube-01").exists() and not found.ledger("kube-02").exists()
    folder = run_folder(tmp_path / "results")
    assert folder
    records = journals.of(folder)
    done = held(records, "kube-01")
    assert (done["state"], done["given_back"]) == ("switched", ["restored the governor of 2 policies"])
    assert held(records, "kube-02")["reason_code"] == "no_cpufreq"
    assert held(records, "kube-01|kube-02")["allowed"] == ["privileged"]
    rails.nothing_left(1)


@pytest.mark.long
def test_the_governor_comes_back_after_kill_9_of_the_test_pod_and_of_the_guardian(rails: Rails) -> None:
    rails.plant("seconds 7")
    with Frequencies(rails.cluster, rails.cluster.nodes) as found:
        command = rails.command(**{**VARIABLES, **GUARDED, "rdma_test_timeout": 20})
        running = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            until(lambda: all(found.of(node) == SWITCHED for node in rails.cluster.nodes), running)
            time.sleep(1)
            there = {(pod["spec"]["nodeName"], pod["metadata"]["labels"]["component"]): pod for pod in rails.pods()}
            kill_9(there["kube-02", "probe"])
            until(lambda: found.of("kube-02") == OWN and not found.ledger("kube-02").exists(), running, 10)
            kill_9(there["kube-03", "guardian"])
            until(lambda: found.of("kube-03") == OWN and not found.ledger("kube-03").exists(), running, 30)
            assert found.of("kube-01") == SWITCHED
            running.wait(500)
        finally:
            running.kill()
            running.wait()
        assert all(found.of(node) == OWN and not found.ledger(node).exists() for node in rails.cluster.nodes)
    folder = run_folder(rails.folder / "results")
    assert folder
    records = journals.of(folder)
    assert held(records, "kube-01")["given_back"] == ["restored the governor of 2 policies"]
    lost = held(records, "kube-03")
    assert (lost["state"], lost["reason_code"]) == ("lost", "guardian_lost")
    assert worst(latest(folder))["kube-01|kube-03"]["verdict"] == "PASS"  # the number is good, whatever the clocks were
    rails.nothing_left(1)


@pytest.mark.long
def test_a_guardian_that_may_not_be_privileged_is_refused_in_one_sentence(rails: Rails) -> None:
    done = rails.measure(**{**GUARDED, "acceptance_kube_allow": []})
    assert set(words(done).values()) == {"UNKNOWN"}
    reasons = {m["reason"] for m in done.journal if m["stage"] == "rdma"}
    wanted = "rdma_kube_guardian: a guardian pod is privileged; acceptance_kube_allow does not name privileged"
    assert all(wanted in reason for reason in reasons), reasons


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_governor_comes_back_when_the_run_is_interrupted(rails: Rails, number: signal.Signals) -> None:
    rails.plant("seconds 60")
    with Frequencies(rails.cluster, rails.cluster.nodes) as found:
        command = rails.command(**{**VARIABLES, **GUARDED, "rdma_test_timeout": 90})
        running = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            until(lambda: all(found.of(node) == SWITCHED for node in rails.cluster.nodes), running)
            if number == signal.SIGINT:
                os.killpg(running.pid, number)  # as a terminal does
            else:
                running.kill()
            running.wait(90)
            rails.nothing_left()
        finally:
            running.kill()
            running.wait()
        assert all(found.of(node) == OWN and not found.ledger(node).exists() for node in rails.cluster.nodes)
