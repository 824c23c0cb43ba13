# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Disks of a machine and the controllers on its PCI bus that should have some; arrays and file systems are looked at beside them.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import re

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import arrays, file_systems
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.check_report import CheckReport
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import CONTAINER, Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import smart

TIMEOUT_S = 20.0
_TIMEOUT = "no answer in time"
PCI = "/sys/bus/pci/devices"
# Class codes of controllers of disks (PCI Code and ID Assignment Specification, base class 01).
CONTROLLERS = {0x0104: "RAID controller", 0x0106: "SATA controller", 0x0107: "SAS controller", 0x0108: "NVMe disk"}
NVME = 0x0108
# (vendor, device) of PCI functions that have one of these classes and no disks of their own: management of Broadcom's PCIe switches
# (drivers/scsi/mpt3sas/mpi/mpi2_cnfg.h, MPI26_MFGPAGE_DEVID_PEX88000), which most drivers leave alone.
_NO_DISKS = {(0x1000, 0x00B0), (0x1000, 0x00B1), (0x1000, 0x00B2), (0x1000, 0x02B0), (0x1000, 0x02B1), (0x1000, 0x02B2)}
# A DPU shows controllers for disks that its own software may give it.
_OF_DPUS = 0x15B3
# Drivers that give a device to a virtual machine or to a program.
_GIVEN_AWAY = ("vfio-pci", "uio_pci_generic", "igb_uio", "pci-stub", "xen-pciback", "nvme_vfio")


def inspect(tree: Tree, report: CheckReport) -> None:
    """Look at disks, arrays of disks and file systems."""
    _look_at_disks(tree, report)
    _smart(tree, report)
    arrays.inspect(tree, report)
    file_systems.inspect(tree, report)


def disks(tree: Tree) -> dict[str, str]:
    """Return {name: words} of the NVMe controllers and SCSI or SATA disks of a machine. Removable media and disks on USB are none."""
    disk_words = {}
    for name in tree.names("/sys/class/nvme"):
        # The disks of a fabric are those of another machine.
        if re.fullmatch(r"nvme\d+", name) and (tree.text(f"/sys/class/nvme/{name}/transport") or "pcie") in ("pcie", "apple-nvme"):
            disk_words[name] = _words(tree, f"/sys/class/nvme/{name}", "NVMe disk", name)
    for name in tree.names("/sys/block"):
        if re.fullmatch(r"sd[a-z]+", name) and not _is_removable(tree, name):
            disk_words[name] = _words(tree, f"/sys/block/{name}/device", "disk", name)
    return disk_words


def _is_removable(tree: Tree, name: str) -> bool:
    return tree.text(f"/sys/block/{name}/removable") == "1" or "/usb" in os.path.realpath(tree.path(f"/sys/block/{name}"))


def _words(tree: Tree, of: str, kind: str, name: str) -> str:
    words = [tree.text(f"{of}/model") or "", *(f"{word} {text}" for word, text in _place(tree, of) if text)]
    return f"{kind} {name}" + (f" ({', '.join(filter(None, words))})" if any(words) else "")


def _place(tree: Tree, of: str) -> tuple[tuple[str, str | None], ...]:
    return ("serial number", tree.text(f"{of}/serial")), ("at", tree.text(f"{of}/address"))


def _look_at_disks(tree: Tree, report: CheckReport) -> None:
    """Look for disks that should be there and give none, and at the state that the kernel has of those that are."""
    given_away, silent = _controllers(tree)
    for name, words in disks(tree).items():
        state, why = _state(tree, name)
        if state == _GIVEN_UP:
            report.found("disk", f"{words}: the kernel has given it up, {why}")
        elif state == _SILENT:
            silent.append(f"{words}: {why}")
    if silent:
        report.silent("disks", "; ".join(silent + given_away))
    elif given_away:
        report.missed("disks", "; ".join(given_away))


def _controllers(tree: Tree) -> tuple[list[str], list[str]]:
    """Return words for the controllers of disks on the PCI bus that were given away or emulated, and for those that no driver has taken:
    what is behind these is not known."""
    given_away: list[str] = []
    silent: list[str] = []
    addresses = tree.names(PCI)
    if not any(tree.exists(f"{PCI}/{address}/driver") for address in addresses):
        return [], []  # the bus shows no drivers here
    is_virtual = tree.is_virtual()
    for address in addresses:
        code = (tree.number(f"{PCI}/{address}/class") or 0) >> 8
        ids = tuple(tree.number(f"{PCI}/{address}/{name}") for name in ("vendor", "device"))
        if code not in CONTROLLERS or ids in _NO_DISKS or ids[0] == _OF_DPUS or tree.exists(f"{PCI}/{address}/physfn"):
            continue
        driver = os.path.basename(os.path.realpath(tree.path(f"{PCI}/{address}/driver")))
        what = f"{CONTROLLERS[code]} {address}"
        if driver in _GIVEN_AWAY:
            given_away.append(f"{what}: it is given to a virtual machine or a program ({driver})")
        elif not tree.exists(f"{PCI}/{address}/driver") and is_virtual and code != NVME:
            given_away.append(f"{what}: no driver has taken it; kernels for clouds have none for the controllers that emulators add")
        elif not tree.exists(f"{PCI}/{address}/driver"):
            silent.append(f"{what}: it is on the PCI bus and no driver has taken it, so what is behind it is not known")
        elif code == NVME and driver == "nvme" and not tree.names(f"{PCI}/{address}/nvme"):
            silent.append(f"{what}: it is on the PCI bus, and its driver shows no disk")
    return given_away, silent


_WELL, _GIVEN_UP, _SILENT = range(3)


def _state(tree: Tree, name: str) -> tuple[int, str]:
    """Return the state of a disk by the kernel (drivers/nvme/host/sysfs.c, nvme_sysfs_show_state; drivers/scsi/scsi_sysfs.c, sdev_states)
    and by its space, and why."""
    of = f"/sys/class/nvme/{name}" if name.startswith("nvme") else f"/sys/block/{name}/device"
    state = tree.text(f"{of}/state")
    if state is None:
        return (_SILENT, "the kernel does not tell its state") if tree.exists(of) else (_WELL, "")
    if state.startswith(("dead", "deleting")) or state in ("offline", "transport-offline", "cancel", "deleted"):
        return _GIVEN_UP, f"its state is {state}"
    if state not in ("live", "running"):
        return _SILENT, f"it does not answer, its state is {state or 'empty'}"
    space = _space(tree, name, of)
    if space is None and not _is_of_dpu(tree, of):
        return _SILENT, "its size cannot be read"
    if space == 0:
        return _SILENT, "it answers and shows no space: no namespace, or none that can be used"
    return _WELL, ""


def _space(tree: Tree, name: str, of: str) -> int | None:
    """Return the number of blocks of a disk; None if it is not known."""
    if name.startswith("sd"):
        return tree.number(f"/sys/block/{name}/size")
    if _is_of_dpu(tree, of):
        return None
    spaces = [f"{of}/{entry}/size" for entry in tree.names(of) if re.fullmatch(rf"{name}(?:c\d+)?n\d+", entry)]
    shared = [f"{of}/{entry}/size" for entry in tree.names(of) if re.fullmatch(r"nvme\d+c\d+n\d+", entry)]
    sizes = [tree.number(path) for path in spaces + shared]
    return max((size for size in sizes if size is not None and size >= 0), default=None) if sizes else 0


def _is_of_dpu(tree: Tree, of: str) -> bool:
    return tree.number(f"{PCI}/{tree.text(f'{of}/address') or ''}/vendor") == _OF_DPUS


def _smart(tree: Tree, report: CheckReport) -> None:
    disk_words = disks(tree)
    if not disk_words:
        report.missed("smart", f"SMART of disks: this {report.place} shows no NVMe and no SATA or SCSI disk")
        return
    read = 0
    unread: list[str] = []
    is_silent = False
    rows: list[dict[str, str | None]] = []
    for name, words in disk_words.items():
        answer = _ask_disk(tree, report, name)
        rows.append(_row(tree, name, answer))
        if answer.unread:
            unread.append(f"{name}: {answer.unread}")
            is_silent = is_silent or answer.is_silent
        else:
            read += 1
        serial = f", serial number {answer.serial}" if answer.serial and answer.serial not in words else ""
        for code, problem in answer.problems:
            report.found(code, f"{words}{serial}: {problem}")
    report.details["disks"] = rows
    if read:
        report.saw(f"SMART of {read} of {len(disk_words)} disks")
    if unread:
        words = f"SMART of disks: {'; '.join(unread[:4])}{f'; and {len(unread) - 4} more' if len(unread) > 4 else ''}"
        report.silent("smart", words) if is_silent else report.missed("smart", words)


def _row(tree: Tree, name: str, answer: smart.Smart) -> dict[str, str | None]:
    """Return the model, serial number, firmware and PCIe address of a disk, as far as the kernel or the disk tells them."""
    of = f"/sys/class/nvme/{name}" if name.startswith("nvme") else f"/sys/block/{name}/device"
    model, serial = tree.text(f"{of}/model") or answer.model, tree.text(f"{of}/serial") or answer.serial
    firmware = tree.text(f"{of}/firmware_rev") or tree.text(f"{of}/rev")
    return {"disk": name, "model": model or None, "serial": serial or None, "firmware": firmware or None, "pci": tree.text(f"{of}/address")}


def _ask_disk(tree: Tree, report: CheckReport, name: str) -> smart.Smart:
    """Ask one disk by smartctl; if that gives nothing, an NVMe disk by nvme-cli, too."""
    node, device = tree.node, f"/dev/{name}"
    if report.place == CONTAINER and not os.path.exists(device):
        return smart.Smart([], unread=f"the container has no {device}")
    answers: list[smart.Smart] = []
    if node.which("smartctl"):
        result = node.run(["smartctl", "-j", "-a", device], timeout=TIMEOUT_S)
        answers.append(smart.Smart([], unread=_TIMEOUT, is_silent=True) if result.timed_out else smart.smartctl(result.out, result.rc))
    if name.startswith("nvme") and node.which("nvme") and (not answers or answers[0].unread):
        result = node.run(["nvme", "smart-log", "-o", "json", device], timeout=TIMEOUT_S)
        answer = smart.nvme_smart_log(result.out, result.rc, result.err)
        answers.append(smart.Smart([], unread=_TIMEOUT, is_silent=True) if result.timed_out else answer)
    if not answers:
        return smart.Smart([], unread=f"{'no smartctl' if name.startswith('sd') else 'neither smartctl nor nvme'} is installed")
    read = next((answer for answer in answers if not answer.unread), answers[0])
    # What one tool has found stands, whatever the other one says.
    problems = list(dict.fromkeys(problem for answer in answers for problem in answer.problems))
    return read._replace(problems=problems)
