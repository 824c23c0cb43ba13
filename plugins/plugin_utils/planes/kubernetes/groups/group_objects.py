# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of a group of pods: workers with sshd, one on each node, and a head that enters them.

What differs between the launchers is who makes the pods, the names and the key; what runs in the pods is the same:

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

from ansible_collections.gpufleet.acceptance.plugins.module_utils import runner
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import registry as accelerators
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import marks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.discovery import (
    JOB,
    MPIJOB,
    PYTORCHJOB,
    STATEFULSET,
    VOLCANO,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import Object, PodSettings, merged
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import objects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.following import Pod

WORKER, HEAD = "worker", "launcher"
SSH_PORT = 2222
OPERATORS_KEY = "/root/.ssh"
# The training operator refuses a job without a container of this name.
TORCH_CONTAINER = "pytorch"
# What it has its workers wait in for the master, in an image of its own.
TORCH_INIT = "init-pytorch"
OUR_KEY = "/gpufleet/ssh"
GROUP = "/gpufleet/group"
# Where a pod sees that its controller lives: a file that changes (module_utils/pod.py). A kubelet brings a change within a minute and a
# half; who sees none for so long ends by itself, so that nothing holds a device for a controller that is gone.
SIGN, SIGN_FILE = "/gpufleet/sign", "at"
RENEWED_S, SILENT_S = 30.0, 300.0
# How long the cluster keeps what has ended: the answer is read at once, and what a launcher owns, workers that stay for example, goes
# with it.
TTL_S = 300
# What sshd needs of root's powers: to leave its listener's rights behind it, and to write what distributions make it audit.
SSHD_CAPABILITIES = ("AUDIT_WRITE", "CHOWN", "KILL", "SETGID", "SETUID", "SYS_CHROOT")
# The head starts mpirun and waits; a namespace with a quota wants to hear how much that is.
HEAD_RESOURCES = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
_LABEL = re.compile(r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")


class Made(t.NamedTuple):
    """An object to be made: where, and what. `belongs_to` is the resource of an object made before that owns it; `late` says that it
    is made when the workers are ready."""

    api: str
    resource: str
    body: Object
    belongs_to: str = ""
    late: bool = False


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a group looks like. `nodes`: names of nodes that workers may be on, `workers` how many of them are wanted."""

    kind: str
    name: str
    nodes: t.Sequence[str]
    workers: int
    devices: int = 0
    slots: int = 1
    port: int = SSH_PORT
    queue: str = ""
    mpi: str = "OpenMPI"
    # Whether workers end by themselves when their head is gone; what they saw is in their logs then.
    workers_answer: bool = False

    def check(self) -> None:
        """KubeError names what the API would refuse, or take and never act on."""
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
# The kinds of objects that cleaning up has to look for, what makes pods first.
CLEANED: dict[str, tuple[tuple[str, str], ...]] = {
    MPIJOB: (("/apis/kubeflow.org/v2beta1", "mpijobs"), ("/api/v1", "configmaps")),
    VOLCANO: (("/apis/batch.volcano.sh/v1alpha1", "jobs"), ("/api/v1", "configmaps")),
    PYTORCHJOB: (("/apis/kubeflow.org/v1", "pytorchjobs"), *_OF_OUR_OWN),
    JOB: _OF_OUR_OWN,
    STATEFULSET: (("/apis/apps/v1", "statefulsets"), *_OF_OUR_OWN),
}
# Where the object is whose conditions say whether its controller acts.
LED_BY = {kind: CLEANED[kind][0] for kind in CLEANED}


def request(probe: str, params: Object, timeout: float, run_id: str, stage: str) -> Object:
    """A request to a probe that is no module: its parameters, and the options of every probe with their defaults. Its pod ends when the
    controller has not shown itself for a while."""
    common = {name: spec.get("default") for name, spec in runner.COMMON.items()}
    common.update(timeout=timeout, state_dir=f"{objects.WORK}/state", run={"run_id": run_id, "stage": stage, "phase": "all", "grace": 1.0})
    return {"probe": probe, "params": {**common, **params}, "sign": {"path": f"{SIGN}/{SIGN_FILE}", "within": SILENT_S}}


def key_folder(kind: str) -> tuple[str, str]:
    """Where a pod finds the private key and the authorized keys."""
    if kind in (MPIJOB, VOLCANO):
        return f"{OPERATORS_KEY}/id_rsa", f"{OPERATORS_KEY}/authorized_keys"
    return f"{OUR_KEY}/identity", f"{OUR_KEY}/authorized_keys"


def objects_of(shape: Shape, launch: objects.Launch, settings: PodSettings) -> list[Made]:
    """Everything of the group but the ConfigMaps, in the order in which it is to be made."""
    shape.check()
    made_by = {MPIJOB: _mpijob, VOLCANO: _volcano, PYTORCHJOB: _pytorchjob, JOB: _job, STATEFULSET: _statefulset}
    return made_by[shape.kind](shape, launch, settings)


def seats(pods: t.Iterable[Pod], namespace: str) -> list[Object]:
    """{"node", "address", "host"} of each worker. The address is the pod's own: a name that was asked for too early stays unknown to
    the cluster's DNS for as long as that caches it. The name under which the headless Service knows it helps to say what is wrong."""
    return [{"node": pod.node, "address": pod.address, "host": f"{pod.host}.{namespace}.svc"} for pod in pods]


def head_config(launch: objects.Launch, settings: PodSettings, head_request: Object) -> Object:
    """What the head is asked, written once it is known where the workers are; its pod waits for it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": launch.metadata(f"{launch.name}-{HEAD}", "group", settings),
        "immutable": True,
        "data": {"request.json": json.dumps(head_request)},
    }


def sign(launch: objects.Launch, settings: PodSettings, at: float) -> Object:
    """The controller's sign of life; another one with every `at`."""
    metadata = launch.metadata(f"{launch.name}-sign", "sign", settings)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {SIGN_FILE: f"{at:.0f}"}}


# The pods ------------------------------------------------------------------------------------------------------------


def worker_template(shape: Shape, launch: objects.Launch, settings: PodSettings) -> Object:
    """The template of the workers: one on each of the shape's nodes."""
    template = _template(WORKER, shape, launch, settings, shape.devices)
    container = template["spec"]["containers"][0]
    container["ports"] = [{"name": "ssh", "containerPort": shape.port}, *container.get("ports", [])]
    # Ready means: can be entered. Launchers that wait for that know nothing better.
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
    """The template of the head: beside the workers on the same nodes, without devices."""
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
    # The host's own files are of no use to a group, and namespaces that refuse them can have groups then.
    pod = launch.pod("", 0, dataclasses.replace(settings, host_root=False), devices)
    pod["metadata"]["labels"]["component"] = component
    spec = pod["spec"]
    spec["affinity"] = merged(spec.get("affinity") or {}, objects.on_nodes(shape.nodes))
    # Optional: between two of them there is none for a moment.
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
        del template["spec"]["restartPolicy"]  # the replica's own counts, and the operator warns of two
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
    """How the operators of Kubeflow end a job of theirs."""
    return {
        # Workers that stay go with the head, so that a group whose controller has died holds no device.
        "cleanPodPolicy": "None" if shape.workers_answer else "Running",
        "backoffLimit": 0,
        "activeDeadlineSeconds": int(launch.deadline_s),
        "ttlSecondsAfterFinished": TTL_S,
    }


def _pytorchjob(shape: Shape, launch: objects.Launch, settings: PodSettings) -> list[Made]:
    # What the operator tells its pods of their part (RANK, WORLD_SIZE, MASTER_ADDR, PET_*) is about a torchrun that it would have
    # started; probes/worker.py keeps it from logins, and so from our agents.
    template = worker_template(shape, launch, settings)
    del template["spec"]["restartPolicy"]  # the replica's own counts, and the operator warns of two
    template["spec"]["containers"][0]["name"] = TORCH_CONTAINER
    template["metadata"]["annotations"] = {**template["metadata"]["annotations"], marks.CALLED: TORCH_CONTAINER}
    replicas = {
        # Exactly one, which the operator's init container of the others looks for by name until it is ready.
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
    template["spec"]["restartPolicy"] = "Always"  # the only one that a StatefulSet takes; a restart is seen and ends the group
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
    """Names, key and head of a group that no operator looks after."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": launch.metadata(shape.name, "group", settings),
        "spec": {
            "clusterIP": "None",
            "selector": {marks.LAUNCH: launch.name, "component": WORKER},
            "ports": [{"name": "ssh", "port": shape.port}],
            # A name that waits for its pod to be ready is kept as absent by caches on the way.
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
    """A new ed25519 key as OpenSSH writes it: (private, public)."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    none = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, none)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), public.decode()
