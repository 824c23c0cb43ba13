# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds what in a cluster's storage blocks an installation or upgrade of Prometheus. It reads only and changes nothing.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError, Object

DEFAULT = "storageclass.kubernetes.io/is-default-class"
OPERATOR = "/apis/monitoring.coreos.com/v1"
NOT_FOUND = 404


def blocking(client: Client, storage_class: str, namespace: str) -> list[str]:
    """Return a sentence for each obstacle to claims of a storage class in a namespace. Raise KubeError if we may not read the objects,
    since an empty list would then be wrong."""
    classes = _listed(client, "/apis/storage.k8s.io/v1/storageclasses")
    claims = _listed(client, cleanup.path("/api/v1", namespace, "persistentvolumeclaims"))
    volumes = _listed(client, "/api/v1/persistentvolumes")
    names = {existing["metadata"]["name"] for existing in classes}
    sentences = [_missing(storage_class, classes)] if storage_class not in names else []
    for resource, kind in (("prometheuses", "Prometheus"), ("alertmanagers", "Alertmanager")):
        for item in _of_operator(client, resource, namespace):
            claim_class = _class_of(((item["spec"].get("storage") or {}).get("volumeClaimTemplate") or {}).get("spec") or {})
            if claim_class and claim_class not in names and claim_class != storage_class:
                sentences.append(f"{kind} {item['metadata']['name']} names StorageClass {claim_class}, which is not there")
    sentences += [line for claim in claims if (line := _blocking_claim(claim, names, storage_class))]
    return sentences + [line for volume in volumes if (line := _released(volume, namespace))]


def _listed(client: Client, path: str) -> list[Object]:
    return [item for page in client.pages(path) for item in page["items"]]


def _of_operator(client: Client, resource: str, namespace: str) -> list[Object]:
    """Return objects of the Prometheus operator, empty if it is not installed."""
    try:
        return _listed(client, cleanup.path(OPERATOR, namespace, resource))
    except KubeError as error:
        if error.status == NOT_FOUND:
            return []
        raise


def _missing(storage_class: str, classes: list[Object]) -> str:
    names = [
        item["metadata"]["name"] + (" (the default)" if (item["metadata"].get("annotations") or {}).get(DEFAULT) == "true" else "")
        for item in classes
    ]
    existing = f"there are {', '.join(sorted(names))}" if names else "there is none at all"
    return f"StorageClass {storage_class} is not there, and a claim of it stays Pending for ever; {existing}"


def _class_of(spec: t.Mapping[str, t.Any]) -> str:
    return str(spec.get("storageClassName") or "")


def _blocking_claim(claim: Object, names: set[str], storage_class: str) -> str:
    """Return why a claim is an obstacle, empty if it is none."""
    name, spec, phase = claim["metadata"]["name"], claim["spec"], (claim.get("status") or {}).get("phase") or "Pending"
    claim_class = _class_of(spec)
    claim_words = f"claim {name} ({phase}, StorageClass {claim_class or 'none'}, volume {spec.get('volumeName') or 'none'})"
    if claim["metadata"].get("deletionTimestamp"):
        return f"{claim_words} is being deleted and waits for whoever uses it"
    if phase == "Lost":
        return f"{claim_words} has lost its volume: whatever mounts it does not start"
    if claim_class and claim_class not in names:
        return f"{claim_words} is of a StorageClass that is not there" + ("" if phase == "Bound" else ", and waits for ever")
    if phase != "Bound":
        return f"{claim_words} waits for a volume: kubectl describe pvc {name} has the events"
    if claim_class != storage_class:
        return (
            f"{claim_words} keeps its class: a StatefulSet of {storage_class} takes it as it is, and an upgrade that changes the class "
            "is refused"
        )
    return ""


def _released(volume: Object, namespace: str) -> str:
    """Return why a volume is an obstacle, empty if it is none."""
    claim, phase = volume["spec"].get("claimRef") or {}, (volume.get("status") or {}).get("phase") or ""
    if claim.get("namespace") != namespace or phase not in ("Released", "Failed"):
        return ""
    keeps = volume["spec"].get("persistentVolumeReclaimPolicy") or "Retain"
    volume_words = f"volume {volume['metadata']['name']} ({phase}, {keeps}) was that of claim {claim.get('name')}"
    return f"{volume_words}, may hold its data, and is given to no new claim while that stands in it"
