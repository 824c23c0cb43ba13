# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The evidence for a change, as the logarithm of a likelihood ratio.

Noise is taken to be Student's t about the level, with the degrees of freedom that the fleet shows, 3 where nothing is known: heavy enough
that one run a thousand scatters away weighs little more than a few that are three away (Lange, Little and Taylor 1989). For the last k
runs against the n before them the generalised likelihood ratio (Page 1954; Siegmund and Venkatraman 1995; Lai 1995 for the windows) is
taken for another level, of what each run says beyond the one before it (AR(1), Box and Jenkins 1970), and for another scatter; both times
n / (n + k), for the level before is an estimate as well. A window begins at three runs, and a level is a median: no single run moves it.
A slow drift is looked for by ranks, which know no law of noise: the correlation of the ranks with lines that rise from one of a few
onsets on (Mann 1945; Kendall; Spearman's rho with its exact variance), its variance inflated by how alike neighbouring runs are. Where
these ask for it, the likelihood ratio is taken for such a line, whose slope is a median of slopes (Theil 1950; Sen 1968).

Thresholds are read off simulated healthy fleets (`make bench FIGURE=regression`): the values of the weakest case, eight runs alone.

Pure. This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.scatter import Noise, deviance

Known = tuple[float, float, float]  # median, scatter, variance of the scatter's logarithm

WINDOWS = (3, 4, 5, 6, 8, 11, 15, 20, 28, 40)
SPREADS = (8, 11, 15, 20)  # windows for scatter
RAMPS = (8, 10, 12, 15, 18, 22, 27, 33, 40, 60)  # windows for drift
LEVEL = {3: 8.0, 4: 6.5, 5: 8.0, 6: 8.5}  # by the window, and for longer ones
LEVEL_LONG = 11.0
SPREAD = 11.0
TREND = 2.0  # standard deviations, from which on ranks ask for a closer look
SLOPE = 7.0
MINIMUM = 0.005  # of the value: less is nobody's concern
UNSURE = 2.0  # times the variance of the scatter's logarithm, by which evidence is worth less
CARRIED = 3.0  # scatters: more is not taken to be carried into the next run
WIDER = (2.0, 3.0, 5.0)


def level(window: t.Sequence[float], last: float, count: int, reference: Known, noise: Noise) -> float:
    """Return the evidence that the level of a window differs from the reference of `count` earlier runs, the last of which had the value
    `last`; positive if the window is higher, negative if it is lower."""
    moved = statistics.median(window) - reference[0]
    if abs(moved) < MINIMUM:
        return 0.0
    ratio = _ratio(window, itertools.repeat(moved), last, reference, noise) * count / (count + len(window))
    return math.copysign(max(ratio, 0.0), moved)


def slope(window: t.Sequence[float], last: float, count: int, reference: Known, noise: Noise) -> float:
    """Return the evidence for a line through the window that begins at the reference level. Its slope is the median slope of its points."""
    middle, runs = reference[0], len(window)
    steep = statistics.median([(value - middle) / run for run, value in enumerate(window, 1) if run > runs // 3])
    if abs(steep * runs) < MINIMUM:
        return 0.0
    ratio = _ratio(window, (steep * run for run in range(1, runs + 1)), last, reference, noise)
    total, squares = runs * (runs + 1) / 2, runs * (runs + 1) * (2 * runs + 1) / 6
    return math.copysign(max(ratio * (1 - total * total / (count + runs) / squares), 0.0), steep)


def _ratio(window: t.Sequence[float], moved: t.Iterable[float], last: float, reference: Known, noise: Noise) -> float:
    """Return the log-likelihood ratio that the window moved so from the known level, against no move."""
    middle, scatter, unsure = reference
    alike, (half, tail) = noise.alike, noise.law(unsure)
    # The run after a single bad one is not expected to be bad, so the carried deviation is limited.
    limit, narrower = CARRIED * alike, math.sqrt(1 - alike * alike)
    carried = expected = max(-limit, min(limit, alike * (last - middle) / scatter))
    ratio = 0.0
    for value, by in zip(window, moved, strict=False):
        z = (value - middle) / scatter
        residual = z - by / scatter
        old, new = (z - carried) / narrower, (residual - expected) / narrower
        ratio += math.log((tail + old * old) / (tail + new * new))
        carried, expected = alike * z, alike * residual
        carried = -limit if carried < -limit else limit if carried > limit else carried
        expected = -limit if expected < -limit else limit if expected > limit else expected
    return ratio * half / (1 + UNSURE * unsure)


def spread(zs: t.Sequence[float], count: int, unsure: float, noise: Noise) -> tuple[float, float]:
    """(evidence, how many times wider): these distances from the old level, in old scatters, come from a wider law."""
    law = noise.law(unsure)
    as_ever = sum(deviance(z, law) for z in zs)
    best = (0.0, 1.0)
    for wider in WIDER:
        gain = as_ever - sum(deviance(z / wider, law) for z in zs) - len(zs) * math.log(wider)
        best = max(best, (gain * count / (count + len(zs)) / (1 + UNSURE * unsure), wider))
    return best


@functools.lru_cache(maxsize=4096)
def _line(runs: int, rising: int) -> tuple[tuple[float, ...], float]:
    """A line that is flat and rises over the last runs, about its mean, and the variance of its products with ranks."""
    line = [0.0] * (runs - rising) + [float(i) for i in range(1, rising + 1)]
    mean = sum(line) / runs
    line = [value - mean for value in line]
    return tuple(line), sum(value * value for value in line) * (runs * runs - 1) / 12 * runs / (runs - 1)


def trend(values: t.Sequence[float], inflation: float) -> tuple[float, int]:
    """(how many standard deviations the strongest line is away from chance, over how many runs it goes); negative where it falls."""
    runs = len(values)
    ranks = _ranks(values)
    best = (0.0, 0)
    for rising in RAMPS:
        if rising > runs:
            break
        line, variance = _line(runs, rising)
        score = sum(map(float.__mul__, line, ranks)) / math.sqrt(variance * inflation)
        if abs(score) > abs(best[0]):
            best = (score, rising)
    return best


def _ranks(values: t.Sequence[float]) -> list[float]:
    """Equal values share the middle of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for place in range(at, end + 1):
            ranks[order[place]] = (at + end) / 2
        at = end + 1
    return ranks
