# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figure `sharing`: what the engine of the GPU-sharing matrix needs for itself.

    python tests/bench/sharing.py [--hours 24]

A watch of 16 schedulers with 4 GPUs each, every 2 s for 24 h, over a cluster in memory whose clock does not wait; and each of the 49 cases
on that cluster, without what the cluster itself takes. One JSON line for each figure, progress on stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import resource
import sys
import tempfile
import threading
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests/unit/plugin_utils/sharing")]

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import cases, conclusion, engine, parameters, system  # noqa: E402
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cluster import Answer  # noqa: E402
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.kubernetes import on_cluster as stage  # noqa: E402
from memory import GIB, Memory  # noqa: E402

SCHEDULERS, GPUS, CLIENTS, EVERY_S = 16, 4, 8, 2
SYSTEM = system.load("nvshare")
# What the whole matrix is run with on two clusters, and what its pods are fewer of.
SCALE = 0.002
SMALL = {"scale_set": [2, 4, 8], "mix_small_pods": 2, "mix_large_pods": 4}
NODES = {"drain_node": "node-0", "stress_node": "node-0"}


def show(figure: str, value: float, unit: str, goal: str, compared_with: str, holds: bool | None) -> None:
    line = {"figure": f"sharing.{figure}", "value": value, "unit": unit, "goal": goal, "compared_with": compared_with, "holds": holds}
    print(json.dumps(line), flush=True)


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


class Busy(Memory):
    """All GPUs are used, and no two answers are alike."""

    def __init__(self, *args: t.Any, **named: t.Any) -> None:
        super().__init__(*args, **named)
        self.said = time.monotonic()

    def ask(self, scheduler: str, path: str) -> Answer:
        node = scheduler.partition("-")[2]
        number, draw = int(node.rpartition("-")[2]), self.random.random
        text = "".join(
            f'nvshare_gpu_utilization_ratio{{gpu_uuid="GPU-{node}-{gpu}",gpu_index="{gpu}"}} {draw():.2f}\n' for gpu in range(GPUS)
        )
        for client in range(CLIENTS):
            labels = f'namespace="default",pod="pod-{number}-{client}",client_id="{client}",gpu_uuid="GPU-{node}-{client % GPUS}"'
            text += f"nvshare_client_info{{{labels}}} 1\n"
        return Answer(200, "ok" if path == "/healthz" else text, 0.005 + draw() / 50)

    def sleep(self, seconds: float) -> None:
        self.clock += seconds
        if time.monotonic() - self.said > 30:
            self.said = time.monotonic()
            say(f"{self.clock / 3600:.1f} hours are over, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")


def day(hours: float) -> None:
    """Of a case that watches all schedulers for so long: the memory that it adds, its files, and what to conclude takes."""
    watch = {"as": "series", "every": EVERY_S, "seconds": hours * 3600, "metrics": ["gpu_utilization_ratio", "client_info"]}
    that = ["peak(series, gpu_utilization_ratio) <= 1", "scraped(series) >= scrapes(series)", "scrape_p95(series) <= scrape_p95_max_s"]
    suite = {
        "suite": "bench", "letter": "b", "cases": [{
            "id": "BENCH-001", "title": "A day", "clusters": ["c1"], "gates": ["P0"], "steps": [{"watch": watch}],
            "assert": {"strict": [{"that": one, "cause": "it does not hold"} for one in that], "faithful": []},
        }],
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "suite.yml").write_text(json.dumps(suite))
        (case,) = cases.load(str(path / "suite.yml"), cases.STRICT)
        cluster = Busy(SYSTEM, nodes=SCHEDULERS, gpus=GPUS)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        keep = stage.keeper(path / "kept")
        began = time.process_time()
        evidence = engine.CaseRun(case, SYSTEM, parameters.settle("c1", 1, {}), cluster, keep, {}).run()
        watched = time.process_time() - began
        began = time.process_time()
        found = conclusion.conclude(case, evidence)
        concluded = time.process_time() - began
        if found.status != conclusion.PASS:
            raise SystemExit(f"the case is {found.status}: {found.cause}")
        added = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e6 * 1024
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 1e6
        what = f"{SCHEDULERS} schedulers with {GPUS} GPUs and {CLIENTS} clients each, every {EVERY_S} s for {hours:g} h"
        looks = len(evidence.samples["series"])
        show("memory", round(added, 1), "MB", "< 300", f"{what}: {looks} looks", added < 300)
        show("files", round(size, 1), "MB", "< 200", what, size < 200)
        show("watching", round(1000 * watched / looks, 2), "ms", f"< {500 * EVERY_S} per look", f"{watched:.0f} s of processor", None)
        show("concluding", round(concluded, 1), "s", "shown", f"{len(that)} assertions over the whole watch", None)


class Timed:
    """A cluster, and the processor time that its calls take, in whatever thread."""

    def __init__(self, of: Memory) -> None:
        self.of, self.took, self.lock = of, 0.0, threading.Lock()

    def __getattr__(self, name: str) -> t.Any:
        found = getattr(self.of, name)
        if not callable(found):
            return found

        def called(*args: t.Any, **named: t.Any) -> t.Any:
            began = time.thread_time()
            try:
                return found(*args, **named)
            finally:
                with self.lock:
                    self.took += time.thread_time() - began

        return called


def own(case: cases.Case, cluster: str) -> float | None:
    """Seconds of processor that a case takes beyond its cluster; None for one that is not for it."""
    memory = Memory(SYSTEM, nodes=SCHEDULERS, gpus=GPUS, memory=(16 if cluster == "c1" else 40) * GIB)
    memory.random = random.Random(1)
    settled = parameters.settle(cluster, SCALE, SMALL)
    if conclusion.beforehand(case, SYSTEM, cluster, True, NODES) is not None:
        return None
    timed = Timed(memory)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        run = engine.CaseRun(case, SYSTEM, settled, t.cast("t.Any", timed), stage.keeper(pathlib.Path(folder)), NODES)
        conclusion.conclude(case, run.run())
        return time.process_time() - began - timed.took


def each() -> None:
    took = {}
    for cluster in cases.CLUSTERS:
        for case in cases.shipped(cases.STRICT):
            seconds = own(case, cluster)
            if seconds is not None:
                took[f"{case.id} on {cluster}"] = seconds
    worst = max(took, key=lambda name: took[name])
    what = f"{worst}, the slowest of {len(took)} cases at scale {SCALE}, {SCHEDULERS} schedulers; all {sum(took.values()):.1f} s"
    show("case", round(took[worst], 2), "s", "<= 2", what, took[worst] <= 2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=float, default=float(os.environ.get("BENCH_SHARING_HOURS", "24")))
    options = parser.parse_args()
    day(options.hours)
    each()


if __name__ == "__main__":
    main()
