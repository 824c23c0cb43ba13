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
while both ends meet it again with others. A cell that was not measured is neither good nor bad: a port without a good
cell is unresolved. One bad test makes a cell bad, however often it was good: what fails half of its tests stays bad.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal

from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise import LEAF_WITNESSES, Finding
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of

FLAP_SHARE, FLAP_CHANCE = 0.5, 0.01  # what fails half of its tests is told from what does not with so much error
BLOCK_SHARE = 3 / 4  # of the cells between two leaves, from which on the block is bad
GIVE_UP = 6  # tests that were asked for again and could not be measured: no more are asked for
TOLD = 16  # so many cells are listed as evidence, the worst first

Confidence = Literal["convicted", "suspected", "unresolved"]


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


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """`findings`, and the tests (port, port, rail) to run before the next reading, the port that sends first where cells are
    directed; one may be listed more than once."""

    findings: tuple[Finding, ...]
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
    """Whether there can be a test between them: no two ports only send."""
    return not _role(a) or _role(a) != _role(b)


def _pair(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a < b else (b, a)


def may_flap(bad: int, passes: int) -> bool:
    """Whether something that fails half of its tests shows only so many bad ones, or fewer, once in a hundred times.

    The lower tail of the binomial distribution of `bad` in `bad + passes` tests at FLAP_SHARE.
    """
    tests = bad + passes
    tail = sum(math.comb(tests, k) for k in range(bad + 1)) * FLAP_SHARE**tests
    return tail >= FLAP_CHANCE


ENOUGH_PASSES = next(n for n in range(100) if not may_flap(0, n))  # 7


def _peel(bad: Mapping[str, set[str]], passes: Mapping[str, Counter[str]], inside: set[str]) -> set[str]:
    """Ports with bad rows: the worst is taken out with its cells, then the next, until the rest is no row any more.

    `bad`: the ports with which each has a bad cell; `passes`: how many tests it passed with each. A row has two bad
    cells or more, and no fewer than a port would have that fails half of its tests.
    """
    out: set[str] = set()
    while True:
        shares: dict[str, float] = {}
        for port, others in bad.items():
            count = len(others - out)
            if port in out or count < 2:
                continue
            good = sum(n for other, n in passes[port].items() if other not in out and other not in inside)
            if may_flap(count, good):
                shares[port] = count / (count + good)
        if not shares:
            return out
        # All of the worst at once: among equals nobody is blamed for coming first.
        worst = max(shares.values())
        out |= {port for port, share in shares.items() if share == worst}


class _Reading:
    def __init__(
        self,
        cells: list[Cell],
        better: str,
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
        self.passes: dict[str, Counter[str]] = defaultdict(Counter)
        self.again_good: dict[str, Counter[str]] = defaultdict(Counter)
        self.rails: dict[str, set[str]] = defaultdict(set)
        self.rail_ports: dict[str, set[str]] = defaultdict(set)
        self.rate: dict[str, float] = {}
        for cell in cells:
            if cell.a == cell.b:
                raise ValueError(f"a cell needs two ports: {cell.a}")
            if cell.floor is not None and not math.isfinite(cell.floor):
                raise ValueError(f"found the floor {cell.floor} of {cell.a} and {cell.b}, expected a number or none")
            self._add(cell)
        for (a, b), tests in self.tests.items():
            states = {self._judge(cell) for cell in tests}
            state: Literal["good", "bad", "unknown"] = (
                "bad" if "bad" in states else "good" if "good" in states else "unknown"
            )
            self.state[a, b] = state
            table = {"bad": self.bad, "good": self.good, "unknown": self.unknown}[state]
            for port, other in ((a, b), (b, a)):
                if state != "good" or self._speaks_for(port, other):
                    table[port].add(other)
        self.ports = sorted(self.rails)
        self.leaf = {port: topology.get(_whole(port), topology.get(node_of(port))) for port in self.ports}
        self.node_ports: dict[str, list[str]] = defaultdict(list)
        self.leaf_ports: dict[str, list[str]] = defaultdict(list)
        for port in self.ports:
            self.node_ports[node_of(port)].append(port)
            leaf = self.leaf[port]
            if leaf is not None:
                self.leaf_ports[leaf].append(port)
        self.findings: list[Finding] = []
        self.again: list[tuple[str, str, str]] = []
        self.asked: Counter[str] = Counter()

    def _add(self, cell: Cell) -> None:
        a, b = (cell.a + SENDING, cell.b + RECEIVING) if cell.directed else (cell.a, cell.b)
        self.tests[_pair(a, b)].append(cell)
        for port, rate in zip((a, b), cell.rates, strict=True):
            if rate is not None:
                self.rate[port] = rate
        for port, other in ((a, b), (b, a)):
            self.rails[port].add(cell.rail)
            self.rail_ports[cell.rail].add(port)
            state = self._judge(cell)
            if state == "good" and not self._speaks_for(port, other):
                continue
            if state == "good":
                self.passes[port][other] += 1
            if not cell.again:
                if state == "bad":
                    self.first_bad[port].add(other)
            elif state == "bad":
                self.again_bad[port].add(other)
            elif state == "good":
                self.again_good[port][other] += 1
            else:
                self.again_unknown[port] += 1

    def _speaks_for(self, port: str, other: str) -> bool:
        """Whether a good test between them says anything of the port: not where the other one is slower."""
        return self.rate.get(other, math.inf) >= self.rate.get(port, 0.0)

    def _judge(self, cell: Cell) -> Literal["good", "bad", "unknown"]:
        if cell.outcome == "failed":
            return "bad"
        if cell.outcome != "measured" or cell.value is None or not math.isfinite(cell.value) or cell.floor is None:
            return "unknown"
        if self.better == "lower" and cell.value <= 0:
            return "unknown"  # no latency is
        meets = cell.value >= cell.floor if self.better == "higher" else cell.value <= cell.floor
        return "good" if meets else "bad"

    # -- reading -------------------------------------------------------------------------------------------------------

    def diagnose(self) -> Diagnosis:
        switches, blocks = self._leaves()
        inside = {port for leaf in switches for port in self.leaf_ports[leaf]}
        for leaf in sorted(switches):
            self._switch(leaf, inside)
        for block in sorted(blocks):
            self._block(block, inside)
        explained = {pair for pair in self.state if self._block_of(pair) in blocks}
        bad = {
            p: {o for o in others if o not in inside and _pair(p, o) not in explained} for p, others in self.bad.items()
        }
        bad = {port: others for port, others in bad.items() if port not in inside and others}
        rows = _peel(bad, self.passes, inside)
        suspects = rows | inside
        self._rows(rows, suspects)
        for (a, b), state in sorted(self.state.items()):
            if state == "bad" and a not in suspects and b not in suspects and (a, b) not in explained:
                self._path(a, b, suspects)
        self._unmeasured(suspects)
        return Diagnosis(_merged(self.findings), tuple(self.again))

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
            mine = {block for block in total if leaf in block}
            seen = {p for block in mine for pair in wrong[block] for p in pair if self.leaf[p] == leaf}
            if len(mine) >= 2 and mine <= bad and self._many(seen, min(LEAF_WITNESSES, len(ports))):
                switches.add(leaf)
        if switches >= set(self.leaf_ports):
            switches = set()  # no good leaf is left to tell them by
        blocks = {block for block in bad if not switches & set(block) and self._is_block(block)}
        return switches, blocks

    def _sides(self, block: tuple[str, str]) -> tuple[list[str], list[str]]:
        """The ports of both leaves that have bad cells in a block and are mostly good outside it."""
        sides: list[list[str]] = []
        for leaf, other in (block, block[::-1]):
            there = set(self.leaf_ports[other])
            sides.append(
                [
                    p
                    for p in self.leaf_ports[leaf]
                    if self.bad[p] & there and len(self.good[p] - there) > len(self.bad[p] - there)
                ]
            )
        return sides[0], sides[1]

    def _is_block(self, block: tuple[str, str]) -> bool:
        left, right = self._sides(block)
        states = [self.state.get(_pair(a, b), "unknown") for a in left for b in right]
        measured = len(states) - states.count("unknown")
        two_apart = any(
            {a, b}.isdisjoint(pair) and a in left and b in right
            for pair in itertools.product(left, right)
            if self.state.get(_pair(*pair)) == "bad"
            for a in left
            for b in self.bad[a]
        )
        return (
            self._many(set(left), 2)
            and self._many(set(right), 2)
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
        beside: str | None = None,
    ) -> list[str]:
        """Good ports of the same rail on other nodes: those never bad with it first, and the less used before the more.

        `across`: only on other leaves. `beside`: on the leaf of this port before any other.
        """
        forbidden = {*avoid, *suspects, *self.node_ports[node_of(port)]}
        here = self.leaf[port]
        choice = [
            p
            for p in set().union(*(self.rail_ports[rail] for rail in self.rails[port]))
            if p not in forbidden and self.good[p] and not (across and self.leaf[p] in (None, here))
        ]
        choice = [p for p in choice if _meet(port, p) and self._speaks_for(port, p)]
        used = self.again_good[port]
        wanted = None if beside is None else self.leaf[beside]
        choice.sort(
            key=lambda p: (
                p in self.bad[port],
                used[p],
                self.leaf[p] != wanted,
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
            return "convicted"
        count = 4 if self.again_good[port] else 2
        asked = [self._ask(port, p) for p in self._partners(port, count, suspects, avoid=confirmed, across=across)]
        return "suspected" if any(asked) else "unresolved"

    # -- findings ------------------------------------------------------------------------------------------------------

    def _cells(self, pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, object], ...]:
        told = [cell for pair in pairs for cell in self.tests[_pair(*pair)]]
        sign = 1 if self.better == "higher" else -1
        told.sort(key=lambda c: (not c.again, -math.inf if c.value is None else sign * c.value))
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
            for c in told[:TOLD]
        )

    def _find(
        self,
        kind: Literal["node", "nic", "pair", "switch", "group"],
        members: Iterable[str],
        confidence: Confidence,
        reason: str,
        *,
        cells: Iterable[tuple[str, str]],
        others: Iterable[tuple[str, str]] = (),
        name: str = "",
    ) -> None:
        members = tuple(dict.fromkeys(map(_whole, members)))
        alike: list[dict[str, object]] = [
            {"kind": kind, "id": key, "members": key.split("|")}
            for kind, key in dict.fromkeys((kind, _whole(key)) for kind, key in others)
        ]
        evidence = self._cells(cells)
        self.findings.append(
            Finding(kind, name or "|".join(members), members, confidence, reason, evidence, tuple(alike))
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
        self._find("switch", ports, _together(states), reason, cells=cells, others=few, name=leaf)

    def _block(self, block: tuple[str, str], inside: set[str]) -> None:
        """All is bad between two leaves that are good with others: four ports again, and each leaf with a third."""
        a, b = block
        cells = [pair for pair, state in sorted(self.state.items()) if state == "bad" and self._block_of(pair) == block]
        reason = f"bad block: {len(cells)} cells between the leaves {a} and {b} miss the floor"
        if set(self.leaf_ports) == set(block):
            either = [("switch", a), ("switch", b), ("switch", f"{a}|{b}")]
            reason += "; no third leaf says which of the two it is"
            self._find("group", block, "unresolved", reason, cells=cells, others=either)
            return
        left, right = self._sides(block)
        repeated = {p for pair in cells if pair[1] in self.again_bad[pair[0]] for p in pair}
        asked: list[bool] = []
        if len(repeated) < 4:
            used: set[str] = set()
            # Cells that were not measured yet first: two bad paths alone would be good there.
            for pair in sorted(itertools.product(left, right), key=lambda pair: (_pair(*pair) in self.state, pair)):
                if len(used) < 4 and _meet(*pair) and not used & set(pair) and self.rails[pair[0]] & self.rails[pair[1]]:
                    used |= set(pair)
                    asked.append(self._ask(*pair))
        proven = True
        for leaf, other in (block, block[::-1]):
            ports = self.leaf_ports[leaf]
            third = inside | set(self.leaf_ports[other])
            if not any(self.leaf[o] not in block for p in ports for o in self.again_good[p]):
                proven = False
                for partner in self._partners(ports[0], 1, third, across=True):
                    asked.append(self._ask(ports[0], partner))
        reason += "; both leaves meet it with others: the path between the two switches"
        state: Confidence = "suspected" if any(asked) else "unresolved"
        if len(repeated) >= 4 and proven:
            state = "convicted"
        self._find("switch", block, state, reason, cells=cells)

    def _block_of(self, pair: tuple[str, str]) -> tuple[str, str] | None:
        """The two leaves between which a cell lies."""
        here, there = self.leaf[pair[0]], self.leaf[pair[1]]
        return None if here is None or there is None or here == there else _pair(here, there)

    def _rows(self, rows: set[str], suspects: set[str]) -> None:
        states = {port: self._row(port, suspects) for port in sorted(rows)}
        for node, ports in sorted(self.node_ports.items()):
            bad = [port for port in ports if port in rows]
            if not bad:
                continue
            roles: dict[str, list[str]] = defaultdict(list)
            for port in bad:
                roles[_whole(port)].append(port)
            sure = {port: _either([states[p] for p in mine]) for port, mine in roles.items()}
            every = set(map(_whole, ports))
            if len(roles) == len(every) > 1:
                cells = [(p, o) for p in bad for o in self.bad[p] if o not in suspects]
                reason = f"bad rows on all its {len(every)} ports: {self._count(bad, suspects)}"
                self._find("node", [node], _together(list(sure.values())), reason, cells=cells)
                continue
            for port, mine in roles.items():
                siblings = {_whole(p) for p in ports if self.good[p]} - set(roles)
                reason = f"bad row: {self._count(mine, suspects)}; "
                reason += (
                    f"{len(siblings)} other ports of the node meet it" if siblings else "no other port of it is good"
                )
                cells = [(p, o) for p in mine for o in self.bad[p] if o not in suspects]
                others = [] if siblings else [("node", node)]
                self._find("nic", [port], sure[port], reason, cells=cells, others=others)

    def _count(self, ports: list[str], suspects: set[str]) -> str:
        bad = sum(len(self.bad[p] - suspects) for p in ports)
        good = sum(len(self.good[p] - suspects) for p in ports)
        again = sorted({o for p in ports for o in self.again_bad[p] if o not in suspects})
        text = f"{bad} of {bad + good} cells with good partners miss the floor"
        ways = {_role(p) for p in ports}
        if len(ways) == 1 and "" not in ways:
            text += " where it sends" if SENDING in ways else " where it receives"
        return f"{text}; again with {', '.join(again[:4])}" if again else text

    def _path(self, a: str, b: str, suspects: set[str]) -> None:
        """A bad cell between two ports that are no bad rows."""
        repeated = b in self.again_bad[a]
        passes = max(self.again_good[a][b], self.again_good[b][a])
        misses = "it misses the floor"
        if _role(a):
            misses += f" where {_whole(a if _role(a) == SENDING else b)} sends"
        ends: dict[str, list[str]] = {}
        missing: dict[str, int] = {}
        for end, other in ((a, b), (b, a)):
            ends[end] = sorted(p for p in self.again_good[end] if p != other and p not in suspects)
            good = sum(n for p, n in self.passes[end].items() if p != other and p not in suspects)
            wrong = len(self.bad[end] - {other} - suspects)
            missing[end] = next(n for n in range(100) if not may_flap(wrong, good + n))
            if not ends[end]:
                missing[end] = max(1, missing[end])
        if repeated and not any(missing.values()):
            reason = f"bad cell: {misses} again; {a} meets it again with {ends[a][0]}, {b} with {ends[b][0]}"
            shown = [(a, b), (a, ends[a][0]), (b, ends[b][0])]
            # Several bad paths of one port may as well be a port that flaps and had luck.
            others = [("nic", end) for end in (a, b) if len(self.bad[end] - suspects) > 2]
            self._find("pair", (a, b), "convicted", reason, cells=shown, others=others)
            return
        if not repeated and passes >= ENOUGH_PASSES:
            reason = f"missed the floor once and met it in {passes} tests later: not reproduced, not cleared"
            self._find("pair", (a, b), "unresolved", reason, cells=[(a, b)])
            return
        asked: list[bool] = []
        if not repeated:
            # Once more; where that was good, as often as a link that flaps needs to show it.
            asked += [self._ask(a, b) for _unused in range(1 if passes == 0 else ENOUGH_PASSES - passes)]
        for end, other in ((a, b), (b, a)):
            # On the other's leaf, so that a bad path between the two switches shows too.
            partners = self._partners(end, missing[end], suspects, avoid=[other], beside=other)
            asked += [self._ask(end, p) for p in partners]
        if any(asked):
            self._find("pair", (a, b), "suspected", f"bad cell: {misses}", cells=[(a, b)])
            return
        reason = f"{misses}, and no other good partner is there to tell the path from its ends"
        self._find("pair", (a, b), "unresolved", reason, cells=[(a, b)], others=[("nic", a), ("nic", b)])

    def _unmeasured(self, suspects: set[str]) -> None:
        """What was not measured is nobody's pass: ports without any result, then the other cells in one finding."""
        silent = {
            p for p in self.ports if p not in suspects and self.unknown[p] and not self.good[p] and not self.bad[p]
        }
        for port in sorted(set(map(_whole, silent))):
            cells = [_pair(p, other) for p in sorted(silent) if _whole(p) == port for other in self.unknown[p]]
            reason = f"none of its {len(cells)} cells could be measured: {self._why(cells)}"
            self._find("nic", [port], "unresolved", reason, cells=cells)
        self._slower(suspects)
        rest = sorted(pair for pair, state in self.state.items() if state == "unknown" and not silent & set(pair))
        if rest:
            reason = f"{len(rest)} of {len(self.state)} cells were not measured: {self._why(rest)}"
            members = sorted({port for pair in rest for port in pair})
            self._find("group", members, "unresolved", reason, cells=rest, name="unmeasured")

    def _slower(self, suspects: set[str]) -> None:
        """Ports that met only slower ones are not shown good at their own rate: once more, with one that is as fast."""
        for port in self.ports:
            if port in suspects or self.good[port] or self.bad[port]:
                continue
            slower = sorted(o for o in self.rate if self.state.get(_pair(port, o)) == "good")
            if not slower:
                continue
            asked = [self._ask(port, p) for p in self._partners(port, 1, suspects)]
            reason = f"it met only slower ports ({_whole(slower[0])} and others of {self.rate[slower[0]]:g}, it has {self.rate[port]:g})"
            state: Confidence = "suspected" if any(asked) else "unresolved"
            cells = [(port, other) for other in slower]
            self._find("nic", [port], state, f"{reason} and is not shown good at its own rate", cells=cells)

    def _why(self, cells: Iterable[tuple[str, str]]) -> str:
        """The most frequent reason of tests without a measurement."""
        without = [c for pair in cells for c in self.tests[pair] if self._judge(c) == "unknown"]
        reasons = Counter(c.reason or ("no result" if c.value is None else "no floor is known") for c in without)
        return reasons.most_common(1)[0][0]


def _together(states: list[Confidence]) -> Confidence:
    """What several parts say of the whole: first what is still asked for, then as sure as the least sure of them."""
    for state in ("suspected", "unresolved", "convicted"):
        if state in states:
            return state
    return "unresolved"


def _either(states: list[Confidence]) -> Confidence:
    """What the two roles of one port say of it: first what is still asked for, then as sure as the surer of them."""
    for state in ("suspected", "convicted"):
        if state in states:
            return state
    return "unresolved"


def _merged(findings: list[Finding]) -> tuple[Finding, ...]:
    """One finding for each port and path, where both directions have one."""
    found: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        key = (finding.kind, finding.id)
        other = found.get(key)
        if other is None:
            found[key] = finding
            continue
        reason = finding.reason if finding.reason in other.reason else f"{other.reason}; {finding.reason}"
        sure = _either([other.confidence, finding.confidence])
        alike = tuple(one for one in other.indistinguishable if one in finding.indistinguishable)
        found[key] = dataclasses.replace(
            other, confidence=sure, reason=reason, evidence=(*other.evidence, *finding.evidence)[:TOLD], indistinguishable=alike
        )
    return tuple(found.values())
