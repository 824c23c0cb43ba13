# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `host_health`: the machine beside its accelerators. What it finds are conditions, except for the bandwidth of its memory.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import host_health as probe
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Record, Stage
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import Range


class HostHealth(Stage):
    # Not `host`: every variable that begins with the name of a stage must be one of its own, and inventories have many that begin so.
    name = "host_health"
    role = "gpufleet.acceptance.host_health"
    place = 12
    level = "standard"
    # Sizes, speeds and settings are facts of the node: the rules for facts compare them.
    before = ("stack",)
    conditions = frozenset(probe.CHECKS)
    sees: t.Mapping[str, tuple[str, ...]] = {"host_memory": ("memory", "kernel"), "pcie": ("pcie",)}
    requestable = ("tests", "pcie_corrected")
    ranges: t.Mapping[str, Range] = {"pcie_corrected": Range(0, 1e9)}

    def problem(self, settings: Record) -> str | None:
        unknown = [test for test in settings["host_health_tests"] if test not in probe.CHECKS]
        if unknown:
            return f"host_health_tests: found {unknown[0]!r}, expected {', '.join(probe.CHECKS)}"
        return None


STAGE = HostHealth()
