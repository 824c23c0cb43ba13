# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Groups of pods over two real nodes, by every launcher, as a user who may what files/rbac says and no more; and what may go wrong."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup, client, discovery, settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.groups import group, group_objects
from harness import journals
from harness.namespace import Namespace, roles
from rigs.kubernetes.kubernetes import CONTROL, Kubernetes

pytestmark = pytest.mark.kubernetes
ROOT = pathlib.Path(__file__).resolve().parents[2]
ROLES = {
    "mpijob": ("group", "group-mpijob"),
    "volcano": ("group", "group-volcano"),
    "job": ("group", "group-job"),
    "statefulset": ("group", "group-job", "group-statefulset"),
}
KINDS = tuple(ROLES)
RUN = "20260101T000000Z-0a1b2c"
NCCL = ["all_reduce_perf_mpi", "-b", "8M", "-e", "16M", "-f", "2", "-g", "1"]
# Everything that a launcher, its operator or the cluster makes for a group.
MADE = (
    "/api/v1/{}/pods", "/api/v1/{}/configmaps", "/api/v1/{}/secrets", "/api/v1/{}/services", "/apis/batch/v1/{}/jobs",
    "/apis/apps/v1/{}/statefulsets", "/apis/kubeflow.org/v2beta1/{}/mpijobs", "/apis/batch.volcano.sh/v1alpha1/{}/jobs",
    "/apis/scheduling.volcano.sh/v1beta1/{}/podgroups", "/apis/networking.k8s.io/v1/{}/networkpolicies",
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster(rig_kubernetes: Kubernetes) -> Kubernetes:
    return rig_kubernetes


class Lab(Namespace):
    """Groups, with the roles of every launcher."""

    def __init__(self, cluster: Kubernetes) -> None:
        super().__init__(cluster, roles("group", "group-mpijob", "group-volcano", "group-job", "group-statefulset"))
        self.image = cluster.image
        self.before: set[str] = set()

    def group(
        self,
        kind: str,
        argv: list[str] | None = None,
        *,
        devices: int = 8,
        ranks: int = 0,
        timeout: float = 60,
        nodes: t.Sequence[str] = ("kube-01", "kube-02"),
        more: dict[str, t.Any] | None = None,
        shape: dict[str, t.Any] | None = None,
        **pods: t.Any,
    ) -> group.GroupLaunch:
        given = {"image": self.image, "start_timeout": 60.0, **pods}
        wanted = settings.pods({f"acceptance_kube_{name}": value for name, value in given.items()})
        slots = ranks or devices or 1
        form = {
            "kind": kind, "name": group.short_name(RUN), "nodes": list(nodes), "workers": len(nodes), "devices": devices, "slots": slots,
        }  # fmt: skip

        def head(seats: list[dict[str, t.Any]]) -> dict[str, t.Any]:
            members = [{"name": s["node"], "address": s["address"], "host": s["host"], "gpus": slots} for s in seats]
            asked = {"argv": argv or NCCL, "env": {}, "ranks_per_node": slots, "mpirun": "mpirun", "mpi_args": []}
            return {"members": members, **asked, "command_timeout": timeout, "join_timeout": 30.0, **(more or {})}

        shaped = group_objects.Shape(**{**form, **(shape or {})})
        return group.GroupLaunch(self.api, wanted, shaped, RUN, "groups", timeout + 120, payload.archive(), {}, head)

    def run(self, kind: str, argv: list[str] | None = None, **options: t.Any) -> group.GroupResult:
        return self.finish(self.group(kind, argv, **options))

    def finish(self, launched: group.GroupLaunch) -> group.GroupResult:
        try:
            return launched.run()
        finally:
            assert launched.clean() == []
            self.nothing_left()

    def items(self, path: str) -> list[dict[str, t.Any]]:
        try:
            found = self.admin.get(path.format(f"namespaces/{self.namespace}"))["items"]
        except client.KubeError as error:
            if error.status != 404:
                raise
            return []  # the cluster of `make test` lacks some operators, and so the kinds of their objects
        return [item for item in found if item["metadata"]["name"] not in ("kube-root-ca.crt", *self.before)]

    def left(self) -> list[str]:
        return [f"{path.rsplit('/', 1)[1]}/{item['metadata']['name']}" for path in MADE for item in self.items(path)]

    def pods(self, component: str) -> list[dict[str, t.Any]]:
        return [pod for pod in self.items(MADE[0]) if pod["metadata"]["labels"].get("component") == component]

    def when(self, component: str, phase: str, what: t.Callable[[dict[str, t.Any]], t.Any], delay: float = 0.0) -> threading.Thread:
        """Do something with the first such pod once it has this phase."""

        def watch() -> None:
            end = time.monotonic() + 90
            while time.monotonic() < end:
                for pod in self.pods(component):
                    if (pod.get("status") or {}).get("phase") == phase:
                        time.sleep(delay)
                        what(pod)
                        return
                time.sleep(0.3)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        return thread

    def delete(self, pod: dict[str, t.Any]) -> None:
        self.admin.delete(f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}", gracePeriodSeconds=0)


@pytest.fixture
def lab(cluster: Kubernetes) -> t.Iterator[Lab]:
    made = Lab(cluster)
    yield made
    made.cluster.api.delete(f"/api/v1/namespaces/{made.namespace}")


def seen(answer: group.GroupResult) -> dict[str, t.Any]:
    """The one observation of the head."""
    assert answer.result.get("state") == "done", answer.result
    assert len(answer.result["observations"]) == 1, answer.result
    return t.cast("dict[str, t.Any]", answer.result["observations"][0])


def why(answer: group.GroupResult) -> tuple[str, str]:
    """Reason code and reason of what did not work."""
    if answer.result.get("state") == "refused":
        return answer.result["reason_code"], answer.result["reason"]
    found = seen(answer)
    assert found["outcome"] != "measured", found
    return found["reason_code"], found["reason"]


# What works ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_real_mpi_program_runs_over_both_nodes(lab: Lab, kind: str) -> None:
    lab.permit(roles(*ROLES[kind]))
    answer = lab.run(kind)
    found = seen(answer)
    assert found["outcome"] == "measured", found
    assert found["context"]["ranks"] == {"kube-01": 8, "kube-02": 8}
    hosts = re.findall(r"^#  Rank.* on (\S+) device", found["context"]["stdout"], re.MULTILINE)
    assert len(hosts) == 16 and len(set(hosts)) == 2
    assert "--hostfile" in found["command"] and set(answer.launch_facts["nodes"]) == {"kube-01", "kube-02"}
    assert answer.launch_facts["image_id"] and answer.launch_facts["launcher"] == kind


@pytest.mark.long
def test_open_mpi_5_runs_over_both_nodes_too(lab: Lab) -> None:
    lab.image = lab.cluster.tester("trixie")
    found = seen(lab.run("mpijob", devices=2, timeout=240))  # few ranks: while they wait they spin
    assert found["outcome"] == "measured", found
    assert found["context"]["ranks"] == {"kube-01": 2, "kube-02": 2} and found["context"]["launcher"].startswith("Open MPI 5")
    assert len(set(re.findall(r"^#  Rank.* on (\S+) device", found["context"]["stdout"], re.MULTILINE))) == 2


def test_with_the_nodes_network(lab: Lab) -> None:
    found = seen(lab.run("job", ["hostname"], host_network=True, shape={"port": 2299}))
    assert found["outcome"] == "measured", found
    assert set(found["context"]["stdout"].split()) == {"kube-01", "kube-02"}


def test_one_agent_per_node_without_mpi(lab: Lab) -> None:
    script = "echo $NODE_RANK of $NNODES on $(hostname) with $NPROC_PER_NODE at $MASTER_ADDR"
    found = seen(lab.run("job", ["sh", "-c", script], more={"launcher": "agents"}))
    assert found["outcome"] == "measured" and found["context"]["ranks"] == {"kube-01": 8, "kube-02": 8}, found
    lines = [line.split(" on ") for line in found["context"]["stdout"].splitlines()]
    assert [place for place, _rest in lines] == ["0 of 2", "1 of 2"] and len({rest.split()[0] for _place, rest in lines}) == 2
    assert len({rest.split(" with ")[1] for _place, rest in lines}) == 1, "all are told the same"


def test_one_process_per_node_and_every_word_of_a_known_command_line(lab: Lab) -> None:
    """mpirun -np 2 ... -bind-to none -map-by slot -mca ... -x NCCL_... all_reduce_perf -b 32M -e 8G -f 2 -g 8"""
    args = [
        "-bind-to",
        "none",
        "-map-by",
        "slot",
        "-mca",
        "coll_hcoll_enable",
        "0",
        "-mca",
        "pml",
        "ob1",
        "-mca",
        "btl_tcp_if_include",
        "eth0",
    ]
    args += ["-mca", "btl", "^openib"]
    env = {
        "NCCL_IB_GID_INDEX": "3", "NCCL_SOCKET_IFNAME": "eth0", "NCCL_IB_HCA": "^mlx5_8", "NCCL_IB_TC": "128",
        "NCCL_IB_QPS_PER_CONNECTION": "8", "NCCL_DEBUG": "INFO", "NCCL_ALGO": "Ring",
    }  # fmt: skip
    argv = ["all_reduce_perf_mpi", "-b", "32M", "-e", "8G", "-f", "2", "-g", "8"]
    found = seen(lab.run("mpijob", argv, ranks=1, more={"mpi_args": args, "env": env}))
    assert found["outcome"] == "measured", found
    command = " ".join(found["command"])
    assert " ".join(args) in command and command.endswith(" ".join(argv)) and command.startswith("mpirun -np 2 ")
    assert all(f"-x {name}={value}" in command for name, value in env.items())
    assert command.count("bind-to") == command.count("map-by") == 1
    assert len(re.findall(r"^#  Rank", found["context"]["stdout"], re.MULTILINE)) == 16


def test_labels_resources_and_patch_reach_every_pod(lab: Lab) -> None:
    caught: list[dict[str, t.Any]] = []
    thread = lab.when("worker", "Running", caught.append)
    head = lab.when("launcher", "Running", caught.append)
    patch = {
        "metadata": {"annotations": {"prometheus.io/scrape": "true"}},
        "spec": {"volumes": [{"name": "data", "emptyDir": {}}]},
        "container": {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
    }
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}
    answer = lab.run(
        "mpijob", ["ls", "-d", "/data"], labels={"app": "nccl-test", "team": "a"}, pod_patch=patch, resources=resources,
        capabilities=["IPC_LOCK"], shm_size="64Mi",
    )  # fmt: skip
    assert seen(answer)["outcome"] == "measured", answer
    thread.join(30)
    head.join(30)
    worker, launcher = sorted(caught, key=lambda pod: pod["metadata"]["labels"]["component"], reverse=True)
    for pod in (worker, launcher):
        labels = pod["metadata"]["labels"]
        assert (labels["app"], labels["team"]) == ("nccl-test", "a") and pod["metadata"]["annotations"]["prometheus.io/scrape"] == "true"
        assert pod["spec"]["activeDeadlineSeconds"] and pod["spec"]["restartPolicy"] == "Never"
    container = worker["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8", "memory": "1Gi"}
    assert container["resources"]["requests"]["cpu"] == "100m"
    assert "IPC_LOCK" in container["securityContext"]["capabilities"]["add"]
    assert "nvidia.com/gpu" not in launcher["spec"]["containers"][0]["resources"].get("limits", {})


def test_two_groups_in_one_namespace_do_not_see_each_other(lab: Lab) -> None:
    other = lab.group("job", ["sleep", "3"], devices=4)
    answers: list[group.GroupResult] = []
    thread = threading.Thread(target=lambda: answers.append(other.run()))
    thread.start()
    mine = lab.group("statefulset", ["hostname"], devices=4)
    try:
        assert seen(mine.run())["outcome"] == "measured"
        mine.clean()
        thread.join(90)
        assert seen(answers[0])["outcome"] == "measured"
    finally:
        thread.join(1)
        other.clean()
    lab.nothing_left()


# Which launcher ------------------------------------------------------------------------------------------------------


def test_auto_takes_what_is_allowed_and_says_why_not_the_others(lab: Lab) -> None:
    assert discovery.choose(lab.api).kinds == [kind for kind in discovery.ORDER if kind in KINDS], "what the cluster serves"
    lab.permit(roles(*ROLES["statefulset"]))
    choice = discovery.choose(lab.api)
    assert choice.kinds == ["job", "statefulset"]
    assert any("not mpijob: we may not create mpijobs.kubeflow.org" in line for line in choice.why), choice
    with pytest.raises(client.KubeError, match=r"launcher volcano: we may not create jobs\.batch\.volcano\.sh") as error:
        discovery.choose(lab.api, "volcano")
    assert error.value.reason_code == "no_permission"


@pytest.mark.parametrize("kind", KINDS)
def test_every_right_of_a_launcher_is_needed(lab: Lab, kind: str) -> None:
    every_right_is_needed(lab, kind, ROLES[kind])


def every_right_is_needed(lab: Lab, kind: str, files: t.Sequence[str]) -> None:
    whole = roles(*files)
    for role in whole:
        if role["kind"] != "Role":
            continue
        for rule in role["rules"]:
            if "patch" in rule["verbs"]:  # the heartbeat, without which a run goes on
                continue
            lab.permit([{**r, "rules": [one for one in r["rules"] if one is not rule]} for r in whole])
            with pytest.raises(client.KubeError) as error:
                discovery.choose(lab.api, kind)
            assert error.value.reason_code == "no_permission", rule
            for resource in rule["resources"]:
                assert resource in error.value.reason, (rule, error.value.reason)


@pytest.mark.long
def test_nobody_acts_on_an_mpijob(lab: Lab) -> None:
    lab.cluster.kill(CONTROL, "mpi-operator")
    try:
        code, reason = why(lab.run("mpijob"))
    finally:
        lab.cluster.start(CONTROL, "mpi-operator")
    assert code == "no_launcher" and "nobody has taken it up within 40 s" in reason


def test_another_operators_version_of_the_crd(lab: Lab) -> None:
    """The two operators share the CRD's name; what is served counts, and whoever serves v1 is not ours."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/mpijobs.kubeflow.org"
    crd = lab.cluster.api.request("GET", path)
    mine = crd["spec"]["versions"][0]
    other = {**mine, "name": "v1", "storage": False}
    try:
        lab.cluster.api.apply(path, {**_bare(crd), "spec": {**crd["spec"], "versions": [{**mine, "served": False}, other]}})
        # For a moment the API serves neither.
        _until(lambda: "in version v1 only" in str(getattr(discovery.absent(lab.api, "mpijob"), "reason", "")))
        assert discovery.choose(lab.api).kinds[0] == "volcano"
    finally:
        lab.cluster.api.apply(path, {**_bare(crd), "spec": crd["spec"]})
        _until(lambda: discovery.absent(lab.api, "mpijob") is None)


def _bare(found: dict[str, t.Any]) -> dict[str, t.Any]:
    kept = {key: found["metadata"][key] for key in ("name", "annotations", "labels") if key in found["metadata"]}
    return {"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": kept}


def _until(condition: t.Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.5)


# What goes wrong -----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_refusal_that_reaches_no_status(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CRD takes the value, the operator refuses it in an event and never looks again."""
    real = group_objects.objects_of

    def wrong(*args: t.Any) -> list[group_objects.Made]:
        made = real(*args)
        made[0].body["spec"]["runPolicy"]["cleanPodPolicy"] = "Sometimes"
        return made

    monkeypatch.setattr(group_objects, "objects_of", wrong)
    code, reason = why(lab.run("mpijob"))
    assert code == "bad_spec" and "ValidationError" in reason and "cleanPodPolicy" in reason


def test_a_field_that_the_api_does_not_know(lab: Lab) -> None:
    launched = lab.group("job", pod_patch={"spec": {"runtimeClas": "nvidia"}})
    with pytest.raises(client.KubeError, match="unknown field") as error:
        lab.finish(launched)
    assert error.value.reason_code == "bad_spec"


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_that_is_too_long_for_what_the_launcher_adds(lab: Lab, kind: str) -> None:
    with pytest.raises(client.KubeError, match="at most 63"):
        lab.group(kind, shape={"name": "a" + "b" * 58}).run()
    with pytest.raises(client.KubeError, match="starts with a letter"):
        lab.group(kind, shape={"name": "1st"}).run()
    lab.nothing_left()


@pytest.mark.parametrize("kind", KINDS)
def test_pod_security_refuses_the_pods(lab: Lab, kind: str) -> None:
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    lab.cluster.api.request("PATCH", f"/api/v1/namespaces/{lab.namespace}", label, "application/merge-patch+json")
    code, reason = why(lab.run(kind))
    assert code == "admission" and "violates PodSecurity" in reason and "allowPrivilegeEscalation" not in reason, reason


@pytest.mark.parametrize("kind", ["mpijob", "statefulset"])
def test_a_quota_that_is_used_up(lab: Lab, kind: str) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    lab.cluster.api.create(f"/api/v1/namespaces/{lab.namespace}/resourcequotas", quota)
    _until(
        lambda: bool(lab.cluster.api.request("GET", f"/api/v1/namespaces/{lab.namespace}/resourcequotas/few").get("status", {}).get("hard"))
    )
    code, reason = why(lab.run(kind))
    assert code == "quota" and "exceeded quota" in reason


def test_an_image_that_is_not_there(lab: Lab) -> None:
    code, reason = why(lab.run("mpijob", image="gpufleet.invalid/absent:1", image_pull_policy="Never"))
    assert code == "image_pull" and "ErrImageNeverPull" in reason


def test_an_image_without_python(lab: Lab) -> None:
    code, reason = why(lab.run("job", image=lab.cluster.bare_image))
    assert code in ("no_python", "container_failed") and "worker" in reason, (code, reason)


def test_gpus_that_somebody_holds_are_named(lab: Lab) -> None:
    lab.permit(roles("group", "group-job", "holders"))
    holder = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "training-0"},
        "spec": {
            "nodeName": "kube-02", "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": lab.cluster.bare_image, "command": ["/bin/sleep", "600"],
                "resources": {"limits": {"nvidia.com/gpu": "3"}},
            }],
        },
    }  # fmt: skip
    lab.before = {"training-0"}
    lab.cluster.api.create(f"/api/v1/namespaces/{lab.namespace}/pods", holder)
    try:
        code, reason = why(lab.run("job", start_timeout=20.0))
    finally:
        lab.cluster.api.delete(f"/api/v1/namespaces/{lab.namespace}/pods/training-0?gracePeriodSeconds=0")
    assert code == "unschedulable" and "Insufficient nvidia.com/gpu" in reason
    assert f"kube-02: 8 nvidia.com/gpu, 8 wanted, used by {lab.namespace}/training-0 3" in reason


def test_more_nodes_than_there_are(lab: Lab) -> None:
    with pytest.raises(client.KubeError, match="5 nodes were asked for and 2 are there"):
        lab.group("job", shape={"workers": 5}).run()


@pytest.mark.parametrize("kind", ["job", "statefulset"])
def test_a_port_that_the_node_itself_uses(lab: Lab, kind: str) -> None:
    """The kubelet's: something answers there, so that the pod is ready, and it is not our sshd."""
    code, reason = why(lab.run(kind, ["hostname"], host_network=True, shape={"port": 10250}, more={"join_timeout": 8.0}))
    assert code in ("port_in_use", "member") and "port 10250 of this node is in use" in reason and "acceptance_kube_ssh_port" in reason


@pytest.mark.long
@pytest.mark.parametrize("kind", ["mpijob", "statefulset"])
def test_a_worker_that_somebody_deletes(lab: Lab, kind: str) -> None:
    lab.when("launcher", "Running", lambda _pod: lab.delete(lab.pods("worker")[0]), 4)
    code, reason = why(lab.run(kind, ["sleep", "120"], timeout=120))
    assert "somebody deleted pod" in reason and code in ("pod_deleted", "lost_node", "unreachable", "launch_failed", "tool_failed"), (
        code,
        reason,
    )


def test_a_head_that_somebody_deletes(lab: Lab) -> None:
    lab.when("launcher", "Running", lab.delete, 2)
    code, reason = why(lab.run("job", ["sleep", "120"], timeout=120))
    assert code == "pod_deleted" and "somebody deleted pod" in reason


@pytest.mark.long
def test_a_namespace_that_is_being_deleted(lab: Lab) -> None:
    lab.when("launcher", "Running", lambda _pod: lab.admin.delete(f"/api/v1/namespaces/{lab.namespace}"), 1)
    launched = lab.group("mpijob", ["sleep", "120"], timeout=120)
    code, reason = why(launched.run())
    assert code == "namespace_gone" and lab.namespace in reason


@pytest.mark.long
def test_the_api_server_is_killed_in_mid_run(lab: Lab) -> None:
    def restart(_pod: t.Any) -> None:
        lab.cluster.kill(CONTROL, "kube-apiserver")
        time.sleep(1)
        lab.cluster.start(CONTROL, "kube-apiserver")

    thread = lab.when("launcher", "Running", restart, 1)
    found = seen(lab.run("mpijob", ["sleep", "8"], timeout=90))
    thread.join(60)
    for program in ("mpi-operator", "volcano-controller-manager", "volcano-scheduler", "kube-controller-manager", "kube-scheduler"):
        lab.cluster.start(CONTROL, program)  # who has lost his lease has ended
    assert found["outcome"] == "measured", found


@pytest.mark.long
def test_a_node_that_is_lost_in_mid_run(lab: Lab) -> None:
    def cut(_pod: t.Any) -> None:
        worker = next(pod for pod in lab.pods("worker") if pod["spec"]["nodeName"] == "kube-02")
        assert worker
        lab.cluster.cut("kube-02")

    # The head stands on the node that stays.
    patch = {"spec": {"affinity": {}}}
    lab.when("launcher", "Running", cut, 3)
    launched = lab.group("job", ["sleep", "240"], timeout=240, pod_patch=patch)
    try:
        answer = launched.run()
    finally:
        lab.cluster.heal("kube-02")
        _until(lambda: lab.cluster.status().get("node kube-02") == "Ready", 120)
        launched.clean()
        lab.nothing_left(90)
    code, reason = why(answer)
    assert code in ("lost_node", "launch_failed", "unreachable", "tool_failed") and "kube-02" in reason, (code, reason)


def test_a_command_that_fails_is_a_result(lab: Lab) -> None:
    code, reason = why(lab.run("job", ["python3", "-c", "import sys; sys.exit(3)"], ranks=1))
    assert code == "tool_failed" and "status 3" in reason
    code, reason = why(lab.run("job", ["no-such-program"], ranks=1))
    assert code == "tool_missing" and "no-such-program" in reason


@pytest.mark.long
def test_a_command_that_does_not_end(lab: Lab) -> None:
    code, reason = why(lab.run("statefulset", ["sleep", "600"], ranks=1, timeout=5))
    assert code == "timeout" and "5 s" in reason


LIAR = """#!/usr/bin/python3
# mpirun as Open MPI 5 is where it has no host file: every rank beside the launcher, and success.
import os, sys
words = sys.argv[1:]
if "--hostfile" in words:
    at = words.index("--hostfile")
    words[at : at + 2] = ["--host", "localhost:64"]
os.execvp("mpirun", ["mpirun", *words])
"""


def test_every_rank_on_the_launcher_is_no_success(lab: Lab) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "liar"}, "data": {"mpirun": LIAR}}
    lab.cluster.api.create(f"/api/v1/namespaces/{lab.namespace}/configmaps", config)
    lab.before = {"liar"}
    patch = {
        "spec": {"volumes": [{"name": "liar", "configMap": {"name": "liar", "defaultMode": 0o755}}]},
        "container": {"volumeMounts": [{"name": "liar", "mountPath": "/liar"}]},
    }
    code, reason = why(lab.run("mpijob", pod_patch=patch, more={"mpirun": "/liar/mpirun"}))
    assert code == "rank_mismatch" and "each of 2 nodes should have 8 ranks" in reason


def test_a_worker_that_cannot_be_entered_is_named(lab: Lab) -> None:
    """Its port answers, so that it is ready, but not for the head: another key."""
    launched = lab.group("job", more={"join_timeout": 5.0, "identity": "/etc/hostname"})
    code, reason = why(lab.finish(launched))
    assert code == "member" and "kube-01" in reason and "kube-02" in reason
    assert "has 2 endpoints" in reason, reason


def test_a_service_that_leads_nowhere_is_named(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its selector fits no pod: names do not resolve, and what the head cannot enter for another reason is told with that."""
    real = group_objects.objects_of

    def broken(*args: t.Any) -> list[group_objects.Made]:
        made = real(*args)
        for one in made:
            if one.resource == "services":
                one.body["spec"]["selector"] = {"app": "nobody"}
        return made

    monkeypatch.setattr(group_objects, "objects_of", broken)
    launched = lab.group("job", more={"join_timeout": 5.0, "identity": "/etc/hostname"})
    code, reason = why(lab.finish(launched))
    assert code == "member" and "has no endpoints" in reason, reason


# The modules ---------------------------------------------------------------------------------------------------------


WISHES: dict[str, tuple[dict[str, t.Any], str]] = {
    "whole pool": ({}, "nodes cannot be used: kwok-0001: node kwok-0001 has taint"),
    "some of the pool": ({"node_count": 2}, ""),
    "world size": ({"nodes": ["kube-01", "kube-02"], "world_size": 16}, ""),
    "odd world size": ({"world_size": 12}, "expected a multiple of the 8 GPUs of a node"),
    "both": ({"world_size": 16, "node_count": 3}, "world_size 16 is 2 nodes, node_count is 3"),
    "too many": ({"nodes": ["kube-01", "kube-02"], "node_count": 3}, "3 nodes were asked for, 2 of 2 can be used"),
    "absent": ({"nodes": ["kube-01", "kube-99"]}, "the cluster has no node kube-99"),
    "selector": ({"selector": "no=such"}, "selector no=such matches no node"),
    "name": ({"node_count": 2, "name": "Wrong_Name"}, "expected a name of small letters"),
    "nothing": ({"command": []}, "expected a program and its arguments"),
}


def test_wishes_that_do_not_fit_the_cluster(lab: Lab, tmp_path: pathlib.Path) -> None:
    cluster = {"acceptance_kube_kubeconfig": lab.kubeconfig, "acceptance_kube_namespace": lab.namespace, "acceptance_kube_image": lab.image}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {"lab": cluster}}}))
    tasks = [
        {
            "gpufleet.acceptance.mpijob": {"command": ["hostname"], "selector": "nvidia.com/gpu.present=true", **wish},
            "register": f"told_{number}",
            "ignore_errors": True,
        }
        for number, (wish, _words) in enumerate(WISHES.values())
    ]
    told = "{{ [" + ", ".join(f"told_{number}" for number in range(len(tasks))) + "] | to_json }}"
    tasks.append(
        {"ansible.builtin.copy": {"dest": str(tmp_path / "told.json"), "content": told}, "check_mode": False, "delegate_to": "localhost"}
    )
    play = [{"hosts": "all", "gather_facts": False, "vars": {"ansible_python_interpreter": sys.executable}, "tasks": tasks}]
    (tmp_path / "play.yml").write_text(json.dumps(play))
    argv = [sys.executable, "-m", "ansible", "playbook", "--check", "-i", tmp_path / "hosts.json", tmp_path / "play.yml"]
    said = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (tmp_path / "told.json").exists(), said.stdout[-2000:] + said.stderr[-2000:]
    for (name, (_wish, words)), result in zip(WISHES.items(), json.loads((tmp_path / "told.json").read_text()), strict=True):
        if words:
            assert result["failed"] and words in result["msg"], (name, result)
        else:
            assert result.get("launcher") == "mpijob" and result["would_run"]["workers"] >= 2, (name, result)
    assert lab.left() == []


# Who dies ------------------------------------------------------------------------------------------------------------


PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - gpufleet.acceptance.kube_group_job:
        kind: KIND
        image: IMAGE
        nodes: [kube-01, kube-02]
        gpus_per_node: GPUS
        command: [sleep, "300"]
"""


def _playing(lab: Lab, folder: pathlib.Path, kind: str, gpus: int = 8, before: int = 0) -> subprocess.Popen[bytes]:
    """Start a playbook that runs a group, and return it once the group's head runs. `before`: heads of other groups that run already."""
    (folder / "play.yml").write_text(PLAY.replace("KIND", kind).replace("IMAGE", lab.image).replace("GPUS", str(gpus)))
    settings = {"acceptance_kube_kubeconfig": lab.kubeconfig, "acceptance_kube_namespace": lab.namespace}
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": {"lab": settings}}}))
    argv = [sys.executable, "-m", "ansible", "playbook", "-i", folder / "hosts.json", folder / "play.yml"]
    running = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    _until(lambda: sum((pod.get("status") or {}).get("phase") == "Running" for pod in lab.pods("launcher")) > before, 180)
    return running


@pytest.mark.long
@pytest.mark.parametrize("kind", ["mpijob", "statefulset"])
def test_ctrl_c_leaves_nothing(lab: Lab, tmp_path: pathlib.Path, kind: str) -> None:
    running = _playing(lab, tmp_path, kind)
    os.killpg(running.pid, signal.SIGINT)
    running.wait(60)
    lab.nothing_left()


def test_a_killed_controllers_worker_cleans_up(lab: Lab, tmp_path: pathlib.Path) -> None:
    running = _playing(lab, tmp_path, "job")
    running.kill()
    running.wait(60)
    lab.nothing_left()


def test_after_kill_9_of_everything_the_next_start_cleans_up(lab: Lab, tmp_path: pathlib.Path) -> None:
    running = _playing(lab, tmp_path, "statefulset")
    os.killpg(running.pid, signal.SIGKILL)
    running.wait(60)
    assert lab.left()
    cleanup.janitor(lab.api)
    lab.nothing_left()


def _power_cut(pid: int) -> None:
    """End a process and all its descendants at once, some of which have sessions of their own, so that none can clean up for another."""
    found = {pid}
    while True:
        for one in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGSTOP)
        parents = {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            break
        found |= more
    for one in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def test_the_cluster_removes_groups_within_a_minute_after_a_power_cut_of_their_controllers(lab: Lab, tmp_path: pathlib.Path) -> None:
    """Two groups on the same nodes: the pods of an MPIJob are its operator's, and a StatefulSet has no deadline."""
    running = []
    for kind in ("mpijob", "statefulset"):
        (tmp_path / kind).mkdir()
        running.append(_playing(lab, tmp_path / kind, kind, gpus=4, before=len(running)))
    kinds = {"mpijobs", "statefulsets"}
    assert kinds <= {name.partition("/")[0] for name in lab.left()}
    for controller in running:
        _power_cut(controller.pid)
    cut = time.monotonic()
    for controller in running:
        controller.wait(60)
    took: dict[str, float] = {}
    while left := lab.left():
        assert time.monotonic() - cut < 60, left
        for kind in kinds - took.keys() - {name.partition("/")[0] for name in left}:
            took[kind] = time.monotonic() - cut
        time.sleep(0.3)
    print(f"all gone {time.monotonic() - cut:.1f} s after the power cut, the groups' objects after {took}")
    assert all(took.get(kind, 60) > 20 for kind in kinds), "a process of the run has removed one of them"


# Within a run --------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("kind", ["job", "mpijob"])
def test_pods_whose_controllers_machine_is_gone_end_by_themselves(lab: Lab, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(group_objects, "SILENT_S", 150.0)
    monkeypatch.setattr(group_objects, "RENEWED_S", 10.0)
    launched = lab.group(kind, ["sleep", "900"], timeout=900)
    answers: list[group.GroupResult] = []
    threading.Thread(target=lambda: answers.append(launched.run()), daemon=True).start()

    def running() -> list[str]:
        pods = [*lab.pods("worker"), *lab.pods("launcher")]
        return [pod["metadata"]["name"] for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]

    try:
        _until(lambda: len(running()) == 3, 120)
        time.sleep(200)
        assert len(running()) == 3 and not answers, "a controller that lives is seen by every kubelet in time"
        monkeypatch.setattr(group.GroupLaunch, "_sign", lambda _self, _now: None)
        _until(lambda: not running(), 360)
    finally:
        launched.clean()


def _accepted(lab: Lab, folder: pathlib.Path, **variables: t.Any) -> tuple[dict[str, t.Any], list[dict[str, t.Any]]]:
    """The report and the journal of a run of stage nccl_fabric over the cluster."""
    settings = {
        "acceptance_plane": "kubernetes", "acceptance_stages": ["nccl_fabric"], "acceptance_kube_image": lab.image,
        "acceptance_kube_kubeconfig": lab.kubeconfig, "acceptance_kube_namespace": lab.namespace, "acceptance_kube_start_timeout": 60,
        "acceptance_nodes": {"names": ["kube-01", "kube-02"]}, "nccl_fabric_binary_suffix": "_mpi", "nccl_fabric_sizes": ["8M:16M"],
        "acceptance_results_dir": str(folder / "results"), "ansible_python_interpreter": sys.executable, **variables,
    }  # fmt: skip
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": {"lab": settings}}}))
    argv = [sys.executable, "-m", "ansible", "playbook", "acceptance.yml", "-i", folder / "hosts.json"]
    said = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    runs = [path for path in (folder / "results").glob("*") if (path / "report.json").exists()]
    assert len(runs) == 1, said.stdout[-3000:] + said.stderr[-2000:]
    journal = journals.of(runs[0])
    return json.loads((runs[0] / "report.json").read_text()), [m for m in journal if m.get("stage") == "nccl_fabric"]


EXPECTED = {
    "id": "test-fabric", "match": {"stage": "nccl_fabric", "check": "all_reduce", "gpus": 8, "size": 16777216}, "metric": "busbw",
    "value": 226, "unit": "GB/s", "source": "the simulated tool", "date": "2026-11", "confidence": "measured",
}  # fmt: skip


def test_the_stage_over_a_cluster(lab: Lab, tmp_path: pathlib.Path) -> None:
    report, journal = _accepted(lab, tmp_path, acceptance_expectations=[EXPECTED])
    assert {(m["check"], m["subject"]["id"]): m["outcome"] for m in journal} == {
        ("all_reduce", "nccl_fabric/lab"): "measured", ("member", "lab/kube-01"): "measured", ("member", "lab/kube-02"): "measured",
    }  # fmt: skip
    group = next(m for m in journal if m["check"] == "all_reduce")
    assert group["context"]["kube_launcher"] == "mpijob" and group["context"]["image_id"]
    assert sorted(group["subject"]["members"]) == ["lab/kube-01", "lab/kube-02"] and group["simulated"]
    assert report["accepted"], report
    lab.nothing_left()


def test_the_stage_where_a_node_is_cordoned(lab: Lab, tmp_path: pathlib.Path) -> None:
    path = "/api/v1/nodes/kube-02"
    lab.cluster.api.request("PATCH", path, {"spec": {"unschedulable": True}}, "application/merge-patch+json")
    try:
        report, journal = _accepted(lab, tmp_path)
    finally:
        lab.cluster.api.request("PATCH", path, {"spec": {"unschedulable": False}}, "application/merge-patch+json")
    found = {m["subject"]["id"]: (m["reason_code"], m["reason"]) for m in journal}
    assert not report["accepted"]
    assert found["lab/kube-02"][0] == "node_cordoned" and "kubectl uncordon kube-02" in found["lab/kube-02"][1]
    assert found["nccl_fabric/lab"][0] == "member" and "kube-02 is cordoned" in found["nccl_fabric/lab"][1]


@pytest.mark.long
def test_tools_from_another_image(lab: Lab) -> None:
    """What the image under test lacks comes from an init container; without it that is an error."""
    patch = {
        "spec": {
            "volumes": [{"name": "tools", "emptyDir": {}}],
            "initContainers": [{
                "name": "tools", "image": lab.image, "command": ["cp", "/opt/simulated/bin/all_reduce_perf_mpi", "/tools/another_name"],
                "volumeMounts": [{"name": "tools", "mountPath": "/tools"}],
            }],
        },
        "container": {"volumeMounts": [{"name": "tools", "mountPath": "/tools"}]},
    }  # fmt: skip
    argv = ["/tools/another_name", *NCCL[1:]]
    assert seen(lab.run("job", argv, pod_patch=patch))["outcome"] == "measured"
    assert why(lab.run("job", argv))[0] == "tool_missing"
