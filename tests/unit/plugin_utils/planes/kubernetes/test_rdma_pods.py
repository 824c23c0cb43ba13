# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the pods of the RDMA stages are and have."""

from __future__ import annotations

import dataclasses
import json
import time
import typing as t

import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import access, marks, settings, states
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import PodSettings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import guardians, objects, rendezvous
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.probe import FollowedNode, NodeRequest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import rdma
from harness.namespace import RBAC

SWITCH = rdma.STAGE.isolation({})["governor_switch"]
PODS = PodSettings(image="tester:1", annotations={"a": "1"}, resources={"limits": {"memory": "1Gi"}})


def pod(pods: PodSettings = PODS, **variables: t.Any) -> dict[str, t.Any]:
    wanted = settings.with_own(pods, rdma.STAGE.isolation(variables))
    wanted = dataclasses.replace(wanted, pod_patch=settings.merged(dict(wanted.pod_patch), rendezvous.PATCH))
    launch = objects.Launch("20260101T000000Z-0a1b2c", "rdma", "acceptance", 60)
    launch.owner = {"name": "owner"}
    return launch.pod("one", 0, wanted)


def test_a_pod_gets_the_network_resource_and_capability_asked_for() -> None:
    made = pod(rdma_kube_resources={"rdma/hca": 1}, rdma_kube_capabilities=["IPC_LOCK"], rdma_kube_annotations={"nets": "rdma-net"})
    spec = made["spec"]
    (container,) = spec["containers"]
    assert spec["hostNetwork"] and made["metadata"]["annotations"]["nets"] == "rdma-net" and made["metadata"]["annotations"]["a"] == "1"
    assert container["resources"]["limits"] == {"memory": "1Gi", "rdma/hca": "1"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert not any("hostPath" in volume for volume in spec["volumes"])
    assert {"name": "told", "mountPath": rendezvous.FOLDER, "readOnly": True} in container["volumeMounts"]


def test_a_pod_without_the_host_network_has_its_own() -> None:
    assert "hostNetwork" not in pod(rdma_kube_host_network=False)["spec"]


def test_devices_of_the_host_only_where_privileged_is_allowed() -> None:
    with pytest.raises(KubeError, match="would be privileged; acceptance_kube_allow does not name it"):
        pod(rdma_kube_host_devices=True)
    made = pod(dataclasses.replace(PODS, allow=["privileged"]), rdma_kube_host_devices=True)
    assert made["spec"]["containers"][0]["securityContext"]["privileged"]
    assert any(volume.get("hostPath", {}).get("path") == "/dev/infiniband" for volume in made["spec"]["volumes"])


def test_rights_asked_for_are_those_of_the_role() -> None:
    (rule,) = yaml.safe_load((RBAC / "rdma.yaml").read_text())["rules"]
    assert {(verb, "", "pods", "") for verb in rule["verbs"]} == set(access.RENDEZVOUS) and rule["resources"] == ["pods"]


# Guardians -----------------------------------------------------------------------------------------------------------

GUARDED = {"rdma_kube_guardian": True, "rdma_governor": "performance"}


class Api:
    """A client that takes what it is given, or refuses pods."""

    name, namespace = "lab", "acceptance"

    def __init__(self, refused: KubeError | None = None) -> None:
        self.made: list[dict[str, t.Any]] = []
        self.refused = refused

    def get(self, path: str, **_query: t.Any) -> dict[str, t.Any]:
        return {"items": []}  # no events

    def pages(self, *_path: t.Any, **_query: t.Any) -> t.Iterator[dict[str, t.Any]]:
        yield {"metadata": {"resourceVersion": "1"}, "items": []}

    def lines(self, *_path: t.Any, **_query: t.Any) -> t.Iterator[bytes]:
        time.sleep(0.1)
        return iter(())

    def post(self, _path: str, body: dict[str, t.Any]) -> dict[str, t.Any]:
        if self.refused and body["kind"] == "Pod":
            raise self.refused
        self.made.append(body)
        return {**body, "metadata": {**body["metadata"], "uid": f"uid-{len(self.made)}"}}


def guarding(api: Api, start_timeout: float = 0.5, **variables: t.Any) -> guardians.Guardians:
    pods = dataclasses.replace(PODS, allow=["privileged"], capabilities=["SYS_ADMIN"], host_network=True, start_timeout=start_timeout)
    return guardians.Guardians(t.cast("t.Any", api), pods, "20260101T000000Z-0a1b2c", "rdma", b"zip", "performance", **variables)


def test_guardians_only_where_privileged_is_allowed() -> None:
    with pytest.raises(KubeError, match="rdma_kube_guardian: a guardian pod is privileged; acceptance_kube_allow does not name"):
        guardians.requested(SWITCH, GUARDED, [])
    with pytest.raises(KubeError, match="acceptance_state_dir: found '~/state', expected a whole path"):
        guardians.requested(SWITCH, {**GUARDED, "acceptance_state_dir": "~/state"}, ["privileged"])
    assert guardians.requested(SWITCH, GUARDED, ["privileged"])
    assert not guardians.requested(SWITCH, {}, [])


def test_a_guardian_has_the_cpus_the_ledger_and_little_else() -> None:
    api = Api()
    found = guarding(api, state_dir="/srv/acceptance/")
    found.start(["kube-01", "kube-02"], 600)
    found.stop()
    owner, *pods = api.made
    told = json.loads(owner["data"]["request-0.json"])["guardian"]
    assert (told["governor"], told["state_dir"], told["machine"]) == ("performance", "/host/srv/acceptance", "/host")
    assert {made["spec"]["nodeName"] for made in pods} == {"kube-01", "kube-02"} and told["timeout"] < 600
    made = pods[0]
    spec, (container,) = made["spec"], made["spec"]["containers"]
    assert spec["restartPolicy"] == "OnFailure" and spec["terminationGracePeriodSeconds"] == 30 and spec["activeDeadlineSeconds"] == 600
    assert "hostNetwork" not in spec and not spec["automountServiceAccountToken"]
    assert container["securityContext"] == {"capabilities": {"drop": ["ALL"]}, "privileged": True, "runAsUser": 0}
    assert container["resources"] == guardians.RESOURCES
    paths = {volume["hostPath"]["path"]: volume["name"] for volume in spec["volumes"] if "hostPath" in volume}
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert set(paths) == {"/sys/devices/system/cpu", "/srv", "/etc"}
    assert mounts["cpus"]["mountPath"] == "/sys/devices/system/cpu" and "readOnly" not in mounts["cpus"]
    assert mounts["state"] == {"name": "state", "mountPath": "/host/srv", "mountPropagation": "HostToContainer"}
    assert mounts["machine"]["readOnly"]
    assert made["metadata"]["ownerReferences"][0]["kind"] == "ConfigMap" and made["metadata"]["labels"]["component"] == "guardian"
    assert marks.LAUNCH in made["metadata"]["labels"] and marks.EXPIRES in made["metadata"]["annotations"]


def test_guardians_that_are_refused_or_do_not_come_cost_the_switch() -> None:
    refused = guarding(Api(KubeError("admission", "violates PodSecurity", 403)))
    refused.start(["kube-01", "kube-02"], 600)
    assert refused.settled() and refused.facts_of("kube-02")["reason_code"] == "admission"
    late = guarding(Api(), start_timeout=3.0)
    late.start(["kube-01"], 600)
    assert not late.settled()
    late._update({"metadata": {"uid": "u"}, "spec": {"nodeName": "kube-01"}, "status": {"phase": "Pending"}})
    end = time.monotonic() + 60
    while not late.settled():
        assert time.monotonic() < end
        time.sleep(0.1)
    told = late.facts_of("kube-01")
    assert (told["governor"], told["reason_code"]) == ("performance", "timeout") and "not started within" in told["reason"]
    refused.stop()
    late.stop()


def test_a_guardian_that_runs_is_known_by_address_and_key() -> None:
    found = guarding(Api())
    found.start(["kube-01"], 600)
    status = {"phase": "Running", "podIP": "10.0.0.9", "containerStatuses": [{"name": marks.CONTAINER, "state": {"running": {}}}]}
    found._update({"metadata": {"uid": "u"}, "spec": {"nodeName": "kube-01"}, "status": status})
    assert found.settled()
    key = frame.nonce_of(found.launch.secret, "u")
    assert found.facts_of("kube-01") == {"governor": "performance", "address": "10.0.0.9", "port": 18514, "key": key}
    found.stop()


@pytest.mark.parametrize("phase", [states.ENDED, states.HOPELESS])
def test_nobody_is_told_a_place_where_no_pod_runs(phase: str) -> None:
    """All pods have ended before they met, as with an image without Python, or cannot start."""
    met = rendezvous.Rendezvous(lambda addresses: {next(iter(addresses)): {}}, None, t.cast("t.Any", Api()), PODS, "run", "rdma", 60.0, b"")
    for node in ("kube-01", "kube-02"):
        request = NodeRequest(node, t.cast("t.Any", {}), 0)
        met.followed[node] = FollowedNode(node, state=states.State(phase, "no_python", "no"), request=request, ended=True)
    assert met.look() == [] and met.look() == []
