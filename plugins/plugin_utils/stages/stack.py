# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `stack`: the software and the health of every node. What it finds is a condition, not a number.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage


class Stack(Stage):
    name = "stack"
    role = "gpufleet.acceptance.stack"
    loads = False
    place = 10
    level = "quick"
    conditions = frozenset({"facts", "gpu_health", "cuda"})
    finds_facts = True
    sees_all_gpus = True
    # Counters and states only: a fault that nothing has met yet is not among them.
    sees: t.Mapping[str, tuple[str, ...]] = {"software": ("facts",)}
    requestable = ("cuda",)

    def lacks(self, fault: str, measurement: Measurement) -> str | None:
        return None if measurement.context.get("facts") else "it has no facts of the node"


STAGE = Stack()
