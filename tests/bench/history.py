# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figure `history`: how fast runs come into a history in SQLite, one node's history out of all, and the memory of both.

    python tests/bench/history.py [--runs 50] [--nodes 1000]

A run of 1,000 nodes with 8 GPUs has 200,000 numbers. One JSON line for each figure, progress on stderr; made-up numbers, seeded.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import importing, searching, store  # noqa: E402
from harness import records  # noqa: E402
from harness import report_samples as samples  # noqa: E402

GPUS, CHECKS, METRICS = 8, 6, 4


def show(figure: str, value: float, unit: str, goal: str, compared_with: str, holds: bool) -> None:
    line = {"figure": f"history.{figure}", "value": value, "unit": unit, "goal": goal, "compared_with": compared_with, "holds": holds}
    print(json.dumps(line), flush=True)


def run_name(number: int) -> str:
    return f"2026{number // 28 + 1:02}{number % 28 + 1:02}T000000Z-0a1b2c"


def content(number: int, nodes: int) -> importing.Content:
    """A run as it was judged: per node 50 checks with 4 numbers each."""
    rng = random.Random(number)
    run = run_name(number)
    measurements, verdicts = [], []
    for node in range(nodes):
        name, uuids = f"node{node:04}", [f"GPU-{node:08x}-{gpu:04x}-4000-8000-000000000000" for gpu in range(GPUS)]
        context = {"gpu": "NVIDIA H200", "identities": {name: {"machine_id": f"{node:032x}"}}, "gpus": GPUS}
        subjects = [("node", name, 2), *(("gpu", f"{name}/gpu/{uuid}", CHECKS) for uuid in uuids)]
        for kind, subject, checks in subjects:
            for check in range(checks):
                value = rng.gauss(478, 3)
                metrics = {f"metric{n}": {"value": value + n, "unit": "GB/s"} for n in range(METRICS)}
                of = {"kind": kind, "id": subject, "members": []}
                fields = {"run_id": run, "subject": of, "metrics": metrics, "context": context}
                if kind == "node":
                    fields["series"] = [{"size": 8 << n, "busbw": value} for n in range(12)]
                measurements.append(records.measurement(samples.measurement(name, "gemm", f"check{check}", **fields)))
                given = {"value": value, "unit": "GB/s", "floor": 455.0, "layer": "shipped", "metric": "metric0", "source": "vendor"}
                word = "PASS" if value > 470 else "WARN"
                verdicts.append(records.verdict(samples.verdict(name, "gemm", f"check{check}", word, **{**given, "subject": of})))
    names = [f"node{node:04}" for node in range(nodes)]
    plan = samples.plan(names, ["gemm"], run_id=run, created_at=f"{run[:4]}-{run[4:6]}-{run[6:8]}T00:00:00Z")
    coverage = {"planned": len(verdicts), "measured": len(verdicts)}
    counts = {"PASS": len(verdicts)}
    judging = importing.Judging("", f"{number:064x}", plan["created_at"], True, "ACCEPTED", "because", counts, coverage, verdicts)
    return importing.Content(plan, f"{number:064x}", measurements, [judging])


def resident() -> float:
    """MiB that this process has now."""
    status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def imported(history: store.Store, runs: int, nodes: int) -> tuple[int, float, float, list[float]]:
    """Numbers, the seconds and those of CPU that they took, and the memory after each run."""
    count, seconds, cpu, memory = 0, 0.0, 0.0, []
    for number in range(runs):
        of = content(number, nodes)
        began, began_cpu = time.monotonic(), time.process_time()
        written = importing.write(history, of)
        took, took_cpu = time.monotonic() - began, time.process_time() - began_cpu
        count, seconds, cpu = count + written.metrics, seconds + took, cpu + took_cpu
        memory.append(resident())
        if number % 5 == 4 or number == runs - 1:
            each = f"{written.metrics / took:.0f}/s, {written.metrics / took_cpu:.0f}/s of CPU"
            print(f"bench: {count} numbers, the last run {each}, {memory[-1]:.0f} MiB", file=sys.stderr, flush=True)
    return count, seconds, cpu, memory


def timed(what: t.Callable[[], t.Any]) -> tuple[float, float, t.Any]:
    """The median of five calls, in seconds and in those of CPU, and the answer."""
    took = []
    for _ in range(5):
        began, cpu = time.monotonic(), time.process_time()
        found = what()
        took.append((time.monotonic() - began, time.process_time() - cpu))
    return statistics.median(one[0] for one in took), statistics.median(one[1] for one in took), found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=int(os.environ.get("BENCH_HISTORY_RUNS", "50")))
    parser.add_argument("--nodes", type=int, default=int(os.environ.get("BENCH_HISTORY_NODES", "1000")))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = store.url_of(folder)
        with store.Store(url, make=True) as history:
            count, seconds, cpu, memory = imported(history, options.runs, options.nodes)
        size = (pathlib.Path(folder) / store.FILE).stat().st_size / 2**20
        what = f"{options.runs} runs of {options.nodes} nodes, {count} numbers, {size:.0f} MiB"
        rate = count / seconds
        show("import", round(rate), "numbers/s", ">= 20000", f"{what}; {count / cpu:.0f} a second of CPU", rate >= 20000)
        growth = statistics.median(memory[-5:]) - statistics.median(memory[:10])
        show(
            "import_memory", round(growth, 1), "MiB", "<= 50", f"more in the last five runs than in the first ten, of {what}", growth <= 50
        )
        with store.Store(url) as history:
            asked = searching.Query(node=f"node{options.nodes // 2:04}")
            took, cpu, answer = timed(lambda: searching.search(history, asked))
            numbers = sum(len(row["numbers"]) for row in answer.rows)
            whole = took <= 1 and len(answer.runs) == options.runs
            show("one_node", round(took, 3), "s", "<= 1", f"{numbers} numbers of one node, {cpu:.3f} s of CPU, out of {what}", whole)


if __name__ == "__main__":
    main()
