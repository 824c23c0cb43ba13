# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hardware errors in the kernel's log since boot, those of accelerators left out: the health check of accelerators has them.

Which messages there are, and what each of them means, is in the tables of `kernel_messages`.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import standing
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.check_report import CheckReport
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.kernel_messages import pcie, tables
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import kernel_log

# How the words of a fault end that a later message has ended.
_OVER = "; a later message says that this is over"
# What the memory check shows; everything else is the kernel check's.
OF_MEMORY = ("host_memory", "host_memory_corrected")
_CORRECTED_LINK = re.compile(pcie.CORRECTED, re.IGNORECASE)
# A disk that can be taken out, as the virtual media of a management controller are: its errors mean that nothing is in it.
_REMOVABLE = re.compile(r"sd (\d+:\d+:\d+:\d+): \[(sd\w+)\] Attached SCSI removable disk")
_OF_DISKS = ("disk", "disk_worn")
# Vendors whose machine checks have AMD's bits (arch/x86/include/asm/processor.h, X86_VENDOR_AMD and X86_VENDOR_HYGON).
_AMD = re.compile(r"^vendor_id\s*:\s*(?:AuthenticAMD|HygonGenuine)\s*$", re.MULTILINE)
_OF_DISK = re.compile(r"(sd[a-z]+)\d*")


class Error(t.NamedTuple):
    """An error that a line tells of. Of several lines with the same `key` the last one is shown, with their number."""

    code: str
    key: tuple[str, ...]
    words: str


class _Seen(t.NamedTuple):
    """The reading of a line: the row that it matches, its words; or the names of a disk that can be taken out."""

    found: tables.Found | None
    words: str
    removable: tuple[str, ...] = ()


def read(text: str, is_amd: bool = False) -> Error | None:
    """Return the hardware error that a line of the kernel tells of, or None. `is_amd`: the machine has AMD's processors."""
    text = kernel_log.plain(text)
    found = tables.read(text, is_amd)
    return _error(found, text) if found and found.code else None


def during(lines: t.Iterable[kernel_log.Line], tree: Tree) -> t.Iterator[tuple[Error, int]]:
    """Yield the errors that some lines tell of, each with the number of its lines. One that a later line has ended is what stays of it, at
    least a fault that came and went."""
    last: dict[t.Any, tuple[_Seen, kernel_log.Line, int]] = {}
    is_amd = _is_amd(tree)
    for line in lines:
        entry = _keyed(kernel_log.plain(line.text), is_amd)
        if entry:
            key, seen = entry
            last[key] = (seen, line, last.pop(key)[2] + 1 if key in last else 1)
    counts = {_error(seen.found, seen.words).key[1:]: count for seen, _line, count in last.values() if seen.found}
    log = _of_boot(kernel_log.Boot(last, True, None, {}, {}), tree)
    for error, _times in log.standing:
        yield error, counts.get(error.key[1:], 1)
    for error, _times in log.over:
        yield error._replace(code="fault_passed"), counts.get(error.key[1:], 1)


def inspect(tree: Tree, report: CheckReport, of_memory: bool) -> None:
    """Look at the kernel's log since boot: for errors of memory, or for all others. A fault that a later message of the same part has ended
    is shown as what stays of it, if anything does."""
    is_amd = _is_amd(tree)
    boot = kernel_log.since_boot(tree.node.path(kernel_log.PATH), lambda text: _keyed(text, is_amd))
    if boot is None:
        report.missed("kernel_log", f"the kernel's log: {kernel_log.PATH} is missing or may not be read", demanded=not of_memory)
        return
    report.saw(f"the kernel's log since {'boot' if boot.complete else boot.since or 'an unknown time'}")
    if not boot.complete:
        report.missed("kernel_log_since_boot", "the kernel's log between boot and its first line, which was overwritten")
    log = _of_boot(boot, tree)
    for record, errors in ((report.found, log.standing), (report.ended, log.over)):
        for error, times in errors:
            if (error.code in OF_MEMORY) == of_memory:
                record(error.code, f"the kernel's log has, at {times}: {error.words}")


def corrected_links(tree: Tree, report: CheckReport, allowed: float) -> None:
    """Look for devices with more than `allowed` messages of corrected PCIe errors within a day: counters since boot hide a link that has
    become bad lately."""
    boot = kernel_log.since_boot(tree.node.path(kernel_log.PATH), _corrected_link)
    for where, (_text, line, _count) in (boot.last if boot else {}).items():
        most = boot.busiest.get(where, 0) if boot else 0
        if most > allowed:
            words = f"the kernel's log has {most} messages of corrected errors within one day, more than {allowed:.0f}"
            report.found("pcie_corrected", f"{where}: {words}, the last at {line.when()}")


class _Log(t.NamedTuple):
    """The errors of a log that stand, or of which something stays, and those that are over without a trace, each with its times."""

    standing: list[tuple[Error, str]]
    over: list[tuple[Error, str]]


def _of_boot(boot: kernel_log.Boot, tree: Tree) -> _Log:
    """Return what a log says, by the last line of each key."""
    removable = {name for seen, _line, _count in boot.last.values() for name in seen.removable}
    events: list[standing.Event] = []
    ended: dict[t.Any, tuple[Error, str]] = {}
    over: dict[t.Any, tuple[Error, str]] = {}
    for key, (seen, line, count) in boot.last.items():  # in the order of the last line of each key
        found = seen.found
        if found is None or (found.code in _OF_DISKS and _is_removable(found.part, removable, tree)):
            continue
        state = found.message.state
        part, kind = (found.part, state) if state else (key, "")
        if found.code:
            times = kernel_log.times(line, count, boot.recent.get(key, 0))
            events.append(standing.Event(part, kind, True, (_error(found, seen.words), times)))
            stays = found._replace(code=found.message.healed or found.code)
            (ended if found.message.healed else over)[part, kind] = (_error(stays, f"{seen.words}{_OVER}"), times)
        elif state:
            events.append(standing.Event(part, kind, False))
    faults = []
    for event in standing.standing(events):
        ended.pop((event.part, event.kind), None)
        over.pop((event.part, event.kind), None)
        faults.append(event.data)
    return _Log([*faults, *ended.values()], list(over.values()))


def _is_removable(part: tuple[str, ...], removable: set[str], tree: Tree) -> bool:
    """Return True if one of the names of a disk is that of one that can be taken out."""
    disks = [match.group(1) for match in map(_OF_DISK.fullmatch, part) if match]
    return bool(removable.intersection([*part, *disks])) or any(tree.text(f"/sys/block/{disk}/removable") == "1" for disk in disks)


def _is_amd(tree: Tree) -> bool:
    """Return True if the processors are AMD's, or those of its licensee Hygon."""
    return bool(_AMD.search(tree.text("/proc/cpuinfo") or ""))


def _keyed(text: str, is_amd: bool) -> tuple[t.Any, _Seen] | None:
    found = tables.read(text, is_amd)
    if found is None:
        match = _REMOVABLE.match(text)
        return (("removable", match.groups()), _Seen(None, "", match.groups())) if match else None
    return (found.code, found.message.meaning, *found.part), _Seen(found, text)


def _corrected_link(text: str) -> tuple[t.Any, str] | None:
    match = _CORRECTED_LINK.match(text)
    return (match.group(1), text) if match else None


def _error(found: tables.Found, text: str) -> Error:
    meaning = found.message.meaning
    if meaning == "machine check":
        meaning = f"{'uncorrected' if found.code == 'machine_check' else 'corrected'} machine check"
    return Error(found.code, (found.code, meaning, *found.part), f"{meaning}: {_shown(text)}")


def _shown(text: str) -> str:
    return " ".join(text.split())[:200]
