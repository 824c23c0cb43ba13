# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What has become of a pod is sorted once, and what is waited for is said."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import marks, settings, states
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import following
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.following import Follower, Pod, waited_for

READY = [{"type": "Ready", "status": "True"}]
RUNNING = {
    "phase": "Running",
    "conditions": READY,
    "containerStatuses": [{"name": marks.CONTAINER, "ready": True, "state": {"running": {}}}],
}


def waiting(reason: str, message: str = "") -> dict[str, t.Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"name": marks.CONTAINER, "state": state}]}


UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}],
}


class Api:
    """As much of a cluster as is asked while a pod does not go on."""

    namespace = "lab"

    def __init__(self, namespace: dict[str, t.Any] | None = None, refuses: int = 404) -> None:
        self.found = {"metadata": {}} if namespace is None else namespace
        self.refuses = refuses
        self.asked: list[str] = []

    def get(self, path: str, **query: t.Any) -> dict[str, t.Any]:
        self.asked.append(path)
        if path.endswith("/events"):
            assert "involvedObject.uid=u" in query["fieldSelector"]
            event = {"reason": "FailedMount", "message": "no such secret", "involvedObject": {"name": "p"}}
            return {"items": [event, event]}
        if path == "/api/v1/namespaces/lab":
            if not self.found:
                raise KubeError("namespace_gone" if self.refuses == 404 else "no_permission", "no", self.refuses)
            return self.found
        raise KubeError("no_permission", "no", 403)

    def pages(self, path: str, **query: t.Any) -> list[dict[str, t.Any]]:
        limits = {"resources": {"limits": {"nvidia.com/gpu": "3"}}}
        return [{"items": [{"metadata": {"namespace": "a", "name": "training-0"}, "spec": {"containers": [limits]}}]}]


def follower(api: Api | None = None) -> Follower:
    wanted = settings.pods({"acceptance_kube_image": "a:1", "acceptance_kube_start_timeout": 100})
    return Follower(t.cast(Client, api or Api()), wanted, "x=y", 50.0, "lab: gemm")


def seen(status: dict[str, t.Any], **meta: t.Any) -> Pod:
    pod = Pod("n1", since=0.0)
    pod.see({"metadata": {"name": "p", "uid": "u", **meta}, "spec": {"nodeName": "n1"}, "status": status})
    return pod


@pytest.mark.parametrize(
    ("status", "after", "code", "words"),
    [
        (waiting("ErrImagePull", "try again"), 99, None, ""),
        (
            waiting("ErrImagePull", "try again"),
            101,
            "image_pull",
            "not started within 100 s: ErrImagePull: try again; FailedMount: no such",
        ),
        (waiting("ImagePullBackOff", "denied"), 0, "image_pull", "ImagePullBackOff: denied"),
        (UNSCHEDULABLE, 101, "unschedulable", "nvidia.com/gpu of n1 is held by a/training-0 (3)"),
        (waiting("CreateContainerError", "no such"), 0, "container_failed", "CreateContainerError"),
    ],
)
def test_a_pod_that_does_not_start_has_the_reason_why(status: dict[str, t.Any], after: float, code: str | None, words: str) -> None:
    found = follower().trouble(seen(status), after, devices=8)
    assert (found.code if found else None) == code
    assert words in (found.reason if found else "")


def test_one_that_runs_has_its_own_time_from_when_it_began() -> None:
    pod = seen(RUNNING)
    assert pod.going_on and follower().trouble(pod, pod.since + 49) is None
    found = follower().trouble(pod, pod.since + 51)
    assert found and found.code == "timeout" and "no answer within 50 s" in found.reason


def test_a_lost_node_may_come_back_for_a_while() -> None:
    pod = seen({**RUNNING, "conditions": [{"type": "Ready", "status": "False"}]})
    assert follower().trouble(pod, pod.since + following.LOST_S - 1) is None
    found = follower().trouble(pod, pod.since + following.LOST_S + 1)
    assert found and found.code == "lost_node"


@pytest.mark.parametrize(
    ("namespace", "refuses", "code"),
    [
        (None, 0, "pod_deleted"),
        ({"metadata": {"deletionTimestamp": "now"}}, 0, "namespace_gone"),
        ({}, 404, "namespace_gone"),
        # A namespace that is deleted takes our RoleBinding with it, which may go before the pods.
        ({}, 403, "namespace_gone"),
        ({}, 500, "pod_deleted"),
    ],
)
def test_a_pod_that_is_gone_has_the_reason_of_what_removed_it(namespace: dict[str, t.Any] | None, refuses: int, code: str) -> None:
    api = Api(namespace, refuses)
    following_ = follower(api)
    assert [following_.why_removed(seen(RUNNING), "it had answered").code for _again in range(5)] == [code] * 5
    assert len(api.asked) == len(set(api.asked)) <= 2, "of thousands of pods the namespace, and a node, are asked once"


def test_a_pod_that_the_api_evicted_is_evicted() -> None:
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "x"}
    pod = seen({**RUNNING, "conditions": [disrupted]}, deletionTimestamp="now")
    assert follower().why_removed(pod, "it had answered").code == "evicted"


def test_what_is_waited_for_is_said_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(following.Display, "display", lambda _self, text, *_more: said.append(text))
    found, pods = follower(), [seen(waiting("ImagePullBackOff", "toomanyrequests")) for _number in range(2)]
    now = found._began = 1000.0  # whole seconds, which sums of floating point keep
    for second in range(0, 200, 1):
        found.waiting(pods if second < 150 else [], now + second)
    words = "2 pods (n1, n1): ImagePullBackOff: toomanyrequests"
    assert said == [f"lab: gemm has waited {second} s for {words}" for second in (10, 71, 132)]
    found.waiting([], now + 300, "the head")
    assert said[-1] == "lab: gemm has waited 300 s for the head"


def test_causes_of_many_pods_are_few_words() -> None:
    pods = [Pod(f"n{number}", state=states.State(states.PENDING, "", f"cause {number % 5}")) for number in range(100)]
    words = waited_for([*pods, seen(RUNNING)])
    assert words.startswith("20 pods (n0, n10, n15 ...): cause 0; ") and words.endswith("; 40 more")


def test_what_the_api_had_shown_before_it_went_silent_is_not_lost() -> None:
    silent = KubeError("cluster_unreachable", "lab: connection refused")
    assert Follower.unanswered(Pod("a", name="p"), silent) == ("cluster_unreachable", "lab: connection refused")
    deleted = Pod("a")
    deleted.see({"metadata": {"uid": "u", "name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}, "status": RUNNING})
    code, reason = Follower.unanswered(deleted, silent)
    assert code == "pod_deleted" and reason.startswith("somebody deleted pod p before it had answered; then lab: connection refused")
