# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Figure `localise`: is the right subject found, and in how many rounds and tests. Simulated fabric, seeded.

Prints one JSON line per figure, and a table by pool and number of faults on stderr. A round is a step that has to wait
for the one before; a test is one group measurement (of ten launches). Tests of single GPU slots, which the published
figure has no equal for, are counted in the total and shown apart. The last test of every session, the pool without the
convicted, is counted. `--trials 10000 --each 1000` takes minutes.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]

from rigs.simulated.fabric import Trial, play, scenario  # noqa: E402

PUBLISHED = "published figure for N=232, 1 to 5 faults: 22 to 57 tests in 7 rounds"
HEADER = (
    f"\n{'faults':<18} {'N':>5} {'number':>6} {'right %':>7} {'innocents':>9}"
    f" | rounds: {'median':>6} {'p99':>3} {'max':>3} | tests: {'median':>6} {'max':>4}"
    f" | without slots: {'median':>6} {'max':>4} | every pair: rounds {'tests':>7}"
)
MACHINES = ("node", "gpu", "flapping node", "flapping gpu", "hang node", "hang gpu")


def show(value: float, figure: str, unit: str, goal: str, compared_with: str, holds: bool | None) -> None:
    line = {
        "figure": f"localise.{figure}",
        "value": value,
        "unit": unit,
        "goal": goal,
        "compared_with": compared_with,
        "holds": holds,
    }
    print(json.dumps(line), flush=True)


def draw(trials: int, **options: Any) -> list[Trial]:
    """Trials with seeds that no test uses."""
    return [play(scenario(seed, **options)) for seed in range(1_000_000, 1_000_000 + trials)]


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def row(label: str, size: int, count: int, trials: Sequence[Trial]) -> None:
    rounds = [t.rounds for t in trials]
    tests = [t.tests for t in trials]
    group = [t.tests - t.slot_tests for t in trials]
    right = 100 * sum(t.right for t in trials) / len(trials)
    pairs = size * (size - 1) // 2
    exhaustive = size - 1 + size % 2
    print(
        f"{label:<18} {size:>5} {count:>6} {right:>7.2f} {sum(bool(t.innocent) for t in trials):>9}"
        f" |         {statistics.median(rounds):>6.0f} {percentile(rounds, 0.99):>3} {max(rounds):>3}"
        f" |        {statistics.median(tests):>6.0f} {max(tests):>4}"
        f" |                {statistics.median(group):>6.0f} {max(group):>4} | {exhaustive:>18} {pairs:>7}",
        file=sys.stderr,
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=2000, help="random trials (default 2000)")
    parser.add_argument("--each", type=int, default=100, help="trials per line of the table (default 100)")
    options = parser.parse_args()

    started = time.monotonic()
    mixed = draw(options.trials)
    took = time.monotonic() - started
    what = f"{options.trials} random trials, 4 to 1,024 nodes, 1 to 5 faults of every kind"
    right = 100 * sum(t.right for t in mixed) / len(mixed)
    innocent = sum(len(t.innocent) for t in mixed)
    several = 100 * sum(bool(t.indistinguishable) for t in mixed) / len(mixed)
    within = 100 * sum(t.rounds <= 5 for t in mixed) / len(mixed)
    show(right, "right_subject", "percent", ">= 99", f"the injected faults; {what}", right >= 99)
    show(innocent, "innocents_convicted", "count", "0", f"the injected faults; {what}", innocent == 0)
    show(several, "answers_with_indistinguishable", "percent", "none set", what, None)
    show(within, "within_five_rounds", "percent", "none set", what, None)
    show(1000 * took / len(mixed), "time_per_trial", "ms", "none set", "one core, the simulator included", None)

    print(HEADER, file=sys.stderr)
    for size in (4, 8, 16, 32, 64, 128, 512, 1024):
        for count in (1, 2, 3, 5):
            if count <= (size - 2) // 2:
                row("nodes and GPUs", size, count, draw(options.each, size=size, count=count, kinds=MACHINES))
    machines = [draw(options.each, size=232, count=count, kinds=MACHINES) for count in range(1, 6)]
    everything = [draw(options.each, size=232, count=count) for count in range(1, 6)]
    for label, by_count in (("nodes and GPUs", machines), ("every kind", everything)):
        for count, trials in enumerate(by_count, 1):
            row(label, 232, count, trials)
    for kind in ("node", "aggregate", "gpu", "pair", "switch", "uplink"):
        row(kind, 232, 1, draw(options.each, size=232, count=1, kinds=[kind]))
    for size in (32, 232):
        row("pair, in a mesh", size, 1, draw(options.each, size=size, count=1, kinds=["pair"], paths="mesh"))

    for name, by_count in (("nodes_and_gpus", machines), ("every_kind", everything)):
        rounds = [t.rounds for trials in by_count for t in trials]
        median, most = statistics.median(rounds), max(rounds)
        share = 100 * sum(r <= 5 for r in rounds) / len(rounds)
        show(median, f"rounds_n232_{name}_median", "rounds", "<= 5", PUBLISHED, median <= 5)
        show(most, f"rounds_n232_{name}_most", "rounds", "<= 5", PUBLISHED, most <= 5)
        show(share, f"within_five_rounds_n232_{name}", "percent", "100", PUBLISHED, share == 100)
    for count in (1, 5):
        groups = statistics.median(t.tests - t.slot_tests for t in machines[count - 1])
        tests = statistics.median(t.tests for t in machines[count - 1])
        show(groups, f"tests_n232_{count}_faults_without_slots", "tests", "none set", PUBLISHED, None)
        show(tests, f"tests_n232_{count}_faults", "tests", "none set", "every pair: 26796 tests, 231 rounds", None)


if __name__ == "__main__":
    main()
