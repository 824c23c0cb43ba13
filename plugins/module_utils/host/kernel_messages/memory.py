# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about the machine's memory: EDAC, of all drivers by the one function of edac_mc.c, and pages that were taken out of use.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.kernel_messages.message import Message, harmless

_EDAC = (
    "drivers/edac/edac_mc.c edac_ue_error, edac_ce_error: skx, i10nm, sb_edac, igen6, amd64, ghes, arm; before Linux 3.5 edac_mc_handle_*"
)

MESSAGES: tuple[Message, ...] = (
    Message(r"EDAC (MC\d+): (?:\d+ )?UE(?: |\b)(?:.*? on )?(\S+)", "host_memory", "uncorrectable memory error", _EDAC),
    Message(r"EDAC (MC\d+): (?:\d+ )?CE(?: |\b)(?:.*? on )?(\S+)", "host_memory_corrected", "corrected memory error", _EDAC),
    Message(
        r"EDAC (DEVICE\d+): (?:\S+ )?UE: (.*? block: \S+)",
        "machine_check",
        "uncorrectable error of a device",
        "drivers/edac/edac_device.c edac_device_handle_ue_count",
    ),
    Message(
        r"EDAC (DEVICE\d+): (?:\S+ )?CE: (.*? block: \S+)",
        "hardware_corrected",
        "corrected error of a device",
        "drivers/edac/edac_device.c edac_device_handle_ce_count",
    ),
    Message(
        r"EDAC PCI(?:\d+)?: (?:Bridge )?(?:Signaled System Error|Master Data Parity Error|Detected Parity Error)(?: on (\S+))?",
        "pcie_error",
        "parity error of the PCI bus",
        "drivers/edac/edac_pci_sysfs.c edac_pci_dev_parity_test",
    ),
    harmless(
        r"Memory failure: 0x[0-9a-f]+: (?:.*already hardware poisoned|.*already poisoned)",
        "a page that was named before",
        "mm/memory-failure.c memory_failure",
    ),
    Message(r"Memory failure: 0x[0-9a-f]+: ", "host_memory", "memory was taken out of use", "mm/memory-failure.c"),
    Message(
        r"(?:mce: |MCE: )?(?:\[Hardware Error\]: )?(?:Uncorrected hardware memory error|Memory error not recovered)",
        "host_memory",
        "uncorrectable memory error",
        "arch/x86/kernel/cpu/mce/core.c kill_me_maybe, do_machine_check",
    ),
    Message(
        r"MCE: Killing [^\n]*?due to hardware memory corruption",
        "host_memory",
        "a process used memory that is corrupt",
        "arch/x86/mm/fault.c do_sigbus; arch/powerpc/mm/fault.c, arch/parisc/mm/fault.c",
    ),
    Message(r"MCE 0x[0-9a-f]+: ", "host_memory", "memory was taken out of use", "mm/memory-failure.c before Linux 4.2"),
    Message(
        r"RAS: Soft-offlining pfn: 0x[0-9a-f]+",
        "host_memory_corrected",
        "a page with many corrected errors was taken out of use",
        "drivers/ras/cec.c cec_add_elem",
    ),
)
