# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A namespace of its own on a rig's cluster, and a user in it who may what roles of files/rbac say and no more."""

from __future__ import annotations

import itertools
import os
import pathlib
import time
import typing as t

import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup, client
from rigs.kubernetes.kubernetes import Kubernetes

RBAC = pathlib.Path(__file__).resolve().parents[2] / "files" / "rbac"
_NUMBERS = itertools.count(1)


def roles(*names: str) -> list[dict[str, t.Any]]:
    """The named Roles and the ClusterRole that goes with every one."""
    return [yaml.safe_load((RBAC / f"{name}.yaml").read_text()) for name in (*names, "nodes")]


class Namespace:
    """`admin` may everything in it, `api` and `kubeconfig` are the user's."""

    def __init__(self, cluster: Kubernetes, wanted: list[dict[str, t.Any]]) -> None:
        self.cluster = cluster
        self.namespace = f"lab-{os.getpid()}-{next(_NUMBERS)}"
        self.user = f"tester-{self.namespace}"
        self.admin = client.connect(client.Connection("lab", kubeconfig=str(cluster.kubeconfig), namespace=self.namespace))
        self.permit(wanted)

    def allow(self, *names: str) -> None:
        """The user's roles are these of files/rbac from now on."""
        self.permit(roles(*names))

    def permit(self, wanted: list[dict[str, t.Any]]) -> None:
        """The same with roles of a test's own."""
        self.kubeconfig = str(self.cluster.user(self.user, wanted, self.namespace))
        self.api = client.connect(client.Connection("lab", kubeconfig=self.kubeconfig, namespace=self.namespace))

    def left(self) -> t.Any:
        """Return the names of our objects in the namespace."""
        return cleanup.left_over(self.admin)

    def nothing_left(self, seconds: float = 90) -> None:
        end = time.monotonic() + seconds
        while left := self.left():
            assert time.monotonic() < end, left
            time.sleep(0.3)
