# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The quick test of a cluster as a DaemonSet with one GPU for each pod, which its label finds, with simulated tools in its pods."""

from __future__ import annotations

import json
import pathlib

import pytest
from harness.kube_runs import KubeRuns
from rigs.kubernetes.kubernetes import Kubernetes

pytestmark = pytest.mark.kubernetes
ONE = {"train_gpus": 1, "acceptance_kube_launcher": "daemonset"}
PODS = {"acceptance_kube_labels": {"app": "gpu-accept-daemon"}, "train_python": "/opt/simulated/bin/python3-torch"}


def test_every_node_by_a_daemonset_with_one_gpu_each(rig_kubernetes: Kubernetes, tmp_path: pathlib.Path) -> None:
    runs = KubeRuns(rig_kubernetes, tmp_path, "probe", "daemonset")
    done = runs.run("-e", json.dumps(ONE), "--skip-tags", "nccl_node", playbook="playbooks/quick.yml", **PODS)
    assert done.status == 0 and done.folder, done.output[-4000:]
    nodes = {f"lab/{node}" for node in rig_kubernetes.nodes}
    assert {v["subject"]["id"] for v in done.verdicts if v["stage"] == "train" and v["subject"]["kind"] == "node"} == nodes
    trained = [m for m in done.journal if m["stage"] == "train" and m["subject"]["kind"] == "node"]
    assert len(trained) == 2 * len(nodes) and all(len(m["subject"]["members"]) == 1 for m in trained)
    assert "a quick test is no acceptance" in " ".join(done.output.split())
    runs.nothing_left()
