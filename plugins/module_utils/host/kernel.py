# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hardware errors in the kernel's log since boot, those of accelerators left out: the health check of accelerators has them.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import kernel_log
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.look import Look
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree

# Bits of the status of a machine check bank: the error was not corrected; the state of the processor is corrupt (Intel SDM volume 3,
# section 16.3.2.2; AMD has the same two).
_UNCORRECTED, _CORRUPT = 1 << 61, 1 << 57


class Error(t.NamedTuple):
    """An error that a line tells of. Of several lines with the same `key` the last one is shown, with their number."""

    code: str
    key: tuple[str, ...]
    words: str


# (pattern, reason code, what it means). The first that matches holds; groups of a pattern are the place, by which lines are told apart.
# Wordings are those of Linux 4.18 to 6.12: drivers/edac/edac_mc.c, drivers/firmware/efi/cper.c, mm/memory-failure.c, drivers/pci/pcie/
# aer.c and dpc.c, drivers/pci/hotplug/pciehp_ctrl.c, drivers/nvme/host/pci.c, block/blk-core.c, fs/ext4/super.c, fs/xfs/xfs_error.c,
# arch/x86/kernel/cpu/mce/therm_throt, kernel/watchdog.c, drivers/net/ethernet/mellanox/mlx5/core/health.c.
_ROWS: tuple[tuple[str, str, str], ...] = (
    (r"EDAC (MC\d+): \d+ UE (?:.*? on )?(\S+)", "host_memory", "uncorrectable memory error"),
    (r"EDAC (MC\d+): \d+ CE (?:.*? on )?(\S+)", "host_memory_corrected", "corrected memory error"),
    (r"Memory failure: 0x[0-9a-f]+: (?!.*already hardware poisoned)", "host_memory", "memory was taken out of use"),
    (r"\[Hardware Error\]: +event severity: (?:fatal|recoverable)", "machine_check", "the firmware reports an uncorrected hardware error"),
    (r"\[Hardware Error\]: +event severity: corrected", "hardware_corrected", "the firmware reports a corrected hardware error"),
    (r"Machine Check Exception: \d+ Bank (\d+)", "machine_check", "machine check exception"),
    (r"(\S+): PCIe Bus Error: severity=(?:Uncorrected|Uncorrectable) \(Fatal\)", "pcie_error", "fatal PCIe error"),
    (r"(\S+): PCIe Bus Error: severity=(?:Uncorrected|Uncorrectable) \(Non-Fatal\)", "pcie_nonfatal", "PCIe error that was not fatal"),
    (r"(\S+): DPC: containment event", "pcie_error", "a port cut its device off after an uncorrectable PCIe error"),
    (r"(\S+): (?:pciehp: )?Slot\((\S+?)\): (?:Link Down|Card not present)", "pcie_error", "a PCIe device went away"),
    (r"nvme (nvme\d+): (?:controller is down|Removing after probe failure|Disabling device after reset failure|Device not ready)", "disk",
     "an NVMe disk did not answer"),
    (r"(?:critical (?:medium|target) error|I/O error), dev ((?:sd|nvme|vd)\w+)", "disk", "input or output error of a disk"),
    (r"(EXT4-fs error \(device \S+?\))", "file_system", "a file system is damaged"),
    (r"(XFS \(\S+?\)): .*(?:[Cc]orruption|shutting down)", "file_system", "a file system is damaged"),
    (r"(\S+ \(\S+\)): Remounting filesystem read-only", "file_system", "a file system became read-only"),
    (r"(mlx5_core \S+): .*device's health compromised", "nic_fault", "a NIC's firmware does not answer"),
    (r"(mlx5_core \S+): .*(?:fatal error|assert_exit_ptr 0x(?!0+\b)[0-9a-f]+)", "nic_fault", "a NIC's firmware failed"),
    (r"(mlx5_core \S+): .*Port module event\[error\]", "nic_fault", "a NIC reports an error of its cable or transceiver"),
    (r"(?:Core|Package) temperature (?:is )?above threshold", "hardware_corrected", "the processor was too hot and ran slower"),
    (r"watchdog: BUG: soft lockup|hard LOCKUP on cpu", "cpu_stalled", "a processor did nothing else for many seconds"),
)  # fmt: skip
_PATTERNS = tuple((re.compile(pattern), code, meaning) for pattern, code, meaning in _ROWS)
_BANK = re.compile(r"CPU (\d+): Machine Check(?: Exception)?: [0-9a-fx]+ Bank (\d+): ([0-9a-f]{1,16})\b")
# What the memory check shows; everything else is the kernel check's.
OF_MEMORY = ("host_memory", "host_memory_corrected")


def read(text: str) -> Error | None:
    """Return the hardware error that a line of the kernel tells of, or None."""
    bank = _BANK.search(text)
    if bank:
        status = int(bank.group(3), 16)
        code = "machine_check" if status & (_UNCORRECTED | _CORRUPT) else "hardware_corrected"
        kind = "uncorrected" if code == "machine_check" else "corrected"
        return Error(code, (code, bank.group(2)), f"{kind} machine check: {_shown(text)}")
    for pattern, code, meaning in _PATTERNS:
        match = pattern.search(text)
        if match:
            return Error(code, (code, meaning, *(group for group in match.groups() if group)), f"{meaning}: {_shown(text)}")
    return None


def look(tree: Tree, look: Look, of_memory: bool) -> None:
    """Look at the kernel's log since boot: for errors of memory, or for all others."""
    boot = kernel_log.since_boot(tree.node.path(kernel_log.PATH), _keyed)
    if boot is None:
        look.missed("kernel_log", f"the kernel's log: {kernel_log.PATH} is missing or may not be read", demanded=not of_memory)
        return
    look.saw(f"the kernel's log since {'boot' if boot.complete else boot.since or 'an unknown time'}")
    if not boot.complete:
        look.missed("kernel_log_since_boot", "the kernel's log between boot and its first line, which was overwritten")
    for error, line, count in boot.last.values():
        if (error.code in OF_MEMORY) == of_memory:
            look.found(error.code, f"the kernel's log has, at {kernel_log.times(line, count)}: {error.words}")


def _keyed(text: str) -> tuple[t.Any, Error] | None:
    error = read(text)
    return (error.key, error) if error else None


def _shown(text: str) -> str:
    return " ".join(text.split())[:200]
