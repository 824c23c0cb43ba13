# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A cluster with AMD GPUs: real kubelets, a device plugin that gives pods device files and nothing else, and simulated GPUs, which a
process has only if it may open those files. One node of the cluster has NVIDIA GPUs."""

from __future__ import annotations

import json
import pathlib
import shutil
import typing as t

import pytest
from harness.fleet_runs import Done, wait
from harness.kube_runs import KubeRuns
from harness.own_rig import own
from rigs import common, pytorch
from rigs.kubernetes.kubernetes import RENDER_GROUP, Kubernetes
from test_ddp_fleet import SMALL
from test_kube_ddp import EXPECTED as GLOO
from test_kube_ddp import FIND, MOUNT, THERE
from test_kube_groups import EXPECTED as RCCL

pytestmark = [pytest.mark.kubernetes(own=True), pytest.mark.long]
AMD, NVIDIA = [f"kube-{number:02d}" for number in range(1, 6)], "kube-06"
INSTINCT: dict[str, t.Any] = {
    "acceptance_kube_resource": "amd.com/gpu",
    "acceptance_amd_smi": "/opt/simulated/bin/amd-smi",
    "acceptance_nodes": {"expected": AMD},
    "gemm_types": ["bf16"],
}
HOPPER: dict[str, t.Any] = {"acceptance_nodes": {"expected": [NVIDIA]}}
STAGES = "stack,host_health,gpu_memory,nccl_node"
ANY_COUNT = ("-e", json.dumps({"acceptance_gpu_count": None}))
TAINT = {"key": "amd.com/gpu", "value": "present", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def cluster() -> t.Iterator[Kubernetes]:
    with own(Kubernetes) as cluster:
        cluster.amd = AMD
        cluster.up(len(AMD) + 1, operators=())
        for node in AMD:  # as clouds do it
            cluster.api.request("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": [TAINT]}}, "application/merge-patch+json")
        yield cluster


@pytest.fixture
def runs(cluster: Kubernetes, tmp_path: pathlib.Path) -> t.Iterator[KubeRuns]:
    made = KubeRuns(cluster, tmp_path, "probe")
    yield made
    made.nothing_left()
    for node in cluster.nodes:
        cluster.as_born(node)
    wait(lambda: all(allocatable(cluster, node, "amd.com/gpu") == 8 for node in AMD))


def bad(done: Done) -> dict[str, set[str]]:
    """Return {HOST/NODE: reason codes of what is worse than a WARN}."""
    found: dict[str, set[str]] = {}
    for verdict in done.verdicts:
        if verdict["verdict"] not in ("PASS", "WARN", "SKIPPED"):
            found.setdefault("/".join(verdict["subject"]["id"].split("/")[:2]), set()).add(verdict["reason_code"])
    return found


def words(done: Done, node: str) -> str:
    return " ".join(str(v["reason"]) for v in done.verdicts if v["subject"]["id"].startswith(f"instinct/{node}"))


def test_healthy_nodes_of_both_vendors_in_one_cluster_are_accepted_in_one_report(runs: KubeRuns) -> None:
    done = runs.run("--tags", STAGES, hosts={"instinct": INSTINCT, "hopper": HOPPER})
    assert done.status == 0 and not bad(done), (bad(done), done.output[-3000:])
    nodes = {*(f"instinct/{node}" for node in AMD), f"hopper/{NVIDIA}"}
    assert nodes == {"/".join(v["subject"]["id"].split("/")[:2]) for v in done.verdicts if v["verdict"] == "PASS"}
    passed = {(v["stage"], v["subject"]["id"].split("/")[0]) for v in done.verdicts if v["verdict"] == "PASS"}
    assert {(stage, host) for stage in STAGES.split(",") for host in ("instinct", "hopper")} <= passed
    assert done.folder and all(name in (done.folder / "report.html").read_text(encoding="utf-8") for name in nodes)
    models = {m["context"].get("gpu") for m in done.journal if m["stage"] == "nccl_node"}
    assert models == {"AMD Instinct MI300X", "NVIDIA H200"}


def test_planted_faults_of_amd_nodes_and_only_those_are_found(runs: KubeRuns) -> None:
    plant = runs.cluster.plant_amd
    plant("kube-02", GPUS=7)
    plant("kube-03", faults="xgmi_half")
    plant("kube-04", faults="firmware=01.24.00.00")
    plant("kube-05", faults="partition=DPX/NPS1")
    done = runs.run("--tags", STAGES, hosts={"instinct": INSTINCT})
    assert done.status != 0
    found = bad(done)
    assert set(found) == {f"instinct/{node}" for node in AMD[1:]}, (found, done.output[-3000:])
    assert "gpu_count" in found["instinct/kube-02"] and "nvlink" in found["instinct/kube-03"] and found["instinct/kube-04"] == {"drift"}
    assert {"gpu_count", "drift"} & found["instinct/kube-05"], found
    assert {v["verdict"] for v in done.on("instinct") if "kube-01" in v["subject"]["id"]} <= {"PASS", "WARN", "SKIPPED"}


def allocatable(cluster: Kubernetes, node: str, resource: str) -> int:
    return int(cluster.api.request("GET", f"/api/v1/nodes/{node}")["status"]["allocatable"].get(resource, 0))


def test_a_gpu_that_is_gone_is_found_though_nobody_says_how_many_there_should_be(runs: KubeRuns) -> None:
    runs.cluster.plant_amd("kube-02", GPUS=7)
    wait(lambda: allocatable(runs.cluster, "kube-02", "amd.com/gpu") == 7)
    done = runs.run("--tags", "stack", *ANY_COUNT, hosts={"instinct": INSTINCT})
    assert set(bad(done)) == {"instinct/kube-02"} and done.status != 0, (bad(done), done.output[-3000:])


def test_pods_of_one_gpu_measure_the_one_that_they_were_given(runs: KubeRuns) -> None:
    one = {**INSTINCT, "acceptance_nodes": {"names": ["kube-01", "kube-02"]}, "train_gpus": 1}
    done = runs.run("--tags", "train", *ANY_COUNT, hosts={"instinct": one})
    trained = [m for m in done.journal if m["stage"] == "train" and m["subject"]["kind"] == "node"]
    assert trained and {m["outcome"] for m in trained} == {"measured"}, [m["reason"] for m in trained]


def test_a_pod_that_looks_without_device_files_passes_no_node(runs: KubeRuns) -> None:
    blind = {**INSTINCT, "acceptance_nodes": {"names": ["kube-01"]}, "acceptance_kube_gpu_stages": ["nccl_node"]}
    done = runs.run("--tags", "stack", hosts={"instinct": blind})
    assert bad(done) == {"instinct/kube-01": {"no_permission"}} and "/dev/kfd was not given to this container" in words(done, "kube-01")


def test_an_image_with_a_user_needs_the_groups_of_the_device_files(runs: KubeRuns) -> None:
    def patched(*groups: int) -> dict[str, t.Any]:
        context = {"runAsUser": 1000, "runAsGroup": 1000, "supplementalGroups": list(groups)}
        patch = {"acceptance_kube_pod_patch": {"spec": {"securityContext": context}}, "acceptance_nodes": {"names": ["kube-01"]}}
        return {"instinct": {**INSTINCT, **patch}}

    refused = runs.run("--tags", "stack", hosts=patched())
    assert bad(refused) == {"instinct/kube-01": {"no_permission"}} and "groups" in words(refused, "kube-01")
    shutil.rmtree(runs.folder / "results")
    done = runs.run("--tags", "stack,nccl_node", hosts=patched(RENDER_GROUP))
    assert done.status == 0 and not bad(done), (bad(done), done.output[-3000:])


def test_with_a_resource_for_each_mode_a_node_in_another_mode_is_told_what_it_offers(runs: KubeRuns) -> None:
    runs.cluster.plant_amd("kube-02", faults="partition=DPX/NPS1")
    runs.cluster.offer_amd(strategy="mixed")
    try:
        wait(lambda: all(allocatable(runs.cluster, node, "amd.com/spx_nps1") == (0 if node == "kube-02" else 8) for node in AMD))
        wait(lambda: allocatable(runs.cluster, "kube-02", "amd.com/dpx_nps1") == 16)
        done = runs.run("--tags", "stack", hosts={"instinct": {**INSTINCT, "acceptance_kube_resource": "amd.com/spx_nps1"}})
        assert bad(done) == {"instinct/kube-02": {"no_gpu"}}, (bad(done), done.output[-3000:])
        assert "It offers amd.com/dpx_nps1 (16)" in words(done, "kube-02")
    finally:
        runs.cluster.plant_amd("kube-02")
        runs.cluster.offer_amd()
        wait(lambda: all(allocatable(runs.cluster, node, "amd.com/gpu") == 8 for node in AMD))


def test_nodes_with_amd_gpus_are_a_group_of_nccl_fabric_and_of_ddp_in_pods(cluster: Kubernetes, tmp_path: pathlib.Path) -> None:
    """Real mpirun and SSH with a stand-in for rccl-tests, real PyTorch over gloo."""
    common.need_packages(pytorch.PACKAGES)
    runs = KubeRuns(cluster, tmp_path, "group", "group-job")
    small = {f"ddp_{name}": value for name, value in {**SMALL, "straggler_percent": 1000.0}.items()}
    pair = {
        **INSTINCT, "acceptance_nodes": {"names": ["kube-01", "kube-02"]}, "acceptance_kube_group_launcher": "job",
        "nccl_fabric_binary_suffix": "_mpi", "nccl_fabric_sizes": ["8M:16M"], "nccl_fabric_gpus": [1], "nccl_fabric_repeats": 1, **small,
        "ddp_gpus": [1], "ddp_env": FIND, "ddp_collective_timeout": 40, "acceptance_kube_pod_patch": {"spec": THERE, "container": MOUNT},
        "acceptance_expectations": [GLOO, {**RCCL, "value": 182, "match": {**RCCL["match"], "gpus": 1, "gpu": "AMD Instinct MI300X"}}],
    }  # fmt: skip
    done = runs.run("-e", json.dumps({"acceptance_stages": ["nccl_fabric", "ddp"], "acceptance_gpu_count": None}), hosts={"instinct": pair})
    assert done.status == 0 and not bad(done), (bad(done), words(done, "kube-01"), done.output[-3000:])
    group = next(m for m in done.journal if (m["stage"], m["check"]) == ("nccl_fabric", "all_reduce"))
    assert group["context"]["gpu"] == "AMD Instinct MI300X" and group["simulated"]
    runs.nothing_left()
