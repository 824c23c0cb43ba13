# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a matrix of pair tests: who is bad, the node, the port, the path or the switch.

Pure. A cell is one test between two ports. What speaks for what:

    a bad row      the port; the same node's rows on all its rails: the node
    a bad cell     the path between two ports that are good elsewhere
    a bad block    the path between two leaf switches; all blocks of one leaf: the switch

The matrix alone convicts nobody: `Diagnosis.again` names the tests that are still needed, with other good partners, and
their cells (`again=True`) are added to the matrix before it is read once more:

    diagnosis = diagnose_matrix(cells)
    while diagnosis.again:
        cells += [measure(a, b, rail) for a, b, rail in diagnosis.again]      # again=True
        diagnosis = diagnose_matrix(cells)

Where a cell is `directed` its first port sends and its second receives, and a port is judged in both roles by themselves, as if
they were two: what is bad one way only is found as surely as what is bad both ways, and the finding says which end sends.

A cell between ports of different rates is held to the slower one's: a good number says nothing of the faster port, which is good
only where it met one as fast as itself.

A port is convicted when it misses the floor again with two different good partners, a path when it misses it again
while both ends meet it again with others, and only where chance gives so many bad tests hardly ever:

    p = C * (n - k + 1) * P(Binomial(n, q) >= k) <= ALPHA

k of its n tests were bad, the mildest of them at a share t of its floor; C is how many ports or paths there are. q is how often a
test of a healthy subject comes out at t or below: at least NOISE, or as often as those first tests of others that nobody else is to
blame for, with two standard errors: (b + 2 sqrt(b)) / m for b of m. So one diagnosis convicts an innocent by the scatter of its tests
with a chance of at most ALPHA (1 + ln n) for each kind of subject, whatever their distribution. A port's tests count without those of
its two worst partners (of one, where it has fewer than six).

What comes and goes elsewhere must not be taken for a fault of its own. A path must besides differ from the other tests of both of its
ends, a block from those of both leaves with third ones (Fisher's exact test over the tests that were asked for, as whatever is suspected
was bad before; times the number of paths suspected or of blocks, and n - k + 1; at most ALPHA): a port that fails some of its tests is no
bad path. Where a path or a port is not told from a leaf switch, or from the way between two, in that manner, the finding names these.
What does not reach this, after as many tests as are worth it, is unresolved.

A cell that was not measured is neither good nor bad: a port without a good cell is unresolved. One bad test makes a cell bad, however
often it was good: what fails half of its tests stays bad. What lies behind a bad port cannot be told:
`SearchFinding.not_looked_at` lists it.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal

from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise import END_ALPHA, LEAF_WITNESSES, NOISE, SearchFinding
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_chance import (
    ALPHA,
    ENOUGH_PASSES,
    Chances,
    against,
    as_others,
    peel,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_repeats import SUSPECT_TESTS, Confidence, Repeats
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_table import (
    SENDING,
    TOLD,
    Cell,
    PairTable,
    meet,
    pair_of,
    role,
    whole,
)

BLOCK_SHARE = 3 / 4  # of the cells between two leaves, from which on the block is bad
HEDGED_PATHS = 4  # so few bad paths of a port are named beside it: they may as well meet at a healthy one


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """`findings`, and the tests (port, port, rail) to run before the next reading, the port that sends first where cells are
    directed; one may be listed more than once."""

    findings: tuple[SearchFinding, ...]
    again: tuple[tuple[str, str, str], ...]

    @property
    def clean(self) -> bool:
        """Every cell was measured and met its floor."""
        return not self.findings


def diagnose_matrix(
    cells: Iterable[Cell],
    *,
    better: Literal["higher", "lower"] = "higher",
    topology: Mapping[str, str] | None = None,
    unit: str = "Gb/s",
) -> Diagnosis:
    """Reads each cell against its own floor, a limit where `better` is lower (latency).

    `topology`: leaf switch by port id or by node. Raises ValueError for a cell of one port, or a floor that is no number.
    """
    return _Reading(PairTable(list(cells), better, topology or {}, unit)).diagnose()


class _Reading:
    """One reading of a matrix: from its table to findings."""

    def __init__(self, table: PairTable) -> None:
        self.table = table
        self.chances = Chances(table)
        self.repeats = Repeats(table, self.chances)
        self.suspected = 0  # paths
        self.findings: list[SearchFinding] = []

    def diagnose(self) -> Diagnosis:
        switches, blocks = self._leaves()
        inside = {port for leaf in switches for port in self.table.leaf_ports[leaf]}
        explained = self.chances.explained = {pair for pair in self.table.state if self.table.block_of(pair) in blocks}
        tests = {port: self.chances.tests_of(port, inside) for port in self.table.ports if port not in inside}
        usual = statistics.median([bad / max(1, every) for bad, every in map(against, tests.values())] or [0.0])
        rows = peel(tests, max(NOISE, 2 * usual))
        suspects = rows | inside
        self.chances.take_others(suspects)
        for leaf in sorted(switches):
            self._switch(leaf, inside)
        for block in sorted(blocks):
            self._block(block, inside)
        self._rows(rows, suspects)
        paths = [pair for pair, state in self.table.state.items() if state == "bad" and not suspects & set(pair) and pair not in explained]
        self.suspected = len(paths)
        for a, b in sorted(paths):
            self._path(a, b, suspects)
        self._unmeasured(suspects)
        return Diagnosis(_merged(self.findings), tuple(self.repeats.requests))

    def _leaves(self) -> tuple[set[str], set[tuple[str, str]]]:
        """Leaves that are bad with every other leaf, and single bad blocks between leaves that are not."""
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

    def _find(
        self,
        kind: Literal["node", "nic", "pair", "switch", "group"],
        members: Iterable[str],
        confidence: Confidence,
        reason: str,
        *,
        cells: Iterable[tuple[str, str]],
        alternatives: Iterable[tuple[str, str]] = (),
        name: str = "",
        behind: Iterable[str] = (),
    ) -> None:
        """Takes down a finding; `behind`: ports whose other cells say nothing of anybody else as long as it is bad."""
        members = tuple(dict.fromkeys(map(whole, members)))
        alike: list[dict[str, object]] = [
            {"kind": kind, "id": key, "members": key.split("|")}
            for kind, key in dict.fromkeys((kind, whole(key)) for kind, key in alternatives)
        ]
        evidence = self.table.evidence(cells)
        hidden = {"|".join(sorted(map(whole, (p, o)))) for p in behind for o in self.table.bad[p] | self.table.unknown[p]}
        self.findings.append(
            SearchFinding(kind, name or "|".join(members), members, confidence, reason, evidence, tuple(alike), tuple(sorted(hidden)))
        )

    def _switch(self, leaf: str, inside: set[str]) -> None:
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
        self._find("switch", ports, _together(states), reason, cells=cells, alternatives=few, name=leaf, behind=ports)

    def _block(self, block: tuple[str, str], inside: set[str]) -> None:
        """All is bad between two leaves that are good with others: four ports again, and each leaf with a third."""
        a, b = block
        cells = [pair for pair, state in sorted(self.table.state.items()) if state == "bad" and self.table.block_of(pair) == block]
        reason = f"bad block: {len(cells)} cells between the leaves {a} and {b} miss the floor"
        if set(self.table.leaf_ports) == set(block):
            either = [("switch", a), ("switch", b), ("switch", f"{a}|{b}")]
            reason += "; no third leaf says which of the two it is"
            self._find("group", block, "unresolved", reason, cells=cells, alternatives=either)
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
        self._find("switch", block, state, reason, cells=cells, alternatives=[("switch", leaf) for leaf in same])

    def _rows(self, rows: set[str], suspects: set[str]) -> None:
        states = {port: self.repeats.row(port, suspects) for port in sorted(rows)}
        # What fails now and then on half of a leaf's ports may as well be its switch.
        often = rows | {port for port, peers in self.table.bad.items() if len(peers - suspects) > 1}
        half_bad = {leaf for leaf, ports in self.table.leaf_ports.items() if self.table.many(often & {*ports}, (len(ports) + 1) // 2)}
        for node, ports in sorted(self.table.node_ports.items()):
            bad = [port for port in ports if port in rows]
            if not bad:
                continue
            roles: dict[str, list[str]] = defaultdict(list)
            for port in bad:
                roles[whole(port)].append(port)
            sure = {port: _either([states[p] for p in role_ports]) for port, role_ports in roles.items()}
            every = set(map(whole, ports))
            if len(roles) == len(every) > 1:
                cells = [(p, o) for p in bad for o in self.table.bad[p] if o not in suspects]
                reason = f"bad rows on all its {len(every)} ports: {self._count(bad, suspects)}"
                self._find("node", [node], _together(list(sure.values())), reason, cells=cells, behind=bad)
                continue
            for port, role_ports in roles.items():
                siblings = {whole(p) for p in ports if self.table.good[p]} - set(roles)
                reason = f"bad row: {self._count(role_ports, suspects)}; "
                reason += (
                    f"{len(siblings)} other ports of the node meet it" if siblings else "no other port of it is good"
                )
                cells = [(p, o) for p in role_ports for o in self.table.bad[p] if o not in suspects]
                alternatives = [] if siblings else [("node", node)]
                alternatives += [("switch", leaf) for leaf in {self.table.leaf[p] for p in role_ports} if leaf in half_bad]
                alternatives += [("switch", name) for p in role_ports for name in self._leaves_like(p, suspects)]
                alternatives += self._paths_like(role_ports, suspects)
                self._find("nic", [port], sure[port], reason, cells=cells, alternatives=alternatives, behind=role_ports)

    def _paths_like(self, roles: list[str], suspects: set[str]) -> list[tuple[str, str]]:
        """Return the paths of a port, given by its roles, that fail most of their tests, if these are so few that they may as well be bad
        by themselves and meet at a healthy port."""
        pairs = [(p, o) for p in roles for o in self.table.bad[p] - suspects]
        paths = {"|".join(sorted(map(whole, pair))) for pair in pairs if statistics.median(self.table.depths[pair_of(*pair)]) < 1}
        return [("pair", path) for path in sorted(paths)] if len(paths) <= HEDGED_PATHS else []

    def _leaves_like(self, port: str, suspects: set[str]) -> list[str]:
        """Return alternative explanations for a bad port: its leaf switch, or the way to the only leaf with bad partners.

        Other ports of its leaf fail too often there, those apart that are never good and so are bad themselves, or were tried too seldom.
        """
        own_leaf = self.table.leaf[port]
        away = {
            o: self.table.leaf[o] or ""
            for o in self.table.bad[port] | self.table.good[port]
            if o not in suspects and self.table.leaf[o] not in (None, own_leaf)
        }
        bad_leaves = {leaf for peer, leaf in away.items() if peer in self.table.bad[port]}
        if own_leaf is None or not bad_leaves:
            return []
        neighbours = [p for p in self.table.leaf_ports[own_leaf] if p != port and self.table.good[p] - suspects]
        explanations = [(own_leaf, set(away.values()) | bad_leaves)] + [("|".join(sorted((own_leaf, *bad_leaves))), bad_leaves)] * (
            len(bad_leaves) == 1
        )
        alike: list[str] = []
        for name, leaves in explanations:
            port_results = [depth < 1 for o, leaf in away.items() if leaf in leaves for depth in self.table.depths[pair_of(port, o)]]
            pairs = [
                pair_of(p, o)
                for p in neighbours
                for o in self.table.bad[p] | self.table.good[p]
                if o not in suspects and self.table.leaf[o] in leaves
            ]
            met = [self.table.depths[pair][0] < 1 for pair in pairs if not self.table.always_bad(pair)]
            if as_others(sum(port_results), len(port_results), sum(met), len(met), len(self.table.ports)) > END_ALPHA:
                alike.append(name)
        return alike

    def _count(self, ports: list[str], suspects: set[str]) -> str:
        bad = sum(len(self.table.bad[p] - suspects) for p in ports)
        good = sum(len(self.table.good[p] - suspects) for p in ports)
        repeated_with = sorted({o for p in ports for o in self.table.again_bad[p] if o not in suspects})
        text = f"{bad} of {bad + good} cells with good partners miss the floor"
        directions = {role(p) for p in ports}
        if len(directions) == 1 and "" not in directions:
            text += " where it sends" if SENDING in directions else " where it receives"
        return f"{text}; again with {', '.join(repeated_with[:4])}" if repeated_with else text

    def _path(self, a: str, b: str, suspects: set[str]) -> None:
        """A bad cell between two ports that are no bad rows."""
        passes = max(self.table.again_good[a][b], self.table.again_good[b][a])
        misses = "it misses the floor"
        if role(a):
            misses += f" where {whole(a if role(a) == SENDING else b)} sends"
        ends = {end: sorted(p for p in self.table.again_good[end] if p not in (a, b) and p not in suspects) for end in (a, b)}
        needs = self._path_needs(a, b, suspects)
        if needs and not any(needs.values()):
            reason = f"bad cell: {misses} again; {a} meets it again with {ends[a][0]}, {b} with {ends[b][0]}"
            evidence_cells = [(a, b), (a, ends[a][0]), (b, ends[b][0])]
            # Several bad paths of one port may as well be a port that flaps and had luck.
            alternatives = [("nic", end) for end in (a, b) if len(self.table.bad[end] - suspects) > 2]
            alternatives += [("switch", name) for name in self._flapping_leaves((a, b), suspects)]
            self._find("pair", (a, b), "convicted", reason, cells=evidence_cells, alternatives=alternatives)
            return
        if b not in self.table.again_bad[a] and passes >= ENOUGH_PASSES:
            reason = f"missed the floor once and met it in {passes} tests later: not reproduced, not cleared"
            self._find("pair", (a, b), "unresolved", reason, cells=[(a, b)])
            return
        if needs is None:  # it cannot be shown: as many tests as a link that flaps needs to show itself
            repeats = sum(cell.again for cell in self.table.tests[pair_of(a, b)])
            needs = {"": max(0, ENOUGH_PASSES - repeats), **dict.fromkeys((a, b), int(not repeats))}
        answers = [self.repeats.ask(a, b) for _unused in range(needs[""])]
        for end, far_end in ((a, b), (b, a)):
            # On the other's leaf, so that a bad path between the two switches shows too.
            partners = self.repeats.partners(end, needs[end], suspects, avoid=[far_end], near=far_end)
            answers += [self.repeats.ask(end, p) for p in itertools.islice(itertools.cycle(partners), needs[end])]
        if any(answers):
            self._find("pair", (a, b), "suspected", f"bad cell: {misses}", cells=[(a, b)])
            return
        depths = self.table.depths[pair_of(a, b)]
        reason = f"{misses} in {sum(depth < 1 for depth in depths)} of {len(depths)} tests, which does not tell it from its ends or chance"
        self._find("pair", (a, b), "unresolved", reason, cells=[(a, b)], alternatives=[("nic", a), ("nic", b)])

    def _flapping_leaves(self, path: tuple[str, str], suspects: set[str]) -> list[str]:
        """Return alternative explanations for a bad path between two leaves: the way between their switches, or one of them, if other
        cells fail too."""
        block = self.table.block_of(path)
        if not block:
            return []
        bad, tests = self.table.repeated(self.table.tests[pair_of(*path)])
        places = {"|".join(block): set(block), block[0]: {block[0]}, block[1]: {block[1]}}
        met: dict[str, list[bool]] = {name: [] for name in places}
        for pair in self.table.tests:
            if {*block} & {*(self.table.block_of(pair) or ())} and not {*path, *suspects} & {*pair} and not self.table.always_bad(pair):
                for name, leaves in places.items():
                    if leaves <= {*(self.table.block_of(pair) or ())}:
                        met[name] += [depth < 1 for depth in self.table.depths[pair][:1]]
        alike = {name for name, results in met.items() if as_others(bad, tests, sum(results), len(results), self.suspected) > ALPHA}
        return [name for name in places if name in alike and any(met[name])]

    def _path_needs(self, a: str, b: str, suspects: set[str]) -> dict[str, int] | None:
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
            partners = [o for o in self.table.bad[end] | self.table.good[end] if o != far_end and o not in suspects]
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

    def _unmeasured(self, suspects: set[str]) -> None:
        """Add findings for unmeasured cells: ports without any result, then the other cells in one finding."""
        silent = {
            p for p in self.table.ports if p not in suspects and self.table.unknown[p] and not self.table.good[p] and not self.table.bad[p]
        }
        for port in sorted(set(map(whole, silent))):
            cells = [pair_of(p, peer) for p in sorted(silent) if whole(p) == port for peer in self.table.unknown[p]]
            reason = f"none of its {len(cells)} cells could be measured: {self.table.why(cells)}"
            self._find("nic", [port], "unresolved", reason, cells=cells)
        self._slower(suspects)
        unmeasured = sorted(pair for pair, state in self.table.state.items() if state == "unknown" and not silent & set(pair))
        if unmeasured:
            reason = f"{len(unmeasured)} of {len(self.table.state)} cells were not measured: {self.table.why(unmeasured)}"
            members = sorted({port for pair in unmeasured for port in pair})
            self._find("group", members, "unresolved", reason, cells=unmeasured, name="unmeasured")

    def _slower(self, suspects: set[str]) -> None:
        """Ports that met only slower ones are not shown good at their own rate: once more, with one that is as fast."""
        for port in self.table.ports:
            if port in suspects or self.table.good[port] or self.table.bad[port]:
                continue
            slower = sorted(o for o in self.table.rate if self.table.state.get(pair_of(port, o)) == "good")
            if not slower:
                continue
            answers = [self.repeats.ask(port, p) for p in self.repeats.partners(port, 1, suspects)]
            rate = self.table.rate
            reason = f"it met only slower ports ({whole(slower[0])} and others of {rate[slower[0]]:g}, it has {rate[port]:g})"
            state: Confidence = "suspected" if any(answers) else "unresolved"
            cells = [(port, peer) for peer in slower]
            self._find("nic", [port], state, f"{reason} and is not shown good at its own rate", cells=cells)


def _together(states: list[Confidence]) -> Confidence:
    """Return the confidence of a whole from its parts: "suspected" first, then that of the least sure part."""
    for state in ("suspected", "unresolved", "convicted"):
        if state in states:
            return state
    return "unresolved"


def _either(states: list[Confidence]) -> Confidence:
    """Return the confidence of a port from its two roles: "suspected" first, then that of the surer role."""
    for state in ("suspected", "convicted"):
        if state in states:
            return state
    return "unresolved"


def _merged(findings: list[SearchFinding]) -> tuple[SearchFinding, ...]:
    """One finding for each port and path, where both directions have one."""
    by_key: dict[tuple[str, str], SearchFinding] = {}
    for finding in findings:
        key = (finding.kind, finding.id)
        earlier = by_key.get(key)
        if earlier is None:
            by_key[key] = finding
            continue
        reason = finding.reason if finding.reason in earlier.reason else f"{earlier.reason}; {finding.reason}"
        sure = _either([earlier.confidence, finding.confidence])
        alike = tuple(name for name in earlier.indistinguishable if name in finding.indistinguishable)
        evidence = (*earlier.evidence[: TOLD // 2], *finding.evidence[: TOLD // 2])  # of both
        by_key[key] = dataclasses.replace(
            earlier, confidence=sure, reason=reason, evidence=evidence, indistinguishable=alike
        )
    return tuple(by_key.values())
