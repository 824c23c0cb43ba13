# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The stages of docs/stages.md that a node measures by itself, in pods on real kubelets."""

from __future__ import annotations

import json
import pathlib

import pytest
import yaml
from harness.kube_runs import KubeRuns
from harness.pages import files_of
from rigs.kubernetes.kubernetes import Kubernetes

pytestmark = pytest.mark.kubernetes


def test_a_command_and_a_probe_of_ones_own_are_accepted_in_pods(
    rig_kubernetes: Kubernetes, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files_of("docs/stages.md", tmp_path)
    monkeypatch.setenv("ANSIBLE_ROLES_PATH", str(tmp_path / "roles"))
    variables = yaml.safe_load((tmp_path / "group_vars/all.yml").read_text())
    for key in ("acceptance_stages", "acceptance_expectations"):
        variables[key] = [one for one in variables[key] if one.get("name", one.get("id")) not in ("reach", "gather")]
    runs = KubeRuns(rig_kubernetes, tmp_path, "probe")
    done = runs.run("-e", json.dumps(variables))
    assert done.status == 0, done.output[-3000:]
    nodes = {f"lab/{node}" for node in rig_kubernetes.nodes}
    assert {(v["stage"], v["subject"]["id"], v["verdict"]) for v in done.verdicts} == {
        (stage, node, "PASS") for stage in ("copy", "memory") for node in nodes
    }
    runs.nothing_left()
