# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two clusters with a system that shares GPUs, healthy or with one defect."""

from __future__ import annotations

import contextlib
import time
import typing as t

import yaml
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.sharing.texts import TEXTS
from harness.namespace import RBAC
from harness.own_rig import own
from rigs.kubernetes.api import ApiError
from rigs.kubernetes.kubernetes import Kubernetes
from rigs.sharing.defects import DEFECTS, SAME
from rigs.sharing.sharing import C1, C2, PLUGIN, SCHEDULER, Sharing

END_LIMIT_S = 240
# The stand-in gives a pod its part of a GPU all the time, and not in turns.
WINDOW = {"quota_window_s": 0.1}
# How often kubelets look for logs beyond 10 MiB, which is 10 s elsewhere: the defect `log_rotated` waits for it.
ROTATES = "3s"


class Clusters:
    """`c1` and `c2`, each a Sharing. Pods of cases live in `namespace`."""

    def __init__(self, c1: Sharing, c2: Sharing, namespace: str) -> None:
        self.c1, self.c2, self.namespace = c1, c2, namespace

    @property
    def both(self) -> dict[str, Sharing]:
        return {"c1": self.c1, "c2": self.c2}

    def inventory(self, **more: t.Any) -> dict[str, t.Any]:
        """For a run over both, as their administrator: variables of a host per cluster, lab-c1 and lab-c2."""
        hosts = {
            f"lab-{name}": {
                "acceptance_plane": "kubernetes",
                "acceptance_kube_kubeconfig": str(system.cluster.kubeconfig),
                "acceptance_kube_namespace": self.namespace,
                "acceptance_kube_image": system.cluster.image,
                "acceptance_nodes": {"names": system.cluster.nodes},
                "gpu_sharing_cluster": name,
                "gpu_sharing_image": system.cluster.image,
                "gpu_sharing_system_changes": {"prefix": system.prefix},
                "gpu_sharing_parameters": dict(WINDOW),
                **more,
            }
            for name, system in self.both.items()
        }
        return {"all": {"hosts": hosts}}

    @contextlib.contextmanager
    def defect(self, name: str, on: t.Collection[str] = ("c1", "c2")) -> t.Iterator[None]:
        """The named one of DEFECTS on both clusters, or one of them; as new afterwards."""
        defect, systems = DEFECTS[name], [self.both[cluster] for cluster in on]
        budget = {
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "nobody-leaves"},
            "spec": {"minAvailable": "100%", "selector": {}},
        }  # fmt: skip
        path = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets/nobody-leaves"
        for system in systems:
            system.plant({"name": SAME.get(name, name), "nodes": system.cluster.nodes[-1 if defect.last else 0 :], **defect.with_it})
            if defect.eviction:
                system.cluster.api.apply(path, budget)
        try:
            yield
        finally:
            for system in systems:
                system.plant(None)
                if defect.eviction:
                    system.cluster.api.delete(path)
                if defect.leaves:
                    system.restart(SCHEDULER)
                if name == "library_not_restored":
                    system.restart(PLUGIN)
                system.ready()


@contextlib.contextmanager
def two_clusters(
    nodes: tuple[int, int] = (2, 2), speeds: tuple[float, float] = (1.0, 1.0), watch_s: float = 0.5, namespace: str = "default",
    system: t.Callable[..., Sharing] = Sharing,
) -> t.Iterator[Clusters]:
    """Put up and taken down. `speeds`: of their GPUs against real ones. `watch_s`: how often schedulers look at annotations, really 5.
    `system`: makes the system of a cluster, called as Sharing."""
    with contextlib.ExitStack() as stack:
        systems = []
        for model, count, speed in zip((C1, C2), nodes, speeds, strict=True):
            cluster = stack.enter_context(own(Kubernetes))
            systems.append(installed(system(cluster, model, speed, watch_s), count, namespace))
        yield Clusters(systems[0], systems[1], namespace)


def installed(system: Sharing, nodes: int, namespace: str) -> Sharing:
    cluster = system.cluster
    cluster.kubelet["containerLogMonitorInterval"] = ROTATES
    cluster.up(nodes, 0, operators=())
    system.install()
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    # Pods are refused until a controller has made the default one; nobody should have to wait for it.
    cluster.api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    guarded(cluster, namespace)
    return system


def guarded(cluster: Kubernetes, namespace: str) -> None:
    """The account of guardians, as files/rbac/README.md says."""
    role = yaml.safe_load((RBAC / "sharing-guardian.yaml").read_text())
    name, rbac = role["metadata"]["name"], "rbac.authorization.k8s.io"
    cluster.api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
    cluster.api.apply(f"/apis/{rbac}/v1/clusterroles/{name}", role)
    binding = {
        "apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }  # fmt: skip
    cluster.api.apply(f"/apis/{rbac}/v1/clusterrolebindings/{name}", binding)


class Pods:
    """Case pods as the matrix makes them, without the engine: for tests of the stand-in itself."""

    def __init__(self, system: Sharing, namespace: str = "default") -> None:
        self.system, self.api = system, system.cluster.api
        self.base = f"/api/v1/namespaces/{namespace}"
        self.api.apply(f"{self.base}/configmaps/workloads", {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "workloads"}, "data": TEXTS,
        })  # fmt: skip

    def start(self, name: str, workload: str, memory: str = "", core: int = 0, node: str = "", **variables: object) -> None:
        container = {
            "name": "test", "image": self.system.cluster.image, "command": ["python3", "-u", f"/gpufleet/{workload}.py"],
            "env": [{"name": key, "value": str(value)} for key, value in variables.items()],
            "resources": {"limits": {self.system.resource: "1"}}, "volumeMounts": [{"name": "workloads", "mountPath": "/gpufleet"}],
        }  # fmt: skip
        spec = {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container],
            "volumes": [{"name": "workloads", "configMap": {"name": "workloads"}}], **({"nodeName": node} if node else {}),
        }  # fmt: skip
        self.api.create(f"{self.base}/pods", {"metadata": {"name": name, "annotations": self.notes(memory, core)}, "spec": spec})

    def change(self, name: str, memory: str = "", core: int = 0) -> None:
        patch = {"metadata": {"annotations": self.notes(memory, core)}}
        self.api.request("PATCH", f"{self.base}/pods/{name}", patch, "application/merge-patch+json")

    def phase(self, name: str) -> str:
        return str(self.api.request("GET", f"{self.base}/pods/{name}")["status"].get("phase"))

    def ended(self, name: str) -> tuple[str, str]:
        """Return how a program ended, and its output."""
        self.until(lambda: self.phase(name) in ("Succeeded", "Failed"), f"the end of {name}")
        return self.phase(name), self.log(name)

    def log(self, name: str) -> str:
        return str(self.api.request("GET", f"{self.base}/pods/{name}/log"))

    def said(self, name: str, text: str) -> None:
        """Waits until its log has this."""

        def found() -> bool:
            with contextlib.suppress(ApiError):  # its container is not there yet
                log = self.log(name)
                assert text in log or self.phase(name) not in ("Succeeded", "Failed"), f"{name} ended without {text!r}: {log}"
                return text in log
            return False

        self.until(found, f"{text!r} in the log of {name}")

    def remove(self, *names: str) -> None:
        for name in names:
            self.api.delete(f"{self.base}/pods/{name}?gracePeriodSeconds=0")
        there = lambda: {pod["metadata"]["name"] for pod in self.api.items(f"{self.base}/pods")}  # noqa: E731
        self.until(lambda: not there() & set(names), f"the removal of {', '.join(names)}")

    def schedulers(self) -> list[str]:
        """Return the output of the schedulers."""
        return [str(self.api.request("GET", f"{self.system.pods}/{name}/log")) for name in self.system.schedulers()]

    def metrics(self) -> str:
        """Return the metrics of all schedulers, through the API server, as the engine reads them."""
        return "".join(str(self.api.request("GET", f"{self.system.pods}/{name}:9402/proxy/metrics")) for name in self.system.schedulers())

    def value(self, metric: str, **labels: str) -> float | None:
        for line in self.metrics().splitlines():
            head, _, amount = line.rpartition(" ")
            same = head.partition("{")[0] == f"{self.system.prefix}_{metric}"
            if same and all(f'{key}="{value}"' in head for key, value in labels.items()):
                return float(amount)
        return None

    def until(self, there: t.Callable[[], bool], what: str) -> None:
        end = time.monotonic() + END_LIMIT_S
        while not there():
            assert time.monotonic() < end, f"{what} did not come"
            time.sleep(0.2)

    def notes(self, memory: str, core: int) -> dict[str, str]:
        both = {f"{self.system.prefix}.com/gpu-{kind}-limit": value for kind, value in (("memory", memory), ("core", str(core or "")))}
        return {key: value for key, value in both.items() if value}
