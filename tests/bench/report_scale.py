# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figure `report_scale`: a run of 5,000 nodes judged and reported, its page in Chromium, and a matrix of 1,024 x 1,024 pairs.

    python tests/bench/report_scale.py [--nodes 5000] [--ports 1024]

Of each node 227 measured numbers (those of a sweep among them) stand in 31 lines of the journal, with their raw files; made up, seeded. It
is judged in a process of its own, as at the end of a run, whose time counts, with those that it has beside it; and once more for their
memory, as to look at that ten times a second takes a fifth of the time. One JSON line for each figure, progress on stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]

from harness import large_run  # noqa: E402
from harness import report_samples as samples  # noqa: E402
from rigs import browser  # noqa: E402

Record = t.Dict[str, t.Any]
# How often the memory is looked at.
SAMPLED_S = 0.1
PAINTED = "performance.getEntriesByName('first-contentful-paint').length"
DRAWN = "document.documentElement.dataset.drawn"
# From top to bottom, a screen in ten frames: the longest task of the page that began meanwhile, in ms.
SCROLLED = """new Promise((done) => {
  const found = [], began = performance.now();
  const observer = new PerformanceObserver((list) => found.push(...list.getEntries()));
  observer.observe({ type: 'longtask', buffered: true });
  scrollTo(0, 0);
  const on = () => { scrollBy(0, innerHeight / 10);
    if (scrollY + innerHeight < document.documentElement.scrollHeight - 1) { requestAnimationFrame(on); return; }
    const ended = performance.now();
    setTimeout(() => { found.push(...observer.takeRecords());
      done(Math.max(0, ...found.filter((e) => e.startTime >= began && e.startTime <= ended).map((e) => e.duration))); }, 1500); };
  requestAnimationFrame(on);
})"""
# The least height of a cell of the heat maps that are shown, in CSS pixels.
CELL = """Math.min(...[...document.querySelectorAll('.plot')].filter((p) => p.data && p.data[0].type === 'heatmap')
  .map((p) => p._fullLayout.yaxis._length / p.data[0].y.length))"""


def show(figure: str, value: float | None, unit: str, goal: str, compared_with: str, holds: bool | None) -> None:
    line = {"figure": f"report_scale.{figure}", "value": value, "unit": unit, "goal": goal, "compared_with": compared_with, "holds": holds}
    print(json.dumps(line), flush=True)


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def judge(results: str) -> None:
    """In a process of its own: judge the run there, and say what it took."""
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import conclude

    began, began_cpu = time.monotonic(), time.process_time()
    done = conclude.judge({}, None, None, {"acceptance_run": {"results_dir": results, "run_id": samples.RUN}})
    took, cpu = time.monotonic() - began, time.process_time() - began_cpu
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu += others.ru_utime + others.ru_stime
    print(json.dumps({"seconds": took, "cpu": cpu, "why": done["why"], "planned": done["coverage"]["planned"]}))


def timed(command: list[t.Any]) -> Record:
    """Return the output of a process."""
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def watched(command: list[t.Any]) -> float:
    """The most memory in MB that it and its children had at once; what they share counts once."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        most = 0.0
        while process.poll() is None:
            with contextlib.suppress(OSError):
                children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
                most = max(most, sum(map(proportional, [str(process.pid), *children])))
            time.sleep(SAMPLED_S)
    if process.returncode:
        raise SystemExit(f"judging ended with status {process.returncode}")
    return most


def proportional(pid: str) -> float:
    """The memory of a process in MB, of what it shares its part."""
    try:
        text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    found = re.search(r"^Pss: *([0-9]+) kB$", text, re.MULTILINE)
    return int(found[1]) * 1024 / 1e6 if found else 0.0


def matrix(ports: int, folder: pathlib.Path) -> tuple[pathlib.Path, float, int]:
    """The page of a run with a table of every pair, the seconds of CPU that it took, and how many pairs there are."""
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import model, page

    plan, judged = samples.fleet(8, 1)
    cells = samples.pairs(ports, rails=1)
    judged.tables["stage0"] = [Table("", "write_bw", "", cells, "higher", "Gb/s")]
    began = time.process_time()
    text = page.render(model.build(plan, judged))
    took = time.process_time() - began
    (folder / "matrix.html").write_text(text, encoding="utf-8")
    return folder / "matrix.html", took, len(cells)


def looked_at(name: str, path: pathlib.Path, what: str) -> None:
    """A page as a reader has it: its size, when something is seen, and whether it scrolls."""
    size = path.stat().st_size / 1e6
    show(f"{name}", round(size, 2), "MB", "<= 5", what, size <= 5)
    if not browser.executable():
        for figure, unit, goal in (("first_paint", "s", "<= 2"), ("longest_task_while_scrolling", "ms", "<= 200")):
            show(f"{name}_{figure}", None, unit, goal, "not measured: no chromium here", None)
        return
    with browser.Browser() as chromium:
        chromium.size(1280, 900)
        chromium.open(path, PAINTED, seconds=120)
        painted = chromium.value("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000
        show(f"{name}_first_paint", round(painted, 2), "s", "<= 2", what, painted <= 2)
        at_once = chromium.value(SCROLLED)
        chromium.open(path, DRAWN, seconds=120)
        later = chromium.value(SCROLLED)
        longest = max(at_once, later)
        seen = f"{at_once:.0f} ms from the first paint on, {later:.0f} ms when all is drawn; 0 is less than 50 ms; {what}"
        show(f"{name}_longest_task_while_scrolling", round(longest), "ms", "<= 200", seen, longest <= 200)
        if name == "matrix":
            cell = chromium.value(CELL)
            show("matrix_cell", round(cell, 1), "CSS pixels", ">= 6", f"the smallest cell of a heat map that is shown; {what}", cell >= 6)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=int(os.environ.get("BENCH_REPORT_NODES", "5000")))
    parser.add_argument("--ports", type=int, default=int(os.environ.get("BENCH_REPORT_PORTS", "1024")))
    parser.add_argument("--judge", metavar="RESULTS", help="judge the run that lies there, and nothing else")
    options = parser.parse_args()
    if options.judge:
        judge(options.judge)
        return
    with tempfile.TemporaryDirectory(prefix="gb", ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        say(f"making a run of {options.nodes} nodes")
        made = large_run.make(folder, options.nodes)
        journal = made.run.journal.path.stat().st_size / 1e6
        what = f"{options.nodes} nodes, {made.numbers} numbers in {made.records} lines of a journal of {journal:.0f} MB"
        say(f"judging {what}")
        command: list[t.Any] = [sys.executable, __file__, "--judge", folder]
        took = timed(command)
        say(took["why"])
        show("seconds", round(took["seconds"], 1), "s", "<= 10", f"{what}; {took['cpu']:.1f} s of CPU", took["seconds"] <= 10)
        memory = watched(command)
        show("memory", round(memory), "MB", "<= 1000", f"the most at once of all its processes; {what}", memory <= 1000)
        looked_at("page", made.run.dir / "report.html", what)
        path, cpu, pairs = matrix(options.ports, folder)
        what = f"{pairs} pairs of {options.ports} ports"
        show("matrix_seconds", round(cpu, 1), "s", "none set", f"CPU for model and page; {what}", None)
        looked_at("matrix", path, what)


if __name__ == "__main__":
    main()
