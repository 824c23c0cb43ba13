# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The places of nodes in the network by the map of a run, or of the newest run before it that has one.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import places, reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.places import Places
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import measurement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage

# Runs before this one that are looked into.
EARLIER = 50


def of_records(stages: t.Iterable[Stage], records: t.Iterable[t.Any], run: str = "") -> Places | None:
    """Return the places by the last measurements of a stage that maps the network; None if there are none."""
    mapping = {stage.name for stage in stages if stage.maps}
    last: dict[Key, Measurement] = {}
    for record in records:
        if isinstance(record, Measurement) and record.stage in mapping and record.outcome == "measured":
            before = last.get(record.key)
            if before is None or before.attempt <= record.attempt:
                last[record.key] = record
    return places.of_map(reading.read(last.values()).fabric, run) if last else None


def newest(run: Run, stages: t.Sequence[Stage], records: t.Iterable[t.Any]) -> Places | None:
    """Return the places by a run itself, or by the newest run before it in the same folder that has a map."""
    own = of_records(stages, records)
    if own is not None:
        return own
    marks = [f'"{stage.name}"'.encode() for stage in stages if stage.maps]
    earlier = sorted((path.parent.name for path in run.dir.parent.glob("*/plan.json") if path.parent.name < run.id), reverse=True)
    for name in earlier[:EARLIER]:
        folder = run.dir.parent / name
        try:
            plan = (folder / "plan.json").read_bytes()
            if not any(mark in plan for mark in marks):  # a journal may have hundreds of megabytes
                continue
            read = map(measurement.parsed, Run(str(run.dir.parent), name).journal.as_data(*marks))
            found = of_records(stages, read, name)
        except (OSError, RunError):
            continue
        if found is not None:
            return found
    return None
