# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the launchers of groups that a cluster has: its API serves them, and we have the rights.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import access
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError

MPIJOB, VOLCANO, PYTORCHJOB, JOB, STATEFULSET = "mpijob", "volcano", "pytorchjob", "job", "statefulset"
AUTO = "auto"
# The order in which launchers are tried. Volcano starts all pods of a group or none; a Job ends by itself, a StatefulSet does not.
# A PyTorchJob needs the rights of a Job and more, so it would never be chosen after a Job (docs/launchers.md has its advantages).
ORDER = (MPIJOB, VOLCANO, PYTORCHJOB, JOB, STATEFULSET)
# Launchers that the API may lack: (group, version, resource).
SERVED = {
    MPIJOB: ("kubeflow.org", "v2beta1", "mpijobs"),
    VOLCANO: ("batch.volcano.sh", "v1alpha1", "jobs"),
    PYTORCHJOB: ("kubeflow.org", "v1", "pytorchjobs"),
}

_MADE = ("create", "get", "list", "deletecollection")


def _rights(verbs: t.Iterable[str], group: str, *resources: str) -> tuple[access.Right, ...]:
    return tuple((verb, group, resource, "") for resource in resources for verb in verbs)


# Rights that every launcher needs: for the payload, the pods' states and logs, and the cluster's events.
COMMON: tuple[access.Right, ...] = (
    ("get", "", "namespaces", ""),
    *_rights(_MADE, "", "configmaps"),
    *_rights(("get", "list", "watch"), "", "pods"),
    ("get", "", "pods", "log"),
    ("list", "discovery.k8s.io", "endpointslices", ""),
    ("list", "", "events", ""),
)
_OF_OUR_OWN = (*_rights(_MADE, "", "secrets", "services"), *_rights(_MADE, "batch", "jobs"))
RIGHTS: dict[str, tuple[access.Right, ...]] = {
    MPIJOB: _rights(_MADE, "kubeflow.org", "mpijobs"),
    VOLCANO: _rights(_MADE, "batch.volcano.sh", "jobs"),
    PYTORCHJOB: (*_OF_OUR_OWN, *_rights(_MADE, "kubeflow.org", "pytorchjobs")),
    JOB: _OF_OUR_OWN,
    STATEFULSET: (*_OF_OUR_OWN, *_rights(_MADE, "apps", "statefulsets")),
}


class Choice(t.NamedTuple):
    """The launchers to try in this order, and a sentence for each that cannot be used."""

    kinds: list[str]
    why: list[str]


def choose(client: Client, launcher: str = AUTO) -> Choice:
    """Return the usable launchers, or the one named. Raise KubeError that names what is missing if none can be used."""
    if launcher != AUTO and launcher not in ORDER:
        raise KubeError("bad_spec", f"{client.name}: launcher {launcher!r}: expected one of {', '.join((AUTO, *ORDER))}")
    access.require(client, COMMON)
    kinds, why = [], []
    for kind in ORDER if launcher == AUTO else (launcher,):
        reason = absent(client, kind)
        if not reason:
            lacking = access.missing(client, RIGHTS[kind])
            reason = KubeError("no_permission", f"we may not {', '.join(lacking)}; apply the role of files/rbac") if lacking else None
        if reason is None:
            kinds.append(kind)
        elif launcher != AUTO:
            raise KubeError(reason.reason_code, f"{client.name}: namespace {client.namespace}: launcher {kind}: {reason.reason}")
        else:
            why.append(f"not {kind}: {reason.reason}")
    if not kinds:
        raise KubeError("no_launcher", f"{client.name}: namespace {client.namespace}: no launcher can be used: {'; '.join(why)}")
    return Choice(kinds, why)


def absent(client: Client, kind: str) -> KubeError | None:
    """Return why the API has no such launcher, None if it serves it."""
    if kind not in SERVED:
        return None
    group, version, resource = SERVED[kind]
    if _has(client, f"{group}/{version}", resource):
        return None
    # Another operator may have a CRD of the same name in another version. The two cannot be in one cluster.
    try:
        other_versions = [served["version"] for served in client.get(f"/apis/{group}")["versions"]]
    except KubeError as error:
        if error.status != 404:
            raise
        other_versions = []
    other_versions = [other_version for other_version in other_versions if _has(client, f"{group}/{other_version}", resource)]
    if other_versions:
        return KubeError(
            "no_launcher",
            f"the API serves {resource} of {group} in version {', '.join(other_versions)} only, which is another operator's; "
            f"{version} is needed",
        )
    return KubeError("no_launcher", f"the API does not serve {resource} of {group}/{version}: its operator is not installed")


def _has(client: Client, version: str, resource: str) -> bool:
    try:
        return any(served["name"] == resource for served in client.get(f"/apis/{version}")["resources"])
    except KubeError as error:
        if error.status == 404:
            return False
        raise
