# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A team's own stage is a Job or a DaemonSet: the examples of the documentation on real nodes, and what may go wrong with them."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
import yaml
from harness.fleet_runs import ROOT, Done
from harness.kube_runs import KubeRuns
from rigs.kubernetes.kubernetes import Kubernetes

pytestmark = [pytest.mark.kubernetes, pytest.mark.long]
EXAMPLES = ROOT / "docs" / "examples"
ONE_LINE = 'echo "gpufleet-result/1 $GPUFLEET_NONCE $(printf %s "$R" | wc -c) $(printf %s "$R" | sha256sum | cut -d" " -f1) '
ONE_LINE += '$(printf %s "$R" | base64 -w0)"'

CONDITION = '{"observations": [{"check": "own", "context": {"condition": true}}]}'


class Stage:
    """A run with one stage `own`, which is a manifest."""

    def __init__(self, cluster: Kubernetes, folder: pathlib.Path) -> None:
        self.runs = KubeRuns(cluster, folder, "probe", "job", "daemonset")
        self.file = folder / "own.yml"

    def example(self, name: str) -> dict[str, t.Any]:
        text = (EXAMPLES / name).read_text().replace("registry.example.com/tester:1.0", self.runs.cluster.image)
        return t.cast("dict[str, t.Any]", yaml.safe_load(text.replace("nvidia-smi", "/opt/simulated/bin/nvidia-smi")))

    def shell(self, script: str, kind: str = "Job", framed: bool = False, **pod: t.Any) -> dict[str, t.Any]:
        found = self.example("disk-read.yml" if kind == "DaemonSet" else "burn-in.yml")
        found["metadata"] = {"annotations": {"gpufleet.acceptance/result": "framed"}} if framed else {}
        found["spec"]["template"]["spec"] = {
            "containers": [{"name": "a", "image": self.runs.cluster.image, "command": ["sh", "-c", script]}],
            **pod,
        }
        return found

    def run(self, manifest: dict[str, t.Any], *more: str, **variables: t.Any) -> Done:
        self.file.write_text(yaml.safe_dump(manifest))
        stages = {"acceptance_stages": [{"name": "own", "manifest": str(self.file)}]}
        done = self.runs.run("-e", json.dumps(stages), *more, **variables)
        self.runs.nothing_left()
        return done


@pytest.fixture
def stage(rig_kubernetes: Kubernetes, tmp_path: pathlib.Path) -> Stage:
    return Stage(rig_kubernetes, tmp_path)


def verdicts(done: Done) -> set[tuple[str, str | None]]:
    return {(v["verdict"], v["reason_code"]) for v in done.verdicts}


def test_example_whose_exit_status_is_judged(stage: Stage) -> None:
    done = stage.run(stage.example("burn-in.yml"))
    assert done.status == 0 and {v["subject"]["id"] for v in done.verdicts} == {"lab/kube-01", "lab/kube-02"}, done.output[-3000:]
    assert verdicts(done) == {("PASS", None)}
    assert all(m["context"]["image_id"] and m["context"]["exit_status"] == 0 for m in done.journal)
    assert "8 GPUs" in (done.folder / "raw" / "lab%2Fkube-01" / "own-pod-1.log").read_text()


def test_example_with_a_number(stage: Stage) -> None:
    entry = {"match": {"stage": "own", "check": "disk_read"}, "metric": "bandwidth", "value": 0.001, "unit": "GB/s", "source": "a test"}
    entry.update(id="own", date="2026-11", confidence="measured")
    variables = {"own_checks": [{"check": "disk_read"}], "acceptance_expectations": [entry]}
    done = stage.run(stage.example("disk-read.yml"), **variables)
    assert done.status == 0 and verdicts(done) == {("PASS", None)}, done.output[-3000:]
    assert all(m["metrics"]["bandwidth"]["value"] > 0 for m in done.journal)


@pytest.mark.parametrize(
    ("kind", "framed", "script", "found"),
    [
        ("Job", False, 'test "$GPUFLEET_NODE" = kube-01 || { echo it is slow; exit 3; }', {"PASS": None, "FAIL": "own_test"}),
        ("DaemonSet", False, "echo bad; exit 4", {"FAIL": "own_test"}),
        ("DaemonSet", False, "exit 0", {"PASS": None}),
        ("Job", False, "exit 137", {"UNKNOWN": "container_failed"}),
        ("Job", False, "nowhere", {"UNKNOWN": "no_python"}),
        ("Job", True, "echo nothing", {"UNKNOWN": "no_result"}),
        ("Job", True, 'R=\'{"observations": [{"check": "own"}]}\'; ' + ONE_LINE, {"UNKNOWN": "no_number"}),
        ("Job", True, f"R='{CONDITION}'; " + ONE_LINE, {"PASS": None}),
        ("Job", True, 'R=\'{"observations": [{"check": "own"}]}\'; ' + ONE_LINE + "; exit 1", {"FAIL": "own_test"}),
        ("Job", True, "GPUFLEET_NONCE=of-another; R={}; " + ONE_LINE, {"UNKNOWN": "forged_frame"}),
        ("Job", True, f"R='{CONDITION.replace('own', 'other')}'; " + ONE_LINE, {"PASS": None, "UNKNOWN": "bad_measurement"}),
    ],
)  # fmt: skip
def test_ends(stage: Stage, kind: str, framed: bool, script: str, found: dict[str, str | None]) -> None:
    done = stage.run(stage.shell(script, kind, framed))
    assert verdicts(done) == set(found.items()), [(m["outcome"], m["reason"]) for m in done.journal]
    assert (done.status == 0) == (set(found) == {"PASS"})


def test_what_is_ours_to_say_is_refused_before_anything_is_made(stage: Stage) -> None:
    done = stage.run(stage.shell("true", nodeSelector={"a": "b"}))
    assert done.status != 0 and done.folder is None and "nodeSelector is not for the manifest to say" in done.output, done.output
    manifest = stage.shell("true", hostPID=True)
    done = stage.run(manifest)
    assert verdicts(done) == {("UNKNOWN", "bad_spec")} and "acceptance_kube_allow" in done.journal[0]["reason"]


def test_a_field_that_the_api_does_not_know_is_no_silent_loss(stage: Stage) -> None:
    done = stage.run(stage.shell("true", schedulerNam="mine"))
    assert verdicts(done) == {("UNKNOWN", "bad_spec")} and "unknown field" in done.journal[0]["reason"]


def test_a_missing_right_is_named(stage: Stage) -> None:
    stage.runs.allow("probe", "daemonset")
    done = stage.run(stage.shell("true"))
    assert verdicts(done) == {("UNKNOWN", "no_permission")} and "get jobs.batch" in done.journal[0]["reason"]
