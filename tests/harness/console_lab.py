# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A console that stands in a cluster of the rig as playbooks/console.yml puts it there: pods of its image, a volume, people with tokens."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import cluster
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError
from harness.fleet_runs import ROOT
from harness.kube_runs import TOOLS
from harness.namespace import Namespace
from rigs.kubernetes.kubernetes import Kubernetes
from rigs.simulated import nodes

NAME = "gpufleet-acceptance-console"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
NOBODY = 65534
Object = t.Any


def until(true: t.Callable[[], t.Any], seconds: float = 60, otherwise: t.Callable[[], t.Any] = lambda: "") -> t.Any:
    """Its first answer that is one; what does not answer for a moment is asked again."""
    end = time.monotonic() + seconds
    while True:
        try:
            if found := true():
                return found
        except (KubeError, OSError) as error:
            if time.monotonic() > end:
                raise AssertionError(otherwise()) from error
        assert time.monotonic() < end, otherwise()
        time.sleep(0.3)


def person(admin: Client, where: str, name: str, verbs: t.Sequence[str]) -> str:
    """A token of somebody who may do this with actions, and no more."""
    admin.post(f"/api/v1/namespaces/{where}/serviceaccounts", {"metadata": {"name": name}})
    if verbs:
        rules = [{"apiGroups": [cluster.GROUP], "resources": [cluster.PLURAL], "verbs": list(verbs)}]
        admin.post(f"{RBAC}/namespaces/{where}/roles", {"metadata": {"name": name}, "rules": rules})
        admin.post(
            f"{RBAC}/namespaces/{where}/rolebindings",
            {
                "metadata": {"name": name}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": where}],
            },
        )  # fmt: skip
    made = admin.post(f"/api/v1/namespaces/{where}/serviceaccounts/{name}/token", {"spec": {"expirationSeconds": 7200}})
    return str(made["status"]["token"])


def play(inventory: pathlib.Path, *more: str, secret: str = "") -> str:
    """Run playbooks/console.yml and return how much it changed. The secret must not be in its output."""
    program = str(pathlib.Path(sys.executable).with_name("ansible-playbook"))
    done = subprocess.run(
        [program, "playbooks/console.yml", "-i", str(inventory), *more],
        cwd=ROOT, env={**os.environ, "ANSIBLE_NOCOLOR": "1"}, text=True, check=False, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900,
    )  # fmt: skip
    assert not secret or secret not in done.stdout, done.stdout
    recap = done.stdout.partition("PLAY RECAP")[2]
    assert done.returncode == 0 and "failed=0" in recap and "Traceback" not in done.stdout, done.stdout
    return f"changed={re.findall(r'changed=([0-9]+)', recap)[0]}"


class ConsoleLab(Namespace):
    """`install`, then it is at `url`. All its pods are on the first node, where the volume is."""

    def __init__(self, rig: Kubernetes, folder: pathlib.Path, image: str, **variables: t.Any) -> None:
        super().__init__(rig, [])
        self.folder, self.node = folder, rig.nodes[0]
        self.core = f"/api/v1/namespaces/{self.namespace}"
        self.plant()
        self.lab = {
            "acceptance_plane": "kubernetes", "acceptance_kube_kubeconfig": str(rig.kubeconfig),
            "acceptance_kube_namespace": self.namespace, "acceptance_kube_image": rig.image, "acceptance_kube_start_timeout": 240,
            "acceptance_simulated": True, "acceptance_gpu_count": 8, **TOOLS, "console_image": image, "console_plain": True, **variables,
        }  # fmt: skip
        self.inventory = folder / "inventory.json"
        self.inventory.write_text(json.dumps({"all": {"hosts": {"lab": self.lab}}}))
        self.volume = rig.folder(self.node) / "console"
        self.results = self.volume / "results"
        self._volume()

    def _volume(self) -> None:
        """Return the volume that a provisioner would make."""
        self.volume.mkdir()
        os.chown(self.volume, NOBODY, NOBODY)
        on = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [self.node]}]}
        self.admin.post("/api/v1/persistentvolumes", {
            "metadata": {"name": self.namespace},
            "spec": {
                "capacity": {"storage": "50Gi"}, "accessModes": ["ReadWriteOnce", "ReadWriteMany"], "hostPath": {"path": "/rig/console"},
                "claimRef": {"namespace": self.namespace, "name": NAME}, "nodeAffinity": {"required": {"nodeSelectorTerms": [on]}},
                "persistentVolumeReclaimPolicy": "Retain",
            },
        })  # fmt: skip

    def plant(self, **settings: t.Any) -> None:
        """Good GPUs on every node, with a network that its one port allows; `settings` are others of node.conf."""
        for number, node in enumerate(self.cluster.nodes, 101):
            self.cluster.plant(node).write_text(nodes.conf(number, NETBW=48, **settings))

    def play(self, *more: str) -> str:
        return play(self.inventory, *more)

    def door(self) -> str:
        """An address of the pages that stays, whichever pods there are."""
        service = {
            "metadata": {"name": "door"},
            "spec": {
                "type": "NodePort", "selector": {"app.kubernetes.io/name": NAME}, "ports": [{"port": 80, "targetPort": "pages"}],
            },
        }  # fmt: skip
        made = self.admin.post(f"{self.core}/services", service)
        return f"http://{self.cluster.address(self.node)}:{made['spec']['ports'][0]['nodePort']}"

    def pods(self) -> list[Object]:
        """Return the pods of the console."""
        return list(self.admin.get(f"{self.core}/pods", labelSelector=f"app.kubernetes.io/name={NAME}")["items"])

    def ready(self) -> list[Object]:
        def is_ready(pod: Object) -> bool:
            return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions") or [])

        return [pod for pod in self.pods() if is_ready(pod) and not pod["metadata"].get("deletionTimestamp")]

    def kill(self, pod: str) -> None:
        """At once, as where a machine dies; its Deployment makes another one."""
        self.admin.delete(f"{self.core}/pods/{pod}", gracePeriodSeconds=0)

    def leader(self) -> str:
        """The pod whose controller works."""
        lease = self.admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{NAME}")
        return str(lease["spec"].get("holderIdentity") or "").rpartition("_")[0]

    def action(self, name: str) -> Object:
        return self.admin.get(f"{cluster._path(self.namespace)}/{name}")

    def status(self, name: str) -> Object:
        return self.action(name).get("status") or {}

    def condition(self, name: str, kind: str) -> str:
        """As `kubectl wait --for=condition` sees it."""
        return next((str(one["status"]) for one in self.status(name).get("conditions") or [] if one["type"] == kind), "")

    def said(self) -> str:
        """Return what pods and actions say, for a failed expectation."""
        found = [json.dumps(item.get("status"))[:1500] for item in self._actions()]
        for pod in self.pods():
            found.append(f"{pod['metadata']['name']}: {json.dumps(pod['status'])[:1500]}")
            for container in ("controller", "pages"):
                path = f"{self.core}/pods/{pod['metadata']['name']}/log?container={container}&tailLines=40"
                try:
                    found.append(f"{container}: {self.cluster.api.request('GET', path)}")
                except Exception as error:
                    found.append(f"{container}: {error}")
        return "\n".join(found)[-12000:]

    def _actions(self) -> list[Object]:
        try:
            return list(self.admin.get(cluster._path(self.namespace))["items"])
        except KubeError:
            return []

    def close(self) -> None:
        """What is left of a test that failed goes with the rig."""
        for item in self._actions():
            self.admin.patch(f"{cluster._path(self.namespace)}/{item['metadata']['name']}", {"metadata": {"finalizers": []}})
