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
    found: list[Counted] = []
    for mc in _numbered(tree, EDAC, "mc"):
        modules = [_module(tree, mc, name) for name in _numbered(tree, f"{EDAC}/{mc}", "dimm", "rank")]
        modules = modules or [one for row in _numbered(tree, f"{EDAC}/{mc}", "csrow") for one in _channels(tree, mc, row)]
        found += modules
        corrected = (tree.number(f"{EDAC}/{mc}/ce_count") or 0) - sum(one.corrected for one in modules)
        uncorrected = (tree.number(f"{EDAC}/{mc}/ue_count") or 0) - sum(one.uncorrected for one in modules)
        if corrected > 0 or uncorrected > 0 or not modules:
            found.append(Counted(mc, "", "", max(corrected, 0), max(uncorrected, 0)))
    return found


def risen(before: t.Sequence[Counted], after: t.Sequence[Counted]) -> list[dict[str, t.Any]]:
    """Return the counters that rose between two readings, as changes of the evidence of a test."""
    was = {(one.controller, one.place): one for one in before}
    changes = []
    for one in after:
        old = was.get((one.controller, one.place), one._replace(corrected=0, uncorrected=0))
        for code, kind, then, now in (
            ("host_memory", "uncorrectable", old.uncorrected, one.uncorrected),
            ("host_memory_corrected", "corrected", old.corrected, one.corrected),
        ):
            if now > then:
                text = f"{one.words()}: its {kind} memory errors rose from {then} to {now}"
                changes.append({"code": code, "part": "", "text": text, "before": then, "after": now})
    return changes


def look(tree: Tree, look: Look) -> None:
    """Look at memory modules and their error counters."""
    slots = dimms(tree)
    if slots:
        modules = [one for one in slots if one.size_mib != 0]
        look.saw(f"{len(modules)} memory modules in {len(slots)} slots (DMI)")
        look.details["dimms"] = [_row(one) for one in slots]
        _look_at_modules(tree, look, modules)
    elif tree.data(DMI) is None:
        look.missed("dmi", f"memory modules: {DMI} is missing or may not be read", demanded=True)
    else:
        look.missed("dmi", f"memory modules: the firmware lists none in {DMI}")
    errors = counted(tree)
    if not errors:
        look.missed("edac", f"memory errors: the kernel has no counters in {EDAC} (no EDAC driver for this machine is loaded)")
        return
    look.saw(f"error counters of {len({one.controller for one in errors})} memory controllers (EDAC)")
    serials = {one.locator: one.serial for one in slots if one.serial}
    for one in errors:
        serial = next((f", serial number {number}" for slot, number in serials.items() if slot and slot in one.label), "")
        where = one.words() + serial
        if one.uncorrected:
            look.found("host_memory", f"{where}: {_errors(one.uncorrected, 'uncorrectable')} since boot: replace the module")
        if one.corrected:
            look.found("host_memory_corrected", f"{where}: {_errors(one.corrected, 'corrected')} since boot")


def _errors(count: int, kind: str) -> str:
    return f"{count} {kind} memory error{'' if count == 1 else 's'}"


def _look_at_modules(tree: Tree, look: Look, modules: list[smbios.Dimm]) -> None:
    for what, values in (("size", [one.size_mib for one in modules]), ("speed", [one.speed for one in modules])):
        usual = max(set(values), key=lambda value: (values.count(value), value or 0), default=None)
        for one, value in zip(modules, values):
            if value is not None and usual is not None and value != usual:
                shown, expected = (f"{n / 1024:g} GiB" if what == "size" else f"{n} MT/s" for n in (value, usual))
                words = f"{one.name}: its {what} is {shown}, that of most modules of the machine {expected}"
                look.found("dimm_differs", words)
    kib = re.search(r"MemTotal:\s+(\d+) kB", tree.text("/proc/meminfo") or "")
    sizes = [one.size_mib for one in modules]
    known = [size for size in sizes if size]
    if kib and len(known) == len(sizes) and known and look.place == BARE_METAL:
        lost = sum(known) - int(kib.group(1)) // 1024
        # The kernel keeps 1.6 % for its own tables of pages (64 bytes for each 4 KiB).
        if lost - sum(known) // 32 >= min(known):
            words = f"the firmware lists {len(known)} modules with {sum(known) / 1024:g} GiB, and the kernel has {lost / 1024:.0f} GiB less"
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
        found = re.fullmatch(r"(ch\d+)_ce_count", name)
        if found:
            label = tree.text(f"{of}/{found.group(1)}_dimm_label") or f"{row} {found.group(1)}"
            yield Counted(mc, f"{row} {found.group(1)}", label, tree.number(f"{of}/{name}") or 0, 0)
    yield Counted(mc, row, row, 0, tree.number(f"{of}/ue_count") or 0)


def _numbered(tree: Tree, folder: str, *words: str) -> list[str]:
    """Return the names in a folder that are one of the words and a number, in the order of their numbers."""
    found = [(int(match.group(1)), name) for name in tree.names(folder) for word in words if (match := re.fullmatch(rf"{word}(\d+)", name))]
    return [name for _number, name in sorted(found)]


def _row(one: smbios.Dimm) -> dict[str, t.Any]:
    return {"slot": one.locator, "bank": one.bank, "mib": one.size_mib, "rated": one.rated, "speed": one.speed, "serial": one.serial}
