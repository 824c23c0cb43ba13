# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes and their attribution: today's numbers against their own past, their identical siblings and the fleet.

    changes(today, past, facts) -> [SeriesChange]

The result has a SeriesChange for each of today's subjects, in their order, then one for each check in which all subjects changed together
(its `subject` is empty). `common` subtracts what all subjects of a run share, `reading` reads the rest of each series by the evidence of
`evidence` in units of `scatter`, and `attribution` looks for the place or the fact that explains a change. Values that are no numbers
above zero are left out and counted. Runs after today's are left out too, so that an old run that is judged again has the same result.

Pure, no store. This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import typing as t
from collections import defaultdict

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import common, evidence, reading, scatter, words
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.attribution import (
    ChangeCase,
    FactHistory,
    attribute,
    attribute_to_fleet,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.reading import SeriesReading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.series import (
    ALARMS,
    Attribution,
    ChangeKind,
    Facts,
    Key,
    Point,
    SeriesChange,
    Today,
)

OWN = 0.25  # least part of a loss relative to the others that must be the subject's own, since the others may have gained

# A repaired part is at its old level if the median of its FIRST runs differs by at most RETURNED scatters (two standard errors of a median
# of three), or by at most the part SAME of the value.
FIRST, RETURNED, SAME = 3, 1.5, 0.005


@dataclasses.dataclass
class Series:
    """The comparable values of one subject: its runs (numbers), and logarithms about its median, of which more is better."""

    today: Today
    points: list[Point]
    runs: list[int]
    values: list[float]
    ignored: int
    anew: bool  # begins with a repair
    own: list[float] = dataclasses.field(default_factory=list)  # without what all share
    read: SeriesReading = dataclasses.field(default_factory=lambda: SeriesReading(ChangeKind.UNUSABLE))

    @property
    def least(self) -> float:
        return scatter.least(self.values)


def changes(today: t.Iterable[Today], past: t.Mapping[Key, t.Sequence[Point]], facts: Facts | None = None) -> list[SeriesChange]:
    """Return the change of each of `today`, from its `past` (its own values of earlier runs) and the `facts` of its places in these
    runs."""
    order = list(today)
    fleets: dict[tuple[str, str, str], list[Today]] = defaultdict(list)
    for subject in order:
        fleets[subject.check, subject.model, subject.better].append(subject)
    by_key: dict[Key, SeriesChange] = {}
    shared: list[SeriesChange] = []
    for fleet in fleets.values():
        of_each, of_fleet = _fleet(fleet, past, facts or {})
        by_key |= {(change.subject, change.check): change for change in of_each}
        shared += of_fleet
    return [by_key[subject.key] for subject in order] + shared


def usable(value: t.Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _fleet(
    fleet: t.Sequence[Today], past: t.Mapping[Key, t.Sequence[Point]], facts: Facts
) -> tuple[list[SeriesChange], list[SeriesChange]]:
    points = {subject.key: _points(subject, past.get(subject.key, ())) for subject in fleet}
    times: dict[str, str] = {}
    for of_one in points.values():
        for point in of_one:
            times[point.run] = min(times.get(point.run, point.time), point.time)
    runs = sorted(times, key=lambda run: (times[run], run))
    number = {run: at for at, run in enumerate(runs)}
    history = FactHistory(facts, runs)
    all_series = [_series(subject, points[subject.key], number, history) for subject in fleet]
    # With one node only, a common change of its subjects is the node's own and no run effect.
    one_node = len({name for subject in fleet for kind, name in subject.places if kind == "node"}) == 1
    rows = [list(zip(s.runs, s.values, strict=True)) for s in all_series]
    splits = [] if one_node else common.splits(rows, _units(fleet))
    added = {} if one_node else common.shared(rows, splits)
    for series in all_series:
        series.own = [value - added.get(run, 0.0) for run, value in zip(series.runs, series.values, strict=True)]
    if not one_node:
        _without_wandering(all_series)
    noise = scatter.noise([s.own for s in all_series], [s.least for s in all_series])
    for series in all_series:
        if usable(series.today.point.value):
            series.read = _by_itself(series, reading.read(series.own, noise, series.least))
    cases = [ChangeCase(s.today.subject, s.today.places, s.runs[s.read.moved[0]] if s.read.kind in ALARMS else None) for s in all_series]
    attributions = attribute(cases, history, [(s.at, frozenset(all_series[place].today.subject for place in s.moved)) for s in splits])
    siblings = _siblings(all_series)
    each = [
        _change(s, attributions.get(s.today.subject, Attribution()), siblings.get(s.today.subject, words.Siblings())) for s in all_series
    ]
    return each, _all(all_series, added, cases, history, runs, times)


def _without_wandering(all_series: t.Sequence[Series]) -> None:
    """Subtract from each series what its rack did in each run, as far as the racks of the fleet wander. Of a subject in several racks
    nothing is subtracted."""
    places = [[name for kind, name in s.today.places if kind == "rack"] for s in all_series]
    if not any(places):
        return
    rows = [list(zip(s.runs, s.own, strict=True)) for s in all_series]
    away = common.wander(rows, [names[0] if len(names) == 1 else "" for names in places])
    for series, levels in zip(all_series, away, strict=True):
        series.own = [value - levels.get(run, 0.0) for run, value in zip(series.runs, series.own, strict=True)]


def _units(fleet: t.Sequence[Today]) -> list[str]:
    """Return the unit that each subject moves with: its node if there are enough nodes and each subject has one, otherwise itself."""
    nodes = [[name for kind, name in subject.places if kind == "node"] for subject in fleet]
    if all(len(names) == 1 for names in nodes) and len({names[0] for names in nodes}) >= common.ENOUGH:
        return [names[0] for names in nodes]
    return [subject.subject for subject in fleet]


def _points(today: Today, past: t.Sequence[Point]) -> list[Point]:
    """Return the points in the order of their runs, each run once, none later than today's point, which is the last."""
    today_key = (today.point.time, today.point.run)
    by_run = {
        point.run: point
        for point in sorted(past, key=lambda p: p.time)
        if point.run != today.point.run and (point.time, point.run) < today_key
    }
    return [*sorted(by_run.values(), key=lambda p: (p.time, p.run)), today.point]


def _series(today: Today, points: t.Sequence[Point], number: t.Mapping[str, int], history: FactHistory) -> Series:
    begun = history.repaired({today.subject, *(name for _kind, name in today.places)})
    good = [point for point in points if usable(point.value)]
    ignored = len(points) - len(good)
    since = [point for point in good if number[point.run] >= begun]
    old_points = _healthy(today, good[: len(good) - len(since)])
    # A part that returns to its old level keeps its reference, without the runs in which it was broken.
    anew = begun > 0 and not _returned(today, old_points, since)
    if anew:
        ignored = sum(number[point.run] >= begun for point in points) - len(since)
    used = since if anew or not begun else [*old_points, *since]
    return Series(today, used, [number[point.run] for point in used], _logarithms(today, used), ignored, anew)


def _logarithms(today: Today, points: t.Sequence[Point]) -> list[float]:
    """Return the values of `points` as logarithms about their median, of which more is better."""
    values = [float(point.value or 0) for point in points]
    middle = statistics.median(values) if values else 1.0
    sign = 1.0 if today.better != "lower" else -1.0
    # Divide first, so that the result does not depend on the unit.
    return [sign * (math.log(value / middle) if value / middle else -745.0) for value in values]


def _healthy(today: Today, points: t.Sequence[Point]) -> list[Point]:
    """Return the points before a repair that are at the usual level, without regard to what the fleet shares."""
    if len(points) <= reading.FEWEST:
        return list(points)
    values = _logarithms(today, points)
    walk = reading.Walk(values, scatter.Noise(), scatter.least(values))
    return [points[place] for place in walk.good]


def _returned(today: Today, old_points: t.Sequence[Point], since: t.Sequence[Point]) -> bool:
    """Return True if the first runs after a repair are at the level of the runs before it. Later runs do not count, because a later step is
    independent of the repair."""
    if len(old_points) < reading.FEWEST or not since:
        return False
    values = _logarithms(today, [*old_points, *since[:FIRST]])
    middle, spread = scatter.centre(values[: len(old_points)])
    return abs(statistics.median(values[len(old_points) :]) - middle) <= max(RETURNED * spread, SAME)


def _by_itself(series: Series, read: SeriesReading) -> SeriesReading:
    """Return the reading, or NOTHING if the change comes from the other subjects: if they became better and this one did not, or worse."""
    if read.kind not in (ChangeKind.STEP, ChangeKind.DRIFT, ChangeKind.IMPROVEMENT) or not read.reference:
        return read
    moved = read.moved[-max(3, len(read.moved) // 4) :] if read.kind == ChangeKind.DRIFT else read.moved
    own_change = statistics.median([series.values[p] for p in moved]) - statistics.median([series.values[p] for p in read.reference])
    if own_change / read.by >= OWN if read.by else True:
        return read
    return SeriesReading(ChangeKind.NOTHING, read.reference, (len(series.values) - 1,))


def _siblings(all_series: t.Sequence[Series]) -> dict[str, words.Siblings]:
    on: dict[str, list[Series]] = defaultdict(list)
    for series in all_series:
        if series.today.node and series.read.kind not in (ChangeKind.UNUSABLE, ChangeKind.SHORT):
            on[series.today.node].append(series)
    return {
        member.today.subject: words.Siblings(
            len(node) - 1, sum(s.read.kind in (ALARMS | {ChangeKind.HICCUP}) for s in node if s is not member)
        )
        for node in on.values()
        for member in node
        if member.read.kind != ChangeKind.NOTHING
    }


def _change(series: Series, attribution: Attribution, siblings: words.Siblings) -> SeriesChange:
    today, read = series.today, series.read
    value = today.point.value if isinstance(today.point.value, (int, float)) else None
    change = SeriesChange(today.subject, today.check, read.kind, attribution, "", value=value, ignored=series.ignored)
    raw = [float(point.value or 0) for point in series.points]
    if read.kind == ChangeKind.SHORT:
        anew = Attribution(fact="repaired") if series.anew else attribution
        change = dataclasses.replace(change, runs=len(read.reference), attribution=anew)
    elif read.reference:
        reference = statistics.median([raw[p] for p in read.reference])
        moved = read.moved[-max(3, len(read.moved) // 4) :] if read.kind == ChangeKind.DRIFT else read.moved
        level = statistics.median([raw[p] for p in moved])
        onset = series.points[read.moved[0]]
        change = dataclasses.replace(
            change, change=100 * (level / reference - 1), reference=reference, runs=len(read.reference), level=level,
            reference_since=series.points[read.reference[0]].time, onset=onset.run, onset_time=onset.time,
        )  # fmt: skip
    return dataclasses.replace(change, sentence=words.sentence(today, change, siblings, read.wider))


def _all(
    all_series: t.Sequence[Series], added: t.Mapping[int, float], cases: t.Sequence[ChangeCase], history: FactHistory,
    runs: t.Sequence[str], times: t.Mapping[str, str],
) -> list[SeriesChange]:  # fmt: skip
    """Return the common change of all subjects, read like one more subject."""
    last = len(runs) - 1
    if last not in added:
        return []
    order = sorted(added)
    values = [added[run] for run in order]
    read = reading.read(values, scatter.Noise(), scatter.FLOOR)
    if read.kind not in ALARMS | {ChangeKind.IMPROVEMENT}:
        return []
    first = all_series[0].today
    onset = order[read.moved[0]]
    worse = 1.0 if first.better != "lower" else -1.0
    change = SeriesChange(
        "", first.check, read.kind, attribute_to_fleet(cases, onset, history), "", change=100 * math.expm1(worse * read.by),
        runs=len(read.reference), reference_since=times[runs[order[read.reference[0]]]], onset=runs[onset], onset_time=times[runs[onset]],
        members=tuple(s.today.subject for s in all_series),
    )  # fmt: skip
    return [dataclasses.replace(change, sentence=words.of_all(first, change))]


__all__ = ["ALARMS", "Attribution", "ChangeKind", "Facts", "Point", "SeriesChange", "Today", "changes", "evidence"]
