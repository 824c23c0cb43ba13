# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Quarantine against a real API server, as somebody who may what files/rbac/quarantine.yaml says, and nothing more."""

from __future__ import annotations

import pathlib
import time
import typing as t

import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import client as api
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.control import KubeControl
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.node_control import NodeChangedError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine import reason
from harness.fleet_runs import ROOT
from harness.quarantine_worlds import HOST, KubernetesWorld, Sequence
from rigs.kubernetes.kubernetes import Kubernetes

pytestmark = pytest.mark.kubernetes

REASON = reason.text_of(reason.Mark("20260101T000000Z-0a1b2c", "part", 1767225600, "gpu-03 GPU 7: ecc"))


@pytest.fixture(scope="module")
def world(rig_kubernetes: Kubernetes) -> t.Iterator[KubernetesWorld]:
    made = KubernetesWorld(rig_kubernetes)
    yield made
    for name in made.names:
        made.clean(name)
    made.rest()


@pytest.fixture
def control(world: KubernetesWorld) -> KubeControl:
    for name in world.names:
        world.clean(name)
    return KubeControl(api.connect(api.Connection(HOST, kubeconfig=world.variables["acceptance_kube_kubeconfig"])))


def test_a_node_is_cordoned_with_taint_annotation_and_label_and_given_back_as_it_was(
    world: KubernetesWorld, control: KubeControl, rig_kubernetes: Kubernetes
) -> None:
    name = world.names[0]

    def node() -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", rig_kubernetes.api.request("GET", f"/api/v1/nodes/{name}"))

    before = node()
    pods = world.work()
    state = control.read(f"{HOST}/{name}")
    assert state is not None and not state.held and 0 < state.since < time.time() and state.boot == before["status"]["nodeInfo"]["bootID"]
    control.drain(state, REASON)
    end = time.monotonic() + 30
    while not any(taint["key"] == "node.kubernetes.io/unschedulable" for taint in node()["spec"].get("taints") or ()):
        assert time.monotonic() < end, "the control plane taints a cordoned node"
        time.sleep(0.1)
    held = control.read(f"{HOST}/{name}")
    assert held is not None and held.held and held.reason == REASON and abs(held.held_at - time.time()) < 60
    assert node()["metadata"]["labels"]["gpufleet.acceptance/quarantined"] == "true" and pods <= world.work()
    control.resume(held)
    while node()["spec"] != before["spec"]:
        assert time.monotonic() < end + 30, node()["spec"]
        time.sleep(0.1)
    assert node()["metadata"].get("labels") == before["metadata"].get("labels")
    assert node()["metadata"].get("annotations") == before["metadata"].get("annotations")


def test_a_change_by_somebody_between_reading_and_writing_refuses_ours(world: KubernetesWorld, control: KubeControl) -> None:
    name = world.names[0]
    state = control.read(f"{HOST}/{name}")
    assert state is not None
    world.hold(name, "bob: RMA")
    with pytest.raises(NodeChangedError, match="the object has been modified"):
        control.drain(state, REASON)
    with pytest.raises(NodeChangedError, match="the object has been modified"):
        control.resume(state)
    with pytest.raises(NodeChangedError, match="the object has been modified"):
        control.comment(state, REASON)
    assert world.state()[name] == (True, "", "")


def test_whoever_may_quarantine_may_nothing_else(world: KubernetesWorld, control: KubeControl) -> None:
    for method, path, body in (
        ("DELETE", f"/api/v1/nodes/{world.names[0]}", None), ("GET", "/api/v1/namespaces/default/pods", None),
        ("DELETE", f"/api/v1/namespaces/default/pods/work-{world.names[0]}", None), ("GET", "/api/v1/namespaces/default/secrets", None),
        ("PATCH", f"/api/v1/nodes/{world.names[0]}/status", {"status": {}}),
    ):  # fmt: skip
        with pytest.raises(api.KubeError) as refused:
            control.client._request(method, path, {}, body)
        assert refused.value.status == 403, (method, path)


def test_random_sequences_touch_nothing_of_others(world: KubernetesWorld, tmp_path: pathlib.Path) -> None:
    """The short version of tests/drills/quarantine.py."""
    played = [Sequence(world, tmp_path / str(seed), seed, restarts=False) for seed in (1, 2, 3)]
    for sequence in played:
        assert not sequence.play(8), [f"seed {sequence.seed}", *sequence.told]
    assert sum(sequence.drained for sequence in played)


def test_the_roles_name_nodes_only() -> None:
    (role,) = yaml.safe_load_all((ROOT / "files/rbac/quarantine.yaml").read_text(encoding="utf-8"))
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]}]
