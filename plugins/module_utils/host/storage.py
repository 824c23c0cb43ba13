# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Disks and file systems of a machine.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.look import Look
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import CONTAINER, Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import smart

# File systems on disks that are written to.
WRITTEN = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs")
# Less than this share free is worth a look: mke2fs(8) keeps as much for root, since a fuller file system becomes slow.
FREE_SHARE = 0.05
TIMEOUT_S = 20.0


class Mount(t.NamedTuple):
    """A mounted file system."""

    device: str
    place: str
    kind: str
    options: tuple[str, ...]


def look(tree: Tree, look: Look) -> None:
    """Look at disks, arrays of disks and file systems."""
    _disks(tree, look)
    _arrays(tree, look)
    _file_systems(tree, look)


def disks(tree: Tree) -> dict[str, str]:
    """Return {name: words} of the NVMe controllers and SCSI or SATA disks of a machine."""
    found = {}
    for name in tree.names("/sys/class/nvme"):
        if re.fullmatch(r"nvme\d+", name):
            found[name] = _words(tree, f"/sys/class/nvme/{name}", "NVMe disk", name)
    for name in tree.names("/sys/block"):
        if re.fullmatch(r"sd[a-z]+", name):
            found[name] = _words(tree, f"/sys/block/{name}/device", "disk", name)
    return found


def _words(tree: Tree, of: str, kind: str, name: str) -> str:
    known = [tree.text(f"{of}/model") or "", *(f"{word} {text}" for word, text in _place(tree, of) if text)]
    return f"{kind} {name}" + (f" ({', '.join(filter(None, known))})" if any(known) else "")


def _place(tree: Tree, of: str) -> tuple[tuple[str, str | None], ...]:
    return ("serial number", tree.text(f"{of}/serial")), ("at", tree.text(f"{of}/address"))


def _disks(tree: Tree, look: Look) -> None:
    found = disks(tree)
    if not found:
        look.missed("smart", f"SMART of disks: this {look.place} shows no NVMe and no SATA or SCSI disk")
        return
    node, read = tree.node, 0
    unread: list[str] = []
    for name, words in found.items():
        if node.which("smartctl"):
            result = node.run(["smartctl", "-j", "-a", f"/dev/{name}"], timeout=TIMEOUT_S)
            said = smart.smartctl(result.out, result.rc)
        elif name.startswith("nvme") and node.which("nvme"):
            result = node.run(["nvme", "smart-log", "-o", "json", f"/dev/{name}"], timeout=TIMEOUT_S)
            said = smart.nvme_smart_log(result.out, result.rc)
        else:
            unread.append(f"{name}: {'no smartctl' if name.startswith('sd') else 'neither smartctl nor nvme'} is installed")
            continue
        if said.unread:
            unread.append(f"{name}: {'no answer in time' if result.timed_out else said.unread}")
            continue
        read += 1
        serial = f", serial number {said.serial}" if said.serial and said.serial not in words else ""
        for code, problem in said.problems:
            look.found(code, f"{words}{serial}: {problem}")
    if read:
        look.saw(f"SMART of {read} of {len(found)} disks")
    if unread:
        look.missed("smart", f"SMART of disks: {'; '.join(unread[:4])}{f'; and {len(unread) - 4} more' if len(unread) > 4 else ''}")


def _arrays(tree: Tree, look: Look) -> None:
    for name in tree.names("/sys/block"):
        if name.startswith("md") and tree.number(f"/sys/block/{name}/md/degraded"):
            look.found("disk", f"the array {name} is degraded: {tree.number(f'/sys/block/{name}/md/degraded')} of its disks are missing")


def _file_systems(tree: Tree, look: Look) -> None:
    mounts = [one for one in mounted(tree.text("/proc/mounts") or "") if one.kind in WRITTEN and one.device.startswith("/dev/")]
    if not mounts:
        look.missed("file_systems", f"file systems: this {look.place} shows none that is on a disk")
        return
    look.saw(f"space and state of {len(mounts)} file systems")
    meant = {one.place: one for one in mounted(tree.text("/etc/fstab") or "")}
    for one in mounts:
        entry = meant.get(one.place)
        if "ro" in one.options and entry and "ro" not in entry.options and look.place != CONTAINER:
            look.found("file_system", f"{one.place} ({one.device}) is read-only, and /etc/fstab says that it should not be")
        try:
            space = os.statvfs(tree.node.path(one.place))
        except OSError:
            continue
        if not space.f_blocks or "ro" in one.options:
            continue
        free, names = space.f_bavail / space.f_blocks, space.f_favail / space.f_files if space.f_files else 1.0
        if free <= 0 or names <= 0:
            look.found("file_system", f"{one.place} ({one.device}) is full: no {'space' if free <= 0 else 'inode'} is left")
        elif min(free, names) < FREE_SHARE:
            what = "space" if free <= names else "inodes"
            look.found("disk_space", f"{one.place} ({one.device}) has {100 * min(free, names):.1f} % of its {what} left")


def mounted(text: str) -> list[Mount]:
    """Return the lines of /proc/mounts or /etc/fstab, each place once."""
    found: dict[str, Mount] = {}
    for line in text.splitlines():
        cells = line.split()
        if len(cells) >= 4 and not cells[0].startswith("#"):
            place = re.sub(r"\\(\d{3})", lambda match: chr(int(match.group(1), 8)), cells[1])
            found[place] = Mount(cells[0], place, cells[2], tuple(cells[3].split(",")))
    devices: dict[str, Mount] = {}
    for one in found.values():  # a device that is mounted twice is one file system
        devices.setdefault(one.device if one.device.startswith("/dev/") else one.place, one)
    return list(devices.values())
