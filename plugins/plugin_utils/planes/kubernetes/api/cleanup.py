# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removal of our objects from a cluster by their labels: those of one launch, of one run, or abandoned ones.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import leases, marks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError, Object

# (API, resource) of everything that a launcher creates. Objects that create pods come before the pods, the owner comes last.
KINDS: tuple[tuple[str, str], ...] = (
    ("/apis/kubeflow.org/v2beta1", "mpijobs"),
    ("/apis/batch.volcano.sh/v1alpha1", "jobs"),
    ("/apis/kubeflow.org/v1", "pytorchjobs"),
    ("/apis/apps/v1", "statefulsets"),
    ("/apis/apps/v1", "daemonsets"),
    ("/apis/batch/v1", "jobs"),
    ("/api/v1", "pods"),
    ("/api/v1", "services"),
    ("/api/v1", "secrets"),
    ("/api/v1", "configmaps"),
)
KINDS_OF_PROBES = (("/api/v1", "pods"), ("/api/v1", "configmaps"))
# Without a right to a kind we have created none of it, and a kind that is not served has no objects.
_NONE_OF_OURS = (403, 404, 405)


# Attempts to delete a collection of thousands of objects. The API server ends each after a minute.
DELETES = 6


def path(api: str, namespace: str, resource: str) -> str:
    """Return the path of the objects of a kind."""
    return f"{api}/namespaces/{namespace}/{resource}"


def remove(client: Client, selector: str, kinds: t.Iterable[tuple[str, str]] = KINDS, wait_s: float = 20.0) -> list[str]:
    """Delete all objects with these labels. Return those still there after `wait_s` seconds, in the form `pods/NAME`. Raise KubeError if
    the API does not answer, or if it refuses a kind and `kinds` was given."""
    deleted = []
    for api, resource in kinds:
        folder = path(api, client.namespace, resource)
        try:
            listed = client.get(folder, labelSelector=selector, limit=1)["items"]
            if listed:
                _delete(client, folder, selector)
                deleted.append((folder, resource))
        except KubeError as error:
            if error.status not in _NONE_OF_OURS or kinds is not KINDS:
                raise
    end = time.monotonic() + wait_s
    remaining: list[str] = []
    for folder, resource in deleted:
        while True:
            items = client.get(folder, labelSelector=selector, limit=20)["items"]
            if not items or time.monotonic() > end:
                remaining += [f"{resource}/{item['metadata']['name']}" for item in items]
                break
            time.sleep(0.1)
    return remaining


def _delete(client: Client, where: str, selector: str) -> None:
    """Delete all objects of a kind with these labels. An API server ends a request after a minute, with a part of thousands deleted."""
    for attempts_left in reversed(range(DELETES)):
        try:
            client.delete(where, labelSelector=selector, propagationPolicy="Background")
            return
        except KubeError as error:
            if not attempts_left or not (error.status == 504 or "no answer in time" in error.reason):
                raise


def left_over(client: Client) -> dict[str, list[Object]]:
    """Return {run id: our objects in the client's namespace}, without their contents."""
    runs: dict[str, list[Object]] = {}
    for api, resource in KINDS:
        try:
            for page in client.pages(path(api, client.namespace, resource), labelSelector=marks.OURS):
                for item in page["items"]:
                    run = (item["metadata"].get("labels") or {}).get(marks.RUN, "")
                    runs.setdefault(run, []).append({"resource": resource, "metadata": item["metadata"]})
        except KubeError as error:
            if error.status not in _NONE_OF_OURS:
                raise
    return runs


def janitor(client: Client, own_run: str = "", own_stage: str = "") -> list[str]:
    """Remove abandoned launches, and earlier launches of this stage of our own run from the client's inventory host. Launches of a run that
    is alive stay, and so do those of other inventory hosts of our own run. Return one sentence for each removed launch."""
    removed = []
    launches: dict[str, list[Object]] = {}
    for items in left_over(client).values():
        for item in items:
            launches.setdefault((item["metadata"]["labels"]).get(marks.LAUNCH, ""), []).append(item)
    for launch, items in launches.items():
        labels = items[0]["metadata"]["labels"]
        same = own_run and (labels.get(marks.RUN), labels.get(marks.STAGE)) == (own_run, own_stage)
        launched_here = same and marks.launched_by(items[0], client.name)
        marked = [item for item in items if marks.EXPIRES in (item["metadata"].get("annotations") or {})]
        if launched_here or not marked or all(marks.abandoned(item) for item in marked):
            selector = f"{marks.OURS},{marks.LAUNCH}={launch}" if launch else f"{marks.OURS},!{marks.LAUNCH}"
            remove(client, selector)
            removed.append(f"{client.name}: removed {len(items)} objects of run {labels.get(marks.RUN, '?')}")
    return removed + leases.give_back(client, leases.abandoned(client))


def of_run(run_id: str) -> str:
    """Return the label selector for all objects of one run."""
    return f"{marks.OURS},{marks.RUN}={run_id}"


HELD = {
    marks.DETACHED: f"detached: {collection.playbook('resume')} collects it",
    marks.KEPT: f"kept for a look at what failed: {collection.playbook('cleanup')} removes it",
}


def report(client: Client) -> t.Iterator[str]:
    """Yield one line for each run that has objects on the cluster, and for each cordon and each Lease on a system under test."""
    for run, items in sorted(left_over(client).items()):
        kinds: dict[str, int] = {}
        for item in items:
            kinds[item["resource"]] = kinds.get(item["resource"], 0) + 1
        holder = "abandoned" if all(marks.abandoned(item) for item in items) else "held by its controller"
        holders = {(item["metadata"].get("annotations") or {}).get(marks.CONTROLLER) for item in items}
        if holder != "abandoned" and len(holders) == 1:
            holder = HELD.get(str(holders.pop()), holder)
        yield f"{client.name}: run {run or '?'}: {', '.join(f'{n} {kind}' for kind, n in sorted(kinds.items()))}; {holder}"
    for node in leases.cordoned(client):
        holder = "abandoned" if marks.abandoned(node) else "held by its controller"
        yield f"{client.name}: run {node['metadata']['labels'][leases.CORDONED]}: cordon of node {node['metadata']['name']}; {holder}"
    for lease in leases.systems(client):
        metadata = lease["metadata"]
        holder = "abandoned" if marks.abandoned(lease) else "held by its controller"
        yield f"{client.name}: run {metadata['labels'][marks.RUN]}: Lease on the system in namespace {metadata['namespace']}; {holder}"
