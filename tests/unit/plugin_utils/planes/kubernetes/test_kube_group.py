# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.groups import group, group_objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.following import Follower


def test_a_pod_that_went_is_not_why_where_another_has_failed() -> None:
    """A Job that has failed takes its other pods with it, and now and then they are seen to go first."""
    client: t.Any = types.SimpleNamespace(name="lab", namespace="default")
    pods = settings.pods({"acceptance_kube_image": "registry.invalid/tester:1"})
    shape = group_objects.Shape(kind="job", name="one", nodes=["a", "b"], workers=2, devices=8, slots=8)
    launched = group.GroupLaunch(client, pods, shape, "20260101T000000Z-0a1b2c", "groups", 60.0, b"", {}, lambda seats: {})
    launched._blame("pod_deleted", "somebody deleted pod one")
    launched._blame("no_python", "worker two has no python3")
    launched._blame("crash_loop", "worker three was started again")
    assert launched._fault is not None and launched._fault.reason_code == "no_python"


def test_a_deleted_pod_is_named_if_the_api_goes_behind_it() -> None:
    client: t.Any = types.SimpleNamespace(name="lab", namespace="default")
    pods = settings.pods({"acceptance_kube_image": "registry.invalid/tester:1"})
    shape = group_objects.Shape(kind="job", name="one", nodes=["a", "b"], workers=2, devices=8, slots=8)
    silent = KubeError("cluster_unreachable", "lab: connection refused")
    for gone in (True, False):
        launched = group.GroupLaunch(client, pods, shape, "20260101T000000Z-0a1b2c", "groups", 60.0, b"", {}, lambda seats: {})
        if gone:
            launched._blame("pod_deleted", "somebody deleted pod one-0 before it had answered")
        else:
            launched.following = Follower(client, pods, "", 60.0, "lab")
            launched.pods["u"] = group.GroupPod(worker=True, name="one-0", deleted=True)
        with pytest.raises(ReasonedError, match=r"somebody deleted pod one-0 .*; then lab: connection refused") as found:
            launched._watch_failed(silent)
        assert found.value.reason_code == "pod_deleted"


def test_an_image_of_the_operators_own_blames_no_node_and_lets_the_next_launcher_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """The training operator has workers wait for the master in an image that a cluster without a way out cannot have."""
    client: t.Any = types.SimpleNamespace(name="lab", namespace="default")
    pods = settings.pods({"acceptance_kube_image": "registry.invalid/tester:1"})
    shape = group_objects.Shape("pytorchjob", "one", ["a", "b"], 2)
    waiting = {"reason": "ImagePullBackOff", "message": 'image "alpine:3.10": not found'}
    for name, code, absent in (("init-pytorch", "no_launcher", False), ("tools", "image_pull", True)):
        launched = group.GroupLaunch(client, pods, shape, "20260101T000000Z-0a1b2c", "groups", 60.0, b"", {}, lambda seats: {})

        def follow(launched: group.GroupLaunch = launched, name: str = name) -> t.Any:
            launched._update({
                "metadata": {"name": "one-worker-0", "uid": "u", "labels": {"component": "worker"}}, "spec": {"nodeName": "b"},
                "status": {"phase": "Pending", "initContainerStatuses": [{"name": name, "state": {"waiting": waiting}}]},
            })  # fmt: skip
            launched._check_worker(launched._workers()[0], 0.0)
            raise launched._fault or AssertionError

        launched.launch.own({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner", "uid": "u"}})
        monkeypatch.setattr(launched, "_owner", lambda launch=launched.launch: launch)
        follower = types.SimpleNamespace(start=lambda: None, stop=lambda: None)
        follower.trouble = lambda pod, _now: types.SimpleNamespace(code=pod.state.code, reason=pod.state.words)
        monkeypatch.setattr(launched, "_follower", lambda follower=follower: follower)
        monkeypatch.setattr(launched, "_submit", lambda _made: None)
        monkeypatch.setattr(launched, "_follow", follow)
        answer = launched.run()
        assert answer.result["reason_code"] == code and "alpine:3.10" in answer.result["reason"], answer
        assert bool(answer.absent) == absent
