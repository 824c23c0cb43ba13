# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The errors that NVIDIA's driver writes into the kernel's log about a GPU (Xid) or an NVSwitch (SXid), and what each number means.

Source of numbers, meanings and actions: NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors, 2026-09, up to Xid 172 and
Blackwell), for Volta and older its table of Xid errors; of SXids the Fabric Manager User Guide. A number for which the catalogue's
immediate action is a reset, a restart of the machine, a look at the hardware or a workflow of its own is fatal; one for which it is
a restart of the application or nothing is a warning. Exceptions are marked with `*` in ROWS and explained in docs/xids.md.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t


class Class(t.NamedTuple):
    """A class of Xids: the reason code that decides the verdict, the code if the process belongs to our own test, and advice."""

    name: str
    code: str
    own_code: str
    advice: str


MEMORY = Class("memory", "ecc", "ecc", "reset the GPU; replace it if this comes again")
LOST = Class("lost", "gpu_lost", "gpu_lost", "power-cycle the node; check the GPU's seating and power if this comes again")
FAULT = Class("fault", "gpu_fault", "gpu_fault", "reset the GPU or reboot the node; ask the vendor if this comes again")
LINK = Class("link", "nvlink", "nvlink", "reset the GPUs or reboot the node; check the board, the tray or the cable if this comes again")
RESET = Class("reset", "gpu_reset", "gpu_reset", "do what the driver asks for, then test again")
REPAIRED = Class("repaired", "ecc_past", "ecc_past", "nothing, while no remap is pending and few rows are remapped")
APPLICATION = Class("application", "xid", "xid_own", "see what the application did; the GPU is suspect if several applications do")
NOTED = Class("noted", "xid", "xid", "watch it")
UNLISTED = Class("unlisted", "xid_unknown", "xid_unknown", "look it up in NVIDIA's Xid catalogue")

# (first, last, class, what happened). `*`: the class is another one than the catalogue's immediate action says.
ROWS: tuple[tuple[int, int, Class, str], ...] = (
    (8, 8, APPLICATION, "the GPU stopped processing a channel"),
    (13, 13, APPLICATION, "graphics engine exception"),
    (14, 14, NOTED, "a test message of the driver"),
    (25, 25, APPLICATION, "illegal or corrupted stream of commands"),
    (31, 31, APPLICATION, "GPU memory page fault"),
    (32, 32, APPLICATION, "invalid or corrupted stream of commands"),
    (37, 37, APPLICATION, "command that the firmware does not know"),
    (38, 38, APPLICATION, "driver firmware error"),
    (39, 42, APPLICATION, "copy engine or video exception"),
    (43, 43, APPLICATION, "the GPU stopped processing the channel of an application"),
    (44, 44, APPLICATION, "graphics engine fault during a context switch"),
    (45, 45, APPLICATION, "the channels of an application were cleaned up early"),
    (46, 46, FAULT, "the GPU stopped processing"),
    (47, 47, APPLICATION, "video exception"),
    (48, 48, MEMORY, "uncorrectable (double bit) ECC error"),
    (54, 54, FAULT, "auxiliary power is not connected, the clocks are reduced"),
    (56, 56, FAULT, "display engine error"),
    (57, 57, FAULT, "error while the memory interface was programmed"),
    (58, 58, FAULT, "unstable memory interface"),
    (59, 59, FAULT, "internal micro-controller error"),
    (60, 60, APPLICATION, "security or video engine exception"),
    (61, 61, FAULT, "internal micro-controller breakpoint"),
    (62, 62, FAULT, "internal micro-controller halt"),
    (63, 63, REPAIRED, "a memory row was marked for remapping, or a page for retirement"),
    (64, 64, MEMORY, "a memory row could not be remapped, or a page not be retired"),
    (65, 65, APPLICATION, "video encoder exception"),
    (66, 67, APPLICATION, "illegal access by the driver or an application"),
    (68, 68, APPLICATION, "video decoder exception"),
    (69, 69, APPLICATION, "graphics engine class error"),
    (70, 73, APPLICATION, "copy engine or video encoder exception"),
    (74, 74, LINK, "NVLink error"),
    (75, 77, APPLICATION, "copy engine exception"),
    (78, 78, NOTED, "a virtual GPU could not be started"),
    (79, 79, LOST, "the GPU has fallen off the bus"),
    (80, 80, FAULT, "* corrupted data was sent to the GPU"),
    (81, 81, FAULT, "VGA subsystem error"),
    (82, 91, APPLICATION, "image, video, optical flow or copy engine exception"),
    (92, 92, NOTED, "high rate of single bit ECC errors"),
    (93, 93, NOTED, "the InfoROM was written more often than it is made for"),
    (94, 94, MEMORY, "* contained uncorrectable memory error"),
    (95, 95, MEMORY, "uncontained uncorrectable memory error"),
    (96, 105, APPLICATION, "video or image engine exception"),
    (106, 107, NOTED, "a test message of the management interface"),
    (108, 108, APPLICATION, "address of another GPU that could not be translated"),
    (109, 109, FAULT, "timeout of a context switch"),
    (110, 110, FAULT, "security fault"),
    (119, 119, FAULT, "the GPU's system processor (GSP) did not answer"),
    (120, 120, FAULT, "error in the GPU's system processor (GSP)"),
    (121, 121, NOTED, "error of the link between CPU and GPU (C2C)"),
    (122, 124, FAULT, "the GPU's flash memory could not be read, written or erased"),
    (125, 125, FAULT, "error in the InfoROM's file system"),
    (126, 135, APPLICATION, "copy engine exception"),
    (136, 136, LINK, "an NVLink could not be trained"),
    (137, 137, APPLICATION, "access over NVLink that was not allowed"),
    (138, 139, APPLICATION, "deep learning or optical flow engine exception"),
    (140, 140, MEMORY, "uncorrectable memory error that the driver could not handle"),
    (141, 142, APPLICATION, "fast path or video encoder exception"),
    (143, 143, FAULT, "the GPU could not be initialised"),
    (144, 146, LINK, "NVLink 5 error"),
    (147, 148, NOTED, "NVLink 5 error that needs no action"),
    (149, 150, LINK, "NVLink 5 error"),
    (151, 151, FAULT, "error while an encryption key was changed"),
    (152, 153, APPLICATION, "deep learning engine exception"),
    (154, 154, RESET, "the driver asks for a recovery action"),
    (155, 155, NOTED, "* an NVLink was taken down by software"),
    (156, 156, FAULT, "a part of the GPU was retired"),
    (157, 157, FAULT, "* a part of the GPU could not be retired"),
    (158, 158, FAULT, "fatal timeout"),
    (159, 159, FAULT, "error in the coherent interface of the GPU"),
    (160, 160, REPAIRED, "a memory channel was retired"),
    (161, 161, MEMORY, "* a memory channel could not be retired"),
    (162, 165, NOTED, "power smoothing was switched, or wears out"),
    (166, 166, LINK, "* encryption error on an NVLink"),
    (167, 167, FAULT, "* fatal PCIe timeout"),
    (168, 168, MEMORY, "* a part of the GPU's memory cannot be used"),
    (169, 169, FAULT, "* security processor halt"),
    (170, 170, LINK, "* security error on an NVLink"),
    (171, 171, MEMORY, "* uncorrectable DRAM error"),
    (172, 172, MEMORY, "* uncorrectable SRAM error"),
)  # fmt: skip
TABLE: dict[int, tuple[Class, str]] = {
    number: (of, words.lstrip("* ")) for first, last, of, words in ROWS for number in range(first, last + 1)
}
RECOVERY_ACTION = "Xid 154"
# Xids whose line itself says whether they are fatal.
SAYS_FATAL = frozenset((144, 145, 146, 149, 150))
# NVSwitch errors after which the switch works on although the whole fabric must be reset (Fabric Manager User Guide).
SXID_FATAL = frozenset((10003, 19084))

_PLACE = r"\((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?(?: [^)]{0,32})?\)"
_XID = re.compile(rf"NVRM: Xid {_PLACE}: (\d{{1,3}}),([^\n]{{0,400}})")
_SXID = re.compile(rf"nvidia-nvswitch\d{{1,3}}: SXid {_PLACE}: (\d{{5}})(?:,([^\n]{{0,400}})|$)")
_BEGINS = re.compile(rf"(?:NVRM: Xid|nvidia-nvswitch\d{{1,3}}: SXid)\b(?: {_PLACE})?")
# A GPU that is gone when the driver starts has no Xid.
_BUS = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}"
_FALLEN = re.compile(rf"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?({_BUS})\b[^\n]{{0,300}}?\bfallen off the bus")
# A GPU that the driver could not start (nvidia.ko, RmInitAdapter); older drivers do not name it. The second form stands behind the first.
_NOT_STARTED = re.compile(rf"NVRM: (?:GPU (?:at )?(?:PCI:)?({_BUS})(?:\.[0-7])?: ?)?(?:RmInitAdapter|rm_init_adapter) failed\b")
# Lines with details of the SXid before them.
_DETAIL = re.compile(r"\s*(?:Severity \d|Data \{)")
_PID = re.compile(r"\bpid='?(\d{1,10})\b")
_NONFATAL = re.compile(r"\bnon-?fatal\b", re.IGNORECASE)
_ACTION = re.compile(r" to 0x[0-9a-fA-F]{1,8} \(([^)]{1,60})\)")
# In the words of evidence, which older versions and other readers have cut out of a line.
_ANYWHERE = re.compile(r"\bS?Xid:?(?: \([^)]{0,40}\):?)? ?(\d{1,6})\b([^\n]{0,400})")
SHOWN = 200


class XidEvent(t.NamedTuple):
    """One error in the log: PCI address (None if the line is cut), name (`Xid 79`), class, meaning, pid that the driver names, and the
    line."""

    where: str | None
    name: str
    of: Class
    meaning: str
    pid: int | None
    line: str

    def words(self) -> str:
        return f"{self.name}, {self.meaning}: {self.of.advice}"


def read(text: str) -> XidEvent | None:
    """Return the error in a line of the kernel's log; None if the line reports none. A line that begins like an error and cannot be read is
    an error of an unknown number."""
    line = text.strip()[:SHOWN]
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
    match = _BEGINS.match(text)
    return XidEvent(match.group(1), "Xid", UNLISTED, "the line in the kernel's log is cut", None, line) if match else None


def _class(number: int, message: str) -> tuple[Class, str]:
    of, meaning = TABLE.get(number, (UNLISTED, "no number of the table"))
    if number in SAYS_FATAL and _NONFATAL.search(message):
        return NOTED, f"{meaning}, not fatal"
    if number == 154:
        action = _ACTION.search(message)
        if action and action.group(1).strip().lower() == "none":
            return NOTED, "the driver asks for no recovery action any more"
        return of, f"{meaning}: {action.group(1)}" if action else meaning
    return of, meaning


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
