# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Common part of the workloads of the GPU-sharing matrix: matrices on one GPU that are added over and over again.

All of them run as a program of a pod, packed into one text (texts.py), and take what they do from environment variables alone:

    GPUFLEET_W_N               rows and columns of a matrix of FP32; 0: so many that three are more than the GPU holds,
    GPUFLEET_W_FACTOR          by this factor
    GPUFLEET_W_ITERATIONS      how often it is added
    GPUFLEET_W_DURATION_S      w4b and w5: how long
    GPUFLEET_W_PROBE_S         seconds between two lines with its speed: w1 to w3 print none without it
    GPUFLEET_W_SETTLE_S        so long the device is idle before memory is asked for: a quota may come a moment after the start
    GPUFLEET_W_ALLOCATE_BYTES  w5: at each of these lines so much new memory is asked for, and what came of it is said
    GPUFLEET_W_SEED            of the numbers that are added
    GPUFLEET_W_TAG             what the lines of w5 begin with: the sharing system's own prefix
    GPUFLEET_W_DEVICE          cuda, or cpu where there is no GPU

Memory is allocated on the device, plainly: never staged in the host's, never managed. `PASS` is said only where every element of the last
sum is right, so that a system that loses work does not pass; who is refused memory says so in one line and ends with status 1.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import math
import os
import random
import signal
import sys
import time
import typing as t

ELEMENT_BYTES = 4
# What is sent ahead before the GPU is waited for: enough to keep it busy, little enough that a line about its speed is about now.
AHEAD = 8


def setting(name: str, otherwise: float) -> float:
    text = os.environ.get("GPUFLEET_W_" + name, "").strip()
    try:
        value = float(text) if text else float(otherwise)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise SystemExit(f"GPUFLEET_W_{name}: expected a number from 0, found {text!r}")
    return value


class Adder:
    """Two matrices of n rows and columns on the GPU, and their sum."""

    def __init__(self, n: int) -> None:
        import torch

        self.torch = torch
        self.device = os.environ.get("GPUFLEET_W_DEVICE", "cuda")
        self.n = n or self.fitting()
        numbers = random.Random(int(setting("SEED", 1)))
        self.parts = (float(numbers.randint(1, 1000)), float(numbers.randint(1, 1000)))
        say("--- begun ---")
        self.synchronize()  # starts the device, which is not what is timed
        if self.device == "cuda":
            time.sleep(setting("SETTLE_S", 0))
        self.began = time.monotonic()
        self.x, self.y = self.matrix(self.parts[0]), self.matrix(self.parts[1])
        self.z: t.Any = None

    def fitting(self) -> int:
        """Return the number of rows with which three matrices are a quarter larger than the GPU's memory."""
        total = self.torch.cuda.get_device_properties(0).total_memory
        return math.ceil(math.sqrt(setting("FACTOR", 1.25) * total / (3 * ELEMENT_BYTES)))

    def matrix(self, value: float) -> t.Any:
        return self.torch.full((self.n, self.n), value, dtype=self.torch.float32, device=self.device)

    def allocate(self, size: int) -> t.Any:
        return self.torch.empty((size,), dtype=self.torch.uint8, device=self.device)

    def free(self) -> None:
        """Freed memory goes back to the GPU and not only to PyTorch, which keeps it."""
        if self.device == "cuda":
            self.torch.cuda.empty_cache()

    def add(self) -> None:
        """The old sum is there until the new one is: four matrices at once."""
        self.z = self.torch.add(self.x, self.y)

    def synchronize(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def right(self) -> bool:
        return float(self.z.min()) == float(self.z.max()) == sum(self.parts)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def place() -> str:
    """Return the GPU that this container was given; empty if its runtime does not name it."""
    visible = os.environ.get("NVIDIA_VISIBLE_DEVICES", "").partition(",")[0].strip()
    return visible if visible.startswith(("GPU-", "MIG-")) else ""


def end(adder: Adder) -> int:
    """Print how long it took, if the result is right, and return the exit status: the speed of a wrong result is no measurement."""
    adder.synchronize()
    took = adder.elapsed()
    if not adder.right():
        say("FAIL: the sum of two matrices is wrong")
        return 1
    if place():
        say(f"--- on {place()} ---")
    say("PASS")
    say(f"--- {took:.6f} seconds ---")
    return 0


def added(n: int, iterations: int, rest_s: float = 0.0) -> int:
    """Adds so often, with a rest after each one."""
    times = int(setting("ITERATIONS", iterations))
    adder = Adder(int(setting("N", n)))
    progress = Progress(adder, setting("PROBE_S", 0))
    for number in range(1, times + 1):
        adder.add()
        if rest_s:
            adder.synchronize()
            time.sleep(rest_s)
        if progress.every and number % AHEAD == 0:
            adder.synchronize()
            progress.say(number)
    return end(adder)


class Progress:
    """The lines that say how far a load is, one every few seconds."""

    def __init__(self, adder: Adder, every: float) -> None:
        self.adder, self.every = adder, every
        self.tag = os.environ.get("GPUFLEET_W_TAG", "NVSHARE")
        self.reported_s, self.reported_sums = 0.0, 0

    def say(self, sums: int) -> bool:
        """Print the line if it is due, and return True if it was."""
        elapsed_s = self.adder.elapsed()
        if elapsed_s - self.reported_s < self.every:
            return False
        rate = (sums - self.reported_sums) / (elapsed_s - self.reported_s)
        say(f"[{self.tag}][QUOTA_PROBE] elapsed={elapsed_s:.3f}s it={sums} it_per_sec={rate:.2f}")
        self.reported_s, self.reported_sums = elapsed_s, sums
        return True


def refused(error: BaseException) -> bool:
    """Return True if an exception of PyTorch means out of memory: a class of its own, or, on the CPU, words."""
    return type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)


def words(error: BaseException) -> str:
    return "OutOfMemoryError: " + str(error).split("\n", maxsplit=1)[0]


def run(main: t.Callable[[], int]) -> int:
    """Run `main` and return its status. SIGTERM ends it at once: process 1 of a container has no default handler, so the removal of its pod
    would wait for the whole grace period."""
    signal.signal(signal.SIGTERM, lambda number, _frame: os._exit(128 + number))
    try:
        return main()
    except RuntimeError as error:
        if not refused(error):
            raise
        sys.stderr.write(f"{words(error)}\n")
        return 1
