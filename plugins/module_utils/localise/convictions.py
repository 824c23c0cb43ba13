# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Convictions of nodes and paths, from the evidence of a search (search.py).

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import math

from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise.pool import Pool
from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise.tests import (
    LEAF_WITNESSES,
    WITNESSES,
    SearchFinding,
    SearchRecord,
)


class Convictions:
    """Convicts nodes, GPUs, paths and switches of a pool, and takes convictions back."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def revise(self) -> bool:
        """Convict what the evidence allows, or take back what it no longer does. Return True if anything changed."""
        evidence = self.pool.evidence
        if self._take_back():
            return True
        for leaf in self.pool.leaf_members:
            if leaf not in evidence.crossed and leaf not in self.pool.bad_leaves and self._convict_switch(leaf):
                return True
        for node, failed in enumerate(evidence.failed):
            if failed and self.pool.usable(node) and not evidence.cleared(node) and self._convict_node(node):
                evidence.guilty.add(node)
                return True
        return any(c.is_pair and c.accuses and not c.settled and self._convict_path(c) for c in self.pool.claims)

    def _take_back(self) -> bool:
        """Take back a conviction whose witness is convicted since, or whose switch was crossed. Return True if there was one."""
        evidence = self.pool.evidence
        for node in self.pool.bad:
            standing = [p for p in evidence.failed[node] if not evidence.excused(node, p)]
            void = [slot for slot, (good, p) in evidence.slots[node].items() if not good and p in evidence.guilty]
            if len(standing) < 2 or void:
                for slot in void:
                    del evidence.slots[node][slot]
                del self.pool.bad[node]
                evidence.guilty.discard(node)
                return True
        for path in self.pool.bad_paths:
            if evidence.guilty & set(path):
                del self.pool.bad_paths[path]
                evidence.bad_paths.discard(path)
                return True
        for leaf in self.pool.bad_leaves:
            if leaf in evidence.crossed:
                del self.pool.bad_leaves[leaf]
                return True
        return False

    def _convict_switch(self, leaf: str) -> bool:
        members = self.pool.leaf_members[leaf]
        witnesses = self.pool.witnesses(leaf)
        partners = {p for n in witnesses for p in self.pool.evidence.accusers(n) if self.pool.evidence.leaf[p] != leaf}
        if len(members) < 2 or len(witnesses) < min(LEAF_WITNESSES, len(members)) or len(partners) < 2:
            return False
        inside = leaf not in self.pool.evidence.inside
        # All nodes of a leaf could be bad, unless they pass within it; bad GPUs are ruled out slot by slot.
        few = inside and len(members) <= LEAF_WITNESSES
        if few and any(self.pool.missing_slots(n) for n in witnesses):
            return False
        reason = (
            f"{len(witnesses)} of its {len(members)} nodes fail with good partners on other leaves and none passes; "
            + ("nothing passes within the leaf either" if inside else "within the leaf they pass")
        )
        evidence = [
            r for n in witnesses for p, records in self.pool.evidence.failed[n].items() if p in partners for r in records
        ]
        alternatives = [self.pool.subject("node", (n,)) for n in members] if few else []
        names = tuple(self.pool.names[n] for n in members)
        finding = SearchFinding("switch", leaf, names, "convicted", reason, self.pool.told(evidence), tuple(alternatives))
        self.pool.bad_leaves[leaf] = (inside, finding)
        return True

    def _convict_node(self, node: int) -> bool:
        evidence = self.pool.evidence
        accusers = evidence.accusers(node)
        leaf = evidence.leaf[node]
        if len(accusers) < self.pool.accusers_needed(node) or self.pool.missing_slots(node):
            return False
        only_node = leaf is not None and len(self.pool.leaf_members[leaf]) == 1
        if leaf is not None and not only_node and leaf not in evidence.crossed:
            mates = [p for p in accusers if evidence.leaf[p] == leaf]
            if leaf not in evidence.inside or len(mates) < 2:
                return False
        slots = evidence.split(node)
        bad = [slot for slot, good in slots.items() if not good]
        records = [r for p in accusers for r in evidence.failed[node][p]]
        partners = ", ".join(self.pool.names[p] for p in accusers)
        name = self.pool.names[node]
        told_apart = len(slots) == self.pool.slots
        if bad and told_apart and len(bad) < self.pool.slots:
            if self.pool.thin_slots(node):
                return False
            passing = self.pool.slots - len(bad)
            # A fault of the node that comes and goes strikes in the tests of several GPUs, and spares the others.
            alternatives = [self.pool.subject("node", (node,))] if len(bad) > 1 else []
            self.pool.bad[node] = [
                SearchFinding(
                    "gpu",
                    f"{name}/gpu/{self.pool.gpus[node][slot]}",
                    (name,),
                    "convicted",
                    f"the node fails with the good partners {partners}; "
                    f"measured alone this GPU fails, {passing} siblings pass",
                    self.pool.told([r for r in records if r.test.gpus is None or slot in r.test.gpus]),
                    tuple(alternatives),
                )
                for slot in sorted(bad)
            ]
            return True
        alternatives = []
        if not told_apart or self.pool.slots == 1 or (not bad and any(map(_comes_and_goes, records))):
            alternatives += [{"kind": "gpu", "id": f"{name}/gpu/{uuid}", "members": [name]} for uuid in self.pool.gpus[node]]
        if only_node and leaf is not None:
            alternatives.append({"kind": "switch", "id": leaf, "members": [name]})
        if len(accusers) < WITNESSES:
            alternatives += [self.pool.subject("pair", (node, p)) for p in accusers]
        how = "it fails with the good partners " + partners
        if told_apart and self.pool.slots > 1:
            how += ", with every GPU alone too" if bad else "; each GPU alone passes, all together do not"
        self.pool.bad[node] = [SearchFinding("node", name, (name,), "convicted", how, self.pool.told(records), tuple(alternatives))]
        return True

    def _convict_path(self, claim: SearchRecord) -> bool:
        evidence = self.pool.evidence
        a, b = sorted(claim.nodes)
        if (a, b) in self.pool.bad_paths or evidence.path_good(a, b) or self.pool.explained(claim):
            return False
        for end, opposite in ((a, b), (b, a)):
            if not evidence.cleared(end) or not evidence.passed[end] - {opposite}:
                return False
        leaves = evidence.leaves((a, b))
        if (len(leaves) > 1 and not leaves <= evidence.crossed) or self.pool.failed_over(a, b) < 2:
            return False
        records = [r for r in self.pool.history if r.is_pair and {a, b} & set(r.nodes) and r.result.outcome != "unknown"]
        with_a = min(evidence.passed[a] - {b})
        with_b = min(evidence.passed[b] - {a})
        names = tuple(sorted((self.pool.names[a], self.pool.names[b])))
        reason = (
            f"they fail together; {self.pool.names[a]} passes with {self.pool.names[with_a]}, "
            f"{self.pool.names[b]} with {self.pool.names[with_b]}"
        )
        # An end whose fault comes and goes may have passed with all others by chance.
        alternatives = [self.pool.subject("node", (end,)) for end in (a, b)] if any(map(_comes_and_goes, evidence.failed[a][b])) else []
        evidence.bad_paths.add((a, b))
        self.pool.bad_paths[a, b] = SearchFinding(
            "pair", "|".join(names), names, "convicted", reason, self.pool.told(records), tuple(alternatives)
        )
        return True


def _comes_and_goes(record: SearchRecord) -> bool:
    """Return True if a failed test also has a repetition that reached the floor, before it hung or beside the bad ones."""
    result = record.result
    return record.accuses and max(result.values, default=-math.inf) >= (result.floor or 0)
