# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guardian pods: one on each node, which sets the CPU governor for the test pod (module_utils/lease/guardian_pod.py).

They are a launch of their own, created before the test pods and removed after them. If a guardian cannot run, its node is measured without
a change of the governor.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import posixpath
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import registry as accelerators
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import guardian_pod
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease.governor import CPUS
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.session import DEFAULT_STATE_DIR
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup, states
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError, Object
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import PodSettings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.watch import ADDED, FAILED, GONE
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.following import Follower, Pod
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.heartbeat import Heartbeat
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.loop import Handler, PodLoop
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.probe import SUBMITTERS

RESOURCES = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}}
# Seconds for a guardian to restore the governor. It needs one second at most, even on a busy node.
GRACE_S = 30
# Seconds by which the guardian's own deadline comes before that of its pod.
EARLIER_S = 30.0


def requested(switch: str, settings: t.Mapping[str, t.Any], allow: t.Sequence[str]) -> bool:
    """Return True if the variable `switch` requests guardians. Raise KubeError if `allow` (acceptance_kube_allow) lacks what they need."""
    is_requested = bool(settings.get(switch))
    if is_requested and "privileged" not in allow:
        raise KubeError("bad_spec", f"{switch}: a guardian pod is privileged; acceptance_kube_allow does not name privileged")
    folder = str(settings.get("acceptance_state_dir") or "/")
    if is_requested and not folder.startswith("/"):
        raise KubeError("bad_spec", f"acceptance_state_dir: found {folder!r}, expected a whole path, for the ledger of {switch}")
    return is_requested


def pods_of(pods: PodSettings) -> PodSettings:
    """Return the settings of guardian pods: those of a cluster's pods without what only tests need."""
    return dataclasses.replace(
        pods, privileged=True, host_root=False, host_network=False, host_ipc=False, shm_size="", capabilities=(), resources=RESOURCES,
        runtime_class="", results={}, env={**pods.env, **accelerators.hidden()},
    )  # fmt: skip


class Guardians:
    """One guardian pod on each node.

    `pods`: the settings of the cluster's pods. `governor`: the CPU governor to set. `state_dir`: the folder of the ledger of SSH sessions
    on the same node, empty for the default. `archive`: the payload.
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
        # {node: address of its guardian, or why there is none}, without the nodes whose guardian may still start.
        self._facts: dict[str, Object] = {}
        self._waiting: dict[str, Pod] = {}
        self._over = False
        # Only the start of a guardian is waited for, so its run time has no limit.
        self._following = Follower(client, self.pods, self.launch.selector, float("inf"), f"{client.name}: {stage}, guardians,")
        handlers: dict[str, Handler] = {ADDED: self._update, GONE: self._removed, FAILED: self._watch_failed}
        self._loop = PodLoop(self._following, handlers, look=self._look_after)

    def start(self, nodes: list[str], deadline_s: float) -> None:
        """Create the guardians, to end within `deadline_s` seconds. Never raises: facts_of() says why a node has none."""
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
            # If the first is refused for its spec, all would be.
            self.client.post(self.path, bodies[0])
        except KubeError as error:
            for node in nodes:
                self._give_up(node, error.reason_code, error.reason)
            return
        with concurrent.futures.ThreadPoolExecutor(SUBMITTERS) as pool:
            list(pool.map(self._make, nodes[1:], bodies[1:]))

    def settled(self) -> bool:
        """Return True if every guardian runs or is given up."""
        self._loop.take(0.0)
        self._loop.look()
        return not self._waiting

    def _look_after(self, now: float) -> None:
        """Give up guardians that take too long, and tell people what is waited for."""
        for node, pod in list(self._waiting.items()):
            if trouble := self._following.trouble(pod, now):
                self._give_up(node, *trouble)
        self._following.waiting(list(self._waiting.values()), now)

    def _removed(self, pod: Object) -> None:
        self._give_up(str(pod.get("spec", {}).get("nodeName")), "pod_deleted", "somebody deleted it")

    def _watch_failed(self, error: KubeError) -> None:
        for node in list(self._waiting):
            self._give_up(node, error.reason_code, error.reason)

    def facts_of(self, node: str) -> Object:
        """Return the facts for guardian_pod.Held on a node: its guardian's address, or why there is none."""
        return {"governor": self.governor, **self._facts[node]}

    def stop(self) -> None:
        """Stop following the guardians."""
        self.heartbeat.stop()
        self._following.stop()

    def clean(self) -> list[str]:
        """Remove the guardians, which restores the governors. Return the objects that are still there."""
        self._over = True
        remaining = cleanup.remove(self.client, self.launch.selector, cleanup.KINDS_OF_PROBES, wait_s=float(GRACE_S))
        self.heartbeat.end(self.client)
        return remaining

    def _request(self) -> Object:
        """Return the request to the guardians."""
        return {
            "governor": self.governor, "state_dir": objects.HOST + self.state_dir, "machine": objects.HOST, "port": guardian_pod.PORT,
            "run_id": self.launch.run_id, "stage": self.launch.stage, "timeout": self.launch.deadline_s - EARLIER_S,
        }  # fmt: skip

    def _pod(self, node: str, place: int) -> Object:
        pod = self.launch.pod(f"{self.launch.name}-{place}", 0, self.pods)
        pod["metadata"]["labels"]["component"] = "guardian"
        spec = pod["spec"]
        # A killed guardian is restarted, and then restores the governor.
        spec.update(nodeName=node, restartPolicy="OnFailure", terminationGracePeriodSeconds=GRACE_S)
        container = spec["containers"][0]
        container["securityContext"]["runAsUser"] = 0
        # The ledger names files of /sys by the node's paths. The ledger's folder is created and removed, so its parent is mounted, with
        # propagation, so that other mounts below it can still be unmounted.
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

    def _update(self, pod: Object) -> None:
        node = str(pod["spec"].get("nodeName") or "")
        if node not in self._waiting:
            return
        guardian = self._waiting[node]
        guardian.see(pod)
        if guardian.going_on and not guardian.state.code and guardian.address:
            key = frame.nonce_of(self.launch.secret, guardian.uid)
            self._facts[node] = {"address": guardian.address, "port": guardian_pod.PORT, "key": key}
            del self._waiting[node]
        elif guardian.state.phase == states.ENDED:
            self._give_up(node, guardian.state.code or "no_result", guardian.state.words or "it has ended")

    def _give_up(self, node: str, code: str, reason: str) -> None:
        if self._waiting.pop(node, None):
            self._facts[node] = {"reason_code": code, "reason": f"its guardian pod: {reason}"[:500]}
