# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a machine's clock: whether a service keeps it, and its offset.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import ctypes
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.check_report import CheckReport
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import installed
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

TIME_ERROR = 5  # adjtimex(2): the clock is not synchronised
# Seconds. etcd warns from 1 s between two of its members (rafthttp, maxClockDriftBetweenPeers); 0.1 s is what the facts of a node allow.
WARN_S, FAIL_S = 0.1, 1.0
_SOURCES = (
    ("chrony", ("chronyc", "-c", "tracking"), r"^(?:[^,]*,){4}(-?\d+(?:\.\d+)?)()"),
    ("ntp", ("ntpq", "-c", "rv 0 offset"), r"offset=(-?\d+(?:\.\d+)?)(ms)?"),
    ("timesyncd", ("timedatectl", "timesync-status"), r"Offset: ([+-]?\d+(?:\.\d+)?)(us|ms|s)"),
)


class Timex(ctypes.Structure):
    """The beginning of struct timex of adjtimex(2). All zero asks and changes nothing."""

    _fields_ = (
        ("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long), ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long), ("status", ctypes.c_int), ("rest", ctypes.c_char * 400),
    )  # fmt: skip


class KernelClock(t.NamedTuple):
    """The kernel's state of its clock: whether it is synchronised, its greatest and its estimated error in seconds."""

    synchronised: bool
    max_error_s: float
    error_s: float


def of_kernel() -> KernelClock | None:
    """Return what the kernel says of its clock; None if it may not be asked."""
    timex = Timex()
    state = ctypes.CDLL(None).adjtimex(ctypes.byref(timex))
    return None if state < 0 else KernelClock(state != TIME_ERROR, timex.maxerror / 1e6, timex.esterror / 1e6)


def of_keeper(node: Node) -> tuple[str, float] | None:
    """Return (name, offset in seconds) of the program that keeps the time; None if there is none or it does not say the offset."""
    for source, argv, pattern in _SOURCES:
        match = re.search(pattern, installed.output(node, *argv) or "")
        if match:
            unit = "ms" if source == "ntp" else match.group(2)
            return source, round(float(match.group(1)) * {"us": 1e-6, "ms": 1e-3}.get(unit, 1.0), 9)
    return None


def inspect(node: Node, report: CheckReport) -> None:
    """Look at the clock."""
    judge(of_kernel(), of_keeper(node), report)


def judge(kernel: KernelClock | None, keeper: tuple[str, float] | None, report: CheckReport) -> None:
    """Record what the kernel and the program that keeps the time say."""
    if kernel is None:
        report.missed("clock", "whether the clock is synchronised: the kernel does not say it")
    else:
        report.saw("whether the kernel's clock is synchronised")
        report.details["clock"] = kernel._asdict()
        if not kernel.synchronised:
            report.found("clock_free", "the clock is not synchronised: no NTP or PTP service keeps it")
    if keeper is None:
        report.missed("clock_offset", "the clock's offset: none of chronyc, ntpq and timedatectl says it")
        return
    name, offset = keeper
    report.saw(f"the clock's offset ({name})")
    report.details["clock_offset_s"] = offset
    if abs(offset) > WARN_S:
        limit = FAIL_S if abs(offset) > FAIL_S else WARN_S
        code = "clock_off" if limit == FAIL_S else "clock_offset"
        report.found(code, f"the clock is off by {offset:.3f} s by {name}, more than {limit:g} s")
