#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The resume drill: kill -9 to the controller at random points, over sshd hosts with simulated tools, then resume.

One run after another is struck once to three times, resumes among them, and then resumed to its end. Its verdicts must be
those of a run that nobody disturbed, and nothing may be left on the hosts or of the controller. The last line is JSON:
{"kills": n, "struck": m, "different": 0, "leftovers": 0}. A blow that comes too late strikes nobody and does not count.
Exit status 0 exactly when n controllers were struck while they were running, and the last two are 0.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process  # noqa: E402
from harness.fleet_runs import Acceptance, Done, results_of, run_folder  # noqa: E402
from rigs.fleet.fleet import Fleet  # noqa: E402

# One node that is good, one whose results are wrong, one with a slow GPU, one whose tool is cut off in its middle.
FAULTS = {"gpu-01": "", "gpu-02": "nccl_wrong", "gpu-03": "gemm_slow=0.8", "gpu-04": "nccl_cut"}
MARK = "GPUFLEET_DRILL"
# A journal's last line may be half-written, wherever the blow fell.
HALF = b'{"schema": "measurement/v1", "half": "wri'


class Drill:
    """Strikes and what came of them."""

    def __init__(self, runs: Acceptance, source: random.Random) -> None:
        self.runs = runs
        self.source = source
        self.struck = 0
        self.different = 0
        self.leftovers = 0
        began = time.monotonic()
        self.undisturbed = runs.run(FAULTS)
        self.seconds = time.monotonic() - began
        if not self.undisturbed.good("gpu-01") or any(self.undisturbed.good(host) for host in list(FAULTS)[1:]):
            raise SystemExit(f"the undisturbed run is not what was planted:\n{self.undisturbed.output[-4000:]}")

    def run(self, kills: int) -> None:
        """One run: at most `kills` blows, then its end."""
        command = self.runs.command(FAULTS)
        results = results_of(command)
        for _blow in range(min(kills, self.source.choice([1, 1, 2, 3]))):
            self._strike(command, results)
            folder = run_folder(results)
            if folder is None:  # it fell before there was a plan: nothing to resume
                command = self.runs.command(FAULTS)
                results = results_of(command)
                continue
            if self.source.random() < 0.3:
                with open(folder / "journal.jsonl.gz", "ab") as journal:
                    journal.write(HALF)
            more = ("-e", f"run_id={folder.name}")
            command = self.runs.command(FAULTS, *more, results=results, playbook="playbooks/resume.yml")
        done = self.runs.end(command, self.runs.start(command))
        self._compare(done, command)
        self._await(lambda: [line for host in FAULTS for line in self.runs.left(host)])

    def _strike(self, command: list[str], results: pathlib.Path) -> None:
        resumed = run_folder(results) is not None
        token = f"{os.getpid()}.{time.monotonic_ns()}"
        running = self.runs.start(command, **{MARK: token})
        began = time.monotonic()
        # A resume has less to do.
        after = self.source.uniform(0.02, 0.6 if resumed else 0.95) * self.seconds
        while time.monotonic() < began + after and running.poll() is None:
            time.sleep(0.005)
        if running.poll() is not None and not resumed:  # the machine is faster than it was
            self.seconds = time.monotonic() - began
        if self.source.random() < 0.5:
            running.kill()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
        self.struck += running.wait() == -signal.SIGKILL
        # Its workers see that it is gone; the open ssh connections are meant to stay.
        self._await(lambda: [f"controller: {words}" for words in workers(token)])

    def _compare(self, done: Done, command: list[str]) -> None:
        wanted, found = self.undisturbed.essence(), done.essence()
        if done.status == self.undisturbed.status and found == wanted:
            return
        self.different += 1
        print(f"DIFFERENT  status {done.status}, {self.runs.output(command)}")
        for key in sorted(wanted.keys() | found.keys()):
            if wanted.get(key) != found.get(key):
                print(f"  {' '.join(key)}: {wanted.get(key)} without a blow, {found.get(key)} now")

    def _await(self, left: t.Callable[[], list[str]]) -> None:
        end = time.monotonic() + 90
        while lines := left():
            if time.monotonic() > end:
                self.leftovers += len(lines)
                print("LEFT", *lines, sep="\n  ")
                return
            time.sleep(0.1)


def workers(token: str) -> list[str]:
    """Command lines of what a controller started, but for its open ssh connections."""
    found = []
    for pid, _started in process.with_environment(MARK, token):
        with contextlib.suppress(OSError):
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if words and "[mux]" not in words:
                found.append(words[:100])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill the controller, resume, compare.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))  # takes the fleet down too
    fleet = Fleet.reserve()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gpufleet-drill-"))
    try:
        fleet.up(len(FAULTS))
        runs = Acceptance(fleet, folder)
        try:
            for host, faults in FAULTS.items():
                runs.plant(host, FAULTS=faults)
            drill = Drill(runs, random.Random(arguments.seed))
            rounds = 0
            while drill.struck < arguments.kills and rounds < 2 * arguments.kills:
                drill.run(arguments.kills - drill.struck)
                rounds += 1
                if rounds % 10 == 0:
                    print(f"{drill.struck} of {arguments.kills} controllers struck in {rounds} runs", flush=True)
        finally:
            runs.close()
    finally:
        fleet.down()
    failed = drill.struck != arguments.kills or drill.different or drill.leftovers
    if not failed:  # else it is wanted: the runs lie there
        shutil.rmtree(folder)
    print(json.dumps({"kills": arguments.kills, "struck": drill.struck, "different": drill.different, "leftovers": drill.leftovers}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
