# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The timetable of nodes that test a file system together.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

# Seconds between what nodes see and the locks, and for which these are held; between two rates; that a node may be late;
# and by which two nodes may begin apart.
LOCK_S, BETWEEN_S, ON_TIME_S, SKEW_S = 15.0, 5.0, 2.0, 5.0
# How long nodes ask each other by files, and replace a file that the others read.
ECHO_S, REPLACE_S = 6.0, 4.0
# Each node is measured once with few others: alone where there are at most so many nodes, else in so many rounds.
ROUNDS = 16
# A pattern has so many times the time of a rate to be done.
PATTERN_TIMES = 2.0


class Timeline(t.NamedTuple):
    """The moments of a timetable, in seconds behind its beginning. `exchange`: they ask each other by files; `steps`: the
    first step; `few`: the first round of few nodes, each of which takes `round_s`; `patterns`: the first of three, each of which has
    `pattern_s`; `end`: all is done."""

    exchange: float
    steps: float
    few: float
    round_s: float
    patterns: float
    pattern_s: float
    end: float

    @classmethod
    def of(cls, sizes: t.Sequence[int], seconds: float, patience: float) -> Timeline:
        exchange = patience + 2 * LOCK_S + BETWEEN_S
        steps = patience + 3 * LOCK_S + ECHO_S + REPLACE_S
        few = steps + 2 * len(sizes) * (seconds + BETWEEN_S)
        round_s, pattern_s = 2 * few_seconds(seconds) + BETWEEN_S, PATTERN_TIMES * seconds + BETWEEN_S
        patterns = few + -(-sizes[-1] // few_nodes(sizes[-1])) * round_s
        return cls(exchange, steps, few, round_s, patterns, pattern_s, patterns + 3 * pattern_s)


def few_nodes(count: int) -> int:
    """Return how many of `count` nodes are measured in one round of few."""
    return -(-count // ROUNDS)


def few_seconds(seconds: float) -> float:
    """Return how long each way is measured in a round of few, where a step measures it for `seconds`."""
    return max(min(2.0, seconds), seconds / 4)
