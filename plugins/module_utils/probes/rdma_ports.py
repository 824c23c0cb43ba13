# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The RDMA ports of a node: their state, their links, and the GIDs that tests would use.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import nic_models
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import port_errors
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import ports as rdma_ports
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """One observation of the node: its ports in `context`, what is wrong with them in `context.findings`."""
    for check in params["checks"]:
        devices = rdma_ports.read_devices(node, params["devices"])
        if not devices:
            all_names = ", ".join(rdma_ports.names(node)) or "none"
            patterns = f" that match {', '.join(params['devices'])}" if params["devices"] else ""
            reason = f"no RDMA devices{patterns}; there are: {all_names}. Is the driver loaded?"
            yield observation.failed(check["check"], "no_rdma", reason, variant=check["variant"])
            continue
        ports = rdma_ports.ports_of(devices, params)
        rdma_ports.add_neighbours(node, ports)
        yield observation.measured(
            check["check"],
            variant=check["variant"],
            raw="\n".join([*rdma_ports.netdev_table(ports), "", *rdma_ports.gid_lines(ports), ""]),
            context={
                "devices": [{k: v for k, v in device.items() if k != "ports"} for device in devices],
                "ports": ports,
                "present": rdma_ports.names(node),
                "table": rdma_ports.netdev_table(ports),
                "gpus": rdma_ports.gpu_affinity(node, devices),
                "modules": {name: os.path.isdir(node.path(f"/sys/module/{name}")) for name in rdma_ports.MODULES},
                "wanted": {name: params.get(name) or None for name in ("rails", "gbps")},
                "findings": [
                    *rdma_ports.findings(devices, ports, params.get("rails"), params.get("gbps") or ()),
                    *port_errors.findings(node, ports, nic_models.models(devices)),
                ],
                "warnings": rdma_ports.warnings(devices),
            },
        )


def default_checks(_params: dict[str, t.Any]) -> list[dict[str, str]]:
    """The checks of a call that names none."""
    return [{"check": "ports", "variant": ""}]
