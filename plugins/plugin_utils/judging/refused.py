# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the inventory hosts that are not accepted, which Ansible's own summary shows as failed.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.judgement import Judgement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Plan


def targets(plan: Plan, judgement: Judgement, warn: str = "accept", whole_run: bool = False, regression: str = "warn") -> list[str]:
    """Return the targets of each node with a bad verdict in a run that did not pass, in the order of the plan. A pair
    or group without another cause counts as all of its nodes. All targets if the run is refused as a `whole_run`, or no node is the cause.
    """
    if judgement.passed:
        return []
    every = list(plan.targets)
    nodes = [cause for cause in judgement.causes if cause["kind"] in ("node", "gpu", "nic")]
    because = {key: node_of(cause["subject"]) for cause in nodes for key in cause["explains"]}
    target_of = {item.subject.id: item.target for item in plan.items if item.subject.kind == "node"}
    bad = [v for v in judgement.verdicts if v.verdict == "FAIL"] + [v for v in judgement.planned if v.verdict == "UNKNOWN"]
    if warn != "accept":
        bad += [v for v in judgement.verdicts if v.verdict == "WARN"]
    if regression == "refuse":
        bad += [v for v in judgement.verdicts if v.regressed]
    blamed: set[str] = set()
    for v in bad:
        culprit = because.get(v.key)
        blamed |= {culprit} if culprit else subjects.nodes_of(v.subject)
    refused = {target_of.get(node, node.split("/", 1)[0]) for node in blamed}
    return [target for target in every if target in refused] if refused & set(every) and not whole_run else every
