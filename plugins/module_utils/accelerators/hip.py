# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The start of AMD's runtime (HIP) on every GPU, in a child, and of PyTorch for ROCm if there is one.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import typing as t

# Initialises HIP for real and allocates on every GPU, then asks torch where it is installed. In a child, since it may hang or crash; it
# says what it knows after each step.
ASK_HIP = """
import ctypes, json, os
said = {}
def say():
    print("HIP " + json.dumps(said), flush=True)
try:
    hip = None
    for name in ("libamdhip64.so", "/opt/rocm/lib/libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6"):
        try:
            hip = ctypes.CDLL(name)
            break
        except OSError as error:
            last = error
    if hip is None:
        raise last
    number = ctypes.c_int()
    said["init"] = hip.hipInit(0)
    said["version_status"] = hip.hipRuntimeGetVersion(ctypes.byref(number))
    said["version"] = number.value
    said["count_status"] = hip.hipGetDeviceCount(ctypes.byref(number))
    said["count"] = number.value if said["count_status"] == 0 else 0
    said["contexts"] = []
    for index in range(said["count"]):
        pointer = ctypes.c_void_p()
        status = hip.hipSetDevice(index)
        status = status or hip.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
        status = status or hip.hipMemset(pointer, 0, ctypes.c_size_t(1 << 20))
        status = status or hip.hipFree(pointer)
        said["contexts"].append(status)
except OSError as error:
    said["library"] = str(error)
say()
try:
    import torch
    said["torch"] = torch.__version__
    said["torch_hip"] = getattr(torch.version, "hip", None)
    said["torch_available"] = bool(torch.cuda.is_available())
    if said["torch_available"]:
        said["torch_count"] = torch.cuda.device_count()
        said["torch_arch"] = getattr(torch.cuda.get_device_properties(0), "gcnArchName", None)
        said["torch_rccl"] = ".".join(map(str, torch.cuda.nccl.version()))
except ImportError as error:
    if getattr(error, "name", None) != "torch":
        said["torch_error"] = "ImportError: %s" % error
except Exception as error:
    said["torch_error"] = "%s: %s" % (type(error).__name__, error)
say()
"""
# Status codes of HIP (hip_runtime_api.h, hipError_t) and what to do about them.
HIP_STATUS = {
    2: "out of memory: another process holds the GPU's memory",
    3: "HIP is not initialised: see rocminfo, and whether /dev/kfd may be opened (groups video and render)",
    100: "no ROCm device: ROCR_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES hides them, or /dev/kfd is not there or may not be opened",
    101: "invalid device",
    214: "an uncorrectable memory error",
    709: "the context is destroyed: a GPU was reset",
    719: "a kernel failed",
    999: "unknown error: see dmesg",
}
HIDING = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")


def problem(report: dict[str, t.Any], gpus: int | None) -> tuple[str, str] | None:
    """Return the defect of HIP that the child's report shows, as (reason code, reason); None if there is none. `gpus`: the number of GPUs,
    or of their parts, that HIP must see."""
    if "library" in report:
        return "cuda_failed", f"the HIP runtime cannot be loaded: {report['library']}; is ROCm installed?"
    if report.get("init") != 0:
        return "cuda_failed", f"hipInit failed: {_status(report.get('init'))}"
    if report.get("count_status") != 0:
        return "cuda_failed", f"HIP cannot count its devices: {_status(report.get('count_status'))}"
    if gpus is not None and report.get("count") != gpus:
        hidden = ", ".join(f"{name}={os.environ[name]}" for name in HIDING if name in os.environ)
        return "gpu_count", f"number of GPUs: HIP sees {report.get('count')} and amd-smi {gpus}{f' ({hidden})' if hidden else ''}"
    refused = [(index, status) for index, status in enumerate(report.get("contexts") or []) if status != 0]
    if refused:
        words = "; ".join(f"GPU {index}: {_status(status)}" for index, status in refused)
        code = "ecc" if any(status == 214 for _index, status in refused) else "cuda_failed"
        return code, f"GPUs whose memory HIP cannot use: {words}"
    if report.get("torch_error"):
        return "cuda_failed", f"torch cannot be used: {report['torch_error']}"[:500]
    if report.get("torch") and report.get("torch_available") is False:
        if not report.get("torch_hip"):
            return "cuda_failed", f"torch {report['torch']} is built without ROCm"
        return "cuda_failed", f"torch {report['torch']}, built for ROCm {report['torch_hip']}, says that no GPU is available"
    return None


def _status(number: t.Any) -> str:
    return f"error {number}, {HIP_STATUS[number]}" if number in HIP_STATUS else f"error {number}"
