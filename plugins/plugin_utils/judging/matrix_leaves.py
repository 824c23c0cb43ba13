# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Leaf switches in a matrix (judging/matrix.py): switches that are bad with all others, and bad blocks between two.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise.search import LEAF_WITNESSES
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_chance import ALPHA, Chances, as_others
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_findings import Findings, together
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_repeats import SUSPECT_TESTS, Confidence, Repeats
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_table import PairTable, meet, pair_of, whole

BLOCK_SHARE = 3 / 4  # of the cells between two leaves, from which on the block is bad


class Leaves:
    """The suspicion of leaf switches and of the ways between two, and what becomes of it."""

    def __init__(self, table: PairTable, chances: Chances, repeats: Repeats, findings: Findings) -> None:
        self.table, self.chances, self.repeats, self.findings = table, chances, repeats, findings

    def suspected(self) -> tuple[set[str], set[tuple[str, str]]]:
        """Return the leaves that are bad with every other leaf, and single bad blocks between leaves that are not."""
        total: Counter[tuple[str, str]] = Counter()
        wrong: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
        for pair, state in self.table.state.items():
            block = self.table.block_of(pair)
            if block is not None and state != "unknown":
                total[block] += 1
                if state == "bad":
                    wrong[block].add(pair)
        bad = {block for block, count in total.items() if len(wrong[block]) >= BLOCK_SHARE * count}
        switches: set[str] = set()
        for leaf, ports in self.table.leaf_ports.items():
            leaf_blocks = {block for block in total if leaf in block}
            bad_ports = {p for block in leaf_blocks for pair in wrong[block] for p in pair if self.table.leaf[p] == leaf}
            if len(leaf_blocks) >= 2 and leaf_blocks <= bad and self.table.many(bad_ports, min(LEAF_WITNESSES, len(ports))):
                switches.add(leaf)
        if switches >= set(self.table.leaf_ports):
            switches = set()  # no good leaf is left to tell them by
        blocks = {block for block in bad if not switches & set(block) and self._is_block(block)}
        return switches, blocks

    def _sides(self, block: tuple[str, str]) -> tuple[list[str], list[str]]:
        """The ports of both leaves that have bad cells in a block and are mostly good outside it."""
        sides: list[list[str]] = []
        for leaf, far_leaf in (block, block[::-1]):
            far_ports = set(self.table.leaf_ports[far_leaf])
            sides.append(
                [
                    p
                    for p in self.table.leaf_ports[leaf]
                    if self.table.bad[p] & far_ports and len(self.table.good[p] - far_ports) > len(self.table.bad[p] - far_ports)
                ]
            )
        return sides[0], sides[1]

    def _is_block(self, block: tuple[str, str]) -> bool:
        left_ports, right_ports = self._sides(block)
        states = [self.table.state.get(pair_of(a, b), "unknown") for a in left_ports for b in right_ports]
        measured = len(states) - states.count("unknown")
        two_apart = any(
            {a, b}.isdisjoint(pair) and a in left_ports and b in right_ports
            for pair in itertools.product(left_ports, right_ports)
            if self.table.state.get(pair_of(*pair)) == "bad"
            for a in left_ports
            for b in self.table.bad[a]
        )
        return (
            self.table.many(set(left_ports), 2)
            and self.table.many(set(right_ports), 2)
            and two_apart
            and states.count("bad") >= BLOCK_SHARE * measured
        )

    def judge_switch(self, leaf: str, inside: set[str]) -> None:
        ports = self.table.leaf_ports[leaf]
        needed = min(LEAF_WITNESSES, len(ports))
        states: list[Confidence] = []
        for port in sorted(ports, key=lambda p: (-len(self.table.again_bad[p]), p)):
            if len(states) < needed:
                states.append(self.repeats.row(port, inside, across=True))
        cells = [(p, o) for p in ports for o in sorted(self.table.bad[p] - inside)]
        passing = sum(len(self.table.good[p] - set(ports)) for p in ports)
        within = sum(len(self.table.good[p] & set(ports)) for p in ports) // 2
        reason = (
            f"bad block: {len(cells)} cells between its {len(set(map(whole, ports)))} ports and ports on other leaves miss the floor, "
            f"{passing} meet it; within the leaf {within} meet it"
        )
        few = [("nic", p) for p in ports] if len(ports) <= LEAF_WITNESSES else []
        self.findings.add("switch", ports, together(states), reason, cells=cells, alternatives=few, name=leaf, behind=ports)

    def judge_block(self, block: tuple[str, str], inside: set[str]) -> None:
        """All is bad between two leaves that are good with others: four ports again, and each leaf with a third."""
        a, b = block
        cells = [pair for pair, state in sorted(self.table.state.items()) if state == "bad" and self.table.block_of(pair) == block]
        reason = f"bad block: {len(cells)} cells between the leaves {a} and {b} miss the floor"
        if set(self.table.leaf_ports) == set(block):
            either = [("switch", a), ("switch", b), ("switch", f"{a}|{b}")]
            reason += "; no third leaf says which of the two it is"
            self.findings.add("group", block, "unresolved", reason, cells=cells, alternatives=either)
            return
        left_ports, right_ports = self._sides(block)
        repeated = {p for pair in cells if pair[1] in self.table.again_bad[pair[0]] for p in pair}
        answers: list[bool] = []
        tests = [cell for pair in self.table.tests if self.table.block_of(pair) == block for cell in self.table.tests[pair]]
        depths = [self.table.depth(cell) for cell in tests if self.table.judge(cell) != "unknown"]
        mildest = max(depth for depth in depths if depth < 1)
        wrong, every = self.table.repeated(tests)
        asked_for = sum(cell.again for cell in tests)
        blocks = len({self.table.block_of(pair) for pair in self.table.tests})
        met: dict[str, list[bool]] = {}
        tried: dict[str, Counter[str]] = {}
        for leaf in block:
            beyond = [pair for pair in self.table.tests if self.table.third(pair, leaf, block)]
            met[leaf] = [depth < 1 for pair in beyond if not inside & set(pair) for depth in self.table.depths[pair]]
            tried[leaf] = Counter(p for pair in beyond for cell in self.table.tests[pair] if cell.again for p in pair)

        def alike(extra_bad: int, extra_good: int) -> list[str]:
            """The leaves from whose tests with third ones those of the block do not differ, after so many more bad and good ones."""
            of = {
                leaf: (wrong + extra_bad, every + extra_bad, sum(results), len(results) + extra_good, blocks)
                for leaf, results in met.items()
            }
            return [leaf for leaf in block if as_others(*of[leaf]) > ALPHA]

        left_over = [SUSPECT_TESTS - sum(tried[leaf][p] for p in self.table.leaf_ports[leaf]) for leaf in block]
        plans: list[tuple[int, int]] = []
        for extra in range(SUSPECT_TESTS - asked_for + 1):
            if self.chances.by_chance(sum(depth < 1 for depth in depths) + extra, len(depths) + extra, mildest, blocks) <= ALPHA:
                plans += [(extra, good_more) for good_more in range(max(0, min(left_over)) + 1) if not alike(extra, good_more)][:1]
        tests_needed, third_tests = min(plans, key=lambda plan: plan[0] + 2 * plan[1], default=(0, 0))
        tests_needed = max(tests_needed, 0 if len(repeated) >= 4 else min(2, SUSPECT_TESTS - asked_for))
        # Cells that were not measured yet first: two bad paths alone would be good there. Then one after the other, no port twice in a row.
        fit = [
            pair
            for pair in itertools.product(left_ports, right_ports)
            if meet(*pair) and self.table.rails[pair[0]] & self.table.rails[pair[1]]
        ]
        use: Counter[str] = Counter()
        for _unused in range(tests_needed if fit else 0):
            pair = min(fit, key=lambda pair: (use[pair[0]] + use[pair[1]], pair_of(*pair) in self.table.state, pair))
            use.update(pair)
            answers.append(self.repeats.ask(*pair))
        proven = True
        for leaf, far_leaf, side, left_to_ask in ((a, b, left_ports, left_over[0]), (b, a, right_ports, left_over[1])):
            third = inside | set(self.table.leaf_ports[far_leaf])
            proven_end = any(self.table.leaf[o] not in block for p in self.table.leaf_ports[leaf] for o in self.table.again_good[p])
            proven = proven and proven_end
            for _unused in range(min(max(third_tests, int(not proven_end)), left_to_ask)):
                best = min(side, key=lambda p: (tried[leaf][p], -len(self.table.good[p]), p))
                tried[leaf][best] += 1
                answers += [self.repeats.ask(best, partner) for partner in self.repeats.partners(best, 1, third, across=True)]
        reason += "; both leaves meet it with others: the path between the two switches"
        state: Confidence = "suspected" if any(answers) else "unresolved"
        same = alike(0, 0)  # a leaf that fails some of its tests with all others is no bad block
        if len(repeated) >= 4 and proven and (0, 0) in plans:
            state = "convicted"
        self.findings.add("switch", block, state, reason, cells=cells, alternatives=[("switch", leaf) for leaf in same])
