# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The script that starts CUDA in a child, and the judgement of what it prints.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import re
import typing as t

# Initialises CUDA for real, through the driver and then through torch where it is installed. In a child, since it may
# hang or crash; it says what it knows after each step.
ASK_CUDA = """
import ctypes, json
said = {}
def say():
    print("CUDA " + json.dumps(said), flush=True)
try:
    driver = ctypes.CDLL("libcuda.so.1")
    number = ctypes.c_int()
    said["init"] = driver.cuInit(0)
    driver.cuDriverGetVersion(ctypes.byref(number))
    said["driver_cuda"] = "%d.%d" % (number.value // 1000, number.value % 1000 // 10)
    said["count_status"] = driver.cuDeviceGetCount(ctypes.byref(number))
    said["count"] = number.value if said["count_status"] == 0 else 0
    said["contexts"] = []
    for index in range(said["count"]):
        device, context = ctypes.c_int(), ctypes.c_void_p()
        status = driver.cuDeviceGet(ctypes.byref(device), index)
        status = status or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        if status == 0:
            driver.cuDevicePrimaryCtxRelease_v2(device)
        said["contexts"].append(status)
except OSError as error:
    said["library"] = str(error)
say()
try:
    import torch
    said["torch"] = torch.__version__
    said["torch_cuda"] = torch.version.cuda
    said["torch_available"] = bool(torch.cuda.is_available())
    if said["torch_available"]:
        said["torch_count"] = torch.cuda.device_count()
        said["torch_nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
except ImportError as error:
    if getattr(error, "name", None) != "torch":
        said["torch_error"] = "ImportError: %s" % error
except Exception as error:
    said["torch_error"] = "%s: %s" % (type(error).__name__, error)
say()
"""
# Status codes of the driver API (cuda.h, cudaError_enum) and what to do about them.
CUDA_STATUS = {
    2: "out of memory: another process holds the GPU's memory",
    3: "the driver is not initialised",
    46: "the GPU is unavailable: another process holds it, or its compute mode forbids us",
    100: "no CUDA device: CUDA_VISIBLE_DEVICES hides them, or the container was given none",
    101: "invalid device",
    201: "invalid context",
    719: "a kernel of the driver failed",
    802: "the NVLink fabric is not ready: start nvidia-fabricmanager of the driver's version",
    803: "the CUDA library and the kernel driver differ in version: reboot, or reinstall one of them",
    804: "the forward-compatibility library does not support this GPU",
    999: "unknown error: see dmesg for Xid, and whether nvidia-modprobe made the device files",
}


def problem(report: dict[str, t.Any], gpus: int | None) -> tuple[str, str] | None:
    """Return the defect of CUDA that the child's report shows, as (reason code, reason); None if there is none.

    `gpus`: how many CUDA must see; None where MIG makes that another number.
    """
    if "library" in report:
        return "cuda_failed", f"the CUDA driver library cannot be loaded: {report['library']}"
    if report.get("init") != 0:
        return "cuda_failed", f"cuInit failed: {_status(report.get('init'))}"
    if report.get("count_status") != 0:
        return "cuda_failed", f"CUDA cannot count its devices: {_status(report.get('count_status'))}"
    if gpus is not None and report.get("count") != gpus:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        why = f" (CUDA_VISIBLE_DEVICES={hidden})" if hidden is not None else ""
        return "gpu_count", f"number of GPUs: CUDA sees {report.get('count')} and nvidia-smi {gpus}{why}"
    refused = [(index, status) for index, status in enumerate(report.get("contexts") or []) if status != 0]
    if refused:
        words = "; ".join(f"GPU {index}: {_status(status)}" for index, status in refused)
        return "cuda_failed", f"no CUDA context could be made: {words}"
    if report.get("torch_error"):
        return "cuda_failed", f"torch cannot be used: {report['torch_error']}"[:500]
    if report.get("torch") and report.get("torch_available") is False:
        return "cuda_failed", _torch_cause(report)
    return None


def _torch_cause(report: dict[str, t.Any]) -> str:
    built, driver = report.get("torch_cuda"), report.get("driver_cuda")
    if not built:
        return f"torch {report['torch']} is built without CUDA"
    if _version(built) > _version(driver):
        return (
            f"torch {report['torch']} is built for CUDA {built}, newer than the driver's {driver}: "
            "update the driver, or install a torch for an older CUDA"
        )
    return f"torch {report['torch']}, built for CUDA {built}, says that CUDA is not available; the driver's is {driver}"


def _status(number: t.Any) -> str:
    return f"error {number}, {CUDA_STATUS[number]}" if number in CUDA_STATUS else f"error {number}"


def _version(text: t.Any) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d{1,6}", str(text))[:2])
