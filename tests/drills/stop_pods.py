#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stop drill on pods: a controller is interrupted or killed at a random moment, over two real kubelets whose tools hang.

In turn it is a run, a soak, and a run that is detached. LEFT_S later no object and no container of ours may be on the cluster, but for a
detached run that has said so: its pods must be there, and `stop.yml` must end them. The last line is JSON: {"strikes": n, "struck": m,
"leftovers": 0, "lost": 0, "slowest_s": seconds until nothing was left}. Exit status 0 exactly when n controllers were struck while they
were running, and the two numbers are 0.
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".collections"), str(pathlib.Path(__file__).parent)]

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process  # noqa: E402
from harness.fleet_runs import run_folder  # noqa: E402
from harness.kube_runs import KubeRuns  # noqa: E402
from rigs.kubernetes.kubernetes import Kubernetes  # noqa: E402
from rigs.simulated import nodes  # noqa: E402
from stop import Strike  # noqa: E402

STRIKES = (
    Strike("ctrl-c", signal.SIGINT), Strike("term", signal.SIGTERM), Strike("hup", signal.SIGHUP),
    Strike("term in the background", signal.SIGTERM, background=True), Strike("kill", signal.SIGKILL),
    Strike("kill all", signal.SIGKILL, helpers=True),
)  # fmt: skip
NCCL = ("--tags", "nccl_node")
KINDS = {
    "run": ("acceptance.yml", NCCL),
    "soak": ("playbooks/soak.yml", ("-e", "hours=1")),
    "detached": ("acceptance.yml", (*NCCL, "-e", "acceptance_detach=true")),
}
TOOLS = ("all_reduce_perf", "python3-soak", "python3-torch")
# 45 s without a heartbeat, and what the cluster needs to remove the pods (planes/kubernetes/pods/heartbeat.py).
LEFT_S = 60.0


class Drill:
    """Strikes and what came of them."""

    def __init__(self, runs: KubeRuns, source: random.Random, latest_s: float) -> None:
        self.runs = runs
        self.source = source
        self.latest_s = latest_s
        self.struck = self.leftovers = self.lost = 0
        self.slowest_s = 0.0

    def strike(self, kind: str) -> None:
        strike = self.source.choice(STRIKES)
        playbook, more = KINDS[kind]
        shutil.rmtree(self.runs.folder / "results", ignore_errors=True)
        command = self.runs.command(*more, playbook=playbook)
        output = self.runs.folder / "output"
        with open(output, "w", encoding="utf-8") as target:
            running = subprocess.Popen(
                strike.command(command), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=target, stderr=subprocess.STDOUT, start_new_session=True
            )
        after = self.source.uniform(2, self.latest_s)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(after)
        if running.poll() is None:
            self.struck += 1
            if strike.helpers:
                for pid in [running.pid, *process.descendants(running.pid)]:  # the controller first: it would miss its workers
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, strike.number)
            running.send_signal(strike.number)
        elif kind != "detached":
            print(output.read_text()[-2000:])
            return
        at, pods = time.monotonic(), len(self.runs.pods())
        running.wait(120)
        what = f"{kind}, {strike.name} after {after:.1f} s, {pods} pods"
        if "DETACHED: run" in output.read_text():
            self._stop_detached(what)
            at = time.monotonic()
        self._await(what, at)

    def _stop_detached(self, what: str) -> None:
        """A detached run goes on, and ends by stop.yml."""
        folder = run_folder(self.runs.folder / "results")
        if not folder or len(self.runs.pods()) != len(self.runs.cluster.nodes):
            self.lost += 1
            print(f"LOST  {what}")
            return
        stopped = self.runs.run("-e", f"run_id={folder.name}", playbook="playbooks/stop.yml")
        if stopped.status:
            print(stopped.output[-2000:])

    def _await(self, what: str, since: float) -> None:
        while left := [*self.runs.left(), *containers(self.runs.cluster)]:
            if time.monotonic() > since + LEFT_S:
                self.leftovers += len(left)
                print(f"LEFT  {what}", *left, sep="\n  ", flush=True)
                self.runs.run(playbook="playbooks/stop.yml")
                return
            time.sleep(0.3)
        took = time.monotonic() - since
        self.slowest_s = max(self.slowest_s, took)
        print(f"{what}: nothing left after {took:.1f} s", flush=True)


def containers(cluster: Kubernetes) -> list[str]:
    """Return the tools that run in containers of the cluster."""
    found = []
    machines = [cluster._cgroup(node) for node in cluster.nodes]
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (path / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            if any(tool in words for tool in TOOLS) and any(machine in (path / "cgroup").read_text() for machine in machines):
                found.append(f"process {path.name}: {words[:80]}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Interrupt or kill the controller; nothing of ours may run on.")
    parser.add_argument("--strikes", type=int, default=40)
    parser.add_argument("--latest", type=float, default=30.0, metavar="S", help="the latest moment of a strike, seconds after the start")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))  # takes the cluster down too
    signal.signal(signal.SIGINT, signal.default_int_handler)  # else controllers of a drill in the background ignore it too
    cluster = Kubernetes.reserve()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gpufleet-drill-"))
    try:
        cluster.up(2)
        runs = KubeRuns(cluster, folder, "probe")
        for number, node in enumerate(cluster.nodes, 101):
            cluster.plant(node).write_text(nodes.conf(number, FAULTS="nccl_hang soak_hang"))
        drill = Drill(runs, random.Random(arguments.seed), arguments.latest)
        for number in range(3 * arguments.strikes):
            if drill.struck >= arguments.strikes:
                break
            drill.strike(list(KINDS)[number % len(KINDS)])
            print(f"{drill.struck} of {arguments.strikes} controllers struck", flush=True)
    finally:
        cluster.down()
    failed = drill.struck != arguments.strikes or drill.leftovers or drill.lost
    if not failed:
        shutil.rmtree(folder)
    counts = {
        "strikes": arguments.strikes, "struck": drill.struck, "leftovers": drill.leftovers, "lost": drill.lost,
        "slowest_s": round(drill.slowest_s, 1),
    }  # fmt: skip
    print(json.dumps(counts))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
