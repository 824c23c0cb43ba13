# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Level and scatter of a series that has heavy tails, single bad runs and few values.

Level is the median, scatter the median absolute deviation times 1.4826 (Hampel 1974; Rousseeuw and Croux 1993): half of the values
may be anything. Of eight values a scatter is known to a factor of 1.5 only, so that it is moderated by what the identical subjects
scatter: an empirical Bayes estimate of its logarithm, normal about the fleet's (as Smyth 2004 for variances). A fleet whose subjects
differ keeps each its own. No scatter is below `least`.

Pure. This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
import typing as t

SIGMA = 1.4826  # of a median absolute deviation, the standard deviation of a normal distribution
FLOOR = 0.001  # of the value: a tool that gives the same number sixty times will once give another
UNSURE = 1.6  # variance of the logarithm of a median absolute deviation of n values, times n, for Student's t with 3 degrees
CAUTION = 0.3  # by how much of the variance a logarithm is raised that is not known well
FAR = (2.5, 4.5)  # scatters: so far away, and not as far as single bad runs,
TAILS = {3: 0.051, 5: 0.038, 8: 0.029, 20: 0.019}  # lies that share of the values of Student's t
FEW = 10  # subjects, below which their scatters say nothing of how different they are
BETWEEN = 0.25  # variance of that logarithm between subjects where nothing is known of it
GUESS, GUESS_WORTH = 0.3, 200  # correlation of neighbouring runs before any were seen, and how many pairs that is worth
ALIKE = 0.85  # most that a run is taken to be like the one before it: with more, no evidence would be left
EQUAL = 1e-9
STEP, COARSEST = 1.5, 0.02  # scatters of a step of the tool, and what is more is none
BOUND = 2.5  # scatters, to which a value is held where products are formed


def centre(values: t.Sequence[float]) -> tuple[float, float]:
    """Return median and scatter."""
    middle = statistics.median(values)
    return middle, SIGMA * statistics.median([abs(v - middle) for v in values])


def least(values: t.Sequence[float]) -> float:
    """Return the least scatter of a series. If a tool rounds, most values may be equal and the next one a whole step away. Such a step, if
    it occurs in at least a tenth of the runs, must not count as a change."""
    if 2 * len(set(values)) > len(values) + 2:
        return FLOOR
    steps = [abs(b - a) for a, b in itertools.pairwise(values) if abs(b - a) > EQUAL]
    if not steps or 10 * len(steps) < len(values):
        return FLOOR
    return max(FLOOR, min(*steps, COARSEST) / STEP)


@dataclasses.dataclass(frozen=True)
class Noise:
    """The noise of healthy subjects: mean and variance (between subjects) of the logarithm of the scatter, correlation of neighbouring
    runs, and degrees of freedom of Student's t for the tails."""

    mean: float | None = None
    between: float = BETWEEN
    alike: float = GUESS
    freedom: int = min(TAILS)

    def scatter(self, own_scatter: float, runs: int, floor: float) -> tuple[float, float]:
        """Return the estimated scatter of a subject and the variance of its logarithm, from the subject's own scatter in `runs` runs."""
        logarithm, unsure = math.log(max(own_scatter, floor)), UNSURE / max(runs, 1)
        if self.mean is not None:
            weight = self.between / (self.between + unsure)
            logarithm, unsure = weight * logarithm + (1 - weight) * self.mean, weight * unsure
        return max(floor, math.exp(logarithm + CAUTION * unsure)), unsure

    def inflation(self, runs: int) -> float:
        """Return the variance of a mean of neighbouring runs relative to that of independent ones (AR(1))."""
        return 1 + 2 * sum((1 - lag / runs) * self.alike**lag for lag in range(1, min(runs, 12)))

    def law(self, unsure: float) -> tuple[float, float]:
        """Return two parameters of Student's t: half of the degrees of freedom and one, and the divisor of a squared distance in scatters
        (half of the values lie within 0.6745). Tails are heavier where the scatter's logarithm is known with that variance only."""
        freedom = max(float(min(TAILS)), 1 / (1 / self.freedom + 2 * unsure))
        return 0.5 * (freedom + 1), freedom - 0.7


def deviance(z: float, law: tuple[float, float]) -> float:
    """Return the logarithm of how much less likely a value is that lies z scatters away from its level."""
    return law[0] * math.log1p(z * z / law[1])


def noise(series: t.Sequence[t.Sequence[float]], floors: t.Sequence[float]) -> Noise:
    """Return the noise of a fleet from the values of each subject, in order, and its least scatter."""
    logs, each_alike, pairs, runs, far = [], [], 0, 0, 0
    for values, floor in zip(series, floors, strict=True):
        if len(values) < 8:
            continue
        middle, scatter = centre(values)
        scatter = max(scatter, floor)
        bounded = [max(-BOUND, min(BOUND, (v - middle) / scatter)) for v in values]
        products, square = sum(a * b for a, b in itertools.pairwise(bounded)), sum(h * h for h in bounded)
        logs.append(math.log(scatter))
        runs += len(values)
        # Neighbouring runs of a subject that changed look correlated. The median over subjects is not affected.
        if products < ALIKE * square:
            each_alike.append(products / square + 1 / len(values) if square else 0.0)
            pairs += len(values) - 1
            far += sum(FAR[0] < abs(v - middle) / scatter < FAR[1] for v in values)
    if not logs:
        return Noise()
    alike = statistics.median(each_alike) if each_alike else 0.0
    alike = max(0.0, min(ALIKE, (alike * pairs + GUESS * GUESS_WORTH) / (pairs + GUESS_WORTH)))
    share = (far + TAILS[min(TAILS)] * GUESS_WORTH) / (pairs + GUESS_WORTH)
    freedom = min(TAILS, key=lambda freedom: abs(math.log(TAILS[freedom] / max(share, 1e-3))))
    if len(logs) < 5:
        return Noise(None, BETWEEN, alike, freedom)
    mean, spread = centre(logs)
    between = BETWEEN if len(logs) < FEW else max(0.01, spread**2 - UNSURE * len(logs) / runs)
    return Noise(mean, between, alike, freedom)
