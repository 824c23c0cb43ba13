# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters of the processors that the kernel keeps since boot, which stands when its log has lost the lines: machine check exceptions
(arch/x86/kernel/irq.c, arch_show_interrupts) and throttling for heat (drivers/thermal/intel/therm_throt.c).

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, Value, number
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.check_report import CheckReport
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.memory import DMI
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import BARE_METAL, Tree, span
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import smbios

INTERRUPTS, CPU = "/proc/interrupts", "/sys/devices/system/cpu"
# Interrupts by which a processor tells of errors: {name: (code, words)}. A machine check exception is of an error that was not corrected;
# a deferred one (AMD) of data that was found bad and not used yet. Polls (MCP) and thresholds of corrected errors (THR) are normal.
_ERRORS = {
    "MCE": ("machine_check", "machine check exceptions"),
    "DFR": ("hardware_corrected", "interrupts for deferred errors"),
}  # fmt: skip
# A processor that throttled so many times as often as the others is worth a look, if it is more than now and then.
BESIDE_OTHERS, NOW_AND_THEN = 10.0, 100


def inspect(tree: Tree, report: CheckReport) -> None:
    """Look at what the kernel has counted of its processors."""
    for name, counts in interrupts(_lines(tree.path(INTERRUPTS))).items():
        highest: int | float = max((count for count in counts if not isinstance(count, Absent)), default=0)
        unread = [count.why for count in counts if isinstance(count, Absent)]
        code, words = _ERRORS[name]
        # An exception is broadcast to all processors of some machines, so that the sum would count it many times.
        if highest:
            report.found(code, f"the kernel has counted {highest} {words} on one processor since boot ({INTERRUPTS})")
        if unread:
            report.silent("interrupts", f"{words}: {INTERRUPTS} has them and they cannot be read: {unread[0]}")
    _throttling(tree, report)
    _not_used(tree, report)


def _not_used(tree: Tree, report: CheckReport) -> None:
    """Look for processors that are in the machine and do not work: by the firmware's table, and by what the kernel has started. Threads
    that are switched off (SMT), or kept off by the kernel's command line, are meant so."""
    if report.place != BARE_METAL:
        return
    sockets = smbios.processors(tree.data(DMI) or b"")
    for socket in sockets:
        if socket.status == smbios.FAILED:
            report.found("machine_check", f"processor {socket.name}: the firmware has disabled it, for it failed its test at the start")
    packages = {tree.text(f"{CPU}/{name}/topology/physical_package_id") for name in tree.names(CPU) if re.fullmatch(r"cpu\d+", name)}
    options = f" {tree.text('/proc/cmdline') or ''} "
    is_limited = bool(re.search(r" (?:maxcpus|nr_cpus|possible_cpus)=| nosmp ", options))
    if sockets and None not in packages and 0 < len(packages) < len(sockets) and not is_limited:
        names = ", ".join(socket.name for socket in sockets)
        report.silent("processors", f"processors: the firmware lists {len(sockets)} ({names}) and the kernel uses {len(packages)}")
    present, online = (_numbers(tree.text(f"{CPU}/{name}")) for name in ("present", "online"))
    off = present - online
    if off and online and tree.text(f"{CPU}/smt/control") not in ("off", "forceoff") and not is_limited:
        # Half of them are the second threads of all cores, which some sites switch off one by one.
        record = report.missed if 2 * len(off) == len(present) else report.silent
        record("processors", f"processors: {len(off)} of {len(present)} are there and not in use ({span(off)})")


def _numbers(text: str | None) -> set[int]:
    """Return the numbers of a list of the kernel, `0-3,8`; none if it cannot be read."""
    ranges = re.findall(r"(\d{1,6})(?:-(\d{1,6}))?", text or "") if re.fullmatch(r"[\d,-]+", text or "") else []
    return {number for first, last in ranges for number in range(int(first), int(last or first) + 1)}


def _lines(path: str) -> list[str]:
    """Return the lines of a file, which has many MiB on machines with hundreds of processors; none if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as source:
            return [line for line in source if line.lstrip().partition(":")[0] in _ERRORS]
    except OSError:
        return []


def interrupts(lines: t.Iterable[str]) -> dict[str, list[Value]]:
    """Return {name: count of each processor} of the interrupts that tell of errors."""
    found: dict[str, list[Value]] = {}
    for line in lines:
        name, _colon, rest = line.strip().partition(":")
        if name in _ERRORS:
            # Words for people stand behind the counts, and begin with a letter.
            cells = re.split(r"\s{2,}(?=[A-Za-z])", rest.strip())[0].split()
            found[name] = [number(cell, f"a count of {name}") for cell in cells]
    return found


def _throttling(tree: Tree, report: CheckReport) -> None:
    """Compare how often each package has throttled for heat."""
    by_package: dict[str, int | float] = {}
    for name in tree.names(CPU):
        of = f"{CPU}/{name}"
        text = tree.text(f"{of}/thermal_throttle/package_throttle_count") if re.fullmatch(r"cpu\d+", name) else None
        if text is None:
            continue
        count = number(text, f"package_throttle_count of {name}")
        if isinstance(count, Absent):
            report.silent("throttling", f"throttling of processors: {count.why}")
            continue
        package = tree.text(f"{of}/topology/physical_package_id") or "0"
        by_package[package] = max(by_package.get(package, 0), count)
    if by_package:
        report.saw(f"throttling of {len(by_package)} processors since boot")
    for package, count in sorted(by_package.items()):
        others = [other for name, other in by_package.items() if name != package]
        usual: t.Any = statistics.median(others) if others else None
        if usual is not None and count > max(NOW_AND_THEN, BESIDE_OTHERS * usual):
            words = f"processor {package} throttled for heat {count} times since boot, the others {usual:g}: look at its heat sink and fans"
            report.found("hardware_corrected", words)
