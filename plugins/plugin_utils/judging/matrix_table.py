# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tests of a matrix by pairs of ports, for its diagnosis (judging/matrix.py).

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of

TOLD = 16  # so many cells are listed as evidence, the worst first

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


# A port in one of its two roles, where cells are directed.
SENDING, RECEIVING = " sending", " receiving"


def role(port: str) -> str:
    return SENDING if port.endswith(SENDING) else RECEIVING if port.endswith(RECEIVING) else ""


def whole(port: str) -> str:
    """Return the port of one of its roles."""
    suffix = role(port)
    return port[: -len(suffix)] if suffix else port


def meet(a: str, b: str) -> bool:
    """Return True if two ports in their roles can be tested with each other: not if both only send."""
    return not role(a) or role(a) != role(b)


def pair_of(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a < b else (b, a)


class PairTable:
    """The tests between ports. Where cells are directed, a port stands for two: one in each role.

    `tests` are the cells of each pair and `depths` their results as shares of the floor; `state` is what they say together. `bad`, `good`
    and `unknown` are the peers of each port by that; `first_bad` those of first tests, `again_bad`, `again_good` and `again_unknown` those
    of repeated ones.
    """

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
        for cell in cells:
            if cell.a == cell.b:
                raise ValueError(f"a cell needs two ports: {cell.a}")
            if cell.floor is not None and not math.isfinite(cell.floor):
                raise ValueError(f"found the floor {cell.floor} of {cell.a} and {cell.b}, expected a number or none")
            self._add(cell)
        for (a, b), tests in self.tests.items():
            self.depths[a, b] = [self.depth(cell) for cell in tests if self.judge(cell) != "unknown"]
            states = {self.judge(cell) for cell in tests}
            state: Literal["good", "bad", "unknown"] = (
                "bad" if "bad" in states else "good" if "good" in states else "unknown"
            )
            self.state[a, b] = state
            table = {"bad": self.bad, "good": self.good, "unknown": self.unknown}[state]
            for port, peer in ((a, b), (b, a)):
                if state != "good" or self.speaks_for(port, peer):
                    table[port].add(peer)
        self.ports = sorted(self.rails)
        self.leaf = {port: topology.get(whole(port), topology.get(node_of(port))) for port in self.ports}
        self.node_ports: dict[str, list[str]] = defaultdict(list)
        self.leaf_ports: dict[str, list[str]] = defaultdict(list)
        for port in self.ports:
            self.node_ports[node_of(port)].append(port)
            leaf = self.leaf[port]
            if leaf is not None:
                self.leaf_ports[leaf].append(port)

    def _add(self, cell: Cell) -> None:
        a, b = (cell.a + SENDING, cell.b + RECEIVING) if cell.directed else (cell.a, cell.b)
        self.tests[pair_of(a, b)].append(cell)
        for port, rate in zip((a, b), cell.rates, strict=True):
            if rate is not None:
                self.rate[port] = rate
        for port, peer in ((a, b), (b, a)):
            self.rails[port].add(cell.rail)
            self.rail_ports[cell.rail].add(port)
            state = self.judge(cell)
            if state == "good" and not self.speaks_for(port, peer):
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

    def speaks_for(self, port: str, peer: str) -> bool:
        """Return True if a good test between two ports proves anything about `port`: not if `peer` is slower."""
        return self.rate.get(peer, math.inf) >= self.rate.get(port, 0.0)

    def judge(self, cell: Cell) -> Standing:
        return standing(cell.outcome, cell.value, cell.floor, self.better)

    def depth(self, cell: Cell) -> float:
        """Return the result of a test as a share of its floor; 0 if the link broke."""
        if cell.outcome == "failed" or cell.value is None or not cell.floor:
            return 0.0
        return cell.value / cell.floor if self.better == "higher" else cell.floor / cell.value

    def repeated(self, tests: Iterable[Cell]) -> tuple[int, int]:
        """Return (bad, usable) numbers of the repeated tests. First tests do not count: a suspect is one because they were bad."""
        states = [self.judge(cell) for cell in tests if cell.again]
        return states.count("bad"), len(states) - states.count("unknown")

    def always_bad(self, pair: tuple[str, str]) -> bool:
        """Bad in each of several tests: its own fault, and no noise."""
        depths = self.depths.get(pair, [])
        return len(depths) > 3 and max(depths) < 1

    def block_of(self, pair: tuple[str, str]) -> tuple[str, str] | None:
        """The two leaves between which a cell lies."""
        leaf_a, leaf_b = self.leaf[pair[0]], self.leaf[pair[1]]
        return None if leaf_a is None or leaf_b is None or leaf_a == leaf_b else pair_of(leaf_a, leaf_b)

    def third(self, pair: tuple[str, str], leaf: str, block: tuple[str, str]) -> bool:
        """Return True if a cell lies between a leaf of the block and one outside it."""
        leaf_a, leaf_b = self.leaf[pair[0]], self.leaf[pair[1]]
        return leaf_b not in (None, *block) if leaf_a == leaf else leaf_b == leaf and leaf_a not in (None, *block)

    def many(self, ports: set[str], count: int) -> bool:
        """At least `count` ports, of at least two nodes: no single node can be behind them."""
        return len(ports) >= count and len({node_of(port) for port in ports}) >= 2

    def evidence(self, pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, object], ...]:
        cells_of_pairs = [cell for pair in pairs for cell in self.tests[pair_of(*pair)]]
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

    def why(self, cells: Iterable[tuple[str, str]]) -> str:
        """The most frequent reason of tests without a measurement."""
        without = [c for pair in cells for c in self.tests[pair] if self.judge(c) == "unknown"]
        reasons = Counter(c.reason or ("no result" if c.value is None else "no floor is known") for c in without)
        return reasons.most_common(1)[0][0]
