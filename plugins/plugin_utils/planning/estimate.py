# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan in a few lines for people, with the time that it will take.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Plan, PlanItem, TodoItem, Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage

# A launch over a group, as nccl-tests takes it for one sweep, in seconds, and links of this speed in Gb/s: what no variable says.
LAUNCH_S, GBPS = 60.0, 400.0
# Seconds in which the controller reaches a node for a stage: measured, 0.2 s of two cores.
REACH_S = 0.1
# {target: {stage: [check that is left]}}
Remaining = dict[str, dict[str, list[TodoItem]]]


def summary(plan: Plan, todo: Remaining, title: str) -> list[str]:
    """The plan in a few lines for people, that begin with `title` it is."""
    lines = [f"{title}: {len(plan.items)} checks on {subjects.hosts(plan.targets)}"]
    total = 0.0
    left_count = sum(len(checks_left) for stages in todo.values() for checks_left in stages.values())
    if left_count != len(plan.items):
        lines[0] += f", {left_count} left to measure"
    seconds_of = stage_seconds(plan)
    for stage in plan.stages:
        stage_items = [item for item in plan.items if item.stage == stage["name"]]
        title = subjects.counted({item.subject.id: item.subject.kind for item in stage_items}.values())
        stage_s = seconds_of[stage["name"]]
        total += stage_s
        takes = f", about {duration(stage_s)}" if stage_s else ""
        sample = plan.sample.get(stage["name"])
        chosen = f", sample with seed {sample['seed']}: {', '.join(sample['nodes'][:8])}" if sample else ""
        lines.append(f"  {stage['name']}: {title}{takes}{chosen}{' ...' if sample and len(sample['nodes']) > 8 else ''}")
    if total:
        reach = REACH_S * sum(len({i.target for i in plan.items if i.stage == s["name"]}) for s in plan.stages)
        lines.append(f"  about {duration(total + reach)} in all where nothing hangs")
    if plan.not_proven:
        lines.append(f"PARTIAL: a quick test, which does not show {', '.join(plan.not_proven)}")
    if plan.left_out or plan.skipped_stages:
        hosts, stages = plan.left_out, ", ".join(plan.skipped_stages)
        host_names = ", ".join(hosts[:10]) + (" ..." if len(hosts) > 10 else "")
        parts = [f"{subjects.hosts(hosts)} ({host_names})"] if hosts else []
        lines.append(f"PARTIAL: left out {' and '.join([*parts, *([f'stages {stages}'] if stages else [])])}")
    return lines + [f"note: {note}" for note in plan.notes]


def stage_seconds(plan: Plan) -> dict[str, float]:
    """Return the seconds that each stage takes where nothing hangs, {stage: seconds} in their order; 0.0 if the plan does not know."""
    seconds = {}
    for stage in plan.stages:
        checks_of = collections.Counter(item.subject.id for item in plan.items if item.stage == stage["name"])
        seconds[stage["name"]] = plan.check_seconds.get(stage["name"], 0) * max(checks_of.values(), default=0)
    return seconds


def of_check(stage: Stage, settings: Variables) -> float:
    """Return how long one check of a stage takes about, with its part of a burn-in: as its variables say, else its part of what a stage of
    a single node takes."""
    checks = settings.get(f"{stage.name}_checks")
    declared = float(settings.get(f"{stage.name}_check_seconds") or 0)
    if declared:
        return declared + (stage.burn_in_seconds(settings) / len(checks) if checks else 0.0)
    return stage.seconds(settings, 1, 0.0, 0.0) / len(checks) if checks else 0.0


def measuring(stage: Stage, target_of: t.Mapping[str, str], settings: t.Mapping[str, Variables]) -> float:
    """Return about how many seconds a stage measures over all nodes, 0.0 if it does not say. `target_of` is {node: target}."""
    if stage.between:
        return _together(stage, target_of, settings)
    return max((of_check(stage, of) * len(of.get(f"{stage.name}_checks") or ()) for of in settings.values()), default=0.0)


def between(stage: Stage, items: t.Iterable[PlanItem], target_of: t.Mapping[str, str], settings: t.Mapping[str, Variables]) -> float:
    """Return the seconds of one check of a stage between nodes, so that all checks of the subject with the most take as long as the stage.
    Nodes that do not reach one another work at the same time. `target_of` is {node: target}."""
    checks_of = collections.Counter(item.subject.id for item in items if item.stage == stage.name)
    if not checks_of:
        return 0.0
    return _together(stage, target_of, settings) / max(checks_of.values())


def _together(stage: Stage, target_of: t.Mapping[str, str], settings: t.Mapping[str, Variables]) -> float:
    domains: dict[str, list[str]] = collections.defaultdict(list)
    for node, target in target_of.items():
        domains[str(settings[target].get("acceptance_realm") or "")].append(node)
    return max((stage.seconds(settings[target_of[nodes[0]]], len(nodes), LAUNCH_S, GBPS) for nodes in domains.values()), default=0.0)


def duration(seconds: float) -> str:
    """Return a time for people."""
    if seconds < 600:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def listed(plan: Plan, todo: Remaining) -> str:
    """Each check that is left, in a line of its own, in the order of the stages."""
    return "".join(
        f"{stage['name']}: {item['subject']['id']}: {item['check']} {item['variant']}".rstrip() + "\n"
        for stage in plan.stages
        for stages in todo.values()
        for item in stages.get(stage["name"], ())
    )
