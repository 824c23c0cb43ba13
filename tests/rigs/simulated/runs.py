# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The runs of a fleet over weeks, with changes planted in some of its subjects.

Simulated by gpufleet.acceptance.
"""

from __future__ import annotations

import dataclasses
import datetime
import random
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.series import Facts, Key, Point, Today
from rigs.simulated.noise import factor

LEVEL = 676.0
PER_NODE = 8


@dataclasses.dataclass(frozen=True)
class Weather:
    """The healthy variation of a fleet. `noise` is a standard deviation, drawn for each subject between the two."""

    noise: tuple[float, float] = (0.01, 0.01)
    shape: str = "heavy"
    alike: float = 0.0  # correlation of a run with the one before
    of_run: float = 0.0  # standard deviation of what a run does to all
    missing: float = 0.02
    hiccups: float = 0.005
    everybody: tuple[int, float] | None = None  # (run, size) of a step of all, with a new driver
    rounded: float = 0.0  # to a multiple of it
    better: str = "higher"
    late: float = 0.0  # share of the subjects that join later


@dataclasses.dataclass(frozen=True)
class Plant:
    """`kind`: step (once, by `size`), drift (by `size` each run), flapping, scatter (times `size`)."""

    kind: str
    onset: int
    size: float
    until: int = 10**6


@dataclasses.dataclass
class Fleet:
    runs: int
    subjects: list[str]
    nodes: dict[str, str]
    values: dict[str, list[float | None]]
    plants: dict[str, Plant]
    hiccups: set[tuple[str, int]]
    weather: Weather
    noise: dict[str, float] = dataclasses.field(default_factory=dict)
    racks: dict[str, str] = dataclasses.field(default_factory=dict)  # of nodes, where somebody has said it

    def today(self, run: int, subjects: t.Iterable[str] | None = None) -> list[Today]:
        return [
            Today(
                subject=s, check="gemm bf16", point=self.point(s, run), places=self.places(s), model="H200",
                better=self.weather.better, unit="TFLOPS", label="gemm bf16",
            )
            for s in subjects or self.subjects
            if self.values[s][run] is not None
        ]  # fmt: skip

    def places(self, subject: str) -> tuple[tuple[str, str], ...]:
        node = self.nodes[subject]
        return ("gpu", subject), ("node", node), *((("rack", self.racks[node]),) if node in self.racks else ())

    def past(self, run: int) -> dict[Key, list[Point]]:
        return {(s, "gemm bf16"): [self.point(s, r) for r in range(run) if self.values[s][r] is not None] for s in self.subjects}

    def point(self, subject: str, run: int) -> Point:
        return Point(f"run-{run:03d}", time_of(run), self.values[subject][run])

    def facts(self) -> Facts:
        """One driver for all, another since the step of everybody."""
        changed = self.weather.everybody[0] if self.weather.everybody else self.runs
        sheets: list[dict[str, str]] = [{"driver": "570.86"}, {"driver": "580.12"}]
        nodes = sorted(set(self.nodes.values()))
        return {f"run-{run:03d}": {node: sheets[run >= changed] for node in nodes} for run in range(self.runs)}


def time_of(run: int) -> str:
    return (datetime.datetime(2026, 8, 2, 6) + datetime.timedelta(days=run)).strftime("%Y-%m-%dT%H:%M:%SZ")


def fleet(seed: int, nodes: int, runs: int, weather: Weather, plants: t.Mapping[int, Plant]) -> Fleet:
    """`plants`: {number of the subject: what becomes of it}."""
    rng = random.Random(f"{seed} {weather}")
    made = Fleet(runs, [], {}, {}, {}, set(), weather)
    of_run = [rng.gauss(0, weather.of_run) if weather.of_run else 0.0 for _run in range(runs)]
    if weather.everybody:
        since, size = weather.everybody
        of_run = [one - size * (run >= since) for run, one in enumerate(of_run)]
    for number in range(nodes * PER_NODE):
        node = f"node{number // PER_NODE + 1:03d}"
        subject = f"{node}/gpu/{number % PER_NODE}"
        made.subjects.append(subject)
        made.nodes[subject] = node
        plant = plants.get(number)
        if plant:
            made.plants[subject] = plant
        made.values[subject] = _values(rng, made, subject, of_run, plant)
    return made


def _values(rng: random.Random, made: Fleet, subject: str, of_run: t.Sequence[float], plant: Plant | None) -> list[float | None]:
    weather = made.weather
    noise, own = rng.uniform(*weather.noise), LEVEL * rng.uniform(0.97, 1.03)
    made.noise[subject] = noise
    joins = rng.randrange(5, made.runs // 2) if rng.random() < weather.late else 0
    away, values = 0.0, []
    for run in range(made.runs):
        # Innovations are smaller, so that the deviation of the sum is `noise`.
        away = weather.alike * away + (1 - weather.alike**2) ** 0.5 * (factor(rng, noise, weather.shape) - 1)
        value = max(0.05, 1 + away * (plant.size if plant and plant.kind == "scatter" and run >= plant.onset else 1))
        value *= (1 + of_run[run]) * (1 - lost(plant, run))
        if rng.random() < weather.hiccups:
            made.hiccups.add((subject, run))
            value *= 1 - rng.uniform(0.05, 0.4)
        value = own * value if weather.better == "higher" else own / value
        if weather.rounded:
            value = max(weather.rounded, round(value / weather.rounded) * weather.rounded)
        gone = rng.random() < weather.missing or run < joins
        values.append(None if gone else value)
    return values


def lost(plant: Plant | None, run: int) -> float:
    """Return the loss of a subject in a run, as a part of its level."""
    if plant is None or not plant.onset <= run < plant.until:
        return 0.0
    if plant.kind == "step":
        return plant.size
    if plant.kind == "drift":
        return plant.size * (run - plant.onset + 1)
    if plant.kind == "flapping":
        return plant.size if (run - plant.onset) % 4 < 2 else 0.0
    return 0.0
