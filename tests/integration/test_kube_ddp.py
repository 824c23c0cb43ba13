# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stage ddp in pods of two real nodes: real torchrun and real PyTorch over gloo, which pods find on their node."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import typing as t

import pytest
import test_kube_groups as groups
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.agent import PLANTED
from harness import journals
from rigs import common, pytorch
from rigs.kubernetes.kubernetes import Kubernetes
from test_ddp_fleet import CHECKS, SMALL

pytestmark = pytest.mark.kubernetes
EXPECTED = {"id": "gloo", "match": {"stage": "ddp", "check": "all_reduce"}, "metric": "busbw", "value": 0.0001, "unit": "GB/s",
            "source": "test", "date": "2026-11", "confidence": "measured"}  # fmt: skip
# The image is of the same Debian as this machine, whose files a node has: nothing of PyTorch's 650 MB is copied into an image.
THERE = {"volumes": [{"name": "usr", "hostPath": {"path": "/usr"}}]}
MOUNT = {"volumeMounts": [{"name": "usr", "mountPath": "/node/usr", "readOnly": True}]}
LIBRARIES = "/node/usr/lib/x86_64-linux-gnu"
FOLDERS = (LIBRARIES, f"{LIBRARIES}/blas", f"{LIBRARIES}/lapack", "/node/usr/lib")
FIND = {"PYTHONPATH": "/node/usr/lib/python3/dist-packages", "LD_LIBRARY_PATH": ":".join(FOLDERS)}


@pytest.fixture(scope="module")
def cluster(rig_kubernetes: Kubernetes) -> Kubernetes:
    common.need_packages(pytorch.PACKAGES)
    return rig_kubernetes


@pytest.fixture
def lab(cluster: Kubernetes) -> t.Iterator[groups.Lab]:
    made = groups.Lab(cluster)
    yield made
    cluster.api.delete(f"/api/v1/namespaces/{made.namespace}")


def accepted(
    lab: groups.Lab, folder: pathlib.Path, planted: dict[str, t.Any] | None = None, **changes: t.Any
) -> tuple[bool, list[dict[str, t.Any]]]:
    """Return whether a run of the stage over the cluster was accepted, and its journal."""
    env = {**FIND, **({PLANTED: json.dumps(planted)} if planted else {})}
    settings = {
        "acceptance_plane": "kubernetes", "acceptance_stages": ["ddp"], "acceptance_kube_image": lab.image,
        "acceptance_kube_kubeconfig": lab.kubeconfig, "acceptance_kube_namespace": lab.namespace, "acceptance_kube_start_timeout": 60,
        "acceptance_kube_group_launcher": "job", "acceptance_kube_pod_patch": {"spec": THERE, "container": MOUNT},
        "acceptance_nodes": {"names": ["kube-01", "kube-02"]}, "acceptance_results_dir": str(folder / "results"),
        "acceptance_expectations": [EXPECTED], "ansible_python_interpreter": sys.executable,
        **{f"ddp_{name}": value for name, value in SMALL.items()}, "ddp_gpus": [2], "ddp_env": env, "ddp_collective_timeout": 40, **changes,
    }  # fmt: skip
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": {"lab": settings}}}))
    argv = [sys.executable, "-m", "ansible", "playbook", "acceptance.yml", "-i", folder / "hosts.json"]
    said = subprocess.run(argv, cwd=groups.ROOT, capture_output=True, text=True, timeout=400, check=False)
    reports = list((folder / "results").glob("*/report.json"))
    assert len(reports) == 1, said.stdout[-3000:] + said.stderr[-2000:]
    journal = journals.of(reports[0].parent)
    return json.loads(reports[0].read_text())["accepted"], journal


@pytest.mark.parametrize("launcher", ["job", "statefulset"])
def test_a_group_of_pods_trains(lab: groups.Lab, tmp_path: pathlib.Path, launcher: str) -> None:
    busy = {"ddp_straggler_percent": 1000.0}  # others may be busy on these cores
    good, journal = accepted(lab, tmp_path, acceptance_kube_group_launcher=launcher, **busy)
    assert {m["check"]: (m["outcome"], m["reason"]) for m in journal} == dict.fromkeys((*CHECKS, "member"), ("measured", None)) and good
    ranks = next(m for m in journal if m["check"] == "training")["context"]["ranks"]
    assert sorted(ranks.values()) == [f"lab/kube-0{node} {local}" for node in (1, 2) for local in (0, 1)]
    lab.nothing_left()


@pytest.mark.long
@pytest.mark.parametrize("launcher", ["job", "statefulset"])
def test_a_group_of_pods_with_the_nodes_network_trains(lab: groups.Lab, tmp_path: pathlib.Path, launcher: str) -> None:
    network = {"acceptance_kube_host_network": True, "acceptance_kube_ssh_port": 2299}
    good, journal = accepted(lab, tmp_path, acceptance_kube_group_launcher=launcher, **network)
    assert {m["check"]: (m["outcome"], m["reason"]) for m in journal} == dict.fromkeys((*CHECKS, "member"), ("measured", None)) and good
    lab.nothing_left()


@pytest.mark.long
def test_a_rank_that_is_killed_is_named_by_its_node(lab: groups.Lab, tmp_path: pathlib.Path) -> None:
    good, journal = accepted(lab, tmp_path, {"kind": "kill", "rank": 3})
    said = next(m for m in journal if m["check"] == "training")
    assert not good and said["reason_code"] == "rank_died", said
    node = said["context"]["ranks"]["3"].partition(" ")[0]
    assert f"rank 3 on {node} was killed by signal 9" in said["reason"], said["reason"]
    lab.nothing_left()
