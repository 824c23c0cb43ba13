# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a group's objects look like, launcher by launcher: each of the known traps is avoided in what we submit."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup, discovery, marks, settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.groups import group, group_objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.following import Pod
from cryptography.hazmat.primitives import serialization

KINDS = discovery.ORDER


def made(kind: str, workers: int = 2, **variables: t.Any) -> dict[str, dict[str, t.Any]]:
    """Every object of a group by its kind and the end of its name."""
    wanted = settings.pods({f"acceptance_kube_{name}": value for name, value in {"image": "tester:1", **variables}.items()})
    launch = objects.Launch("20260101T000000Z-0a1b2c", "nccl_fabric", "lab", 900.0)
    launch.own({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": launch.name, "uid": "u-1"}})
    shape = group_objects.Shape(kind, "group", [f"node-{n}" for n in range(4)], workers, devices=8, slots=8)
    return {f"{one.body['kind']}/{one.body['metadata']['name']}": one.body for one in group_objects.objects_of(shape, launch, wanted)}


def templates(kind: str, **variables: t.Any) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """Those of the head and of the workers."""
    found = made(kind, **variables)
    if kind == "mpijob":
        replicas = found["MPIJob/group"]["spec"]["mpiReplicaSpecs"]
        return replicas["Launcher"]["template"], replicas["Worker"]["template"]
    if kind == "volcano":
        head, worker = found["Job/group"]["spec"]["tasks"]
        return head["template"], worker["template"]
    head = found["Job/group-h"]["spec"]["template"]
    if kind == "pytorchjob":
        return head, found["PyTorchJob/group"]["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    workers = found["StatefulSet/group-w"] if kind == "statefulset" else found["Job/group-w"]
    return head, workers["spec"]["template"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_object_has_labels_owner_and_a_deadline(kind: str) -> None:
    for name, body in made(kind).items():
        labels = body["metadata"]["labels"]
        assert labels[marks.RUN] == "20260101T000000Z-0a1b2c" and labels[marks.STAGE] == "nccl_fabric", name
        assert labels["app"] == marks.MANAGER and labels["component"]
        assert body["metadata"]["ownerReferences"][0]["uid"] == "u-1"
        assert marks.EXPIRES in body["metadata"]["annotations"]
    head, worker = templates(kind)
    assert head["spec"]["activeDeadlineSeconds"] == 900
    # The API takes none from a StatefulSet, which belongs to the head's Job instead.
    assert ("activeDeadlineSeconds" in worker["spec"]) == (kind != "statefulset")


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_run_again_and_what_has_ended_goes_soon(kind: str) -> None:
    for body in made(kind).values():
        spec = body.get("spec", {})
        for one in (spec, spec.get("runPolicy", {})):
            assert one.get("backoffLimit", 0) == 0
            assert one.get("ttlSecondsAfterFinished", 0) <= 300
        if body["kind"] == "MPIJob":
            assert body["spec"]["launcherCreationPolicy"] == "WaitForWorkersReady"
            assert {replica["restartPolicy"] for replica in body["spec"]["mpiReplicaSpecs"].values()} == {"Never"}
            assert all("restartPolicy" not in replica["template"]["spec"] for replica in body["spec"]["mpiReplicaSpecs"].values())
        if body["kind"] == "Job" and "batch.volcano" in body["apiVersion"]:
            assert body["spec"]["minAvailable"] == 3
    if kind in ("job", "volcano"):
        assert {template["spec"]["restartPolicy"] for template in templates(kind)} == {"Never"}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_launcher_makes_its_own_end_and_every_janitor_look_for(kind: str) -> None:
    resources = {body["kind"].lower() + "s": body["apiVersion"] for body in made(kind).values()}
    for looked in (group_objects.CLEANED[kind], cleanup.KINDS):
        there = {(api.removeprefix("/apis/").removeprefix("/api/"), resource) for api, resource in looked}
        assert {(version, resource) for resource, version in resources.items()} <= there


@pytest.mark.parametrize("kind", KINDS)
def test_every_pod_sees_whether_its_controller_lives(kind: str) -> None:
    for template in templates(kind):
        volume = next(one for one in template["spec"]["volumes"] if one["name"] == "sign")
        assert volume["configMap"]["optional"] and volume["configMap"]["name"].endswith("-sign")
        mounts = {one["name"]: one["mountPath"] for one in template["spec"]["containers"][0]["volumeMounts"]}
        asked = group_objects.request("worker", {}, 60, "r", "s")
        assert asked["sign"]["path"] == f"{mounts['sign']}/at" and asked["sign"]["within"] >= 3 * group_objects.RENEWED_S


@pytest.mark.parametrize("kind", KINDS)
def test_workers_are_ready_when_they_can_be_entered_and_stand_apart(kind: str) -> None:
    head, worker = templates(kind)
    container = worker["spec"]["containers"][0]
    assert container["readinessProbe"]["tcpSocket"] == {"port": 2222} and container["ports"][0]["containerPort"] == 2222
    assert "SYS_CHROOT" in container["securityContext"]["capabilities"]["add"]
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    apart = worker["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart[0]["topologyKey"] == "kubernetes.io/hostname"
    terms = worker["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [term["matchFields"][0]["values"] for term in terms] == [[f"node-{n}"] for n in range(4)]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert "nvidia.com/gpu" not in str(head["spec"]["containers"][0]["resources"])
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in head["spec"]["containers"][0]["env"]
    assert head["metadata"]["labels"]["component"] == "launcher" and worker["metadata"]["labels"]["component"] == "worker"


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_killed_controller_leaves_may_be_removed_by_who_may_make_it(kind: str) -> None:
    """By the next start, which looks for every kind; and by the cluster itself, at the deadline of the object that makes the pods."""
    rights = {*discovery.COMMON, *discovery.RIGHTS[kind]}
    for api, resource in group_objects.CLEANED[kind]:
        group = api.split("/")[2] if api.startswith("/apis/") else ""
        assert (api, resource) in cleanup.KINDS
        assert {(verb, group, resource, "") for verb in ("create", "get", "list", "deletecollection")} <= rights, (kind, resource)
    resources = [resource for _api, resource in cleanup.KINDS]
    assert resources.index(group_objects.LED_BY[kind][1]) < resources.index("pods") < resources.index("configmaps"), "owners last"


def test_a_job_behind_which_no_pytorchjob_would_ever_be_taken_comes_after_it() -> None:
    assert set(discovery.RIGHTS["job"]) < set(discovery.RIGHTS["pytorchjob"])
    assert discovery.ORDER.index("pytorchjob") < discovery.ORDER.index("job")


@pytest.mark.parametrize("kind", ["job", "statefulset", "pytorchjob"])
def test_a_launcher_of_our_own_brings_a_service_and_a_key(kind: str) -> None:
    found = made(kind)
    service, secret = found["Service/group"]["spec"], found["Secret/group"]["stringData"]
    assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"]
    key = serialization.load_ssh_private_key(secret["identity"].encode(), None)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)  # type: ignore[union-attr]
    assert secret["authorized_keys"].split() == public.decode().split()
    assert made(kind)["Secret/group"]["stringData"] != secret
    for template in templates(kind):
        assert template["spec"]["subdomain"] == "group"
        assert {"name": "ssh", "secret": {"secretName": "group", "defaultMode": 0o400}} in template["spec"]["volumes"]
    # A Secret travels by the API only: no request, no command line, no environment holds a key.
    assert "PRIVATE KEY" not in str([body for name, body in found.items() if not name.startswith("Secret")])


def test_a_statefulset_goes_with_the_heads_job() -> None:
    wanted = settings.pods({"acceptance_kube_image": "tester:1"})
    launch = objects.Launch("20260101T000000Z-0a1b2c", "nccl_fabric", "lab", 900.0)
    launch.own({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": launch.name, "uid": "u-1"}})
    shape = group_objects.Shape("statefulset", "group", ["a", "b"], 2)
    made = group_objects.objects_of(shape, launch, wanted)
    assert [(one.resource, one.belongs_to) for one in made][-2:] == [("jobs", ""), ("statefulsets", "jobs")]
    assert not any(one.late for one in made)


def test_a_pytorchjob_has_one_master_which_is_a_worker_as_all_others() -> None:
    spec = made("pytorchjob", workers=3)["PyTorchJob/group"]["spec"]
    replicas = spec["pytorchReplicaSpecs"]
    assert {kind: replica["replicas"] for kind, replica in replicas.items()} == {"Master": 1, "Worker": 2}
    assert replicas["Master"]["template"] == replicas["Worker"]["template"]
    assert {replica["restartPolicy"] for replica in replicas.values()} == {"Never"}
    assert "restartPolicy" not in replicas["Master"]["template"]["spec"]
    assert spec["runPolicy"] == {
        "cleanPodPolicy": "Running", "backoffLimit": 0, "activeDeadlineSeconds": 900, "ttlSecondsAfterFinished": 300,
    }  # fmt: skip
    assert not set(spec) & {"elasticPolicy", "nprocPerNode"}, "nobody else starts ranks"
    assert set(made("pytorchjob", workers=1)["PyTorchJob/group"]["spec"]["pytorchReplicaSpecs"]) == {"Master"}


def test_the_container_of_a_pytorchjob_goes_by_the_name_that_its_operator_wants() -> None:
    head, worker = templates("pytorchjob")
    assert [one["name"] for one in worker["spec"]["containers"]] == ["pytorch"] and marks.container(worker) == "pytorch"
    assert [one["name"] for one in head["spec"]["containers"]] == ["probe"] and marks.container(head) == "probe"


def test_what_a_worker_holds_until_it_has_answered_stays_where_workers_answer_too() -> None:
    launch = objects.Launch("20260101T000000Z-0a1b2c", "ddp", "lab", 900.0)
    launch.own({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": launch.name, "uid": "u-1"}})
    shape = group_objects.Shape("pytorchjob", "group", ["a", "b"], 2, workers_answer=True)
    made = group_objects.objects_of(shape, launch, settings.pods({"acceptance_kube_image": "tester:1"}))
    body = next(one.body for one in made if one.resource == "pytorchjobs")
    assert body["spec"]["runPolicy"]["cleanPodPolicy"] == "None"
    assert [one.resource for one in made if one.late] == ["jobs"], "the head, whose master no operator waits for"


def test_a_class_that_preempts_is_refused_by_the_api() -> None:
    assert all("preemptionPolicy" not in template["spec"] for template in templates("job"))
    assert all(template["spec"]["preemptionPolicy"] == "Never" for template in templates("job", priority_class="gpufleet-acceptance"))


def test_the_hosts_files_are_not_mounted() -> None:
    assert all("hostPath" not in str(template) for template in templates("mpijob", host_root=True))


@pytest.mark.parametrize("field", ["restartPolicy", "activeDeadlineSeconds", "containers"])
def test_a_patch_cannot_take_the_traps_back(field: str) -> None:
    with pytest.raises(KubeError, match=field):
        made("mpijob", pod_patch={"spec": {field: None}})


@pytest.mark.parametrize(
    ("name", "workers", "good"),
    [
        ("a" * 53, 10, True),
        ("a" * 54, 10, True),
        ("a" * 55, 10, False),
        ("a" * 54, 11, False),
        ("1a", 2, False),
        ("A", 2, False),
        ("a-", 2, True),
    ],
)
def test_a_name_leaves_room_for_the_last_worker(name: str, workers: int, good: bool) -> None:
    shape = group_objects.Shape("mpijob", name, [str(n) for n in range(workers)], workers)
    if good:
        shape.check()
    else:
        with pytest.raises(KubeError):
            shape.check()


def test_our_own_names_fit_every_launcher() -> None:
    for kind in KINDS:
        group_objects.Shape(kind, group.short_name("20260101T000000Z-0a1b2c"), [str(n) for n in range(1000)], 1000).check()


def test_a_pod_without_a_host_name_is_known_by_the_service_of_its_own_name() -> None:
    pod = Pod()
    pod.see({"metadata": {"name": "g-worker-0", "uid": "u"}, "spec": {"nodeName": "n1"}, "status": {"podIP": "10.0.0.7"}})
    assert group_objects.seats([pod], "lab")[0]["host"] == "g-worker-0.lab.svc"


def test_a_rank_slot_has_the_address_and_name_of_its_pod() -> None:
    pod = Pod()
    spec = {"nodeName": "n1", "hostname": "g-w-0", "subdomain": "g"}
    pod.see({"metadata": {"name": "g-w-0", "uid": "u"}, "spec": spec, "status": {"podIP": "10.0.0.7"}})
    assert group_objects.seats([pod], "lab") == [{"node": "n1", "address": "10.0.0.7", "host": "g-w-0.g.lab.svc"}]
