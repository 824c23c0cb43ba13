# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of the machine beside its accelerators while a test runs: error counters, devices and states that cost no more than some
hundred small files of /sys and /proc, read before and after the test.

Each change has the reason code that a health check of the machine would have given. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import re
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import kernel, memory, pci
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import kernel_log

# A change of the evidence of a test: {"code", "part", "text", "before", "after"}.
Change = t.Dict[str, t.Any]

# Corrected errors a second of one device above which its link is out of specification: ten times the 0.5 that a bit error rate of 1e-12
# gives 16 lanes of generation 5 (PCI Express Base Specification 5.0, section 8.4, receivers).
UNSTABLE_PER_S = 5.0
# A shorter test counts as this long: a link that trains once counts hundreds of errors in an instant.
UNSTABLE_OVER_S = 60.0
INFINIBAND, NETWORK, NVME = "/sys/class/infiniband", "/sys/class/net", "/sys/class/nvme"
BLOCK = "/sys/block"
# Class codes of adapters whose disks are the machine's own: RAID, SATA, SAS (PCI Code and ID Assignment Specification, base class 01).
# Volumes of a network come by Fibre Channel (0C04), by a network's adapter (02) or by none (iSCSI).
LOCAL_ADAPTERS = (0x0104, 0x0106, 0x0107)
# States of an NVMe controller that does not serve its disks (drivers/nvme/host/sysfs.c of Linux, nvme_sysfs_show_state). `resetting` and
# `connecting` pass, and the kernel's log has why.
NVME_DEAD = ("dead", "deleting (no IO)", "deleting")
PCIE = "pcie"
# How the name of a network interface begins among ports.
INTERFACE = "the network interface "


class State(t.NamedTuple):
    """The machine at one moment. A value that cannot be read is not in the mappings."""

    at: float  # of the monotonic clock
    memory: list[memory.Counted]
    poisoned_kib: int | None  # memory that the kernel took out of use
    devices: dict[str, str]  # {PCI address: kind} of GPUs, NICs and NVMe disks, virtual functions left out; see devices()
    errors: dict[str, pci.Counters]  # {PCI address: its error counters}
    disks: dict[str, str]  # {NVMe controller: state}
    ports: dict[str, bool]  # {port in words: whether it has a link}
    losses: dict[str, int]  # {port in words: how often it lost its link}
    passing: frozenset[str] = frozenset()  # RDMA ports of virtual functions and of software, which come and go with their owner


def read(tree: Tree) -> State:
    """Return the state of the machine now."""
    addresses = tree.names(pci.DEVICES)
    errors = {address: counted for address in addresses if (counted := pci.counters(tree, address)) is not None}
    disks = {name: tree.text(f"{NVME}/{name}/state") for name in local_nvme(tree)}
    ports, losses, passing = _ports(tree)
    poisoned = re.search(r"HardwareCorrupted:\s+(\d+) kB", tree.text("/proc/meminfo") or "")
    return State(
        time.monotonic(), memory.counted(tree), int(poisoned.group(1)) if poisoned else None,
        devices(tree), errors, {name: state for name, state in disks.items() if state},
        ports, losses, passing,
    )  # fmt: skip


def local_nvme(tree: Tree) -> list[str]:
    """Return the NVMe controllers of a machine itself: not those of a network, nor of a virtual machine, which come and go with volumes."""
    names = [] if tree.is_virtual() else [name for name in tree.names(NVME) if re.fullmatch(r"nvme\d+", name)]
    return [name for name in names if (tree.text(f"{NVME}/{name}/transport") or PCIE) == PCIE]


def local_disks(tree: Tree) -> list[str]:
    """Return the NVMe controllers of a machine itself, and its SATA and SAS disks by model and identity: `sda` may be another disk after
    one has come back. No removable media, none of a virtual machine, and a disk on two paths once."""
    if tree.is_virtual():
        return []
    found = {words for name in tree.names(BLOCK) if re.fullmatch(r"sd[a-z]+", name) and (words := _scsi(tree, name))}
    return [*local_nvme(tree), *sorted(found)]


def _scsi(tree: Tree, name: str) -> str:
    """Return a SATA or SAS disk behind an adapter of the machine in words, by its WWN, serial number or, without both, its place; empty for
    any other disk."""
    of = f"{BLOCK}/{name}"
    real = os.path.realpath(tree.path(of))
    if tree.text(f"{of}/removable") == "1" or "/usb" in real:
        return ""
    adapter = next(iter(re.findall(r"/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?=/)", real)[::-1]), "")
    if (tree.number(f"{pci.DEVICES}/{adapter}/class") or 0) >> 8 not in LOCAL_ADAPTERS:
        return ""
    serial = (tree.data(f"{of}/device/vpd_pg80") or b"")[4:].decode("ascii", "replace").strip(" \0")
    place = re.findall(r"/(\d+:\d+:\d+:\d+)(?=/)", real)
    identity = tree.text(f"{of}/device/wwid") or serial or (f"at {place[-1]} of {adapter}" if place else name)
    return " ".join(f"disk {tree.text(f'{of}/device/model') or ''} {identity}".split())


def devices(tree: Tree) -> dict[str, str]:
    """Return {PCI address: kind} of the GPUs, NICs and NVMe disks of a machine, virtual functions left out. Those of a virtual machine are
    given and taken while it runs, as volumes and addresses of containers are: none."""
    if tree.is_virtual():
        return {}
    kinds = {address: _kind(tree, address) for address in tree.names(pci.DEVICES)}
    return {address: kind for address, kind in kinds.items() if kind}


def between(before: State, after: State) -> list[Change]:
    """Return what changed for the worse from one moment to a later one."""
    changes = memory.risen(before.memory, after.memory)
    if before.poisoned_kib is not None and after.poisoned_kib is not None and after.poisoned_kib > before.poisoned_kib:
        words = f"the kernel took memory out of use: {before.poisoned_kib} KiB before, {after.poisoned_kib} KiB after the test"
        changes.append(_change("host_memory", words, before.poisoned_kib, after.poisoned_kib))
    for address, kind in before.devices.items():
        if address not in after.devices and kind not in pci.ACCELERATORS:  # the driver's list shows a lost accelerator
            changes.append(_change("pcie_error", f"the {kind} at {address} is no longer on the PCI bus"))
    for address, errors in after.errors.items():
        changes += _errors(address, before, errors, max(after.at - before.at, 1.0))
    for name in before.disks:
        state = after.disks.get(name)
        if before.disks[name] not in NVME_DEAD and (state is None or state in NVME_DEAD):
            changes.append(_change("disk", f"the NVMe disk {name} is {state or 'gone'} after the test"))
    for name, had_link in before.ports.items():
        if had_link and name not in after.ports:
            # A network interface goes to a container, or is switched off, which hides its link; an RDMA port stays.
            if not name.startswith(INTERFACE) and name not in before.passing:
                words = f"{name} is gone after the test, or does not tell its state, and had a link before"
                changes.append(_change("nic_fault", words))
        elif had_link and not after.ports[name]:
            changes.append(_change("port_down", f"{name} has no link after the test, and had one before"))
    for name, count in after.losses.items():
        old = before.losses.get(name)
        if old is not None and count > old:
            device, _port, number = name.partition(" port ")
            part = f"nic/{device}/{number}" if number else ""
            counter = "link_downed" if number else "carrier_down_count"
            changes.append(_change("link_errors", f"{name}: {counter} rose from {old} to {count}", old, count, part))
    return changes


def counted(state: State) -> list[t.Any]:
    """Return what of a state must not change between two tests if nothing happened, as plain data."""
    return [
        [list(counter) for counter in state.memory], state.poisoned_kib, sorted(state.devices), sorted(state.disks.items()),
        {address: [errors.nonfatal, errors.fatal] for address, errors in sorted(state.errors.items()) if errors.nonfatal or errors.fatal},
        sorted(state.ports.items()), sorted(state.losses.items()),
    ]  # fmt: skip


def logged(lines: t.Iterable[kernel_log.Line], tree: Tree) -> list[Change]:
    """Return the errors of the machine that lines of the kernel tell of, one for each kind and place."""
    return [_change(error.code, f"the kernel logged: {error.words}", 0, count) for error, count in kernel.during(lines, tree)]


def _change(code: str, text: str, before: int | None = None, after: int | None = None, part: str = "") -> Change:
    return {"code": code, "part": part, "text": text, "before": before, "after": after}


def _kind(tree: Tree, address: str) -> str:
    of = f"{pci.DEVICES}/{address}"
    kind = pci.KINDS.get((tree.number(f"{of}/class") or 0) >> 8, "")
    return kind if kind and not tree.exists(f"{of}/physfn") else ""


def _errors(address: str, before: State, after: pci.Counters, seconds: float) -> t.Iterator[Change]:
    """Yield a change for each class of errors of a device that rose, with the classes of pci.inspect."""
    old = before.errors.get(address)
    if old is None:  # a device that was not there, or counters that could not be read: they begin at an unknown number
        return
    kind = before.devices.get(address, "device")
    classes: list[tuple[str, str, dict[str, int], dict[str, int]]] = [
        ("pcie_error", "fatal PCIe errors", old.fatal, after.fatal),
        ("pcie_error", "PCIe errors by which data was lost", _those(old.nonfatal, True), _those(after.nonfatal, True)),
        ("pcie_nonfatal", "PCIe requests that were refused", _those(old.nonfatal, False), _those(after.nonfatal, False)),
    ]
    for code, meaning, earlier, later in classes:
        risen = {name: n for name, n in later.items() if n > earlier.get(name, 0)}
        if risen:
            words = ", ".join(f"{name} from {earlier.get(name, 0)} to {n}" for name, n in risen.items())
            total = sum(earlier.get(name, 0) for name in risen)
            yield _change(code, f"{kind} {address}: {meaning} rose: {words}", total, sum(risen.values()))
    first, last = (sum(n for name, n in of.correctable.items() if name != pci.ADVISORY) for of in (old, after))
    if last - first > pci.CORRECTABLE_PER_DAY * max(1.0, seconds / 86400):
        code = "pcie_unstable" if (last - first) / max(seconds, UNSTABLE_OVER_S) > UNSTABLE_PER_S else "pcie_corrected"
        rate = f"{last - first} in {seconds:.0f} s"
        yield _change(code, f"{kind} {address}: corrected PCIe errors rose from {first} to {last}, {rate}", first, last)


def _those(errors: t.Mapping[str, int], lose_data: bool) -> dict[str, int]:
    return {name: n for name, n in errors.items() if (name in pci.LOSES_DATA) is lose_data}


def _ports(tree: Tree) -> tuple[dict[str, bool], dict[str, int], frozenset[str]]:
    """Return whether each RDMA port and network interface of a PCI device has a link, how often it has lost it, and the RDMA ports that may
    come and go."""
    links: dict[str, bool] = {}
    losses: dict[str, int] = {}
    passing: set[str] = set()
    for device in tree.names(INFINIBAND):
        is_software = "/devices/virtual/" in os.path.realpath(tree.path(f"{INFINIBAND}/{device}"))
        may_go = is_software or tree.exists(f"{INFINIBAND}/{device}/device/physfn")
        for port in tree.names(f"{INFINIBAND}/{device}/ports"):
            of, name = f"{INFINIBAND}/{device}/ports/{port}", f"{device} port {port}"
            state = tree.text(f"{of}/state")
            if may_go:
                passing.add(name)
            if state:
                links[name] = state.partition(":")[0].strip() in ("4", "3")  # ACTIVE; ARMED is on its way there
            count = tree.number(f"{of}/counters/link_downed")
            if count is not None:
                losses[name] = count
    for interface in tree.names(NETWORK):
        of = f"{NETWORK}/{interface}"
        if not tree.exists(f"{of}/device/vendor") or tree.exists(f"{of}/device/physfn"):
            continue  # a bridge, a tunnel, the end of a container; a virtual function comes and goes with its owner
        carrier = tree.number(f"{of}/carrier")  # refused while the interface is switched off
        if carrier is not None:
            links[f"{INTERFACE}{interface}"] = carrier == 1
        count = tree.number(f"{of}/carrier_down_count")
        if count is not None:
            losses[f"{INTERFACE}{interface}"] = count
    return links, losses, frozenset(passing)
