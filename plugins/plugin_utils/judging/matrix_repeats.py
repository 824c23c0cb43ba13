# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tests that a diagnosis of a matrix (judging/matrix.py) asks for once more.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Literal

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_chance import ALPHA, ENOUGH_PASSES, Chances
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_table import (
    RECEIVING,
    PairTable,
    meet,
    pair_of,
    role,
    whole,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of

SUSPECT_TESTS = 40  # of one suspect: what is not clear by then stays unresolved
GIVE_UP = 6  # tests that were asked for again and could not be measured: no more are asked for

Confidence = Literal["convicted", "suspected", "unresolved"]


class Repeats:
    """The repeated tests of a table. `requests` are the tests to run next, (port, port, rail); `asked` counts them by port."""

    def __init__(self, table: PairTable, chances: Chances) -> None:
        self.table, self.chances = table, chances
        self.requests: list[tuple[str, str, str]] = []
        self.asked: Counter[str] = Counter()

    def partners(
        self,
        port: str,
        count: int,
        suspects: set[str],
        *,
        avoid: Iterable[str] = (),
        across: bool = False,
        near: str | None = None,
    ) -> list[str]:
        """Good ports of the same rail on other nodes: those never bad with it first, and the less used before the more.

        `across`: only on other leaves. `near`: on the leaf of this port before any other.
        """
        forbidden = {*avoid, *suspects, *self.table.node_ports[node_of(port)]}
        own_leaf = self.table.leaf[port]
        choice = [
            p
            for p in set().union(*(self.table.rail_ports[rail] for rail in self.table.rails[port]))
            if p not in forbidden and self.table.good[p] and not (across and self.table.leaf[p] in (None, own_leaf))
        ]
        choice = [p for p in choice if meet(port, p) and self.table.speaks_for(port, p)]
        used = self.table.again_good[port]
        near_leaf = None if near is None else self.table.leaf[near]
        choice.sort(
            key=lambda p: (
                p in self.table.bad[port],
                used[p],
                self.table.leaf[p] != near_leaf,
                self.table.again_unknown[p],
                self.asked[p],
                p,
            )
        )
        return choice[:count]

    def ask(self, a: str, b: str) -> bool:
        if max(self.table.again_unknown[a], self.table.again_unknown[b]) >= GIVE_UP:
            return False
        self.asked[a] += 1
        self.asked[b] += 1
        first, second = sorted((a, b), key=lambda port: (role(port) == RECEIVING, port))
        self.requests.append((whole(first), whole(second), min(self.table.rails[a] & self.table.rails[b])))
        return True

    def row(self, port: str, suspects: set[str], across: bool = False) -> Confidence:
        """Convicted when it failed again with two good partners, one of them new if there is a new one; else asks."""
        confirmed = {p for p in self.table.again_bad[port] if p not in suspects and self.table.good[p]}
        fresh = [p for p in self.partners(port, 1, suspects, across=across) if p not in self.table.bad[port]]
        if len(confirmed) >= 2 and (confirmed - self.table.first_bad[port] or not fresh):
            if self.chances.row_chance(port, suspects) <= ALPHA:
                return "convicted"
            confirmed = set()  # those who speak against it are asked once more, too
        partners = self.partners(port, len(self.table.ports), suspects, avoid=confirmed, across=across)
        tested = sum(cell.again for p in partners for cell in self.table.tests.get(pair_of(port, p), ()))
        if not partners or tested >= SUSPECT_TESTS or (fresh and self._always_met(port, suspects, across)):
            return "unresolved"
        tests_needed = min(4 if self.table.again_good[port] else 2, len(partners))
        turns = itertools.islice(itertools.cycle(partners), SUSPECT_TESTS - tested)
        chosen: list[str] = []
        for partner in turns:
            if len(chosen) >= tests_needed and self.chances.row_chance(port, suspects, chosen) <= ALPHA:
                break
            chosen.append(partner)
        answers = [self.ask(port, partner) for partner in chosen]
        return "suspected" if any(answers) else "unresolved"

    def _always_met(self, port: str, suspects: set[str], across: bool) -> bool:
        """Return True if only a new partner's word is missing against a port, and each of those has met the floor with it too often."""
        new = [p for p in self.partners(port, len(self.table.ports), suspects, across=across) if p not in self.table.bad[port]]
        return all(self.table.again_good[port][p] >= ENOUGH_PASSES for p in new) and self.chances.row_chance(port, suspects) <= ALPHA
