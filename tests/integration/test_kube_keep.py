# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods that could not measure stay for a look, and logs are read from another terminal."""

from __future__ import annotations

import pathlib
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup
from harness.kube_runs import KubeRuns
from rigs.kubernetes.kubernetes import Kubernetes
from rigs.simulated import nodes

pytestmark = [pytest.mark.kubernetes, pytest.mark.long]


@pytest.fixture
def runs(rig_kubernetes: Kubernetes, tmp_path: pathlib.Path) -> KubeRuns:
    return KubeRuns(rig_kubernetes, tmp_path, "probe")


def test_what_failed_stays_and_can_be_entered(runs: KubeRuns) -> None:
    runs.cluster.plant("kube-02").write_text(nodes.conf(102, faults="nccl_exit"))
    try:
        done = runs.run("--tags", "nccl_node", acceptance_kube_keep="on_failure", nccl_node_warmup=1)
    finally:
        runs.cluster.plant("kube-02").write_text(nodes.conf(102))
    assert done.status != 0 and done.folder
    (pod,) = (pod for pod in runs.pods() if not pod["metadata"].get("deletionTimestamp"))
    assert pod["spec"]["nodeName"] == "kube-02" and pod["status"]["phase"] == "Running", done.output[-3000:]
    assert f"kubectl exec -n {runs.namespace} -it {pod['metadata']['name']} -- sh" in done.output
    running = runs.cluster.inside("kube-02", "ctr", "-a", "/rig/containerd.sock", "-n", "k8s.io", "tasks", "ls")
    assert "RUNNING" in running
    assert not cleanup.janitor(runs.admin), "it stays until its deadline"
    logs = runs.run("-e", f"run_id={done.folder.name}", playbook="playbooks/logs.yml").output
    assert "kept for a look at what failed" in logs and "kube-02" in logs
    assert runs.run("-e", f"run_id={done.folder.name}", playbook="playbooks/cleanup.yml").status == 0
    runs.nothing_left()


def test_nothing_stays_where_all_was_measured(runs: KubeRuns) -> None:
    done = runs.run("--tags", "nccl_node", acceptance_kube_keep="on_failure")
    assert done.status == 0, done.output[-3000:]
    runs.nothing_left()


def test_logs_of_a_container_that_was_started_again(runs: KubeRuns) -> None:
    script = "test -f /v/x && { echo second words; exec sleep 300; }; touch /v/x; echo first words; exit 1"
    container: dict[str, t.Any] = {"name": "probe", "image": runs.cluster.image, "command": ["sh", "-c", script]}
    container["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    labels = {"app.kubernetes.io/managed-by": "gpufleet-acceptance", "gpufleet.acceptance/run-id": "x", "gpufleet.acceptance/stage": "own"}
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "again", "labels": labels},
        "spec": {"containers": [container], "volumes": [{"name": "v", "emptyDir": {}}], "nodeName": "kube-01"},
    }  # fmt: skip
    runs.admin.post(f"/api/v1/namespaces/{runs.namespace}/pods", pod)
    end = time.monotonic() + 180
    while not any(status["restartCount"] for pod in runs.pods() for status in pod["status"].get("containerStatuses") or []):
        assert time.monotonic() < end
        time.sleep(0.5)
    shown = runs.run("-e", "previous=true", playbook="playbooks/logs.yml").output
    assert "| first words" in shown, shown
    followed = runs.run("-e", "follow=3", "-e", "node=kube-01", playbook="playbooks/logs.yml").output
    assert "kube-01: second words" in followed
    cleanup.janitor(runs.admin)
    runs.nothing_left()
