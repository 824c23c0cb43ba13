# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Classes of faults that a run has looked for, by which checks and on how many nodes, and those that it has not.

The stages say which of their checks can show a class (Stage.sees), and of each measurement whether it could (Stage.lacks): a class counts
as looked for on a node only by a check that was measured there and could have seen it. For the others the reason is said. The shares of
defects in the field are those that others published (stages/faults.py).

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.judgement import Judgement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import ends_of, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, Plan, Verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import FaultRow, LookedFor
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import faults, registry

# Verdicts of checks that were measured.
MEASURED = ("PASS", "WARN", "FAIL", "KNOWN_FAIL")


# Classes that show only in a comparison with other nodes, or with what the inventory says.
COMPARED = frozenset({"software"})
# Reasons that a row shows.
REASONS = 4


def build(plan: Plan, judgement: Judgement) -> LookedFor:
    """Return the classes of faults with the checks that looked for them, and why the others did not."""
    looked_for: dict[str, tuple[set[str], dict[str, None]]] = {name: (set(), {}) for name in faults.CLASSES}
    lacking: dict[str, dict[str, set[str]]] = {name: collections.defaultdict(set) for name in faults.CLASSES}
    by_check: dict[tuple[str, str], tuple[str, ...]] = {}
    stage_by_name = {entry["name"]: registry.of(entry) for entry in plan.stages if "role" in entry}
    nodes = {node["name"] for node in judgement.nodes if node["kind"] == "node"}
    for verdict in judgement.verdicts:
        if verdict.subject.kind in ("gpu", "nic"):
            continue
        stage, name = stage_by_name.get(verdict.stage), (verdict.stage, verdict.check)
        if name not in by_check:
            by_check[name] = faults.shown(stage, verdict.check)
        if not by_check[name] or stage is None:
            continue
        of_nodes = nodes.intersection(_nodes(verdict, judgement))
        measurement = judgement.deciding.get(verdict.key)
        for fault in by_check[name]:
            if verdict.verdict not in MEASURED or measurement is None:
                why: str | None = f"{verdict.verdict} ({verdict.reason_code or 'not measured'})"
            else:
                why = stage.lacks(fault, measurement)
            if why is None and fault in COMPARED and len(nodes) < 2 and not _has_golden(plan, measurement):
                why = "one node, and no golden values to compare it with"
            if why is not None:
                lacking[fault][f"{verdict.stage} {verdict.check}: {why}"].update(of_nodes)
                continue
            looked_at, shown_checks = looked_for[fault]
            looked_at.update(of_nodes)
            shown_checks[f"{verdict.stage} {verdict.check}"] = None
    rows: list[FaultRow] = [
        {
            "fault": faults.CLASSES[name].words, "field": faults.CLASSES[name].field, "checks": list(shown_checks),
            "nodes": len(looked_at), "of": len(nodes),
            "why": _why(name, lacking[name], nodes - looked_at, plan) if len(looked_at) < len(nodes) else [],
        }
        for name, (looked_at, shown_checks) in looked_for.items()
    ]  # fmt: skip
    return {
        "rows": rows,
        "missing": [row["fault"] for row in rows if not row["nodes"]],
        "unseen": [f"{words} ({check} on {many} of {len(nodes)} nodes)" for (check, words), many in sorted(_unseen(judgement).items())],
        "partly": [f"{row['fault']} (on {row['nodes']} of {row['of']} nodes)" for row in rows if 0 < row["nodes"] < row["of"]],
    }


def _has_golden(plan: Plan, measurement: Measurement | None) -> bool:
    rules = plan.judging.stack.get(measurement.target) if measurement is not None else None
    return bool(rules and rules.get("golden"))


def _why(fault: str, lacking: dict[str, set[str]], missing: set[str], plan: Plan) -> list[str]:
    """Return why a class was not looked for on some nodes: what its checks lacked there, those of most nodes first; if the run has no
    check for it, the stages that have one."""
    counts = {words: len(of & missing) for words, of in lacking.items() if of & missing}
    if counts:
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return [f"{words[:300]} (on {many} nodes)" for words, many in ranked[:REASONS]]
    planned = {str(entry["name"]) for entry in plan.stages}
    able = [stage for stage in registry.shipped().values() if fault in stage.sees]
    stages = sorted({f"{stage.name}{f' (level {stage.level})' if stage.level else ''}" for stage in able if stage.name not in planned})
    if stages:
        return [f"no check of this run can show it; these stages have one: {', '.join(stages)}"]
    return ["no check of this run can show it as it was set"]


def _unseen(judgement: Judgement) -> dict[tuple[str, str], int]:
    """Return {(check, what it could not see and why): number of nodes}, as checks say it in `not_looked_for` of their context."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    for measurement in judgement.deciding.values():
        unseen = measurement.context.get("not_looked_for")
        name = f"{measurement.stage} {measurement.check}"
        if isinstance(unseen, dict):
            counts.update((name, str(why)[:200]) for why in unseen.values())
        aside = measurement.context.get("set_aside")
        if isinstance(aside, dict) and measurement.subject.kind == "node":
            counts.update((name, f"{str(gpu)[:100]}: MIG is on") for gpu in aside.values())
    return dict(counts)


def _nodes(verdict: Verdict, judgement: Judgement) -> t.Iterable[str]:
    """Return the nodes that a check of a node, a pair or a group has measured."""
    subject = verdict.subject
    if subject.kind == "pair":
        return map(node_of, ends_of(subject.id))
    if subject.kind == "node":
        return (subject.id,)
    measurement = judgement.deciding.get(verdict.key)
    if measurement is None:
        return ()
    return measurement.context.get("cabled") or () if subject.kind == "switch" else measurement.subject.members
