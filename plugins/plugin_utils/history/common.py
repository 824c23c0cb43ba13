# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all identical subjects of a run share: a node's room was warm, everybody got a new driver. It is nobody's own.

A value is its subject's level times what its run did to all times the rest (two-way analysis by medians, Tukey 1977). What a run did is
the weighted mean of what is left of each subject's value without its level, with Tukey's biweight about the median (Mosteller and Tukey
1977): a third of the fleet that became slow at once does not pull the others with it. Of fewer than ENOUGH subjects it is not known.

Pure. This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import statistics
import typing as t
from collections import defaultdict

ENOUGH = 5
ROUNDS = 3
REACH = 6.0  # scatters, beyond which a value has no weight

Row = t.Sequence[tuple[int, float]]  # (number of the run, value)


def shared(rows: t.Sequence[Row]) -> dict[int, float]:
    """{number of the run: what it added to all}, with a median of zero; only runs in which ENOUGH were measured."""
    counts: dict[int, int] = defaultdict(int)
    for row in rows:
        for run, _value in row:
            counts[run] += 1
    runs = {run for run, count in counts.items() if count >= ENOUGH}
    common = dict.fromkeys(runs, 0.0)
    if not runs:
        return common
    kept = [[(run, value) for run, value in row if run in runs] for row in rows]
    for turn in range(ROUNDS):
        left: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for row in kept:
            if len(row) < 3:
                continue
            rest = [value - common[run] for run, value in row]
            level = statistics.median(rest)
            weight = 1 / max(statistics.median([abs(r - level) for r in rest]), 5e-4)
            for run, value in row:
                left[run].append((value - level, weight))
        for run, found in left.items():
            common[run] = _biweight(found) if turn else statistics.median([value for value, _weight in found])
    middle = statistics.median(common.values())
    return {run: value - middle for run, value in common.items()}


def _biweight(found: t.Sequence[tuple[float, float]]) -> float:
    """(value, 1 / its scatter): each counts by how precise it is and by how near it is to the others."""
    at = statistics.median([value for value, _weight in found])
    for _again in range(2):
        above = below = 0.0
        for value, weight in found:
            away = (value - at) * weight / (REACH * 1.4826)
            if -1 < away < 1:
                counts = weight * weight * (1 - away * away) ** 2
                above, below = above + counts * value, below + counts
        if not below:
            break
        at = above / below
    return at
