# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pool of nodes that search.py searches: its evidence, its convictions, and what is still open.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise.tests import (
    END_ALPHA,
    GIVE_UP,
    WITNESSES,
    GroupTest,
    GroupTestResult,
    SearchEvidence,
    SearchFinding,
    SearchRecord,
    chance,
)


class Pool:
    """The nodes by index, with the results so far. `claims` are failed tests that are not explained yet, `trigger` is the first one."""

    def __init__(
        self,
        nodes: Sequence[str],
        gpus: Mapping[str, Sequence[str]] | None,
        topology: Mapping[str, str] | None,
        paths: Literal["ring", "mesh"],
        repeats: int,
    ) -> None:
        self.names = tuple(nodes)
        self.gpus = [tuple((gpus or {}).get(name, ())) for name in nodes]
        if len({len(each) for each in self.gpus}) != 1:
            raise ValueError("gpus: every node of the pool needs the same number of GPUs")
        self.slots = len(self.gpus[0])
        leaf = [(topology or {}).get(name) for name in nodes]
        self.leaf_members: dict[str, list[int]] = {}
        for node, name in enumerate(leaf):
            if name is not None:
                self.leaf_members.setdefault(name, []).append(node)
        self.repeats = repeats
        self.evidence = SearchEvidence(len(nodes), leaf, paths == "mesh")
        self.history: list[SearchRecord] = []
        # Convictions: nodes and GPUs, paths, switches (True: inside the leaf too).
        self.bad: dict[int, list[SearchFinding]] = {}  # the node itself, or GPUs of it
        self.bad_paths: dict[tuple[int, int], SearchFinding] = {}
        self.bad_leaves: dict[str, tuple[bool, SearchFinding]] = {}
        everything = tuple(range(len(nodes)))
        trigger = GroupTest(0, 0, self.names, None, 1, "trigger")
        self.trigger = SearchRecord(trigger, everything, GroupTestResult("fail", reason="the group missed its floor"))
        self.claims: list[SearchRecord] = [self.trigger]

    def usable(self, node: int) -> bool:
        return node not in self.bad and self.evidence.leaf[node] not in self.bad_leaves

    def set_aside(self, node: int) -> bool:
        """Return True if nothing could be measured on the node with several good partners."""
        good = [p for p in self.evidence.unknown[node] if self.evidence.passes[p]]
        return not self.evidence.passes[node] and len(good) >= GIVE_UP

    def explained(self, record: SearchRecord) -> bool:
        if any(node in self.bad for node in record.nodes):
            return True
        leaves = self.evidence.leaves(record.nodes)
        for name in leaves & set(self.bad_leaves):
            if len(leaves) > 1 or self.bad_leaves[name][0]:
                return True
        if not self.bad_paths:
            return False
        if self.evidence.mesh:
            members = set(record.nodes)
            return any(a in members and b in members for a, b in self.bad_paths)
        return any((min(e), max(e)) in self.bad_paths for e in self.evidence.edges(record.nodes))

    def suspects(self, record: SearchRecord) -> list[int]:
        return [n for n in record.nodes if not self.evidence.cleared(n) and self.usable(n) and not self.set_aside(n)]

    def open_claims(self) -> list[SearchRecord]:
        """Claims that still ask for tests, the smallest first."""
        alive = [
            c for c in self.claims if not c.settled and not self.explained(c) and (c.accuses or self.suspects(c))
        ]
        if unproven := self.unproven(alive):
            names = tuple(self.names[n] for n in unproven)
            never = GroupTest(0, 0, names, None, 0, "unproven")
            alive.append(SearchRecord(never, tuple(unproven), GroupTestResult("unknown", reason="never passed")))
        return sorted(alive, key=lambda c: (len(c.nodes), len(self.suspects(c))))

    def unproven(self, claims: Iterable[SearchRecord]) -> list[int]:
        """Return the nodes that never passed and are in no open claim: the explanation of their claim does not clear them."""
        covered = {n for c in claims for n in self.suspects(c)}
        return [n for n in self.suspects(self.trigger) if n not in covered]

    def is_end(self, claims: list[SearchRecord]) -> bool:
        return not any(self.suspects(c) for c in claims)

    def beside_open_path(self, node: int) -> bool:
        """A path to a neighbour in the pool's ring is still to be proven: better idle, to prove it, than a partner."""
        size = len(self.names)
        return not all(self.evidence.path_good(node, (node + step) % size) for step in (1, -1))

    def accusers_needed(self, node: int) -> int:
        """Return how many good partners must speak against a node: three, as two bad paths may meet at a healthy one.

        Two suffice if some of its GPUs fail alone and others pass, and if no other partner is left.
        """
        if len(set(self.evidence.split(node).values())) > 1:
            return WITNESSES - 1
        remaining = (p for p, usable in enumerate(map(self.usable, range(len(self.names)))) if usable and p != node)
        has_candidates = any(p not in self.evidence.tried[node] and self.evidence.cleared(p) for p in remaining)
        return WITNESSES if has_candidates else WITNESSES - 1

    def missing_slots(self, node: int) -> list[int]:
        if self.slots < 2 or len(self.evidence.unknown[node]) >= GIVE_UP:
            return []
        return [slot for slot in range(self.slots) if slot not in self.evidence.split(node)]

    def thin_slots(self, node: int) -> list[int]:
        """Bad slots that fewer than two good partners speak against, alone or with their node."""
        evidence = self.evidence
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

    def witnesses(self, leaf: str) -> set[int]:
        """Nodes of a leaf that failed with good partners on other, good leaves."""
        evidence = self.evidence
        return {
            n
            for n in self.leaf_members[leaf]
            if any(evidence.leaf[p] not in (None, leaf) for p in evidence.accusers(n))
        }

    def unlike(self, path: tuple[int, ...], end: int) -> bool:
        """A path fails unlike the other tests of its end, which may itself fail now and then (Fisher's exact test)."""
        over, elsewhere = [0, 0], [0, 0]
        for r in self.history:
            if end in r.nodes and r.test.gpus is None and r.result.floor is not None and not self._explained_but(r, path):
                of = over if set(path) <= set(r.nodes) else elsewhere
                hang = 3 if r.result.outcome == "hang" else 0  # which is no scatter: as much as three low values
                of[0] += hang + sum(value < r.result.floor for value in r.result.values)
                of[1] += hang + len(r.result.values)
        return over[0] > 0 and chance(over[0], over[1], elsewhere[0], elsewhere[1]) <= END_ALPHA

    def _explained_but(self, record: SearchRecord, path: tuple[int, ...]) -> bool:
        """Return True if a failed test is explained by convictions other than this path."""
        return record.accuses and not set(path) <= set(record.nodes) and self.explained(record)

    def failed_over(self, a: int, b: int) -> int:
        """Return how many tests over the path between two nodes failed."""
        both, mesh = {a, b}, self.evidence.mesh
        return sum(
            r.accuses and both <= set(r.nodes) and (mesh or both in map(set, self.evidence.edges(r.nodes))) for r in self.history
        )

    def subject(self, kind: str, nodes: Sequence[int]) -> dict[str, object]:
        names = sorted(self.names[n] for n in nodes)
        return {"kind": kind, "id": "|".join(names), "members": names}

    def told(self, records: Iterable[SearchRecord]) -> tuple[dict[str, object], ...]:
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
