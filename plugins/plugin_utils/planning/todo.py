# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The remaining work of a plan, and how the stages run.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import typing as t

from ansible import context
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import boots, busy, loads, single_checks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.estimate import Remaining
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, PlainData, Plan, PlannedStage
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage

PATIENCE_S = 8.0


def remaining(
    plan: Plan, measurements: list[Measurement], stages: t.Sequence[Stage], announced: t.Collection[str] = (),
    unknown: t.Callable[[], t.Container[Key]] | None = None,
) -> Remaining:
    """Return the remaining work by target: {target: {stage: [{"check", "variant", "subject", "attempt"}]}}; with "refused"
    where the plan says why it cannot be measured.

    `measured` and `not_applicable` are kept, but for what its stage wants to measure again; the rest is repeated, a check whose members
    are not all there is too, and what a stage cannot repeat alone, and what was measured before a restart that was announced, now
    (`announced`, names of nodes or targets, "*" for all) or earlier. So is what was disturbed while it was measured, and a second look at
    a node that is worked again, or was since. Attempts are counted here and nowhere else.

    `unknown` returns the keys that the last judgement of the run called UNKNOWN: others kept their verdict beside busy processors. Without
    it every measurement beside busy processors is repeated.
    """
    measurements = sorted(measurements, key=lambda m: m.attempt)
    planned = {item.key for item in plan.items}
    keys_left = planned - _finished(planned, measurements) | _unsettled(planned, measurements, stages)
    keys_left |= _before_restart(plan, measurements, announced) | planned & _disturbed(measurements, unknown)
    for stage in stages:
        stage_items = [item for item in plan.items if item.stage == stage.name]
        keys_left |= stage.complete(stage_items, frozenset(keys_left))
    keys_left |= _looks(plan, measurements, stages, keys_left)
    attempts: dict[Key, int] = {}
    for m in measurements:
        attempts[m.key] = max(attempts.get(m.key, 0), m.attempt)
    todo: Remaining = {}
    for item in plan.items:
        key = item.key
        if key in keys_left:
            todo.setdefault(item.target, {}).setdefault(item.stage, []).append(item.todo(attempts.get(key, 0) + 1))
    return todo


def _before_restart(plan: Plan, measurements: list[Measurement], announced: t.Collection[str]) -> set[Key]:
    """Return the planned items whose last measurement is of before an announced restart of one of their nodes. What an earlier resume
    measured after the restart that it was told of is kept, also if the restart is announced again."""
    last: dict[Key, Measurement] = {}
    records: dict[Key, list[Measurement]] = {}
    for m in measurements:
        records.setdefault(m.key, []).append(m)
        last[m.key] = m if m.key not in last or m.attempt >= last[m.key].attempt else last[m.key]
    keys = {key._replace(subject=node_of(key.subject)) for key, _opinion in boots.Boots(records).stale(last)}
    for item in plan.items if announced else ():
        record = last.get(item.key)
        of_node = dict(boots.identities(record)) if record else {}
        names = [name for name in subjects.nodes_of(item.subject) if boots.is_named(name, announced)]
        if any(not of_node.get(name, {}).get("announced") for name in names):
            keys.add(item.key)
    return keys & {item.key for item in plan.items}


def _unsettled(planned: t.AbstractSet[Key], measurements: list[Measurement], stages: t.Sequence[Stage]) -> set[Key]:
    """Return the measured items that their stage wants to measure again."""
    keys: set[Key] = set()
    for stage in stages:
        stage_measurements = [m for m in measurements if m.stage == stage.name]
        finished = {m.key: m for m in stage_measurements if m.outcome in ("measured", "not_applicable")}
        keys |= stage.remeasure({key: m for key, m in finished.items() if key in planned}, stage_measurements)
    return keys


def _disturbed(measurements: t.Sequence[Measurement], unknown: t.Callable[[], t.Container[Key]] | None) -> set[Key]:
    """Return the checks, as a plan names them, whose last measurement is UNKNOWN by what went on beside it, and not by what it measured."""
    last = {m.key: m for m in measurements if m.outcome == "measured"}  # the attempts come in their order
    keys = {m.key._replace(subject=node_of(m.key.subject)) for m in last.values() if single_checks.is_doubted_by_window(m)}
    beside_others = {m.key._replace(subject=node_of(m.key.subject)) for m in last.values() if busy.words(m)}
    if unknown is not None and beside_others:
        judged_unknown = unknown()
        beside_others = {key for key in beside_others if key in judged_unknown}
    return keys | beside_others


def _looks(plan: Plan, measurements: list[Measurement], stages: t.Sequence[Stage], keys_left: t.AbstractSet[Key]) -> set[Key]:
    """Return the second looks at nodes on which a load is left, or that were worked after their last look."""
    after = {stage.name for stage in stages if stage.looks_after}
    if not after.intersection(item.stage for item in plan.items):
        return set()
    worked = loads.Loads(measurements, stages)
    loaded = {
        node for item in plan.items if item.key in keys_left and item.stage not in worked.looking
        for node in subjects.nodes_of(item.subject)
    }  # fmt: skip
    last = {m.key: m for m in measurements if m.stage in after and m.outcome in ("measured", "not_applicable")}
    looks = [item for item in plan.items if item.stage in after]
    return {
        item.key for item in looks
        if subjects.nodes_of(item.subject) & loaded or (item.key in last and worked.behind(last[item.key]) is not None)
    }  # fmt: skip


def _finished(planned: t.AbstractSet[Key], measurements: list[Measurement]) -> set[Key]:
    finished: set[Key] = set()
    parts: dict[Key, bool] = {}
    for m in measurements:
        key = m.key
        good = m.outcome in ("measured", "not_applicable")
        if key in planned:
            (finished.add if good else finished.discard)(key)
        else:
            parts[key] = good
    for m in measurements:
        key = m.key
        if key in planned and any(not parts.get(key._replace(subject=member), True) for member in m.subject.members):
            finished.discard(key)
    return finished


class PlayedStage(PlannedStage):
    """A stage as the play runs it."""

    tags: list[str]


class Phase(PlayedStage):
    """A phase of a stage over so many hosts. A long stage has the phases `start` and `collect`, another one `all`; `look` comes before
    them if the work depends on checkpoints. `grace` is how long a start waits for a quick end, in seconds."""

    phase: t.Literal["look", "start", "collect", "all"]
    hosts: int
    grace: t.NotRequired[float]


def phases(
    stages: list[PlayedStage], todo: t.Mapping[str, t.Collection[str]], long: t.Iterable[str], looked: t.Collection[str],
    continuing: t.Collection[str] = (),
) -> list[Phase]:
    """Return the phases of the stages. A stage of `long` over more hosts than forks is started everywhere and then collected, one of
    `continuing` always. `looked` are the stages that were cut off and whose work depends on their checkpoints."""
    forks = int(context.CLIARGS.get("forks") or 5)
    run: list[Phase] = []
    for stage in stages:
        hosts = sum(1 for stages_of in todo.values() if stage["name"] in stages_of)
        if not hosts:
            continue
        split = (stage["name"] in long and hosts > forks) or stage["name"] in continuing
        if stage["name"] in looked:
            run.append(_phase(stage, "look", hosts))
        if split:
            run.append(_phase(stage, "start", hosts, grace=grace(hosts, forks)))
        run.append(_phase(stage, "collect" if split else "all", hosts))
    return run


def _phase(stage: PlayedStage, phase: t.Literal["look", "start", "collect", "all"], hosts: int, **fields: float) -> Phase:
    return t.cast(Phase, {**stage, "phase": phase, "hosts": hosts, **fields})


def grace(hosts: int, forks: int) -> float:
    """Return the seconds for which a start waits for a quick end. What ends within them costs no second connection; else each round of
    forks has waited in vain. All rounds together wait about PATIENCE_S, and each long enough for a busy machine."""
    return min(3.0, max(1.0, PATIENCE_S / -(-hosts // forks)))


def task_of(stage: Phase, everywhere: str) -> PlainData:
    """Return the task of a play that runs a phase of a stage.

    `everywhere` is the file that is there if all hosts have finished the stage as soon as it was begun. There is nothing to collect then,
    which one host says for all: each costs the controller a process.
    """
    role = {"name": stage["role"], "rolespec_validate": False, "public": False}
    variables = {"acceptance_stage": stage}
    task: PlainData = {"name": stage["name"], "ansible.builtin.import_role": role, "vars": variables, "tags": stage["tags"]}
    if stage["phase"] == "collect":
        task["run_once"] = f"{{{{ {json.dumps(everywhere)} is ansible.builtin.exists }}}}"
    return task
