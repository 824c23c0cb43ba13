# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How likely chance alone gives the bad tests of a matrix (judging/matrix.py has the formulas).

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping

from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise.search import NOISE, chance, tail
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_table import PairTable, pair_of

FLAP_SHARE, FLAP_CHANCE = 0.5, 0.01  # what fails half of its tests is told from what does not with so much error
ALPHA = 1e-5  # of a conviction by chance
PATHS_AT_PORT, MANY_PARTNERS = (2, 3), 8  # so many bad paths may meet at a healthy port, that of few partners or of many


def may_flap(bad: int, passes: int) -> bool:
    """Return True if something that fails half of its tests shows `bad` bad ones, or fewer, once in a hundred times or more often.

    The lower tail of the binomial distribution of `bad` in `bad + passes` tests at FLAP_SHARE.
    """
    tests = bad + passes
    tail = sum(math.comb(tests, k) for k in range(bad + 1)) * FLAP_SHARE**tests
    return tail >= FLAP_CHANCE


ENOUGH_PASSES = next(n for n in range(100) if not may_flap(0, n))  # 7


def _left_out(partners: int) -> int:
    """Return how many of its partners a port's tests do not count with: so many bad paths that meet at a port are no bad port.

    One partner always counts.
    """
    return max(0, min(partners - 1, PATHS_AT_PORT[partners >= MANY_PARTNERS]))


def against(of: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """Return (bad tests, all tests) of a port without its worst partners; `of`: both by partner."""
    counted = sorted(of, key=lambda peer: (-of[peer][0], of[peer][1], peer))[_left_out(len(of)) :]
    return sum(of[peer][0] for peer in counted), sum(of[peer][1] for peer in counted)


def peel(tests: Mapping[str, Mapping[str, tuple[int, int]]], noise: float) -> set[str]:
    """Ports with bad rows: the worst is taken out with its cells, then the next, until the rest is no row any more.

    `tests`: of each port, how many tests were bad and how many there were with each of its partners. A row has two bad cells or more,
    and no fewer than a port would have that fails half of its tests, or more bad tests than the noise gives anybody.
    """
    out: set[str] = set()
    while True:
        shares: dict[str, float] = {}
        for port, partners in tests.items():
            of = {peer: count for peer, count in partners.items() if peer not in out}
            cells = sum(bad > 0 for bad, _all in of.values())
            if port in out or cells < 2:
                continue
            passes = sum(every - bad for bad, every in of.values())
            if may_flap(cells, passes) or tail(*against(of), noise) <= ALPHA:
                # Each partner speaks once, however often it was asked.
                shares[port] = sum(bad / every for bad, every in of.values()) / len(of)
        if not shares:
            return out
        # All of the worst at once: among equals nobody is blamed for coming first.
        worst = max(shares.values())
        out |= {port for port, share in shares.items() if share == worst}


def as_others(bad: int, tests: int, bad_others: int, tests_of_others: int, subjects: int) -> float:
    """Return the chance that one of so many healthy subjects differs so much from the other tests of what it belongs to."""
    return subjects * (tests - bad + 1) * chance(bad, tests, bad_others, tests_of_others)


class Chances:
    """The chances of the tests of a table. `others`: the results of first tests that nobody suspected is part of. `explained`: the pairs of
    bad blocks."""

    def __init__(self, table: PairTable) -> None:
        self.table = table
        self.others: list[float] = []
        self.explained: set[tuple[str, str]] = set()

    def take_others(self, suspects: set[str]) -> None:
        """Collect the tests without a suspect: the first of each cell."""
        self.others = sorted(
            self.table.depth(tests[0])
            for pair, tests in self.table.tests.items()
            if not suspects & set(pair) and pair not in self.explained and not self.table.always_bad(pair)
            if not tests[0].again and self.table.judge(tests[0]) != "unknown"
        )

    def by_chance(self, bad: int, tests: int, mildest: float, subjects: int, own_bad: int = 0) -> float:
        """Return the chance that one of so many healthy subjects has so many bad tests; `own_bad` of them are in `self.others`."""
        elsewhere = max(1, len(self.others) - own_bad)
        milder = max(0, bisect_right(self.others, mildest) - own_bad)
        share = min(1.0, max(NOISE, (milder + 2 * math.sqrt(milder)) / elsewhere))
        return subjects * (tests - bad + 1) * tail(bad, tests, share)

    def tests_of(self, port: str, suspects: set[str]) -> dict[str, tuple[int, int]]:
        """Return (bad tests, all tests) of a port with each of its partners."""
        partners = [o for o in self.table.bad[port] | self.table.good[port] if o not in suspects and pair_of(port, o) not in self.explained]
        depths = {peer: self.table.depths[pair_of(port, peer)] for peer in sorted(partners)}
        return {peer: (sum(depth < 1 for depth in depths_of_pair), len(depths_of_pair)) for peer, depths_of_pair in depths.items()}

    def row_chance(self, port: str, suspects: set[str], extra_peers: Iterable[str] = ()) -> float:
        """Return the chance of a healthy port's tests with good partners; `extra_peers`: partners with whom it is bad once more each."""
        of = {peer: counts for peer, counts in self.tests_of(port, suspects).items() if self.table.good[peer]}
        mildest = max((depth for peer in of for depth in self.table.depths[pair_of(port, peer)] if depth < 1), default=0.0)
        for peer in extra_peers:
            bad, tests = of.get(peer, (0, 0))
            of[peer] = bad + 1, tests + 1
        bad, tests = against(of)
        return self.by_chance(bad, tests, mildest, len(self.table.ports)) if bad else math.inf
