# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What variables and node objects say, what a pod is made of, and what may be said of credentials."""

from __future__ import annotations

import base64
import datetime
import json
import pathlib
import tempfile
import typing as t

import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes import devices, plane
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import client, inventory, marks, settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import foreseeable
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import driver
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

IMAGE = {"acceptance_kube_image": "registry.invalid/tester:1"}


def launch() -> objects.Launch:
    made = objects.Launch("20260101T000000Z-0a1b2c", "nccl_node", "gpu", 600)
    made.own({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": made.name, "uid": "u-1"}})
    return made


def pod(**variables: t.Any) -> dict[str, t.Any]:
    return launch().pod("p-0", 0, settings.pods({**IMAGE, **{f"acceptance_kube_{k}": v for k, v in variables.items()}}))


def refused(call: t.Callable[[], t.Any]) -> str:
    with pytest.raises(client.KubeError) as caught:
        call()
    return caught.value.reason


# Variables -------------------------------------------------------------------------------------------------------

COMMON = collection.ROOT / "roles" / "common" / "meta" / "argument_specs.yml"


def test_every_variable_of_the_role_is_known_and_no_other() -> None:
    options = yaml.safe_load(COMMON.read_text())["argument_specs"]["main"]["options"]
    assert settings.variable_names() == sorted(name[len(settings.PREFIX) :] for name in options if name.startswith(settings.PREFIX))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"image_": "x"}, "acceptance_kube_image_ is not known"),
        ({"tolerations": "x"}, "acceptance_kube_tolerations"),
        ({"tolerations": [1]}, "acceptance_kube_tolerations"),
        ({"env": ["A=1"]}, "acceptance_kube_env"),
        ({"resources": "8"}, "acceptance_kube_resources"),
        ({"resources": {"limit": {"cpu": 8}}}, "acceptance_kube_resources: .* expected {requests"),
        ({"resources": {"limits": "8"}}, "acceptance_kube_resources: .* expected {requests"),
        ({"resources": {"limits": {"cpu": "many"}}}, "acceptance_kube_resources: found 'many', expected a quantity"),
        ({"resources": {"limits": {"cpus": 8}}}, "acceptance_kube_resources: limits: found key 'cpus', .* did you mean cpu"),
        ({"shm_size": "huge"}, "acceptance_kube_shm_size: found 'huge', expected a quantity"),
        ({"env": {"A": {"b": 1}}}, "acceptance_kube_env: .* as A, expected a text"),
        ({"annotations": {"k8s.v1.cni.cncf.io/networks": [1]}}, "acceptance_kube_annotations: .* expected a text"),
        ({"results": "x"}, "acceptance_kube_results"),
        ({"pod_patch": "x"}, "acceptance_kube_pod_patch"),
        ({"pod_patch": {"spec": "x"}}, "acceptance_kube_pod_patch: spec: found a str, expected fields"),
        ({"pod_patch": {"spec": {"initContainers": ["x"]}}}, "spec.initContainers: .* expected a list of mappings"),
        ({"pod_patch": {"spec": {"initContainers": [{"securityContext": "x"}]}}}, "spec.initContainers: expected a mapping"),
        ({"pod_patch": {"container": {"env": "x"}}}, "container.env: found a str, expected a list of mappings"),
        ({"pod_patch": {"container": {"env": ["x"]}}}, "container.env: .* expected a list of mappings"),
        ({"pod_patch": {"container": {"securityContext": "x"}}}, "container.securityContext: found a str, expected a mapping"),
        ({"pod_patch": {"metadata": {"labels": ["x"]}}}, "metadata.labels: .* expected a mapping"),
        ({"start_timeout": 0}, "acceptance_kube_start_timeout"),
        ({"keep_seconds": -5}, "acceptance_kube_keep_seconds"),
        ({"start_timeout": "soon"}, "acceptance_kube_start_timeout"),
        ({"host_network": "maybe"}, "acceptance_kube_host_network"),
        ({"image_pull_secrets": [{"name": "registry"}]}, "acceptance_kube_image_pull_secrets: .* expected names"),
    ],
)
def test_options_of_a_module_are_held_against_the_same_types(wrong: dict[str, t.Any], words: str) -> None:
    with pytest.raises(client.KubeError, match=words) as caught:
        pod(**wrong)
    assert caught.value.reason_code == "bad_spec"


@pytest.mark.parametrize("size", ["8Gi", "500M", "1.5Gi", "100m", 8, 0.5, "1e9", "1E", "128974848"])
def test_quantities_of_kubernetes_are_taken_as_limits(size: t.Any) -> None:
    assert settings.pods({**IMAGE, "acceptance_kube_resources": {"limits": {"memory": size}}}).resources["limits"] == {"memory": size}


def test_what_is_off_by_name_is_off() -> None:
    wanted = settings.pods({**IMAGE, "acceptance_kube_privileged": "false", "acceptance_kube_host_root": "no"})
    assert not wanted.privileged and not wanted.host_root and not wanted.allow


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"server": "lab.example.com"}, "acceptance_kube_server: expected an address"),
        ({"server": "https://lab:port"}, "acceptance_kube_server: expected an address"),
        ({"proxy": "::::"}, "acceptance_kube_proxy: expected an address"),
        ({"proxy": "http://192.0.2.1 :3128"}, "acceptance_kube_proxy: expected an address"),
        ({"token_file": "/token"}, "acceptance_kube_token_file goes with acceptance_kube_server"),
        ({"ca_file": "/ca.crt"}, "acceptance_kube_ca_file goes with acceptance_kube_server"),
    ],
)
def test_a_way_to_the_cluster_that_cannot_be_is_named(wrong: dict[str, str], words: str) -> None:
    given = {settings.PREFIX + name: value for name, value in wrong.items()}
    with pytest.raises(client.KubeError, match=f"lab: {words}"):
        settings.connection("lab", given)


# Objects ---------------------------------------------------------------------------------------------------------


def test_every_object_is_found_owned_and_ends_by_itself() -> None:
    made = pod()
    labels, spec = made["metadata"]["labels"], made["spec"]
    assert labels[marks.RUN] == "20260101T000000Z-0a1b2c" and labels[marks.STAGE] == "nccl_node"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u-1"
    assert spec["activeDeadlineSeconds"] == 600 and spec["restartPolicy"] == "Never"
    assert spec["automountServiceAccountToken"] is False and not objects.powers(spec)
    assert all(len(name) <= 63 for name in (made["metadata"]["name"], launch().name))


def test_devices_are_asked_for_and_only_those() -> None:
    free, taken = pod(), launch().pod("p", 0, settings.pods({**IMAGE, "acceptance_kube_resources": {"limits": {"cpu": 8}}}), 8)
    assert free["spec"]["containers"][0]["resources"] == {}
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"} in free["spec"]["containers"][0]["env"]
    assert taken["spec"]["containers"][0]["resources"] == {"limits": {"cpu": 8, "nvidia.com/gpu": "8"}}
    assert not any(variable["name"] == "NVIDIA_VISIBLE_DEVICES" for variable in taken["spec"]["containers"][0]["env"])


def test_devices_of_another_maker_are_asked_for_by_their_name() -> None:
    taken = launch().pod("p", 0, settings.pods({**IMAGE, "acceptance_kube_resource": "huawei.com/Ascend910"}), 8)
    assert taken["spec"]["containers"][0]["resources"] == {"limits": {"huawei.com/Ascend910": "8"}}


def test_host_ipc_and_privileged_are_off_and_named_when_they_are_on() -> None:
    assert not objects.powers(pod()["spec"])
    wanted = settings.pods({**IMAGE, "acceptance_kube_host_ipc": True, "acceptance_kube_privileged": True})
    assert list(wanted.allow) == ["privileged", "host_ipc"]
    made = launch().pod("p", 0, wanted)["spec"]
    assert made["hostIPC"] is True and objects.powers(made) == ["privileged", "host_ipc"]
    assert "allowPrivilegeEscalation" not in made["containers"][0]["securityContext"], "the API refuses both together"


def test_processors_and_memory_are_requested_and_limited() -> None:
    wanted = {"cpu": "8", "memory": "16Gi"}
    taken = settings.pods({**IMAGE, "acceptance_kube_resources": {"requests": wanted, "limits": wanted}})
    resources = launch().pod("p", 0, taken, 2)["spec"]["containers"][0]["resources"]
    assert resources == {"requests": wanted, "limits": {**wanted, "nvidia.com/gpu": "2"}}


def test_what_an_image_lacks_is_brought_along() -> None:
    plain = pod()["spec"]
    assert "initContainers" not in plain and plain["containers"][0]["command"][0] == "python3"
    spec = pod(inject={"image": "registry.invalid/tools:1"}, resources={"limits": {"cpu": 8}}, image_pull_policy="Never")["spec"]
    (first,), container = spec["initContainers"], spec["containers"][0]
    assert first["command"] == ["cp", "-RP", "/opt/gpufleet/.", first["volumeMounts"][0]["mountPath"]]
    assert first["resources"] == {"limits": {"cpu": 8}} and first["imagePullPolicy"] == "Never"
    assert container["command"][0] == "/opt/gpufleet/bin/python3"
    assert {"name": "inject", "mountPath": "/opt/gpufleet", "readOnly": True} in container["volumeMounts"]
    assert {"name": "inject", "emptyDir": {}} in spec["volumes"]
    spec = pod(inject={"volume": {"hostPath": {"path": "/data"}}, "path": "/data/tools"}, python="/usr/bin/python3")["spec"]
    assert "initContainers" not in spec and {"name": "inject", "hostPath": {"path": "/data"}} in spec["volumes"]
    assert spec["containers"][0]["command"][0] == "/usr/bin/python3"
    assert {"name": "GPUFLEET_TOOLS", "value": "/data/tools"} in spec["containers"][0]["env"]


@pytest.mark.parametrize(
    ("inject", "words"),
    [
        ({"image": "a:1", "folder": "/opt"}, "found key 'folder'"),
        ({"path": "/opt/gpufleet"}, "expected either an image or a volume"),
        ({"image": "a:1", "volume": {"emptyDir": {}}}, "expected either an image or a volume"),
        ({"image": "a:1", "path": "/gpufleet/in"}, "found path '/gpufleet/in'"),
        ({"image": "a:1", "path": "opt/tools"}, "found path 'opt/tools'"),
        ({"image": "a:1", "path": "/"}, "found path '/'"),
    ],
)
def test_what_is_brought_along_is_checked(inject: dict[str, t.Any], words: str) -> None:
    assert words in refused(lambda: pod(inject=inject))


def test_the_host_is_mounted_read_only() -> None:
    mount = next(m for m in pod()["spec"]["containers"][0]["volumeMounts"] if m["name"] == "host")
    assert mount["readOnly"] is True
    assert not any(v["name"] == "host" for v in pod(host_root=False)["spec"]["volumes"])


def test_a_patch_is_merged_and_lists_are_appended() -> None:
    patch = {
        "spec": {"volumes": [{"name": "data", "emptyDir": {}}]},
        "container": {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
    }
    spec = pod(pod_patch=patch)["spec"]
    assert [v["name"] for v in spec["volumes"]] == ["in", "work", "host", "data"]
    assert spec["containers"][0]["volumeMounts"][-1]["mountPath"] == "/data"


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"spec": {"nodeName": "other"}}, "spec.nodeName is not to be changed"),
        ({"spec": {"restartPolicy": "Always"}}, "spec.restartPolicy"),
        ({"metadata": {"labels": {marks.RUN: "x"}}}, "metadata.labels.gpufleet.acceptance/run-id"),
        ({"container": {"command": ["sh"]}}, "container.command"),
        ({"container": {"env": [{"name": "GPUFLEET_SECRET", "value": "x"}]}}, "env GPUFLEET_SECRET"),
        ({"spec": {"hostPID": True}}, "the pods would be host_pid; acceptance_kube_allow does not name it"),
        ({"container": {"securityContext": {"privileged": True}}}, "the pods would be privileged"),
        ({"sidecar": {}}, "found key 'sidecar'"),
    ],
)
def test_a_patch_may_not_touch_what_holds_a_pod(patch: dict[str, t.Any], words: str) -> None:
    assert words in refused(lambda: pod(pod_patch=patch))


def test_a_power_that_is_allowed_is_given() -> None:
    assert pod(pod_patch={"spec": {"hostPID": True}}, allow=["host_pid"])["spec"]["hostPID"] is True
    assert "found 'root'" in refused(lambda: pod(allow=["root"]))


def test_an_object_is_abandoned_when_its_controller_is_gone_or_its_time_is_over() -> None:
    made = {"metadata": {"annotations": pod()["metadata"]["annotations"]}}
    assert not marks.abandoned(made)
    assert marks.abandoned(made, now=4e9)
    gone = {**made["metadata"]["annotations"], marks.CONTROLLER: driver.of().rsplit("/", 1)[0] + "/1"}
    assert marks.abandoned({"metadata": {"annotations": gone}})
    elsewhere = {**made["metadata"]["annotations"], marks.CONTROLLER: "other-boot/pid:[1]/17/12345"}
    assert not marks.abandoned({"metadata": {"annotations": elsewhere}})
    assert marks.abandoned({"metadata": {}})


# Nodes -----------------------------------------------------------------------------------------------------------


def node(**spec: t.Any) -> dict[str, t.Any]:
    status = {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": "n1", "labels": {}}, "spec": spec, "status": status}


def obstacle(item: dict[str, t.Any], *tolerations: dict[str, t.Any], devices: bool = True) -> t.Any:
    return inventory.obstacle(inventory.summary(item, "nvidia.com/gpu"), tolerations, devices, "nvidia.com/gpu")


def test_nodes_are_sorted_once_into_those_that_can_be_used_and_why_the_others_cannot() -> None:
    there = [inventory.summary(item, "nvidia.com/gpu") for item in (node(), node(unschedulable=True))]
    there[1] = there[1]._replace(name="n2")
    able, refused = inventory.usable(
        ["n2", "n1", "n3"], iter(there), lambda one: inventory.obstacle(one, (), True, "nvidia.com/gpu"), lambda name: ("node_absent", name)
    )
    assert list(able) == ["n1"] and [(name, why[0]) for name, why in refused.items()] == [("n2", "node_cordoned"), ("n3", "node_absent")]


def test_nodes_where_no_pod_may_go() -> None:
    assert obstacle(node()) is None
    assert obstacle(node(unschedulable=True)) == ("node_cordoned", "node n1 is cordoned (kubectl uncordon n1)")
    assert obstacle(node(unschedulable=True), {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}) is None
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    assert obstacle(node(taints=[taint]))[1].startswith("node n1 has taint team=a:NoSchedule")
    assert obstacle(node(taints=[taint]), {"key": "team", "value": "a"}) is None
    assert obstacle(node(taints=[taint]), {"key": "team", "value": "b"}) is not None
    assert obstacle(node(taints=[taint]), {"operator": "Exists"}) is None
    assert obstacle(node(taints=[{**taint, "effect": "PreferNoSchedule"}])) is None
    down = node()
    down["status"]["conditions"] = [
        {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting"}
    ]
    assert obstacle(down) == ("node_not_ready", "node n1 is not ready: NodeStatusUnknown: Kubelet stopped posting")
    bare = node()
    bare["status"]["allocatable"] = {}
    assert obstacle(bare)[0] == "no_gpu" and obstacle(bare, devices=False) is None


@pytest.mark.parametrize("resource", ["amd.com/gpu", "amd.com/cpx_nps4"])
def test_nodes_and_pods_of_amd_gpus_are_those_of_their_resource(resource: str) -> None:
    assert inventory.selection_of("lab", {"acceptance_kube_resource": resource}).selector == "feature.node.kubernetes.io/amd-gpu=true"
    made = launch().pod("p", 0, settings.pods({**IMAGE, "acceptance_kube_resource": resource}), 8)
    assert made["spec"]["containers"][0]["resources"]["limits"] == {resource: "8"}
    free = launch().pod("p", 0, settings.pods({**IMAGE, "acceptance_kube_resource": resource}))["spec"]["containers"][0]
    assert {"name": "AMD_VISIBLE_DEVICES", "value": "all"} in free["env"]


def test_a_node_that_offers_another_device_than_the_one_that_is_meant_is_told_so() -> None:
    item = node()
    item["status"]["allocatable"] = {"cpu": "96", "amd.com/cpx_nps4": "64", "amd.com/spx_nps1": "0", "rdma/hca": "8"}
    found = inventory.obstacle(inventory.summary(item, "amd.com/gpu"), (), True, "amd.com/gpu")
    assert found and found[0] == "no_gpu"
    assert found[1].endswith("It offers amd.com/cpx_nps4 (64); acceptance_kube_resource says which one stands for a GPU")


AMD = {"acceptance_kube_resource": "amd.com/gpu"}


@pytest.mark.parametrize(
    ("stage", "more", "holds"),
    [
        ("stack", {}, True),
        ("stack", {"acceptance_kube_resource": "amd.com/cpx_nps4"}, True),
        ("stack", {"acceptance_kube_runtime_class": "amd"}, False),
        ("stack", {"acceptance_kube_gpu_stages": ["nccl_node"]}, False),
        ("stack", {"acceptance_kube_resource": "nvidia.com/gpu"}, False),
        ("stack", {"acceptance_kube_resource": "huawei.com/Ascend910"}, False),
        ("nccl_node", {}, True),
        ("nccl_node", {"acceptance_kube_runtime_class": "amd"}, True),
        ("host_health", {}, False),
    ],
)
def test_a_pod_that_looks_at_amd_gpus_holds_them_unless_a_runtime_class_shows_them(
    stage: str, more: dict[str, t.Any], holds: bool
) -> None:
    assert devices.asks_for_devices(registry.shipped()[stage], {**AMD, **more}) is holds


@pytest.mark.parametrize(
    "given", [[], "n1", {"nodes": []}, {"expected": "n1"}, {"names": "n1"}, {"expected": True}, {"names": [1]}, {"expected": -3}]
)
def test_a_wrong_acceptance_nodes_is_named(given: t.Any) -> None:
    if given == []:
        assert inventory.selection_of("lab", {"acceptance_nodes": given}).selector == "nvidia.com/gpu.present=true"
        return
    with pytest.raises(RunError, match="lab: acceptance_nodes"):
        inventory.selection_of("lab", {"acceptance_nodes": given})


@pytest.mark.parametrize("entry", [{"names": "n1"}, {"names": [1]}, {"selector": 5}, {"selector": ""}, {"selector": ["a=b"]}])
def test_node_vars_that_can_mean_no_node_are_named(entry: dict[str, t.Any]) -> None:
    with pytest.raises(RunError, match=r"lab: acceptance_node_vars: found .* expected a l"):
        inventory.select("lab", {}, entry)


def test_node_vars_by_a_selector_that_the_api_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(_wanted: client.Connection) -> t.Any:
        raise client.KubeError("bad_spec", "the request is invalid")

    monkeypatch.setattr(inventory, "connect", connect)
    with pytest.raises(RunError, match="selector 'a b': the request is invalid"):
        inventory.select("lab", {}, {"selector": "a b"})


AWAY = "https://127.0.0.1:1"


def test_an_unreachable_cluster_has_the_nodes_that_are_expected_of_it() -> None:
    away = {"acceptance_kube_server": "https://127.0.0.1:1"}
    assert inventory.subjects("lab", {**away, "acceptance_nodes": {"expected": ["a", "b"]}})[0] == ["a", "b"]
    assert inventory.subjects("lab", {**away, "acceptance_nodes": {"expected": 2}})[0] == ["expected-1", "expected-2"]
    found = inventory.subjects("lab", away)
    assert found.names == [] and "connection refused" in found.notes[0]


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"acceptance_kube_kubeconfig": "/nowhere/config"}, "kubeconfig /nowhere/config does not exist"),
        ({"acceptance_kube_server": AWAY, "acceptance_kube_token_file": "/nowhere/token"}, "/nowhere/token: No such file"),
        ({"acceptance_kube_server": AWAY, "acceptance_kube_ca_file": "/nowhere/ca"}, "acceptance_kube_ca_file: /nowhere/ca"),
    ],
)
def test_a_mistake_on_the_controller_is_refused_in_the_plan(variables: dict[str, str], words: str) -> None:
    with pytest.raises(RunError, match=words):
        inventory.subjects("lab", {**variables, "acceptance_nodes": {"expected": ["a"]}})


def test_a_kubeconfig_that_does_not_exist_is_refused_although_the_nodes_are_named() -> None:
    named = {"acceptance_kube_kubeconfig": "/nowhere/config", "acceptance_nodes": {"names": ["a"]}, "acceptance_kube_image": "x"}
    assert plane.PLANE.problem("lab", named, []) == "lab: kubeconfig /nowhere/config does not exist; set acceptance_kube_kubeconfig"
    named["acceptance_plane"] = "kubernetes"
    assert str(foreseeable._of_planes({"lab": named}, [])).count("lab: ") == 1, "the plan names the host once"


def test_a_context_that_the_kubeconfig_lacks_is_refused_in_the_plan(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "config"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": [], "current-context": ""}))
    with pytest.raises(RunError, match=r"context 'b' is not in kubeconfig|it is no kubeconfig"):
        inventory.subjects("lab", {"acceptance_kube_kubeconfig": str(path), "acceptance_kube_context": "b"})


def test_a_selector_that_the_api_refuses_is_refused_in_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    class Api:
        name, notes = "lab", ()

        def pages(self, _path: str, **_query: t.Any) -> t.Any:
            raise client.KubeError("bad_spec", "lab: the request is invalid", 400)

    monkeypatch.setattr(inventory, "connect", lambda _wanted: Api())
    with pytest.raises(RunError, match=r"acceptance_nodes: selector 'gpu in \('"):
        inventory.subjects("lab", {"acceptance_nodes": {"selector": "gpu in ("}})


# Credentials -----------------------------------------------------------------------------------------------------

SECRET = "c2VjcmV0LXRva2Vu"


def test_a_broken_kubeconfig_is_named_and_not_quoted(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "config"
    for text in (f"users: [{{token: {SECRET}\n  bad: : yaml", f"users: {SECRET}", f'"{SECRET}"', ""):
        path.write_text(text)
        words = refused(lambda: client.connect(client.Connection("lab", kubeconfig=str(path))))
        assert str(path) in words and SECRET not in words


@pytest.mark.parametrize("text", ["[a, b]", "all: {hosts: {gpu-01: {}}}", "a text", "- hosts: all"])
def test_another_file_than_a_kubeconfig_is_said_so(tmp_path: pathlib.Path, text: str) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text(text)
    words = refused(lambda: client.connect(client.Connection("lab", kubeconfig=str(path))))
    assert str(path) in words and "Error" not in words and ("it is no kubeconfig" in words or "Expected key" in words), words


def test_a_ca_file_that_is_not_there_or_none_is_named(tmp_path: pathlib.Path) -> None:
    away = client.Connection("lab", server="https://127.0.0.1:1", ca_file=str(tmp_path / "ca.crt"))
    said = f"lab: acceptance_kube_ca_file: {tmp_path}/ca.crt: "
    assert refused(lambda: client.connect(away)) == f"{said}No such file or directory; expected a file of certificates in PEM"
    (tmp_path / "ca.crt").write_text("none")
    assert refused(lambda: client.connect(away)) == f"{said}no certificate or key that can be read; expected a file of certificates in PEM"


def test_a_token_file_that_is_not_there_is_named(tmp_path: pathlib.Path) -> None:
    away = client.Connection("lab", server="https://127.0.0.1:1", token_file=str(tmp_path / "token"))
    assert refused(lambda: client.connect(away)) == f"lab: acceptance_kube_token_file: {tmp_path}/token: No such file or directory"


def test_contexts_are_named(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "config"
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": SECRET}}],
        "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
                     {"name": "b", "context": {"cluster": "c", "user": "absent"}}],
    }  # fmt: skip
    path.write_text(json.dumps(config))
    words = refused(lambda: client.connect(client.Connection("lab", kubeconfig=str(path), context="z")))
    assert words == f"lab: context 'z' is not in kubeconfig {path}; it has a, b"
    assert client.connect(client.Connection("lab", kubeconfig=str(path))).namespace == "team"
    assert "does not exist" in refused(lambda: client.connect(client.Connection("lab", kubeconfig="/nowhere")))
    api = client.connect(client.Connection("lab", kubeconfig=str(path), namespace="other"))
    assert api.namespace == "other" and "connection refused" in refused(lambda: api.get("/version"))


def test_in_a_pod_its_service_account_is_taken(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_CERT_FILENAME", str(authority))
    words = refused(lambda: client.connect(client.Connection("lab")))
    assert words.startswith("lab: no service account in this pod")
    token.write_text(SECRET)
    authority.write_bytes(base64.b64decode(own_certificate()[0]))
    api = client.connect(client.Connection("lab", namespace="team"))
    assert api.namespace == "team"
    words = refused(lambda: api.get("/version"))
    assert "https://127.0.0.1:1 does not answer" in words and SECRET not in words


def test_no_key_stays_in_a_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of Ansible end without the clean-up that the kubernetes package relies on."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    certificate, key = own_certificate()
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": certificate}}],
        "users": [{"name": "u", "user": {"client-certificate-data": certificate, "client-key-data": key}}],
    }  # fmt: skip
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    for _again in range(2):
        api = client.connect(client.Connection("lab", kubeconfig=str(path)))
        assert list(temporary.iterdir()) == []
        assert "connection refused" in refused(lambda connected=api: connected.get("/version"))
    config["users"] = [{"name": "u", "user": {"client-certificate-data": key, "client-key-data": key}}]
    path.write_text(json.dumps(config))
    words = refused(lambda: client.connect(client.Connection("lab", kubeconfig=str(path))))
    assert words == f"lab: certificates of {path}: no certificate or key that can be read" and list(temporary.iterdir()) == []


def own_certificate() -> tuple[str, str]:
    """A certificate that signed itself, and its key; PEM in base64, as a kubeconfig has them."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lab")])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1)).sign(key, hashes.SHA256())
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode(), base64.b64encode(pem).decode()


def test_refusals_have_the_servers_words() -> None:
    cases = [
        (403, 'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5', "quota"),
        (403, 'pods "x" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false', "admission"),
        (403, 'pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "n"', "no_permission"),
        (403, 'pods "x" is forbidden: unable to create new content in namespace n because it is being terminated', "namespace_gone"),
        (404, 'namespaces "n" not found', "namespace_gone"),
        (500, 'Internal error occurred: failed calling webhook "w": context deadline exceeded', "admission"),
        (400, 'admission webhook "w" denied the request: no', "admission"),
        (401, "Unauthorized", "credentials"),
        (422, 'Pod "x" is invalid: spec: Required value', "bad_spec"),
        (503, "apiserver is shutting down", "cluster_unreachable"),
    ]
    for status, message, code in cases:
        found = client.refusal("lab", status, message, {}, "POST /x")
        assert (found.reason_code, found.status) == (code, status) and message in found.reason and found.reason.startswith("lab: ")


def test_no_proxy_in_the_spelling_of_many() -> None:
    kept, notes = client.proxy_exceptions("localhost, 10.0.*.*,172.17.*.*,.corp,10.1.2.*")
    assert kept == "localhost,10.0.0.0/16,172.17.0.0/16,.corp,10.1.2.0/24"
    assert [note.split(" is")[0] for note in notes] == ["NO_PROXY entry 10.0.*.*", "NO_PROXY entry 172.17.*.*", "NO_PROXY entry 10.1.2.*"]
    assert client.proxy_exceptions("*,*.corp,1.2.3.4") == ("*,*.corp,1.2.3.4", [])


def test_an_image_without_a_tag_or_with_latest_is_untagged() -> None:
    assert [settings.untagged(i) for i in ("a", "a:latest", "r:5000/a", "a:1", "r:5000/a:1", "a@sha256:0")] == [True] * 3 + [False] * 3


def test_a_selector_takes_no_node_without_a_machine_unless_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    def node(name: str, *taints: str, **spec: t.Any) -> dict[str, t.Any]:
        ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"nvidia.com/gpu": "8"}}
        keys = [{"key": key, "value": "x", "effect": "NoSchedule"} for key in taints]
        status = {**ready, "capacity": ready["allocatable"]}
        return {"metadata": {"name": name, "uid": name}, "spec": {"taints": keys, **spec}, "status": status}

    items = [
        node("good"), node("fake", "kwok.x-k8s.io/node"), node("elsewhere", "virtual-kubelet.io/provider"),
        node("cordoned", unschedulable=True), node("dedicated", "team"),
    ]  # fmt: skip

    class Api:
        name, namespace, notes = "lab", "lab", ()

        def pages(self, _path: str, **_query: t.Any) -> t.Any:
            yield {"items": items}

    monkeypatch.setattr(inventory, "connect", lambda _wanted: Api())
    monkeypatch.setattr(inventory.preflight, "missing", lambda *_more: [])
    monkeypatch.setattr(inventory.preflight, "preempting", lambda *_more: [])
    where = {"acceptance_kube_server": AWAY}
    found = inventory.subjects("lab", where)
    assert found.names == ["cordoned", "dedicated", "good"]
    assert any("2 of the nodes" in note and "fake, elsewhere" in note for note in found.notes), found.notes
    found = inventory.subjects("lab", {**where, "acceptance_nodes": {"expected": ["fake", "good"]}})
    assert found.names == ["cordoned", "dedicated", "fake", "good"]
    found = inventory.subjects("lab", {**where, "acceptance_kube_tolerations": [{"operator": "Exists"}]})
    assert found.names == ["cordoned", "dedicated", "elsewhere", "fake", "good"] and not any("no machine" in note for note in found.notes)
    assert inventory.subjects("lab", {**where, "acceptance_nodes": {"names": ["fake"]}}).names == ["fake"]
