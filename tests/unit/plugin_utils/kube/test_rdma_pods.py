# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the pods of the RDMA stages are and have."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube import access, meeting, objects, stage_rdma
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube.client import KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube.settings import PodSettings
from kube_roles import RBAC

PODS = PodSettings(image="tester:1", annotations={"a": "1"}, resources={"limits": {"memory": "1Gi"}})


def pod(pods: PodSettings = PODS, **variables: t.Any) -> dict[str, t.Any]:
    wanted = stage_rdma.pods_of(pods, variables)
    wanted = dataclasses.replace(wanted, pod_patch=objects.merged(dict(wanted.pod_patch), meeting.PATCH))
    launch = objects.Launch("20260101T000000Z-0a1b2c", "rdma", "acceptance", 60)
    launch.owner = {"name": "owner"}
    return launch.pod("one", 0, wanted)


def test_network_resource_and_capability() -> None:
    made = pod(rdma_kube_resources={"rdma/hca": 1}, rdma_kube_capabilities=["IPC_LOCK"], rdma_kube_annotations={"nets": "rdma-net"})
    spec = made["spec"]
    (container,) = spec["containers"]
    assert spec["hostNetwork"] and made["metadata"]["annotations"]["nets"] == "rdma-net" and made["metadata"]["annotations"]["a"] == "1"
    assert container["resources"]["limits"] == {"memory": "1Gi", "rdma/hca": "1"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert not any("hostPath" in volume for volume in spec["volumes"])
    assert {"name": "told", "mountPath": meeting.FOLDER, "readOnly": True} in container["volumeMounts"]


def test_a_network_of_their_own() -> None:
    assert "hostNetwork" not in pod(rdma_kube_host_network=False)["spec"]


def test_devices_of_the_host_only_where_privileged_is_allowed() -> None:
    with pytest.raises(KubeError, match="would be privileged; acceptance_kube_allow does not name it"):
        pod(rdma_kube_host_devices=True)
    made = pod(dataclasses.replace(PODS, allow=["privileged"]), rdma_kube_host_devices=True)
    assert made["spec"]["containers"][0]["securityContext"]["privileged"]
    assert any(volume.get("hostPath", {}).get("path") == "/dev/infiniband" for volume in made["spec"]["volumes"])


def test_rights_asked_for_are_those_of_the_role() -> None:
    (rule,) = yaml.safe_load((RBAC / "rdma.yaml").read_text())["rules"]
    assert {(verb, "", "pods", "") for verb in rule["verbs"]} == set(access.MEETING) and rule["resources"] == ["pods"]
