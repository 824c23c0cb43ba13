# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Pair tests over rails with injected faults, random matrices of them, and their score.

Simulated by gpufleet.acceptance. A test between the ports of two nodes on one rail is bad when a fault that it
exercises strikes: of a node (all its rails), a port, a path (two ports), a switch (`uplink`: only across its leaf) or a
block (the path between two leaf switches). `share` is the share of tests in which it strikes.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise.search import SearchFinding
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix import diagnose_matrix
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_table import Cell
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of
from rigs.simulated.noise import factor

WIRE, FLOOR, SLOW = 392.0, 380.0, 0.5  # Gb/s of one 400 Gb/s port
NOISY_FLOOR = 0.9 * 384  # of what is expected
KINDS = ("node", "port", "path", "switch", "uplink", "block", "flapping port", "flapping path", "broken port")


def port(node: str, rail: int) -> str:
    return f"{node}/nic/mlx5_{rail}/1"


@dataclasses.dataclass(frozen=True)
class Fault:
    kind: str  # node, port, path, switch, uplink, block
    ports: frozenset[str]
    subject: tuple[str, str]
    other: frozenset[str] = frozenset()  # a block: the ports of its second leaf
    share: float = 1.0
    breaks: bool = False  # the link breaks instead of being slow
    way: str = ""  # one way only: a port "sends" or "receives", a path from its "first" port or to it ("second")

    def exercised(self, a: str, b: str) -> bool:
        """Return True if a test in which `a` sends meets the fault. Without a way both are met by every test between them."""
        if self.way == "sends" and a not in self.ports:
            return False
        if self.way == "receives" and b not in self.ports:
            return False
        if self.way in ("first", "second") and (a == min(self.ports)) != (self.way == "first"):
            return False
        if self.kind == "path":
            return {a, b} == self.ports
        if self.kind == "block":
            return (a in self.ports and b in self.other) or (b in self.ports and a in self.other)
        if self.kind == "uplink":
            return (a in self.ports) != (b in self.ports)
        return a in self.ports or b in self.ports


class Rails:
    """Answers pair tests; `unmeasured` is the share of the matrix's tests without a number, `dead` ports give none.

    `directed`: the first port of a test sends, the second receives. `noise`: standard deviation and shape, see noise.py; the floor then
    lies where FAIL does.
    """

    def __init__(
        self,
        faults: Iterable[Fault],
        *,
        seed: int = 0,
        unmeasured: float = 0.0,
        dead: Iterable[str] = (),
        directed: bool = False,
        noise: tuple[float, str] | None = None,
    ) -> None:
        self.noise = noise
        self.floor = FLOOR if noise is None else NOISY_FLOOR
        self.directed = directed
        self.faults = list(faults)
        self.unmeasured = unmeasured
        self.dead = set(dead)
        self.tests = 0
        self.struck: set[tuple[str, str]] = set()
        self.alone: set[tuple[str, str]] = set()  # of them those that a test met without another
        self._random = random.Random(seed)

    def measure(self, a: str, b: str, rail: str, again: bool = False) -> Cell:
        self.tests += 1
        if self.dead & {a, b} or (not again and self._random.random() < self.unmeasured):
            return Cell(a, b, rail, None, "unknown", again, "connection refused", self.floor, self.directed)
        value = WIRE * (factor(self._random, *self.noise) if self.noise else self._random.uniform(0.99, 1.0))
        strikes = [fault for fault in self.faults if fault.exercised(a, b) and self._random.random() < fault.share]
        self.struck |= {fault.subject for fault in strikes}
        self.alone |= {fault.subject for fault in strikes if len(strikes) == 1}
        if any(fault.breaks for fault in strikes):
            return Cell(a, b, rail, None, "failed", again, "the link broke in mid-run", self.floor, self.directed)
        value *= SLOW ** len(strikes)
        return Cell(a, b, rail, value, again=again, floor=self.floor, directed=self.directed)

    def settle(
        self, cells: list[Cell], topology: Mapping[str, str] | None = None
    ) -> tuple[tuple[SearchFinding, ...], list[Cell], int]:
        """Reads the matrix and measures what is asked for until nothing more is: findings, all cells, readings."""
        for reading in itertools.count(1):
            diagnosis = diagnose_matrix(cells, topology=topology)
            if not diagnosis.again:
                return diagnosis.findings, cells, reading
            assert reading < 30, [(f.kind, f.id, f.reason) for f in diagnosis.findings if f.confidence == "suspected"]
            cells = cells + [self.measure(a, b, rail, again=True) for a, b, rail in diagnosis.again]
        raise AssertionError


def pairs(
    nodes: Sequence[str], rails: int, *, partners: int | None = None, seed: int = 0
) -> list[tuple[str, str, str]]:
    """Every pair of nodes on every rail, or about `partners` random partners for each node."""
    rng = random.Random(seed)
    chosen = list(itertools.combinations(nodes, 2))
    if partners is not None:
        some: set[tuple[str, str]] = set()
        for _unused in range(partners):
            order = list(nodes)
            rng.shuffle(order)
            some |= {(min(p), max(p)) for p in zip(order[::2], order[1::2], strict=False)}
        chosen = sorted(some)
    return [(port(a, rail), port(b, rail), f"rail{rail}") for a, b in chosen for rail in range(rails)]


@dataclasses.dataclass(frozen=True)
class Trial:
    seed: int
    faults: list[Fault]
    findings: tuple[SearchFinding, ...]
    missed: set[tuple[str, str]]
    innocent: set[tuple[str, str]]
    readings: int
    again: int
    undecided: set[tuple[str, str]] = dataclasses.field(default_factory=set)
    hidden: set[tuple[str, str]] = dataclasses.field(default_factory=set)

    @property
    def right(self) -> bool:
        return not self.missed and not self.innocent

    @property
    def sound(self) -> bool:
        """Nobody is convicted wrongly, and what is bad in every test is found, or named as not looked at behind something found; what
        comes and goes may be undecided, and is said to be. Nothing is silent."""
        clear = {fault.subject for fault in self.faults if fault.share == 1}
        return not self.innocent and not (self.missed & clear) - self.hidden and not self.missed - self.undecided - self.hidden


def trial(
    seed: int,
    *,
    kinds: Sequence[str] = KINDS,
    sampled: bool | None = None,
    directed: bool = False,
    nodes_of: Sequence[int] = (),
    noise: tuple[float, str] | None = None,
    wild: bool = False,
    meet: bool = False,
) -> Trial:
    """A random matrix of 6 to 48 nodes (or one of `nodes_of`), 1 to 8 rails and one to four faults, a fiftieth of its cells unmeasured.

    `directed`: each direction is a cell of its own, and half of the faults of nodes, ports and paths are one way only. `noise`: as of
    Rails. `wild`: up to five faults, that may share nodes and ports, and of which a third strikes in a tenth of its tests or more.
    """
    rng = random.Random(seed)
    size, rails = rng.choice(nodes_of) if nodes_of else rng.randint(6, 48), rng.choice([1, 2, 4, 8])
    nodes = [f"h{i:02d}" for i in range(size)]
    topology: dict[str, str] | None = None
    leaf_size = rng.choice([4, 5, 6, 8])
    if size >= 4 * leaf_size and (rng.random() < 0.6 or set(kinds) <= {"switch", "uplink", "block"}):
        leaves = size // leaf_size
        # Rail-optimised: each rail of a block of nodes has a leaf switch of its own.
        topology = {
            port(node, rail): f"leaf-{min(i // leaf_size, leaves - 1)}-{rail}"
            for i, node in enumerate(nodes)
            for rail in range(rails)
        }
    faults: list[Fault] = []
    touched: set[str] = set()
    budget = max(1, (size - 2) // 3)
    if meet:
        middle, *others = (port(node, 0) for node in rng.sample(nodes, rng.choice([3, 4] if size > 4 else [3])))
        paths = [frozenset([middle, other]) for other in others]
        faults = [Fault("path", ends, ("pair", "|".join(sorted(ends)))) for ends in paths]
    for _unused in range(0 if meet else 40):
        fault = _draw(rng.choice(kinds), rng, nodes, rails, topology)
        if fault is None:
            continue
        if directed and rng.random() < 0.5:
            ways = {"node": ("sends", "receives"), "port": ("sends", "receives"), "path": ("first", "second")}
            fault = dataclasses.replace(fault, way=rng.choice(ways.get(fault.kind, ("",))))
        hit = {node_of(p) for p in fault.ports | fault.other}
        cost = len(hit) if fault.kind in ("switch", "uplink", "block") else 1
        if wild and rng.random() < 1 / 3:
            fault = dataclasses.replace(fault, share=rng.uniform(0.1, 1.0))
        if wild and faults and fault.kind == "path" and rng.random() < 0.5:  # at an end of another fault
            end, other = rng.choice(sorted(rng.choice(faults).ports)), rng.choice(sorted(fault.ports))
            if end[-3:] == other[-3:] and node_of(end) != node_of(other):
                fault = dataclasses.replace(fault, ports=frozenset([end, other]), subject=("pair", "|".join(sorted((end, other)))))
            hit = set()
        if cost <= budget and not (hit & touched and not wild):
            faults.append(fault)
            touched |= hit
            budget -= cost
        if len(faults) == (5 if wild else 4) or rng.random() < 0.4:
            break
    few = rng.random() < 0.3 if sampled is None else sampled
    fabric = Rails(faults, seed=seed, unmeasured=0.02, directed=directed, noise=noise)
    tests = pairs(nodes, rails, partners=6 if few else None, seed=seed)
    tests += [(b, a, rail) for a, b, rail in tests] if directed else []
    cells = [fabric.measure(*test) for test in tests]
    first = fabric.tests
    # A fault that no test of the matrix met cannot be known: a path that was not sampled, or that flapped and was up.
    truth, alone = set(fabric.struck), set(fabric.alone)
    findings, _unused, readings = fabric.settle(cells, topology)
    found: set[tuple[str, str]] = set()
    innocent: set[tuple[str, str]] = set()
    for finding in findings:
        if finding.confidence == "convicted":
            named = {(finding.kind, finding.id), *((str(o["kind"]), str(o["id"])) for o in finding.indistinguishable)}
            if finding.kind == "nic":  # the port of a bad node is none, nor the node whose ports are all bad
                named.add(("node", node_of(finding.id)))
            if finding.kind == "node" and rails <= sum(f.kind == "port" and node_of(min(f.ports)) == finding.id for f in faults):
                named |= {f.subject for f in faults if f.kind == "port" and node_of(min(f.ports)) == finding.id}
            found |= named & truth
            if not named & {fault.subject for fault in faults}:
                innocent.add((finding.kind, finding.id))
    looked = {subject for finding in findings for subject in _told(finding, topology or {})}
    missed = truth - found
    behind = {path for finding in findings for path in finding.not_looked_at}
    ends = {end for path in behind for port in path.split("|") for end in (port, node_of(port))}
    leaves = {(topology or {}).get(end) for end in ends}
    hidden = {(kind, name) for kind, name in missed if name in behind | ends or set(name.split("|")) & leaves}
    # What comes and goes and came only where something else was bad too cannot be known either.
    hidden |= missed - looked - alone - {fault.subject for fault in faults if fault.share == 1}
    return Trial(
        seed, faults, findings, missed, innocent, readings, fabric.tests - first, missed & looked - hidden, hidden,
    )  # fmt: skip


def _told(finding: SearchFinding, topology: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """What a finding that convicts nobody leaves open: its subject, and everything that its ports belong to."""
    if finding.confidence != "convicted":
        yield finding.kind, finding.id
        yield from ((str(o["kind"]), str(o["id"])) for o in finding.indistinguishable)
        for port in finding.members:
            yield "nic", port
            yield "node", node_of(port)
        leaves = [topology[port] for port in finding.members if port in topology]
        yield from (("switch", leaf) for leaf in (*leaves, "|".join(sorted(set(leaves)))))


def _draw(
    kind: str, rng: random.Random, nodes: Sequence[str], rails: int, topology: Mapping[str, str] | None
) -> Fault | None:
    share = rng.uniform(0.5, 0.95) if kind.startswith("flapping") else 1.0
    what = kind.rsplit(maxsplit=1)[-1]
    rail = rng.randrange(rails)
    a, b = (port(node, rail) for node in sorted(rng.sample(list(nodes), 2)))
    if what == "node":
        return Fault("node", frozenset(port(node_of(a), r) for r in range(rails)), ("node", node_of(a)))
    if what == "port":
        return Fault("port", frozenset([a]), ("nic", a), share=share, breaks=kind.startswith("broken"))
    if what == "path":
        return Fault("path", frozenset([a, b]), ("pair", f"{a}|{b}"), share=share)
    if topology is None:
        return None
    here, there = topology[a], topology[b]
    ports = frozenset(p for p in topology if topology[p] == here)
    if what != "block":
        return Fault(what, ports, ("switch", here))
    if here == there:
        return None
    return Fault(
        "block",
        ports,
        ("switch", "|".join(sorted((here, there)))),
        frozenset(p for p in topology if topology[p] == there),
    )
