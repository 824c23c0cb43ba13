# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory modules of a machine: what the firmware lists, and the errors that the memory controllers have counted.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, Value, is_absent, number
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import population
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.check_report import CheckReport
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import BARE_METAL, Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import smbios

DMI = "/sys/firmware/dmi/tables/DMI"
EDAC = "/sys/devices/system/edac/mc"
NODES = "/sys/devices/system/node"
# Types of memory beside the modules for programs: HBM of a processor, and memory that keeps its content (DSP0134, 7.18.2).
_BESIDE = (0x1F, 0x20, 0x21, 0x24)
# A NUMA node with less than this share of the memory of the largest one is worth a look. One of eight modules less leaves 0.875; the
# firmware takes a few GiB of one node, so that small machines are not compared.
NODE_SHARE, NODE_KIB = 0.9, 32 << 20


class Counted(t.NamedTuple):
    """Errors of one memory module, or of a controller that cannot say which module (`label` is ""). A counter that is there and cannot
    be read is Absent."""

    controller: str
    place: str
    label: str
    corrected: Value
    uncorrected: Value

    def words(self) -> str:
        return f"{self.label} ({self.controller} {self.place})" if self.label else f"a module of memory controller {self.controller}"


def dimms(tree: Tree) -> list[smbios.Dimm]:
    """Return the memory slots that the firmware lists; none if its table cannot be read."""
    return smbios.dimms(tree.data(DMI) or b"")


def counted(tree: Tree) -> list[Counted]:
    """Return the counters of the kernel's EDAC drivers: each module, and what a controller has counted beyond its modules."""
    counters: list[Counted] = []
    for mc in _numbered(tree, EDAC, "mc"):
        modules = [_module(tree, mc, name) for name in _numbered(tree, f"{EDAC}/{mc}", "dimm", "rank") if _has_counts(tree, mc, name)]
        modules = modules or [module for row in _numbered(tree, f"{EDAC}/{mc}", "csrow") for module in _channels(tree, mc, row)]
        counters += modules
        corrected = _beyond(_count(tree, f"{EDAC}/{mc}/ce_count"), [module.corrected for module in modules])
        uncorrected = _beyond(_count(tree, f"{EDAC}/{mc}/ue_count"), [module.uncorrected for module in modules])
        if corrected != 0 or uncorrected != 0 or not modules:
            counters.append(Counted(mc, "", "", corrected, uncorrected))
    return counters


def _count(tree: Tree, path: str) -> Value:
    """Return the number in a counter's file."""
    name = path[len(EDAC) + 1 :]
    text = tree.text(path)
    count: Value = Absent(f"{name} is missing or cannot be read") if text is None else number(text, name)
    return Absent(f"{name} reads {text!r}") if not isinstance(count, Absent) and count < 0 else count


def _beyond(whole: Value, of_modules: t.Sequence[Value]) -> Value:
    """Return what a controller has counted beyond its modules; all of it if one of them cannot be read."""
    counts = [count for count in of_modules if not isinstance(count, Absent)]
    if isinstance(whole, Absent) or len(counts) < len(of_modules):
        return whole
    return max(whole - sum(counts), 0)


def risen(before: t.Sequence[Counted], after: t.Sequence[Counted]) -> list[dict[str, t.Any]]:
    """Return the counters that rose between two readings, as changes of the evidence of a test."""
    old_counters = {(counter.controller, counter.place): counter for counter in before}
    changes = []
    for counter in after:
        old = old_counters.get((counter.controller, counter.place), counter._replace(corrected=0, uncorrected=0))
        for code, kind, old_count, new_count in (
            ("host_memory", "uncorrectable", old.uncorrected, counter.uncorrected),
            ("host_memory_corrected", "corrected", old.corrected, counter.corrected),
        ):
            # A counter that cannot be read is told by the check of the memory; here only what rose counts.
            if not isinstance(old_count, Absent) and not isinstance(new_count, Absent) and new_count > old_count:
                text = f"{counter.words()}: its {kind} memory errors rose from {old_count} to {new_count}"
                changes.append({"code": code, "part": "", "text": text, "before": old_count, "after": new_count})
    return changes


def inspect(tree: Tree, report: CheckReport) -> None:
    """Look at memory modules and their error counters."""
    table = tree.data(DMI)
    slots = dimms(tree)
    if slots:
        modules = [slot for slot in slots if slot.size_mib != 0]
        report.saw(f"{len(modules)} memory modules in {len(slots)} slots (DMI)")
        report.details["dimms"] = [_row(slot) for slot in slots]
        report.details["system"] = smbios.system(table or b"")._asdict()
        _look_at_modules(tree, report, modules)
        if report.place == BARE_METAL:
            _look_at_slots(report, slots)
    elif table is None:
        report.missed("dmi", f"memory modules: {DMI} is missing or may not be read", demanded=True)
    else:
        report.missed("dmi", f"memory modules: the firmware lists none in {DMI}")
    if table is not None and not smbios.is_whole(table):
        report.silent("dmi", f"memory modules: {DMI} is there and ends within a structure: some of them may be missing")
    _look_at_nodes(tree, report)
    _look_at_counters(tree, report, slots)


def _look_at_counters(tree: Tree, report: CheckReport, slots: t.Sequence[smbios.Dimm]) -> None:
    errors = counted(tree)
    if not errors:
        report.missed("edac", f"memory errors: the kernel has no counters in {EDAC} (no EDAC driver for this machine is loaded)")
        return
    counts = [value for counter in errors for value in (counter.corrected, counter.uncorrected)]
    unread = list(dict.fromkeys(value.why for value in counts if isinstance(value, Absent)))
    if unread:
        report.silent("edac", f"memory errors: counters are there and cannot be read: {'; '.join(unread[:4])}")
    read = [counter for counter in errors if not is_absent(counter.corrected) and not is_absent(counter.uncorrected)]
    if read:
        report.saw(f"error counters of {len({counter.controller for counter in read})} memory controllers (EDAC)")
    corrected_counts = [counter.corrected for counter in errors if counter.label and not isinstance(counter.corrected, Absent)]
    for counter in errors:
        serial = _serial(slots, counter.label)
        where = counter.words() + (f", serial number {serial}" if serial else "")
        if not isinstance(counter.uncorrected, Absent) and counter.uncorrected:
            report.found("host_memory", f"{where}: {_errors(counter.uncorrected, 'uncorrectable')} since boot: replace the module")
        if not isinstance(counter.corrected, Absent) and counter.corrected:
            # Beside its siblings: one module of many is bad, all alike hint at the board or the temperature.
            usual = statistics.median_low(corrected_counts) if len(corrected_counts) > 2 and counter.label else 0
            siblings = f", where most modules have {usual}" if usual else ""
            report.found("host_memory_corrected", f"{where}: {_errors(counter.corrected, 'corrected')} since boot{siblings}")


def _look_at_slots(report: CheckReport, slots: t.Sequence[smbios.Dimm]) -> None:
    """Look at what the firmware says of slots and modules beside their sizes."""
    of_programs = [slot for slot in slots if slot.kind not in _BESIDE]
    for words in population.unbalanced(of_programs):
        report.found("dimm_unbalanced", words)
    for (rated, speed), modules in population.slow(of_programs).items():
        names = f"{modules[0].name}{f' and {len(modules) - 1} more' if len(modules) > 1 else ''}"
        report.found("dimm_slow", f"{names}: runs at {speed} MT/s and is rated {rated}")
    present = [slot for slot in slots if slot.size_mib != 0]
    for slot in present:
        if slot.not_used:
            report.found("dimm_lost", f"{slot.name}: the firmware does not use it, it says {slot.not_used!r}")
        elif slot.speed is None and any(other.speed for other in present if other.kind == slot.kind):
            report.found("dimm_lost", f"{slot.name}: the firmware has set no speed for it, as for a module that it does not use")
    for slot in slots:
        if slot.size_mib == 0 and slot.rated and re.fullmatch(r"(?!(.)\1*$)[0-9A-Fa-f]{6,}", slot.serial):
            report.found("dimm_lost", f"{slot.name}: a module is in the slot, and the firmware gives it no size")
    unknown = [slot.name for slot in present if slot.size_mib is None]
    if unknown:
        report.silent("dimm_size", f"memory modules that are there and whose size the firmware does not know: {', '.join(unknown[:4])}")
    if present and not any(slot.speed for slot in present):
        report.missed("dimm_speed", "speeds of memory modules: the firmware does not give them")


def _look_at_nodes(tree: Tree, report: CheckReport) -> None:
    """Compare the memory of NUMA nodes that have processors, for machines whose table of modules cannot be read, too."""
    if report.place != BARE_METAL or any(code == "dimm_unbalanced" for code, _words in report.problems):
        return
    sizes: dict[int, int] = {}
    for name in _numbered(tree, NODES, "node"):
        kib = re.search(r"MemTotal:\s+(\d+) kB", tree.text(f"{NODES}/{name}/meminfo") or "")
        # GPUs of Grace superchips and CXL memory are nodes without processors.
        if tree.text(f"{NODES}/{name}/cpulist") and kib:
            sizes[int(name[4:])] = int(kib.group(1))
    largest = max(sizes.values(), default=0)
    poor = [f"node {node} has {size >> 20} GiB" for node, size in sorted(sizes.items()) if size < NODE_SHARE * largest]
    if poor and largest >= NODE_KIB:
        words = f"NUMA {', '.join(poor[:4])}, where another has {largest >> 20}: memory modules are missing or not used"
        report.found("dimm_unbalanced", words)


def _serial(slots: t.Sequence[smbios.Dimm], label: str) -> str:
    """Return the serial number of the module that a label names; empty unless exactly one slot has this name: `A1` does not name A10,
    and slots of some machines have the same names on each socket."""
    named = [slot for slot in slots if slot.locator and re.search(rf"(?<![0-9A-Za-z]){re.escape(slot.locator)}(?![0-9A-Za-z])", label)]
    return str(named[0].serial or "") if len(named) == 1 else ""


def _errors(count: int | float, kind: str) -> str:
    return f"{count} {kind} memory error{'' if count == 1 else 's'}"


def _look_at_modules(tree: Tree, report: CheckReport, modules: list[smbios.Dimm]) -> None:
    for quantity, values in (("size", [module.size_mib for module in modules]), ("speed", [module.speed for module in modules])):
        usual = max(set(values), key=lambda value: (values.count(value), value or 0), default=None)
        for module, value in zip(modules, values):
            if value is not None and usual is not None and value != usual:
                value_text, expected = (f"{n / 1024:g} GiB" if quantity == "size" else f"{n} MT/s" for n in (value, usual))
                words = f"{module.name}: its {quantity} is {value_text}, that of most modules of the machine {expected}"
                report.found("dimm_differs", words)
    kib = re.search(r"MemTotal:\s+(\d+) kB", tree.text("/proc/meminfo") or "")
    if not kib:
        report.missed("meminfo", "whether all memory modules are used: /proc/meminfo does not say how much memory the kernel has")
    sizes = [module.size_mib for module in modules]
    known_sizes = [size for size in sizes if size]
    if kib and len(known_sizes) == len(sizes) and known_sizes and report.place == BARE_METAL:
        lost = sum(known_sizes) - int(kib.group(1)) // 1024
        # The kernel keeps 1.6 % for its own tables of pages (64 bytes for each 4 KiB).
        if lost - sum(known_sizes) // 32 >= min(known_sizes):
            listed = f"{len(known_sizes)} modules with {sum(known_sizes) / 1024:g} GiB"
            words = f"the firmware lists {listed}, and the kernel has {lost / 1024:.0f} GiB less"
            report.found("dimm_lost", f"{words}: a module may be disabled")


def _has_counts(tree: Tree, mc: str, name: str) -> bool:
    """Return False for a module of an older kernel, which has its counters by rows."""
    return any(tree.exists(f"{EDAC}/{mc}/{name}/dimm_{kind}_count") for kind in ("ce", "ue"))


def _module(tree: Tree, mc: str, name: str) -> Counted:
    of = f"{EDAC}/{mc}/{name}"
    label, place = tree.text(f"{of}/dimm_label") or "", tree.text(f"{of}/dimm_location") or ""
    corrected, uncorrected = (_count(tree, f"{of}/dimm_{kind}_count") for kind in ("ce", "ue"))
    return Counted(mc, " ".join([name, *place.split()]), label or name, corrected, uncorrected)


def _channels(tree: Tree, mc: str, row: str) -> t.Iterator[Counted]:
    """Yield the counters of a row of chips, as older drivers have them: errors that were corrected by channel, others by row."""
    of = f"{EDAC}/{mc}/{row}"
    for name in tree.names(of):
        match = re.fullmatch(r"(ch\d+)_ce_count", name)
        if match:
            label = tree.text(f"{of}/{match.group(1)}_dimm_label") or f"{row} {match.group(1)}"
            yield Counted(mc, f"{row} {match.group(1)}", label, _count(tree, f"{of}/{name}"), 0)
    yield Counted(mc, row, row, 0, _count(tree, f"{of}/ue_count"))


def _numbered(tree: Tree, folder: str, *words: str) -> list[str]:
    """Return the names in a folder that are one of the words and a number, in the order of their numbers."""
    numbered = [
        (int(match.group(1)), name) for name in tree.names(folder) for word in words if (match := re.fullmatch(rf"{word}(\d+)", name))
    ]
    return [name for _number, name in sorted(numbered)]


def _row(dimm: smbios.Dimm) -> dict[str, t.Any]:
    return {"slot": dimm.locator, "bank": dimm.bank, "mib": dimm.size_mib, "rated": dimm.rated, "speed": dimm.speed, "serial": dimm.serial}
