# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Single paths in a matrix (judging/matrix.py): bad cells between two ports that are good elsewhere.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_chance import ALPHA, ENOUGH_PASSES, Chances, as_others
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_findings import Findings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_repeats import SUSPECT_TESTS, Repeats
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_table import SENDING, PairTable, pair_of, role, whole


class Paths:
    """The bad paths of a table, and what becomes of the suspicion of each. `suspects`: ports that explain bad cells by themselves."""

    def __init__(self, table: PairTable, chances: Chances, repeats: Repeats, findings: Findings, suspects: set[str]) -> None:
        self.table, self.chances, self.repeats, self.findings, self.suspects = table, chances, repeats, findings, suspects
        self.suspected = 0

    def judge(self, paths: Collection[tuple[str, str]]) -> None:
        self.suspected = len(paths)
        for a, b in sorted(paths):
            self._judge_path(a, b)

    def _judge_path(self, a: str, b: str) -> None:
        """A bad cell between two ports that are no bad rows."""
        passes = max(self.table.again_good[a][b], self.table.again_good[b][a])
        misses = "it misses the floor"
        if role(a):
            misses += f" where {whole(a if role(a) == SENDING else b)} sends"
        ends = {end: sorted(p for p in self.table.again_good[end] if p not in (a, b) and p not in self.suspects) for end in (a, b)}
        needs = self._needs(a, b)
        if needs and not any(needs.values()):
            reason = f"bad cell: {misses} again; {a} meets it again with {ends[a][0]}, {b} with {ends[b][0]}"
            evidence_cells = [(a, b), (a, ends[a][0]), (b, ends[b][0])]
            # Several bad paths of one port may as well be a port that flaps and had luck.
            alternatives = [("nic", end) for end in (a, b) if len(self.table.bad[end] - self.suspects) > 2]
            alternatives += [("switch", name) for name in self._flapping_leaves((a, b))]
            self.findings.add("pair", (a, b), "convicted", reason, cells=evidence_cells, alternatives=alternatives)
            return
        if b not in self.table.again_bad[a] and passes >= ENOUGH_PASSES:
            reason = f"missed the floor once and met it in {passes} tests later: not reproduced, not cleared"
            self.findings.add("pair", (a, b), "unresolved", reason, cells=[(a, b)])
            return
        if needs is None:  # it cannot be shown: as many tests as a link that flaps needs to show itself
            repeats = sum(cell.again for cell in self.table.tests[pair_of(a, b)])
            needs = {"": max(0, ENOUGH_PASSES - repeats), **dict.fromkeys((a, b), int(not repeats))}
        answers = [self.repeats.ask(a, b) for _unused in range(needs[""])]
        for end, far_end in ((a, b), (b, a)):
            # On the other's leaf, so that a bad path between the two switches shows too.
            partners = self.repeats.partners(end, needs[end], self.suspects, avoid=[far_end], near=far_end)
            answers += [self.repeats.ask(end, p) for p in itertools.islice(itertools.cycle(partners), needs[end])]
        if any(answers):
            self.findings.add("pair", (a, b), "suspected", f"bad cell: {misses}", cells=[(a, b)])
            return
        depths = self.table.depths[pair_of(a, b)]
        reason = f"{misses} in {sum(depth < 1 for depth in depths)} of {len(depths)} tests, which does not tell it from its ends or chance"
        self.findings.add("pair", (a, b), "unresolved", reason, cells=[(a, b)], alternatives=[("nic", a), ("nic", b)])

    def _flapping_leaves(self, path: tuple[str, str]) -> list[str]:
        """Return alternative explanations for a bad path between two leaves: the way between their switches, or one of them, if other
        cells fail too."""
        block = self.table.block_of(path)
        if not block:
            return []
        bad, tests = self.table.repeated(self.table.tests[pair_of(*path)])
        places = {"|".join(block): set(block), block[0]: {block[0]}, block[1]: {block[1]}}
        met: dict[str, list[bool]] = {name: [] for name in places}
        for pair in self.table.tests:
            if (
                {*block} & {*(self.table.block_of(pair) or ())}
                and not {*path, *self.suspects} & {*pair}
                and not self.table.always_bad(pair)
            ):
                for name, leaves in places.items():
                    if leaves <= {*(self.table.block_of(pair) or ())}:
                        met[name] += [depth < 1 for depth in self.table.depths[pair][:1]]
        alike = {name for name, results in met.items() if as_others(bad, tests, sum(results), len(results), self.suspected) > ALPHA}
        return [name for name in places if name in alike and any(met[name])]

    def _needs(self, a: str, b: str) -> dict[str, int] | None:
        """Return how many more tests of the path (``), and of each of its ends with others, convict it if they come out as before.

        The fewest one after the other; None where SUSPECT_TESTS do not suffice.
        """
        tests, depths = self.table.tests[pair_of(a, b)], self.table.depths[pair_of(a, b)]
        first_test = int(not tests[0].again)
        repeats = sum(cell.again for cell in tests)
        bad_again, all_again = self.table.repeated(tests)
        bad = sum(depth < 1 for depth in depths)
        mildest = max(depth for depth in depths if depth < 1)
        met: dict[str, tuple[int, int, int]] = {}
        for end, far_end in ((a, b), (b, a)):
            partners = [o for o in self.table.bad[end] | self.table.good[end] if o != far_end and o not in self.suspects]
            partners = [o for o in partners if pair_of(end, o) not in self.chances.explained]
            depths_of_end = [d for o in partners if not self.table.always_bad(pair_of(end, o)) for d in self.table.depths[pair_of(end, o)]]
            proven_end = any(o in self.table.again_good[end] for o in partners)
            met[end] = int(not proven_end), sum(d < 1 for d in depths_of_end), len(depths_of_end)
        plans: list[dict[str, int]] = []
        for extra in range(int(b not in self.table.again_bad[a]), SUSPECT_TESTS - repeats + 1):
            extra_bad = extra * bad // len(depths)
            if self.chances.by_chance(bad + extra_bad, len(depths) + extra, mildest, len(self.table.state), first_test) > ALPHA:
                continue
            plan: dict[str, int] = {"": extra}
            k, n = bad_again + extra_bad, all_again + extra
            for end, (minimum, wrong, tests_of_end) in met.items():
                sure = (m for m in range(minimum, SUSPECT_TESTS) if as_others(k, n, wrong, tests_of_end + m, self.suspected) <= ALPHA)
                plan[end] = next(sure, SUSPECT_TESTS)
            if max(plan.values()) < SUSPECT_TESTS:
                plans.append(plan)
        return min(plans, key=lambda plan: plan[""] + max(plan[a], plan[b]), default=None)
