# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Host memory on a NUMA node of choice, and how much of it there is.

It travels to the nodes as text, in front of a workload that uses it (workloads/packing.py): no imports of this collection.
This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import mmap
import os
import platform
import re
import typing as t

# Numbers of the system calls mbind and move_pages (Linux, asm/unistd.h).
CALLS = {"x86_64": (237, 279), "aarch64": (235, 239)}
BIND = 2  # MPOL_BIND
SAMPLED = 64
LIBC = ctypes.CDLL(None, use_errno=True)


def cpus(text: str) -> set[int]:
    """Return the numbers in a list of CPUs, `0-3,8`."""
    numbers: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _dash, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def numa_nodes(root: str = "/sys") -> dict[int, set[int]]:
    """Return {NUMA node: its CPUs} of the nodes that have both CPUs and memory; GPUs of Grace superchips are nodes without CPUs."""
    nodes = {}
    for path in glob.glob(f"{root}/devices/system/node/node[0-9]*"):
        number = int(path.rpartition("node")[2])
        node_cpus = cpus(_read(f"{path}/cpulist"))
        total = re.search(r"MemTotal:\s*(\d+)", _read(f"{path}/meminfo"))
        if node_cpus and total and int(total.group(1)):
            nodes[number] = node_cpus
    return nodes or {0: set(os.sched_getaffinity(0))}


def of_device(bdf: str, root: str = "/sys") -> int | None:
    """Return the NUMA node of a PCI device, None if the firmware does not tell."""
    text = _read(f"{root}/bus/pci/devices/{bdf}/numa_node").strip()
    return int(text) if text.isdigit() else None


def available(root: str = "/") -> int | None:
    """Return how many bytes of memory this process may still take, by the machine and by its control groups; None if nobody tells."""
    limits = []
    match = re.search(r"MemAvailable:\s*(\d+)", _read(os.path.join(root, "proc/meminfo")))
    if match:
        limits.append(int(match.group(1)) << 10)
    for limit_file, used in (
        ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        limit, in_use = _read(os.path.join(root, limit_file)).strip(), _read(os.path.join(root, used)).strip()
        if limit.isdigit() and in_use.isdigit():
            limits.append(int(limit) - int(in_use))
    return min(limits) if limits else None


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as source:
            return source.read()
    except OSError:
        return ""


class Buffer:
    """Anonymous memory of `size` bytes on a NUMA node, or anywhere if `node` is None.

    `where`: the node on which the kernel says that the pages lie, None if it does not say it or if they lie on several.
    """

    def __init__(self, size: int, node: int | None, nodes: t.Mapping[int, set[int]]) -> None:
        self.size = size
        self.map = mmap.mmap(-1, size)
        self.view = (ctypes.c_char * size).from_buffer(self.map)
        self.address = ctypes.addressof(self.view)
        with contextlib.suppress(AttributeError, OSError):
            self.map.madvise(mmap.MADV_HUGEPAGE)
        affinity = os.sched_getaffinity(0)
        try:
            if node is not None:
                self._bind(node)
                with contextlib.suppress(OSError):  # none of its CPUs is ours: then mbind alone decides
                    os.sched_setaffinity(0, nodes[node])
            ctypes.memset(self.address, 0, size)
        finally:
            os.sched_setaffinity(0, affinity)
        self.where = self._where()

    def _bind(self, node: int) -> None:
        number = CALLS.get(platform.machine())
        if number:
            mask = (ctypes.c_ulong * 16)()
            mask[node // 64] = 1 << node % 64
            LIBC.syscall(number[0], ctypes.c_void_p(self.address), ctypes.c_size_t(self.size), BIND, mask, ctypes.c_ulong(1024), 0)

    def _where(self) -> int | None:
        """Ask the kernel where pages lie, by move_pages without a target (move_pages(2))."""
        number = CALLS.get(platform.machine())
        if number is None:
            return None
        step = max(mmap.PAGESIZE, self.size // SAMPLED // mmap.PAGESIZE * mmap.PAGESIZE)
        places = list(range(self.address, self.address + self.size, step))
        pages = (ctypes.c_void_p * len(places))(*places)
        status = (ctypes.c_int * len(places))()
        if LIBC.syscall(number[1], 0, ctypes.c_ulong(len(places)), pages, None, status, 0):
            return None
        nodes = set(status)
        return nodes.pop() if len(nodes) == 1 and min(nodes) >= 0 else None

    def close(self) -> None:
        """Give the memory back."""
        del self.view
        self.map.close()


def first_difference(first: int, second: int, size: int) -> int | None:
    """Return the offset of the first byte that differs between two places in memory, None if there is none."""
    if LIBC.memcmp(ctypes.c_void_p(first), ctypes.c_void_p(second), ctypes.c_size_t(size)) == 0:
        return None
    low, high = 0, size
    while high - low > 1:
        middle = (low + high) // 2
        if LIBC.memcmp(ctypes.c_void_p(first + low), ctypes.c_void_p(second + low), ctypes.c_size_t(middle - low)):
            high = middle
        else:
            low = middle
    return low
