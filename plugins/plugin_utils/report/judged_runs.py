# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judged runs of a results folder, each by the report.json of its last judgement.

Nothing of a history is needed, and only the head of a report is parsed: that of thousands of nodes is a hundred megabytes.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import integrity, verdict_files
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, Verdict, verdicts_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RUN_ID, Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats, model

REPORT, DIGESTS = "report.json", integrity.LISTED
# Fields of report/v1 before the rows of its checks. A report of an older version may lack some.
HEAD = ("planned_at", "created_at", "mode", "passed", "accepted", "word", "why", "partial", "simulated", "counts", "causes", "nodes")


def run_ids(results_dir: str | os.PathLike[str]) -> list[str]:
    """Return the ids of all runs of a results folder, judged or not, the newest first. Raise RunError if it cannot be read."""
    try:
        names = os.listdir(results_dir)
    except OSError as error:
        raise RunError(f"results_dir {results_dir}: {error.strerror}; expected the folder of all runs (acceptance_results_dir)") from error
    folder = pathlib.Path(results_dir)
    return sorted((name for name in names if RUN_ID.match(name) and (folder / name / "plan.json").is_file()), reverse=True)


def folder_of(results_dir: str | os.PathLike[str], run_id: str) -> pathlib.Path | None:
    """Return the folder of a run's last judgement, None if it was never judged or if there is no such run."""
    if not RUN_ID.fullmatch(run_id):
        return None
    run = pathlib.Path(results_dir) / run_id
    reports = [path for path in (run / REPORT, *sorted(run.glob(f"judged/*/{REPORT}"))) if path.is_file()]
    return reports[-1].parent if reports else None


def is_as_written(folder: pathlib.Path) -> bool:
    """Return True if report.json has the digest that was written beside it. Raise OSError if none was written, as while a run is judged."""
    listed = (folder / DIGESTS).read_text(encoding="utf-8")
    return f"{integrity.digest(folder, REPORT)}  {REPORT}\n" in listed


def read(results_dir: str | os.PathLike[str], run_id: str, more: t.Collection[str] = ()) -> PlainData:
    """Return HEAD and `more` fields of the report of a run's last judgement, with `run`, `inventory` and `folder`.

    Raise RunError if the run was not judged, or if its report cannot be read or was changed after it was written."""
    folder = folder_of(results_dir, run_id)
    if folder is None:
        raise RunError(f"run {run_id}: it was not judged")
    try:
        if not is_as_written(folder):
            raise RunError(f"run {run_id}: {folder / REPORT} is not what was written (see {collection.playbook('verify')})")
        head = formats.head(folder / REPORT, (*HEAD, *more))
        plan = Run(results_dir, run_id).plan()
        mode = head.get("mode") or str(plan.mode)
        accepted, word = model.outcome(mode, head)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"run {run_id}: {folder / REPORT} cannot be read: {type(error).__name__}") from error
    return {
        **dict.fromkeys(("planned_at", "created_at", "why"), ""), "partial": False, "simulated": False, "counts": {}, "causes": [],
        "nodes": [], **head, "run": run_id, "inventory": plan.inventory or "", "folder": str(folder), "mode": mode,
        "accepted": accepted, "word": word,
    }  # fmt: skip


def verdicts(report: PlainData) -> t.Iterator[Verdict]:
    """Yield the verdicts of a judgement by what `read` gives with its `files`. Raise RunError if they are not as they were written."""
    folder = pathlib.Path(report["folder"])
    path = verdict_files.path_in(folder)
    written = [file["sha256"] for file in report.get("files") or () if file["path"] == path.name]
    try:
        if integrity.digest(folder, path.name) not in written:
            raise RunError(f"run {report['run']}: {path} is not what was written (see {collection.playbook('verify')})")
        with verdict_files.opened(folder) as lines:
            yield from verdicts_of(lines)
    except (OSError, ValueError) as error:
        raise RunError(f"run {report['run']}: {path.name} cannot be read: {error}") from error
