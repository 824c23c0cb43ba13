# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`acceptance_log: json`: the events of a run as lines of JSON in the controller's output, for log collectors.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import logline
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Begun, Judged, Kept, Options, Sink

LEVELS = {
    "PASS": logline.INFO, "SKIPPED": logline.INFO, "WARN": logline.WARN, "KNOWN_FAIL": logline.WARN, "UNKNOWN": logline.ERROR,
    "FAIL": logline.ERROR,
}  # fmt: skip


class LogSink(Sink):
    name = "log"

    def begun(self, of: Begun, options: Options) -> None:
        nodes = len({node_of(item.subject.id) for item in of.plan.items if item.subject.kind == "node"})
        word = "goes on" if of.resumed else "begins"
        _say(
            "run_begun", logline.INFO, f"run {of.run_id} {word}: {of.left} checks", run=of.run_id, nodes=nodes, checks=of.left,
            stages=[stage["name"] for stage in of.plan.stages], partial=of.plan.partial, resumed=of.resumed,
        )  # fmt: skip

    def kept(self, of: Kept, options: Options) -> None:
        outcomes: dict[str, collections.Counter[str]] = {}
        reasons: dict[str, str] = {}
        for measurement in of.measurements:
            subject = node_of(measurement["subject"]["id"])
            outcomes.setdefault(subject, collections.Counter())[measurement["outcome"]] += 1
            if logline.of_outcome(measurement["outcome"]) != logline.INFO:
                reasons.setdefault(subject, str(measurement["reason"]))
        for subject, counts in outcomes.items():
            bad = [outcome for outcome in counts if logline.of_outcome(outcome) != logline.INFO]
            outcome = bad[0] if bad else "measured" if counts["measured"] else "not_applicable"
            _say(
                "stage_kept", logline.of_outcome(outcome), f"{of.stage} on {subject}: {reasons.get(subject) or outcome}", run=of.run_id,
                stage=of.stage, node=subject, target=of.target, outcome=outcome, checks=sum(counts.values()), outcomes=dict(counts),
            )  # fmt: skip

    def judged(self, of: Judged, options: Options) -> None:
        for node in of.report["nodes"]:
            worst = node["findings"][0]["reason"] if node["findings"] else ""
            _say(
                "node_judged", LEVELS[node["verdict"]], f"{node['name']}: {node['verdict']}{f': {worst}' if worst else ''}", run=of.run_id,
                node=node["name"], kind=node["kind"], verdict=node["verdict"], stages=node["stages"], reason=worst,
                simulated=node["simulated"],
            )  # fmt: skip
        report = of.report
        verdict = report["word"]
        _say(
            "run_judged", logline.INFO if report["passed"] else logline.ERROR, f"{verdict}: {report['why']}", run=of.run_id,
            verdict=verdict, counts=report["counts"], planned=report["coverage"]["planned"], measured=report["coverage"]["measured"],
            partial=report["partial"], simulated=report["simulated"], folder=str(of.folder),
        )  # fmt: skip


def _say(event: str, level: str, message: str, **fields: t.Any) -> None:
    Display().display(logline.line(event, level, message, **fields))


SINK = LogSink()
