# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies between host and GPUs, between GPUs and inside their memory, and a test of that memory: the workload of `gpu_memory`.

Runs under the node's Python, behind memory_kernels.py, host_memory.py, cuda_driver.py and tested_gpu.py (workloads/packing.py), with
{"devices": [UUID], "checks": [name], "mib": M, "copies": N, "passes": P, "seed": S} as its argument. Prints one JSON line per result:

    {"kind": "ready", "driver": version of CUDA, "numa": [nodes]}
    {"kind": "begin", "check": name, "device": place in `devices`}           before each step, so that a hang has a name
    {"kind": "result", "check", "device", ..., "after_s", "took_s"}          numbers of one GPU; of `pattern` the "bytes" that were tested,
                                                                             those that the driver called "free", and "planted" words
    {"kind": "wrong", "check", "device", "words", "offset", "expected", "found", "where"}   data that is not what was written
    {"kind": "fault", "check", "device", "code", "reason"}                   what ended a check
    {"kind": "time", "check", "after_s", "took_s"}, {"kind": "end"}

Rates are GB/s, 10^9 bytes per second of one direction; `copy` and `read` count every byte that is read or written once.

How copies are measured: each copies a buffer of `mib` MiB in CHUNKS pieces behind a kernel that waits for the start, so that all begin
together; events before the first piece and behind each give the time. The median of `copies` copies is the rate, the lowest is told too.
Two sets of data alternate, so that data of the copy before is not taken for new. Behind each copy, outside of its time, every byte is
compared: on the GPU with a copy of the data that went up once and came back right, on the host with the data itself.

A comparison on the GPU proves that it ran: before each one a word is made wrong, which it must find, and it counts the words that it
compared. A kernel that a GPU or its driver drops without an error is a fault with the code wrong_results.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import functools
import json
import random
import statistics
import sys
import time
import typing as t

if "Driver" not in globals():  # else they stand above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.cuda_driver import Driver, DriverError, Links
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.host_memory import Buffer, available, numa_nodes
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.memory_kernels import (
        KINDS,
        MOST,
        OUT_BYTES,
        WORD,
        memory_module,
        word,
    )
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.tested_gpu import (
        SHIFT,
        Fault,
        TestedGpu,
        Wrong,
        compare_host,
        own_node,
        random_data,
        rooms,
        say,
        times,
    )

MIB = 1 << 20
CHUNKS = 4
WARM_UP = 2
# What the process needs besides its buffers.
SPARE = 1 << 30
GATE_NS = 2_000_000_000
# Device memory that stays free during the pattern test, by share and at least: what the driver may need while kernels run.
LEFT_FREE, LEAST_FREE = 0.004, 64 * MIB
# How long memory must hold a pattern and its inverse. Refresh is due within 64 ms; a row that is not refreshed loses bits within seconds.
HOLD_S = 1.5
DEVICE_COPY = 4096 * MIB
DEVICE_TIMES = 8
CHASE_BYTES, CHASE_LINE, CHASE_STEPS = 4 * MIB, 128, 16384
SMALL_COPIES, SMALL_BYTES = 400, 16
PEER_COPIES, NUMA_COPIES = 6, 4


# {place of a GPU: the data in pinned memory, and room for what comes back}
Memory = t.Dict[int, t.Tuple["Buffer", "Buffer"]]
# {way: (the stream, what queues the copy of so many bytes from an offset on)}
Copies = t.Dict[str, t.Tuple[t.Any, t.Callable[[int, int], None]]]


class Bench:
    """The GPUs of a node, the data, and the checks."""

    def __init__(self, order: dict[str, t.Any]) -> None:
        self.order = order
        self.plant: dict[str, t.Any] = order.get("plant") or {}
        self.size = int(order["mib"]) * MIB
        self.copies = int(order["copies"])
        self.driver = Driver(memory_module)
        by_uuid = {device.uuid: device for device in self.driver.devices}
        missing = [uuid for uuid in order["devices"] if uuid not in by_uuid]
        if missing:
            raise Fault("gpu_invisible", f"{self.driver.runtime} does not see {', '.join(missing)}")
        self.nodes = numa_nodes()
        self.gpus = [TestedGpu(place, by_uuid[uuid], self.size) for place, uuid in enumerate(order["devices"])]
        self.nvml = Links()
        self.data = random_data(self.size + SHIFT, int(order["seed"]), MIB)
        self.flag = Buffer(4096, None, self.nodes)
        self.driver.pin(self.flag.address, 4096)
        self.workers = concurrent.futures.ThreadPoolExecutor(max(1, len(self.gpus)))

    def host(self, node: int | None, size: int) -> Buffer:
        """Return pinned host memory on a NUMA node."""
        buffer = Buffer(size, node, self.nodes)
        if not self.plant.get("pageable"):
            self.driver.pin(buffer.address, size)
        return buffer

    def buffers(self, node: int | None) -> tuple[Buffer, Buffer]:
        """Return the data in pinned memory on a NUMA node, and room for what comes back."""
        source, back = self.host(node, self.size + SHIFT), self.host(node, self.size)
        ctypes.memmove(source.address, self.data, len(self.data))
        return source, back

    def close(self, *buffers: Buffer) -> None:
        """Give host memory back."""
        for buffer in buffers:
            if not self.plant.get("pageable"):
                self.driver.unpin(buffer.address)
            buffer.close()

    def enough(self, buffers: int) -> None:
        """Fault if the host has not the memory for so many pairs of buffers."""
        need, have = buffers * (2 * self.size + SHIFT) + SPARE, available()
        if have is not None and have < need:
            raise Fault("out_of_memory", f"the host has {have / 2**30:.1f} GiB of memory to spare, and the copies need {need / 2**30:.1f}")

    # Copies between host and GPUs -----------------------------------------------------------------------------------

    def host_copies(self, gpu: TestedGpu, directions: t.Sequence[str], shift: int, memory: Memory) -> Copies:
        """Return the copies of a GPU from and to its buffers in host memory."""
        source, back = memory[gpu.place]

        def upload(at: int, size: int) -> None:
            gpu.device.upload(gpu.landing + at, source.address + shift + at, size, gpu.up)

        def download(at: int, size: int) -> None:
            gpu.device.download(back.address + at, gpu.truth + shift + at, size, gpu.down)

        both: Copies = {"h2d": (gpu.up, upload), "d2h": (gpu.down, download)}
        return {direction: both[direction] for direction in directions}

    def peer_copies(self, gpu: TestedGpu, peer: TestedGpu, shift: int) -> Copies:
        """Return the copy of a GPU's data to another GPU."""

        def send(at: int, size: int) -> None:
            gpu.device.send(peer.landing + at, peer.device, gpu.truth + shift + at, size, gpu.up)

        return {"peer": (gpu.up, send)}

    def once(self, work: t.Sequence[tuple[TestedGpu, Copies]], pieces: int = CHUNKS) -> dict[int, dict[str, float]]:
        """Copy once on each of the GPUs, in so many pieces, all beginning together; return {place: {way: GB/s}}.

        Of two ways of one GPU at once the rate counts the pieces that ended while the other one was still under way.
        """
        ctypes.memset(self.flag.address, 0, 8)
        piece = self.size // pieces
        queued = []
        for gpu, copies in work:
            device = gpu.device
            device.launch("gate", device.mapped(self.flag.address), GATE_NS, stream=gpu.first, threads=1)
            start = device.event()
            device.record(start, gpu.first)
            marks: dict[str, list[t.Any]] = {}
            for way, (stream, _copy) in copies.items():
                device.wait(stream, start)
                began = device.event()
                device.record(began, stream)
                marks[way] = [began]
            for k in range(pieces):
                for way, (stream, copy) in copies.items():
                    copy(k * piece, piece)
                    ended = device.event()
                    device.record(ended, stream)
                    marks[way].append(ended)
            queued.append((gpu, marks))
        ctypes.memset(self.flag.address, 1, 8)
        for gpu, _copies in work:
            link = self.nvml.now(gpu.device.uuid)
            if link:
                gpu.links.append(link)
        rates: dict[int, dict[str, float]] = {}
        for gpu, marks in queued:
            for stream in (gpu.up, gpu.down):
                gpu.device.settle(stream)
            ends = {way: [gpu.device.between(events[0], event) for event in events[1:]] for way, events in marks.items()}
            over = min(seconds[-1] for seconds in ends.values())
            rates[gpu.place] = {}
            for way, seconds in ends.items():
                overlapping = [at for at in seconds if at <= over] or seconds[:1]
                rates[gpu.place][way] = len(overlapping) * piece / overlapping[-1] / 1e9
            for events in marks.values():
                for event in events:
                    gpu.device.discard(event)
        return rates

    def verify(self, gpus: list[TestedGpu], directions: t.Sequence[str], shift: int, memory: Memory) -> None:
        """Compare every byte that once() has copied."""
        flip = self.plant.get("flip")
        for gpu in gpus:
            if flip in directions:  # what tests plant
                address = gpu.landing if flip == "h2d" else memory[gpu.place][1].address
                byte = ctypes.create_string_buffer(b"\x01\x02\x03\x04\x05\x06\x07\x08")
                if flip == "h2d":
                    gpu.device.upload(address + 1024, ctypes.addressof(byte), 8, gpu.up)
                    gpu.device.settle(gpu.up)
                else:
                    ctypes.memmove(address + 1024, byte, 8)
        if "h2d" in directions:
            for gpu in gpus:
                gpu.compare(gpu.landing, shift, "copied from host to GPU")
        if "d2h" in directions:
            tasks = [
                self.workers.submit(compare_host, memory[gpu.place][1], memory[gpu.place][0], shift, self.size, "copied from GPU to host")
                for gpu in gpus
            ]
            for task in tasks:
                task.result()

    def rates(self, gpus: list[TestedGpu], directions: t.Sequence[str], copies: int, memory: Memory) -> dict[int, dict[str, list[float]]]:
        """Return {place: {way: [GB/s of each copy]}}, each verified."""
        measured: dict[int, dict[str, list[float]]] = {gpu.place: {direction: [] for direction in directions} for gpu in gpus}
        for number in range(WARM_UP + copies):
            shift = SHIFT * (number % 2)
            rates = self.once([(gpu, self.host_copies(gpu, directions, shift, memory)) for gpu in gpus])
            self.verify(gpus, directions, shift, memory)
            if number >= WARM_UP:
                for place, of in rates.items():
                    for direction, rate in of.items():
                        measured[place][direction].append(rate)
        return measured

    def between(self, check: str, directions: t.Sequence[str], together: bool) -> None:
        """Measure copies between host and GPUs, each alone or all at once."""
        self.enough(len(self.gpus) if together else 1)
        for group in [self.gpus] if together else [[gpu] for gpu in self.gpus]:
            with Trial(check, None if together and len(group) > 1 else group[0]):
                self._between(check, directions, group)

    def _between(self, check: str, directions: t.Sequence[str], group: list[TestedGpu]) -> None:
        began = time.monotonic()
        memory: Memory = {}
        try:
            for gpu in group:
                gpu.links = []
                memory[gpu.place] = self.buffers(own_node(gpu, self.nodes))
                gpu.prepare(*memory[gpu.place])
            measured = self.rates(group, directions, self.copies, memory)
            for gpu in group:
                of = measured[gpu.place]
                numbers = {direction: round(statistics.median(values), 3) for direction, values in of.items()}
                lowest = {direction: round(min(values), 3) for direction, values in of.items()}
                say(
                    kind="result", check=check, device=gpu.place, **numbers, lowest=lowest, copies=self.copies, bytes=self.size,
                    numa=gpu.node, numa_of_memory=memory[gpu.place][0].where, links=gpu.links, **times(began),
                )  # fmt: skip
        finally:
            for gpu in group:
                gpu.free()
            for pair in memory.values():
                self.close(*pair)

    def numa(self) -> None:
        """Measure copies of each GPU from and to the memory of every NUMA node that is not its own."""
        self.enough(1)
        for node in sorted(self.nodes):
            far = [gpu for gpu in self.gpus if own_node(gpu, self.nodes) != node]
            if not far:
                continue
            pair = self.buffers(node)
            try:
                for gpu in far:
                    with Trial("numa", gpu):
                        self._numa(gpu, node, pair)
            finally:
                for gpu in far:
                    gpu.free()
                self.close(*pair)

    def _numa(self, gpu: TestedGpu, node: int, pair: tuple[Buffer, Buffer]) -> None:
        began = time.monotonic()
        gpu.prepare(*pair)
        memory = {gpu.place: pair}
        rates = {direction: self.rates([gpu], [direction], NUMA_COPIES, memory)[gpu.place][direction] for direction in ("h2d", "d2h")}
        numbers = {direction: round(statistics.median(values), 3) for direction, values in rates.items()}
        say(
            kind="result", check="numa", device=gpu.place, node=node, numa=gpu.node, numa_of_memory=pair[0].where, **numbers, **times(began)
        )
        gpu.free()

    # Between GPUs, and inside one -----------------------------------------------------------------------------------

    def peer(self) -> None:
        """Measure copies of every ordered pair of GPUs, one pair after the other."""
        with self._data_on_all("peer"):
            for gpu in self.gpus:
                for peer in self.gpus:
                    if gpu is not peer:
                        with Trial("peer", gpu):
                            self._peer(gpu, peer)

    def peer_all(self) -> None:
        """Measure copies of every ordered pair of GPUs while all send: each to the next GPU, then to the one behind that, and so on."""
        with self._data_on_all("peer_all"):
            for distance in range(1, len(self.gpus)):
                with Trial("peer_all", None):
                    self._peers_at(distance)

    @contextlib.contextmanager
    def _data_on_all(self, check: str) -> t.Iterator[None]:
        """Bring the data to all GPUs for the block."""
        self.enough(1)
        pair = self.buffers(None)
        try:
            for gpu in self.gpus:
                with Trial(check, gpu):
                    gpu.prepare(*pair)
            yield
        finally:
            for gpu in self.gpus:
                gpu.free()
            self.close(*pair)

    def _peers_at(self, distance: int) -> None:
        """Measure all GPUs at once, each sending to the GPU so many places further."""
        began = time.monotonic()
        pairs = [(gpu, self.gpus[(gpu.place + distance) % len(self.gpus)]) for gpu in self.gpus]
        direct = {gpu.place: gpu.device.reach(peer.device) for gpu, peer in pairs}
        rates: dict[int, list[float]] = {gpu.place: [] for gpu in self.gpus}
        for number in range(WARM_UP + PEER_COPIES):
            shift = SHIFT * (number % 2)
            # In one piece: between pieces of a copy that takes less than a millisecond the gaps would count.
            for place, by_way in self.once([(gpu, self.peer_copies(gpu, peer, shift)) for gpu, peer in pairs], pieces=1).items():
                rates[place].append(by_way["peer"])
            for gpu, peer in pairs:
                try:
                    peer.compare(peer.landing, shift, f"copied from GPU {gpu.place} to GPU {peer.place} while all GPUs sent")
                except Wrong as wrong:
                    say(kind="wrong", check="peer_all", device=gpu.place, **wrong.record)
        for gpu, peer in pairs:
            rate = round(statistics.median(rates[gpu.place][WARM_UP:]), 3)
            say(kind="result", check="peer_all", device=gpu.place, to=peer.place, direct=direct[gpu.place], rate=rate, **times(began))

    def _peer(self, gpu: TestedGpu, peer: TestedGpu) -> None:
        began = time.monotonic()
        direct = gpu.device.reach(peer.device)
        rates = [self._sent(gpu, peer, SHIFT * (k % 2)) for k in range(WARM_UP + PEER_COPIES)][WARM_UP:]
        rate = round(statistics.median(rates), 3)
        say(kind="result", check="peer", device=gpu.place, to=peer.place, direct=direct, rate=rate, **times(began))

    def _sent(self, gpu: TestedGpu, peer: TestedGpu, shift: int) -> float:
        """Copy the data to another GPU once, and verify it there. Return GB/s."""
        device = gpu.device
        first, last = device.event(), device.event()
        device.record(first, gpu.up)
        device.send(peer.landing, peer.device, gpu.truth + shift, self.size, gpu.up)
        device.record(last, gpu.up)
        device.settle(gpu.up)
        peer.compare(peer.landing, shift, f"copied from GPU {gpu.place} to GPU {peer.place}")
        return self.size / device.between(first, last) / 1e9

    def inside(self) -> None:
        """Measure copies inside each GPU's memory, and reading it."""
        for gpu in self.gpus:
            with Trial("device", gpu):
                began = time.monotonic()
                copy, read, size = self._inside(gpu)
                say(kind="result", check="device", device=gpu.place, copy=round(copy, 1), read=round(read, 1), bytes=size, **times(began))

    def _inside(self, gpu: TestedGpu) -> tuple[float, float, int]:
        device = gpu.device
        size = min(DEVICE_COPY, device.free() // 4) // MIB * MIB
        words = size // 8
        source = device.room(size)
        target = device.room(size)
        try:
            copies, reads = [], []
            for number in range(WARM_UP + DEVICE_TIMES):
                device.launch("fill", source, words, memory_kind("random"), number * words, 0, stream=gpu.up)
                copies.append(self._timed(gpu, lambda: device.copy(target, source, size, gpu.up)))
                self._check(gpu, "copied inside the GPU's memory", [(target, size)], Pattern("", "random", number * words), 0)
            device.launch("fill", source, words, memory_kind("address"), 0, 0, stream=gpu.up)
            expected = 8 * (words * (words - 1) // 2) & (1 << 64) - 1
            for _number in range(WARM_UP + DEVICE_TIMES):
                device.zero(gpu.out, OUT_BYTES)
                reads.append(self._timed(gpu, lambda: device.launch("total", source, words, gpu.out, stream=gpu.up)))
                actual = gpu.result()
                if actual != expected:
                    raise Wrong("the sum of what was read", 1, 0, expected, actual)
        finally:
            device.release(source)
            device.release(target)
        return 2 * size / statistics.median(copies[WARM_UP:]) / 1e9, size / statistics.median(reads[WARM_UP:]) / 1e9, size

    def _timed(self, gpu: TestedGpu, work: t.Callable[[], None]) -> float:
        """Return the seconds that queued work takes on the GPU."""
        device = gpu.device
        first, last = device.event(), device.event()
        device.settle()
        device.record(first, gpu.up)
        work()
        device.record(last, gpu.up)
        device.settle(gpu.up)
        return device.between(first, last)

    def latency(self) -> None:
        """Measure how long a GPU takes to read one word of host memory, and how long a small copy takes."""
        for gpu in self.gpus:
            with Trial("latency", gpu):
                began = time.monotonic()
                buffer = self.host(own_node(gpu, self.nodes), CHASE_BYTES)
                try:
                    read, copy = self._latency(gpu, buffer)
                finally:
                    self.close(buffer)
                say(kind="result", check="latency", device=gpu.place, read_us=round(read, 4), copy_us=round(copy, 3), **times(began))

    def _latency(self, gpu: TestedGpu, buffer: Buffer) -> tuple[float, float]:
        device, lines = gpu.device, CHASE_BYTES // CHASE_LINE
        base = device.mapped(buffer.address)
        walk = list(range(lines))
        random.Random(1).shuffle(walk)
        for at, following in zip(walk, walk[1:] + walk[:1]):
            ctypes.c_uint64.from_address(buffer.address + at * CHASE_LINE).value = base + following * CHASE_LINE
        spans, first = [], base + walk[0] * CHASE_LINE
        for _number in range(3):
            device.zero(gpu.out, OUT_BYTES)
            spans.append(self._timed(gpu, lambda: device.launch("chase", first, CHASE_STEPS, gpu.out, stream=gpu.up, threads=1)))
            actual, expected = gpu.result(), base + walk[CHASE_STEPS % lines] * CHASE_LINE
            if actual != expected:
                raise Wrong("pointers in host memory, followed by the GPU", 1, 0, expected, actual)
        target = device.room(SMALL_BYTES)
        try:
            took = []
            for _number in range(SMALL_COPIES):
                start = time.perf_counter()
                device.upload(target, buffer.address, SMALL_BYTES, gpu.up)
                device.settle(gpu.up)
                took.append(time.perf_counter() - start)
        finally:
            device.release(target)
        return 1e6 * statistics.median(spans) / CHASE_STEPS, 1e6 * statistics.median(took)

    # The memory itself ----------------------------------------------------------------------------------------------

    def pattern(self) -> None:
        """Test nearly all memory of all GPUs, at once."""
        tasks = [self.workers.submit(self._pattern, gpu) for gpu in self.gpus]
        for task in tasks:
            task.result()

    def _pattern(self, gpu: TestedGpu) -> None:
        with Trial("pattern", gpu):
            began = time.monotonic()
            device = gpu.device
            free = device.free()
            parts = rooms(device, int(free - max(LEAST_FREE, LEFT_FREE * free)), MIB)
            gpu.planted = 0
            try:
                for number in range(int(self.order["passes"])):
                    for pattern in patterns(int(self.order["seed"]), number):
                        self._pass(gpu, parts, pattern)
            finally:
                for address, _size in parts:
                    device.release(address)
            tested = sum(size for _address, size in parts)
            say(kind="result", check="pattern", device=gpu.place, bytes=tested, free=free, planted=gpu.planted, **times(began))

    def _pass(self, gpu: TestedGpu, parts: list[tuple[int, int]], pattern: Pattern) -> None:
        """Write a pattern, compare it and write its inverse in one go, and compare that (moving inversions)."""
        device = gpu.device
        for at, (address, size) in enumerate(parts):  # a wrong word that only the launch below makes right
            gpu.plant(address, size // 8, functools.partial(pattern.word, at=at))
        device.settle()
        for at, (address, size) in enumerate(parts):
            values = memory_kind(pattern.kind), pattern.seed_of(at), pattern.mask
            device.launch("fill", address, size // 8, *values, stream=gpu.up)
        device.settle(gpu.up)
        if self.plant.get("flip") == "pattern":
            device.put(parts[0][0] + 4096, 0x0807060504030201)
        for inverted in (False, True):
            time.sleep(pattern.hold_s)
            self._check(gpu, f"pattern {pattern.name}", parts, pattern.inverse() if inverted else pattern, 0 if inverted else 1)

    @staticmethod
    def _check(gpu: TestedGpu, where: str, parts: list[tuple[int, int]], pattern: Pattern, invert: int) -> None:
        """Compare memory with a pattern, in which a word of each part is made wrong first; with `invert` 1 write the inverse behind it."""
        device = gpu.device
        for first in range(0, len(parts), MOST // 2):
            some = [(at, *parts[at]) for at in range(first, min(len(parts), first + MOST // 2))]
            plants = [gpu.plant(address, size // 8, functools.partial(pattern.word, at=at)) for at, address, size in some]
            device.zero(gpu.out, OUT_BYTES)
            device.settle()  # the driver's own stream does not wait for that of the kernels, nor they for it
            for at, address, size in some:
                values = memory_kind(pattern.kind), pattern.seed_of(at), pattern.mask
                device.launch("check", address, size // 8, *values, gpu.out, invert, stream=gpu.up)
            gpu.hold(where, sum(size // 8 for _at, _address, size in some), plants)


class Pattern(t.NamedTuple):
    """A pattern of one pass: the name for people, the kind of memory_kernels.py with its seed and mask, and the seconds that memory holds
    it before each comparison. No two words of an `address` or a `random` pattern are alike on a GPU, in whichever parts its memory lies: an
    address line that is stuck makes two words one."""

    name: str
    kind: str
    seed: int
    mask: int = 0
    hold_s: float = 0.0

    def seed_of(self, part: int) -> int:
        """Return the seed of a part of the memory."""
        return self.seed + {"address": part << 48, "random": part << 40}.get(self.kind, 0) & WORD

    def word(self, i: int, at: int = 0) -> int:
        """Return word i of part `at`."""
        return word(self.kind, i, self.seed_of(at), self.mask)

    def inverse(self) -> Pattern:
        """Return the pattern with every bit turned."""
        return self._replace(mask=self.mask ^ WORD)


def patterns(seed: int, number: int) -> t.Iterator[Pattern]:
    """Yield the patterns of one pass; each is written, inverted and compared twice.

    Addresses come first: no memory that was not written holds them. Ones walk through every second bit in a pass, and through the others in
    the next one.
    """
    yield Pattern("address in address", "address", 0)
    yield Pattern("all zeros and all ones", "constant", 0)
    yield Pattern("alternating bits", "constant", 0x5555555555555555)
    yield Pattern("random", "random", seed + 1000 * number << 48 & (1 << 62) - 1)
    yield Pattern(f"random, held for {HOLD_S:g} s", "random", seed + 1000 * number + 500 << 48 & (1 << 62) - 1, hold_s=HOLD_S)
    for bit in range(number % 2, 64, 2):
        yield Pattern(f"walking ones {bit}", "walking", bit)


def memory_kind(name: str) -> int:
    """Return the number of a kind of pattern."""
    return KINDS.index(name)


class Trial:
    """`with Trial(check, gpu):` prints a failure inside as a record of wrong data or of a fault, and goes on behind the block.

    `gpu` is None where nobody knows which GPU it was.
    """

    def __init__(self, check: str, gpu: TestedGpu | None) -> None:
        self.check, self.place = check, gpu.place if gpu else None

    def __enter__(self) -> None:
        if self.place is not None:
            say(kind="begin", check=self.check, device=self.place)

    def __exit__(self, _kind: t.Any, error: t.Any, _trace: t.Any) -> bool:
        if isinstance(error, Wrong):
            say(kind="wrong", check=self.check, device=error.place if self.place is None else self.place, **error.record)
        elif isinstance(error, (DriverError, Fault, OSError, MemoryError)):
            code, place = getattr(error, "code", "out_of_memory"), getattr(error, "place", None)
            place = self.place if place is None else place
            say(kind="fault", check=self.check, device=place, code=code, reason=(str(error) or type(error).__name__)[:500])
        else:
            return False
        return True


def main(order: dict[str, t.Any]) -> int:
    """Run the checks; 0 if every one of them was begun, whatever it found."""
    try:
        bench = Bench(order)
    except (OSError, DriverError, Fault) as error:
        say(kind="fault", check=None, device=None, code=getattr(error, "code", "cuda_failed"), reason=f"{error}"[:500])
        say(kind="end")
        return 0
    say(kind="ready", driver=bench.driver.version, numa=sorted(bench.nodes), gpus=[[gpu.device.bdf, gpu.node] for gpu in bench.gpus])
    do: dict[str, t.Callable[[], None]] = {
        "device": bench.inside,
        "pattern": bench.pattern,
        "latency": bench.latency,
        "numa": bench.numa,
        "peer": bench.peer,
        "peer_all": bench.peer_all,
    }
    for name, directions in (("h2d", ["h2d"]), ("d2h", ["d2h"]), ("bidirectional", ["h2d", "d2h"])):
        for end, together in (("", False), ("_all", True)):
            do[name + end] = functools.partial(bench.between, name + end, directions, together)
    for check in order["checks"]:
        began = time.monotonic()
        with Trial(check, None):
            do[check]()
        say(kind="time", check=check, **times(began))
    say(kind="end")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(json.loads(sys.argv[1])))
