#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stop drill: a controller is interrupted or killed at a random moment, with more hosts than forks, over sshd hosts.

Every other run is a soak. Nothing of ours may run on a host LEFT_S later, but for
a soak whose controller was killed: it must be running, `status.yml` must say so, and `stop.yml` must end it. The last line is JSON:
{"strikes": n, "struck": m, "leftovers": 0, "lost_soaks": 0, "slowest_s": seconds until nothing was left}. Exit status 0 exactly when n
controllers were struck while they were running, and the two numbers are 0.
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
import subprocess
import sys
import tempfile
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from harness import signals  # noqa: E402
from harness.fleet_runs import Acceptance, results_of  # noqa: E402
from rigs.fleet.fleet import Fleet  # noqa: E402

# Tools that hang keep their stage running until somebody ends it.
FAULTS = {f"gpu-0{number}": "soak_hang nccl_hang" for number in range(1, 6)}
KEEPER = "ssh/heartbeats.py"
LEFT_S = 90.0
RUN, SOAK, STATUS, STOP = "acceptance.yml", *(f"playbooks/{name}.yml" for name in ("soak", "status", "stop"))


class Strike(t.NamedTuple):
    """A way to end a controller. `helpers`: its helper processes get the signal too. `background`: a shell has started the controller in
    the background, so it ignores SIGINT."""

    name: str
    number: int
    helpers: bool = False
    background: bool = False

    @property
    def interrupts(self) -> bool:
        return self.number != signal.SIGKILL

    def command(self, command: list[str]) -> list[str]:
        return ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *command] if self.background else command


STRIKES = (
    Strike("ctrl-c", signal.SIGINT), Strike("term", signal.SIGTERM), Strike("hup", signal.SIGHUP),
    Strike("term in the background", signal.SIGTERM, background=True),
    Strike("kill", signal.SIGKILL), Strike("kill all", signal.SIGKILL, helpers=True),
)  # fmt: skip


def keepers(folder: pathlib.Path) -> list[int]:
    """Return the processes that keep the probes of a run alive."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            if any(word.endswith(KEEPER) for word in words) and any(word.startswith(str(folder)) for word in words):
                found.append(int(path.parent.name))
    return found


class Drill:
    def __init__(self, runs: Acceptance, source: random.Random, latest_s: float) -> None:
        self.runs = runs
        self.source = source
        self.latest_s = latest_s
        self.struck_at = 0.0
        self.struck = self.leftovers = self.lost_soaks = 0
        self.slowest_s = 0.0

    def strike(self, soak: bool) -> None:
        strike = self.source.choice(STRIKES)
        command = self.runs.command(FAULTS, "-f", "2", *(() if soak else ("--tags", "nccl_node")), playbook=SOAK if soak else RUN)
        running = self.runs.start(strike.command(command))
        after = self.source.uniform(2, self.latest_s)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(after)
        if running.poll() is not None:
            return
        self.struck += 1
        started = set(results_of(command).glob("*/todo/*.heartbeat"))
        if strike.helpers:
            for pid in keepers(results_of(command)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, strike.number)
        running.send_signal(strike.number)
        self.struck_at = time.monotonic()
        running.wait(120)
        what = f"{'soak' if soak else 'run'}, {strike.name} after {after:.1f} s, {len(started)} hosts detached"
        if soak and not strike.interrupts:
            self._stop_soak(started, what)
        else:
            self._await(what)

    def _stop_soak(self, started: set[pathlib.Path], what: str) -> None:
        """A soak goes on behind a killed controller, and ends by stop.yml."""
        time.sleep(5)
        status = self.runs.run(FAULTS, playbook=STATUS)
        shown = status.output.count("soak runs since")
        if shown < len(started):
            self.lost_soaks += 1
            print(f"LOST  {what}: {shown} shown\n{status.output[-2000:]}")
        self.runs.run(FAULTS, playbook=STOP)
        self.struck_at = time.monotonic()
        self._await(what)

    def _await(self, what: str) -> None:
        end = self.struck_at + LEFT_S
        while left := [line for host in FAULTS for line in self.runs._but_results(host)]:
            if time.monotonic() > end:
                self.leftovers += len(left)
                print(f"LEFT  {what}", *left, sep="\n  ")
                break
            time.sleep(0.3)
        took = time.monotonic() - self.struck_at
        self.slowest_s = max(self.slowest_s, took)
        print(f"{what}: nothing left after {took:.1f} s" if not left else "", flush=True)
        self.runs.run(FAULTS, playbook=STOP)  # what is kept for a resume, too


def main() -> int:
    parser = argparse.ArgumentParser(description="Interrupt or kill the controller; nothing of ours may run on.")
    parser.add_argument("--strikes", type=int, default=40)
    parser.add_argument("--latest", type=float, default=30.0, metavar="S", help="the latest moment of a strike, seconds after the start")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    signals.restore()
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))  # takes the fleet down too
    signal.signal(signal.SIGINT, signal.default_int_handler)  # else controllers of a drill in the background ignore it too
    fleet = Fleet.reserve()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gpufleet-drill-"))
    try:
        fleet.up(len(FAULTS))
        runs = Acceptance(fleet, folder)
        try:
            for host, faults in FAULTS.items():
                runs.plant(host, FAULTS=faults)
            drill = Drill(runs, random.Random(arguments.seed), arguments.latest)
            for number in range(2 * arguments.strikes):
                if drill.struck >= arguments.strikes:
                    break
                drill.strike(soak=number % 2 == 1)
                print(f"{drill.struck} of {arguments.strikes} controllers struck", flush=True)
        finally:
            runs.close()
    finally:
        fleet.down()
    failed = drill.struck != arguments.strikes or drill.leftovers or drill.lost_soaks
    if not failed:
        shutil.rmtree(folder)
    counts = {
        "strikes": arguments.strikes, "struck": drill.struck, "leftovers": drill.leftovers, "lost_soaks": drill.lost_soaks,
        "slowest_s": round(drill.slowest_s, 1),
    }  # fmt: skip
    print(json.dumps(counts))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
