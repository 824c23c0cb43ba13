# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks over the real nodes of the Kubernetes rig, as a user who may what files/rbac says and no more."""

from __future__ import annotations

import itertools
import json
import pathlib
import subprocess
import typing as t

from harness import journals
from harness.fleet_runs import ROOT, Done, latest, run_folder
from harness.namespace import Namespace, roles
from rigs.kubernetes.kubernetes import Kubernetes
from rigs.simulated import nodes

TOOLS = {
    "acceptance_nvidia_smi": "/opt/simulated/bin/nvidia-smi",
    "nccl_node_binary_dir": "/opt/simulated/bin",
    "acceptance_python": "/opt/simulated/bin/python3-torch",
}
EXTRA = {"acceptance_simulated": True, "acceptance_gpu_count": 8, "nccl_node_sizes": ["8M:16G"]}
_NUMBERS = itertools.count(1)


class KubeRuns(Namespace):
    """Runs on the rig's cluster, whose nodes with kubelets are the host `lab`."""

    def __init__(self, cluster: Kubernetes, folder: pathlib.Path, *names: str) -> None:
        super().__init__(cluster, roles(*names))
        self.folder = folder
        for number, node in enumerate(cluster.nodes, 101):
            if node in cluster.amd:
                cluster.plant_amd(node)
            else:
                cluster.plant(node).write_text(nodes.conf(number))

    def command(
        self, *more: str, playbook: str = "acceptance.yml", hosts: dict[str, dict[str, t.Any]] | None = None, **variables: t.Any
    ) -> list[str]:
        """`hosts`: {host of the inventory: its own variables}, where the cluster is several or has another name."""
        lab = {
            "acceptance_plane": "kubernetes",
            "acceptance_kube_kubeconfig": self.kubeconfig,
            "acceptance_kube_image": self.cluster.image,
            "acceptance_kube_start_timeout": 60,
            "acceptance_nodes": {"names": self.cluster.nodes},
            **TOOLS,
            **variables,
        }
        inventory = self.folder / f"inventory-{next(_NUMBERS)}.json"
        own = {"lab": {}} if hosts is None else hosts
        inventory.write_text(json.dumps({"all": {"hosts": {host: {**lab, **of} for host, of in own.items()}}}))
        extra = {**EXTRA, "acceptance_results_dir": str(self.folder / "results")}
        return [str(ROOT / ".venv/bin/ansible-playbook"), playbook, "-i", str(inventory), "-e", json.dumps(extra), *more]

    def run(self, *more: str, **options: t.Any) -> Done:
        done = subprocess.run(
            self.command(*more, **options), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            stdin=subprocess.DEVNULL, timeout=600,
        )  # fmt: skip
        assert "Traceback" not in done.stdout, done.stdout[-4000:]
        folder = run_folder(self.folder / "results")
        if folder is None or not (folder / "verdicts.jsonl").exists():
            return Done(done.returncode, done.stdout, folder, [], journals.of(folder) if folder else [])
        return Done(done.returncode, done.stdout, folder, latest(folder), journals.of(folder))

    def pods(self) -> list[dict[str, t.Any]]:
        return list(self.admin.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"])
