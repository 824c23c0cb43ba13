# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Accelerators on the PCI bus, whatever their driver and its tool show: the witness for devices that the driver refused.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import CONTAINER, Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import container

DEVICES = "/sys/bus/pci/devices"
# Drivers that hold a device for a virtual machine (drivers/vfio/pci, drivers/xen/xen-pciback, drivers/pci/pci-stub.c).
FOR_GUESTS = re.compile(r".*vfio.*|pciback|xen[-_]pciback|pci[-_]stub")


class OnBus(t.NamedTuple):
    """A device on the bus. `driver`: the kernel driver that is bound to it, empty if none is. `shows`: it gives a console, as the first
    display of a machine does (boot_vga)."""

    address: str
    driver: str
    shows: bool


class Bus(t.NamedTuple):
    """The accelerators on the bus that the tool does not show: problems as (reason code, words), and the context of a record: how many
    devices are on the bus, which are held for guests, and which this process may not use. In a container a device with a driver may belong
    to others."""

    problems: list[tuple[str, str]]
    context: dict[str, t.Any]


def place(address: str) -> tuple[int, ...] | None:
    """`0000:1A:00.0`, `00000000:1a:00` -> (0, 0x1a, 0): tools write domains of different widths, and some no function."""
    try:
        return tuple(int(word, 16) for word in address.strip().partition(".")[0].split(":"))
    except ValueError:
        return None


def withheld(tree: Tree, path: str) -> str:
    """Return why this process may not use a device file: the kernel refuses it (a device cgroup, as Slurm and systemd set one, or the
    file's mode), or its container was not given it. Empty if it may be used, or if the file is missing where the machine has its own.

    access(2) asks the cgroup's rules as open(2) does (inode_permission of fs/namei.c, devcgroup_inode_permission of
    include/linux/device_cgroup.h), and does not wake the driver: a device that has failed may be opened, and the driver then reports it.
    A container that sees the machine's files, but not this one, may have it in its own /dev."""
    real = tree.path(path)
    if container.is_inside() and not os.path.exists(real):
        real = path
    if os.path.exists(real):
        return "" if os.access(real, os.R_OK | os.W_OK) else f"this process may not open {path}"
    return f"{path} was not given to this container" if has_own_devices(tree) else ""


def has_own_devices(tree: Tree) -> bool:
    """Return True if /dev is not that of the machine: containers of any kind, LXC and systemd-nspawn among them, have a tmpfs there."""
    rows = [line.split() for line in (tree.text("/proc/mounts") or "").splitlines()]
    kinds = [row[2] for row in rows if len(row) > 2 and row[1] == "/dev"]
    return bool(kinds) and kinds[-1] != "devtmpfs"


def devices(tree: Tree, vendor: str, classes: t.Collection[str]) -> list[OnBus]:
    """Return the devices of a vendor whose class code begins with one of `classes`, without virtual functions."""
    found = []
    for address in tree.names(DEVICES):
        of = f"{DEVICES}/{address}"
        if (tree.text(f"{of}/vendor") or "").lower() != vendor or not (tree.text(f"{of}/class") or "").lower().startswith(tuple(classes)):
            continue
        if os.path.lexists(tree.path(f"{of}/physfn")):
            continue
        path = tree.path(f"{of}/driver")
        driver = os.path.basename(os.path.realpath(path)) if os.path.lexists(path) else ""
        found.append(OnBus(address, driver, tree.text(f"{of}/boot_vga") == "1"))
    return found


def usable(
    tree: Tree, on_bus: t.Sequence[OnBus], drivers: t.Collection[str], not_ours: t.Callable[[str], str]
) -> list[OnBus]:
    """Return the devices that a machine has for itself: none that are held for guests, none that only give a console, and none that this
    process may not use, as in a job without any. A pod is asked for what its node has."""
    contained = tree.place() == CONTAINER
    found = [device for device in on_bus if not FOR_GUESTS.fullmatch(device.driver)]
    found = [device for device in found if device.driver in drivers or not device.shows]
    return [device for device in found if contained or device.driver not in drivers or not not_ours(device.address)]


def compare(
    tree: Tree, on_bus: t.Sequence[OnBus], shown: t.Collection[str], drivers: t.Collection[str], word: str, tool: str,
    not_ours: t.Callable[[str], str] = lambda _address: "",
) -> Bus:  # fmt: skip
    """Compare the devices on the bus with those that are known otherwise, by their PCI addresses (`shown`). `drivers` are the kernel
    drivers of the kind. `not_ours` returns why this process may not use a device of these drivers, empty if it may."""
    listed = {place(address) for address in shown}
    problems: list[tuple[str, str]] = []
    for_guests: list[str] = []
    of_others: list[str] = []
    contained = tree.place() == CONTAINER
    own = 0
    for device in on_bus:
        if place(device.address) in listed:
            own += 1
        elif FOR_GUESTS.fullmatch(device.driver):
            for_guests.append(device.address)
            words = f"the {word} at {device.address} is held for virtual machines by {device.driver}: it was not measured"
            problems.append(("gpu_elsewhere", words))
        elif device.driver in drivers and (why := not_ours(device.address)):
            of_others.append(device.address)
            own += contained  # what a pod was asked for tells how many it should have
            if not contained:
                words = f"the {word} at {device.address} is not given to this process ({why}): it was not measured"
                problems.append(("gpu_elsewhere", words))
        elif device.driver in drivers:
            own += 1
            if not contained:
                words = f"the PCI bus has a {word} at {device.address} with the driver {device.driver}, and {tool} does not show it"
                problems.append(("gpu_lost", words))
        elif device.driver:
            own += 1
            words = f"the PCI bus has a {word} at {device.address} with another driver, {device.driver}: {tool} cannot show it"
            problems.append(("gpu_invisible", words))
        elif not device.shows:
            own += 1
            words = (
                f"the PCI bus has a {word} at {device.address} and no driver is bound to it: the driver refused it, or lost it; "
                "see the kernel's log for why, BAR and memory settings of the BIOS among it"
            )
            problems.append(("gpu_lost", words))
    context: dict[str, t.Any] = {"count": own}
    if for_guests:
        context["for_guests"] = for_guests
    if of_others:
        context["of_others"] = of_others
    return Bus(problems, context if on_bus else {})
