# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Log lines of pods and schedulers, with the time of their own node and the numbers in them.

Times of two nodes are never compared: what came after a change is what stands behind the last line that was there before it, in the
same log.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import itertools
import re
import statistics
import typing as t

_STAMPED = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d) ?(.*)$", re.DOTALL)
_RUNTIME = re.compile(r"--- ([0-9]+(?:\.[0-9]+)?) seconds ---")
_GPU = re.compile(r"^--- on (GPU-\S+|MIG-\S+) ---$")
_PROBE = re.compile(r"\[QUOTA_PROBE\] elapsed=([0-9.]+)s it=([0-9]+) it_per_sec=([0-9.]+)")


class LogLine(t.NamedTuple):
    """A line of a log; `stamp` sorts as text among lines of the same log, and is empty where the API gave none."""

    stamp: str
    text: str


class Probe(t.NamedTuple):
    """A line in which a workload says how far it is."""

    stamp: str
    elapsed_s: float
    iterations: int


def lines_of(texts: t.Iterable[str]) -> list[LogLine]:
    """A log as the API gives it with timestamps."""
    found = []
    for text in texts:
        stamped = _STAMPED.match(text)
        if stamped:
            whole, part, _zone, rest = stamped.groups()
            found.append(LogLine(f"{whole}.{(part or '.')[1:]:0<9}", rest))
        elif text:
            found.append(LogLine("", text))
    return found


def after(lines: t.Iterable[LogLine], stamp: str) -> list[LogLine]:
    """Return the lines after a moment of the same log; lines without a time are left out."""
    return [line for line in lines if line.stamp > stamp]


def between(lines: t.Iterable[LogLine], since: str, until: str | None) -> list[LogLine]:
    return [line for line in after(lines, since) if until is None or line.stamp <= until]


def matching(lines: t.Iterable[LogLine], pattern: str) -> list[LogLine]:
    compiled = re.compile(pattern)
    return [line for line in lines if compiled.search(line.text)]


def runtime(lines: t.Iterable[LogLine]) -> float | None:
    """Seconds that a workload says it took: its last word counts."""
    found = [said.group(1) for line in lines for said in _RUNTIME.finditer(line.text)]
    return float(found[-1]) if found else None


def gpu(lines: t.Iterable[LogLine]) -> str | None:
    """The GPU that a workload says it had; None where it does not."""
    return next((said.group(1) for line in lines for said in [_GPU.match(line.text)] if said), None)


def probes(lines: t.Iterable[LogLine]) -> list[Probe]:
    found = []
    for line in lines:
        said = _PROBE.search(line.text)
        if said:
            found.append(Probe(line.stamp, float(said.group(1)), int(said.group(2))))
    return found


def rates(found: t.Sequence[Probe]) -> list[tuple[float, float]]:
    """(elapsed, iterations per second) of each interval between two probes: the rate that a probe itself prints is a mean since the start,
    which hides what a change has done."""
    return [
        (b.elapsed_s, (b.iterations - a.iterations) / (b.elapsed_s - a.elapsed_s))
        for a, b in itertools.pairwise(found)
        if b.elapsed_s > a.elapsed_s and b.iterations >= a.iterations
    ]


def rate(lines: t.Iterable[LogLine], since: str = "", until: str | None = None) -> float | None:
    """The median rate of the intervals that lie wholly within two moments; None where there is none."""
    found = rates(probes(between(lines, since, until)))
    return statistics.median(value for _elapsed, value in found) if found else None
