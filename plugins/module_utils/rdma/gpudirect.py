# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""perftest with its buffers in the memory of GPUs: each RDMA device with the GPU that is nearest to it on the PCI bus.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import registry
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import ports as rdma_ports
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

# What perftest says if it was built without GPUs, or the GPU's memory cannot be registered.
_REFUSALS = (
    "usage text", "Unsupported memory type", "unrecognized option", "Couldn't allocate MR", "ailed to create MR", "ailed to init memory",
    "Couldn't init GPU context", "could not open kernel conf file", "failed to export dmabuf handle", "hipMalloc error",
)  # fmt: skip
ADVICE = "install a perftest that is built for these GPUs, and load the kernel module for peer memory or use a driver with DMA-BUF"
NO_GPU = "no GPU whose memory perftest can use is on the PCI bus, or its place among those that HIP sees is not known"


def options(node: Node, devices: t.Sequence[dict[str, t.Any]]) -> dict[str, list[str]]:
    """Return {RDMA device: perftest's options for buffers in the memory of its nearest GPU}, of those that have one. `devices` are those
    of rdma_ports.read_devices."""
    kinds = {kind.pci[0]: kind for kind in registry.KINDS.values() if kind.pci and kind.perftest_device}
    near = rdma_ports.nearest_accelerators(node, list(devices), {vendor: kind.pci[1] for vendor, kind in kinds.items() if kind.pci})
    words = {}
    for device, slot in near.items():
        kind = kinds[str(node.read(f"/sys/bus/pci/devices/{slot}/vendor"))]
        loaded = any(os.path.isdir(node.path(f"/sys/module/{name}")) for name in kind.peer_memory)
        number = kind.perftest_number(node, slot)
        if number is not None:
            words[device] = [f"{kind.perftest_device}={number}", *([] if loaded else [kind.perftest_dmabuf])]
    return words


def is_refusal(text: str) -> bool:
    """Return True if this output or reason says that perftest cannot use the memory of a GPU."""
    return any(mark in text for mark in _REFUSALS)
