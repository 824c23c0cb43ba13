# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follows the pods of a launch: the state of each, the reason why a pod does not go on, and messages to people during a wait.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import queue
import time
import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup, inventory, marks, states
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError, Object
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import PodSettings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.watch import Watch

# Seconds for which a pod on a silent node may come back.
LOST_S = 45.0
# Seconds until the first message about a wait, and until the same message is shown again.
SILENCE_S, AGAIN_S = 10.0, 60.0
SHOWN = 3

UNSEEN = states.State(states.PENDING, "timeout", "the API server has not shown the pod yet")
GOING_ON = (states.RUNNING, states.READY)


class Trouble(t.NamedTuple):
    """The reason why a pod does not go on: a reason code of answer/reasons.py, and words."""

    code: str
    reason: str


@dataclasses.dataclass
class Pod:
    """A pod as the API shows it. `since` is the time at which its state began; for a pod that has not started, the time of its request."""

    node: str = ""
    uid: str = ""
    name: str = ""
    state: states.State = UNSEEN
    since: float = dataclasses.field(default_factory=time.monotonic)
    restarts: int = 0
    image_id: str = ""
    waited_s: float = 0.0
    address: str = ""
    # The pod's name in its Service.
    host: str = ""
    deleted: bool = False
    container: str = marks.CONTAINER
    # The init container that does not start.
    held_by: str = ""

    def see(self, body: Object) -> None:
        """Update the pod from an API object."""
        meta, spec, status = body["metadata"], body["spec"], body.get("status") or {}
        state = states.state(body)
        if (state.phase, state.code) != (self.state.phase, self.state.code) and (
            state.phase != states.PENDING or state.code == "lost_node"
        ):
            self.since = time.monotonic()
        self.uid, self.name, self.state = meta["uid"], str(meta.get("name") or ""), state
        self.node = str(spec.get("nodeName") or self.node)
        self.image_id = states.image_id(body) or self.image_id
        self.waited_s = states.waited_s(body) or self.waited_s
        self.address = str(status.get("podIP") or self.address)
        # The training operator sets no host name, and gives each pod a Service with the pod's name.
        self.host = f"{spec['hostname']}.{spec.get('subdomain')}" if spec.get("hostname") else self.name
        self.container = marks.container(body)
        self.held_by = states.held_by(body)
        self.deleted = bool(meta.get("deletionTimestamp"))
        self.restarts = max(
            (int(container_status.get("restartCount") or 0) for container_status in status.get("containerStatuses") or []), default=0
        )

    @property
    def going_on(self) -> bool:
        return self.state.phase in GOING_ON

    @property
    def words(self) -> str:
        """Return words about the pod, its node and its state."""
        where = f" on {self.node}" if self.node else ""
        return f"pod {self.name}{where}: {self.state.words or self.state.phase}"


class Follower:
    """Follows the pods of one launch, with a time limit for each step and the cluster's reasons for a delay.

    `run_s`: seconds in which a started pod must answer. `waiter`: words for who waits, in messages.
    """

    def __init__(self, client: Client, settings: PodSettings, selector: str, run_s: float, waiter: str) -> None:
        self.client = client
        self.settings = settings
        self.run_s = run_s
        self.waiter = waiter
        # Why the cluster has removed the launch though its controller lives (pods/heartbeat.py); empty if it has not.
        self.lapsed: t.Callable[[], str] = str
        self.watch = Watch(client, cleanup.path("/api/v1", client.namespace, "pods"), selector)
        self._namespace: tuple[float, str] = (0.0, "")
        self._node: tuple[float, str, str] = (0.0, "", "")
        self._began = time.monotonic()
        self._last_message: tuple[float, str] = (0.0, "")

    def start(self) -> None:
        """Start the watch and return when later objects are seen. Raise KubeError if the pods cannot be watched."""
        self.watch.start()
        self._began = time.monotonic()

    def stop(self) -> None:
        self.watch.stop()

    def news(self, wait_s: float, *queues: queue.Queue[tuple[str, t.Any]]) -> t.Iterator[tuple[str, t.Any]]:
        """Yield the entries of `queues` first, then the changes of the watch. Wait at most `wait_s` seconds if there is none."""
        wait = wait_s
        for source in (*queues, self.watch.changes):
            while True:
                try:
                    yield source.get(timeout=wait) if wait and source is self.watch.changes else source.get_nowait()
                    wait = 0.0
                except queue.Empty:
                    break

    # Why one does not go on ------------------------------------------------------------------------------------------

    def trouble(self, pod: Pod, now: float, devices: int = 0, maker_uid: str = "") -> Trouble | None:
        """Return why a pod that has not ended is given up, None if it may go on. `devices` is the number that it requests on its node;
        `maker_uid` is the uid of the controller object that should create the pod and has not."""
        state, waited = pod.state, now - pod.since
        if state.phase == states.HOPELESS:
            return Trouble(state.code, state.words)
        if state.phase == states.PENDING and waited > self.settings.start_timeout:
            words = state.words + self._events(pod, maker_uid) + self._holders(pod, devices)
            return Trouble(state.code, f"not started within {self.settings.start_timeout:.0f} s: {words}")
        if state.code == "lost_node" and waited > LOST_S:
            return Trouble("lost_node", f"{state.words}{self.not_ready(pod.node)}")
        if pod.going_on and waited > self.run_s:
            words = state.words or "its probe has not ended"
            return Trouble(state.code or "timeout", f"no answer within {self.run_s:.0f} s: {words}{self.not_ready(pod.node)}")
        return None

    def why_removed(self, pod: Pod, event: str) -> Trouble:
        """Return why a pod was removed, or is being deleted, before an `event`."""
        if pod.state.code == "evicted":
            return Trouble("evicted", pod.state.words)
        words = self.namespace_gone()
        if words:
            return Trouble("namespace_gone", words)
        if words := self.lapsed():
            return Trouble("pod_deleted", f"{words}; a resume measures again")
        return Trouble("pod_deleted", f"somebody deleted pod {pod.name} before {event}{self._of_node(pod.node)}; a resume measures again")

    @staticmethod
    def unanswered(pod: Pod, error: KubeError) -> Trouble:
        """Return why a pod is given up if the API no longer answers: its deletion, if the API had shown that before."""
        if not pod.deleted:
            return Trouble(error.reason_code, error.reason)
        then = f"then {error.reason}; a resume measures again"
        if pod.state.code == "evicted":
            return Trouble("evicted", f"{pod.state.words}; {then}")
        return Trouble("pod_deleted", f"somebody deleted pod {pod.name} before it had answered; {then}")

    def _of_node(self, node: str) -> str:
        """Return what is wrong with the node of a removed pod. The API is queried at most every two seconds, not for thousands of pods."""
        asked_at, last_node, words = self._node
        if node == last_node:
            return words
        if not node or (asked_at and time.monotonic() - asked_at < 2):
            return ""
        self._node = (time.monotonic(), node, self.not_ready(node))
        return self._node[2]

    def namespace_gone(self) -> str:
        """Return words if the namespace is gone or being deleted, empty if not. The API is queried at most every two seconds."""
        asked_at, words = self._namespace
        if time.monotonic() - asked_at > 2 or not asked_at:
            words = ""
            try:
                namespace = self.client.get(f"/api/v1/namespaces/{self.client.namespace}")
                if namespace["metadata"].get("deletionTimestamp"):
                    words = f"namespace {self.client.namespace} is being deleted"
            except KubeError as error:
                # A namespace that is deleted takes our RoleBinding with it, sometimes before the pods.
                going = {404: "is gone", 403: "is being deleted, or our rights in it were taken away together with its pods"}
                words = f"namespace {self.client.namespace} {going[error.status]}" if error.status in going else ""
            self._namespace = (time.monotonic(), words)
        return words

    def not_ready(self, node: str) -> str:
        """Return why a node is not ready, in the form `; words`; empty if it is ready."""
        try:
            words = inventory.not_ready(self.client.get(f"/api/v1/nodes/{node}"))
        except KubeError as error:
            return f"; node {node} no longer exists" if error.status == 404 else ""
        return f"; {words}" if words else ""

    def warnings(self, uid: str = "", name_prefix: str = "") -> list[tuple[str, str]]:
        """Return (reason, message) of the cluster's warnings about one object, or about objects whose names begin with `name_prefix`."""
        path = cleanup.path("/api/v1", self.client.namespace, "events")
        try:
            selector = "type=Warning" + (f",involvedObject.uid={uid}" if uid else "")
            events = self.client.get(path, fieldSelector=selector, limit=500)["items"]
        except KubeError:
            return []
        named_events = ((event, str((event.get("involvedObject") or {}).get("name"))) for event in events)
        matching = [event for event, name in named_events if not name_prefix or f"{name}-".startswith(f"{name_prefix}-")]
        return list(dict.fromkeys((str(event.get("reason")), " ".join(str(event.get("message")).split())) for event in matching))

    def _events(self, pod: Pod, maker_uid: str) -> str:
        """Return the last two warnings about a pod that does not start. Problems with mounts are reported only in events."""
        uid = pod.uid or maker_uid
        if pod.state.code == "unschedulable" or not uid:
            return ""
        return "".join(f"; {reason}: {message[:280]}" for reason, message in self.warnings(uid)[-2:])

    def _holders(self, pod: Pod, devices: int) -> str:
        """Return words about the pods that hold the devices for which a pod waits, if we may list pods (files/rbac/holders.yaml)."""
        if pod.state.code != "unschedulable" or not devices:
            return ""
        resource = self.settings.resource
        try:
            used_by = holders(self.client, pod.node, resource)
        except KubeError:
            return f"; to name the pods that hold {resource} of {pod.node}, grant files/rbac/holders.yaml"
        users = [f"{name} ({count})" for name, count in used_by.items()]
        return f"; {resource} of {pod.node} is held by {', '.join(users[:10])}" if users else f"; no pod holds {resource} of {pod.node}"

    # A word to people ------------------------------------------------------------------------------------------------

    def waiting(self, pods: t.Iterable[Pod], now: float, extra: str = "") -> None:
        """Show a message about the wait: the first after SILENCE_S, later ones if the reason changes or after AGAIN_S. `extra` names what
        is waited for other than pods that have not started."""
        last_words_at, last_words = self._last_message
        if now - max(last_words_at, self._began) < SILENCE_S:
            return
        words = waited_for(pods, extra)
        if words and (words != last_words or now - last_words_at > AGAIN_S):
            self._last_message = (now, words)
            Display().display(f"{self.waiter} has waited {now - self._began:.0f} s for {words}")


def waited_for(pods: t.Iterable[Pod], extra: str = "") -> str:
    """Return words about the causes for which pods wait to start, the most common first."""
    causes: dict[str, list[str]] = collections.defaultdict(list)
    for pod in pods:
        if pod.state.phase == states.PENDING:
            causes[pod.state.words].append(pod.node or pod.name)
    by_cause = sorted(causes.items(), key=lambda entry: -len(entry[1]))
    sentences = []
    for words, names in by_cause[:SHOWN]:
        examples = ", ".join(sorted(names)[:SHOWN]) + (" ..." if len(names) > SHOWN else "")
        sentences.append(f"{len(names)} pod{'s' if len(names) > 1 else ''} ({examples}): {words}")
    if len(by_cause) > SHOWN:
        sentences.append(f"{sum(len(names) for _words, names in by_cause[SHOWN:])} more")
    return "; ".join([*sentences, *([extra] if extra else [])])


def requested(pod: Object, resource: str) -> int:
    """Return the number of devices that a pod requests: the sum over its containers, or the largest of its init containers."""

    def limits(kind: str) -> list[int]:
        counts = (((c.get("resources") or {}).get("limits") or {}).get(resource, 0) for c in pod["spec"].get(kind) or [])
        return [int(count) for count in counts if str(count).isdigit()]

    return max(sum(limits("containers")), *limits("initContainers"), 0)


def holders(client: Client, node: str, resource: str) -> dict[str, int]:
    """Return {namespace/name: devices} of the pods that hold devices of a node. Raise KubeError if we may not list pods."""
    query = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
    pods = [pod for page in client.pages("/api/v1/pods", fieldSelector=query) for pod in page["items"]]
    counts = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": requested(pod, resource) for pod in pods}
    return {name: count for name, count in sorted(counts.items()) if count}
