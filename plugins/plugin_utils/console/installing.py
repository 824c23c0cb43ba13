# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts the console on a cluster and takes it away, by manifests.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import base64
import secrets
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.cluster import PLURAL, VERSION
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError

Object = t.Dict[str, t.Any]
MANAGER = "gpufleet-acceptance"
# What people would miss: results and history are in it.
DATA = "PersistentVolumeClaim"
RESOURCE = "CustomResourceDefinition"
# Of a Secret: the key of it that is drawn when it is made, and never again.
RANDOM_KEY = "acceptance.gpufleet.dev/random-key"
# How long actions have to end, with what they hold; and a Deployment to stand.
END_S = 180.0
_ACTIONS = f"/apis/{VERSION}/{PLURAL}"


class Installer:
    """Installation of the console in one cluster; `changed` says in words what was done, or would be."""

    def __init__(self, client: Client, dry_run: bool = False) -> None:
        self.client, self.dry_run = client, dry_run
        self.changed: t.List[str] = []
        self._served: t.Dict[str, t.Dict[str, t.Tuple[str, bool]]] = {}

    def _path(self, manifest: Object) -> str:
        version, kind = str(manifest["apiVersion"]), str(manifest["kind"])
        if version not in self._served:
            root = f"/apis/{version}" if "/" in version else f"/api/{version}"
            resources = self.client.get(root)["resources"]
            self._served[version] = {entry["kind"]: (entry["name"], entry["namespaced"]) for entry in resources if "/" not in entry["name"]}
        if kind not in self._served[version]:
            raise KubeError("bad_spec", f"{self.client.name}: the API does not serve {kind} of {version}")
        resource, namespaced = self._served[version][kind]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        return f"{root}/namespaces/{self.client.namespace}/{resource}" if namespaced else f"{root}/{resource}"

    def _there(self, path: str) -> Object | None:
        try:
            return self.client.get(path)
        except KubeError as error:
            if error.status != 404:
                raise
            return None

    def present(self, manifests: t.Iterable[Object]) -> None:
        """Make all of them, or make them what they should be."""
        for manifest in manifests:
            name = manifest["metadata"]["name"]
            path = f"{self._path(manifest)}/{name}"
            before = self._there(path)
            secret = (manifest["metadata"].get("annotations") or {}).get(RANDOM_KEY)
            if secret and before is not None:
                continue
            if secret:
                manifest = {**manifest, "stringData": {secret: base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()}}
            after = self.client.apply(path, manifest, MANAGER, self.dry_run)
            if before is None:
                self.changed.append(f"made {manifest['kind']} {name}")
            elif _told(before) != _told(after):
                self.changed.append(f"changed {manifest['kind']} {name}")
            if manifest["kind"] == RESOURCE and not self.dry_run:
                self._until(path, _established, 60, f"{RESOURCE} {name} is not served")

    def ready(self, manifests: t.Iterable[Object], seconds: float) -> None:
        """Wait until each Deployment stands."""
        for manifest in manifests:
            if manifest["kind"] == "Deployment" and not self.dry_run and seconds:
                path = f"{self._path(manifest)}/{manifest['metadata']['name']}"
                self._until(path, _stands, seconds, "its pods are not ready; kubectl describe pods has the reason")

    def absent(self, manifests: t.Sequence[Object]) -> None:
        """Take all of them away but the data: first the actions, while somebody is there to end them, then the rest."""
        self._end_actions()
        for manifest in reversed(manifests):
            if manifest["kind"] == DATA or (manifest["kind"] == RESOURCE and self._others()):
                continue
            name = manifest["metadata"]["name"]
            path = f"{self._path(manifest)}/{name}"
            if self._there(path) is not None:
                self.changed.append(f"removed {manifest['kind']} {name}")
                if not self.dry_run:
                    self.client.delete(path, propagationPolicy="Background")

    def _end_actions(self) -> None:
        path = f"/apis/{VERSION}/namespaces/{self.client.namespace}/{PLURAL}"
        items = (self._there(path) or {"items": []})["items"]
        if not items:
            return
        self.changed.append(f"removed {len(items)} actions")
        if self.dry_run:
            return
        self.client.delete(path, propagationPolicy="Background")
        message = "actions do not end; is the console running? kubectl get syncactions shows them"
        self._until(path, lambda items: not items.get("items"), END_S, message)

    def _others(self) -> bool:
        """Return True if another namespace has actions of another console."""
        items = (self._there(_ACTIONS) or {"items": []})["items"]
        return any(item["metadata"]["namespace"] != self.client.namespace for item in items)

    def _until(self, path: str, true: t.Callable[[Object], bool], seconds: float, otherwise: str) -> None:
        end = time.monotonic() + seconds
        while not true(self._there(path) or {"metadata": {}}):
            if time.monotonic() > end:
                raise KubeError("timeout", f"{self.client.name}: namespace {self.client.namespace}: {otherwise}")
            time.sleep(0.5)


def _told(item: Object) -> Object:
    """Return the part of an object that people wrote, without the fields of the cluster."""
    meta = item["metadata"]
    fields = {name: meta.get(name) for name in ("labels", "annotations")}
    return {**{name: value for name, value in item.items() if name not in ("status", "metadata")}, "metadata": fields}


def _established(item: Object) -> bool:
    conditions = (item.get("status") or {}).get("conditions") or []
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)


def _stands(item: Object) -> bool:
    status = item.get("status") or {}
    is_current = bool(item.get("spec")) and status.get("observedGeneration") == item["metadata"].get("generation")
    return is_current and status.get("availableReplicas", 0) >= item["spec"].get("replicas", 1)
