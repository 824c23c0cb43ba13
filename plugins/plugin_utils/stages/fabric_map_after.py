# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `fabric_map_after`: the InfiniBand fabric, discovered again after the last load of the run. Its findings are what came up
since the first look: errors that were counted, links that are gone or slower.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import subnet
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import changes, form, judgement, reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import Finding, Map
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import JudgingInputs, Measurement, Plan, Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import base, fabric_map
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import Range


class FabricMapAfter(fabric_map.FabricMap):
    name = "fabric_map_after"
    role = "gpufleet.acceptance.fabric_map_after"
    place = 1001
    level = ""  # the first look brings it
    maps = False
    looks_after = fabric_map.STAGE.name
    last: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    sees: t.Mapping[str, tuple[str, ...]] = {}
    requestable: tuple[str, ...] = ()
    ranges: t.Mapping[str, Range] = {}
    # The first look shows the findings of both.
    sections = base.Stage.sections

    def problem(self, settings: Variables) -> str | None:
        return None

    def looked(
        self, deciding: t.Mapping[Key, Measurement], own: t.Mapping[Key, Measurement], plan: Plan, inputs: JudgingInputs
    ) -> tuple[Map, list[Finding], dict[str, str]]:
        """Return the fabric at the end of the run, and what changed since the first look."""
        first = [record for key, record in deciding.items() if key.stage == self.looks_after and record.outcome == "measured"]
        ports = [record for record in first if record.check == reading.PORTS]
        nodes = {key.subject for key in own}
        seen = [record for record in first if record.check == reading.DISCOVERY and record.subject.id in nodes]
        before = reading.read([*ports, *seen]).fabric
        after = reading.read([*ports, *own.values()]).fabric
        counted = bool(seen) and not any(
            subnet.ERRORS in (fabric.get("not_looked_for") or {})
            for record in [*seen, *own.values()]
            if form.is_of_probe(record)
            for fabric in record.context.get("fabrics") or ()
        )
        asked = {key.subject for key in deciding if key.stage == self.looks_after and key.check == reading.PORTS}
        return after, judgement.of_part(before, changes.findings(before, after, counted), asked), {}

    def opinions(
        self, deciding: t.Mapping[Key, Measurement], records: list[Measurement], expected: base.Expected, tables: list[Table]
    ) -> t.Iterator[tuple[Key, Opinion]]:
        """Yield those of the changes, and UNKNOWN for each look at the end without one of the same node at the beginning."""
        yield from super().opinions(deciding, records, expected, tables)
        for key, record in deciding.items():
            if key.stage == self.name and key.check == reading.DISCOVERY and record.outcome == "measured":
                first = deciding.get(key._replace(stage=self.looks_after))
                if first is None or first.outcome != "measured":
                    words = "the fabric was not discovered from here when the run began: nothing can be said of what changed"
                    yield key, Opinion("UNKNOWN", words, "incomplete")


STAGE = FabricMapAfter()
