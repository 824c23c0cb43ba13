# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI Express of a machine: the links to its devices and the ports above them, and the errors that devices and ports have counted.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import os
import re
import statistics
import struct
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, number
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.check_report import CheckReport
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
# Types of devices and ports (PCI Express Base Specification, 7.5.3.2, Device/Port Type) that have a link below them: of the root, of a
# switch downstream, and a bridge from PCI; and above them: endpoints, upstream ports, and a bridge to PCI.
_LINK_BELOW, _LINK_ABOVE = (0x4, 0x6, 0x8), (0x0, 0x1, 0x5, 0x7)
# Values of a link's width that say that the device does not answer: all bits of the field are set.
_NO_ANSWER = (63, 255)
# A device that has counted so many times what its siblings have is worth a look, however long the machine is up: a rate over months
# hides a day.
BESIDE_SIBLINGS = 10.0
# Of the correctable errors one that only says that another, uncorrectable one was taken for advisory.
ADVISORY = "NonFatalErr"
# Correctable errors a day that are worth a look. The specification allows a bit error rate of 1e-12, 22,000 a day for 16 lanes of
# generation 4; healthy links show next to none.
CORRECTABLE_PER_DAY = 100.0


class PciDevice(t.NamedTuple):
    """One PCI device. `chain` are the addresses of the ports above it, that of the root first; `depth` of them are above its own host
    bridge, as a disk behind Intel's VMD has it. Widths are lanes, speeds GT/s; None if the device has no link or does not say it. `port`
    is the type of the port, `model` the vendor and number of the device and its card; None and "" if unknown."""

    address: str
    kind: str
    names: tuple[str, ...]
    chain: tuple[str, ...]
    width: int | None
    width_max: int | None
    speed: float | None
    speed_max: float | None
    depth: int = 0
    port: int | None = None
    model: str = ""

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
        words = path.split("/")
        chain = [word for word in words if _ADDRESS.fullmatch(word)]
        bridges = [index for index, word in enumerate(words) if _HOST_BRIDGE.fullmatch(word)]
        depth = sum(bool(_ADDRESS.fullmatch(word)) for word in words[: bridges[-1]]) if bridges else 0
        kind = KINDS.get((self.tree.number(f"{of}/class") or 0) >> 8, "")
        names = [name for folder in ("infiniband", "nvme", "net") for name in self.tree.names(f"{of}/{folder}")]
        virtual = self.tree.exists(f"{of}/physfn")  # a virtual function has no link of its own
        widths = [None if virtual else _lanes(self.tree.number(f"{of}/{name}_link_width")) for name in ("current", "max")]
        speeds = [None if virtual else _gts(self.tree.text(f"{of}/{name}_link_speed")) for name in ("current", "max")]
        return PciDevice(
            address, "" if virtual else kind, tuple(names[:2]), tuple(chain[:-1]), widths[0], widths[1], speeds[0], speeds[1], depth,
            _port_type(self.tree.data(f"{of}/config") or b""), self._model(of),
        )  # fmt: skip

    def _model(self, of: str) -> str:
        ids = [self.tree.text(f"{of}/{name}") for name in ("vendor", "device", "subsystem_vendor", "subsystem_device")]
        return ":".join(word or "" for word in ids) if ids[0] and ids[1] else ""

    def slot(self, device: PciDevice) -> str:
        """Return the number of the physical slot in which a device is, by the slot's address or that of a port above it; "" if unknown."""
        for address in (device.address, *reversed(device.chain)):
            name = self.slots.get(address.rpartition(".")[0])
            if name:
                return name
        return ""

    def links(self, device: PciDevice) -> t.Iterator[tuple[PciDevice, PciDevice]]:
        """Yield the links from a device up to the root, as (lower end, upper end).

        The types of the ports say which two are the ends of a link. Where they may not be read, as without root, the ports take turns from
        the device up: above a device is a link, above the port there the inside of a switch, if anything.
        """
        chain = (*device.chain, device.address)
        for index in range(len(chain) - 1, device.depth, -1):
            low, high = self.devices.get(chain[index]), self.devices.get(chain[index - 1])
            if low and high and _is_link(low.port, high.port, (len(chain) - 1 - index) % 2 == 0):
                yield low, high

    def place(self, device: PciDevice) -> str:
        """Return a device with its slot and the ports above it, for people."""
        slot = self.slot(device)
        above = f", below {' > '.join(device.chain)}" if device.chain else ""
        return device.words() + (f" in slot {slot}" if slot else "") + above


class Counters(t.NamedTuple):
    """Errors that a device or port has counted since boot, {name of the error: how often}, without the totals; and what of them could not
    be read."""

    correctable: dict[str, int]
    nonfatal: dict[str, int]
    fatal: dict[str, int]
    unread: tuple[str, ...] = ()

    def corrected(self) -> int:
        return sum(n for name, n in self.correctable.items() if name != ADVISORY)


def counters(tree: Tree, address: str) -> Counters | None:
    """Return the counters of a device by the kernel's AER driver (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats); None if it
    has none."""
    texts = [tree.text(f"{DEVICES}/{address}/aer_dev_{kind}") for kind in ("correctable", "nonfatal", "fatal")]
    if all(text is None for text in texts):
        return None
    read = [_counted(kind, text) for kind, text in zip(("correctable", "nonfatal", "fatal"), texts)]
    correctable, nonfatal, fatal = (dict(counts) for counts, _unread in read)
    return Counters(correctable, nonfatal, fatal, tuple(words for _counts, unread in read for words in unread))


@functools.lru_cache(maxsize=1024)  # most devices of a machine have the same three texts, before and after each test
def _counted(kind: str, text: str | None) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return {name of an error: how often}, without totals and errors that did not happen, and what could not be read of one file."""
    counts: dict[str, int] = {}
    unread: list[str] = []
    if not text:
        unread.append(f"aer_dev_{kind} is {'missing' if text is None else 'empty'}")
    for line in (text or "").splitlines():
        name, _blank, cell = line.strip().partition(" ")
        count = number(cell, f"{name} of aer_dev_{kind}")
        if isinstance(count, Absent) or count < 0:
            unread.append(count.why if isinstance(count, Absent) else f"{name} of aer_dev_{kind} reads {count}")
        elif count and not name.startswith("TOTAL_"):
            counts[name] = int(count)
    return counts, tuple(unread)


def inspect(tree: Tree, report: CheckReport, correctable_per_day: float) -> None:
    """Look at links and error counters."""
    bus = Bus(tree)
    if not bus.devices:
        report.missed("pcie_link", f"PCIe links: {DEVICES} is missing or empty", demanded=True)
        return
    endpoints = [device for device in bus.devices.values() if device.kind and device.width]
    for device in bus.devices.values():
        if (device.kind or device.width) and (tree.data(f"{DEVICES}/{device.address}/config") or b"")[:4] == b"\xff" * 4:
            report.found("pcie_error", f"{bus.place(device)}: it does not answer: all bits of its configuration are set")
    if tree.is_virtual():
        report.missed("pcie_link", "PCIe links: those that a virtual machine shows are not those of the machine")
    elif report.place == BARE_METAL or endpoints:
        report.saw(f"PCIe links of {len(endpoints)} GPUs, NICs and NVMe disks, and of the ports above them")
        report.details["links"] = [_row(bus, device) for device in endpoints]
        _look_at_links(bus, endpoints, report)
        silent = [words for device in bus.devices.values() if device.kind for words in _unread(bus, device)]
        # Kernels older than a generation of PCI Express call its speed unknown; that of an accelerator is told under load.
        slow = [device for device in endpoints if device.kind not in ACCELERATORS and None in (device.speed, device.speed_max)]
        if silent:
            report.silent("pcie_link", f"PCIe links: {'; '.join(silent[:4])}")
        elif slow:
            report.missed("pcie_link", f"PCIe links: the kernel does not tell the speed of {', '.join(map(bus.place, slow[:4]))}")
    else:
        report.missed("pcie_link", f"PCIe links: no GPU, NIC or NVMe disk is among the devices that this {report.place} shows")
    # Without the time since boot, a day is allowed.
    uptime = number((tree.text("/proc/uptime") or "").partition(" ")[0], "the time since boot")
    days = 1.0 if isinstance(uptime, Absent) else max(1.0, uptime / 86400)
    errors_of = {address: counted for address in bus.devices if (counted := counters(tree, address)) is not None}
    if not errors_of:
        report.missed("aer", "PCIe errors: no device has counters (aer_dev_fatal); the firmware may keep them to itself")
        return
    report.saw(f"PCIe error counters of {len(errors_of)} devices and ports (AER)")
    unread = [
        f"{bus.place(bus.devices[address])}: {'; '.join(errors.unread[:3])}" for address, errors in errors_of.items() if errors.unread
    ]
    if unread:
        report.silent("aer", f"PCIe errors: counters are there and cannot be read: {'; '.join(unread[:4])}")
    for address, errors in errors_of.items():
        device = bus.devices[address]
        _look_at_errors(bus.place(device), errors, correctable_per_day * days, report)
        sibling_counts = [
            other.corrected() for sibling, other in errors_of.items() if sibling != address and _are_siblings(bus.devices[sibling], device)
        ]
        usual = statistics.median(sibling_counts) if sibling_counts else None
        if usual is not None and correctable_per_day * days >= errors.corrected() > max(correctable_per_day, BESIDE_SIBLINGS * usual):
            words = f"corrected PCIe errors since boot: {errors.corrected()}, where its siblings have {usual:g}"
            report.found("pcie_corrected", f"{bus.place(device)}: {words}")


def _unread(bus: Bus, device: PciDevice) -> t.Iterator[str]:
    """Yield words for each width that an end of the links of a device should say and does not."""
    ends = [device, *(bus.devices[address] for address in device.chain[device.depth :] if address in bus.devices)]
    for end in ends:
        for name, known, other in (("current", end.width, end.width_max), ("max", end.width_max, end.width)):
            path = f"{DEVICES}/{end.address}/{name}_link_width"
            value = bus.tree.number(path)
            has_none = value == 0 or (value in _NO_ANSWER and not other)  # as of a device inside of a chip
            is_expected = bus.tree.exists(path) or other is not None
            if known is None and is_expected and not has_none and not bus.tree.exists(f"{DEVICES}/{end.address}/physfn"):
                yield f"{bus.place(end)}: the {'' if name == 'current' else 'greatest '}width of its link cannot be read"


def _are_siblings(one: PciDevice, other: PciDevice) -> bool:
    return one.model == other.model if one.model and other.model else bool(one.kind) and one.kind == other.kind


def _is_link(below: int | None, above: int | None, is_turn: bool) -> bool:
    """Return whether a port and what hangs below it are the ends of a link, by their types; by their places if neither is known."""
    if below is not None:
        return below in _LINK_ABOVE
    return above in _LINK_BELOW if above is not None else is_turn


def _port_type(config: bytes) -> int | None:
    """Return the type of a port by its configuration; None if it has no PCI Express capability, or that may not be read."""
    if len(config) <= 0x40 or not config[0x06] & 0x10 or config[:4] == b"\xff" * 4:
        return None
    at, seen = config[0x34] & 0xFC, 0
    while 0x40 <= at <= len(config) - 4 and seen < 48:
        if config[at] == 0x10:
            return int(struct.unpack_from("<H", config, at + 2)[0]) >> 4 & 0xF
        at, seen = config[at + 1] & 0xFC, seen + 1
    return None


_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


def _look_at_links(bus: Bus, endpoints: list[PciDevice], report: CheckReport) -> None:
    for device in endpoints:
        own = next(bus.links(device), None)
        _look_at_slot(bus, device, own[1] if own and own[0] is device else None, endpoints, report)
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
            report.found("pcie_width", words)
        elif is_own and low.kind in ACCELERATORS and high.width_max < low.width_max:
            report.found("pcie_slot", f"{where}: its slot has x{high.width_max}, and it can use x{low.width_max}")
        speeds = low.speed, low.speed_max, high.speed_max
        if None not in speeds and not (is_own and low.kind in ACCELERATORS):
            speed, best = float(low.speed or 0), min(float(low.speed_max or 0), float(high.speed_max or 0))
            asleep = any(device.kind in ACCELERATORS for device in devices)
            if speed < best and not asleep:
                report.found("pcie_slow", f"{where}: its PCIe link runs at {speed:g} GT/s and can run at {best:g} GT/s")


def _look_at_slot(bus: Bus, device: PciDevice, port: PciDevice | None, endpoints: list[PciDevice], report: CheckReport) -> None:
    """Compare a device with identical ones of the machine. What the slot can do, where it says so, is judged with the link."""
    widest = max((other.width or 0 for other in endpoints if device.model and other.model == device.model), default=0)
    if device.width and device.width_max and device.width == device.width_max < widest:
        words = f"it says that it can use x{device.width_max}, where an identical device has x{widest}"
        report.found("pcie_slot", f"{bus.place(device)}: {words}")
    fastest = max((other.speed or 0 for other in endpoints if device.model and other.model == device.model), default=0)
    slot_speed = port.speed_max if port else None
    is_at_best = bool(device.speed and slot_speed and device.speed >= min(slot_speed, device.speed_max or slot_speed))
    if device.kind not in ACCELERATORS and is_at_best and (device.speed or 0) < fastest:
        words = f"its PCIe link has {device.speed:g} GT/s in its slot; an identical device of this machine has {fastest:g}"
        report.found("pcie_slot", f"{bus.place(device)}: {words}")
    if not (device.width and device.width_max and device.width < device.width_max):
        return
    lanes = f"its PCIe link is x{device.width} and it can use x{device.width_max}"
    if port is None or port.width_max is None:
        if widest > device.width:
            words = f"{lanes}; an identical device of this machine has x{widest}: reseat the device, its riser or its cable"
            report.found("pcie_width", f"{bus.place(device)}: {words}")
        else:
            report.found("pcie_slot", f"{bus.place(device)}: {lanes}; what its slot can do is not known")
    elif port.width_max <= device.width < widest and device.kind not in ACCELERATORS:
        report.found("pcie_slot", f"{bus.place(device)}: its slot has x{port.width_max}; an identical device of this machine has x{widest}")


def _look_at_errors(where: str, errors: Counters, allowed: float, report: CheckReport) -> None:
    if errors.fatal:
        report.found("pcie_error", f"{where}: fatal PCIe errors since boot: {_listed(errors.fatal)}")
    lost = {name: n for name, n in errors.nonfatal.items() if name in LOSES_DATA}
    if lost:
        report.found("pcie_error", f"{where}: PCIe errors since boot by which data was lost: {_listed(lost)}")
    answered = {name: n for name, n in errors.nonfatal.items() if name not in LOSES_DATA}
    if answered:
        report.found("pcie_nonfatal", f"{where}: PCIe requests since boot that were refused: {_listed(answered)}")
    corrected = {name: n for name, n in errors.correctable.items() if name != ADVISORY}
    if sum(corrected.values()) > allowed:
        report.found("pcie_corrected", f"{where}: corrected PCIe errors since boot: {_listed(corrected)}, more than {allowed:.0f}")


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
