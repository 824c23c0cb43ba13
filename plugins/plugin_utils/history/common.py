# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run effect: the change that a run has in common for all identical subjects (a warm room, a new driver everywhere).

A value is its subject's level plus the effect of its run plus the rest (two-way analysis by medians, Tukey 1977). The effect of a run is
the weighted mean of what is left of each subject's value without its level, with Tukey's biweight about the median (Mosteller and Tukey
1977), so that less than a third of the fleet that became slow at once does not pull the others with it. The effect is unknown with fewer
than ENOUGH subjects.

Where a larger part of the fleet stepped, no average over all is right. `split` looks for one run at which the steps of the nodes fall into
two clusters of at least SHARE each (the threshold of greatest variance between the two, Otsu 1979); from that run on, the effect is
estimated from the cluster that did not move.

A rack may wander by itself (the air at one end of the room): `wander` estimates what the subjects of each rack share, about what all share,
if the racks of the fleet move by more than the scatter of their subjects explains. It is held to what the racks of the fleet wander, so
that a rack which steps is still seen. Nodes are not treated so: what all GPUs of a node do is what a fault of the node looks like.

Pure. This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
import typing as t
from collections import defaultdict

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import scatter

ENOUGH = 5
ROUNDS = 3
REACH = 6.0  # scatters beyond which a value has no weight
SHARE = 0.2  # smallest cluster, as a part of the units
BEFORE, AFTER = 12, 6  # most runs before and after a split by which its steps are measured
FEWEST = 5  # runs before a split
APART = 5.0  # standard deviations of a unit's step: the largest gap that noise makes at 60 possible runs is about 4
WITHIN = 4.0  # scatters inside the clusters: two halves of one normal distribution lie 2.7 apart
STRAYED = 4.0  # least gap of the clusters, in scatters of their earlier distance
LEAST = 0.005  # least gap of a split, as a part of the value
SPLITS = 4  # most splits: a driver may be installed in waves
MOST = 600  # most units that are sampled to find the run of a split
MEMBERS = 4  # fewest subjects of a place whose common movement is estimated
PLACES = 3  # fewest places from which wandering is estimated
WANDERS = 1.5  # least ratio of a place's standard deviation to that explained by the scatter of its subjects
WANDERED = 3.0  # standard deviations to which the movement of a place is limited, so that a step stays visible

Row = t.Sequence[tuple[int, float]]  # (number of the run, value)
Levels = dict[int, float]  # {number of the run: value}


@dataclasses.dataclass(frozen=True)
class Split:
    """At run `at`, the subjects `moved` (indexes of rows) stepped to another level and the others did not."""

    at: int
    moved: frozenset[int]


def shared(rows: t.Sequence[Row], splits: t.Sequence[Split] = ()) -> Levels:
    """Return {number of the run: its effect}, with a median of zero, for runs in which at least ENOUGH subjects were measured.

    A subject that moved in a split does not count from that run on."""
    until: dict[int, int] = {}
    for split in splits:
        for place in split.moved:
            until[place] = min(split.at, until.get(place, split.at))
    rows = [[(run, value) for run, value in row if run < until[at]] if at in until else row for at, row in enumerate(rows)]
    counts: dict[int, int] = defaultdict(int)
    for row in rows:
        for run, _value in row:
            counts[run] += 1
    runs = {run for run, count in counts.items() if count >= ENOUGH}
    common = dict.fromkeys(runs, 0.0)
    if not runs:
        return common
    usable_rows = [[(run, value) for run, value in row if run in runs] for row in rows]
    for turn in range(ROUNDS):
        residuals: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for row in usable_rows:
            if len(row) < 3:
                continue
            without_effect = [value - common[run] for run, value in row]
            level = statistics.median(without_effect)
            weight = 1 / max(statistics.median([abs(r - level) for r in without_effect]), 5e-4)
            for run, value in row:
                residuals[run].append((value - level, weight))
        for run, weighted in residuals.items():
            common[run] = _biweight(weighted) if turn else statistics.median([value for value, _weight in weighted])
    middle = statistics.median(common.values())
    return {run: value - middle for run, value in common.items()}


def _biweight(weighted: t.Sequence[tuple[float, float]]) -> float:
    """Return the biweight mean of (value, 1 / scatter). A value weighs more if it is precise and near the others."""
    at = statistics.median([value for value, _weight in weighted])
    for _pass in range(2):
        above = below = 0.0
        for value, weight in weighted:
            away = (value - at) * weight / (REACH * 1.4826)
            if -1 < away < 1:
                counts = weight * weight * (1 - away * away) ** 2
                above, below = above + counts * value, below + counts
        if not below:
            break
        at = above / below
    return at


def wander(rows: t.Sequence[Row], place_of: t.Sequence[str]) -> list[Levels]:
    """Return, for each row, {number of the run: what its place did in it}. `rows` are without what all share; `place_of` names the place of
    each row, "" if it has none.

    The standard deviation of what a place does is taken from the differences between neighbouring runs, which no step raises, and from how
    alike neighbouring runs are (AR(1)), by the medians over places."""
    members: dict[str, list[int]] = defaultdict(list)
    for at, place in enumerate(place_of):
        if place and len(rows[at]) >= 3:
            members[place].append(at)
    place_levels = {place: _levels([rows[at] for at in of]) for place, of in members.items() if len(of) >= MEMBERS}
    if len(place_levels) < PLACES:
        return [{} for _row in rows]
    by_chance = statistics.median([_of_scatter([rows[at] for at in members[place]], levels) for place, levels in place_levels.items()])
    alike = max(0.0, min(scatter.ALIKE, statistics.median([_autocorrelation(list(levels.values())) for levels in place_levels.values()])))
    typical = statistics.median([_noise(list(levels.values())) for levels in place_levels.values()]) / math.sqrt(1 - alike)
    if typical < WANDERS * by_chance:
        return [{} for _row in rows]
    share, limit = 1 - (by_chance / typical) ** 2, WANDERED * typical
    limited = {
        place: {run: max(-limit, min(limit, share * level)) for run, level in levels.items()} for place, levels in place_levels.items()
    }
    return [limited.get(place, {}) for place in place_of]


def _of_scatter(rows: t.Sequence[Row], levels: Levels) -> float:
    """Return the standard deviation of a place's median that the scatter of its subjects about it explains."""
    deviations = []
    for row in rows:
        middle = statistics.median([value - levels[run] for run, value in row])
        deviations += [abs(value - levels[run] - middle) for run, value in row]
    # A median of n values scatters by 1.2533 times as much as their mean (Stuart and Ord, 10.11).
    return 1.2533 * max(scatter.FLOOR, scatter.SIGMA * statistics.median(deviations)) / math.sqrt(len(rows))


def _autocorrelation(values: t.Sequence[float]) -> float:
    """Return how alike neighbouring values are (lag-1 autocorrelation), each held to BOUND scatters."""
    middle, spread = scatter.centre(values)
    bounded = [max(-scatter.BOUND, min(scatter.BOUND, (value - middle) / max(spread, scatter.FLOOR))) for value in values]
    square = sum(h * h for h in bounded)
    return sum(a * b for a, b in itertools.pairwise(bounded)) / square + 1 / len(values) if square else 0.0


def splits(rows: t.Sequence[Row], unit_of: t.Sequence[str]) -> list[Split]:
    """Return the splits of a fleet, the clearest first. `unit_of` has the unit (the node) of each row; a unit moves as a whole."""
    fleet_splits: list[Split] = []
    for _round in range(SPLITS):
        moved_places = {place for split in fleet_splits for place in split.moved}
        members: dict[str, list[int]] = defaultdict(list)
        for place, unit in enumerate(unit_of):
            if place not in moved_places:
                members[unit].append(place)
        if len(members) < ENOUGH:
            break
        at, moved = _split({unit: _levels([rows[place] for place in places]) for unit, places in members.items()})
        if not moved:
            break
        fleet_splits.append(Split(at, frozenset(place for unit in moved for place in members[unit])))
    return fleet_splits


def _levels(rows: t.Sequence[Row]) -> Levels:
    """Return {run: median, over a unit's rows, of the value minus the row's median}."""
    by_run: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        middle = statistics.median([value for _run, value in row]) if row else 0.0
        for run, value in row:
            by_run[run].append(value - middle)
    return {run: statistics.median(values) for run, values in sorted(by_run.items())}


def _split(units: t.Mapping[str, Levels]) -> tuple[int, set[str]]:
    """Return (run, units that moved) of the clearest split; no units if there is none."""
    step = max(1, len(units) // MOST)
    sample = {name: units[name] for name in sorted(units)[::step]}
    noise = {name: _noise(list(levels.values())) for name, levels in sample.items()}
    runs = sorted({run for levels in sample.values() for run in levels})
    best: tuple[float, int, float] = (0.0, 0, 0.0)
    for place in range(FEWEST, len(runs)):
        old, new = runs[max(0, place - BEFORE) : place], runs[place : place + AFTER]
        steps = {name: step_size for name, levels in sample.items() if (step_size := _step(levels, old, new)) is not None}
        if len(steps) >= ENOUGH:
            spread = statistics.median([noise[name] for name in steps]) * math.sqrt(1.57 * (1 / len(old) + 1 / len(new)))
            best = max(best, (*_clusters(list(steps.values()), spread, runs[place]),))
    if not best[0]:
        return 0, set()
    _score, at, threshold = best
    place = runs.index(at)
    old, new = runs[max(0, place - BEFORE) : place], runs[place : place + AFTER]
    steps = {name: step_size for name, levels in units.items() if (step_size := _step(levels, old, new)) is not None}
    low = {name for name, step_size in steps.items() if step_size < threshold}
    high = set(steps) - low
    if not low or not high:
        return 0, set()
    moved = _moved(steps, low, high)
    apart = _apart(units, moved, (low | high) - moved)
    if not _is_new(apart, runs[:place], new):
        return 0, set()
    return _begun(apart, [run for run in old if run in apart], [run for run in new if run in apart]), moved


def _moved(steps: t.Mapping[str, float], low: set[str], high: set[str]) -> set[str]:
    """Return the cluster that moved: the other one is nearer to no step at all or, if both are as near, the larger one."""
    down, up = (abs(statistics.median([steps[name] for name in names])) for names in (low, high))
    if abs(down - up) < 0.25 * (down + up):
        return min(low, high, key=len)
    return low if down > up else high


def _apart(units: t.Mapping[str, Levels], moved: set[str], stayed: set[str]) -> Levels:
    """Return {run: level of the units that moved minus that of the others}."""
    of: tuple[dict[int, list[float]], dict[int, list[float]]] = defaultdict(list), defaultdict(list)
    for side, names in enumerate((moved, stayed)):
        for name in names:
            for run, level in units[name].items():
                of[side][run].append(level)
    return {run: statistics.median(of[0][run]) - statistics.median(of[1][run]) for run in of[0] if run in of[1]}


def _is_new(apart: Levels, old: t.Sequence[int], new: t.Sequence[int]) -> bool:
    """Return True if two clusters lie further apart than they strayed from each other before: the rows of a warm room wander."""
    middle, strayed = scatter.centre([apart[run] for run in old if run in apart])
    return abs(statistics.median([apart[run] for run in new if run in apart]) - middle) >= STRAYED * strayed


def _begun(apart: Levels, old: t.Sequence[int], new: t.Sequence[int]) -> int:
    """Return the run since which two clusters are apart: medians see a step some runs before it, with a longer window."""
    old_level, new_level = statistics.median([apart[run] for run in old]), statistics.median([apart[run] for run in new])
    runs = [*old[-AFTER // 2 :], *new]
    return next(run for run in runs if abs(apart[run] - new_level) < abs(apart[run] - old_level))


def _step(levels: Levels, old: t.Sequence[int], new: t.Sequence[int]) -> float | None:
    old_values, new_values = [levels[run] for run in old if run in levels], [levels[run] for run in new if run in levels]
    if len(old_values) < min(FEWEST, len(old)) or not new_values:
        return None
    return statistics.median(new_values) - statistics.median(old_values)


def _noise(values: t.Sequence[float]) -> float:
    """Return the standard deviation of a unit's values, estimated from the differences of neighbours so that a step does not raise it."""
    if len(values) < 3:
        return scatter.FLOOR
    return max(scatter.FLOOR, scatter.SIGMA * statistics.median([abs(b - a) for a, b in itertools.pairwise(values)]) / math.sqrt(2))


def _clusters(steps: t.Sequence[float], spread: float, at: int) -> tuple[float, int, float]:
    """Return (gap of the two clusters of steps in standard deviations, run, threshold between them); zeros if there is one cluster."""
    order = sorted(steps)
    count = len(order)
    fewest = max(2, math.ceil(SHARE * count))
    sums = [0.0, *itertools.accumulate(order)]
    best, cut = 0.0, 0
    for low in range(fewest, count - fewest + 1):
        gap = (sums[-1] - sums[low]) / (count - low) - sums[low] / low
        if low * (count - low) * gap * gap > best:
            best, cut = low * (count - low) * gap * gap, low
    if not cut:
        return 0.0, 0, 0.0
    low_at, high_at = statistics.median(order[:cut]), statistics.median(order[cut:])
    inside = scatter.SIGMA * statistics.median([*(abs(s - low_at) for s in order[:cut]), *(abs(s - high_at) for s in order[cut:])])
    gap = high_at - low_at
    if gap < max(LEAST, APART * spread, WITHIN * inside):
        return 0.0, 0, 0.0
    return gap / spread, at, (order[cut - 1] + order[cut]) / 2
