# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a run has measured its nodes, in which boot, and in which NVLink domains they are, from the journal of the run.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import calendar
import contextlib
import dataclasses
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, Subject
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run


@dataclasses.dataclass
class Measured:
    """`ended`: {node: the end of its last measurement, in seconds since 1970}. `boots`: {node: the boot in which it was measured last, as
    the API of its cluster names it}. `domains`: {node: its NVLink domain beyond the machine, `CLUSTER/CLIQUE`}."""

    ended: dict[str, int] = dataclasses.field(default_factory=dict)
    boots: dict[str, str] = dataclasses.field(default_factory=dict)
    domains: dict[str, str] = dataclasses.field(default_factory=dict)


def read(results_dir: str, run_id: str) -> Measured:
    """Return what the journal of a run says; nothing if it cannot be read."""
    found = Measured()
    with contextlib.suppress(OSError):
        for record in Run(results_dir, run_id).journal.as_data():
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):  # a node may have made it up
                _take(found, record)
    return found


def _take(found: Measured, record: PlainData) -> None:
    subject, context = record["subject"], record["context"]
    nodes = subjects.nodes_of(Subject(subject["kind"], str(subject["id"]), list(map(str, subject.get("members") or ()))))
    ended = int(calendar.timegm(time.strptime(record["started_at"], "%Y-%m-%dT%H:%M:%SZ")) + float(record.get("duration_s") or 0))
    for node in nodes:
        found.ended[node] = max(ended, found.ended.get(node, 0))
    domains = {_domain(row) for row in context.get("gpu_table") or ()}
    if len(domains) == 1 and (domain := domains.pop()):
        found.domains.update(dict.fromkeys(nodes, domain))
    for node, identity in (context.get("identities") or {}).items():
        if identity.get("node_boot"):
            found.boots[str(node)] = str(identity["node_boot"])


def _domain(gpu: t.Mapping[str, t.Any]) -> str:
    """Return the NVLink domain of a GPU as the driver names it; empty if it is in none."""
    fabric = gpu.get("fabric") or {}
    cluster, clique = str(fabric.get("cluster") or ""), str(fabric.get("clique") or "")
    return f"{cluster}/{clique}" if cluster.strip("0-") and cluster.upper() != "N/A" else ""
