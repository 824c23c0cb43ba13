# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compute, memory and copies of all GPUs at once for a long time, with the same bits in every lap: the workload of the stage.

Runs under the node's Python, behind the modules of accelerators/base.Driver, host_memory.py and tested_gpu.py (workloads/packing.py), with
{"devices": [UUID], "seconds": S, "sample_seconds": T, "mib": M, "memory_percent": P, "seed": N} as its argument. Prints one JSON line per
record:

    {"kind": "ready", "driver": its version, "gpus": [[PCI address, NUMA node]]}
    {"kind": "sample", "device": place in `devices`, "after_s", "took_s", "laps", "tflops", "memory", "h2d", "d2h", "peer", "sensors"}
    {"kind": "wrong", "device", "lap", "load", "reason"}     results or data that are not what they must be; the first MOST_WRONG of a GPU
    {"kind": "result", "device", "laps", "wrong", "loaded_s", "fingerprint"}
    {"kind": "fault", "device", "code", "reason"}            what ended the workload
    {"kind": "end"}

A lap is a fixed amount of each load, about LAP_S seconds, that runs at once on each GPU: products (product_kernel.py), the pattern test of
`memory_percent` of its free memory (memory_kernels.py, `check`), copies from and to the host, and if there are several GPUs a copy to the
next one. The next lap is queued before the results of the present one are looked at, so that no GPU waits. Rates are those of each load
while all of them run: TFLOPS, and GB/s of one direction; `memory` counts bytes read and written.

Compared are: in each lap the products of every multiprocessor with those of the first lap, every word of the pattern, every byte copied
to a GPU, and of the copies to the host and to the next GPU the last one. `fingerprint` is the result of the products: equal GPUs give
equal ones.

"sensors" of a sample has for each value of the driver's Sensors its mean, for `temperature` also the highest (`temperature_max`), for
counters the last value, and {"throttle": {reason: share of the time}}.
"""

from __future__ import annotations

import collections
import concurrent.futures
import ctypes
import json
import struct
import sys
import threading
import time
import typing as t

if "Driver" not in globals():  # else they stand above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.cuda_driver import CudaDevice, Driver, DriverError, Sensors
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.host_memory import Buffer, available, numa_nodes
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.memory_kernels import COMPARED, KINDS, OUT_BYTES, WORD
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.product_kernel import flop, lack, load_module
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.tested_gpu import (
        BEGAN,
        SHIFT,
        Fault,
        TestedGpu,
        Wrong,
        compare_host,
        own_node,
        random_data,
        rooms,
        say,
    )

MIB = 1 << 20
LAP_S = 1.0
# Steps of one launch of the products: 12 ms of an H100.
STEPS = 100_000
# Most launches or copies of one load in a lap: more than this a driver does not queue.
MOST_QUEUED = 400
# Blocks of each multiprocessor, so that products, pattern test and comparisons have room at the same time (registers).
PRODUCT_BLOCKS, MEMORY_BLOCKS, COMPARE_BLOCKS = 1, 2, 1
SENSOR_S = 1.0
MOST_WRONG = 8
SPARE = 1 << 30
COUNTERS = ("ecc_corrected", "ecc_uncorrected", "replays")
LOADS = ("compute", "memory", "h2d", "d2h", "peer")


class LoadedGpu(TestedGpu):
    """One GPU with all its loads. `counts` are launches, passes or copies of each load in a lap."""

    def __init__(self, place: int, device: CudaDevice, size: int, seed: int, memory_percent: float) -> None:
        super().__init__(place, device, size)
        if lack(device.capability()):
            raise Fault("unsupported", f"GPU {device.uuid} {lack(device.capability())}")
        self.seed = seed
        self.streams = {load: device.stream() for load in LOADS}
        self.control, self.arrived = device.stream(), device.stream()
        self.sums = [device.room(16 * device.processors * PRODUCT_BLOCKS) for _slot in (0, 1)]
        self.bad = [{load: device.room(OUT_BYTES) for load in ("memory", "h2d", "peer")} for _slot in (0, 1)]
        self.peer_landing = [device.room(size) for _slot in (0, 1)]
        self.source: t.Any = None
        self.back: list[Buffer] = []
        self.parts: list[tuple[int, int]] = []
        self.memory_percent = memory_percent
        self.mask = 0
        self.counts = dict.fromkeys(LOADS, 1)
        self.product: int | None = None  # of one launch, by a block
        self.laps = self.wrong = 0

    def fill(self) -> None:
        """Take the share of the free memory that is tested, and write the pattern."""
        self.parts = rooms(self.device, int(self.device.free() * self.memory_percent / 100), MIB)
        for at, (address, size) in enumerate(self.parts):
            self.device.launch("fill", address, size // 8, KINDS.index("random"), self.seed + at, 0, stream=self.control)
        self.device.settle(self.control)

    def read(self, address: int, size: int) -> bytes:
        """Return device memory, while other streams work."""
        data = ctypes.create_string_buffer(size)
        self.device.download(ctypes.addressof(data), address, size, self.control)
        self.device.settle(self.control)
        return data.raw

    def report_wrong(self, lap: int, load: str, reason: str) -> None:
        """Count wrong results, and print them if they are among the first."""
        self.wrong += 1
        if self.wrong <= MOST_WRONG:
            say(kind="wrong", device=self.place, lap=lap, load=load, reason=reason)


class Lap:
    """One lap on one GPU, queued. `marks`: {load: (event before it, event behind it)}."""

    def __init__(self, number: int, gpu: LoadedGpu, target: LoadedGpu | None) -> None:
        self.number, self.gpu, self.target = number, gpu, target
        self.slot = number % 2
        self.counts = dict(gpu.counts)
        self.marks: dict[str, tuple[t.Any, t.Any]] = {}
        self.seconds: dict[str, float] = {}

    def queue(self) -> None:
        """Queue all loads."""
        self._timed("compute", self._products)
        self._timed("memory", self._pattern)
        self._timed("h2d", self._uploads)
        self._timed("d2h", self._downloads)
        if self.target is not None:
            self._timed("peer", self._sends)
            there = self.target
            there.device.wait(there.arrived, self.marks["peer"][1])
            bad = there.bad[self.slot]["peer"]
            there.device.zero(bad, OUT_BYTES, there.arrived)
            words = self.gpu.size // 8
            expected = there.truth + SHIFT * self.slot
            there.device.launch("same", there.peer_landing[self.slot], expected, words, bad, stream=there.arrived, blocks=COMPARE_BLOCKS)
            seen = there.device.event()
            there.device.record(seen, there.arrived)
            self.arrival = seen

    def _timed(self, load: str, work: t.Callable[[t.Any], None]) -> None:
        device, stream = self.gpu.device, self.gpu.streams[load]
        before, behind = device.event(), device.event()
        device.record(before, stream)
        work(stream)
        device.record(behind, stream)
        self.marks[load] = before, behind

    def _products(self, stream: t.Any) -> None:
        gpu = self.gpu
        gpu.device.zero(gpu.sums[self.slot], 16 * gpu.device.processors * PRODUCT_BLOCKS, stream)
        for _launch in range(self.counts["compute"]):
            gpu.device.launch("multiply", STEPS, gpu.seed, gpu.sums[self.slot], stream=stream, blocks=PRODUCT_BLOCKS)

    def _pattern(self, stream: t.Any) -> None:
        gpu, bad = self.gpu, self.gpu.bad[self.slot]["memory"]
        gpu.device.zero(bad, OUT_BYTES, stream)
        for _pass in range(self.counts["memory"]):
            for at, (address, size) in enumerate(gpu.parts):
                values = address, size // 8, KINDS.index("random"), gpu.seed + at, gpu.mask, bad, 1
                gpu.device.launch("check", *values, stream=stream, blocks=MEMORY_BLOCKS)
            gpu.mask ^= WORD

    def _shift(self, copy: int, load: str) -> int:
        """Return which data a copy has; the last one of a lap has that of the lap's slot."""
        return SHIFT * ((self.slot + self.counts[load] - 1 - copy) % 2)

    def _uploads(self, stream: t.Any) -> None:
        gpu, bad = self.gpu, self.gpu.bad[self.slot]["h2d"]
        gpu.device.zero(bad, OUT_BYTES, stream)
        for copy in range(self.counts["h2d"]):
            shift = self._shift(copy, "h2d")
            gpu.device.upload(gpu.landing, gpu.source.address + shift, gpu.size, stream)
            gpu.device.launch("same", gpu.landing, gpu.truth + shift, gpu.size // 8, bad, stream=stream, blocks=COMPARE_BLOCKS)

    def _downloads(self, stream: t.Any) -> None:
        gpu = self.gpu
        for copy in range(self.counts["d2h"]):
            gpu.device.download(gpu.back[self.slot].address, gpu.truth + self._shift(copy, "d2h"), gpu.size, stream)

    def _sends(self, stream: t.Any) -> None:
        gpu, there = self.gpu, t.cast(LoadedGpu, self.target)
        for copy in range(self.counts["peer"]):
            source = gpu.truth + self._shift(copy, "peer")
            gpu.device.send(there.peer_landing[self.slot], there.device, source, gpu.size, stream)

    def finish(self) -> None:
        """Wait for the lap and compare all that it made."""
        gpu, device = self.gpu, self.gpu.device
        for load, (before, behind) in self.marks.items():
            device.reached(behind)
            self.seconds[load] = device.between(before, behind)
            device.discard(before)
            device.discard(behind)
        self._compare_products()
        self._compare_words(gpu, "memory", self.counts["memory"] * sum(size // 8 for _address, size in gpu.parts))
        self._compare_words(gpu, "h2d", self.counts["h2d"] * (gpu.size // 8))
        try:
            compare_host(gpu.back[self.slot], gpu.source, SHIFT * self.slot, gpu.size, "copied from GPU to host")
        except Wrong as wrong:
            gpu.report_wrong(self.number, "d2h", _words(wrong.record))
        if self.target is not None:
            with Blame(self.target):
                self.target.device.reached(self.arrival)
                self.target.device.discard(self.arrival)
                self._compare_words(self.target, "peer", gpu.size // 8)
        gpu.laps += 1

    def _compare_products(self) -> None:
        gpu = self.gpu
        blocks = gpu.device.processors * PRODUCT_BLOCKS
        numbers = struct.unpack(f"<{2 * blocks}Q", gpu.read(gpu.sums[self.slot], 16 * blocks))
        results, places = numbers[:blocks], numbers[blocks:]
        if gpu.product is None:  # the first lap is one launch
            gpu.product = collections.Counter(results).most_common(1)[0][0]
        expected = gpu.product * self.counts["compute"] & WORD
        odd = sorted({place for result, place in zip(results, places) if result != expected})
        if odd:
            which = f"multiprocessor {', '.join(map(str, odd[:4]))}{f' and {len(odd) - 4} others' if len(odd) > 4 else ''}"
            first = next(result for result in results if result != expected)
            gpu.report_wrong(self.number, "compute", f"products of {which}: checksum {first:#018x}, expected {expected:#018x}")

    def _compare_words(self, gpu: LoadedGpu, load: str, of: int) -> None:
        """Report the wrong words that the comparisons of a load found, and comparisons that did not see all of `of` words."""
        numbers = struct.unpack(f"<{OUT_BYTES // 8}Q", gpu.read(gpu.bad[self.slot][load], OUT_BYTES))
        words, offset, expected, actual = numbers[:4]
        if numbers[COMPARED] != of:
            problem = f"the GPU compared {numbers[COMPARED]} of {of} words, and its driver reported no error"
            self.gpu.report_wrong(self.number, load, problem)
        if words:
            wrong = {"words": words, "offset": offset, "expected": f"{expected:#018x}", "found": f"{actual:#018x}"}
            self.gpu.report_wrong(self.number, load, _words(wrong))

    def done(self) -> dict[str, float]:
        """Return how much of each load the lap has: operations, and bytes of one direction."""
        gpu, counts = self.gpu, self.counts
        blocks = gpu.device.processors * PRODUCT_BLOCKS
        amounts = {load: float(counts[load] * gpu.size) for load in self.marks}
        amounts["compute"] = float(counts["compute"] * STEPS * blocks * flop(gpu.device.capability()))
        amounts["memory"] = float(counts["memory"] * 2 * sum(size for _address, size in gpu.parts))
        return amounts


def _words(wrong: dict[str, t.Any]) -> str:
    count = f"{wrong['words']} words of 8 bytes are" if wrong["words"] != 1 else "a word of 8 bytes is"
    return f"{count} wrong, one at byte {wrong['offset']}: expected {wrong['expected']}, found {wrong['found']}"


class Watch:
    """A thread that reads the sensors of all GPUs, each SENSOR_S seconds."""

    def __init__(self, uuids: list[str]) -> None:
        self.uuids = uuids
        self.sensors = Sensors()
        self.lock = threading.Lock()
        self.looks: dict[str, list[dict[str, t.Any]]] = {uuid: [] for uuid in uuids}
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.stop.wait(SENSOR_S):
            for uuid in self.uuids:
                values = self.sensors.read(uuid)
                with self.lock:
                    self.looks[uuid].append(values)

    def summary(self, uuid: str) -> dict[str, t.Any]:
        """Return the values since the last call of one GPU."""
        with self.lock:
            looks, self.looks[uuid] = self.looks[uuid], []
        looks = looks or [self.sensors.read(uuid)]
        found: dict[str, t.Any] = {}
        for name in Sensors.VALUES:
            values = [look[name] for look in looks if name in look]
            if not values:
                continue
            if name in COUNTERS:
                found[name] = values[-1]
            elif name == "throttle":
                found[name] = self.sensors.shares(values)
            else:
                found[name] = round(sum(values) / len(values), 2)
        temperatures = [look["temperature"] for look in looks if "temperature" in look]
        if temperatures:
            found["temperature_max"] = max(temperatures)
        return found


class Soak:
    """The GPUs of a node under all loads."""

    def __init__(self, order: dict[str, t.Any]) -> None:
        self.order = order
        self.size = int(order["mib"]) * MIB
        self.driver = Driver(load_module)
        by_uuid = {device.uuid: device for device in self.driver.devices}
        missing = [uuid for uuid in order["devices"] if uuid not in by_uuid]
        if missing:
            raise Fault("gpu_invisible", f"the driver does not show {', '.join(missing)}")
        seed, share = int(order["seed"]), float(order["memory_percent"])
        self.gpus = [LoadedGpu(place, by_uuid[uuid], self.size, seed, share) for place, uuid in enumerate(order["devices"])]
        self.workers = concurrent.futures.ThreadPoolExecutor(len(self.gpus))
        self.done: dict[int, dict[str, tuple[float, float]]] = {gpu.place: {} for gpu in self.gpus}
        self.laps = 0

    def prepare(self) -> None:
        """Bring data and patterns to all GPUs."""
        need, have = len(self.gpus) * (3 * self.size + SHIFT) + SPARE, available()
        if have is not None and have < need:
            raise Fault("out_of_memory", f"the host has {have / 2**30:.1f} GiB of memory to spare, and the copies need {need / 2**30:.1f}")
        nodes = numa_nodes()
        data = random_data(self.size + SHIFT, int(self.order["seed"]), MIB)
        for gpu in self.gpus:
            node = own_node(gpu, nodes)
            gpu.source = self._pinned(self.size + SHIFT, node, nodes)
            ctypes.memmove(gpu.source.address, data, len(data))
            gpu.back = [self._pinned(self.size, node, nodes) for _slot in (0, 1)]
            gpu.prepare(gpu.source, gpu.back[0])
        for number, gpu in enumerate(self.gpus):
            if len(self.gpus) > 1:
                gpu.device.reach(self._target(number).device)
        for gpu in self.gpus:
            gpu.fill()

    def _pinned(self, size: int, node: int | None, nodes: t.Mapping[int, set[int]]) -> Buffer:
        buffer = Buffer(size, node, nodes)
        self.driver.pin(buffer.address, size)
        return buffer

    def _target(self, number: int) -> LoadedGpu:
        return self.gpus[(number + 1) % len(self.gpus)]

    def queue(self) -> list[Lap]:
        """Queue the next lap on all GPUs."""
        laps = []
        for number, gpu in enumerate(self.gpus):
            with Blame(gpu):
                laps.append(Lap(self.laps, gpu, self._target(number) if len(self.gpus) > 1 else None))
                laps[-1].queue()
        self.laps += 1
        return laps

    def finish(self, laps: list[Lap]) -> None:
        """Wait for a lap on all GPUs, compare it, and add it to what the next samples tell."""

        def one(lap: Lap) -> None:
            with Blame(lap.gpu):
                lap.finish()

        for task in [self.workers.submit(one, lap) for lap in laps]:
            task.result()
        for lap in laps:
            totals = self.done[lap.gpu.place]
            for load, amount in lap.done().items():
                before = totals.get(load, (0.0, 0.0))
                totals[load] = before[0] + amount, before[1] + lap.seconds[load]

    def calibrate(self) -> None:
        """Settle how much of each load makes a lap, by laps of one launch or copy each, then of a quarter."""
        for wanted_s in (LAP_S / 4, LAP_S):
            laps = self.queue()
            self.finish(laps)
            for lap in laps:
                for load, seconds in lap.seconds.items():
                    lap.gpu.counts[load] = max(1, min(MOST_QUEUED, round(lap.counts[load] * wanted_s / max(seconds, 1e-6))))
        for gpu in self.gpus:
            self.done[gpu.place] = {}

    def run(self) -> None:
        """Load all GPUs for the time of the order, and print samples and results."""
        watch = Watch([gpu.device.uuid for gpu in self.gpus])
        began = since = time.monotonic()
        counted = {gpu.place: gpu.laps for gpu in self.gpus}
        end, each = began + float(self.order["seconds"]), float(self.order["sample_seconds"])
        laps: list[Lap] | None = self.queue()
        while laps:
            following = self.queue() if time.monotonic() < end else None
            self.finish(laps)
            laps, now = following, time.monotonic()
            if now - since >= each or laps is None:
                for gpu in self.gpus:
                    self._sample(gpu, watch, since, now, gpu.laps - counted[gpu.place])
                    counted[gpu.place] = gpu.laps
                since = now
        watch.stop.set()
        for gpu in self.gpus:
            loaded = round(time.monotonic() - began, 3)
            fingerprint = f"{gpu.product or 0:#018x}"
            say(kind="result", device=gpu.place, laps=gpu.laps, wrong=gpu.wrong, loaded_s=loaded, fingerprint=fingerprint)

    def _sample(self, gpu: LoadedGpu, watch: Watch, since: float, now: float, laps: int) -> None:
        totals, self.done[gpu.place] = self.done[gpu.place], {}
        rates = {load: amount / seconds for load, (amount, seconds) in totals.items() if seconds > 0}
        numbers = {load: round(rate / 1e9, 2) for load, rate in rates.items() if load != "compute"}
        if "compute" in rates:
            numbers["tflops"] = round(rates["compute"] / 1e12, 2)
        at = {"after_s": round(since - BEGAN, 3), "took_s": round(now - since, 3)}
        say(kind="sample", device=gpu.place, **at, laps=laps, **numbers, sensors=watch.summary(gpu.device.uuid))


class Blame:
    """`with Blame(gpu):` makes an error of the driver inside a Fault of this GPU."""

    def __init__(self, gpu: LoadedGpu) -> None:
        self.gpu = gpu

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: t.Any, error: t.Any, _trace: t.Any) -> None:
        if isinstance(error, DriverError):
            raise OfGpu(self.gpu.place, error.code, str(error)) from error


class OfGpu(Fault):
    """An error that ended the workload, with the place of the GPU on which it came."""

    def __init__(self, place: int, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.place = place


def main(order: dict[str, t.Any]) -> int:
    """Run the loads; 0 whatever was found."""
    try:
        soak = Soak(order)
        soak.prepare()
        say(kind="ready", driver=soak.driver.version, gpus=[[gpu.device.bdf, gpu.node] for gpu in soak.gpus])
        soak.calibrate()
        soak.run()
    except (OSError, MemoryError, DriverError, Fault) as error:
        code = getattr(error, "code", "out_of_memory" if isinstance(error, MemoryError) else "cuda_failed")
        say(kind="fault", device=getattr(error, "place", None), code=code, reason=(str(error) or type(error).__name__)[:500])
    say(kind="end")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(json.loads(sys.argv[1])))
