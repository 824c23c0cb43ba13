# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bottleneck of a file system that many nodes share, as far as the rates of its clients tell.

Pure functions over numbers. What they cannot tell apart they say.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import statistics
import typing as t

# From so little of the rate per node of one node on, more nodes share what is there.
KNEE = 0.8
# A node is slow below this part of the median. Rates of storage scatter: a fifth is no sign, a factor of two is.
SLOW = 0.5
# The sum of all is flat where it stays above this part of its highest value.
FLAT = 0.85
# A link is full from this part of its rate on; a rate far below it is not limited by it.
FULL, FAR = 0.8, 0.2
# Small operations of a node are late at so many times the median and so many ms more; those of all from so many ms on. Up to QUICK_MS
# they are quick.
LATE, LATE_MS, ALL_LATE_MS, QUICK_MS = 3.0, 2.0, 20.0, 2.0
# Fewer nodes do not say which of them is as it should be.
LEAST = 3
_GBPS_OF_GIBPS = 8 * (1 << 30) / 1e9
WAYS = ("write", "read")


class Seen(t.NamedTuple):
    """The numbers of a node: rates in GiB/s by way, with few others and with all, None where there is none; the median time of a small
    synced operation; its link to the server; and its product, since only nodes of one product are compared."""

    few: t.Mapping[str, float | None]
    together: t.Mapping[str, float | None]
    small_ms: float | None = None
    interface: str = ""
    mbps: int | None = None
    machine: str = ""


class Limits(t.NamedTuple):
    """`suspects`: {node: why it is slow}; `sentences`: words for people, those on suspects first."""

    suspects: dict[str, str]
    sentences: list[str]


def limits_of(nodes: t.Mapping[str, Seen], rows: t.Sequence[t.Mapping[str, t.Any]], few: int) -> Limits:
    """Return what limits the file system. `rows` are the steps of the curve, {"nodes", "write", "read"} with the sum of each; `few` is how
    many nodes were measured in one round of few."""
    if len(nodes) < LEAST:
        return Limits({}, [f"A slow node, a slow server and a slow network are not told apart with {len(nodes)} nodes."])
    suspects: dict[str, str] = {}
    unsure: list[str] = []
    whole: list[str] = []
    for way in WAYS:
        limited = few > 1 and not _free(rows, way, few)
        slow_few = _slow({name: (node.machine, node.few.get(way)) for name, node in nodes.items()})
        slow_all = _slow({name: (node.machine, node.together.get(way)) for name, node in nodes.items()})
        for name in nodes:
            by_few, by_all = slow_few.get(name), slow_all.get(name)
            if by_few and by_all and not limited:
                words = f"{way}: {by_few} {_with(few)}, and {by_all} with all: the node or its own path is slow"
                suspects[name] = f"{suspects[name]}; {words}" if name in suspects else words
            elif by_few and not by_all:
                unsure.append(
                    f"{way}: {name} has {by_few} {_with(few)} and is as fast as the others with all: a disturbance may have passed"
                )
            elif by_all:
                why = "in rounds of few the server is the limit already" if limited else f"it is as fast as the others {_with(few)}"
                unsure.append(f"{way}: {name} has {by_all} with all, and {why}: its path, or a server that serves it last")
        whole += _whole(nodes, rows, way, bool(slow_few))
    for name in suspects:
        suspects[name] += _evidence(name, nodes)
    said = [f"{name} is slow. {words}." for name, words in suspects.items()]
    return Limits(suspects, [*said, *whole, *_latency(nodes, suspects), *(f"Not told apart: {words}." for words in unsure)])


def knee(rows: t.Sequence[t.Mapping[str, t.Any]], way: str) -> str:
    """Return a sentence about the number of nodes from which on each gets less than one node alone; empty if the rate of one is unknown."""
    alone = _alone(rows, way)
    if not alone:
        return ""
    for row in rows:
        if way in row and row[way] / row["nodes"] < KNEE * alone:
            share = row[way] / row["nodes"] / alone
            return f"{way}: from {row['nodes']} nodes on each gets {share:.0%} or less of the {alone:.4g} GiB/s that one has alone."
    return f"{way}: each of {rows[-1]['nodes']} nodes gets at least {KNEE:.0%} of the {alone:.4g} GiB/s that one has alone."


def _alone(rows: t.Sequence[t.Mapping[str, t.Any]], way: str) -> float | None:
    return next((row[way] for row in rows if row["nodes"] == 1 and way in row), None)


def _with(few: int) -> str:
    return "alone" if few == 1 else f"in a round of {few} nodes"


def _free(rows: t.Sequence[t.Mapping[str, t.Any]], way: str, few: int) -> bool:
    """Return True if so few nodes do not get in each other's way: in the next larger step each has about what one has alone."""
    alone = _alone(rows, way)
    row = next((row for row in rows if row["nodes"] >= few and way in row), None)
    return bool(alone and row and row[way] / row["nodes"] >= KNEE * alone)


def _slow(rates: t.Mapping[str, tuple[str, float | None]]) -> dict[str, str]:
    """Return {node: its rate and the median in words} of those below SLOW of the median of their product; `rates` are {node: (product,
    rate)}."""
    alike: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for name, (machine, rate) in rates.items():
        if rate:
            alike[machine][name] = rate
    found = {}
    for known in alike.values():
        middle = statistics.median(known.values())
        if len(known) >= LEAST:
            found.update({name: f"{rate:.3g} of {middle:.3g} GiB/s" for name, rate in known.items() if rate < SLOW * middle})
    return found


def _whole(nodes: t.Mapping[str, Seen], rows: t.Sequence[t.Mapping[str, t.Any]], way: str, is_uneven: bool) -> list[str]:
    """Return what the sum of all and the link of one say."""
    alone = _alone(rows, way)
    of_one = [node.few.get(way) for node in nodes.values()]
    rates = [rate for rate in of_one if rate]
    links = [node.mbps / 1e3 for node in nodes.values() if node.mbps]
    said = []
    if rates and links and statistics.median(rates) * _GBPS_OF_GIBPS >= FULL * statistics.median(links):
        said.append(f"{way}: one node alone fills its link ({statistics.median(links):g} Gb/s), so no node can have more.")
    sums = [(row["nodes"], row[way]) for row in rows if way in row]
    if not alone or len(sums) < 2 or sums[-1][1] / sums[-1][0] >= KNEE * alone:
        return said
    highest = max(value for _count, value in sums)
    since = next(
        count
        for place, (count, _v) in enumerate(sums)
        if all(value >= FLAT * highest for _c, value in sums[place:]) or place + 1 == len(sums)
    )
    if since == sums[-1][0]:
        fell = sums[-1][1] < FLAT * highest
        words = "is less than fewer nodes reach: the server, or its network, gets slower under load" if fell else "still grows"
        return [*said, f"{way}: the sum of {since} nodes {words}."]
    each = "most nodes" if is_uneven else "every node"
    words = f"from {since} nodes on the sum stays near {highest:.3g} GiB/s, and {each} alone is faster than its part"
    return [*said, f"{way}: {words}: the server or its network is the limit. Which of the two is not told: look at its links and disks."]


def _latency(nodes: t.Mapping[str, Seen], suspects: t.Mapping[str, str]) -> list[str]:
    """Return what the time of small operations says beside the rates."""
    known = {name: node.small_ms for name, node in nodes.items() if node.small_ms}
    if len(known) < LEAST:
        return ["How long small operations take is not known: latency is not told from bandwidth."]
    middle = statistics.median(known.values())
    said = [
        f"{name}: small operations take {value:.3g} ms, on most nodes {middle:.3g} ms, and its rates are like theirs: latency of its path "
        "(a detour, lost packets), not bandwidth."
        for name, value in known.items()
        if name not in suspects and value > LATE * middle and value > middle + LATE_MS and not _is_slow(name, nodes)
    ]
    rates = [rate for node in nodes.values() if (rate := node.few.get("read"))]
    links = [node.mbps / 1e3 for node in nodes.values() if node.mbps]
    if not rates or not links:
        return said
    part = statistics.median(rates) * _GBPS_OF_GIBPS / statistics.median(links)
    if middle >= ALL_LATE_MS and part >= SLOW:
        said.append(
            f"Small operations take {middle:.3g} ms on most nodes, with good rates: a server that is slow to sync or to answer, or a long "
            "way to it; which is not told."
        )
    elif middle <= QUICK_MS and part < FAR:
        said.append(
            f"Small operations take {middle:.3g} ms, and one node reads {part:.0%} of its link: not latency, but what the server or a "
            "narrower link on the way can move; which is not told."
        )
    return said


def _is_slow(name: str, nodes: t.Mapping[str, Seen]) -> bool:
    return any(name in _slow({other: (node.machine, node.few.get(way)) for other, node in nodes.items()}) for way in WAYS)


def _evidence(name: str, nodes: t.Mapping[str, Seen]) -> str:
    """Return what the link and the small operations of a slow node add."""
    own = nodes[name]
    others = [node for other, node in nodes.items() if other != name and node.machine == own.machine]
    words = ""
    speeds = collections.Counter(node.mbps for node in others if node.mbps)
    if own.mbps and speeds:
        usual = speeds.most_common(1)[0][0] or 0
        is_less = own.mbps < usual
        words += f"; its link {own.interface} runs at {own.mbps / 1e3:g} Gb/s" + (
            f", those of others at {usual / 1e3:g}" if is_less else ", as others do"
        )
    else:
        words += "; the speed of its link is not known"
    times = [node.small_ms for node in others if node.small_ms]
    if own.small_ms and times:
        words += f"; small operations take {own.small_ms:.3g} ms there, {statistics.median(times):.3g} ms elsewhere"
    return words
