# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a probe on every node of a cluster that starts when the pods know the addresses of all others.

The address of a pod is known when it runs. When no pod may still start, each gets the addresses of all and its own part by an annotation,
which it reads as a file (the downward API). The kubelet writes such a file as soon as the pod changes. A ConfigMap may take a minute, and
a name in DNS half a minute if it was queried too early.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import base64
import concurrent.futures
import dataclasses
import json
import time
import typing as t
import zlib

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import marks, states
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import settings as of_variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError, Object
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import PodSettings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.guardians import Guardians
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.probe import (
    SUBMITTERS,
    NodeProbe,
    NodeRequest,
    NodeResult,
)

RENDEZVOUS, REMINDER = f"{marks.DOMAIN}/meeting", f"{marks.DOMAIN}/reminder"
# Seconds until the first reminder, and the longest pause between two.
AGAIN_S, AGAIN_MOST_S = 2.0, 40.0
FOLDER, FILE = "/gpufleet/told", "meeting"
# The patch that mounts the annotation into a pod.
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


# {subject id: address} of the running pods -> {subject id: what its pod is told}.
Parts = t.Callable[[t.Mapping[str, str]], t.Mapping[str, Object]]


def told_later(pods: PodSettings) -> PodSettings:
    """Return the settings of pods that are told something after their start."""
    return dataclasses.replace(pods, pod_patch=of_variables.merged(dict(pods.pod_patch), PATCH))


class Rendezvous(NodeProbe):
    """A NodeProbe whose pods get {"addresses": {subject id: address}} of all running pods, what `parts` has for their node, and with
    `guardians` the address of their guardian."""

    def __init__(self, parts: Parts, guardians: Guardians | None, *args: t.Any) -> None:
        super().__init__(*args)
        self.parts = parts
        self.guardians = guardians
        self.addresses: dict[str, str] = {}
        self.met = False
        self._again = self._pause = 0.0

    def run(self, node_requests: list[NodeRequest]) -> t.Iterator[list[NodeResult]]:
        """Run the probe like NodeProbe.run(), after the guardians were created."""
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
        """Remove everything like NodeProbe.clean(), then the guardians."""
        try:
            remaining = super().clean()
        finally:
            remaining_guardians = self.guardians.clean() if self.guardians else []
        return [*remaining, *remaining_guardians]

    def pod_changed(self, pod: Object) -> None:
        super().pod_changed(pod)
        address = (pod.get("status") or {}).get("podIP")
        node = pod["spec"].get("nodeName")
        if address and node:
            self.addresses[node] = str(address)

    def look(self) -> list[NodeResult]:
        """Send the addresses when each pod and guardian runs or is given up. Return the results of nodes to which they cannot be sent."""
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
        if not running:
            return []  # all have ended or were given up, each with its reason
        self._pause = AGAIN_S
        self._again = time.monotonic() + self._pause
        addresses = {f"{self.client.name}/{node}": self.addresses[node] for node in running}
        parts = self.parts(addresses)
        with concurrent.futures.ThreadPoolExecutor(SUBMITTERS) as pool:
            messages = ({"addresses": addresses, **parts[f"{self.client.name}/{node}"], **self._guardian(node)} for node in running)
            failed = list(pool.map(self._tell, running.values(), messages))
        answers: list[NodeResult] = []
        for node, error in zip(running, failed, strict=True):
            if error is not None and error.status != 404:  # the watch reports a pod that is gone
                reason = f"the addresses of the other nodes could not be sent to its pod: {error.reason}"
                answers += self._refuse(node, error.reason_code, reason)
        return answers

    def _guardian(self, node: str) -> Object:
        return {"guardian": self.guardians.facts_of(node)} if self.guardians else {}

    def _remind(self) -> None:
        """Change the pods again, with growing pauses, because a kubelet may miss a change while the pod is starting."""
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
        # The annotations of an object may have 256 KiB in all. Timetables compress well.
        packed = base64.b64encode(zlib.compress(json.dumps(message).encode(), 9)).decode()
        return self._patch(name, {"metadata": {"annotations": {RENDEZVOUS: packed}}})

    def _patch(self, name: str, body: Object) -> KubeError | None:
        try:
            self.client.patch(f"{self.pods}/{name}", body)
        except KubeError as error:
            return error
        return None
