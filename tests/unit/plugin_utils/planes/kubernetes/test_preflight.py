# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is missing on a cluster; the API's answers are those of a real one, cut to what is read."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import preflight
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.inventory import ClusterNode

SPACES = ("kube-system", "gpu-operator")


class Api:
    """Pods by namespace; what is not there may not be read, and asking where nobody needs to is an error."""

    name = "lab"

    def __init__(self, pods: dict[str, list[dict[str, t.Any]]], status: int = 403) -> None:
        self.pods, self.status = pods, status

    def pages(self, path: str) -> t.Iterator[dict[str, t.Any]]:
        namespace = path.split("/")[4]
        if namespace not in self.pods:
            raise KubeError("no_permission", "pods is forbidden", self.status)
        yield {"items": self.pods[namespace]}


def node(name: str, devices: int = 8, not_ready: str = "") -> ClusterNode:
    return ClusterNode(name, devices, not_ready, [], {})


def pod(node: str, ready: str = "True", name: str = "nvidia-device-plugin-daemonset-x2k4p") -> dict[str, t.Any]:
    return {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


def missing(api: t.Any, *nodes: ClusterNode) -> list[str]:
    return preflight.missing(api, nodes, "nvidia.com/gpu", SPACES)


def test_nothing_is_missing_and_nothing_is_asked() -> None:
    assert missing(None, node("a"), node("b")) == []
    assert missing(None) == []


def test_nodes_that_are_not_ready_are_counted_and_named() -> None:
    api = type("Named", (), {"name": "lab"})()
    assert missing(api, node("a"), node("b", 0, "node b is not ready")) == ["lab: 1 of 2 nodes are not ready: b"]


def test_a_device_plugin_that_is_missing_or_not_ready_is_named() -> None:
    api = Api({"kube-system": [pod("b", "False"), pod("c", name="coredns")], "gpu-operator": []})
    (said,) = missing(api, node("a"), node("b", 0), node("c", 0))
    assert said.startswith("lab: 2 of 3 nodes have no allocatable nvidia.com/gpu: b, c; ")
    assert "no pod of a device plugin runs there in kube-system, gpu-operator: c" in said
    assert said.endswith("pods of the device plugin that are not ready: nvidia-device-plugin-daemonset-x2k4p on b")


def test_without_the_right_it_says_which_file_gives_it_and_an_absent_namespace_is_empty() -> None:
    assert missing(Api({}), node("a", 0))[0].endswith(
        "pods in kube-system, gpu-operator may not be read, see files/rbac/device-plugin.yaml"
    )
    assert "runs there in kube-system, gpu-operator: a" in missing(Api({}, 404), node("a", 0))[0]


def test_a_plugin_that_is_ready_and_offers_nothing() -> None:
    assert missing(Api({"kube-system": [pod("a")], "gpu-operator": []}), node("a", 0))[0].endswith("are ready there: see their logs")


def test_a_default_class_that_preempts_is_named() -> None:
    class Classes:
        name = "lab"

        def __init__(self, *classes: dict[str, t.Any]) -> None:
            self.classes = classes

        def get(self, path: str) -> dict[str, t.Any]:
            if not self.classes:
                raise KubeError("no_permission", "priorityclasses is forbidden", 403)
            return {"items": list(self.classes)}

    system = {"metadata": {"name": "system-node-critical"}, "preemptionPolicy": "PreemptLowerPriority"}
    high = {"metadata": {"name": "high"}, "globalDefault": True}
    (said,) = preflight.preempting(t.cast("t.Any", Classes(system, high)))
    assert "default priority class high" in said and "acceptance_kube_priority_class" in said
    assert preflight.preempting(t.cast("t.Any", Classes(system, {**high, "preemptionPolicy": "Never"}))) == []
    assert preflight.preempting(t.cast("t.Any", Classes())) == []
