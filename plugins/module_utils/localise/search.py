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
import typing as t
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise.convictions import Convictions
from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise.pool import Pool
from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise.rounds import Rounds
from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise.tests import (
    END_ALPHA,
    GIVE_UP,
    LEAF_WITNESSES,
    NOISE,
    REPEATS,
    GroupTest,
    GroupTestResult,
    SearchFinding,
    SearchRecord,
    chance,
    tail,
)

__all__ = ["END_ALPHA", "LEAF_WITNESSES", "NOISE", "GroupTest", "GroupTestResult", "Localiser", "SearchFinding", "chance", "tail"]


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
        self.pool = Pool(nodes, gpus, topology, paths, repeats)
        self._rounds = Rounds(self.pool, seed)
        self._convictions = Convictions(self.pool)
        self._max_rounds = max_rounds
        self._splits: Counter[int] = Counter()  # how often the slots of a node were measured again
        self._done = False
        self._proven = False  # what remains of the pool met its floor as one group

    @property
    def rounds(self) -> int:
        """The number of rounds so far."""
        return self._rounds.number

    @property
    def tests(self) -> int:
        """The number of group measurements requested so far."""
        return self._rounds.count

    def next_round(self) -> list[GroupTest]:
        """Return the tests to run now, all at the same time; empty when the search has ended."""
        if self._rounds.tests:
            raise ValueError("the results of the last round have not been recorded")
        if self._done or self._rounds.number >= self._max_rounds:
            return []
        self._done = not self._rounds.plan()
        return [record.test for record in self._rounds.tests.values()]

    def record(self, results: Mapping[int, GroupTestResult]) -> None:
        """Take the results of the round by test id; a test without one is unknown. Raise ValueError for the id of another test."""
        if strangers := set(results) - set(self._rounds.tests):
            raise ValueError(f"no test of this round: {sorted(strangers)}")
        for key, record in self._rounds.tests.items():
            record.result = results.get(key, GroupTestResult("unknown", reason="no result came back"))
            self.pool.history.append(record)
            self.pool.evidence.add(record)
            claim = self._rounds.repeated.pop(key, None)
            if claim is not None and record.result.outcome == "pass":
                claim.settled = "not reproduced"
            elif claim is not None and record.accuses:
                claim.settled = "measured again"
                record.forgotten = claim.forgotten + 1
                self.pool.evidence.forget(record)
            if record.accuses or (record.result.outcome == "unknown" and record.test.gpus is None):
                self.pool.claims.append(record)
            if record.result.outcome == "pass" and (record.test.purpose == "rest" or claim is self.pool.trigger):
                self._done = self._proven = True
        self._rounds.tests = {}
        self._doubt_splits()
        for _unused in range(4 * len(self.pool.names)):  # each step convicts one or takes one back
            if not self._convictions.revise():
                break

    def _doubt_splits(self) -> None:
        """Several bad slots, not all: rather a path, or something that comes and goes, than several bad GPUs.

        They are measured again, and once more where all bad ones had the same partner and nothing passed with it.
        """
        for node, slots in enumerate(self.pool.evidence.slots):
            if len(slots) < self.pool.slots or self.pool.slots < 3:
                continue
            split = self.pool.evidence.split(node)
            bad = {slot for slot, good in split.items() if not good}
            if 1 < len(bad) < self.pool.slots:
                partners = {slots[slot][1] for slot in bad}
                one_path = len(partners) == 1 and bad == {slot for slot in slots if slots[slot][1] in partners}
                if self._splits[node] < (GIVE_UP if one_path else 1):
                    self._splits[node] += 1
                    slots.clear()

    def findings(self) -> list[SearchFinding]:
        """Return the convicted subjects, with the tests against them, then what could not be resolved."""
        convicted = [
            *(finding for each in self.pool.bad.values() for finding in each),
            *self.pool.bad_paths.values(),
            *(finding for _unused, finding in self.pool.bad_leaves.values()),
        ]
        return [self._hedged(f) for f in convicted] + self._unresolved()

    def _hedged(self, finding: SearchFinding) -> SearchFinding:
        """Return a finding with its alternative explanations and with what it hides. Several bad nodes on one leaf, or bad paths across it,
        may be a switch that fails now and then; a GPU that fails now and then may be its node."""
        alternatives = list(finding.indistinguishable)
        if finding.kind != "switch":
            bad = Counter(self.pool.evidence.leaf[node] for node in {*self.pool.bad, *(n for path in self.pool.bad_paths for n in path)})
            leaves = self.pool.evidence.leaves(self.pool.names.index(name) for name in finding.members)
            members = self.pool.leaf_members
            alternatives += [{**self.pool.subject("switch", members[leaf]), "id": leaf} for leaf in sorted(leaves) if bad[leaf] > 1]
        values = [value for test in finding.evidence for value in t.cast("list[float]", test["values"])]
        floors = [t.cast("float", test["floor"]) for test in finding.evidence if test["floor"] is not None]
        comes = any(test["outcome"] == "fail" for test in finding.evidence) and floors and max(values, default=0.0) >= min(floors)
        if finding.kind == "pair":
            path = tuple(self.pool.names.index(name) for name in finding.members)
            alternatives += [self.pool.subject("node", [end]) for end in path if not self.pool.unlike(path, end)]
        if finding.kind == "gpu" and comes:
            alternatives.append(self.pool.subject("node", [self.pool.names.index(finding.members[0])]))
        return dataclasses.replace(finding, indistinguishable=tuple(alternatives), not_looked_at=self._behind(finding))

    def _behind(self, finding: SearchFinding) -> tuple[str, ...]:
        """Return what nothing has passed over while the subject is bad: its nodes' paths to their neighbours, and the members of a switch.

        One end of a bad path stays out of the last group, so the other paths of both its ends belong to them.
        """
        size = len(self.pool.names)
        unmeasured: set[str] = set()
        for node in (self.pool.names.index(name) for name in finding.members):
            if finding.kind == "switch" and not self.pool.evidence.passes[node]:
                unmeasured.add(self.pool.names[node])
            neighbours = range(size) if self.pool.evidence.mesh else ((node + 1) % size, (node - 1) % size)
            unproven = (neighbour for neighbour in neighbours if neighbour != node and not self.pool.evidence.path_good(node, neighbour))
            unmeasured |= {"|".join(sorted((self.pool.names[node], self.pool.names[neighbour]))) for neighbour in unproven}
        return tuple(sorted(unmeasured - {path.id for path in self.pool.bad_paths.values()}))

    def _unresolved(self) -> list[SearchFinding]:
        """Claims that nothing explains, nodes that could not be measured, and a pool without its last proof."""
        findings: list[SearchFinding] = []
        claims = self._open_or_vanished()
        unproven = set(self.pool.unproven(claims))
        for node, name in enumerate(self.pool.names):
            if self.pool.set_aside(node) or node in unproven:
                records = [r for r in self.pool.history if node in r.nodes and r.result.outcome != "pass"]
                why = next(
                    (r.result.reason for r in reversed(records) if r.result.reason),
                    "no good partner was left to measure it with",
                )
                findings.append(SearchFinding("node", name, (name,), "unresolved", f"never passed: {why}", self.pool.told(records)))
        covered: list[set[int]] = []
        for claim in claims:
            members = set(claim.nodes)
            if any(each <= members for each in covered):
                continue
            covered.append(members)
            suspects = self.pool.suspects(claim)
            candidates = [self.pool.subject("node", (n,)) for n in suspects]
            paths = self.pool.evidence.open_paths(claim.nodes, limit=len(claim.nodes)) or []
            candidates += [self.pool.subject("pair", path) for path in paths]
            names = tuple(self.pool.names[n] for n in (suspects or claim.nodes))
            key = "|".join(sorted(names))
            if any(key == each.id for each in findings):
                continue
            if claim.settled:
                reason = (
                    f"missed its floor, and met it in {self.pool.repeats} repetitions later: not reproduced, not cleared"
                )
            elif claim.accuses:
                reason = "missed its floor, and the evidence does not say which of these is to blame"
            else:
                reason = "could not be measured: " + (claim.result.reason or "no result")
            evidence = self.pool.told([] if claim is self.pool.trigger else [claim])
            findings.append(SearchFinding("group", key, names, "unresolved", reason, evidence, tuple(candidates)))
        remaining = tuple(name for node, name in enumerate(self.pool.names) if self.pool.usable(node))
        if not self._proven and not findings and remaining:
            reason = "what remains of the pool was not shown to meet its floor as one group"
            findings.append(SearchFinding("group", "rest", remaining, "unresolved", reason))
        return findings

    def _open_or_vanished(self) -> list[SearchRecord]:
        everything = [self.pool.trigger, *(r for r in self.pool.history if r.accuses)]
        everything += [
            r for r in self.pool.history if r.result.outcome == "unknown" and r.test.gpus is None and self.pool.suspects(r)
        ]
        live = [r for r in everything if r.settled != "measured again" and not self.pool.explained(r)]
        return sorted(live, key=lambda r: len(r.nodes))
