# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of a cluster out of service: cordoned, with an annotation that says why and a label with the run. No pod is evicted.

Each change names the version of the node that was read, so that the API server refuses it if the node has changed since.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import datetime

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import marks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError, Object
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.node_control import NodeChangedError, NodeControl, NodeState
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

# Annotations with the reason of a cordon and with a note, and the label by which quarantined nodes are selected.
REASON, COMMENT, LABEL = f"{marks.DOMAIN}/quarantine", f"{marks.DOMAIN}/quarantine-comment", f"{marks.DOMAIN}/quarantined"
NODES = "/api/v1/nodes"
# The taint that the control plane puts on a cordoned node, with the time.
CORDONED = "node.kubernetes.io/unschedulable"
NOT_FOUND, CONFLICT = 404, 409


class KubeControl(NodeControl):
    def __init__(self, client: Client) -> None:
        self.client = client

    def nodes(self) -> list[NodeState]:
        try:
            return [self._state(item) for page in self.client.pages(NODES) for item in page["items"]]
        except KubeError as error:
            raise RunError(error.reason) from error

    def read(self, name: str) -> NodeState | None:
        try:
            return self._state(self.client.get(self._path(name)))
        except KubeError as error:
            if error.status == NOT_FOUND:
                return None
            raise RunError(error.reason) from error

    def drain(self, node: NodeState, reason: str) -> None:
        self._patch(node, {"annotations": {REASON: reason}, "labels": {LABEL: "true"}}, {"unschedulable": True})

    def resume(self, node: NodeState) -> None:
        self._patch(node, {"annotations": {REASON: None}, "labels": {LABEL: None}}, {"unschedulable": None})

    def comment(self, node: NodeState, text: str) -> None:
        self._patch(node, {"annotations": {COMMENT: text or None}}, {})

    def _state(self, item: Object) -> NodeState:
        metadata = item["metadata"]
        annotations = metadata.get("annotations") or {}
        return NodeState(
            f"{self.client.name}/{metadata['name']}", bool((item.get("spec") or {}).get("unschedulable")),
            str(annotations.get(REASON) or ""), str(annotations.get(COMMENT) or ""), version=metadata["resourceVersion"],
            held_at=_cordoned_at(item.get("spec") or {}), since=_seconds(metadata.get("creationTimestamp")),
            boot=str(((item.get("status") or {}).get("nodeInfo") or {}).get("bootID") or ""),
        )  # fmt: skip

    def _patch(self, node: NodeState, metadata: Object, spec: Object) -> None:
        try:
            self.client.patch(self._path(node.name), {"metadata": {**metadata, "resourceVersion": node.version}, "spec": spec})
        except KubeError as error:
            raise (NodeChangedError if error.status == CONFLICT else RunError)(error.reason) from error

    def _path(self, name: str) -> str:
        return f"{NODES}/{name.removeprefix(f'{self.client.name}/')}"


def _cordoned_at(spec: Object) -> int:
    """Return when a node was cordoned, in seconds since 1970, 0 if that is not known."""
    return next((_seconds(taint.get("timeAdded")) for taint in spec.get("taints") or () if taint.get("key") == CORDONED), 0)


def _seconds(text: object) -> int:
    """Return a time of the API in seconds since 1970, 0 if there is none."""
    with contextlib.suppress(ValueError):
        return int(datetime.datetime.fromisoformat(str(text or "")).timestamp())
    return 0
