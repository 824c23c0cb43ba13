# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Figure `kube_stack`: `stack` over the nodes of one cluster by acceptance.yml, from its submission to the last verdict.

The API server, the controllers and the watch are real; nodes and containers are kwok's, and every pod leaves the framed answer of a
real node's size. Beside it, in the same cluster: a bare client that creates the same pods, watches them, reads their logs and deletes
them; a bare DaemonSet until it is Ready; and a loop with one log call per node.
On a machine that others use too the seconds say less than what was measured beside them and than the processor time, which is shown
for the controller, the bare client, and the cluster's own programs under each. One JSON line per figure. `--nodes 1000 4000` takes some
ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import (  # noqa: E402
    cleanup,
    client,
    marks,
    settings,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.watch import ADDED, Watch  # noqa: E402
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects  # noqa: E402
from harness import kwok_answers  # noqa: E402
from rigs.kubernetes.kubernetes import CONTROL, Kubernetes  # noqa: E402

TOLERATE = [{"operator": "Exists"}]
IMAGE = "registry.invalid/tester:1"
LOOP = 40
WORKERS = 16
# What is to hold: seconds for 1,000 nodes, times a bare client and a bare DaemonSet, and the largest process at any size.
GOAL_S, AGAINST_BARE, AGAINST_DAEMONSET, MEMORY_MB = 13, 1.15, 1.25, 400
# What a process held before exec counts as its own peak, and between fork and exec it holds what its parent does: a bench of 4,000 pods
# holds more than the controller. A small process stands between the two and says at its end what the largest under it had, in KiB
# (getrusage(2)).
PEAK = """import resource, subprocess, sys
subprocess.run(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"""
# Nodes that say every 10 s that they live would keep the API server busier than the stage does.
GRACE_S = 400


def show(figure: str, value: float, unit: str, goal: str, compared_with: str, holds: bool | None) -> None:
    line = {"figure": f"kube_stack.{figure}", "value": round(value, 1), "unit": unit, "goal": goal, "compared_with": compared_with}
    print(json.dumps({**line, "holds": holds}), flush=True)


def processor_time() -> float:
    """Seconds that our child processes have used, of those that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def rig_time(cluster: Kubernetes) -> dict[str, float]:
    """The same for each program of the control plane and of kwok."""
    ticks = os.sysconf("SC_CLK_TCK")
    used = {}
    for name, pid in cluster.programs(CONTROL).items():
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used[name] = (int(fields[11]) + int(fields[12])) / ticks  # utime and stime, proc(5)
    return used


def accept(cluster: Kubernetes, api: client.Client, folder: pathlib.Path, launcher: str) -> tuple[float, float, float, int]:
    """Seconds from the submission to the last verdict, of the whole run, MB of the largest process, and nodes that passed."""
    host = {
        "acceptance_plane": "kubernetes",
        "acceptance_kube_kubeconfig": str(cluster.kubeconfig),
        "acceptance_kube_image": IMAGE,
        "acceptance_kube_tolerations": TOLERATE,
        "acceptance_kube_launcher": launcher,
        "acceptance_kube_start_timeout": 900,
        "acceptance_gpu_count": kwok_answers.GPUS,
        "acceptance_results_dir": str(folder / launcher),
    }
    inventory = folder / f"{launcher}.json"
    inventory.write_text(json.dumps({"all": {"hosts": {"lab": host}}}))
    watch = Watch(api, cleanup.path("/api/v1", api.namespace, "configmaps"), marks.OURS)
    watch.start()
    begin = time.time()
    argv = [str(pathlib.Path(sys.executable).parent / "ansible-playbook"), "acceptance.yml", "-i", str(inventory), "--tags", "stack"]
    measured = [sys.executable, "-c", PEAK, *argv]
    done = subprocess.Popen(measured, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
    kind, submitted = "", 0.0
    while kind != ADDED:
        kind, _item = watch.changes.get(timeout=300)
        submitted = time.time()
    watch.stop()
    output, _none = done.communicate()
    whole = time.time() - begin
    found = sorted((folder / launcher).glob("*/verdicts.jsonl"))
    if not found:
        raise SystemExit(output[-3000:])
    verdicts = [json.loads(line) for line in found[-1].read_text().splitlines()]
    good = {v["subject"]["id"] for v in verdicts if v["verdict"] == "PASS" and v["check"] == "cuda"}
    return found[-1].stat().st_mtime - submitted, whole, int(output.splitlines()[-1]) * 1024 / 1e6, len(good)


class Spent:
    """Seconds, and the processor time of the cluster's own programs, since it was made."""

    def __init__(self, cluster: Kubernetes) -> None:
        self.cluster = cluster
        self.before, self.begin = rig_time(cluster), time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self.begin

    def of_cluster(self) -> tuple[float, str]:
        """All of it, and who has used most."""
        used = {name: now - self.before.get(name, 0.0) for name, now in rig_time(self.cluster).items()}
        most = sorted(used.items(), key=lambda one: -one[1])[:5]
        return sum(used.values()), ", ".join(f"{name} {seconds:.1f}" for name, seconds in most)


def same_pods(api: client.Client, nodes: int) -> tuple[str, list[dict[str, t.Any]]]:
    """The selector and the bodies of pods that are ours but for whose they are; they leave no message."""
    given = {"acceptance_kube_image": IMAGE, "acceptance_kube_tolerations": TOLERATE}
    launch = objects.Launch("20260101T000000Z-0a1b2c", "bare", api.namespace, 1000)
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": launch.name}}
    made = api.post(cleanup.path("/api/v1", api.namespace, "configmaps"), config)
    launch.own({**config, "metadata": made["metadata"]})
    bodies = []
    for number in range(nodes):
        body = launch.pod(f"{launch.name}-{number}", 0, settings.pods(given))
        body["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "bare"
        body["spec"]["nodeName"] = f"kwok-{number + 1:04d}"
        bodies.append(body)
    return f"{marks.LAUNCH}={launch.name}", bodies


def bare_client(api: client.Client, nodes: int) -> float:
    """Seconds that it takes to create the same pods, watch them to their end, read each log and delete them, and nothing else."""
    pods = cleanup.path("/api/v1", api.namespace, "pods")
    selector, bodies = same_pods(api, nodes)

    def read(name: str) -> int:
        return sum(len(line) for line in api.lines(f"{pods}/{name}/log"))

    begin = time.monotonic()
    version = api.get(pods, labelSelector=selector)["metadata"]["resourceVersion"]
    changes = api.lines(pods, 300, watch=True, labelSelector=selector, resourceVersion=version)
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as workers:
        made = [workers.submit(api.post, pods, body) for body in bodies]
        logs: dict[str, concurrent.futures.Future[int]] = {}
        for line in changes:
            pod = json.loads(line)["object"]
            name = pod["metadata"]["name"]
            if pod["status"].get("phase") == "Succeeded" and name not in logs:
                logs[name] = workers.submit(read, name)
            if len(logs) == nodes:
                break
        if not all(one.result() for one in [*made, *logs.values()]):
            raise SystemExit("a pod of the bare client has no log")
    api.delete(pods, labelSelector=selector)
    took = time.monotonic() - begin
    api.delete(cleanup.path("/api/v1", api.namespace, "configmaps") + "/" + bodies[0]["spec"]["volumes"][0]["configMap"]["name"])
    return took


def bare_daemonset(api: client.Client, nodes: int) -> float:
    """Seconds until a DaemonSet that does nothing is Ready on every node."""
    labels = {"app": "bare"}
    container = {"name": "c", "image": "registry.invalid/pause:1"}
    template = {"metadata": {"labels": labels}, "spec": {"tolerations": TOLERATE, "containers": [container]}}
    made = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "bare"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    path = cleanup.path("/apis/apps/v1", api.namespace, "daemonsets")
    begin = time.monotonic()
    api.post(path, made)
    while (api.get(f"{path}/bare").get("status") or {}).get("numberReady", 0) < nodes:
        time.sleep(0.5)
    took = time.monotonic() - begin
    api.delete(f"{path}/bare", propagationPolicy="Background")
    api.delete(cleanup.path("/api/v1", api.namespace, "pods"), labelSelector="app=bare")
    while api.get(cleanup.path("/api/v1", api.namespace, "pods"), labelSelector="app=bare", limit=1)["items"]:
        time.sleep(0.5)
    return took


def loop(cluster: Kubernetes, api: client.Client, nodes: int) -> float:
    """Seconds of one log call after the other, each with a connection of its own as kubectl makes it, for every node; scaled up."""
    pods = cleanup.path("/api/v1", api.namespace, "pods")
    for number in range(LOOP):
        container = {"name": "probe", "image": "registry.invalid/pause:1", "env": [{"name": "GPUFLEET_SECRET", "value": "x"}]}
        spec = {"nodeName": f"kwok-{number + 1:04d}", "containers": [container]}
        api.post(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"loop-{number}", "labels": {"app": "loop"}}, "spec": spec})
    while any(p["status"].get("phase") != "Running" for p in api.get(pods, labelSelector="app=loop")["items"]):
        time.sleep(0.2)
    begin = time.monotonic()
    for number in range(LOOP):
        fresh = client.connect(client.Connection("lab", kubeconfig=str(cluster.kubeconfig)))
        list(fresh.lines(f"{pods}/loop-{number}/log"))
    took = time.monotonic() - begin
    api.delete(pods, labelSelector="app=loop")
    return took * nodes / LOOP


def main(argv: t.Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 4000])
    parser.add_argument("--daemonset", type=int, default=1000, help="with how many nodes a DaemonSet is compared (0: not at all)")
    arguments = parser.parse_args(argv)
    os.environ["ANSIBLE_FORCE_COLOR"] = "false"
    cluster = Kubernetes.reserve()
    took: dict[int, float] = {}
    try:
        for nodes in arguments.nodes:
            cluster.up(nodes=0, kwok=nodes, operators=(), grace_s=GRACE_S)
            cluster.answer_logs(kwok_answers.LOG)
            api = client.connect(client.Connection("lab", kubeconfig=str(cluster.kubeconfig)))
            with tempfile.TemporaryDirectory() as folder:
                used, spent = resource.getrusage(resource.RUSAGE_SELF), Spent(cluster)
                bare = bare_client(api, nodes)
                now = resource.getrusage(resource.RUSAGE_SELF)
                show(f"bare_{nodes}", bare, "s", "", "a bare client creates, watches, reads and deletes the same pods", None)
                own = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
                show(f"bare_cpu_{nodes}", own, "s", "", "processor time of the bare client", None)
                show(f"bare_cluster_cpu_{nodes}", spent.of_cluster()[0], "s", "", f"of the cluster itself: {spent.of_cluster()[1]}", None)
                ours, spent = processor_time(), Spent(cluster)
                seconds, whole, memory, good = accept(cluster, api, pathlib.Path(folder), "pods")
                took[nodes] = seconds
                every = f"{good} of {nodes} nodes passed; whole run {whole:.1f} s"
                goal = f"<= {GOAL_S} s" if nodes == 1000 else "linear in the nodes"
                first = min(took)
                within = seconds <= GOAL_S if nodes == 1000 else seconds <= 1.25 * took[first] * nodes / first
                # The first of the sizes is linear to itself: that says nothing.
                told = nodes == 1000 or nodes > first
                show(f"pods_{nodes}", seconds, "s", goal, every, good == nodes and (within if told else None))
                ratio = seconds / bare
                show(f"against_bare_{nodes}", ratio, "", f"<= {AGAINST_BARE}", "bare client in the same run = 1", ratio <= AGAINST_BARE)
                cpu = processor_time() - ours
                show(f"cpu_{nodes}", cpu, "s", "linear in the nodes", "processor time of the controller, Ansible's start included", None)
                show(f"cluster_cpu_{nodes}", spent.of_cluster()[0], "s", "", f"of the cluster itself: {spent.of_cluster()[1]}", None)
                goal = f"<= {MEMORY_MB} MB"
                show(f"memory_{nodes}", memory, "MB", goal, "largest process of the run", memory <= MEMORY_MB)
                show(f"loop_{nodes}", loop(cluster, api, nodes), "s", "slower", f"one log call per node, {LOOP} measured", None)
                if nodes == arguments.daemonset:
                    bare = bare_daemonset(api, nodes)
                    seconds, whole, memory, good = accept(cluster, api, pathlib.Path(folder), "daemonset")
                    beside = f"bare DaemonSet Ready after {bare:.1f} s; {good} of {nodes} nodes passed"
                    goal = f"<= {AGAINST_DAEMONSET} times the bare one"
                    show(f"daemonset_{nodes}", seconds, "s", goal, beside, seconds <= AGAINST_DAEMONSET * bare and good == nodes)
    finally:
        cluster.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
