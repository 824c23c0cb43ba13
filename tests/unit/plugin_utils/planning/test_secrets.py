# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The environment of pods and variables with no_log stand in no file of a run, and the stages have them all the same."""

from __future__ import annotations

import json
import pathlib
import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import base
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import settings as of_cluster
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import kept, prepare
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import HostSettings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage
from harness.records import make_plan

SECRET = "hunter2"
SETTINGS = {"acceptance_kube_env": {"HTTPS_PROXY": SECRET}, "own_key": SECRET, "acceptance_kube_image": "lab/tester:1", "stack_checks": []}
STAGES: t.Any = [types.SimpleNamespace(name="own", stage=Stage(), options={"own_key": {"no_log": True}, "own_size": {}})]


def test_no_file_of_a_run_holds_them_and_the_stages_do(tmp_path: pathlib.Path) -> None:
    run = Run(tmp_path, "20260101T000000Z-0a1b2c")
    run.make()
    item = {"check": "facts", "variant": "", "subject": {"kind": "node", "id": "lab", "members": []}, "attempt": 1}
    (run.dir / "plan.json").write_text(json.dumps(kept.keep({"lab": SETTINGS}, kept.secret(STAGES)).as_dict()))
    prepare._assign(run, {"lab": {"stack": [item]}}, STAGES, {"lab": SETTINGS})
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 3 and not [path for path in files if SECRET in path.read_text()]
    action: t.Any = types.SimpleNamespace(spec={}, _templar=types.SimpleNamespace(template=lambda value: value))
    stage = {"name": "stack", "role": "gpufleet.acceptance.stack"}
    task_vars = {**SETTINGS, "inventory_hostname": "lab", "acceptance_stage": stage}
    told = base.StageOnTarget(action, {"results_dir": str(tmp_path), "run_id": run.id}, task_vars, "kubernetes").settings
    assert told == SETTINGS


def patch(token: t.Any) -> dict[str, t.Any]:
    own = [{"name": "TOKEN", "value": token}, {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    return {
        "container": {"env": own, "tty": True},
        "spec": {"initContainers": [{"name": "fetch", "image": "lab/fetch:1", "env": [{"name": "KEY", "value": token}]}]},
    }


def begun(folder: pathlib.Path, **settings: t.Any) -> tuple[Run, HostSettings]:
    """A run that was begun with these settings, and what its plan holds of them."""
    run = Run(folder, "20260101T000000Z-0a1b2c")
    run.make()
    prepare._assign(run, {"lab": {"stack": []}}, STAGES, {"lab": settings})
    return run, kept.keep({"lab": settings}, kept.secret(STAGES))


def told(run: Run, **inventory: t.Any) -> t.Any:
    """What a stage has of acceptance_kube_pod_patch with such an inventory."""
    action: t.Any = types.SimpleNamespace(spec={}, _templar=types.SimpleNamespace(template=lambda value: value))
    stage = {"name": "stack", "role": "gpufleet.acceptance.stack"}
    task_vars = {**inventory, "inventory_hostname": "lab", "acceptance_stage": stage}
    planned = {"results_dir": str(run.dir.parent), "run_id": run.id}
    return base.StageOnTarget(action, planned, task_vars, "kubernetes").settings["acceptance_kube_pod_patch"]


def test_the_values_of_an_environment_in_a_patch_are_kept_in_no_file(tmp_path: pathlib.Path) -> None:
    run, plan = begun(tmp_path, acceptance_kube_pod_patch=patch(SECRET))
    assert SECRET not in json.dumps(plan.as_dict())
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and SECRET in path.read_text()]
    assert told(run, acceptance_kube_pod_patch=patch(SECRET)) == patch(SECRET)
    (shown,) = plan.sets
    assert shown["acceptance_kube_pod_patch"]["container"]["env"][1] == patch("")["container"]["env"][1], "a reference is no secret"
    assert shown["acceptance_kube_pod_patch"]["container"]["tty"] is True


def test_a_patch_without_an_environment_is_the_plans(tmp_path: pathlib.Path) -> None:
    run, plan = begun(tmp_path, acceptance_kube_pod_patch={"container": {"tty": True}})
    assert plan.sets == [{"acceptance_kube_pod_patch": {"container": {"tty": True}}}]
    assert told(run, acceptance_kube_pod_patch={"container": {"tty": False}}) == {"container": {"tty": True}}


def test_a_resume_has_the_patch_of_the_plan_with_the_values_of_today(tmp_path: pathlib.Path) -> None:
    _run, plan = begun(tmp_path, acceptance_kube_pod_patch=patch(SECRET), acceptance_plane="kubernetes")
    now = {**patch("new"), "metadata": {"labels": {"a": "b"}}}
    inventory = {"acceptance_kube_pod_patch": now, "acceptance_plane": "kubernetes"}
    today: t.Any = types.SimpleNamespace(settings=lambda _stages: {"lab": inventory})
    found, (note,) = kept.settings(make_plan({"settings": plan}), today, STAGES)
    assert found["lab"]["acceptance_kube_pod_patch"] == patch("new")
    assert "acceptance_kube_pod_patch is " in note and "new" not in note
    without: t.Any = types.SimpleNamespace(settings=lambda _stages: {"lab": {}})
    found, _notes = kept.settings(make_plan({"settings": plan}), without, STAGES)
    with pytest.raises(KubeError, match=r"pod_patch: the value of TOKEN in its env stands in no file of a run: give the variable again"):
        of_cluster.pods({**SETTINGS, **found["lab"], "acceptance_kube_env": {}})


@pytest.mark.parametrize(
    "wrong", [{"container": {"env": {"A": SECRET}}}, {"container": SECRET}, {"spec": {"initContainers": {"env": [SECRET]}}}]
)
def test_a_patch_of_the_wrong_shape_is_not_shown(wrong: dict[str, t.Any], tmp_path: pathlib.Path) -> None:
    with pytest.raises(KubeError, match=r"acceptance_kube_pod_patch: .*found a ") as refusal:
        of_cluster.pods({**SETTINGS, "acceptance_kube_pod_patch": wrong})
    assert SECRET not in refusal.value.reason


def test_what_is_wrong_with_them_is_said_without_their_values() -> None:
    with pytest.raises(KubeError, match="acceptance_kube_env: found a list as A, expected a text") as refusal:
        of_cluster.pods({**SETTINGS, "acceptance_kube_env": {"A": [SECRET]}})
    assert SECRET not in refusal.value.reason
