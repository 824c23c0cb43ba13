# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The search for the bad node, GPU, path or switch in a group of nodes that missed its floor.

It plans tests and reads their results. It runs nothing itself and knows no plane.

    session = Localiser(nodes, gpus={"n1": ["GPU-a", ...], ...}, topology={"n1": "leaf-1", ...})
    while tests := session.next_round():
        session.record({test.id: measure(test) for test in tests})     # all tests of a round at the same time
    session.findings()

A *test* is one collective over a group of nodes, repeated `test.repeats` times. The tests of a round share no node,
except that the GPUs of one node may be measured side by side, each with the same slot of a partner.

The method: a passing test clears its nodes, its paths and the leaf switches that it crossed. A test that fails or hangs
is a *claim*: one of these is bad. A claim is settled when a convicted subject explains it. Until then its suspects (those
that no test has cleared) are divided further, for all open claims at the same time:

    the whole pool           cut it into groups, measured side by side
    several nodes            each with a good partner of its own; as long as there are too few of those, in pairs
    one                      slot by slot with two other good partners; mates of its leaf with partners on other leaves
    no node left, so a path  every path that no test has cleared: in pairs, or in random halves if there are too many
    nothing left at all      the test again; if it fails again, what cleared its members counts no longer

A good partner is a node that passed elsewhere. A node is convicted by three different ones (by two if there are no
more, and the finding then names the two paths), a GPU if it fails alone while its siblings pass, a path if both its ends
pass with others, a switch if five of its nodes fail across it and none passes. The rest of the pool is then measured once
more as one group. The search succeeds only if that test passes.

A result that is not a measurement clears nothing and convicts nothing. If the evidence cannot separate two subjects, the
finding lists the other one in `indistinguishable`.

Repeats: a link that fails a share s of its tests passes r of them with (1-s)^r; for s = 1/2 and one in a thousand r is
10. That holds as far as the repetitions are independent, so a repetition is a launch of its own: cycles within one
launch all see a link that changes its state slowly in the same state, and half of its tests would then clear it.

A healthy group misses its floor now and then, too: in a share NOISE of its repetitions at most. So a test is repeated
until it says which of the two it is (Wald's sequential test of s = 1/2 against s = NOISE):

    b ln(0.5 / NOISE) - g ln((1 - NOISE) / 0.5)     b repetitions below the floor, g that met it

The test fails once this sum reaches ln(1 / ACCUSED), which a healthy group does with a chance of at most ACCUSED: three low
repetitions in a row. It passes once the sum has fallen to that of r good repetitions in a row: one low repetition costs
five more good ones. A test with neither result after 2 r + 10 repetitions is unknown. A hang and a wrong result are no
scatter and settle the test at once. The conviction of a node takes failed tests with at least two partners, that of a path
two failed tests: scatter convicts a healthy one of N nodes with a chance of at most N ACCUSED^2, of P paths with P ACCUSED^2.
If the repetitions over a path do not differ from the others of an end (Fisher's exact test, END_ALPHA), the finding
cannot tell the path from that node, which may fail now and then.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import math
import random
import typing as t
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
class _Record:
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


class _Evidence:
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
        self.failed: list[dict[int, list[_Record]]] = [{} for _unused in range(size)]  # partner -> tests that failed
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

    def add(self, record: _Record) -> None:
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

    def _clear(self, record: _Record) -> None:
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

    def forget(self, record: _Record) -> None:
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


class Localiser:
    """One search through one pool. See the module's text.

    `nodes`: the pool in the ring order of the group that missed its floor, at least two, no name twice.
    `gpus`: the GPUs of each node by slot, the same number everywhere; without them a GPU is not told from its node.
    `topology`: the leaf switch of each node as far as known; without it the nodes of a bad switch are convicted.
    `paths`: `ring` where a collective uses only the paths between neighbours (NCCL_ALGO=Ring), `mesh` where it uses all
    of them (alltoall).
    `repeats`: repetitions of each test. `seed`: choices between equals. `max_rounds`: what is open then is unresolved.
    Raises ValueError for a pool that is not of this form.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        *,
        gpus: Mapping[str, Sequence[str]] | None = None,
        topology: Mapping[str, str] | None = None,
        paths: Literal["ring", "mesh"] = "ring",
        repeats: int = REPEATS,
        seed: int = 0,
        max_rounds: int = 40,
    ) -> None:
        if len(nodes) < 2 or len(set(nodes)) != len(nodes):
            raise ValueError("nodes: at least two different names are needed")
        if repeats < 1 or max_rounds < 1:
            raise ValueError("repeats and max_rounds: at least 1")
        if paths not in ("ring", "mesh"):
            raise ValueError(f"paths: 'ring' or 'mesh', not {paths!r}")
        self._names = tuple(nodes)
        self._gpus = [tuple((gpus or {}).get(name, ())) for name in nodes]
        if len({len(each) for each in self._gpus}) != 1:
            raise ValueError("gpus: every node of the pool needs the same number of GPUs")
        self._slots = len(self._gpus[0])
        leaf = [(topology or {}).get(name) for name in nodes]
        self._leaf_members: dict[str, list[int]] = {}
        for node, name in enumerate(leaf):
            if name is not None:
                self._leaf_members.setdefault(name, []).append(node)
        self._repeats = repeats
        self._max_rounds = max_rounds
        self._random = random.Random(seed)
        self._evidence = _Evidence(len(nodes), leaf, paths == "mesh")
        self._history: list[_Record] = []
        self._round: dict[int, _Record] = {}
        self._again: dict[int, _Record] = {}  # id of the repeated test -> the claim
        self._splits: Counter[int] = Counter()  # how often the slots of a node were measured again
        self._busy: set[int] = set()
        self._free: list[int] = []
        self._tests = 0
        self._done = False
        self._proven = False  # what remains of the pool met its floor as one group
        # Convictions: nodes and GPUs, paths, switches (True: inside the leaf too).
        self._bad: dict[int, list[SearchFinding]] = {}  # the node itself, or GPUs of it
        self._bad_paths: dict[tuple[int, int], SearchFinding] = {}
        self._bad_leaves: dict[str, tuple[bool, SearchFinding]] = {}
        everything = tuple(range(len(nodes)))
        trigger = GroupTest(0, 0, self._names, None, 1, "trigger")
        self._trigger = _Record(trigger, everything, GroupTestResult("fail", reason="the group missed its floor"))
        self._claims: list[_Record] = [self._trigger]
        self.rounds = 0

    @property
    def tests(self) -> int:
        """The number of group measurements requested so far."""
        return self._tests

    # -- the caller's side ---------------------------------------------------------------------------------------------

    def next_round(self) -> list[GroupTest]:
        """The tests to run now, all at the same time; empty when the search has ended."""
        if self._round:
            raise ValueError("the results of the last round have not been recorded")
        if self._done or self.rounds >= self._max_rounds:
            return []
        self.rounds += 1
        self._busy = set()
        self._free = [n for n in range(len(self._names)) if self._usable(n) and self._evidence.cleared(n)]
        self._random.shuffle(self._free)
        self._free.sort(key=self._beside_open_path)
        claims = self._open_claims()
        self._pursue(claims)
        if claims and (self._round or not self._is_end(claims)):
            self._pair_up_leftovers(claims)
            self._join_the_idle(claims)
        if not self._round:
            self._measure_the_rest()
        if not self._round:
            self._done = True
            self.rounds -= 1
        return [record.test for record in self._round.values()]

    def record(self, results: Mapping[int, GroupTestResult]) -> None:
        """Takes the results of the round by test id; a test without one is unknown. ValueError for a stranger's id."""
        if strangers := set(results) - set(self._round):
            raise ValueError(f"no test of this round: {sorted(strangers)}")
        for key, record in self._round.items():
            record.result = results.get(key, GroupTestResult("unknown", reason="no result came back"))
            self._history.append(record)
            self._evidence.add(record)
            claim = self._again.pop(key, None)
            if claim is not None and record.result.outcome == "pass":
                claim.settled = "not reproduced"
            elif claim is not None and record.accuses:
                claim.settled = "measured again"
                record.forgotten = claim.forgotten + 1
                self._evidence.forget(record)
            if record.accuses or (record.result.outcome == "unknown" and record.test.gpus is None):
                self._claims.append(record)
            if record.result.outcome == "pass" and (record.test.purpose == "rest" or claim is self._trigger):
                self._done = self._proven = True
        self._round = {}
        self._doubt_splits()
        for _unused in range(4 * len(self._names)):  # each step convicts one or takes one back
            if not self._convict():
                break

    def _doubt_splits(self) -> None:
        """Several bad slots, not all: rather a path, or something that comes and goes, than several bad GPUs.

        They are measured again, and once more where all bad ones had the same partner and nothing passed with it.
        """
        for node, slots in enumerate(self._evidence.slots):
            if len(slots) < self._slots or self._slots < 3:
                continue
            split = self._evidence.split(node)
            bad = {slot for slot, good in split.items() if not good}
            if 1 < len(bad) < self._slots:
                partners = {slots[slot][1] for slot in bad}
                one_path = len(partners) == 1 and bad == {slot for slot in slots if slots[slot][1] in partners}
                if self._splits[node] < (GIVE_UP if one_path else 1):
                    self._splits[node] += 1
                    slots.clear()

    def findings(self) -> list[SearchFinding]:
        """Return the convicted subjects, with the tests against them, then what could not be resolved."""
        convicted = [
            *(finding for each in self._bad.values() for finding in each),
            *self._bad_paths.values(),
            *(finding for _unused, finding in self._bad_leaves.values()),
        ]
        return [self._hedged(f) for f in convicted] + self._unresolved()

    def _hedged(self, finding: SearchFinding) -> SearchFinding:
        """Return a finding with its alternative explanations and with what it hides. Several bad nodes on one leaf, or bad paths across it,
        may be a switch that fails now and then; a GPU that fails now and then may be its node."""
        alternatives = list(finding.indistinguishable)
        if finding.kind != "switch":
            bad = Counter(self._evidence.leaf[node] for node in {*self._bad, *(n for path in self._bad_paths for n in path)})
            leaves = self._evidence.leaves(self._names.index(name) for name in finding.members)
            alternatives += [{**self._subject("switch", self._leaf_members[leaf]), "id": leaf} for leaf in sorted(leaves) if bad[leaf] > 1]
        values = [value for test in finding.evidence for value in t.cast("list[float]", test["values"])]
        floors = [t.cast("float", test["floor"]) for test in finding.evidence if test["floor"] is not None]
        comes = any(test["outcome"] == "fail" for test in finding.evidence) and floors and max(values, default=0.0) >= min(floors)
        if finding.kind == "pair":
            path = tuple(self._names.index(name) for name in finding.members)
            alternatives += [self._subject("node", [end]) for end in path if not self._unlike(path, end)]
        if finding.kind == "gpu" and comes:
            alternatives.append(self._subject("node", [self._names.index(finding.members[0])]))
        return dataclasses.replace(finding, indistinguishable=tuple(alternatives), not_looked_at=self._behind(finding))

    def _behind(self, finding: SearchFinding) -> tuple[str, ...]:
        """Return what nothing has passed over while the subject is bad: its nodes' paths to their neighbours, and the members of a switch.

        One end of a bad path stays out of the last group, so the other paths of both its ends belong to them.
        """
        size = len(self._names)
        unmeasured: set[str] = set()
        for node in (self._names.index(name) for name in finding.members):
            if finding.kind == "switch" and not self._evidence.passes[node]:
                unmeasured.add(self._names[node])
            neighbours = range(size) if self._evidence.mesh else ((node + 1) % size, (node - 1) % size)
            unproven = (neighbour for neighbour in neighbours if neighbour != node and not self._evidence.path_good(node, neighbour))
            unmeasured |= {"|".join(sorted((self._names[node], self._names[neighbour]))) for neighbour in unproven}
        return tuple(sorted(unmeasured - {path.id for path in self._bad_paths.values()}))

    # -- what is open --------------------------------------------------------------------------------------------------

    def _usable(self, node: int) -> bool:
        return node not in self._bad and self._evidence.leaf[node] not in self._bad_leaves

    def _set_aside(self, node: int) -> bool:
        """Return True if nothing could be measured on the node with several good partners."""
        good = [p for p in self._evidence.unknown[node] if self._evidence.passes[p]]
        return not self._evidence.passes[node] and len(good) >= GIVE_UP

    def _explained(self, record: _Record) -> bool:
        if any(node in self._bad for node in record.nodes):
            return True
        leaves = self._evidence.leaves(record.nodes)
        for name in leaves & set(self._bad_leaves):
            if len(leaves) > 1 or self._bad_leaves[name][0]:
                return True
        if not self._bad_paths:
            return False
        if self._evidence.mesh:
            members = set(record.nodes)
            return any(a in members and b in members for a, b in self._bad_paths)
        return any((min(e), max(e)) in self._bad_paths for e in self._evidence.edges(record.nodes))

    def _suspects(self, record: _Record) -> list[int]:
        return [n for n in record.nodes if not self._evidence.cleared(n) and self._usable(n) and not self._set_aside(n)]

    def _open_claims(self) -> list[_Record]:
        """Claims that still ask for tests, the smallest first."""
        alive = [
            c for c in self._claims if not c.settled and not self._explained(c) and (c.accuses or self._suspects(c))
        ]
        if unproven := self._unproven(alive):
            names = tuple(self._names[n] for n in unproven)
            never = GroupTest(0, 0, names, None, 0, "unproven")
            alive.append(_Record(never, tuple(unproven), GroupTestResult("unknown", reason="never passed")))
        return sorted(alive, key=lambda c: (len(c.nodes), len(self._suspects(c))))

    def _unproven(self, claims: Iterable[_Record]) -> list[int]:
        """Return the nodes that never passed and are in no open claim: the explanation of their claim does not clear them."""
        covered = {n for c in claims for n in self._suspects(c)}
        return [n for n in self._suspects(self._trigger) if n not in covered]

    def _is_end(self, claims: list[_Record]) -> bool:
        return not any(self._suspects(c) for c in claims)

    def _beside_open_path(self, node: int) -> bool:
        """A path to a neighbour in the pool's ring is still to be proven: better idle, to prove it, than a partner."""
        size = len(self._names)
        return not all(self._evidence.path_good(node, (node + step) % size) for step in (1, -1))

    # -- planning a round ----------------------------------------------------------------------------------------------

    def _test(self, nodes: Sequence[int], purpose: str, gpus: tuple[int, ...] | None = None) -> GroupTest:
        self._tests += 1
        names = tuple(self._names[n] for n in nodes)
        test = GroupTest(self._tests, self.rounds, names, gpus, self._repeats, purpose)
        self._round[test.id] = _Record(test, tuple(nodes), GroupTestResult("unknown"))
        self._busy.update(nodes)
        return test

    def _partners(self, node: int, count: int = 1, across: bool = False, retried: bool = False) -> list[int]:
        """Up to `count` free good nodes not yet tried with this one, the best first.

        Best is one on another leaf over which something passed, and not an earlier partner's; worst is the own leaf.
        `across`: only on other leaves. `again`: also those that were tried, last of all.
        """
        evidence = self._evidence
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

    def _pursue(self, claims: list[_Record]) -> None:
        """The next tests of every open claim. One waits for smaller ones within it or over one of its suspects."""
        awaited: set[int] = set()
        smaller: list[set[int]] = []
        for claim in claims:
            suspects = self._suspects(claim)
            members = set(claim.nodes)
            waits = any(s in awaited for s in suspects) or any(each < members for each in smaller)
            awaited.update(suspects)
            smaller.append(members)
            if not suspects and not self._evidence.mesh:
                waits = False  # its other paths can be searched meanwhile
            if waits or any(s in self._busy for s in suspects):
                continue
            if len(suspects) > 1:
                self._divide(claim, suspects)
            elif suspects:
                self._examine(suspects[0])
            else:
                self._search_paths(claim)

    def _divide(self, claim: _Record, suspects: list[int]) -> None:
        count = len(suspects)
        available = sum(1 for n in self._free if n not in self._busy)
        if available >= count or (available and count <= 3):
            for suspect in suspects:
                self._examine(suspect)
            return
        if count <= 3:
            return  # no good node is known yet: the leftovers are paired afresh
        if claim is self._trigger:
            # n/g groups of g, and g more tests for each fault, are fewest at g = sqrt(n/faults). Of six groups one
            # has none of five faults: good partners for the others.
            parts = max(6, math.ceil(math.sqrt(SPLIT_FAULTS * count)))
        else:
            parts = count // 2  # pairs: with at most (n-2)/2 faults one of them is good
        parts = min(parts, count // 2)
        purpose = "screen" if claim is self._trigger else "split"
        for part in _even_parts(suspects, parts):
            self._test(part, purpose)

    def _examine(self, node: int) -> None:
        """Test one suspect: with a first good partner, then slot by slot with a second one, then with a third if the slots pass."""
        evidence = self._evidence
        accusers = evidence.accusers(node)
        if not accusers:
            self._with_partner(node, "partner")
        elif missing := self._missing_slots(node):
            # Two partners where there are slots enough: a bad path to one of them then looks like no bad node.
            partners = self._partners(node, 2 if len(missing) >= 4 else 1, retried=True)
            for part, partner in zip(_even_parts(missing, len(partners)), partners):
                for slot in part:
                    self._test((node, partner), "gpu", (slot,))
        elif len(accusers) < self._needed(node) or self._thin_slots(node):
            self._with_partner(node, "partner")
        if accusers:
            self._examine_leaf(evidence.leaf[node])

    def _needed(self, node: int) -> int:
        """Return how many good partners must speak against a node: three, as two bad paths may meet at a healthy one.

        Two suffice if some of its GPUs fail alone and others pass, and if no other partner is left.
        """
        if len(set(self._evidence.split(node).values())) > 1:
            return WITNESSES - 1
        remaining = (p for p, usable in enumerate(map(self._usable, range(len(self._names)))) if usable and p != node)
        has_candidates = any(p not in self._evidence.tried[node] and self._evidence.cleared(p) for p in remaining)
        return WITNESSES if has_candidates else WITNESSES - 1

    def _missing_slots(self, node: int) -> list[int]:
        if self._slots < 2 or len(self._evidence.unknown[node]) >= GIVE_UP:
            return []
        return [slot for slot in range(self._slots) if slot not in self._evidence.split(node)]

    def _thin_slots(self, node: int) -> list[int]:
        """Bad slots that fewer than two good partners speak against, alone or with their node."""
        evidence = self._evidence
        thin = []
        for slot, good in evidence.split(node).items():
            against = [
                p
                for p in evidence.accusers(node)
                if any(r.test.gpus is None or slot in r.test.gpus for r in evidence.failed[node][p])
            ]
            if not good and len(against) < 2:
                thin.append(slot)
        return thin

    def _witnesses(self, leaf: str) -> set[int]:
        """Nodes of a leaf that failed with good partners on other, good leaves."""
        evidence = self._evidence
        return {
            n
            for n in self._leaf_members[leaf]
            if any(evidence.leaf[p] not in (None, leaf) for p in evidence.accusers(n))
        }

    def _examine_leaf(self, leaf: str | None) -> None:
        """Is it the switch? Mates with partners on other leaves, until enough have failed or one has passed."""
        if leaf is None or leaf in self._evidence.crossed:
            return
        members = self._leaf_members[leaf]
        witnesses = self._witnesses(leaf)
        needed = min(LEAF_WITNESSES, len(members)) - len(witnesses)
        for mate in members:
            if needed <= 0:
                break
            if mate not in witnesses and self._usable(mate):
                needed -= mate in self._busy or self._with_partner(mate, "leaf", across=True)

    def _search_paths(self, claim: _Record) -> None:
        """Test the paths between the nodes of a claim that has no suspect left, and the switches that a path crosses."""
        evidence = self._evidence
        if claim.is_pair and not evidence.path_good(*claim.nodes):
            a, b = claim.nodes
            for end, opposite in ((a, b), (b, a)):
                if not evidence.passed[end] - {opposite}:
                    self._with_partner(end, "partner")
            if self._failed_over(a, b) < 2 and a not in self._busy and b not in self._busy:
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
            size = len(self._names)  # neighbours in the pool's ring first: it is the pool that missed its floor
            for a, b in sorted(paths, key=lambda path: (path[0] - path[1]) % size not in (1, size - 1)):
                if a not in self._busy and b not in self._busy and b not in evidence.failed[a]:
                    self._test((a, b), "path")
        elif claim.forgotten < 2 and len(free) == len(claim.nodes):
            self._again[self._test(claim.nodes, "again", claim.test.gpus).id] = claim

    def _unlike(self, path: tuple[int, ...], end: int) -> bool:
        """A path fails unlike the other tests of its end, which may itself fail now and then (Fisher's exact test)."""
        over, elsewhere = [0, 0], [0, 0]
        for r in self._history:
            if end in r.nodes and r.test.gpus is None and r.result.floor is not None and not self._explained_but(r, path):
                of = over if set(path) <= set(r.nodes) else elsewhere
                hang = 3 if r.result.outcome == "hang" else 0  # which is no scatter: as much as three low values
                of[0] += hang + sum(value < r.result.floor for value in r.result.values)
                of[1] += hang + len(r.result.values)
        return over[0] > 0 and chance(over[0], over[1], elsewhere[0], elsewhere[1]) <= END_ALPHA

    def _explained_but(self, record: _Record, path: tuple[int, ...]) -> bool:
        """Return True if a failed test is explained by convictions other than this path."""
        return record.accuses and not set(path) <= set(record.nodes) and self._explained(record)

    def _failed_over(self, a: int, b: int) -> int:
        """Return how many tests over the path between two nodes failed."""
        both, mesh = {a, b}, self._evidence.mesh
        return sum(
            r.accuses and both <= set(r.nodes) and (mesh or both in map(set, self._evidence.edges(r.nodes))) for r in self._history
        )

    def _halve(self, claim: _Record, free: list[int]) -> None:
        """Too many open paths for pairs: a random half of the nodes holds a quarter of them, the other half another.

        Leaves across which nothing has passed come first, one node of each.
        """
        for leaf in sorted(self._evidence.leaves(claim.nodes) - self._evidence.crossed):
            if not any(self._evidence.leaf[n] == leaf for n in self._busy):
                member = next((n for n in free if n not in self._busy and self._evidence.leaf[n] == leaf), None)
                if member is not None:
                    self._with_partner(member, "leaf", across=True)
        idle = [n for n in free if n not in self._busy]
        self._random.shuffle(idle)
        for half in (idle[: len(idle) // 2], idle[len(idle) // 2 :]):
            if len(half) > 1:
                self._test(sorted(half), "across")

    def _pair_up_leftovers(self, claims: list[_Record]) -> None:
        """Test suspects without a good partner with one another, in pairs not tried before."""
        idle: list[int] = []
        for claim in claims:
            for node in self._suspects(claim):
                if node not in self._busy and node not in idle and not self._evidence.accusers(node):
                    idle.append(node)
        if any(n not in self._busy for n in self._free) and len(idle) != 1:
            return
        while idle:
            node = idle.pop(0)
            mate = next((m for m in idle if m not in self._evidence.tried[node]), None)
            if mate is not None:
                idle.remove(mate)
                self._test((node, mate), "partner")

    def _join_the_idle(self, claims: list[_Record]) -> None:
        """Good nodes without work prove the paths between their groups meanwhile, as one group."""
        searched = {n for c in claims if c is not self._trigger and not self._suspects(c) for n in c.nodes}
        idle = sorted(n for n in self._free if n not in self._busy and n not in searched)
        if len(idle) < 2:
            return
        evidence = self._evidence
        if evidence.mesh:
            fresh = evidence.open_paths(idle, limit=0) is None
        else:
            members = set(idle)
            ring = evidence.edges(range(len(self._names)))
            fresh = any(a in members and b in members and not evidence.path_good(a, b) for a, b in ring)
        if fresh:
            self._test(idle, "across")

    def _measure_the_rest(self) -> None:
        """Test the pool without the convicted as one group, which has to meet its floor."""
        out: set[int] = set()
        for a, b in self._bad_paths:  # one end of a bad path stays out: a group with both would use it
            if a not in out and b not in out:
                out.add(b)
        pool = [n for n in range(len(self._names)) if self._evidence.cleared(n) and self._usable(n) and n not in out]
        attempts = sum(1 for r in self._history if r.test.purpose == "rest" and list(r.nodes) == pool)
        if len(pool) > 1 and attempts < GIVE_UP:
            self._test(pool, "rest")

    # -- convicting ----------------------------------------------------------------------------------------------------

    def _convict(self) -> bool:
        """Convicts what the evidence allows, or takes back what it no longer does; true if anything changed."""
        evidence = self._evidence
        if self._take_back():
            return True
        for leaf in self._leaf_members:
            if leaf not in evidence.crossed and leaf not in self._bad_leaves and self._convict_switch(leaf):
                return True
        for node, failed in enumerate(evidence.failed):
            if failed and self._usable(node) and not evidence.cleared(node) and self._convict_node(node):
                evidence.guilty.add(node)
                return True
        return any(c.is_pair and c.accuses and not c.settled and self._convict_path(c) for c in self._claims)

    def _take_back(self) -> bool:
        """Take back a conviction whose witness is convicted since, or whose switch was crossed. Return True if there was one."""
        evidence = self._evidence
        for node in self._bad:
            standing = [p for p in evidence.failed[node] if not evidence.excused(node, p)]
            void = [slot for slot, (good, p) in evidence.slots[node].items() if not good and p in evidence.guilty]
            if len(standing) < 2 or void:
                for slot in void:
                    del evidence.slots[node][slot]
                del self._bad[node]
                evidence.guilty.discard(node)
                return True
        for path in self._bad_paths:
            if evidence.guilty & set(path):
                del self._bad_paths[path]
                evidence.bad_paths.discard(path)
                return True
        for leaf in self._bad_leaves:
            if leaf in evidence.crossed:
                del self._bad_leaves[leaf]
                return True
        return False

    def _convict_switch(self, leaf: str) -> bool:
        members = self._leaf_members[leaf]
        witnesses = self._witnesses(leaf)
        partners = {p for n in witnesses for p in self._evidence.accusers(n) if self._evidence.leaf[p] != leaf}
        if len(members) < 2 or len(witnesses) < min(LEAF_WITNESSES, len(members)) or len(partners) < 2:
            return False
        inside = leaf not in self._evidence.inside
        # All nodes of a leaf could be bad, unless they pass within it; bad GPUs are ruled out slot by slot.
        few = inside and len(members) <= LEAF_WITNESSES
        if few and any(self._missing_slots(n) for n in witnesses):
            return False
        reason = (
            f"{len(witnesses)} of its {len(members)} nodes fail with good partners on other leaves and none passes; "
            + ("nothing passes within the leaf either" if inside else "within the leaf they pass")
        )
        evidence = [
            r for n in witnesses for p, records in self._evidence.failed[n].items() if p in partners for r in records
        ]
        alternatives = [self._subject("node", (n,)) for n in members] if few else []
        names = tuple(self._names[n] for n in members)
        finding = SearchFinding("switch", leaf, names, "convicted", reason, self._tell(evidence), tuple(alternatives))
        self._bad_leaves[leaf] = (inside, finding)
        return True

    def _convict_node(self, node: int) -> bool:
        evidence = self._evidence
        accusers = evidence.accusers(node)
        leaf = evidence.leaf[node]
        if len(accusers) < self._needed(node) or self._missing_slots(node):
            return False
        only_node = leaf is not None and len(self._leaf_members[leaf]) == 1
        if leaf is not None and not only_node and leaf not in evidence.crossed:
            mates = [p for p in accusers if evidence.leaf[p] == leaf]
            if leaf not in evidence.inside or len(mates) < 2:
                return False
        slots = evidence.split(node)
        bad = [slot for slot, good in slots.items() if not good]
        records = [r for p in accusers for r in evidence.failed[node][p]]
        partners = ", ".join(self._names[p] for p in accusers)
        name = self._names[node]
        told_apart = len(slots) == self._slots
        if bad and told_apart and len(bad) < self._slots:
            if self._thin_slots(node):
                return False
            passing = self._slots - len(bad)
            self._bad[node] = [
                SearchFinding(
                    "gpu",
                    f"{name}/gpu/{self._gpus[node][slot]}",
                    (name,),
                    "convicted",
                    f"the node fails with the good partners {partners}; "
                    f"measured alone this GPU fails, {passing} siblings pass",
                    self._tell([r for r in records if r.test.gpus is None or slot in r.test.gpus]),
                )
                for slot in sorted(bad)
            ]
            return True
        alternatives: list[dict[str, object]] = []
        comes_and_goes = any(
            r.result.outcome == "fail" and max(r.result.values, default=-math.inf) >= (r.result.floor or 0)
            for r in records
        )
        if not told_apart or self._slots == 1 or (comes_and_goes and not bad):
            alternatives += [{"kind": "gpu", "id": f"{name}/gpu/{uuid}", "members": [name]} for uuid in self._gpus[node]]
        if only_node and leaf is not None:
            alternatives.append({"kind": "switch", "id": leaf, "members": [name]})
        if len(accusers) < WITNESSES:
            alternatives += [self._subject("pair", (node, p)) for p in accusers]
        how = "it fails with the good partners " + partners
        if told_apart and self._slots > 1:
            how += ", with every GPU alone too" if bad else "; each GPU alone passes, all together do not"
        self._bad[node] = [SearchFinding("node", name, (name,), "convicted", how, self._tell(records), tuple(alternatives))]
        return True

    def _convict_path(self, claim: _Record) -> bool:
        evidence = self._evidence
        a, b = sorted(claim.nodes)
        if (a, b) in self._bad_paths or evidence.path_good(a, b) or self._explained(claim):
            return False
        for end, opposite in ((a, b), (b, a)):
            if not evidence.cleared(end) or not evidence.passed[end] - {opposite}:
                return False
        leaves = evidence.leaves((a, b))
        if (len(leaves) > 1 and not leaves <= evidence.crossed) or self._failed_over(a, b) < 2:
            return False
        records = [r for r in self._history if r.is_pair and {a, b} & set(r.nodes) and r.result.outcome != "unknown"]
        with_a = min(evidence.passed[a] - {b})
        with_b = min(evidence.passed[b] - {a})
        names = tuple(sorted((self._names[a], self._names[b])))
        reason = (
            f"they fail together; {self._names[a]} passes with {self._names[with_a]}, "
            f"{self._names[b]} with {self._names[with_b]}"
        )
        evidence.bad_paths.add((a, b))
        self._bad_paths[a, b] = SearchFinding("pair", "|".join(names), names, "convicted", reason, self._tell(records))
        return True

    # -- telling -------------------------------------------------------------------------------------------------------

    def _subject(self, kind: str, nodes: Sequence[int]) -> dict[str, object]:
        names = sorted(self._names[n] for n in nodes)
        return {"kind": kind, "id": "|".join(names), "members": names}

    def _tell(self, records: Iterable[_Record]) -> tuple[dict[str, object], ...]:
        tests: dict[int, dict[str, object]] = {}
        for r in records:
            tests[r.test.id] = {
                "test": r.test.id,
                "round": r.test.round,
                "purpose": r.test.purpose,
                "nodes": list(r.test.nodes),
                "gpus": None if r.test.gpus is None else list(r.test.gpus),
                "outcome": r.result.outcome,
                "values": list(r.result.values),
                "floor": r.result.floor,
                "unit": r.result.unit,
                "reason": r.result.reason,
            }
        return tuple(tests[key] for key in sorted(tests))

    def _unresolved(self) -> list[SearchFinding]:
        """Claims that nothing explains, nodes that could not be measured, and a pool without its last proof."""
        findings: list[SearchFinding] = []
        claims = self._open_or_vanished()
        unproven = set(self._unproven(claims))
        for node, name in enumerate(self._names):
            if self._set_aside(node) or node in unproven:
                records = [r for r in self._history if node in r.nodes and r.result.outcome != "pass"]
                why = next(
                    (r.result.reason for r in reversed(records) if r.result.reason),
                    "no good partner was left to measure it with",
                )
                findings.append(SearchFinding("node", name, (name,), "unresolved", f"never passed: {why}", self._tell(records)))
        covered: list[set[int]] = []
        for claim in claims:
            members = set(claim.nodes)
            if any(each <= members for each in covered):
                continue
            covered.append(members)
            suspects = self._suspects(claim)
            candidates = [self._subject("node", (n,)) for n in suspects]
            paths = self._evidence.open_paths(claim.nodes, limit=len(claim.nodes)) or []
            candidates += [self._subject("pair", path) for path in paths]
            names = tuple(self._names[n] for n in (suspects or claim.nodes))
            key = "|".join(sorted(names))
            if any(key == each.id for each in findings):
                continue
            if claim.settled:
                reason = (
                    f"missed its floor, and met it in {self._repeats} repetitions later: not reproduced, not cleared"
                )
            elif claim.accuses:
                reason = "missed its floor, and the evidence does not say which of these is to blame"
            else:
                reason = "could not be measured: " + (claim.result.reason or "no result")
            evidence = self._tell([] if claim is self._trigger else [claim])
            findings.append(SearchFinding("group", key, names, "unresolved", reason, evidence, tuple(candidates)))
        remaining = tuple(name for node, name in enumerate(self._names) if self._usable(node))
        if not self._proven and not findings and remaining:
            reason = "what remains of the pool was not shown to meet its floor as one group"
            findings.append(SearchFinding("group", "rest", remaining, "unresolved", reason))
        return findings

    def _open_or_vanished(self) -> list[_Record]:
        everything = [self._trigger, *(r for r in self._history if r.accuses)]
        everything += [
            r for r in self._history if r.result.outcome == "unknown" and r.test.gpus is None and self._suspects(r)
        ]
        live = [r for r in everything if r.settled != "measured again" and not self._explained(r)]
        return sorted(live, key=lambda r: len(r.nodes))


def _even_parts(items: Sequence[int], count: int) -> list[list[int]]:
    """Cuts a sequence into `count` runs whose lengths differ by one at most."""
    size, remainder = divmod(len(items), max(1, count))
    parts, start = [], 0
    for i in range(count):
        end = start + size + (i < remainder)
        parts.append(list(items[start:end]))
        start = end
    return parts
