# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rounds of an acceptance: judged runs in the order of their plans, each with its verdicts and the parts that it has seen.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import integrity, parts
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, Plan, Verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.parts import Part
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import judged_runs

# Fields of the report that a pack shows, besides those of judged_runs.HEAD.
FIELDS = (
    "files", "raw", "fingerprint", "left_out", "skipped_stages", "not_proven", "waivers", "expectations", "versions", "looked_for",
    "not_measured_by_plan",
)  # fmt: skip
SKIPPED = "SKIPPED"


@dataclasses.dataclass(frozen=True)
class Round:
    """A judged run. `number` counts from 1; `report` are fields of its report, `verdicts` has those that are not SKIPPED, `parts` the
    parts of each node as the run has seen them, and `facts` the facts of each node."""

    number: int
    run: Run
    plan: Plan
    report: PlainData
    verdicts: t.Mapping[Key, Verdict]
    parts: t.Mapping[str, t.Mapping[str, Part]]
    facts: t.Mapping[str, PlainData]

    @property
    def folder(self) -> pathlib.Path:
        """Return the folder of its last judgement."""
        return pathlib.Path(self.report["folder"])

    @property
    def planned_at(self) -> str:
        """Return when it was planned, UTC."""
        return str(self.report["planned_at"] or self.plan.created_at)

    @property
    def judged_at(self) -> str:
        """Return when it was judged, UTC."""
        return str(self.report["created_at"])


def read(results_dir: str, run_ids: t.Sequence[str]) -> list[Round]:
    """Return the runs as rounds, the first first. Raise RunError for a run that was not judged, that is a quick test, that is named twice,
    or of which something is not as it was written: nobody signs for that."""
    if not run_ids:
        raise RunError("run_id: found nothing, expected the id of a judged run, or of several, like 20260101T000000Z-0a1b2c")
    if len(set(run_ids)) != len(run_ids):
        raise RunError(f"run_id: found a run twice in {', '.join(run_ids)}")
    runs = [Run.open(results_dir, run_id) for run_id in run_ids]
    for run in runs:
        integrity.verify(run)
    reports = {run.id: judged_runs.read(results_dir, run.id, FIELDS) for run in runs}
    plans = {run.id: run.plan() for run in runs}
    quick = [run.id for run in runs if reports[run.id]["mode"] == "quick"]
    if quick:
        raise RunError(f"run {quick[0]}: it is a quick test, which is no round of an acceptance")
    ordered = sorted(runs, key=lambda run: (str(reports[run.id]["planned_at"] or plans[run.id].created_at), run.id))
    return [_round(number, run, plans[run.id], reports[run.id]) for number, run in enumerate(ordered, 1)]


def _round(number: int, run: Run, plan: Plan, report: PlainData) -> Round:
    verdicts = {verdict.key: verdict for verdict in judged_runs.verdicts(report) if verdict.verdict != SKIPPED}
    try:
        seen = parts.of_records(run.journal.as_data(*parts.MARKS)).parts
    except OSError as error:
        raise RunError(f"run {run.id}: its journal cannot be read: {error}") from error
    return Round(number, run, plan, report, verdicts, seen, _facts(run))


def _facts(run: Run) -> dict[str, PlainData]:
    """Return the facts of the nodes of which the run has any."""
    found: dict[str, PlainData] = {}
    for path in sorted((run.dir / "nodes").glob("*.json")):
        try:
            written = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"{path}: {error}") from error
        found[str(written.get("node"))] = written.get("facts") or {}
    return found
