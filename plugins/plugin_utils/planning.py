# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From a play to a run that can start: plan.json, one todo per host, and the stages in order.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import datetime
import json
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, waivers
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import planner as plan
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import integrity, measurement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run, RunError, write_atomically


def prepare(
    args: dict[str, t.Any], play: t.Any, loader: t.Any, task_vars: dict[str, t.Any], controller: int
) -> tuple[dict[str, t.Any], list[str]]:
    """Make or reopen a run; returns what the stages need to know, and lines for people."""
    measurement.require()
    results_dir = str(args["results_dir"])
    planner = plan.Planner(play, loader, task_vars)
    notes: list[str] = []
    if args["mode"] == "resume":
        run = Run.open(results_dir, str(args["run_id"]))
        written = run.plan()
        run.claim(controller)
        notes = run.journal.repair()
        records, _notes, chain = run.journal.examine()
        broken = integrity.broken_chain(written, records, chain)
        if broken:
            run.clear_todo()
            raise RunError(f"run {run.id}: {broken}: it cannot be accepted any more; begin a new run")
        stages, _skipped = planner.stages(written["stages"])
        settings = planner.settings(stages)
        detach = detached(stages, settings)
    else:
        run = Run(results_dir, plan.new_run_id())
        written, settings = planner.build(run.id, args["stages"])
        written["judging"] = judging_inputs(planner, settings)
        written["judging"]["notes"] += without_effect(written, settings)
        notes = list(written["judging"]["notes"])
        stages, _skipped = planner.stages(args["stages"])
        detach = detached(stages, settings)
        run.make()
        run.claim(controller)
        write_atomically(run.dir / "plan.json", plan.dump(written))
    measurements, wrong = run.journal.read()
    todo = plan.remaining(written, measurements)
    for stage in stages:
        if stage.between and hasattr(stage.between, "complete"):
            stage.between.complete(written, todo)
    here = set(planner.hosts)
    run.clear_todo()
    (run.dir / "todo").mkdir(exist_ok=True)
    for target, stages_of in todo.items():
        if target in here:
            run.assign(target, {"stages": stages_of, "settings": settings[target]})
    names = [s.name for s in stages]
    totals = {
        name: len({item["subject"]["id"] for target, of in todo.items() if target in here for item in of.get(name, ())}) for name in names
    }
    (run.dir / "todo" / "totals").write_text(json.dumps(totals), encoding="utf-8")
    long = [n for n in names if any(settings[h].get(f"{n}_long") for h in here)]
    these = [{"name": s.name, "role": s.role, "tags": s.tags} for s in stages]
    order = plan.phases(these, {t_: todo[t_] for t_ in todo if t_ in here}, long)
    lines = plan.summary(written, todo) + [f"note: {note}" for note in notes + wrong]
    tasks = run.include([plan.task_of(stage) for stage in order])
    planned = {"run_id": run.id, "results_dir": results_dir, "tasks": tasks, "questions": planner.questions, "detached": detach}
    return planned, lines


def detached(stages: list[plan.Stage], settings: dict[str, dict[str, t.Any]]) -> bool:
    """Whether the pods are left to their clusters. PlanError where something of the run needs its controller."""
    if not any(values["acceptance_detach"] for values in settings.values()):
        return False
    behind_ssh = sorted(host for host, values in settings.items() if values["acceptance_plane"] != "kubernetes")
    if behind_ssh:
        raise plan.PlanError(
            f"acceptance_detach is for clusters: machines behind SSH keep a result until the deadline of its test only; "
            f"leave out {', '.join(behind_ssh[:10])}{' ...' if len(behind_ssh) > 10 else ''}, by --limit for example"
        )
    for stage in stages:
        if stage.between or stage.manifest:
            what = "runs between nodes" if stage.between else "is a manifest"
            raise plan.PlanError(
                f"acceptance_detach: stage {stage.name} {what} and needs its controller; leave it out, by --skip-tags for example"
            )
    for host, values in settings.items():
        if values["acceptance_kube_launcher"] != "pods":
            raise plan.PlanError(
                f"{host}: acceptance_detach: found acceptance_kube_launcher {values['acceptance_kube_launcher']!r}, expected 'pods'"
            )
        if values["acceptance_kube_keep"] != "never":
            raise plan.PlanError(
                f"{host}: acceptance_detach: pods that acceptance_kube_keep keeps would hold their devices until collected"
            )
        together = [stage.name for stage in stages if stage.name not in values["acceptance_kube_gpu_stages"]]
        if together and len(stages) > 1:
            raise plan.PlanError(
                f"acceptance_detach: the pods of stage {together[0]} ask for no devices, so nothing would keep them from running beside "
                f"those of the other stages; detach one of them at a time, --tags {together[0]} for example"
            )
    return True


def judging_inputs(planner: plan.Planner, settings: dict[str, dict[str, t.Any]]) -> dict[str, t.Any]:
    """Everything a verdict depends on besides the measurements, as it is now: {"sets": [expectations], "of": {target, or node
    of a cluster with settings of its own: number of its set}, "waivers", "warn", "stack": {target: golden values and what
    drift is worth}, "stated": {target: how many GPUs its machines have, and whether MIG is allowed}, "leaf": {node: the leaf
    switch it hangs on}, "notes"}."""
    resolver = expectations.Resolver()
    sets: list[expectations.Expectations] = []
    of: dict[str, int] = {}
    book = waivers.Book(datetime.date.today())
    stack: dict[str, dict[str, t.Any]] = {}
    stated: dict[str, dict[str, t.Any]] = {}
    leaf: dict[str, str] = {}
    notes: list[str] = []
    for host, values in settings.items():
        layered = [(layer, planner.template(host, v)) for layer, v in planner.layers.of(host, "acceptance_expectations")]
        resolved = _resolve(resolver, host, layered, values)
        if resolved not in sets:
            sets.append(resolved)
        of[host] = sets.index(resolved)
        days = values["acceptance_waiver_days"]
        book.take(values["acceptance_waivers"] or [], f"{host}: acceptance_waivers", host, days)
        for node, entry in _of_nodes(host, values, notes):
            resolved = _resolve(resolver, f"{host}: acceptance_node_vars", _and(layered, entry), values)
            if resolved not in sets:
                sets.append(resolved)
            of[node] = sets.index(resolved)
            book.take(entry.get("waivers") or [], f"{host}: acceptance_node_vars: waivers", node, days)
        on = values.get("rdma_leaf") or values.get("nccl_fabric_leaf") or {}
        leaf.update({str(node): str(name) for node, name in (on.items() if isinstance(on, dict) else [(host, on)]) if name})
        chosen = {name: values.get(f"stack_{name}") for name in ("golden", "ignore", "drift")}
        if any(chosen.values()):
            stack[host] = chosen
        stated[host] = {"gpu_count": values.get("acceptance_gpu_count"), "mig": values.get("acceptance_mig")}
    return {
        "sets": [s.dump() for s in sets],
        "of": of,
        "waivers": book.raw,
        "warn": next((v["acceptance_warn"] for v in settings.values()), "accept"),
        "stack": stack,
        "stated": stated,
        "leaf": leaf,
        "notes": sorted({line for s in sets for line in s.notes}) + notes,
    }


def without_effect(written: dict[str, t.Any], settings: dict[str, dict[str, t.Any]]) -> list[str]:
    """What speaks of nodes or stages that this run does not have: misspelt, more often than not."""
    subjects = {item["subject"]["id"] for item in written["items"]}
    strange = sorted(node for node in written["judging"]["of"] if node not in subjects and node not in settings)
    notes = []
    if strange:
        names = f"{', '.join(strange[:10])}{' ...' if len(strange) > 10 else ''}"
        notes.append(f"acceptance_node_vars: not among the nodes of this run: {names}")
    stages = {*plan.SHIPPED_STAGES, *(stage["name"] for stage in written["stages"])}
    for host, values in sorted(settings.items()):
        none = sorted(set(values.get("acceptance_kube_gpu_stages") or ()) - stages)
        if none and values.get("acceptance_plane") == "kubernetes":
            notes.append(f"{host}: acceptance_kube_gpu_stages: no stage of this run: {', '.join(none)}")
    return notes


def _resolve(
    resolver: expectations.Resolver, where: str, layered: expectations.Layered, values: dict[str, t.Any]
) -> expectations.Expectations:
    overlays, files = values["acceptance_expectation_overlays"] or (), values["acceptance_expectation_files"] or ()
    try:
        return resolver.resolve(layered, overlays, files)
    except expectations.ExpectationError as error:
        raise plan.PlanError(f"{where}: {error}") from error


def _and(layered: expectations.Layered, entry: dict[str, t.Any]) -> expectations.Layered:
    return [*layered, ("host", entry["expectations"])] if entry.get("expectations") else layered


def _of_nodes(host: str, values: dict[str, t.Any], notes: list[str]) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    """Nodes of a cluster that `acceptance_node_vars` speaks of, each with its entry; where two do, the later one. An entry that speaks
    of none is a note."""
    found: dict[str, dict[str, t.Any]] = {}
    for number, entry in enumerate(values.get("acceptance_node_vars") or ()):
        if (
            not isinstance(entry, dict)
            or not set(entry) <= {"names", "selector", "expectations", "waivers"}
            or ("names" in entry) == ("selector" in entry)
        ):
            raise plan.PlanError(
                f"{host}: acceptance_node_vars[{number}]: found {entry!r}, expected {{names or selector, expectations, waivers}}"
            )
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import inventory

        names = inventory.select(host, values, entry)
        if not names:
            notes.append(f"{host}: acceptance_node_vars[{number}]: no node is known that {entry.get('selector') or 'it names'} matches")
        found.update({f"{host}/{name}": entry for name in names})
    yield from found.items()
