# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages about processors: machine checks, errors that the firmware reports, interrupts of the chipset, heat, and what does not move.

A machine check has a status register of the same meaning on Intel and AMD: bit 63, it is valid; bit 61, the error was not corrected; bit
57, the state of the processor is corrupt (Intel SDM volume 3, 16.3.2.2; AMD APM volume 2, 9.3.2.1). What AMD calls deferred is an
uncorrected error whose data nobody has used yet; poison is such data. A status of all ones was not read at all: some platforms report such
banks at each start.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.kernel_messages.message import Message

_VALID, _UNCORRECTED, _CORRUPT = 1 << 63, 1 << 61, 1 << 57
_DIGITS = 16
_NOT_READ = (1 << 64) - 1
# Bits of AMD alone: a deferred error, and poison (AMD PPR, MCA_STATUS). On Intel they are part of a count of corrected errors.
_OF_AMD = 1 << 44 | 1 << 43
# Words of AMD's flags for an error that was not corrected.
_BAD_FLAGS = frozenset(("ue", "pcc", "uc", "deferred", "poison", "uecc"))
_MCE = r"(?:mce: )?(?:\[Hardware Error\]: )?"
_HW = r"(?:\{\d+\})?\[Hardware Error\]: +"
_MCE_SOURCE = "arch/x86/kernel/cpu/mce/core.c"


def _is_of_no_error(status: str | None) -> bool:
    """Return True if a whole status was not read, or says itself that it is not valid."""
    return status is not None and len(status) == _DIGITS and (int(status, 16) == _NOT_READ or not int(status, 16) & _VALID)


def _by_status(match: re.Match[str], bad: int = _UNCORRECTED | _CORRUPT) -> str:
    """Return the code for the raw status of a bank. The kernel prints 16 digits; a status that was cut lacks the last ones. `bad` are the
    bits of an error that was not corrected."""
    if _is_of_no_error(match["status"]):
        return ""
    status = int(match["status"].ljust(_DIGITS, "0"), 16)
    return "machine_check" if status & bad else "hardware_corrected"


def _by_status_of_amd(match: re.Match[str]) -> str:
    """Return the code for the raw status of a bank of an AMD processor, as it is printed where edac_mce_amd is not loaded."""
    return _by_status(match, _UNCORRECTED | _CORRUPT | _OF_AMD)


def _by_flags(match: re.Match[str]) -> str:
    """Return the code for AMD's flags and status. The second flag is UE, CE, or - for a deferred error, in all versions. A line that was
    cut, as the kernel prints it in pieces, may lack the status and the last flags."""
    if _is_of_no_error(match["status"]):
        return ""
    flags = set(match["flags"].lower().split("|"))
    if "ce" not in flags or flags & _BAD_FLAGS:
        return "machine_check"
    return _by_status(match) if match["status"] else "hardware_corrected"


MESSAGES: tuple[Message, ...] = (
    Message(
        rf"{_MCE}(?:EDAC \S+ MC\d+: )?CPU \d+: Machine Check(?: Exception|"
        rf" Event)?: (?:0x)?[0-9a-f]+ Bank (\d+): (?:0x)?(?P<status>[0-9a-f]{{1,16}})\b",
        _by_status,
        "machine check",
        f"{_MCE_SOURCE} __print_mce; drivers/edac/skx_common.c, sb_edac.c, pnd2_edac.c",
        code_of_amd=_by_status_of_amd,
    ),
    Message(
        rf"{_MCE}CPU \d+: Machine Check Exception: (?:0x)?[0-9a-f]+ Bank (\d+)",
        "machine_check",
        "machine check exception",
        f"{_MCE_SOURCE} __print_mce",
    ),
    Message(
        rf"{_MCE}(?:CPU:\d+\s*(?:\([0-9a-f]+:[0-9a-f]+:[0-9a-f]+\))?\s*)?MC(\d+)_STATUS\[(?P<flags>[^\]\n]*)\]?(?:: "
        rf"0x(?P<status>[0-9a-f]{{1,16}}))?",
        _by_flags,
        "machine check",
        "drivers/edac/mce_amd.c amd_decode_mce, families 10h to 1Ah; before Linux 3.2 without the number of the processor",
    ),
    Message(rf"{_MCE}Machine check: ", "machine_check", "machine check that stopped the kernel", f"{_MCE_SOURCE} mce_panic"),
    Message(
        rf"{_MCE}(?:CPU\d+ BANK\d+ )?CMCI storm detected",
        "hardware_corrected",
        "a storm of corrected machine checks",
        "arch/x86/kernel/cpu/mce/intel.c, threshold.c",
    ),
    Message(
        rf"{_HW}event severity: (?:fatal|recoverable)",
        "machine_check",
        "the firmware reports an uncorrected hardware error",
        "drivers/firmware/efi/cper.c cper_estatus_print",
    ),
    Message(
        rf"{_HW}event severity: corrected",
        "hardware_corrected",
        "the firmware reports a corrected hardware error",
        "drivers/firmware/efi/cper.c cper_estatus_print",
    ),
    # What ended the boot before; other reasons, as a reset by software, are printed at normal starts too.
    Message(
        r"x86/amd: Previous system reset reason \[0x[0-9a-f]+\]: an uncorrected error caused",
        "hardware_corrected",
        "the boot before ended with an uncorrected hardware error",
        "arch/x86/kernel/cpu/amd.c print_s5_reset_status_mmio",
    ),
    Message(
        r"x86/amd: Previous system reset reason \[0x[0-9a-f]+\]: (?:thermal pin|internal CPU thermal limit)",
        "hardware_corrected",
        "the boot before ended because the machine was too hot",
        "arch/x86/kernel/cpu/amd.c print_s5_reset_status_mmio",
    ),
    Message(
        r"(?:Bad mode in )?SError Interrupt(?: on CPU ?(\d+))?",
        "machine_check",
        "the processor reports an uncorrected error of the bus",
        "arch/arm64/kernel/traps.c arm64_serror_panic",
    ),
    Message(
        r"(?:Internal error|Unhandled fault): synchronous (?:external abort|parity or ECC error)",
        "machine_check",
        "a processor read data that could not be read",
        "arch/arm64/mm/fault.c fault_info",
    ),
    Message(
        r"NMI: (?:PCI system error \(SERR\)|memory parity error|IOCK error) ?(?:\(debug interrupt\?\) )?(?:for reason|: Not continuing)?",
        "machine_check",
        "the chipset reports an error by a non-maskable interrupt",
        "arch/x86/kernel/nmi.c pci_serr_error, io_check_error",
    ),
    Message(
        r"(?:mce: )?CPU ?\d+: (?:Core|Package) temperature (?:is )?above threshold",
        "hardware_corrected",
        "the processor was too hot and ran slower",
        "arch/x86/kernel/cpu/mce/therm_throt.c, drivers/thermal/intel/therm_throt.c",
    ),
    Message(
        r"thermal \S+: .*critical temperature reached",
        "hardware_corrected",
        "a part of the machine reached its critical temperature",
        "drivers/thermal/thermal_core.c thermal_zone_device_critical",
    ),
    Message(
        r"(?:smpboot: do_boot_cpu failed\(-?\d+\) to wakeup CPU#(\d+)|(?:smpboot: )?CPU ?(\d+):? "
        r"(?:failed to (?:report alive state|come online)|died during early boot|is stuck in kernel|never came online))",
        "cpu_stalled",
        "a processor did not start",
        "arch/x86/kernel/smpboot.c native_cpu_up, arch/arm64/kernel/smp.c __cpu_up, kernel/cpu.c cpuhp_bp_sync_alive",
    ),
    Message(
        r"(?:NMI )?(?:watchdog: )?BUG: soft lockup",
        "cpu_stalled",
        "a processor did nothing else for many seconds",
        "kernel/watchdog.c watchdog_timer_fn",
    ),
    Message(
        r"(?:NMI )?watchdog: (?:CPU\d+: )?Watchdog detected hard LOCKUP on cpu",
        "cpu_stalled",
        "a processor took no interrupt for seconds",
        "kernel/watchdog.c watchdog_hardlockup_check",
    ),
    Message(r"BUG: workqueue lockup", "cpu_stalled", "work of the kernel was stuck", "kernel/workqueue.c wq_watchdog_timer_fn"),
    Message(
        r"(?:BUG: )?unable to handle (?:kernel )?(?:page fault|paging request|NULL pointer|read|write|execute|access)|Oops: |"
        r"BUG: kernel NULL pointer dereference|"
        r"general protection fault(?:,|: )|kernel BUG at |Internal error: Oops",
        "cpu_stalled",
        "the kernel met an error of its own and ended what it did",
        "arch/x86/mm/fault.c show_fault_oops, arch/x86/kernel/traps.c, arch/arm64/mm/fault.c die_kernel_fault, lib/bug.c",
    ),
    Message(
        r"INFO: task (.{1,48}?):\d+ (?:<\S+> )?(?:is )?blocked (?:in I/O wait )?(?:on \S+ )?for more than \d+ seconds",
        "cpu_stalled",
        "a task did not move for minutes",
        "kernel/hung_task.c check_hung_task",
    ),
    Message(
        r"(?:rcu: )?INFO: (\S+) (?:detected (?:expedited )?stalls?|self-detected (?:expedited )?stall)",
        "cpu_stalled",
        "a processor or task held up the kernel for many seconds",
        "kernel/rcu/tree_stall.h print_cpu_stall, print_other_cpu_stall",
    ),
    Message(
        r"rcu: (\S+) kthread (?:starved for|timer wakeup didn't happen)",
        "cpu_stalled",
        "the kernel's own thread did not run for seconds",
        "kernel/rcu/tree_stall.h rcu_check_gp_kthread_starvation",
    ),
)
