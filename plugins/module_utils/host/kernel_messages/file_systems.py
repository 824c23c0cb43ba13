# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about file systems: XFS, ext4 with its journal, btrfs. A damaged file system stays damaged until somebody has repaired it.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.kernel_messages.message import Message

_XFS = r"(XFS \([^)]+\)): "
_EXT = r"(EXT[234]-fs \([^)]+\)): "
_BTRFS = r"BTRFS:? (?:emergency|alert|critical|error|warning|info)?:? ?(\(device [^)\s]+)[^)]*\):? "

MESSAGES: tuple[Message, ...] = (
    Message(
        rf"{_XFS}(?:[^\n]*?(?:corrupt|shutting down|has been shut ?down|CRC error|Internal error|unmount (?:and run|"
        rf"the filesystem)|xfs_do_force_shutdown)|"
        r"metadata I/O error|log I/O error|xfs_log_force: error|xfs_force_shutdown|Failing async write|Failed to recover|"
        r"log mount/recovery failed|log mount failed|failed to (?:read root inode|locate log tail)|[^\n]*?I/O error)",
        "file_system",
        "a file system is damaged, or has shut itself down",
        "fs/xfs/xfs_fsops.c xfs_do_force_shutdown (4.18 to 6.12), xfs_error.c, xfs_buf.c, xfs_log.c, xfs_mount.c",
    ),
    Message(
        r"(?:XFS \(([^)]+)\)|((?:sd|nvme|vd|xvd|hd|dm-|md|mmcblk|pmem)[\w-]{0,32})): writeback error on (?:inode|sector) \d+",
        "file_system",
        "data that a program had written could not be written to a disk",
        "fs/iomap/buffered-io.c iomap_fail_ioends; fs/xfs/xfs_aops.c xfs_end_ioend before Linux 5.5",
    ),
    Message(r"(EXT[234]-fs (?:error|panic) \(device \S+?\))", "file_system", "a file system is damaged", "fs/ext4/super.c __ext4_error"),
    Message(
        rf"{_EXT}(?:I/O error while (?:writing|reading) superblock|previous I/O error to superblock|error loading journal|"
        r"error count since last fsck|(?:initial|last) error at time|warning: mounting fs with errors|"
        r"failed to convert unwritten extents|"
        r"Delayed block allocation failed|This should not happen|no journal found|journal superblock is corrupt|"
        r"corrupt root inode|external journal has (?:bad|corrupt) superblock|"
        r"group descriptors corrupted|ext4_check_descriptors|[^\n]*\bcorrupted\b|error \(-\d+\)|failed to open journal|"
        r"shut ?down requested|shutting down|"
        r"[^\n]*Abort(?:ing|ed)\b)",
        "file_system",
        "a file system is damaged",
        "fs/ext4/super.c ext4_commit_super, ext4_fill_super, print_daily_error_info",
    ),
    Message(
        r"(EXT[234]-fs warning \(device \S+?\)): \S*(?:end_bio|end_io)\S* I/O error",
        "file_system",
        "data of a file could not be written",
        "fs/ext4/page-io.c ext4_end_bio",
    ),
    Message(
        r"(EXT[234]-fs warning \(device \S+?\)): [^\n]*?(?:corrupt|e2fsck|Filesystem error recorded|error -\d+|checksum)",
        "file_system",
        "a file system is damaged",
        "fs/ext4/namei.c dx_probe, super.c ext4_clear_journal_err",
    ),
    Message(
        r"WARNING: Pool '([^']{1,80})' has encountered an uncorrectable I/O failure",
        "file_system",
        "a pool of ZFS stopped",
        "module/zfs/spa_misc.c zio_suspend of OpenZFS",
    ),
    Message(
        r"BTRFS: Transaction aborted \(error -\d+\)",
        "file_system",
        "a file system gave up a change",
        "fs/btrfs/transaction.c __btrfs_abort_transaction",
    ),
    Message(
        r"(?:JBD2?: )?(?:Aborting journal on device|Detected aborted journal|Journal (?:has )?aborted)[ .]?(\S*)",
        "file_system",
        "a file system gave up its journal",
        "fs/jbd2/journal.c jbd2_journal_abort",
    ),
    Message(
        r"JBD2?: (?:journal checksum error|bad block at offset \d+|journal transaction \d+ on (\S+) is corrupt)",
        "file_system",
        "the journal of a file system is damaged",
        "fs/jbd2/journal.c journal_get_superblock, jbd2_journal_bmap, jbd2_journal_load",
    ),
    Message(
        r"JBD2?: [^\n]*?(?:I/O error|IO errors?|Error -?\d+ detected|corrupt|invalid)[^\n]*?(?:for|on|when)[^\n]*? (\S+)$",
        "file_system",
        "the journal of a file system failed",
        "fs/jbd2/journal.c jbd2_write_superblock, commit.c",
    ),
    Message(
        rf"{_BTRFS}?[^\n]*?(?:fixed up error|read error corrected)",
        "disk_worn",
        "a file system corrected an error of a disk",
        "fs/btrfs/scrub.c, bio.c",
    ),
    Message(
        rf"{_BTRFS}[^\n]*?(?:errs: wr (?!0, rd 0, flush 0, corrupt 0, gen 0)\d|corrupt (?:leaf|node)|errno=-|transid|csum failed|"
        r"checksum (?:verify failed|error|mismatch)|unable to (?:fixup|fix up)|failed to read|IO failure|Transaction aborted|"
        r"forced readonly|"
        r"bad tree block|super.*corrupt|uncorrectable|I/O error|lost page write|unable to find|aborted transaction|error while|"
        r"error writing|failed to (?:write|submit)|missing|bad generation|bad fsid|"
        r"tree block corruption|level verify failed|superblock contains fatal errors|errors while writing supers)",
        "file_system",
        "a file system is damaged",
        "fs/btrfs/messages.c __btrfs_handle_fs_error, volumes.c btrfs_dev_stat_print_on_error, disk-io.c",
    ),
    Message(
        r"([\w-]{1,20} \(\S+\)): (?:Remounting filesystem|Filesystem has been set) read-only",
        "file_system",
        "a file system became read-only",
        "fs/ext4/super.c ext4_handle_error",
    ),
    Message(
        r"(F2FS-fs|GFS2|OCFS2|bcachefs)[^\n]*?(?:corrupt|shut ?down|emergency read only|withdraw)",
        "file_system",
        "a file system is damaged",
        "fs/f2fs, fs/gfs2, fs/ocfs2, fs/bcachefs",
    ),
)
