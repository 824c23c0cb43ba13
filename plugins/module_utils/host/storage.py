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
    disk_words = {}
    for name in tree.names("/sys/class/nvme"):
        if re.fullmatch(r"nvme\d+", name):
            disk_words[name] = _words(tree, f"/sys/class/nvme/{name}", "NVMe disk", name)
    for name in tree.names("/sys/block"):
        if re.fullmatch(r"sd[a-z]+", name):
            disk_words[name] = _words(tree, f"/sys/block/{name}/device", "disk", name)
    return disk_words


def _words(tree: Tree, of: str, kind: str, name: str) -> str:
    words = [tree.text(f"{of}/model") or "", *(f"{word} {text}" for word, text in _place(tree, of) if text)]
    return f"{kind} {name}" + (f" ({', '.join(filter(None, words))})" if any(words) else "")


def _place(tree: Tree, of: str) -> tuple[tuple[str, str | None], ...]:
    return ("serial number", tree.text(f"{of}/serial")), ("at", tree.text(f"{of}/address"))


def _disks(tree: Tree, look: Look) -> None:
    disk_words = disks(tree)
    if not disk_words:
        look.missed("smart", f"SMART of disks: this {look.place} shows no NVMe and no SATA or SCSI disk")
        return
    node, read = tree.node, 0
    unread: list[str] = []
    for name, words in disk_words.items():
        if node.which("smartctl"):
            result = node.run(["smartctl", "-j", "-a", f"/dev/{name}"], timeout=TIMEOUT_S)
            report = smart.smartctl(result.out, result.rc)
        elif name.startswith("nvme") and node.which("nvme"):
            result = node.run(["nvme", "smart-log", "-o", "json", f"/dev/{name}"], timeout=TIMEOUT_S)
            report = smart.nvme_smart_log(result.out, result.rc)
        else:
            unread.append(f"{name}: {'no smartctl' if name.startswith('sd') else 'neither smartctl nor nvme'} is installed")
            continue
        if report.unread:
            unread.append(f"{name}: {'no answer in time' if result.timed_out else report.unread}")
            continue
        read += 1
        serial = f", serial number {report.serial}" if report.serial and report.serial not in words else ""
        for code, problem in report.problems:
            look.found(code, f"{words}{serial}: {problem}")
    if read:
        look.saw(f"SMART of {read} of {len(disk_words)} disks")
    if unread:
        look.missed("smart", f"SMART of disks: {'; '.join(unread[:4])}{f'; and {len(unread) - 4} more' if len(unread) > 4 else ''}")


def _arrays(tree: Tree, look: Look) -> None:
    for name in tree.names("/sys/block"):
        if name.startswith("md") and tree.number(f"/sys/block/{name}/md/degraded"):
            look.found("disk", f"the array {name} is degraded: {tree.number(f'/sys/block/{name}/md/degraded')} of its disks are missing")


def _file_systems(tree: Tree, look: Look) -> None:
    mounts = _of_disks(mounted(tree.text("/proc/mounts") or ""), tree.node.root.rstrip("/"))
    spaces = [(mount, space) for mount in mounts if (space := _space(tree.node.path(mount.place))) is not None]
    if not spaces:
        look.missed("file_systems", f"file systems: this {look.place} shows none that is on a disk")
        return
    look.saw(f"space and state of {len(spaces)} file systems")
    in_fstab = {entry.place: entry for entry in mounted(tree.text("/etc/fstab") or "")}
    for mount, space in spaces:
        # A container has its own view of the host's file systems, often a read-only one.
        read_only, entry = "ro" in mount.options and look.place != CONTAINER, in_fstab.get(mount.place)
        if read_only and entry and "ro" not in entry.options:
            look.found("file_system", f"{mount.place} ({mount.device}) is read-only, and /etc/fstab says that it should not be")
        if read_only or not space.f_blocks:
            continue
        free, names = space.f_bavail / space.f_blocks, space.f_favail / space.f_files if space.f_files else 1.0
        if free <= 0 or names <= 0:
            look.found("file_system", f"{mount.place} ({mount.device}) is full: no {'space' if free <= 0 else 'inode'} is left")
        elif min(free, names) < FREE_SHARE:
            resource = "space" if free <= names else "inodes"
            look.found("disk_space", f"{mount.place} ({mount.device}) has {100 * min(free, names):.1f} % of its {resource} left")


def _space(path: str) -> os.statvfs_result | None:
    try:
        return os.statvfs(path)
    except OSError:
        return None


def _of_disks(mounts: t.Sequence[Mount], root: str) -> list[Mount]:
    """Return the file systems on disks, each device once. Where the host's root is mounted at `root`, those below it, as the host calls
    them."""
    written = [mount for mount in mounts if mount.kind in WRITTEN and mount.device.startswith("/dev/")]
    below = [mount for mount in written if root and f"{mount.place}/".startswith(f"{root}/")]
    by_device: dict[str, Mount] = {}
    for mount in below or written:
        by_device.setdefault(mount.device, mount._replace(place=mount.place[len(root) :] or "/") if below else mount)
    return list(by_device.values())


def mounted(text: str) -> list[Mount]:
    """Return the lines of /proc/mounts or /etc/fstab; of several at one place the last."""
    by_place: dict[str, Mount] = {}
    for line in text.splitlines():
        cells = line.split()
        if len(cells) >= 4 and not cells[0].startswith("#"):
            place = re.sub(r"\\(\d{3})", lambda match: chr(int(match.group(1), 8)), cells[1])
            by_place[place] = Mount(cells[0], place, cells[2], tuple(cells[3].split(",")))
    return list(by_place.values())
