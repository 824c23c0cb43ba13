# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters of errors of RDMA ports that stand high without rising: a cable that has lost its link a hundred times may hold for the minute
of a test.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import base
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, Value, number
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

CODE = "port_errors"
# {words: (counters of the port, counters of its network interface, how many a healthy port may have)}. The highest of a class counts:
# drivers count the same under two names (Documentation/ABI/stable/sysfs-class-infiniband; sysfs-class-net, sysfs-class-net-statistics).
# Errors of packets that another link damaged (port_rcv_remote_physical_errors) are none of this port.
CLASSES: dict[str, tuple[tuple[str, ...], tuple[str, ...], base.Allowance]] = {
    "lost links": (("link_downed",), ("carrier_down_count",), base.Allowance(ever=10, daily=1, spread=10)),
    "links trained anew": (("link_error_recovery",), (), base.Allowance(ever=10, daily=0.1, spread=10)),
    "damaged packets or symbols": (
        ("symbol_error", "port_rcv_errors", "local_link_integrity_errors", "excessive_buffer_overrun_errors"),
        ("statistics/rx_crc_errors", "statistics/rx_frame_errors"),
        base.Allowance(ever=1000, daily=100, spread=100),
    ),
}  # fmt: skip


def findings(node: Node, ports: t.Sequence[t.Mapping[str, t.Any]], models: t.Mapping[str, str]) -> list[dict[str, str]]:
    """Return [{"code", "part", "text"}] of active ports with more errors than a healthy port has, or than their siblings of one model."""
    uptime = number((node.read("/proc/uptime") or "").partition(" ")[0], "the time since boot")
    days = None if isinstance(uptime, Absent) else uptime / 86400
    active = [port for port in ports if port["state"] == "ACTIVE"]
    found = []
    for port in active:
        alike = [other for other in active if other is not port and models.get(other["device"]) == models.get(port["device"])]
        for words, (names, of_interface, allowance) in CLASSES.items():
            own, *others = (_highest(node, each, names, of_interface) for each in (port, *alike))
            why = allowance.problem(own, others, days, "ports")
            if why:
                place = f"{port['device']} port {port['port']}"
                text = f"{place}: {own} {words} since its driver was loaded; {why}: see its cable, module and the port of the switch"
                found.append({"code": CODE, "part": f"nic/{port['device']}/{port['port']}", "text": text})
    return found


def _highest(node: Node, port: t.Mapping[str, t.Any], names: t.Sequence[str], of_interface: t.Sequence[str]) -> Value:
    counts: list[Value] = [port["counters"][name] for name in names if name in port.get("counters", {})]
    if port.get("netdev"):
        counts += [number(node.read(f"/sys/class/net/{port['netdev']}/{name}"), name) for name in of_interface]
    read = [count for count in counts if not isinstance(count, Absent) and count >= 0]
    return max(read) if read else Absent("no counter of this class can be read")
