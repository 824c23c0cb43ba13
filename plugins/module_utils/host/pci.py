# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI Express of a machine: the links to its devices and the ports above them, and the errors that devices and ports have counted.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.look import Look
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import BARE_METAL, Tree

DEVICES, SLOTS = "/sys/bus/pci/devices", "/sys/bus/pci/slots"
BRIDGE = 0x0604
# Beginnings of the class code of devices whose links matter: {code: word}.
KINDS = {0x0300: "GPU", 0x0302: "GPU", 0x1200: "accelerator", 0x0200: "NIC", 0x0207: "NIC", 0x0280: "NIC", 0x0108: "NVMe"}
# An idle GPU lets its link sleep: its speed is measured under load by other stages. Of these also the slot is looked at: one with fewer
# lanes than they have is worth a look, where a small NIC or a disk is built for that.
ACCELERATORS = ("GPU", "accelerator")
# Uncorrectable errors that are not fatal and by which data was lost, or a device did not answer: poisoned data, a timeout of a
# completion, a checksum, an overflow, a malformed packet (PCI Express Base Specification, section 6.2.7, table of transaction layer
# errors). The others (unsupported request, completer abort, unexpected completion, access control) are answers to requests of software.
LOSES_DATA = ("TLP", "CmpltTO", "ECRC", "RxOF", "MalfTLP", "UncorrIntErr", "DLP", "SDES", "FCP")
# Of the correctable errors one that only says that another, uncorrectable one was taken for advisory.
ADVISORY = "NonFatalErr"
# Correctable errors a day that are worth a look. The specification allows a bit error rate of 1e-12, 22,000 a day for 16 lanes of
# generation 4; healthy links show next to none.
CORRECTABLE_PER_DAY = 100.0


class PciDevice(t.NamedTuple):
    """One PCI device. `chain` are the addresses of the ports above it, that of the root first. Widths are lanes, speeds GT/s; None if the
    device has no link or does not say it."""

    address: str
    kind: str
    names: tuple[str, ...]
    chain: tuple[str, ...]
    width: int | None
    width_max: int | None
    speed: float | None
    speed_max: float | None

    def words(self) -> str:
        return f"{self.kind or 'device'} {' '.join((*self.names, self.address))}"


class Bus:
    """The PCI devices of a machine, {address: device}, and its slots."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.slots = {tree.text(f"{SLOTS}/{name}/address") or "": name for name in tree.names(SLOTS)}
        self.devices = {address: self._read(address) for address in tree.names(DEVICES)}

    def _read(self, address: str) -> PciDevice:
        of = f"{DEVICES}/{address}"
        path = os.path.realpath(self.tree.path(of))
        chain = [word for word in path.split("/") if re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", word)]
        kind = KINDS.get((self.tree.number(f"{of}/class") or 0) >> 8, "")
        names = [name for folder in ("infiniband", "nvme", "net") for name in self.tree.names(f"{of}/{folder}")]
        virtual = self.tree.exists(f"{of}/physfn")  # a virtual function has no link of its own
        widths = (_lanes(self.tree.number(f"{of}/{name}_link_width")) for name in ("current", "max"))
        speeds = (_gts(self.tree.text(f"{of}/{name}_link_speed")) for name in ("current", "max"))
        none = (None, None)
        return PciDevice(
            address, "" if virtual else kind, tuple(names[:2]), tuple(chain[:-1]), *(none if virtual else widths),
            *(none if virtual else speeds),
        )  # fmt: skip

    def slot(self, device: PciDevice) -> str:
        """Return the number of the physical slot in which a device is, by the slot's address or that of a port above it; "" if unknown."""
        for address in (device.address, *reversed(device.chain)):
            name = self.slots.get(address.rpartition(".")[0])
            if name:
                return name
        return ""

    def links(self, device: PciDevice) -> t.Iterator[tuple[PciDevice, PciDevice]]:
        """Yield the links from a device up to the root, as (lower end, upper end).

        The ports of a chain take turns: that of the root looks down, that of a switch above which it hangs looks up, the next one down.
        """
        chain = [self.devices[address] for address in (*device.chain, device.address) if address in self.devices]
        for index in range(len(chain) - 1, 0, -1):
            if index % 2:
                yield chain[index], chain[index - 1]

    def place(self, device: PciDevice) -> str:
        """Return a device with its slot and the ports above it, for people."""
        slot = self.slot(device)
        above = f", below {' > '.join(device.chain)}" if device.chain else ""
        return device.words() + (f" in slot {slot}" if slot else "") + above


class Counters(t.NamedTuple):
    """Errors that a device or port has counted since boot, {name of the error: how often}, without the totals."""

    correctable: dict[str, int]
    nonfatal: dict[str, int]
    fatal: dict[str, int]


def counters(tree: Tree, address: str) -> Counters | None:
    """Return the counters of a device by the kernel's AER driver (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats); None if it
    has none."""
    texts = [tree.text(f"{DEVICES}/{address}/aer_dev_{kind}") for kind in ("correctable", "nonfatal", "fatal")]
    if all(text is None for text in texts):
        return None
    read = [dict(re.findall(r"(?m)^(\w+) (\d+)$", text or "")) for text in texts]
    return Counters(*({name: int(n) for name, n in values.items() if not name.startswith("TOTAL_") and int(n)} for values in read))


def look(tree: Tree, look: Look, correctable_per_day: float) -> None:
    """Look at links and error counters."""
    bus = Bus(tree)
    if not bus.devices:
        look.missed("pcie_link", f"PCIe links: {DEVICES} is missing or empty", demanded=True)
        return
    endpoints = [device for device in bus.devices.values() if device.kind and device.width]
    for device in bus.devices.values():
        if (device.kind or device.width) and (tree.data(f"{DEVICES}/{device.address}/config") or b"")[:4] == b"\xff" * 4:
            look.found("pcie_error", f"{bus.place(device)}: it does not answer: all bits of its configuration are set")
    if tree.is_virtual():
        look.missed("pcie_link", "PCIe links: those that a virtual machine shows are not those of the machine")
    elif look.place == BARE_METAL or endpoints:
        look.saw(f"PCIe links of {len(endpoints)} GPUs, NICs and NVMe disks, and of the ports above them")
        look.details["links"] = [_row(bus, device) for device in endpoints]
        _look_at_links(bus, endpoints, look)
    else:
        look.missed("pcie_link", f"PCIe links: no GPU, NIC or NVMe disk is among the devices that this {look.place} shows")
    uptime = float((tree.text("/proc/uptime") or "0").split()[0] or 0)
    allowed = correctable_per_day * max(1.0, uptime / 86400)
    errors_of = {address: counted for address in bus.devices if (counted := counters(tree, address)) is not None}
    if not errors_of:
        look.missed("aer", "PCIe errors: no device has counters (aer_dev_fatal); the firmware may keep them to itself")
        return
    look.saw(f"PCIe error counters of {len(errors_of)} devices and ports (AER)")
    for address, errors in errors_of.items():
        _look_at_errors(bus.place(bus.devices[address]), errors, allowed, look)


def _look_at_links(bus: Bus, endpoints: list[PciDevice], look: Look) -> None:
    by_link: dict[tuple[str, str], list[PciDevice]] = {}
    for device in endpoints:
        for low, high in bus.links(device):
            by_link.setdefault((low.address, high.address), []).append(device)
    for (below, above), devices in by_link.items():
        low, high = bus.devices[below], bus.devices[above]
        if not (low.width and low.width_max and high.width_max):
            continue
        is_own = low.address == devices[0].address
        where = bus.place(low) if is_own else f"the port {low.address} above {', '.join(bus.place(device) for device in devices[:2])}"
        can = min(low.width_max, high.width_max)
        if low.width < can:
            words = f"{where}: its PCIe link is x{low.width} and can be x{can}: reseat the device, its riser or its cable"
            look.found("pcie_width", words)
        elif is_own and low.kind in ACCELERATORS and high.width_max < low.width_max:
            look.found("pcie_slot", f"{where}: its slot has x{high.width_max}, and it can use x{low.width_max}")
        speeds = low.speed, low.speed_max, high.speed_max
        if None not in speeds and not (is_own and low.kind in ACCELERATORS):
            speed, best = float(low.speed or 0), min(float(low.speed_max or 0), float(high.speed_max or 0))
            asleep = any(device.kind in ACCELERATORS for device in devices)
            if speed < best and not asleep:
                look.found("pcie_slow", f"{where}: its PCIe link runs at {speed:g} GT/s and can run at {best:g} GT/s")


def _look_at_errors(where: str, errors: Counters, allowed: float, look: Look) -> None:
    if errors.fatal:
        look.found("pcie_error", f"{where}: fatal PCIe errors since boot: {_listed(errors.fatal)}")
    lost = {name: n for name, n in errors.nonfatal.items() if name in LOSES_DATA}
    if lost:
        look.found("pcie_error", f"{where}: PCIe errors since boot by which data was lost: {_listed(lost)}")
    answered = {name: n for name, n in errors.nonfatal.items() if name not in LOSES_DATA}
    if answered:
        look.found("pcie_nonfatal", f"{where}: PCIe requests since boot that were refused: {_listed(answered)}")
    corrected = {name: n for name, n in errors.correctable.items() if name != ADVISORY}
    if sum(corrected.values()) > allowed:
        look.found("pcie_corrected", f"{where}: corrected PCIe errors since boot: {_listed(corrected)}, more than {allowed:.0f}")


def _listed(errors: dict[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in errors.items())


def _row(bus: Bus, device: PciDevice) -> dict[str, t.Any]:
    return {
        "device": device.address, "kind": device.kind, "names": list(device.names), "slot": bus.slot(device), "above": list(device.chain),
        "width": device.width, "width_max": device.width_max, "speed": device.speed, "speed_max": device.speed_max,
    }  # fmt: skip


def _lanes(number: int | None) -> int | None:
    """Return a width of a link. The kernel says 255, 63 or 0 for a device that has no link or does not answer."""
    return number if number in (1, 2, 4, 8, 12, 16, 32) else None


def _gts(text: str | None) -> float | None:
    match = re.match(r"([\d.]+) GT/s", text or "")
    return float(match.group(1)) if match else None
