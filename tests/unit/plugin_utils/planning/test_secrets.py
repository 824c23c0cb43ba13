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
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run

SECRET = "hunter2"
SETTINGS = {"acceptance_kube_env": {"HTTPS_PROXY": SECRET}, "own_key": SECRET, "acceptance_kube_image": "lab/tester:1", "stack_checks": []}
STAGES: t.Any = [types.SimpleNamespace(name="own", options={"own_key": {"no_log": True}, "own_size": {}})]


def test_no_file_of_a_run_holds_them_and_the_stages_do(tmp_path: pathlib.Path) -> None:
    run = Run(tmp_path, "20260101T000000Z-0a1b2c")
    run.make()
    item = {"check": "facts", "variant": "", "subject": {"kind": "node", "id": "lab", "members": []}, "attempt": 1}
    (run.dir / "plan.json").write_text(json.dumps(kept.keep({"lab": SETTINGS}, kept.secret(STAGES))))
    prepare._assign(run, {"lab": {"stack": [item]}}, STAGES, {"lab": SETTINGS})
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 3 and not [path for path in files if SECRET in path.read_text()]
    action: t.Any = types.SimpleNamespace(spec={}, _templar=types.SimpleNamespace(template=lambda value: value))
    stage = {"name": "stack", "role": "gpufleet.acceptance.stack"}
    task_vars = {**SETTINGS, "inventory_hostname": "lab", "acceptance_stage": stage}
    told = base.StageOnTarget(action, {"results_dir": str(tmp_path), "run_id": run.id}, task_vars, "kubernetes").settings
    assert told == SETTINGS


def test_what_is_wrong_with_them_is_said_without_their_values() -> None:
    with pytest.raises(KubeError, match="acceptance_kube_env: found a list as A, expected a text") as refusal:
        of_cluster.pods({**SETTINGS, "acceptance_kube_env": {"A": [SECRET]}})
    assert SECRET not in refusal.value.reason
