# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks for what a cluster lacks for tests of GPUs, before anything is created.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError, Object

# The part of their names by which pods of a device plugin are recognised.
PLUGIN = "device-plugin"
SHOWN = 10


class NodeView(t.Protocol):
    """The parts of an inventory.ClusterNode that are used here."""

    @property
    def name(self) -> str: ...

    @property
    def devices(self) -> int: ...

    @property
    def not_ready(self) -> str: ...


def missing(client: Client, nodes: t.Iterable[NodeView], resource: str, namespaces: t.Iterable[str]) -> list[str]:
    """Return a sentence for each kind of problem: nodes that are not ready, and nodes without devices. If a node offers no device, the pods
    of the device plugin in `namespaces` are read, where we may (files/rbac/device-plugin.yaml)."""
    sentences = []
    nodes = list(nodes)
    not_ready = [node.name for node in nodes if node.not_ready]
    without = [node.name for node in nodes if not node.not_ready and not node.devices]
    if not_ready:
        sentences.append(f"{client.name}: {len(not_ready)} of {len(nodes)} nodes are not ready: {_short_list(not_ready)}")
    if without:
        words = f"{client.name}: {len(without)} of {len(nodes)} nodes have no allocatable {resource}: {_short_list(without)}"
        sentences.append(f"{words}; {_plugin(client, without, list(namespaces))}")
    return sentences


def preempting(client: Client) -> list[str]:
    """Return a sentence if the cluster's default priority class preempts other pods, since pods without a class get its policy. Empty if we
    may not read the classes (files/rbac/holders.yaml)."""
    try:
        classes = client.get("/apis/scheduling.k8s.io/v1/priorityclasses")["items"]
    except KubeError:
        return []
    return [
        f"{client.name}: pods that ask for devices get the cluster's default priority class {priority_class['metadata']['name']}, "
        "which preempts pods of lower priority; set acceptance_kube_priority_class to one that never does (files/rbac/priority.yaml)"
        for priority_class in classes
        if priority_class.get("globalDefault") and priority_class.get("preemptionPolicy") != "Never"
    ]


def _plugin(client: Client, nodes: list[str], namespaces: list[str]) -> str:
    """Return words about the pods of the device plugin on these nodes."""
    by_node: dict[str, list[Object]] = {}
    hidden = []
    for namespace in namespaces:
        try:
            for page in client.pages(cleanup.path("/api/v1", namespace, "pods")):
                for pod in page["items"]:
                    if PLUGIN in pod["metadata"]["name"]:
                        by_node.setdefault(str(pod["spec"].get("nodeName") or ""), []).append(pod)
        except KubeError as error:
            if error.status != 404:
                hidden.append(namespace)
    without = [node for node in nodes if node not in by_node]
    words = []
    if without:
        looked = [namespace for namespace in namespaces if namespace not in hidden]
        if looked:
            words.append(f"no pod of a device plugin runs there in {', '.join(looked)}: {_short_list(without)}")
        if hidden:
            words.append(f"pods in {', '.join(hidden)} may not be read, see files/rbac/device-plugin.yaml")
    bad = [f"{pod['metadata']['name']} on {node}" for node in nodes for pod in by_node.get(node, ()) if not _ready(pod)]
    if bad:
        words.append(f"pods of the device plugin that are not ready: {_short_list(bad)}")
    return "; ".join(words) or "the pods of the device plugin are ready there: see their logs"


def _ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def _short_list(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
