# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver of GPUs whose memory is that of this process: what gpu_memory.py asks of cuda_driver.py, with clocks that rates move."""

from __future__ import annotations

import ctypes
import struct
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import memory_kernels
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.cuda_driver import DriverError

WORD = memory_kernels.WORD


class Event:
    at = 0.0


class Stream:
    def __init__(self) -> None:
        self.clock = 0.0


class FakeDriver:
    """`devices`: FakeDevices; each has `rates` {way: GB/s} and `plant`, called with (what was done, address, size) behind each step."""

    version, runtime = "13.0", "CUDA"

    def __init__(self, *uuids: str) -> None:
        self.devices = [FakeDevice(self, uuid) for uuid in uuids]
        self.pinned: set[int] = set()

    def pin(self, address: int, _size: int) -> None:
        self.pinned.add(address)

    def unpin(self, address: int) -> None:
        self.pinned.remove(address)


class FakeDevice:
    def __init__(self, driver: FakeDriver, uuid: str) -> None:
        self.driver, self.uuid, self.bdf = driver, uuid, "0000:00:00.0"
        self.memory: dict[int, t.Any] = {}
        self.total = 1 << 20
        self.rates = {"h2d": 55.0, "d2h": 54.0, "copy": 1500.0, "send": 390.0, "read": 3000.0}
        self.plant: t.Callable[[str, int, int], None] = lambda _step, _address, _size: None
        self.direct = True
        self.processors = 4

    def free(self) -> int:
        return self.total - sum(map(len, self.memory.values()))

    def room(self, size: int) -> int:
        if size > self.free():
            raise DriverError("cuMemAlloc_v2 failed with status 2 out of memory", 2)
        data = ctypes.create_string_buffer(size)
        self.memory[ctypes.addressof(data)] = data
        return ctypes.addressof(data)

    def release(self, address: int) -> None:
        del self.memory[address]

    def mapped(self, address: int) -> int:
        assert address in self.driver.pinned
        return address

    def stream(self) -> Stream:
        return Stream()

    def _copied(self, step: str, to: int, source: int, size: int, stream: Stream) -> None:
        ctypes.memmove(to, source, size)
        stream.clock += size / self.rates[step] / 1e9
        self.plant(step, to, size)

    def upload(self, to: int, source: int, size: int, stream: Stream) -> None:
        self._copied("h2d", to, source, size, stream)

    def download(self, to: int, source: int, size: int, stream: Stream) -> None:
        self._copied("d2h", to, source, size, stream)

    def copy(self, to: int, source: int, size: int, stream: Stream) -> None:
        self._copied("copy", to, source, size, stream)

    def send(self, to: int, _other: FakeDevice, source: int, size: int, stream: Stream) -> None:
        self._copied("send", to, source, size, stream)

    def put(self, address: int, word: int) -> None:
        self.write(address, [word])

    def get(self, address: int) -> int:
        return self.words(address, 1)[0]

    def reach(self, _other: FakeDevice) -> bool:
        return self.direct

    def zero(self, address: int, size: int, _stream: Stream | None = None) -> None:
        ctypes.memset(address, 0, size)

    def capability(self) -> int:
        return 90

    def event(self) -> Event:
        return Event()

    def record(self, event: Event, stream: Stream) -> None:
        event.at = stream.clock

    def wait(self, stream: Stream, event: Event) -> None:
        stream.clock = max(stream.clock, event.at)

    def reached(self, event: Event) -> None:
        pass

    def discard(self, event: Event) -> None:
        pass

    def between(self, first: Event, last: Event) -> float:
        return last.at - first.at

    def settle(self, _stream: Stream | None = None) -> None:
        pass

    def launch(self, kernel: str, *values: int, stream: Stream | None = None, threads: int = 0, blocks: int = 0) -> None:
        getattr(self, f"_{kernel}")(*values)
        if stream is not None and kernel in ("multiply", "check"):
            stream.clock += 0.012
        if stream is not None and kernel == "total":
            stream.clock += 8 * values[1] / self.rates["read"] / 1e9
        if stream is not None and kernel == "chase":
            stream.clock += values[1] * 1.2e-6
        self.plant(kernel, values[0], 0)

    # Kernels -----------------------------------------------------------------------------------------------------

    @staticmethod
    def words(address: int, count: int) -> list[int]:
        return list(struct.unpack(f"<{count}Q", ctypes.string_at(address, 8 * count)))

    @staticmethod
    def write(address: int, values: list[int]) -> None:
        ctypes.memmove(address, struct.pack(f"<{len(values)}Q", *values), 8 * len(values))

    def _pattern(self, n: int, kind: int, seed: int, mask: int) -> list[int]:
        return [memory_kernels.word(memory_kernels.KINDS[kind], i, seed, mask) for i in range(n)]

    def _fill(self, base: int, n: int, kind: int, seed: int, mask: int) -> None:
        self.write(base, self._pattern(n, kind, seed, mask))

    def _differ(self, out: int, read: list[int], expected: list[int]) -> None:
        (count,) = self.words(out, 1)
        for i, (found, wanted) in enumerate(zip(read, expected)):
            if found != wanted:
                if count < memory_kernels.MOST:
                    self.write(out + 8 + 24 * count, [8 * i, wanted, found])
                count += 1
        self.write(out, [count])
        compared = out + 8 * memory_kernels.COMPARED
        self.write(compared, [self.words(compared, 1)[0] + len(read)])

    def _check(self, base: int, n: int, kind: int, seed: int, mask: int, out: int, invert: int) -> None:
        expected = self._pattern(n, kind, seed, mask)
        self._differ(out, self.words(base, n), expected)
        if invert:
            self.write(base, [one ^ WORD for one in expected])

    def _same(self, base: int, other: int, n: int, out: int) -> None:
        self._differ(out, self.words(base, n), self.words(other, n))

    def _total(self, base: int, n: int, out: int) -> None:
        self.write(out, [(self.words(out, 1)[0] + sum(self.words(base, n))) & WORD])

    def _multiply(self, steps: int, seed: int, out: int) -> None:
        sums = self.words(out, self.processors)
        self.write(out, [(total + steps * 7919 + seed * 104729) & WORD for total in sums] + list(range(self.processors)))

    def _gate(self, _flag: int, _ns: int) -> None:
        pass

    def _chase(self, first: int, steps: int, out: int) -> None:
        at = first
        for _step in range(steps):
            (at,) = self.words(at, 1)
        self.write(out, [at])
