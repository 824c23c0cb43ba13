# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `gpu_memory`: copies between host and GPUs, between GPUs and inside their memory, and a test of that memory.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import gpu_memory as probe
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Record, Stage
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import Range


class GpuMemory(Stage):
    name = "gpu_memory"
    role = "gpufleet.acceptance.gpu_memory"
    place = 15
    primary = ("bandwidth", "latency")
    # What GPUs share on the way to the host, and which memory is far, differs between machines: these checks are held to the other GPUs of
    # the node and to identical machines, and to an expectation where the inventory has one.
    conditions = frozenset({*probe.TOGETHER, "numa", "peer", "latency", "pattern"})
    devices = True
    sees_all_gpus = True
    # A copy of less than 16 MiB measures the call, and one of more than 4 GiB no host pins for eight GPUs.
    ranges: t.Mapping[str, Range] = {"mib": Range(16, 4096, "MiB"), "copies": Range(2, 1000), "passes": Range(1, 1000)}
    requestable = ("tests", "mib", "copies", "passes", "seed")
    quick = {"tests": ["h2d", "d2h", "bidirectional", "device", "pattern"], "copies": 6, "mib": 128, "test_timeout": 75, "timeout": 90}
    not_proven = "copies of all GPUs at once and from far memory"

    def problem(self, settings: Record) -> str | None:
        unknown = [test for test in settings["gpu_memory_tests"] if test not in probe.CHECKS]
        if unknown:
            return f"gpu_memory_tests: found {unknown[0]!r}, expected {', '.join(probe.CHECKS)}"
        return None


STAGE = GpuMemory()
