# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs under test, with data that went up once and came back right: what the workloads gpu_memory.py and soak.py share.

It travels to the nodes as text, in front of a workload that uses it (workloads/packing.py), behind memory_kernels.py, host_memory.py and
cuda_driver.py: no imports of this collection but of those.
This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
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
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.memory_kernels import COMPARED, MOST, OUT_BYTES, WORD

BEGAN = time.monotonic()
# The second set of data begins so many bytes behind the first one.
SHIFT = 4096
LOCK = threading.Lock()


class Wrong(Exception):
    """Data that is not what was written. `place`: that of the GPU on which it was compared."""

    def __init__(self, where: str, words: int, offset: int, expected: int, actual: int, place: int | None = None) -> None:
        super().__init__(where)
        self.place = place
        self.record = {"where": where, "words": words, "offset": offset, "expected": f"{expected:#018x}", "found": f"{actual:#018x}"}


class Fault(Exception):
    """A check cannot be measured; `code` is a reason code, `place` that of the GPU that is to blame, if it is known."""

    def __init__(self, code: str, reason: str, place: int | None = None) -> None:
        super().__init__(reason)
        self.code, self.place = code, place


# A word that is made wrong on purpose before a comparison on the GPU, which must find it: offset in bytes, expected, what was put there.
Plant = t.Tuple[int, int, int]
# Bits that a planted word differs in, in turn, so that a place that was planted before is wrong again.
PLANTED_BITS = (1 << 5, 1 << 42, 3 << 17, WORD)


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
        # Chooses where words are planted, and how many were found again.
        self.dice = random.Random(place)
        self.planted = 0

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

    def result(self) -> int:
        """Return the first word that a kernel left in `out`."""
        return self._out()[0]

    def _out(self) -> tuple[int, ...]:
        data = ctypes.create_string_buffer(OUT_BYTES)
        self.device.download(ctypes.addressof(data), self.out, OUT_BYTES, self.up)
        self.device.settle(self.up)
        return struct.unpack(f"<{OUT_BYTES // 8}Q", data.raw)

    def plant(self, address: int, words: int, expected: t.Callable[[int], int]) -> Plant:
        """Make one of so many words at an address wrong: the first, the last or any. `expected` returns the right one by its index."""
        index = self.dice.choice((0, words - 1, *(self.dice.randrange(words) for _either in range(4))))
        right = expected(index)
        wrong = right ^ self.dice.choice(PLANTED_BITS)
        self.device.put(address + 8 * index, wrong)
        return 8 * index, right, wrong

    def hold(self, where: str, words: int, plants: t.Sequence[Plant]) -> None:
        """Hold the comparisons on the GPU since `out` was set to 0 to what they must have found: of `words` words exactly the planted ones
        are wrong. Raise Wrong for any other wrong word, and Fault if a comparison did not run, or not as a whole."""
        self.device.settle()
        numbers = self._out()
        stored = min(numbers[0], MOST)
        examples = sorted(zip(*[iter(numbers[1 : 1 + 3 * stored])] * 3))
        others = list((collections.Counter(examples) - collections.Counter(plants)).elements())
        unseen = list((collections.Counter(plants) - collections.Counter(examples)).elements())
        if others or numbers[0] > len(plants):
            offset, expected, actual = (others or examples)[0]
            raise Wrong(where, numbers[0] - len(plants) + len(unseen), offset, expected, actual, self.place)
        problem = ""
        if numbers[COMPARED] != words:
            problem = f"the GPU compared {numbers[COMPARED]} of {words} words"
        elif unseen:
            problem = f"the GPU did not find the word that was made wrong on purpose at byte {unseen[0][0]}"
        if problem:
            raise Fault("wrong_results", f"{where}: {problem}, and its driver reported no error", self.place)
        self.planted += len(plants)

    def compare(self, address: int, shift: int, where: str) -> None:
        """Compare a buffer on the device with the data."""
        truth, words = self.truth + shift, self.size // 8
        plant = self.plant(address, words, lambda index: self.device.get(truth + 8 * index))
        self.device.zero(self.out, OUT_BYTES)
        self.device.launch("same", address, truth, words, self.out)
        self.hold(where, words, [plant])

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
