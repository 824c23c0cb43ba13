# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads from a cluster the facts about its sharing system for sharing/preflight.py. Creates nothing.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import access, cleanup, inventory
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError, Object
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import actions, conclusion, preflight, scraped
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cluster import PLUGIN, SCHEDULER
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.kubernetes.case_pods import SharingCluster, is_ready
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.settled import PREFIX, Settled
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.system import System

GIB = float(1 << 30)
# The rights of a guardian on a node, and the HTTP status of a refusal.
GET, PATCH = (("get", "", "nodes", ""), ("patch", "", "nodes", ""))
FORBIDDEN = 403


def require_rights(client: Client, system: System, destructive: bool) -> None:
    """Raise KubeError that names the rights that we lack in the namespace of the system."""
    rights: list[access.Right] = [(verb, "", "pods", "") for verb in ("get", "list", *(["delete"] if destructive else []))]
    rights += [("get", "", "pods", "log"), *((verb, "coordination.k8s.io", "leases", "") for verb in ("create", "get", "delete"))]
    if system.scheduler:
        rights += [("get", "", "pods", "proxy"), ("create", "", "pods", "exec")]
    lacking = access.missing(client, rights, namespace=system.namespace)
    if lacking:
        raise KubeError(
            "no_permission",
            f"{client.name}: in namespace {system.namespace} of the system under test we may not {', '.join(lacking)}; apply "
            f"files/rbac/sharing-system.yaml there (gpu_sharing_system_changes names another namespace)",
        )


def facts(client: Client, cluster: SharingCluster, settings: Settled, selection: inventory.NodeSelection) -> preflight.ClusterFacts:
    """Return the facts of a cluster. Raise KubeError if we may not read them."""
    system = settings.system
    require_rights(client, system, settings.destructive)
    selected = inventory.selected_nodes(client, selection, system.resource)
    nodes = [node for node in selected if not selection.names or node.name in selection.names]
    daemons = {kind: _daemons(client, system, kind) for kind in (SCHEDULER, PLUGIN)}
    memory: dict[str, float] = {}
    gpus: dict[str, int] = {}
    names: dict[str, str] = {}
    answering, reading = [], []
    reads_memory = str(system.expects.get("memory_read_metric", ""))
    for daemon in daemons[SCHEDULER] if "metrics" in system.has else ():
        answer = cluster.ask(daemon.name, str(system.scheduler["metrics"]))
        exposition = scraped.parse(answer.text, system.metrics) if answer.status == 200 else None
        if exposition is None or exposition.wrong:
            continue
        answering.append(daemon.name)
        if any(series.value > 0 for series in exposition.of(reads_memory)):
            reading.append(daemon.name)
        sizes = [series.value for series in exposition.of("gpu_memory_total_bytes")]
        named = {series.labels.get("gpu_name", "") for series in exposition.of("gpu_info")} - {""}
        if len(named) == 1:
            names[daemon.node] = named.pop()
        if sizes:
            memory[daemon.node], gpus[daemon.node] = max(sizes) / GIB, len(sizes)
    product = str(system.expects.get("product_label", ""))
    places = [
        preflight.SharedNode(
            node.name, node.devices, _gpus(node, system, gpus), node.labels.get(product) or names.get(node.name, ""),
            _number(node.labels.get(str(system.expects.get("replicas_label", "")))),
        )
        for node in nodes
    ]  # fmt: skip
    named_nodes = {f"{PREFIX}{name}": node for name, node in settings.nodes.items()}
    draining = [_draining(client, cluster, node) for node in _drained(settings)]
    return preflight.ClusterFacts(places, daemons[SCHEDULER], daemons[PLUGIN], memory, answering, named_nodes, draining, reading)


def _drained(settings: Settled) -> list[str]:
    """Return the nodes that cases will drain, without those of cases that are skipped."""
    conditions = (settings.system, settings.cluster, settings.destructive, settings.nodes)
    cases = [
        case for case in settings.cases if actions.does(case.steps, actions.OF_NODE) and conclusion.beforehand(case, *conditions) is None
    ]
    return sorted({settings.nodes[case.node] for case in cases})


def _draining(client: Client, cluster: SharingCluster, node: str) -> preflight.Draining:
    lacking = access.missing(client, [("create", "", "pods", "eviction")], [("list", "", "pods", "")])
    if not access.may(client, "", PATCH, node):
        lacking.append(f"patch node {node}")
    account = cluster.options.guardian
    if not account:
        return preflight.Draining(node, lacking)
    refused, unknown = "", ""
    try:  # a dry run of the pod's creation fails if the service account does not exist
        pod = cluster.guardian(node, cluster.options.deadline_s)
        client.post(cleanup.path("/api/v1", client.namespace, "pods"), pod, dryRun="All", **objects.STRICT)
        not_allowed = [verb for verb in (GET, PATCH) if not access.may(client, "", verb, node, account)]
        refused = f"it may not {' and '.join(verb for verb, *_of in not_allowed)} nodes" if not_allowed else ""
    except KubeError as error:
        asking = error.status == FORBIDDEN and "subjectaccessreviews" in error.reason
        if error.status == FORBIDDEN and not asking:
            refused = f"its pod is refused: {error.reason}"
        else:
            unknown = "its rights we may not ask for, files/rbac/sharing-drain.yaml lets us" if asking else error.reason
    except ReasonedError as error:
        unknown = error.reason
    return preflight.Draining(node, lacking, f"{client.namespace}/{account}", refused, unknown)


def _gpus(node: inventory.ClusterNode, system: System, counted: t.Mapping[str, int]) -> int | None:
    """Return the number of GPUs of a node by the label of its feature discovery, else by its scheduler, None if unknown."""
    labelled = _number(node.labels.get(str(system.expects.get("gpus_label", ""))))
    return counted.get(node.name) if labelled is None else labelled


def _number(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None


def _daemons(client: Client, system: System, kind: str) -> list[preflight.SystemPod]:
    daemonset: t.Mapping[str, t.Any] = getattr(system, kind)
    if not daemonset:
        return []
    pages = client.pages(cleanup.path("/api/v1", system.namespace, "pods"), labelSelector=str(daemonset["selector"]))
    return [_daemon(item) for page in pages for item in page["items"] if not item["metadata"].get("deletionTimestamp")]


def _daemon(item: Object) -> preflight.SystemPod:
    spec = item["spec"]
    env = {
        variable["name"]: None if "valueFrom" in variable else str(variable.get("value", ""))
        for c in spec["containers"]
        for variable in c.get("env") or ()
    }
    images = tuple(str(container.get("image")) for container in spec["containers"])
    name, node = str(item["metadata"]["name"]), str(spec.get("nodeName") or "")
    return preflight.SystemPod(name, node, is_ready(item), bool(spec.get("hostPID")), env, images)
