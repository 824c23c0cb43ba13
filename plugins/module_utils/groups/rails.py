# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One rail of a group by itself: one RDMA device and one GPU of each node.

A rail that NCCL cannot use is no error for NCCL: it takes sockets instead and still gives a number. So a number counts for a rail only if
every node has the device with an active port, and if NCCL's log shows that each process used this device and no other transport.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import slots
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import group
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import ports as rdma_ports
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

# A device, or one port of it, as NCCL_IB_HCA takes it.
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}(:[1-9][0-9]?)?")
# What a process of NCCL says, whatever stands before its host: the devices it uses, and by which way it sends to or hears another.
_SAID = r"(?:^|[\s:\]])([^\s:\[\]]{1,255}):\d{1,10}:\d{1,10} \[\d{1,3}\] (?:\S{1,160} )?NCCL INFO "
_USING = re.compile(_SAID + r"NET/IB : Using ([^;\n]*)", re.MULTILINE)
_DEVICE = re.compile(r"\[\d{1,3}\]([^\s:]{1,64}):(\d{1,3})")
_VIA = re.compile(_SAID + r"Channel [^\n]{1,200}? via NET/(\w{1,40})", re.MULTILINE)


def environment(rail: str) -> dict[str, str]:
    """Return the environment in which ranks use this rail alone and log it. NVLink beyond the node is off: it would carry everything."""
    debug = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", "NCCL_DEBUG_FILE": ""}
    return {"NCCL_IB_HCA": f"={rail}", "NCCL_MNNVL_ENABLE": "0", **debug}


def near(node: Node, devices: list[dict[str, t.Any]], gpus: t.Sequence[dict[str, t.Any]]) -> dict[str, list[int]]:
    """Return {device: places of the GPUs to which no other device of the node is closer}, as far as the PCI tree shows it."""
    closest = rdma_ports.gpu_affinity(node, devices)
    # nvidia-smi writes the domain in 8 digits, the kernel in 4.
    closest_nics = [closest.get(str(gpu.get("bdf") or "").lower()[-12:], []) for gpu in gpus]
    return {device["device"]: [place for place, names in enumerate(closest_nics) if device["device"] in names] for device in devices}


def path(node: Node, devices: list[dict[str, t.Any]], gpus: t.Sequence[dict[str, t.Any]]) -> str | None:
    """Return the farthest way of a GPU to its nearest NIC (slots.PATHS); None if the PCI tree does not show all GPUs, as in a guest."""
    path_of = rdma_ports.accelerators(node, rdma_ports.ACCELERATORS)
    ways = [path_of.get(str(gpu.get("bdf") or "").lower()[-12:]) for gpu in gpus]
    nics = [device["pci_path"] for device in devices if device["pci_path"]]
    return None if None in ways else slots.farthest([str(way) for way in ways], nics)


def lacking(members: t.Sequence[group.GroupMember], rail: str) -> tuple[str, str] | None:
    """Return (reason code, reason) if the rail cannot be measured on some nodes, which it names, or if no GPU is closest to it on all; else
    None."""
    code, problems = "port_down", []
    for member in members:
        if group.left_by(f"={rail}", member.ports):
            continue
        if group.left_by(f"={rail}", member.down):
            problems.append(f"{member.name}: its port is not active")
        else:
            code = "no_rdma"
            present = ", ".join(dict.fromkeys(str(port["device"]) for port in [*member.ports, *member.down]))
            problems.append(f"{member.name} has no such device" + (f", only {present}" if present else " and no other"))
    if problems:
        return code, f"rail {rail}: {'; '.join(problems)}"
    near = {member.name: set(port["near"]) for member in members for port in group.left_by(f"={rail}", member.ports) if port.get("near")}
    if near and not set.intersection(*near.values()):  # ranks have one environment
        listed = "; ".join(f"{name}: {', '.join(map(str, sorted(of)))}" for name, of in near.items())
        return "unsupported", f"rail {rail}: no GPU is closest to it on every node ({listed}): make groups of nodes that are alike"
    return None


def slot(members: t.Sequence[group.GroupMember], rail: str) -> int:
    """Return the place of the GPU that measures the rail on every node: the one with the number of the rail if it is among the closest on
    every node, or if no PCI tree shows the closest; else the first that is among the closest everywhere."""
    close = [set(port["near"]) for member in members for port in group.left_by(f"={rail}", member.ports) if port.get("near")]
    everywhere = set.intersection(*close) if close else set()
    devices = list(dict.fromkeys(str(port["device"]) for port in [*members[0].ports, *members[0].down]))
    number = rdma_ports.in_order(devices).index(rail.partition(":")[0])
    by_number = number * min(len(member.gpus) for member in members) // len(devices)
    return by_number if by_number in everywhere or not everywhere else min(everywhere)


def doubt(text: str, rail: str, hosts: t.Collection[str]) -> str:
    """Return why it is not certain that each of these hosts sent over this rail only; empty if NCCL's log shows it."""
    name, _colon, port = rail.partition(":")
    used: dict[str, list[list[tuple[str, str]]]] = {}
    for host, devices in _USING.findall(text):
        used.setdefault(host.split(".")[0], []).append(_DEVICE.findall(devices))
    transports: dict[str, set[str]] = {}
    for host, transport in _VIA.findall(text):
        transports.setdefault(host.split(".")[0], set()).add(transport)
    for host in hosts:
        if host not in used:
            return f"NCCL on {host} does not say which RDMA devices it uses"
        if not all(used[host]):
            return f"NCCL on {host} used no RDMA device"
        unexpected = sorted({":".join(device) for of in used[host] for device in of if device[0] != name or port not in ("", device[1])})
        if unexpected:
            return f"NCCL on {host} used {', '.join(unexpected)}"
        if host not in transports:
            return f"NCCL on {host} does not say by which way it sent"
        unexpected = sorted(transport for transport in transports[host] if not transport.startswith("IB"))
        if unexpected:
            return f"NCCL on {host} sent by way of {', '.join(unexpected)}"
    return ""
