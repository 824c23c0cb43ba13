# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dips in a sweep over message sizes: sizes far below what the rest of the sweep, or the same size on identical nodes, gives.

Floors hold for single sizes, most of them large. A node that is slow between 16 MiB and 512 MiB only, as one with a wrong protocol setting
or a saturated switch buffer is, passes on its plateau.

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
# healthy sweeps lose a quarter at most (recorded sweeps of two and four H200, NCCL 2.28.9).
SHARE_OF_SMALLER = 0.5
# A message does not take longer than this many times what a larger one takes.
TIMES_OF_LARGER = 1.5
# The share of the median of identical nodes under which a size is a dip; single sizes scatter more than the plateau.
SHARE_OF_NEIGHBOURS = 0.8
SHOWN = 6


def opinions(deciding: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield a WARN for each measured sweep that has a dip, naming its sizes."""
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
            sizes = dips(sweep)
            if sizes:
                yield key, _warning(sizes, sweep, "than the other sizes of its sweep allow")
            slow_sizes = [
                size
                for size, value in sweep.items()
                if size in centres and value < SHARE_OF_NEIGHBOURS * centres[size].median
                and bands.against_neighbours(value, centres[size], "higher")
            ]  # fmt: skip
            if slow_sizes:
                yield key, _warning(slow_sizes, sweep, f"than {SHARE_OF_NEIGHBOURS:g} of the median of {len(group)} identical subjects")


def bandwidths(series: t.Iterable[t.Any]) -> dict[int, float]:
    """Return bus bandwidth by message size in bytes, from `FROM_BYTES` on and in order; the lower value where a size stands twice."""
    by_size: dict[int, float] = {}
    for row in series:
        if isinstance(row, dict) and is_number(row.get("size")) and is_number(row.get(METRIC)) and row["size"] >= FROM_BYTES:
            size = int(row["size"])
            by_size[size] = min(by_size.get(size, row[METRIC]), row[METRIC])
    return dict(sorted(by_size.items()))


def dips(sweep: t.Mapping[int, float]) -> list[int]:
    """Return the sizes of a sweep, {bytes: busbw} in order of size, that are far below what its smaller or its larger sizes give."""
    quickest: dict[int, float] = {}  # by size, the least time of any larger one (in units of the sweep)
    least_time = float("inf")
    for size in reversed(list(sweep)):
        quickest[size] = least_time
        if sweep[size] > 0:
            least_time = min(least_time, size / sweep[size])
    dips_at: list[int] = []
    best = 0.0
    if not any(sweep.values()):  # one rank sends nothing to anybody
        return dips_at
    for size, value in sweep.items():
        slow = value <= 0 or size / value > TIMES_OF_LARGER * quickest[size]
        if slow or value < SHARE_OF_SMALLER * best:
            dips_at.append(size)
        best = max(best, value)
    return dips_at


def _centres(sweeps: t.Sequence[t.Mapping[int, float]]) -> dict[int, bands.Centre]:
    """The centre of identical subjects at each size, where enough of them have it."""
    values: dict[int, list[float]] = collections.defaultdict(list)
    for sweep in sweeps if len(sweeps) > bands.NEIGHBOURS else ():
        for size, value in sweep.items():
            values[size].append(value)
    centres = {size: bands.centre(values_of_size) for size, values_of_size in values.items()}
    return {size: centre for size, centre in centres.items() if centre is not None}


def _warning(sizes: t.Sequence[int], sweep: t.Mapping[int, float], than: str) -> Opinion:
    examples = ", ".join(f"{sweep[size]:.4g} at {bands.human(size)}" for size in sizes[:SHOWN])
    hidden_text = f" and {len(sizes) - SHOWN} more sizes" if len(sizes) > SHOWN else ""
    return Opinion("WARN", f"{METRIC} dips inside the sweep: {examples}{hidden_text}, less {than}", "sweep_dip", metric=METRIC)
