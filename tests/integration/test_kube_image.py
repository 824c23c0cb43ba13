# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An image whose tag may be another one tomorrow is a WARN, and the digest that ran is in every measurement."""

from __future__ import annotations

import pathlib

import pytest
from harness.kube_runs import KubeRuns
from rigs.kubernetes.kubernetes import Kubernetes

pytestmark = [pytest.mark.kubernetes, pytest.mark.long]
LATEST = "gpufleet.invalid/floating:latest"


def test_latest_is_a_warning_with_the_digest_that_ran(rig_kubernetes: Kubernetes, tmp_path: pathlib.Path) -> None:
    runs = KubeRuns(rig_kubernetes, tmp_path, "probe")
    ctr = ("ctr", "-a", "/rig/containerd.sock", "-n", "k8s.io", "images")
    for node in rig_kubernetes.nodes:
        rig_kubernetes.inside(node, *ctr, "tag", "--force", rig_kubernetes.image, LATEST)
    image = {"acceptance_kube_image": LATEST, "acceptance_kube_image_pull_policy": "IfNotPresent"}
    try:
        done = runs.run("--tags", "nccl_node", **image)
        refused = runs.run("--tags", "nccl_node", "-e", "acceptance_warn=refuse", "-e", f"acceptance_results_dir={tmp_path}/2", **image)
    finally:
        for node in rig_kubernetes.nodes:
            rig_kubernetes.inside(node, *ctr, "rm", LATEST)
    found = {(v["check"], v["verdict"], v["reason_code"]) for v in done.verdicts}
    assert done.status == 0 and found >= {("all_reduce", "PASS", None), ("image", "WARN", "floating_image")}, (found, done.output[-3000:])
    (digest,) = {m["context"]["image_id"] for m in done.journal}
    assert "sha256:" in digest and all(digest in v["reason"] for v in done.verdicts if v["check"] == "image")
    assert refused.status != 0 and "acceptance_warn is refuse" in refused.output
    runs.nothing_left()
