# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judgement of a run, for code that shows it or acts on it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import past
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Cause, Measurement, NodeVerdict, Verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Coverage, Deviation


@dataclasses.dataclass
class Judgement:
    """The judgement of a run. `why` is one sentence.

    `verdicts` are verdict/v1 of everything, the worst first; `planned` those of the plan's items in its order;
    `extras` those of what was measured and not planned. `nodes` are the verdicts of whole nodes, pairs and groups, the worst first.
    `deciding` is of each key the measurement that was judged. `counts` counts all verdicts, those of parts and of checks that were
    not planned included. `coverage` is about planned checks. `drift` is {node: deviating facts with their severity}. `causes` are
    what lies behind the verdicts that are no PASS, what was convicted first. `warnings` are of the run as a whole, and count as WARN.
    `passed`: nothing speaks against it; a quick test that passed is `accepted` all the same not. `simulated`: whether any number came from
    a simulated tool. `tables` are by stage those of its pairs. `past` is what became of its numbers since earlier runs, None where nobody
    said it. `unproven` is what stages were to prove and did not. `speed_not_proven` names the speeds that a quick test did not judge.
    """

    verdicts: list[Verdict]
    planned: list[Verdict]
    extras: list[Verdict]
    nodes: list[NodeVerdict]
    deciding: t.Mapping[Key, Measurement]
    coverage: Coverage
    passed: bool
    accepted: bool
    why: str
    counts: dict[str, int]
    partial: bool
    simulated: bool
    notes: list[str]
    drift: dict[str, list[Deviation]]
    causes: list[Cause] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)
    tables: dict[str, list[Table]] = dataclasses.field(default_factory=dict)
    past: past.PastReport | None = None
    unproven: list[str] = dataclasses.field(default_factory=list)
    speed_not_proven: list[str] = dataclasses.field(default_factory=list)
