# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods of a real kubelet as others see them: numbers on a port while they work, lines of JSON in their logs, how long they waited."""

from __future__ import annotations

import json
import pathlib
import subprocess
import time
import typing as t

import pytest
from harness import journals
from harness.fleet_runs import ROOT, latest, run_folder
from harness.kube_runs import KubeRuns
from harness.namespace import roles
from rigs.kubernetes.kubernetes import Kubernetes
from rigs.simulated import nodes

pytestmark = pytest.mark.kubernetes
PORT = 8080
GET = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())"


@pytest.fixture
def runs(rig_kubernetes: Kubernetes, tmp_path: pathlib.Path) -> t.Iterator[KubeRuns]:
    made = KubeRuns(rig_kubernetes, tmp_path, "probe", "daemonset")
    yield made
    for number, node in enumerate(made.cluster.nodes, 101):
        made.cluster.plant(node).write_text(nodes.conf(number))


def metrics(runs: KubeRuns) -> dict[str, str]:
    """Return each pod's answer to a scrape from a node of the cluster, by its node; empty as long as there is none."""
    found = {}
    for pod in runs.pods():
        node, address = pod["spec"].get("nodeName"), (pod.get("status") or {}).get("podIP")
        noted = pod["metadata"]["annotations"]
        assert noted["prometheus.io/scrape"] == "true" and noted["prometheus.io/port"] == str(PORT)
        if node and address:
            try:
                url = f"http://{address}:{noted['prometheus.io/port']}{noted['prometheus.io/path']}"
                found[node] = runs.cluster.inside("kube-01", "python3", "-c", GET, url)
            except Exception as error:
                found[node] = f"{error}"
    return found


def test_pods_answer_with_their_numbers_while_they_work_and_say_so_in_their_logs(runs: KubeRuns) -> None:
    """One node is slow; the pods of a DaemonSet stay until both have answered."""
    runs.cluster.plant("kube-01").write_text(nodes.conf(101, SLEEP=25))
    command = runs.command(
        "--tags", "nccl_node", acceptance_kube_metrics_port=PORT, acceptance_log="json", acceptance_kube_launcher="daemonset"
    )
    with open(runs.folder / "output", "w", encoding="utf-8") as output:
        run = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    seen: dict[str, str] = {}
    logs: dict[str, str] = {}
    while run.poll() is None:
        now = metrics(runs)
        seen.update({node: text for node, text in now.items() if "probe_planned_checks" in text})
        ready = "probe_value" in seen.get("kube-02", "") and "probe_planned_checks" in seen.get("kube-01", "")
        if ready and '"probe_done"' not in logs.get("kube-02", ""):
            for pod in runs.pods():
                path = f"/api/v1/namespaces/{runs.namespace}/pods/{pod['metadata']['name']}/log"
                logs[pod["spec"]["nodeName"]] = b"\n".join(runs.admin.lines(path)).decode()
        time.sleep(1)
    said = (runs.folder / "output").read_text()
    assert run.wait() == 0, said[-3000:]
    folder = run_folder(runs.folder / "results")
    assert folder and {v["verdict"] for v in latest(folder)} <= {"PASS", "WARN"}
    done = f'run_id="{folder.name}",stage="nccl_node",node="kube-02"'
    assert f"gpufleet_acceptance_probe_done{{{done}}} 1" in seen["kube-02"]
    assert 'metric="busbw",unit="GB/s",simulated="true"' in seen["kube-02"]
    assert f'gpufleet_acceptance_probe_planned_checks{{{done.replace("kube-02", "kube-01")}}}' in seen["kube-01"]
    events = [json.loads(line) for line in logs["kube-02"].splitlines() if line.startswith("{")]
    assert [one["event"] for one in events][:1] + [one["event"] for one in events][-1:] == ["probe_begun", "probe_done"]
    assert {(one["run"], one["stage"], one["node"]) for one in events} == {(folder.name, "nccl_node", "kube-02")}
    kept = [json.loads(line) for line in said.splitlines() if '"stage_kept"' in line]
    assert {one["node"] for one in kept} == {"lab/kube-01", "lab/kube-02"}
    waited = [m["context"].get("pod_waited_s") for m in journals.of(folder)]
    assert waited and all(isinstance(one, float) and one >= 0 for one in waited if one is not None)
    runs.nothing_left()




def test_what_holds_up_the_volumes_of_prometheus_is_named_and_stays(runs: KubeRuns) -> None:
    """A claim of a class that is not there, one of an old class, and the volume of one that is gone."""
    runs.permit(roles("storage"))
    claims, volumes = f"/api/v1/namespaces/{runs.namespace}/persistentvolumeclaims", "/api/v1/persistentvolumes"
    classes, old = "/apis/storage.k8s.io/v1/storageclasses", f"old-{runs.namespace}"
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}

    def preflight(storage_class: str) -> tuple[int, str]:
        arguments = ("-e", f"claims_namespace={runs.namespace}", "-e", f"storage_class={storage_class}")
        done = runs.run(*arguments, playbook="playbooks/observability_preflight.yml")
        return done.status, " ".join(done.output.split())

    def claim(name: str, of: str) -> None:
        runs.admin.post(claims, {"kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {**asked, "storageClassName": of}})

    def phase(path: str) -> str:
        return str(runs.admin.get(path).get("status", {}).get("phase"))

    def becomes(path: str, wanted: str) -> None:
        end = time.monotonic() + 60
        while phase(path) != wanted:
            assert time.monotonic() < end, (path, phase(path))
            time.sleep(0.2)

    runs.admin.post(classes, {"metadata": {"name": old}, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "Immediate"})
    try:
        status, said = preflight(old)
        assert (status, "is in the way" in said) == (0, True), said
        for number in (1, 2):
            spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp/none"}}
            spec |= {"storageClassName": old, "persistentVolumeReclaimPolicy": "Retain"}
            runs.admin.post(volumes, {"metadata": {"name": f"{old}-{number}"}, "spec": spec})
            claim(f"data-{number}", old)
            becomes(f"{claims}/data-{number}", "Bound")
        left = runs.admin.get(f"{claims}/data-1")["spec"]["volumeName"]
        runs.admin.delete(f"{claims}/data-1")
        becomes(f"{volumes}/{left}", "Released")
        claim("new", "csi-of-nobody")
        status, said = preflight("csi-of-nobody")
        assert status != 0
        assert "StorageClass csi-of-nobody is not there" in said and old in said
        assert f"claim data-2 (Bound, StorageClass {old}, volume" in said and "keeps its class" in said
        assert "claim new (Pending, StorageClass csi-of-nobody, volume none)" in said
        assert f"volume {left} (Released, Retain) was that of claim data-1" in said and "nothing was changed or deleted" in said
        assert phase(f"{claims}/data-2") == "Bound" and phase(f"{volumes}/{left}") == "Released"
    finally:
        for name in ("data-1", "data-2", "new"):
            runs.admin.delete(f"{claims}/{name}")
        for number in (1, 2):
            runs.admin.delete(f"{volumes}/{old}-{number}")
        runs.admin.delete(f"{classes}/{old}")
