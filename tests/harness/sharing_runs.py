# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of the GPU-sharing matrix over both clusters of the rig, as somebody at a shell begins them, and what came of them."""

from __future__ import annotations

import json
import pathlib
import subprocess
import time
import typing as t

from harness import journals
from harness.fleet_runs import latest, run_folder
from harness.sharing import WINDOW, Clusters
from rigs.sharing.defects import ALL, BEYOND

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What waits for defects waits briefly, and what is looked at is looked at often. A scheduler of the rig looks at annotations every 0.5 s.
PARAMETERS = {
    "pod_timeout_s": 60, "running_timeout_s": 30, "probe_timeout_s": 30, "delete_timeout_s": 60, "scale_timeout_s": 90,
    "stab_iteration_timeout_s": 90, "dynamic_update_expect_s": 8, "dynamic_update_observe_timeout_s": 12, "fail_restart_timeout_s": 60,
    "metrics_scrape_interval_s": 1, "metrics_stress_s": 12, "overhead_repeats": 2, "scale_set": [2, 6, 10], "leak_rounds": 3,
    **WINDOW, "mix_small_pods": 4, "mix_large_pods": 8, "beside_scale": 0.02, "stab_long_s": 90,
}  # fmt: skip
# What destructive cases may take.
NODES = {"c1": {"gpu_sharing_drain_node": "kube-02"}, "c2": {"gpu_sharing_stress_node": "kube-01"}}
RUN_LIMIT_S = 3600
GONE_S = 120
# (cluster, case) -> its verdict and the reason of that.
Found = t.Dict[t.Tuple[str, str], t.Tuple[str, str]]
_WORST = ["PASS", "SKIPPED", "WARN", "KNOWN_FAIL", "UNKNOWN", "FAIL"]


class Matrix:
    """Runs whose results lie in numbered folders of `folder`."""

    def __init__(self, clusters: Clusters, folder: pathlib.Path, scale: float) -> None:
        self.clusters, self.folder, self.scale = clusters, folder, scale
        self.number = 0

    def asked(self, cases: t.Mapping[str, t.Collection[str]]) -> pathlib.Path:
        """A new folder of results with the inventory for these cases of each cluster beside it."""
        self.number += 1
        given = self.clusters.inventory(gpu_sharing_destructive=True, gpu_sharing_parameters=PARAMETERS)
        known = given["all"]["hosts"]
        given["all"]["hosts"] = {
            f"lab-{cluster}": {**known[f"lab-{cluster}"], **self.nodes(cluster), "gpu_sharing_cases": sorted(names)}
            for cluster, names in cases.items() if names
        }  # fmt: skip
        (self.folder / f"inventory-{self.number}.json").write_text(json.dumps(given))
        return self.folder / str(self.number)

    def nodes(self, cluster: str) -> dict[str, str]:
        """Return the nodes that destructive cases may take, as far as the cluster has them."""
        there = self.clusters.both[cluster].cluster.nodes
        return {variable: node for variable, node in NODES[cluster].items() if node in there}

    def start(self, results: pathlib.Path, playbook: str = "gpu_sharing", **extra: t.Any) -> subprocess.Popen[bytes]:
        """A playbook over these clusters, in a session of its own; what it says is appended to a file beside the results."""
        inventory = results.with_name(f"inventory-{results.name}.json")
        settings = {"acceptance_results_dir": str(results), "acceptance_simulated": True, "scale": self.scale, **extra}
        command = [str(ROOT / ".venv/bin/ansible-playbook"), f"playbooks/{playbook}.yml", "-i", str(inventory), "-e", json.dumps(settings)]
        with self.said(results).open("ab") as said:
            return subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
            )

    @staticmethod
    def said(results: pathlib.Path) -> pathlib.Path:
        return results.with_suffix(".log")

    def found(self, results: pathlib.Path) -> Found:
        folder = run_folder(results)
        if folder is None:
            raise SystemExit(f"no run came of it:\n{self.said(results).read_text(errors='replace')[-4000:]}")
        found: Found = {}
        for verdict in latest(folder):
            case = verdict["check"].upper().replace("_", "-")
            if case in ALL | BEYOND:
                key, now = (verdict["subject"]["id"].rpartition("lab-")[2], case), (verdict["verdict"], str(verdict["reason"])[:300])
                found[key] = max(found.get(key, now), now, key=lambda one: _WORST.index(one[0]))
        return found

    def run(self, cases: t.Mapping[str, t.Collection[str]]) -> Found:
        """The verdicts of one run that nobody disturbs."""
        results = self.asked(cases)
        self.start(results).wait(RUN_LIMIT_S)
        return self.found(results)

    def measured(self, results: pathlib.Path) -> list[tuple[str, str, str]]:
        """(cluster, case, status) of each line of the journal."""
        folder = run_folder(results)
        return [
            (line["target"].rpartition("-")[2], line["check"].upper().replace("_", "-"), line["context"].get("case", {}).get("status", ""))
            for line in (journals.of(folder) if folder else [])
        ]

    def left(self) -> list[str]:
        """Return what is left on the clusters of any run: objects with our labels, and nodes that are cordoned or marked."""
        found = []
        for name, system in self.clusters.both.items():
            for base, kind in ("api/v1", "pods"), ("api/v1", "configmaps"), ("apis/batch/v1", "jobs"):
                items = system.cluster.api.items(f"/{base}/namespaces/{self.clusters.namespace}/{kind}")
                found += [f"{name} {kind} {item['metadata']['name']}" for item in items if ours(item)]
            for node in system.cluster.api.items("/api/v1/nodes"):
                if ours(node) or node["spec"].get("unschedulable"):
                    found.append(f"{name} node {node['metadata']['name']}")
        return found

    def gone(self) -> list[str]:
        """Return what is left in the end, after a while: pods take some seconds to go."""
        end = time.monotonic() + GONE_S
        while (left := self.left()) and time.monotonic() < end:
            time.sleep(0.5)
        return left


def ours(item: dict[str, t.Any]) -> bool:
    metadata = item["metadata"]
    return any(key.startswith("gpufleet.acceptance/") for of in ("labels", "annotations") for key in metadata.get(of) or {})
