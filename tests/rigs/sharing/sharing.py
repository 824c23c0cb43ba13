# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A system that shares GPUs, on clusters of the Kubernetes rig: README.md says what it is and what it is not."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import time
import typing as t

import yaml
from rigs import common
from rigs.kubernetes import build, images
from rigs.kubernetes.api import ApiError
from rigs.kubernetes.kubernetes import Kubernetes

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM, MANIFESTS = HERE / "program", HERE / "manifests"
VIRTUAL_DEVICES = 10
SYSTEM = SCHEDULER, PLUGIN = ("scheduler", "device-plugin")
START_LIMIT_S = 180


@dataclasses.dataclass(frozen=True)
class Model:
    """GPUs of a cluster, each node with so many."""

    name: str
    gpus: int
    memory_mib: int
    identity: int  # of the first node


C1 = Model("Tesla T4", 2, 15360, 1100)
C2 = Model("NVIDIA A800", 4, 40960, 1200)


class Sharing:
    """The stand-in on one cluster, which is up. It has the names and words of nvshare or, by its `prefix`, those of xpushare."""

    def __init__(self, cluster: Kubernetes, model: Model, speed: float = 1.0, watch_s: float = 5.0, prefix: str = "nvshare") -> None:
        self.cluster, self.model, self.speed, self.watch_s, self.prefix = cluster, model, speed, watch_s, prefix
        self.namespace, self.resource = f"{prefix}-system", f"{prefix}.com/gpu"
        self.pods = f"/api/v1/namespaces/{self.namespace}/pods"

    def named(self, text: str) -> str:
        """Return a text with the names of nvshare, such as a manifest, with those of this system."""
        return text.replace("nvshare", self.prefix).replace("NVSHARE", self.prefix.upper())

    def install(self) -> None:
        """GPUs, files, and the system's own objects in the order of its instructions; back when every node offers its parts."""
        for number, node in enumerate(self.cluster.nodes):
            self.plant_gpus(node, number)
            labels = {"nvidia.com/gpu.product": self.model.name.replace(" ", "-"), "nvidia.com/gpu.count": str(self.model.gpus)}
            merge = "application/merge-patch+json"
            self.cluster.api.request("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}}, merge)
            shutil.rmtree(self.folder(node), ignore_errors=True)
            self.place(self.folder(node))
        self.wait("the GPUs", lambda: all(self.offered(node, "nvidia.com/gpu") == self.model.gpus for node in self.cluster.nodes))
        for file in ("system", *SYSTEM):
            for document in yaml.safe_load_all(self.named((MANIFESTS / f"{file}.yaml").read_text())):
                self.cluster.api.apply(path(document), self.filled(document))
        self.ready()

    def place(self, folder: pathlib.Path) -> None:
        """Write the files that pods of the system see."""
        shutil.copytree(PROGRAM, folder, ignore=shutil.ignore_patterns("__pycache__"))

    def filled(self, document: dict[str, t.Any]) -> dict[str, t.Any]:
        """The images of this rig, how many GPUs a node has, and how fast time goes."""
        if document["kind"] != "DaemonSet":
            return document
        for container in document["spec"]["template"]["spec"]["containers"]:
            container["image"] = self.cluster.image
            if container["name"] == f"{self.prefix}-{PLUGIN}":
                container["image"] = images.device_plugin(build.programs((), kwok=False))
                container["resources"] = {"limits": {"nvidia.com/gpu": str(self.model.gpus)}}
            elif container["name"] == f"{self.prefix}-{SCHEDULER}":
                container["env"] += [
                    {"name": "SIM_SPEED", "value": str(self.speed)},
                    {"name": "SIM_WATCH_S", "value": str(self.watch_s)},
                ]
                if self.prefix == "nvshare":  # the later version reads it from the driver
                    memory = str(self.model.memory_mib >> 10)
                    container["env"].append({"name": "NVSHARE_DEFAULT_GPU_MEMORY_GB", "value": memory})
        return document

    def ready(self) -> None:
        """Until schedulers answer and every node offers its parts."""
        wanted = self.model.gpus * VIRTUAL_DEVICES
        self.wait("schedulers and parts of GPUs", lambda: self.pods_ready() and all(
            self.offered(node, self.resource) == wanted for node in self.cluster.nodes
        ))  # fmt: skip

    def pods_ready(self) -> bool:
        pods = self.cluster.api.items(self.pods)
        ready = [pod for pod in pods if all(one.get("ready") for one in pod["status"].get("containerStatuses") or [{}])]
        return len(ready) == len(pods) == len(SYSTEM) * len(self.cluster.nodes) and all(map(self.healthy, self.schedulers()))

    def schedulers(self) -> list[str]:
        """Their pods' names."""
        pods = self.cluster.api.items(f"{self.pods}?labelSelector=name%3D{self.prefix}-{SCHEDULER}")
        return sorted(pod["metadata"]["name"] for pod in pods)

    def healthy(self, scheduler: str) -> bool:
        """A container runs before what it runs listens."""
        try:
            return bool(self.cluster.api.request("GET", f"{self.pods}/{scheduler}:9402/proxy/healthz") == "OK\n")
        except ApiError:
            return False

    def offered(self, node: str, resource: str) -> int:
        found = self.cluster.api.request("GET", f"/api/v1/nodes/{node}")
        return int(found["status"].get("allocatable", {}).get(resource, "0"))

    def wait(self, what: str, there: t.Callable[[], bool]) -> None:
        until = time.monotonic() + START_LIMIT_S
        while not there():
            if time.monotonic() > until:
                raise common.RigError(f"{what} of {self.model.name} did not come: {self.told()}")
            time.sleep(0.2)

    def told(self) -> str:
        """Return why pods of the system do not run, for a failed wait."""
        pods = self.cluster.api.items(self.pods)
        return json.dumps([[pod["metadata"]["name"], pod["status"].get("containerStatuses")] for pod in pods])[:2000]

    def folder(self, node: str) -> pathlib.Path:
        """Return the folder of the stand-in's files that pods of the node see."""
        return self.cluster.folder(node) / "sharing"

    def plant_gpus(self, node: str, number: int, **more: object) -> None:
        model = self.model
        words = {"NAME": f'"{model.name}"', "GPUS": model.gpus, "MEMORY": model.memory_mib, "IDENTITY": model.identity + number, **more}
        self.cluster.plant(node).write_text(" ".join(f"{name}={value}" for name, value in words.items()) + "\n")

    def plant(self, defect: dict[str, t.Any] | None) -> None:
        """Plant a defect on every node from now on; None removes it."""
        for node in self.cluster.nodes:
            file = self.folder(node) / "defect.json"
            if defect is None:
                file.unlink(missing_ok=True)
            else:
                new = file.with_suffix(".new")
                new.write_text(json.dumps(defect))
                new.rename(file)
        for number, node in enumerate(self.cluster.nodes):
            self.plant_gpus(node, number, **(defect or {}).get("conf", {}))
        wanted = self.model.gpus * (defect or {}).get("conf", {}).get("VIRTUAL_DEVICES", VIRTUAL_DEVICES)
        self.wait("what nodes offer now", lambda: all(self.offered(node, self.resource) == wanted for node in self.cluster.nodes))

    def restart(self, name: str = SCHEDULER) -> None:
        """All pods of one of its DaemonSets (SYSTEM) anew, as for what a defect has left in them."""
        old = self.cluster.api.items(f"{self.pods}?labelSelector=name%3D{self.prefix}-{name}")
        for pod in old:
            self.cluster.api.delete(f"{self.pods}/{pod['metadata']['name']}")
        uids = {pod["metadata"]["uid"] for pod in old}
        self.wait("new pods", lambda: not uids & {pod["metadata"]["uid"] for pod in self.cluster.api.items(self.pods)})
        self.ready()


def path(document: dict[str, t.Any]) -> str:
    """Return the path of an object of the manifests in the API."""
    version, kind, metadata = document["apiVersion"], document["kind"], document["metadata"]
    base = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    plural = {"ResourceQuota": "resourcequotas"}.get(kind, f"{kind.lower()}s")
    inside = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{base}{inside}/{plural}/{metadata['name']}"
