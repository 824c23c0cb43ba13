# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict of a whole node: of everything that was said of it and of its parts the worst.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import SEVERITY
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import NodeVerdict, Verdict

# A stage that was skipped takes nothing from one that passed.
_ORDER = {**SEVERITY, "SKIPPED": -1}


def judged(verdicts: t.Iterable[Verdict]) -> list[NodeVerdict]:
    """Every node, and every pair and group, which is nobody's alone, the worst first. What was found of a node beside the plan is the
    node's all the same."""
    by_name: dict[str, NodeVerdict] = {}
    for verdict in verdicts:
        kind, name = subjects.bearer(verdict.subject.kind, verdict.subject.id)
        word, stage = verdict.verdict, verdict.stage
        node = by_name.get(name)
        if node is None:
            node = by_name[name] = NodeVerdict(name=name, kind=kind, verdict=word, stages={}, simulated=False)
        if node["verdict"] != word:
            node["verdict"] = _worse(node["verdict"], word)
        if node["stages"].setdefault(stage, word) != word:
            node["stages"][stage] = _worse(node["stages"][stage], word)
        node["simulated"] = node["simulated"] or verdict.simulated
    return sorted(by_name.values(), key=lambda node: (-SEVERITY[node["verdict"]], node["name"]))


def _worse(first: str, second: str) -> str:
    return max(first, second, key=_ORDER.__getitem__)
