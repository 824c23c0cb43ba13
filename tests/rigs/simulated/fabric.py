# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A fabric with injected faults that answers group tests, random trials over it, and their score.

Simulated by gpufleet.acceptance.

A repetition of a test is bad when a fault that it exercises strikes:

    node    any test with the node; `aggregate`: only with all its GPUs at work (a narrow PCIe uplink)
    gpu     any test with that slot of the node
    pair    a ring in which the two are neighbours (paths="ring"), or any group with both (paths="mesh")
    switch  any test with a node of the leaf; `uplink`: only a test that leaves the leaf

`share` is the share of repetitions in which it strikes (a flapping link: at least a half); `hang`: the group hangs.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise.search import (
    GroupTest,
    GroupTestResult,
    Localiser,
    SearchFinding,
)
from rigs.simulated.noise import factor

HEALTHY, FLOOR, SLOW = 380.0, 342.0, 0.6  # busbw in GB/s; the floor is 0.90 of the healthy value


@dataclasses.dataclass(frozen=True)
class Fault:
    kind: str  # node, gpu, pair, switch
    nodes: tuple[str, ...]  # of a switch: every node of the leaf
    slot: int = -1
    share: float = 1.0
    hang: bool = False
    uplink: bool = False
    aggregate: bool = False
    leaf: str = ""

    @property
    def subject(self) -> tuple[str, str]:
        """Kind and id as a finding has them; GPUs are called GPU-<slot>."""
        if self.kind == "gpu":
            return "gpu", f"{self.nodes[0]}/gpu/GPU-{self.slot}"
        if self.kind == "switch":
            return "switch", self.leaf
        return self.kind, "|".join(sorted(self.nodes))


class Fabric:
    """Answers tests over `nodes` with `slots` GPUs each; counts what it was asked."""

    def __init__(
        self,
        nodes: Sequence[str],
        faults: Iterable[Fault],
        *,
        slots: int = 8,
        paths: Literal["ring", "mesh"] = "ring",
        seed: int = 0,
        broken: Mapping[str, str] | None = None,
        noise: tuple[float, str] | None = None,
    ) -> None:
        self.noise = noise  # standard deviation and shape, see noise.py
        self.nodes = tuple(nodes)
        self.faults = list(faults)
        self.slots = slots
        self.paths = paths
        self.broken = dict(broken or {})  # node -> why no test with it can be measured
        self._random = random.Random(seed)
        self.tests = 0
        self.slot_tests = 0

    @property
    def gpus(self) -> dict[str, list[str]]:
        return {node: [f"GPU-{slot}" for slot in range(self.slots)] for node in self.nodes}

    def exercised(self, fault: Fault, test: GroupTest) -> bool:
        members = set(test.nodes)
        inside = members.intersection(fault.nodes)
        if not inside:
            return False
        if fault.kind == "node":
            return not (fault.aggregate and test.gpus is not None)
        if fault.kind == "gpu":
            return test.gpus is None or fault.slot in test.gpus
        if fault.kind == "switch":
            return not fault.uplink or inside != members
        if len(inside) < 2:
            return False
        if self.paths == "mesh":
            return True
        ring = test.nodes
        return any({ring[i], ring[i - 1]} == inside for i in range(len(ring)))

    def measure(self, test: GroupTest) -> GroupTestResult:
        self.tests += 1
        self.slot_tests += test.gpus is not None
        for node in test.nodes:
            if node in self.broken:
                return GroupTestResult("unknown", reason=self.broken[node])
        faults = [fault for fault in self.faults if self.exercised(fault, test)]
        values: list[float] = []
        while True:
            value = HEALTHY * (factor(self._random, *self.noise) if self.noise else self._random.uniform(0.97, 1.0))
            for fault in faults:
                if fault.share >= 1.0 or self._random.random() < fault.share:
                    if fault.hang:
                        return GroupTestResult("hang", tuple(values), FLOOR, reason="the group did not end within its deadline")
                    value *= SLOW
            values.append(value)
            if result := GroupTestResult.so_far(values, FLOOR, test.repeats):
                return result

    def run(self, tests: Sequence[GroupTest]) -> dict[int, GroupTestResult]:
        """All tests of a round; AssertionError where two of them would share a node's GPU."""
        used: set[tuple[str, int]] = set()
        for test in tests:
            assert len(set(test.nodes)) == len(test.nodes) >= 2, f"not a group: {test}"
            for node in test.nodes:
                for slot in test.gpus if test.gpus is not None else range(self.slots):
                    assert (node, slot) not in used, f"{node} slot {slot} is used twice in a round"
                    used.add((node, slot))
        return {test.id: self.measure(test) for test in tests}


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One random trial: a pool, its leaves where they are known, and what is wrong with it."""

    nodes: tuple[str, ...]
    topology: dict[str, str] | None
    faults: tuple[Fault, ...]
    silent: tuple[Fault, ...]  # slow paths that the ring of the whole pool does not use: real, but nobody asked
    paths: Literal["ring", "mesh"]
    slots: int
    seed: int
    noise: tuple[float, str] | None = None

    def fabric(self) -> Fabric:
        faults = (*self.faults, *self.silent)
        return Fabric(self.nodes, faults, slots=self.slots, paths=self.paths, seed=self.seed, noise=self.noise)


KINDS = (
    "node", "aggregate", "gpu", "pair", "switch", "uplink",
    "flapping node", "flapping gpu", "flapping pair", "hang node", "hang gpu",
)  # fmt: skip


def scenario(
    seed: int,
    *,
    size: int | None = None,
    count: int | None = None,
    paths: Literal["ring", "mesh"] = "ring",
    kinds: Sequence[str] = KINDS,
    noise: tuple[float, str] | None = None,
    wild: bool = False,
) -> Scenario:
    """Draws a trial: 4 to 1,024 nodes (logarithmically even), 1 to 5 faults, at most (N-2)/2 bad nodes and paths."""
    rng = random.Random(seed)
    size = size or min(1024, round(4 * 2 ** rng.uniform(0, 8)))
    nodes = tuple(f"n{i:04d}" for i in range(size))
    budget = (size - 2) // 2
    wanted = min(count or rng.randint(1, 5), 5, budget)
    topology: dict[str, str] | None = None
    leaf_size = rng.choice([4, 8, 16, 32])
    if size >= 3 * leaf_size and (rng.random() < 0.6 or set(kinds) <= {"switch", "uplink"}):
        order = list(range(size))
        if rng.random() < 0.25:
            rng.shuffle(order)  # the ring need not follow the leaves
        leaves = size // leaf_size
        topology = {nodes[n]: f"leaf-{min(i // leaf_size, leaves - 1)}" for i, n in enumerate(order)}
    touched: set[str] = set()
    faults: list[Fault] = []
    tries = 0
    while len(faults) < wanted and tries < 200:
        tries += 1
        kind = rng.choice(kinds)
        fault = _draw(kind, rng, nodes, topology, paths)
        if fault is None or (touched.intersection(fault.nodes) and not wild):
            continue
        if wild and rng.random() < 1 / 3:
            fault = dataclasses.replace(fault, share=rng.uniform(0.1, 1.0))
        cost = len(fault.nodes) if fault.kind == "switch" else 1
        if cost > budget:
            continue
        budget -= cost
        touched.update(fault.nodes)
        faults.append(fault)
    if not faults:  # a switch needs leaves that the pool is too small for
        faults.append(Fault("node", (rng.choice(nodes),)))
    silent: list[Fault] = []
    if paths == "ring" and size >= 8 and rng.random() < 0.2:
        for _unused in range(rng.randint(1, 3)):
            a, b = sorted(rng.sample(range(size), 2))
            if b - a not in (1, size - 1) and not touched.intersection((nodes[a], nodes[b])):
                silent.append(Fault("pair", (nodes[a], nodes[b])))
    return Scenario(nodes, topology, tuple(faults), tuple(silent), paths, rng.choice([1, 2, 4, 8, 8, 8]), seed, noise)


def _draw(
    kind: str, rng: random.Random, nodes: Sequence[str], topology: Mapping[str, str] | None, paths: str
) -> Fault | None:
    share = rng.uniform(0.5, 0.95) if kind.startswith("flapping") else 1.0
    what = kind.rsplit(maxsplit=1)[-1]
    if what in ("node", "aggregate"):
        return Fault(
            "node", (rng.choice(nodes),), share=share, hang=kind.startswith("hang"), aggregate=kind == "aggregate"
        )
    if what == "gpu":
        return Fault("gpu", (rng.choice(nodes),), slot=0, share=share, hang=kind.startswith("hang"))
    if what == "pair":
        first = rng.randrange(len(nodes))
        other = (
            (first + 1) % len(nodes) if paths == "ring" else rng.choice([n for n in range(len(nodes)) if n != first])
        )
        return Fault("pair", (nodes[first], nodes[other]), share=share)
    if topology is None:
        return None
    leaf = rng.choice(sorted(set(topology.values())))
    return Fault("switch", tuple(n for n in nodes if topology[n] == leaf), uplink=kind == "uplink", leaf=leaf)


@dataclasses.dataclass(frozen=True)
class Trial:
    """The result of a session in a scenario."""

    scenario: Scenario
    findings: list[SearchFinding]
    missed: set[tuple[str, str]]
    innocent: set[tuple[str, str]]
    indistinguishable: int
    rounds: int
    tests: int
    slot_tests: int

    @property
    def right(self) -> bool:
        return not self.missed and not self.innocent


def play(given: Scenario) -> Trial:
    """Runs a session to its end. A finding is right when it, or what it cannot be told from, was injected."""
    fabric = given.fabric()
    session = Localiser(given.nodes, gpus=fabric.gpus, topology=given.topology, paths=given.paths, seed=given.seed + 1)
    while tests := session.next_round():
        session.record(fabric.run(tests))
    truth = {fault.subject for fault in given.faults}
    real = truth | {fault.subject for fault in given.silent}
    findings = session.findings()
    found: set[tuple[str, str]] = set()
    innocent: set[tuple[str, str]] = set()
    convicted = [finding for finding in findings if finding.confidence == "convicted"]
    for finding in convicted:
        named = {(finding.kind, finding.id), *((str(o["kind"]), str(o["id"])) for o in finding.indistinguishable)}
        found |= named & truth
        # A node that it is not told from stands for its GPUs too.
        alike = {str(o["id"]) for o in finding.indistinguishable if o["kind"] == "node"}
        named |= {subject for subject in real if subject[0] == "gpu" and subject[1].partition("/")[0] in alike}
        if not named & real:
            innocent.add((finding.kind, finding.id))
    assert session.tests == fabric.tests
    several = sum(1 for finding in convicted if finding.indistinguishable)
    return Trial(given, findings, truth - found, innocent, several, session.rounds, session.tests, fabric.slot_tests)
