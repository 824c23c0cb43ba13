# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rate at which the processors of each NUMA node copy memory of that node: all of its cores together, and one alone.

Copies are memmove of the C library, called by threads that are bound to a core each; Python's lock is free meanwhile.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import memory
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import BARE_METAL, Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import host_memory

CHECK = "bandwidth"
# Of each core. Source and target together must not fit into the core's part of a cache: the largest ones have 32 MiB for a core.
SIZE = 32 << 20
# The best of several rounds counts: what else runs takes away and never adds.
ROUNDS, ROUND_S = 3, 0.3
# Tools that measure latency, in the order in which they are looked for: (name, arguments, pattern of the nanoseconds in what they print).
# The last number counts: lat_mem_rd goes from small sizes, which caches hold, to large ones.
LATENCY: tuple[tuple[str, list[str], str], ...] = (
    ("mlc", ["--idle_latency"], r"\(\s*([\d.]+)\s*ns\)"),
    ("lat_mem_rd", ["-P", "1", "-N", "1", "-t", "64", "1024"], r"(?m)^[\d.]+ ([\d.]+)$"),
)
LATENCY_S = 60.0


def cores(tree: Tree, cpus: t.Iterable[int]) -> list[int]:
    """Return one processor of each core of those that this process may use."""
    usable = os.sched_getaffinity(0)
    seen_cores: set[str] = set()
    chosen = []
    for cpu in sorted(usable.intersection(cpus)):
        core = tree.text(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or str(cpu)
        if core not in seen_cores:
            seen_cores.add(core)
            chosen.append(cpu)
    return chosen


class _Copier(threading.Thread):
    """Copies memory on one processor until the time is over, in each round. `rates` are bytes per second, read and written, by round."""

    def __init__(self, cpu: int, node: int, nodes: dict[int, set[int]], gate: threading.Barrier) -> None:
        super().__init__(daemon=True)
        self.cpu, self.node, self.nodes, self.gate = cpu, node, nodes, gate
        self.rates: list[float] = []
        self.error = ""

    def run(self) -> None:
        try:
            os.sched_setaffinity(0, {self.cpu})  # of this thread alone
            buffers = [host_memory.Buffer(SIZE, self.node if len(self.nodes) > 1 else None, self.nodes) for _end in range(2)]
        except (OSError, MemoryError, ValueError) as error:
            self.error = str(error)
            self.gate.abort()
            return
        try:
            for _round in range(ROUNDS):
                self.gate.wait()
                began = now = time.monotonic()
                copies = 0
                while now - began < ROUND_S:
                    ctypes.memmove(buffers[copies % 2].address, buffers[1 - copies % 2].address, SIZE)
                    copies += 1
                    now = time.monotonic()
                self.rates.append(2 * SIZE * copies / (now - began))
        except threading.BrokenBarrierError:
            pass
        finally:
            for buffer in buffers:
                buffer.close()


def together(cpus: t.Sequence[int], node: int, nodes: dict[int, set[int]]) -> float:
    """Return the bytes per second that processors read and write together on a NUMA node. Raises OSError if one cannot."""
    gate = threading.Barrier(len(cpus))
    copiers = [_Copier(cpu, node, nodes, gate) for cpu in cpus]
    for copier in copiers:
        copier.start()
    for copier in copiers:
        copier.join()
    wrong = next((copier for copier in copiers if copier.error or len(copier.rates) < ROUNDS), None)
    if wrong:
        raise OSError(f"processor {wrong.cpu}: {wrong.error or 'it did not take part'}")
    return max(sum(copier.rates[turn] for copier in copiers) for turn in range(ROUNDS))


def latency(node: Node) -> tuple[str, float] | None:
    """Return (tool, nanoseconds) that a core waits for memory; None if no tool is installed or none gives a number."""
    for name, argv, pattern in LATENCY:
        if node.which(name):
            result = node.run([name, *argv], timeout=LATENCY_S)
            numbers = re.findall(pattern, f"{result.out}\n{result.err}") if result.ok else []
            if numbers:
                return name, float(numbers[-1])
    return None


def measure(tree: Tree, variant: str) -> dict[str, t.Any]:
    """Return the observation of the check: `bandwidth` and `one_core` of the slowest NUMA node, and a row for each node. Memory errors that
    were counted meanwhile are part of its evidence."""
    place = tree.place()
    cpu = re.search(r"(?m)^(?:model name|CPU part)\s*: (.*)$", tree.text("/proc/cpuinfo") or "")
    nodes = host_memory.numa_nodes(tree.path("/sys"))
    used = {number: own_cores for number, cpus in sorted(nodes.items()) if (own_cores := cores(tree, cpus))}
    context: dict[str, t.Any] = {"place": place, "cpu": cpu.group(1) if cpu else None, "numa_nodes": len(nodes)}
    # Numbers of a virtual machine or a container depend on who else is there: they are shown and compared with nobody's.
    context["comparable"] = place == BARE_METAL
    unseen = {}
    missing = sorted(set(nodes) - set(used))
    if missing:
        unseen["numa"] = f"bandwidth of NUMA nodes {', '.join(map(str, missing))}: none of their processors may be used here"
    need = 2 * SIZE * max((len(own_cores) for own_cores in used.values()), default=0)
    available = host_memory.available(tree.node.root)
    if available is not None and available < 2 * need:
        reason = f"{need >> 20} MiB of memory are needed for copies, and half of the {available >> 20} MiB that are free are less"
        return observation.failed(CHECK, "out_of_memory", reason, variant=variant, context=context)
    series = []
    counted_before = memory.counted(tree)
    for number, own_cores in used.items():
        try:
            rates = together(own_cores, number, nodes), together(own_cores[:1], number, nodes)
        except OSError as error:
            return observation.failed(CHECK, "tool_failed", f"NUMA node {number}: {error}", variant=variant, context=context)
        series.append(
            {"node": number, "cores": len(own_cores), "bandwidth": round(rates[0] / 1e9, 2), "one_core": round(rates[1] / 1e9, 2)}
        )
    if not series:
        return observation.failed(CHECK, "no_permission", "none of the machine's processors may be used", variant=variant, context=context)
    metrics = {name: {"value": min(row[name] for row in series), "unit": "GB/s"} for name in ("bandwidth", "one_core")}
    waited = latency(tree.node)
    if waited:
        metrics["latency"] = {"value": waited[1] / 1000, "unit": "us"}
    else:
        names = " nor ".join(name for name, _argv, _pattern in LATENCY)
        unseen["latency"] = f"latency of memory: neither {names} is installed and gives a number"
    if not counted_before:
        unseen["edac"] = f"memory errors while memory was copied: the kernel has no counters in {memory.EDAC}"
    evidence = {"window": {}, "changes": memory.risen(counted_before, memory.counted(tree)), "unreadable": sorted(unseen)}
    context["not_looked_for"] = unseen
    return observation.measured(CHECK, variant=variant, context=context, metrics=metrics, series=series, evidence=evidence)
