# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The errors that AMD's driver (amdgpu, with amdkfd in it) writes into the kernel's log about a GPU, and what each line means.

The driver has no numbers for its errors: lines are told apart by their words. Sources: the messages of drivers/gpu/drm/amd of Linux, their
classes by AMD's own readers of the log (amd-node-scraper 1.2.0; ROCm/cvs at dddd9143). PCIe errors of a slot, which begin with the
driver's name too, are read by host/kernel_messages/pcie.py.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import kernel_log
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.kernel_log import Class

MEMORY = Class("memory", "ecc", "ecc", "restart the node, which retires the page; replace the GPU if this comes again")
WORN = Class("worn", "ecc", "ecc", "replace the GPU: AMD takes it back at this number of bad pages")
CORRECTED = Class("corrected", "ecc_past", "ecc_past", "nothing, while the errors are few")
LOST = Class("lost", "gpu_lost", "gpu_lost", "power-cycle the node; check the GPU's seating and power if this comes again")
FAULT = Class("fault", "gpu_fault", "gpu_fault", "restart the node; ask the vendor if this comes again")
LINK = Class("link", "nvlink", "nvlink", "restart the node; replace the GPU or its board if this comes again")
RESET = Class("reset", "gpu_reset", "gpu_reset", "look for the error before the reset, which may be of another GPU of the board")
APPLICATION = Class("application", "xid", "xid_own", "see what the application did; the GPU is suspect if several applications do")
NOTED = Class("noted", "xid", "xid", "watch it")
UNLISTED = Class("unlisted", "xid", "xid", "AMD's acceptance demands a log without errors of amdgpu: look it up, or ask the vendor")

# (pattern, name, class, what happened), the first that is found in the message counts. Lines with one name are one kind of error.
ROWS: tuple[tuple[str, str, Class, str], ...] = (
    (r"Saved bad pages \d+ reaches threshold|RAS records:? ?\d+ exceed threshold|exceed(?:s|ed)? the threshold of bad page",
     "bad pages", WORN, "the bad pages of its memory have reached the driver's threshold"),
    (r"ERREVENT_ATHUB_INTERRUPT", "fatal hardware error", FAULT,
     "an uncorrectable hardware error, after which all GPUs of the board are reset"),
    (r"(?i)poison is consumed|poison consumption", "poison consumed", MEMORY, "a process used data that memory could not correct"),
    (r"(?i)poison is created", "poison created", MEMORY, "memory could not correct data, and marked it"),
    (r"Accelerator Check Architecture events logged|aca entry\[\d+\]", "ACA event", NOTED,
     "hardware errors were recorded; all GPUs of a board show them, and the first in time is the culprit"),
    (r"device lost from bus", "device lost", LOST, "the GPU has fallen off the bus"),
    (r"GPU reset ?\(\d+\) failed|Mode[12] reset failed|GPU reset end with ret = -\d+|GPU recovery failed", "reset failed", LOST,
     "the GPU could not be reset"),
    (r"GPU reset begin!?|kick off gpu reset|GPU mode[12] reset|BACO reset", "GPU reset", RESET, "the driver reset the GPU"),
    (r"GPU reset ?\(\d+\) succeeded", "GPU reset", NOTED, "the driver reset the GPU, which answers again"),
    (r"ring \S+ timeout", "ring timeout", FAULT, "a queue of the GPU hung"),
    (r"qcm fence wait loop timeout|HW Exception by GPU|Queue preemption failed|Failed to evict process queues"
     r"|cp might be in an unrecoverable", "hang", FAULT, "the GPU does not answer its scheduler"),
    (r"(?i)(?:wafl|xgmi)\b.*(?:link )?training failed", "XGMI training", LINK, "a link between the GPUs could not be trained"),
    (r"(?i)xgmi.*(?:link (?:is )?down|failed to (?:initialize|add|update))", "XGMI", LINK, "a link between the GPUs is down"),
    (r"Fatal error during GPU init|[hs]w_init of IP block <[^>]*> failed|(?i:memory training failed)|(?i:hbm.*test failed)|discovery failed"
     r"|fw_status 0xffffffff|probe with driver amdgpu failed|probe of \S+ failed with error",
     "start failed", LOST, "the driver could not start the GPU"),
    (r"page fault|PROTECTION_FAULT_STATUS|Illegal register access|illegal instruction|memory violation", "page fault", APPLICATION,
     "an access to memory that was not allowed"),
    (r"GPU is throttled|throttling event", "throttled", NOTED, "the GPU was throttled"),
    (r"Runlist is getting oversubscribed|Expect reduced ROCm performance", "oversubscribed", NOTED,
     "there are more queues than the GPU has, which makes it slower"),
)  # fmt: skip
_ROWS = tuple((re.compile(form), name, of, meaning) for form, name, of, meaning in ROWS)

_BDF = r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
# The driver's name may stand before the address, behind it, or both; then an event number. `probe of` names the address later.
_PREFIX = re.compile(
    rf"(?:amdgpu|kfd kfd|\[drm(?::\w+)?(?: \[amdgpu\])?\])(?: {_BDF})?:? *(?:amdgpu: *)?(?:\[drm(?::\w+)?(?: \[amdgpu\])?\] *)?"
    r"(?:\*ERROR\* *)?(?:\{\d{1,20}\} *)?"
)
_PROBED = re.compile(rf"amdgpu: probe of {_BDF} failed with error -\d+")
# Errors of the slot, which are the kernel's own.
_OF_PCIE = re.compile(
    r"aer_\w+|AER:|PCIe Bus Error|device \[\w+:\w+\] error|DPC:|EDR:|\[ *\d+\] \w+ +\((?:First|)\)|TLP Header|can't change power state"
)
# `socket: 0, die: 1, 2 new uncorrectable hardware errors detected in umc block`, and older forms.
_COUNTED = re.compile(
    r"\b(\d{1,10}|no)(?: new)? (uncorrectable|correctable|deferred) hardware errors? detected(?: in total)?(?: in (\w{1,40}) block)?"
)
_PID = re.compile(r"\b(?:pid|PID)[ :=]+(\d{1,10})\b")
_FAILED = re.compile(r"(?i)\berrors?\b|\*ERROR\*|\bfail(?:ed|ure)\b|\bfatal\b")
# What the driver says of itself with such a word on machines in order.
_HARMLESS = re.compile(
    r"(?i)hardware errors detected.*no user action|error handling|ras (?:is |feature )?enabled|no error|optional|"
    r"\b(?:0|no) (?:\w+ ){0,3}errors?\b|errors? (?:injection|count(?:er)?s? (?:is|are) (?:reset|0))"
)
_LOADED = re.compile(r"(?:\[drm\] *|amdgpu: *)+(?:\[drm\] *)?amdgpu kernel modesetting enabled")
SHOWN = 200


class Event(t.NamedTuple):
    """One error in the log: PCI address (None if the line has none), name, class, meaning, pid that the driver names, and the line.
    `until_load`: it ends when the driver is loaded again."""

    where: str | None
    name: str
    of: Class
    meaning: str
    pid: int | None
    line: str
    until_load: bool = False

    def words(self) -> str:
        return f"{self.name}, {self.meaning}: {self.of.advice}"


def read(text: str) -> Event | None:
    """Return the error in a line of the kernel's log; None if it is none of amdgpu, or reports no error."""
    text = kernel_log.plain(text)
    prefix = _PREFIX.match(text)
    if prefix is None or ("amdgpu" not in text and "kfd" not in text[: prefix.end()]):
        return None
    where, message, line = prefix.group(1), text[prefix.end() :], " ".join(text.split())[:SHOWN]
    if _OF_PCIE.search(message):
        return None
    pid = _PID.search(message)
    counted = _COUNTED.search(message)
    if counted:
        return _hardware(counted, where, line)
    probed = _PROBED.match(text)
    if probed:
        return Event(probed.group(1), "start failed", LOST, "the driver did not take the GPU", None, line, until_load=True)
    for form, name, of, meaning in _ROWS:
        if form.search(message):
            return Event(where, name, of, meaning, int(pid.group(1)) if pid else None, line, until_load=name == "start failed")
    if (_FAILED.search(message) or "*ERROR*" in text[: prefix.end()]) and not _HARMLESS.search(message):
        number = int(pid.group(1)) if pid else None
        return Event(where, "driver error", UNLISTED, "the driver logged an error that no table has", number, line)
    return None


def _hardware(counted: re.Match[str], where: str | None, line: str) -> Event | None:
    """Return the error of a line that counts hardware errors; None if it counts none."""
    number, kind, block = counted.group(1), counted.group(2), (counted.group(3) or "").lower()
    if number == "no" or int(number) == 0:
        return None
    of_link = block.startswith("xgmi") or block.startswith("wafl")
    if kind == "correctable":
        of = CORRECTED
    elif of_link:
        of = LINK
    else:
        of = FAULT if block == "pcie_bif" else MEMORY
    words = {"deferred": "bad data that was not used yet"}.get(kind, f"{kind} errors")
    # A driver says in one line what is new, in the next what all are.
    return Event(where, f"{kind} errors of {block or 'a block'}", of, f"{words} in {block or 'a block that is not named'}", None, line)


def is_load(text: str) -> bool:
    """Return True if a line says that the driver is loaded, which asks all devices again."""
    return bool(_LOADED.match(kernel_log.plain(text)))
