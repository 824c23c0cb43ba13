# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figure `matrix`: whom the reading of pair tests convicts where healthy tests scatter by 3 %. Simulated fabric, seeded.

    python tests/bench/matrix.py [--trials 10000] [--first 1000000] [--nodes 6 24]

One JSON line for each figure; progress, and each trial that is not as it should be, on stderr. A trial draws up to five faults, that may
share nodes and ports, and of which a third strikes in only a tenth of its tests or more; in a fifth of the trials two or three bad paths
meet at one port instead. The trials take turns in the three shapes of
scatter, with one cell for both directions and with one for each. `BENCH_MATRIX_TRIALS` is the default of --trials.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]

from rigs.simulated.noise import SHAPES  # noqa: E402
from rigs.simulated.rails import trial  # noqa: E402

NOISE = 0.03


def show(figure: str, value: float, unit: str, goal: str, compared_with: str, holds: bool | None) -> None:
    line = {"figure": f"matrix.{figure}", "value": value, "unit": unit, "goal": goal, "compared_with": compared_with, "holds": holds}
    print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=int(os.environ.get("BENCH_MATRIX_TRIALS", "600")))
    parser.add_argument("--first", type=int, default=1_000_000, help="the first seed; the default is used by no test")
    parser.add_argument("--nodes", type=int, nargs=2, default=(6, 48), metavar=("LEAST", "MOST"))
    options = parser.parse_args()

    kinds = list(itertools.product(SHAPES, (False, True)))
    sizes = range(options.nodes[0], options.nodes[1] + 1)
    of: dict[tuple[str, bool], collections.Counter[str]] = {kind: collections.Counter() for kind in kinds}
    for number in range(options.trials):
        shape, directed = kinds[number % len(kinds)]
        t = trial(options.first + number, nodes_of=sizes, noise=(NOISE, shape), wild=True, directed=directed, meet=number % 5 == 4)
        clear = {fault.subject for fault in t.faults if fault.share == 1}
        of[shape, directed] += collections.Counter(
            trials=1, innocent=len(t.innocent), clear=len(clear), comes_and_goes=len(t.faults) - len(clear), again=t.again,
            missed=len(t.missed), listed=len(clear & t.hidden), lost=len(clear & t.missed - t.hidden),
            undecided=len(t.undecided), silent=len(t.missed - t.undecided - t.hidden),
        )  # fmt: skip
        if not t.sound:
            print(f"seed {t.seed} {shape} directed={directed}: {t.innocent} innocent, {t.missed} missed", file=sys.stderr, flush=True)
        if number % 300 == 299 or number == options.trials - 1:
            for (shape, directed), counts in of.items():
                print(f"bench: {number + 1} trials, {shape} directed={directed}: {dict(counts)}", file=sys.stderr, flush=True)
    all_of = sum(of.values(), collections.Counter())
    what = f"{options.trials} trials of {sizes[0]} to {sizes[-1]} nodes at {NOISE:.0%} scatter, {all_of['clear']} clear faults"
    show("innocents_convicted", all_of["innocent"], "count", "0", what, all_of["innocent"] == 0)
    show("clear_faults_neither_found_nor_listed", all_of["lost"], "count", "0", what, all_of["lost"] == 0)
    show("clear_faults_listed_only", all_of["listed"], "count", "none set", f"not looked at behind another fault; {what}", None)
    show("faults_of_which_nothing_is_said", all_of["silent"], "count", "0", what, all_of["silent"] == 0)
    show("faults_undecided", all_of["undecided"], "count", "none set", f"{all_of['comes_and_goes']} come and go; {what}", None)
    show("tests_asked_for_again", round(all_of["again"] / max(1, options.trials), 1), "tests per trial", "none set", what, None)


if __name__ == "__main__":
    main()
