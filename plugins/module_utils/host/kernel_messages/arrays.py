# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about arrays and mapped devices: md, and targets of the device mapper.

An array that was rebuilt is whole again. What its driver cannot do without a disk (stop, refuse to start) is no state that ends.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.kernel_messages.message import Message, good

_MD = r"md/(?:raid\d*|linear|multipath|raid456):? ?(md\w+|\w+): "
_MD_SOURCE = "drivers/md/raid1.c, raid10.c, raid5.c, raid0.c"
_DM = r"device-mapper: "


def _by_disks(match: re.Match[str]) -> str:
    """Return the code for an array that was started: empty if it has all of its disks."""
    return "" if match["active"] == match["all"] else "disk"


MESSAGES: tuple[Message, ...] = (
    Message(rf"{_MD}Disk failure on \S+", "disk", "an array lost a disk", f"{_MD_SOURCE} error", "array"),
    Message(
        rf"{_MD}(?:raid level \d+ )?active with (?P<active>\d+) out of (?P<all>\d+)",
        _by_disks,
        "an array was started without one of its disks",
        f"{_MD_SOURCE} run",
        "array",
    ),
    Message(
        r"md: disabled device (\S+), could not read superblock", "disk", "an array could not read a disk", "drivers/md/md.c read_disk_sb"
    ),
    good(r"md: (md\w+): (?:recovery|recover) done", "array", "drivers/md/md.c md_do_sync"),
    Message(
        rf"{_MD}(?:not enough (?:operational )?(?:devices|mirrors)|Cannot continue operation|failed to run raid set|"
        rf"cannot start dirty degraded array|starting dirty degraded array|"
        r"too few disks|cannot start|insufficient working devices)",
        "disk",
        "an array cannot run without its disks",
        f"{_MD_SOURCE} run, error",
    ),
    Message(
        rf"{_MD}[^\n]*?(?:unrecoverable I/O (?:read )?error|unrecoverable block|read error not correct(?:ed|able)|"
        r"Too many read errors|exceeded read_error threshold|Failing (?:raid device|drive)|read correction write failed|"
        r"unable to read back corrected sectors)",
        "disk",
        "an array could not read data",
        f"{_MD_SOURCE} handle_read_error, fix_read_error, raid5_end_read_request",
    ),
    Message(
        rf"{_MD}[^\n]*?(?:rescheduling sector|read error corrected|redirecting sector)",
        "disk_worn",
        "an array corrected a read error",
        f"{_MD_SOURCE} fix_read_error",
    ),
    Message(
        r"md: (md\w+) (?:is )?(?:inactive|is broken|stopped because of)|md: (md\w+): failed to",
        "disk",
        "an array does not run",
        "drivers/md/md.c",
    ),
    Message(r"md: kicking non-fresh (\w+) from array", "disk", "a disk was put out of its array", "drivers/md/md.c analyze_sbs"),
    Message(
        r"md: super_written gets error",
        "disk",
        "an array could not write its state",
        "drivers/md/md.c super_written",
    ),
    # Device mapper.
    Message(
        rf"{_DM}multipath: (?:\d+:\d+: )?Failing path (\S+?)\.?(?:\s|$)",
        "disk",
        "a path to a disk failed",
        "drivers/md/dm-mpath.c fail_path",
        "path",
        "disk_worn",
    ),
    good(rf"{_DM}multipath: (?:\d+:\d+: )?Reinstating path (\S+?)\.?(?:\s|$)", "path", "drivers/md/dm-mpath.c reinstate_path"),
    Message(
        rf"{_DM}thin: (\d+:\d+): (?:switching pool to (?:read-only|failure|out-of-data-space|out-of-metadata-space)[^\n]*|"
        r"metadata operation '[^']*' failed|aborting current metadata transaction|needs_check flag set)",
        "file_system",
        "a thin pool takes no data any more",
        "drivers/md/dm-thin.c set_pool_mode, metadata_operation_failed",
    ),
    Message(
        rf"{_DM}(?:verity|verity-fec|integrity|crypt): [^\n]*?(?:is corrupted|checksum failed|INTEGRITY AEAD ERROR|"
        rf"metadata block \d+ is corrupted)",
        "file_system",
        "data of a mapped device is corrupt",
        "drivers/md/dm-verity-target.c verity_handle_err, dm-integrity.c, dm-crypt.c",
    ),
    Message(
        rf"{_DM}(?:raid1|raid|mirror): [^\n]*?(?:Mirror device \S+ failed|Read failure on mirror|All sides of mirror have failed|"
        r"Primary mirror \(\S+\) failed|Disk failure|All replicated volumes dead|Unable to read primary mirror|Write error during recovery|"
        r"Mirror read failed)",
        "disk",
        "a mirror lost a disk",
        "drivers/md/dm-raid1.c fail_mirror, do_reads, read_callback, recovery_complete; dm-raid.c",
    ),
    Message(
        rf"{_DM}(?:snapshots?|persistent snapshot|cache|era|writecache|space map metadata|btree|block manager|array): [^\n]*?"
        r"(?:Invalidating snapshot|Error reading/writing|needs_check|switching cache to (?:read-only|fail)|I/O error|read-only mode|"
        r"check failed|validator check failed|metadata operation)",
        "file_system",
        "a mapped device failed",
        "drivers/md/dm-snap.c, dm-cache-target.c, persistent-data/dm-block-manager.c",
    ),
)
