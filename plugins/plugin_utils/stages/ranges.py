# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ranges of numbers, for the variables of stages and of all runs.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses

# A value above a year is a misplaced unit (milliseconds, for example). It also keeps sums of deadlines within what clocks and the
# Kubernetes API (int64 seconds, int32 in some fields) take.
YEAR_S = 366 * 86400.0
# The largest int of C, which nccl-tests, perftest and HCCL Test read their options into.
INT_MAX = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers from `least` (itself excluded if `above`) to `most`. `unit` stands behind them in a message."""

    least: float
    most: float
    unit: str = ""
    above: bool = False

    def __contains__(self, value: float) -> bool:
        """Return True if a number lies in the range. NaN lies in none."""
        return (self.least < value if self.above else self.least <= value) and value <= self.most

    def __str__(self) -> str:
        begin = f"more than {_plain(self.least)}" if self.above else f"at least {_plain(self.least)}"
        end = f" and at most {_plain(self.most)}" if self.most < INT_MAX else ""
        return f"{begin}{end}{f' {self.unit}' if self.unit else ''}"


def _plain(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:g}"


TIMEOUT = Range(0, YEAR_S, "seconds", above=True)
SECONDS = Range(0, YEAR_S, "seconds")
PORT = Range(1, 65535)
COUNT = Range(1, INT_MAX)
NONE_OR_MORE = Range(0, INT_MAX)
ANY = Range(-(2.0**63), 2.0**63)
