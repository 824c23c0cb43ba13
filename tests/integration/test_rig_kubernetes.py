# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The Kubernetes rig is what its README says."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import ssl
import subprocess
import sys
import time
import typing as t
import urllib.error
import urllib.request

import pytest
from rigs import common
from rigs.kubernetes.kubernetes import CONTROL, Kubernetes

pytestmark = [pytest.mark.kubernetes, pytest.mark.long]
COMMAND = pathlib.Path(__file__).resolve().parents[1] / "rigs" / "kubernetes" / "kubernetes"
PODS = "/api/v1/namespaces/default/pods"
COLLECTIVE = ["all_reduce_perf_mpi", "-b", "8M", "-e", "32M", "-f", "2", "-g", "4"]


def pod(name: str, image: str, command: list[str], node: str = "", **spec: t.Any) -> dict[str, t.Any]:
    container: dict[str, t.Any] = {"name": "main", "image": image, "command": command}
    for key in ("resources", "readinessProbe", "securityContext"):
        if key in spec:
            container[key] = spec.pop(key)
    body = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, **spec}
    if node:
        fields = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        body["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [fields]}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": body}


def wait(what: str, there: t.Callable[[], t.Any], seconds: float = 180) -> t.Any:
    until = time.monotonic() + seconds
    while True:
        if found := there():
            return found
        assert time.monotonic() < until, what
        time.sleep(0.2)


@pytest.fixture
def cluster(rig_kubernetes: Kubernetes) -> t.Iterator[Kubernetes]:
    """The session's cluster with nodes as they were born, and without pods and services of this test afterwards."""
    for node in rig_kubernetes.nodes:
        rig_kubernetes.as_born(node)
    yield rig_kubernetes
    api = rig_kubernetes.api
    api.request("DELETE", PODS)
    for service in api.items("/api/v1/namespaces/default/services"):
        if service["metadata"]["name"] != "kubernetes":
            api.delete(f"/api/v1/namespaces/default/services/{service['metadata']['name']}")
    wait("pods go", lambda: not api.items(PODS))


def phase(cluster: Kubernetes, name: str) -> str:
    return cluster.api.request("GET", f"{PODS}/{name}")["status"].get("phase", "")


def output(cluster: Kubernetes, name: str) -> str:
    """Return the output of the pod when it is done."""
    done = wait(name, lambda: phase(cluster, name) in ("Succeeded", "Failed") and phase(cluster, name))
    text: str = cluster.api.request("GET", f"{PODS}/{name}/log")
    assert done == "Succeeded", text
    return text


def test_twice_is_as_once_and_other_numbers_are_followed(cluster: Kubernetes) -> None:
    before = {machine: cluster.programs(machine) for machine in (CONTROL, *cluster.nodes)}
    cluster.up(2, 1)
    assert {machine: cluster.programs(machine) for machine in (CONTROL, *cluster.nodes)} == before
    names = [node["metadata"]["name"] for node in cluster.api.items("/api/v1/nodes")]
    assert names == ["kube-01", "kube-02", "kwok-0001"]
    cluster.up(2, 3)
    status = cluster.status()
    assert status["node kwok-0003"] == "Ready" and set(status.values()) == {"up", "Ready"}


def test_an_operator_that_ends_itself_comes_back(cluster: Kubernetes) -> None:
    before = cluster.programs(CONTROL)["mpi-operator"]
    os.kill(before, signal.SIGTERM)
    wait("another", lambda: cluster.programs(CONTROL).get("mpi-operator") not in (before, None))


def test_pods_of_two_nodes_find_each_other(cluster: Kubernetes) -> None:
    server = pod("server", cluster.image, ["python3", "-m", "http.server", "8000"], "kube-01", hostname="server", subdomain="all")
    cluster.api.request("POST", PODS, server)
    for name, spec in (("all", {"clusterIP": "None"}), ("one", {"ports": [{"port": 80, "targetPort": 8000}]})):
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {**spec, "selector": {"app": "server"}}}
        cluster.api.request("POST", "/api/v1/namespaces/default/services", service)
    wait("the server runs", lambda: phase(cluster, "server") == "Running")
    # By name of a pod and of a service address; the API server by its service address, with the pod's own token.
    program = """if True:
        import ssl, time, urllib.request
        def ask(url, **more):
            for again in range(50):
                try:
                    return urllib.request.urlopen(url, timeout=5, **more)
                except OSError as error:
                    time.sleep(0.2)
            raise error
        print(ask("http://server.all:8000/opt/").status, ask("http://one/opt/").status)
        secret = "/var/run/secrets/kubernetes.io/serviceaccount/"
        trust = ssl.create_default_context(cafile=secret + "ca.crt")
        token = {"Authorization": "Bearer " + open(secret + "token").read()}
        print(ask(urllib.request.Request("https://kubernetes.default.svc/version", headers=token), context=trust).status)
        print(open("/etc/hostname").read().strip())
        """
    cluster.api.request("POST", PODS, pod("client", cluster.image, ["python3", "-c", program], "kube-02"))
    assert output(cluster, "client").split() == ["200", "200", "200", "client"]
    assert cluster.api.request("GET", f"{PODS}/client")["spec"]["nodeName"] == "kube-02"


def test_gpus_are_given_out_and_are_those_of_the_node(cluster: Kubernetes) -> None:
    gpus = {"resources": {"limits": {"nvidia.com/gpu": 8}}}
    ask = ["sh", "-c", 'nvidia-smi -L; echo "$NVIDIA_VISIBLE_DEVICES"; all_reduce_perf -b 8M -e 8M -g 8 | grep simulated; sleep 5']
    for node in cluster.nodes:
        cluster.api.request("POST", PODS, pod(f"all-{node}", cluster.image, ask, node, runtimeClassName="nvidia", **gpus))
    cluster.api.request("POST", PODS, pod("no-room", cluster.image, ["true"], "kube-01", **gpus))
    for number, node in enumerate(cluster.nodes, 1):
        text = output(cluster, f"all-{node}")
        assert text.count(f"GPU-{number:08x}-") == 16 and "simulated by gpufleet.acceptance" in text, text
    output(cluster, "no-room")
    events = cluster.api.items("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dno-room")
    assert any("Insufficient nvidia.com/gpu" in event["message"] for event in events), events


def test_a_node_that_loses_gpus_and_a_kubelet_that_starts_again(cluster: Kubernetes) -> None:
    def gpus() -> str:
        value: str = cluster.api.request("GET", "/api/v1/nodes/kube-02")["status"]["allocatable"]["nvidia.com/gpu"]
        return value

    kept = cluster.plant("kube-02").read_text()
    try:
        cluster.plant("kube-02").write_text(f"{kept}GPUS=7\n")
        wait("seven are left", lambda: gpus() == "7")
    finally:
        cluster.plant("kube-02").write_text(kept)
    cluster.kill("kube-02", "kubelet")
    assert cluster.status()["kube-02 kubelet"] == "down"
    cluster.start("kube-02", "kubelet")
    wait("all are back", lambda: gpus() == "8")
    # The API has the number of before until the kubelet says another; until the device plugin is there again pods are refused.
    one = {"limits": {"nvidia.com/gpu": 1}}
    for number in range(20):
        name = f"after-{number}"
        cluster.api.request("POST", PODS, pod(name, cluster.image, ["true"], "kube-02", resources=one))
        if wait(name, lambda name=name: phase(cluster, name) in ("Succeeded", "Failed") and phase(cluster, name)) == "Succeeded":
            return
        time.sleep(1)
    raise AssertionError("no pod got a GPU after the kubelet's new start")


def test_an_image_without_tools_one_that_nobody_has_and_too_little_memory(cluster: Kubernetes) -> None:
    cluster.api.request("POST", PODS, pod("bare", cluster.bare_image, ["sh", "-c", "command -v python3 nvidia-smi mpirun || echo none"]))
    cluster.api.request("POST", PODS, pod("nobody", "gpufleet.invalid/nobody:1", ["true"]))
    eat = pod("eats", cluster.image, ["python3", "-c", "b'x' * (1 << 30)"], resources={"limits": {"memory": "64Mi"}})
    cluster.api.request("POST", PODS, eat)
    assert output(cluster, "bare") == "none\n"

    def state(name: str) -> dict[str, t.Any]:
        statuses = cluster.api.request("GET", f"{PODS}/{name}")["status"].get("containerStatuses", [{"state": {}}])
        found: dict[str, t.Any] = statuses[0]["state"]
        return found

    wait("no image", lambda: state("nobody").get("waiting", {}).get("reason") in ("ErrImagePull", "ImagePullBackOff"))
    assert wait("no memory", lambda: state("eats").get("terminated"))["reason"] == "OOMKilled"


def rows(text: str) -> set[str]:
    """Hosts of the ranks, of a table that is complete and right."""
    assert "# Out of bounds values : 0 OK" in text and "simulated by gpufleet.acceptance" in text, text
    hosts = [line.split(" on ")[1].split()[0] for line in text.splitlines() if line.startswith("#  Rank")]
    assert len(hosts) == 16, text
    return set(hosts)


WORKER = {
    "command": ["/usr/sbin/sshd", "-De"],
    "resources": {"limits": {"nvidia.com/gpu": 8}},
    "readinessProbe": {"tcpSocket": {"port": 22}, "periodSeconds": 1},
}


@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_an_mpijob_runs_over_both_nodes(cluster: Kubernetes, suite: str) -> None:
    image = cluster.tester(suite)
    # "Workers are ready" is told to the operator before it is told to the names' server, and mpirun asks for a name once.
    start = (
        "for host in $(cut -d' ' -f1 /etc/mpi/hostfile); do"
        " for again in $(seq 300); do getent hosts $host && break; sleep 0.2; done; done >/dev/null;"
        f" exec mpirun --allow-run-as-root --hostfile /etc/mpi/hostfile -np 4 {' '.join(COLLECTIVE)}"
    )
    mpirun = ["sh", "-c", start]
    replicas = {
        "Launcher": {"replicas": 1, "template": {"spec": {"containers": [{"name": "main", "image": image, "command": mpirun}]}}},
        "Worker": {"replicas": 2, "template": {"spec": {"containers": [{"name": "main", "image": image, **WORKER}]}}},
    }
    replicas["Launcher"]["restartPolicy"] = "Never"
    spec = {"slotsPerWorker": 2, "launcherCreationPolicy": "WaitForWorkersReady", "runPolicy": {"backoffLimit": 0}}
    job = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": suite}}
    path = "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs"
    cluster.api.request("POST", path, {**job, "spec": {**spec, "mpiReplicaSpecs": replicas}})
    try:
        name = wait("a launcher", lambda: cluster.api.items(f"{PODS}?labelSelector=training.kubeflow.org/job-role%3Dlauncher"))[0]
        assert rows(output(cluster, name["metadata"]["name"])) == {f"{suite}-worker-0", f"{suite}-worker-1"}
        workers = cluster.api.items(f"{PODS}?labelSelector=training.kubeflow.org/job-role%3Dworker")
        assert {worker["spec"]["nodeName"] for worker in workers} == {"kube-01", "kube-02"}
    finally:
        cluster.api.delete(f"{path}/{suite}")
        wait("pods go", lambda: not cluster.api.items(PODS))


def test_a_volcano_job_runs_over_both_nodes(cluster: Kubernetes) -> None:
    start = (
        "for host in $(cat /etc/volcano/worker.host); do"
        " for again in $(seq 100); do ssh -o ConnectTimeout=2 $host true && break; sleep 0.2; done;"
        ' list="$list${list:+,}$host:2"; done;'
        f" exec mpirun --allow-run-as-root --host $list -np 4 {' '.join(COLLECTIVE)}"
    )

    def task(name: str, replicas: int, **container: t.Any) -> dict[str, t.Any]:
        spec = {"containers": [{"name": "main", "image": cluster.image, **container}], "restartPolicy": "Never"}
        return {"name": name, "replicas": replicas, "template": {"spec": spec}}

    launcher = task("launcher", 1, command=["sh", "-c", start])
    launcher["policies"] = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    spec = {"minAvailable": 3, "schedulerName": "volcano", "queue": "default", "plugins": {"ssh": [], "svc": []}}
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "vc"}}
    path = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
    cluster.api.request("POST", path, {**job, "spec": {**spec, "tasks": [launcher, task("worker", 2, **WORKER)]}})
    try:
        wait("a launcher", lambda: [p for p in cluster.api.items(PODS) if p["metadata"]["name"] == "vc-launcher-0"])
        assert rows(output(cluster, "vc-launcher-0")) == {"vc-worker-0", "vc-worker-1"}
        done = lambda: cluster.api.request("GET", f"{path}/vc")["status"]["state"]["phase"] == "Completed"  # noqa: E731
        wait("the job is complete", done)
    finally:
        cluster.api.delete(f"{path}/vc")
        wait("pods go", lambda: not cluster.api.items(PODS))


def as_user(kubeconfig: pathlib.Path, path: str, tmp_path: pathlib.Path) -> int:
    """HTTP status of a GET by whom this kubeconfig is for."""
    import base64

    document = json.loads(kubeconfig.read_text())
    login, server = document["users"][0]["user"], document["clusters"][0]["cluster"]
    trust = ssl.create_default_context(cadata=base64.b64decode(server["certificate-authority-data"]).decode())
    request = urllib.request.Request(server["server"] + path)
    if "token" in login:
        request.add_header("Authorization", f"Bearer {login['token']}")
    else:
        for kind in ("certificate", "key"):
            (tmp_path / kind).write_bytes(base64.b64decode(login[f"client-{kind}-data"]))
        trust.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    try:
        with urllib.request.urlopen(request, timeout=60, context=trust) as answer:
            status: int = answer.status
            return status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("token_s", [0, 600])
def test_a_user_may_what_his_roles_say_and_no_more(cluster: Kubernetes, tmp_path: pathlib.Path, token_s: int) -> None:
    name = f"reader{token_s}"
    role = {"kind": "Role", "metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]}
    nodes = {"kind": "ClusterRole", "metadata": {"name": "n"}, "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]}
    pods, other, of_nodes = "/api/v1/namespaces/team/pods", PODS, "/api/v1/nodes"

    def may(roles: list[dict[str, t.Any]]) -> list[int]:
        kubeconfig = cluster.user(name, roles, "team", token_s)
        # The authorizer hears of a new role a moment later.
        wanted = [200 if r in roles else 403 for r in (role, nodes)]
        asked = lambda: [as_user(kubeconfig, path, tmp_path) for path in (pods, of_nodes)]  # noqa: E731
        wait("his rights", lambda: asked() == wanted)
        return [*asked(), as_user(kubeconfig, other, tmp_path)]

    assert may([role, nodes]) == [200, 200, 403]
    assert may([role]) == [200, 403, 403]
    assert may([]) == [403, 403, 403]


def test_pods_of_kwok_nodes_end_fail_and_write(cluster: Kubernetes) -> None:
    cluster.answer_logs("def log(pod):\n    return pod['spec']['nodeName'] + ' ' + pod['metadata']['annotations']['nonce'] + '\\n'\n")
    try:
        for name, node, more in (
            ("ends", "kwok-0001", {}),
            ("runs", "kwok-0002", {"annotations": {"rig.gpufleet.invalid/runs": "1h"}}),
            ("fails", "kwok-0003", {"labels": {"pod-container-running-failed.stage.kwok.x-k8s.io": "true"}}),
        ):
            document = pod(name, "any", ["any"], nodeName=node)
            document["metadata"]["labels"] |= more.get("labels", {})
            document["metadata"]["annotations"] = {"nonce": f"n-{name}", **more.get("annotations", {})}
            cluster.api.request("POST", PODS, document)
        wanted = {"ends": "Succeeded", "runs": "Running", "fails": "Failed"}
        wait("one ends, one runs, one fails", lambda: {name: phase(cluster, name) for name in wanted} == wanted)
        assert cluster.api.request("GET", f"{PODS}/ends/log") == "kwok-0001 n-ends\n"
        assert cluster.api.request("GET", f"{PODS}/runs/log") == "kwok-0002 n-runs\n"
    finally:
        (cluster.folder(CONTROL) / "answer.py").unlink()


def test_the_api_server_is_killed_and_cut_off_and_a_node_falls_silent(cluster: Kubernetes) -> None:
    cluster.kill(CONTROL, "kube-apiserver")
    with pytest.raises(common.RigError):
        cluster.api.request("GET", "/readyz")
    cluster.start(CONTROL, "kube-apiserver")

    def answers() -> bool:
        try:
            return bool(cluster.api.request("GET", "/readyz") == "ok")
        except common.RigError:
            return False

    wait("it answers again", answers)
    cluster.cut("kube-02")
    try:
        wait("the node is missed", lambda: cluster.status()["node kube-02"] == "NotReady")
        assert cluster.status()["node kube-01"] == "Ready"
    finally:
        cluster.heal("kube-02")
    wait("the node is back", lambda: cluster.status()["node kube-02"] == "Ready")
    cluster.cut(CONTROL)
    try:
        with pytest.raises(OSError):
            urllib.request.urlopen(f"{cluster.server}/readyz", timeout=2)
    finally:
        cluster.heal(CONTROL)


def traces(cluster: Kubernetes) -> list[str]:
    """Return the traces of this cluster on the machine."""
    word = f"gfk{cluster.instance}"
    found = [f"link {link}" for link in common.links() if link.startswith(word)]
    found += [f"cgroup {path}" for path in pathlib.Path("/sys/fs/cgroup").glob(f"**/{word}-*")]
    found += [f"route {route}" for route in common.run("ip", "route").splitlines() if word in route]
    found += [f"file {path}" for path in cluster.state.iterdir() if path.name not in ("lock", "reserved")]
    for mounts in pathlib.Path("/proc").glob("[0-9]*/mounts"):
        try:
            if str(cluster.state) in mounts.read_text():
                found.append(f"mount of process {mounts.parent.name}")
        except OSError:
            continue
    return found


def test_down_leaves_nothing_even_of_a_killed_up(tmp_path: pathlib.Path) -> None:
    if os.geteuid():
        pytest.skip("the kubernetes rig needs root")
    cluster = Kubernetes.reserve()
    sysctl = pathlib.Path("/proc/sys/net/ipv4/ip_forward").read_text()
    mounts = pathlib.Path("/proc/mounts").read_text()
    choice = random.Random(4)
    command = [sys.executable, str(COMMAND), "--instance", str(cluster.instance), "up", "--nodes", "1", "--kwok", "2"]
    for again in range(6):
        with open(tmp_path / f"up{again}", "wb") as log:
            up = subprocess.Popen(command, stdout=log, stderr=log)
        limit = None if again == 5 else choice.uniform(0.5, 12)
        try:
            assert up.wait(limit) == 0, (tmp_path / f"up{again}").read_text()
        except subprocess.TimeoutExpired:
            up.send_signal(signal.SIGKILL)
            up.wait()
        if again not in (1, 3):  # after these `up` goes on where the killed one stopped
            cluster.down()
            wait("nothing is left", lambda: not traces(cluster), 10)
    assert pathlib.Path("/proc/sys/net/ipv4/ip_forward").read_text() == sysctl
    assert [line for line in pathlib.Path("/proc/mounts").read_text().splitlines() if line not in mounts] == []
    cluster.down()  # of nothing


def test_what_is_missing_is_said() -> None:
    done = subprocess.run([str(COMMAND), "--instance", "9", "up"], capture_output=True, text=True)
    assert done.returncode == 1 and "from 0 to 7" in done.stderr
    program = "import sys; sys.path.insert(0, sys.argv[1]); from rigs import golang; print(golang.go())"
    path = {"PATH": "/nonexistent"}
    done = subprocess.run([sys.executable, "-c", program, str(COMMAND.parents[2])], env=path, capture_output=True, text=True)
    assert "/usr/local/go/bin/go" in done.stdout or "built with Go" in done.stderr
