# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA in pods of the rig's cluster: simulated ports in place of /sys/class, and the simulated perftest, from a folder of each node."""

from __future__ import annotations

import shutil
import typing as t

from rigs.kubernetes.kubernetes import Kubernetes
from rigs.simulated import pairs

TOOLS = "/opt/perftest"
HCA = "rdma/hca"


def _mount(name: str, path: str, kind: str) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    volume = {"name": name, "hostPath": {"path": f"/rig/rdma/{name}", "type": kind}}
    return volume, {"name": name, "mountPath": path, "readOnly": True}


MOUNTS = [
    _mount("class", "/sys/class", "Directory"),
    _mount("bin", TOOLS, "Directory"),
    _mount("perftest.conf", "/opt/simulated/perftest.conf", "File"),
]
for _volume, _at in MOUNTS:  # a volume's name has no dots
    _volume["name"] = _at["name"] = _volume["name"].replace(".", "-")
VARIABLES: dict[str, t.Any] = {
    "rdma_binary_dir": TOOLS,
    "rdma_iterations": 1000,
    "rdma_qps": 1,
    "rdma_test_timeout": 10,
    "rdma_patience": 10,
    "rdma_kube_resources": {HCA: 1},
    "acceptance_kube_pod_patch": {
        "spec": {"volumes": [volume for volume, _at in MOUNTS]},
        "container": {"volumeMounts": [at for _volume, at in MOUNTS]},
    },
}


def plant(cluster: Kubernetes, node: str, *lines: str, state: str = "ACTIVE") -> None:
    """Port and tools of a node; `lines` are what the tools do, as perftest.c says."""
    root = cluster.plant(node).parent / "rdma"
    shutil.rmtree(root, ignore_errors=True)
    pairs.sysfs(root / "tree", [address(cluster, node)], state=state, seed=node)
    (root / "tree/sys/class").rename(root / "class")
    (root / "class/net").mkdir()
    (root / "bin").mkdir()
    for name in pairs.TOOLS:
        shutil.copy(pairs.tools() / name, root / "bin" / name)
    pairs.settings(root, "seconds 0.3", *lines)


def address(cluster: Kubernetes, node: str) -> str:
    """Return the address of a node's rail, which is no address of its pod."""
    return f"10.99.0.{cluster.nodes.index(node) + 1}"


def offer(cluster: Kubernetes, count: int, *nodes: str) -> None:
    """Offer the devices of a node as a device plugin would."""
    for node in nodes or cluster.nodes:
        path = f"/api/v1/nodes/{node}/status"
        body = {"status": {"capacity": {HCA: str(count)}, "allocatable": {HCA: str(count)}}}
        cluster.api.request("PATCH", path, body, "application/merge-patch+json")
