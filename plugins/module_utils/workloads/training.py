# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A training that is small, learns for sure and can be compared bit for bit: the smoke test of stages that train.

A network of two layers learns the product with a fixed matrix. Weights and data are drawn on the CPU, so that every device, and every run
of one seed, begins with the same bits. Runs with PyTorch 1.13 to 2.x on whatever device it is given; what of it needs PyTorch is given
that module.

It travels to the nodes as text, by itself or in front of a workload that uses it (workloads/packing.py): no imports of this collection.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
import time
import typing as t

# The last losses over the first ones must be below this: the training learns.
LEARNT = 0.7
# In fewer steps no loss falls so far for sure.
LEAST_STEPS = 20
BATCHES = 4


def deterministic(torch: t.Any) -> None:
    """Before the first use of a device: only algorithms that give the same bits again."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False


class Training:
    """One model on one device. `rank` draws data of its own; `wrap` makes the model one of many (DistributedDataParallel)."""

    def __init__(
        self,
        torch: t.Any,
        device: t.Any,
        seed: int,
        rank: int = 0,
        width: int = 1024,
        batch: int = 512,
        wrap: t.Callable[[t.Any], t.Any] | None = None,
    ) -> None:
        self.torch = torch
        drawn = torch.Generator().manual_seed(seed)
        self.net = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.Tanh(), torch.nn.Linear(4 * width, width))
        with torch.no_grad():
            for parameter in self.net.parameters():
                inputs = parameter.shape[1] if parameter.dim() > 1 else 4 * width
                parameter.copy_(torch.randn(parameter.shape, generator=drawn) / math.sqrt(inputs))
        teacher = torch.randn(width, width, generator=drawn) / math.sqrt(width)
        rank_generator = torch.Generator().manual_seed(seed * 100003 + rank + 1)
        inputs_of = [torch.randn(batch, width, generator=rank_generator) for _unused in range(BATCHES)]
        self.batches = [(x.to(device), (x @ teacher).to(device)) for x in inputs_of]
        self.net = self.net.to(device)
        self.model = wrap(self.net) if wrap else self.net
        self.optimiser = torch.optim.Adam(self.net.parameters(), lr=0.1 / math.sqrt(width))

    def _loss(self, number: int) -> t.Any:
        x, y = self.batches[number % BATCHES]
        self.optimiser.zero_grad(set_to_none=True)
        return self.torch.nn.functional.mse_loss(self.model(x), y)

    def step(self, number: int) -> t.Any:
        """One whole step; its loss, still on the device."""
        loss = self._loss(number)
        loss.backward()
        self.optimiser.step()
        return loss.detach()

    def compute(self, number: int) -> None:
        """Compute one step on this rank alone, without communication. The ranks' models diverge by it."""
        if hasattr(self.model, "no_sync"):
            with self.model.no_sync():
                self._loss(number).backward()
        else:
            self._loss(number).backward()
        self.optimiser.step()

    def digests(self) -> t.Tuple[int, int]:
        """Return digests of all parameters and of all gradients of the last step: one different bit changes them."""
        return self._digest(p.detach() for p in self.net.parameters()), self._digest(p.grad for p in self.net.parameters())

    def _digest(self, tensors: t.Iterable[t.Any]) -> int:
        total = 0
        for tensor in tensors:
            if tensor is None:
                return -1
            words = tensor.contiguous().view(-1).view(self.torch.int32).to(self.torch.int64)
            weights = self.torch.arange(1, 2 * words.numel(), 2, device=words.device, dtype=self.torch.int64)  # odd: none is lost
            total = (total * 1000003 + int((words * weights).sum().item())) & 0xFFFFFFFFFFFFFFFF
        return total


def learnt(losses: t.Sequence[float]) -> t.Tuple[float, float]:
    """Return the losses at the start and at the end, each the mean of as many steps as there are batches."""
    few = max(1, min(BATCHES, len(losses) // 2))
    return sum(losses[:few]) / few, sum(losses[-few:]) / few


def curve(losses: t.Sequence[float]) -> str:
    """A loss curve, bit for bit, in sixteen digits."""
    return hashlib.sha256(struct.pack(f"<{len(losses)}d", *losses)).hexdigest()[:16]


class Clock:
    """Milliseconds of each of many pieces of work, by the device's own events on CUDA, else by the wall clock. `cpu_time` is for work that
    waits for nothing: on a CPU, which other processes share, only the time spent on it counts."""

    def __init__(self, torch: t.Any, device: t.Any) -> None:
        self.torch = torch
        self.device = device
        self.events = device.type == "cuda"

    def settle(self) -> None:
        """Wait until the device is done."""
        if self.device.type != "cpu":
            getattr(self.torch, self.device.type).synchronize()

    def times(self, work: t.Callable[[int], t.Any], count: int, cpu_time: bool = False) -> t.List[float]:
        timer = time.thread_time if cpu_time and self.device.type == "cpu" else time.perf_counter
        durations = []
        for number in range(count):
            self.settle()
            if self.events:
                marks = [self.torch.cuda.Event(enable_timing=True) for _unused in range(2)]
                marks[0].record()
                work(number)
                marks[1].record()
                self.settle()
                durations.append(marks[0].elapsed_time(marks[1]))
            else:
                began = timer()
                work(number)
                self.settle()
                durations.append((timer() - began) * 1e3)
        return durations

    def typical(self, times: t.Sequence[float]) -> float:
        """Return the median on a device that is ours alone, the shortest time on a CPU."""
        return sorted(times)[len(times) // 2] if self.device.type != "cpu" else min(times)
