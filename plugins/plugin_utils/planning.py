# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From a play to a run that can start: plan.json, one todo per host, and the stages in order.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import expectations, measurement, plan, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.run import Run, write_atomically


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
        stages, _skipped = planner.stages(written["stages"])
        settings = planner.settings(stages)
    else:
        run = Run(results_dir, plan.new_run_id())
        written, settings = planner.build(run.id, args["stages"])
        written["judging"] = judging_inputs(planner, settings)
        run.make()
        run.claim(controller)
        write_atomically(run.dir / "plan.json", plan.dump(written))
        stages, _skipped = planner.stages(args["stages"])
    measurements, wrong = run.journal.read()
    todo = plan.remaining(written, measurements)
    for stage in stages:
        if hasattr(stage.between, "complete"):
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
    order = plan.phases([{"name": s.name, "role": s.role} for s in stages], {t_: todo[t_] for t_ in todo if t_ in here}, long)
    lines = plan.summary(written, todo) + [f"note: {note}" for note in notes + wrong]
    return {"run_id": run.id, "results_dir": results_dir, "stages": order}, lines


def judging_inputs(planner: plan.Planner, settings: dict[str, dict[str, t.Any]]) -> dict[str, t.Any]:
    """Everything a verdict depends on besides the measurements, as it is now: {"sets": [expectations], "of": {target: number of
    its set}, "waivers", "warn", "stack": {target: golden values and what drift is worth}, "notes"}."""
    resolver = expectations.Resolver()
    sets: list[expectations.Expectations] = []
    of: dict[str, int] = {}
    waivers: list[dict[str, t.Any]] = []
    stack: dict[str, dict[str, t.Any]] = {}
    for host, values in settings.items():
        layered = [(layer, planner.template(host, v)) for layer, v in planner.layers.of(host, "acceptance_expectations")]
        overlays, files = values["acceptance_expectation_overlays"] or (), values["acceptance_expectation_files"] or ()
        try:
            resolved = resolver.resolve(layered, overlays, files)
        except expectations.ExpectationError as error:
            raise plan.PlanError(f"{host}: {error}") from error
        if resolved not in sets:
            sets.append(resolved)
        of[host] = sets.index(resolved)
        for waiver in values["acceptance_waivers"] or ():
            scoped = {"subject": host, **waiver} if isinstance(waiver, dict) else waiver
            if scoped not in waivers:
                waivers.append(scoped)
        chosen = {name: values.get(f"stack_{name}") for name in ("golden", "ignore", "drift")}
        if any(chosen.values()):
            stack[host] = chosen
    verdict.check_waivers(waivers)
    return {
        "sets": [s.dump() for s in sets],
        "of": of,
        "waivers": waivers,
        "warn": next((v["acceptance_warn"] for v in settings.values()), "accept"),
        "stack": stack,
        "notes": sorted({line for s in sets for line in s.ignored}),
    }
