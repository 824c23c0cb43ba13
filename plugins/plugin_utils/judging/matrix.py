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
import math
import statistics
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal

from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise import (
    END_ALPHA,
    LEAF_WITNESSES,
    NOISE,
    SearchFinding,
    chance,
    tail,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of

FLAP_SHARE, FLAP_CHANCE = 0.5, 0.01  # what fails half of its tests is told from what does not with so much error
BLOCK_SHARE = 3 / 4  # of the cells between two leaves, from which on the block is bad
ALPHA = 1e-5  # of a conviction by chance
SUSPECT_TESTS = 40  # of one suspect: what is not clear by then stays unresolved
GIVE_UP = 6  # tests that were asked for again and could not be measured: no more are asked for
PATHS_AT_PORT, MANY_PARTNERS = (2, 3), 8  # so many bad paths may meet at a healthy port, that of few partners or of many
HEDGED_PATHS = 4  # so few bad paths of a port are named beside it: they may as well meet at a healthy one
TOLD = 16  # so many cells are listed as evidence, the worst first

Confidence = Literal["convicted", "suspected", "unresolved"]
Standing = Literal["good", "bad", "unknown"]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One test between the ports `a` and `b` (`NODE/nic/DEVICE/PORT`).

    `floor`: the least it should give (of a latency the most), by what its own two ports can do; None where nobody knows, and then a
    number says nothing. `rail` names which rails met. `failed`: the test began and the link broke, which is as bad as a low number.
    `unknown`: it could not be measured. `again`: asked for by an earlier diagnosis. `directed`: `a` sends and `b` receives, else data
    went both ways. `rates`: of the two ports, where they matter and are known.
    """

    a: str
    b: str
    rail: str
    value: float | None
    outcome: Literal["measured", "failed", "unknown"] = "measured"
    again: bool = False
    reason: str = ""
    floor: float | None = None
    directed: bool = False
    rates: tuple[float | None, float | None] = (None, None)


def standing(outcome: str, value: float | None, floor: float | None, better: Literal["higher", "lower"]) -> Standing:
    """Return whether a test meets its floor; "unknown" without a number or without a floor."""
    if outcome == "failed":
        return "bad"
    if outcome != "measured" or value is None or not math.isfinite(value) or floor is None:
        return "unknown"
    if better == "lower" and value <= 0:
        return "unknown"  # no latency is
    meets = value >= floor if better == "higher" else value <= floor
    return "good" if meets else "bad"


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
    return _Reading(list(cells), better, topology or {}, unit).diagnose()


# A port in one of its two roles, where cells are directed.
SENDING, RECEIVING = " sending", " receiving"


def _role(port: str) -> str:
    return SENDING if port.endswith(SENDING) else RECEIVING if port.endswith(RECEIVING) else ""


def _whole(port: str) -> str:
    """The port, of one of its roles."""
    role = _role(port)
    return port[: -len(role)] if role else port


def _meet(a: str, b: str) -> bool:
    """Return True if two ports in their roles can be tested with each other: not if both only send."""
    return not _role(a) or _role(a) != _role(b)


def _pair(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a < b else (b, a)


def may_flap(bad: int, passes: int) -> bool:
    """Return True if something that fails half of its tests shows `bad` bad ones, or fewer, once in a hundred times or more often.

    The lower tail of the binomial distribution of `bad` in `bad + passes` tests at FLAP_SHARE.
    """
    tests = bad + passes
    tail = sum(math.comb(tests, k) for k in range(bad + 1)) * FLAP_SHARE**tests
    return tail >= FLAP_CHANCE


ENOUGH_PASSES = next(n for n in range(100) if not may_flap(0, n))  # 7


def _left_out(partners: int) -> int:
    """Return how many of its partners a port's tests do not count with: so many bad paths that meet at a port are no bad port.

    One partner always counts.
    """
    return max(0, min(partners - 1, PATHS_AT_PORT[partners >= MANY_PARTNERS]))


def _against(of: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """Return (bad tests, all tests) of a port without its worst partners; `of`: both by partner."""
    counted = sorted(of, key=lambda peer: (-of[peer][0], of[peer][1], peer))[_left_out(len(of)) :]
    return sum(of[peer][0] for peer in counted), sum(of[peer][1] for peer in counted)


def _peel(tests: Mapping[str, Mapping[str, tuple[int, int]]], noise: float) -> set[str]:
    """Ports with bad rows: the worst is taken out with its cells, then the next, until the rest is no row any more.

    `tests`: of each port, how many tests were bad and how many there were with each of its partners. A row has two bad cells or more,
    and no fewer than a port would have that fails half of its tests, or more bad tests than the noise gives anybody.
    """
    out: set[str] = set()
    while True:
        shares: dict[str, float] = {}
        for port, partners in tests.items():
            of = {peer: count for peer, count in partners.items() if peer not in out}
            cells = sum(bad > 0 for bad, _all in of.values())
            if port in out or cells < 2:
                continue
            passes = sum(every - bad for bad, every in of.values())
            if may_flap(cells, passes) or tail(*_against(of), noise) <= ALPHA:
                # Each partner speaks once, however often it was asked.
                shares[port] = sum(bad / every for bad, every in of.values()) / len(of)
        if not shares:
            return out
        # All of the worst at once: among equals nobody is blamed for coming first.
        worst = max(shares.values())
        out |= {port for port, share in shares.items() if share == worst}


def _as_others(bad: int, tests: int, bad_others: int, tests_of_others: int, subjects: int) -> float:
    """Return the chance that one of so many healthy subjects differs so much from the other tests of what it belongs to."""
    return subjects * (tests - bad + 1) * chance(bad, tests, bad_others, tests_of_others)


class _Reading:
    def __init__(
        self,
        cells: list[Cell],
        better: Literal["higher", "lower"],
        topology: Mapping[str, str],
        unit: str,
    ) -> None:
        self.better = better
        self.unit = unit
        self.tests: dict[tuple[str, str], list[Cell]] = defaultdict(list)
        self.state: dict[tuple[str, str], Literal["good", "bad", "unknown"]] = {}
        self.bad: dict[str, set[str]] = defaultdict(set)
        self.good: dict[str, set[str]] = defaultdict(set)
        self.unknown: dict[str, set[str]] = defaultdict(set)
        self.first_bad: dict[str, set[str]] = defaultdict(set)
        self.again_bad: dict[str, set[str]] = defaultdict(set)
        self.again_unknown: Counter[str] = Counter()
        self.again_good: dict[str, Counter[str]] = defaultdict(Counter)
        self.rails: dict[str, set[str]] = defaultdict(set)
        self.rail_ports: dict[str, set[str]] = defaultdict(set)
        self.rate: dict[str, float] = {}
        self.depths: dict[tuple[str, str], list[float]] = {}
        self.others: list[float] = []
        self.explained: set[tuple[str, str]] = set()  # cells of bad blocks
        for cell in cells:
            if cell.a == cell.b:
                raise ValueError(f"a cell needs two ports: {cell.a}")
            if cell.floor is not None and not math.isfinite(cell.floor):
                raise ValueError(f"found the floor {cell.floor} of {cell.a} and {cell.b}, expected a number or none")
            self._add(cell)
        for (a, b), tests in self.tests.items():
            self.depths[a, b] = [self._depth(cell) for cell in tests if self._judge(cell) != "unknown"]
            states = {self._judge(cell) for cell in tests}
            state: Literal["good", "bad", "unknown"] = (
                "bad" if "bad" in states else "good" if "good" in states else "unknown"
            )
            self.state[a, b] = state
            table = {"bad": self.bad, "good": self.good, "unknown": self.unknown}[state]
            for port, peer in ((a, b), (b, a)):
                if state != "good" or self._speaks_for(port, peer):
                    table[port].add(peer)
        self.ports = sorted(self.rails)
        self.leaf = {port: topology.get(_whole(port), topology.get(node_of(port))) for port in self.ports}
        self.node_ports: dict[str, list[str]] = defaultdict(list)
        self.leaf_ports: dict[str, list[str]] = defaultdict(list)
        for port in self.ports:
            self.node_ports[node_of(port)].append(port)
            leaf = self.leaf[port]
            if leaf is not None:
                self.leaf_ports[leaf].append(port)
        self.suspected = 0  # paths
        self.findings: list[SearchFinding] = []
        self.again: list[tuple[str, str, str]] = []
        self.asked: Counter[str] = Counter()

    def _add(self, cell: Cell) -> None:
        a, b = (cell.a + SENDING, cell.b + RECEIVING) if cell.directed else (cell.a, cell.b)
        self.tests[_pair(a, b)].append(cell)
        for port, rate in zip((a, b), cell.rates, strict=True):
            if rate is not None:
                self.rate[port] = rate
        for port, peer in ((a, b), (b, a)):
            self.rails[port].add(cell.rail)
            self.rail_ports[cell.rail].add(port)
            state = self._judge(cell)
            if state == "good" and not self._speaks_for(port, peer):
                continue
            if not cell.again:
                if state == "bad":
                    self.first_bad[port].add(peer)
            elif state == "bad":
                self.again_bad[port].add(peer)
            elif state == "good":
                self.again_good[port][peer] += 1
            else:
                self.again_unknown[port] += 1

    def _speaks_for(self, port: str, peer: str) -> bool:
        """Return True if a good test between two ports proves anything about `port`: not if `peer` is slower."""
        return self.rate.get(peer, math.inf) >= self.rate.get(port, 0.0)

    def _judge(self, cell: Cell) -> Standing:
        return standing(cell.outcome, cell.value, cell.floor, self.better)

    # -- reading -------------------------------------------------------------------------------------------------------

    def diagnose(self) -> Diagnosis:
        switches, blocks = self._leaves()
        inside = {port for leaf in switches for port in self.leaf_ports[leaf]}
        explained = self.explained = {pair for pair in self.state if self._block_of(pair) in blocks}
        tests = {port: self._tests_of(port, inside) for port in self.ports if port not in inside}
        usual = statistics.median([bad / max(1, every) for bad, every in map(_against, tests.values())] or [0.0])
        rows = _peel(tests, max(NOISE, 2 * usual))
        suspects = rows | inside
        self._take_others(suspects)
        for leaf in sorted(switches):
            self._switch(leaf, inside)
        for block in sorted(blocks):
            self._block(block, inside)
        self._rows(rows, suspects)
        paths = [pair for pair, state in self.state.items() if state == "bad" and not suspects & set(pair) and pair not in explained]
        self.suspected = len(paths)
        for a, b in sorted(paths):
            self._path(a, b, suspects)
        self._unmeasured(suspects)
        return Diagnosis(_merged(self.findings), tuple(self.again))

    # -- chance --------------------------------------------------------------------------------------------------------

    def _depth(self, cell: Cell) -> float:
        """Return the result of a test as a share of its floor; 0 if the link broke."""
        if cell.outcome == "failed" or cell.value is None or not cell.floor:
            return 0.0
        return cell.value / cell.floor if self.better == "higher" else cell.floor / cell.value

    def _take_others(self, suspects: set[str]) -> None:
        """Collect the tests without a suspect: the first of each cell."""
        self.others = sorted(
            self._depth(tests[0])
            for pair, tests in self.tests.items()
            if not suspects & set(pair) and pair not in self.explained and not self._always_bad(pair)
            if not tests[0].again and self._judge(tests[0]) != "unknown"
        )

    def _again(self, tests: Iterable[Cell]) -> tuple[int, int]:
        """Return (bad, usable) numbers of the repeated tests. First tests do not count: a suspect is one because they were bad."""
        states = [self._judge(cell) for cell in tests if cell.again]
        return states.count("bad"), len(states) - states.count("unknown")

    def _always_bad(self, pair: tuple[str, str]) -> bool:
        """Bad in each of several tests: its own fault, and no noise."""
        depths = self.depths.get(pair, [])
        return len(depths) > 3 and max(depths) < 1

    def _by_chance(self, bad: int, tests: int, mildest: float, subjects: int, own_bad: int = 0) -> float:
        """Return the chance that one of so many healthy subjects has so many bad tests; `own_bad` of them are in `self.others`."""
        elsewhere = max(1, len(self.others) - own_bad)
        milder = max(0, bisect_right(self.others, mildest) - own_bad)
        share = min(1.0, max(NOISE, (milder + 2 * math.sqrt(milder)) / elsewhere))
        return subjects * (tests - bad + 1) * tail(bad, tests, share)

    def _tests_of(self, port: str, suspects: set[str]) -> dict[str, tuple[int, int]]:
        """Return (bad tests, all tests) of a port with each of its partners."""
        partners = [o for o in self.bad[port] | self.good[port] if o not in suspects and _pair(port, o) not in self.explained]
        depths = {peer: self.depths[_pair(port, peer)] for peer in sorted(partners)}
        return {peer: (sum(depth < 1 for depth in depths_of_pair), len(depths_of_pair)) for peer, depths_of_pair in depths.items()}

    def _row_chance(self, port: str, suspects: set[str], extra_peers: Iterable[str] = ()) -> float:
        """Return the chance of a healthy port's tests with good partners; `extra_peers`: partners with whom it is bad once more each."""
        of = {peer: counts for peer, counts in self._tests_of(port, suspects).items() if self.good[peer]}
        mildest = max((depth for peer in of for depth in self.depths[_pair(port, peer)] if depth < 1), default=0.0)
        for peer in extra_peers:
            bad, tests = of.get(peer, (0, 0))
            of[peer] = bad + 1, tests + 1
        bad, tests = _against(of)
        return self._by_chance(bad, tests, mildest, len(self.ports)) if bad else math.inf

    def _leaves(self) -> tuple[set[str], set[tuple[str, str]]]:
        """Leaves that are bad with every other leaf, and single bad blocks between leaves that are not."""
        total: Counter[tuple[str, str]] = Counter()
        wrong: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
        for pair, state in self.state.items():
            block = self._block_of(pair)
            if block is not None and state != "unknown":
                total[block] += 1
                if state == "bad":
                    wrong[block].add(pair)
        bad = {block for block, count in total.items() if len(wrong[block]) >= BLOCK_SHARE * count}
        switches: set[str] = set()
        for leaf, ports in self.leaf_ports.items():
            leaf_blocks = {block for block in total if leaf in block}
            bad_ports = {p for block in leaf_blocks for pair in wrong[block] for p in pair if self.leaf[p] == leaf}
            if len(leaf_blocks) >= 2 and leaf_blocks <= bad and self._many(bad_ports, min(LEAF_WITNESSES, len(ports))):
                switches.add(leaf)
        if switches >= set(self.leaf_ports):
            switches = set()  # no good leaf is left to tell them by
        blocks = {block for block in bad if not switches & set(block) and self._is_block(block)}
        return switches, blocks

    def _sides(self, block: tuple[str, str]) -> tuple[list[str], list[str]]:
        """The ports of both leaves that have bad cells in a block and are mostly good outside it."""
        sides: list[list[str]] = []
        for leaf, far_leaf in (block, block[::-1]):
            far_ports = set(self.leaf_ports[far_leaf])
            sides.append(
                [
                    p
                    for p in self.leaf_ports[leaf]
                    if self.bad[p] & far_ports and len(self.good[p] - far_ports) > len(self.bad[p] - far_ports)
                ]
            )
        return sides[0], sides[1]

    def _is_block(self, block: tuple[str, str]) -> bool:
        left_ports, right_ports = self._sides(block)
        states = [self.state.get(_pair(a, b), "unknown") for a in left_ports for b in right_ports]
        measured = len(states) - states.count("unknown")
        two_apart = any(
            {a, b}.isdisjoint(pair) and a in left_ports and b in right_ports
            for pair in itertools.product(left_ports, right_ports)
            if self.state.get(_pair(*pair)) == "bad"
            for a in left_ports
            for b in self.bad[a]
        )
        return (
            self._many(set(left_ports), 2)
            and self._many(set(right_ports), 2)
            and two_apart
            and states.count("bad") >= BLOCK_SHARE * measured
        )

    def _many(self, ports: set[str], count: int) -> bool:
        """At least `count` ports, of at least two nodes: no single node can be behind them."""
        return len(ports) >= count and len({node_of(port) for port in ports}) >= 2

    # -- asking again --------------------------------------------------------------------------------------------------

    def _partners(
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
        forbidden = {*avoid, *suspects, *self.node_ports[node_of(port)]}
        own_leaf = self.leaf[port]
        choice = [
            p
            for p in set().union(*(self.rail_ports[rail] for rail in self.rails[port]))
            if p not in forbidden and self.good[p] and not (across and self.leaf[p] in (None, own_leaf))
        ]
        choice = [p for p in choice if _meet(port, p) and self._speaks_for(port, p)]
        used = self.again_good[port]
        near_leaf = None if near is None else self.leaf[near]
        choice.sort(
            key=lambda p: (
                p in self.bad[port],
                used[p],
                self.leaf[p] != near_leaf,
                self.again_unknown[p],
                self.asked[p],
                p,
            )
        )
        return choice[:count]

    def _ask(self, a: str, b: str) -> bool:
        if max(self.again_unknown[a], self.again_unknown[b]) >= GIVE_UP:
            return False
        self.asked[a] += 1
        self.asked[b] += 1
        first, second = sorted((a, b), key=lambda port: (_role(port) == RECEIVING, port))
        self.again.append((_whole(first), _whole(second), min(self.rails[a] & self.rails[b])))
        return True

    def _row(self, port: str, suspects: set[str], across: bool = False) -> Confidence:
        """Convicted when it failed again with two good partners, one of them new if there is a new one; else asks."""
        confirmed = {p for p in self.again_bad[port] if p not in suspects and self.good[p]}
        fresh = [p for p in self._partners(port, 1, suspects, across=across) if p not in self.bad[port]]
        if len(confirmed) >= 2 and (confirmed - self.first_bad[port] or not fresh):
            if self._row_chance(port, suspects) <= ALPHA:
                return "convicted"
            confirmed = set()  # those who speak against it are asked once more, too
        partners = self._partners(port, len(self.ports), suspects, avoid=confirmed, across=across)
        tested = sum(cell.again for p in partners for cell in self.tests.get(_pair(port, p), ()))
        if not partners or tested >= SUSPECT_TESTS or (fresh and self._always_met(port, suspects, across)):
            return "unresolved"
        tests_needed = min(4 if self.again_good[port] else 2, len(partners))
        turns = itertools.islice(itertools.cycle(partners), SUSPECT_TESTS - tested)
        chosen: list[str] = []
        for partner in turns:
            if len(chosen) >= tests_needed and self._row_chance(port, suspects, chosen) <= ALPHA:
                break
            chosen.append(partner)
        answers = [self._ask(port, partner) for partner in chosen]
        return "suspected" if any(answers) else "unresolved"

    def _always_met(self, port: str, suspects: set[str], across: bool) -> bool:
        """Return True if only a new partner's word is missing against a port, and each of those has met the floor with it too often."""
        new = [p for p in self._partners(port, len(self.ports), suspects, across=across) if p not in self.bad[port]]
        return all(self.again_good[port][p] >= ENOUGH_PASSES for p in new) and self._row_chance(port, suspects) <= ALPHA

    # -- findings ------------------------------------------------------------------------------------------------------

    def _cells(self, pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, object], ...]:
        cells_of_pairs = [cell for pair in pairs for cell in self.tests[_pair(*pair)]]
        sign = 1 if self.better == "higher" else -1
        cells_of_pairs.sort(key=lambda c: (not c.again, -math.inf if c.value is None else sign * c.value))
        return tuple(
            {
                "a": c.a,
                "b": c.b,
                "rail": c.rail,
                "outcome": c.outcome,
                "value": c.value,
                "unit": self.unit,
                "floor": c.floor,
                "again": c.again,
                "reason": c.reason,
            }
            for c in cells_of_pairs[:TOLD]
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
        members = tuple(dict.fromkeys(map(_whole, members)))
        alike: list[dict[str, object]] = [
            {"kind": kind, "id": key, "members": key.split("|")}
            for kind, key in dict.fromkeys((kind, _whole(key)) for kind, key in alternatives)
        ]
        evidence = self._cells(cells)
        hidden = {"|".join(sorted(map(_whole, (p, o)))) for p in behind for o in self.bad[p] | self.unknown[p]}
        self.findings.append(
            SearchFinding(kind, name or "|".join(members), members, confidence, reason, evidence, tuple(alike), tuple(sorted(hidden)))
        )

    def _switch(self, leaf: str, inside: set[str]) -> None:
        ports = self.leaf_ports[leaf]
        needed = min(LEAF_WITNESSES, len(ports))
        states: list[Confidence] = []
        for port in sorted(ports, key=lambda p: (-len(self.again_bad[p]), p)):
            if len(states) < needed:
                states.append(self._row(port, inside, across=True))
        cells = [(p, o) for p in ports for o in sorted(self.bad[p] - inside)]
        passing = sum(len(self.good[p] - set(ports)) for p in ports)
        within = sum(len(self.good[p] & set(ports)) for p in ports) // 2
        reason = (
            f"bad block: {len(cells)} cells between its {len(set(map(_whole, ports)))} ports and ports on other leaves miss the floor, "
            f"{passing} meet it; within the leaf {within} meet it"
        )
        few = [("nic", p) for p in ports] if len(ports) <= LEAF_WITNESSES else []
        self._find("switch", ports, _together(states), reason, cells=cells, alternatives=few, name=leaf, behind=ports)

    def _block(self, block: tuple[str, str], inside: set[str]) -> None:
        """All is bad between two leaves that are good with others: four ports again, and each leaf with a third."""
        a, b = block
        cells = [pair for pair, state in sorted(self.state.items()) if state == "bad" and self._block_of(pair) == block]
        reason = f"bad block: {len(cells)} cells between the leaves {a} and {b} miss the floor"
        if set(self.leaf_ports) == set(block):
            either = [("switch", a), ("switch", b), ("switch", f"{a}|{b}")]
            reason += "; no third leaf says which of the two it is"
            self._find("group", block, "unresolved", reason, cells=cells, alternatives=either)
            return
        left_ports, right_ports = self._sides(block)
        repeated = {p for pair in cells if pair[1] in self.again_bad[pair[0]] for p in pair}
        answers: list[bool] = []
        tests = [cell for pair in self.tests if self._block_of(pair) == block for cell in self.tests[pair]]
        depths = [self._depth(cell) for cell in tests if self._judge(cell) != "unknown"]
        mildest = max(depth for depth in depths if depth < 1)
        wrong, every = self._again(tests)
        asked_for = sum(cell.again for cell in tests)
        blocks = len({self._block_of(pair) for pair in self.tests})
        met: dict[str, list[bool]] = {}
        tried: dict[str, Counter[str]] = {}
        for leaf in block:
            beyond = [pair for pair in self.tests if self._third(pair, leaf, block)]
            met[leaf] = [depth < 1 for pair in beyond if not inside & set(pair) for depth in self.depths[pair]]
            tried[leaf] = Counter(p for pair in beyond for cell in self.tests[pair] if cell.again for p in pair)

        def alike(extra_bad: int, extra_good: int) -> list[str]:
            """The leaves from whose tests with third ones those of the block do not differ, after so many more bad and good ones."""
            of = {
                leaf: (wrong + extra_bad, every + extra_bad, sum(results), len(results) + extra_good, blocks)
                for leaf, results in met.items()
            }
            return [leaf for leaf in block if _as_others(*of[leaf]) > ALPHA]

        left_over = [SUSPECT_TESTS - sum(tried[leaf][p] for p in self.leaf_ports[leaf]) for leaf in block]
        plans: list[tuple[int, int]] = []
        for extra in range(SUSPECT_TESTS - asked_for + 1):
            if self._by_chance(sum(depth < 1 for depth in depths) + extra, len(depths) + extra, mildest, blocks) <= ALPHA:
                plans += [(extra, good_more) for good_more in range(max(0, min(left_over)) + 1) if not alike(extra, good_more)][:1]
        tests_needed, third_tests = min(plans, key=lambda plan: plan[0] + 2 * plan[1], default=(0, 0))
        tests_needed = max(tests_needed, 0 if len(repeated) >= 4 else min(2, SUSPECT_TESTS - asked_for))
        # Cells that were not measured yet first: two bad paths alone would be good there. Then one after the other, no port twice in a row.
        fit = [pair for pair in itertools.product(left_ports, right_ports) if _meet(*pair) and self.rails[pair[0]] & self.rails[pair[1]]]
        use: Counter[str] = Counter()
        for _unused in range(tests_needed if fit else 0):
            pair = min(fit, key=lambda pair: (use[pair[0]] + use[pair[1]], _pair(*pair) in self.state, pair))
            use.update(pair)
            answers.append(self._ask(*pair))
        proven = True
        for leaf, far_leaf, side, left_to_ask in ((a, b, left_ports, left_over[0]), (b, a, right_ports, left_over[1])):
            third = inside | set(self.leaf_ports[far_leaf])
            proven_end = any(self.leaf[o] not in block for p in self.leaf_ports[leaf] for o in self.again_good[p])
            proven = proven and proven_end
            for _unused in range(min(max(third_tests, int(not proven_end)), left_to_ask)):
                best = min(side, key=lambda p: (tried[leaf][p], -len(self.good[p]), p))
                tried[leaf][best] += 1
                answers += [self._ask(best, partner) for partner in self._partners(best, 1, third, across=True)]
        reason += "; both leaves meet it with others: the path between the two switches"
        state: Confidence = "suspected" if any(answers) else "unresolved"
        same = alike(0, 0)  # a leaf that fails some of its tests with all others is no bad block
        if len(repeated) >= 4 and proven and (0, 0) in plans:
            state = "convicted"
        self._find("switch", block, state, reason, cells=cells, alternatives=[("switch", leaf) for leaf in same])

    def _block_of(self, pair: tuple[str, str]) -> tuple[str, str] | None:
        """The two leaves between which a cell lies."""
        leaf_a, leaf_b = self.leaf[pair[0]], self.leaf[pair[1]]
        return None if leaf_a is None or leaf_b is None or leaf_a == leaf_b else _pair(leaf_a, leaf_b)

    def _third(self, pair: tuple[str, str], leaf: str, block: tuple[str, str]) -> bool:
        """Return True if a cell lies between a leaf of the block and one outside it."""
        leaf_a, leaf_b = self.leaf[pair[0]], self.leaf[pair[1]]
        return leaf_b not in (None, *block) if leaf_a == leaf else leaf_b == leaf and leaf_a not in (None, *block)

    def _rows(self, rows: set[str], suspects: set[str]) -> None:
        states = {port: self._row(port, suspects) for port in sorted(rows)}
        # What fails now and then on half of a leaf's ports may as well be its switch.
        often = rows | {port for port, peers in self.bad.items() if len(peers - suspects) > 1}
        half_bad = {leaf for leaf, ports in self.leaf_ports.items() if self._many(often & {*ports}, (len(ports) + 1) // 2)}
        for node, ports in sorted(self.node_ports.items()):
            bad = [port for port in ports if port in rows]
            if not bad:
                continue
            roles: dict[str, list[str]] = defaultdict(list)
            for port in bad:
                roles[_whole(port)].append(port)
            sure = {port: _either([states[p] for p in role_ports]) for port, role_ports in roles.items()}
            every = set(map(_whole, ports))
            if len(roles) == len(every) > 1:
                cells = [(p, o) for p in bad for o in self.bad[p] if o not in suspects]
                reason = f"bad rows on all its {len(every)} ports: {self._count(bad, suspects)}"
                self._find("node", [node], _together(list(sure.values())), reason, cells=cells, behind=bad)
                continue
            for port, role_ports in roles.items():
                siblings = {_whole(p) for p in ports if self.good[p]} - set(roles)
                reason = f"bad row: {self._count(role_ports, suspects)}; "
                reason += (
                    f"{len(siblings)} other ports of the node meet it" if siblings else "no other port of it is good"
                )
                cells = [(p, o) for p in role_ports for o in self.bad[p] if o not in suspects]
                alternatives = [] if siblings else [("node", node)]
                alternatives += [("switch", leaf) for leaf in {self.leaf[p] for p in role_ports} if leaf in half_bad]
                alternatives += [("switch", name) for p in role_ports for name in self._leaves_like(p, suspects)]
                alternatives += self._paths_like(role_ports, suspects)
                self._find("nic", [port], sure[port], reason, cells=cells, alternatives=alternatives, behind=role_ports)

    def _paths_like(self, roles: list[str], suspects: set[str]) -> list[tuple[str, str]]:
        """Return the paths of a port, given by its roles, that fail most of their tests, if these are so few that they may as well be bad
        by themselves and meet at a healthy port."""
        pairs = [(p, o) for p in roles for o in self.bad[p] - suspects]
        paths = {"|".join(sorted(map(_whole, pair))) for pair in pairs if statistics.median(self.depths[_pair(*pair)]) < 1}
        return [("pair", path) for path in sorted(paths)] if len(paths) <= HEDGED_PATHS else []

    def _leaves_like(self, port: str, suspects: set[str]) -> list[str]:
        """Return alternative explanations for a bad port: its leaf switch, or the way to the only leaf with bad partners.

        Other ports of its leaf fail too often there, those apart that are never good and so are bad themselves, or were tried too seldom.
        """
        own_leaf = self.leaf[port]
        away = {
            o: self.leaf[o] or "" for o in self.bad[port] | self.good[port] if o not in suspects and self.leaf[o] not in (None, own_leaf)
        }
        bad_leaves = {leaf for peer, leaf in away.items() if peer in self.bad[port]}
        if own_leaf is None or not bad_leaves:
            return []
        neighbours = [p for p in self.leaf_ports[own_leaf] if p != port and self.good[p] - suspects]
        explanations = [(own_leaf, set(away.values()) | bad_leaves)] + [("|".join(sorted((own_leaf, *bad_leaves))), bad_leaves)] * (
            len(bad_leaves) == 1
        )
        alike: list[str] = []
        for name, leaves in explanations:
            port_results = [depth < 1 for o, leaf in away.items() if leaf in leaves for depth in self.depths[_pair(port, o)]]
            pairs = [_pair(p, o) for p in neighbours for o in self.bad[p] | self.good[p] if o not in suspects and self.leaf[o] in leaves]
            met = [self.depths[pair][0] < 1 for pair in pairs if not self._always_bad(pair)]
            if _as_others(sum(port_results), len(port_results), sum(met), len(met), len(self.ports)) > END_ALPHA:
                alike.append(name)
        return alike

    def _count(self, ports: list[str], suspects: set[str]) -> str:
        bad = sum(len(self.bad[p] - suspects) for p in ports)
        good = sum(len(self.good[p] - suspects) for p in ports)
        repeated_with = sorted({o for p in ports for o in self.again_bad[p] if o not in suspects})
        text = f"{bad} of {bad + good} cells with good partners miss the floor"
        directions = {_role(p) for p in ports}
        if len(directions) == 1 and "" not in directions:
            text += " where it sends" if SENDING in directions else " where it receives"
        return f"{text}; again with {', '.join(repeated_with[:4])}" if repeated_with else text

    def _path(self, a: str, b: str, suspects: set[str]) -> None:
        """A bad cell between two ports that are no bad rows."""
        passes = max(self.again_good[a][b], self.again_good[b][a])
        misses = "it misses the floor"
        if _role(a):
            misses += f" where {_whole(a if _role(a) == SENDING else b)} sends"
        ends = {end: sorted(p for p in self.again_good[end] if p not in (a, b) and p not in suspects) for end in (a, b)}
        needs = self._path_needs(a, b, suspects)
        if needs and not any(needs.values()):
            reason = f"bad cell: {misses} again; {a} meets it again with {ends[a][0]}, {b} with {ends[b][0]}"
            evidence_cells = [(a, b), (a, ends[a][0]), (b, ends[b][0])]
            # Several bad paths of one port may as well be a port that flaps and had luck.
            alternatives = [("nic", end) for end in (a, b) if len(self.bad[end] - suspects) > 2]
            alternatives += [("switch", name) for name in self._flapping_leaves((a, b), suspects)]
            self._find("pair", (a, b), "convicted", reason, cells=evidence_cells, alternatives=alternatives)
            return
        if b not in self.again_bad[a] and passes >= ENOUGH_PASSES:
            reason = f"missed the floor once and met it in {passes} tests later: not reproduced, not cleared"
            self._find("pair", (a, b), "unresolved", reason, cells=[(a, b)])
            return
        if needs is None:  # it cannot be shown: as many tests as a link that flaps needs to show itself
            repeats = sum(cell.again for cell in self.tests[_pair(a, b)])
            needs = {"": max(0, ENOUGH_PASSES - repeats), **dict.fromkeys((a, b), int(not repeats))}
        answers = [self._ask(a, b) for _unused in range(needs[""])]
        for end, far_end in ((a, b), (b, a)):
            # On the other's leaf, so that a bad path between the two switches shows too.
            partners = self._partners(end, needs[end], suspects, avoid=[far_end], near=far_end)
            answers += [self._ask(end, p) for p in itertools.islice(itertools.cycle(partners), needs[end])]
        if any(answers):
            self._find("pair", (a, b), "suspected", f"bad cell: {misses}", cells=[(a, b)])
            return
        depths = self.depths[_pair(a, b)]
        reason = f"{misses} in {sum(depth < 1 for depth in depths)} of {len(depths)} tests, which does not tell it from its ends or chance"
        self._find("pair", (a, b), "unresolved", reason, cells=[(a, b)], alternatives=[("nic", a), ("nic", b)])

    def _flapping_leaves(self, path: tuple[str, str], suspects: set[str]) -> list[str]:
        """Return alternative explanations for a bad path between two leaves: the way between their switches, or one of them, if other
        cells fail too."""
        block = self._block_of(path)
        if not block:
            return []
        bad, tests = self._again(self.tests[_pair(*path)])
        places = {"|".join(block): set(block), block[0]: {block[0]}, block[1]: {block[1]}}
        met: dict[str, list[bool]] = {name: [] for name in places}
        for pair in self.tests:
            if {*block} & {*(self._block_of(pair) or ())} and not {*path, *suspects} & {*pair} and not self._always_bad(pair):
                for name, leaves in places.items():
                    if leaves <= {*(self._block_of(pair) or ())}:
                        met[name] += [depth < 1 for depth in self.depths[pair][:1]]
        alike = {name for name, results in met.items() if _as_others(bad, tests, sum(results), len(results), self.suspected) > ALPHA}
        return [name for name in places if name in alike and any(met[name])]

    def _path_needs(self, a: str, b: str, suspects: set[str]) -> dict[str, int] | None:
        """Return how many more tests of the path (``), and of each of its ends with others, convict it if they come out as before.

        The fewest one after the other; None where SUSPECT_TESTS do not suffice.
        """
        tests, depths = self.tests[_pair(a, b)], self.depths[_pair(a, b)]
        first_test = int(not tests[0].again)
        repeats = sum(cell.again for cell in tests)
        bad_again, all_again = self._again(tests)
        bad = sum(depth < 1 for depth in depths)
        mildest = max(depth for depth in depths if depth < 1)
        met: dict[str, tuple[int, int, int]] = {}
        for end, far_end in ((a, b), (b, a)):
            partners = [o for o in self.bad[end] | self.good[end] if o != far_end and o not in suspects]
            partners = [o for o in partners if _pair(end, o) not in self.explained]
            depths_of_end = [d for o in partners if not self._always_bad(_pair(end, o)) for d in self.depths[_pair(end, o)]]
            proven_end = any(o in self.again_good[end] for o in partners)
            met[end] = int(not proven_end), sum(d < 1 for d in depths_of_end), len(depths_of_end)
        plans: list[dict[str, int]] = []
        for extra in range(int(b not in self.again_bad[a]), SUSPECT_TESTS - repeats + 1):
            extra_bad = extra * bad // len(depths)
            if self._by_chance(bad + extra_bad, len(depths) + extra, mildest, len(self.state), first_test) > ALPHA:
                continue
            plan: dict[str, int] = {"": extra}
            k, n = bad_again + extra_bad, all_again + extra
            for end, (minimum, wrong, tests_of_end) in met.items():
                sure = (m for m in range(minimum, SUSPECT_TESTS) if _as_others(k, n, wrong, tests_of_end + m, self.suspected) <= ALPHA)
                plan[end] = next(sure, SUSPECT_TESTS)
            if max(plan.values()) < SUSPECT_TESTS:
                plans.append(plan)
        return min(plans, key=lambda plan: plan[""] + max(plan[a], plan[b]), default=None)

    def _unmeasured(self, suspects: set[str]) -> None:
        """Add findings for unmeasured cells: ports without any result, then the other cells in one finding."""
        silent = {
            p for p in self.ports if p not in suspects and self.unknown[p] and not self.good[p] and not self.bad[p]
        }
        for port in sorted(set(map(_whole, silent))):
            cells = [_pair(p, peer) for p in sorted(silent) if _whole(p) == port for peer in self.unknown[p]]
            reason = f"none of its {len(cells)} cells could be measured: {self._why(cells)}"
            self._find("nic", [port], "unresolved", reason, cells=cells)
        self._slower(suspects)
        unmeasured = sorted(pair for pair, state in self.state.items() if state == "unknown" and not silent & set(pair))
        if unmeasured:
            reason = f"{len(unmeasured)} of {len(self.state)} cells were not measured: {self._why(unmeasured)}"
            members = sorted({port for pair in unmeasured for port in pair})
            self._find("group", members, "unresolved", reason, cells=unmeasured, name="unmeasured")

    def _slower(self, suspects: set[str]) -> None:
        """Ports that met only slower ones are not shown good at their own rate: once more, with one that is as fast."""
        for port in self.ports:
            if port in suspects or self.good[port] or self.bad[port]:
                continue
            slower = sorted(o for o in self.rate if self.state.get(_pair(port, o)) == "good")
            if not slower:
                continue
            answers = [self._ask(port, p) for p in self._partners(port, 1, suspects)]
            reason = f"it met only slower ports ({_whole(slower[0])} and others of {self.rate[slower[0]]:g}, it has {self.rate[port]:g})"
            state: Confidence = "suspected" if any(answers) else "unresolved"
            cells = [(port, peer) for peer in slower]
            self._find("nic", [port], state, f"{reason} and is not shown good at its own rate", cells=cells)

    def _why(self, cells: Iterable[tuple[str, str]]) -> str:
        """The most frequent reason of tests without a measurement."""
        without = [c for pair in cells for c in self.tests[pair] if self._judge(c) == "unknown"]
        reasons = Counter(c.reason or ("no result" if c.value is None else "no floor is known") for c in without)
        return reasons.most_common(1)[0][0]


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
