# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file system that a path is on."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import mounts

MOUNTINFO = r"""21 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw,errors=remount-ro
25 21 0:22 / /proc rw,nosuid - proc proc rw
40 21 259:1 / /scratch rw,noatime shared:7 - xfs /dev/nvme0n1 rw,attr2,inode64
41 21 0:50 / /mnt/lustre rw,relatime shared:8 - lustre 10.0.0.1@o2ib:/fs rw,flock
42 41 0:51 / /mnt/lustre/my\040home rw,relatime - nfs4 filer:/home rw,vers=4.2,clientaddr=10.1.0.7,addr=10.1.0.1
43 21 259:1 / /data ro,relatime - xfs /dev/nvme0n1 rw,attr2
44 21 0:60 / /scratch rw - tmpfs tmpfs rw,size=1g
broken line
"""


@pytest.mark.parametrize(
    ("path", "place", "kind"),
    [
        ("/home/x", "/", "ext4"), ("/scratchy", "/", "ext4"), ("/scratch", "/scratch", "tmpfs"), ("/scratch/a/b", "/scratch", "tmpfs"),
        ("/mnt/lustre/a", "/mnt/lustre", "lustre"), ("/mnt/lustre/my home/a", "/mnt/lustre/my home", "nfs4"), ("/data", "/data", "xfs"),
    ],
)  # fmt: skip
def test_the_innermost_and_last_mount_holds_a_path(path: str, place: str, kind: str) -> None:
    mount = mounts.mount_of(MOUNTINFO, path)
    assert mount and (mount.place, mount.kind) == (place, kind)


def test_read_only_is_said_by_the_mount_or_by_what_is_below_it() -> None:
    assert mounts.mount_of(MOUNTINFO, "/data").is_read_only  # type: ignore[union-attr]
    assert not mounts.mount_of(MOUNTINFO, "/scratch").is_read_only  # type: ignore[union-attr]
    assert mounts.mount_of("1 1 8:2 / / rw - ext4 /dev/sda2 ro", "/").is_read_only  # type: ignore[union-attr]


def test_addresses_of_a_client_are_no_options_of_the_mount() -> None:
    mount = mounts.mount_of(MOUNTINFO, "/mnt/lustre/my home")
    assert mount and mount.options == ("relatime", "rw", "vers=4.2") and mount.source == "filer:/home"


def test_text_without_mounts_has_none() -> None:
    assert mounts.mount_of("", "/a") is None and mounts.mount_of("x - y\n - \n", "/a") is None


def test_kinds_of_networks() -> None:
    kinds = ("nfs4", "lustre", "fuse.juicefs", "ext4", "xfs", "tmpfs", "overlay", "fuseblk")
    assert [kind for kind in kinds if mounts.is_of_network(kind)] == ["nfs4", "lustre", "fuse.juicefs"]
