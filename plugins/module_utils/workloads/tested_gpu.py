# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs under test, with data that went up once and came back right: what the workloads gpu_memory.py and soak.py share.

It travels to the nodes as text, in front of a workload that uses it (workloads/packing.py), behind memory_kernels.py, host_memory.py and
cuda_driver.py: no imports of this collection but of those.
This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import ctypes
import json
import random
import struct
import sys
import threading
import time
import typing as t

if "Driver" not in globals():  # else they stand above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.cuda_driver import CudaDevice, DriverError
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.host_memory import Buffer, first_difference, of_device
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.memory_kernels import MOST, OUT_BYTES

BEGAN = time.monotonic()
# The second set of data begins so many bytes behind the first one.
SHIFT = 4096
LOCK = threading.Lock()


class Wrong(Exception):
    """Data that is not what was written."""

    def __init__(self, where: str, words: int, offset: int, expected: int, actual: int) -> None:
        super().__init__(where)
        self.record = {"where": where, "words": words, "offset": offset, "expected": f"{expected:#018x}", "found": f"{actual:#018x}"}


class Fault(Exception):
    """A check cannot be measured; `code` is a reason code."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def say(**record: t.Any) -> None:
    """Print one record."""
    with LOCK:
        sys.stdout.write(json.dumps(record) + "\n")
        sys.stdout.flush()


class TestedGpu:
    """One GPU under test: its streams and buffers."""

    def __init__(self, place: int, device: CudaDevice, size: int) -> None:
        self.place = place
        self.device = device
        self.size = size
        self.node = of_device(device.bdf)
        self.up, self.down, self.first = device.stream(), device.stream(), device.stream()
        self.out = device.room(OUT_BYTES)
        self.truth = 0
        self.landing = 0
        self.links: list[list[int]] = []

    def prepare(self, source: Buffer, back: Buffer) -> None:
        """Bring the data to the device, and see that it comes back right."""
        device = self.device
        if not self.truth:
            self.truth = device.room(self.size + SHIFT)
            self.landing = device.room(self.size)
        device.upload(self.truth, source.address, self.size + SHIFT, self.up)
        device.settle(self.up)
        for shift in (0, SHIFT):
            device.download(back.address, self.truth + shift, self.size, self.down)
            device.settle(self.down)
            compare_host(back, source, shift, self.size, "after a copy to the GPU and back")

    def mismatches(self) -> tuple[int, list[tuple[int, int, int]]]:
        """Return how many words were wrong, and (offset, expected, found) of some, the lowest offset first."""
        data = ctypes.create_string_buffer(OUT_BYTES)
        self.device.download(ctypes.addressof(data), self.out, OUT_BYTES, self.up)
        self.device.settle(self.up)
        numbers = struct.unpack(f"<{OUT_BYTES // 8}Q", data.raw)
        stored = min(numbers[0], MOST)
        return numbers[0], sorted(zip(*[iter(numbers[1 : 1 + 3 * stored])] * 3))

    def hold(self, where: str) -> None:
        """Raise Wrong if the last comparison on the GPU found something."""
        self.device.settle()
        words, examples = self.mismatches()
        if words:
            offset, expected, actual = examples[0]
            raise Wrong(where, words, offset, expected, actual)

    def compare(self, address: int, shift: int, where: str) -> None:
        """Compare a buffer on the device with the data."""
        self.device.zero(self.out, OUT_BYTES)
        self.device.launch("same", address, self.truth + shift, self.size // 8, self.out)
        self.hold(where)

    def free(self) -> None:
        """Give the device buffers back."""
        for address in filter(None, (self.truth, self.landing)):
            self.device.release(address)
        self.truth = self.landing = 0


def compare_host(back: Buffer, source: Buffer, shift: int, size: int, where: str) -> None:
    """Compare host memory with the data; Wrong if it differs."""
    at = first_difference(back.address, source.address + shift, size)
    if at is not None:
        at -= at % 8
        expected, actual = (struct.unpack("<Q", ctypes.string_at(a + at, 8))[0] for a in (source.address + shift, back.address))
        raise Wrong(where, 1, at, expected, actual)


def random_data(size: int, seed: int, unit: int) -> bytes:
    """Return random bytes of which no two units are alike: one random block of `unit` bytes, turned by another amount each time."""
    block = random.Random(seed).getrandbits(8 * unit).to_bytes(unit, "little")
    turned = (block[at:] + block[:at] for at in (8 * 4099 * k % unit for k in range(-(-size // unit))))
    return b"".join(turned)[:size]


def rooms(device: CudaDevice, size: int, unit: int) -> list[tuple[int, int]]:
    """Return (address, bytes) of device memory of this size together, in as few parts as the driver has, each a multiple of `unit`."""
    parts: list[tuple[int, int]] = []
    part = size // unit * unit
    while size >= unit and part >= unit:
        part = min(part, size // unit * unit)
        try:
            parts.append((device.room(part), part))
            size -= part
        except DriverError as error:
            if error.code != "out_of_memory":
                raise
            part = part // 2 // unit * unit
    return parts


def own_node(gpu: TestedGpu, nodes: t.Mapping[int, set[int]]) -> int | None:
    """Return the NUMA node of a GPU; of a machine with one node that one; None if nobody tells."""
    if gpu.node in nodes:
        return gpu.node
    return next(iter(nodes)) if len(nodes) == 1 else None


def times(began: float) -> dict[str, float]:
    """Return the times of something that began at `began` and ends now, in seconds since the workload began."""
    ended = time.monotonic()
    return {"after_s": round(began - BEGAN, 3), "took_s": round(ended - began, 3)}
