# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stage that is a manifest: a plain Job or DaemonSet whose exit status or framed result is judged.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import pathlib
import typing as t

import yaml
from ansible.module_utils.common.yaml import yaml_load
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import base

ROLE = "gpufleet.acceptance.manifest"
JOB, DAEMONSET = "Job", "DaemonSet"
_API = {JOB: "batch/v1", DAEMONSET: "apps/v1"}
# What the container hears of us by its environment.
ENVIRONMENT = ("GPUFLEET_SECRET", "GPUFLEET_POD_UID", "GPUFLEET_NODE", "GPUFLEET_NONCE")
# A manifest with this annotation, `framed`, prints its result; without it its exit status is the result.
RESULT = "gpufleet.acceptance/result"
FRAMED = "framed"
TIMEOUT_S = 600.0

Object = t.Dict[str, t.Any]


class Manifest(base.Stage):
    """A stage whose whole description is what the user put on the nodes."""

    topology = base.MANIFEST
    role = ROLE

    def __init__(self, name: str, manifest: Object) -> None:
        self.name = name
        self.manifest = manifest


def load(path_or_manifest: t.Any, where: str) -> Object:
    """The manifest itself, of a path or of what was loaded before. RunError names what it may not be."""
    if isinstance(path_or_manifest, str):
        path = pathlib.Path(path_or_manifest).expanduser()
        try:
            path_or_manifest = yaml_load(path.read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError) as error:
            words = " ".join(str(error).split())
            raise RunError(f"{where}: manifest {path.absolute()}: {words}; expected a file with one Job or DaemonSet") from error
        where = f"{where}: manifest {path.absolute()}"
    check(path_or_manifest, where)
    return t.cast(Object, path_or_manifest)


def check(manifest: t.Any, where: str) -> None:
    """RunError names what we cannot put on nodes, or what is ours to say."""
    kind = manifest.get("kind") if isinstance(manifest, dict) else None
    if kind not in _API or manifest.get("apiVersion") != _API[kind]:
        kind_given = f"{manifest.get('apiVersion')} {kind}" if isinstance(manifest, dict) else type(manifest).__name__
        raise RunError(f"{where}: found {kind_given}, expected a Job of batch/v1 or a DaemonSet of apps/v1")
    metadata = manifest.get("metadata") or {}
    if metadata.get("namespace"):
        raise RunError(f"{where}: metadata.namespace: found {metadata['namespace']!r}, expected none: see acceptance_kube_namespace")
    framing = (metadata.get("annotations") or {}).get(RESULT, FRAMED)
    if framing != FRAMED:
        raise RunError(f"{where}: annotation {RESULT}: found {framing!r}, expected {FRAMED}, or none where the exit status is the result")
    pod = ((manifest.get("spec") or {}).get("template") or {}).get("spec") or {}
    containers = pod.get("containers")
    good = [isinstance(container, dict) and container.get("image") for container in containers] if isinstance(containers, list) else []
    if not isinstance(containers, list) or not good or not all(good):
        raise RunError(f"{where}: spec.template.spec.containers: expected containers with images, the first of which is judged")
    placed = [field for field in ("nodeName", "nodeSelector") if pod.get(field)]
    placed += ["affinity.nodeAffinity"] if (pod.get("affinity") or {}).get("nodeAffinity") else []
    if placed:
        raise RunError(f"{where}: spec.template.spec.{placed[0]} is not for the manifest to say: see acceptance_nodes")
    for container in containers:
        reserved_names = [item["name"] for item in container.get("env") or [] if item.get("name") in ENVIRONMENT]
        if reserved_names:
            raise RunError(f"{where}: env {reserved_names[0]} is not for the manifest to say")


def options(stage: str) -> tuple[Variables, PlainData]:
    """Return the default values and argument specs of such a stage's variables."""
    defaults = {f"{stage}_timeout": TIMEOUT_S, f"{stage}_checks": [{"check": stage, "variant": ""}]}
    specs = {
        f"{stage}_timeout": {"type": "float"},
        f"{stage}_checks": {"type": "list", "elements": "dict"},
        f"{stage}_sample": {"type": "dict"},
        f"{stage}_check_seconds": {"type": "float"},
    }
    return defaults, specs


def image(manifest: Object) -> str:
    """The image of the container that is judged."""
    return str(manifest["spec"]["template"]["spec"]["containers"][0]["image"])


def framed(manifest: Object) -> bool:
    """Return True if the manifest prints a result."""
    return RESULT in ((manifest.get("metadata") or {}).get("annotations") or {})


def of(name: str, manifest: Object) -> Manifest:
    """The description of a stage that is this manifest."""
    return Manifest(name, manifest)
