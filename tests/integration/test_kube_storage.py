# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stages storage and storage_together in pods: the paths are those of the pod, and nothing stays behind."""

from __future__ import annotations

import json
import pathlib
import shutil
import tempfile

import pytest
from harness.kube_runs import KubeRuns
from rigs import common, storage
from rigs.kubernetes.kubernetes import Kubernetes

pytestmark = [pytest.mark.kubernetes, pytest.mark.long]
OF_FIO = ("write", "verify", "read", "random_read", "random_write")
STATED = {"gibps_read": 0.0001, "gibps_write": 0.0001}


def test_the_file_systems_of_pods_are_looked_at(rig_kubernetes: Kubernetes, tmp_path: pathlib.Path) -> None:
    runs = KubeRuns(rig_kubernetes, tmp_path, "probe")
    entries = [{"name": "pod", "path": "/var/tmp", **STATED}, {"name": "gone", "path": "/mnt/lustre", "shared": True}]
    more = {"acceptance_stages": ["storage"], "acceptance_storage": entries, "storage_gib": 0.06}
    done = runs.run("-e", json.dumps(more))
    found = {(v["subject"]["id"], v["variant"].partition("=")[2], v["check"]): (v["verdict"], v["reason_code"]) for v in done.verdicts}
    for node in rig_kubernetes.nodes:
        of = {key[1:]: value for key, value in found.items() if key[0] == f"lab/{node}"}
        assert of["pod", "mount"] == of["pod", "metadata"] == ("PASS", None), done.output[-4000:]
        assert {of["pod", check] for check in OF_FIO} == {("PASS", None)}, done.output[-4000:]
        rates = {
            m["check"]: m["metrics"] for m in done.journal if m["subject"]["id"] == f"lab/{node}" and m["context"]["path"] == "/var/tmp"
        }
        assert rates["read"]["bandwidth"]["value"] > STATED["gibps_read"] and rates["random_write"]["iops"]["value"] > 0, rates
        assert of["gone", "mount"] == ("FAIL", "mount_missing"), done.output[-4000:]
    assert {m["context"]["path"] for m in done.journal} == {"/var/tmp", "/mnt/lustre"}
    runs.nothing_left()


def test_pods_begin_together_and_see_each_others_files(rig_kubernetes: Kubernetes, tmp_path: pathlib.Path) -> None:
    """All nodes but the last one have mounted one folder by sshfs: that of /dev, which the machines of the rig share."""
    common.need_packages(storage.PACKAGES)
    *mounted, bare = rig_kubernetes.nodes
    runs = KubeRuns(rig_kubernetes, tmp_path, "probe", "rdma")
    export = pathlib.Path(tempfile.mkdtemp(prefix="gpufleet-export-", dir="/dev"))
    path = f"/mnt/{export.name}"
    try:
        for node in rig_kubernetes.nodes:
            rig_kubernetes.inside(node, "mkdir", "-p", path)
        for node in mounted:
            server = ("-o", "ssh_command=sh -c /usr/lib/openssh/sftp-server", "-o", "dir_cache=no")
            rig_kubernetes.inside(node, "sshfs", f"any:{export}", path, *server)
        volume = {"name": "home", "hostPath": {"path": path, "type": "Directory"}}
        patch = {"spec": {"volumes": [volume]}, "container": {"volumeMounts": [{"name": "home", "mountPath": "/mnt/home"}]}}
        done = runs.run(
            acceptance_stages=["storage_together"], acceptance_storage=[{"name": "home", "path": "/mnt/home", "shared": True}],
            acceptance_kube_pod_patch=patch, storage_together_gib=0.05, storage_together_share=50, storage_together_seconds=1,
            storage_together_patience=5, storage_together_window=20,
        )  # fmt: skip
        found = {(v["check"], v["subject"]["id"].rpartition("/")[2]): (v["verdict"], v["reason_code"], v["reason"]) for v in done.verdicts}
        assert found["coherent", bare][:2] == ("FAIL", "mount_missing"), done.output[-4000:]
        for node in mounted[1:]:  # locks of sshfs do not hold between nodes, which is seen at one moment only
            assert "locks do not hold between nodes" in found["coherent", node][2], (found, done.output[-4000:])
        assert {found["together", node][:2] for node in mounted} == {("PASS", None)}, found
        assert list(export.iterdir()) == []
        runs.nothing_left()
    finally:
        for node in mounted:
            rig_kubernetes.inside(node, "sh", "-c", f"umount {path} || :")
        shutil.rmtree(export)
