# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convictions of stage nccl_fabric over four nodes with a real kubelet each."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import test_kube_groups as groups
from harness.own_rig import own
from rigs.kubernetes.kubernetes import Kubernetes

pytestmark = [pytest.mark.kubernetes(own=True), pytest.mark.long]
NODES = 4
EXPECTED = {**groups.EXPECTED, "match": {**groups.EXPECTED["match"], "gpus": 1}}
# Few ranks: all nodes share the processors of this machine.
FABRIC = {
    "acceptance_expectations": [EXPECTED], "acceptance_kube_group_launcher": "job", "nccl_fabric_gpus": [1], "nccl_fabric_repeats": 1,
    "acceptance_nodes": {"names": [f"kube-{number:02d}" for number in range(1, NODES + 1)]},
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> t.Iterator[Kubernetes]:
    with own(Kubernetes) as made:
        made.up(nodes=NODES)
        yield made


@pytest.fixture
def lab(cluster: Kubernetes) -> t.Iterator[groups.Lab]:
    made = groups.Lab(cluster)
    yield made
    cluster.api.delete(f"/api/v1/namespaces/{made.namespace}")


def test_a_slow_node_is_convicted_and_nobody_else(lab: groups.Lab, tmp_path: pathlib.Path) -> None:
    plant = lab.cluster.plant("kube-03")
    plant.write_text(plant.read_text() + "FAULTS=nccl_slow=0.5\n")
    try:
        report, journal = groups._accepted(lab, tmp_path, **FABRIC)
    finally:
        lab.cluster.as_born("kube-03")
    found = [m for m in journal if m["check"] == "localise"]
    assert [(m["subject"]["kind"], m["subject"]["id"], m["outcome"]) for m in found] == [("node", "lab/kube-03", "measured")], found
    assert found[0]["context"]["confidence"] == "convicted" and found[0]["context"]["rounds"] <= 5 and found[0]["context"]["tested"]
    assert {m["subject"]["id"]: m["outcome"] for m in journal if m["check"] == "member"} == dict.fromkeys(
        (f"lab/kube-{number:02d}" for number in range(1, NODES + 1)), "measured"
    )
    assert not report["accepted"]
    lab.nothing_left()


def test_a_group_goes_on_without_a_node_whose_pod_does_not_come_up(lab: groups.Lab, tmp_path: pathlib.Path) -> None:
    """The first, on which the head of a group of machines would be: somebody has its devices."""
    container = {
        "name": "main", "image": lab.cluster.bare_image, "command": ["/bin/sleep", "600"], "resources": {"limits": {"nvidia.com/gpu": "8"}},
    }  # fmt: skip
    spec = {"nodeName": "kube-01", "terminationGracePeriodSeconds": 0, "containers": [container]}
    pods = f"/api/v1/namespaces/{lab.namespace}/pods"
    lab.before = {"training-0"}
    lab.cluster.api.create(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "training-0"}, "spec": spec})
    try:
        report, journal = groups._accepted(lab, tmp_path, **FABRIC, acceptance_kube_start_timeout=25)
    finally:
        lab.cluster.api.delete(f"{pods}/training-0?gracePeriodSeconds=0")
    group = next(m for m in journal if m["check"] == "all_reduce")
    assert group["outcome"] == "error" and group["reason_code"] == "member" and "kube-01" in group["reason"], group["reason"]
    assert "the other 3 were measured" in group["reason"] and group["metrics"]["busbw"]["value"] > 200, group
    members = {m["subject"]["id"]: m for m in journal if m["check"] == "member"}
    assert {name: m["outcome"] for name, m in members.items()} == {
        "lab/kube-01": "error", "lab/kube-02": "measured", "lab/kube-03": "measured", "lab/kube-04": "measured",
    }  # fmt: skip
    assert members["lab/kube-01"]["reason_code"] == "unschedulable" and "Insufficient nvidia.com/gpu" in members["lab/kube-01"]["reason"]
    assert not report["accepted"]
    lab.nothing_left()
