# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings and equipment of a machine that must be the same on identical machines, as facts: text, number or list by name.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import struct
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import memory, pci
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import BARE_METAL, Tree, span
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import host_memory

CPU, NODES = "/sys/devices/system/cpu", "/sys/devices/system/node"
OCI_HOOKS = ("/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d")
# Extended capability "Access Control Services", and the bits of its control that send what one device writes to another by way of the
# root (PCI Express Base Specification, section 7.7.11).
_ACS, _REDIRECTS = 0x000D, 0x1C


def facts(node: Node) -> dict[str, t.Any]:
    """Return the facts; one that cannot be seen is None."""
    tree = Tree(node)
    return {
        "dimms": _dimms(tree),
        **_cpu(tree),
        "numa_layout": _numa(tree) or None,
        "iommu": _iommu(tree),
        "pcie_acs": _acs(tree),
        "nvme_disks": _nvme(tree) or None,
        "oci_hooks": sorted({name for folder in OCI_HOOKS for name in tree.names(folder)}) or None,
    }


def _dimms(tree: Tree) -> t.Any:
    if tree.data(memory.DMI) is None and tree.place() == BARE_METAL:
        return f"unreadable: {memory.DMI} is missing or may not be read"
    return [dimm.words() for dimm in memory.dimms(tree)] or None


def _iommu(tree: Tree) -> str | None:
    """Return the types of the IOMMU's groups; "off" if there are none, None if they cannot be read."""
    of = "/sys/kernel/iommu_groups"
    types = {tree.text(f"{of}/{group}/type") for group in tree.names(of)}
    if None in types or not tree.exists(of):
        return None
    return " ".join(sorted(str(kind) for kind in types)) or "off"


def _cpu(tree: Tree) -> dict[str, t.Any]:
    limits = {tree.number(f"{CPU}/{name}/cpufreq/scaling_max_freq") for name in tree.names(CPU) if name[3:].isdigit()}
    no_turbo, boost = tree.text(f"{CPU}/intel_pstate/no_turbo"), tree.text(f"{CPU}/cpufreq/boost")
    states = {"1": "on", "0": "off"}
    return {
        "cpu_max_mhz": sorted(limit // 1000 for limit in limits if limit) or None,
        "cpu_boost": states.get(boost or "") or {"0": "on", "1": "off"}.get(no_turbo or ""),
        "cpu_smt": tree.text(f"{CPU}/smt/control") or None,
    }


def _numa(tree: Tree) -> list[str]:
    return [
        f"node {number}: CPUs {span(cpus)}, distances {tree.text(f'{NODES}/node{number}/distance') or 'unknown'}"
        for number, cpus in sorted(host_memory.numa_nodes(tree.path("/sys")).items())
    ]


def _acs(tree: Tree) -> str | None:
    """Return at how many ports writes between devices go by way of the root; None if the ports do not show it, as without root."""
    ports = [address for address in tree.names(pci.DEVICES) if (tree.number(f"{pci.DEVICES}/{address}/class") or 0) >> 8 == pci.BRIDGE]
    controls = [control for port in ports if (control := _acs_control(tree.data(f"{pci.DEVICES}/{port}/config") or b"")) is not None]
    if not controls:
        return None
    return f"redirects at {sum(bool(control & _REDIRECTS) for control in controls)} of {len(controls)} ports"


def _acs_control(config: bytes) -> int | None:
    """Return the control word of access control services in a device's configuration; None if it has none or it may not be read."""
    at, seen_offsets = 0x100, set()
    while at and at not in seen_offsets and at + 8 <= len(config):
        seen_offsets.add(at)
        (header,) = struct.unpack_from("<I", config, at)
        if header & 0xFFFF == _ACS:
            return int(struct.unpack_from("<H", config, at + 6)[0])
        at = header >> 20
    return None


def _nvme(tree: Tree) -> list[str]:
    """Return the models of NVMe disks with their firmware, and how many of each there are."""
    of = "/sys/class/nvme"
    models = collections.Counter(
        f"{tree.text(f'{of}/{name}/model') or 'unknown'}, firmware {tree.text(f'{of}/{name}/firmware_rev') or 'unknown'}"
        for name in tree.names(of)
    )
    return [f"{count} x {model}" for model, count in sorted(models.items())]
