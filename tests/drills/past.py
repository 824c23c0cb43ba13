# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fleets whose numbers became worse than their own past, and look-alikes that did not. Each is compared with its past as in a run; a
regression is what a verdict would warn of. Simulated by gpufleet.acceptance."""

from __future__ import annotations

import random
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import regression
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.series import Point, SeriesChange, Today
from rigs.simulated import runs as simulated

CHECK, LEVEL, NOISE, PER_NODE = "gemm bf16", 676.0, 0.004, 8
OLD, NEW = "570.86", "580.12"


class Fleet:
    """The numbers of a fleet of nodes over its runs, the last of which is today's; a GPU is `nNODE/gpu/NUMBER`."""

    def __init__(self, nodes: int = 8, runs: int = 30, noise: float = NOISE, gpus: int = PER_NODE) -> None:
        self.runs, self.nodes = runs, [f"n{number:02}" for number in range(nodes)]
        self.values: dict[str, list[float]] = {}
        self.facts: dict[str, dict[str, dict[str, str]]] = {
            f"run-{run:03d}": {node: {"driver": OLD} for node in self.nodes} for run in range(runs)
        }
        self.racks: dict[str, str] = {}
        for node in self.nodes:
            for gpu in range(gpus):
                rng = random.Random(f"{node} {gpu} {noise}")
                own = LEVEL * rng.uniform(0.98, 1.02)
                self.values[f"{node}/gpu/{gpu}"] = [own * (1 + rng.gauss(0, noise)) for _run in range(runs)]

    def on(self, nodes: t.Iterable[str]) -> set[str]:
        wanted = set(nodes)
        return {subject for subject in self.values if subject.split("/")[0] in wanted}

    def lose(self, subjects: t.Iterable[str], days: int, size: float, back: int = 0) -> Fleet:
        """Lower these by a part in the last `days` runs, but for the last `back` of them."""
        for subject in subjects:
            for run in range(self.runs - days, self.runs - back):
                self.values[subject][run] *= 1 - size
        return self

    def drift(self, subject: str, days: int, size: float) -> Fleet:
        for day in range(days):
            self.values[subject][self.runs - days + day] *= 1 - size * (day + 1)
        return self

    def got(self, nodes: t.Iterable[str], days: int, fact: str = "driver", value: str = NEW) -> Fleet:
        """Give nodes a new value of a fact in the last `days` runs."""
        for run in range(self.runs - days, self.runs):
            for node in nodes:
                self.facts[f"run-{run:03d}"][node] = {**self.facts[f"run-{run:03d}"][node], fact: value}
        return self

    def wander(self, told: bool) -> Fleet:
        """Let racks of four nodes go their own ways by 1 % (AR(1) of 0.8); `told`: the inventory states the racks."""
        for first in range(0, len(self.nodes), 4):
            rng, away = random.Random(f"rack {first}"), 0.0
            rack = self.nodes[first : first + 4]
            for run in range(self.runs):
                away = 0.8 * away + 0.6 * rng.gauss(0, 0.01)
                for subject in self.on(rack):
                    self.values[subject][run] *= 1 + away
            self.racks.update(dict.fromkeys(rack, f"rack-{first}") if told else {})
        return self

    def changes(self, only: t.Collection[str] = (), today: int = -1) -> list[SeriesChange]:
        """Return the changes of a run, the last one unless `today` counts back further; of the subjects `only`, all if empty."""
        last = self.runs + today
        now, past = [], {}
        for subject, values in self.values.items():
            if only and subject not in only:
                continue
            node = subject.split("/")[0]
            places = (("gpu", subject), ("node", node), *((("rack", self.racks[node]),) if node in self.racks else ()))
            now.append(Today(subject, CHECK, self.point(subject, last), places, "H200", unit="TFLOPS", label=CHECK))
            past[subject, CHECK] = [self.point(subject, run) for run in range(last)]
        return regression.changes(now, past, self.facts)

    def point(self, subject: str, run: int) -> Point:
        return Point(f"run-{run:03d}", simulated.time_of(run), self.values[subject][run])


class Seen(t.NamedTuple):
    """The share of the planted subjects that are a regression, the share of those whose sentence names the new driver, and how many others
    are one."""

    found: float
    named: float
    others: int


def seen(fleet: Fleet, hit: t.Collection[str], only: t.Collection[str] = (), days: int = 1) -> Seen:
    """Return what any of the last `days` runs said of the planted subjects."""
    found, named, others = set(), set(), set()
    for day in range(days):
        for change in fleet.changes(only, -1 - day):
            if not change.subject or not change.alarm:
                continue
            if change.subject in hit:
                found.add(change.subject)
                named |= {change.subject} if change.attribution.value == NEW else set()
            else:
                others.add(change.subject)
    count = max(1, len(hit))
    return Seen(len(found) / count, len(named) / count, len(others))


def first_drop() -> Seen:
    fleet, hit = Fleet(), {"n02/gpu/3"}
    return seen(fleet.lose(hit, 1, 0.30), hit)


def most_nodes() -> Seen:
    fleet = Fleet()
    hit = fleet.on(fleet.nodes[:5])
    return seen(fleet.lose(hit, 3, 0.20), hit)


def half_the_fleet(share: float = 0.5) -> Seen:
    fleet = Fleet(20)
    part = fleet.nodes[: round(20 * share)]
    hit = fleet.on(part)
    return seen(fleet.lose(hit, 4, 0.03).got(part, 4), hit, days=2)


def masked() -> Seen:
    """A GPU of the other half lost 4 % before half of the fleet lost 3 %."""
    fleet, bad = Fleet(20), {"n15/gpu/2"}
    part = fleet.nodes[:10]
    return seen(fleet.lose(bad, 8, 0.04).lose(fleet.on(part), 4, 0.03).got(part, 4), {*bad})._replace(others=0)


def slow_drift() -> Seen:
    return seen(Fleet(runs=50).drift("n03/gpu/1", 20, 0.002), {"n03/gpu/1"}, days=3)


def three_sigma() -> Seen:
    fleet, hit = Fleet(runs=40, noise=0.01), {f"n{node:02}/gpu/5" for node in range(8)}
    return seen(fleet.lose(hit, 6, 0.04), hit, days=3)


def in_a_rack(told: bool) -> Seen:
    fleet = Fleet(16, 40).wander(told)
    hit = fleet.on(["n05"])
    return seen(fleet.lose(hit, 4, 0.05), hit)


def a_rack() -> Seen:
    fleet = Fleet(16, 40).wander(True)
    hit = fleet.on(fleet.nodes[4:8])
    return seen(fleet.lose(hit, 4, 0.08), hit)


def after_a_repair() -> Seen:
    """A node that lost 10 % is repaired, returns at its old level, and loses 5 % three runs later."""
    fleet = Fleet(runs=40)
    hit = fleet.on(["n01"])
    return seen(fleet.lose(hit, 16, 0.10, back=6).got(["n01"], 6, "repaired", "ticket 7").lose(hit, 3, 0.05), hit)


def few(count: int) -> Seen:
    """As many subjects as `count`, on nodes of their own, all lose 6 %."""
    fleet = Fleet(count, gpus=1)
    return seen(fleet.lose(fleet.values, 3, 0.06), set(fleet.values))


def lone_node() -> Seen:
    """After a new driver everywhere, which costs 6 %, the first runs are those of a single node."""
    fleet = Fleet(10).got([f"n{node:02}" for node in range(10)], 3)
    hit = fleet.on(["n04"])
    return seen(fleet.lose(fleet.values, 3, 0.06), hit, only=hit)


# What is planted: the number of its item, the least share of the planted subjects that are a regression, and the least share that names the
# driver that is the cause.
FAULTS: list[tuple[str, float, float, t.Callable[[], Seen]]] = [
    ("30 % lower today after 29 steady runs", 1.0, 0.0, first_drop),
    ("five of eight nodes are 20 % lower for three runs", 1.0, 0.0, most_nodes),
    ("half of the fleet has a driver that costs 3 %", 0.95, 0.95, half_the_fleet),
    ("60 % of the fleet have a driver that costs 3 %", 0.95, 0.95, lambda: half_the_fleet(0.6)),
    ("a GPU that was slow before the other half of the fleet became it", 1.0, 0.0, masked),
    ("a drift of 0.2 % a run", 1.0, 0.0, slow_drift),
    ("steps of four times the noise", 0.85, 0.0, three_sigma),
    ("a node loses 5 % in a rack that wanders, which is stated", 1.0, 0.0, lambda: in_a_rack(True)),
    ("a node loses 5 % in a rack that wanders, which nobody states", 1.0, 0.0, lambda: in_a_rack(False)),
    ("a whole rack of those that wander loses 8 %", 0.9, 0.0, a_rack),
    ("a repaired node at its old level loses 5 % three runs later", 0.85, 0.0, after_a_repair),
    *((f"all of {count} nodes lose 6 %", 1.0, 0.0, lambda c=count: few(c)) for count in (2, 3, 4)),
    ("a lone node after a driver of the whole fleet that costs 6 %", 1.0, 1.0, lone_node),
]


def everybody() -> Seen:
    fleet = Fleet(20)
    return seen(fleet.lose(fleet.values, 4, 0.03).got(fleet.nodes, 4), ())


def repaired() -> Seen:
    fleet = Fleet(runs=40)
    return seen(fleet.lose(fleet.on(["n01"]), 16, 0.10, back=6).got(["n01"], 6, "repaired", "ticket 7"), ())


# Look-alikes in which nobody may be a regression, and how many may be by chance.
HEALTHY: list[tuple[str, int, t.Callable[[], Seen]]] = [
    ("nothing changes", 0, lambda: seen(Fleet(20), ())),
    ("the whole fleet has a driver that costs 3 %", 0, everybody),
    ("a node is back at its old level after a repair", 0, repaired),
    ("racks that wander, and are stated", 1, lambda: seen(Fleet(16, 40).wander(True), ())),
    ("the others, where half of the fleet has a driver that costs 3 %", 0, half_the_fleet),
    ("the others, where five of eight nodes are 20 % lower", 0, most_nodes),
    ("one run of a GPU is 3 % lower, less than a drop", 0, lambda: seen(Fleet(noise=0.01).lose({"n02/gpu/3"}, 1, 0.03), ())),
]


def wrong() -> tuple[int, list[str], list[str]]:
    """Return how many faults were planted, which of them nobody is told of, and which healthy fleets somebody is."""
    bad, good = [], []
    for what, least, named, ask in FAULTS:
        was = ask()
        if was.found < least or was.named < named:
            bad.append(f"history: {what}: {was.found:.0%} found, {was.named:.0%} with the driver")
    for what, most, ask in HEALTHY:
        was = ask()
        if was.others > most:
            good.append(f"history: {what}: {was.others} are said to be worse")
    return len(FAULTS), bad, good
