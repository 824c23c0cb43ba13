# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Probes on the nodes of a real cluster, as a user who may what files/rbac says and no more.

The nodes are kwok's, what their pods print and how they end is kwok_answers.py's: what is tested is our way to the API server and back.
"""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import (
    access,
    cleanup,
    client,
    marks,
    settings,
    watch,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import heartbeat, probe
from harness import kwok_answers
from harness.namespace import Namespace, roles
from harness.own_rig import own
from rigs.kubernetes.kubernetes import Kubernetes

pytestmark = pytest.mark.kubernetes(own=True)
ROOT = pathlib.Path(__file__).resolve().parents[2]
NODES = 12
CHECKS = [{"check": name} for name in ("facts", "gpu_health", "cuda")]
RUN = "20260101T000000Z-0a1b2c"


@pytest.fixture(scope="module")
def cluster() -> t.Iterator[Kubernetes]:
    with own(Kubernetes) as made:
        made.up(nodes=0, kwok=NODES, operators=())
        yield made


@pytest.fixture(scope="module")
def containers(cluster: Kubernetes) -> t.Iterator[kwok_answers.Answers]:
    with kwok_answers.Answers(cluster) as answers:
        yield answers


class Lab(Namespace):
    """A namespace of kwok's nodes, with the roles of probes."""

    def __init__(self, cluster: Kubernetes, containers: kwok_answers.Answers) -> None:
        super().__init__(cluster, roles("probe", "daemonset", "job"))
        self.containers = containers
        self.nodes = [f"kwok-{number:04d}" for number in range(1, NODES + 1)]
        containers.plant()

    def probe(self, stage: str = "stack", timeout: float = 60, **variables: t.Any) -> probe.NodeProbe:
        given = {
            "image": "registry.invalid/tester:1",
            "tolerations": [{"operator": "Exists"}],
            "start_timeout": 60,
            "annotations": kwok_answers.HELD,
            **variables,
        }
        pods = settings.pods({f"acceptance_kube_{name}": value for name, value in given.items()})
        return probe.NodeProbe(self.api, pods, RUN, stage, timeout, payload.archive())

    def asked(self, devices: int = 0, nodes: list[str] | None = None) -> list[probe.NodeRequest]:
        request = payload.request("stack_facts", payload.options("stack_facts"), {"checks": CHECKS, "timeout": 60})
        return [probe.NodeRequest(node, request, devices) for node in nodes or self.nodes]

    def run(self, running: probe.NodeProbe, asked: list[probe.NodeRequest] | None = None) -> dict[str, dict[str, t.Any]]:
        try:
            return {answer.node: answer.result for answers in running.run(asked or self.asked()) for answer in answers}
        finally:
            assert running.clean() == []
            self.nothing_left()


@pytest.fixture
def lab(cluster: Kubernetes, containers: kwok_answers.Answers) -> Lab:
    return Lab(cluster, containers)


def good(said: dict[str, t.Any]) -> bool:
    return said.get("state") == "done" and len(said["observations"]) == len(CHECKS) + kwok_answers.GPUS


def once_running(lab: Lab, nodes: t.Iterable[str], what: t.Callable[[], t.Any]) -> threading.Thread:
    """Do something as soon as a pod runs on each of these nodes."""

    def run() -> None:
        path = f"/api/v1/namespaces/{lab.namespace}/pods"
        end = time.monotonic() + 120
        while not {p["spec"].get("nodeName") for p in lab.admin.get(path)["items"] if p["status"].get("phase") == "Running"} >= set(nodes):
            assert time.monotonic() < end
            time.sleep(0.1)
        what()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("launcher", ["pods", "daemonset"])  # kwok ends the pods of a Job at once, which ours do not
def test_every_node_answers_and_nothing_is_left(lab: Lab, launcher: str) -> None:
    answers = lab.run(lab.probe(launcher=launcher))
    assert sorted(answers) == lab.nodes and all(map(good, answers.values()))
    machines = {said["observations"][0]["context"]["machine_id"] for said in answers.values()}
    assert machines == {f"machine-of-{node}" for node in lab.nodes}


@pytest.mark.parametrize("launcher", ["pods", "daemonset"])  # kwok ends the pods of a Job at once, which ours do not
def test_pods_with_devices_go_through_the_scheduler(lab: Lab, launcher: str) -> None:
    assert all(map(good, lab.run(lab.probe(launcher=launcher), lab.asked(devices=8)).values()))


@pytest.mark.parametrize("launcher", ["pods", "daemonset", "job"])
def test_a_field_of_a_patch_that_the_api_does_not_know_is_no_silent_loss(lab: Lab, launcher: str) -> None:
    with pytest.raises(client.KubeError, match=r'unknown field "spec.*schedulerNam"') as caught:
        lab.run(lab.probe(launcher=launcher, pod_patch={"spec": {"schedulerNam": "mine"}}))
    assert caught.value.reason_code == "bad_spec"


def test_each_fault_of_a_pod_has_its_own_cause(lab: Lab) -> None:
    planted = {
        "cut": ("incomplete_output", "the log is cut"),
        "mixed": ("incomplete_output", "mixed with other output"),
        "foreign": ("forged_frame", "its nonce is another"),
        "empty": ("no_result", "its last words: starting | a tool says something"),
        "oom": ("oom_killed", "raise the memory"),
        "killed": ("container_failed", "SIGKILL"),
        "evicted": ("evicted", "The node was low on resource: memory."),
        "refused": ("pod_refused", "requested number of devices unavailable"),
        "image": ("image_pull", "manifest unknown"),
    }
    where = dict(zip(lab.nodes, planted, strict=False))
    lab.containers.plant(where)
    answers = lab.run(lab.probe())
    for node, said in answers.items():
        if node in where:
            code, words = planted[where[node]]
            assert said["reason_code"] == code and words in said["reason"], (where[node], said)
        else:
            assert good(said), (node, said)


def test_a_probe_that_never_ends_is_given_up_in_time(lab: Lab) -> None:
    lab.containers.plant({"kwok-0003": "hang"})
    running = lab.probe()
    running.run_s = 12.0  # the others answer at once
    answers = lab.run(running)
    assert answers["kwok-0003"]["reason_code"] == "timeout" and "no answer within 12 s" in answers["kwok-0003"]["reason"]
    assert sum(map(good, answers.values())) == NODES - 1


def test_not_enough_gpus_says_who_has_them(lab: Lab) -> None:
    lab.permit(roles("probe", "holders"))
    user = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "training", "labels": {"app": "somebody"}},
        "spec": {"nodeName": "kwok-0002", "tolerations": [{"operator": "Exists"}],
                 "containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "5"}}}]},
    }  # fmt: skip
    lab.admin.post(f"/api/v1/namespaces/{lab.namespace}/pods", user)
    answers = lab.run(lab.probe(start_timeout=15), lab.asked(devices=8))
    said = answers.pop("kwok-0002")
    assert said["reason_code"] == "unschedulable" and "Insufficient nvidia.com/gpu" in said["reason"]
    assert f"held by {lab.namespace}/training (5)" in said["reason"]
    assert all(map(good, answers.values()))
    assert lab.admin.get(f"/api/v1/namespaces/{lab.namespace}/pods/training")["metadata"]["name"] == "training"


# The API server --------------------------------------------------------------------------------------------------


def test_quota_is_named_per_node(lab: Lab) -> None:
    # Of `pods` those that have ended do not count any more, and the first may end before the last is made.
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}, "spec": {"hard": {"count/pods": "7"}}}
    path = f"/api/v1/namespaces/{lab.namespace}/resourcequotas"
    lab.admin.post(path, quota)
    while not lab.admin.get(f"{path}/small").get("status", {}).get("hard"):
        time.sleep(0.1)
    answers = lab.run(lab.probe())
    refused = [said for said in answers.values() if not good(said)]
    assert len(answers) == NODES and len(refused) >= 1
    assert all(said["reason_code"] == "quota" and "exceeded quota: small" in said["reason"] for said in refused)


def test_pod_security_is_named_once_and_nothing_is_left(lab: Lab) -> None:
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    lab.admin.patch(f"/api/v1/namespaces/{lab.namespace}", label)
    with pytest.raises(client.KubeError, match="violates PodSecurity") as caught:
        lab.run(lab.probe())
    assert caught.value.reason_code == "admission" and "acceptance_kube_host_root" in caught.value.reason
    assert all(map(good, lab.run(lab.probe(host_root=False)).values()))


def test_a_namespace_that_is_absent_or_going_is_named(lab: Lab) -> None:
    lab.containers.plant(dict.fromkeys(lab.nodes, "hang"))
    running = lab.probe()
    going = once_running(lab, lab.nodes, lambda: lab.admin.delete(f"/api/v1/namespaces/{lab.namespace}"))
    answers = {answer.node: answer.result for together in running.run(lab.asked()) for answer in together}
    going.join()
    assert {said["reason_code"] for said in answers.values()} == {"namespace_gone"}
    absent = client.connect(client.Connection("lab", kubeconfig=str(lab.cluster.kubeconfig), namespace="nowhere"))
    lab.api = absent
    with pytest.raises(client.KubeError, match='namespaces "nowhere" not found') as caught:
        list(lab.probe().run(lab.asked()))
    assert caught.value.reason_code == "namespace_gone"


def test_a_pod_that_somebody_deletes_is_named(lab: Lab) -> None:
    lab.containers.plant({"kwok-0005": "hang"})

    def delete() -> None:
        pods = lab.admin.get(f"/api/v1/namespaces/{lab.namespace}/pods")["items"]
        for pod in pods:
            if pod["spec"].get("nodeName") == "kwok-0005":
                lab.admin.delete(f"/api/v1/namespaces/{lab.namespace}/pods/{pod['metadata']['name']}", gracePeriodSeconds=0)

    deleting = once_running(lab, ["kwok-0005"], delete)
    answers = lab.run(lab.probe())
    deleting.join()
    assert answers["kwok-0005"]["reason_code"] == "pod_deleted" and "somebody deleted pod" in answers["kwok-0005"]["reason"]
    assert sum(map(good, answers.values())) == NODES - 1


def test_an_api_server_that_is_killed_and_comes_back_costs_nothing(lab: Lab) -> None:
    lab.containers.plant(dict.fromkeys(lab.nodes, "slow"))

    def restart() -> None:
        lab.cluster.kill("control", "kube-apiserver")
        time.sleep(3)
        lab.cluster.up(nodes=0, kwok=NODES, operators=())
        lab.containers.go_on.set()

    restarting = once_running(lab, lab.nodes, restart)
    answers = lab.run(lab.probe())
    restarting.join()
    assert sorted(answers) == lab.nodes and all(map(good, answers.values()))


class OldWatch(watch.Watch):
    """Starts from a resource version that the API server has long forgotten."""

    def _list(self) -> str:
        version = super()._list()
        return "1" if self.lists == 1 else version


def test_a_watch_goes_on_after_410_gone(lab: Lab) -> None:
    lab.cluster.kill("control", "kube-apiserver")
    lab.cluster.up(nodes=0, kwok=NODES, operators=())  # its cache of changes is empty now
    path = f"/api/v1/namespaces/{lab.namespace}/configmaps"
    seen = OldWatch(lab.admin, path, "app=seen")
    seen.start()
    lab.admin.post(path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "later", "labels": {"app": "seen"}}})
    kind, item = seen.changes.get(timeout=60)
    assert (kind, item["metadata"]["name"]) == (watch.ADDED, "later")
    lab.admin.delete(f"{path}/later")
    assert seen.changes.get(timeout=60)[0] == watch.GONE
    assert seen.lists == 2  # counted once a list has been told to its end
    seen.stop()


# Rights ----------------------------------------------------------------------------------------------------------

RULES = [
    (number, place, verb)
    for number, role in enumerate(roles("probe"))
    for place, rule in enumerate(role["rules"])
    for verb in rule["verbs"]
    if rule["resources"] != ["jobs"]  # the heartbeat, without which a run goes on
]


def test_the_roles_are_what_the_stage_asks_for() -> None:
    told = {
        (verb, group, *resource.partition("/")[::2])
        for role in roles("probe", "daemonset", "job")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    asked = {*access.PROBE, *access.HEARTBEAT, *access.NODES, *access.LAUNCHERS["daemonset"], *access.LAUNCHERS["job"]}
    assert told == asked


@pytest.mark.parametrize(("number", "place", "verb"), RULES)
def test_a_right_that_is_missing_is_named_before_anything_is_made(lab: Lab, number: int, place: int, verb: str) -> None:
    less = roles("probe")
    rule = less[number]["rules"][place]
    rule["verbs"].remove(verb)
    if not rule["verbs"]:
        del less[number]["rules"][place]
    lab.permit(less)
    with pytest.raises(client.KubeError) as caught:
        access.require(lab.api, access.PROBE, access.NODES)
    assert caught.value.reason_code == "no_permission"
    assert f"we may not {verb} {rule['resources'][0]}" in caught.value.reason and "files/rbac" in caught.value.reason


def test_with_every_right_nothing_is_missing(lab: Lab) -> None:
    lab.permit(roles("probe"))
    access.require(lab.api, access.PROBE, access.NODES)
    assert access.missing(lab.api, access.HEARTBEAT) == []
    assert access.missing(lab.api, access.LAUNCHERS["job"]) == ["get jobs.batch"]


# What is left ----------------------------------------------------------------------------------------------------

CONTROLLER = """
    import sys
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import client, settings
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import probe
    import os
    os.getppid = os.getpid  # we are the controller
    api = client.connect(client.Connection("lab", kubeconfig=sys.argv[1], namespace=sys.argv[2]))
    pods = settings.pods({"acceptance_kube_image": "registry.invalid/tester:1", "acceptance_kube_tolerations": [{"operator": "Exists"}],
                          "acceptance_kube_annotations": {"rig.gpufleet.invalid/runs": "1h"}})
    request = payload.request("stack_facts", payload.options("stack_facts"), {"checks": [{"check": "facts"}], "timeout": 60})
    running = probe.NodeProbe(api, pods, sys.argv[3], "stack", 60, payload.archive())
    print("begin", flush=True)
    for answers in running.run([probe.NodeRequest(node, request) for node in sys.argv[4:]]):
        print(answers, flush=True)
"""


def test_what_a_killed_controller_left_goes_at_the_next_start_and_nothing_else(lab: Lab) -> None:
    lab.containers.plant(dict.fromkeys(lab.nodes, "hang"))
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "somebody", "labels": {"app": "gpufleet-acceptance"}}}
    lab.admin.post(f"/api/v1/namespaces/{lab.namespace}/configmaps", other)
    runs = ["20260101T000000Z-000001", "20260101T000000Z-000002"]
    argv = [sys.executable, "-c", textwrap.dedent(CONTROLLER), lab.kubeconfig, lab.namespace]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".collections")}
    started = [subprocess.Popen([*argv, run, *lab.nodes], stdout=subprocess.PIPE, env=environment) for run in runs]
    try:
        end = time.monotonic() + 180
        while len(lab.admin.get(f"/api/v1/namespaces/{lab.namespace}/pods")["items"]) < 2 * NODES:
            assert time.monotonic() < end
            time.sleep(0.2)
        assert cleanup.janitor(lab.api) == []  # both are alive
        started[0].send_signal(signal.SIGKILL)
        started[0].wait()
        assert cleanup.janitor(lab.api) == [f"lab: removed {NODES + 2} objects of run {runs[0]}"]
        assert set(cleanup.left_over(lab.admin)) == {runs[1]}
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert cleanup.janitor(lab.api) == [f"lab: removed {NODES + 2} objects of run {runs[1]}"]
    lab.nothing_left()
    assert lab.admin.get(f"/api/v1/namespaces/{lab.namespace}/configmaps/somebody")


def controller(lab: Lab, run: str) -> subprocess.Popen[bytes]:
    """A process that follows a pod on each node, once all pods are there."""
    argv = [sys.executable, "-c", textwrap.dedent(CONTROLLER), lab.kubeconfig, lab.namespace, run, *lab.nodes]
    started = subprocess.Popen(argv, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT / ".collections")})
    end = time.monotonic() + 180
    while len(lab.admin.get(f"/api/v1/namespaces/{lab.namespace}/pods")["items"]) < NODES:
        assert time.monotonic() < end and started.poll() is None
        time.sleep(0.2)
    return started


def test_the_cluster_removes_everything_within_a_minute_after_a_power_cut_of_the_controller(lab: Lab) -> None:
    lab.containers.plant(dict.fromkeys(lab.nodes, "hang"))
    started = controller(lab, RUN)
    try:
        time.sleep(heartbeat.LAPSE_S + 15)
        assert {run: len(items) for run, items in lab.left().items()} == {RUN: NODES + 2}, "a controller that lives loses nothing"
    finally:
        started.kill()  # as a power cut: nobody of ours runs afterwards, no janitor and no cleanup.yml
        cut = time.monotonic()
        started.wait()
    lab.nothing_left(60)
    print(f"all gone {time.monotonic() - cut:.1f} s after the power cut")
    assert time.monotonic() - cut > 20, "a controller that misses a few heartbeats loses nothing either"


def test_without_the_right_to_heartbeats_a_run_measures_and_warns(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    probe_only = [{**role, "rules": [rule for rule in role["rules"] if rule["resources"] != ["jobs"]]} for role in roles("probe")]
    lab.permit(probe_only)
    assert all(map(good, lab.run(lab.probe()).values()))
    said = " ".join(capsys.readouterr().err.split())
    assert "lab: stack: if this machine dies, its pods stay until their deadline" in said and "patch jobs.batch" in said, said


def test_a_run_whose_heartbeats_reach_no_one_is_told_why_its_pods_went(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.containers.plant(dict.fromkeys(lab.nodes, "hang"))
    monkeypatch.setattr(heartbeat, "LAPSE_S", 8.0)
    monkeypatch.setattr(heartbeat, "BEAT_S", 1.0)
    monkeypatch.setattr(heartbeat.Heartbeat, "_run", lambda _self: None)
    answers = lab.run(lab.probe())
    assert {said["reason_code"] for said in answers.values()} == {"pod_deleted"}
    assert all("no heartbeat reached Job" in said["reason"] for said in answers.values()), answers


def test_the_owner_takes_everything_with_it(lab: Lab) -> None:
    lab.containers.plant(dict.fromkeys(lab.nodes, "hang"))
    running = lab.probe()
    for_once = iter(running.run(lab.asked()))
    waiting = threading.Thread(target=lambda: list(for_once), daemon=True)
    waiting.start()
    path = f"/api/v1/namespaces/{lab.namespace}"
    end = time.monotonic() + 180
    while len(lab.admin.get(f"{path}/pods")["items"]) < NODES:
        assert time.monotonic() < end
        time.sleep(0.2)
    lab.admin.delete(f"{path}/configmaps/{running.launch.name}")
    waiting.join(180)
    assert not waiting.is_alive()
    lab.nothing_left()


def test_nothing_but_labels_tells_whose_an_object_is() -> None:
    assert marks.OURS == "app.kubernetes.io/managed-by=gpufleet-acceptance"
