# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Leader election between controllers: the holder of a Lease, by the rules of Kubernetes' own controllers.

Whoever holds it renews it, and stops working well before others may take it. Others take it when it has not changed for its whole duration
by their own clock: clocks of machines are never compared.

The Kubernetes client's LeaderElection with its LeaseLock is not used: in a trial of version 37.0.2 a holder whose connection to the API
server broke was never told that it lost the lease, and one whose request hung kept working for more than 40 s on a lease of 15 s.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import datetime
import logging
import threading
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError

LOG = logging.getLogger("gpufleet.acceptance.console")
# How long a lease lasts that nobody renews, when its holder gives up for himself, and between two attempts.
LEASE_S, GIVE_UP_S, RENEW_S = 15, 10.0, 2.5
API = "/apis/coordination.k8s.io/v1"


class Lease:
    """Tries to hold it, in a thread of its own. `lost` is called when it was held and is not any more."""

    def __init__(self, client: Client, name: str, holder: str, lost: t.Callable[[], None] = lambda: None) -> None:
        self.client, self.name, self.holder, self.lost = client, name, holder, lost
        self.path = f"{API}/namespaces/{client.namespace}/leases"
        self._until = 0.0
        self._seen: t.Tuple[str, float] = ("", 0.0)
        self._stopped = threading.Event()
        client.patience = 0.0
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Give it back, so that nobody has to wait for its end."""
        self._stopped.set()
        self._thread.join(timeout=GIVE_UP_S)
        if self.held():
            self._until = 0.0
            try:
                lease = self.client.get(f"{self.path}/{self.name}")
                if lease["spec"].get("holderIdentity") == self.holder:
                    self._write(lease, {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1})
            except KubeError as error:
                LOG.warning("%s", error)

    def held(self) -> bool:
        return time.monotonic() < self._until

    def _run(self) -> None:
        working = False
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                if self._attempt():
                    self._until = began + GIVE_UP_S
                else:
                    self._until = 0.0
            except KubeError as error:
                LOG.warning("%s", error)
            if working and not self.held():
                self.lost()
            working = self.held()
            self._stopped.wait(RENEW_S)

    def _attempt(self) -> bool:
        """Return True if this controller holds the lease now. Raises KubeError if it is not known: it then holds it as long as before."""
        self.client.patience = 0.0  # a server that is away is asked again by us
        try:
            lease = self.client.get(f"{self.path}/{self.name}")
        except KubeError as error:
            if error.status != 404:
                raise
            return self._made()
        spec = lease.get("spec") or {}
        version = lease["metadata"]["resourceVersion"]
        if version != self._seen[0]:
            self._seen = (version, time.monotonic())
        is_ours = spec.get("holderIdentity") == self.holder
        over = time.monotonic() > self._seen[1] + float(spec.get("leaseDurationSeconds") or LEASE_S)
        if not is_ours and spec.get("holderIdentity") and not over:
            return False
        new = {**spec, **self._spec(), "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (not is_ours)}
        if is_ours:
            new["acquireTime"] = spec.get("acquireTime") or new["acquireTime"]
        return self._write(lease, new)

    def _made(self) -> bool:
        try:
            self.client.post(self.path, {
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self.name}, "spec": self._spec(),
            })  # fmt: skip
        except KubeError as error:
            if error.status == 409:
                return False
            raise
        return True

    def _spec(self) -> t.Dict[str, t.Any]:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {"holderIdentity": self.holder, "leaseDurationSeconds": LEASE_S, "acquireTime": now, "renewTime": now}

    def _write(self, lease: t.Dict[str, t.Any], spec: t.Dict[str, t.Any]) -> bool:
        try:
            version = lease["metadata"]["resourceVersion"]
            self.client.patch(f"{self.path}/{self.name}", {"metadata": {"resourceVersion": version}, "spec": spec})
        except KubeError as error:
            if error.status == 409:
                return False
            raise
        return True
