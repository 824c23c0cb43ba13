# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""acceptance.yml over machines behind sshd and nodes of clusters in one run: one report, and no trace on either plane.

Two nodes run real containers, fifty exist in the API only; the controller is a user who may what files/rbac says.
"""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup, client
from harness import journals, kwok_answers
from harness.fleet_runs import ROOT, Done, latest, run_folder
from harness.namespace import roles
from harness.own_rig import own
from rigs import common
from rigs.fleet.fleet import Fleet
from rigs.kubernetes.kubernetes import Kubernetes
from rigs.simulated import nodes
from rigs.slurm.slurm import Slurm

pytestmark = [pytest.mark.kubernetes(own=True), pytest.mark.fleet]
LONG = pytest.mark.long
HOSTS, KWOK = 4, 50
NAMESPACE = "acceptance"
TOOLS = {
    "acceptance_nvidia_smi": "/opt/simulated/bin/nvidia-smi",
    "nccl_node_binary_dir": "/opt/simulated/bin",
    "gemm_python": "/opt/simulated/bin/python3-torch",
    "gpu_memory_python": "/opt/simulated/bin/python3-torch",
    "stack_python": "/opt/simulated/bin/python3-torch",
    "train_python": "/opt/simulated/bin/python3-torch",
}
MOUNT = {
    "spec": {"volumes": [{"name": "x", "configMap": {"name": "nowhere"}}]},
    "container": {"volumeMounts": [{"name": "x", "mountPath": "/x"}]},
}
# Two kinds of simulated machines and containers in one run: their stacks differ by design.
EXTRA = {"acceptance_simulated": True, "acceptance_gpu_count": 8, "stack_drift": {"*": "ignore"}, "nccl_node_sizes": ["8M:16G"]}


class Mixed:
    """Four hosts, a cluster of two real nodes and fifty others, and how to run playbooks over them."""

    def __init__(self, fleet: Fleet, cluster: Kubernetes, answers: kwok_answers.Answers, folder: pathlib.Path) -> None:
        self.fleet, self.cluster, self.answers, self.folder = fleet, cluster, answers, folder
        self.image = cluster.image  # as it was put up: its name is that of its content
        self.roles = roles("probe")
        self.kubeconfig = cluster.user("acceptance-tester", self.roles, NAMESPACE)
        self.admin = client.connect(client.Connection("lab", kubeconfig=str(cluster.kubeconfig), namespace=NAMESPACE))
        self.runs = 0

    def heal(self) -> None:
        for number, host in enumerate(self.fleet.hosts, 1):
            nodes.planted(self.fleet.plant(host), number)
        for number, node in enumerate(self.cluster.nodes, 101):
            self.cluster.plant(node).write_text(nodes.conf(number))
        self.answers.plant()

    def lab(self, **more: t.Any) -> dict[str, t.Any]:
        return {
            "acceptance_plane": "kubernetes",
            "acceptance_kube_kubeconfig": str(self.kubeconfig),
            "acceptance_kube_image": self.image,
            "acceptance_kube_tolerations": [{"operator": "Exists"}],
            "acceptance_kube_start_timeout": 120,
            **TOOLS,
            **more,
        }

    def command(self, clusters: dict[str, dict[str, t.Any]], *more: str, hosts: bool = True, playbook: str = "acceptance.yml") -> list[str]:
        self.runs += 1
        folder = self.folder / str(self.runs)
        folder.mkdir()
        ssh = {h: {"ansible_host": self.fleet.address(h), **nodes.tools_at("/opt/simulated/bin")} for h in self.fleet.hosts if hosts}
        inventories = ["-i", str(folder / "clusters.json")]
        (folder / "clusters.json").write_text(json.dumps({"all": {"hosts": clusters}}))
        if ssh:
            common.write_inventory(folder / "fleet.yml", "fleet", ssh, self.fleet.key, self.fleet.known_hosts)
            inventories += ["-i", str(folder / "fleet.yml")]
        extra = {**EXTRA, "acceptance_results_dir": str(folder / "results")}
        return [str(ROOT / ".venv/bin/ansible-playbook"), playbook, *inventories, "-e", json.dumps(extra), *more]

    def results(self) -> pathlib.Path:
        return self.folder / str(self.runs) / "results"

    def run(self, clusters: dict[str, dict[str, t.Any]], *more: str, **options: t.Any) -> Done:
        command = self.command(clusters, *more, **options)
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL, timeout=500
        )
        assert "Traceback" not in done.stdout, done.stdout[-4000:]
        folder = run_folder(self.results())
        if folder is None or not (folder / "verdicts.jsonl").exists():
            return Done(done.returncode, done.stdout, folder, [], [])
        return Done(done.returncode, done.stdout, folder, latest(folder), journals.of(folder))

    def nothing_left(self, seconds: float = 90) -> None:
        end = time.monotonic() + seconds
        while left := cleanup.left_over(self.admin):
            assert time.monotonic() < end, left
            time.sleep(0.3)


@pytest.fixture(scope="module")
def mixed(rig_fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Mixed]:
    with own(Kubernetes) as cluster:
        rig_fleet.up(HOSTS)
        cluster.up(2, KWOK, operators=())
        with kwok_answers.Answers(cluster) as answers:
            yield Mixed(rig_fleet, cluster, answers, tmp_path_factory.mktemp("mixed"))


@pytest.fixture
def healthy(mixed: Mixed) -> Mixed:
    mixed.heal()
    mixed.nothing_left()
    return mixed


def bad(done: Done) -> dict[str, set[str]]:
    """Reason codes of what is worse than a WARN, by node: `HOST` or `CLUSTER/NODE`."""
    found: dict[str, set[str]] = {}
    for verdict in done.verdicts:
        if verdict["verdict"] not in ("PASS", "WARN", "SKIPPED"):
            parts = verdict["subject"]["id"].split("/")
            node = "/".join(parts[:2]) if parts[0] in ("lab", "batch") else parts[0]
            found.setdefault(node, set()).add(verdict["reason_code"])
    return found


def test_planted_faults_on_both_planes_and_only_those_are_found(healthy: Mixed) -> None:
    nodes.planted(healthy.fleet.plant(healthy.fleet.hosts[2]), 3, faults="ecc")
    healthy.cluster.plant("kube-02").write_text(nodes.conf(102, faults="fewer_gpus=7"))
    healthy.answers.plant({"kwok-0007": "cut", "kwok-0011": "forged", "kwok-0013": "oom"})
    healthy.admin.patch("/api/v1/nodes/kwok-0017", {"spec": {"unschedulable": True}})
    lab = healthy.lab(
        acceptance_nodes={"expected": ["kube-01", "kwok-0099"]},
        acceptance_kube_annotations=kwok_answers.HELD,
        acceptance_kube_tolerations=[{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
    )
    away = healthy.lab(acceptance_nodes={"expected": ["n1", "n2"]}, acceptance_kube_server="https://127.0.0.1:1")
    del away["acceptance_kube_kubeconfig"]
    try:
        done = healthy.run({"lab": lab, "away": away}, "--tags", "stack")
    finally:
        healthy.admin.patch("/api/v1/nodes/kwok-0017", {"spec": {"unschedulable": False}})
    assert done.status != 0, done.output[-3000:]
    assert bad(done) == {
        healthy.fleet.hosts[2]: {"ecc"},
        "away": {"cluster_unreachable"},
        "lab/kube-02": {"gpu_count"},
        "lab/kwok-0007": {"incomplete_output"},
        "lab/kwok-0013": {"oom_killed"},
        "lab/kwok-0017": {"node_cordoned"},
        "lab/kwok-0099": {"node_absent"},
    }
    # A pod that speaks for another node is taken for itself.
    assert done.of("lab") and not [m for m in done.journal if m["subject"]["id"].startswith("lab/kwok-0001") and m["attempt"] > 1]
    assert {m["plane"] for m in done.journal} == {"ssh", "kubernetes"}
    words = [m["reason"] for m in done.journal if m["target"] == "away"]
    assert words and all("onnection refused" in reason for reason in words)
    images = {m["context"].get("image_id") for m in done.journal if m["subject"]["id"] == "lab/kube-01"}
    assert len(images) == 1 and images.pop()
    assert len(list((done.folder / "nodes").iterdir())) == HOSTS + 2 + KWOK - 3
    healthy.nothing_left()


@LONG
def test_machines_a_cluster_and_slurm_give_one_report(healthy: Mixed, rig_slurm: Slurm) -> None:
    """A fault on each plane, and nothing else, is found; nothing is left on any."""
    hosts = rig_slurm.fleet.hosts
    for number, host in enumerate(hosts, 201):
        nodes.planted(rig_slurm.fleet.plant(host), number, faults="ecc" if host == hosts[1] else "")
    nodes.planted(healthy.fleet.plant(healthy.fleet.hosts[2]), 3, faults="ecc")
    healthy.cluster.plant("kube-02").write_text(nodes.conf(102, faults="fewer_gpus=7"))
    batch = {
        "acceptance_plane": "slurm",
        "acceptance_slurm_ssh": ["ssh", "-F", str(rig_slurm.fleet.ssh_config), rig_slurm.controller],
        "acceptance_nodes": {"expected": hosts},
        **nodes.tools_at("/opt/simulated/bin"),
    }
    done = healthy.run(
        {"lab": healthy.lab(acceptance_nodes={"names": ["kube-01", "kube-02"]}), "batch": batch}, "--tags", "stack,nccl_node"
    )
    assert done.status != 0
    assert bad(done) == {healthy.fleet.hosts[2]: {"ecc"}, "lab/kube-02": {"gpu_count"}, f"batch/{hosts[1]}": {"ecc"}}, done.output[-3000:]
    assert {m["plane"] for m in done.journal} == {"ssh", "kubernetes", "slurm"}
    measured = {"/".join(m["subject"]["id"].split("/")[: 1 + (m["plane"] != "ssh")]) for m in done.journal if m["outcome"] == "measured"}
    assert measured == {*healthy.fleet.hosts, "lab/kube-01", "lab/kube-02", *(f"batch/{host}" for host in hosts)}
    page = (done.folder / "report.html").read_text(encoding="utf-8")
    assert all(name in page for name in measured)
    healthy.nothing_left()
    assert not rig_slurm.jobs()


# What each playbook of the README needs besides a run, over machines and a cluster together.
PLAYBOOKS: dict[str, list[str]] = {
    "judge": [], "verify": [], "restore": [], "status": [], "cleanup": [], "compare": [], "baseline": [],
    "history": ["-e", "node=lab/kube-01"],
}  # fmt: skip


def test_a_context_that_does_not_exist_is_refused_before_anything_is_measured(healthy: Mixed) -> None:
    done = healthy.run({"lab": healthy.lab(acceptance_kube_context="nowhere")}, "--tags", "stack")
    assert done.status != 0 and done.folder is None, done.output[-3000:]
    assert "context 'nowhere' is not in kubeconfig" in " ".join(done.output.split())


def test_every_playbook_of_the_readme_runs_over_a_mixed_inventory(healthy: Mixed) -> None:
    lab = {"lab": healthy.lab(acceptance_nodes={"names": ["kube-01", "kube-02"]})}
    about: dict[str, t.Any] = {"acceptance_results_dir": str(healthy.folder / "readme"), "acceptance_history": True}
    for _twice in range(2):  # the second is what the first is compared with
        measured = healthy.run(lab, "--tags", "stack,nccl_node", "-e", json.dumps(about))
        assert measured.status == 0, measured.output[-3000:]
    about["run_id"] = max(path.parent.name for path in (healthy.folder / "readme").glob("*/plan.json"))
    for name, more in PLAYBOOKS.items():
        done = healthy.run(lab, "-e", json.dumps(about), *more, playbook=f"playbooks/{name}.yml")
        assert done.status == 0 and "UNREACHABLE" not in done.output and "failed=1" not in done.output, (name, done.output[-3000:])
    healthy.nothing_left()


def test_all_stages_on_nodes_with_containers(healthy: Mixed) -> None:
    done = healthy.run({"lab": healthy.lab(acceptance_nodes={"names": ["kube-01", "kube-02"]})}, hosts=False)
    assert not bad(done), [m for m in done.journal if m["outcome"] != "measured"]
    assert {v["stage"] for v in done.verdicts} >= {"stack", "host_health", "gpu_memory", "nic_loopback", "nccl_node", "gemm", "train"}
    healthy.nothing_left()


@pytest.mark.parametrize("launcher", ["daemonset", "job"])
def test_other_launchers_on_nodes_with_containers(healthy: Mixed, launcher: str) -> None:
    healthy.cluster.user("acceptance-tester", roles("probe", launcher), NAMESPACE)
    lab = healthy.lab(acceptance_nodes={"names": ["kube-01", "kube-02"]}, acceptance_kube_launcher=launcher)
    try:
        done = healthy.run({"lab": lab}, "--tags", "stack,nccl_node", hosts=False)
    finally:
        healthy.cluster.user("acceptance-tester", healthy.roles, NAMESPACE)
    assert done.verdicts and not bad(done), [m for m in done.journal if m["outcome"] != "measured"]
    healthy.nothing_left()


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        pytest.param({"acceptance_kube_image": "gpufleet.invalid/nothing:1"}, "image_pull", "gpufleet.invalid/nothing:1", marks=LONG),
        ({"acceptance_kube_image": "BARE"}, "no_python", "executable file not found"),
        ({"acceptance_kube_python": "/nowhere/python3"}, "no_python", "/nowhere/python3"),
        ({"acceptance_kube_resources": {"limits": {"memory": "6Mi"}}}, "", ""),
        ({"acceptance_kube_resources": {"requests": {"cpu": "4000"}}}, "pod_refused", "OutOfcpu"),
        pytest.param({"acceptance_kube_pod_patch": MOUNT}, "timeout", 'configmap "nowhere" not found', marks=LONG),
        ({"acceptance_nodes": {"selector": "no=such"}}, "node_absent", "selector no=such matches no node"),
        ({"acceptance_kube_namespace": "elsewhere"}, "no_permission", "namespace elsewhere: we may do nothing at all there"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(healthy: Mixed, more: dict[str, t.Any], code: str, words: str) -> None:
    if more.get("acceptance_kube_image") == "BARE":
        more = {"acceptance_kube_image": healthy.cluster.bare_image}
    lab = healthy.lab(**{"acceptance_nodes": {"names": ["kube-01"]}, "acceptance_kube_start_timeout": 25, **more})
    done = healthy.run({"lab": lab}, "--tags", "stack", hosts=False)
    reasons = [(m["reason_code"], m["reason"]) for m in done.journal if m["outcome"] != "measured"]
    assert done.status != 0 and reasons, done.output[-2000:]
    if code:
        assert {found for found, _reason in reasons} == {code} and all(words in reason for _code, reason in reasons), reasons
    healthy.nothing_left()


@pytest.mark.long
def test_a_kubelet_that_dies_in_the_middle_costs_its_own_node(healthy: Mixed) -> None:
    healthy.cluster.plant("kube-02").write_text(nodes.conf(102, faults="smi_hang"))
    command = healthy.command({"lab": healthy.lab(acceptance_nodes={"names": ["kube-01", "kube-02"]})}, "--tags", "stack", hosts=False)
    results = healthy.results()
    running = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        at_work(healthy, running, 3)
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        end = time.monotonic() + 60
        while not any(
            pod["spec"].get("nodeName") == "kube-02" and pod["status"].get("phase") == "Running" for pod in healthy.admin.get(path)["items"]
        ):
            assert time.monotonic() < end
            time.sleep(0.2)
        healthy.cluster.kill("kube-02", "kubelet")
        running.wait(300)
    finally:
        running.kill()
        running.wait()
        healthy.cluster.start("kube-02", "kubelet")
    folder = run_folder(results)
    assert folder
    lost = [m for m in journals.of(folder) if m["subject"]["id"] == "lab/kube-02"]
    assert {m["reason_code"] for m in lost} == {"lost_node"} and "node kube-02 is not ready" in lost[0]["reason"], lost
    assert {v["verdict"] for v in latest(folder) if v["subject"]["id"] == "lab/kube-01"} <= {"PASS", "WARN"}
    healthy.nothing_left(90)


def at_work(mixed: Mixed, running: subprocess.Popen[bytes], count: int) -> None:
    """Wait until this many pods are there."""
    end = time.monotonic() + 120
    while len(cleanup.left_over(mixed.admin).get(next(iter(cleanup.left_over(mixed.admin)), ""), [])) < count:
        assert running.poll() is None and time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_controller_that_ends_in_the_middle_leaves_nothing_and_is_resumed(healthy: Mixed, number: int) -> None:
    names = [f"kwok-{place:04d}" for place in range(1, 11)]
    healthy.answers.plant({name: "hang" for name in names[5:]})
    lab = healthy.lab(acceptance_nodes={"names": names}, acceptance_kube_annotations=kwok_answers.HELD)
    command = healthy.command({"lab": lab}, "--tags", "stack", hosts=False)
    results = healthy.results()
    with open(healthy.folder / f"{healthy.runs}.log", "wb") as log:
        running = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    at_work(healthy, running, len(names) + 1)
    folder = run_folder(results)
    assert folder
    end = time.monotonic() + 120
    while len({m["subject"]["id"].split("/gpu")[0] for m in journals.of(folder)}) < 5:
        assert time.monotonic() < end
        time.sleep(0.2)
    running.send_signal(number)
    running.wait(180)
    healthy.nothing_left()
    healthy.answers.plant()
    again = [word if word != "acceptance.yml" else "playbooks/resume.yml" for word in command]
    done = subprocess.run([*again, "-e", f"run_id={folder.name}"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    journal = journals.of(folder)
    attempts = {m["subject"]["id"]: m["attempt"] for m in journal if m["check"] == "cuda"}
    assert set(attempts) == {f"lab/{name}" for name in names}, done.stdout[-3000:]
    assert len([m for m in journal if m["check"] == "cuda" and m["outcome"] == "measured"]) == len(names)
    healthy.nothing_left()


def test_no_credentials_in_output_or_results(healthy: Mixed) -> None:
    kubeconfig = healthy.cluster.user("acceptance-visitor", healthy.roles, NAMESPACE, token_s=600)
    token = json.loads(kubeconfig.read_text())["users"][0]["user"]["token"]
    done = healthy.run({"lab": healthy.lab(acceptance_kube_kubeconfig=str(kubeconfig))}, "--tags", "stack", "-vvvv", hosts=False)
    assert not bad(done) and done.folder
    assert token not in done.output
    for path in done.folder.rglob("*"):
        if path.is_file():
            assert token.encode() not in path.read_bytes(), path
    healthy.nothing_left()


def test_a_token_that_has_expired_is_named(healthy: Mixed) -> None:
    token = healthy.folder / "token"
    token.write_text("expired\n")
    lab = {
        **healthy.lab(acceptance_nodes={"names": ["kube-01"]}, acceptance_kube_kubeconfig=""),
        "acceptance_kube_server": healthy.cluster.server,
        "acceptance_kube_token_file": str(token),
        "acceptance_kube_ca_file": str(healthy.cluster.pki / "ca.crt"),
        "acceptance_kube_namespace": NAMESPACE,
    }
    done = healthy.run({"lab": lab}, "--tags", "stack", hosts=False)
    assert {m["reason_code"] for m in done.journal} == {"credentials"}
    assert all("does not accept our credentials" in m["reason"] for m in done.journal)


def test_status_and_cleanup(healthy: Mixed) -> None:
    names = ["kwok-0001", "kwok-0002"]
    healthy.answers.plant(dict.fromkeys(names, "hang"))
    lab = healthy.lab(acceptance_nodes={"names": names}, acceptance_kube_annotations=kwok_answers.HELD)
    command = healthy.command({"lab": lab}, "--tags", "stack", hosts=False)
    running = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        at_work(healthy, running, 3)
        run_id = next(iter(cleanup.left_over(healthy.admin)))
        shown = healthy.run({"lab": lab}, "-e", f"run_id={run_id}", "-e", "tail=5", hosts=False, playbook="playbooks/status.yml")
        assert shown.status == 0 and f"lab: run {run_id}: 1 configmaps, 1 jobs, 2 pods; held by its controller" in shown.output
        assert "kwok-0002" in shown.output
        cleaned = healthy.run({"lab": lab}, hosts=False, playbook="playbooks/cleanup.yml")
        assert "lab: nothing to remove" in cleaned.output  # its controller lives
        cleaned = healthy.run({"lab": lab}, "-e", f"run_id={run_id}", hosts=False, playbook="playbooks/cleanup.yml")
        assert f"removed 4 objects of run {run_id}" in cleaned.output
        healthy.nothing_left()
    finally:
        running.kill()
        running.wait()
