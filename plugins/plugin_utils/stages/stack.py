# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `stack`: the software and the health of every node. What it finds is a condition, not a number.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import link_domains
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.causes import Blame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import JudgingInputs, Measurement, Plan
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Expected, Stage


class Stack(Stage):
    name = "stack"
    role = "gpufleet.acceptance.stack"
    loads = False
    place = 10
    level = "quick"
    conditions = frozenset({"facts", "gpu_health", "cuda", link_domains.CHECK})
    finds_facts = True
    sees_all_gpus = True
    # Counters and states only: a fault that nothing has met yet is not among them.
    sees: t.Mapping[str, tuple[str, ...]] = {"software": ("facts",)}
    requestable = ("cuda",)

    def lacks(self, fault: str, measurement: Measurement) -> str | None:
        return None if measurement.context.get("facts") else "it has no facts of the node"

    def derived(self, deciding: t.Mapping[Key, Measurement], plan: Plan, inputs: JudgingInputs) -> list[Measurement]:
        """Return the NVLink domains that the facts of nodes name."""
        return link_domains.records(self.name, deciding, plan, inputs)

    def opinions(
        self, deciding: t.Mapping[Key, Measurement], records: list[Measurement], expected: Expected, tables: list[Table]
    ) -> t.Iterator[tuple[Key, Opinion] | Blame]:
        return link_domains.blames(self.name, deciding)


STAGE = Stack()
