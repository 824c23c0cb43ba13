# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From a journal to a verdict: judge a run, write its report, say whether the fleet is accepted.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import pathlib
import time
import typing as t

from ansible.errors import AnsibleError
from ansible.template import Templar
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import comparison
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import (
    expectations,
    past,
    references,
    refused,
    unused_expectations,
    verdict,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.judgement import Judgement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry as planes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import removing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import inputs as of_today
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import planner as plan
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import integrity, parts, verdict_files, versions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.forked_worker import ForkedWorker
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Cause, JudgingInputs, Measurement, Plan
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.plain import plain
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import ComparisonRows, Report
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import files, model, terminal
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks import registry as sinks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks import telling
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Judged
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import network, registry


@contextlib.contextmanager
def _uncollected() -> t.Iterator[None]:
    """Switch the search for circular garbage off. Nothing that is made here is a circle, and the search among the millions of objects of a
    large run takes a third of its time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.freeze()  # and as old ones: nobody looks at once for circles among all that is new
            gc.unfreeze()
            gc.enable()


@_uncollected()
def judge(args: dict[str, t.Any], play: t.Any, loader: t.Any, task_vars: dict[str, t.Any], check: bool = False) -> dict[str, t.Any]:
    """Judge the run of this play, or an old one by its id with today's expectations. In check mode nothing is written. `lines` say it;
    `tell`, called when they are said, tells whoever wants to know, and returns the last lines."""
    planned = task_vars.get("acceptance_run")
    if planned and planned.get("run_id"):
        run = Run(planned["results_dir"], planned["run_id"])
        if planned.get("detached"):
            return _detached(run, list(run.plan().targets))
        written = run.plan()
        inputs = written.judging
    else:
        run = Run.open(str(args["results_dir"]), str(args["run_id"]))
        written = run.plan()
        inputs = _inputs_of_today(play, loader, task_vars, written)
    evidence = integrity.gather(run, written)
    records = evidence.records
    sound = [record for record in records if isinstance(record, Measurement)]
    stages = [registry.of(entry) for entry in written.stages]
    before = _Before(run, written, references.parse(inputs.references), inputs.rack, loader, task_vars)
    judgement = verdict.judge(
        written, records, expectations.of_run(inputs), inputs, stages=stages, earlier_runs=before.say, changed=evidence.changed,
        warnings=unused_expectations.warnings(written, sound, inputs), lending=planes.lending(),
        places=network.newest(run, list(registry.shipped().values()), sound) if any(stage.between for stage in stages) else None,
    )  # fmt: skip
    judgement.notes += evidence.notes + inputs.notes + telling.notes_of(run.dir)
    later = verdict_files.path_in(run.dir).exists()
    out = run.dir / "judged" / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) if later else run.dir
    with ForkedWorker(lambda: [_write_verdicts(judgement, None if check else out)], len(judgement.verdicts)) as verdicts:
        made: Report = model.build(written, judgement, _parts(run, judgement.causes))
        name = verdict_files.name_for(len(judgement.verdicts))
        evidence.files.insert(2, {"path": name, "bytes": None, "sha256": next(verdicts.parts())})
    made = {**made, **model.evidence(evidence.files)}
    paths: list[pathlib.Path] = []
    done = Judged(run.id, out, written, judgement, made)
    made["since"], notes = (None, before.notes) if before.notes else _since(done, loader, task_vars)
    if not check:
        paths, wrong = files.write(done, run.dir)
        notes += wrong
        if not evidence.changed:
            journal = next(file for file in evidence.files if file["path"] == run.journal.path.name)
            run.journal.mark_end(len(records), journal["bytes"] or 0)
    if planned and not check:
        run.mailbox.clear()
        run.release()
    word = made["word"]
    last = f"{word}, report: {_near(paths[0])}" if paths else f"{word}; check mode, nothing was written"
    run_level = bool(evidence.changed or (judgement.warnings and inputs.warn != "accept"))
    result = {
        "passed": judgement.passed,
        "accepted": judgement.accepted,
        "why": f"{word}: {judgement.why}",
        "last": last,
        "refused": refused.targets(written, judgement, inputs.warn, run_level, inputs.regression),
        "run_id": run.id,
        "counts": judgement.counts,
        "coverage": {k: v for k, v in judgement.coverage.items() if k not in ("unknown", "not_measured")},
        "report": [str(p) for p in paths],
    }

    def tell() -> list[terminal.Line]:
        return [*_noted([] if check else _tell(done, run, loader, task_vars)), (last, "green" if result["passed"] else "red")]

    return {**result, "lines": [*terminal.coloured(made), *_noted(notes)], "tell": tell}


def _write_verdicts(judgement: Judgement, folder: pathlib.Path | None) -> str:
    """A line for each, into a folder if anywhere; the SHA-256 of the file, or of the lines. All lines of thousands of nodes are never held
    at once."""
    encode = json.JSONEncoder(sort_keys=True).encode
    lines = (encode(verdict_of_check.as_dict()) + "\n" for verdict_of_check in judgement.verdicts)
    if folder:
        return verdict_files.write(folder, verdict_files.name_for(len(judgement.verdicts)), lines)
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode())
    return digest.hexdigest()


class _Before:
    """Asks the history, where there is one, what became of the numbers of a run; what goes wrong there is a note."""

    def __init__(
        self, run: Run, plan: Plan, begun: list[references.Reference], racks: dict[str, str], loader: t.Any, task_vars: dict[str, t.Any]
    ) -> None:
        self.run, self.plan, self.begun, self.racks, self.loader, self.task_vars = run, plan, begun, racks, loader, task_vars
        self.notes: list[str] = []

    def say(self, deciding: t.Mapping[Key, t.Any], numbers: t.Iterable[past.Number]) -> past.PastReport | None:
        try:
            requested = _history(self.loader, self.task_vars)
            if not requested:
                return None
            folder = self.run.dir.parent
            return comparison.with_earlier_runs(folder, self.plan, deciding, numbers, requested.options, self.begun, racks=self.racks)
        except (AnsibleError, RunError) as error:
            self.notes = [f"nothing was held against earlier runs: {error}"]
            return None


def _parts(run: Run, causes: t.Sequence[Cause]) -> parts.Parts:
    """Return the parts of the nodes with a cause as the run has seen them; nothing if its journal cannot be read."""
    nodes = {node_of(end) for cause in causes for end in cause["subject"].split("|")}
    try:
        return parts.of_records(run.journal.as_data(*parts.MARKS), nodes).parts if nodes else {}
    except OSError:
        return {}


def _since(done: Judged, loader: t.Any, task_vars: dict[str, t.Any]) -> tuple[ComparisonRows | None, list[str]]:
    """Return the differences since the last accepted run, for the report; and what went wrong when the history was asked, in words."""
    try:
        requested = _history(loader, task_vars)
        return (comparison.with_last_accepted(done, requested.options) if requested else None), []
    except (AnsibleError, RunError) as error:
        return None, [f"the report does not say what changed since the last accepted run: {error}"]


def _history(loader: t.Any, task_vars: dict[str, t.Any]) -> sinks.SinkRequest | None:
    """The history, where it was asked for."""
    return next((sink for sink in _asked(loader, task_vars) if sink.name == "history"), None)


def _asked(loader: t.Any, task_vars: dict[str, t.Any]) -> list[sinks.SinkRequest]:
    """The sinks that were asked for."""
    template = Templar(loader=loader, variables=task_vars).template
    given = {name: plain(template(task_vars[name]), name) for name in sinks.VARIABLES if task_vars.get(name)}
    return sinks.requested(given) if given else []


def _noted(notes: t.Iterable[str]) -> list[terminal.Line]:
    return [(f"note: {note}", "yellow") for note in notes]


def _tell(done: Judged, run: Run, loader: t.Any, task_vars: dict[str, t.Any]) -> list[str]:
    """The sinks that were asked for; what went wrong with them, in words."""
    try:
        chosen = sinks.chosen(_asked(loader, task_vars))
    except (AnsibleError, RunError) as error:
        return [f"no sink was called: {error}"]
    return telling.judged(chosen, done, run.dir)


def _near(path: pathlib.Path) -> str:
    """A path as short as it can be said from here."""
    return min(str(path), os.path.relpath(path), key=len)


def left_behind(task_vars: dict[str, t.Any]) -> t.Iterator[str]:
    """Waits for the removal of pods, for which no stage has waited; what is left of them, in words."""
    planned = task_vars.get("acceptance_run") or {}
    if not planned.get("run_id"):
        return
    folder = Run(planned["results_dir"], planned["run_id"]).removing
    if folder.is_dir():
        yield from removing.removed(folder)
        folder.rmdir()


def _detached(run: Run, targets: list[str]) -> dict[str, t.Any]:
    """A run whose pods work on without us is not judged, and so not accepted."""
    nodes = run.detached_nodes()
    run.mailbox.clear()
    why = (
        f"DETACHED: run {run.id} works on {nodes} nodes by itself and is not judged. "
        f"Look: {collection.playbook('status')} -e run_id={run.id}; collect and judge: {collection.playbook('resume')} -e run_id={run.id}; "
        f"give up: {collection.playbook('cleanup')} -e run_id={run.id}"
    )
    last = "DETACHED: nothing is accepted before it is judged"
    return {
        "passed": False, "accepted": False, "why": why, "last": last, "refused": targets, "run_id": run.id, "detached": nodes,
        "lines": [(why, "yellow")],
    }  # fmt: skip


def _inputs_of_today(play: t.Any, loader: t.Any, task_vars: dict[str, t.Any], written: Plan) -> JudgingInputs:
    """Expectations and waivers as the inventory has them now; hosts that left it keep those of the plan."""
    planner = plan.Planner(play, loader, task_vars)
    planner.hosts = [h for h in planner.hosts if h in written.targets]
    try:
        stages = [planner.interface(entry, "plan.json") for entry in written.stages]
    except RunError as error:
        raise RunError(f"{error}{versions.made_elsewhere(written.collection_version)}") from error
    today = of_today.judging_inputs(planner, planner.settings(stages))
    before = written.judging
    shift = len(today.sets)
    today.sets += before.sets
    today.leaf = {**before.leaf, **today.leaf}
    today.rack = {**before.rack, **today.rack}
    for target, number in before.of.items():
        today.of.setdefault(target, number + shift)
        if target in before.stack:
            today.stack.setdefault(target, before.stack[target])
        if target in before.stated:
            today.stated.setdefault(target, before.stated[target])
        if target in before.own_facts:
            today.own_facts.setdefault(target, before.own_facts[target])
        if target in before.required and target not in planner.hosts:
            today.required[target] = before.required[target]
    return today
