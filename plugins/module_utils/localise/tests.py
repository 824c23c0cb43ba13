# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests of groups of nodes, their results, and what they say together, for the search in search.py, which has the formulas.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Literal

NOISE = 0.02  # of a healthy one's tests may miss the floor
ACCUSED, END_ALPHA = 1e-4, 1e-3  # of a failed test by scatter; of a path convicted for its end
BAD, GOOD = math.log(0.5 / NOISE), math.log((1 - NOISE) / 0.5)  # what a repetition says
REPEATS = math.ceil(math.log(0.001) / math.log(0.5))  # 10
LEAF_WITNESSES = 5  # so many nodes of a leaf failing across it, and none passing, convict the switch
SPLIT_FAULTS = 3  # how many faults the size of the groups is chosen for
WITNESSES = 3  # so many good partners with whom a node fails convict it
GIVE_UP = 3  # unmeasurable with so many partners: set aside


@dataclasses.dataclass(frozen=True)
class GroupTest:
    """One collective over `nodes` (in ring order), all slots or only `gpus`, launched anew until GroupTestResult.so_far knows:
    `repeats` times, or a few more."""

    id: int
    round: int
    nodes: tuple[str, ...]
    gpus: tuple[int, ...] | None
    repeats: int
    purpose: str  # screen, split, partner, gpu, path, leaf, across, again, rest


@dataclasses.dataclass(frozen=True)
class GroupTestResult:
    """The result of one test.

    `hang`: the group started and never ended. `unknown`: everything else that is not a measurement of the group.
    """

    outcome: Literal["pass", "fail", "hang", "unknown"]
    values: tuple[float, ...] = ()
    floor: float | None = None
    unit: str = "GB/s"
    reason: str = ""

    @classmethod
    def so_far(cls, values: Sequence[float], floor: float, repeats: int, unit: str = "GB/s") -> GroupTestResult | None:
        """Judge one value for each repetition, higher is better. Return None if more repetitions are needed."""
        measured = tuple(values)
        if not all(math.isfinite(value) for value in (*measured, floor)):
            return cls("unknown", measured, floor, unit, f"found {list(measured)} and the floor {floor}, expected numbers")
        bad = sum(value < floor for value in measured)
        says = bad * BAD - (len(measured) - bad) * GOOD
        if says >= -math.log(ACCUSED):
            return cls("fail", measured, floor, unit)
        if len(measured) >= repeats and says <= -repeats * GOOD:
            return cls("pass", measured, floor, unit)
        if len(measured) < 2 * repeats + 10:
            return None
        reason = f"{bad} of {len(measured)} repetitions missed the floor: too many for scatter, too few for a fault"
        return cls("unknown", measured, floor, unit, reason)

    @classmethod
    def of(cls, values: Sequence[float], floor: float, repeats: int, unit: str = "GB/s") -> GroupTestResult:
        """Judges all that will be measured: too few repetitions are unknown."""
        measured = tuple(values)
        short = f"{len(measured)} of {repeats} repetitions were measured, {sum(value < floor for value in measured)} below the floor"
        return cls.so_far(measured, floor, repeats, unit) or cls("unknown", measured, floor, unit, short)


@dataclasses.dataclass(frozen=True)
class SearchFinding:
    """A convicted subject; a `suspected` one, which needs more tests; or an `unresolved` one.

    Unresolved: something of it is bad or was not measured, and the evidence does not say what. `not_looked_at`: what nobody can tell
    good from bad as long as the subject is bad: paths (`a|b`) and members, to be measured once it is repaired.
    """

    kind: Literal["node", "gpu", "nic", "pair", "switch", "group"]
    id: str
    members: tuple[str, ...]
    confidence: Literal["convicted", "suspected", "unresolved"]
    reason: str
    evidence: tuple[dict[str, object], ...] = ()
    indistinguishable: tuple[dict[str, object], ...] = ()
    not_looked_at: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """The finding in JSON's types."""
        return {
            "subject": {"kind": self.kind, "id": self.id, "members": list(self.members)},
            "confidence": self.confidence,
            "reason": self.reason,
            "evidence": list(self.evidence),
            "indistinguishable": list(self.indistinguishable),
            "not_looked_at": list(self.not_looked_at),
        }


def tail(bad: int, tests: int, share: float) -> float:
    """Return the chance that at least `bad` of the tests are bad if each is bad with the chance `share`: the upper tail of the binomial
    distribution."""
    return sum(math.comb(tests, k) * share**k * (1 - share) ** (tests - k) for k in range(bad, tests + 1))


def chance(bad: int, tests: int, bad_others: int, other_tests: int) -> float:
    """Return the chance that at least `bad` of all bad tests are among these `tests`, if they do not differ from the other tests (Fisher's
    exact test)."""
    every = tests + other_tests
    combinations = math.comb(every, tests)
    return sum(math.comb(bad + bad_others, k) * math.comb(other_tests + tests - bad - bad_others, tests - k)
               for k in range(bad, min(tests, bad + bad_others) + 1)) / combinations  # fmt: skip


@dataclasses.dataclass
class SearchRecord:
    """A test and its result, nodes as indices."""

    test: GroupTest
    nodes: tuple[int, ...]
    result: GroupTestResult
    forgotten: int = 0  # how often its members were cleared and it failed all the same
    settled: str = ""  # why it is no open claim any more, apart from being explained

    @property
    def accuses(self) -> bool:
        return self.result.outcome in ("fail", "hang")

    @property
    def is_pair(self) -> bool:
        return len(self.nodes) == 2 and self.test.gpus is None


class SearchEvidence:
    """The results so far, for each node, GPU, path and leaf. Nodes are indices, their paths bit masks."""

    def __init__(self, size: int, leaf: Sequence[str | None], mesh: bool) -> None:
        self.leaf = leaf
        self.mesh = mesh
        self.passes = [0] * size  # tests of all slots that the node passed
        self.paths = [0] * size  # bit b of paths[a]: the path a-b passed last
        self.crossed: set[str] = set()  # leaves across which something passed
        self.inside: set[str] = set()  # leaves within which something passed
        self.slots: list[dict[int, tuple[bool, int]]] = [
            {} for _unused in range(size)
        ]  # slot measured alone -> passed, partner
        self.failed: list[dict[int, list[SearchRecord]]] = [{} for _unused in range(size)]  # partner -> tests that failed
        self.passed: list[set[int]] = [set() for _unused in range(size)]  # partners of pairs that passed
        self.tried: list[set[int]] = [set() for _unused in range(size)]  # partners with all slots, whatever came of it
        self.guilty: set[int] = set()  # convicted nodes, and those of convicted GPUs
        self.bad_paths: set[tuple[int, int]] = set()
        self.unknown: list[set[int]] = [set() for _unused in range(size)]  # partners with whom nothing was measured

    def edges(self, nodes: Sequence[int]) -> Iterable[tuple[int, int]]:
        """The paths that a ring over `nodes` uses, the one that closes it last."""
        inner = list(zip(nodes, nodes[1:]))
        return inner if len(nodes) == 2 else [*inner, (nodes[-1], nodes[0])]

    def leaves(self, nodes: Iterable[int]) -> set[str]:
        return {name for name in (self.leaf[n] for n in nodes) if name is not None}

    def add(self, record: SearchRecord) -> None:
        nodes, outcome = record.nodes, record.result.outcome
        if len(nodes) == 2:
            for a, b in (nodes, nodes[::-1]):
                if record.is_pair:
                    self.tried[a].add(b)
                if outcome == "unknown":
                    self.unknown[a].add(b)
                elif record.accuses:
                    self.failed[a].setdefault(b, []).append(record)
        if record.test.gpus is not None:
            # Only the one under suspicion is split: its partner has passed with all its slots.
            if outcome != "unknown":
                for slot in record.test.gpus:
                    self.slots[nodes[0]][slot] = (outcome == "pass", nodes[1])
            leaves = self.leaves(nodes)
            if outcome == "pass" and len(leaves) > 1:
                self.crossed |= leaves
            return
        if outcome == "pass":
            self._clear(record)
        elif record.accuses and record.is_pair:
            self._mark_paths(nodes, good=False)

    def _clear(self, record: SearchRecord) -> None:
        for node in record.nodes:
            self.passes[node] += 1
        self._mark_paths(record.nodes, good=True)
        if record.is_pair:
            a, b = record.nodes
            self.passed[a].add(b)
            self.passed[b].add(a)
        leaves = self.leaves(record.nodes)
        if len(leaves) > 1:
            self.crossed |= leaves
        elif all(self.leaf[n] is not None for n in record.nodes):
            self.inside |= leaves

    def _mark_paths(self, nodes: Sequence[int], good: bool) -> None:
        if self.mesh:
            mask = sum(1 << n for n in nodes)
            for n in nodes:
                self.paths[n] = self.paths[n] | mask if good else self.paths[n] & ~mask
            return
        for a, b in self.edges(nodes):
            if good:
                self.paths[a] |= 1 << b
                self.paths[b] |= 1 << a
            else:
                self.paths[a] &= ~(1 << b)
                self.paths[b] &= ~(1 << a)

    def forget(self, record: SearchRecord) -> None:
        """Forget what cleared the members of a test that fails nevertheless: the fault comes and goes."""
        for node in record.nodes:
            self.passes[node] = 0
            self.passed[node].clear()
            self.slots[node].clear()
            self.tried[node].clear()
        self._mark_paths(record.nodes, good=False)
        self.crossed -= self.leaves(record.nodes)
        self.inside -= self.leaves(record.nodes)

    def excused(self, node: int, partner: int) -> bool:
        """Return True if a failure of the two together says nothing about the node, because the partner or the path is convicted."""
        return partner in self.guilty or (min(node, partner), max(node, partner)) in self.bad_paths

    def good_partner(self, node: int, partner: int) -> bool:
        """Return True if the partner passed elsewhere, and so did the leaf switches between the two."""
        if partner in self.guilty or not self.passes[partner]:
            return False
        leaf, partner_leaf = self.leaf[node], self.leaf[partner]
        return leaf is None or partner_leaf in (None, leaf) or partner_leaf in self.crossed

    def accusers(self, node: int) -> list[int]:
        """Return the good partners with which the node failed, if no path explains the failure."""
        return [p for p in self.failed[node] if self.good_partner(node, p) and not self.excused(node, p)]

    def cleared(self, node: int) -> bool:
        """Return True if the node passed, and at least as often as there are good partners with which it failed."""
        if not self.failed[node]:
            return self.passes[node] > 0
        return self.passes[node] > 0 and self.passes[node] >= sum(self.good_partner(node, p) for p in self.failed[node])

    def split(self, node: int) -> dict[int, bool]:
        """Slots of the node that were measured alone: whether they passed."""
        return {slot: good for slot, (good, p) in self.slots[node].items() if good or self.good_partner(node, p)}

    def path_good(self, a: int, b: int) -> bool:
        return bool(self.paths[a] >> b & 1)

    def open_paths(self, nodes: Sequence[int], limit: int) -> list[tuple[int, int]] | None:
        """Return the paths of a test that no test has cleared; None if there are more than `limit`."""
        if not self.mesh:
            return [(a, b) for a, b in self.edges(nodes) if not self.path_good(a, b)]
        mask = sum(1 << n for n in nodes)
        missing = {n: mask & ~self.paths[n] & ~(1 << n) for n in nodes}
        if sum(bin(bits).count("1") for bits in missing.values()) > 2 * limit:
            return None
        return [(a, b) for a in nodes for b in nodes if a < b and missing[a] >> b & 1]
