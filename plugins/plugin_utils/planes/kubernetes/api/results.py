# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An optional copy of the results on a volume of the cluster. The result that counts is the frame in the pod's log or message.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError, Object

PATH = "/workspace/results"
VOLUME = "results"
_KEYS = {"claim", "host_path", "path"}


def check(results: t.Mapping[str, t.Any]) -> None:
    """Raise KubeError for a wrong acceptance_kube_results."""
    places = [key for key in ("claim", "host_path") if results.get(key)]
    paths = [results[key] for key in ("host_path", "path") if key in results]
    if not results:
        return
    if not set(results) <= _KEYS or len(places) != 1 or not all(str(path).startswith("/") for path in paths):
        raise KubeError(
            "bad_spec", f"acceptance_kube_results: found {dict(results)!r}, expected {{claim or host_path, path}} with whole paths"
        )


def mount(spec: Object, container: Object, results: t.Mapping[str, t.Any], run_id: str, stage: str) -> None:
    """Mount the volume into a pod's container and name the folder of this stage on it (module_utils/program/pod.py)."""
    if not results:
        return
    path = str(results.get("path") or PATH)
    source: Object = {"persistentVolumeClaim": {"claimName": str(results.get("claim"))}}
    if results.get("host_path"):
        source = {"hostPath": {"path": str(results["host_path"]), "type": "DirectoryOrCreate"}}
    spec["volumes"].append({"name": VOLUME, **source})
    container["volumeMounts"].append({"name": VOLUME, "mountPath": path})
    container["env"].append({"name": "GPUFLEET_RESULTS", "value": f"{path}/{run_id}/{stage}"})
