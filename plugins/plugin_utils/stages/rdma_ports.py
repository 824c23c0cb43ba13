# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `rdma_ports`: the ports of every node, and what the pods of all RDMA stages need.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, PlainData, Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import base, rdma_rails
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import NONE_OR_MORE, Range

DEVICES = "/dev/infiniband"
# Of the module: which ports of a node are meant.
OPTIONS = ("devices", "port", "network", "gid_index", "roce_version", "address_family", "link_local")


class RdmaPorts(base.Stage):
    name = "rdma_ports"
    role = "gpufleet.acceptance.rdma_ports"
    loads = False
    place = 50
    conditions = frozenset({"ports"})
    requestable = ("devices", "port")
    networks = ("network",)
    ranges: t.Mapping[str, Range] = {
        "port": Range(1, 255),  # a port number of an RDMA device is one byte
        "gid_index": Range(0, 65535),
        "roce_version": Range(1, 2),
        "rails": NONE_OR_MORE,
        "gbps": Range(0, 100_000, "Gb/s", above=True),
    }

    def isolation(self, settings: Variables) -> base.Isolation:
        return isolation(settings)

    def opinions(
        self, deciding: t.Mapping[Key, Measurement], records: list[Measurement], expected: base.Expected, tables: list[Table]
    ) -> t.Iterator[tuple[Key, Opinion]]:
        return rdma_rails.opinions(deciding)


def options(settings: Variables) -> PlainData:
    """Return the module's options that say which ports are meant."""
    return {name: settings.get(f"rdma_ports_{name}") for name in OPTIONS}


def isolation(settings: Variables, stage: str = "rdma") -> base.Isolation:
    """Return the needs of the RDMA stages in pods, from the variables `rdma_kube_*` or those of another stage."""
    kube = f"{stage}_kube_"
    return {
        "host_root": False,  # what the pod itself sees of /sys is what its tests can use
        "host_network": bool(settings.get(f"{kube}host_network", True)),
        "capabilities": settings.get(f"{kube}capabilities") or (),
        "annotations": settings.get(f"{kube}annotations") or {},
        "limits": settings.get(f"{kube}resources") or {},
        "patch": _WITH_DEVICES if settings.get(f"{kube}host_devices") else {},
        "on_gpu_nodes": False,
        "lacks": "no_rdma",
    }


_WITH_DEVICES: PlainData = {
    "spec": {"volumes": [{"name": "infiniband", "hostPath": {"path": DEVICES, "type": "Directory"}}]},
    "container": {
        "volumeMounts": [{"name": "infiniband", "mountPath": DEVICES}],
        # The cgroup of a container lets it use no device of the host otherwise.
        "securityContext": {"privileged": True, "allowPrivilegeEscalation": True},
    },
}

STAGE = RdmaPorts()
