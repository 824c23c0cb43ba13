# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs, nodes, causes, findings and verdicts of a results folder, narrowed by filters: the answer of the module acceptance_info.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import datetime
import fnmatch
import itertools
import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import verdict_files
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import ends_of, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, Verdict, verdicts_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import judged_runs

# What a verdict's row has of the verdict.
VERDICT = ("stage", "check", "variant", "verdict", "value", "unit", "floor", "metric", "reason_code", "reason", "regressed", "simulated")
# Lines of a file of verdicts that are decoded at once.
LINES_TOGETHER = 5000


@dataclasses.dataclass(frozen=True)
class Filter:
    """The filters of a query. An empty field asks for everything; `node` and `check` may be patterns, `limit` 0 means all runs."""

    run_id: str = ""
    since: str = ""
    limit: int = 1
    node: str = ""
    check: str = ""
    verdicts: t.Collection[str] = ()

    def __post_init__(self) -> None:
        unknown = [word for word in self.verdicts if word not in WORST_FIRST]
        if unknown:
            raise RunError(f"verdict: found {unknown[0]}, expected some of {', '.join(WORST_FIRST)}")
        if self.limit < 0:
            raise RunError(f"limit: found {self.limit}, expected the number of runs, or 0 for all")
        try:
            datetime.date.fromisoformat(self.since or "2026-01-01")
        except ValueError:
            raise RunError(f"since: found {self.since!r}, expected a day as 2026-08-01") from None

    def has_run(self, run_id: str) -> bool:
        """Return True if a run was planned on or after the day `since`."""
        return run_id[:8] >= self.since.replace("-", "")

    def has_subject(self, subject: str) -> bool:
        """Return True for the node itself, a part of it, and a pair that has it as an end."""
        return not self.node or any(
            fnmatch.fnmatchcase(name, self.node) for name in (node_of(subject), *map(node_of, ends_of(subject) if "|" in subject else ()))
        )

    def has_check(self, stage: str, check: str, variant: str) -> bool:
        names = (stage, check, f"{stage} {check}", f"{stage} {check} {variant}")
        return not self.check or any(fnmatch.fnmatchcase(name, self.check) for name in names)

    def has_word(self, word: str) -> bool:
        return not self.verdicts or word in self.verdicts

    def has(self, row: t.Mapping[str, t.Any]) -> bool:
        """Return True for a row with a check and a verdict, such as a finding."""
        return self.has_word(row["verdict"]) and self.has_check(row["stage"], row["check"], row["variant"])

    def has_verdict(self, verdict: Verdict) -> bool:
        return (
            self.has_word(verdict.verdict)
            and self.has_check(verdict.stage, verdict.check, verdict.variant)
            and self.has_subject(verdict.subject.id)
        )


@dataclasses.dataclass
class Info:
    """The answer, the newest run first. `unjudged` are runs that have no verdict yet, `left_out` says of which runs nothing is returned and
    why, one sentence each."""

    runs: list[PlainData] = dataclasses.field(default_factory=list)
    nodes: list[PlainData] = dataclasses.field(default_factory=list)
    causes: list[PlainData] = dataclasses.field(default_factory=list)
    findings: list[PlainData] = dataclasses.field(default_factory=list)
    verdicts: list[PlainData] = dataclasses.field(default_factory=list)
    unjudged: list[str] = dataclasses.field(default_factory=list)
    left_out: list[str] = dataclasses.field(default_factory=list)


def info(results_dir: str, asked: Filter, with_verdicts: bool = False) -> Info:
    """Return what a results folder says. Raise RunError if the folder cannot be read or does not have the run that was asked for.

    A node that no run knows gives an empty answer."""
    run_ids = [run_id for run_id in judged_runs.run_ids(results_dir) if asked.has_run(run_id)]
    if asked.run_id:
        run_ids = [Run.open(results_dir, asked.run_id).id]
    answer = Info()
    for run_id in run_ids:
        if judged_runs.folder_of(results_dir, run_id) is None:
            answer.unjudged.append(run_id)
            continue
        try:
            report = judged_runs.read(results_dir, run_id)
            nodes = [node for node in report["nodes"] if asked.has_subject(node["name"])]
            if asked.node and not nodes:
                continue
            # Decoded before anything is added, so that a broken file leaves no half of a run.
            verdicts = list(_verdicts(pathlib.Path(report["folder"]), asked)) if with_verdicts else []
        except RunError as error:
            answer.left_out.append(str(error))
            continue
        _add(answer, report, nodes, asked)
        answer.verdicts += ({"run": run_id, **row} for row in verdicts)
        if len(answer.runs) == asked.limit:
            break
    return answer


def _add(answer: Info, report: PlainData, nodes: t.Sequence[PlainData], asked: Filter) -> None:
    run_id = report["run"]
    answer.runs.append({
        "run": run_id, "judged_at": report["created_at"],
        **{name: report[name] for name in ("inventory", "planned_at", "mode", "word", "accepted", "why", "partial", "simulated", "counts")},
        "folder": report["folder"],
    })  # fmt: skip
    for node in nodes:
        answer.findings += (
            {"run": run_id, "node": node["name"], "simulated": node["simulated"], **finding}
            for finding in node["findings"]
            if asked.has(finding)
        )
        if asked.has_word(node["verdict"]):
            stages = {stage: word for stage, word in node["stages"].items() if word}
            answer.nodes.append(
                {"run": run_id, "node": node["name"], **{name: node[name] for name in ("kind", "verdict", "simulated")}, "stages": stages}
            )
    for cause in report["causes"]:
        checks = [f"{finding['stage']} {finding['check']}" for finding in cause["findings"] if asked.has(finding)]
        if checks and asked.has_subject(cause["subject"]) and asked.has_word(cause["verdict"]):
            answer.causes.append({
                "run": run_id, **{name: cause[name] for name in ("subject", "kind", "name", "verdict", "convicted", "said", "simulated")},
                "checks": list(dict.fromkeys(checks)), "explains": len(cause["explains"]),
            })  # fmt: skip


def _verdicts(folder: pathlib.Path, asked: Filter) -> t.Iterator[PlainData]:
    """Yield the verdicts of a judgement as rows. Only the rows that are yielded are held."""
    try:
        with verdict_files.opened(folder) as lines:
            while together := verdicts_of(itertools.islice(lines, LINES_TOGETHER)):
                for verdict in together:
                    if asked.has_verdict(verdict):
                        yield _row(verdict)
    except (OSError, ValueError) as error:
        raise RunError(f"run {folder.name}: {verdict_files.path_in(folder).name} cannot be read: {error}") from error


def _row(verdict: Verdict) -> PlainData:
    fields = {name: getattr(verdict, name) for name in VERDICT}
    return {"node": node_of(verdict.subject.id), "subject": verdict.subject.id, "kind": verdict.subject.kind, **fields}
