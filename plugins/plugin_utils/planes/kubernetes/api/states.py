# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a pod, by pure functions of its API object.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import datetime
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import marks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Object

TAG = frame.TAG.decode()
PENDING, RUNNING, READY, ENDED, HOPELESS = "pending", "running", "ready", "ended", "hopeless"


class State(t.NamedTuple):
    """The state of a pod. `phase` says what to do: wait for its start (PENDING) or end (RUNNING), read its log (READY: the pod stays,
    ENDED: it is over), or give up (HOPELESS). `code` and `words` say what is wrong, empty if nothing is."""

    phase: str
    code: str = ""
    words: str = ""


def state(pod: Object) -> State:
    """Return the state of a pod from its spec and status."""
    status = pod.get("status") or {}
    container = own_container(pod)
    phase = status.get("phase") or "Pending"
    if phase in ("Succeeded", "Failed"):
        return _ended(status, container, phase)
    ended = _first_end(pod)
    if ended.get("exitCode") == 0:
        return State(ENDED)
    if pod["metadata"].get("deletionTimestamp"):
        disrupted = _condition(status, "DisruptionTarget")
        if disrupted.get("status") == "True":
            return State(HOPELESS, "evicted", f"{disrupted.get('reason')}: {disrupted.get('message')}")
        return State(RUNNING, "pod_deleted", "the pod is being deleted")
    if ended:
        return _terminated(ended)
    if phase == "Unknown":
        return State(RUNNING, "lost_node", "the API server has lost contact with the pod's node")
    if phase == "Pending":
        return _pending(status, container)
    current = container.get("state") or {}
    if "waiting" in current:
        return _waiting(current["waiting"], container)
    if "terminated" in current:  # the phase follows in a moment
        return State(RUNNING)
    ready = _condition(status, "Ready")
    if container.get("ready") and ready.get("status") == "True":
        return State(READY)
    if container.get("ready") and ready.get("status") == "False":
        # The container is ready and the pod is not: the node controller sets that if the kubelet is silent.
        return State(RUNNING, "lost_node", "the node's kubelet has stopped answering")
    return State(RUNNING)


def _condition(status: Object, kind: str) -> Object:
    return next((c for c in status.get("conditions") or [] if c.get("type") == kind), {})


def _pending(status: Object, container: Object) -> State:
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return State(PENDING, "unschedulable", f"{scheduled.get('reason')}: {scheduled.get('message')}")
    init = _held_by(status)
    if init:
        return _waiting(init["state"]["waiting"], init)
    current = container.get("state") or {}
    if "running" in current:  # before the others of its pod, which the phase is about
        return State(RUNNING)
    waiting = current.get("waiting")
    return _waiting(waiting, container) if waiting else State(PENDING, "timeout", "the kubelet has not taken up the pod")


def _held_by(status: Object) -> Object:
    """Return the status of the init container that does not start and so blocks its pod, empty if there is none."""
    for init in status.get("initContainerStatuses") or []:
        waiting = (init.get("state") or {}).get("waiting")
        if waiting and waiting.get("reason") != "PodInitializing":
            return t.cast(Object, init)
    return {}


def held_by(pod: Object) -> str:
    """Return the name of the init container that does not start and so blocks its pod, empty if there is none."""
    return str(_held_by(pod.get("status") or {}).get("name") or "")


# Reasons of the kubelet (pkg/kubelet/images and pkg/kubelet/kuberuntime) that no waiting resolves.
_FINAL_IMAGE = ("InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed")
_FINAL_WORDS = re.compile(r"not found|denied|unauthorized|forbidden|401|403|404|manifest unknown|no match for platform", re.IGNORECASE)
_FINAL_CONTAINER = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun")

_NO_PROGRAM = re.compile(r"exec: .*(executable file not found|no such file or directory)")


def _waiting(waiting: Object, container: Object) -> State:
    reason, message = str(waiting.get("reason") or ""), " ".join(str(waiting.get("message") or "").split())
    words = f"{reason}: {message}" if message else reason
    if reason in ("ErrImagePull", "ImagePullBackOff", *_FINAL_IMAGE):
        # A first failed pull may be a busy registry. A back-off with a final cause is not.
        final = reason in _FINAL_IMAGE or (reason == "ImagePullBackOff" and _FINAL_WORDS.search(message))
        return State(HOPELESS if final else PENDING, "image_pull", words)
    if reason == "CrashLoopBackOff":
        last = _terminated((container.get("lastState") or {}).get("terminated") or {})
        return State(HOPELESS, last.code if last.code == "oom_killed" else "crash_loop", f"{words}; before: {last.words}")
    if reason in _FINAL_CONTAINER:
        return State(HOPELESS, "no_python" if _NO_PROGRAM.search(message) else "container_failed", words)
    if reason in ("ContainerCreating", "PodInitializing"):
        return State(PENDING, "timeout", f"its container is not made yet ({words})")
    return State(PENDING, "container_failed", words)


def _end_words(ended: Object) -> str:
    """Return how a container ended, in the kubelet's words. A message with a result is left out."""
    message = " ".join(str(ended.get("message") or "").split())[:300]
    message = "" if TAG in message else message
    return f"{ended.get('reason') or 'ended'} with exit status {ended.get('exitCode')}" + (f": {message}" if message else "")


def _terminated(ended: Object) -> State:
    number, reason, message = ended.get("exitCode"), str(ended.get("reason") or ""), str(ended.get("message") or "")
    words = _end_words(ended)
    if reason == "OOMKilled":
        return State(ENDED, "oom_killed", f"{words}: raise the memory in acceptance_kube_resources")
    if number in (126, 127) or _NO_PROGRAM.search(message):
        return State(ENDED, "no_python", f"the image lacks the program, see acceptance_kube_python and acceptance_kube_inject: {words}")
    if number == 137:
        return State(ENDED, "container_failed", f"the container was killed (SIGKILL): {words}")
    return State(ENDED, "container_failed" if number else "", words if number else "")


def _ended(status: Object, container: Object, phase: str) -> State:
    """Return the state of a pod that is over, with the reason of the kubelet or controller that ended it, else that of its container."""
    reason, message = str(status.get("reason") or ""), " ".join(str(status.get("message") or "").split())
    words = f"{reason}: {message}" if message else reason
    disrupted = _condition(status, "DisruptionTarget")
    if disrupted.get("status") == "True":
        words = f"{disrupted.get('reason')}: {disrupted.get('message')}" + (f" ({words})" if words else "")
        return State(ENDED, "evicted", words)
    if reason in ("Evicted", "Preempting", "Shutdown", "NodeShutdown", "Terminated"):
        return State(ENDED, "evicted", words)
    if reason == "DeadlineExceeded":
        return State(ENDED, "timeout", words)
    if reason == "NodeLost":
        return State(ENDED, "lost_node", words)
    if phase == "Failed" and reason and "terminated" not in (container.get("state") or {}):
        # OutOfcpu, OutOfnvidia.com/gpu, UnexpectedAdmissionError, NodeAffinity, TaintToleration ...: it never ran.
        return State(ENDED, "pod_refused", f"the kubelet refused the pod: {words}")
    for init in status.get("initContainerStatuses") or []:
        ended = (init.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode") and init["name"] != marks.CONTAINER:
            return State(ENDED, "container_failed", f"init container {init['name']}: {_end_words(ended)}")
    outcome = _terminated((container.get("state") or {}).get("terminated") or {"exitCode": 0 if phase == "Succeeded" else None})
    return outcome if phase == "Failed" else State(ENDED)


def waited_s(pod: Object) -> float:
    """Return the seconds from a pod's creation to the start of its probe, by the cluster's clocks; 0 if it has not started."""
    state = own_container(pod).get("state") or {}
    started = (_first_end(pod) or state.get("running") or state.get("terminated") or {}).get("startedAt")
    created = pod["metadata"].get("creationTimestamp")
    if not started or not created:
        return 0.0
    try:
        between = datetime.datetime.fromisoformat(str(started)) - datetime.datetime.fromisoformat(str(created))
        return max(0.0, between.total_seconds())
    except (TypeError, ValueError):
        return 0.0


def image_id(pod: Object) -> str:
    """Return the digest of the image that ran, as the kubelet reports it; empty if it has not."""
    return str(own_container(pod).get("imageID") or "")


def message(pod: Object) -> str:
    """Return the termination message of our container, empty if it left none."""
    ended = _first_end(pod) or (own_container(pod).get("state") or {}).get("terminated") or {}
    return str(ended.get("message") or "")


def own_container(pod: Object) -> Object:
    """Return the status of our container, which may be an init container."""
    return _own_status(pod, "containerStatuses") or _own_status(pod, "initContainerStatuses")


def _own_status(pod: Object, kind: str) -> Object:
    return next((status for status in (pod.get("status") or {}).get(kind) or [] if status["name"] == marks.container(pod)), {})


def _first_end(pod: Object) -> Object:
    """Return the first termination of our container if it is an init container; the pod is then not over. The kubelet restarts a failed
    init container, so the first end counts."""
    status = _own_status(pod, "initContainerStatuses")
    ends = ((status.get(name) or {}).get("terminated") for name in ("lastState", "state"))
    return next((end for end in ends if end), {})
