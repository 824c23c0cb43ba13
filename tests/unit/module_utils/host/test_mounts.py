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


def test_a_file_system_that_no_longer_takes_writes_after_an_error_is_read_only() -> None:
    mount = mounts.mount_of("1 1 8:2 / / rw - ext4 /dev/sda2 rw,errors=remount-ro,emergency_ro", "/")
    assert mount and mount.is_read_only


def test_addresses_of_a_client_are_no_options_of_the_mount() -> None:
    mount = mounts.mount_of(MOUNTINFO, "/mnt/lustre/my home")
    assert mount and mount.options == ("relatime", "rw", "vers=4.2") and mount.source == "filer:/home"


def test_text_without_mounts_has_none() -> None:
    assert mounts.mount_of("", "/a") is None and mounts.mount_of("x - y\n - \n", "/a") is None


def test_kinds_of_networks() -> None:
    kinds = ("nfs4", "lustre", "fuse.juicefs", "fuse", "ext4", "xfs", "tmpfs", "overlay", "fuseblk", "fuse.fuse-overlayfs", "otherfs")
    assert [kind for kind in kinds if mounts.is_of_network(kind)] == ["nfs4", "lustre", "fuse.juicefs", "fuse"]
    assert not mounts.OF_NETWORK & mounts.OF_MACHINE


def test_loop_devices_and_their_partitions() -> None:
    sources = ("/dev/loop0", "/dev/loop12p3", "/dev/loop-control", "/dev/sda", "loop0")
    assert [mounts.loop_of(source) for source in sources] == ["loop0", "loop12", "", "", ""]


def test_what_is_mounted_above_a_mount_hides_it() -> None:
    text = "20 1 8:2 / / rw - ext4 /dev/sda2 rw\n30 20 0:5 / /mnt/lustre rw - lustre a@o2ib:/fs rw\n31 20 0:6 / /mnt rw - tmpfs tmpfs rw\n"
    for number, kind in ((31, "tmpfs"), (30, "lustre"), (99, "lustre"), (None, "lustre")):
        mount = mounts.mount_of(text, "/mnt/lustre", number)
        assert mount and mount.kind == kind


def test_the_kernel_tells_the_mount_of_a_folder() -> None:
    number = mounts.mount_id("/proc/sys")
    with open("/proc/self/mountinfo", encoding="utf-8") as source:
        mount = mounts.mount_of(source.read(), "/", number)
    assert mount and mount.kind == "proc"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("2 1 0:3 / /a rw - overlay o rw,lowerdir=/l,upperdir=/run/up,workdir=/run/w", "overlay over tmpfs"),
        ("2 1 0:3 / /a rw - overlay o rw,lowerdir=/l,upperdir=/disk/up", None),
        ("2 1 0:3 / / rw - overlay o rw,lowerdir=/l,upperdir=/elsewhere/up", None),
        ("2 1 252:0 / /a rw - ext4 /dev/zram0 rw", "ext4 on /dev/zram0"), ("2 1 1:0 / /a rw - xfs /dev/ram12 rw", "xfs on /dev/ram12"),
        ("2 1 8:0 / /a rw - xfs /dev/ramdisk-vg/a rw", None),
    ],
)  # fmt: skip
def test_overlays_on_memory_and_disks_of_memory_keep_data_there(line: str, words: str | None) -> None:
    text = f"1 0 8:2 / / rw - ext4 /dev/sda2 rw\n5 1 0:9 / /run rw - tmpfs tmpfs rw\n{line}\n"
    mount = mounts.mount_of(text, "/a")
    assert mount and mount.is_cached == (words is not None) and words in (None, mount.words)


def test_a_file_system_without_a_source_is_there() -> None:
    """The kernel prints an empty source as nothing between two blanks."""
    mount = mounts.mount_of(f"{MOUNTINFO}50 21 0:70 / /plain rw - tmpfs  rw,size=1g\n", "/plain/a")
    assert mount and (mount.place, mount.kind, mount.source, mount.options) == ("/plain", "tmpfs", "", ("rw", "size=1g"))


def test_the_name_that_weka_has_for_its_client_is_no_option_of_the_mount() -> None:
    line = "50 21 0:70 / /weka rw,relatime - wekafs 10.1.0.9/default rw,writecache,container_name=client-7"
    mount = mounts.mount_of(line, "/weka")
    assert mount and mount.options == ("relatime", "rw", "writecache")


@pytest.mark.parametrize(
    ("source", "kind", "server"),
    [
        ("filer:/home", "nfs4", "filer"), ("[fd00::1]:/home", "nfs4", "fd00::1"), ("//nas/share", "cifs", "nas"),
        ("10.0.0.1@o2ib:10.0.0.2@o2ib:/fs", "lustre", "10.0.0.1"), ("10.1.1.1:6789,10.1.1.2:6789:/", "ceph", "10.1.1.1"),
        ("s1:gv0", "fuse.glusterfs", "s1"), ("admin@filer-2:/data", "fuse.sshfs", "filer-2"), ("10.1.0.9/default", "wekafs", "10.1.0.9"),
        ("backend-1,backend-2/fs1", "wekafs", "backend-1"), ("fast", "wekafs", ""), ("JuiceFS:volume", "fuse.juicefs", ""),
        ("redis://cache/1", "fuse.juicefs", ""), ("10.1.1.1:/pool", "fuse.ceph-fuse", "10.1.1.1"),
        ("beegfs_nodev", "beegfs", ""), ("/dev/store04", "gpfs", ""), ("admin@0a1b-2c.fs=/", "ceph", ""),
    ],
)  # fmt: skip
def test_the_host_in_a_source_is_named_by_its_kind(source: str, kind: str, server: str) -> None:
    assert mounts.server_of(source, kind) == server
