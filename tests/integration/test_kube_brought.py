# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Images that lack python3 and tools, powers that are switched on, and machines that others measure: on real kubelets."""

from __future__ import annotations

import subprocess
import tarfile
import threading
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import client, inventory, settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import probe
from harness.namespace import roles
from harness.own_rig import own
from rigs.kubernetes import images
from rigs.kubernetes.kubernetes import Kubernetes

pytestmark = [pytest.mark.kubernetes(own=True), pytest.mark.long]
NAMESPACE = "brought"
RUN = "20260101T000000Z-0a1b2c"
FOLDER = "/opt/gpufleet"


@pytest.fixture(scope="module")
def cluster() -> t.Iterator[Kubernetes]:
    with own(Kubernetes) as made:
        made.up(nodes=2, operators=())
        yield made


@pytest.fixture(scope="module")
def api(cluster: Kubernetes) -> client.Client:
    user = cluster.user("brought", roles("probe"), NAMESPACE)
    return client.connect(client.Connection("lab", kubeconfig=str(user), namespace=NAMESPACE))


def stack(
    cluster: Kubernetes, api: client.Client, params: dict[str, t.Any] | None = None, **variables: t.Any
) -> dict[str, dict[str, t.Any]]:
    """Return the answer of each node in stage stack; nothing stays behind."""
    given = {"image": cluster.bare_image, "start_timeout": 60, **variables}
    pods = settings.pods({f"acceptance_kube_{name}": value for name, value in given.items()})
    asked = {"checks": [{"check": "facts"}], "timeout": 60, "root": "/host", "state_dir": "/gpufleet/work/state", **(params or {})}
    request = payload.request("stack_facts", payload.options("stack_facts"), asked)
    running = probe.NodeProbe(api, pods, RUN, "stack", 60, payload.archive())
    try:
        found = running.run([probe.NodeRequest(node, request) for node in cluster.nodes])
        return {answer.node: answer.result for answers in found for answer in answers}
    finally:
        assert running.clean() == []


def facts(said: dict[str, t.Any]) -> dict[str, t.Any]:
    assert said.get("state") == "done" and said["observations"], said
    (seen,) = said["observations"]
    assert seen["outcome"] == "measured", seen["reason"]
    return dict(seen["context"])


def test_an_image_without_python3_is_named_where_nothing_is_brought_along(cluster: Kubernetes, api: client.Client) -> None:
    for said in stack(cluster, api).values():
        assert said["reason_code"] == "no_python" and "acceptance_kube_inject" in said["reason"], said


def test_python3_and_tools_come_from_another_image(cluster: Kubernetes, api: client.Client) -> None:
    for node, said in stack(cluster, api, inject={"image": cluster.tools()}).items():
        found = facts(said)
        assert found["gpus"] == 8 and found["gpu"] == "NVIDIA H200", "nvidia-smi is one of the tools"
        assert found["machine_id"] == (cluster.folder(node) / "machine-id").read_text().strip(), "the host is still the host"


def test_they_come_from_a_volume(cluster: Kubernetes, api: client.Client) -> None:
    _name, archive = images.tools()
    for node in cluster.nodes:
        with tarfile.open(archive) as image, tarfile.open(fileobj=image.extractfile("layer.tar")) as layer:
            layer.extractall(cluster.folder(node) / "tools", filter="fully_trusted")
    volume = {"hostPath": {"path": f"/rig/tools{FOLDER}", "type": "Directory"}}
    assert all(facts(said)["gpus"] == 8 for said in stack(cluster, api, inject={"volume": volume}).values())


def test_a_folder_that_is_not_in_the_image_is_named(cluster: Kubernetes, api: client.Client) -> None:
    for said in stack(cluster, api, inject={"image": cluster.tools(), "path": "/opt/nowhere"}).values():
        assert said["reason_code"] == "container_failed" and "init container inject" in said["reason"], said


def test_powers_that_are_switched_on_reach_the_pod(cluster: Kubernetes, api: client.Client) -> None:
    wanted = {"cpu": "100m", "memory": "200Mi"}
    resources = {"requests": wanted, "limits": wanted}
    answers = stack(cluster, api, image=cluster.image, host_ipc=True, privileged=True, resources=resources)
    assert all(facts(said)["machine_id"] for said in answers.values())


def test_a_priority_class_that_preempts_is_refused_and_a_default_one_is_named(cluster: Kubernetes, api: client.Client) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    cluster.api.create(classes, {**head, "metadata": {"name": "greedy"}, "globalDefault": True})
    cluster.api.create(classes, {**head, "metadata": {"name": "meek"}, "preemptionPolicy": "Never"})
    variables = {"acceptance_kube_namespace": NAMESPACE, "acceptance_kube_gpu_stages": ["gemm"]}
    seen = cluster.user("seer", roles("probe", "holders"), NAMESPACE)
    end = time.monotonic() + 30  # the admission plugin hears of a new class a moment later
    while True:
        try:
            stack(cluster, api, image=cluster.image, priority_class="greedy")
        except client.KubeError as error:
            if "PreemptLowerPriority" in error.reason:
                assert error.reason_code == "admission", error.reason
                break
            assert time.monotonic() < end, error.reason
    try:
        assert all(facts(said)["machine_id"] for said in stack(cluster, api, image=cluster.image, priority_class="meek").values())
        assert any(
            "default priority class greedy" in n for n in inventory.subjects("lab", {**variables, "acceptance_kube_kubeconfig": seen})[1]
        )
        meek = {**variables, "acceptance_kube_kubeconfig": seen, "acceptance_kube_priority_class": "meek"}
        assert not any("priority class" in note for note in inventory.subjects("lab", meek)[1])
    finally:
        for name in ("greedy", "meek"):
            cluster.api.delete(f"{classes}/{name}")


def test_a_machine_that_somebody_measures_by_ssh_is_not_measured_by_a_pod(cluster: Kubernetes, api: client.Client) -> None:
    first, second = cluster.nodes
    # What a probe that came by SSH holds for as long as it runs.
    holder = subprocess.Popen(cluster.enter(first, "flock", "--shared", "/etc", "cat"), stdin=subprocess.PIPE)
    try:
        said = stack(cluster, api, image=cluster.image)
    finally:
        holder.communicate()
    assert said[first]["reason_code"] == "duplicate_identity"
    assert "a run on the machine itself measures this very machine" in said[first]["reason"]
    assert facts(said[second])["machine_id"]
    assert facts(stack(cluster, api, image=cluster.image)[first])["machine_id"], "afterwards it is free"


def test_a_pod_that_measures_keeps_those_behind_ssh_out(cluster: Kubernetes, api: client.Client) -> None:
    node = cluster.nodes[0]
    cluster.plant(node).write_text(cluster.plant(node).read_text() + "SLEEP=2\n")
    found: list[bool] = []
    running = threading.Thread(target=lambda: stack(cluster, api, image=cluster.image))
    running.start()
    while running.is_alive():
        asked = subprocess.run(cluster.enter(node, "flock", "--nonblock", "--exclusive", "/etc/machine-id", "true"), check=False)
        found.append(asked.returncode == 0)
        time.sleep(0.1)
    running.join()
    assert False in found and found[0], "free at first, held while the pod measured"


def test_the_plan_names_nodes_without_devices_and_the_plugin_that_is_not_there(cluster: Kubernetes) -> None:
    first, second = cluster.nodes
    status = f"/api/v1/nodes/{first}/status"
    plugin = "/apis/apps/v1/namespaces/kube-system/daemonsets/nvidia-device-plugin-daemonset"
    kept = cluster.api.request("GET", plugin)
    cluster.api.delete(plugin)  # as where nobody has installed one
    user = cluster.user("planner", roles("probe"), NAMESPACE)
    variables = {"acceptance_kube_kubeconfig": str(user), "acceptance_kube_namespace": NAMESPACE}
    spaces = {"acceptance_kube_device_plugin_namespaces": ["kube-system", "gpu-operator"]}
    try:
        # A kubelet keeps the number of a plugin's devices for a while, so it is set here.
        none = [{"op": "replace", "path": "/status/allocatable/nvidia.com~1gpu", "value": "0"}]
        end = time.monotonic() + 60
        while True:
            cluster.api.request("PATCH", status, none, "application/json-patch+json")
            names, notes = inventory.subjects("lab", {**variables, **spaces})
            if any("have no allocatable nvidia.com/gpu" in note for note in notes) or time.monotonic() > end:
                break
        assert names == [first, second]
        assert any("kube-system, gpu-operator may not be read, see files/rbac/device-plugin.yaml" in note for note in notes), notes
        admin = {**variables, "acceptance_kube_kubeconfig": str(cluster.kubeconfig), **spaces}
        while True:
            cluster.api.request("PATCH", status, none, "application/json-patch+json")
            notes = inventory.subjects("lab", admin)[1]
            if any("no pod of a device plugin runs there in kube-system, gpu-operator" in note for note in notes):
                break
            assert time.monotonic() < end, notes
    finally:
        for field in ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"):
            kept["metadata"].pop(field, None)
        kept.pop("status", None)
        cluster.api.create("/apis/apps/v1/namespaces/kube-system/daemonsets", kept)
