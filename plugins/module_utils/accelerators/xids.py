# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The errors that NVIDIA's driver writes into the kernel's log about a GPU (Xid) or an NVSwitch (SXid), and what each number means.

Source of numbers, meanings and actions: NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors, 2026-09, up to Xid 172 and
Blackwell), for Volta and older its table of Xid errors; of SXids the Fabric Manager User Guide. A number for which the catalogue's
immediate action is a reset, a restart of the machine, a look at the hardware or a workflow of its own is fatal; one for which it is
a restart of the application or nothing is a warning. 173 to 176 are known from nverror.h of NVIDIA's open kernel modules
595.45 only. Exceptions are marked with `*` in ROWS and explained in docs/xids.md. What the words
of NVLink 5 errors mean is in `nvlink5`.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nvlink5
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import kernel_log
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.kernel_log import Class

MEMORY = Class("memory", "ecc", "ecc", "reset the GPU; replace it if this comes again")
DRAM = Class("DRAM", "ecc", "ecc", "reset the GPU, which remaps the row; replace it if no spare row is left or this comes again")
SRAM = Class("SRAM", "ecc", "ecc", "reset the GPU; replace it if nvidia-smi says that the threshold of SRAM errors is exceeded")
LOST = Class("lost", "gpu_lost", "gpu_lost", "power-cycle the node; check the GPU's seating and power if this comes again")
FAULT = Class("fault", "gpu_fault", "gpu_fault", "reset the GPU or reboot the node; ask the vendor if this comes again")
LINK = Class("link", "nvlink", "nvlink", "reset the GPUs or reboot the node; check the board, the tray or the cable if this comes again")
PEER = Class("peer", "nvlink", "nvlink", "look at the device at the other end of the link first; then reset the GPUs")
SIGNAL = Class("signal", "xid", "xid", "look at the errors, the cable and the seating of the link")
RESET = Class("reset", "gpu_reset", "gpu_reset", "do what the driver asks for, then test again")
ECC_OFF = Class("ECC off", "gpu_reset", "gpu_reset", "switch ECC on, so that rows can be remapped; restart the node and test again")
REPAIRED = Class("repaired", "ecc_past", "ecc_past", "nothing, while no remap is pending and few rows are remapped")
APPLICATION = Class("application", "xid", "xid_own", "see what the application did; the GPU is suspect if several applications do")
NOTED = Class("noted", "xid", "xid", "watch it")
UNLISTED = Class("unlisted", "xid_unknown", "xid_unknown", "look it up in NVIDIA's Xid catalogue")

# (first, last, class, what happened, the catalogue's immediate and investigatory action). `*`: the class is another one than the immediate
# action says. Numbers that the catalogue has without an action have empty ones.
ROWS: tuple[tuple[int, int, Class, str, str, str], ...] = (
    (8, 8, APPLICATION, "the GPU stopped processing a channel", "RESTART_APP", "CONTACT_SUPPORT"),
    (11, 11, APPLICATION, "invalid or corrupted stream of commands", "RESTART_APP", "CHECK_APP/CUDA"),
    (13, 13, APPLICATION, "graphics engine exception", "RESTART_APP", "WORKFLOW_XID_13"),
    (14, 14, NOTED, "a test message of the driver", "IGNORE", "CONTACT_SUPPORT"),
    (25, 25, APPLICATION, "illegal or corrupted stream of commands", "RESTART_APP", "CHECK_APP/CUDA"),
    (31, 31, APPLICATION, "GPU memory page fault", "RESTART_APP", "WORKFLOW_XID_31"),
    (32, 32, APPLICATION, "invalid or corrupted stream of commands", "RESTART_APP", "CHECK_APP/CUDA"),
    (37, 37, APPLICATION, "command that the firmware does not know", "IGNORE", "CHECK_APP/CUDA"),
    (38, 38, APPLICATION, "driver firmware error", "IGNORE", "CONTACT_SUPPORT"),
    (39, 41, APPLICATION, "copy engine or video exception", "RESTART_APP", "CONTACT_SUPPORT"),
    (42, 42, APPLICATION, "copy engine or video exception", "CONTACT_SUPPORT", ""),
    (43, 43, APPLICATION, "the GPU stopped processing the channel of an application", "IGNORE", "CONTACT_SUPPORT"),
    (44, 44, APPLICATION, "graphics engine fault during a context switch", "IGNORE", "CONTACT_SUPPORT"),
    (45, 45, APPLICATION, "the channels of an application were cleaned up early", "WORKFLOW_XID_45", "WORKFLOW_XID_45"),
    (46, 46, FAULT, "the GPU stopped processing", "RESET_GPU", "CONTACT_SUPPORT"),
    (47, 47, APPLICATION, "video exception", "CONTACT_SUPPORT", ""),
    (48, 48, MEMORY, "uncorrectable (double bit) ECC error", "WORKFLOW_XID_48", "WORKFLOW_XID_48"),
    (54, 54, FAULT, "auxiliary power is not connected, the clocks are reduced", "CHECK_MECHANICALS", "CONTACT_SUPPORT"),
    (56, 56, FAULT, "display engine error", "CONTACT_SUPPORT", ""),
    (57, 57, FAULT, "error while the memory interface was programmed", "CONTACT_SUPPORT", ""),
    (58, 58, FAULT, "unstable memory interface", "CONTACT_SUPPORT", ""),
    (59, 59, FAULT, "internal micro-controller error", "CONTACT_SUPPORT", ""),
    (60, 60, APPLICATION, "security or video engine exception", "RESTART_APP", "INVESTIGATE_SW"),
    (61, 61, FAULT, "internal micro-controller breakpoint", "CONTACT_SUPPORT", ""),
    (62, 62, FAULT, "internal micro-controller halt", "RESET_GPU", "CONTACT_SUPPORT"),
    (63, 63, REPAIRED, "a memory row was marked for remapping, or a page for retirement", "IGNORE", "IGNORE"),
    (64, 64, MEMORY, "a memory row could not be remapped, or a page not be retired", "RESET_GPU", "CONTACT_SUPPORT"),
    (65, 65, APPLICATION, "video encoder exception", "CONTACT_SUPPORT", ""),
    (66, 66, APPLICATION, "illegal access by the driver or an application", "IGNORE", "INVESTIGATE_SW"),
    (67, 67, APPLICATION, "illegal access by the driver or an application", "IGNORE", "CONTACT_SUPPORT"),
    (68, 68, APPLICATION, "video decoder exception", "RESTART_APP", "CONTACT_SUPPORT"),
    (69, 69, APPLICATION, "graphics engine class error", "RESTART_APP", "CHECK_APP/CUDA"),
    (70, 72, APPLICATION, "copy engine or video encoder exception", "RESTART_APP", "CONTACT_SUPPORT"),
    (73, 73, APPLICATION, "copy engine or video encoder exception", "CONTACT_SUPPORT", ""),
    (74, 74, LINK, "NVLink error", "WORKFLOW_NVLINK_ERR", "CONTACT_SUPPORT"),
    (75, 77, APPLICATION, "copy engine exception", "RESTART_APP", "CONTACT_SUPPORT"),
    (78, 78, NOTED, "a virtual GPU could not be started", "UPDATE_SWFW", "UPDATE_SWFW"),
    (79, 79, LOST, "the GPU has fallen off the bus", "RESTART_BM", "CONTACT_SUPPORT"),
    (80, 80, FAULT, "* corrupted data was sent to the GPU", "RESTART_APP", "CHECK_APP/CUDA"),
    (81, 81, FAULT, "VGA subsystem error", "CONTACT_SUPPORT", ""),
    (82, 86, APPLICATION, "image, video, optical flow or copy engine exception", "RESTART_APP", "CONTACT_SUPPORT"),
    (87, 87, APPLICATION, "image, video, optical flow or copy engine exception", "CONTACT_SUPPORT", ""),
    (88, 89, APPLICATION, "image, video, optical flow or copy engine exception", "RESTART_APP", "CONTACT_SUPPORT"),
    (90, 91, APPLICATION, "image, video, optical flow or copy engine exception", "CONTACT_SUPPORT", ""),
    (92, 92, NOTED, "high rate of single bit ECC errors", "IGNORE", "CONTACT_SUPPORT"),
    (93, 93, NOTED, "the InfoROM was written more often than it is made for", "IGNORE", "CONTACT_SUPPORT"),
    (94, 94, MEMORY, "* contained uncorrectable memory error", "RESTART_APP", "IGNORE"),
    (95, 95, MEMORY, "uncontained uncorrectable memory error", "RESET_GPU", "IGNORE"),
    (96, 105, APPLICATION, "video or image engine exception", "RESTART_APP", "CONTACT_SUPPORT"),
    (106, 107, NOTED, "a test message of the management interface", "IGNORE", "IGNORE"),
    (108, 108, APPLICATION, "address of another GPU that could not be translated", "IGNORE", "XID_137_FLOW"),
    (109, 109, FAULT, "timeout of a context switch", "RESET_GPU", "CONTACT_SUPPORT"),
    (110, 110, FAULT, "security fault", "RESET_GPU", "INVESTIGATE_SW"),
    (119, 119, FAULT, "the GPU's system processor (GSP) did not answer", "RESET_GPU", "INVESTIGATE_SW"),
    (120, 120, FAULT, "error in the GPU's system processor (GSP)", "RESET_GPU", "INVESTIGATE_SW"),
    (121, 121, NOTED, "error of the link between CPU and GPU (C2C)", "IGNORE", "CONTACT_SUPPORT"),
    (122, 124, FAULT, "the GPU's flash memory could not be read, written or erased", "CONTACT_SUPPORT", ""),
    (125, 125, FAULT, "error in the InfoROM's file system", "CONTACT_SUPPORT", ""),
    (126, 135, APPLICATION, "copy engine exception", "RESTART_APP", "CONTACT_SUPPORT"),
    (136, 136, LINK, "an NVLink could not be trained", "RESET_GPU", "INVESTIGATE_LINK_SI"),
    (137, 137, APPLICATION, "access over NVLink that was not allowed", "IGNORE", "XID_137_FLOW"),
    (138, 138, APPLICATION, "deep learning or optical flow engine exception", "CONTACT_SUPPORT", ""),
    (139, 139, APPLICATION, "deep learning or optical flow engine exception", "RESTART_APP", "CONTACT_SUPPORT"),
    (140, 140, MEMORY, "uncorrectable memory error that the driver could not handle", "RESET_GPU", "CONTACT_SUPPORT"),
    (141, 141, APPLICATION, "fast path or video encoder exception", "IGNORE", "CONTACT_SUPPORT"),
    (142, 142, APPLICATION, "fast path or video encoder exception", "CONTACT_SUPPORT", ""),
    (143, 143, FAULT, "the GPU could not be initialised", "RESET_GPU", "CONTACT_SUPPORT"),
    (144, 146, LINK, "NVLink 5 error", "WORKFLOW_NVLINK5_ERR", "WORKFLOW_NVLINK5_ERR"),
    (147, 148, NOTED, "NVLink 5 error that needs no action", "WORKFLOW_NVLINK5_ERR", "WORKFLOW_NVLINK5_ERR"),
    (149, 150, LINK, "NVLink 5 error", "WORKFLOW_NVLINK5_ERR", "WORKFLOW_NVLINK5_ERR"),
    (151, 151, FAULT, "error while an encryption key was changed", "RESTART_VM", "CONTACT_SUPPORT"),
    (152, 153, APPLICATION, "deep learning engine exception", "IGNORE", "CONTACT_SUPPORT"),
    (154, 154, RESET, "the driver asks for a recovery action", "XID_154", ""),
    (155, 155, RESET, "an NVLink was taken down by software", "RESET_GPU", "INVESTIGATE_SW_USER"),
    (156, 156, FAULT, "a part of the GPU was retired", "RESET_GPU", "IGNORE"),
    (157, 157, FAULT, "* a part of the GPU could not be retired", "IGNORE", "CONTACT_SUPPORT"),
    (158, 158, FAULT, "fatal timeout", "RESET_GPU", "CONTACT_SUPPORT"),
    (159, 159, FAULT, "error in the coherent interface of the GPU", "CHECK_UVM", "SYMPATHETIC_REPORT_SOLO"),
    (160, 160, REPAIRED, "a memory channel was retired", "IGNORE", "INVESTIGATE_SW"),
    (161, 161, MEMORY, "* a memory channel could not be retired", "IGNORE", "INVESTIGATE_SW"),
    (162, 165, NOTED, "power smoothing was switched, or wears out", "", ""),
    (166, 166, LINK, "* encryption error on an NVLink", "", ""),
    (167, 167, FAULT, "* fatal PCIe timeout", "", ""),
    (168, 168, ECC_OFF, "* a part of the GPU's memory cannot be used, which happens with ECC off only", "", ""),
    (169, 169, FAULT, "* security processor halt", "", ""),
    (170, 170, LINK, "* security error on an NVLink", "", ""),
    (171, 171, DRAM, "* uncorrectable DRAM error", "", ""),
    (172, 172, SRAM, "* uncorrectable SRAM error", "", ""),
    (173, 173, FAULT, "* fatal failure of the link between CPU and GPU (C2C)", "", ""),
    (174, 174, UNLISTED, "* a channel was reset and its process ended", "", ""),
    (175, 175, FAULT, "* the memory subsystem of the GPU does not answer", "", ""),
    (176, 176, UNLISTED, "* correctable PCIe errors became a fault", "", ""),
)  # fmt: skip
TABLE: dict[int, tuple[Class, str]] = {
    number: (of, words.lstrip("* ")) for first, last, of, words, _immediate, _investigatory in ROWS for number in range(first, last + 1)
}
RECOVERY_ACTION = "Xid 154"
# Xids whose line says whether they are fatal, and has words that say what to do.
SAYS_FATAL = frozenset((144, 145, 146, 149, 150))
DECODED = frozenset(range(144, 151))
# NVSwitch errors after which the switch works on although the whole fabric must be reset (Fabric Manager User Guide).
SXID_FATAL = frozenset((10003, 19084))

_BUS = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}"
_PLACE = rf"\((?:PCI:)?({_BUS})(?:\.[0-7])?(?: [^)]{{0,32}})?\)"
_XID = re.compile(rf"NVRM: Xid {_PLACE}: (\d{{1,3}}),([^\n]{{0,400}})")
_SXID = re.compile(rf"nvidia-nvswitch\d{{1,3}}: SXid {_PLACE}: (\d{{5}})(?:,([^\n]{{0,400}})|$)")
_BEGINS = re.compile(rf"(?:NVRM: Xid|nvidia-nvswitch\d{{1,3}}: SXid)\b(?: {_PLACE})?")
# A GPU that is gone when the driver starts has no Xid. The message may have several lines, each with the prefix again.
# A log that was split into lines has its last line alone.
_FALLEN = re.compile(
    r"NVRM: (?:(?:The NVIDIA )?GPU (?:at )?(?:PCI:)?((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2})\b[^\0]{0,300}?\b)?"
    r"fallen off the bus"
)
# A GPU that the driver could not start (RmInitAdapter); older drivers do not name it. The second form stands behind the first.
_NOT_STARTED = re.compile(
    rf"NVRM: (?:GPU (?:at )?(?:PCI:)?({_BUS})(?:\.[0-7])?: ?)?"
    r"(?:Rm(?:Partially)?InitAdapter|rm_init_adapter|rm_partially_init_adapter)(?:\(\d+\))? failed\b"
)
# (form, what happened): devices that nvidia.ko did not take when it was loaded, each line once for each load. The group is the address, if
# the line has one. Sources: nv-pci.c nv_pci_probe and nv_pci_validate_bars, nv.c nv_register_drivers, osapi.c rm_is_supported_device,
# kernel_gsp.c kgspInitRm of NVIDIA's open kernel modules (470 to 595); drivers/base/dd.c call_driver_probe of Linux.
_ANY_BUS = rf"(?:PCI:)?({_BUS}\.[0-7])"
PROBES: tuple[tuple[str, str], ...] = (
    (r"NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:"
     rf"(?:\s+NVRM: BAR\d is [^\n(]*\({_ANY_BUS}\))?",
     "the GPU has no address space (a BAR is invalid)"),
    (rf"NVRM: BAR\d is 0M @ 0x0 \({_ANY_BUS}\)", "the GPU has no address space (a BAR is invalid)"),
    (rf"nvidia {_ANY_BUS}: probe with driver nvidia failed with error -\d+", "the driver did not take the GPU"),
    (rf"nvidia: probe of {_ANY_BUS} failed with error -\d+", "the driver did not take the GPU"),
    (r"NVRM: The NVIDIA probe routine failed for \d+ device", "the driver did not take a GPU"),
    (r"NVRM: None of the NVIDIA (?:graphics adapters|devices) were initialized", "the driver took no GPU"),
    (rf"NVRM: The NVIDIA v?GPU {_ANY_BUS} \(PCI ID: [^)]*\)\s+NVRM: installed in this (?:vGPU host )?system is\s*(?:NVRM: )?"
     r"not supported",
     "the driver does not support the GPU"),
    (r"NVRM: installed in this (?:vGPU host )?system is\s*(?:NVRM: )?not supported", "the driver does not support a GPU"),
    (r"NVRM: The NVIDIA [^\n]{1,80} installed in this system is\s*(?:NVRM: +)?supported through the NVIDIA [^\n]{1,20} Legacy",
     "the driver does not support the GPU any more"),
    (rf"NVRM: ignoring the legacy GPU {_ANY_BUS}", "the driver does not support the GPU any more"),
    (rf"NVRM: Device start failed for {_ANY_BUS}", "the driver did not take the GPU"),
    (r"NVRM: (?:pci_enable_device failed, aborting|Can't find an IRQ for your NVIDIA card|request_mem_region failed for|"
     r"failed to wait for bar firewall to lower|Fatal Error while attempting to resize PCIe BARs|FATAL: Failed to re-allocate BAR1)",
     "the driver did not take a GPU"),
    (rf"NVRM: (?:GPU\d+ |GPU {_ANY_BUS}: )?(?:\w+: )?"
     r"(?:unexpected WPR2 already up|Cannot initialize GSP firmware RM|"
     r"GSP-RM proxy boot command failed|(?:SEC2 GSP Boot: ?)?Timeout waiting for GSP target mask release|"
     r"failed to (?:boot|execute) (?:the )?GSP)",
     "the system processor of the GPU (GSP) did not start"),
)  # fmt: skip
_PROBES = tuple((re.compile(form), meaning) for form, meaning in PROBES)
# (form, name, class, what happened): what the driver logs of a GPU without an Xid, or, in older versions, before one. It names no address.
# Sources: nv_gpu_ops.c nvGpuOpsReportFatalError, kernel_rc_watchdog_callback.c krcWatchdogCallback, nv.c nvidia_isr of NVIDIA's open
# kernel modules (470 to 595).
_BY = r"NVRM: (?:GPU\d+ )?(?:\w+: )?"
UNNUMBERED: tuple[tuple[str, str, Class, str], ...] = (
    (rf"{_BY}uvm encountered global fatal error 0x[0-9a-fA-F]+, requiring (?:an )?(?:os|OS) reboot", "UVM fatal error", RESET,
     "the driver's memory manager failed, and asks for a restart of the machine"),
    (rf"{_BY}RC watchdog: GPU is probably locked", "watchdog", APPLICATION, "the GPU did not answer for seconds"),
    (rf"{_BY}Going over RM unhandled interrupt threshold", "unhandled interrupts", NOTED, "the GPU sent interrupts that nobody expected"),
)  # fmt: skip
_UNNUMBERED = tuple((re.compile(form), name, of, meaning) for form, name, of, meaning in UNNUMBERED)
# NVSwitches that their driver did not take.
_SWITCH_PROBE = re.compile(
    rf"nvidia-nvswitch(?: {_ANY_BUS}: probe with driver nvidia-nvswitch|: probe of {_ANY_BUS}) failed with error -\d+"
)
# A function of a GPU for virtual machines, which the driver of a host leaves alone.
_VIRTUAL = re.compile(rf"NVRM: (?:Ignoring|Aborting) probe for VF {_ANY_BUS}")
# The driver is loaded: it asks all devices again.
_LOADED = re.compile(r"nvidia-nvlink: Nvlink Core is being initialized")
# How all of these begin.
_BEGINNINGS = ("NVRM: ", "nvidia")
# Lines with details of the SXid before them.
_DETAIL = re.compile(r"\s*(?:Severity \d|Data \{)")
_PID = re.compile(r"\bpid='?(\d{1,10})\b")
_NONFATAL = re.compile(r"\bnon-?fatal\b", re.IGNORECASE)
_FATAL = re.compile(r"(?<!non)(?<!non-)\bfatal\b", re.IGNORECASE)
# Where the memory error of an Xid 48 was, as the line names it.
_DRAM = re.compile(r"\b(?:framebuffer|FBPA?|DRAM|HBM\d?)\b", re.IGNORECASE)
_SRAM = re.compile(r"\b(?:SRAM|L[12]|LTC|SM|GPC|TPC|register file|cache)\b", re.IGNORECASE)
_ACTION = re.compile(r" to 0x[0-9a-fA-F]{1,8} \(([^)]{1,60})\)")
# In the words of evidence, which older versions and other readers have cut out of a line.
_ANYWHERE = re.compile(r"\bS?Xid:?(?: \([^)]{0,40}\):?)? ?(\d{1,6})\b([^\n]{0,400})")
SHOWN = 200


class XidEvent(t.NamedTuple):
    """One error in the log: PCI address (None if the line has none), name (`Xid 79`), class, meaning, pid that the driver names, and the
    line. `until_load`: it ends when the driver is loaded again, as that asks all devices again."""

    where: str | None
    name: str
    of: Class
    meaning: str
    pid: int | None
    line: str
    until_load: bool = False

    def words(self) -> str:
        return f"{self.name}, {self.meaning}: {self.of.advice}"


def read(text: str) -> XidEvent | None:
    """Return the error in a line of the kernel's log; None if the line reports none. A line that begins like an error and cannot be read is
    an error of an unknown number."""
    text = kernel_log.plain(text)
    if not text.startswith(_BEGINNINGS):
        return None
    line = " ".join(text.split())[:SHOWN]
    match = _XID.match(text)
    if match:
        number, message = int(match.group(2)), match.group(3)
        of, meaning = _class(number, message)
        pid = _PID.search(message)
        return XidEvent(match.group(1), f"Xid {number}", of, meaning, int(pid.group(1)) if pid else None, line)
    match = _SXID.match(text)
    if match:
        message = match.group(3) or ""
        if _DETAIL.match(message):
            return None
        of, meaning = _switch(int(match.group(2)), message)
        return XidEvent(match.group(1), f"SXid {match.group(2)}", of, meaning, None, line)
    match = _FALLEN.match(text)
    if match:
        return XidEvent(match.group(1), "Xid 79", *TABLE[79], None, line)
    match = _NOT_STARTED.match(text)
    if match:
        return XidEvent(match.group(1), "RmInitAdapter failed", LOST, "the driver could not start the GPU", None, line)
    return _unnumbered(text, line) or _not_taken(text, line) or _cut(text, line)


def _unnumbered(text: str, line: str) -> XidEvent | None:
    """Return the error of a line that has no number."""
    found = next((row for row in _UNNUMBERED if row[0].match(text)), None)
    return None if found is None else XidEvent(None, found[1], found[2], found[3], None, line)


def _not_taken(text: str, line: str) -> XidEvent | None:
    """Return the error of a device that the driver did not take."""
    for form, meaning in _PROBES:
        match = form.match(text)
        if match:
            where = match.group(1) if form.groups else None
            return XidEvent(where, "probe failed", LOST, meaning, None, line, until_load=True)
    match = _SWITCH_PROBE.match(text)
    if match:
        where = match.group(1) or match.group(2)
        return XidEvent(where, "probe of NVSwitch failed", LINK, "the driver did not take the NVSwitch", None, line, until_load=True)
    return None


def _cut(text: str, line: str) -> XidEvent | None:
    match = _BEGINS.match(text)
    return XidEvent(match.group(1), "Xid", UNLISTED, "the line in the kernel's log is cut", None, line) if match else None


def takes_back(text: str) -> tuple[str | None] | None:
    """Return what a line takes back of the errors that hold until the driver is loaded: (None,) for all that were logged before it, as the
    driver is loaded; (address,) for those of a device that is no GPU of this host; None if it takes nothing back."""
    text = kernel_log.plain(text)
    if not text.startswith(_BEGINNINGS):
        return None
    if _LOADED.match(text):
        return (None,)
    match = _VIRTUAL.match(text)
    return (match.group(1),) if match else None


def _class(number: int, message: str) -> tuple[Class, str]:
    of, meaning = TABLE.get(number, (UNLISTED, "no number of the table"))
    if number in DECODED:
        return _nvlink5(number, message)
    if number == 48:
        of = DRAM if _DRAM.search(message) else SRAM if _SRAM.search(message) else of
        return of, meaning if of is MEMORY else f"{meaning} of {of.name}"
    if number == 154:
        action = _ACTION.search(message)
        if action and action.group(1).strip().lower() == "none":
            return NOTED, "the driver asks for no recovery action any more"
        return of, f"{meaning}: {action.group(1)}" if action else meaning
    return of, meaning


def _nvlink5(number: int, message: str) -> tuple[Class, str]:
    """Return the class and the meaning of an NVLink 5 error. Its words decide, and what the line itself calls fatal is at least a defect of
    the link. A pattern that the catalogue does not have is noted with its words unless the line calls it fatal."""
    of, meaning = TABLE[number]
    if _NONFATAL.search(message):
        is_fatal = False
    else:
        is_fatal = number in SAYS_FATAL or _FATAL.search(message) is not None
    words = nvlink5.words_of(message)
    if words is None:
        return (of, meaning) if is_fatal and of is LINK else (LINK if is_fatal else NOTED, meaning if is_fatal else f"{meaning}, not fatal")
    found = nvlink5.decode(number, *words)
    if found is None:
        return LINK if is_fatal else NOTED, f"{meaning} of a pattern that the catalogue does not have (0x{words[0]:08x} 0x{words[1]:08x})"
    meaning = f"NVLink 5 error of {found.unit}, {_ENDS.get(found.investigatory, 'of this GPU')}: {found.immediate}, {found.investigatory}"
    if found.immediate == "RESET_GPU" or found.is_fatal or is_fatal:
        return PEER if found.investigatory == "INVESTIGATE_PEER_DEVICE" else LINK, meaning
    if found.immediate == "XID_154_EVAL":
        return APPLICATION, meaning
    return SIGNAL if found.unit == "NETIR_BER_EVENT" else NOTED, meaning


# Whose fault an NVLink 5 error is, by the catalogue's investigatory action.
_ENDS = {
    "INVESTIGATE_PEER_DEVICE": "at the other end of the link",
    "INVESTIGATE_LINK_SI": "by the signal of the link at this end",
    "INVESTIGATE_LINK_SI_AND_CABLES": "by the signal of the link, its cable or its seating",
    "INVESTIGATE_SW_USER": "by software or a user",
    "INVESTIGATE_SW_USER_LINK_SI": "by software, a user or the signal of the link",
    "INVESTIGATE_HOST": "by the host",
    "SYMPATHETIC_REPORT_SOLO": "following another error",
    "CHECK_NVLINK_FAILURE_FLOW": "following a link that went down, if one did",
}


def _switch(number: int, message: str) -> tuple[Class, str]:
    """Return the class and the meaning of an NVSwitch error. A line that does not say whether the error is fatal is taken for fatal."""
    if _NONFATAL.search(message) and number not in SXID_FATAL:
        return NOTED, "NVSwitch error, not fatal"
    return LINK, "fatal NVSwitch error"


def code_in(words: str) -> str:
    """Return the reason code of the Xid or SXid in `words`; that of a noted one if they have no number, which no probe writes."""
    match = _ANYWHERE.search(words)
    if match is None:
        return NOTED.code
    number, message = int(match.group(1)), match.group(2)
    of, _meaning = _switch(number, message) if number >= 10000 else _class(number, message)
    return of.code
