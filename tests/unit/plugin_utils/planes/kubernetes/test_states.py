# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""States of pods by the API's own words; the status documents are shortened from what real API servers and kubelets wrote."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import states
from hypothesis import given
from hypothesis import strategies as st


def pod(status: dict[str, t.Any], **metadata: t.Any) -> dict[str, t.Any]:
    return {"metadata": {"name": "p", "uid": "u", **metadata}, "spec": {"nodeName": "n"}, "status": status}


def waiting(reason: str, message: str = "", **more: t.Any) -> dict[str, t.Any]:
    return {
        "phase": "Pending",
        "containerStatuses": [{"name": "probe", "state": {"waiting": {"reason": reason, "message": message}}, **more}],
    }


def terminated(number: int, reason: str, message: str = "") -> dict[str, t.Any]:
    ended = {"exitCode": number, "reason": reason, "message": message}
    return {"phase": "Failed", "containerStatuses": [{"name": "probe", "state": {"terminated": ended}}]}


def before(state: dict[str, t.Any], phase: str = "Pending", lastState: dict[str, t.Any] | None = None, **more: t.Any) -> dict[str, t.Any]:
    last = {"lastState": lastState} if lastState else {}
    stays = [{"name": "stays", "state": {"running": {}} if phase == "Running" else {"waiting": {"reason": "PodInitializing"}}}]
    return {"phase": phase, "initContainerStatuses": [{"name": "probe", "state": state, **last}], "containerStatuses": stays, **more}


UNSCHEDULABLE = "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) didn't match Pod's node affinity/selector."
CASES = [
    ({"phase": "Failed", "initContainerStatuses": [{"name": "inject", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}],
      "containerStatuses": [{"name": "probe", "state": {"waiting": {"reason": "PodInitializing"}}}]},
     "ended", "container_failed", "init container inject: Error with exit status 1"),
    ({"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu, requested: 8000, capacity: 4000"},
     "ended", "pod_refused", "the kubelet refused the pod: OutOfcpu: Node didn't have enough resource: cpu"),
    ({}, "pending", "timeout", "not taken up"),
    ({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": UNSCHEDULABLE}]},
     "pending", "unschedulable", "Insufficient nvidia.com/gpu"),
    (waiting("ContainerCreating"), "pending", "timeout", "not made yet"),
    (waiting("ErrImagePull", "rpc error: connection refused"), "pending", "image_pull", "connection refused"),
    (waiting("ImagePullBackOff", 'Back-off pulling image "x:1": rpc error: code = NotFound: x:1: not found'), "hopeless", "image_pull",
     "not found"),
    (waiting("ImagePullBackOff", "Back-off pulling image: i/o timeout"), "pending", "image_pull", "i/o timeout"),
    (waiting("ErrImageNeverPull", 'Container image "x:1" is not present with pull policy of Never'), "hopeless", "image_pull", "Never"),
    (waiting("InvalidImageName", "couldn't parse image name"), "hopeless", "image_pull", "parse"),
    (waiting("CreateContainerConfigError", 'secret "s" not found'), "hopeless", "container_failed", 'secret "s" not found'),
    (waiting("CrashLoopBackOff", "back-off 5m0s", lastState={"terminated": {"exitCode": 1, "reason": "Error"}}), "hopeless", "crash_loop",
     "exit status 1"),
    (waiting("CrashLoopBackOff", "", lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}), "hopeless", "oom_killed",
     "memory"),
    (terminated(137, "OOMKilled"), "ended", "oom_killed", "acceptance_kube_resources"),
    (terminated(137, "Error"), "ended", "container_failed", "SIGKILL"),
    (terminated(128, "StartError", 'exec: "python3": executable file not found in $PATH'), "ended", "no_python",
     "executable file not found"),
    (terminated(128, "StartError", 'exec: "/opt/python3": stat /opt/python3: no such file or directory'), "ended", "no_python",
     "/opt/python3"),
    (terminated(127, "Error"), "ended", "no_python", "acceptance_kube_python"),
    (terminated(1, "Error"), "ended", "container_failed", "exit status 1"),
    ({"phase": "Succeeded"}, "ended", "", ""),
    ({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}, "ended", "evicted", "low on resource"),
    ({"phase": "Failed", "reason": "DeadlineExceeded", "message": "Pod was active on the node longer than the specified deadline"},
     "ended", "timeout", "longer than"),
    ({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed due to requested number of devices unavailable"},
     "ended", "pod_refused", "devices unavailable"),
    ({"phase": "Failed", "reason": "OutOfnvidia.com/gpu", "message": "Node didn't have enough resource: nvidia.com/gpu"},
     "ended", "pod_refused", "enough resource"),
    ({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                                         "message": "preempting to accommodate a higher priority pod"}]},
     "ended", "evicted", "PreemptionByScheduler"),
    ({"phase": "Unknown"}, "running", "lost_node", "lost contact"),
    ({"phase": "Running", "containerStatuses": [{"name": "probe", "ready": True, "state": {"running": {}}}],
      "conditions": [{"type": "Ready", "status": "False"}]}, "running", "lost_node", "stopped answering"),
    ({"phase": "Running", "containerStatuses": [{"name": "probe", "ready": True, "state": {"running": {}}}],
      "conditions": [{"type": "Ready", "status": "True"}]}, "ready", "", ""),
    ({"phase": "Running", "containerStatuses": [{"name": "probe", "ready": False, "state": {"running": {}}}]}, "running", "", ""),
    # A probe that goes before a container that stays.
    (before({"waiting": {"reason": "PodInitializing"}}), "pending", "timeout", "not made yet"),
    (before({"waiting": {"reason": "ImagePullBackOff", "message": "x:1: not found"}}), "hopeless", "image_pull", "not found"),
    (before({"running": {}}), "running", "", ""),
    (before({"terminated": {"exitCode": 0}}), "ended", "", ""),
    (before({"terminated": {"exitCode": 0}}, phase="Running"), "ended", "", ""),
    (before({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}), "ended", "oom_killed", "acceptance_kube_resources"),
    (before({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, phase="Failed"), "ended", "oom_killed", "acceptance_kube_resources"),
    (before({"waiting": {"reason": "RunContainerError", "message": 'exec: "python3": executable file not found'}}), "hopeless", "no_python",
     "not found"),
    # The kubelet has started it again: its first end counts.
    (before({"running": {}}, lastState={"terminated": {"exitCode": 1, "reason": "Error"}}), "ended", "container_failed", "exit status 1"),
    (before({"terminated": {"exitCode": 0}}, lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}), "ended", "oom_killed",
     "memory"),
    (before({"terminated": {"exitCode": 143}}, phase="Failed", reason="Evicted", message="low on memory"), "ended", "evicted", "low on"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "phase", "code", "words"), CASES)
def test_each_status_of_a_pod_has_its_phase_code_and_words(status: dict[str, t.Any], phase: str, code: str, words: str) -> None:
    found = states.state(pod(status))
    assert (found.phase, found.code) == (phase, code)
    assert words in found.words


def test_a_pod_that_is_being_deleted_has_its_reason() -> None:
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "node was unreachable"}
    found = states.state(pod({"phase": "Running", "conditions": [disrupted]}, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert found == states.State("hopeless", "evicted", "DeletionByTaintManager: node was unreachable")
    found = states.state(pod({"phase": "Running"}, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert found.code == "pod_deleted"


def test_a_probe_that_was_told_to_end_with_its_pod_was_deleted() -> None:
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert states.state(pod(before({"terminated": {"exitCode": 143}}), **gone)).code == "pod_deleted"
    assert states.state(pod(before({"terminated": {"exitCode": 0}}), **gone)) == states.State("ended")


def test_what_a_probe_that_goes_before_says_of_itself() -> None:
    """Of its first end, whatever has become of it since."""
    times = [{"startedAt": f"2026-01-01T00:00:{second:02}Z"} for second in (5, 30)]
    first, again = ({"terminated": {"exitCode": 1, "message": said, **time}} for said, time in zip(("first", "again"), times, strict=True))
    status = before(again, lastState=first)
    status["initContainerStatuses"][0]["imageID"] = "x@sha256:0"
    found = pod(status, creationTimestamp="2026-01-01T00:00:00Z")
    assert (states.message(found), states.waited_s(found), states.image_id(found)) == ("first", 5.0, "x@sha256:0")


WORDS = st.sampled_from(["", "Error", "Pending", "Running", "Failed", "Evicted", "OOMKilled", "True", "False"])
PIECE = st.fixed_dictionaries({}, optional={"reason": WORDS, "message": st.text(max_size=20), "exitCode": st.integers(0, 255) | st.none()})
STATE = st.fixed_dictionaries({}, optional={"waiting": PIECE, "terminated": PIECE, "running": st.just({})})
CONTAINER = {"state": STATE, "lastState": STATE, "ready": st.booleans()}
CONTAINERS = st.none() | st.lists(st.fixed_dictionaries({"name": st.sampled_from(["probe", "sidecar"])}, optional=CONTAINER))
STATUS = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown", ""]),
        "reason": WORDS,
        "message": st.text(max_size=20) | st.none(),
        "conditions": st.none()
        | st.lists(st.fixed_dictionaries({"type": st.sampled_from(["Ready", "PodScheduled", "DisruptionTarget"]), "status": WORDS})),
        "containerStatuses": CONTAINERS,
        "initContainerStatuses": CONTAINERS,
    },
)


@given(STATUS)
def test_any_status_has_a_state(status: dict[str, t.Any]) -> None:
    found = states.state(pod(status))
    assert found.phase in ("pending", "running", "ready", "ended", "hopeless")
    assert found.code or found.phase in ("running", "ready", "ended")


def test_a_result_in_a_message_is_no_words() -> None:
    """It has the pod's nonce in it."""
    ended = terminated(143, "Error", "gpufleet-frame/1 0123 open 2 ab 1")
    assert states.state(pod(ended)).words == "Error with exit status 143"
    assert states.message(pod(ended)).startswith("gpufleet-frame/1 ")
    assert states.message(pod({"phase": "Running"})) == ""
