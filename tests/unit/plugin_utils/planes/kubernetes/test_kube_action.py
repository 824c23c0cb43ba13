# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people see of the pods of a run, and of their logs."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import marks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import kube_action

PODS = "/api/v1/namespaces/here/pods"
FRAME = b"".join(frame.lines({"state": "done"}, frame.nonce_of("secret", "uid")))


def pod(name: str, node: str, **status: t.Any) -> dict[str, t.Any]:
    return {
        "metadata": {"name": name, "uid": name, "labels": {marks.RUN: "run", marks.STAGE: "stack"}},
        "spec": {"nodeName": node, "containers": [{"name": marks.CONTAINER, "image": "tester:1"}]},
        "status": status,
    }


def test_labels_select_all_of_ours_or_one_run_or_one_stage() -> None:
    assert kube_action.selector() == marks.OURS
    assert kube_action.selector("r", "gemm") == f"{marks.OURS},{marks.RUN}=r,{marks.STAGE}=gemm"


def test_pods_say_what_is_wrong_with_them_and_what_to_do(script: t.Any) -> None:
    waiting = {"name": marks.CONTAINER, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}}}
    script.says(
        PODS,
        {
            "metadata": {},
            "items": [
                pod("a", "n1", phase="Running"),
                pod("b", "n2", phase="Pending", containerStatuses=[waiting]),
            ],
        },
    )
    good, bad = kube_action.pods(script.client(), "ours")
    assert (good["node"], good["phase"], good["words"], good["advice"]) == ("n1", "Running", "", "")
    assert "no such tag" in bad["words"] and "acceptance_kube_image" in bad["advice"]
    assert [found["pod"] for found in kube_action.pods(script.client(), "ours", "n2")] == ["b"]


def test_the_last_lines_of_a_log_are_without_frames(script: t.Any) -> None:
    script.says(f"{PODS}/a/log", b"one\n" + FRAME + b"\ntwo\nthree\n")
    assert kube_action.last_lines(script.client(), {"pod": "a", "container": "main"}, 2) == ["two", "three"]
    assert kube_action.last_lines(script.client(), {"pod": "b", "container": "main"}, 2)[0].startswith("no log: ")


def test_following_ends_with_the_last_log(script: t.Any) -> None:
    script.says(f"{PODS}/a/log", b"one\n" + FRAME)
    said: list[str] = []
    kube_action.follow(script.client(), [{"pod": name, "node": f"on-{name}", "container": "main"} for name in "ab"], 30, said.append)
    assert "on-a: one" in said and any(line.startswith("on-b: no log: ") for line in said) and len(said) == 2
