# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a play to a run that can start: plan.json, one todo per host, and the stages in order.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import difflib
import os
import pathlib
import typing as t

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry as planes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.progress import is_counted
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import budget, estimate, inputs, kept, open_checks, todo
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.interface import Interface, PlanError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.planner import Planner, dump, tags_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import integrity, measurement, subjects, verdict_files, versions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import write_atomically
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, Plan, Todo, Variables, verdicts_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run, new_run_id
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks import base as of_sinks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks import registry as sinks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks import telling
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import LEVELS, stands_for_nodes

# Variables that choose what a run measures, taken from its first host.
OF_WHOLE_RUN = ("acceptance_stages", "acceptance_level", budget.VARIABLE, "acceptance_left_out", open_checks.VARIABLE)
# The stages of a run that is none.
NOTHING = collection.ROOT / "roles/common/tasks/nothing.yml"
# The arguments of the action `plan`.
Arguments = PlainData
# A run, its plan, its stages, the settings of each host, and notes for people.
Begun = tuple[Run, Plan, list[Interface], dict[str, Variables], list[str]]


def prepare(
    args: Arguments, play: t.Any, loader: t.Any, task_vars: Variables, controller: int, check: bool = False
) -> tuple[PlainData, list[str]]:
    """Make or reopen a run; returns what the stages need to know, and lines for people. In check mode nothing is written: the same
    plan, and no run."""
    measurement.require()
    planner = Planner(play, loader, task_vars)
    begin = _reopened if args["mode"] == "resume" else _made
    run, written, stages, settings, notes = begin(args, planner, controller, check)
    detach, sinks_of_run = detached(stages, settings), _sinks(settings)
    measurements, wrong = run.journal.read() if run.dir.exists() else ([], [])
    announced = restarted(args, written)
    remaining = todo.remaining(written, measurements, [stage.stage for stage in stages], announced, lambda: _unknown(run))
    if args["mode"] == "resume":
        _same_version(run, written, remaining, check)
    own_remaining = {target: remaining[target] for target in remaining if target in set(planner.hosts)}
    if check:
        word = "resumed" if args["mode"] == "resume" else "begun"
        lines = estimate.summary(written, remaining, f"check mode, nothing is measured and no run is {word}{_level(written)}")
        lines += [f"note: {note}" for note in notes + wrong + planner.questions]
        for target, of in own_remaining.items():
            measuring = [interface.stage for interface in stages if interface.name in of]
            lines += planes.of(settings[target], target).preflight(target, settings[target], measuring)
        diff = {
            "before": "",
            "after": estimate.listed(written, own_remaining),
            "before_header": "nothing",
            "after_header": "what would be measured",
        }
        empty = {"run_id": "", "results_dir": str(args["results_dir"]), "tasks": str(NOTHING), "questions": [], "detached": False}
        return {**empty, "changed": bool(own_remaining), "diff": diff}, lines
    cut_off = run.mailbox.cut_off()
    _assign(run, own_remaining, stages, settings, cut_off, dict.fromkeys(announced, observation.utc()), estimate.stage_seconds(written))
    long = [stage.name for stage in stages if any(settings[host].get(f"{stage.name}_long") for host in own_remaining)]
    looked = [stage.name for stage in stages if stage.name in cut_off and stage.stage.queries_checkpoints]
    played: list[todo.PlayedStage] = [{**stage.entry, "tags": tags_of(stage.name)} for stage in stages]
    lines = estimate.summary(written, remaining, f"run {run.id}{_level(written)}") + [f"note: {note}" for note in notes + wrong]
    begun = of_sinks.Begun(
        run.id, run.dir, written, sum(len(items) for of in remaining.values() for items in of.values()), args["mode"] == "resume"
    )
    lines += [f"note: {note}" for note in telling.begun(sinks.chosen(sinks_of_run), begun)]
    continuing = [stage.name for stage in stages if stage.stage.continues]
    outliving = [host for host in own_remaining if planes.of(settings[host], host).outlives_controller]
    lines += [
        f"note: {name} goes on if this controller is killed or its machine is lost, until its own time limit; Ctrl-C and "
        f"{collection.playbook('stop')} end it" for name in continuing if any(name in own_remaining[host] for host in outliving)
    ]  # fmt: skip
    phases = todo.phases(played, own_remaining, long, looked, continuing)
    tasks = run.mailbox.write_tasks([todo.task_of(stage, run.mailbox.finished_everywhere(stage["name"])) for stage in phases])
    planned = {
        "run_id": run.id, "results_dir": str(args["results_dir"]), "tasks": tasks, "questions": planner.questions, "detached": detach,
        "sinks": sinks.subscribed(sinks_of_run, "kept"),
    }  # fmt: skip
    return planned, lines


def _refuse_unwritable(folder: pathlib.Path) -> None:
    """Raise PlanError if the folder of the results cannot be written to, or be made."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        raise PlanError(f"acceptance_results_dir: found {folder}, expected a folder that may be written: {existing} is not one")


def _unknown(run: Run) -> set[Key]:
    """Return the keys that the last judgement of a run called UNKNOWN; none if it was not judged yet."""
    try:
        with verdict_files.opened(run.dir) as lines:
            return {verdict.key for verdict in verdicts_of(lines) if verdict.verdict == "UNKNOWN"}
    except (OSError, ValueError):
        return set()


def _level(plan: Plan) -> str:
    """Return the level of a run for people, empty if its stages were named."""
    return f", level {plan.level}" if plan.level else ""


def _rebooted(args: Arguments) -> list[str]:
    """Return the names in acceptance_rebooted, "*" for all."""
    given = args.get("rebooted")
    names = [word.strip() for word in given.split(",") if word.strip()] if isinstance(given, str) else given
    if not names or names == ["[]"]:  # Ansible may hand over an empty list as text
        return []
    if isinstance(names, bool) or (isinstance(names, list) and len(names) == 1 and str(names[0]).lower() in ("true", "yes", "false", "no")):
        return ["*"] if names is True or (isinstance(names, list) and str(names[0]).lower() in ("true", "yes")) else []
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise PlanError(f"acceptance_rebooted: found {given!r}, expected hosts of the run, or true for all")
    return sorted(set(names))


def restarted(args: Arguments, plan: Plan) -> list[str]:
    """Return the names of nodes or targets that were restarted on purpose since the run was begun, "*" for all; PlanError for a name that
    the run does not have."""
    names = _rebooted(args)
    known = {*plan.targets, *(node for item in plan.items for node in subjects.nodes_of(item.subject))}
    unknown = [name for name in names if name != "*" and name not in known]
    if unknown:
        near = difflib.get_close_matches(unknown[0], sorted(known), 3, 0.0)
        raise PlanError(f"acceptance_rebooted: found {unknown[0]!r}, expected hosts of run {plan.run_id}, such as {', '.join(near)}")
    return names


def _made(args: Arguments, planner: Planner, controller: int, check: bool) -> Begun:
    if _rebooted(args):
        raise PlanError(f"acceptance_rebooted: found {args['rebooted']!r}, expected nothing for a new run: it is for one that is resumed")
    run = Run.new(str(args["results_dir"]), str(args.get("run_id") or new_run_id()))
    level = args.get("level") or "standard"
    if level not in LEVELS:
        raise PlanError(f"acceptance_level: found {level!r}, expected one of {', '.join(LEVELS)}")
    planner.quick = "quick" in (args["mode"], level)
    planner.found = lambda url: _found(planner, str(args["results_dir"]), url)
    stages_named = args.get("stages")
    # Ansible before 2.19 makes an empty string of a variable without a value.
    written, stages, settings = planner.build(
        run.id, None if stages_named == "" else stages_named, level, str(args.get("open_checks") or "")
    )
    written.judging = inputs.judging_inputs(planner, settings)
    written.judging.notes += inputs.without_effect(written, settings)
    detached(stages, settings), _sinks(settings)  # refused before anything is written
    _of_whole_run(settings, OF_WHOLE_RUN)
    if check:
        _refuse_unwritable(pathlib.Path(str(args["results_dir"])))
    else:
        run.make()
        run.claim(controller)
        write_atomically(run.dir / "plan.json", dump(written))
    return run, written, stages, settings, list(written.judging.notes)


def _found(planner: Planner, results_dir: str, url: str) -> dict[tuple[str, str], int]:
    """Return {(stage, check): on how many nodes the runs of the past found something}; empty, with a note, without a history to read."""
    if not (url or (pathlib.Path(results_dir) / "history.db").is_file()):
        return {}
    # These imports take half a second, so a run without a time budget does not load them.
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import found, store

    try:
        with store.Store(store.url_of(results_dir, url)) as history:
            return found.nodes_by_check(history)
    except store.HistoryError as error:
        planner.notes.append(f"{budget.VARIABLE}: by published shares alone: {error}")
        return {}


def _reopened(args: Arguments, planner: Planner, controller: int, check: bool) -> Begun:
    """Open a run again to resume it. Its settings are those of its plan, not of today's inventory."""
    run = Run.open(str(args["results_dir"]), str(args["run_id"]))
    written = run.plan()
    restarted(args, written)
    left_out = [host for host in planner.left_out() if host in written.targets]
    if left_out:
        raise PlanError(f"--limit: it leaves out {', '.join(left_out[:5])} of run {run.id}; resume a run with all its hosts")
    if not check:
        run.claim(controller, bool(boolean(args.get("take_over") or False)))
    notes = [] if check else run.journal.repair()
    records, _notes, chain = run.journal.examine()
    broken = integrity.broken_chain(written, records, chain) or run.journal.lost_end()
    if broken:
        if not check:
            run.mailbox.clear()
        raise RunError(f"run {run.id}: {broken}: it cannot be accepted any more; begin a new run")
    stages, _skipped = planner.stages(written.stages)
    planner.quick = written.mode == "quick"
    settings, differs = kept.settings(written, planner, stages)
    return run, written, stages, settings, [*notes, *differs]


def _same_version(run: Run, written: Plan, remaining: estimate.Remaining, check: bool) -> None:
    """Raise RunError if another version of the collection began the run, and checks remain."""
    count = sum(len(items) for of in remaining.values() for items in of.values())
    reason = versions.why_not_resumed(written.collection_version, count)
    if reason:
        if not check:
            run.mailbox.clear()
            run.release()
        raise RunError(f"run {run.id}: {reason}")


def _assign(
    run: Run, remaining: estimate.Remaining, stages: list[Interface], settings: dict[str, Variables], begun: t.Collection[str] = (),
    announced: t.Mapping[str, str] | None = None, seconds: t.Mapping[str, float] | None = None,
) -> None:  # fmt: skip
    """Write the work of each target to a file of its own, the begun stages, and for progress the number of subjects of each stage and the
    `seconds` that it is expected to take."""
    run.mailbox.clear()
    run.mailbox.make()
    hidden = kept.secret(stages)
    by_number = _by_number(stages, remaining)
    for target, of in remaining.items():
        secrets = kept.secrets(settings[target], hidden)  # each worker has them from the inventory
        unset = {name: value for name, value in by_number.items() if settings[target].get(name) is None}
        todo_of: Todo = {"stages": of, "settings": {**kept.public(settings[target], hidden), **unset}, "secret": secrets}
        if announced:
            todo_of["announced"] = dict(announced)
        run.mailbox.assign(target, todo_of)
    run.mailbox.mark_cut_off(begun)
    run.mailbox.set_totals({stage.name: _counted(stage, remaining, settings) for stage in stages}, seconds)


def _by_number(stages: list[Interface], remaining: estimate.Remaining) -> Variables:
    """Return the variables that follow from the number of nodes that stages work on."""
    variables: Variables = {}
    for stage in stages:
        nodes = {item["subject"]["id"]: target for target, of in remaining.items() for item in of.get(stage.name, ())}
        variables.update({f"{stage.name}_{name}": value for name, value in stage.stage.by_number(nodes).items()})
    return variables


def _counted(stage: Interface, remaining: estimate.Remaining, settings: dict[str, Variables]) -> int:
    """Return how many subjects the progress of a stage counts."""
    return len(
        {
            item["subject"]["id"]
            for target, of in remaining.items()
            for item in of.get(stage.name, ())
            if is_counted(stage.stage, item["subject"], target, stands_for_nodes(settings[target]))
        }
    )


def _of_whole_run(settings: dict[str, Variables], names: t.Iterable[str]) -> None:
    """Raise PlanError if hosts have different values of a variable that the run has once: those of all hosts but one would be ignored.
    The values, which may be secret, are not shown."""
    for name in names:
        hosts = list(settings)
        differing = next((host for host in hosts if settings[host].get(name) != settings[hosts[0]].get(name)), None)
        if differing:
            raise PlanError(
                f"{name}: {hosts[0]} and {differing} have different values, expected one for the whole run; --limit chooses hosts"
            )


def _sinks(settings: dict[str, Variables]) -> list[sinks.SinkRequest]:
    """The sinks of the run. RunError for one that cannot be used."""
    _of_whole_run(settings, sinks.VARIABLES)
    requested = sinks.requested(next(iter(settings.values()), {}))
    sinks.chosen(requested)
    return requested


def detached(stages: list[Interface], settings: dict[str, Variables]) -> bool:
    """Return True if the pods are left to their clusters. Raises PlanError if a part of the run needs its controller."""
    if not any(values["acceptance_detach"] for values in settings.values()):
        return False
    for host, values in settings.items():
        reason = planes.of(values, host).why_not_detachable(host, values, [stage.stage for stage in stages])
        if reason:
            raise PlanError(reason if reason.startswith("acceptance_detach") else f"acceptance_detach: {reason}")
    return True
