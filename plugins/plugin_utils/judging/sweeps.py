# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dips in a sweep over message sizes: sizes far below what the rest of the sweep, or the same size on identical nodes, gives.

Floors hold for single sizes, most of them large. A node that is slow between 16 MiB and 512 MiB only, as one with a wrong protocol setting
or a saturated switch buffer is, passes on its plateau. One size that dips may be a hiccup of that moment: WARN. Several are how this node
works: FAIL.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands, peer_comparison
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, is_number

METRIC = "busbw"
# Smaller messages are a matter of latency, which scatters.
FROM_BYTES = 4 << 20
# A larger message never has less than this share of the bandwidth that a smaller one reached. Where NCCL changes its algorithm or protocol
# healthy sweeps lose a quarter at most (0.78 is the lowest of 47 recorded sweeps of two and four H100 and H200, NCCL 2.28.9).
SHARE_OF_SMALLER = 0.6
# A message does not take longer than this many times what a larger one takes; 0.93 is the most that one twice as large shows (recorded
# within a few nodes). Over many nodes latency sets the time of both, and the quarter that a change of algorithm costs, with four percent of
# noise at each, is all of it.
TIMES_OF_LARGER, TIMES_OF_LARGER_MANY = 1.2, 1.4
# A smaller size with this share of the bandwidth of a size that dips is slow for the same reason: latency alone makes smaller sizes slower.
SHARE_OF_DIP = 0.75
# From this size on bandwidth and not latency sets the time of a message within a few nodes: it has more than a third of what eight times as
# much reaches (0.43 is the lowest recorded).
BANDWIDTH_FROM, LARGER_BY, SHARE_OF_LARGER, FEW_NODES = 64 << 20, 8, 1 / 3, 4
# How many sizes that dip are no hiccup, if one of them is of at least BANDWIDTH_FROM: below, a moment's noise is as long as a test. Sizes
# that only identical nodes show as slow scatter more.
SEVERAL, SEVERAL_OF_NEIGHBOURS = 2, 3
# The share of the median of identical nodes under which a size is a dip; single sizes scatter more than the plateau.
SHARE_OF_NEIGHBOURS = 0.8
SHOWN = 6


def opinions(deciding: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield a WARN for each measured sweep that has a dip, naming its sizes, or a FAIL for one that dips at several."""
    alike: dict[t.Any, list[tuple[Key, dict[int, float]]]] = collections.defaultdict(list)
    for key, record in deciding.items():
        if not record.series or record.outcome != "measured" or record.context.get("comparable") is False:
            continue
        sweep = bandwidths(record.series)
        if sweep:
            alike[(*key[:3], record.subject.kind, peer_comparison.hardware(record))].append((key, sweep))
    for group in alike.values():
        centres = _centres([sweep for _key, sweep in group])
        for key, sweep in group:
            sizes = dips(sweep, _has_few_nodes(deciding[key]))
            if sizes:
                yield key, _opinion(sizes, sweep, "than the other sizes of its sweep allow", SEVERAL)
            slow_sizes = [
                size
                for size, value in sweep.items()
                if size in centres and value < SHARE_OF_NEIGHBOURS * centres[size].median
                and bands.against_neighbours(value, centres[size], "higher")
            ]  # fmt: skip
            if slow_sizes:
                than = f"than {SHARE_OF_NEIGHBOURS:g} of the median of {len(group)} identical subjects"
                yield key, _opinion(slow_sizes, sweep, than, SEVERAL_OF_NEIGHBOURS)


def bandwidths(series: t.Iterable[t.Any]) -> dict[int, float]:
    """Return bus bandwidth by message size in bytes, from `FROM_BYTES` on and in order; the lower value where a size stands twice."""
    by_size: dict[int, float] = {}
    for row in series:
        if isinstance(row, dict) and is_number(row.get("size")) and is_number(row.get(METRIC)) and row["size"] >= FROM_BYTES:
            size = int(row["size"])
            by_size[size] = min(by_size.get(size, row[METRIC]), row[METRIC])
    return dict(sorted(by_size.items()))


def _has_few_nodes(record: Measurement) -> bool:
    """Return True if the ranks of a measurement are so few that latency does not set the time of large messages."""
    nodes = record.context.get("nodes", 1)
    return is_number(nodes) and nodes <= FEW_NODES


def dips(sweep: t.Mapping[int, float], few_nodes: bool = False) -> list[int]:
    """Return the sizes of a sweep, {bytes: busbw} in order of size, that are far below what its smaller or its larger sizes give. The
    sweep is of one node or of `few_nodes`, or of many, where latency may set the time of large messages too."""
    if not any(sweep.values()):  # one rank sends nothing to anybody
        return []
    sizes = list(sweep)
    times = TIMES_OF_LARGER if few_nodes else TIMES_OF_LARGER_MANY
    quickest: dict[int, float] = {}  # by size, the least time of any larger one (in units of the sweep)
    least_time = float("inf")
    for size in reversed(sizes):
        quickest[size] = least_time
        if sweep[size] > 0:
            least_time = min(least_time, size / sweep[size])
    dips_at: set[int] = set()
    best = 0.0
    for place, size in enumerate(sizes):
        value = sweep[size]
        slow = value <= 0 or size / value > times * quickest[size] or value < SHARE_OF_SMALLER * best
        if few_nodes and size >= BANDWIDTH_FROM:
            slow = slow or value < SHARE_OF_LARGER * max((sweep[one] for one in sizes if size < one <= LARGER_BY * size), default=0.0)
        if slow:
            dips_at |= {size, *_flat(sweep, sizes[:place], value)}
        best = max(best, value)
    return sorted(dips_at)


def _flat(sweep: t.Mapping[int, float], smaller: t.Sequence[int], value: float) -> t.Iterator[int]:
    """Yield the sizes right below one that dips which have about its bandwidth: that of what holds all of them back."""
    for size in reversed(smaller):
        if not SHARE_OF_DIP * value <= sweep[size] <= value / SHARE_OF_DIP:
            return
        yield size


def _centres(sweeps: t.Sequence[t.Mapping[int, float]]) -> dict[int, bands.Centre]:
    """The centre of identical subjects at each size, where enough of them have it."""
    values: dict[int, list[float]] = collections.defaultdict(list)
    for sweep in sweeps if len(sweeps) > bands.NEIGHBOURS else ():
        for size, value in sweep.items():
            values[size].append(value)
    centres = {size: bands.centre(values_of_size) for size, values_of_size in values.items()}
    return {size: centre for size, centre in centres.items() if centre is not None}


def _opinion(sizes: t.Sequence[int], sweep: t.Mapping[int, float], than: str, several: int) -> Opinion:
    examples = ", ".join(f"{sweep[size]:.4g} at {bands.human(size)}" for size in sizes[:SHOWN])
    hidden_text = f" and {len(sizes) - SHOWN} more sizes" if len(sizes) > SHOWN else ""
    is_broken = len(sizes) >= several and max(sizes) >= BANDWIDTH_FROM
    of_all = f"{len(sizes)} of {len(sweep)} sizes dip" if is_broken else "dips"
    reason = f"{METRIC} {of_all} inside the sweep: {examples}{hidden_text}, less {than}"
    return Opinion("FAIL" if is_broken else "WARN", reason, "sweep_dip", metric=METRIC)
