# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan in a few lines for people, with the time that it will take.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Plan, TodoItem

# {target: {stage: [check that is left]}}
Remaining = dict[str, dict[str, list[TodoItem]]]


def summary(plan: Plan, todo: Remaining, title: str) -> list[str]:
    """The plan in a few lines for people, that begin with `title` it is."""
    lines = [f"{title}: {len(plan.items)} checks on {subjects.hosts(plan.targets)}"]
    total = 0.0
    left_count = sum(len(checks_left) for stages in todo.values() for checks_left in stages.values())
    if left_count != len(plan.items):
        lines[0] += f", {left_count} left to measure"
    for stage in plan.stages:
        stage_items = [item for item in plan.items if item.stage == stage["name"]]
        checks_of = collections.Counter(item.subject.id for item in stage_items)
        title = subjects.counted({item.subject.id: item.subject.kind for item in stage_items}.values())
        stage_s = plan.check_seconds.get(stage["name"], 0) * max(checks_of.values(), default=0)
        total += stage_s
        takes = f", about {stage_s:.0f} s" if stage_s else ""
        sample = plan.sample.get(stage["name"])
        chosen = f", sample with seed {sample['seed']}: {', '.join(sample['nodes'][:8])}" if sample else ""
        lines.append(f"  {stage['name']}: {title}{takes}{chosen}{' ...' if sample and len(sample['nodes']) > 8 else ''}")
    if total:
        # What reaching a node costs the controller: measured, 0.2 s of two cores per node and stage, before what the node does.
        reach = 0.1 * sum(len({i.target for i in plan.items if i.stage == s["name"]}) for s in plan.stages)
        lines.append(f"  about {total + reach:.0f} s in all where nothing hangs")
    if plan.not_proven:
        lines.append(f"PARTIAL: a quick test, which does not show {', '.join(plan.not_proven)}")
    if plan.left_out or plan.skipped_stages:
        hosts, stages = plan.left_out, ", ".join(plan.skipped_stages)
        host_names = ", ".join(hosts[:10]) + (" ..." if len(hosts) > 10 else "")
        parts = [f"{subjects.hosts(hosts)} ({host_names})"] if hosts else []
        lines.append(f"PARTIAL: left out {' and '.join([*parts, *([f'stages {stages}'] if stages else [])])}")
    return lines + [f"note: {note}" for note in plan.notes]


def listed(plan: Plan, todo: Remaining) -> str:
    """Each check that is left, in a line of its own, in the order of the stages."""
    return "".join(
        f"{stage['name']}: {item['subject']['id']}: {item['check']} {item['variant']}".rstrip() + "\n"
        for stage in plan.stages
        for stages in todo.values()
        for item in stages.get(stage["name"], ())
    )
