# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What changed, and whose it is: today's numbers against their own past, their identical siblings and the fleet.

    changes(today, past, facts) -> [Change]

One Change for each of today's subjects, in their order, then one for each check in which all of them changed together (its `subject` is
empty). `common` finds what all subjects of a run share and takes it away, `reading` reads what is left of each series, by the evidence of
`evidence` in units of `scatter`; `whose` looks for the place or the fact behind it. Values that are no numbers above zero are left out
and counted. What was measured after today's run is left out too: an old run that is judged again says what it said.

Pure, no store. This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import typing as t
from collections import defaultdict

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import common, evidence, reading, scatter, words
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.reading import Reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.series import (
    ALARMS,
    Change,
    Facts,
    Key,
    Kind,
    Point,
    Today,
    Whose,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.whose import Case, History, of_all, whose

OWN = 0.25  # of what a subject lost beside the others it must have lost by itself: others may have gained


@dataclasses.dataclass
class Series:
    """What can be compared of one subject: its runs (numbers), and logarithms about its median of which more is better."""

    today: Today
    points: list[Point]
    runs: list[int]
    values: list[float]
    ignored: int
    anew: bool  # begins with a repair
    own: list[float] = dataclasses.field(default_factory=list)  # without what all share
    read: Reading = dataclasses.field(default_factory=lambda: Reading(Kind.UNUSABLE))

    @property
    def least(self) -> float:
        return scatter.least(self.values)


def changes(today: t.Iterable[Today], past: t.Mapping[Key, t.Sequence[Point]], facts: Facts | None = None) -> list[Change]:
    """What became of each of `today`, by its `past` (its own values of earlier runs) and the `facts` of its places in these runs."""
    order = list(today)
    fleets: dict[tuple[str, str, str], list[Today]] = defaultdict(list)
    for one in order:
        fleets[one.check, one.model, one.better].append(one)
    found: dict[Key, Change] = {}
    shared: list[Change] = []
    for fleet in fleets.values():
        of_each, of_all_of_them = _fleet(fleet, past, facts or {})
        found |= {(change.subject, change.check): change for change in of_each}
        shared += of_all_of_them
    return [found[one.key] for one in order] + shared


def usable(value: t.Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _fleet(fleet: t.Sequence[Today], past: t.Mapping[Key, t.Sequence[Point]], facts: Facts) -> tuple[list[Change], list[Change]]:
    points = {one.key: _points(one, past.get(one.key, ())) for one in fleet}
    times: dict[str, str] = {}
    for of_one in points.values():
        for point in of_one:
            times[point.run] = min(times.get(point.run, point.time), point.time)
    runs = sorted(times, key=lambda run: (times[run], run))
    number = {run: at for at, run in enumerate(runs)}
    history = History(facts, runs)
    all_series = [_series(one, points[one.key], number, history) for one in fleet]
    # What all of one node did is the node's: nobody else is there who could have done it too.
    alone = len({name for one in fleet for kind, name in one.places if kind == "node"}) == 1
    added = {} if alone else common.shared([list(zip(s.runs, s.values, strict=True)) for s in all_series])
    for series in all_series:
        series.own = [value - added.get(run, 0.0) for run, value in zip(series.runs, series.values, strict=True)]
    noise = scatter.noise([s.own for s in all_series], [s.least for s in all_series])
    for series in all_series:
        if usable(series.today.point.value):
            series.read = _by_itself(series, reading.read(series.own, noise, series.least))
    cases = [Case(s.today.subject, s.today.places, s.runs[s.read.moved[0]] if s.read.kind in ALARMS else None) for s in all_series]
    blamed = whose(cases, history)
    siblings = _siblings(all_series)
    each = [_change(s, blamed.get(s.today.subject, Whose()), siblings.get(s.today.subject, words.Siblings())) for s in all_series]
    return each, _all(all_series, added, cases, history, runs, times)


def _points(one: Today, past: t.Sequence[Point]) -> list[Point]:
    """In order, each run once, nothing later than today, which is the last."""
    now = (one.point.time, one.point.run)
    by_run = {
        point.run: point for point in sorted(past, key=lambda p: p.time) if point.run != one.point.run and (point.time, point.run) < now
    }
    return [*sorted(by_run.values(), key=lambda p: (p.time, p.run)), one.point]


def _series(one: Today, points: t.Sequence[Point], number: t.Mapping[str, int], history: History) -> Series:
    begun = history.repaired({one.subject, *(name for _kind, name in one.places)})
    kept = [point for point in points if number[point.run] >= begun]
    good = [point for point in kept if usable(point.value)]
    values = [float(point.value or 0) for point in good]
    middle = statistics.median(values) if values else 1.0
    sign = 1.0 if one.better != "lower" else -1.0
    # Divided first: the same numbers in another unit are the same.
    logs = [sign * (math.log(value / middle) if value / middle else -745.0) for value in values]
    return Series(one, good, [number[point.run] for point in good], logs, len(kept) - len(good), begun > 0)


def _by_itself(series: Series, read: Reading) -> Reading:
    """Not worse by itself, where the others became better and it did not; not better, where the others became worse."""
    if read.kind not in (Kind.STEP, Kind.DRIFT, Kind.IMPROVEMENT) or not read.reference:
        return read
    moved = read.moved[-max(3, len(read.moved) // 4) :] if read.kind == Kind.DRIFT else read.moved
    alone = statistics.median([series.values[p] for p in moved]) - statistics.median([series.values[p] for p in read.reference])
    if alone / read.by >= OWN if read.by else True:
        return read
    return Reading(Kind.NOTHING, read.reference, (len(series.values) - 1,))


def _siblings(all_series: t.Sequence[Series]) -> dict[str, words.Siblings]:
    on: dict[str, list[Series]] = defaultdict(list)
    for series in all_series:
        if series.today.node and series.read.kind not in (Kind.UNUSABLE, Kind.SHORT):
            on[series.today.node].append(series)
    return {
        one.today.subject: words.Siblings(len(node) - 1, sum(s.read.kind in (ALARMS | {Kind.HICCUP}) for s in node if s is not one))
        for node in on.values()
        for one in node
        if one.read.kind != Kind.NOTHING
    }


def _change(series: Series, whose_it_is: Whose, siblings: words.Siblings) -> Change:
    one, read = series.today, series.read
    value = one.point.value if isinstance(one.point.value, (int, float)) else None
    change = Change(one.subject, one.check, read.kind, whose_it_is, "", value=value, ignored=series.ignored)
    raw = [float(point.value or 0) for point in series.points]
    if read.kind == Kind.SHORT:
        change = dataclasses.replace(change, runs=len(read.reference), whose=Whose(fact="repaired") if series.anew else whose_it_is)
    elif read.reference:
        reference = statistics.median([raw[p] for p in read.reference])
        moved = read.moved[-max(3, len(read.moved) // 4) :] if read.kind == Kind.DRIFT else read.moved
        level = statistics.median([raw[p] for p in moved])
        onset = series.points[read.moved[0]]
        change = dataclasses.replace(
            change, change=100 * (level / reference - 1), reference=reference, runs=len(read.reference), level=level,
            reference_since=series.points[read.reference[0]].time, onset=onset.run, onset_time=onset.time,
        )  # fmt: skip
    return dataclasses.replace(change, sentence=words.sentence(one, change, siblings, read.wider))


def _all(
    all_series: t.Sequence[Series], added: t.Mapping[int, float], cases: t.Sequence[Case], history: History,
    runs: t.Sequence[str], times: t.Mapping[str, str],
) -> list[Change]:  # fmt: skip
    """What all became together, read like one more subject: what their runs added."""
    last = len(runs) - 1
    if last not in added:
        return []
    order = sorted(added)
    values = [added[run] for run in order]
    read = reading.read(values, scatter.Noise(), scatter.FLOOR)
    if read.kind not in ALARMS | {Kind.IMPROVEMENT}:
        return []
    one = all_series[0].today
    onset = order[read.moved[0]]
    worse = 1.0 if one.better != "lower" else -1.0
    change = Change(
        "", one.check, read.kind, of_all(cases, onset, history), "", change=100 * math.expm1(worse * read.by), runs=len(read.reference),
        reference_since=times[runs[order[read.reference[0]]]], onset=runs[onset], onset_time=times[runs[onset]],
        members=tuple(s.today.subject for s in all_series),
    )  # fmt: skip
    return [dataclasses.replace(change, sentence=words.of_all(one, change))]


__all__ = ["ALARMS", "Change", "Facts", "Kind", "Point", "Today", "Whose", "changes", "evidence"]
