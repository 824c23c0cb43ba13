#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mutation drill of the GPU-sharing matrix: a sharing system with one planted defect after the other, on two real control planes.

First the healthy system: every case must pass, or be skipped by a rule. Then each defect of tests/rigs/sharing/defects.py, one on each
cluster at a time: the cases that are meant to see it must end FAIL or UNKNOWN, and as many others as are asked for must pass. The last
line is JSON:

    {"healthy": {"PASS": 90, "SKIPPED": 8}, "false_alarms": [], "run_again": [], "defects": 65, "caught": 120, "missed": [],
     "by_chance": {}, "not_run": []}

Exit status 0 exactly when nothing was missed, nothing was alarmed falsely, and all that was asked for was run. A case that should pass and
does not is run once more, and named in "run_again": loads of a second are too long by tenths of it on a busy machine.

Measured on two cores that others kept busy (load 6 to 12): both clusters are up after a minute, and the healthy matrix of 49 cases on both
takes 1,076 s at scale 0.002. The 125 defects are 63 runs, two at once, one on each cluster: 50 to 160 s each with two cases of a defect and
one other (`--seen 2`); allow three hours for all. `--minutes` ends earlier and says what is left; `--defects none` is the healthy matrix
alone.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import json
import pathlib
import random
import sys
import tempfile
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".collections")]

from harness.sharing import Clusters, two_clusters  # noqa: E402
from harness.sharing_runs import Found, Matrix  # noqa: E402
from rigs.sharing.defects import ALL, BEYOND, DEFECTS, OF  # noqa: E402

# A wrong verdict: (defect or nothing, cluster, case, verdict, why).
Wrong = tuple[str, str, str, str, str]
# Of each cluster.
Cases = t.Mapping[str, t.Collection[str]]
BAD = ("FAIL", "UNKNOWN")


class Drill:
    def __init__(self, clusters: Clusters, folder: pathlib.Path, scale: float) -> None:
        self.clusters, self.matrix = clusters, Matrix(clusters, folder, scale)
        self.healthy: collections.Counter[str] = collections.Counter()
        self.caught = 0
        self.missed: list[Wrong] = []
        self.alarms: list[Wrong] = []
        self.run_again: list[str] = []
        self.by_chance: dict[str, list[str]] = {}

    def well(self, cases: t.Collection[str]) -> None:
        """The healthy system: passed, or skipped by a rule."""
        asked = {"c1": cases, "c2": cases}
        for (cluster, case), (verdict, why) in sorted(self.again(self.matrix.run(asked), asked).items()):
            self.healthy[verdict] += 1
            if verdict not in ("PASS", "SKIPPED"):
                self.alarms.append(("", cluster, case, verdict, why))

    def again(self, found: Found, quiet: Cases) -> Found:
        """Return the verdicts with those of a second run for the cases of `quiet` that did not pass."""
        late = {
            cluster: [case for (where, case), (verdict, _why) in found.items() if where == cluster and case in cases and verdict in BAD]
            for cluster, cases in quiet.items()
        }
        late = {cluster: cases for cluster, cases in late.items() if cases}
        self.run_again += [f"{cluster} {case}" for cluster, cases in sorted(late.items()) for case in sorted(cases)]
        return {**found, **self.matrix.run(late)} if late else found

    def sick(self, planted: t.Mapping[str, str], seen: Cases, quiet: Cases) -> Found:
        """`planted`: {cluster: its defect}; of each cluster the cases that are meant to see it, and some that must pass."""
        with contextlib.ExitStack() as stack:
            for cluster, name in planted.items():
                stack.enter_context(self.clusters.defect(name, [cluster]))
            found = self.again(self.matrix.run({cluster: {*seen[cluster], *quiet[cluster]} for cluster in planted}), quiet)
        for (cluster, case), (verdict, why) in sorted(found.items()):
            name = planted[cluster]
            if verdict == "SKIPPED":  # not a case of this cluster, or its rule says that nothing could be seen
                continue
            if case in quiet[cluster]:
                if verdict != "PASS":
                    self.alarms.append((name, cluster, case, verdict, why))
            elif DEFECTS[name].unknown and verdict == "FAIL":
                self.alarms.append((name, cluster, case, verdict, why))
            elif DEFECTS[name].by_chance:
                self.by_chance.setdefault(name, []).append(f"{cluster} {case} {verdict}")
            elif verdict in BAD:
                self.caught += 1
            else:
                self.missed.append((name, cluster, case, verdict, why))
        looked = {cluster for (cluster, case), (verdict, _why) in found.items() if case in seen[cluster] and verdict != "SKIPPED"}
        self.missed += [(name, cluster, "", "", "no case looked") for cluster, name in planted.items() if cluster not in looked]
        return found


def batches(names: t.Sequence[str], nodes: t.Mapping[str, int]) -> list[dict[str, str]]:
    """One defect on each cluster at once, on the one that its cases are for."""
    waiting: dict[str, list[str]] = {"c1": [], "c2": []}
    for name in sorted(names, key=lambda one: len(places(one, nodes))):  # first those that have no choice
        cluster = min(places(name, nodes), key=lambda one: len(waiting[one]))
        waiting[cluster].append(name)
    pairs = itertools.zip_longest(waiting["c1"], waiting["c2"])
    return [{cluster: name for cluster, name in zip(waiting, pair, strict=True) if name} for pair in pairs]


def places(name: str, nodes: t.Mapping[str, int]) -> list[str]:
    """The clusters on which a case can see it; one that is of a node among others needs others."""
    found = [cluster for cluster, of in OF.items() if DEFECTS[name].seen & (of | BEYOND) and DEFECTS[name].only in ("", cluster)]
    return [cluster for cluster in found if nodes[cluster] > 1] or found if DEFECTS[name].last else found


def main() -> int:
    parser = argparse.ArgumentParser(description="Planted defects of a GPU-sharing system, and the cases that are meant to see them.")
    parser.add_argument("--defects", default="all", help="names with commas, all, or none; of defects.py")
    parser.add_argument("--cases", default="all", help="cases of the healthy run, with commas, all, or none")
    parser.add_argument("--seen", type=int, default=len(ALL), help="at most so many of the cases that are meant to see a defect (all)")
    parser.add_argument("--others", type=int, default=1, help="so many other cases beside each defect, which must pass (1)")
    parser.add_argument("--scale", type=float, default=0.002, help="of durations and iterations (0.002)")
    parser.add_argument("--nodes", default="2,1", help="of the two clusters (2,1)")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no further defect after so long; what is left is told")
    parser.add_argument("--seed", type=int, default=1, help="of which others, and of the order")
    parser.add_argument("--results", type=pathlib.Path, help="a folder in which results and what the runs said stay (none does)")
    asked = parser.parse_args()
    if asked.results and asked.results.is_dir() and any(asked.results.iterdir()):
        parser.error(f"--results: found files in {asked.results}, expected a folder that is empty or not there")
    names = list(DEFECTS) if asked.defects == "all" else [name for name in asked.defects.split(",") if name != "none"]
    cases = sorted(ALL | BEYOND) if asked.cases == "all" else [case for case in asked.cases.split(",") if case != "none"]
    for given, known in ((names, DEFECTS), (cases, ALL | BEYOND)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(sorted(known))}")
    dice = random.Random(asked.seed)
    dice.shuffle(names)
    began, left = time.monotonic(), list(names)
    first, second = (int(number) for number in asked.nodes.split(","))
    with contextlib.ExitStack() as stack:
        folder = asked.results.resolve() if asked.results else pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        # GPUs of the second are slowed down, so that what its pods take can be measured.
        clusters = stack.enter_context(two_clusters((first, second), speeds=(1.0, 0.2)))
        drill = Drill(clusters, folder, asked.scale)
        if cases:
            drill.well(cases)
            print(f"healthy after {time.monotonic() - began:.0f} s: {dict(drill.healthy)} {drill.alarms}", flush=True)
        for planted in batches(names, {"c1": first, "c2": second}):
            if asked.minutes and time.monotonic() - began > 60 * asked.minutes:
                break
            seen, quiet = {}, {}
            for cluster, name in planted.items():
                defect = DEFECTS[name]
                of, rest = sorted(defect.seen & (OF[cluster] | BEYOND)), sorted(OF[cluster] - defect.seen - defect.may)
                seen[cluster], quiet[cluster] = dice.sample(of, min(asked.seen, len(of))), dice.sample(rest, min(asked.others, len(rest)))
            found = drill.sick(planted, seen, quiet)
            for cluster, name in planted.items():
                left.remove(name)
                wrong = [one for one in drill.missed + drill.alarms if one[0] == name]
                said = ", ".join(f"{case} {verdict}" for (where, case), (verdict, _why) in sorted(found.items()) if where == cluster)
                print(f"{name} on {cluster} after {time.monotonic() - began:.0f} s: {said}: {wrong or 'seen'}", flush=True)
    print(json.dumps({
        "healthy": drill.healthy, "false_alarms": drill.alarms, "run_again": drill.run_again, "defects": len(names) - len(left),
        "caught": drill.caught, "missed": drill.missed, "by_chance": drill.by_chance, "not_run": sorted(left),
    }))  # fmt: skip
    return 1 if drill.missed or drill.alarms or left else 0


if __name__ == "__main__":
    sys.exit(main())
