# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in of a system that shares GPUs: real kubelets run the workloads, and it keeps, tells and shows their quotas."""

from __future__ import annotations

import re
import typing as t

import pytest
from harness.sharing import Clusters, Pods

pytestmark = [pytest.mark.kubernetes(own=True), pytest.mark.long]
GI = 1 << 30
ITERATIONS = 160  # of W2 on a T4: 1.6 s alone


@pytest.fixture(scope="module")
def pods(rig_sharing: Clusters) -> t.Iterator[Pods]:
    yield Pods(rig_sharing.c1)


def seconds(log: str) -> float:
    return float(re.findall(r"--- ([0-9.]+) seconds ---", log)[-1])


def rates(log: str) -> list[float]:
    return [float(rate) for rate in re.findall(r"QUOTA_PROBE\] .* it_per_sec=([0-9.]+)", log)]


def test_a_core_quota_takes_its_time(pods: Pods) -> None:
    """Shares are of one GPU's clock, whatever else this machine does: what is late is made up for."""
    took = {}
    for core in (100, 25, 50, 75):
        pods.start(f"core-{core}", "w2", core=core, GPUFLEET_W_ITERATIONS=ITERATIONS)
        phase, log = pods.ended(f"core-{core}")
        assert phase == "Succeeded" and "PASS\n" in log and f"Core limit = {core}%" in log
        assert log.startswith("simulated by gpufleet.acceptance\n")
        took[core] = seconds(log)
    shares = {core: 100 * took[100] / took[core] for core in took}
    assert all(abs(share - core) < 8 for core, share in shares.items()), shares
    pods.remove(*(f"core-{core}" for core in took))


def test_memory_is_refused_beyond_the_quota_and_the_gpu(pods: Pods) -> None:
    pods.start("quota", "w2", NVSHARE_GPU_MEMORY_LIMIT="1Gi")
    pods.start("pressure", "w4a", GPUFLEET_W_N=0)
    pods.start("oversubscribed", "w4a", GPUFLEET_W_N=0, NVSHARE_ENABLE_SINGLE_OVERSUB=0)
    phase, log = pods.ended("quota")
    assert phase == "Failed" and "Memory allocation rejected: 784000000 + 784000000 = 1568000000 would exceed limit 1073741824 bytes" in log
    phase, log = pods.ended("pressure")
    assert phase == "Failed" and "OutOfMemoryError: " in log and "rejected" not in log
    phase, log = pods.ended("oversubscribed")
    assert phase == "Succeeded" and "Memory allocations exceeded physical GPU memory capacity" in log
    pods.remove("quota", "pressure", "oversubscribed")


def test_annotations_change_limits_of_what_runs(pods: Pods) -> None:
    pods.start("probe", "w5", memory="4Gi", core=30, GPUFLEET_W_DURATION_S=600, GPUFLEET_W_PROBE_S=0.5, GPUFLEET_W_ALLOCATE_BYTES=GI // 4)
    pods.said("probe", "] elapsed=1.")
    assert pods.value("client_memory_quota_bytes", pod="probe") == 4 * GI
    assert pods.value("client_core_quota_config_percent", pod="probe") == 30
    assert pods.value("client_info", pod="probe", namespace="default") == 1
    before = rates(pods.log("probe"))
    pods.change("probe", core=80)
    pods.said("probe", "Core limit updated dynamically to 80%")
    pods.until(lambda: pods.value("client_core_quota_config_percent", pod="probe") == 80, "the new quota")
    # The line that tells of the change may be of both.
    pods.until(lambda: any(rate > 2 * before[-1] for rate in rates(pods.log("probe"))), "more speed")
    pods.change("probe", memory="2Gi")
    pods.said("probe", f"Memory limit updated: {4 * GI} -> {2 * GI} bytes")
    pods.said("probe", "refused: OutOfMemoryError")
    assert pods.value("client_memory_quota_exceeded", pod="probe") == 1 and pods.phase("probe") == "Running"
    said = "".join(pods.schedulers())
    assert "Compute limit changed for pod default/probe: 30% -> 80%" in said
    assert f"Memory limit changed for pod default/probe: {4 * GI} -> {2 * GI} bytes" in said
    pods.remove("probe")
    pods.until(lambda: pods.value("client_info", pod="probe") is None, "an end of the client's series")


def test_quotas_of_more_than_a_gpu_are_scaled(rig_sharing: Clusters, pods: Pods) -> None:
    """On the same GPU: with four pods on the two of a node, two share one at least."""
    names = [f"scaled-{number}" for number in range(4)]
    for name in names:
        pods.start(name, "w5", core=80, node=rig_sharing.c1.cluster.nodes[0], GPUFLEET_W_DURATION_S=600)
    for name in names:
        pods.until(lambda name=name: pods.value("client_info", pod=name) == 1, f"{name} as a client")
    where = re.findall(r'^nvshare_client_info\{.*pod="scaled-.*gpu_uuid="([^"]+)"', pods.metrics(), re.M)
    assert len(where) == 4 and len(set(where)) <= 2
    told = [pods.value("client_core_quota_effective_percent", pod=name) for name in names]
    assert all(value in {80, 50, 33, 25} for value in told) and min(value or 0 for value in told) < 80
    assert {pods.value("client_core_quota_config_percent", pod=name) for name in names} == {80}
    pods.remove(*names)


def test_metrics_have_every_name_and_the_traps(pods: Pods) -> None:
    pods.start("plain", "w5", GPUFLEET_W_DURATION_S=600)
    pods.until(lambda: pods.value("client_info", pod="plain") == 1, "the client")
    assert pods.value("client_memory_quota_bytes", pod="plain") == 0
    # Managed memory is not in what the driver says of a process.
    assert 0 < (pods.value("client_nvml_used_bytes", pod="plain") or 0) < (pods.value("client_managed_allocated_bytes", pod="plain") or 0)
    assert pods.value("scheduler_messages_total", type="UPDATE_CORE_LIMIT") == 0
    assert (pods.value("scheduler_messages_total", type="REGISTER") or 0) + 1 > 0
    text = pods.metrics()
    assert text.startswith("# simulated by gpufleet.acceptance\n") and "client_memory_need_estimated_bytes" not in text
    assert len(re.findall(r"^nvshare_gpu_info\{", text, re.M)) == 4  # two GPUs on each of two nodes
    pods.remove("plain")


SHOWS: dict[str, t.Callable[[Pods], bool]] = {
    "core_ignored": lambda pods: max(rates(pods.log("sick")), default=0) > 60,  # a quarter of a T4 is 26
    "quota_in_mib": lambda pods: pods.value("client_memory_quota_bytes", pod="sick") == 4096,
    "memory_ignored": lambda pods: "granted" in pods.log("sick"),
}


@pytest.mark.parametrize("defect", SHOWS)
def test_a_planted_defect_shows_and_goes(rig_sharing: Clusters, pods: Pods, defect: str) -> None:
    wanted = {"GPUFLEET_W_DURATION_S": 600, "GPUFLEET_W_PROBE_S": 0.5, "GPUFLEET_W_ALLOCATE_BYTES": 8 * GI}
    with rig_sharing.defect(defect):
        pods.start("sick", "w5", memory="4Gi", core=25, **wanted)
        pods.said("sick", "ALLOCATION_PROBE] elapsed=1.")
        pods.until(lambda: SHOWS[defect](pods), defect)
        pods.remove("sick")
    pods.start("well", "w5", memory="4Gi", core=25, **wanted)
    pods.said("well", "refused: ")
    log = pods.log("well")
    assert "granted" not in log and pods.value("client_memory_quota_bytes", pod="well") == 4 * GI
    pods.remove("well")


def test_two_clusters_are_two_systems(rig_sharing: Clusters) -> None:
    names = {name: Pods(system).metrics() for name, system in rig_sharing.both.items()}
    assert "Tesla T4" in names["c1"] and "A800" not in names["c1"] and "NVIDIA A800" in names["c2"]
    for name, host in zip(("c1", "c2"), rig_sharing.inventory()["all"]["hosts"].values(), strict=True):
        assert host["gpu_sharing_cluster"] == name and host["acceptance_kube_kubeconfig"] == str(rig_sharing.both[name].cluster.kubeconfig)
