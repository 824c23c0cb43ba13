# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lanes of modules that have no light and that the link does not use: as at an end of a splitter cable, or of a link that trained down.

The width at which a link runs is a state and excuses nothing: what the module has wired, what both ends of the link say they can, and links
of the same kind say how many lanes the link should have.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import infiniband, optics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import form, likeness, reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import End, Finding, Map
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, PlainData

SHOWN = 4


def findings(fabric: Map, records: t.Iterable[Measurement]) -> t.Iterator[Finding]:
    """Yield a finding for each module whose dark lanes its link should use, or of which nothing tells whether it should."""
    modules = {
        End(record.subject.id, str(row.get("port"))): row
        for record in records
        if record.check == reading.OPTICS and record.outcome == "measured" and form.is_of_probe(record)
        for row in record.context.get("modules") or ()
    }
    if not any(row.get("unused") for row in modules.values()):
        return
    kind_of = likeness.Kinds(fabric)
    siblings: dict[tuple[str, ...], list[int]] = {}
    for end, row in modules.items():
        if _width(row):
            siblings.setdefault(_kind(fabric, kind_of, end), []).append(_width(row))
    for end, row in sorted(modules.items()):
        if row.get("unused"):
            usual = likeness.usual(siblings.get(_kind(fabric, kind_of, end), ()))
            yield from _of_module(fabric, end, row["unused"], usual)


def _of_module(fabric: Map, end: End, unused: PlainData, usual: int | None) -> t.Iterator[Finding]:
    """Yield what follows from the dark lanes of one module. `usual` is the width of nearly all links of its kind, None if there is none."""
    width, wired, widest = unused.get("width") or 0, unused.get("wired"), fabric.widest.get(end)
    if wired is not None and wired <= width:
        return
    # The first that tells more lanes; what the module has wired may be more than the splitter of its fibre leads on.
    told = (
        (widest, "both of its ends can use {} (iblinkinfo)"), (usual, "nearly all links of its kind use {}"),
        (wired if wired != infiniband.CONNECTOR else None, "its module says that it has {}"),
    )  # fmt: skip
    more = next((words.format(lanes) for lanes, words in told if lanes is not None and lanes > width), "")
    place = (end, fabric.links[end]) if end in fabric.links else (end,)
    names = ", ".join(unused.get("words", ())[:SHOWN])
    here = f"{fabric.spoken(end)} runs with {width} lanes"
    if more:
        words = f"{here}, and {more}; its module raises {names} in the others: clean or replace the module or its fibre"
        yield Finding("FAIL", "nic_fault", words, place)
    elif width not in (widest, usual):
        words = f"{here}, and its module raises {names} in the others: neither iblinkinfo, nor the module, nor three links of its kind say "
        yield Finding("UNKNOWN", "unresolved", f"{words}whether it is at a splitter cable or trained down", place)


def _width(row: PlainData) -> int:
    """Return the lanes of the link in a module's port as mlxlink says it; 0 if that is not known."""
    return optics.width_of(str((row.get("link") or {}).get("width", "")))


def _kind(fabric: Map, kind_of: t.Callable[[End], str], end: End) -> tuple[str, ...]:
    far = fabric.links.get(end)
    return (kind_of(end), kind_of(far) if far is not None else "")
