# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A detached run: what may be left to a cluster, what is remembered of it, and whose its objects are meanwhile."""

from __future__ import annotations

import os
import pathlib
import time
import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import marks, settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import prepare as planning
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.interface import Interface, PlanError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.manifest import Manifest

RUN = "20260101T000000Z-0a1b2c"
LAB = {
    "acceptance_detach": True, "acceptance_plane": "kubernetes", "acceptance_kube_launcher": "pods", "acceptance_kube_keep": "never",
    "acceptance_kube_gpu_stages": ["nccl_node", "gemm"],
}  # fmt: skip


def stages(*names: str, manifest: t.Any = None) -> list[Interface]:
    found = [Manifest(name, manifest) if manifest else registry.shipped()[name] for name in names]
    return t.cast("list[Interface]", [types.SimpleNamespace(name=stage.name, stage=stage) for stage in found])


@pytest.mark.parametrize("names", [("stack",), ("gemm",), ("nccl_node", "gemm")])
def test_what_may_be_left_to_a_cluster(names: tuple[str, ...]) -> None:
    assert planning.detached(stages(*names), {"lab": LAB})
    assert not planning.detached(stages(*names), {"lab": {**LAB, "acceptance_detach": False}})


@pytest.mark.parametrize(
    ("wanted", "of", "words"),
    [
        (stages("stack", "gemm"), {}, "pods of stage stack ask for no devices"),
        (stages("gemm"), {"acceptance_plane": "ssh"}, "leave out lab"),
        (stages("gemm"), {"acceptance_kube_launcher": "job"}, "found acceptance_kube_launcher 'job'"),
        (stages("gemm"), {"acceptance_kube_keep": "on_failure"}, "would hold their devices"),
        (stages("nccl_fabric"), {}, "nccl_fabric runs between nodes"),
        (stages("own", manifest={"kind": "Job"}), {}, "own is a manifest"),
    ],
)
def test_what_needs_its_controller(wanted: list[Interface], of: dict[str, t.Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        planning.detached(wanted, {"lab": {**LAB, **of}})


def test_what_is_remembered_is_for_its_owner_only_and_gone_when_collected(tmp_path: pathlib.Path) -> None:
    run = Run(tmp_path, RUN)
    run.make()
    assert run.load_detached("gemm", "a/b") is None
    record = {"launch": "l", "secret": "s", "nodes": ["n"]}
    run.save_detached("gemm", "a/b", record)
    assert run.load_detached("gemm", "a/b") == record and [oct(p.stat().st_mode)[-3:] for p in (run.dir / "detached").iterdir()] == ["600"]
    run.save_detached("stack", "a/b", record)
    run.save_detached("stack", "c", record)
    assert run.detached_nodes() == 2 * len(record["nodes"]), "each node once, whatever its stages"
    run.drop_detached("stack", "a/b")
    run.drop_detached("stack", "c")
    run.drop_detached("gemm", "a/b")
    assert run.load_detached("gemm", "a/b") is None and not (run.dir / "detached").exists()


def test_objects_of_nobody_are_abandoned_when_they_have_expired_and_no_sooner() -> None:
    launch = objects.Launch(RUN, "gemm", "lab", 100.0)
    launch.stays_s, launch.holder = 1000.0, marks.DETACHED
    item = {"metadata": launch.metadata("n", "probe", settings.PodSettings(image="a:1"))}
    now = time.time()
    assert not marks.abandoned(item, now + 1000 + 100 + marks.GRACE_S - 5)
    assert marks.abandoned(item, now + 1000 + 100 + marks.GRACE_S + 5)
    launch.holder = ""
    assert str(os.getppid()) in launch.metadata("n", "probe", settings.PodSettings(image="a:1"))["annotations"][marks.CONTROLLER]
