# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `ddp`: training over groups of nodes with PyTorch.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups.launching import MEETING_PORTS
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import ddp
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import training
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.causes import Blame
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, PlainData, Variables, Verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Section
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import base, grouping, nccl_fabric, stack, sweep

# Of the sizes that both have measured: the largest, where a loop of ours and one of nccl-tests differ least.
COMPARED = 2


class Ddp(grouping.Grouped):
    name = "ddp"
    role = "gpufleet.acceptance.ddp"
    place = 80
    level = "full"
    saves_checkpoints = True
    # Whether values are right, whether the group learns, and who holds it back: no numbers are expected of these.
    conditions = grouping.Grouped.conditions | set(ddp.PARTS) | {nccl_fabric.LOCALISE}
    sees: t.Mapping[str, tuple[str, ...]] = {"compute": ("train", "pace"), "fabric": ()}
    floor = ("busbw", "GB/s")
    requestable = ("gpus", "collectives", "types", "ops", "type", "sizes", "iterations", "warmup", "steps", "seed", "width", "batch")
    requested_before = (stack.STAGE.name,)
    beside = (nccl_fabric.STAGE.name,)

    def lacks(self, fault: str, measurement: Measurement) -> str | None:
        """Findings about a group that does not learn, or about who holds it back, need no number."""
        return None if fault == "compute" else super().lacks(fault, measurement)

    def problem(self, settings: Variables) -> str | None:
        port, last = settings["ddp_port"], 65536 - MEETING_PORTS
        if not 1024 <= port <= last:
            return f"ddp_port: found {port}, expected 1024 to {last}: each further launch takes the next port"
        if settings["ddp_rails"] and settings["ddp_backend"] != "nccl":
            return f"ddp_rails: found ddp_backend {settings['ddp_backend']}, expected nccl: the rails are those of its NCCL_IB_HCA"
        numbers = sweep.problem(
            self.name, settings, rounds=1, elements=1, iterations=1, warmup=0, fill_seconds=0, steps=training.LEAST_STEPS, width=1, batch=1,
            straggler_percent=0, collective_timeout=1, repeats=1, parallel=1,
        )  # fmt: skip
        empty = next((name for name in ("ddp_collectives", "ddp_types") if not settings[name]), None)
        return numbers or (f"{empty}: found an empty list, expected what is checked" if empty else super().problem(settings))

    def checks(self, variables: Variables) -> list[tuple[str, str]]:
        other_settings = variables["ddp_sizes"], variables["ddp_type"], variables["ddp_backend"]
        parts = [(share["gpus"], *other_settings, share.get("rail")) for share in self.shares(variables)]
        return [check for part in parts for check in ddp.checks_of(variables["ddp_ops"], *part)]

    def for_head(self, members: list[str], settings: t.Mapping[str, Variables]) -> PlainData:
        """The leaf switches of the members, for the search."""
        return {"topology": {node: settings[node]["ddp_leaf"] for node in members if settings[node].get("ddp_leaf")}}

    def sections(self, rows: list[tuple[Verdict, Measurement]]) -> list[Section]:
        """Return the bandwidth next to that of nccl_fabric over the same nodes and GPUs; if only ddp is slow, the fabric is fine."""
        measured = [m for _verdict, m in rows if m.outcome == "measured" and m.subject.kind == "group" and m.series]
        fabric_measurements = {_alike(m): m for m in measured if m.stage in self.beside}
        table = []
        for m in measured:
            fabric_measurement = fabric_measurements.get(_alike(m)) if m.stage == self.name else None
            if not fabric_measurement:
                continue
            ddp_busbw, fabric = _busbw(m), _busbw(fabric_measurement)
            for size in sorted(set(ddp_busbw) & set(fabric))[-COMPARED:]:
                numbers = [f"{ddp_busbw[size]:.1f}", f"{fabric[size]:.1f}", f"{ddp_busbw[size] / fabric[size]:.2f}"]
                table.append([m.subject.id, f"{m.check} {m.variant}", str(size), *numbers])
        columns = ["group", "check", "message size (B)", "ddp, busbw (GB/s)", "nccl_fabric, busbw (GB/s)", "share"]
        lines = ["Shown, not gated on: each of them is held against its own expectation."]
        return [{"title": "Training beside NCCL between nodes", "said": lines, "columns": columns, "rows": table}] if table else []

    def opinions(
        self, deciding: t.Mapping[Key, Measurement], records: list[Measurement], expected: base.Expected, tables: list[Table]
    ) -> t.Iterator[tuple[Key, Opinion] | Blame]:
        return nccl_fabric.convicted(self.name, deciding)


def _alike(m: Measurement) -> tuple[t.Any, ...]:
    """By what a group's bandwidth is that of another stage's: operation, type, GPUs, rail and nodes."""
    keys = dict(word.split("=", 1) for word in m.variant.split())
    operation = ddp.OPS.get(m.check, m.check), ddp.TYPES.get(keys.get("type", ""), keys.get("type"))
    return (*operation, keys.get("gpus"), keys.get("rail"), frozenset(m.subject.members))


def _busbw(m: Measurement) -> dict[int, float]:
    """By the size of the message; no number is no row."""
    return {row["size"]: row["busbw"] for row in m.series if isinstance(row.get("busbw"), (int, float)) and row["busbw"] > 0}


STAGE = Ddp()
