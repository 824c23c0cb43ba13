# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Launches a group of pods over several nodes, follows it to its end, and reads the result of its head.

A launcher's own status is not enough. A refused MPIJob says so only in an event, one without an operator says nothing, and one with a
failed worker goes on running. So the pods are watched, the cluster's warnings are read until the group is complete, and every step has a
deadline.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import re
import secrets
import time
import types
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup, inventory, logs, states
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import client as api
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError, Object
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.discovery import SERVED, STATEFULSET
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import PodSettings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.watch import ADDED, FAILED, GONE
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.groups import group_objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.groups.group_objects import HEAD, WORKER, Shape
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.cleanup_guard import cleanup_guard
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.following import Follower, Pod, holders
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.heartbeat import Heartbeat
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.loop import Handler, PodLoop
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import node_messages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import AcceptanceError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer

# Seconds within which an operator must set a condition on a new object.
ACTS_S = 40.0
# Seconds for which a controller may fail to create a pod that admission refuses. A quota may become free in a moment.
REFUSED_S = 5.0
# Seconds for which a head may still answer after one of its workers is gone. It notices the loss itself.
AFTER_S = 30.0
LOOK_S = 1.0
NEWS_S = 0.2
ENDED = "the group had ended"
# The variable of the port of sshd, and where to look if a worker cannot be entered, for messages on a node.
PORT_VARIABLE = "acceptance_kube_ssh_port"
HINTS = {
    "port_variable": PORT_VARIABLE, "unresolved": "the Service has no such endpoint, or DNS fails", "closed": "see network policies",
}  # fmt: skip
# A field that the API does not know is an error, not silently dropped.
STRICT = {"fieldValidation": "Strict"}
WORKERS_END_S = 20.0
READERS = 16
# Reason codes of a head for workers that it could not log in to.
_APART = ("member", "unreachable")


@dataclasses.dataclass
class GroupPod(Pod):
    """A pod of the group: a worker, or the head if `worker` is False."""

    worker: bool = dataclasses.field(kw_only=True)


class GroupResult(t.NamedTuple):
    """The result of one group.

    `result`: the head's result of a probe module, or {"state": "refused", "reason_code", "reason"}.
    `launch_facts`: {"launcher", "name", "nodes": {node: pod}, "image", "image_id"}.
    `workers`: results of the workers that have one, by node.
    `absent`: if the group does not stand, (reason code, reason) of each node that keeps it from standing. It may stand without them.
    """

    result: NodeAnswer
    launch_facts: Object
    workers: dict[str, NodeAnswer]
    absent: t.Mapping[str, tuple[str, str]] = types.MappingProxyType({})


class _Fault(AcceptanceError, ReasonedError):
    """The group cannot go on. `late` is True if workers did not start in time."""

    def __init__(self, reason_code: str, reason: str, late: bool = False) -> None:
        super().__init__(reason_code, reason)
        self.late = late


class GroupLaunch:
    """One launch of one group on one cluster.

    `timeout`: the deadline of the head's probe in seconds. `worker`: parameters of the probe `worker` (but the key and the port, which
    are the launcher's). `head(nodes)` makes the parameters of the probe `head` once it is known on which nodes the workers are.
    """

    def __init__(
        self,
        client: Client,
        settings: PodSettings,
        shape: Shape,
        run_id: str,
        stage: str,
        timeout: float,
        archive: bytes,
        worker: Object,
        head: t.Callable[[list[Object]], Object],
        raw: logs.Raw | None = None,
    ) -> None:
        self.client = client
        self.settings = settings
        self.shape = shape
        self.run_id, self.stage = run_id, stage
        self.timeout = timeout
        self.archive = archive
        self.worker, self.head = worker, head
        self.raw = raw
        # Three deadlines in this order: the guardian in the pod ends the probe and writes, we give up, the cluster ends the pod.
        self.run_s = timeout + 90.0
        self.launch = objects.Launch(run_id, stage, client.namespace, 2 * settings.start_timeout + self.run_s + 60.0, client.name)
        self.path = cleanup.path("/api/v1", client.namespace, "pods")
        self.heartbeat = Heartbeat(client, self.launch)
        self.following = self._follower()
        self.pods: dict[str, GroupPod] = {}
        self.placed = False
        self.remaining: list[str] = []
        self._began = time.monotonic()
        self._stood = self._worse = 0.0
        self._fault: _Fault | None = None
        self._late: list[group_objects.Made] = []
        self._refused_since = 0.0
        self._signed = 0.0

    def _follower(self) -> Follower:
        waiter = f"{self.client.name}: {self.stage}, group {self.shape.name},"
        follower = Follower(self.client, self.settings, self.launch.selector, self.run_s, waiter)
        follower.lapsed = self.heartbeat.lapsed
        return follower

    def run(self) -> GroupResult:
        """Run the group. Return the head's result, or why there is none. Raise KubeError if nothing could be submitted."""
        self.shape.check()
        try:
            self.heartbeat.start(self.settings)
            items = group_objects.objects_of(self.shape, self._owner(), self.settings)
            self._late = [item for item in items if item.late]
            self.following = self._follower()
            self.following.start()
            self._submit([item for item in items if not item.late])
            self._began = time.monotonic()
            return self._follow()
        except _Fault as fault:
            init = f"init container {group_objects.TORCH_INIT}:"
            if any(pod.held_by == group_objects.TORCH_INIT or init in pod.state.words for pod in self._workers()):
                # An init container of the operator that the measurement does not need. Another launcher does without it.
                words = f"its operator's init container {group_objects.TORCH_INIT} does not start, or not to its end"
                fault = _Fault("no_launcher", f"{self.shape.kind} {self.shape.name}: {words}: {fault.reason}")
            result = node_messages.refused(fault.reason_code, fault.reason[:1800])
            no_node = self.placed or fault.reason_code == "no_launcher"
            return GroupResult(result, self._launch_facts(), {}, {} if no_node else self._absent(fault))
        finally:
            self.heartbeat.stop()
            self.following.stop()

    def clean(self) -> list[str]:
        """Remove everything of this launch. Return what is still there after 20 s."""
        self.remaining = cleanup.remove(self.client, self.launch.selector, group_objects.CLEANED[self.shape.kind])
        end = time.monotonic() + 20
        while True:
            pods = self.client.get(self.path, labelSelector=self.launch.selector, limit=20)["items"]
            if not pods or time.monotonic() > end:
                self.heartbeat.end()
                self.remaining += [f"pods/{pod['metadata']['name']}" for pod in pods]
                return self.remaining
            time.sleep(0.2)

    # Submission ------------------------------------------------------------------------------------------------------

    def _owner(self) -> objects.Launch:
        """Create the ConfigMap that owns all other objects and has the request to the workers. Return the launch."""
        self.port_and_key = dict(zip(("identity", "authorized_keys"), group_objects.key_folder(self.shape.kind), strict=True))
        parameters = {
            "port": self.shape.port, "port_variable": PORT_VARIABLE, "authorized_keys": self.port_and_key["authorized_keys"], "work": None,
            **self.worker,
        }  # fmt: skip
        # A worker waits for its head until the end of the launch.
        timeout_s = self.launch.deadline_s - 60.0
        request = group_objects.request("groups.worker", parameters, timeout_s, self.run_id, self.stage)
        # A StatefulSet restarts a container that ends, so its workers stay until they are removed.
        config = self.client.post(
            cleanup.path("/api/v1", self.client.namespace, "configmaps"),
            self.launch.config(self.archive, [{**request, "hold": objects.DONE if self.shape.kind == STATEFULSET else ""}], self.settings),
        )
        self.launch.own({"apiVersion": "v1", "kind": "ConfigMap", "metadata": config["metadata"]})
        self._sign(time.monotonic())
        return self.launch

    def _sign(self, now: float) -> None:
        """Show the pods that the controller is alive, by a ConfigMap. It is deleted and created again, because a launcher has no right to
        change ConfigMaps."""
        if self._signed and now - self._signed < group_objects.RENEWED_S:
            return
        path = cleanup.path("/api/v1", self.client.namespace, "configmaps")
        body = group_objects.sign(self.launch, self.settings, time.time())
        with contextlib.suppress(KubeError):  # other requests report the error; pods tolerate a missing sign for SILENT_S
            if self._signed:
                query = {"labelSelector": self.launch.selector, "fieldSelector": f"metadata.name={body['metadata']['name']}"}
                self.client.delete(path, propagationPolicy="Background", **query)
            self.client.post(path, body)
        self._signed = now

    def _submit(self, items: list[group_objects.Made]) -> None:
        owners: dict[str, Object] = {}
        for item in items:
            if item.belongs_to:
                item.body["metadata"]["ownerReferences"] = [owners[item.belongs_to]]
            created = self.client.post(cleanup.path(item.api, self.client.namespace, item.resource), item.body, **STRICT)
            owners[item.resource] = {
                "apiVersion": item.body["apiVersion"], "kind": item.body["kind"],
                "name": created["metadata"]["name"], "uid": created["metadata"]["uid"],
            }  # fmt: skip

    # Following -------------------------------------------------------------------------------------------------------

    def _follow(self) -> GroupResult:
        handlers: dict[str, Handler] = {ADDED: self._update, GONE: self._removed, FAILED: self._watch_failed}
        loop = PodLoop(self.following, handlers, look=self._look_after, look_s=LOOK_S, wait_first=True)
        while True:
            loop.take(NEWS_S)
            head = self._head_pod()
            if head and head.state.phase == states.ENDED:
                answer = self._answer(head)
                return answer._replace(workers=self._worker_results()) if self.shape.workers_answer else answer
            if not self.placed and self._stands():
                self._place()
            loop.look()

    def _look_after(self, now: float) -> None:
        """Raise _Fault if the group can no longer succeed, and tell people what is waited for."""
        head = self._head_pod()
        self._sign(now)
        self._check(head, now)
        self.following.waiting(self.pods.values(), now, self._besides(head))

    def _watch_failed(self, error: KubeError) -> None:
        if self._fault:
            raise _Fault(self._fault.reason_code, f"{self._fault.reason}; then {error.reason}")
        deleted = next((pod for pod in self.pods.values() if pod.deleted), GroupPod(worker=False))
        raise _Fault(*self.following.unanswered(deleted, error))

    def _head_pod(self) -> GroupPod | None:
        return next((pod for pod in self.pods.values() if not pod.worker), None)

    def _workers(self) -> list[GroupPod]:
        return [pod for pod in self.pods.values() if pod.worker]

    def _stands(self) -> bool:
        """Return True if the head can log in to every worker."""
        workers = self._workers()
        return len(workers) == self.shape.workers and all(pod.state.phase == states.READY for pod in workers)

    def _update(self, body: Object) -> None:
        meta = body["metadata"]
        component = (meta.get("labels") or {}).get("component")
        if component not in (WORKER, HEAD):
            return
        pod = self.pods.setdefault(meta["uid"], GroupPod(worker=component == WORKER))
        pod.see(body)

    def _removed(self, body: Object) -> None:
        pod = self.pods.pop(body["metadata"]["uid"], None)
        if pod is None:
            return
        self._blame(*self.following.why_removed(pod, ENDED))
        if self._fault and (not pod.worker or self._fault.reason_code == "namespace_gone"):
            raise self._fault

    def _deleted(self, pod: GroupPod) -> _Fault | None:
        """Return the fault of a pod that ended because it was deleted, None if it ended in another way."""
        going = pod.deleted and pod.state.code != "evicted"
        return _Fault(*self.following.why_removed(pod, ENDED)) if going else None

    def _blame(self, code: str, reason: str) -> None:
        """Note why the group ends. Its head may still give a better reason. Any other reason replaces that of a deleted pod, because a
        controller may have deleted that pod as a consequence."""
        if self._fault is None:
            self._worse = time.monotonic()
        if self._fault is None or (self._fault.reason_code == "pod_deleted" and code != "pod_deleted"):
            self._fault = _Fault(code, reason)

    def _place(self) -> None:
        """Send the addresses of the workers to the head, now that every worker is ready."""
        order = {node: place for place, node in enumerate(self.shape.nodes)}
        workers = sorted(self._workers(), key=lambda pod: order.get(pod.node, 0))
        nodes = group_objects.seats(workers, self.client.namespace)
        params = {
            "port": self.shape.port, "hints": HINTS, "identity": self.port_and_key["identity"], "work": None,
            **self.head(nodes),
        }  # fmt: skip
        request = group_objects.request("groups.head", params, self.timeout, self.run_id, self.stage)
        body = group_objects.head_config(self.launch, self.settings, request)
        self.client.post(cleanup.path("/api/v1", self.client.namespace, "configmaps"), body)
        self._submit(self._late)
        self.placed = True

    # What may be wrong -----------------------------------------------------------------------------------------------

    def _check(self, head: GroupPod | None, now: float) -> None:
        """Raise _Fault if the group can no longer succeed."""
        for pod in self._workers():
            self._check_worker(pod, now)
        running = head is not None and head.going_on
        if self._fault and (not running or now - self._worse > AFTER_S):
            raise self._fault
        if head and head.state.phase != states.PENDING and (trouble := self.following.trouble(head, now)):
            raise _Fault(trouble.code, f"the head of the group, pod {head.name} on {head.node}: {trouble.reason}")
        if running:
            return
        stands = self._stands()
        self._stood = (self._stood or now) if stands else 0.0
        if not stands or head is None:
            self._ask_controller(now)
        if not stands and now - self._began > self.settings.start_timeout:
            raise self._not_standing()
        if stands and now - self._stood > self.settings.start_timeout:
            words = head.words if head else f"{self.shape.kind} {self.shape.name} has made no pod for the head"
            code = head.state.code if head else ""
            raise _Fault(code or "timeout", f"the workers are ready and the head is not: {words}{self._warnings()}")

    def _check_worker(self, pod: GroupPod, now: float) -> None:
        if pod.state.phase == states.ENDED:
            deleted = self._deleted(pod)
            self._blame(*((deleted.reason_code, deleted.reason) if deleted else self._why_worker_ended(pod)))
        elif pod.restarts:
            self._blame("crash_loop", f"{pod.words}: its container has ended and was started again {pod.restarts} times")
        elif (pod.state.phase == states.HOPELESS or pod.state.code == "lost_node") and (trouble := self.following.trouble(pod, now)):
            self._blame(trouble.code, f"pod {pod.name} on {pod.node}: {trouble.reason}")

    def _besides(self, head: GroupPod | None) -> str:
        """Return words for what the group waits for other than pods that have not started."""
        missing = self.shape.workers - len(self._workers())
        if missing > 0:
            return f"{missing} of {self.shape.workers} workers that {self.shape.kind} {self.shape.name} has not made yet"
        if head is not None and head.going_on:
            return f"the test of pod {head.name} on {head.node} over the group, which is ended after {self.run_s:.0f} s at the latest"
        late = [pod.node for pod in self._workers() if pod.state.phase == states.RUNNING]
        return f"workers that run and cannot be entered yet: {', '.join(sorted(late)[:8])}" if late else ""

    def _why_worker_ended(self, pod: GroupPod, only_its_own: bool = False) -> tuple[str, str]:
        """Return (code, reason) why a worker has ended: from its own result, else from the API; empty if `only_its_own` and it has none."""
        log = self._log(pod)
        for observation in (log.record or {}).get("observations") or []:
            if isinstance(observation, dict) and observation.get("outcome") != "measured" and observation.get("reason_code"):
                return str(observation["reason_code"]), f"worker {pod.name} on {pod.node}: {observation.get('reason')}"
        if only_its_own:
            return "", ""
        parts = [pod.state.words, f"its last words: {log.last}" if log.last else ""]
        words = "; ".join(word for word in parts if word) or "it has ended before its head"
        return pod.state.code or "container_failed", f"worker {pod.name} on {pod.node}: {words}"

    def _not_standing(self) -> _Fault:
        """Return the fault of workers that did not start in time, with their names and the cluster's warnings."""
        waiting = [pod for pod in self._workers() if pod.state.phase != states.READY]
        missing = self.shape.workers - len(self._workers())
        code = next((pod.state.code for pod in waiting if pod.state.code), "timeout")
        words = list(dict.fromkeys(pod.words for pod in waiting))[:8]
        if missing:
            words.append(f"{missing} of {self.shape.workers} workers were never made")
        if code == "unschedulable":
            occupied = {pod.node for pod in self._workers()}
            words.append(free(self.client, [node for node in self.shape.nodes if node not in occupied], self.settings, self.shape.devices))
        limit = self.settings.start_timeout
        words.append(self._service())
        joined_words = "; ".join(word for word in words if word)
        return _Fault(code, f"the group does not stand within {limit:.0f} s: {joined_words}{self._warnings()}", late=True)

    def _absent(self, fault: _Fault) -> dict[str, tuple[str, str]]:
        """Return {node: (code, reason)} of the nodes whose workers kept the group from starting: those that ended or can never run, else
        all that were not ready in time. Empty if no node is the cause, but the namespace, a quota or a deleted pod."""
        over = (states.HOPELESS, states.ENDED)
        bad = [pod for pod in self._workers() if pod.node and pod.state.phase in over and not self._deleted(pod)]
        if bad:
            return {
                pod.node: (self._why_worker_ended(pod) if pod.state.phase == states.ENDED else (pod.state.code, pod.words)) for pod in bad
            }
        if not fault.late:
            return {}
        pods = {pod.node: pod for pod in self._workers() if pod.node}
        late = [node for node in self.shape.nodes if node not in pods or pods[node].state.phase != states.READY]
        words = {node: f"{pods[node].words}{self.following.not_ready(node)}" if node in pods else fault.reason for node in late}
        return {node: ((pods[node].state.code if node in pods else fault.reason_code) or "timeout", words[node]) for node in late}

    def _service(self) -> str:
        """Return words about the endpoints of the group's Service, empty if we may not read them. Every launcher names it like the
        group."""
        path = f"/apis/discovery.k8s.io/v1/namespaces/{self.client.namespace}/endpointslices"
        try:
            slices = self.client.get(path, labelSelector=f"kubernetes.io/service-name={self.shape.name}", limit=100)["items"]
        except KubeError:
            return ""
        addresses = {
            address
            for endpoint_slice in slices
            for endpoint in endpoint_slice.get("endpoints") or []
            for address in endpoint.get("addresses") or []
        }
        missing = [pod.name for pod in self._workers() if pod.address not in addresses]
        if not addresses:
            return f"Service {self.shape.name} has no endpoints" + ("" if slices else ", and no EndpointSlice")
        return f"Service {self.shape.name} has {len(addresses)} endpoints" + (f", and none for {', '.join(missing[:8])}" if missing else "")

    # What the controllers say ----------------------------------------------------------------------------------------

    def _ask_controller(self, now: float) -> None:
        """Raise _Fault if no controller acts on our object, or if it fails or is refused."""
        for reason, message in self.following.warnings(name_prefix=self.shape.name):
            if reason in ("ValidationError", "ErrResourceExists"):
                raise _Fault("bad_spec", f"{self.shape.kind} {self.shape.name}: {reason}: {message}")
            if "forbidden" in message or "admission webhook" in message or "failed calling webhook" in message:
                self._refused_since = self._refused_since or now
                if now - self._refused_since > REFUSED_S:
                    error = _refusal(self.client.name, message)
                    raise _Fault(error.reason_code, f"{self.shape.kind} {self.shape.name} cannot make its pods: {error.reason}")
        if self.shape.kind not in SERVED:
            return
        where, resource = group_objects.LED_BY[self.shape.kind]
        try:
            status = self.client.get(f"{cleanup.path(where, self.client.namespace, resource)}/{self.shape.name}").get("status") or {}
        except KubeError as error:
            if error.status == 404:
                words = self.following.namespace_gone()
                code = "namespace_gone" if words else "pod_deleted"
                words = words or self.heartbeat.lapsed()
                raise _Fault(code, words or f"somebody deleted {self.shape.kind} {self.shape.name}") from None
            raise
        ended, acts = _ended(status), bool(status.get("conditions") or (status.get("state") or {}).get("phase"))
        if ended and not any(pod.state.phase == states.ENDED for pod in self.pods.values()):
            raise _Fault("launch_failed", f"{self.shape.kind} {self.shape.name}: {ended}{self._warnings()}")
        if not acts and not self.pods and now - self._began > ACTS_S:
            raise _Fault(
                "no_launcher",
                f"{self.shape.kind} {self.shape.name}: nobody has taken it up within {ACTS_S:.0f} s: the API serves {resource} "
                "and their controller does not run, or does not look at this namespace",
            )

    def _warnings(self) -> str:
        skipped = ("Unhealthy", "FailedMount", "FailedScheduling")
        warnings = [
            f"{reason}: {message}" for reason, message in self.following.warnings(name_prefix=self.shape.name) if reason not in skipped
        ]
        return "".join(f"; {line[:300]}" for line in warnings[-3:])

    # The answer ------------------------------------------------------------------------------------------------------

    def _answer(self, head: GroupPod) -> GroupResult:
        log = self._log(head, self.raw)
        launch_facts = self._launch_facts(head)
        if log.record is None and (deleted := self._deleted(head)):
            raise deleted
        if log.record is not None:
            return GroupResult(self._explained(log.record), {**launch_facts, "foreign_frames": log.foreign}, {})
        code = head.state.code if head.state.code and log.reason_code != "forged_frame" else log.reason_code
        words = [head.state.words, log.reason, f"its last words: {log.last}" if log.last and log.reason_code == "no_result" else ""]
        if self._fault:
            words.append(self._fault.reason)
        reason = f"the head of the group, pod {head.name}: " + "; ".join(word for word in words if word)
        return GroupResult(node_messages.refused(code, reason[:1800]), launch_facts, {})

    def _worker_results(self) -> dict[str, NodeAnswer]:
        """Return {node: result} of the workers, which end a moment after their head."""
        end = time.monotonic() + WORKERS_END_S
        holds = self.shape.kind == STATEFULSET
        failures: list[KubeError] = []
        handlers: dict[str, Handler] = {
            ADDED: self._update, GONE: lambda body: self.pods.pop(body["metadata"]["uid"], None), FAILED: failures.append,
        }  # fmt: skip
        loop = PodLoop(self.following, handlers)
        while (
            not holds
            and not failures
            and time.monotonic() < end
            and any(pod.state.phase in (states.RUNNING, states.READY) for pod in self._workers())
        ):
            loop.take(NEWS_S)
        with concurrent.futures.ThreadPoolExecutor(READERS) as readers:
            return dict(readers.map(self._worker_result, self._workers()))

    def _worker_result(self, pod: GroupPod) -> tuple[str, NodeAnswer]:
        log = self._log(pod)
        if log.record is not None:
            return pod.node, log.record
        code, words = pod.state.code or log.reason_code, "; ".join(word for word in (pod.state.words, log.reason) if word)
        return pod.node, node_messages.refused(code, f"pod {pod.name}: {words}")

    def _log(self, pod: GroupPod, raw: logs.Raw | None = None) -> logs.PodLog:
        nonce = frame.nonce_of(self.launch.secret, pod.uid)
        return logs.read(self.client, f"{self.path}/{pod.name}", lambda: frame.Reader(nonce), raw, container=pod.container)

    def _explained(self, result: NodeAnswer) -> NodeAnswer:
        """Return a result with the reasons that the head could not know: why a worker was lost."""
        now = time.monotonic()
        failed = not all(_good(observation) for observation in result.get("observations") or [{}])
        for pod in self._workers():
            if (pod.state.phase in (states.HOPELESS, states.ENDED) and pod.state.code) or pod.restarts:
                self._check_worker(pod, now)
            elif failed and (pod.state.phase == states.ENDED or self.shape.kind == STATEFULSET):
                # A worker that refused the login reports why and ends normally; in a StatefulSet it stays, so that it is not restarted.
                code, reason = self._why_worker_ended(pod, only_its_own=True)
                if code:
                    self._blame(code, reason)
        observations = result.get("observations")
        bad = (
            [observation for observation in observations if isinstance(observation, dict) and not _good(observation)]
            if isinstance(observations, list)
            else []
        )
        apart = self._service() if any(observation.get("reason_code") in _APART for observation in bad) else ""
        for observation in bad:
            words = [
                str(observation.get("reason")),
                self._fault.reason if self._fault else "",
                apart if observation.get("reason_code") in _APART else "",
            ]
            observation["reason"] = "; ".join(word for word in words if word)[:1900]
        return result

    def _launch_facts(self, head: GroupPod | None = None) -> Object:
        workers = self._workers()
        ids = sorted({pod.image_id for pod in self.pods.values() if pod.image_id})
        return {
            "launcher": self.shape.kind,
            "name": self.shape.name,
            "nodes": {pod.node: pod.name for pod in workers if pod.node},
            "head": head.name if head else "",
            "image": self.settings.image,
            "image_id": ids[0] if len(ids) == 1 else ", ".join(ids),
            "pod_waited_s": max((pod.waited_s for pod in self.pods.values()), default=0.0),
        }


def launched(
    kinds: t.Sequence[str], make: t.Callable[[str], GroupLaunch], controller: int, name: str, instead: t.Callable[[str], None]
) -> tuple[GroupResult, list[str]]:
    """Run the group of `make(kind)` with the first of `kinds` whose controller acts on it. Return its result and the objects that could not
    be removed. `controller` and `name` are those of cleanup_guard(); `instead` is called with a sentence for each launcher that failed."""
    for kind, *remaining in (kinds[place:] for place in range(len(kinds))):
        launch = make(kind)
        with cleanup_guard(launch, controller, name):
            answer = launch.run()
        if answer.result.get("reason_code") != "no_launcher" or not remaining:
            return answer, launch.remaining
        instead(f"not {kind}: {answer.result['reason']}; {remaining[0]} is tried in its place")
    raise ValueError("expected at least one kind of launcher")


def short_name(run_id: str) -> str:
    """Return a name for a group's objects, short enough for the suffixes that launchers add."""
    tail = re.sub(r"[^a-z0-9]", "", run_id.lower().rsplit("-", 1)[-1])[:8]
    return f"gpufleet-{tail or 'run'}-{secrets.token_hex(2)}"


def free(client: Client, nodes: list[str], settings: PodSettings, devices: int) -> str:
    """Return words about the devices of nodes and the pods that use them, empty if we may not read them."""
    sentences = []
    for name in nodes[:8] if devices else []:
        try:
            node = inventory.summary(client.get(f"/api/v1/nodes/{name}"), settings.resource)
            used_by = holders(client, name, settings.resource)
        except KubeError as error:
            return f"who uses the GPUs is not known: {error.reason}" if error.status == 403 else ""
        used = ", ".join(f"{pod} {count}" for pod, count in used_by.items()) or "nobody"
        sentences.append(f"{name}: {node.devices} {settings.resource}, {devices} wanted, used by {used}")
    return "; ".join(sentences)


def _good(observation: t.Any) -> bool:
    return isinstance(observation, dict) and observation.get("outcome") in ("measured", "not_applicable")


def _ended(status: Object) -> str:
    """Return the failure that the status of a launcher's object reports, empty if none."""
    for condition in status.get("conditions") or []:
        if condition.get("type") == "Failed" and condition.get("status") == "True":
            return f"{condition.get('reason')}: {condition.get('message')}"
    phase = (status.get("state") or {}).get("phase")
    return f"{phase}: {status['state'].get('message') or ''}" if phase in ("Failed", "Aborted", "Terminated") else ""


def _refusal(cluster: str, message: str) -> KubeError:
    """Return the API server's refusal that a controller quotes in an event."""
    status = 500 if "failed calling webhook" in message else 400 if "denied the request" in message else 403
    return api.refusal(cluster, status, message, {}, "making a pod")
