# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figure `console`: first paint of the pages in Chromium, the largest of them, and the API at 50 requests a second, over 5,000 nodes and a
large history.

    python tests/bench/console.py [--runs 10] [--nodes 5000] [--results FOLDER]

A run of 5,000 nodes has a million numbers; they are made up. `--results`: a history that is there already. One JSON line for each figure;
beside what a clock says, the processor time that the console took, since others may be at work on the machine.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import typing as t
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests"), str(ROOT / "tests/bench")]

import history as history_bench  # noqa: E402
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import importing, store  # noqa: E402
from rigs.browser import Browser, executable  # noqa: E402

SERVER = "ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.local_server"
RATE, SECONDS, PAINTS = 50, 20, 5
PAINT = "(performance.getEntriesByName('first-contentful-paint')[0] || {}).startTime || 0"


def run_of_day(number: int) -> str:
    """Return the name of one of at most 89 runs, each planned a day after the one before: the home page shows runs of the last 90 days."""
    day = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=number - 89)
    return f"{day:%Y%m%d}T000000Z-0a1b2c"


def fleet(history: store.Store, runs: int, nodes: int) -> None:
    """Write runs into a history; the last one was not accepted, and many of its checks are worse than in the one before."""
    for number in range(89 - runs, 89):
        content = history_bench.content(number, nodes)
        content.judgements[-1].accepted = number < 88
        importing.write(history, content)
        print(f"bench: {number - 88 + runs} of {runs} runs", file=sys.stderr, flush=True)


def show(figure: str, value: float, unit: str, goal: float, compared_with: str) -> None:
    line = {
        "figure": f"console.{figure}", "value": round(value, 3), "unit": unit, "goal": f"<= {goal:g}", "compared_with": compared_with,
        "holds": value <= goal,
    }  # fmt: skip
    print(json.dumps(line), flush=True)


def cpu(pid: int) -> float:
    """Seconds of processor time of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Opened:
    """A console of its own, as `make console` opens one."""

    def __init__(self, folder: pathlib.Path, results: pathlib.Path, nodes: int) -> None:
        hosts = folder / "hosts.json"
        pools = {f"pool{pool}": {"hosts": {f"node{n:04}": None for n in range(pool, nodes, 5)}} for pool in range(5)}
        hosts.write_text(json.dumps({"all": {"children": pools, "vars": {"acceptance_gpu_count": 8}}}))
        self.process = subprocess.Popen(
            [sys.executable, "-m", SERVER, "--inventory", str(hosts), "--results-dir", str(results), "--folder", str(folder / "kept"),
             "--port", "0"],
            env={**os.environ, "PYTHONPATH": str(ROOT / ".collections")}, text=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        for line in t.cast("t.IO[str]", self.process.stdout):
            found = re.search(r"(http://\S+?)/enter\?code=\S+", line)
            if found:
                self.link, self.url = found[0], found[1]
                return
        raise SystemExit("the console did not open")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def read(console: Opened, browser: Browser) -> None:
    """Open the home page until the console has read the fleet from the history, which it does once after its start."""
    began, before = time.monotonic(), cpu(console.process.pid)
    while True:
        browser.open(f"{console.url}/", PAINT)
        if browser.value("!document.querySelector('#causes [role=status]')"):
            break
        time.sleep(0.2)
    what = f"until the first page has the fleet; {cpu(console.process.pid) - before:.3f} s of the console's processor time"
    show("fleet_read", time.monotonic() - began, "s", 10, what)


def paints(console: Opened, ways: dict[str, str]) -> str:
    """First contentful paint of each page, and the cookie of the session."""
    with Browser() as browser:
        browser.size(1280, 900)
        browser.open(console.link, "location.pathname === '/'")
        read(console, browser)
        cookies = browser._ask("Network.getCookies", urls=[console.url])["cookies"]
        largest = (0.0, "")
        for name, way in ways.items():
            took, spent = [], []
            for _round in range(PAINTS):
                before = cpu(console.process.pid)
                browser.open(f"{console.url}{way}", PAINT)
                took.append(browser.value(PAINT) / 1000)
                spent.append(cpu(console.process.pid) - before)
            what = f"{way}, the median of {PAINTS}; {statistics.median(spent):.3f} s of the console's processor time"
            show(f"paint_{name}", statistics.median(took), "s", 1.0, what)
            size = browser.value("performance.getEntriesByType('navigation')[0].decodedBodySize") / 1e6
            largest = max(largest, (size, way))
        show("largest_page", largest[0], "MB", 2.0, f"{largest[1]}, before it is compressed")
        return "; ".join(f"{one['name']}={one['value']}" for one in cookies)


def asked(url: str, cookie: str, planned: float) -> float:
    """Seconds from when it was due until its answer was whole."""
    request = urllib.request.Request(url, headers={"Cookie": cookie})
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()
    return time.monotonic() - planned


def load(console: Opened, cookie: str, ways: list[str]) -> None:
    """As many requests a second as are due, whether those before have been answered or not."""
    before, began = cpu(console.process.pid), time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        waiting = []
        for number in range(RATE * SECONDS):
            due = began + number / RATE
            time.sleep(max(0.0, due - time.monotonic()))
            waiting.append(pool.submit(asked, console.url + ways[number % len(ways)], cookie, due))
        took = sorted(one.result() for one in waiting)
    spent = (cpu(console.process.pid) - before) / len(took)
    what = f"{RATE} requests a second for {SECONDS} s over {len(ways)} ways; median {took[len(took) // 2] * 1000:.0f} ms"
    show("api_p95", 1000 * took[int(0.95 * len(took))], "ms", 100, what)
    show("api_processor", 1000 * spent, "ms", 1000 / RATE, "processor time of the console for each of these requests")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=int(os.environ.get("BENCH_CONSOLE_RUNS", "10")))
    parser.add_argument("--nodes", type=int, default=int(os.environ.get("BENCH_CONSOLE_NODES", "5000")))
    parser.add_argument("--results", default="")
    options = parser.parse_args()
    history_bench.run_name = run_of_day
    if not executable():
        raise SystemExit("no chromium here: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        results = pathlib.Path(options.results or f"{folder}/results")
        results.mkdir(exist_ok=True)
        if not (results / store.FILE).exists():
            with store.Store(store.url_of(results), make=True) as history:
                fleet(history, options.runs, options.nodes)
        node, run = f"node{options.nodes // 2:04}", run_of_day(88)
        console = Opened(pathlib.Path(folder), results, options.nodes)
        try:
            cookie = paints(console, {
                "home": "/", "home_failed": "/?verdict=WARN",
                "start": "/start", "runs": "/runs", "nodes": "/nodes", "node": f"/node?name={node}", "history": "/history",
                "history_node": f"/history?node={node}", "history_warn": "/history?verdict=WARN",
                "history_check": "/history?check=check1", "result": f"/results/{run}",
            })  # fmt: skip
            load(console, cookie, [
                "/api/v1/actions", "/api/v1/nodes?text=node1", "/api/v1/runs", f"/api/v1/verdicts?node={node}&limit=100",
                f"/api/v1/runs/{run}",
            ])  # fmt: skip
        finally:
            console.close()


if __name__ == "__main__":
    main()
