# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes of a cluster: those that the inventory selects, and if a pod may run on them.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import registry as accelerators
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import identity
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import preflight
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import settings as of_variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import (
    Client,
    ControllerError,
    KubeError,
    Object,
    connect,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

SELECTOR = accelerators.DEFAULT.selector
_KEYS = {"selector", "names", "expected"}
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
# Taints that the cluster sets on a node that is not ready. Its condition says the same.
_OF_CONDITION = re.compile(r"^node\.kubernetes\.io/(not-ready|unreachable)$")
# Taints of nodes without a machine: those of kwok, and those of a virtual kubelet, which starts pods elsewhere.
NO_MACHINE = ("kwok.x-k8s.io/node", "virtual-kubelet.io/provider")
# Prefix of the names of expected nodes of which only the number is known.
UNNAMED = "expected-"


class ClusterNode(t.NamedTuple):
    """The parts of a node object that are used here."""

    name: str
    devices: int
    not_ready: str
    taints: list[Object]
    labels: dict[str, str]
    capacity: int = 0
    machine: str = ""
    boot: str = ""
    uid: str = ""
    # {resource: count} of other allocatable devices from the makers of accelerators.
    others: t.Mapping[str, int] = {}

    def identity(self, resource: str) -> Object:
        """Return the node's identity by the API: its machine, and the devices that it has and offers."""
        devices = {"resource": resource, "capacity": self.capacity, "allocatable": self.devices}
        known = {"node_info": self.machine, "node_boot": self.boot, "devices": devices if self.capacity or self.devices else None}
        return {name: value for name, value in known.items() if value}


class NodeSelection(t.NamedTuple):
    """The variable acceptance_nodes: the selected nodes, and the nodes that must exist (by name or number)."""

    selector: str
    names: list[str]
    expected: list[str]
    number: int


def selection_of(cluster: str, variables: t.Mapping[str, t.Any]) -> NodeSelection:
    """Return the variable acceptance_nodes of a cluster. Raise RunError if it is wrong."""
    value = variables.get("acceptance_nodes") or {}
    if not isinstance(value, dict) or not set(value) <= _KEYS:
        raise RunError(f"{cluster}: acceptance_nodes: found {value!r}, expected {{selector, names, expected}}")
    expected = value.get("expected") or []
    names = value.get("names") or []
    number = expected if isinstance(expected, int) and not isinstance(expected, bool) else 0
    if number < 0 or (not number and not _names(expected)) or not _names(names):
        raise RunError(f"{cluster}: acceptance_nodes: found {value!r}, expected lists of names, and a list or a number as expected")
    resource = str(variables.get("acceptance_kube_resource") or accelerators.DEFAULT.resource)
    selector = str(value.get("selector") or accelerators.of_resource(resource).selector or SELECTOR)
    return NodeSelection(selector, list(names), [] if number else list(expected), number)


def _names(value: t.Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) and name for name in value)


class NodesFound(t.NamedTuple):
    """The names of a cluster's nodes for the plan, including expected nodes that are missing; notes; {name: UID of the node object}."""

    names: list[str]
    notes: list[str]
    uids: dict[str, str] = {}


def subjects(cluster: str, variables: t.Mapping[str, t.Any]) -> NodesFound:
    """Return the nodes of a cluster. No names if the cluster does not answer or has no such node. Raise RunError for a mistake on the
    controller: a kubeconfig or context that does not exist, a selector that is none."""
    selection = selection_of(cluster, variables)
    named_nodes = list(dict.fromkeys([*selection.names, *selection.expected]))
    try:
        client = connect(of_variables.connection(cluster, variables))
        resource = str(variables.get("acceptance_kube_resource") or of_variables.PodSettings.resource)
        present = [node for node in selected_nodes(client, selection, resource) if not selection.names or node.name in named_nodes]
        virtual = [] if selection.names else _without_machine(present, variables.get("acceptance_kube_tolerations") or ())
        present = [node for node in present if node.name not in virtual or node.name in named_nodes]
        lacking = []
        if variables.get("acceptance_gpu_count") != 0:
            lacking = [identity.withdrawn(n.name, n.capacity, n.devices, resource) for n in present if n.capacity != n.devices]
            lacking += preflight.missing(client, present, resource, variables.get("acceptance_kube_device_plugin_namespaces") or ())
        if variables.get("acceptance_kube_gpu_stages") != [] and not variables.get("acceptance_kube_priority_class"):
            lacking += preflight.preempting(client)
    except KubeError as error:
        if isinstance(error, ControllerError) or error.reason_code == "bad_spec":
            raise RunError(error.reason) from error
        return NodesFound(named_nodes or unnamed(selection.number, 0), [error.reason])
    selected = [] if selection.names else [node.name for node in present]
    notes = [*client.notes, *lacking]
    if left_out := [name for name in virtual if name not in named_nodes]:
        shown = ", ".join(left_out[:10]) + (" ..." if len(left_out) > 10 else "")
        notes.append(
            f"{cluster}: not taken, since {len(left_out)} of the nodes that selector {selection.selector} returns have no machine, by "
            f"their taints {' or '.join(NO_MACHINE)}: {shown}; acceptance_nodes.expected or acceptance_kube_tolerations takes them"
        )
    image = str(variables.get("acceptance_kube_image") or "")
    if image and of_variables.untagged(image):
        notes.append(f"{cluster}: image {image} has no tag or the tag latest: tomorrow it may be another one; see the digests")
    powers = of_variables.switched_on(variables)
    if powers:
        notes.append(f"{cluster}: the pods are {' and '.join(powers)}, as its variables say")
    absent = [name for name in selection.expected if name not in selected and name not in selection.names]
    unlisted = unnamed(selection.number, len(selected))
    if absent or unlisted:
        words = ", ".join(absent[:10]) or f"{len(unlisted)} of {selection.number}"
        notes.append(f"{cluster}: expected nodes that selector {selection.selector} does not return: {words}")
    if not selected and not named_nodes and not unlisted:
        notes.append(f"{cluster}: selector {selection.selector} matches no node")
    uids = {node.name: node.uid for node in present if node.uid}
    return NodesFound(list(dict.fromkeys([*sorted(selected), *named_nodes, *unlisted])), notes, uids)


def select(cluster: str, variables: t.Mapping[str, t.Any], entry: t.Mapping[str, t.Any]) -> list[str]:
    """Return the nodes that an entry of acceptance_node_vars selects by `names` or `selector`; empty if the cluster does not answer, since
    then nothing is measured there. Raise RunError for a wrong entry."""
    value = entry.get("names", entry.get("selector"))
    if not (_names(value) if "names" in entry else isinstance(value, str) and value):
        words = "a list of names" if "names" in entry else "a label selector"
        raise RunError(f"{cluster}: acceptance_node_vars: found {value!r}, expected {words}")
    if "names" in entry:
        return list(entry["names"])
    try:
        client = connect(of_variables.connection(cluster, variables))
        return [node.name for node in nodes(client, entry["selector"], "")]
    except KubeError as error:
        if error.reason_code == "bad_spec":
            raise RunError(f"{cluster}: acceptance_node_vars: selector {entry['selector']!r}: {error.reason}") from error
        return []


def _without_machine(present: t.Iterable[ClusterNode], tolerations: t.Iterable[Object]) -> list[str]:
    """Return the names of nodes that exist in the API only, by taints of NO_MACHINE that nobody tolerates."""
    tolerations = list(tolerations)

    def is_refused(taint: Object) -> bool:
        return taint.get("key") in NO_MACHINE and not any(tolerates(toleration, taint) for toleration in tolerations)

    return [node.name for node in present if any(map(is_refused, node.taints))]


def unnamed(number: int, count: int) -> list[str]:
    """Return placeholder names for expected nodes beyond the `count` that exist."""
    return [f"{UNNAMED}{place}" for place in range(count + 1, number + 1)]


def selected_nodes(client: Client, selection: NodeSelection, resource: str) -> t.Iterator[ClusterNode]:
    """Yield the nodes that acceptance_nodes selects, or all if it has names. Raise KubeError for an invalid selector."""
    try:
        yield from nodes(client, "" if selection.names else selection.selector, resource)
    except KubeError as error:
        if error.reason_code != "bad_spec" or selection.names:
            raise
        message = error.reason.removeprefix(f"{client.name}: ")
        raise KubeError("bad_spec", f"{client.name}: acceptance_nodes: selector {selection.selector!r}: {message}", error.status) from None


def nodes(client: Client, selector: str, resource: str) -> t.Iterator[ClusterNode]:
    """Yield the nodes that a selector returns. `resource` is the device that is counted."""
    for page in client.pages("/api/v1/nodes", labelSelector=selector or None):
        for item in page["items"]:
            yield summary(item, resource)


def summary(item: Object, resource: str) -> ClusterNode:
    """Return the parts of a node object that are used here."""
    status, spec = item.get("status") or {}, item.get("spec") or {}
    devices, capacity = (_count(status.get(field), resource) for field in ("allocatable", "capacity"))
    info = status.get("nodeInfo") or {}
    machine = " ".join(str(info[name]) for name in ("machineID", "systemUUID") if info.get(name))
    taints = list(spec.get("taints") or [])
    if spec.get("unschedulable") and not any(taint.get("key") == UNSCHEDULABLE for taint in taints):
        taints.append({"key": UNSCHEDULABLE, "effect": "NoSchedule"})
    name, labels, boot = item["metadata"]["name"], item["metadata"].get("labels") or {}, str(info.get("bootID") or "")
    others = {of: _count(status.get("allocatable"), of) for of in status.get("allocatable") or {} if _of_maker(of) and of != resource}
    return ClusterNode(
        name, devices, not_ready(item), taints, labels, capacity, machine, boot, str(item["metadata"].get("uid") or ""),
        {of: count for of, count in others.items() if count},
    )  # fmt: skip


def _of_maker(resource: str) -> bool:
    """Return True if a resource is from a maker of accelerators, such as `amd.com/cpx_nps4`."""
    domain = resource.partition("/")[0]
    return any(kind.resource.partition("/")[0] == domain for kind in accelerators.KINDS.values())


def _count(of: Object | None, resource: str) -> int:
    try:
        return int((of or {}).get(resource, 0))
    except ValueError:
        return 0


def not_ready(node: Object) -> str:
    """Return why a node is not ready, in the API's words; empty if it is ready."""
    ready = next((c for c in (node.get("status") or {}).get("conditions") or [] if c.get("type") == "Ready"), None)
    if ready is None:
        return f"node {node['metadata']['name']} has never been ready"
    if ready.get("status") == "True":
        return ""
    return f"node {node['metadata']['name']} is not ready: {ready.get('reason')}: {ready.get('message')}"


Why = t.Tuple[str, str]


def usable(
    names: t.Iterable[str], present: t.Iterable[ClusterNode], why_not: t.Callable[[ClusterNode], Why | None], absent: t.Callable[[str], Why]
) -> tuple[dict[str, ClusterNode], dict[str, Why]]:
    """Return {name: node} of the nodes to which pods may go, and {name: (reason code, reason)} of the others. `why_not` is called for a
    node that exists, `absent` for one that does not."""
    by_name = {node.name: node for node in present}
    able: dict[str, ClusterNode] = {}
    refused: dict[str, Why] = {}
    for name in names:
        node = by_name.get(name)
        why = absent(name) if node is None else why_not(node)
        if why is not None:
            refused[name] = why
        elif node is not None:
            able[name] = node
    return able, refused


def obstacle(node: ClusterNode, tolerations: t.Iterable[Object], need_devices: bool, resource: str) -> tuple[str, str] | None:
    """Return (reason code, reason) why no pod may go to a node, None if one may.

    A pod with a nodeName bypasses the scheduler, so taints and cordons are checked here.
    """
    if node.not_ready:
        return "node_not_ready", node.not_ready
    tolerations = list(tolerations)
    for taint in node.taints:
        if taint.get("effect") == "PreferNoSchedule" or _OF_CONDITION.match(str(taint.get("key"))):
            continue
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            if taint.get("key") == UNSCHEDULABLE:
                return "node_cordoned", f"node {node.name} is cordoned (kubectl uncordon {node.name})"
            words = f"{taint.get('key')}={taint.get('value') or ''}:{taint.get('effect')}"
            return "node_cordoned", f"node {node.name} has taint {words}, which acceptance_kube_tolerations does not tolerate"
    if need_devices and node.devices == 0:
        words = f"node {node.name} has no allocatable {resource}: does the device plugin run there?"
        if node.others:
            offered = ", ".join(f"{of} ({count})" for of, count in sorted(node.others.items()))
            words += f" It offers {offered}; acceptance_kube_resource says which one stands for a GPU"
        return "no_gpu", words
    return None


def tolerates(toleration: Object, taint: Object) -> bool:
    """Return True if a toleration tolerates a taint (k8s.io/api/core/v1, Toleration.ToleratesTaint)."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")
