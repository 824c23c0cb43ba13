# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA hardware without an RDMA device: a driver that is not loaded, as sysfs tells it.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import re

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

PCI, AUXILIARY = "/sys/bus/pci/devices", "/sys/bus/auxiliary"
# PCI classes of network controllers, and of those for InfiniBand (PCI Code and ID Assignment Specification 1.16, section D.3).
NETWORK, INFINIBAND = "0x02", "0x0207"
# Vendor and device of network controllers that do RDMA: Mellanox's, which may have it switched off, and Amazon's EFA, which has not.
MELLANOX, EFA = re.compile(r"0x15b3 .*"), re.compile(r"0x1d0f 0xefa[0-9a-f]")
# Since Linux 5.11 drivers of NICs offer their RDMA part as a device of the auxiliary bus, and only if it is switched on: mlx5_core.rdma.0,
# ice.roce.0, i40e.iwarp.0.
PART = re.compile(r"(\w+)\.(?:rdma|roce|iwarp)\.\d+")


def undriven(node: Node) -> list[str]:
    """Return a sentence for each device of a node without RDMA devices that should give one; empty if there is no such hardware, or if its
    RDMA part is switched off."""
    sentences = []
    for name in _names(node, f"{AUXILIARY}/devices"):
        part = PART.fullmatch(name)
        if part:
            driven = _is_driven(node, f"{AUXILIARY}/devices/{name}")
            missing = "its RDMA device is not visible here" if driven else "no RDMA driver is loaded for it"
            sentences.append(f"{name}: its network driver {part.group(1)} offers RDMA, and {missing}")
    return sentences + [sentence for slot in _names(node, PCI) for sentence in _of_function(node, slot)]


def _of_function(node: Node, slot: str) -> list[str]:
    """Return what is missing of a PCI function, if it does RDMA. A virtual one whose physical one is here may be meant for a guest."""
    path = f"{PCI}/{slot}"
    kind = node.read(f"{path}/class") or ""
    if not kind.startswith(NETWORK) or os.path.lexists(node.path(f"{path}/physfn")):
        return []
    model = f"{node.read(f'{path}/vendor')} {node.read(f'{path}/device')}"
    always = kind.startswith(INFINIBAND) or bool(EFA.fullmatch(model))
    if not always and not MELLANOX.fullmatch(model):
        return []
    shown = f"network controller {slot}{'' if 'None' in model else f' ({model})'}"
    if not _is_driven(node, path):
        return [f"{shown} has no driver"]
    # Of the others the auxiliary bus says whether RDMA is switched on.
    if always or not os.path.isdir(node.path(AUXILIARY)):
        return [f"{shown} has a driver and gives no RDMA device"]
    return []


def _is_driven(node: Node, path: str) -> bool:
    return os.path.lexists(node.path(f"{path}/driver"))


def _names(node: Node, folder: str) -> list[str]:
    try:
        return sorted(os.listdir(node.path(folder)))
    except OSError:
        return []
