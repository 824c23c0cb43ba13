# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of a group of pods: workers with sshd, one on each node, and a head that logs in to them.

The launchers differ in who creates the pods, the names and the key. The same programs run in the pods:

    mpijob        MPIJob of the mpi-operator: its Secret, its Service, its launcher as the head
    volcano       Job of Volcano with the plugins ssh and svc: all pods start, or none
    job           Indexed Job with a headless Service and a Secret of ours; the head is a Job of its own
    pytorchjob    PyTorchJob of the training operator with the same: its master is a worker of ours as all others, the head is our Job
    statefulset   StatefulSet with the same. Its pods cannot have a deadline: it belongs to the head's Job, which has one, and a ttl

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import registry as accelerators
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import marks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError, Object
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.discovery import (
    JOB,
    MPIJOB,
    PYTORCHJOB,
    STATEFULSET,
    VOLCANO,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import PodSettings, merged
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.following import Pod

WORKER, HEAD = "worker", "launcher"
SSH_PORT = 2222
OPERATORS_KEY = "/root/.ssh"
# The training operator refuses a job without a container of this name.
TORCH_CONTAINER = "pytorch"
# The operator's init container in which its workers wait for the master. It has its own image.
TORCH_INIT = "init-pytorch"
OUR_KEY = "/gpufleet/ssh"
GROUP = "/gpufleet/group"
# The file by which a pod sees that its controller is alive (module_utils/program/pod.py). A kubelet delivers a change within 90 s.
# A pod that sees no change for SILENT_S ends, so that no pod holds a device for a controller that is gone.
SIGN, SIGN_FILE = "/gpufleet/sign", "at"
RENEWED_S, SILENT_S = 30.0, 300.0
# Seconds for which the cluster keeps a launcher's object that has ended. The objects that it owns are removed with it.
TTL_S = 300
# Capabilities of sshd: to drop the rights of its listener, and to write the audit records that distributions require.
SSHD_CAPABILITIES = ("AUDIT_WRITE", "CHOWN", "KILL", "SETGID", "SETUID", "SYS_CHROOT")
# The head only starts mpirun and waits. A namespace with a quota requires resources to be set.
HEAD_RESOURCES = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
_LABEL = re.compile(r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")


class Made(t.NamedTuple):
    """An object to create, with its API and resource. `belongs_to` is the resource of an earlier object that owns it. `late`: create it
    when the workers are ready."""

    api: str
    resource: str
    body: Object
    belongs_to: str = ""
    late: bool = False


@dataclasses.dataclass(frozen=True)
class Shape:
    """The shape of a group. `nodes` are the names of nodes for workers, `workers` is the number of workers."""

    kind: str
    name: str
    nodes: t.Sequence[str]
    workers: int
    devices: int = 0
    slots: int = 1
    port: int = SSH_PORT
    queue: str = ""
    mpi: str = "OpenMPI"
    # True if workers end by themselves when their head has ended, with their results in their logs.
    workers_answer: bool = False

    def check(self) -> None:
        """Raise KubeError for a shape that the API would refuse, or accept and never act on."""
        longest = dict.fromkeys((MPIJOB, VOLCANO, PYTORCHJOB), f"{self.name}-{WORKER}-{self.workers - 1}")
        # A StatefulSet's pods carry its name and a hash of 10 as a label.
        name = longest.get(self.kind, f"{self.name}-w-{'0' * 10}")
        if not _LABEL.match(name):
            raise KubeError(
                "bad_spec",
                f"name {self.name!r}: its longest pod would be {name!r} ({len(name)} characters); expected a name of small letters, "
                "digits and hyphens that starts with a letter and leaves room for at most 63",
            )
        if not 1 <= self.workers <= len(self.nodes):
            names = ", ".join(self.nodes[:20])
            raise KubeError("node_absent", f"{self.workers} nodes were asked for and {len(self.nodes)} are there: {names}")


_OF_OUR_OWN = (("/apis/batch/v1", "jobs"), ("/api/v1", "services"), ("/api/v1", "secrets"), ("/api/v1", "configmaps"))
# The kinds of objects that clean-up removes. Kinds that create pods come first.
CLEANED: dict[str, tuple[tuple[str, str], ...]] = {
    MPIJOB: (("/apis/kubeflow.org/v2beta1", "mpijobs"), ("/api/v1", "configmaps")),
    VOLCANO: (("/apis/batch.volcano.sh/v1alpha1", "jobs"), ("/api/v1", "configmaps")),
    PYTORCHJOB: (("/apis/kubeflow.org/v1", "pytorchjobs"), *_OF_OUR_OWN),
    JOB: _OF_OUR_OWN,
    STATEFULSET: (("/apis/apps/v1", "statefulsets"), *_OF_OUR_OWN),
}
# {launcher: (API, resource) of the object whose conditions show if its controller acts}.
LED_BY = {kind: CLEANED[kind][0] for kind in CLEANED}


def request(probe: str, params: Object, timeout: float, run_id: str, stage: str) -> Object:
    """Return a request to a probe that is no module: its parameters, and the defaults of the common options. Its pod ends if it sees no
    sign of the controller for SILENT_S."""
    common = {name: spec.get("default") for name, spec in runner.COMMON.items()}
    common.update(timeout=timeout, state_dir=f"{objects.WORK}/state", run={"run_id": run_id, "stage": stage, "phase": "all", "grace": 1.0})
    return {"probe": probe, "params": {**common, **params}, "sign": {"path": f"{SIGN}/{SIGN_FILE}", "within": SILENT_S}}


def key_folder(kind: str) -> tuple[str, str]:
    """Return the paths of the private key and of the authorized keys in a pod."""
    if kind in (MPIJOB, VOLCANO):
        return f"{OPERATORS_KEY}/id_rsa", f"{OPERATORS_KEY}/authorized_keys"
    return f"{OUR_KEY}/identity", f"{OUR_KEY}/authorized_keys"


def objects_of(shape: Shape, launch: objects.Launch, settings: PodSettings) -> list[Made]:
    """Return all objects of the group except the ConfigMaps, in the order of their creation."""
    shape.check()
    made_by = {MPIJOB: _mpijob, VOLCANO: _volcano, PYTORCHJOB: _pytorchjob, JOB: _job, STATEFULSET: _statefulset}
    return made_by[shape.kind](shape, launch, settings)


def seats(pods: t.Iterable[Pod], namespace: str) -> list[Object]:
    """Return {"node", "address", "host"} of each worker. `address` is the pod's IP, because the cluster's DNS caches a name that was
    queried too early as unknown. `host` is the pod's name in the headless Service, for error messages."""
    return [{"node": pod.node, "address": pod.address, "host": f"{pod.host}.{namespace}.svc"} for pod in pods]


def head_config(launch: objects.Launch, settings: PodSettings, head_request: Object) -> Object:
    """Return the ConfigMap with the head's request. It is created when the addresses of the workers are known; the head's pod waits for
    it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": launch.metadata(f"{launch.name}-{HEAD}", "group", settings),
        "immutable": True,
        "data": {"request.json": json.dumps(head_request)},
    }


def sign(launch: objects.Launch, settings: PodSettings, at: float) -> Object:
    """Return the ConfigMap by which the controller shows that it is alive. Its content changes with `at`."""
    metadata = launch.metadata(f"{launch.name}-sign", "sign", settings)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {SIGN_FILE: f"{at:.0f}"}}


# The pods ------------------------------------------------------------------------------------------------------------


def worker_template(shape: Shape, launch: objects.Launch, settings: PodSettings) -> Object:
    """Return the pod template of the workers, one on each of the shape's nodes."""
    template = _template(WORKER, shape, launch, settings, shape.devices)
    container = template["spec"]["containers"][0]
    container["ports"] = [{"name": "ssh", "containerPort": shape.port}, *container.get("ports", [])]
    # A worker is ready when sshd accepts connections. Some launchers wait for that.
    container["readinessProbe"] = {"tcpSocket": {"port": shape.port}, "periodSeconds": 1, "timeoutSeconds": 2, "failureThreshold": 5}
    added = container["securityContext"]["capabilities"].get("add", [])
    container["securityContext"]["capabilities"]["add"] = [*dict.fromkeys([*SSHD_CAPABILITIES, *added])]
    apart = {
        "labelSelector": {"matchLabels": {marks.LAUNCH: launch.name, "component": WORKER}},
        "topologyKey": "kubernetes.io/hostname",
    }
    affinity = template["spec"]["affinity"]
    template["spec"]["affinity"] = merged(
        affinity, {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    )
    return template


def head_template(shape: Shape, launch: objects.Launch, settings: PodSettings) -> Object:
    """Return the pod template of the head. It runs on a node of the workers, without devices."""
    settings = dataclasses.replace(settings, resources=HEAD_RESOURCES, shm_size="")
    template = _template(HEAD, shape, launch, settings, 0)
    container = template["spec"]["containers"][0]
    container["command"][-1] = f"{GROUP}/request.json"
    hidden = accelerators.hidden()
    container["env"] = [
        {**variable, "value": hidden[variable["name"]]} if variable["name"] in hidden else variable for variable in container["env"]
    ]
    container["volumeMounts"].append({"name": "group", "mountPath": GROUP, "readOnly": True})
    template["spec"]["volumes"].append({"name": "group", "configMap": {"name": f"{launch.name}-{HEAD}"}})
    return template


def _template(component: str, shape: Shape, launch: objects.Launch, settings: PodSettings, devices: int) -> Object:
    # A group does not need the host's files, and without them it runs in namespaces that refuse them.
    pod = launch.pod("", 0, dataclasses.replace(settings, host_root=False), devices)
    pod["metadata"]["labels"]["component"] = component
    spec = pod["spec"]
    spec["affinity"] = merged(spec.get("affinity") or {}, objects.on_nodes(shape.nodes))
    # Optional, because it is missing for a moment each time it is created again.
    spec["volumes"].append({"name": "sign", "configMap": {"name": f"{launch.name}-sign", "optional": True}})
    spec["containers"][0]["volumeMounts"].append({"name": "sign", "mountPath": SIGN, "readOnly": True})
    if shape.kind not in (MPIJOB, VOLCANO):
        spec["subdomain"] = shape.name
        spec["volumes"].append({"name": "ssh", "secret": {"secretName": shape.name, "defaultMode": 0o400}})
        spec["containers"][0]["volumeMounts"].append({"name": "ssh", "mountPath": OUR_KEY, "readOnly": True})
    return {"metadata": {key: pod["metadata"][key] for key in ("labels", "annotations")}, "spec": spec}


# One function per launcher -------------------------------------------------------------------------------------------


def _mpijob(shape: Shape, launch: objects.Launch, settings: PodSettings) -> list[Made]:
    head, worker = head_template(shape, launch, settings), worker_template(shape, launch, settings)
    for template in (head, worker):
        del template["spec"]["restartPolicy"]  # the replica has its own, and the operator warns about two
    body = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": launch.metadata(shape.name, "group", settings),
        "spec": {
            "slotsPerWorker": shape.slots,
            "launcherCreationPolicy": "WaitForWorkersReady",
            "mpiImplementation": shape.mpi,
            "sshAuthMountPath": OPERATORS_KEY,
            "runPolicy": _run_policy(shape, launch),
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": head},
                "Worker": {"replicas": shape.workers, "restartPolicy": "Never", "template": worker},
            },
        },
    }
    return [Made("/apis/kubeflow.org/v2beta1", "mpijobs", body)]


def _run_policy(shape: Shape, launch: objects.Launch) -> Object:
    """Return the run policy for the operators of Kubeflow."""
    return {
        # Running workers are removed when the head ends, so that a group without a controller holds no device.
        "cleanPodPolicy": "None" if shape.workers_answer else "Running",
        "backoffLimit": 0,
        "activeDeadlineSeconds": int(launch.deadline_s),
        "ttlSecondsAfterFinished": TTL_S,
    }


def _pytorchjob(shape: Shape, launch: objects.Launch, settings: PodSettings) -> list[Made]:
    # The operator sets RANK, WORLD_SIZE, MASTER_ADDR and PET_* for a torchrun of its own. groups/worker.py removes them from logins, and so
    # from our agents.
    template = worker_template(shape, launch, settings)
    del template["spec"]["restartPolicy"]  # the replica has its own, and the operator warns about two
    template["spec"]["containers"][0]["name"] = TORCH_CONTAINER
    template["metadata"]["annotations"] = {**template["metadata"]["annotations"], marks.CALLED: TORCH_CONTAINER}
    replicas = {
        # Exactly one. The operator's init container of the others waits until it is ready.
        "Master": {"replicas": 1, "restartPolicy": "Never", "template": template},
        "Worker": {"replicas": shape.workers - 1, "restartPolicy": "Never", "template": copy.deepcopy(template)},
    }
    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": launch.metadata(shape.name, "group", settings),
        "spec": {
            "runPolicy": _run_policy(shape, launch),
            "pytorchReplicaSpecs": {kind: replica for kind, replica in replicas.items() if replica["replicas"]},
        },
    }
    *shared, head = _shared(shape, launch, settings)
    return [*shared, Made("/apis/kubeflow.org/v1", "pytorchjobs", body), head._replace(late=True)]


def _volcano(shape: Shape, launch: objects.Launch, settings: PodSettings) -> list[Made]:
    body = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": launch.metadata(shape.name, "group", settings),
        "spec": {
            "schedulerName": "volcano",
            "minAvailable": shape.workers + 1,
            "maxRetry": 0,
            "queue": shape.queue or "default",
            "ttlSecondsAfterFinished": TTL_S,
            "plugins": {"ssh": [], "svc": []},
            "tasks": [
                {"name": HEAD, "replicas": 1, "maxRetry": 0, "template": head_template(shape, launch, settings)},
                {"name": WORKER, "replicas": shape.workers, "maxRetry": 0, "template": worker_template(shape, launch, settings)},
            ],
        },
    }
    return [Made("/apis/batch.volcano.sh/v1alpha1", "jobs", body)]


def _job(shape: Shape, launch: objects.Launch, settings: PodSettings) -> list[Made]:
    workers = _batch_job(f"{shape.name}-w", WORKER, worker_template(shape, launch, settings), launch, settings)
    workers["spec"].update(completionMode="Indexed", completions=shape.workers, parallelism=shape.workers)
    *shared, head = _shared(shape, launch, settings)
    return [*shared, Made("/apis/batch/v1", "jobs", workers), head._replace(late=True)]


def _statefulset(shape: Shape, launch: objects.Launch, settings: PodSettings) -> list[Made]:
    template = worker_template(shape, launch, settings)
    template["spec"]["restartPolicy"] = "Always"  # the only policy of a StatefulSet; a restart is detected and ends the group
    del template["spec"]["activeDeadlineSeconds"]
    labels = {marks.LAUNCH: launch.name, "component": WORKER}
    workers = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": launch.metadata(f"{shape.name}-w", "group", settings),
        "spec": {
            "replicas": shape.workers,
            "serviceName": shape.name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }
    return [*_shared(shape, launch, settings), Made("/apis/apps/v1", "statefulsets", workers, belongs_to="jobs")]


def _shared(shape: Shape, launch: objects.Launch, settings: PodSettings) -> list[Made]:
    """Return Secret, Service and head Job of a group without an operator for them."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": launch.metadata(shape.name, "group", settings),
        "spec": {
            "clusterIP": "None",
            "selector": {marks.LAUNCH: launch.name, "component": WORKER},
            "ports": [{"name": "ssh", "port": shape.port}],
            # Otherwise DNS caches would keep the name of a pod that is not ready yet as unknown.
            "publishNotReadyAddresses": True,
        },
    }
    private, public = key_pair()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": launch.metadata(shape.name, "group", settings),
        "immutable": True,
        "stringData": {"identity": private, "authorized_keys": public + "\n"},
    }
    head = _batch_job(f"{shape.name}-h", HEAD, head_template(shape, launch, settings), launch, settings)
    return [Made("/api/v1", "secrets", secret), Made("/api/v1", "services", service), Made("/apis/batch/v1", "jobs", head)]


def _batch_job(name: str, component: str, template: Object, launch: objects.Launch, settings: PodSettings) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": launch.metadata(name, component, settings),
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(launch.deadline_s),
            "ttlSecondsAfterFinished": TTL_S,
            "template": copy.deepcopy(template),
        },
    }


def key_pair() -> tuple[str, str]:
    """Return (private, public) of a new ed25519 key in OpenSSH's format."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    none = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, none)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), public.decode()
