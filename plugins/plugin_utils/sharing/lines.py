# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Log lines of pods and schedulers, with the time of their own node and the numbers in them.

Times of two nodes are never compared. Lines after a change are the lines behind the last line that the same log had before the change.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import datetime
import itertools
import re
import typing as t

_STAMPED = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d) ?(.*)$", re.DOTALL)
_RUNTIME = re.compile(r"--- ([0-9]+(?:\.[0-9]+)?) seconds ---")
_GPU = re.compile(r"^--- on (GPU-\S+|MIG-\S+) ---$")
_PROBE = re.compile(r"\[QUOTA_PROBE\] elapsed=([0-9.]+)s it=([0-9]+) it_per_sec=([0-9.]+)")


class LogLine(t.NamedTuple):
    """A line of a log. `stamp` sorts as text among lines of the same log, and is empty if the API gave no time."""

    stamp: str
    text: str


class Probe(t.NamedTuple):
    """The progress that a workload prints: seconds since its start, and its iterations."""

    stamp: str
    elapsed_s: float
    iterations: int


def lines_of(texts: t.Iterable[str]) -> list[LogLine]:
    """Return the lines of a log that the API gave with timestamps."""
    result = []
    for text in texts:
        stamped = _STAMPED.match(text)
        if stamped:
            second, fraction, _zone, message = stamped.groups()
            result.append(LogLine(f"{second}.{(fraction or '.')[1:]:0<9}", message))
        elif text:
            result.append(LogLine("", text))
    return result


def after(lines: t.Iterable[LogLine], stamp: str) -> list[LogLine]:
    """Return the lines after a time of the same log. Lines without a time are left out."""
    return [line for line in lines if line.stamp > stamp]


def up_to(lines: t.Iterable[LogLine], stamp: str) -> list[LogLine]:
    """Return the lines up to a time of the same log."""
    return [line for line in lines if line.stamp and line.stamp <= stamp]


def seconds_between(first: str, second: str) -> float:
    """Return the seconds from one time of a node to a later one."""
    begin, end = (datetime.datetime.fromisoformat(stamp[:26]) for stamp in (first, second))
    return (end - begin).total_seconds()


def between(lines: t.Iterable[LogLine], since: str, until: str | None) -> list[LogLine]:
    return [line for line in after(lines, since) if until is None or line.stamp <= until]


def matching(lines: t.Iterable[LogLine], pattern: str) -> list[LogLine]:
    compiled = re.compile(pattern)
    return [line for line in lines if compiled.search(line.text)]


def runtime(lines: t.Iterable[LogLine]) -> float | None:
    """Return the run time in seconds that a workload printed last, None if it printed none."""
    seconds = [match.group(1) for line in lines for match in _RUNTIME.finditer(line.text)]
    return float(seconds[-1]) if seconds else None


def gpu(lines: t.Iterable[LogLine]) -> str | None:
    """Return the UUID of the GPU that a workload printed, None if it printed none."""
    return next((match.group(1) for line in lines for match in [_GPU.match(line.text)] if match), None)


def probes(lines: t.Iterable[LogLine]) -> list[Probe]:
    result = []
    for line in lines:
        match = _PROBE.search(line.text)
        if match:
            result.append(Probe(line.stamp, float(match.group(1)), int(match.group(2))))
    return result


def advances(lines: t.Iterable[LogLine]) -> list[Probe]:
    """Return the readings that show more iterations than the reading before them."""
    readings = probes(lines)
    before = (0, *(probe.iterations for probe in readings))
    return [probe for iterations, probe in zip(before, readings, strict=False) if probe.iterations > iterations]


def began_anew(readings: t.Iterable[Probe]) -> bool:
    """Return True if a reading shows fewer iterations or less time than the one before: no speed follows from both."""
    return any(b.iterations < a.iterations or b.elapsed_s < a.elapsed_s for a, b in itertools.pairwise(readings))


def iterations_at(readings: t.Sequence[Probe], stamp: str) -> float:
    """Return the iterations of a pod at a time between its first and its last reading, by linear interpolation."""
    later = next(number for number, probe in enumerate(readings) if probe.stamp >= stamp)
    if readings[later].stamp == stamp or not later:
        return float(readings[later].iterations)
    before, after_it = readings[later - 1], readings[later]
    part = seconds_between(before.stamp, stamp) / seconds_between(before.stamp, after_it.stamp)
    return before.iterations + part * (after_it.iterations - before.iterations)


def goes_on(lines: t.Iterable[LogLine], count: int) -> bool:
    """Return True if at least `count` lines about progress are there, and each has more iterations than the one before."""
    iterations = [probe.iterations for probe in probes(lines)]
    return len(iterations) >= count and all(b > a for a, b in itertools.pairwise([0, *iterations]))


def last_stamp(texts: t.Sequence[str] | None) -> str:
    """Return the time of the last line of a log that has one, "" if none has or the log could not be read."""
    return next((line.stamp for line in reversed(lines_of(texts or ())) if line.stamp), "")


def rates(readings: t.Sequence[Probe]) -> list[tuple[float, float]]:
    """Return (elapsed seconds, iterations per second) of each interval between two probes. The rate that a probe prints itself is a mean
    since the start, which hides the effect of a change."""
    return [(b.elapsed_s, (b.iterations - a.iterations) / (b.elapsed_s - a.elapsed_s)) for a, b in _forward(readings)]


def _forward(readings: t.Sequence[Probe]) -> list[tuple[Probe, Probe]]:
    """Return the pairs of successive probes, without those between which a program began anew."""
    return [(a, b) for a, b in itertools.pairwise(readings) if b.elapsed_s > a.elapsed_s and b.iterations >= a.iterations]


def rate(lines: t.Iterable[LogLine], since: str = "", until: str | None = None) -> float | None:
    """Return the rate over all intervals between two times of a log, None if there is no interval. It is a mean: a system that lets a pod
    run and stand still in turns has some intervals at full speed and some at none, and a median would be either."""
    intervals = [(b.elapsed_s - a.elapsed_s, b.iterations - a.iterations) for a, b in _forward(probes(between(lines, since, until)))]
    return sum(count for _time, count in intervals) / sum(length for length, _count in intervals) if intervals else None
