# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of gpu_memory by NVIDIA's nvbandwidth, where it is installed and asked for: a second opinion.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Params, PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nvbandwidth
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import gpu
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

# The tests of nvbandwidth whose numbers make a check: of each GPU the least, of latency the one there is.
TESTS: t.Dict[str, t.Tuple[str, ...]] = {
    "h2d": ("host_to_device_memcpy_ce",),
    "d2h": ("device_to_host_memcpy_ce",),
    "bidirectional": ("host_to_device_bidirectional_memcpy_ce", "device_to_host_bidirectional_memcpy_ce"),
    "h2d_all": ("host_to_all_memcpy_ce",),
    "d2h_all": ("all_to_host_memcpy_ce",),
    "bidirectional_all": ("host_to_all_bidirectional_memcpy_ce", "all_to_host_bidirectional_memcpy_ce"),
    "peer": ("device_to_device_memcpy_write_ce",),
    "device": ("device_local_copy",),
    "latency": ("host_device_latency_sm",),
}


class NvbandwidthRun:
    """The result of one call of nvbandwidth for some checks, over the GPUs `used`."""

    def __init__(self, node: Node, params: Params, checks: t.Sequence[str], used: t.Sequence[PlainData]) -> None:
        self.used = used
        self.tests = [test for check in checks for test in TESTS[check]]
        self.argv = [params["nvbandwidth"] or "nvbandwidth", "-t", *self.tests, "-b", str(params["mib"])]
        env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **params["env"], "CUDA_VISIBLE_DEVICES": ",".join(str(g["uuid"]) for g in used)}
        self.result = node.run(self.argv, timeout=params["test_timeout"], env=env, merge=False)
        rc = self.result.rc if self.result.rc is not None else 1
        self.parsed = nvbandwidth.parse(self.result.out, rc, err=self.result.err, tests=self.tests)
        self.version = f"nvbandwidth {self.parsed['version']}" if self.parsed["version"] else None

    def problem(self, timeout: float) -> tuple[str, str, str] | None:
        """Return why there are no numbers, as (outcome, reason code, reason); None if there are."""
        if self.result.missing:
            return "error", "tool_missing", f"{self.argv[0]}: {self.result.missing}; set gpu_memory_nvbandwidth, or gpu_memory_tool: driver"
        if self.result.timed_out:
            return "timeout", "timeout", f"nvbandwidth did not end within {self.result.ended_after(timeout)}"
        if self.parsed["outcome"] != "measured":
            return "error", self.parsed["reason_code"], self.parsed["reason"]
        devices = [device for device in self.parsed["devices"] if device["bdf"]]  # up to 0.4 it prints names only
        if devices and [gpu.slot(d["bdf"]) for d in devices] != [gpu.slot(g["bdf"] or "") for g in self.used]:
            addresses = ", ".join(d["bdf"] for d in devices)
            expected = ", ".join(str(g["bdf"]) for g in self.used)
            return "error", "gpu_invisible", f"nvbandwidth used the GPUs at {addresses}, expected {expected}"
        return None

    def of(self, check: str, place: int) -> list[float] | None:
        """Return the numbers of a GPU in a check, one for each test (of `peer` one for each other GPU); None if one is missing.

        GB/s, of `device` bytes read and written; of `latency` us.
        """
        values: list[float] = []
        for name in TESTS[check]:
            test = self.parsed["tests"].get(name) or {}
            matrix, unit = test.get("matrix"), test.get("unit")
            if unit != ("ns" if check == "latency" else "GB/s") or not matrix:
                return None
            if check == "peer":
                if len(matrix) != len(self.used) or len(matrix[0]) != len(self.used):
                    return None
                numbers = [cell for at, cell in enumerate(matrix[place]) if at != place]
            else:
                if len(matrix) != 1 or len(matrix[0]) != len(self.used):
                    return None
                numbers = [matrix[0][place]]
            if not numbers or any(cell is None for cell in numbers):
                return None
            values += t.cast("list[float]", numbers)
        divisor = {"latency": 1000, "device": 0.5}.get(check, 1)
        return [value / divisor for value in values]
