# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of nodes that a run has seen (records/parts.py), by the run's folder, for the pages of the console.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import pathlib
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import journal
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.parts import EMPTY, MARKS, Part, Seen, of_records

KINDS = ("machine", "gpu", "nic", "optic", "disk", "dimm")
# Journals of very large runs are not read for a page.
MOST_BYTES, MOST_PACKED_BYTES = 64 * 1024 * 1024, 4 * 1024 * 1024


class Hardware(t.NamedTuple):
    """The parts that a node has, as its newest runs have seen them, and the keys of those that are no longer there."""

    parts: t.Mapping[str, Part]
    gone: frozenset[str]

    def has(self, key: str) -> bool:
        """Return True unless the part is known to be gone; an empty key is the node itself."""
        return key not in self.gone


def of_node(runs: t.Sequence[Seen], node: str) -> Hardware:
    """Return the parts of a node as its runs have seen them, the newest run first.

    A part is gone if the newest run that has seen parts of its kind has not seen it, but as many others as there were: it was replaced. If
    there are fewer it may have failed, and stays."""
    known: dict[str, Part] = {}
    gone: set[str] = set()
    for kind in KINDS:
        seen = [
            {key: part for key, part in run.parts.get(node, {}).items() if part.kind == kind and part.model != EMPTY} for run in runs
        ]
        seen = [parts for parts in seen if parts]
        for parts in reversed(seen):
            known.update(parts)
        if seen and len(seen[0]) >= max(map(len, seen)):
            gone.update(key for parts in seen for key in parts if key not in seen[0])
    there = [part for key, part in known.items() if key not in gone]
    return Hardware({part.key: part for part in sorted(there, key=_order)}, frozenset(gone))


def _order(part: Part) -> tuple[int, list[tuple[bool, int, str]]]:
    """Return the key by which parts are sorted: by kinds, and within a kind by their numbers and names."""
    words = re.findall(r"\d+|\D+", f"{part.name} {part.slot or part.key}")
    return KINDS.index(part.kind), [(word.isdecimal(), int(word) if word.isdecimal() else 0, word) for word in words]


def of_run(run: pathlib.Path) -> Seen:
    """Return what a run has seen, by its folder; nothing if its journal is gone or too large."""
    path = journal.path_in(run)
    try:
        status = path.stat()
    except OSError:
        return Seen({}, {})
    most = MOST_PACKED_BYTES if path.name == journal.NAME else MOST_BYTES
    return _read(path, status.st_size, status.st_mtime_ns) if status.st_size <= most else Seen({}, {})


@functools.lru_cache(maxsize=8)
def _read(path: pathlib.Path, _size: int, _changed: int) -> Seen:
    try:
        return of_records(journal.Journal(path).as_data(*MARKS))
    except OSError:
        return Seen({}, {})
