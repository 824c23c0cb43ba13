# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guardian pods: beside the test pod of each node one that holds the CPU governor for it (module_utils/guardian_pod.py).

They are a launch of their own, made before the test pods and removed after them. What keeps one from running costs its node the
switch and nothing else.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import posixpath
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import frame, guardian_pod
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import registry as accelerators
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes.governor import CPUS
from ansible_collections.gpufleet.acceptance.plugins.module_utils.session import DEFAULT_STATE_DIR
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup, states
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import Object, PodSettings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.watch import ADDED, FAILED, GONE
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.following import Follower, Pod
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.heartbeat import Heartbeat
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.probe import SUBMITTERS

RESOURCES = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}}
# To give back takes a second at most, on whatever else the node does meanwhile.
GRACE_S = 30
# The guardian's own deadline comes before that of its pod.
EARLIER_S = 30.0


def requested(switch: str, settings: t.Mapping[str, t.Any], allow: t.Sequence[str]) -> bool:
    """Whether the variable `switch` asks for guardians; KubeError where `allow`, acceptance_kube_allow, does not name what they need."""
    is_requested = bool(settings.get(switch))
    if is_requested and "privileged" not in allow:
        raise KubeError("bad_spec", f"{switch}: a guardian pod is privileged; acceptance_kube_allow does not name privileged")
    folder = str(settings.get("acceptance_state_dir") or "/")
    if is_requested and not folder.startswith("/"):
        raise KubeError("bad_spec", f"acceptance_state_dir: found {folder!r}, expected a whole path, for the ledger of {switch}")
    return is_requested


def pods_of(pods: PodSettings) -> PodSettings:
    """What the pods of a cluster become for guardians: nothing of what a test needs."""
    return dataclasses.replace(
        pods, privileged=True, host_root=False, host_network=False, host_ipc=False, shm_size="", capabilities=(), resources=RESOURCES,
        runtime_class="", results={}, env={**pods.env, **accelerators.hidden()},
    )  # fmt: skip


class Guardians:
    """One guardian pod on each node.

    `pods`: what the pods of the cluster look like. `governor`: the one to hold. `state_dir`: where sessions behind SSH have their
    ledger on the same node, or empty where that is the usual place. `archive`: the payload.
    """

    def __init__(
        self, client: Client, pods: PodSettings, run_id: str, stage: str, archive: bytes, governor: str, state_dir: str = ""
    ) -> None:
        self.client = client
        self.pods = pods_of(pods)
        self.launch = objects.Launch(run_id, stage, client.namespace, 0.0, client.name)
        self.heartbeat = Heartbeat(client, self.launch)
        self.archive = archive
        self.governor = governor
        self.state_dir = posixpath.normpath(state_dir or DEFAULT_STATE_DIR)
        self.path = cleanup.path("/api/v1", client.namespace, "pods")
        # What is known of each node: where its guardian is, or why there is none; nothing as long as it may still come.
        self._known: dict[str, Object] = {}
        self._waiting: dict[str, Pod] = {}
        self._over = False
        # A guardian runs as long as it is let; what is waited for is its start.
        self._following = Follower(client, self.pods, self.launch.selector, float("inf"), f"{client.name}: {stage}, guardians,")

    def start(self, nodes: list[str], deadline_s: float) -> None:
        """Make them, to end within `deadline_s`. Never fails: why a node has none is known then."""
        self.launch.deadline_s = deadline_s
        self._waiting = {node: Pod(node) for node in nodes}
        try:
            self._following.start()
            self.heartbeat.start(self.pods)
            request = {"guardian": self._request()}
            config = self.client.post(
                cleanup.path("/api/v1", self.client.namespace, "configmaps"), self.launch.config(self.archive, [request], self.pods)
            )
            self.launch.own({"apiVersion": "v1", "kind": "ConfigMap", "metadata": config["metadata"]})
            bodies = [self._pod(node, place) for place, node in enumerate(nodes)]
            # Where the first is refused for what it is, so are all.
            self.client.post(self.path, bodies[0])
        except KubeError as error:
            for node in nodes:
                self._give_up(node, error.reason_code, error.reason)
            return
        with concurrent.futures.ThreadPoolExecutor(SUBMITTERS) as pool:
            list(pool.map(self._make, nodes[1:], bodies[1:]))

    def settled(self) -> bool:
        """Whether each runs or is given up."""
        for kind, change in self._following.news(0.0):
            if kind == ADDED:
                self._seen(change)
            elif kind == GONE:
                self._give_up(str(change.get("spec", {}).get("nodeName")), "pod_deleted", "somebody deleted it")
            elif kind == FAILED:
                for node in list(self._waiting):
                    self._give_up(node, change.reason_code, change.reason)
        now = time.monotonic()
        for node, pod in list(self._waiting.items()):
            if trouble := self._following.trouble(pod, now):
                self._give_up(node, *trouble)
        self._following.waiting(list(self._waiting.values()), now)
        return not self._waiting

    def facts_of(self, node: str) -> Object:
        """What guardian_pod.Held on a node is told."""
        return {"governor": self.governor, **self._known[node]}

    def stop(self) -> None:
        """Look at them no more."""
        self.heartbeat.stop()
        self._following.stop()

    def clean(self) -> list[str]:
        """Remove them, which gives back what they hold; what is still there in the end."""
        self._over = True
        remaining = cleanup.remove(self.client, self.launch.selector, cleanup.KINDS_OF_PROBES, wait_s=float(GRACE_S))
        self.heartbeat.end(self.client)
        return remaining

    def _request(self) -> Object:
        """What the guardians themselves are told."""
        return {
            "governor": self.governor, "state_dir": objects.HOST + self.state_dir, "machine": objects.HOST, "port": guardian_pod.PORT,
            "run_id": self.launch.run_id, "stage": self.launch.stage, "timeout": self.launch.deadline_s - EARLIER_S,
        }  # fmt: skip

    def _pod(self, node: str, place: int) -> Object:
        pod = self.launch.pod(f"{self.launch.name}-{place}", 0, self.pods)
        pod["metadata"]["labels"]["component"] = "guardian"
        spec = pod["spec"]
        # Killed it starts again, and gives back then.
        spec.update(nodeName=node, restartPolicy="OnFailure", terminationGracePeriodSeconds=GRACE_S)
        container = spec["containers"][0]
        container["securityContext"]["runAsUser"] = 0
        # The ledger names files of /sys as the node has them. The folder of the ledger is made and removed: what is mounted is the one
        # that it is in. Whatever else is mounted below must not be kept from being unmounted.
        above = posixpath.dirname(self.state_dir)
        for name, path, kind, at in (
            ("cpus", CPUS, "Directory", {"mountPath": CPUS}),
            ("state", above, "DirectoryOrCreate", {"mountPath": objects.HOST + above, "mountPropagation": "HostToContainer"}),
            ("machine", "/etc", "Directory", {"mountPath": f"{objects.HOST}/etc", "readOnly": True}),
        ):
            spec["volumes"].append({"name": name, "hostPath": {"path": path, "type": kind}})
            container["volumeMounts"].append({"name": name, **at})
        return pod

    def _make(self, node: str, body: Object) -> None:
        try:
            if not self._over:
                self.client.post(self.path, body)
        except KubeError as error:
            self._give_up(node, error.reason_code, error.reason)

    def _seen(self, pod: Object) -> None:
        node = str(pod["spec"].get("nodeName") or "")
        if node not in self._waiting:
            return
        guardian = self._waiting[node]
        guardian.see(pod)
        if guardian.going_on and not guardian.state.code and guardian.address:
            key = frame.nonce_of(self.launch.secret, guardian.uid)
            self._known[node] = {"address": guardian.address, "port": guardian_pod.PORT, "key": key}
            del self._waiting[node]
        elif guardian.state.phase == states.ENDED:
            self._give_up(node, guardian.state.code or "no_result", guardian.state.words or "it has ended")

    def _give_up(self, node: str, code: str, reason: str) -> None:
        if self._waiting.pop(node, None):
            self._known[node] = {"reason_code": code, "reason": f"its guardian pod: {reason}"[:500]}
