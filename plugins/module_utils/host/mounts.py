# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file system that a path is on, by /proc/self/mountinfo (Documentation/filesystems/proc.rst of Linux, 3.5).

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import re
import typing as t

# Kinds whose data is on other machines, and those of clusters, whose disks several machines have.
OF_NETWORK = frozenset((
    "nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "beegfs", "gpfs", "glusterfs", "wekafs", "pvfs2", "orangefs", "9p", "afs", "virtiofs",
    "gfs2", "ocfs2", "daos", "panfs", "quobyte", "vast", "dvs", "cvfs", "scoutfs", "smbfs", "fuse",
    # As gnulib has them (lib/mountlist.c, ME_REMOTE); `fhgfs` is what BeeGFS was called.
    "acfs", "auristorfs", "coda", "fhgfs", "ibrix",
))  # fmt: skip
# Kinds whose data one machine has, such as that of a folder on which nothing is mounted; the first program of FUSE is the root of
# containers without privileges.
OF_MACHINE = frozenset((
    "ext2", "ext3", "ext4", "xfs", "btrfs", "bcachefs", "f2fs", "jfs", "reiserfs", "nilfs2", "zfs", "overlay", "aufs", "tmpfs", "devtmpfs",
    "ramfs", "rootfs", "squashfs", "erofs", "iso9660", "udf", "vfat", "msdos", "exfat", "ntfs", "ntfs3", "fuseblk", "hfsplus", "autofs",
    "fuse.fuse-overlayfs", "fuse.lxcfs", "fuse.squashfuse", "fuse.squashfuse_ll", "fuse.snapfuse", "fuse.gvfsd-fuse", "fuse.portal",
))  # fmt: skip
# Kinds that take O_DIRECT and all the same keep what is written and read in the memory of the machine: tmpfs (since Linux 6.6) and its kin
# are that memory, OpenZFS before 2.3 passes over the flag. So does ext4 that journals data (Documentation/filesystems/ext4 of Linux).
CACHED = frozenset(("tmpfs", "devtmpfs", "ramfs", "zfs"))
# Disks that are memory: of the drivers brd and zram.
_OF_MEMORY = re.compile(r"/dev/(?:ram|zram)\d+")
# Options that differ between nodes although all mount alike: addresses of the client and of the server that it chose, and numbers that
# btrfs has given; the name of WEKA's container on the client.
_OWN = re.compile(
    r"(?:clientaddr|addr|mountaddr|mountport|port|fsid|subvolid|lowerdir|upperdir|workdir|seclabel|context|container_name)(?:=.*)?"
)
# Options that ext4 shows after an error, while `rw` stands beside them (fs/ext4/super.c, _ext4_show_options; Linux 6.15 for the first).
AFTER_ERROR = frozenset({"emergency_ro", "shutdown"})


class Mounted(t.NamedTuple):
    """A mounted file system: where, its kind, its source, and its options, sorted, without those that each node has for itself. `upper` is
    the kind of the file system on which an overlay keeps what is written to it, empty if it is not known."""

    place: str
    kind: str
    source: str
    options: t.Tuple[str, ...]
    upper: str = ""

    @property
    def words(self) -> str:
        """The file system for people."""
        return f"{self.kind} over {self.upper}" if self.upper else f"{self.kind} on {self.source}" if self._is_on_memory else self.kind

    @property
    def _is_on_memory(self) -> bool:
        return _OF_MEMORY.fullmatch(self.source) is not None

    @property
    def is_read_only(self) -> bool:
        return "ro" in self.options or not AFTER_ERROR.isdisjoint(self.options)

    @property
    def is_cached(self) -> bool:
        """True if direct I/O does not go past the memory of the machine."""
        is_journaled = self.kind == "ext4" and "data=journal" in self.options
        return self.kind in CACHED or self.upper in CACHED or is_journaled or self._is_on_memory


def loop_of(source: str) -> str:
    """Return the loop device (`loop3`) that a source is, or a partition of; empty if it is none."""
    match = re.fullmatch(r"/dev/(loop\d+)(?:p\d+)?", source)
    return match[1] if match else ""


def is_of_network(kind: str) -> bool:
    """Return True if other machines may have the data of a file system of this kind, too: those of the table, and of FUSE those that are
    not known to be of one machine."""
    return kind in OF_NETWORK or (kind.startswith("fuse.") and kind not in OF_MACHINE)


def server_of(source: str, kind: str = "") -> str:
    """Return the host in the source of a file system of a network (`HOST:/export`, `//HOST/share`, `HOST@o2ib:/name`; `USER@HOST:` of
    sshfs, `ADDRESS/name` of WEKA); empty if there is none."""
    if kind.startswith("fuse."):
        # What others have before a colon is no host: `JuiceFS:volume`, `redis://`.
        if kind != "fuse.glusterfs" and not re.search(r":/(?!/)", source):
            return ""
        source = source.rpartition("@")[2]
    if kind == "wekafs":
        return re.split(r"[,/]", source)[0] if "/" in source else ""
    match = re.match(r"//([^/]+)/|\[([0-9A-Fa-f:.]+)\]:|([A-Za-z0-9._-]+)(?:@[a-z0-9]+)?[:,]", source)
    return next((host for host in match.groups() if host), "") if match else ""


def mount_id(path: str) -> int | None:
    """Return the number that the kernel gives to the mount that a path is on, the first cell of its line in mountinfo; None if it is not
    told. Asks the file system."""
    handle = os.open(os.path.join(path, "."), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with open(f"/proc/self/fdinfo/{handle}", encoding="ascii") as source:
            match = re.search(r"^mnt_id:\s*(\d+)$", source.read(), re.M)
    except OSError:
        return None
    finally:
        os.close(handle)
    return int(match[1]) if match else None


def mount_of(mountinfo: str, path: str, number: int | None = None) -> Mounted | None:
    """Return the file system that an absolute path without links is on; None if the text has none. Paths do not say it for certain: what is
    mounted above a mount hides it. The `number` of the mount does, if it is known."""
    line = _line_of(mountinfo, path, number)
    if line is None:
        return None
    # Options are those of the mount and of the file system under it: read-only is either.
    words = {*line.options.split(","), *line.super_options.split(",")}
    words -= {"rw"} if "ro" in words else set()
    options = tuple(sorted(word for word in words if word and not _OWN.fullmatch(word)))
    upper = next((_plain(word.partition("=")[2]) for word in words if word.startswith("upperdir=")), "")
    below = _line_of(mountinfo, upper) if line.kind == "overlay" and upper.startswith("/") else None
    return Mounted(line.place, line.kind, line.source, options, below.kind if below and below.kind != "overlay" else "")


class _Line(t.NamedTuple):
    place: str
    kind: str
    source: str
    options: str
    super_options: str


def _line_of(mountinfo: str, path: str, number: int | None = None) -> _Line | None:
    holding: _Line | None = None
    for text in mountinfo.splitlines():
        front, dash, back = text.partition(" - ")
        # A source may be empty, between two blanks.
        cells, of = front.split(), back.rstrip("\n").split(" ")
        if not dash or len(cells) < 6 or len(of) < 3 or not of[0]:
            continue
        line = _Line(_plain(cells[4]), of[0], _plain(of[1]), cells[5], of[2])
        if cells[0] == str(number):
            return line
        # Of several at one place the last one lies above the others.
        if f"{path.rstrip('/')}/".startswith(f"{line.place.rstrip('/')}/") and (holding is None or len(line.place) >= len(holding.place)):
            holding = line
    return holding


def _plain(cell: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), cell)
