# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file system that a path is on, by /proc/self/mountinfo (Documentation/filesystems/proc.rst of Linux, 3.5).

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

# Kinds whose data is on other machines, and those of clusters, whose disks several machines have.
OF_NETWORK = frozenset((
    "nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "beegfs", "gpfs", "glusterfs", "wekafs", "pvfs2", "orangefs", "9p", "afs", "virtiofs",
    "gfs2", "ocfs2", "daos", "panfs", "quobyte", "vast",
))  # fmt: skip
# Kinds that take O_DIRECT and all the same keep what is written and read in the memory of the machine: tmpfs (since Linux 6.6) and its kin
# are that memory, OpenZFS before 2.3 passes over the flag. So does ext4 that journals data (Documentation/filesystems/ext4 of Linux).
CACHED = frozenset(("tmpfs", "devtmpfs", "ramfs", "zfs"))
# Options that differ between nodes although all mount alike: addresses of the client and of the server that it chose.
_OWN = re.compile(r"(?:clientaddr|addr|mountaddr|mountport|port|fsid|lowerdir|upperdir|workdir|seclabel|context)(?:=.*)?")


class Mounted(t.NamedTuple):
    """A mounted file system: where, its kind, its source, and its options, sorted, without those that each node has for itself."""

    place: str
    kind: str
    source: str
    options: t.Tuple[str, ...]

    @property
    def is_read_only(self) -> bool:
        return "ro" in self.options

    @property
    def is_cached(self) -> bool:
        """True if direct I/O does not go past the memory of the machine."""
        return self.kind in CACHED or (self.kind == "ext4" and "data=journal" in self.options)


def is_of_network(kind: str) -> bool:
    """Return True if other machines may have the data of a file system of this kind, too: those of the table, and any of FUSE."""
    return kind in OF_NETWORK or kind.startswith("fuse.")


def server_of(source: str) -> str:
    """Return the host in the source of a file system of a network (`HOST:/export`, `//HOST/share`, `HOST@o2ib:/name`); empty if there is
    none."""
    match = re.match(r"//([^/]+)/|\[([0-9A-Fa-f:.]+)\]:|([A-Za-z0-9._-]+)(?:@[a-z0-9]+)?[:,]", source)
    return next((host for host in match.groups() if host), "") if match else ""


def mount_of(mountinfo: str, path: str) -> Mounted | None:
    """Return the file system that an absolute path without links is on; None if the text has none."""
    holding: Mounted | None = None
    for line in mountinfo.splitlines():
        front, dash, back = line.partition(" - ")
        cells, of = front.split(), back.split()
        if not dash or len(cells) < 6 or len(of) < 3:
            continue
        place = _plain(cells[4])
        # Of several at one place the last one lies above the others.
        if f"{path.rstrip('/')}/".startswith(f"{place.rstrip('/')}/") and (holding is None or len(place) >= len(holding.place)):
            # Those of the mount and of the file system under it: read-only is either.
            words = {*cells[5].split(","), *of[2].split(",")}
            words -= {"rw"} if "ro" in words else set()
            options = tuple(sorted(word for word in words if word and not _OWN.fullmatch(word)))
            holding = Mounted(place, of[0], _plain(of[1]), options)
    return holding


def _plain(cell: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), cell)
