# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rounds of tests that search.py runs: which nodes are tested together next.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise.pool import Pool
from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise.tests import (
    GIVE_UP,
    LEAF_WITNESSES,
    SPLIT_FAULTS,
    GroupTest,
    GroupTestResult,
    SearchRecord,
)


class Rounds:
    """The tests of the current round in `tests`, by id; `repeated` has the claim that a test repeats. `number` counts the rounds and
    `count` the tests of all of them."""

    def __init__(self, pool: Pool, seed: int) -> None:
        self.pool = pool
        self.tests: dict[int, SearchRecord] = {}
        self.repeated: dict[int, SearchRecord] = {}
        self.number = self.count = 0
        self._random = random.Random(seed)
        self._busy: set[int] = set()
        self._free: list[int] = []

    def plan(self) -> bool:
        """Plan the next round. Return False if there is nothing left to test."""
        self.number += 1
        self._busy = set()
        self._free = [n for n in range(len(self.pool.names)) if self.pool.usable(n) and self.pool.evidence.cleared(n)]
        self._random.shuffle(self._free)
        self._free.sort(key=self.pool.beside_open_path)
        claims = self.pool.open_claims()
        self._pursue(claims)
        if claims and (self.tests or not self.pool.is_end(claims)):
            self._pair_up_leftovers(claims)
            self._join_the_idle(claims)
        if not self.tests:
            self._measure_the_rest()
        if not self.tests:
            self.number -= 1
        return bool(self.tests)

    def _test(self, nodes: Sequence[int], purpose: str, gpus: tuple[int, ...] | None = None) -> GroupTest:
        self.count += 1
        names = tuple(self.pool.names[n] for n in nodes)
        test = GroupTest(self.count, self.number, names, gpus, self.pool.repeats, purpose)
        self.tests[test.id] = SearchRecord(test, tuple(nodes), GroupTestResult("unknown"))
        self._busy.update(nodes)
        return test

    def _partners(self, node: int, count: int = 1, across: bool = False, retried: bool = False) -> list[int]:
        """Up to `count` free good nodes not yet tried with this one, the best first.

        Best is one on another leaf over which something passed, and not an earlier partner's; worst is the own leaf.
        `across`: only on other leaves. `again`: also those that were tried, last of all.
        """
        evidence = self.pool.evidence
        own_leaf = evidence.leaf[node]
        tried = evidence.tried[node]
        earlier = {evidence.leaf[p] for p in tried}
        ranked: list[tuple[int, int]] = []
        ideal = 0
        for candidate in self._free:
            candidate_leaf = evidence.leaf[candidate]
            if (
                candidate in self._busy
                or candidate == node
                or (candidate in tried and not retried)
                or (across and candidate_leaf == own_leaf)
            ):
                continue
            cost = 8 * (candidate in tried)
            if own_leaf is not None and candidate_leaf is not None:
                cost += 4 if candidate_leaf == own_leaf else 2 * (candidate_leaf not in evidence.crossed) + (candidate_leaf in earlier)
            ranked.append((cost, candidate))
            ideal += cost == 0
            if ideal == count:
                break
        ranked.sort(key=lambda each: each[0])
        return [candidate for _unused, candidate in ranked[:count]]

    def _with_partner(self, node: int, purpose: str, across: bool = False) -> bool:
        if node in self._busy:
            return False
        partners = self._partners(node, across=across)
        for partner in partners:
            self._test((node, partner), purpose)
        return bool(partners)

    def _pursue(self, claims: list[SearchRecord]) -> None:
        """The next tests of every open claim. One waits for smaller ones within it or over one of its suspects."""
        awaited: set[int] = set()
        smaller: list[set[int]] = []
        for claim in claims:
            suspects = self.pool.suspects(claim)
            members = set(claim.nodes)
            waits = any(s in awaited for s in suspects) or any(each < members for each in smaller)
            awaited.update(suspects)
            smaller.append(members)
            if not suspects and not self.pool.evidence.mesh:
                waits = False  # its other paths can be searched meanwhile
            if waits or any(s in self._busy for s in suspects):
                continue
            if len(suspects) > 1:
                self._divide(claim, suspects)
            elif suspects:
                self._examine(suspects[0])
            else:
                self._search_paths(claim)

    def _divide(self, claim: SearchRecord, suspects: list[int]) -> None:
        count = len(suspects)
        available = sum(1 for n in self._free if n not in self._busy)
        if available >= count or (available and count <= 3):
            for suspect in suspects:
                self._examine(suspect)
            return
        if count <= 3:
            return  # no good node is known yet: the leftovers are paired afresh
        if claim is self.pool.trigger:
            # n/g groups of g, and g more tests for each fault, are fewest at g = sqrt(n/faults). Of six groups one
            # has none of five faults: good partners for the others.
            parts = max(6, math.ceil(math.sqrt(SPLIT_FAULTS * count)))
        else:
            parts = count // 2  # pairs: with at most (n-2)/2 faults one of them is good
        parts = min(parts, count // 2)
        purpose = "screen" if claim is self.pool.trigger else "split"
        for part in _even_parts(suspects, parts):
            self._test(part, purpose)

    def _examine(self, node: int) -> None:
        """Test one suspect: with a first good partner, then slot by slot with a second one, then with a third if the slots pass."""
        evidence = self.pool.evidence
        accusers = evidence.accusers(node)
        if not accusers:
            self._with_partner(node, "partner")
        elif missing := self.pool.missing_slots(node):
            # Two partners where there are slots enough: a bad path to one of them then looks like no bad node.
            partners = self._partners(node, 2 if len(missing) >= 4 else 1, retried=True)
            for part, partner in zip(_even_parts(missing, len(partners)), partners):
                for slot in part:
                    self._test((node, partner), "gpu", (slot,))
        elif len(accusers) < self.pool.accusers_needed(node) or self.pool.thin_slots(node):
            self._with_partner(node, "partner")
        if accusers:
            self._examine_leaf(evidence.leaf[node])

    def _examine_leaf(self, leaf: str | None) -> None:
        """Is it the switch? Mates with partners on other leaves, until enough have failed or one has passed."""
        if leaf is None or leaf in self.pool.evidence.crossed:
            return
        members = self.pool.leaf_members[leaf]
        witnesses = self.pool.witnesses(leaf)
        needed = min(LEAF_WITNESSES, len(members)) - len(witnesses)
        for mate in members:
            if needed <= 0:
                break
            if mate not in witnesses and self.pool.usable(mate):
                needed -= mate in self._busy or self._with_partner(mate, "leaf", across=True)

    def _search_paths(self, claim: SearchRecord) -> None:
        """Test the paths between the nodes of a claim that has no suspect left, and the switches that a path crosses."""
        evidence = self.pool.evidence
        if claim.is_pair and not evidence.path_good(*claim.nodes):
            a, b = claim.nodes
            for end, opposite in ((a, b), (b, a)):
                if not evidence.passed[end] - {opposite}:
                    self._with_partner(end, "partner")
            if self.pool.failed_over(a, b) < 2 and a not in self._busy and b not in self._busy:
                self._test((a, b), "again")
            if evidence.leaf[a] != evidence.leaf[b]:
                self._examine_leaf(evidence.leaf[a])
                self._examine_leaf(evidence.leaf[b])
            return
        free = [n for n in claim.nodes if n not in self._busy]
        paths = [] if claim.test.gpus is not None else evidence.open_paths(claim.nodes, limit=2 * len(claim.nodes))
        if paths is None:
            self._halve(claim, free)
        elif paths:
            size = len(self.pool.names)  # neighbours in the pool's ring first: it is the pool that missed its floor
            for a, b in sorted(paths, key=lambda path: (path[0] - path[1]) % size not in (1, size - 1)):
                if a not in self._busy and b not in self._busy and b not in evidence.failed[a]:
                    self._test((a, b), "path")
        elif claim.forgotten < 2 and len(free) == len(claim.nodes):
            self.repeated[self._test(claim.nodes, "again", claim.test.gpus).id] = claim

    def _halve(self, claim: SearchRecord, free: list[int]) -> None:
        """Too many open paths for pairs: a random half of the nodes holds a quarter of them, the other half another.

        Leaves across which nothing has passed come first, one node of each.
        """
        for leaf in sorted(self.pool.evidence.leaves(claim.nodes) - self.pool.evidence.crossed):
            if not any(self.pool.evidence.leaf[n] == leaf for n in self._busy):
                member = next((n for n in free if n not in self._busy and self.pool.evidence.leaf[n] == leaf), None)
                if member is not None:
                    self._with_partner(member, "leaf", across=True)
        idle = [n for n in free if n not in self._busy]
        self._random.shuffle(idle)
        for half in (idle[: len(idle) // 2], idle[len(idle) // 2 :]):
            if len(half) > 1:
                self._test(sorted(half), "across")

    def _pair_up_leftovers(self, claims: list[SearchRecord]) -> None:
        """Test suspects without a good partner with one another, in pairs not tried before."""
        idle: list[int] = []
        for claim in claims:
            for node in self.pool.suspects(claim):
                if node not in self._busy and node not in idle and not self.pool.evidence.accusers(node):
                    idle.append(node)
        if any(n not in self._busy for n in self._free) and len(idle) != 1:
            return
        while idle:
            node = idle.pop(0)
            mate = next((m for m in idle if m not in self.pool.evidence.tried[node]), None)
            if mate is not None:
                idle.remove(mate)
                self._test((node, mate), "partner")

    def _join_the_idle(self, claims: list[SearchRecord]) -> None:
        """Good nodes without work prove the paths between their groups meanwhile, as one group."""
        searched = {n for c in claims if c is not self.pool.trigger and not self.pool.suspects(c) for n in c.nodes}
        idle = sorted(n for n in self._free if n not in self._busy and n not in searched)
        if len(idle) < 2:
            return
        evidence = self.pool.evidence
        if evidence.mesh:
            fresh = evidence.open_paths(idle, limit=0) is None
        else:
            members = set(idle)
            ring = evidence.edges(range(len(self.pool.names)))
            fresh = any(a in members and b in members and not evidence.path_good(a, b) for a, b in ring)
        if fresh:
            self._test(idle, "across")

    def _measure_the_rest(self) -> None:
        """Test the pool without the convicted as one group, which has to meet its floor."""
        out: set[int] = set()
        for a, b in self.pool.bad_paths:  # one end of a bad path stays out: a group with both would use it
            if a not in out and b not in out:
                out.add(b)
        pool = [n for n in range(len(self.pool.names)) if self.pool.evidence.cleared(n) and self.pool.usable(n) and n not in out]
        attempts = sum(1 for r in self.pool.history if r.test.purpose == "rest" and list(r.nodes) == pool)
        if len(pool) > 1 and attempts < GIVE_UP:
            self._test(pool, "rest")


def _even_parts(items: Sequence[int], count: int) -> list[list[int]]:
    """Cuts a sequence into `count` runs whose lengths differ by one at most."""
    size, remainder = divmod(len(items), max(1, count))
    parts, start = [], 0
    for i in range(count):
        end = start + size + (i < remainder)
        parts.append(list(items[start:end]))
        start = end
    return parts
