# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage `gpu_memory`: copies between host and GPUs, between GPUs and inside their memory, and a test of that memory.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import gpu_memory as probe
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, Verdict, is_number
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Record, Stage
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.ranges import Range

# How many nodes' matrices, and how many ways from far memory, the report shows.
SHOWN_NODES, SHOWN_WAYS = 3, 20


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

    def sections(self, rows: list[tuple[Verdict, Measurement]]) -> list[Record]:
        """Return the matrix of copies between GPUs of the nodes with the slowest ones, and the slowest copies from far memory."""
        parts = [m for _verdict, m in rows if m.stage == self.name and m.outcome == "measured" and m.series and is_number(_value(m))]
        peers: dict[str, list[Measurement]] = {}
        for m in parts:
            if m.check == "peer":
                peers.setdefault(node_of(m.subject.id), []).append(m)
        slowest = sorted(peers, key=lambda node: min(map(_value, peers[node])))
        found = [_matrix(node, peers[node]) for node in slowest[:SHOWN_NODES]]
        far = sorted((m for m in parts if m.check == "numa"), key=_value)[:SHOWN_WAYS]
        if far:
            table = [[node_of(m.subject.id), str(m.context.get("worst") or ""), f"{_value(m):.1f}"] for m in far]
            said = [f"The slowest way of each GPU from or to the memory of another NUMA node; the {SHOWN_WAYS} slowest of the run."]
            found.append({"title": "Copies from far memory", "said": said, "columns": ["node", "way", "GB/s"], "rows": table})
        return found


def _value(m: Measurement) -> t.Any:
    metric = m.metrics.get("bandwidth")
    return metric.value if metric else None


def _matrix(node: str, gpus: list[Measurement]) -> Record:
    """Return the table of copies between the GPUs of a node, in GB/s; `*` marks those that go through the host's memory."""
    gpus = sorted(gpus, key=lambda m: str(m.context.get("index")).zfill(4))
    columns = sorted({str(row.get("to")) for m in gpus for row in m.series}, key=lambda name: name.zfill(4))
    table = []
    for m in gpus:
        rates = {str(row.get("to")): row for row in m.series if is_number(row.get("bandwidth"))}
        cells = [f"{rates[to]['bandwidth']:.0f}{'' if rates[to].get('direct') else ' *'}" if to in rates else "" for to in columns]
        table.append([f"GPU {m.context.get('index')}", *cells])
    said = ["GB/s from the GPU of the row to that of the column, each pair alone; * marks a way through the host's memory."]
    return {"title": f"Copies between the GPUs of {node}", "said": said, "columns": ["", *(f"GPU {to}" for to in columns)], "rows": table}


STAGE = GpuMemory()
