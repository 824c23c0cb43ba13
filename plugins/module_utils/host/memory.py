# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory modules of a machine: what the firmware lists, and the errors that the memory controllers have counted.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.look import Look
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import BARE_METAL, Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import smbios

DMI = "/sys/firmware/dmi/tables/DMI"
EDAC = "/sys/devices/system/edac/mc"


class Counted(t.NamedTuple):
    """Errors of one memory module, or of a controller that cannot say which module (`label` is "")."""

    controller: str
    place: str
    label: str
    corrected: int
    uncorrected: int

    def words(self) -> str:
        return f"{self.label} ({self.controller} {self.place})" if self.label else f"a module of memory controller {self.controller}"


def dimms(tree: Tree) -> list[smbios.Dimm]:
    """Return the memory slots that the firmware lists; none if its table cannot be read."""
    return smbios.dimms(tree.data(DMI) or b"")


def counted(tree: Tree) -> list[Counted]:
    """Return the counters of the kernel's EDAC drivers: each module, and what a controller has counted beyond its modules."""
    counters: list[Counted] = []
    for mc in _numbered(tree, EDAC, "mc"):
        modules = [_module(tree, mc, name) for name in _numbered(tree, f"{EDAC}/{mc}", "dimm", "rank")]
        modules = modules or [module for row in _numbered(tree, f"{EDAC}/{mc}", "csrow") for module in _channels(tree, mc, row)]
        counters += modules
        corrected = (tree.number(f"{EDAC}/{mc}/ce_count") or 0) - sum(module.corrected for module in modules)
        uncorrected = (tree.number(f"{EDAC}/{mc}/ue_count") or 0) - sum(module.uncorrected for module in modules)
        if corrected > 0 or uncorrected > 0 or not modules:
            counters.append(Counted(mc, "", "", max(corrected, 0), max(uncorrected, 0)))
    return counters


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
            if new_count > old_count:
                text = f"{counter.words()}: its {kind} memory errors rose from {old_count} to {new_count}"
                changes.append({"code": code, "part": "", "text": text, "before": old_count, "after": new_count})
    return changes


def look(tree: Tree, look: Look) -> None:
    """Look at memory modules and their error counters."""
    slots = dimms(tree)
    if slots:
        modules = [slot for slot in slots if slot.size_mib != 0]
        look.saw(f"{len(modules)} memory modules in {len(slots)} slots (DMI)")
        look.details["dimms"] = [_row(slot) for slot in slots]
        look.details["system"] = smbios.system(tree.data(DMI) or b"")._asdict()
        _look_at_modules(tree, look, modules)
    elif tree.data(DMI) is None:
        look.missed("dmi", f"memory modules: {DMI} is missing or may not be read", demanded=True)
    else:
        look.missed("dmi", f"memory modules: the firmware lists none in {DMI}")
    errors = counted(tree)
    if not errors:
        look.missed("edac", f"memory errors: the kernel has no counters in {EDAC} (no EDAC driver for this machine is loaded)")
        return
    look.saw(f"error counters of {len({counter.controller for counter in errors})} memory controllers (EDAC)")
    for counter in errors:
        serial = _serial(slots, counter.label)
        where = counter.words() + (f", serial number {serial}" if serial else "")
        if counter.uncorrected:
            look.found("host_memory", f"{where}: {_errors(counter.uncorrected, 'uncorrectable')} since boot: replace the module")
        if counter.corrected:
            look.found("host_memory_corrected", f"{where}: {_errors(counter.corrected, 'corrected')} since boot")


def _serial(slots: t.Sequence[smbios.Dimm], label: str) -> str:
    """Return the serial number of the module that a label names; empty unless exactly one slot has this name: `A1` does not name A10,
    and slots of some machines have the same names on each socket."""
    named = [slot for slot in slots if slot.locator and re.search(rf"(?<![0-9A-Za-z]){re.escape(slot.locator)}(?![0-9A-Za-z])", label)]
    return str(named[0].serial or "") if len(named) == 1 else ""


def _errors(count: int, kind: str) -> str:
    return f"{count} {kind} memory error{'' if count == 1 else 's'}"


def _look_at_modules(tree: Tree, look: Look, modules: list[smbios.Dimm]) -> None:
    for quantity, values in (("size", [module.size_mib for module in modules]), ("speed", [module.speed for module in modules])):
        usual = max(set(values), key=lambda value: (values.count(value), value or 0), default=None)
        for module, value in zip(modules, values):
            if value is not None and usual is not None and value != usual:
                value_text, expected = (f"{n / 1024:g} GiB" if quantity == "size" else f"{n} MT/s" for n in (value, usual))
                words = f"{module.name}: its {quantity} is {value_text}, that of most modules of the machine {expected}"
                look.found("dimm_differs", words)
    kib = re.search(r"MemTotal:\s+(\d+) kB", tree.text("/proc/meminfo") or "")
    sizes = [module.size_mib for module in modules]
    known_sizes = [size for size in sizes if size]
    if kib and len(known_sizes) == len(sizes) and known_sizes and look.place == BARE_METAL:
        lost = sum(known_sizes) - int(kib.group(1)) // 1024
        # The kernel keeps 1.6 % for its own tables of pages (64 bytes for each 4 KiB).
        if lost - sum(known_sizes) // 32 >= min(known_sizes):
            listed = f"{len(known_sizes)} modules with {sum(known_sizes) / 1024:g} GiB"
            words = f"the firmware lists {listed}, and the kernel has {lost / 1024:.0f} GiB less"
            look.found("dimm_lost", f"{words}: a module may be disabled")


def _module(tree: Tree, mc: str, name: str) -> Counted:
    of = f"{EDAC}/{mc}/{name}"
    label, place = tree.text(f"{of}/dimm_label") or "", tree.text(f"{of}/dimm_location") or ""
    counts = (tree.number(f"{of}/dimm_{kind}_count") or 0 for kind in ("ce", "ue"))
    return Counted(mc, " ".join([name, *place.split()]), label or name, *counts)


def _channels(tree: Tree, mc: str, row: str) -> t.Iterator[Counted]:
    """Yield the counters of a row of chips, as older drivers have them: errors that were corrected by channel, others by row."""
    of = f"{EDAC}/{mc}/{row}"
    for name in tree.names(of):
        match = re.fullmatch(r"(ch\d+)_ce_count", name)
        if match:
            label = tree.text(f"{of}/{match.group(1)}_dimm_label") or f"{row} {match.group(1)}"
            yield Counted(mc, f"{row} {match.group(1)}", label, tree.number(f"{of}/{name}") or 0, 0)
    yield Counted(mc, row, row, 0, tree.number(f"{of}/ue_count") or 0)


def _numbered(tree: Tree, folder: str, *words: str) -> list[str]:
    """Return the names in a folder that are one of the words and a number, in the order of their numbers."""
    numbered = [
        (int(match.group(1)), name) for name in tree.names(folder) for word in words if (match := re.fullmatch(rf"{word}(\d+)", name))
    ]
    return [name for _number, name in sorted(numbered)]


def _row(dimm: smbios.Dimm) -> dict[str, t.Any]:
    return {"slot": dimm.locator, "bank": dimm.bank, "mib": dimm.size_mib, "rated": dimm.rated, "speed": dimm.speed, "serial": dimm.serial}
