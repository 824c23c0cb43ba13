#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kill -9 in the middle of cases of the GPU-sharing matrix, on two real control planes, then a resume.

One run after another is struck once to three times, resumes among them, the controller alone or all of it; now and then
playbooks/cleanup.yml comes first, and then nothing may be left on the clusters. The run that is resumed to its end must have the verdicts
of one that nobody disturbed, must not have measured again what had passed, and nothing may be left: no object, no cordon. The last line
is JSON: {"kills": n, "struck": m, "different": 0, "repeated": 0, "leftovers": 0}. A blow that comes too late strikes nobody.
Exit status 0 exactly when n controllers were struck while they were running, and the last three are 0.

On two busy cores (load 16 to 27) its cases take 72 s on the slower cluster, undisturbed; 20 kills are some 12 runs of at most three blows
each: allow three quarters of an hour.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".collections")]

from harness.fleet_runs import run_folder  # noqa: E402
from harness.sharing import Clusters, two_clusters  # noqa: E402
from harness.sharing_runs import RUN_LIMIT_S, Matrix  # noqa: E402
from rigs.sharing.defects import cases  # noqa: E402

# A pod, a quota that changes, many pods, no pod at all, Jobs and a cordon.
CASES = cases("FUNC-1 10 MET-1 LEAK-3 FAIL-3 4")


class Drill:
    """Strikes and what came of them."""

    def __init__(self, clusters: Clusters, folder: pathlib.Path, scale: float, source: random.Random) -> None:
        self.matrix, self.source = Matrix(clusters, folder, scale), source
        self.struck = self.different = self.repeated = self.leftovers = 0
        began = time.monotonic()
        self.undisturbed = {key: verdict for key, (verdict, _why) in self.matrix.run({"c1": CASES, "c2": CASES}).items()}
        self.seconds = time.monotonic() - began
        if wrong := {key: verdict for key, verdict in self.undisturbed.items() if verdict not in ("PASS", "SKIPPED")}:
            raise SystemExit(f"a run that nobody disturbs is not what it should be: {wrong}")

    def run(self, kills: int) -> None:
        """One run: at most `kills` blows, then its end."""
        results = self.matrix.asked({"c1": CASES, "c2": CASES})
        for _blow in range(min(kills, self.source.choice([1, 1, 2, 3]))):
            self.strike(results)
            if self.source.random() < 0.3:
                self.matrix.start(results, "cleanup").wait(RUN_LIMIT_S)
                self.nothing_left("after the cleanup")
        passed = {(cluster, case) for cluster, case, status in self.matrix.measured(results) if status == "PASS"}
        self.start(results).wait(RUN_LIMIT_S)
        found = {key: verdict for key, (verdict, _why) in self.matrix.found(results).items()}
        if found != self.undisturbed:
            self.different += 1
            print(f"DIFFERENT {results}: {sorted((found.items() | self.undisturbed.items()) - (found.items() & self.undisturbed.items()))}")
        times = collections.Counter((cluster, case) for cluster, case, _status in self.matrix.measured(results))
        if again := sorted(key for key in passed if times[key] > 1):
            self.repeated += 1
            print(f"REPEATED {results}: {again}")
        self.nothing_left("in the end")

    def start(self, results: pathlib.Path) -> subprocess.Popen[bytes]:
        """The run, or its resume where it has a plan already."""
        folder = run_folder(results)
        playbook, more = ("resume", {"run_id": folder.name}) if folder else ("gpu_sharing", {})
        running: subprocess.Popen[bytes] = self.matrix.start(results, playbook, **more)
        return running

    def strike(self, results: pathlib.Path) -> None:
        running = self.start(results)
        began, after = time.monotonic(), self.source.uniform(0.02, 0.95) * self.seconds
        while time.monotonic() < began + after and running.poll() is None:
            time.sleep(0.05)
        alone = self.source.random() < 0.5
        with contextlib.suppress(ProcessLookupError):
            if alone:
                running.kill()
            else:
                os.killpg(running.pid, signal.SIGKILL)
        struck = running.wait() == -signal.SIGKILL
        self.struck += struck
        done = collections.Counter(cluster for cluster, _case, _status in self.matrix.measured(results))
        left = self.matrix.left()
        what = f"{'controller' if alone else 'all'} {'struck' if struck else 'missed'} after {after:.0f} of {self.seconds:.0f} s"
        print(f"{results.name}: {what}: {dict(done)} measured, on the clusters {left or 'nothing'}", flush=True)

    def nothing_left(self, when: str) -> None:
        if left := self.matrix.gone():
            self.leftovers += len(left)
            print(f"LEFT {when}: {', '.join(left)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill the controller of the GPU-sharing matrix, resume, compare.")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=0.002, help="of durations and iterations (0.002)")
    asked = parser.parse_args()
    with two_clusters((2, 1), speeds=(1.0, 0.2)) as clusters, tempfile.TemporaryDirectory() as folder:
        drill = Drill(clusters, pathlib.Path(folder), asked.scale, random.Random(asked.seed))
        return drilled(drill, asked.kills)


def drilled(drill: Drill, kills: int) -> int:
    rounds = 0
    while drill.struck < kills and rounds < 2 * kills:
        drill.run(kills - drill.struck)
        rounds += 1
    counts = {name: getattr(drill, name) for name in ("struck", "different", "repeated", "leftovers")}
    print(json.dumps({"kills": kills, **counts}))
    return 1 if counts["struck"] < kills or counts["different"] or counts["repeated"] or counts["leftovers"] else 0


if __name__ == "__main__":
    sys.exit(main())
