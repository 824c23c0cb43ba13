# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figure `regression`: what is found in the history of simulated fleets, and who is blamed that is well. Seeded.

    python tests/bench/regression.py [--fleets 8] [--first 1000000] [--nodes 25] [--runs 60] [--otava PYTHON]

One JSON line for each figure (also for changes of a part of the fleet, SCENES); progress, and what is said of whom by mistake, on stderr.
Every run of a fleet of nodes of eight GPUs is judged by what was before it, as it would have been on its day. Of its 200 GPUs 28 get a
step of 2, 3, 5 or 10 %, 12 a drift of 0.2 % a run. The fleets take turns in WEATHERS; noise is a standard deviation. Side by side: a
fixed threshold of 5 % under the median of the past, and Apache Otava where --otava (or `BENCH_OTAVA`) names a Python that has it.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import regression  # noqa: E402
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.series import ChangeKind  # noqa: E402
from rigs.simulated import runs as simulated  # noqa: E402
from rigs.simulated.runs import Fleet, Plant, Weather  # noqa: E402

MIXED = (0.003, 0.02)
WEATHERS = {
    "noise 0.3 %": Weather((0.003, 0.003)),
    "noise 2 %": Weather((0.02, 0.02)),
    "noise 0.3 to 2 %, everybody 3 % down": Weather(MIXED, everybody=(30, 0.03)),
    "noise 1 %, AR(1) 0.3": Weather((0.01, 0.01), alike=0.3),
    "noise 0.3 to 2 %, all shift by 0.5 % from run to run": Weather(MIXED, of_run=0.005),
    "noise 1 %, normal": Weather((0.01, 0.01), shape="normal"),
    "noise 0.3 %, values rounded to 1 %": Weather((0.003, 0.003), rounded=0.01 * simulated.LEVEL),
    "noise 0.3 to 2 %, lower is better, a third joins late": Weather(MIXED, better="lower", late=0.3),
}
SOON, SLOWLY = 4, 20  # runs, within which a step and a drift are to be found, the first one counted
FIRST = 8  # run that is judged
# Series from stdin, and for each prefix the places of the change points that Otava finds in it.
OTAVA = """
import json, sys
from otava.analysis import compute_change_points
for line in sys.stdin:
    values, first = json.loads(line)
    found = [[int(c.index) for c in compute_change_points(values[:n], max_pvalue=0.001)[0]] for n in range(first + 1, len(values) + 1)]
    print(json.dumps(found), flush=True)
"""


def show(figure: str, value: float | None, unit: str, goal: str, compared_with: str, holds: bool | None) -> None:
    line = {"figure": f"regression.{figure}", "value": value, "unit": unit, "goal": goal, "compared_with": compared_with, "holds": holds}
    print(json.dumps(line), flush=True)


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


@dataclasses.dataclass
class Score:
    """The score of one way to judge a fleet, by the alarms of each subject."""

    of: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def count(self, fleet: Fleet, alarms: dict[str, set[int]]) -> None:
        for subject in fleet.subjects:
            plant = fleet.plants.get(subject)
            until = plant.onset if plant else fleet.runs
            seen = [run for run in range(FIRST, until) if fleet.values[subject][run] is not None]
            self.of["healthy"] += len(seen)
            self.of["false"] += sum(run in alarms[subject] for run in seen)
            if fleet.weather.everybody and not plant:
                self.of["well"] += 1
                self.of["blamed"] += any(run >= fleet.weather.everybody[0] for run in alarms[subject])
            if not plant:
                continue
            clear = plant.kind == "drift" or plant.size >= 3 * fleet.noise[subject]
            name = plant.kind if clear else "small step"
            self.of[name] += 1
            first = min((run for run in alarms[subject] if run >= plant.onset), default=fleet.runs)
            self.of[f"{name} found"] += first - plant.onset < (SLOWLY if plant.kind == "drift" else SOON)

    def share(self, name: str) -> float:
        return round(100 * self.of[f"{name} found"] / max(1, self.of[name]), 1)

    @property
    def false(self) -> float:
        return round(2000 * self.of["false"] / max(1, self.of["healthy"]), 2)


def plants(seed: int, count: int, runs: int) -> dict[int, Plant]:
    rng = random.Random(f"plants {seed}")
    chosen = rng.sample(range(count), count // 5)
    made = {}
    for number, subject in enumerate(chosen):
        if number % 10 < 7:
            made[subject] = Plant("step", rng.randrange(10, runs - SOON + 1), (0.02, 0.03, 0.05, 0.10)[number % 4])
        else:
            made[subject] = Plant("drift", rng.randrange(12, runs - SLOWLY + 1), 0.002)
    return made


def ours(fleet: Fleet, hiccups: collections.Counter[str]) -> tuple[dict[str, set[int]], int]:
    """{subject: runs in which it is an alarm}, and in how many runs the step of everybody was told with its cause."""
    alarms: dict[str, set[int]] = {subject: set() for subject in fleet.subjects}
    facts, told = fleet.facts(), 0
    for run in range(FIRST, fleet.runs):
        for change in regression.changes(fleet.today(run), fleet.past(run), facts):
            if not change.subject:
                told += change.kind == ChangeKind.STEP and change.attribution.fact == "driver"
            elif change.alarm and not (change.kind == "drop" and (change.subject, run) in fleet.hiccups):
                alarms[change.subject].add(run)
            if (change.subject, run) in fleet.hiccups and change.subject not in fleet.plants:
                hiccups["planted"] += 1
                hiccups["said"] += change.kind in ("hiccup", "drop")
                hiccups["drops"] += change.kind == "drop"
    return alarms, told


def fixed(fleet: Fleet) -> dict[str, set[int]]:
    """More than 5 % worse than the median of the past."""
    alarms: dict[str, set[int]] = {subject: set() for subject in fleet.subjects}
    for subject, values in fleet.values.items():
        for run in range(FIRST, fleet.runs):
            past = [value for value in values[:run] if value is not None]
            value = values[run]
            if value is not None and len(past) >= 8:
                ratio = value / statistics.median(past)
                if (ratio if fleet.weather.better == "higher" else 1 / ratio) < 0.95:
                    alarms[subject].add(run)
    return alarms


def otava(fleet: Fleet, python: str) -> dict[str, set[int]]:
    """A change point to the worse in the last SLOWLY runs of a prefix is an alarm of its run, when it is first found."""
    alarms: dict[str, set[int]] = {subject: set() for subject in fleet.subjects}
    series = {s: [(run, value) for run, value in enumerate(v) if value is not None] for s, v in fleet.values.items()}
    lines = "".join(json.dumps([[value for _run, value in points], FIRST]) + "\n" for points in series.values())
    done = subprocess.run([python, "-c", OTAVA], input=lines, capture_output=True, text=True, check=True)
    for (subject, points), line in zip(series.items(), done.stdout.splitlines(), strict=True):
        known: set[int] = set()
        for at, found in enumerate(json.loads(line), FIRST):
            for place in found:
                worse = statistics.median(v for _r, v in points[place : at + 1]) < statistics.median(v for _r, v in points[:place])
                if worse == (fleet.weather.better == "higher") and not any(abs(place - other) <= 2 for other in known):
                    known.add(place)
                    alarms[subject].add(points[at][0])
    return alarms


@dataclasses.dataclass
class Scene:
    """A change of a part of a fleet. `hit` are its subjects, from run `onset` on; `fact` is what they got then. `repairs`: nodes that say
    so since that run. `of_today`: the only subjects that are measured from then on, all if empty."""

    fleet: Fleet
    hit: set[str]
    onset: int
    facts: dict[str, dict[str, dict[str, str]]]
    of_today: set[str] = dataclasses.field(default_factory=set)

    def lose(self, subjects: set[str], since: int, size: float, until: int = 10**6) -> None:
        for subject in subjects:
            values = self.fleet.values[subject]
            self.fleet.values[subject] = [
                value if value is None or not since <= run < until else value * (1 - size) for run, value in enumerate(values)
            ]

    def of_nodes(self, count: int, first: int = 0) -> set[str]:
        return set(self.fleet.subjects[first * simulated.PER_NODE : (first + count) * simulated.PER_NODE])

    def got(self, fact: str, value: str, nodes: set[str]) -> None:
        for run in range(self.onset, self.fleet.runs):
            for node in nodes:
                self.facts[f"run-{run:03d}"][node] = {**self.facts[f"run-{run:03d}"][node], fact: value}

    def score(self, within: int = SOON) -> collections.Counter[str]:
        """Of the hit subjects: found, and with their fact named, within so many runs. Of the others: false alarms, and subjects blamed."""
        of: collections.Counter[str] = collections.Counter()
        found, named, blamed = set(), set(), set()
        for run in range(self.onset, min(self.fleet.runs, self.onset + within)):
            today = self.fleet.today(run, self.of_today or None)
            for change in regression.changes(today, self.fleet.past(run), self.facts):
                if change.alarm and change.subject in self.hit:
                    found.add(change.subject)
                    named |= {change.subject} if change.attribution.fact else set()
                elif change.alarm and change.subject:
                    blamed.add(change.subject)
                    of["false"] += (change.subject, run) not in self.fleet.hiccups
        others = set(self.of_today or self.fleet.subjects) - self.hit
        return of + collections.Counter(hit=len(self.hit), found=len(found), named=len(named), others=len(others), blamed=len(blamed))


def scene(seed: int, nodes: int, weather: Weather, runs: int = 40, onset: int = 30) -> Scene:
    made = simulated.fleet(seed, nodes, runs, weather, {})
    facts = {run: {node: dict(sheet) for node, sheet in of.items()} for run, of in made.facts().items()}
    return Scene(made, set(), onset, facts)  # type: ignore[arg-type]


def part(seed: int, share: float, size: float, nodes: int = 20, driver: bool = True) -> Scene:
    """A part of the fleet gets a driver that costs it something."""
    made = scene(seed, nodes, Weather(MIXED))
    made.hit = made.of_nodes(round(share * nodes))
    made.lose(made.hit, made.onset, size)
    if driver:
        made.got("driver", "580.12", {made.fleet.nodes[subject] for subject in made.hit})
    return made


def masked(seed: int) -> Scene:
    """A GPU of the other half has lost 4 % some runs before half of the fleet loses 3 %."""
    made = part(seed, 0.5, 0.03)
    made.hit = {made.fleet.subjects[-1], made.fleet.subjects[-9]}
    half = made.of_nodes(10)
    made.lose(made.hit, made.onset - 6, 0.04)
    made.fleet.subjects = [subject for subject in made.fleet.subjects if subject not in half or subject in made.hit] + sorted(half)
    made.hit |= half
    return made


def lone(seed: int) -> Scene:
    """After a new driver everywhere, the first run is one of a single node."""
    made = scene(seed, 10, Weather(MIXED))
    made.hit = made.of_today = made.of_nodes(1)
    made.lose(set(made.fleet.subjects), made.onset, 0.05)
    made.got("driver", "580.12", {made.fleet.nodes[subject] for subject in made.fleet.subjects})
    return made


def repaired(seed: int) -> Scene:
    """A node that lost 10 % is repaired, and loses 5 % two runs later."""
    made = scene(seed, 10, Weather((0.005, 0.01)))
    node = made.of_nodes(1)
    made.lose(node, made.onset - 8, 0.10, made.onset)
    made.got("repaired", "ticket 7", {made.fleet.nodes[subject] for subject in node})
    made.onset += 2
    made.lose(node, made.onset, 0.05)
    made.hit = node
    return made


def dropped(seed: int) -> Scene:
    """One GPU in eight is 30 % lower in the last run, the first time."""
    made = scene(seed, 10, Weather((0.003, 0.01), hiccups=0), onset=39)
    made.hit = set(made.fleet.subjects[::8])
    made.lose(made.hit, made.onset, 0.30)
    return made


def warm(seed: int, size: float, told: bool = False) -> Scene:
    """A node loses something where rows of five nodes wander; `told`: the inventory states them as racks."""
    made = quiet(seed, row=0.01, told=told)
    made.onset, made.hit = 40, made.of_nodes(1, 7)
    made.lose(made.hit, made.onset, size)
    return made


def quiet(seed: int, alike: float = 0.0, row: float = 0.0, told: bool = False) -> Scene:
    """Nothing changes. `row`: standard deviation of what the air does to a row of five nodes from run to run (AR(1) of 0.8)."""
    made = scene(seed, 20, Weather((0.01, 0.01), alike=alike, hiccups=0), 60, 9)
    rng = random.Random(f"rows {seed}")
    for first in range(0, 20, 5) if row else ():
        away = 0.0
        for run in range(60):
            away = 0.8 * away + 0.6 * rng.gauss(0, row)
            made.lose(made.of_nodes(5, first), run, -away, run + 1)
        if told:
            made.fleet.racks.update({made.fleet.nodes[subject]: f"row-{first}" for subject in made.of_nodes(5, first)})
    return made


SCENES: dict[str, tuple[t.Callable[[int], Scene], int]] = {
    "half_of_the_fleet_3_percent": (lambda seed: part(seed, 0.5, 0.03), SOON),
    "60_percent_of_the_fleet_3_percent": (lambda seed: part(seed, 0.6, 0.03), SOON),
    "5_of_8_nodes_20_percent": (lambda seed: part(seed, 5 / 8, 0.20, nodes=8, driver=False), 3),
    "a_fault_before_half_of_the_fleet": (masked, SOON),
    "lone_node_after_the_fleets_driver": (lone, SOON),
    "repaired_node_5_percent": (repaired, SOON),
    "first_drop_30_percent": (dropped, 1),
    "warm_rows_and_a_node_5_percent": (lambda seed: warm(seed, 0.05), SOON),
    "warm_racks_that_are_told_and_a_node_5_percent": (lambda seed: warm(seed, 0.05, True), SOON),
    "nothing_ar_0.8": (lambda seed: quiet(seed, alike=0.8), 51),
    "nothing_warm_rows_1_percent": (lambda seed: quiet(seed, row=0.01), 51),
    "nothing_warm_racks_that_are_told": (lambda seed: quiet(seed, row=0.01, told=True), 51),
}


def scenes(first: int, each: int) -> None:
    for name, (make, within) in SCENES.items():
        of: collections.Counter[str] = collections.Counter()
        for seed in range(first, first + each):
            of += make(seed).score(within)
        if not of["hit"]:
            false = round(2000 * of["false"] / (of["others"] * within), 1)
            show(f"{name}.false", false, "in 2,000 healthy subject-runs", "none set", f"{of['others']} subjects of {within} runs", None)
            continue
        said = f"{of['found']} of {of['hit']} hit, {of['named']} with the fact; {of['blamed']} of {of['others']} others blamed"
        show(f"{name}.found", round(100 * of["found"] / of["hit"], 1), "percent", "none set", said, None)


def speed(subjects: int, runs: int) -> float:
    fleet = simulated.fleet(1, subjects // 8, runs, Weather(MIXED), plants(1, subjects, runs))
    today, past, facts = fleet.today(runs - 1), fleet.past(runs - 1), fleet.facts()
    began = time.process_time()
    regression.changes(today, past, facts)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fleets", type=int, default=int(os.environ.get("BENCH_REGRESSION_FLEETS", "8")))
    parser.add_argument("--first", type=int, default=1_000_000, help="the first seed; the default is used by no test")
    parser.add_argument("--nodes", type=int, default=25)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--otava", default=os.environ.get("BENCH_OTAVA", ""), metavar="PYTHON")
    parser.add_argument("--scenes", type=int, default=2, help="fleets of each change of a part of the fleet")
    options = parser.parse_args()

    scores = {"ours": Score(), "fixed 5 %": Score()} | ({"otava": Score()} if options.otava else {})
    hiccups: collections.Counter[str] = collections.Counter()
    told = steps = 0
    for number in range(options.fleets):
        name = list(WEATHERS)[number % len(WEATHERS)]
        seed = options.first + number
        fleet = simulated.fleet(seed, options.nodes, options.runs, WEATHERS[name], plants(seed, options.nodes * 8, options.runs))
        began = time.process_time()
        alarms, of_all = ours(fleet, hiccups)
        took = time.process_time() - began
        told, steps = told + of_all, steps + bool(fleet.weather.everybody)
        one = Score()
        one.count(fleet, alarms)
        say(f"{name}, {took:.0f} s: {dict(sorted(one.of.items()))}")
        scores["ours"].of += one.of
        scores["fixed 5 %"].count(fleet, fixed(fleet))
        if options.otava:
            scores["otava"].count(fleet, otava(fleet, options.otava))
    if not options.otava:
        say("Apache Otava is not compared with: neither --otava nor BENCH_OTAVA names a Python that has it")

    mine = scores["ours"]
    what = f"{options.fleets} fleets of {options.nodes * 8} GPUs over {options.runs} runs"

    def beside(of: str) -> str:
        return "; ".join([what] + [f"{name} {score.share(of)} %" for name, score in scores.items() if name != "ours"])

    show(
        "steps_found",
        mine.share("step"),
        "percent",
        ">= 95",
        f"{mine.of['step']} of 3 x noise or more; {beside('step')}",
        mine.share("step") >= 95,
    )
    show("small_steps_found", mine.share("small step"), "percent", "none set", f"{mine.of['small step']}; {beside('small step')}", None)
    show("drifts_found", mine.share("drift"), "percent", ">= 95", f"{mine.of['drift']}; {beside('drift')}", mine.share("drift") >= 95)
    false = "; ".join([what] + [f"{name} {score.false}" for name, score in scores.items() if name != "ours"])
    show("false_alarms", mine.false, "in 2,000 healthy subject-runs", "<= 1", false, mine.false <= 1)
    if steps:
        blamed = "; ".join([f"{mine.of['well']} healthy"] + [f"{n} {s.of['blamed']}" for n, s in scores.items() if n != "ours"])
        show("blamed_for_everybodys_step", mine.of["blamed"], "subjects", "0", blamed, mine.of["blamed"] == 0)
        show("everybodys_step_told", told, "runs", ">= 1 of each fleet", "with the driver that became another", told >= steps)
    said = round(100 * hiccups["said"] / max(1, hiccups["planted"]), 1)
    text = f"{hiccups['planted']} of 5 to 40 % on healthy subjects, {hiccups['drops']} of them a warning the first time"
    show("hiccups_said", said, "percent", "none set", text, None)
    scenes(options.first, options.scenes)
    took = round(speed(5000, 60), 1)
    show("seconds_for_5000", took, "s", "<= 10", "5,000 subjects of 59 earlier runs, processor time", took <= 10)


if __name__ == "__main__":
    main()
