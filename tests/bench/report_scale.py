# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figure `report_scale`: runs of 500, 2,000 and 5,000 nodes at level standard judged and reported, the page of the largest in Chromium,
and a matrix of 1,024 x 1,024 pairs.

    python tests/bench/report_scale.py [--nodes 500,2000,5000] [--ports 1024]

Each node has 194 lines in the journal, those of a recorded run with numbers of its own, and their raw texts (harness/large_run.py). A run
is judged in a process of its own, as at the end of a run, whose processor time counts, with that of those that it has beside it. Machines
differ threefold, so the time is a ratio: to that of reading the same journal once by msgspec, in the same process before. The run is judged
once more for the memory, as to look at that ten times a second takes a fifth of the time. One JSON line for each figure.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
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

import msgspec

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]

from harness import large_run  # noqa: E402
from harness import report_samples as samples  # noqa: E402
from rigs import browser  # noqa: E402

Record = t.Dict[str, t.Any]
# How often the memory is looked at.
SAMPLED_S = 0.1
# At most so many times as long as reading the journal; so much more of that in the largest run than in the smallest is still linear.
TIMES, LINEAR = 6.0, 1.25
# The size to which the goals apply, and the most memory in MB.
NODES, MEMORY = 2000, 1500
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
    """In a process of its own: read the journal, judge the run there, and say what each took."""
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import conclude
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run

    reading, lines = read_once(Run(results, samples.RUN).journal.path)
    began, began_cpu = time.monotonic(), time.process_time()
    done = conclude.judge({}, None, None, {"acceptance_run": {"results_dir": results, "run_id": samples.RUN}})
    took, cpu = time.monotonic() - began, time.process_time() - began_cpu
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu += others.ru_utime + others.ru_stime
    said = {"seconds": took, "cpu": cpu, "reading": reading, "lines": lines, "why": done["why"], "planned": done["coverage"]["planned"]}
    print(json.dumps(said))


def read_once(journal: pathlib.Path) -> tuple[float, int]:
    """Return the processor time of decoding each line of a journal once, and the number of lines."""
    began, decoder, count = time.process_time(), msgspec.json.Decoder(), 0
    with gzip.open(journal) as lines:
        for line in lines:
            decoder.decode(line)
            count += 1
    return time.process_time() - began, count


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


def measured(nodes: int, folder: pathlib.Path) -> tuple[pathlib.Path, str, float]:
    """Make and judge a run. Return its folder, what it is in words, and the ratio of the time that judging took to that of reading."""
    say(f"making a run of {nodes} nodes")
    made = large_run.make(folder, nodes)
    journal = made.run.journal.path.stat().st_size / 1e6
    what = f"{nodes} nodes, {made.numbers} numbers in {made.records} records, a journal of {journal:.0f} MB"
    say(f"judging {what}")
    command: list[t.Any] = [sys.executable, __file__, "--judge", folder]
    took = timed(command)
    say(took["why"])
    ratio = took["cpu"] / took["reading"]
    seconds = f"{what}; {took['cpu']:.1f} s of CPU, {took['seconds']:.1f} s in all; its journal is read in {took['reading']:.2f} s"
    goal = nodes == NODES
    show(
        f"judged_{nodes}", round(ratio, 1), "times reading", f"<= {TIMES:g}" if goal else "none set", seconds,
        ratio <= TIMES if goal else None,
    )  # fmt: skip
    memory = watched(command)
    show(
        f"memory_{nodes}", round(memory), "MB", f"<= {MEMORY}" if goal else "none set", f"the most at once of all its processes; {what}",
        memory <= MEMORY if goal else None,
    )  # fmt: skip
    return made.run.dir, what, ratio


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", default=os.environ.get("BENCH_REPORT_NODES", "500,2000,5000"), help="sizes of runs, by commas")
    parser.add_argument("--ports", type=int, default=int(os.environ.get("BENCH_REPORT_PORTS", "1024")))
    parser.add_argument("--judge", metavar="RESULTS", help="judge the run that lies there, and nothing else")
    options = parser.parse_args()
    if options.judge:
        judge(options.judge)
        return
    sizes = sorted(map(int, str(options.nodes).split(",")))
    ratios = []
    for nodes in sizes:
        with tempfile.TemporaryDirectory(prefix="gb", ignore_cleanup_errors=True) as name:
            folder, what, ratio = measured(nodes, pathlib.Path(name))
            ratios.append(ratio)
            if nodes == sizes[-1]:
                looked_at("page", folder / "report.html", what)
    if len(sizes) > 1:
        grown = ratios[-1] / ratios[0]
        show("linear", round(grown, 2), "times", f"<= {LINEAR}", f"the ratio at {sizes[-1]} nodes to that at {sizes[0]}", grown <= LINEAR)
    with tempfile.TemporaryDirectory(prefix="gb", ignore_cleanup_errors=True) as name:
        path, cpu, pairs = matrix(options.ports, pathlib.Path(name))
        what = f"{pairs} pairs of {options.ports} ports"
        show("matrix_seconds", round(cpu, 1), "s", "none set", f"CPU for model and page; {what}", None)
        looked_at("matrix", path, what)


if __name__ == "__main__":
    main()
