# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the content of a run for the history, from its folder or from a judgement. The history can be rebuilt from the folders.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import importing, part_sheets
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import HistoryError, Store
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import integrity, journal, parts, verdict_files, versions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.journal import Line
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, Verdict, verdicts_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RUN_ID, Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats, judged_runs, model
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Judged

# Reason codes of evidence that was changed after it was written (records/integrity.py).
CHANGED = ("tampered", "raw_changed")
HEAD = ("accepted", "passed", "word", "why", "counts", "coverage", "created_at", "files")


def of_judged(of: Judged) -> importing.Content:
    """Return the content of a run that was just judged. Raise HistoryError if its evidence was changed after it was written."""
    measurements = list(of.judgement.deciding.values())
    changed = next((m for m in measurements if m.reason_code in CHANGED), None)
    if changed:
        raise HistoryError(f"run {of.run_id} is not what was written, and is left out of the history: {changed.reason}")
    digests = {file["path"]: file["sha256"] for file in of.report["files"]}
    journal_digest = next(digests[name] for name in (journal.NAME, journal.PLAIN_NAME) if name in digests)
    judged = importing.Judging(
        folder="" if of.folder.name == of.run_id else f"judged/{of.folder.name}",
        digest=next(digests[name] for name in verdict_files.NAMES if name in digests),
        judged_at=of.report["created_at"],
        accepted=of.judgement.accepted,
        word=of.report["word"],
        why=of.judgement.why,
        counts=of.judgement.counts,
        coverage=of.judgement.coverage,
        verdicts=of.judgement.verdicts,
    )
    run = Run(of.folder.parents[0 if of.folder.name == of.run_id else 2], of.run_id)
    return importing.Content(of.plan, journal_digest, measurements, [judged], functools.partial(_parts, run))


def of_folder(run: Run) -> importing.Content:
    """Return the content of a judged run from its folder. Raise RunError if the folder cannot be read or was changed."""
    plan = run.plan()
    try:
        evidence = integrity.gather(run, plan)
        if evidence.changed:
            raise HistoryError(evidence.changed[0])
        reports = [path.parent for path in [run.dir / "report.json", *sorted(run.dir.glob("judged/*/report.json"))] if path.is_file()]
        if not reports:
            raise HistoryError("it was not judged")
        if not plan.chained:  # the first versions wrote no digests of their reports
            reports = [folder for folder in reports if (folder / integrity.LISTED).is_file()]
        if not reports:
            judge = collection.playbook("judge")
            raise HistoryError(f"an older version wrote no {integrity.LISTED}; {judge} judges it again for the history")
        judgements = [_judgement(run.dir, folder, str(plan.mode)) for folder in reports]
        journal_digest = next(file["sha256"] for file in evidence.files if file["path"] == run.journal.path.name)
        deciding = _deciding(evidence.records, judgements[-1].verdicts)
        return importing.Content(plan, journal_digest, deciding, judgements, functools.partial(_parts, run))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise HistoryError(f"it cannot be read: {type(error).__name__}: {error}") from error


def _parts(run: Run) -> part_sheets.Listed:
    """Return what a journal lists of the parts of its nodes, nothing if it cannot be read. Measurements in memory do not have all of it."""
    try:
        return part_sheets.listed(run.journal.as_data(*parts.MARKS))
    except OSError:
        return {}


def _judgement(run: pathlib.Path, folder: pathlib.Path, mode: str) -> importing.Judging:
    where = folder.relative_to(run).as_posix()
    where = "" if where == "." else where
    if not judged_runs.is_as_written(folder):
        raise HistoryError(f"{where}/report.json is not what was written".lstrip("/"))
    head = formats.head(folder / "report.json", HEAD)
    accepted, word = model.outcome(mode, head)
    name, digest = next((file["path"], file["sha256"]) for file in head["files"] if file["path"] in verdict_files.NAMES)
    if integrity.digest(folder, name) != digest:
        raise HistoryError(f"{where}/{name} is not what was written".lstrip("/"))
    verdicts = _verdicts(folder)
    outcome = (accepted, word, head["why"], head["counts"], head["coverage"])
    return importing.Judging(where, digest, head["created_at"], *outcome, verdicts)


def _verdicts(folder: pathlib.Path) -> list[Verdict]:
    with verdict_files.opened(folder) as found:
        lines = list(found)
    try:
        return verdicts_of(lines)
    except ValueError as error:
        other_version = versions.problem_of_text(lines[0], "verdict/v1")
        if other_version:
            raise HistoryError(f"{verdict_files.path_in(folder).name}: {other_version}") from error
        raise


def _deciding(records: t.Iterable[Line], verdicts: t.Iterable[Verdict]) -> list[Measurement]:
    """Return the attempt of each check that was judged; of several with its number the one whose value was used."""
    judged = {v.key: v for v in verdicts}
    chosen: dict[Key, Measurement] = {}
    for m in records:
        if not isinstance(m, Measurement):
            continue
        key = m.key
        v = judged.get(key)
        if v is not None and v.attempt == m.attempt:
            metric = m.metrics.get(v.metric or "")
            value = metric.value if metric else None
            if key not in chosen or (v.value is not None and value == v.value):
                chosen[key] = m
    return list(chosen.values())


class Brought(t.NamedTuple):
    """The result of importing a results folder: the number of runs, the new ones, the number of values, and the runs that were left out,
    each with the reason."""

    runs: int
    new: list[str]
    metrics: int
    left_out: list[str]


def bring(store: Store, results_dir: str, say: t.Callable[[str], None] = lambda _line: None) -> Brought:
    """Import every judged run of a results folder, the oldest first. Only one run is in memory at a time."""
    names = sorted(path.parent.name for path in pathlib.Path(results_dir).glob("*/plan.json") if RUN_ID.match(path.parent.name))
    new, left_out, metrics = [], [], 0
    for name in names:
        try:
            content = of_folder(Run(results_dir, name))
        except RunError as error:
            left_out.append(f"run {name}: {error}")
            say(f"left out: run {name}: {error}")
            continue
        written = importing.write(store, content)
        metrics += written.metrics
        if written.judgements or written.metrics:
            new.append(name)
            say(f"run {name}: {written.metrics} numbers, {written.judgements} judgement{'s' if written.judgements != 1 else ''}")
    return Brought(len(names), new, metrics, left_out)
