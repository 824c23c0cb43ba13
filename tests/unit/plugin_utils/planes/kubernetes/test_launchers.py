# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that something else makes and that stay: their probe goes before what stays, and alone has what a probe has."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import telemetry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import marks, settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import following, objects, probe

RUN = "20260101T000000Z-0a1b2c"
GPU = "nvidia.com/gpu"


class Api:
    """A client that keeps what it is given."""

    name, namespace = "lab", "acceptance"

    def __init__(self) -> None:
        self.made: list[dict[str, t.Any]] = []

    def post(self, _path: str, body: dict[str, t.Any], **_query: t.Any) -> dict[str, t.Any]:
        self.made.append(body)
        return {**body, "metadata": {**body["metadata"], "uid": "u"}}


def submitted(launcher: str, devices: int = 8, **variables: t.Any) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """What is submitted for two nodes, and what their pods are asked."""
    given = {"image": "tester:1", "launcher": launcher, **variables}
    pods = settings.pods({f"acceptance_kube_{name}": value for name, value in given.items()})
    api = Api()
    running = probe.NodeProbe(t.cast(Client, api), pods, RUN, "gemm", 60, b"zip")
    asked = [probe.NodeRequest(node, {"probe": "gemm"}, devices) for node in ("a", "b")]
    running._make_owner([{**asked[0].request, **running._ending()}])
    running._submit_groups(asked, [0, 0])
    owner, made = api.made
    return made["spec"]["template"]["spec"], json.loads(owner["data"]["request-0.json"])


@pytest.mark.parametrize("launcher", ["daemonset", "job"])
def test_the_probe_ends_and_something_stays(launcher: str) -> None:
    spec, asked = submitted(launcher, inject={"image": "tools:1"}, resources={"limits": {"cpu": "2", "memory": "1Gi"}})
    assert (asked["message"], asked["once"]) == (objects.MESSAGE, objects.ONCE) and "hold" not in asked
    assert [one["name"] for one in spec["initContainers"]] == ["inject", marks.CONTAINER]
    ours, (stays,) = spec["initContainers"][-1], spec["containers"]
    assert "readinessProbe" not in ours and ours["resources"]["limits"] == {"cpu": "2", "memory": "1Gi", GPU: "8"}
    # Whole processors are pinned only where all containers have their limits; devices are the probe's.
    assert stays["resources"] == {"limits": {"cpu": "2", "memory": "1Gi"}} and stays["image"] == "tester:1"
    assert following.requested({"spec": spec}, GPU) == 8


def test_who_it_is_and_what_it_may_do_is_the_probes_own() -> None:
    spec, _asked = submitted(
        "daemonset",
        privileged=True, allow=["privileged"], capabilities=["SYS_NICE"], image_pull_policy="Never", env={"TMPDIR": "/t", "OTHER": "/x"},
        pod_patch={"container": {"securityContext": {"runAsUser": 7}}},
    )  # fmt: skip
    ours, (stays,) = spec["initContainers"][-1], spec["containers"]
    assert ours["securityContext"]["privileged"] and "GPUFLEET_SECRET" in json.dumps(ours)
    assert stays["securityContext"] == {"runAsUser": 7, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    hidden = {"NVIDIA_VISIBLE_DEVICES": "void", "AMD_VISIBLE_DEVICES": "void"}
    assert {one["name"]: one["value"] for one in stays["env"]} == {"TMPDIR": "/t", "OTHER": "/x", **hidden}
    assert stays["imagePullPolicy"] == "Never" and "GPUFLEET_SECRET" not in json.dumps(stays)


@pytest.mark.parametrize("shown", [{"metrics_port": 9000}, {"env": {telemetry.LOG: "json"}}])
def test_pods_that_show_what_they_do_stay_to_be_looked_at(shown: dict[str, t.Any]) -> None:
    spec, asked = submitted("daemonset", **shown)
    assert asked["hold"] == objects.DONE and "message" not in asked and "initContainers" not in spec
    assert spec["containers"][0]["readinessProbe"]
