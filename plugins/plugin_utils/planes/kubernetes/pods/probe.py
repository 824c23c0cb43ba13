# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a probe on every node of a cluster: one submission, one watch, results as they arrive.

A result comes with the watch, as the termination message of its pod, else from the pod's log. Its node is that in the pod's spec. A result
is accepted only if its frame has the pod's own nonce.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import pathlib
import queue
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import live_output
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup, executing, logs, marks, states
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError, Object
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import PodSettings, merged
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.watch import ADDED, FAILED, GONE
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.following import UNSEEN, Follower, Pod
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.heartbeat import Heartbeat
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.loop import Handler, PodLoop
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import node_messages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer, NodeWork

# {launcher: the objects that create the pods}, empty if we create each pod ourselves.
LAUNCHED_BY: dict[str, list[tuple[str, str]]] = {
    "pods": [],
    "daemonset": [("/apis/apps/v1", "daemonsets")],
    "job": [("/apis/batch/v1", "jobs")],
}
# How long reading the output of a tool in a pod may take.
OUTPUT_S = 10.0
# Threads that create pods. 8 threads created 200 pods in 0.8 s; more do not help with a single API server.
SUBMITTERS = 8
READERS = 16
# Seconds for which a turn of the loop waits for news, and between two looks at pods that take too long.
NEWS_S, LOOK_S = 0.05, 0.5


@dataclasses.dataclass
class NodeRequest:
    """The work of one node: a request of payload.request(), and the number of devices that the node's pod requests."""

    node: str
    request: NodeWork
    devices: int = 0


class NodeResult(t.NamedTuple):
    """The result of one node. `result`: the result of a probe module, or {"state": "refused", "reason_code", "reason"}. `pod`: {"pod",
    "image", "image_id", "pod_waited_s"}."""

    node: str
    result: NodeAnswer
    pod: Object


@dataclasses.dataclass
class FollowedNode(Pod):
    """The pod of a node, with its request. `ended`: it has answered or was given up."""

    request: NodeRequest = dataclasses.field(kw_only=True)
    ended: bool = False


class NodeProbe:
    """One stage on one cluster.

    `timeout`: the probe's own deadline in seconds. `archive`: the payload. `raw`: returns the file for other output of a node's pod.
    A subclass may override create_pods, pod_changed, look, message_of and answer_of.
    """

    def __init__(
        self,
        client: Client,
        settings: PodSettings,
        run_id: str,
        stage: str,
        timeout: float,
        archive: bytes,
        raw: t.Callable[[str], pathlib.Path] | None = None,
    ) -> None:
        self.client = client
        self.settings = settings
        self.archive = archive
        self.raw = raw
        # Three deadlines in this order: the guardian in the pod ends the probe and writes, we give up, the cluster ends the pod.
        self.run_s = timeout + 90.0
        self.launch = objects.Launch(run_id, stage, client.namespace, settings.start_timeout + self.run_s + 60.0, client.name)
        self.pods = cleanup.path("/api/v1", client.namespace, "pods")
        self.heartbeat = Heartbeat(client, self.launch)
        self.following = self._follower()
        # `stay`: pods stay after they have answered. `kept_pods`: {pod: node} of failed pods that are kept for a person.
        self.stay = settings.launcher != "pods" or settings.keep != "never"
        # The probe runs as an init container, and leaves a message, if the pod stays only to hold its place.
        self.goes_before = settings.launcher != "pods" and not settings.shown
        self.kept_pods: dict[str, str] = {}
        if settings.keep != "never":
            self.launch.deadline_s += settings.keep_seconds
            self.launch.holder = marks.KEPT
        self.followed: dict[str, FollowedNode] = {}
        self._arrived: queue.Queue[tuple[str, t.Any]] = queue.Queue()
        self._reading: collections.deque[FollowedNode] = collections.deque()
        # Results that have arrived and were not yielded yet, and the number of logs that are being read.
        self._results: list[NodeResult] = []
        self._being_read = 0
        self._makers: list[str] = []
        self._over = False
        self._unended = False
        self._holding = any(settings.resources.values())
        self._unplaced = UNSEEN

    def run(self, node_requests: list[NodeRequest]) -> t.Iterator[list[NodeResult]]:
        """Run the probe. Yield lists of results as they arrive. Raise KubeError if nothing could be submitted."""
        numbers, requests = _numbered(node_requests)
        ending = self._ending()
        self.following = self._follower()
        self.following.start()
        try:
            if self.settings.keep == "never":  # pods that are kept for a person must outlive their controller
                self.heartbeat.start(self.settings)
            self._make_owner([{**request, **ending} for request in requests])
            with concurrent.futures.ThreadPoolExecutor(SUBMITTERS) as makers, concurrent.futures.ThreadPoolExecutor(READERS) as readers:
                try:
                    self.create_pods(node_requests, numbers, makers)
                    yield from self._follow(readers)
                finally:
                    makers.shutdown(wait=False, cancel_futures=True)
                    readers.shutdown(wait=False, cancel_futures=True)
        finally:
            self.heartbeat.stop()
            self.following.stop()

    def _ending(self) -> Object:
        """Return the fields of a request that say how the probe ends. A probe that stays leaves its result only in the log."""
        if self.goes_before:
            return {"message": objects.MESSAGE, "once": objects.ONCE}
        return {"hold": objects.DONE} if self.stay else {"message": objects.MESSAGE}

    def submit(self, node_requests: list[NodeRequest], stays_s: float) -> tuple[Object, list[NodeResult]]:
        """Create all pods and leave them to the cluster; their results can be collected until `stays_s` seconds after their deadline.
        Return the record for collect(), and the results of nodes whose pods could not be created."""
        self.launch.stays_s, self.launch.holder = stays_s, marks.DETACHED
        numbers, requests = _numbered(node_requests)
        self._make_owner([{**request, "message": objects.MESSAGE} for request in requests])
        with concurrent.futures.ThreadPoolExecutor(SUBMITTERS) as makers:
            self.create_pods(node_requests, numbers, makers)
        refused: list[NodeResult] = []
        while not self._arrived.empty():
            _kind, (node, error) = self._arrived.get_nowait()
            refused += self._refuse(node, error.reason_code, error.reason)
        nodes = sorted(set(self.followed) - {answer.node for answer in refused})
        return {"launch": self.launch.name, "secret": self.launch.secret, "nodes": nodes}, refused

    def collect(self, record: Object, node_requests: list[NodeRequest]) -> t.Iterator[list[NodeResult]]:
        """Yield the results of the pods that submit() has created, like run(). Wait for pods that have not ended."""
        self.launch.name, self.launch.secret = record["launch"], record["secret"]
        self.followed = {item.node: FollowedNode(item.node, request=item) for item in node_requests}
        nodes = {_node(pod) for page in self.client.pages(self.pods, labelSelector=self.launch.selector) for pod in page["items"]}
        words = "its pod no longer exists: it was removed, or its result was not collected before its deadline; a resume measures it again"
        removed = [answer for node in sorted(set(self.followed) - nodes) for answer in self._refuse(node, "pod_deleted", words)]
        for answer in removed:
            del self.followed[answer.node]
        if removed:
            yield removed
        self.following = self._follower()
        self.following.start()
        try:
            with concurrent.futures.ThreadPoolExecutor(READERS) as readers:
                try:
                    yield from self._follow(readers)
                finally:
                    readers.shutdown(wait=False, cancel_futures=True)
        finally:
            self.following.stop()

    def _follower(self) -> Follower:
        waiter = f"{self.client.name}: {self.launch.stage}"
        follower = Follower(self.client, self.settings, self.launch.selector, self.run_s, waiter)
        follower.lapsed = self.heartbeat.lapsed
        return follower

    def _make_owner(self, requests: list[Object]) -> None:
        config = self.client.post(
            cleanup.path("/api/v1", self.client.namespace, "configmaps"),
            self.launch.config(self.archive, requests, self.settings),
        )
        self.launch.own({"apiVersion": "v1", "kind": "ConfigMap", "metadata": config["metadata"]})

    def clean(self) -> list[str]:
        """Remove everything of this launch except pods that are kept for a person. Return the objects that are still there."""
        self._over = True  # if the controller has died, threads may still create pods
        if self.kept_pods:
            for page in self.client.pages(self.pods, labelSelector=self.launch.selector):
                for name in {pod["metadata"]["name"] for pod in page["items"]} - set(self.kept_pods):
                    query = {"labelSelector": self.launch.selector, "fieldSelector": f"metadata.name={name}"}
                    self.client.delete(self.pods, propagationPolicy="Background", **query)
            return []
        remaining = cleanup.remove(self.client, self.launch.selector, [*LAUNCHED_BY[self.settings.launcher], *cleanup.KINDS_OF_PROBES])
        self.heartbeat.end(self.client)
        return remaining

    def ended(self) -> bool:
        """Return True if every pod has answered and none holds resources, so that nobody has to wait for their removal."""
        return not self._unended and self.settings.keep == "never" and not (self.stay and self._holding)

    def forked(self) -> None:
        self.client = self.client.fresh()

    # Submission --------------------------------------------------------------------------------------------------

    def create_pods(self, node_requests: list[NodeRequest], numbers: list[int], makers: concurrent.futures.Executor) -> None:
        """Create the pods of all nodes. `numbers` are the numbers of their requests in the ConfigMap; `makers` runs what may run later."""
        self._holding = self._holding or any(item.devices for item in node_requests)
        for item in node_requests:
            self.followed[item.node] = FollowedNode(item.node, request=item)
        if self.settings.launcher != "pods":
            self._submit_groups(node_requests, numbers)
            return
        bodies = (self._pod(item, place, number) for place, (item, number) in enumerate(zip(node_requests, numbers, strict=True)))
        # If the first pod is refused for its spec, all would be: raise once and do not create the others.
        self.pod_changed(self.client.post(self.pods, next(bodies), **objects.STRICT))
        for item, body in zip(node_requests[1:], bodies, strict=True):
            makers.submit(self._make, self.pods, item.node, body)

    def _submit_groups(self, node_requests: list[NodeRequest], numbers: list[int]) -> None:
        """Create one DaemonSet or Job for all nodes with the same request and number of devices."""
        groups: dict[tuple[int, int], list[str]] = {}
        for item, number in zip(node_requests, numbers, strict=True):
            groups.setdefault((number, item.devices), []).append(item.node)
        for place, ((number, devices), nodes) in enumerate(groups.items()):
            name = f"{self.launch.name}-{place}"
            template = self.launch.pod(name, number, self.settings, devices)
            template["spec"]["affinity"] = merged(template["spec"].get("affinity") or {}, objects.on_nodes(nodes))
            template = (objects.going_before if self.goes_before else objects.staying)(template, self.settings)
            if self.settings.launcher == "daemonset":
                workload = objects.daemonset(self.launch, name, template, self.settings)
            else:
                workload = objects.job(self.launch, name, template, self.settings, len(nodes))
            (api, resource), *_more = LAUNCHED_BY[self.settings.launcher]
            maker = self.client.post(cleanup.path(api, self.client.namespace, resource), workload, **objects.STRICT)
            self._makers.append(maker["metadata"]["uid"])

    def _pod(self, item: NodeRequest, place: int, number: int) -> Object:
        pod = self.launch.pod(f"{self.launch.name}-{place}", number, self.settings, item.devices)
        if self.stay:
            objects.staying(pod, self.settings)
        if item.devices or any("/" in resource for resource in self.settings.resources.get("limits") or {}):
            # The scheduler accounts for resources of device plugins, so it must place the pod.
            pod["spec"]["affinity"] = merged(pod["spec"].get("affinity") or {}, objects.on_nodes([item.node]))
        else:
            pod["spec"]["nodeName"] = item.node
        return pod

    def _make(self, where: str, node: str, body: Object) -> None:
        try:
            if not self._over:
                self.client.post_like(where, body)
        except KubeError as error:
            self._arrived.put(("refused", (node, error)))
        except Exception as error:  # an exception in a thread would be lost
            self._arrived.put(("refused", (node, KubeError("module_failed", f"{type(error).__name__}: {error}"))))

    # Following ---------------------------------------------------------------------------------------------------

    def _follow(self, readers: concurrent.futures.Executor) -> t.Iterator[list[NodeResult]]:
        handlers: dict[str, Handler] = {
            ADDED: self.pod_changed, GONE: self._removed, FAILED: self._watch_failed, "refused": self._not_created, "read": self._was_read,
        }  # fmt: skip
        loop = PodLoop(self.following, handlers, [self._arrived], self._look_after, LOOK_S)
        while self.followed:
            loop.take(NEWS_S)
            while self._reading and self._being_read < 2 * READERS:
                self._being_read += 1
                readers.submit(self._read, self._reading.popleft())
            loop.look()
            answers, self._results = self._results, []
            for answer in answers:
                self.followed.pop(answer.node, None)
                # A pod that never had a container is not worth keeping.
                if self.settings.keep != "never" and answer.pod["image_id"] and not measured(answer.result):
                    self.kept_pods[answer.pod["pod"]] = answer.node
            if answers:
                yield answers

    def _watch_failed(self, error: KubeError) -> None:
        for node, followed in list(self.followed.items()):
            self._results += self._refuse(node, *self.following.unanswered(followed, error))

    def _not_created(self, refusal: tuple[str, KubeError]) -> None:
        node, error = refusal
        self._results += self._refuse(node, error.reason_code, error.reason)

    def _was_read(self, answer: NodeResult) -> None:
        self._being_read -= 1
        self._results.append(answer)

    def _look_after(self, now: float) -> None:
        """Give up nodes whose pods take too long, and tell people what is waited for."""
        for node in list(self.followed):
            self._results += self._overdue(self.followed[node], now)
        self._results += self.look()
        at_work = any(followed.going_on for followed in self.followed.values())
        self.following.waiting(self.followed.values(), now, f"pods at work, {self.run_s:.0f} s at most" if at_work else "")

    def look(self) -> list[NodeResult]:
        """Do periodic work. Called twice a second; return results of nodes that are given up."""
        return []

    def pod_changed(self, pod: Object) -> None:
        """Take note of a pod as the API shows it now."""
        followed = self.followed.get(_node(pod))
        if not _node(pod):
            self._unplaced = states.state(pod)  # a Job's pod that the scheduler has not placed on a node
        if followed is None or followed.ended or (followed.uid and followed.uid != pod["metadata"]["uid"]):
            return
        followed.see(pod)
        state = followed.state
        # Pods of a launcher stay, and are ready when they have answered.
        if state.phase == states.ENDED or (state.phase == states.READY and self.stay):
            followed.ended = True
            record = self.message_of(followed, pod)
            if record is None:
                self._reading.append(followed)
            else:
                self._results.append(NodeResult(followed.request.node, record, self._pod_facts(followed)))

    def message_of(self, followed: FollowedNode, pod: Object) -> NodeAnswer | None:
        """Return the result in a pod's termination message, None if there is none."""
        termination_message = states.message(pod)
        if not termination_message:
            return None
        return t.cast(NodeAnswer | None, frame.left(termination_message, frame.nonce_of(self.launch.secret, followed.uid)))

    def _removed(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        followed = next((f for f in self.followed.values() if f.uid == uid), None)
        if followed is not None and not followed.ended:
            self._results += self._refuse(followed.request.node, *self.following.why_removed(followed, "it had answered"))

    def _overdue(self, followed: FollowedNode, now: float) -> list[NodeResult]:
        if followed.ended:
            return []
        if not followed.uid:
            followed.state = self._unplaced
        trouble = self.following.trouble(followed, now, followed.request.devices, next(iter(self._makers), ""))
        return self._refuse(followed.request.node, *trouble) if trouble else []

    def _refuse(self, node: str, code: str, reason: str) -> list[NodeResult]:
        followed = self.followed.get(node)
        if followed is None:
            return []
        followed.ended = True
        self._unended = True
        return [NodeResult(node, node_messages.refused(code, reason[:1500]), self._pod_facts(followed))]

    def _pod_facts(self, followed: FollowedNode) -> Object:
        return {
            "pod": followed.name, "image": self.settings.image, "image_id": followed.image_id, "pod_waited_s": followed.waited_s,
        }  # fmt: skip

    def last_output(self, node: str) -> str:
        """Return what the tool in the pod of a node has printed last, empty if none runs there. Raise KubeError if it cannot be read."""
        followed = self.followed.get(node)
        if followed is None or followed.ended or not followed.uid:
            return ""
        argv = ("tail", "-c", str(live_output.LIMIT), live_output.IN_POD)
        try:
            ended = executing.run(self.client, f"{self.pods}/{followed.name}", marks.CONTAINER, argv, OUTPUT_S)
        except KubeError as error:
            if error.status == 403:
                raise KubeError("no_permission", "we may not create pods/exec; apply files/rbac/output.yaml", 403) from None
            raise
        if ended.status is None and not ended.out:
            raise KubeError("no_result", f"{argv[0]} in pod {followed.name} has not answered; the image needs it to show output")
        return ended.out

    # Logs --------------------------------------------------------------------------------------------------------

    def _read(self, followed: FollowedNode) -> None:
        """Read the result from a pod's log and queue it. Runs in a thread."""
        try:
            answer = self.answer_of(followed)
        except Exception as error:  # an exception in a thread would be lost
            refusal = node_messages.refused("module_failed", f"{type(error).__name__}: {error}")
            answer = NodeResult(followed.request.node, refusal, self._pod_facts(followed))
        self._arrived.put(("read", answer))

    def answer_of(self, followed: FollowedNode) -> NodeResult:
        """Return the result in the log of a pod that has ended, or the reason why there is none."""
        nonce = frame.nonce_of(self.launch.secret, followed.uid)
        # A failed init container is restarted, and its second run only reports that it has run once.
        log = self._log(followed, lambda: frame.Reader(nonce), self.goes_before and bool(followed.state.code))
        if log.record is not None:
            return NodeResult(followed.request.node, log.record, {**self._pod_facts(followed), "foreign_frames": log.foreign})
        if log.reason_code == "pod_deleted":
            trouble = self.following.why_removed(followed, "its answer was read")
            log = log._replace(reason_code=trouble.code, reason=trouble.reason)
        state, code = followed.state, log.reason_code
        words = [state.words, log.reason, f"its last words: {log.last}" if log.last and code == "no_result" else ""]
        if state.code and code != "forged_frame":
            code = state.code
        elif code == "no_result" and "log cannot be read" in log.reason and (lost := self.following.not_ready(followed.request.node)):
            code, words = "lost_node", [*words, lost.lstrip("; ")]
        reason = "; ".join(word for word in words if word)[:1500]
        return NodeResult(followed.request.node, node_messages.refused(code, reason), self._pod_facts(followed))

    def _log(self, followed: FollowedNode, reader: t.Callable[[], logs.ResultReader], restarts: bool = False) -> logs.PodLog:
        place = self.raw
        raw = (lambda: place(followed.request.node)) if place else None
        return logs.read(self.client, f"{self.pods}/{followed.name}", reader, raw, restarts)


def _numbered(node_requests: list[NodeRequest]) -> tuple[list[int], list[NodeWork]]:
    """Return the number of each node's request, and the requests without duplicates."""
    requests: list[NodeWork] = []
    numbers = []
    for item in node_requests:
        if item.request not in requests:
            requests.append(item.request)
        numbers.append(requests.index(item.request))
    return numbers, requests


def measured(result: NodeAnswer) -> bool:
    """Return True if a result has observations and all of them are measured or not applicable."""
    observations = result.get("observations") or []
    return bool(observations) and all(
        isinstance(item, dict) and item.get("outcome") in ("measured", "not_applicable") for item in observations
    )


def _node(pod: Object) -> str:
    """Return the node to which a pod is bound, else the only node of its affinity, else an empty string."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or []
    fields = [field for term in terms for field in term.get("matchFields") or [] if field.get("key") == "metadata.name"]
    if len(terms) == 1 and fields and len(fields[0].get("values") or []) == 1:
        return str(fields[0]["values"][0])
    return ""
