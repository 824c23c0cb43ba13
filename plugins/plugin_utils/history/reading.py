# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads one series by itself, run by run from the first to today.

The reference are the runs at the usual level. Runs at another level leave it. Lower runs are a regression as long as they last; higher
runs become the reference when there are FEWEST of them. Runs that return to the old level join the old reference. Runs that return most of
the way are a repair, which starts a new reference. Runs whose evidence fades go back into the reference.

Pure. This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import evidence, scatter
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.series import ChangeKind

FEWEST = 8  # fewest earlier runs for any statement
BEFORE, BETWEEN = 5, 3  # fewest runs for a level: of the reference, and after a change
CHANCE = 2.0  # evidence, below which a change is withdrawn,
SAID = 7.0  # and from which on it is said again
REPAIRED = 0.5  # of what was lost
NEWS = 8  # runs for which a better level is reported
HICCUP = 4.5  # scatters beyond which a single run is reported
DROP = 10.0  # deviance, and the part of the value lost (5 %), from which on one low run alone is an alarm: chance does that in fewer
LARGE = 0.05  # than 1 in 10,000 runs, with normal noise and with heavy tails (Student's t, 3 degrees)
RECENT = 16  # runs that are checked for flapping
LOW, NEAR = 3.5, 2.5  # scatters: on another level, on the old one
FLAPS, TURNS = 5, 3  # runs on the lower level, and changes between the two
FAR, SIDES = 2.0, 0.25  # scatters, and the least share of what is so far away on either side, where there is more scatter
LIKELIER = 1.0  # by how much better a slope must fit than a step
SCREEN = 2.8  # standard deviations of a mean below which a window is skipped

CONFIRMED = frozenset((ChangeKind.DRIFT, ChangeKind.FLAPPING))  # alarms only if the run before showed one as well


@dataclasses.dataclass(frozen=True)
class SeriesReading:
    """The state of a series today. `reference` and `moved` are indexes into it: the runs at the usual level, and those since the change.

    `by` is the difference of their levels, `wider` the ratio of their scatters.
    """

    kind: ChangeKind
    reference: t.Sequence[int] = ()
    moved: t.Sequence[int] = ()
    by: float = 0.0
    wider: float = 1.0


class Walk:
    """The state after each run: `good` are the runs of the reference, `level` those at today's level, which may be the same list."""

    def __init__(self, values: t.Sequence[float], noise: scatter.Noise, floor: float) -> None:
        self.values, self.noise, self.floor = values, noise, floor
        self.good: list[int] = []
        self.level = self.good
        self.since_regression: list[int] = []  # all runs since a regression began that lasts; empty without one
        self.improved_at: int | None = None  # the run at which a better level began
        self.strength = 0.0  # the evidence for the regression today
        self.estimate: tuple[int, float, float] = (0, 0.0, 1.0)  # runs of `level` that it is made from, their median and scatter
        self.sums: list[float] = [0.0]  # running sums of the distances of the runs of `level` from the median of `estimate`
        self.screens = {k: SCREEN * math.sqrt(k * noise.inflation(k)) for k in evidence.WINDOWS}
        for place in range(len(values)):
            self._step(place)

    def reference(self, places: t.Sequence[int]) -> evidence.Known:
        middle, scatter_of_runs = scatter.centre([self.values[p] for p in places])
        return middle, *self.noise.scatter(scatter_of_runs, len(places), self.floor)

    def level_of(self, places: t.Sequence[int]) -> float:
        return statistics.median([self.values[p] for p in places])

    def evidence(self, places: t.Sequence[int], reference: t.Sequence[int]) -> float:
        places = places[-max(evidence.WINDOWS) :]
        window, last = [self.values[p] for p in places], self.values[reference[-1]]
        return evidence.level(window, last, len(reference), self.reference(reference), self.noise)

    def _step(self, place: int) -> None:
        self.level.append(place)
        if self.level is self.good:
            since = self._shift(self.good, BEFORE)
            if since:
                moved = self.good[-since:]
                self.good = self.good[:-since]
                self._leave_reference(moved)
            return
        if self.since_regression:
            self.since_regression.append(place)
        change_evidence = self.evidence(self.since_regression or self.level, self.good)
        self.strength = -change_evidence
        if abs(change_evidence) < CHANCE or (change_evidence > 0) == bool(self.since_regression):
            self._rejoin_reference(self.since_regression or self.level)
        elif not self.since_regression and len(self.level) >= FEWEST:
            self.good = self.level
        elif since := self._shift(self.level, BETWEEN):
            self._handle_second_change(self.level[:-since], self.level[-since:])

    def _leave_reference(self, moved: list[int]) -> None:
        """Move the current level away from the reference."""
        self.level, self.strength = moved, -self.evidence(moved, self.good)
        self.estimate = (0, 0.0, 1.0)
        if self.level_of(moved) < self.level_of(self.good):
            self.since_regression = self.since_regression or list(moved)
        else:
            self.since_regression, self.improved_at = [], moved[0]

    def _rejoin_reference(self, moved: list[int]) -> None:
        self.good = sorted(self.good + moved)
        self.level, self.since_regression, self.estimate = self.good, [], (0, 0.0, 1.0)

    def _handle_second_change(self, previous: list[int], moved: list[int]) -> None:
        """Handle a second change: back to the reference, most of the way back (a repair), or further away."""
        change_evidence = self.evidence(moved, self.good)
        if abs(change_evidence) < CHANCE:
            self.improved_at = moved[0] if self.since_regression else None
            self._rejoin_reference(moved)
            return
        if self.since_regression and change_evidence < 0:
            lost_level, good = self.level_of(previous), self.level_of(self.good)
            if self.level_of(moved) - lost_level >= REPAIRED * (good - lost_level):
                self.good = self.level = moved
                self.since_regression, self.improved_at, self.estimate = [], moved[0], (0, 0.0, 1.0)
                return
        self._leave_reference(moved)

    def _shift(self, places: list[int], fewest: int) -> int:
        """Return how many runs ago a list of runs moved to another level, 0 if it did not."""
        count = len(places)
        if count < fewest + evidence.WINDOWS[0]:
            return 0
        at, middle, spread = self.estimate
        if not at or count > 1.15 * at:
            middle, spread, _unsure = self.reference(places[: -evidence.WINDOWS[0]])
            self.estimate, self.sums = (count, middle, spread), [0.0]
        hold, sums = 4 * spread, self.sums
        for place in places[len(sums) - 1 :]:
            away = self.values[place] - middle
            sums.append(sums[-1] + (-hold if away < -hold else hold if away > hold else away))
        for window in evidence.WINDOWS:
            if count - window < fewest:
                break
            if abs(sums[-1] - sums[-1 - window]) < self.screens[window] * spread:
                continue
            if abs(self.evidence(places[-window:], places[:-window])) >= evidence.LEVEL.get(window, evidence.LEVEL_LONG):
                longest = min(max(evidence.WINDOWS), count - fewest)
                ks = range(evidence.WINDOWS[0], longest + 1)
                return self._begun(places, max(ks, key=lambda k: abs(self.evidence(places[-k:], places[:-k]))))
        return 0

    def _begun(self, places: list[int], window: int) -> int:
        """Return the length of a window without its first runs that are still at the old level; 0 if too few are left for a level."""
        old, new = self.level_of(places[:-window]), self.level_of(places[-window:])
        while window and abs(self.values[places[-window]] - old) < abs(self.values[places[-window]] - new):
            window -= 1
        return window if window >= evidence.WINDOWS[0] else 0


def read(values: t.Sequence[float], noise: scatter.Noise, floor: float) -> SeriesReading:
    """Return what the last of `values` says; they are logarithms of which more is better, in the order of their runs.

    A drift or a flapping is an alarm only if the run before showed one as well: most false ones are seen in one run only."""
    reading = _read(values, noise, floor)
    if reading.kind not in CONFIRMED or _read(values[:-1], noise, floor).kind in CONFIRMED | {ChangeKind.STEP}:
        return reading
    middle, own_scatter = scatter.centre([values[place] for place in reading.reference])
    spread, unsure = noise.scatter(own_scatter, len(reading.reference), floor)
    today = len(values) - 1
    return _single(values[today] - middle, spread, noise.law(unsure), reading.reference, today)


def _read(values: t.Sequence[float], noise: scatter.Noise, floor: float) -> SeriesReading:
    if len(values) <= FEWEST:
        return SeriesReading(ChangeKind.SHORT, range(len(values) - 1))
    walk, today = Walk(values, noise, floor), len(values) - 1
    away = walk.level is not walk.good
    reference = walk.good if away else walk.good[:-1]
    if not reference:
        return SeriesReading(ChangeKind.SHORT)
    middle, spread, unsure = walk.reference(reference)
    if flapping := _flapping(values, middle, spread, reference):
        return flapping
    if scattering := _scattering(walk):
        return scattering
    if away and not walk.since_regression:
        return SeriesReading(ChangeKind.IMPROVEMENT, walk.good, walk.level, walk.level_of(walk.level) - middle)
    if away and walk.strength >= SAID:
        return _shaped(walk, middle, spread)
    if walk.improved_at is not None and today - walk.improved_at < NEWS and walk.improved_at > 0:
        moved = [p for p in walk.good if p >= walk.improved_at]
        lower = range(max(0, walk.improved_at - NEWS), walk.improved_at)
        return SeriesReading(ChangeKind.IMPROVEMENT, lower, moved, walk.level_of(moved) - walk.level_of(lower))
    if len(reference) < FEWEST:
        return SeriesReading(ChangeKind.SHORT, reference)
    return _drifting(walk) or _single(values[today] - middle, spread, noise.law(unsure), reference, today)


def _single(away: float, spread: float, law: tuple[float, float], reference: t.Sequence[int], today: int) -> SeriesReading:
    """Return what a run says alone, `away` from its level: a drop if it is low beyond any chance, a hiccup if it is out of line."""
    if away < math.log1p(-LARGE) and scatter.deviance(away / spread, law) >= DROP:
        return SeriesReading(ChangeKind.DROP, reference, (today,), away)
    if abs(away) > max(HICCUP * spread, evidence.MINIMUM):
        return SeriesReading(ChangeKind.HICCUP, reference, (today,), away)
    return SeriesReading(ChangeKind.NOTHING, reference, (today,), away)


def _flapping(values: t.Sequence[float], middle: float, spread: float, reference: t.Sequence[int]) -> SeriesReading | None:
    """Return a reading if a subject flaps: several runs at the old level and at a lower one, few elsewhere, and the lower runs agree."""
    places = range(max(0, len(values) - RECENT), len(values))
    zs = {p: (values[p] - middle) / spread for p in places}
    low = [p for p in places if zs[p] < -LOW and middle - values[p] > evidence.MINIMUM]
    near = [p for p in places if abs(zs[p]) < NEAR]
    if len(low) < FLAPS or low[-1] < len(values) - 6 or len(low) + len(near) < 0.8 * len(places):
        return None
    side = [p in low for p in places if p in low or p in near]
    if sum(a != b for a, b in itertools.pairwise(side)) < TURNS:
        return None
    near = [p for p in near if p > low[0]]
    if len(near) < TURNS - 1:
        return None
    level, own_scatter = scatter.centre([values[p] for p in low])
    if own_scatter > max(0.25 * (middle - level), 1.5 * spread):
        return None
    return SeriesReading(ChangeKind.FLAPPING, [p for p in reference if p not in low], low, level - middle)


def _scattering(walk: Walk) -> SeriesReading | None:
    """Return a reading if the scatter has grown to both sides. Distant runs on one side only are another level."""
    places = range(walk.good[0] if len(walk.good) >= 2 * FEWEST else 0, len(walk.values))
    best = (0.0, 1.0, 0)
    for window in evidence.SPREADS:
        if len(places) - window < FEWEST:
            break
        reference = walk.reference(places[:-window])
        away = [(walk.values[p] - reference[0]) / reference[1] for p in places[-window:]]
        above, below = sum(z > FAR for z in away), sum(z < -FAR for z in away)
        if min(above, below) >= max(2, SIDES * (above + below)):
            spread_evidence, wider = evidence.spread(away, len(places) - window, reference[2], walk.noise)
            best = max(best, (spread_evidence, wider, window))
    spread_evidence, wider, window = best
    if spread_evidence < evidence.SPREAD or (walk.since_regression and spread_evidence < walk.strength):
        return None
    return SeriesReading(ChangeKind.SCATTER, places[:-window], places[-window:], 0.0, wider)


def _drifting(walk: Walk) -> SeriesReading | None:
    places = walk.good
    if len(places) < 12:
        return None
    values = [walk.values[p] for p in places]
    ranked, _rising = evidence.trend(values, walk.noise.inflation(60))
    if ranked > -evidence.TREND:
        return None
    best = (0.0, 0)
    for rising in evidence.RAMPS:
        if len(places) - rising < FEWEST:
            break
        reference = walk.reference(places[:-rising])
        best = min(best, (evidence.slope(values[-rising:], values[-rising - 1], len(places) - rising, reference, walk.noise), rising))
    slope_evidence, rising = best
    if slope_evidence > -evidence.SLOPE:
        return None
    earlier, since = places[:-rising], places[-rising:]
    ended = walk.level_of(since[-max(3, len(since) // 4) :]) - walk.level_of(earlier)
    if ended > -evidence.MINIMUM:
        return None
    return SeriesReading(ChangeKind.DRIFT, earlier, since, ended)


def _shaped(walk: Walk, middle: float, spread: float) -> SeriesReading:
    """Return a step or a drift, whichever fits better. The lines of a drift begin at one of a few runs."""
    lost = walk.since_regression
    places = sorted({*walk.good, *lost})[-2 * max(evidence.RAMPS) :]
    values = [walk.values[p] for p in places]
    begun = places.index(lost[0]) if lost[0] in places else 0
    level = walk.level_of(lost)
    step = _misfit(values, [middle if i < begun else level for i in range(len(values))], spread, walk.noise)
    best = (step - LIKELIER, 0)
    for rising in evidence.RAMPS:
        onset = len(values) - rising
        if onset < BEFORE:
            break
        slope = statistics.median([(values[i] - middle) / (i - onset + 1) for i in range(onset + rising // 3, len(values))])
        line = [middle + slope * max(0, i - onset + 1) for i in range(len(values))]
        best = min(best, (_misfit(values, line, spread, walk.noise), rising))
    if best[1]:
        since = places[-best[1] :]
        earlier = [p for p in walk.good if p < since[0]]
        if len(earlier) >= BEFORE:
            ended = walk.level_of(since[-max(3, len(since) // 4) :])
            return SeriesReading(ChangeKind.DRIFT, earlier, since, ended - walk.level_of(earlier))
    moved = walk.level if len(walk.level) >= BETWEEN else lost
    return SeriesReading(ChangeKind.STEP, walk.good, lost, walk.level_of(moved) - middle)


def _misfit(values: t.Sequence[float], line: t.Sequence[float], spread: float, noise: scatter.Noise) -> float:
    law = noise.law(0.0)
    return sum(scatter.deviance((v - at) / spread, law) for v, at in zip(values, line, strict=True))
