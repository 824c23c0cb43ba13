# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks the manifest of a stage: this plane puts a plain Job or DaemonSet on nodes, and nothing else.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

JOB, DAEMONSET = "Job", "DaemonSet"
_API = {JOB: "batch/v1", DAEMONSET: "apps/v1"}
# What the container hears of us by its environment.
ENVIRONMENT = ("GPUFLEET_SECRET", "GPUFLEET_POD_UID", "GPUFLEET_NODE", "GPUFLEET_NONCE")
# A manifest with this annotation, `framed`, prints its result; without it its exit status is the result.
RESULT = "gpufleet.acceptance/result"
FRAMED = "framed"

Object = t.Dict[str, t.Any]


def problem(manifest: t.Any) -> str | None:
    """Return what of a manifest cannot be put on nodes, or is not for the user to say; None if it is right."""
    kind = manifest.get("kind") if isinstance(manifest, dict) else None
    if kind not in _API or manifest.get("apiVersion") != _API[kind]:
        kind_given = f"{manifest.get('apiVersion')} {kind}" if isinstance(manifest, dict) else type(manifest).__name__
        return f"found {kind_given}, expected a Job of batch/v1 or a DaemonSet of apps/v1"
    metadata = manifest.get("metadata") or {}
    if metadata.get("namespace"):
        return f"metadata.namespace: found {metadata['namespace']!r}, expected none: see acceptance_kube_namespace"
    framing = (metadata.get("annotations") or {}).get(RESULT, FRAMED)
    if framing != FRAMED:
        return f"annotation {RESULT}: found {framing!r}, expected {FRAMED}, or none where the exit status is the result"
    pod = ((manifest.get("spec") or {}).get("template") or {}).get("spec") or {}
    containers = pod.get("containers")
    good = [isinstance(container, dict) and container.get("image") for container in containers] if isinstance(containers, list) else []
    if not isinstance(containers, list) or not good or not all(good):
        return "spec.template.spec.containers: expected containers with images, the first of which is judged"
    placed = [field for field in ("nodeName", "nodeSelector") if pod.get(field)]
    placed += ["affinity.nodeAffinity"] if (pod.get("affinity") or {}).get("nodeAffinity") else []
    if placed:
        return f"spec.template.spec.{placed[0]} is not for the manifest to say: see acceptance_nodes"
    for container in containers:
        reserved_names = [item["name"] for item in container.get("env") or [] if item.get("name") in ENVIRONMENT]
        if reserved_names:
            return f"env {reserved_names[0]} is not for the manifest to say"
    return None


def image(manifest: Object) -> str:
    """The image of the container that is judged."""
    return str(manifest["spec"]["template"]["spec"]["containers"][0]["image"])


def framed(manifest: Object) -> bool:
    """Return True if the manifest prints a result."""
    return RESULT in ((manifest.get("metadata") or {}).get("annotations") or {})
