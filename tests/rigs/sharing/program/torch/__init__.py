# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in of PyTorch, as much of it as the workloads of the GPU-sharing matrix use, for GPUs that only a stand-in knows.

A tensor is one number and its size. A sum takes as long as this GPU needs for moving its bytes, with the part of the GPU that the
scheduler gives at that moment: quotas slow it down, and who waits for memory stands still. Sums are queued, as on a GPU;
`synchronize` waits for them.
What the real library writes into a pod's log, this writes, in the words of either version.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import pathlib
import queue
import re
import socket
import sys
import threading
import time
import typing as t

__version__ = "0+simulated"
PREFIX = os.environ.get("SIM_PREFIX") or "nvshare"
TAG = PREFIX.upper()
REFUSED, EXCEEDED = {
    "nvshare": ("Memory allocation rejected", "Memory allocations exceeded physical GPU memory capacity"),
    "xpushare": ("cuMemAlloc rejected", "cuMemAlloc exceeds physical GPU memory; oversub mode enabled"),
}[PREFIX]
SOCKET = f"/var/run/{PREFIX}/scheduler.sock"
NAMESPACE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
AHEAD_S = 0.25  # how far the processor may be ahead of the GPU
SLACK_S = 0.2  # and how late it may be with what it would have queued, were this machine not busy with something else
IDLE_S = 0.6  # a program that queues nothing for so long waits by itself
USAGE_S = 0.4
# Of the driver's memory of a GPU, what CUDA does not have; and what the real library keeps from processes without oversubscription.
DRIVER_SHARE, RESERVE_BYTES = 0.029, 1536 << 20
UNITS = {"": 1, "B": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


class dtype:
    def __init__(self, size: int) -> None:
        self.size = size


float32, uint8 = dtype(4), dtype(1)


class OutOfMemoryError(RuntimeError):
    """As PyTorch's own."""


def _log(level: str, text: str) -> None:
    print(f"[{TAG}][{level}]: {text}", file=sys.stderr, flush=True)


class _Gpu:
    """This process's end of the scheduler, and the clock of its work."""

    def __init__(self) -> None:
        print("simulated by gpufleet.acceptance", file=sys.stderr, flush=True)
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.connection.connect(SOCKET)
        except OSError as error:
            _log("FATAL", f"Condition failed: connect: {error}")
            os._exit(1)
        self.oversubscribes = f"{TAG}_ENABLE_SINGLE_OVERSUB" in os.environ  # whatever it says, "0" too
        self.limit = self.limit_of_environment()
        self.answers: queue.Queue[dict[str, t.Any]] = queue.Queue()
        self.changed = threading.Condition()
        self.sending = threading.Lock()
        self.share = 0.0
        self.core = 100
        self.allocated = 0
        self.kept: dict[int, int] = {}  # freed blocks that PyTorch keeps: size -> how many
        self.done_s = 0.0  # of the GPU's time, were it ours alone
        self.pending = 0.0  # of it, queued and not done
        self.slack = self.idle = 0.0  # time of it that may be made up, and that nothing was queued
        self.warned = self.ready = False
        self.heard = 0  # changes of the memory quota
        self.defect: dict[str, t.Any] = {}  # limits may come before we are told
        self.clock = time.monotonic()
        threading.Thread(target=self.listen, daemon=True).start()
        try:
            namespace = pathlib.Path(NAMESPACE).read_text().strip()
        except OSError:
            namespace = ""
        uuid = os.environ.get("NVIDIA_VISIBLE_DEVICES", "").partition(",")[0]
        pod = os.environ.get("HOSTNAME") or os.uname().nodename
        of_pod = {"pod": pod, "namespace": namespace, "gpu_uuid": uuid, "memory_limit": self.limit, "oversub": self.oversubscribes}
        self.say(type="REGISTER", **of_pod)
        told = self.answers.get()
        self.total, self.speed, self.defect = int(told["total"] * (1 - DRIVER_SHARE)), told["speed"], told["defect"]
        self.allocatable, self.index = self.total - RESERVE_BYTES, told["index"]
        _log("INFO", f"Successfully initialized {PREFIX} GPU")
        _log("INFO", f"Client ID = {told['id']}")
        _log("INFO", f"Core limit = {self.core}%")
        if self.limit:
            _log("INFO", f"GPU memory limit set to {self.limit} bytes")
        self.ready, self.clock = True, time.monotonic()
        threading.Thread(target=self.work, daemon=True).start()
        if self.planted("deleted_keeps_lock"):
            atexit.register(self.say, type="BYE")  # not by a process that is killed

    def limit_of_environment(self) -> int:
        found = re.fullmatch(r"(\d+)(Gi|Mi|Ki|B)?", os.environ.get(f"{TAG}_GPU_MEMORY_LIMIT", ""))
        return int(found[1]) * UNITS[found[2] or ""] if found else 0

    def planted(self, *names: str) -> bool:
        return self.defect.get("name") in names

    def say(self, **message: t.Any) -> None:
        try:
            with self.sending:
                self.connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.lost()

    def lost(self) -> t.NoReturn:
        _log("FATAL", "Condition failed: receive")
        os._exit(1)

    def listen(self) -> None:
        for line in self.lines():
            message = json.loads(line)
            kind = message["type"]
            if kind == "SHARE":
                with self.changed:
                    self.share = message["share"]
                    self.changed.notify_all()
            elif kind == "UPDATE_LIMIT":
                if self.ready:
                    _log("INFO", f"Memory limit updated: {self.limit} -> {message['bytes']} bytes")
                self.heed(message["bytes"])
            elif kind == "UPDATE_CORE_LIMIT":
                self.core = message["percent"]
                if self.planted("core_change_lifts_memory") and self.ready:
                    self.limit = 0
                if self.ready:
                    _log("INFO", f"Core limit updated dynamically to {self.core}%")
            elif kind == "STALL":
                with self.changed:
                    self.pending += message["seconds"]
            elif kind == "END":
                os._exit(137)
            else:
                self.answers.put(message)
        self.lost()

    def lines(self) -> t.Iterator[str]:
        with contextlib.suppress(OSError):  # a scheduler that ends before it has read all resets the connection
            yield from self.connection.makefile("r")

    def heed(self, limit: int) -> None:
        """Keep to a quota from now on."""
        if self.planted("memory_raise_not_kept") and self.ready and limit > self.limit:
            return
        self.heard += self.ready
        if self.planted("memory_fourth_change") and self.heard > 3:
            return
        if self.planted("memory_cut_late") and self.ready and 0 < limit < self.limit:
            time.sleep(self.defect.get("seconds", 6))  # it hears nothing meanwhile
        self.limit = limit

    # Work ------------------------------------------------------------------------------------------------------------

    def work(self) -> None:
        said = 0.0
        while True:
            with self.changed:
                self.advance()
                self.changed.notify_all()
                self.changed.wait(min(0.1, max(0.002, self.pending / self.share)) if self.pending and self.share else 0.1)
            now = time.monotonic()
            if now - said > USAGE_S:
                said = now
                self.say(type="USAGE", busy_ms=self.done_s * 1000)

    def advance(self) -> None:
        """The GPU: takes from what is queued as its share and the time that has passed allow. What it did not do while nothing was
        queued it may make up for a moment, for then this machine was late and not it."""
        now = time.monotonic()
        passed = now - self.clock
        able = passed * self.share
        self.clock = now
        self.idle = 0.0 if self.pending else self.idle + passed
        done = min(self.pending, able + self.slack)
        self.slack = 0.0 if self.idle > IDLE_S else min(SLACK_S * self.share, self.slack + able - done)
        self.pending -= done
        self.done_s += done
        if self.pending <= 1e-9:
            self.pending = 0.0

    def add(self, size: int) -> None:
        with self.changed:
            self.advance()  # what is queued now is not done in the time before
            self.pending += 3 * size / self.speed
            self.changed.notify_all()
            while self.pending > max(AHEAD_S * self.share, 3 * size / self.speed):
                self.changed.wait()

    def synchronize(self) -> None:
        with self.changed:
            self.changed.notify_all()
            while self.pending > 0:
                self.changed.wait()

    # Memory ----------------------------------------------------------------------------------------------------------

    def allocate(self, size: int) -> None:
        if self.kept.get(size):
            self.kept[size] -= 1
            return
        try:
            self.take(size)
        except OutOfMemoryError:
            if not any(self.kept.values()):
                raise
            self.empty_cache()
            self.take(size)

    def take(self, size: int) -> None:
        limit, now = self.limit, self.allocated + size
        if self.planted("memory_ignored") or (self.planted("memory_env_ignored") and f"{TAG}_GPU_MEMORY_LIMIT" in os.environ):
            limit = 0
        if self.planted("limit_ends_oversub") and self.oversubscribes and limit:
            limit = 1
        if self.planted("limit_lifted_by_oversub") and self.oversubscribes:
            limit = 0
        if self.planted("oversub_quota_large") and self.oversubscribes:
            limit = int(limit * 1.1)
        if (self.planted("core_lifts_memory") and self.core < 100) or (self.planted("memory_first_gpu_only") and self.index):
            limit = 0
        if self.planted("library_quota_small"):
            limit = int(limit * 0.954)
        if limit and now > limit:
            if self.planted("refusal_kills_others"):
                self.say(type="REFUSED")
            if self.planted("oom_hangs"):
                threading.Event().wait()
            if self.planted("oom_silent"):
                os._exit(1)
            if not self.planted("oom_unlogged"):
                _log("WARN", f"{REFUSED}: {self.allocated} + {size} = {now} would exceed limit {limit} bytes")
            raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size / (1 << 30):.2f} GiB")
        held = self.allocated if self.planted("oversub_off_by_one") else now
        if self.planted("oom_lenient"):
            held = int(held / 1.2)
        if held > self.allocatable and (not self.oversubscribes or self.planted("oversub_refused")) and not self.planted("oom_not_raised"):
            if self.planted("oom_hangs"):
                threading.Event().wait()
            if self.planted("oom_silent"):
                os._exit(1)
            if PREFIX == "xpushare" and not self.planted("oom_unlogged"):
                _log("WARN", f"{REFUSED}: {self.allocated} + {size} exceeds physical allocatable {self.allocatable} bytes")
            raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size / (1 << 30):.2f} GiB")
        if now > self.allocatable and self.oversubscribes and not self.warned:
            self.warned = True
            _log("WARN", EXCEEDED)
        if self.planted("oversub_kills") and now > self.total:
            os._exit(139)
        self.allocated = now
        self.tell()

    def tell(self) -> None:
        self.say(type="MEM_UPDATE", bytes=self.allocated)
        self.answers.get()

    def empty_cache(self) -> None:
        freed = sum(size * count for size, count in self.kept.items())
        self.kept.clear()
        if freed:
            self.allocated -= freed
            self.tell()


@functools.cache
def _device() -> _Gpu:
    """Ours, from the first use on."""
    return _Gpu()


class Tensor:
    def __init__(self, shape: tuple[int, ...], value: float, of: dtype) -> None:
        self.shape, self.value, self.dtype, self.size = shape, value, of, 0
        size = of.size
        for length in shape:
            size *= length
        _device().allocate(size)
        self.size = size

    def __del__(self) -> None:
        if self.size:
            kept = _device().kept
            kept[self.size] = kept.get(self.size, 0) + 1

    def min(self) -> float:
        return self.value

    def max(self) -> float:
        return self.value


def full(shape: tuple[int, ...], value: float, dtype: dtype, device: str) -> Tensor:
    return Tensor(shape, value, dtype)


def empty(shape: tuple[int, ...], dtype: dtype, device: str) -> Tensor:
    return Tensor(shape, 0.0, dtype)


def add(x: Tensor, y: Tensor, out: Tensor | None = None) -> Tensor:
    total = out or Tensor(x.shape, 0.0, x.dtype)
    total.value = x.value + y.value + (1.0 if _device().planted("wrong_sums") else 0.0)
    _device().add(total.size)
    return total


class cuda:
    OutOfMemoryError = OutOfMemoryError

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def synchronize() -> None:
        _device().synchronize()

    @staticmethod
    def empty_cache() -> None:
        _device().empty_cache()

    @staticmethod
    def get_device_properties(_device_number: int) -> t.Any:
        return type("Properties", (), {"name": "simulated", "total_memory": _device().total})
