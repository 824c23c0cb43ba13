# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory variables of a cluster: how to reach it, and what its pods look like.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing as t
import urllib.parse

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import registry as accelerators
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import telemetry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import inject, results
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Connection, KubeError, Object
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import withheld

PREFIX = "acceptance_kube_"
LAUNCHERS = ("pods", "daemonset", "job")
KEEP = ("never", "on_failure")
# Powers that a pod may have only if acceptance_kube_allow names them. The results name them then.
FORBIDDEN = ("privileged", "host_ipc", "host_pid")
# The powers that have a variable of their own.
SWITCHES = ("privileged", "host_ipc")
_PATCHES = ("metadata", "spec", "container")
# Variables of a cluster that are neither in PodSettings nor in Connection.
_OTHERS = ("device_plugin_namespaces", "gpu_stages", "group_launcher", "queue", "ssh_port")
# {annotation of a field of PodSettings: its argument spec for Ansible}.
_TYPES: dict[str, Object] = {
    "str": {"type": "str"},
    "bool": {"type": "bool"},
    "float": {"type": "float"},
    "int": {"type": "int"},
    "t.Sequence[str]": {"type": "list", "elements": "str"},
    "t.Sequence[Object]": {"type": "list", "elements": "dict"},
    "t.Mapping[str, t.Any]": {"type": "dict"},
}
# k8s.io/apimachinery/pkg/api/resource/quantity.go. The API names neither the field nor the value.
_QUANTITY = re.compile(r"[+-]?[0-9.]+([eE][+-]?[0-9]+|[numkKMGTPE]?i?)")
# Resources of the API's own have no domain, all others have one (Kubernetes: Resource Management for Pods and Containers).
_OF_THE_API = ("cpu", "memory", "ephemeral-storage")
_RESOURCE = re.compile(
    r"cpu|memory|ephemeral-storage|hugepages-[0-9]+[kKMGTPE]?i?|[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
)
# Fields of acceptance_kube_pod_patch that are looked into: mappings, or lists of mappings.
_PATCH_MAPPINGS = (("metadata", "labels"), ("metadata", "annotations"), ("spec", "securityContext"), ("container", "securityContext"))
_PATCH_LISTS = (("spec", "volumes"), ("spec", "initContainers"), ("container", "env"), ("container", "volumeMounts"))
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@dataclasses.dataclass(frozen=True)
class PodSettings:
    """The `acceptance_kube_*` variables that shape pods. roles/common/meta/argument_specs.yml describes each."""

    image: str = ""
    image_pull_policy: str = ""
    image_pull_secrets: t.Sequence[str] = ()
    python: str = "python3"
    inject: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    launcher: str = "pods"
    runtime_class: str = ""
    resource: str = accelerators.DEFAULT.resource
    resources: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    tolerations: t.Sequence[Object] = ()
    host_root: bool = True
    host_network: bool = False
    shm_size: str = ""
    capabilities: t.Sequence[str] = ()
    env: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    labels: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    annotations: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    priority_class: str = ""
    service_account: str = ""
    pod_patch: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    host_ipc: bool = False
    privileged: bool = False
    allow: t.Sequence[str] = ()
    results: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    start_timeout: float = 300.0
    keep: str = "never"
    keep_seconds: float = 3600.0
    metrics_port: int = 0

    @property
    def shown(self) -> bool:
        """Return True if pods show their progress while they work, by metrics or in their logs."""
        return bool(self.metrics_port or self.env.get(telemetry.LOG))


def variable_names() -> list[str]:
    """Return the names of all variables of a cluster, without their prefix."""
    fields = [field.name for field in dataclasses.fields(PodSettings)]
    return sorted([*fields, *(name for name in Connection._fields if name != "name"), *_OTHERS])


def connection(cluster: str, variables: t.Mapping[str, t.Any]) -> Connection:
    """Return the connection to a cluster from its variables. Raise KubeError for a wrong variable, or one without effect."""
    names = [name for name in Connection._fields if name != "name"]
    values = {name: str(variables.get(PREFIX + name) or "") for name in names}
    for name in ("server", "proxy"):
        if values[name] and not _is_address(values[name]):
            raise KubeError("credentials", f"{cluster}: {PREFIX}{name}: expected an address like https://192.0.2.1:6443")
    for name in ("token_file", "ca_file"):
        if values[name] and not values["server"]:
            raise KubeError("credentials", f"{cluster}: {PREFIX}{name} goes with {PREFIX}server; a kubeconfig brings its own")
    return Connection(cluster, **values)


def _is_address(text: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not re.search(r"\s", text)
    except ValueError:
        return False


def pods(variables: t.Mapping[str, t.Any]) -> PodSettings:
    """Return the settings of a cluster's pods from its variables, which for a module include its option `pods`. Raise KubeError for a wrong
    variable. The variables of a run were validated by the argument specs of role common, those of a module were not."""
    names = variable_names()
    strange = sorted(name for name in variables if name.startswith(PREFIX) and name[len(PREFIX) :] not in names)
    if strange:
        raise KubeError("bad_spec", f"{strange[0]} is not known; expected {PREFIX} and one of {', '.join(names)}")
    fields = {PREFIX + field.name: field for field in dataclasses.fields(PodSettings)}
    values = {name: variables[name] for name in fields if variables.get(name) not in (None, "")}
    validated = ArgumentSpecValidator({name: _TYPES[str(fields[name].type)] for name in values}).validate(values)
    if validated.error_messages:
        raise KubeError("bad_spec", "; ".join(validated.error_messages))
    settings = PodSettings(**{fields[name].name: value for name, value in validated.validated_parameters.items()})
    _check_shapes(settings)
    wrong = [name for name in settings.image_pull_secrets if not _OBJECT_NAME.fullmatch(name)]
    if wrong:
        raise KubeError("bad_spec", f"acceptance_kube_image_pull_secrets: found {wrong[0]!r}, expected names of secrets")
    if not settings.image:
        expected = "expected the image that has the tools under test: set it for the cluster in the inventory"
        raise KubeError("bad_spec", f"acceptance_kube_image is not set; {expected}")
    if settings.launcher not in LAUNCHERS:
        raise KubeError("bad_spec", f"acceptance_kube_launcher: found {settings.launcher!r}, expected one of {', '.join(LAUNCHERS)}")
    results.check(settings.results)
    if settings.keep not in KEEP:
        raise KubeError("bad_spec", f"acceptance_kube_keep: found {settings.keep!r}, expected one of {', '.join(KEEP)}")
    if settings.keep != KEEP[0] and settings.launcher != "pods":
        raise KubeError("bad_spec", f"acceptance_kube_keep is for acceptance_kube_launcher pods, found {settings.launcher!r}")
    if settings.inject:
        folder = inject.folder(settings.inject)
        if settings.python == PodSettings.python:
            settings = dataclasses.replace(settings, python=f"{folder}/bin/python3")
    unknown = sorted(set(settings.allow) - set(FORBIDDEN))
    if unknown:
        raise KubeError("bad_spec", f"acceptance_kube_allow: found {unknown[0]!r}, expected some of {', '.join(FORBIDDEN)}")
    # A power that is switched on is allowed.
    on = [power for power in SWITCHES if getattr(settings, power)]
    settings = dataclasses.replace(settings, allow=list(dict.fromkeys([*settings.allow, *on])))
    _check_patch(settings.pod_patch)
    return settings


def with_own(pods: PodSettings, stage_pods: t.Mapping[str, t.Any]) -> PodSettings:
    """Return the settings of pods with the additions of their stage (stages/base.py, Stage.isolation)."""
    limits = {**(pods.resources.get("limits") or {}), **{name: str(count) for name, count in (stage_pods.get("limits") or {}).items()}}
    return dataclasses.replace(
        pods,
        host_root=stage_pods.get("host_root", pods.host_root),
        host_network=stage_pods.get("host_network", pods.host_network),
        capabilities=list(dict.fromkeys([*pods.capabilities, *(stage_pods.get("capabilities") or ())])),
        annotations={**pods.annotations, **(stage_pods.get("annotations") or {})},
        resources={**pods.resources, **({"limits": limits} if limits else {})},
        pod_patch=merged(dict(pods.pod_patch), stage_pods.get("patch") or {}),
    )


def merged(into: t.Any, patch: t.Any) -> t.Any:
    """Return two values merged: mappings by key, lists appended, anything else replaced."""
    if isinstance(into, dict) and isinstance(patch, dict):
        return {**into, **{key: merged(into[key], value) if key in into else value for key, value in patch.items()}}
    return [*into, *patch] if isinstance(into, list) and isinstance(patch, list) else patch


def _check_shapes(settings: PodSettings) -> None:
    """Raise KubeError for values that Ansible's argument specs cannot check, and for which the API would not name the variable."""
    if settings.start_timeout <= 0 or settings.keep_seconds < 0:
        raise KubeError("bad_spec", "acceptance_kube_start_timeout and acceptance_kube_keep_seconds: expected seconds, not less than none")
    if not 0 <= settings.metrics_port < 1 << 16:
        raise KubeError("bad_spec", f"acceptance_kube_metrics_port: found {settings.metrics_port}, expected a port like 8080, or 0")
    kinds = settings.resources
    if not set(kinds) <= {"requests", "limits"} or not all(isinstance(values, dict) for values in kinds.values()):
        expected = "expected {requests: {cpu: 8}, limits: {...}}, with these two keys only"
        raise KubeError("bad_spec", f"acceptance_kube_resources: found {dict(kinds)!r}, {expected}")
    for kind, values in kinds.items():
        unknown = [name for name in values if not _RESOURCE.fullmatch(str(name))]
        if unknown:
            near = difflib.get_close_matches(str(unknown[0]), _OF_THE_API, 1, 0.5)
            raise KubeError(
                "bad_spec",
                f"{PREFIX}resources: {kind}: found key {unknown[0]!r}, expected cpu, memory, ephemeral-storage, hugepages-SIZE, or an "
                f"extended resource like rdma/hca{f'; did you mean {near[0]}?' if near else ''}",
            )
    quantities = [("resources", value) for values in kinds.values() for value in values.values()]
    if settings.shm_size:
        quantities.append(("shm_size", settings.shm_size))
    for name, value in quantities:
        if not _QUANTITY.fullmatch(str(value)):
            raise KubeError("bad_spec", f"{PREFIX}{name}: found {value!r}, expected a quantity like 8 or 16Gi")
    for name, of in (("env", settings.env), ("labels", settings.labels), ("annotations", settings.annotations)):
        nested = [key for key, value in of.items() if isinstance(value, (dict, list))]
        if nested:
            kind = type(of[nested[0]]).__name__  # its value may be a secret
            raise KubeError("bad_spec", f"{PREFIX}{name}: found a {kind} as {nested[0]}, expected a text or a number")


def _check_patch(patch: t.Mapping[str, t.Any]) -> None:
    lacking = withheld.lacking(dict(patch))
    if lacking is not None:
        problem = f"the value of {lacking} in its env stands in no file of a run: give the variable again as the run was begun with it"
        raise KubeError("bad_spec", f"acceptance_kube_pod_patch: {problem}")
    unknown = sorted(set(patch) - set(_PATCHES))
    if unknown:
        raise KubeError("bad_spec", f"acceptance_kube_pod_patch: found key {unknown[0]!r}, expected some of {', '.join(_PATCHES)}")
    for part, fields in patch.items():
        if not isinstance(fields, dict):
            raise KubeError("bad_spec", f"acceptance_kube_pod_patch: {part}: found {_kind(fields)}, expected fields as in a pod")
    for part, field in (*_PATCH_MAPPINGS, *_PATCH_LISTS):
        value = patch.get(part, {}).get(field)
        several = (part, field) in _PATCH_LISTS
        if value is None:
            continue
        items = value if several and isinstance(value, list) else [value]
        if several != isinstance(value, list) or not all(isinstance(item, dict) for item in items):
            words = "a list of mappings" if several else "a mapping"
            raise KubeError("bad_spec", f"acceptance_kube_pod_patch: {part}.{field}: found {_kind(value, items)}, expected {words}")
        for item in items:
            if field == "initContainers" and not isinstance(item.get("securityContext", {}), dict):
                raise KubeError("bad_spec", "acceptance_kube_pod_patch: spec.initContainers: expected a mapping as securityContext")


def _kind(value: t.Any, items: t.Iterable[t.Any] = ()) -> str:
    """Return words for the type of a value. The value itself may be a secret."""
    if isinstance(value, list):
        odd_item = next((item for item in items if not isinstance(item, dict)), None)
        return "a list" if odd_item is None else f"a list with {_kind(odd_item)}"
    return "a mapping" if isinstance(value, dict) else f"a {type(value).__name__}"


def switched_on(variables: t.Mapping[str, t.Any]) -> list[str]:
    """Return the powers of SWITCHES that the variables of a cluster switch on."""
    return [power for power in SWITCHES if variables.get(PREFIX + power)]


def untagged(image: str) -> bool:
    """Return True if an image may change without notice: it has neither tag nor digest, or the tag `latest`."""
    name = image.rsplit("/", 1)[-1]
    return "@" not in image and (":" not in name or name.endswith(":latest"))
