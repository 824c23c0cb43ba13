# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Causes that say the same of many subjects, as one: where a cable or a driver is wrong on fifty nodes, one line says so.

Two causes say the same if their sentences differ by no more than names, addresses and measured numbers. Nothing is lost: the reports of the
run have each cause with its own sentence.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import CauseRow

# From so many causes on, sentences with other numbers or about parts of nodes are one: of two slow GPUs people want to see which they are,
# and how slow each is.
SEVERAL = 4
# What may differ between causes that say the same: addresses, and numbers with a unit or a limit. With another Xid, port or version, which
# have neither, it is another cause.
_ADDRESS = re.compile(
    r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|(?:[0-9a-f]{1,4}:){3,7}[0-9a-f]{1,4}|(?:[0-9a-f]{1,4}:){1,6}:[0-9a-f:]*)(?![\w.:])"
)
_UNIT = r" ?(?:[KMGT]i?B(?:/s)?|[GM]b/s|TFLOPS|MHz|%|percent|ms|us|s|W|C)(?!\w)|, expected at (?:least|most)"
_MEASURED = re.compile(rf"(?<![\w.-])-?\d+(?:\.\d+)?(?={_UNIT})")
_PARTS = {"gpu": "GPUs", "nic": "ports"}


def lines(causes: t.Sequence[CauseRow]) -> list[tuple[CauseRow, str, list[CauseRow]]]:
    """Return (the first cause, a sentence, all causes of which it is said), in the order of the first ones."""
    shapes: dict[tuple[t.Any, ...], list[CauseRow]] = collections.defaultdict(list)
    for cause in causes:
        shapes[_kind(cause), _shape(_unnamed(cause))].append(cause)
    found: list[tuple[CauseRow, str, list[CauseRow]]] = []
    for alike in shapes.values():
        if len(alike) >= SEVERAL:
            found.append(_one(alike))
            continue
        same: dict[tuple[t.Any, ...], list[CauseRow]] = collections.defaultdict(list)
        for cause in alike:
            same[cause["subject"] if _has_part(cause) else "", _unnamed(cause)].append(cause)
        found += [_one(group) for group in same.values()]
    place = {id(cause): number for number, cause in enumerate(causes)}
    return sorted(found, key=lambda line: place[id(line[0])])


def _one(alike: list[CauseRow]) -> tuple[CauseRow, str, list[CauseRow]]:
    first = alike[0]
    if len(alike) == 1:
        return first, first["said"], alike
    nodes = sorted({node_of(cause["subject"]) for cause in alike})
    parts = f"{len(alike)} {_PARTS.get(first['kind'], 'parts')}"
    count = f"{parts} of {subjects.counted('node' for _node in nodes)}" if _has_part(first) else f"{len(nodes)} nodes"
    return first, f"{subjects.folded(nodes)} ({count}): {_merged([_unnamed(cause) for cause in alike])}", alike


def _kind(cause: CauseRow) -> tuple[t.Any, ...]:
    # Pairs, groups and switches have names of their own, which no range says.
    own = subjects.bearer(cause["kind"], cause["subject"])[0] != "node"
    return cause["verdict"], cause["kind"], cause["simulated"], cause["convicted"], bool(cause["explains"]), cause["subject"] if own else ""


def _has_part(cause: CauseRow) -> bool:
    return node_of(cause["subject"]) != cause["subject"]


def _unnamed(cause: CauseRow) -> str:
    """Return the sentence of a cause without its subject, with "the node" and "its address" for what else names the node."""
    text = cause["said"].removeprefix(f"{cause['name']}: ")
    for name, word in ((node_of(cause["subject"]), "the node"), (cause["subject"], "it"), (cause["name"], "it")):
        if len(name) > 2:  # a host may be called `a`
            text = re.sub(rf"(?<![\w./-]){re.escape(name)}(?![\w/-])", word, text)
    return _ADDRESS.sub("its address", text)


def _shape(text: str) -> str:
    return _MEASURED.sub("#", text)


def _merged(texts: list[str]) -> str:
    """Return texts of one shape as one: `612 to 640` where their numbers differ."""
    numbers = zip(*(_MEASURED.findall(text) for text in texts), strict=True)
    ranges = iter([_range(of_place) for of_place in numbers])
    return _MEASURED.sub(lambda _match: next(ranges), texts[0])


def _range(numbers: t.Sequence[str]) -> str:
    least, most = min(numbers, key=float), max(numbers, key=float)
    return least if float(least) == float(most) else f"{least} to {most}"
