# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All tables of messages, and the reader of one line.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.kernel_messages import (
    arrays,
    disks,
    file_systems,
    memory,
    nics,
    pcie,
    processors,
)
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.kernel_messages.message import BDF, Message

TABLES: tuple[tuple[Message, ...], ...] = (
    processors.MESSAGES,
    memory.MESSAGES,
    pcie.MESSAGES,
    disks.MESSAGES,
    arrays.MESSAGES,
    file_systems.MESSAGES,
    nics.MESSAGES,
)
_FLAGS = re.IGNORECASE | re.ASCII
_COMPILED = tuple((re.compile(message.form, _FLAGS), message) for table in TABLES for message in table)
# Nearly every line begins with none of these, nor with the address of a device with or without its driver: it is passed over.
_BEGINNINGS = (
    "{", "[hardware error]", "mc", "cpu", "serror", "bad mode", "internal error", "unhandled fault", "nmi", "thermal",
    "watchdog", "smpboot", "bug:", "info:", "rcu:", "edac", "memory failure", "uncorrected hardware", "memory error", "machine check",
    "cmci", "ras:", "nvme", "block nvme", "blk_", "print_req", "critical", "operation", "i/o error", "protection", "timeout",
    "device", "buffer", "lost", "sd", "dm-", "vd", "xvd", "hd",
    "mmcblk", "pmem", "ivhd", "ses ", "scsi ", "st ", "sg ", "sr ", "ata", "mpt", "mpi3mr", "mega", "smartpqi", "hpsa",
    "aacraid", "arcmsr", "md", "xfs", "ext", "fat-fs", "exfat-fs", "jbd", "aborting", "detected", "journal", "btrfs", "f2fs",
    "gfs2", "ocfs2", "bcachefs", "mlx", "bnxt", "ice", "irdma", "i40e", "idpf", "ixgbe", "ionic", "ena", "efa", "hfi1", "qed",
    "sfc", "cxgb4", "hns3", "gve", "igb", "igc", "e1000e", "tg3", "bnx2x", "fm10k", "atlantic", "netdev", "warning: pool",
    "x86/amd", "iommu ivhd", "ivhd", "amd-vi", "dmar", "unable to handle", "oops", "general protection", "kernel bug at",
)  # fmt: skip
_ADDRESS = re.compile(rf"(?:\S{{1,40}} )?{BDF}|[\w-]{{1,20}} \(\S+\): (?:Remounting|Filesystem)", _FLAGS)
# Most of the others match none either: one pattern of all forms says so.
_ANY = re.compile("|".join(f"(?:{re.sub(r'[?]P<[a-z]+>', '', message.form)})" for table in TABLES for message in table), _FLAGS)


class Found(t.NamedTuple):
    """A message that a line matches: the reason code (empty if it is harmless or good), and the part by the groups of the form."""

    message: Message
    code: str
    part: tuple[str, ...]


def read(text: str, is_amd: bool = False) -> Found | None:
    """Return the first message that the text of one record matches, or None. `is_amd`: the machine has AMD's processors."""
    if not (text[:24].lower().startswith(_BEGINNINGS) or _ADDRESS.match(text)) or not _ANY.match(text):
        return None
    for pattern, message in _COMPILED:
        match = pattern.match(text)
        if match:
            of = message.code_of_amd if is_amd and message.code_of_amd else message.code
            code = of if isinstance(of, str) else of(match)
            named = set(pattern.groupindex.values())
            part = tuple(group for number, group in enumerate(match.groups(), 1) if group and number not in named)
            return Found(message, code, part)
    return None
