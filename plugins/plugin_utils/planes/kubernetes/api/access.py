# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of our rights on a cluster, before anything is created.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import concurrent.futures
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError

# (verb, API group, resource, subresource). files/rbac has the same rights as roles.
Right = t.Tuple[str, str, str, str]

# Rights in the whole cluster.
NODES: tuple[Right, ...] = (("get", "", "nodes", ""), ("list", "", "nodes", ""))
# Rights in the namespace of the pods.
PROBE: tuple[Right, ...] = (
    ("get", "", "namespaces", ""),
    *((verb, "", "configmaps", "") for verb in ("create", "get", "list", "deletecollection")),
    *((verb, "", "pods", "") for verb in ("create", "get", "list", "watch", "deletecollection")),
    ("get", "", "pods", "log"),
    ("list", "", "events", ""),
)
# Additional rights for the heartbeat of a controller (pods/heartbeat.py). Without them a run goes on without a heartbeat and warns.
HEARTBEAT: tuple[Right, ...] = tuple((verb, "batch", "jobs", "") for verb in ("create", "list", "patch", "deletecollection"))
# Additional rights for pods that receive the addresses of other pods.
RENDEZVOUS: tuple[Right, ...] = (("patch", "", "pods", ""),)
LAUNCHERS: dict[str, tuple[Right, ...]] = {
    "pods": (),
    "daemonset": tuple((verb, "apps", "daemonsets", "") for verb in ("create", "get", "list", "deletecollection")),
    "job": tuple((verb, "batch", "jobs", "") for verb in ("create", "get", "list", "deletecollection")),
}


def missing(client: Client, in_namespace: t.Iterable[Right], in_cluster: t.Iterable[Right] = (), namespace: str = "") -> list[str]:
    """Return the rights that we lack, in the form `create pods`. `namespace` is another one than that of the pods. Raise KubeError if the
    API does not answer."""
    rights = [(namespace or client.namespace, right) for right in in_namespace] + [("", right) for right in in_cluster]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        allowed = list(pool.map(lambda scoped_right: _allowed(client, *scoped_right), rights))
    return [
        f"{verb} {resource}{'/' + sub if sub else ''}{f'.{group}' if group else ''}" + ("" if namespace else " (cluster)")
        for (namespace, (verb, group, resource, sub)), yes in zip(rights, allowed, strict=True)
        if not yes
    ]


def require(client: Client, in_namespace: t.Iterable[Right], in_cluster: t.Iterable[Right] = ()) -> None:
    """Raise KubeError that names all missing rights in one sentence."""
    in_namespace = list(in_namespace)
    lacking = missing(client, in_namespace, in_cluster)
    if lacking and all(not line.endswith(" (cluster)") for line in lacking) and len(lacking) == len(in_namespace):
        raise _nothing_there(client)
    if lacking:
        raise KubeError(
            "no_permission",
            f"{client.name}: in namespace {client.namespace} we may not {', '.join(lacking)}; apply the role of files/rbac",
        )


def _nothing_there(client: Client) -> KubeError:
    """Return the error for a namespace in which we have no right at all: it may not exist, and its RoleBindings with it."""
    where = f"{client.name}: namespace {client.namespace}"
    try:
        client.get(f"/api/v1/namespaces/{client.namespace}")
    except KubeError as error:
        if error.status == 404:
            return KubeError("namespace_gone", f"{where} does not exist: create it or set acceptance_kube_namespace", 404)
    return KubeError(
        "no_permission",
        f"{where}: we may do nothing at all there: it does not exist (kubectl get namespace {client.namespace}), or no RoleBinding in it "
        "gives our user the roles of files/rbac",
    )


def _allowed(client: Client, namespace: str, right: Right) -> bool:
    return may(client, namespace, right, namespace if right[2] == "namespaces" else "")


def may(client: Client, namespace: str, right: Right, name: str = "", account: str = "") -> bool:
    """Return True if we have a right, or, with `account`, if that service account of our namespace has it. `name` limits the right to one
    object. Raise KubeError with status 403 if we may not query the rights of others."""
    verb, group, resource, sub = right
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": sub}
    attributes.update({key: value for key, value in (("namespace", namespace), ("name", name)) if value})
    spec: t.Dict[str, t.Any] = {"resourceAttributes": attributes}
    kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
    if account:
        every = "system:serviceaccounts"
        spec["user"] = f"system:serviceaccount:{client.namespace}:{account}"
        spec["groups"] = [every, f"{every}:{client.namespace}", "system:authenticated"]
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "metadata": {}, "spec": spec}
    answer = client.post(f"/apis/authorization.k8s.io/v1/{kind.lower()}s", review)
    return bool(answer["status"].get("allowed"))
