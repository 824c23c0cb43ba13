# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about PCI Express: errors by AER, ports that cut a device off, slots whose device, link or power went away.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.kernel_messages.message import BDF, Message, good, harmless

_AER = "drivers/pci/pcie/aer.c aer_print_error; the prefix AER: since Linux 5.2, Uncorrectable for Uncorrected since 6.10"
_OF = rf"(?:\S+ )?({BDF})(?::pcie\d+)?: "
_UNCORRECTED = r"Uncorrect(?:ed|able)"
_SLOT = rf"(?:\S+ )?({BDF})(?::pcie\d+)?: (?:pciehp: )?Slot\(([^)\s]+)\): "
_PCIEHP = "drivers/pci/hotplug/pciehp_ctrl.c, pciehp_hpc.c"
# Names of error bits by which data or a device was lost; the last ones are those before Linux 4.17.
_LOSES_DATA = (
    r"(?:DLP|SDES|TLP|FCP|CmpltTO|RxOF|MalfTLP|ECRC|UncorrIntErr|"
    r"Data Link Protocol|Surprise Down Error|Poisoned TLP|Flow Control Protocol|Completion Timeout|Receiver Overflow|Malformed TLP)"
)
# Corrected errors are counted, not found one by one: see host/kernel.py.
CORRECTED = rf"{_OF}(?:AER: )?PCIe Bus Error: severity=Correct(?:ed|able)\b"

MESSAGES: tuple[Message, ...] = (
    Message(rf"{_OF}(?:AER: )?PCIe Bus Error: severity={_UNCORRECTED} \(Fatal\)", "pcie_error", "fatal PCIe error", _AER),
    Message(
        rf"{_OF}(?:AER: )?PCIe Bus Error: severity={_UNCORRECTED} \(Non-Fatal\)", "pcie_nonfatal", "PCIe error that was not fatal", _AER
    ),
    Message(
        rf"{_OF}AER: (?:Multiple )?{_UNCORRECTED} \(Fatal\) error (?:message )?received",
        "pcie_error",
        "a fatal PCIe error below a port",
        "drivers/pci/pcie/aer.c aer_print_port_info",
    ),
    Message(
        rf"{_OF}AER: (?:Multiple )?{_UNCORRECTED} \(Non-Fatal\) error (?:message )?received",
        "pcie_nonfatal",
        "a PCIe error that was not fatal, below a port",
        "drivers/pci/pcie/aer.c aer_print_port_info",
    ),
    Message(
        rf"{_OF}(?:AER: )?\s*\[\s*\d+\]\s*{_LOSES_DATA}\b",
        "pcie_error",
        "a PCIe error by which data was lost",
        "drivers/pci/pcie/aer.c __aer_print_error",
    ),
    Message(
        # Also printed where the device's driver has no handler of errors, such as NVIDIA's; the error itself has its own message.
        rf"{_OF}(?:AER: )?device recovery failed",
        "pcie_nonfatal",
        "a device was not recovered from a PCIe error",
        "drivers/pci/pcie/err.c pcie_do_recovery",
    ),
    Message(
        rf"{_OF}(?:DPC: )?(?:DPC )?containment event",
        "pcie_error",
        "a port cut its device off after an uncorrectable PCIe error",
        "drivers/pci/pcie/dpc.c dpc_process_error",
    ),
    Message(
        rf"{_OF}(?:DPC: )?(?:DPC )?(?:RP PIO error|unmasked uncorrectable error) detected",
        "pcie_error",
        "a port cut its device off after an uncorrectable PCIe error",
        "drivers/pci/pcie/dpc.c dpc_process_error",
    ),
    harmless(rf"{_SLOT}Link Down/Up ignored", "a link that came back before anybody noticed", f"{_PCIEHP} pciehp_ignore_link_change"),
    Message(
        rf"{_SLOT}(?:Link Down|Card not present)",
        "pcie_error",
        "a PCIe device went away",
        f"{_PCIEHP} pciehp_handle_presence_or_link_change",
        "link",
        "pcie_nonfatal",
    ),
    Message(
        rf"{_SLOT}(?:Cannot train link|Failed to check link status|No link|No device found)",
        "pcie_error",
        "a PCIe device does not come up",
        f"{_PCIEHP} pciehp_check_link_status, board_added",
        "link",
        "pcie_nonfatal",
    ),
    good(rf"{_SLOT}Link Up", "link", f"{_PCIEHP} pciehp_handle_presence_or_link_change"),
    Message(
        rf"{_OF}(?:can't|Unable to) change power state from \S+ to D0[ ,(]+(?:config space|device) inaccessible",
        "pcie_error",
        "a PCIe device does not answer",
        "drivers/pci/pci.c pci_power_up, pci_raw_set_power_state",
    ),
    # An endpoint is device 0 of its bus. Virtual functions that could not be made have other numbers.
    Message(
        r"pci ([0-9a-f]{4,8}:[0-9a-f]{2}:00\.0): unknown header type (?:7f|ff), ignoring device",
        "pcie_error",
        "a PCIe device did not answer when its bus was searched",
        "drivers/pci/probe.c pci_setup_device",
    ),
    Message(
        rf"pci ({BDF}): unknown header type (?:7f|ff), ignoring device",
        "pcie_nonfatal",
        "a PCIe function did not answer when its bus was searched",
        "drivers/pci/probe.c pci_setup_device",
    ),
    Message(
        rf"{_OF}not ready \d+ ?ms after [^\n]{{1,60}}?; giving up",
        "pcie_error",
        "a PCIe device did not come back from a reset",
        "drivers/pci/pci.c pci_dev_wait",
    ),
    # What the IOMMU waits for in vain: the device did not answer, or its tables could not be read.
    Message(
        r"(?:(?:(?:iommu )?ivhd\d+|(?:\S+ )?" + BDF + r"): )?AMD-Vi: Event logged "
        r"\[(?:IOTLB_INV_TIMEOUT|(?:DEV_TAB|PAGE_TAB|COMMAND)_HARDWARE_ERROR)"
        r"(?: device=([0-9a-f:.]+))?",
        "pcie_nonfatal",
        "a PCIe device did not answer the IOMMU",
        "drivers/iommu/amd/iommu.c iommu_print_event",
    ),
    Message(
        r"(?:(?:(?:iommu )?ivhd\d+|(?:\S+ )?" + BDF + r"): )?AMD-Vi: Completion-Wait loop timed out",
        "pcie_nonfatal",
        "the IOMMU did not answer",
        "drivers/iommu/amd/iommu.c wait_on_sem",
    ),
    Message(
        r"DMAR: (?:\[[^\]\n]*\] )?VT-d detected Invalidation (?:Time-out|Completion|Queue) Error",
        "pcie_nonfatal",
        "a PCIe device did not answer the IOMMU",
        "drivers/iommu/intel/dmar.c qi_dump_fault",
    ),
    Message(
        rf"{_OF}(?:broken device, retraining non-functional downstream link|retraining failed)",
        "pcie_nonfatal",
        "a PCIe link did not train",
        "drivers/pci/quirks.c pcie_failed_link_retrain",
    ),
    Message(rf"{_SLOT}Power fault", "pcie_error", "the power of a PCIe slot failed", f"{_PCIEHP} pciehp_isr"),
    Message(
        rf"(?:\S+ )?({BDF})(?::pcie\d+)?: (?:pciehp: )?Power fault on slot (\S+)",
        "pcie_error",
        "the power of a PCIe slot failed",
        "drivers/pci/hotplug/pciehp_ctrl.c before Linux 4.19",
    ),
)
