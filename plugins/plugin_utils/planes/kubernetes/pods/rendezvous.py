# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that need each other: a probe on every node of a cluster that begins when all of them are there.

The address of a pod is known when it runs. Once no pod is left that may still start, each is told the addresses of all and its own
part, by an annotation that it reads as a file (the downward API): the kubelet writes such a file as soon as the pod changes, while a
ConfigMap may take a minute, and a name in DNS half of one where it was asked for too early.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import base64
import concurrent.futures
import json
import time
import typing as t
import zlib

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import marks, states
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import Object
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.guardians import Guardians
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.probe import (
    SUBMITTERS,
    NodeProbe,
    NodeRequest,
    NodeResult,
)

RENDEZVOUS, REMINDER = f"{marks.DOMAIN}/meeting", f"{marks.DOMAIN}/reminder"
# After how many seconds the pods are changed again, and the longest such pause.
AGAIN_S, AGAIN_MOST_S = 2.0, 40.0
FOLDER, FILE = "/gpufleet/told", "meeting"
# By this patch a pod can read its annotation.
PATCH: Object = {
    "spec": {
        "volumes": [
            {
                "name": "told",
                "downwardAPI": {"items": [{"path": FILE, "fieldRef": {"fieldPath": f"metadata.annotations['{RENDEZVOUS}']"}}]},
            }
        ]
    },
    "container": {"volumeMounts": [{"name": "told", "mountPath": FOLDER, "readOnly": True}]},
}


class Rendezvous(NodeProbe):
    """As a NodeProbe, whose pods are told {"addresses": {node: address}} of all that run, what `parts` has for their node, and where
    its guardian is, with `guardians`."""

    def __init__(self, parts: dict[str, Object], guardians: Guardians | None, *args: t.Any) -> None:
        super().__init__(*args)
        self.parts = parts
        self.guardians = guardians
        self.addresses: dict[str, str] = {}
        self.met = False
        self._again = self._pause = 0.0

    def run(self, node_requests: list[NodeRequest]) -> t.Iterator[list[NodeResult]]:
        """As that of a NodeProbe; guardians come first."""
        if not self.guardians:
            yield from super().run(node_requests)
            return
        try:
            self.guardians.start([item.node for item in node_requests], self.launch.deadline_s)
            yield from super().run(node_requests)
        finally:
            self.guardians.stop()

    def ended(self) -> bool:
        return not self.guardians and super().ended()

    def clean(self) -> list[str]:
        """As that of a NodeProbe; guardians go last."""
        try:
            remaining = super().clean()
        finally:
            remaining_guardians = self.guardians.clean() if self.guardians else []
        return [*remaining, *remaining_guardians]

    def _seen(self, pod: Object) -> None:
        super()._seen(pod)
        address = (pod.get("status") or {}).get("podIP")
        node = pod["spec"].get("nodeName")
        if address and node:
            self.addresses[node] = str(address)

    def _look(self) -> list[NodeResult]:
        """Tell them, as soon as each pod runs or is given up."""
        if self.met:
            self._remind()
            return []
        settled = self.guardians is None or self.guardians.settled()
        if any(followed.state.phase == states.PENDING for followed in self.followed.values()):
            return []
        running = {
            node: followed.name
            for node, followed in self.followed.items()
            if followed.state.phase in (states.RUNNING, states.READY) and not followed.ended
        }
        if not settled or any(node not in self.addresses for node in running):
            return []
        self.met = True
        self._pause = AGAIN_S
        self._again = time.monotonic() + self._pause
        addresses = {f"{self.client.name}/{node}": self.addresses[node] for node in running}
        with concurrent.futures.ThreadPoolExecutor(SUBMITTERS) as pool:
            messages = ({"addresses": addresses, **self.parts[node], **self._guardian(node)} for node in running)
            failed = list(pool.map(self._tell, running.values(), messages))
        answers: list[NodeResult] = []
        for node, error in zip(running, failed, strict=True):
            if error is not None and error.status != 404:  # one that is gone is noticed as such
                reason = f"the addresses of the other nodes could not be sent to its pod: {error.reason}"
                answers += self._refuse(node, error.reason_code, reason)
        return answers

    def _guardian(self, node: str) -> Object:
        return {"guardian": self.guardians.facts_of(node)} if self.guardians else {}

    def _remind(self) -> None:
        """Change the pods once more, less and less often: a kubelet may miss a change that comes while the pod is just starting."""
        now = time.monotonic()
        if self._pause > AGAIN_MOST_S or now < self._again:
            return
        self._pause *= 2
        self._again = now + self._pause
        body = {"metadata": {"annotations": {REMINDER: f"{self._pause:g}"}}}
        names = [followed.name for followed in self.followed.values() if not followed.ended]
        with concurrent.futures.ThreadPoolExecutor(SUBMITTERS) as pool:
            list(pool.map(lambda name: self._patch(name, body), names))

    def _tell(self, name: str, message: Object) -> KubeError | None:
        # All annotations of an object may have 256 KiB; timetables say much the same again and again.
        packed = base64.b64encode(zlib.compress(json.dumps(message).encode(), 9)).decode()
        return self._patch(name, {"metadata": {"annotations": {RENDEZVOUS: packed}}})

    def _patch(self, name: str, body: Object) -> KubeError | None:
        try:
            self.client.patch(f"{self.pods}/{name}", body)
        except KubeError as error:
            return error
        return None
