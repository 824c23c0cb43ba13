# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster's inventory variables say: how to reach it, and what its pods look like.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube import inject, results
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube.client import Connection, KubeError

Object = t.Dict[str, t.Any]
PREFIX = "acceptance_kube_"
LAUNCHERS = ("pods", "daemonset", "job")
KEEP = ("never", "on_failure")
# What a pod may only have where acceptance_kube_allow names it; each is named in the results then.
FORBIDDEN = ("privileged", "host_ipc", "host_pid")
# Those of them that have a variable of their own.
SWITCHES = ("privileged", "host_ipc")
_PATCHES = ("metadata", "spec", "container")


@dataclasses.dataclass(frozen=True)
class PodSettings:
    """The `acceptance_kube_*` variables that shape pods; roles/common/meta/argument_specs.yml says what each one means."""

    image: str = ""
    image_pull_policy: str = ""
    image_pull_secrets: t.Sequence[str] = ()
    python: str = "python3"
    inject: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    launcher: str = "pods"
    runtime_class: str = ""
    resource: str = "nvidia.com/gpu"
    gpu_stages: t.Sequence[str] = ("nccl_node", "gemm")
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


def connection(cluster: str, variables: t.Mapping[str, t.Any]) -> Connection:
    """How to reach a cluster, of its variables."""
    names = [name for name in Connection._fields if name != "name"]
    found = {name: str(variables.get(PREFIX + name) or "") for name in names}
    return Connection(cluster, **found)


def pods(variables: t.Mapping[str, t.Any]) -> PodSettings:
    """What a cluster's pods look like, of its variables. KubeError names one that cannot be."""
    given = {
        field.name: variables[PREFIX + field.name]
        for field in dataclasses.fields(PodSettings)
        if variables.get(PREFIX + field.name) not in (None, "")
    }
    settings = PodSettings(**given)
    if not settings.image:
        raise KubeError("bad_spec", "acceptance_kube_image is not set; expected the image that has the tools under test")
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
    # To switch one on is to allow it.
    settings = dataclasses.replace(settings, allow=list(dict.fromkeys([*settings.allow, *switched_on(variables)])))
    unknown = sorted(set(settings.pod_patch) - set(_PATCHES))
    if unknown:
        raise KubeError("bad_spec", f"acceptance_kube_pod_patch: found key {unknown[0]!r}, expected some of {', '.join(_PATCHES)}")
    return settings


def switched_on(variables: t.Mapping[str, t.Any]) -> list[str]:
    """Which of SWITCHES the variables of a cluster switch on."""
    return [power for power in SWITCHES if variables.get(PREFIX + power)]


def untagged(image: str) -> bool:
    """Whether an image may be another one tomorrow: no tag and no digest, or `latest`."""
    name = image.rsplit("/", 1)[-1]
    return "@" not in image and (":" not in name or name.endswith(":latest"))
