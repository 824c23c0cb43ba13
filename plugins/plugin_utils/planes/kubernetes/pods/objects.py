# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of a stage on a cluster: one owner, which is the ConfigMap with the payload, and its pods.

Objects of a run are found by their labels. The cluster's garbage collector deletes all of them after their owner.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import base64
import copy
import json
import re
import secrets
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import registry as accelerators
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import telemetry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import inject, marks, results
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError, Object
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import FORBIDDEN, PodSettings, merged
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import driver

IN, WORK, HOST = "/gpufleet/in", "/gpufleet/work", "/host"
DONE = f"{WORK}/done"
# A file by which a probe notices that its container was restarted, so that it does not run twice.
ONCE = f"{WORK}/once"
# The name of the container that stays in a pod whose probe runs as an init container.
STAYS = "stays"
_STAY = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_why: sys.exit(0))\nwhile True: signal.pause()"
# The default path from which the kubelet reads a container's termination message.
MESSAGE = "/dev/termination-log"
# The name of the metrics port, for a PodMonitor.
METRICS = "metrics"
# Makes an unknown field of a patch or manifest an error. By default the API drops it silently.
STRICT = {"fieldValidation": "Strict"}
# The size limit of an object in bytes (that of etcd and of the API server).
CONFIG_LIMIT = 1 << 20
_NAME = re.compile(r"[^a-z0-9-]+")


class Launch:
    """Names and labels of one stage of one run on one cluster.

    `deadline_s`: seconds after which its pods end by themselves and janitors may remove its objects, `stays_s` later if they may still be
    collected. `host`: the inventory host that launches it; several hosts may share a namespace.
    """

    def __init__(self, run_id: str, stage: str, namespace: str, deadline_s: float, host: str = "") -> None:
        self.stays_s = 0.0
        # The controller annotation, if the process that drives the run is not responsible for the objects.
        self.holder = ""
        self.run_id = run_id
        self.stage = stage
        self.namespace = namespace
        self.host = host
        self.deadline_s = deadline_s
        self.secret = secrets.token_hex(16)
        # A stage may be launched again in the same run while its earlier objects are still being deleted.
        self.name = _NAME.sub("-", f"gpufleet-{run_id}-{stage}".lower()) + "-" + secrets.token_hex(2)
        self.owner: Object = {}

    @property
    def selector(self) -> str:
        """Return the label selector for the objects of this launch only."""
        return f"{marks.OURS},{marks.LAUNCH}={self.name}"

    def metadata(self, name: str, component: str, settings: PodSettings) -> Object:
        labels = {
            "app": marks.MANAGER,
            **{str(k): str(v) for k, v in settings.labels.items()},
            "component": component,
            "app.kubernetes.io/managed-by": marks.MANAGER,
            marks.RUN: self.run_id,
            marks.STAGE: self.stage,
            marks.LAUNCH: self.name,
        }
        annotations = {
            **{str(k): str(v) for k, v in settings.annotations.items()},
            marks.EXPIRES: str(int(time.time() + self.deadline_s + marks.GRACE_S + self.stays_s)),
            marks.CONTROLLER: self.holder or driver.of(),
            marks.HOST: self.host,
        }
        metadata: Object = {"name": name, "namespace": self.namespace, "labels": labels, "annotations": annotations}
        if self.owner:
            metadata["ownerReferences"] = [self.owner]
        return metadata

    def config(self, archive: bytes, requests: list[Object], settings: PodSettings) -> Object:
        """Return the ConfigMap that owns all other objects, with the payload and every request (`request-0.json` and so on)."""
        config = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": self.metadata(self.name, "owner", settings),
            "immutable": True,
            "binaryData": {"payload.zip": base64.b64encode(archive).decode()},
            "data": {f"request-{number}.json": json.dumps(request) for number, request in enumerate(requests)},
        }
        size = len(json.dumps(config))
        if size > CONFIG_LIMIT - 4096:
            raise KubeError("bad_spec", f"payload and requests have {size} bytes, more than a ConfigMap takes")
        return config

    def own(self, owner: Object) -> None:
        """Make an object the owner of all objects that are created from now on."""
        self.owner = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }

    # Pods --------------------------------------------------------------------------------------------------------

    def pod(self, name: str, number: int, settings: PodSettings, devices: int = 0) -> Object:
        """Return a pod for request `number`, without a node. `devices`: the number of settings.resource that it requests."""
        metadata = self.metadata(name, "probe", settings)
        if settings.metrics_port:
            metadata["annotations"].update(_scraped(settings.metrics_port))
        return patched({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": self._spec(number, settings, devices)}, settings)

    def _spec(self, number: int, settings: PodSettings, devices: int) -> Object:
        resources: Object = {kind: dict(settings.resources.get(kind) or {}) for kind in ("requests", "limits")}
        besides = {kind: dict(values) for kind, values in resources.items() if values}
        if devices:
            # A device is requested by its limit.
            resources["limits"][settings.resource] = str(devices)
            resources["requests"].pop(settings.resource, None)
        visible = {} if devices else accelerators.shown()
        environment = {**visible, "TMPDIR": WORK, **settings.env}
        container: Object = {
            "name": marks.CONTAINER,
            "image": settings.image,
            "command": [settings.python, f"{IN}/payload.zip", f"{IN}/request-{number}.json"],
            "env": [
                *({"name": str(k), "value": str(v)} for k, v in environment.items()),
                {"name": "GPUFLEET_SECRET", "value": self.secret},
                *(
                    {"name": f"GPUFLEET_{name}", "valueFrom": {"fieldRef": {"fieldPath": path}}}
                    for name, path in (("POD_UID", "metadata.uid"), ("POD", "metadata.name"), ("NODE", "spec.nodeName"))
                ),
            ],
            "resources": {kind: values for kind, values in resources.items() if values},
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"], **({"add": list(settings.capabilities)} if settings.capabilities else {})},
            },
            "volumeMounts": [
                {"name": "in", "mountPath": IN, "readOnly": True},
                {"name": "work", "mountPath": WORK},
            ],
        }
        volumes: list[Object] = [{"name": "in", "configMap": {"name": self.owner["name"]}}, {"name": "work", "emptyDir": {}}]
        if settings.host_root:
            volumes.append({"name": "host", "hostPath": {"path": "/", "type": "Directory"}})
            container["volumeMounts"].append({"name": "host", "mountPath": HOST, "readOnly": True, "mountPropagation": "HostToContainer"})
        if settings.shm_size:
            volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": settings.shm_size}})
            container["volumeMounts"].append({"name": "shm", "mountPath": "/dev/shm"})
        spec: Object = {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": int(self.deadline_s),
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "tolerations": [dict(toleration) for toleration in settings.tolerations],
            "containers": [container],
            "volumes": volumes,
        }
        if settings.metrics_port:
            container["env"].append({"name": telemetry.PORT, "value": str(settings.metrics_port)})
            if not settings.host_network:  # on the host's network the scheduler would reserve a named port of the node
                container["ports"] = [{"name": METRICS, "containerPort": settings.metrics_port}]
        results.mount(spec, container, settings.results, self.run_id, self.stage)
        for field, value in (
            ("runtimeClassName", settings.runtime_class),
            ("priorityClassName", settings.priority_class),
            ("serviceAccountName", settings.service_account),
        ):
            if value:
                spec[field] = value
        if settings.priority_class:
            # Admission then refuses a class that preempts. Without a class the policy cannot be set; the cluster's default decides.
            spec["preemptionPolicy"] = "Never"
        if settings.image_pull_policy:
            container["imagePullPolicy"] = settings.image_pull_policy
        if settings.image_pull_secrets:
            spec["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
        if settings.host_network:
            spec.update(hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet")
        if settings.host_ipc:
            spec["hostIPC"] = True
        if settings.privileged:
            del container["securityContext"]["allowPrivilegeEscalation"]  # the API refuses it in a privileged container
            container["securityContext"]["privileged"] = True
        if settings.inject:
            inject.add(spec, settings.inject, besides)
        return spec


def _scraped(port: int) -> Object:
    """Return the annotations by which Prometheus finds a pod, if it is configured to use annotations."""
    return {"prometheus.io/scrape": "true", "prometheus.io/port": str(port), "prometheus.io/path": "/metrics"}


def daemonset(launch: Launch, name: str, template: Object, settings: PodSettings) -> Object:
    """Return a DaemonSet that runs a pod of `template` (a pod that stays) on each node of its affinity."""
    spec = template["spec"]
    spec["restartPolicy"] = "Always"  # the only policy of a DaemonSet, which cannot have a deadline either
    del spec["activeDeadlineSeconds"]
    fields = {"selector": {"matchLabels": {marks.LAUNCH: launch.name}}, "template": _template(template)}
    update = {"updateStrategy": {"type": "OnDelete"}}
    metadata = launch.metadata(name, "launcher", settings)
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": {**fields, **update}}


def job(launch: Launch, name: str, template: Object, settings: PodSettings, nodes: int) -> Object:
    """Return a Job whose pods of `template` (pods that stay) the scheduler places on `nodes` nodes of its affinity, one on each, without
    retries. The pods must stay, because only running pods keep others from their node."""
    apart = {"labelSelector": {"matchLabels": {marks.LAUNCH: launch.name}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    template["spec"]["affinity"] = merged(template["spec"].get("affinity") or {}, affinity)
    spec = {
        "completionMode": "Indexed",
        "completions": nodes,
        "parallelism": nodes,
        "backoffLimitPerIndex": 0,
        "maxFailedIndexes": nodes,
        "activeDeadlineSeconds": int(launch.deadline_s),
        "ttlSecondsAfterFinished": marks.GRACE_S,
        "template": _template(template),
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": launch.metadata(name, "launcher", settings), "spec": spec}


def staying(pod: Object, settings: PodSettings) -> Object:
    """Return the pod with a readiness probe that succeeds after it has answered. Its request makes it stay."""
    pod["spec"]["containers"][0]["readinessProbe"] = {
        "exec": {"command": [settings.python, "-c", f"import os, sys; sys.exit(not os.path.exists('{DONE}'))"]},
        "periodSeconds": 2,
        "timeoutSeconds": 10,
    }
    return pod


def going_before(pod: Object, settings: PodSettings) -> Object:
    """Return the pod with its probe as an init container, which ends and leaves a termination message, and an idle container that stays.
    Secrets, privileges and devices belong to the probe only; the pod keeps the devices."""
    spec = pod["spec"]
    probe = spec["containers"][0]
    resources = {kind: {k: v for k, v in values.items() if "/" not in k} for kind, values in probe["resources"].items()}
    hidden = accelerators.hidden()
    environment = [variable for variable in probe["env"] if not variable["name"].startswith("GPUFLEET_") and variable["name"] not in hidden]
    allowed = {k: v for k, v in probe["securityContext"].items() if k != "privileged"}
    stays = {
        "name": STAYS,
        "command": [settings.python, "-c", _STAY],
        "env": [*environment, *({"name": name, "value": value} for name, value in hidden.items())],
        "resources": {kind: values for kind, values in resources.items() if values},
        "securityContext": {**allowed, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        **{key: probe[key] for key in ("image", "imagePullPolicy", "volumeMounts") if key in probe},
    }
    spec["initContainers"] = [*spec.get("initContainers", []), probe]
    spec["containers"] = [copy.deepcopy(stays)]
    return pod


def _template(pod: Object) -> Object:
    return {"metadata": {k: pod["metadata"][k] for k in ("labels", "annotations")}, "spec": pod["spec"]}


def on_nodes(nodes: t.Iterable[str]) -> Object:
    """Return the affinity to nodes by their names, for the scheduler."""
    # A term takes one name; several terms are alternatives.
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


# Patches ---------------------------------------------------------------------------------------------------------

# Fields that a patch must not change: a pod is found, placed, ended and authenticated by them.
_FIXED: dict[str, tuple[str, ...]] = {
    "metadata": ("name", "namespace", "ownerReferences", "uid"),
    "spec": ("restartPolicy", "activeDeadlineSeconds", "nodeName", "containers", "automountServiceAccountToken"),
    "container": ("name", "command", "args"),
}
_RESERVED_ENV = ("GPUFLEET_SECRET", "GPUFLEET_POD_UID")


def patched(pod: Object, settings: PodSettings) -> Object:
    """Return `pod` with acceptance_kube_pod_patch merged in: mappings are merged, lists are appended. Raise KubeError for a field that must
    not be changed, and for a power that acceptance_kube_allow does not name."""
    patch = settings.pod_patch
    for part, fields in _FIXED.items():
        touched = sorted(set(patch.get(part) or {}) & set(fields))
        if touched:
            raise KubeError("bad_spec", f"acceptance_kube_pod_patch: {part}.{touched[0]} is not to be changed")
    for kind in ("labels", "annotations"):
        reserved = [k for k in (patch.get("metadata") or {}).get(kind) or {} if str(k).startswith(marks.DOMAIN) or "managed-by" in str(k)]
        if reserved:
            raise KubeError("bad_spec", f"acceptance_kube_pod_patch: metadata.{kind}.{reserved[0]} is not to be changed")
    for variable in (patch.get("container") or {}).get("env") or []:
        if variable.get("name") in _RESERVED_ENV:
            raise KubeError("bad_spec", f"acceptance_kube_pod_patch: env {variable['name']} is not to be changed")
    pod["metadata"] = merged(pod["metadata"], patch.get("metadata") or {})
    pod["spec"] = merged(pod["spec"], patch.get("spec") or {})
    pod["spec"]["containers"][0] = merged(pod["spec"]["containers"][0], patch.get("container") or {})
    for power in powers(pod["spec"]):
        if power not in settings.allow:
            raise KubeError("bad_spec", f"the pods would be {power}; acceptance_kube_allow does not name it")
    return pod


def powers(spec: Object) -> list[str]:
    """Return the powers of FORBIDDEN that a pod has."""
    containers = [*spec["containers"], *(spec.get("initContainers") or [])]
    has = {
        "privileged": any((c.get("securityContext") or {}).get("privileged") for c in containers),
        "host_ipc": bool(spec.get("hostIPC")),
        "host_pid": bool(spec.get("hostPID")),
    }
    return [power for power in FORBIDDEN if has[power]]
