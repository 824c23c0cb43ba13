# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run that is left to its cluster: submitted by one controller, looked at by another, collected and judged by a third."""

from __future__ import annotations

import json
import pathlib
import time

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup
from harness.kube_runs import KubeRuns
from rigs.kubernetes.kubernetes import Kubernetes

pytestmark = [pytest.mark.kubernetes, pytest.mark.long]
DETACH = ("-e", "acceptance_detach=true")


@pytest.fixture
def runs(rig_kubernetes: Kubernetes, tmp_path: pathlib.Path) -> KubeRuns:
    return KubeRuns(rig_kubernetes, tmp_path, "probe")


def wait_ended(runs: KubeRuns, count: int, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while sum(pod["status"]["phase"] == "Succeeded" for pod in runs.pods()) < count:
        assert time.monotonic() < end, [pod["status"] for pod in runs.pods()]
        time.sleep(0.3)


def test_submitted_here_and_judged_there(runs: KubeRuns) -> None:
    submitted = runs.run(*DETACH, "--tags", "nccl_node,gemm")
    assert submitted.status == 2 and submitted.folder and not submitted.verdicts and not submitted.journal, submitted.output[-3000:]
    run_id = submitted.folder.name
    assert f"DETACHED: run {run_id} works on 4 nodes" in submitted.output and "ACCEPTED" not in submitted.output
    assert all((path.stat().st_mode & 0o777) == 0o600 for path in (submitted.folder / "detached").iterdir())
    wait_ended(runs, 4)  # the second stage's pods had to wait for the devices of the first one's
    assert not cleanup.janitor(runs.admin), "another run's start must leave it alone"
    shown = runs.run("-e", f"run_id={run_id}", "-e", "tail=5", playbook="playbooks/status.yml").output
    assert "detached: playbooks/resume.yml collects it" in shown and "nccl_node" in shown
    judged = runs.run("-e", f"run_id={run_id}", playbook="playbooks/judge.yml")
    assert judged.status != 0 and {v["reason_code"] for v in judged.verdicts} == {"not_run"}
    done = runs.run("-e", f"run_id={run_id}", playbook="playbooks/resume.yml")
    assert {v["verdict"] for v in done.verdicts} <= {"PASS", "WARN"}, [m["reason"] for m in done.journal]
    assert done.status == 0 and {m["attempt"] for m in done.journal} == {1} and not (done.folder / "detached").exists()
    runs.nothing_left()


def test_collected_while_it_runs_and_after_somebody_deleted_a_pod(runs: KubeRuns) -> None:
    submitted = runs.run(*DETACH, "--tags", "stack")
    assert submitted.folder
    pods = f"/api/v1/namespaces/{runs.namespace}/pods"
    runs.admin.delete(pods, fieldSelector="spec.nodeName=kube-02")
    resume = ("-e", f"run_id={submitted.folder.name}")
    done = runs.run(*resume, playbook="playbooks/resume.yml")
    verdicts = {v["subject"]["id"]: (v["verdict"], v["reason_code"]) for v in done.verdicts if v["check"] == "facts"}
    assert verdicts["lab/kube-02"] == ("UNKNOWN", "pod_deleted") and verdicts["lab/kube-01"][0] in ("PASS", "WARN"), verdicts
    runs.nothing_left()
    again = runs.run(*resume, playbook="playbooks/resume.yml")
    assert {m["attempt"] for m in again.journal if m["subject"]["id"] == "lab/kube-01"} == {1}
    assert any(m["attempt"] == 2 and m["outcome"] == "measured" for m in again.journal if m["subject"]["id"] == "lab/kube-02")
    runs.nothing_left()


def test_given_up(runs: KubeRuns) -> None:
    submitted = runs.run(*DETACH, "--tags", "stack", acceptance_nodes={"names": ["kube-01", "kube-99"]})
    assert submitted.folder and {m["reason_code"] for m in submitted.journal} == {"node_absent"}
    removed = runs.run("-e", f"run_id={submitted.folder.name}", playbook="playbooks/cleanup.yml")
    assert removed.status == 0
    runs.nothing_left()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ((), "stage stack ask for no devices"),
        (("--tags", "stack", "-e", "acceptance_kube_launcher=daemonset"), "found acceptance_kube_launcher 'daemonset'"),
        (("-e", json.dumps({"acceptance_stages": ["nccl_fabric"]})), "stage nccl_fabric runs between nodes"),
        # Of a cluster called a machine behind SSH what is about a cluster is refused first.
        (("--tags", "stack", "-e", "acceptance_plane=ssh"), "acceptance_kube_"),
    ],
)
def test_what_needs_its_controller_is_refused_before_anything_is_made(runs: KubeRuns, more: tuple[str, ...], words: str) -> None:
    done = runs.run(*DETACH, *more)
    assert done.status != 0 and done.folder is None and words in " ".join(done.output.split()), done.output[-2000:]
