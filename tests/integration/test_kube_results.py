# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Results are copied to a claim or to a folder of the node; what is judged is the log."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
from harness.kube_runs import KubeRuns
from rigs.kubernetes.kubernetes import Kubernetes

pytestmark = [pytest.mark.kubernetes, pytest.mark.long]


@pytest.fixture
def runs(rig_kubernetes: Kubernetes, tmp_path: pathlib.Path) -> KubeRuns:
    return KubeRuns(rig_kubernetes, tmp_path, "probe")


def claim(runs: KubeRuns, folder: str) -> dict[str, t.Any]:
    """A claim `nccl-pvc` that is bound to a folder of whichever node."""
    size = {"storage": "1Gi"}
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {**common, "capacity": size, "hostPath": {"path": folder}, "claimRef": {"name": "nccl-pvc", "namespace": runs.namespace}}
    metadata = {"name": f"results-{runs.namespace}"}
    runs.admin.post("/api/v1/persistentvolumes", {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": volume})
    wanted = {**common, "volumeName": metadata["name"], "resources": {"requests": size}}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "nccl-pvc"}, "spec": wanted}
    runs.admin.post(f"/api/v1/namespaces/{runs.namespace}/persistentvolumeclaims", body)
    return {"claim": "nccl-pvc"}


@pytest.mark.parametrize("kind", ["claim", "host_path"])
def test_results_are_copied(runs: KubeRuns, kind: str) -> None:
    folder = f"/rig/results-{runs.namespace}"  # the rig's machines see their own folder there
    for node in runs.cluster.nodes:
        (runs.cluster.folder(node) / f"results-{runs.namespace}").mkdir()
    results = claim(runs, folder) if kind == "claim" else {"host_path": folder, "path": "/copies"}
    done = runs.run("--tags", "stack", acceptance_kube_results=results)
    assert done.status == 0 and done.folder, done.output[-3000:]
    for node in runs.cluster.nodes:
        copies = list((runs.cluster.folder(node) / f"results-{runs.namespace}" / done.folder.name / "stack").glob(f"{node}.*.json"))
        assert len(copies) == 1
        seen = json.loads(copies[0].read_text())["observations"]
        mine = [m for m in done.journal if m["subject"]["id"] == f"lab/{node}"]
        assert {item["check"] for item in seen} >= {m["check"] for m in mine}
    runs.nothing_left()


def test_a_claim_that_is_not_there_is_named(runs: KubeRuns) -> None:
    more = {"acceptance_kube_results": {"claim": "nowhere"}, "acceptance_kube_start_timeout": 5}
    done = runs.run("--tags", "nccl_node", **more)
    assert done.status != 0 and done.journal and all('"nowhere" not found' in m["reason"] for m in done.journal), done.journal
    runs.nothing_left()
