# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""File systems of a machine: those that are mounted, and those of /etc/fstab that are not.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import errno
import os
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.check_report import CheckReport
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.mounts import AFTER_ERROR, is_of_network
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import CONTAINER, Tree

# File systems on disks that are written to.
WRITTEN = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs")
# Entries of /etc/fstab by these names are on a disk.
_ON_DISK = re.compile(r"(?:UUID|LABEL|PARTUUID|PARTLABEL|ID)=|/dev/(?!(?:sr|fd|cdrom|floppy|loop)\w*)", re.I)
_NOT_FILES = ("swap", "none", "ignore")
# Options of an entry that is mounted when somebody asks for it.
_LATER = ("noauto", "x-systemd.automount", "x-initrd.attach")
# Entries that cloud-init writes for a disk that some sizes of machines have (cloudinit/config/cc_mounts.py).
_IF_THERE = "comment=cloudconfig"
# Less than this share free is worth a look: mke2fs(8) keeps as much for root, since a fuller file system becomes slow.
FREE_SHARE = 0.05
# What a file system answers that has shut itself down or whose disk is gone (fs/xfs/xfs_iops.c, xfs_vn_getattr; fs/ext4/inode.c).
_SHUT_DOWN = (errno.EIO, errno.ESHUTDOWN, errno.EUCLEAN, errno.ENXIO, errno.ENODEV)


class Mount(t.NamedTuple):
    """A mounted file system, or an entry of /etc/fstab."""

    device: str
    place: str
    kind: str
    options: tuple[str, ...]


def inspect(tree: Tree, report: CheckReport) -> None:
    """Look at space and state of file systems, and at those that should be mounted and are not."""
    every = mounted(_mounts(tree, report))
    in_fstab = {entry.place: entry for entry in mounted(tree.text("/etc/fstab") or "")}
    if every:
        _not_mounted(tree, report, every, list(in_fstab.values()))
    mounts = _of_disks(every, tree.node.root.rstrip("/"))
    spaces = [(mount, space) for mount in mounts if (space := _space(tree, mount, report)) is not None]
    _counted_errors(tree, report)
    if not spaces:
        report.missed("file_systems", f"file systems: this {report.place} shows none that is on a disk")
        return
    report.saw(f"space and state of {len(spaces)} file systems")
    for mount, space in spaces:
        gone_wrong = AFTER_ERROR.intersection(mount.options)
        if gone_wrong:
            words = f"{mount.place} ({mount.device}) can no longer be written after an error: its options have {min(gone_wrong)}"
            report.found("file_system", words)
            continue
        # A container has its own view of the host's file systems, often a read-only one.
        read_only, entry = "ro" in mount.options and report.place != CONTAINER, in_fstab.get(mount.place)
        if read_only and entry and "ro" not in entry.options:
            report.found("file_system", f"{mount.place} ({mount.device}) is read-only, and /etc/fstab says that it should not be")
        if read_only or not space.f_blocks:
            continue
        free, names = space.f_bavail / space.f_blocks, space.f_favail / space.f_files if space.f_files else 1.0
        if free <= 0 or names <= 0:
            report.found("file_system", f"{mount.place} ({mount.device}) is full: no {'space' if free <= 0 else 'inode'} is left")
        elif min(free, names) < FREE_SHARE:
            resource = "space" if free <= names else "inodes"
            report.found("disk_space", f"{mount.place} ({mount.device}) has {100 * min(free, names):.1f} % of its {resource} left")


def _mounts(tree: Tree, report: CheckReport) -> str:
    """Return the lines of mounted file systems. A container sees its own; with the host's /proc, those of the host's first process."""
    own = tree.text("/proc/mounts") or ""
    if report.place == CONTAINER and tree.node.root.rstrip("/"):
        root = tree.node.root.rstrip("/")
        hosts = tree.text("/proc/1/mounts") or ""
        return f"{own}\n{_below(hosts, root)}" if hosts and hosts != own else own
    return own


def _below(hosts: str, root: str) -> str:
    """Return the host's mounts as a container that has the host's file system at `root` names them."""
    lines = [line.split() for line in hosts.splitlines()]
    return "\n".join(" ".join((cells[0], f"{root}{cells[1].rstrip('/')}" or root, *cells[2:])) for cells in lines if len(cells) >= 4)


def _not_mounted(tree: Tree, report: CheckReport, mounts: t.Sequence[Mount], entries: t.Sequence[Mount]) -> None:
    root = tree.node.root.rstrip("/")
    if report.place == CONTAINER and not any(f"{mount.place}/".startswith(f"{root}/") for mount in mounts if root):
        return  # the mounts of the host cannot be seen, and /etc/fstab is that of the container
    places = {os.path.normpath(mount.place) for mount in mounts}
    wanted = [entry for entry in entries if entry.place.startswith("/") and entry.kind not in _NOT_FILES]
    for entry in wanted:
        place = os.path.normpath(entry.place)
        names = {place, os.path.normpath(f"{root}{place}"), _real(tree, place)}
        if names & places or _IF_THERE in entry.options or any(option.partition("=")[0] in _LATER for option in entry.options):
            continue
        where = f"{entry.place} ({entry.device}) is not mounted, and /etc/fstab says that it should be"
        is_network = is_of_network(entry.kind) or "_netdev" in entry.options
        is_on_disk = _ON_DISK.match(entry.device) or entry.kind in (*WRITTEN, "zfs")
        if is_on_disk and entry.kind not in ("iso9660", "udf") and not is_network:
            # `nofail`: the machine may start without it.
            report.found("not_mounted" if "nofail" in entry.options else "file_system", where)
        elif is_network:
            report.found("not_mounted", where)
    if wanted:
        report.saw(f"{len(wanted)} entries of /etc/fstab")


def _real(tree: Tree, place: str) -> str:
    """Return a place without symbolic links, as the kernel lists it."""
    root = os.path.realpath(tree.node.root or "/").rstrip("/")
    real = os.path.realpath(tree.node.path(place))
    return real[len(root) :] or "/" if real.startswith(f"{root}/") else real


def _space(tree: Tree, mount: Mount, report: CheckReport) -> os.statvfs_result | None:
    path = tree.node.path(mount.place)
    try:
        os.stat(path)
    except OSError as refusal:
        if refusal.errno in _SHUT_DOWN:
            words = f"{mount.place} ({mount.device}) does not answer ({refusal.strerror}): it has shut down, or its disk is gone"
            report.found("file_system", words)
            return None
    try:
        return os.statvfs(path)
    except OSError as refusal:
        if refusal.errno in _SHUT_DOWN:
            report.found("file_system", f"{mount.place} ({mount.device}) does not answer ({refusal.strerror})")
        return None


def _counted_errors(tree: Tree, report: CheckReport) -> None:
    """Look at errors that file systems have counted: ext4 in its superblock since the last check (fs/ext4/sysfs.c), btrfs for each of its
    disks (fs/btrfs/sysfs.c)."""
    unread: list[str] = []
    for name in tree.names("/sys/fs/ext4"):
        unread += [f"ext4 on {name}"] if tree.is_unread(f"/sys/fs/ext4/{name}/errors_count") else []
        errors = tree.number(f"/sys/fs/ext4/{name}/errors_count")
        if errors:
            report.found("file_system", f"the ext4 file system on {name} has counted {errors} errors since it was last checked")
    for uuid in tree.names("/sys/fs/btrfs"):
        for disk in tree.names(f"/sys/fs/btrfs/{uuid}/devinfo"):
            of = f"/sys/fs/btrfs/{uuid}/devinfo/{disk}"
            if tree.number(f"{of}/missing"):
                report.found("file_system", f"the btrfs file system {uuid} misses its disk {disk}")
            stats = tree.text(f"{of}/error_stats")
            counts = re.findall(r"(?m)^(\w+)_errs (\d+)$", stats or "")
            has_stats = bool(counts) or not tree.exists(f"{of}/error_stats") or "invalid" in (stats or "")
            is_unread = tree.is_unread(f"{of}/missing") or not has_stats
            unread += [f"btrfs {uuid}, disk {disk}"] if is_unread else []
            errors_of = [f"{name} {count}" for name, count in counts if int(count)]
            if errors_of:
                report.found("disk_worn", f"the btrfs file system {uuid} has counted errors of its disk {disk}: {', '.join(errors_of)}")

    if unread:
        report.silent("file_systems", f"file systems: counters of errors are there and cannot be read: {', '.join(unread[:4])}")


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
        if len(cells) >= 2 and not cells[0].startswith("#"):
            place = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), cells[1])
            place = place.rstrip("/") or "/"
            kind, options = (cells[2:4] + ["auto", "defaults"][len(cells[2:4]) :])[:2]
            by_place[place] = Mount(cells[0], place, kind, tuple(options.split(",")))
    return list(by_place.values())
