# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figure `scrape`: what Prometheus waits for at the exporter of a fleet: once, a hundred at once, and while a run is imported.

    python tests/bench/scrape.py [--nodes 5000] [--checks 7]

The exporter is a process of its own, over a history in SQLite with one run of the fleet. One JSON line for each figure.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import exporter, importing, store  # noqa: E402
from harness import records  # noqa: E402
from harness import report_samples as samples  # noqa: E402

AT_ONCE = 100
FORMATS = {"text": "text/plain", "openmetrics": exporter.OPENMETRICS}


def show(figure: str, value: float, unit: str, goal: str, compared_with: str, holds: bool | None) -> None:
    line = {"figure": f"scrape.{figure}", "value": value, "unit": unit, "goal": goal, "compared_with": compared_with, "holds": holds}
    print(json.dumps(line), flush=True)


def content(nodes: int, checks: int, run: str) -> importing.Content:
    """A run of which each node has a number of each check."""
    names = [f"node{number:05}" for number in range(nodes)]
    verdicts = [
        samples.verdict(name, "gemm", f"check{check}", value=650.0, unit="TFLOPS", floor=600.0, metric="tflops")
        for name in names
        for check in range(checks)
    ]
    found = [records.measurement(samples.measurement(v["subject"]["id"], v["stage"], v["check"], run_id=run)) for v in verdicts]
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    count = {"planned": len(verdicts), "measured": len(verdicts)}
    judged = list(map(records.verdict, verdicts))
    judging = importing.Judging("", run.encode().hex(), now, True, "ACCEPTED", "fine", {"PASS": len(verdicts)}, count, judged)
    return importing.Content(samples.plan(names, ["gemm"], run_id=run, created_at=now), run.encode().hex(), found, [judging])


def scraped(url: str, accept: str = "text/plain") -> tuple[float, int, bool]:
    """Seconds, bytes, and whether a node is in it."""
    began, size, seen = time.monotonic(), 0, False
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=300) as answer:
        while part := answer.read(1 << 20):
            size, seen = size + len(part), seen or b"node_verdict{" in part
    return time.monotonic() - began, size, seen


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=int(os.environ.get("BENCH_SCRAPE_NODES", "5000")))
    parser.add_argument("--checks", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with store.Store(store.url_of(folder), make=True) as history:
            importing.write(history, content(options.nodes, options.checks, "20260101T000000Z-0a1b2c"))
        command = [sys.executable, "-m", exporter.__name__, "--results-dir", folder, "--port", "0", "--address", "127.0.0.1"]
        env = {**os.environ, "PYTHONPATH": str(ROOT / ".collections")}
        service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        try:
            said = service.stdout.readline() if service.stdout else ""
            port = re.search(r"port (\d+)", said)
            if port is None:
                raise SystemExit(f"the exporter does not answer: {said}")
            measured(f"http://127.0.0.1:{port[1]}/metrics", folder, options.nodes, options.checks)
        finally:
            service.terminate()
            service.wait()


def measured(url: str, folder: str, nodes: int, checks: int) -> None:
    end = time.monotonic() + 120
    while not scraped(url)[2]:
        if time.monotonic() > end:
            raise SystemExit("the exporter has not read the history within two minutes")
        time.sleep(0.5)
    for name, accept in FORMATS.items():
        took = [scraped(url, accept) for _ in range(5)]
        median, size = statistics.median(one[0] for one in took), took[0][1]
        what = f"median of five, {nodes} nodes with {checks} checks, {size / 1e6:.1f} MB"
        show(name, round(median, 3), "s", "<= 1", what, median <= 1)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as many:
        answers = list(many.map(lambda _number: scraped(url), range(AT_ONCE)))
    slowest = max(one[0] for one in answers)
    show(f"{AT_ONCE}_at_once", round(slowest, 2), "s", "all answered", "the slowest of them", all(one[2] for one in answers))
    over, took = threading.Event(), []

    def import_one() -> None:
        with store.Store(store.url_of(folder)) as history:
            importing.write(history, content(nodes, checks, "20260102T000000Z-0a1b2c"))
        over.set()

    importer = threading.Thread(target=import_one)
    importer.start()
    while not over.is_set():
        took.append(scraped(url))
    importer.join()
    slowest = max(one[0] for one in took)
    show("while_importing", round(slowest, 2), "s", "all answered", f"the slowest of {len(took)}", all(one[2] for one in took))


if __name__ == "__main__":
    main()
