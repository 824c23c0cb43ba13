# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage storage in pods: the paths are those of the pod, and nothing stays behind."""

from __future__ import annotations

import json
import pathlib

import pytest
from harness.kube_runs import KubeRuns
from rigs.kubernetes.kubernetes import Kubernetes

pytestmark = [pytest.mark.kubernetes, pytest.mark.long]
# The image of the rig has no fio.
OF_FIO = {"write", "verify", "read", "random_read", "random_write"}


def test_the_file_systems_of_pods_are_looked_at(rig_kubernetes: Kubernetes, tmp_path: pathlib.Path) -> None:
    runs = KubeRuns(rig_kubernetes, tmp_path, "probe")
    entries = [{"name": "pod", "path": "/var/tmp"}, {"name": "gone", "path": "/mnt/lustre", "shared": True}]
    more = {"acceptance_stages": ["storage"], "acceptance_storage": entries, "storage_gib": 0.06}
    done = runs.run("-e", json.dumps(more))
    found = {(v["subject"]["id"], v["variant"].partition("=")[2], v["check"]): (v["verdict"], v["reason_code"]) for v in done.verdicts}
    for node in rig_kubernetes.nodes:
        of = {key[1:]: value for key, value in found.items() if key[0] == f"lab/{node}"}
        assert of["pod", "mount"] == of["pod", "metadata"] == ("PASS", None), done.output[-4000:]
        assert {of["pod", check] for check in OF_FIO} == {("UNKNOWN", "tool_missing")}, done.output[-4000:]
        assert of["gone", "mount"] == ("FAIL", "mount_missing"), done.output[-4000:]
    assert {m["context"]["path"] for m in done.journal} == {"/var/tmp", "/mnt/lustre"}
    runs.nothing_left()
