# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the pairs of nodes that are equally far apart, so that their latencies can be compared.

Where the leaf switch of every node is given, pairs within a leaf are near and all others far. Otherwise it is read off the latencies,
and only where they say so twice: the values fall into two levels, and being near is an equivalence: the nodes fall into leaves, within
which every pair is near and between which every pair is far, but for a few (MISFITS) that are themselves to be judged. What is left
between the leaves is looked at in the same way (a third level: pods). Scatter alone makes no such partition, and one slow path does not:
it stands alone within a leaf. A slow port does: its node then looks like one alone on its leaf, and `alone` says that this is undecided.

Pure. This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import typing as t
from collections import Counter, defaultdict

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands

Pair = t.Tuple[str, str]

STEP = 1.05  # what is not so much further is the same level,
APART = 4.0  # nor what is not so many times further than the values of either level scatter (one level cut in two: 2.7)
CHANCE = 0.01
FEWEST = 6  # nodes; among fewer no partition is that unlikely
SLOW_ROW = 3  # pairs of a node, from which on their median is more than a single test
MEASURED = 0.8  # of all pairs; where fewer were measured nearly anything is a partition
MISFITS = 0.05  # of the pairs may lie on the other level than their nodes' leaves say; one may in any case
ALIKE = 0.5  # two nodes of one leaf have at least so much of their near ones in common


@dataclasses.dataclass(frozen=True)
class Levels:
    """The distance of pairs. `of`: the level of each pair, 0 the nearest. `known`: pairs of one level are equally far apart.
    `alone`: nodes whose pairs are all further than others', by their latencies only."""

    of: dict[Pair, int]
    known: bool
    alone: frozenset[str] = frozenset()


def nodes_of(subject: str) -> Pair:
    """The two nodes of a pair's id."""
    a, _bar, b = subject.partition("|")
    return a, b


def levels(values: t.Mapping[Pair, float], leaf: t.Mapping[str, str] | None = None) -> Levels:
    """The levels of pairs (node, node) by their latencies, or by the `leaf` of every node."""
    nodes = {node for pair in values for node in pair}
    leaf_of = leaf or {}
    if nodes <= set(leaf_of):
        return Levels({(a, b): int(leaf_of[a] != leaf_of[b]) for a, b in values}, True)
    if len(nodes) < FEWEST or len(values) < MEASURED * len(nodes) * (len(nodes) - 1) / 2:
        return Levels(dict.fromkeys(values, 0), False)
    of = dict.fromkeys(values, 0)
    part = {node: (node,) for node in nodes}
    singles: frozenset[str] = frozenset()
    level = 0
    while True:
        between: dict[tuple[t.Any, t.Any], list[float]] = defaultdict(list)
        for (a, b), value in values.items():
            if of[a, b] == level:
                between[_ordered(part[a], part[b])].append(value)
        merged = _partition({pair: statistics.median(values_of_pair) for pair, values_of_pair in between.items()})
        if merged is None:
            return Levels(of, True, singles)
        if level == 0:
            sizes = Counter(merged.values())
            singles = frozenset(single[0] for single, into in merged.items() if sizes[into] == 1)
        part = {node: merged[old_part] for node, old_part in part.items()}
        level += 1
        for a, b in values:
            if part[a] != part[b]:
                of[a, b] = level


def outliers(values: t.Mapping[Pair, float], leaf: t.Mapping[str, str] | None = None) -> t.Iterator[tuple[Pair, str, float, str]]:
    """(pair, WARN or FAIL, median, of what) of the pairs that are far slower than those with as many hops.

    FAIL needs a node that is slow with most others (the median of its pairs lies far from those of the other nodes), and hops that are
    known. One slow test of one pair is a WARN, and so is a node that may as well be alone on its leaf.
    """
    grouped = levels(values, leaf)
    groups: dict[int, list[Pair]] = defaultdict(list)
    for pair, level in grouped.of.items():
        groups[level].append(pair)
    median = {level: statistics.median(values[pair] for pair in pairs) for level, pairs in groups.items()}
    rows = _rows({pair: value / median[grouped.of[pair]] for pair, value in values.items()})
    for level, pairs in sorted(groups.items()):
        centre = bands.centre([values[pair] for pair in pairs])
        of = f"the median of {len(pairs)} pairs"
        if not grouped.known:
            of += ", whose number of hops is not known"
        elif len(groups) > 1:
            of += f" with as many hops (level {level})"
        for pair in pairs:
            slow = {node: rows[node] for node in pair if node in rows and values[pair] > STEP * median[level]}
            if "FAIL" in slow.values() and grouped.known and not grouped.alone & set(slow):
                yield pair, "FAIL", median[level], f"{of}; {' and '.join(slow)} is slow with most others"
            elif slow or (centre and bands.against_neighbours(values[pair], centre, "lower")):
                yield pair, "WARN", median[level], of
    if not grouped.alone:
        return
    of = f"the median of {len(groups[0])} pairs; the cause is a node alone on its leaf, or a slow port; set rdma_leaf to know which"
    for pair in values:
        if grouped.alone & set(pair) and grouped.of[pair]:
            yield pair, "WARN", median[0], of


def _rows(shares: t.Mapping[Pair, float]) -> dict[str, str]:
    """WARN or FAIL of the nodes whose pairs are slower for their level, by their median, than those of other nodes."""
    of: dict[str, list[float]] = defaultdict(list)
    for pair, share in shares.items():
        for node in pair:
            of[node].append(share)
    rows = {node: statistics.median(values_of_row) for node, values_of_row in of.items() if len(values_of_row) >= SLOW_ROW}
    centre = bands.centre([*rows.values()])
    judged = {node: bands.against_neighbours(row, centre, "lower") for node, row in rows.items()} if centre else {}
    return {node: word for node, word in judged.items() if word}


def _ordered(a: t.Any, b: t.Any) -> tuple[t.Any, t.Any]:
    return (a, b) if a < b else (b, a)


def _partition(values: t.Mapping[tuple[t.Any, t.Any], float]) -> dict[t.Any, t.Any] | None:
    """Things to the first of their part, by the lowest step of the values that makes parts of them; None where none does."""
    ordered = sorted(values.values())
    steps = [0, *_steps(ordered), len(ordered)]
    for lower, place, upper in zip(steps, steps[1:], steps[2:], strict=False):
        near, beyond = ordered[lower:place], ordered[place:upper]
        further = statistics.mean(beyond) - statistics.mean(near)
        scatter = (statistics.pvariance(near) * len(near) + statistics.pvariance(beyond) * len(beyond)) / (len(near) + len(beyond))
        if further >= max((STEP - 1) * statistics.mean(near), APART * scatter**0.5):
            parts = _parts(values, ordered[place])
            if parts is not None:
                return parts
    return None


def _steps(ordered: t.Sequence[float], start: int = 0, depth: int = 3) -> list[int]:
    """Return the indexes at which a sorted sequence may be divided into levels: in two, and these again."""
    place = _step(ordered)
    if not place or not depth:
        return []
    below, above = ordered[:place], ordered[place:]
    return [*_steps(below, start, depth - 1), start + place, *_steps(above, start + place, depth - 1)]


def _step(ordered: t.Sequence[float]) -> int:
    """Return the index that divides a sorted sequence into the two best separated parts (Otsu); 0 if there is none."""
    total, below = sum(ordered), 0.0
    best, place = 0.0, 0
    for i in range(1, len(ordered)):
        below += ordered[i - 1]
        apart = (total - below) / (len(ordered) - i) - below / i
        spread = i * (len(ordered) - i) * apart * apart
        if ordered[i] > ordered[i - 1] and spread > best:
            best, place = spread, i
    return place


def _parts(values: t.Mapping[tuple[t.Any, t.Any], float], far_from: float) -> dict[t.Any, t.Any] | None:
    """Parts within which the values are below `far_from`, and between which they are not, if there are such."""
    members = sorted({member for pair in values for member in pair})
    bit = {member: 1 << i for i, member in enumerate(members)}
    near = dict(bit)
    for (a, b), value in values.items():
        if value < far_from:
            near[a] |= bit[b]
            near[b] |= bit[a]
    heads: list[t.Any] = []
    part: dict[t.Any, t.Any] = {}
    for member in sorted(members, key=lambda member_key: -_count(near[member_key])):
        head = next((h for h in heads if _count(near[h] & near[member]) >= ALIKE * _count(near[h] | near[member])), None)
        if head is None:
            heads.append(member)
        part[member] = member if head is None else head
    misfits = sum((part[a] == part[b]) != (value < far_from) for (a, b), value in values.items())
    sizes = Counter(part.values())
    in_parts = sum(size for size in sizes.values() if size > 1)
    if len(heads) < 2 or 2 * in_parts < len(members) or misfits > max(1, MISFITS * len(values)):
        return None
    nearer = sum(value < far_from for value in values.values())
    return part if _chance(list(sizes.values()), len(values), nearer, misfits) <= CHANCE else None


def _chance(sizes: list[int], pairs: int, near: int, misfits: int) -> float:
    """Return the chance that so many of the pairs, taken at random, make parts of these sizes."""
    log_ways = math.lgamma(sum(sizes) + 1) - sum(math.lgamma(n + 1) for n in [*sizes, *Counter(sizes).values()])
    log_ways += math.log(sum(math.comb(pairs, k) for k in range(misfits + 1)))
    return math.exp(min(0.0, log_ways - math.log(math.comb(pairs, near))))


def _count(bits: int) -> int:
    return bin(bits).count("1")
