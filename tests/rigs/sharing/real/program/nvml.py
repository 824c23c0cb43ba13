# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the driver says of the node's GPUs, for the simulated nvidia-smi beside a scheduler that tells nothing of them."""

from __future__ import annotations

import ctypes
import time
import typing as t

INTERVAL_S = 0.4  # over which the driver measures how busy a GPU is


def gpus() -> list[dict[str, t.Any]]:
    nvml, count = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    devices = [ctypes.c_void_p() for _number in range(count.value)]
    for index, device in enumerate(devices):
        nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
        nvml.nvmlDeviceGetUtilizationRates(device, (ctypes.c_uint * 2)())
    time.sleep(INTERVAL_S)
    found = []
    for index, device in enumerate(devices):
        memory, load = (ctypes.c_ulonglong * 3)(), (ctypes.c_uint * 2)()
        uuid, name = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
        nvml.nvmlDeviceGetMemoryInfo(device, memory)
        nvml.nvmlDeviceGetUtilizationRates(device, load)
        nvml.nvmlDeviceGetUUID(device, uuid, 96)
        nvml.nvmlDeviceGetName(device, name, 96)
        found.append({
            "index": index, "uuid": uuid.value.decode(), "name": name.value.decode(), "total": memory[0], "used": memory[2],
            "utilization": load[0] / 100,
        })  # fmt: skip
    return found
