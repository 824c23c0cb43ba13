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
            torch.matmul = Planted(torch, torch.matmul)
            torch.nn.functional.linear = Planted(torch, torch.nn.functional.linear)

        spec.loader.exec_module = exec_module
        return spec


if PLANTS:
    sys.meta_path.insert(0, Finder())
