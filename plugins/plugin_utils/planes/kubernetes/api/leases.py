# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Leases of a cluster: cordons of nodes, which must be undone, and the use of a system under test, which two runs must not disturb.

The ledger of a cordon is a label on the node itself, set in one request with the cordon, so that neither exists without the other. The use
of a system is a Lease in its namespace.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import marks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError, Object
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import driver

# The label of a node that we have cordoned, with the run id. Annotations hold the deadline and the controller.
CORDONED = f"{marks.DOMAIN}/cordoned-by"
# The name of the Lease of a system under test.
SYSTEM_LEASE = "gpufleet-acceptance"
API = "/apis/coordination.k8s.io/v1"
NOT_FOUND, CONFLICT = 404, 409


def cordon(client: Client, node: str, run_id: str, deadline_s: float) -> None:
    """Cordon a node for a run. Raise KubeError if it is cordoned already: then we must not uncordon it later."""
    item = client.get(_path(node))
    if (item.get("spec") or {}).get("unschedulable"):
        raise KubeError("node_cordoned", f"{client.name}: node {node} is cordoned already, and not by this run")
    mark = {marks.EXPIRES: str(int(time.time() + deadline_s)), marks.CONTROLLER: driver.of()}
    metadata = {"labels": {CORDONED: run_id}, "annotations": mark, "resourceVersion": item["metadata"]["resourceVersion"]}
    client.patch(_path(node), {"metadata": metadata, "spec": {"unschedulable": True}})


def guarded(node: str, run_id: str) -> Object:
    """Return what a guardian (module_utils/lease/cordon_guardian.py) needs to remove a cordon."""
    return {"node": node, "run": run_id, "label": CORDONED, "annotations": [marks.EXPIRES, marks.CONTROLLER]}


def uncordon(client: Client, node: str, run_id: str = "") -> bool:
    """Remove the cordon of a run, or of any run. Return True if the node is schedulable again."""
    item = client.get(_path(node))
    holder = (item["metadata"].get("labels") or {}).get(CORDONED)
    if holder is None or (run_id and holder != run_id):
        return not (item.get("spec") or {}).get("unschedulable")
    metadata = {"labels": {CORDONED: None}, "annotations": {marks.EXPIRES: None, marks.CONTROLLER: None}}
    item = client.patch(_path(node), {"metadata": metadata, "spec": {"unschedulable": None}})
    return not (item.get("spec") or {}).get("unschedulable")


def cordoned(client: Client, run_id: str = "") -> list[Object]:
    """Return the nodes that a run, or any run, has cordoned; empty if we may not list nodes."""
    try:
        pages = client.pages("/api/v1/nodes", labelSelector=f"{CORDONED}={run_id}" if run_id else CORDONED)
        return [node for page in pages for node in page["items"]]
    except KubeError as error:
        if error.status in (403, 404):
            return []
        raise


def give_back(client: Client, nodes: t.Iterable[Object]) -> list[str]:
    """Uncordon nodes. Return a sentence for each."""
    sentences = []
    for node in nodes:
        name = node["metadata"]["name"]
        uncordon(client, name)
        sentences.append(f"{client.name}: uncordoned node {name} of run {node['metadata']['labels'][CORDONED]}")
    return sentences


def abandoned(client: Client) -> list[Object]:
    """Return the cordoned nodes whose run is gone or past its deadline."""
    return [node for node in cordoned(client) if marks.abandoned(node)]


def take(client: Client, namespace: str, launch: str, run_id: str, deadline_s: float) -> None:
    """Take the Lease of the system under test in a namespace for a launch, also from one that is gone or past its deadline, and from an
    earlier launch of the same run by the same inventory host. Raise KubeError if another run holds it."""
    expires = str(int(time.time() + deadline_s))
    annotations = {marks.EXPIRES: expires, marks.CONTROLLER: driver.of(), marks.HOST: client.name}
    labels = {"app.kubernetes.io/managed-by": marks.MANAGER, marks.RUN: run_id}
    lease = {
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": launch},
        "metadata": {"name": SYSTEM_LEASE, "namespace": namespace, "labels": labels, "annotations": annotations},
    }  # fmt: skip
    other = "?"
    for _attempt in range(2):
        try:
            client.post(_leases(namespace), lease)
        except KubeError as error:
            if error.status != CONFLICT:
                raise
        try:
            item = client.get(f"{_leases(namespace)}/{SYSTEM_LEASE}")
        except KubeError as error:
            if error.status != NOT_FOUND:
                raise
            continue  # its holder has just given it back
        if _holder(item) == launch:
            return
        other = str((item["metadata"].get("labels") or {}).get(marks.RUN, "?"))
        if not marks.abandoned(item) and (other != run_id or not marks.launched_by(item, client.name)):
            break
        client.delete(f"{_leases(namespace)}/{SYSTEM_LEASE}")
    command = f"kubectl delete lease -n {namespace} {SYSTEM_LEASE}"
    raise KubeError(
        "busy_run",
        f"{client.name}: run {other} tests the system in namespace {namespace} already, and two runs would disturb each other: wait for "
        f"its end; if it is gone: {command}",
    )


def release(client: Client, namespace: str, launch: str) -> None:
    """Give the Lease of a system back if this launch has it."""
    try:
        item = client.get(f"{_leases(namespace)}/{SYSTEM_LEASE}")
    except KubeError as error:
        if error.status == NOT_FOUND:
            return
        raise
    if _holder(item) == launch:
        client.delete(f"{_leases(namespace)}/{SYSTEM_LEASE}")


def systems(client: Client, run_id: str = "") -> list[Object]:
    """Return the Leases of systems under test, in all namespaces, that a run, or any run, holds; empty if we may not list Leases."""
    selector = f"{marks.OURS},{marks.RUN}={run_id}" if run_id else f"{marks.OURS},{marks.RUN}"
    try:
        pages = client.pages(f"{API}/leases", labelSelector=selector)
        return [lease for page in pages for lease in page["items"] if lease["metadata"]["name"] == SYSTEM_LEASE]
    except KubeError as error:
        if error.status in (403, NOT_FOUND):
            return []
        raise


def give_back_systems(client: Client, held: t.Iterable[Object]) -> list[str]:
    """Give back Leases of systems under test, each unless another launch has taken it since. Return a sentence for each."""
    sentences = []
    for lease in held:
        namespace, run = lease["metadata"]["namespace"], lease["metadata"]["labels"][marks.RUN]
        release(client, namespace, _holder(lease))
        sentences.append(f"{client.name}: removed the Lease of run {run} on the system in namespace {namespace}")
    return sentences


def _holder(lease: Object) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity"))


def _leases(namespace: str) -> str:
    return f"{API}/namespaces/{namespace}/leases"


def _path(node: str) -> str:
    return f"/api/v1/nodes/{node}"
