# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cables of switches held to each other: each leaf has as many uplinks as its siblings, and to the same spines.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import likeness, plan
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.likeness import FEWEST, SHARE
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import OTHER, SWITCH, End, Finding, Map, in_order

# Ports that a finding names.
SHOWN = 4


class _Leaf(t.NamedTuple):
    """The uplinks of a leaf or a switch above it: {its port: the port of the switch above it}, and how many lead to each switch."""

    id: str
    up: dict[End, End]
    counts: collections.Counter[str]


def findings(fabric: Map) -> t.Iterator[Finding]:
    """Yield leaves, and switches above them, with fewer uplinks than their siblings, and cables of uplinks that are exchanged."""
    below, here = set(fabric.leaves()), set(fabric.leaves())
    yield from _islands(fabric)
    of_others = {far.device for end, far in fabric.links.items() if fabric.kind(end.device) == OTHER}
    while here:
        up: dict[str, dict[End, End]] = {switch: {} for switch in here}
        for end, far in fabric.links.items():
            if end.device in here and fabric.kind(far.device) == SWITCH and far.device not in below:
                up[end.device][end] = far
        yield from _of_tier(fabric, up)
        # Those of others, as the leaves of storage servers, are not above the spines.
        here = {far.device for ends in up.values() for far in ends.values()} - of_others
        below |= here | of_others


def _islands(fabric: Map) -> t.Iterator[Finding]:
    """Yield leaves without any uplink, if the leaves to which the same port of other nodes leads have some."""
    rail = likeness.rail_numbers(fabric)
    leaves = fabric.leaves()
    joined = {end.device for end, far in fabric.links.items() if end.device in leaves and fabric.kind(far.device) == SWITCH}
    if len(joined) == len(leaves):
        return
    rails = {
        leaf: collections.Counter(rail[fabric.links[end]] for end in ends if fabric.links[end] in rail).most_common(1)
        for leaf, ends in leaves.items()
    }  # fmt: skip
    for leaf in sorted(leaves.keys() - joined, key=lambda each: in_order(fabric.name(each))):
        mates = [other for other in leaves if other != leaf and rails[leaf] and rails[other] and rails[other][0][0] == rails[leaf][0][0]]
        if len(mates) >= FEWEST - 1 and all(mate in joined for mate in mates):
            words = f"leaf {fabric.name(leaf)} has no uplink, {len(mates)} leaves for the same port of other nodes have some"
            yield Finding("FAIL", "cable_missing", words, (End(leaf, "?"),))


def _of_tier(fabric: Map, up: t.Mapping[str, dict[End, End]]) -> t.Iterator[Finding]:
    """Yield what is wrong with the uplinks of switches that are equally far above the nodes, {switch: its uplinks}."""
    described = {leaf: _Leaf(leaf, ends, collections.Counter(far.device for far in ends.values())) for leaf, ends in up.items()}
    above = {leaf: set(each.counts) for leaf, each in described.items()}
    wrong: dict[End, str] = {}
    missing: list[Finding] = []
    for leaf in sorted(described, key=lambda each: in_order(fabric.name(each))):
        siblings = [described[other] for other in described if other != leaf and _shares(above[leaf], above[other])]
        if len(siblings) < FEWEST - 1:
            continue
        missing += _fewer(fabric, described[leaf], siblings)
        wrong.update(_elsewhere(described[leaf], siblings))
    yield from missing
    told: set[End] = set()
    for end, expected in wrong.items():
        if end in told:
            continue
        now = fabric.links[end].device
        other = next(
            (each for each, wanted in wrong.items() if each not in told and wanted == now and fabric.links[each].device == expected), None
        )
        if other is not None:
            told |= {end, other}
            yield plan.swapped(fabric, end, other, "by where the same ports of the other leaves are")
        else:
            words = f"{fabric.spoken(end)} is plugged into {fabric.spoken(fabric.links[end])}, the same port of the other leaves into "
            yield Finding("FAIL", "cable_wrong", words + fabric.name(expected), (end, fabric.links[end]))


def _shares(a: set[str], b: set[str]) -> bool:
    return 2 * len(a & b) >= max(len(a), len(b), 1)


def _fewer(fabric: Map, leaf: _Leaf, siblings: list[_Leaf]) -> t.Iterator[Finding]:
    """Yield a finding for a leaf with fewer uplinks than nearly all of its siblings, with the ports that are empty, as far as they show."""
    most = likeness.usual(len(sibling.up) for sibling in [*siblings, leaf])
    share = SHARE if most is not None else 0.5
    most = _of_even(leaf, siblings) if most is None else most
    if most is None or len(leaf.up) >= most:
        return
    used = collections.Counter(end.port for sibling in siblings for end in sibling.up)
    mine = {end.port for end in leaf.up}
    empty = sorted((port for port, count in used.items() if count >= share * len(siblings) and port not in mine), key=in_order)
    ends = tuple(End(leaf.id, port) for port in empty[: most - len(leaf.up)])
    counts = leaf.counts
    above = sorted({spine for sibling in siblings for spine in sibling.counts}, key=lambda each: in_order(fabric.name(each)))
    each_of = most // len(above) if share < SHARE else None
    lacking = [
        f"{fabric.name(spine)} ({counts[spine]} of {wanted})"
        for spine in above
        if (wanted := likeness.usual(sibling.counts[spine] for sibling in siblings) or each_of) is not None and counts[spine] < wanted
    ]
    kind = "leaf" if leaf.id in fabric.leaves() else "switch"
    words = f"{kind} {fabric.name(leaf.id)} has {len(leaf.up)} uplinks, its siblings have {most}"
    words += f"; missing to {', '.join(lacking[:SHOWN])}" if lacking else ""
    states = [f"{end.port}{f' ({fabric.down[end]})' if end in fabric.down else ''}" for end in ends]
    words += f"; without a link: port {', '.join(states[:SHOWN])}" if states else ""
    yield Finding("FAIL", "cable_missing", words, ends or (End(leaf.id, "?"),))


def _of_even(leaf: _Leaf, siblings: list[_Leaf]) -> int | None:
    """Return the uplinks of those siblings that have as many to each switch above, which many leaves of a fabric may lack; None for a leaf
    that has as many to each itself, or if such siblings differ."""
    above = {spine for each in siblings for spine in each.counts}

    def is_even(each: _Leaf) -> bool:
        return len({each.counts[spine] for spine in above}) == 1

    return None if is_even(leaf) else likeness.usual(len(each.up) for each in siblings if is_even(each))


def _elsewhere(leaf: _Leaf, siblings: list[_Leaf]) -> dict[End, str]:
    """Return the uplinks of a leaf that lead to another switch than the same port of nearly all siblings, with that switch, if the leaf has
    another number of cables to some switch than nearly all siblings; leaves that are cabled in another order are as good."""
    counts = leaf.counts
    above = {spine for sibling in siblings for spine in sibling.counts} | set(counts)
    deviating = {
        spine for spine in above
        if (wanted := likeness.usual(sibling.counts[spine] for sibling in siblings)) is not None and counts[spine] > wanted
    }  # fmt: skip
    if not deviating:
        return {}
    by_port: dict[str, list[str]] = collections.defaultdict(list)
    for sibling in siblings:
        for end, far in sibling.up.items():
            by_port[end.port].append(far.device)
    return {
        end: expected
        for end, far in leaf.up.items()
        if far.device in deviating and (expected := likeness.usual(by_port[end.port])) is not None and expected != far.device
    }
