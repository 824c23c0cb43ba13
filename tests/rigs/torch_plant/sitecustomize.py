# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plants faults into PyTorch from outside: Python imports this file where its folder is in PYTHONPATH. No code of the collection knows it.

GPUFLEET_TEST_PLANT is "FAULT:LOCAL_RANK:FUNCTION:CALL", several with blanks: what happens in the process of a rank when it calls
`matmul`, or `linear`, which each layer of a network does, for the how manieth time.

    wrong   one number of the product is off, in this call and all after it
    once    the same, in this call only
    kill    the process is killed
    hang    it never comes back
    memory  the device has no more memory

GPUFLEET_TEST_SUMS=single makes `matmul` of bf16 add in single precision, as every GPU does, whatever processor this is: without AVX-512,
Debian's PyTorch adds in bf16 (off by 2 % of the largest element at 64 terms, 9 % at 1,024), and a workload rightly calls that wrong.
"""

import importlib.abc
import importlib.machinery
import os
import signal
import sys
import time

PLANTS = [
    (fault, function, int(call))
    for fault, rank, function, call in (plant.split(":") for plant in os.environ.get("GPUFLEET_TEST_PLANT", "").split())
    if rank == os.environ.get("LOCAL_RANK")
]


SINGLE_SUMS = os.environ.get("GPUFLEET_TEST_SUMS") == "single"


class SingleSums:
    """`matmul` that adds numbers of bf16 in single precision and rounds each sum once."""

    __name__ = "matmul"

    def __init__(self, torch, function):
        self.torch, self.function = torch, function

    def __call__(self, a, b, *, out=None):
        if a.dtype != self.torch.bfloat16:
            return self.function(a, b, out=out) if out is not None else self.function(a, b)
        product = self.function(a.float(), b.float())
        return out.copy_(product) if out is not None else product.to(a.dtype)


class Planted:
    def __init__(self, torch, function):
        self.torch, self.function, self.calls = torch, function, 0

    def __call__(self, *args, **kwargs):
        found = self.function(*args, **kwargs)
        self.calls += 1
        for fault, name, call in PLANTS:
            if name != self.function.__name__:
                continue
            if (fault == "wrong" and self.calls >= call) or (fault == "once" and self.calls == call):
                with self.torch.no_grad():
                    found.view(-1)[found.numel() // 2] += 1
            elif self.calls == call and fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.calls == call and fault == "hang":
                time.sleep(100000)
            elif self.calls == call and fault == "memory":
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB (planted)")
        return found


class Finder(importlib.abc.MetaPathFinder):
    """Lets torch be imported, and puts the plants over it."""

    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(torch):
            execute(torch)
            if SINGLE_SUMS:
                torch.matmul = SingleSums(torch, torch.matmul)
            torch.matmul = Planted(torch, torch.matmul)
            torch.nn.functional.linear = Planted(torch, torch.nn.functional.linear)

        spec.loader.exec_module = exec_module
        return spec


if PLANTS or SINGLE_SUMS:
    sys.meta_path.insert(0, Finder())
