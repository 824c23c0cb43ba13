# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The heartbeat of a controller: the cluster removes a launch within a minute after the last one.

A Job without pods owns everything of the launch. Its deadline is `LAPSE_S` away, and each heartbeat moves it on. When the heartbeats end,
because the controller's process, machine or network is gone, the cluster's own controllers do the rest: the Job fails at its deadline, is
removed because its `ttlSecondsAfterFinished` is 0, and the garbage collector removes what it owns. No pod needs rights for that.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import access, cleanup, marks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError, Object
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import PodSettings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects

# Seconds between heartbeats, from a heartbeat to the new deadline, for one request, and until a failed request is repeated. All objects are
# removed 60 s after the last heartbeat if the cluster needs at most 15 s, of which 5 s are the grace period of the pods. An API server may
# be unreachable for LAPSE_S - BEAT_S without harm.
BEAT_S, LAPSE_S, ANSWER_S, AGAIN_S = 5.0, 45.0, 5.0, 1.0
JOBS = "/apis/batch/v1"


class Heartbeat:
    """The Job that owns one launch, and the thread that moves its deadline on until `stop()`."""

    def __init__(self, client: Client, launch: objects.Launch) -> None:
        self.client = client
        self.launch = launch
        self.name = ""
        self._began = self._beaten = 0.0
        self._lapsed = False
        self._problem = ""  # of the last heartbeat that failed
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, settings: PodSettings) -> None:
        """Create the Job, make it the owner of the launch, and start the heartbeats. If we lack the rights or the cluster refuses the Job,
        warn and return; then only the deadlines of the pods limit how long they stay."""
        try:
            lacking = access.missing(self.client, access.HEARTBEAT)
            if lacking:
                self._warn(f"we may not {', '.join(lacking)}; apply the roles of files/rbac again")
                return
            name = f"gpufleet-alive-{secrets.token_hex(6)}"
            self._began = self._beaten = time.monotonic()
            created = self.client.post(self._path(), job(name, self.launch, settings), **objects.STRICT)
        except KubeError as error:
            if error.reason_code in ("cluster_unreachable", "credentials", "namespace_gone"):
                raise
            self._warn(f"the cluster refuses the Job of the heartbeat: {error.reason}")
            return
        self.name = name
        self.launch.own({"apiVersion": "batch/v1", "kind": "Job", "metadata": created["metadata"]})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the heartbeats. The cluster then removes the objects that are still there."""
        if self._thread:
            self._stopped.set()
            self._thread.join(ANSWER_S)
            self._thread = None

    def end(self, client: Client | None = None) -> None:
        """Stop, and remove the Job. If that fails, the Job removes itself at its deadline. `client`: in a process that was forked, one of
        its own."""
        self.stop()
        if self.name:
            query = {"labelSelector": self.launch.selector, "fieldSelector": f"metadata.name={self.name}"}
            with contextlib.suppress(KubeError):
                (client or self.client).delete(self._path(), propagationPolicy="Background", **query)

    def lapsed(self) -> str:
        """Return why the cluster has removed the launch although this process is alive, empty if it has not."""
        if not self.name or self._stopped.is_set():
            return ""
        if not self._lapsed and time.monotonic() - self._beaten > 2 * BEAT_S:
            self._beat()
        if not self._lapsed:
            return ""
        return (
            f"the cluster took this controller for dead and removed its pods: no heartbeat reached Job {self.name} for {LAPSE_S:.0f} s; "
            f"look at the way from here to the API server{self._problem and f' (before: {self._problem})'}"
        )

    def _run(self) -> None:
        pause = BEAT_S
        while not self._stopped.wait(pause) and not self._lapsed and self._elapsed() < self.launch.deadline_s:
            pause = BEAT_S if self._beat() else AGAIN_S

    def _beat(self) -> bool:
        """Move the deadline on. Return True if the API server has answered."""
        spec = {"activeDeadlineSeconds": int(self._elapsed() + LAPSE_S)}
        try:
            answer = self.client.patch_once(f"{self._path()}/{self.name}", {"spec": spec}, ANSWER_S)
        except KubeError as error:
            self._lapsed = self._lapsed or error.status == 404
            self._problem = self._problem if error.status == 404 else error.reason
            return self._lapsed
        self._beaten = time.monotonic()
        self._lapsed = self._lapsed or bool(answer["metadata"].get("deletionTimestamp"))
        return True

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _path(self) -> str:
        return cleanup.path(JOBS, self.client.namespace, "jobs")

    def _warn(self, why: str) -> None:
        Display().warning(
            f"{self.client.name}: {self.launch.stage}: if this machine dies, its pods stay until their deadline, "
            f"{self.launch.deadline_s:.0f} s: {why}"
        )


def job(name: str, launch: objects.Launch, settings: PodSettings) -> Object:
    """A Job that never makes a pod, `parallelism` being 0, and is removed `LAPSE_S` after the last heartbeat."""
    nothing = {
        "name": marks.CONTAINER, "image": settings.image, "command": ["true"],
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "1m", "memory": "1Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True},
    }  # fmt: skip
    spec = {
        "restartPolicy": "Never", "automountServiceAccountToken": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}, "containers": [nothing],
    }  # fmt: skip
    metadata = launch.metadata(name, "heartbeat", settings)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "parallelism": 0, "completions": 1, "backoffLimit": 0,
            "activeDeadlineSeconds": int(LAPSE_S), "ttlSecondsAfterFinished": 0,
            "template": {"metadata": {"labels": dict(metadata["labels"])}, "spec": spec},
        },
    }  # fmt: skip
