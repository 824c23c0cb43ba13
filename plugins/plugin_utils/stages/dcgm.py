# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `dcgm`: NVIDIA's own diagnostic of the GPUs, as a second opinion.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import dcgm
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage, too_short
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import Range


class Dcgm(Stage):
    name = "dcgm"
    role = "gpufleet.acceptance.dcgm"
    place = 45
    # Its tests pass or fail; the numbers among them are DCGM's own and are not printed by it in one form.
    conditions = frozenset(dcgm.CHECKS)
    devices = True
    sees_all_gpus = True
    sees: t.Mapping[str, tuple[str, ...]] = {
        "device_memory": ("memory", "memory_bandwidth", "memtest"), "pcie": ("pcie",), "compute": ("diagnostic",),
        "thermal": ("targeted_stress", "targeted_power"),
    }  # fmt: skip
    ranges: t.Mapping[str, Range] = {"level": Range(1, 4)}
    requestable = ("level",)

    def lacks(self, fault: str, measurement: Measurement) -> str | None:
        """Its tests have a verdict and no number."""
        return too_short(fault, measurement.duration_s)


STAGE = Dcgm()
