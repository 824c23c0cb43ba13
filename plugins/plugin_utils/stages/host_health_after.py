# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stage `host_health_after`: the machine beside its accelerators, looked at again after the last load of the run. Its findings are
those that the first look did not have (judging/second_look.py).

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, PlainData, PlanItem, Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import host_health
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Expected, Nodes, Settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import Range


class HostHealthAfter(host_health.HostHealth):
    name = "host_health_after"
    role = "gpufleet.acceptance.host_health_after"
    place = 1000
    level = ""  # the first look brings it
    before: tuple[str, ...] = ()
    looks_after = host_health.STAGE.name
    last: tuple[str, ...] = ()
    requestable: tuple[str, ...] = ()
    ranges: t.Mapping[str, Range] = {}

    def problem(self, settings: Variables) -> str | None:
        return None

    def items(self, nodes: Nodes, settings: Settings) -> tuple[t.Sequence[PlanItem | PlainData], list[str]]:
        return super(host_health.HostHealth, self).items(nodes, settings)

    def observe(self, check: str, variant: str, settings: Variables) -> Observation:
        """Return the observation of the first look, without what only tells machines apart."""
        observed = super().observe(check, variant, settings)
        return {**observed, "context": {name: value for name, value in observed["context"].items() if name not in ("machine", "product")}}

    def opinions(
        self, deciding: t.Mapping[Key, Measurement], records: list[Measurement], expected: Expected, tables: list[Table]
    ) -> t.Iterator[tuple[Key, Opinion]]:
        """Yield nothing: bandwidth, and whether a management controller is that of the machine, are the first look's."""
        return iter(())


STAGE = HostHealthAfter()
