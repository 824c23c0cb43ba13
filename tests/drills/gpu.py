#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults of a real GPU: the stage gpu_memory of this machine, with a libcuda in between that plants one fault at a time.

Needs a GPU of NVIDIA, its driver and a C compiler; without them it says so and ends with status 0. Changes no setting of a GPU. About 20 s
for each fault. The last line is JSON: {"planted": n, "false_accepts": [fault], "false_rejects": [...], "skipped": [fault], "seconds": s}.
Exit status 0 exactly when nothing bad was accepted and nothing healthy refused.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from rigs import gpu_faults  # noqa: E402


class Fault(t.NamedTuple):
    """A fault by its name in libcuda_between.c, what it is, and how many GPUs it needs."""

    name: str
    what: str
    gpus: int = 1


FAULTS = (
    Fault("slow", "copies to the GPU take twice the time"),
    Fault("flip", "one bit of every 40th copy from the GPU"),
    Fault("short", "half of each copy to the GPU"),
    Fault("place", "copies to the GPU land 4 KiB further"),
    Fault("stale", "every 40th copy from the GPU does not come"),
    Fault("inside", "copies inside the GPU lack their last 4 KiB"),
    Fault("clock", "times of the GPU divided by 1.5"),
    Fault("clock2", "times of the GPU multiplied by 1.3"),
    Fault("skip", "every ninth kernel does not run"),
    Fault("nolaunch", "no kernel runs"),
    Fault("no_fill", "memory is never filled"),
    Fault("no_check", "patterns are never compared"),
    Fault("no_same", "copies are never compared"),
    Fault("no_total", "the memory is never read for its rate"),
    Fault("no_chase", "the host's memory is never read for its latency"),
    Fault("one_check", "one comparison of all does not run"),
    Fault("part", "patterns are compared in the first half of the memory"),
    Fault("blind", "comparisons never count a difference"),
    Fault("half", "the driver calls half of the memory free"),
    Fault("less", "the driver shows half of the memory"),
    Fault("alloc", "two fifths of the memory cannot be had"),
    Fault("one_alloc", "one allocation fails"),
    Fault("alias", "an address line is stuck"),
    Fault("forget", "the memory forgets after a second"),
    Fault("hang", "a call of the driver never returns"),
    Fault("held", "another process holds half of the memory"),
    Fault("peer", "no GPU reaches another one directly", 2),
    Fault("one_peer", "one GPU reaches no other one directly", 2),
)
# Planted without the library.
OF_THE_MACHINE = ("held",)
# Takes half of the memory of the first GPU, and says so; ends when its standard input does.
HOLDER = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
device, context, free, total, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
cuda.cuInit(0)
cuda.cuDeviceGet(ctypes.byref(device), 0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
cuda.cuCtxSetCurrent(context)
cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
print(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(total.value // 2)), flush=True)
sys.stdin.read()
"""


class Seen(t.NamedTuple):
    """What a run said: whether it accepted the machine, its verdicts that are no PASS, and how long it took."""

    accepted: bool
    verdicts: list[str]
    seconds: float


def gpus() -> int:
    """Return how many GPUs nvidia-smi lists; 0 without it."""
    program = shutil.which("nvidia-smi")
    if not program:
        return 0
    ran = subprocess.run([program, "-L"], capture_output=True, text=True, check=False)
    return sum(line.startswith("GPU ") for line in ran.stdout.splitlines())


def run(folder: pathlib.Path, environment: dict[str, str], number: int, tests: list[str] | None = None) -> Seen:
    """Run the stage on this machine, its workload in an environment of its own; `tests` are the only checks of it."""
    settings = {
        "acceptance_stages": ["gpu_memory"], "acceptance_gpu_count": number, "acceptance_results_dir": str(folder), "gpu_memory_copies": 6,
        "gpu_memory_mib": 128, "gpu_memory_test_timeout": 60, "gpu_memory_env": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **environment},
        **({"gpu_memory_tests": tests} if tests else {}),
    }  # fmt: skip
    began = time.monotonic()
    command = ["ansible-playbook", "acceptance.yml", "-i", "inventories/local", "-e", json.dumps(settings)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    verdicts = []
    for path in folder.glob("*/verdicts.jsonl"):
        for verdict in map(json.loads, path.read_text().splitlines()):
            if verdict["verdict"] not in ("PASS", "SKIPPED"):
                verdicts.append(f"{verdict['verdict']} {verdict['check']} {verdict['reason_code']}: {verdict['reason']}")
    if not verdicts and ran.returncode:
        verdicts.append(f"the run ended with status {ran.returncode}: {ran.stdout[-300:]}{ran.stderr[-300:]}")
    return Seen(ran.returncode == 0, verdicts, time.monotonic() - began)


@contextlib.contextmanager
def held(fault: Fault) -> t.Iterator[None]:
    """Hold half of the memory of a GPU for the block, if the fault is that."""
    if fault.name != "held":
        yield
        return
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout and holder.stdout.readline().strip() == "0", "half of the memory can be had"
        yield
        assert holder.stdin
        holder.stdin.close()


def shown(name: str, seen: Seen) -> None:
    grave = sorted(seen.verdicts, key=lambda words: not words.startswith("FAIL"))
    print(f"{name:10} {'ACCEPTED' if seen.accepted else 'refused':9} {seen.seconds:5.1f} s  {(grave or [''])[0][:200]}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", help=f"only these: {', '.join(fault.name for fault in FAULTS)}")
    parser.add_argument("--tests", help="only these checks of the stage, separated by commas")
    options = parser.parse_args(arguments)
    asked, tests = options.faults, options.tests.split(",") if options.tests else None
    number, real = gpus(), gpu_faults.driver_library()
    if not number or not real or not gpu_faults.compiler():
        print("skipped: this drill needs a GPU that nvidia-smi lists, libcuda.so.1 and a C compiler on this machine")
        return 0
    began = time.monotonic()
    accepts, rejects, skipped, planted = [], [], [], 0
    with tempfile.TemporaryDirectory(prefix="gpufleet-gpu-drill-") as name:
        folder = pathlib.Path(name)
        between = gpu_faults.build(folder / "between", real)
        for label, environment in (("", {}), ("none", {**between, "GPU_FAULT": "none"})):
            healthy = run(folder / f"healthy-{label}", environment, number, tests)
            shown(label or "-", healthy)
            rejects += [] if healthy.accepted else [label or "without the library"]
        for fault in FAULTS:
            if asked and fault.name not in asked:
                continue
            if number < fault.gpus:
                skipped.append(fault.name)
                continue
            with held(fault):
                seen = run(folder / fault.name, {} if fault.name in OF_THE_MACHINE else {**between, "GPU_FAULT": fault.name}, number, tests)
            planted += 1
            shown(fault.name, seen)
            accepts += [fault.name] if seen.accepted else []
    totals = {"planted": planted, "false_accepts": accepts, "false_rejects": rejects, "skipped": skipped}
    print(json.dumps({**totals, "seconds": round(time.monotonic() - began)}))
    return 1 if accepts or rejects else 0


if __name__ == "__main__":
    os.environ.setdefault("ANSIBLE_CONFIG", str(ROOT / "ansible.cfg"))
    sys.exit(main())
