# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Implements the engine's interface to a cluster (sharing/cluster.py) through the API: pods of cases, and queries of the system under test.

Every object has the labels, owner and deadline of its run. The owner is the ConfigMap with the workloads.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import registry as accelerators
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import cordon_guardian
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import packing
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.sharing import texts
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import (
    cleanup,
    executing,
    inventory,
    leases,
    logs,
    marks,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError, Object
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import PodSettings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import guardians, objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import clocks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cluster import Answer, Daemon, PodRequest, WorkloadState
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import FAILED, PENDING, RUNNING, SUCCEEDED, Process
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.system import System

CONTAINER, FOLDER = "test", "/gpufleet"
REQUIRED, PREFERRED = (f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred"))
KINDS = (("/apis/batch/v1", "jobs"), ("/api/v1", "pods"))
ANSWER_S, EXEC_S = 10.0, 15.0
# The guardian of a cordon: its file and folder, and in seconds: time to start, interval of its checks, time to remove the cordon.
GUARDIAN, WORK = "cordon_guardian.py", "/gpufleet-work"
BEGIN_S, GUARD_EVERY_S, GIVE_BACK_S = 180.0, 2.0, 30
# The most nodes that its affinity prefers.
NEAR = 20
# How often a Job replaces its pod.
AGAIN = 6
_PHASES = {"Succeeded": SUCCEEDED, "Failed": FAILED, "Running": RUNNING}
# The length to which the kernel cuts the name of a process.
COMM = 15
# Finds the scheduler: the process of that name in the container's own control group. With hostPID the pod sees other processes of that name
# too, and process 1 is the node's. Only built-in commands of the shell are used, because the image may have no tools; without `date` the
# clock of the node stays unknown.
LOOK = """
now=$(date +%s)
IFS= read -r mine < /proc/self/cgroup
for place in /proc/[0-9]*; do
  IFS= read -r name < "$place/comm" || continue
  [ "$name" = "$1" ] || continue
  IFS= read -r group < "$place/cgroup" || continue
  [ "$group" = "$mine" ] || continue
  while read -r key value _; do [ "$key" = VmRSS: ] && rss=$value; done < "$place/status"
  set -- "$1" "$place"/fd/*
  [ -e "$2" ] || [ -L "$2" ] || set -- "$1"
  echo "PID=${place#/proc/} RSS=$rss FD=$(($# - 1)) NOW=$now"
done 2>/dev/null
"""


def _plain_errors(method: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
    """Wrap a method so that it raises a plain ReasonedError instead of a KubeError. The engine knows only the former."""

    def call(*args: t.Any, **options: t.Any) -> t.Any:
        try:
            return method(*args, **options)
        except KubeError as error:
            raise ReasonedError(error.reason_code, error.reason) from None

    return call


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of a cluster's pods: their image, settings and deadline. `guardian` is the service account of the pod that removes a
    cordon if the run is killed, empty for no such pod."""

    image: str
    pods: PodSettings
    deadline_s: float
    guardian: str = ""


class SharingCluster:
    """The engine's cluster (sharing/cluster.py) through an API."""

    def __init__(self, client: Client, system: System, run_id: str, stage: str, options: Options) -> None:
        self.client = client
        self.system = system
        self.options = options
        self.namespace = client.namespace
        self.launch = objects.Launch(run_id, stage, client.namespace, options.deadline_s, client.name)
        self.jobs: set[str] = set()
        self.cordoned: set[str] = set()
        self.clock: clocks.Offset | None = None

    # Clean-up (pods/cleanup_guard.py) ------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Take the Lease of the system under test, and create the ConfigMap with the workloads, which owns all other objects. Raise
        KubeError if another run tests the system."""
        leases.take(self.client, self.system.namespace, self.launch.name, self.launch.run_id, self.options.deadline_s)
        config = {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": self.launch.metadata(self.launch.name, "owner", self.options.pods),
            "immutable": True, "data": {**texts.TEXTS, GUARDIAN: packing.packed(cordon_guardian)},
        }  # fmt: skip
        self.launch.own(self.client.post(cleanup.path("/api/v1", self.namespace, "configmaps"), config, **objects.STRICT))

    def clean(self) -> list[str]:
        try:
            for node in sorted(self.cordoned):
                leases.uncordon(self.client, node, self.launch.run_id)
        finally:  # the pods are removed even if a cordon cannot be
            remaining = cleanup.remove(self.client, self.launch.selector, [*KINDS, ("/api/v1", "configmaps")])
            leases.release(self.client, self.system.namespace, self.launch.name)
        return remaining

    # Time ------------------------------------------------------------------------------------------------------------

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    # Pods ------------------------------------------------------------------------------------------------------------

    @_plain_errors
    def make(self, requests: t.Sequence[PodRequest]) -> None:
        for request in requests:
            if request.job:
                self.jobs.add(request.name)
                self.client.post(cleanup.path("/apis/batch/v1", self.namespace, "jobs"), self._job(request), **objects.STRICT)
            else:
                self.client.post(cleanup.path("/api/v1", self.namespace, "pods"), self._pod(request), **objects.STRICT)

    def _metadata(self, request: PodRequest, with_name: bool = True) -> Object:
        metadata = self.launch.metadata(request.name, "case", self.options.pods)
        metadata["labels"].update(app=request.app, **{f"{marks.DOMAIN}/case-pod": request.name})
        metadata["annotations"].update(request.annotations)
        return metadata if with_name else {key: metadata[key] for key in ("labels", "annotations")}

    def _spec(self, request: PodRequest) -> Object:
        spec = self._running(
            f"{request.workload}.py", request.environment, {"limits": {self.system.resource: "1"}}, self.options.deadline_s
        )
        if request.node:
            term = _node_term("In", request.node)
            how = {PREFERRED: [{"weight": 100, "preference": term}]} if request.elsewhere else {REQUIRED: {"nodeSelectorTerms": [term]}}
            spec["affinity"] = {"nodeAffinity": how}
        return spec

    def _running(self, file: str, environment: t.Mapping[str, str], resources: Object, deadline_s: float) -> Object:
        """Return the spec of a pod that runs one of our files, with the settings of the cluster's pods."""
        settings = self.options.pods
        spec: Object = {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": max(1, int(deadline_s)),
            "terminationGracePeriodSeconds": 5,
            "containers": [
                {
                    "name": CONTAINER, "image": self.options.image,
                    "command": ["python3", "-u", f"{FOLDER}/{file}"],
                    "env": [{"name": name, "value": value} for name, value in sorted(environment.items())],
                    "resources": resources,
                    "volumeMounts": [{"name": "workloads", "mountPath": FOLDER, "readOnly": True}],
                }
            ],
            "volumes": [{"name": "workloads", "configMap": {"name": self.launch.name}}],
        }  # fmt: skip
        if settings.image_pull_policy:
            spec["containers"][0]["imagePullPolicy"] = settings.image_pull_policy
        if settings.image_pull_secrets:
            spec["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
        if settings.tolerations:
            spec["tolerations"] = list(settings.tolerations)
        for field, value in (("runtimeClassName", settings.runtime_class), ("priorityClassName", settings.priority_class)):
            if value:
                spec[field] = value
        return spec

    def _pod(self, request: PodRequest) -> Object:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": self._metadata(request), "spec": self._spec(request)}

    def _job(self, request: PodRequest) -> Object:
        template = {"metadata": self._metadata(request, with_name=False), "spec": self._spec(request)}
        # The Job has the deadline too, or it would replace a pod at its deadline.
        ends = max(1, int(self.options.deadline_s))
        spec = {"backoffLimit": AGAIN, "podReplacementPolicy": "Failed", "activeDeadlineSeconds": ends, "template": template}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": self._metadata(request), "spec": spec}

    def _listed(self, resource: str) -> list[Object]:
        api = dict((name, api) for api, name in KINDS)[resource]
        pages = self.client.pages(cleanup.path(api, self.namespace, resource), labelSelector=self.launch.selector)
        return [item for page in pages for item in page["items"]]

    @_plain_errors
    def workloads(self) -> list[WorkloadState]:
        items_by_name: dict[str, list[Object]] = {}
        for item in self._listed("pods"):
            if name := item["metadata"]["labels"].get(f"{marks.DOMAIN}/case-pod"):
                items_by_name.setdefault(name, []).append(item)
        states = [_state_of(name, items[0]) for name, items in items_by_name.items() if name not in self.jobs]
        if self.jobs:
            states += [_of_job(item, items_by_name.get(item["metadata"]["name"], [])) for item in self._listed("jobs")]
        return states

    @_plain_errors
    def remove(self, names: t.Sequence[str], timeout: float) -> list[str]:
        selector = f"{self.launch.selector},{marks.DOMAIN}/case-pod in ({','.join(names)})"
        if not names:
            return []
        kinds = KINDS if self.jobs & set(names) else KINDS[1:]
        return cleanup.remove(self.client, selector, kinds, timeout)

    @_plain_errors
    def annotate(self, pods: t.Sequence[str], annotations: t.Mapping[str, str | None]) -> None:
        for pod in pods:
            self.client.patch(f"{cleanup.path('/api/v1', self.namespace, 'pods')}/{pod}", {"metadata": {"annotations": dict(annotations)}})

    def log(self, pod: str, tail: int | None = None) -> list[str] | None:
        return self._log(self.namespace, pod, tailLines=tail)

    def _log(self, namespace: str, pod: str, **query: t.Any) -> list[str] | None:
        where = f"{cleanup.path('/api/v1', namespace, 'pods')}/{pod}"
        try:
            return [line.decode("utf-8", "replace") for line in logs.lines(self.client, where, None, timestamps=True, **query)]
        except KubeError:
            return None

    # The system --------------------------------------------------------------------------------------------------------

    @_plain_errors
    def sharing_nodes(self) -> list[str]:
        return [node.name for node in inventory.nodes(self.client, "", self.system.resource) if node.capacity]

    def _daemon_pods(self, kind: str) -> list[Object]:
        selector = str(getattr(self.system, kind)["selector"])
        pages = self.client.pages(cleanup.path("/api/v1", self.system.namespace, "pods"), labelSelector=selector)
        return [item for page in pages for item in page["items"]]

    @_plain_errors
    def daemons(self, kind: str) -> list[Daemon]:
        daemons = []
        for item in self._daemon_pods(kind):
            status = item.get("status") or {}
            if status.get("phase") == "Running" and not item["metadata"].get("deletionTimestamp"):
                restarts = sum(int(container_status.get("restartCount") or 0) for container_status in status.get("containerStatuses") or [])
                node, address = str(item["spec"].get("nodeName") or ""), str(status.get("podIP") or "")
                daemons.append(Daemon(item["metadata"]["name"], node, restarts, address))
        return sorted(daemons, key=lambda daemon: daemon.name)

    def daemon_log(self, pod: str, since_s: float | None = None, tail: int | None = None) -> list[str] | None:
        since = None if since_s is None else max(1, int(since_s) + 1)
        return self._log(self.system.namespace, pod, sinceSeconds=since, tailLines=tail)

    def _daemon_path(self, pod: str) -> str:
        return f"{cleanup.path('/api/v1', self.system.namespace, 'pods')}/{pod}"

    def ask(self, scheduler: str, path: str) -> Answer:
        began = time.monotonic()
        where = f"{self._daemon_path(scheduler)}:{self.system.scheduler['port']}/proxy{path}"
        try:
            status, text, _date = self.client.dated(where, ANSWER_S)
        except KubeError as error:
            return Answer(0, "", time.monotonic() - began, error.reason)
        problem = "" if status == 200 else f"status {status}: {' '.join(text.split())[:200]}"
        return Answer(status, text if status == 200 else "", time.monotonic() - began, problem)

    def _clock(self) -> clocks.Offset | None:
        """Return the offset of the API server's clock, which is queried once."""
        if self.clock is None:
            began, sent = time.monotonic(), time.time()
            with contextlib.suppress(KubeError):
                _status, _text, date = self.client.dated("/version", ANSWER_S)
                self.clock = clocks.offset(date, sent, sent + time.monotonic() - began)
        return self.clock

    def process(self, scheduler: Daemon) -> Process:
        process = Process(scheduler.name, scheduler.node)
        name = str(self.system.scheduler.get("process", ""))[:COMM]
        began, sent = time.monotonic(), time.time()
        try:
            ended = executing.run(self.client, self._daemon_path(scheduler.name), "", ["sh", "-c", LOOK, "sh", name], EXEC_S)
        except KubeError as error:
            process.problem = error.reason
            return process
        lines = [dict(word.split("=", 1) for word in line.split()) for line in ended.out.splitlines() if line.startswith("PID=")]
        if len(lines) != 1:
            process.problem = f"{len(lines)} processes {name!r} run in it, expected one: {ended.err[:200]}"
            return process
        with contextlib.suppress(KeyError, ValueError):
            process.pid, process.rss_kb, process.fds = int(lines[0]["PID"]), float(lines[0]["RSS"]), float(lines[0]["FD"])
        with contextlib.suppress(KeyError, ValueError):
            offset = clocks.offset_of(float(lines[0]["NOW"]), sent, sent + time.monotonic() - began)
            process.ahead_s = clocks.ahead(offset, self._clock())
        process.problem = "" if process.fds is not None else f"it says {ended.out[:200]!r}"
        return process

    def tool(self, scheduler: str, argv: t.Sequence[str], timeout: float) -> str | None:
        try:
            ended = executing.run(self.client, self._daemon_path(scheduler), "", argv, timeout)
        except KubeError:
            return None
        return ended.out if ended.status == 0 else None

    @_plain_errors
    def restart(self, kind: str, timeout: float) -> bool:
        """Restart by deleting the pods node by node, like a rollout. The DaemonSet itself is not changed, so nothing has to be undone."""
        end = time.monotonic() + timeout
        old_pods = self._daemon_pods(kind)
        old = {item["metadata"]["uid"] for item in old_pods}
        for item in old_pods:
            self.client.delete(self._daemon_path(item["metadata"]["name"]))
            node = item["spec"].get("nodeName")
            while not any(
                pod["spec"].get("nodeName") == node and pod["metadata"]["uid"] not in old and is_ready(pod)
                for pod in self._daemon_pods(kind)
            ):
                if time.monotonic() > end:
                    return False
                time.sleep(0.5)
        return bool(old_pods)

    @_plain_errors
    def drain(self, node: str, timeout: float) -> bool | None:
        other_pods = [item for item in self._on(node) if not self._ours(item) and not _of_daemonset(item)]
        if other_pods:
            names = ", ".join(f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in other_pods[:10])
            words = f"node {node} is not drained: pods that are not ours would have to move: {names}"
            raise KubeError("busy_run", f"{self.client.name}: {words}")
        self.cordoned.add(node)
        # A drained node is uncordoned soon, so the cordon's deadline is not that of the longest soak.
        deadline_s = min(self.options.deadline_s, timeout + marks.GRACE_S)
        if self.options.guardian:
            self._guard(node, deadline_s)
        leases.cordon(self.client, node, self.launch.run_id, deadline_s)
        end = time.monotonic() + timeout
        let_go: set[bool] = set()
        while True:
            pods = [item for item in self._on(node) if self._ours(item)]
            if not pods:
                return any(let_go) if let_go else None
            if time.monotonic() > end:
                return False
            for item in pods:
                if not item["metadata"].get("deletionTimestamp"):
                    let_go |= self._evict(item["metadata"])
            time.sleep(0.5)

    def guardian(self, node: str, deadline_s: float) -> Object:
        """Return the pod that removes the cordon of a node at the deadline, even if this process is killed."""
        name = f"{self.launch.name}-guardian-{node}"[:253]
        guarded = {**leases.guarded(node, self.launch.run_id), "deadline_s": deadline_s, "every_s": GUARD_EVERY_S, "began": f"{WORK}/began"}
        environment = {"GPUFLEET_GUARDED": json.dumps(guarded), **accelerators.hidden()}
        spec = self._running(GUARDIAN, environment, guardians.RESOURCES, deadline_s + marks.GRACE_S)
        spec.pop("runtimeClassName", None)  # a node without GPUs need not have it
        needed: Object = {REQUIRED: {"nodeSelectorTerms": [_node_term("NotIn", node)]}}
        # Prefer nodes that share GPUs, because they have the image. A pull could take longer than the load that is to be drained.
        near = [node_name for node_name in self.sharing_nodes() if node_name != node][:NEAR]
        needed |= {PREFERRED: [{"weight": 100, "preference": _node_term("In", node_name)} for node_name in near]} if near else {}
        spec.update(
            restartPolicy="OnFailure", terminationGracePeriodSeconds=GIVE_BACK_S, serviceAccountName=self.options.guardian,
            automountServiceAccountToken=True, enableServiceLinks=False, affinity={"nodeAffinity": needed},
            securityContext={"seccompProfile": {"type": "RuntimeDefault"}},
        )  # fmt: skip
        container = spec["containers"][0]
        container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        container["volumeMounts"].append({"name": "work", "mountPath": WORK})
        spec["volumes"].append({"name": "work", "emptyDir": {}})
        return {"apiVersion": "v1", "kind": "Pod", "metadata": self.launch.metadata(name, "guardian", self.options.pods), "spec": spec}

    def _guard(self, node: str, deadline_s: float) -> None:
        """Create the guardian of a node and wait until it has started and has its rights, before the node is cordoned. Raise KubeError if
        it does not."""
        pod = self.guardian(node, deadline_s)
        where, name = cleanup.path("/api/v1", self.namespace, "pods"), pod["metadata"]["name"]
        problem = f"node {node} is not cordoned: if this run is killed, nothing would uncordon it; gpu_sharing_guardian: '' allows that"
        problem += ". Its guardian"
        try:
            self.client.post(where, pod, **objects.STRICT)
        except KubeError as error:
            raise KubeError(error.reason_code, f"{problem} as service account {self.options.guardian}: {error.reason}") from None
        end = time.monotonic() + BEGIN_S
        while True:
            log = "\n".join(self.log(name) or [])
            if cordon_guardian.GUARDING in log:
                return
            if cordon_guardian.REFUSED in log or time.monotonic() > end:
                state = _state_of(name, self.client.get(f"{where}/{name}"))
                words = log or state.words or f"it is {state.phase} after {BEGIN_S:g} s"
                raise KubeError("no_permission" if log else "timeout", f"{self.client.name}: {problem}: {words[:500]}")
            time.sleep(0.5)

    def _evict(self, pod: Object) -> set[bool]:
        """Evict a pod in the state in which it was seen to run, since an ended pod is evicted whatever its budget. Return {True} if it was
        evicted, {False} if a budget refuses that for now, and an empty set if the pod has changed or is gone."""
        metadata = {"name": pod["name"], "namespace": self.namespace}
        same = {"preconditions": {"resourceVersion": pod["resourceVersion"]}}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": same}
        try:
            self.client.post(f"{cleanup.path('/api/v1', self.namespace, 'pods')}/{pod['name']}/eviction", eviction)
        except KubeError as error:
            if error.status not in (404, 409, 429):
                raise
            return {False} if error.status == 429 else set()
        return {True}

    def _on(self, node: str) -> list[Object]:
        pages = self.client.pages("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")
        return [item for page in pages for item in page["items"] if item["status"].get("phase") not in ("Succeeded", "Failed")]

    def _ours(self, item: Object) -> bool:
        return (item["metadata"].get("labels") or {}).get(marks.LAUNCH) == self.launch.name

    @_plain_errors
    def uncordon(self, node: str) -> bool:
        given_back = leases.uncordon(self.client, node, self.launch.run_id)
        self.cordoned.discard(node)
        if self.options.guardian:  # it must not guard the next cordon with the deadline of this one
            cleanup.remove(self.client, f"{self.launch.selector},component=guardian", KINDS[1:], wait_s=0.0)
        return given_back


def _node_term(operator: str, node: str) -> Object:
    """Return the selector term for a node by its name. Its label kubernetes.io/hostname may have another value."""
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [node]}]}


def _state_of(name: str, item: Object) -> WorkloadState:
    status = item.get("status") or {}
    phase = _PHASES.get(str(status.get("phase")), PENDING)
    words = " ".join(str(status.get(key) or "") for key in ("reason", "message")).strip()
    for condition in status.get("conditions") or []:
        if phase == PENDING and condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            words = words or f"{condition.get('reason')}: {condition.get('message')}"
    for container_status in status.get("containerStatuses") or []:
        waiting, ended = ((container_status.get("state") or {}).get(key) or {} for key in ("waiting", "terminated"))
        words = words or " ".join(str(waiting.get(key) or "") for key in ("reason", "message")).strip()
        if phase == FAILED and ended:
            words = words or f"{ended.get('reason')} with exit status {ended.get('exitCode')}"
    return WorkloadState(name, str(item["metadata"]["name"]), phase, words[:500], str((item.get("spec") or {}).get("nodeName") or ""))


def _of_job(job: Object, pods: list[Object]) -> WorkloadState:
    """Return the state of a Job: that of its newest pod, with the number of earlier pods."""
    name = str(job["metadata"]["name"])
    pods = sorted(pods, key=lambda item: str(item["metadata"].get("creationTimestamp")))
    newest = _state_of(name, pods[-1]) if pods else WorkloadState(name, "", PENDING, "its Job has no pod yet")
    conditions = {
        condition.get("type") for condition in (job.get("status") or {}).get("conditions") or [] if condition.get("status") == "True"
    }
    phase = SUCCEEDED if "Complete" in conditions else FAILED if "Failed" in conditions else RUNNING if newest.phase == RUNNING else PENDING
    return dataclasses.replace(newest, phase=phase, replaced=max(0, len(pods) - 1))


def is_ready(item: Object) -> bool:
    conditions = (item.get("status") or {}).get("conditions") or []
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def _of_daemonset(item: Object) -> bool:
    return any(owner.get("kind") == "DaemonSet" for owner in item["metadata"].get("ownerReferences") or [])
