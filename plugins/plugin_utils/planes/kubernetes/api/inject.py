# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adds a folder with python3 and tools, from another image or a volume, to pods of an image that lacks them.

The folder has the same path in the pod as at its source, so nothing in it has to be relocatable.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import copy
import posixpath
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError, Object

FOLDER = "/opt/gpufleet"
CONTAINER = "inject"
COPY = "/gpufleet/inject"
# The environment variable by which the probe finds the folder's programs, after those of the image.
VARIABLE = "GPUFLEET_TOOLS"
_KEYS = ("image", "volume", "path")


def folder(inject: t.Mapping[str, t.Any]) -> str:
    """Return the path of the folder, at its source and in the pod. Raise KubeError for a wrong acceptance_kube_inject."""
    unknown = sorted(set(inject) - set(_KEYS))
    if unknown:
        raise KubeError("bad_spec", f"acceptance_kube_inject: found key {unknown[0]!r}, expected some of {', '.join(_KEYS)}")
    if bool(inject.get("image")) == bool(inject.get("volume")) or not isinstance(inject.get("volume", {}), dict):
        raise KubeError("bad_spec", "acceptance_kube_inject: expected either an image or a volume, as {hostPath: {...}} in a pod")
    path = str(inject.get("path") or FOLDER)
    if path != posixpath.normpath(path) or not path.startswith("/") or path.startswith(("/gpufleet", "//")) or path == "/":
        raise KubeError("bad_spec", f"acceptance_kube_inject: found path {path!r}, expected a folder like {FOLDER}")
    return path


def add(spec: Object, inject: t.Mapping[str, t.Any], resources: Object) -> None:
    """Add the folder to a pod. `resources` are those of the pod's container without devices; the container that copies requests the
    same."""
    path = folder(inject)
    container = spec["containers"][0]
    container["env"].append({"name": VARIABLE, "value": path})
    container["volumeMounts"].append({"name": CONTAINER, "mountPath": path, "readOnly": True})
    spec["volumes"].append({"name": CONTAINER, **copy.deepcopy(inject.get("volume") or {"emptyDir": {}})})
    if inject.get("image"):
        first: Object = {
            "name": CONTAINER,
            "image": str(inject["image"]),
            "command": ["cp", "-RP", f"{path}/.", COPY],
            "volumeMounts": [{"name": CONTAINER, "mountPath": COPY}],
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
        if "imagePullPolicy" in container:
            first["imagePullPolicy"] = container["imagePullPolicy"]
        if resources:
            first["resources"] = copy.deepcopy(resources)
        spec["initContainers"] = [first, *spec.get("initContainers", [])]
