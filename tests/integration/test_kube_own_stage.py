# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The stages of docs/stages.md, in pods on real kubelets: those that a node measures by itself, and the one over a group."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
import yaml
from harness.kube_runs import KubeRuns
from harness.pages import files_of
from rigs.kubernetes.kubernetes import Kubernetes

pytestmark = pytest.mark.kubernetes


@pytest.fixture
def page(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, t.Any]:
    """The files of the page in a folder beside nothing of the collection, and its variables with the stages that clusters have."""
    files_of("docs/stages.md", tmp_path)
    monkeypatch.setenv("ANSIBLE_ROLES_PATH", str(tmp_path / "roles"))
    variables = yaml.safe_load((tmp_path / "group_vars/all.yml").read_text())
    for key in ("acceptance_stages", "acceptance_expectations"):
        variables[key] = [one for one in variables[key] if one.get("name", one.get("id")) != "reach"]
    return t.cast("dict[str, t.Any]", variables)


def test_stages_of_ones_own_are_accepted_in_pods(rig_kubernetes: Kubernetes, tmp_path: pathlib.Path, page: dict[str, t.Any]) -> None:
    runs = KubeRuns(rig_kubernetes, tmp_path, "probe", "group", "group-job")
    done = runs.run("-e", json.dumps(page), acceptance_kube_group_launcher="job")
    assert done.status == 0, done.output[-3000:]
    nodes = [f"lab/{node}" for node in rig_kubernetes.nodes]
    expected = {(stage, node, "PASS") for stage in ("copy", "memory", "gather") for node in nodes}
    assert {(v["stage"], v["subject"]["id"], v["verdict"]) for v in done.verdicts} == expected | {("gather", "gather/lab", "PASS")}
    (group,) = [m for m in done.journal if m["subject"]["kind"] == "group"]
    assert group["subject"]["members"] == nodes and group["metrics"]["bandwidth"]["value"] > 0
    runs.nothing_left()
