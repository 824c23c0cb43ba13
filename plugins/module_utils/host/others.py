# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The processor time of a machine that others than our own test used, over a span of time, and which programs they were.

The kernel counts all of it in /proc/stat; what we used ourselves is known from our own process and its children (proc(5), times(2)). What a
hypervisor took away (steal) is counted too, and how long tasks waited for a processor (/proc/pressure/cpu, since Linux 4.20).

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import os
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import WITH_DAEMON, Node

# How many programs are named, and the least processors that one must have used on average.
MOST, LEAST = 4, 0.05


class Process(t.NamedTuple):
    """A process by /proc/PID/stat: when it started, its processor time with and without that of children that have ended, in ticks."""

    name: str
    parent: int
    started: int
    ticks: int
    ticks_of_children: int


class Look(t.NamedTuple):
    """The state of the machine at one moment. Times of processors are in ticks, `stalled_us` in microseconds. `me` is our own pid as this
    /proc has it."""

    at: float
    processors: int
    busy: int
    stolen: int
    stalled_us: int | Absent
    me: int
    processes: dict[int, Process]


class Watch:
    """Counts what others use from begin() to end(); `found` is then the evidence of it, in the form of Window.evidence()."""

    def __init__(self, node: Node, simulated: bool = False) -> None:
        folder = node.path("/proc")
        # The kernel is the same wherever we run, but a simulated machine has only files of its own.
        self.proc = folder if os.path.exists(f"{folder}/stat") or simulated else "/proc"
        self.is_visible = not simulated or os.path.exists(f"{folder}/stat")
        # Processes in a container of an engine with a daemon are not below us: what started meanwhile may be the test itself.
        self.only_old = node.contained and node.exec["kind"] in WITH_DAEMON
        self.first: Look | Absent = Absent("it was not looked at before the test")
        self.found: dict[str, t.Any] | None = None

    def begin(self) -> None:
        if self.is_visible:
            self.first = look(self.proc)

    def end(self) -> None:
        if not self.is_visible:
            return
        last = look(self.proc)
        if isinstance(self.first, Absent) or isinstance(last, Absent):
            why = self.first if isinstance(self.first, Absent) else t.cast(Absent, last)
            self.found = {"why": why.why}
        else:
            self.found = used(self.first, last, self.only_old)


def look(proc: str) -> Look | Absent:
    """Return the state of the machine now; Absent if the kernel does not show it."""
    try:
        with open(f"{proc}/stat", encoding="ascii", errors="replace") as source:
            lines = source.read().splitlines()
        # user nice system idle iowait irq softirq steal; guests are in user and nice.
        total = [int(word) for word in next(line for line in lines if line.startswith("cpu ")).split()[1:9]]
        busy, stolen = sum(total[:3]) + sum(total[5:7]), total[7]
    except (OSError, ValueError, StopIteration, IndexError) as error:
        return Absent(f"{proc}/stat cannot be read: {error or type(error).__name__}")
    processors = sum(line[:3] == "cpu" and line[3:4].isdigit() for line in lines)
    processes = dict(_processes(proc))
    try:
        me = int(os.readlink(f"{proc}/self"))
    except (OSError, ValueError):
        me = os.getpid()
    return Look(time.monotonic(), processors, busy, stolen, _stalled(proc), me, processes)


def _stalled(proc: str) -> int | Absent:
    try:
        with open(f"{proc}/pressure/cpu", encoding="ascii", errors="replace") as source:
            return int(source.readline().split("total=")[1])
    except (OSError, ValueError, IndexError) as error:
        return Absent(f"{proc}/pressure/cpu cannot be read: {error}")


def _processes(proc: str) -> t.Iterator[tuple[int, Process]]:
    try:
        names = os.listdir(proc)
    except OSError:
        names = []
    for name in names:
        if name.isdigit():
            try:
                with open(f"{proc}/{name}/stat", "rb") as source:
                    head, _bracket, tail = source.read().rpartition(b")")
                fields = tail.split()
                program = head.partition(b"(")[2].decode("utf-8", "replace")
                ticks, of_children = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
                yield int(name), Process(program, int(fields[1]), int(fields[19]), ticks, of_children)
            except (OSError, ValueError, IndexError):
                continue  # it has ended


def used(first: Look, last: Look, only_old: bool = False) -> dict[str, t.Any]:
    """Return what others used between two looks: {"processors": how many on average, "of": how many there are, "stalled": share of the time
    in which a task waited for one, "stolen": how many the hypervisor took, "programs": [words]}. A value that could not be read is left
    out. `only_old`: only processes that were there at the first look count."""
    seconds = max(last.at - first.at, 1e-3)
    span = seconds * os.sysconf("SC_CLK_TCK")
    ours = _family(last)
    by_name: dict[str, list[int]] = collections.defaultdict(list)
    own = 0
    for pid, process in last.processes.items():
        before = first.processes.get(pid)
        known = before is not None and before.started == process.started
        ticks = process.ticks - (before.ticks if before and known else 0)
        if pid in ours:
            # Children that have ended count with whoever has waited for them; of our ancestors only our guardian may have, for us.
            with_children = pid == last.me or pid == last.processes[last.me].parent
            own += ticks
            own += process.ticks_of_children - (before.ticks_of_children if before and known else 0) if with_children else 0
        elif known or not only_old:
            by_name[process.name].append(ticks)
    busy = last.busy - first.busy - own
    if only_old:
        busy = sum(ticks for group in by_name.values() for ticks in group)
    found: dict[str, t.Any] = {"processors": round(max(0.0, busy / span), 2), "of": last.processors}
    found["stolen"] = round(max(0.0, (last.stolen - first.stolen) / span), 2)
    if not isinstance(first.stalled_us, Absent) and not isinstance(last.stalled_us, Absent):
        found["stalled"] = round(max(0.0, (last.stalled_us - first.stalled_us) / 1e6 / seconds), 3)
    sums = sorted(((sum(group) / span, name, sum(ticks > 0 for ticks in group)) for name, group in by_name.items()), reverse=True)
    found["programs"] = [
        f"{f'{count} x ' if count > 1 else ''}{name} ({share:.1f} processors)" for share, name, count in sums[:MOST] if share >= LEAST
    ]
    return found


def _family(look: Look) -> set[int]:
    """Return our own process, those above it (our guardian, the module, its connection, a controller of this machine), and all below."""
    processes, family = look.processes, {look.me}
    pid = look.me
    while pid in processes and processes[pid].parent not in (0, 1) and processes[pid].parent not in family:
        pid = processes[pid].parent
        family.add(pid)
    below = collections.defaultdict(list)
    for child, process in processes.items():
        below[process.parent].append(child)
    queue = [look.me]
    while queue:
        children = below[queue.pop()]
        family.update(children)
        queue.extend(children)
    return family
