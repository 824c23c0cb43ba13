# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Groups of pods by a PyTorchJob: the real training operator over two real nodes, and its API without anybody who acts on it.

The operator is built from its Go module for this file alone and runs beside the cluster. Its init container, an image of its own that looks
for the master's name, is here the tester image, which the nodes have.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import time
import typing as t

import pytest
import test_kube_groups as groups
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup, discovery
from harness.namespace import roles
from rigs import common, pytorch
from rigs.kubernetes import build
from rigs.kubernetes.kubernetes import Kubernetes
from test_kube_ddp import CHECKS, accepted

pytestmark = [pytest.mark.kubernetes, pytest.mark.long]
KIND = "pytorchjob"
ROLES = ("group", "group-job", "group-pytorchjob")
JOBS = "/apis/kubeflow.org/v1/{}/pytorchjobs"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# As the operator's own, by a program that our image has.
WAITS = """\
- name: init-pytorch
  image: {{.InitContainerImage}}
  imagePullPolicy: Never
  command: ["sh", "-c", "until getent hosts {{.MasterAddr}}; do sleep 1; done"]
"""


@pytest.fixture(scope="module")
def cluster(rig_kubernetes: Kubernetes) -> t.Iterator[Kubernetes]:
    """With the API of PyTorchJobs, which others of this cluster do not know."""
    manifests = build.optional() / "manifests/training-operator"
    rig_kubernetes.api.create(DEFINITIONS, next(manifests.rglob("*.yaml")).read_text())
    yield rig_kubernetes
    rig_kubernetes.api.delete(f"{DEFINITIONS}/pytorchjobs.kubeflow.org")
    _until(lambda: not _served(rig_kubernetes))


@pytest.fixture
def lab(cluster: Kubernetes) -> t.Iterator[groups.Lab]:
    made = groups.Lab(cluster)
    made.permit(roles(*ROLES))
    _until(lambda: discovery.absent(made.api, KIND) is None)
    yield made
    cluster.api.delete(f"/api/v1/namespaces/{made.namespace}")


@pytest.fixture
def operator(lab: groups.Lab, tmp_path: pathlib.Path) -> t.Iterator[None]:
    with acting(lab, tmp_path, lab.image):
        yield


@contextlib.contextmanager
def acting(lab: groups.Lab, tmp_path: pathlib.Path, image: str) -> t.Iterator[None]:
    """The real operator, for the test's own namespace."""
    (tmp_path / "init.yaml").write_text(WAITS)
    argv = [
        build.optional() / "training-operator", "--enable-scheme=pytorchjob", f"--namespace={lab.namespace}", "--metrics-bind-address=0",
        "--health-probe-bind-address=0", f"--pytorch-init-container-image={image}",
        f"--pytorch-init-container-template-file={tmp_path / 'init.yaml'}",
    ]  # fmt: skip
    log = tmp_path / "operator.log"
    with open(log, "wb") as said:
        child = subprocess.Popen(argv, env={**os.environ, "KUBECONFIG": str(lab.cluster.kubeconfig)}, stdout=said, stderr=said)
    try:
        _until(lambda: b"Starting workers" in log.read_bytes() or child.poll() is not None)
        assert child.poll() is None, log.read_text()[-2000:]
        yield
    finally:
        child.kill()
        child.wait()


def _served(cluster: Kubernetes) -> bool:
    with contextlib.suppress(Exception):
        return any(found["name"] == "pytorchjobs" for found in cluster.api.request("GET", "/apis/kubeflow.org/v1")["resources"])
    return False


def _until(condition: t.Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.3)


def test_what_its_operator_tells_the_pods_misleads_no_agent(lab: groups.Lab, operator: None) -> None:
    assert discovery.choose(lab.api).kinds == [KIND, "job"]
    script = "echo $NODE_RANK of $NNODES with $PET_NPROC_PER_NODE at $MASTER_ADDR:$MASTER_PORT, world ${WORLD_SIZE-none} rank ${RANK-none}"
    caught: list[dict[str, t.Any]] = []
    thread = lab.when("worker", "Running", caught.append)
    answer = lab.run(KIND, ["sh", "-c", script], more={"launcher": "agents"}, start_timeout=120.0)
    thread.join(60)
    found = groups.seen(answer)
    assert found["outcome"] == "measured" and found["context"]["ranks"] == {"kube-01": 8, "kube-02": 8}, found
    lines = found["context"]["stdout"].splitlines()
    assert [line.split(" at ")[0] for line in lines] == ["0 of 2 with 8", "1 of 2 with 8"], lines
    assert all(line.endswith("world none rank none") and ":23456" not in line for line in lines), lines
    assert (
        answer.launch_facts["launcher"] == KIND
        and set(answer.launch_facts["nodes"]) == {"kube-01", "kube-02"}
        and answer.launch_facts["image_id"]
    )
    env = {one["name"]: one.get("value") for one in caught[0]["spec"]["containers"][0]["env"]}
    assert env["WORLD_SIZE"] and env["MASTER_ADDR"] and env["PET_NNODES"] == "2", "it did tell them"


def test_a_group_of_its_pods_trains(lab: groups.Lab, operator: None, tmp_path: pathlib.Path) -> None:
    common.need_packages(pytorch.PACKAGES)
    good, journal = accepted(lab, tmp_path, acceptance_kube_group_launcher="auto", acceptance_kube_start_timeout=120)
    assert {m["check"]: (m["outcome"], m["reason"]) for m in journal} == dict.fromkeys((*CHECKS, "member"), ("measured", None)) and good
    assert {m["context"].get("kube_launcher") for m in journal if m["check"] in CHECKS} == {KIND}
    lab.nothing_left()


def test_after_kill_9_of_everything_the_next_start_removes_it(lab: groups.Lab, operator: None, tmp_path: pathlib.Path) -> None:
    running = groups._playing(lab, tmp_path, KIND)
    (made,) = lab.items(JOBS)
    assert made["spec"]["runPolicy"]["activeDeadlineSeconds"] and made["spec"]["runPolicy"]["ttlSecondsAfterFinished"]
    os.killpg(running.pid, signal.SIGKILL)
    running.wait(60)
    assert lab.items(JOBS)
    assert any("of run " in said for said in cleanup.janitor(lab.api))
    lab.nothing_left()
    assert not lab.items(JOBS)


def test_an_image_of_its_operators_that_nodes_cannot_have_is_no_fault_of_theirs(lab: groups.Lab, tmp_path: pathlib.Path) -> None:
    with acting(lab, tmp_path, "gpufleet.invalid/absent:1"):
        answer = lab.run(KIND)
    code, reason = groups.why(answer)
    assert code == "no_launcher" and "init-pytorch does not start" in reason and "ErrImageNeverPull" in reason and not answer.absent


def test_nobody_acts_on_it(lab: groups.Lab) -> None:
    code, reason = groups.why(lab.run(KIND))
    assert code == "no_launcher" and "nobody has taken it up within 40 s" in reason


def test_every_right_is_needed(lab: groups.Lab) -> None:
    groups.every_right_is_needed(lab, KIND, ROLES)
