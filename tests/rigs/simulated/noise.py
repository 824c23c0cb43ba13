# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The scatter of the tests of a healthy fabric.

Simulated by gpufleet.acceptance.
"""

from __future__ import annotations

import random

SHAPES = ("normal", "heavy", "dips")
DIPS = 0.01  # of the tests lose 10 to 50 %: somebody else's traffic


def factor(rng: random.Random, deviation: float, shape: str) -> float:
    """Return the factor of the value of one test; `heavy` is Student's t with 3 degrees of freedom, of that standard deviation."""
    if shape == "dips" and rng.random() < DIPS:
        return 1 - rng.uniform(0.1, 0.5)
    away = rng.gauss(0, deviation)
    if shape == "heavy":
        away /= sum(rng.gauss(0, 1) ** 2 for _unused in range(3)) ** 0.5
    return max(0.01, 1 + away)
