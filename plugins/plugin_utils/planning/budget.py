# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chooses what a run measures in a limited time: the stages that are expected to find the most defects in a minute.

The expectation of a stage is the share of the defects in the field whose class it can show (stages/faults.py). A class that a chosen stage
shows already counts REPEATED of its share. Stages that others bring come and go with those.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import estimate
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.interface import PlanError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import faults
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage

VARIABLE = "acceptance_budget"
# What a second stage that shows a class of faults adds of its share: the first one finds most of them. This project's choice.
REPEATED = 0.2
_UNITS = {"d": 86400, "h": 3600, "min": 60, "m": 60, "s": 1, "": 1}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(d|h|min|m|s|)(?=\d|\s|$)\s*")


class Form(t.NamedTuple):
    """A form of a stage: the variables that make it, none for the whole stage, and about how many seconds it takes. `is_known`: the stage
    says how long it measures; without it only the time to reach the nodes is known."""

    variables: Variables
    seconds: float
    is_known: bool = True


class Choice(t.NamedTuple):
    """A choice that fits into the time: names of stages, variables that shorten some of them, stages left out, notes for people."""

    stages: list[str]
    variables: Variables
    left_out: list[str]
    notes: list[str]


def seconds_of(text: str) -> float | None:
    """Return the seconds that a budget such as 2h, 90min, 1h30m or 5400 says, None for no budget. Raise PlanError for another text."""
    rest = str(text or "").strip()
    if not rest:
        return None
    total = 0.0
    while rest:
        part = _PART.match(rest)
        if part is None:
            raise PlanError(f"{VARIABLE}: found {text!r}, expected a time such as 2h, 90min or 1h30min")
        total += float(part[1]) * _UNITS[part[2]]
        rest = rest[part.end() :]
    if total <= 0:
        raise PlanError(f"{VARIABLE}: found {text!r}, expected more than no time")
    return total


def forms(stage: Stage, target_of: t.Mapping[str, str], settings: t.Mapping[str, Variables], stated: t.Collection[str]) -> list[Form]:
    """Return the forms of a stage over some nodes, the whole stage first. `target_of` is {node: target}; variables that are `stated` for
    this run stay as they are."""
    of = {target: settings[target] for target in target_of.values()}
    shorter = stage.shorter(next(iter(of.values()))) if of else ()
    named = [{f"{stage.name}_{name}": value for name, value in each.items()} for each in shorter]
    made = []
    for variables in ({}, *(variables for variables in named if not any(name in stated for name in variables))):
        measuring = estimate.measuring(stage, target_of, {target: {**values, **variables} for target, values in of.items()})
        made.append(Form(variables, measuring + estimate.REACH_S * len(of), measuring > 0 or not of))
    return made


def by_class(stages: t.Sequence[Stage], found: t.Mapping[tuple[str, str], int]) -> dict[str, float]:
    """Return {class of faults: nodes on which it was found}. `found` is {(stage, check): nodes}; a check that can show several classes
    counts for each in equal parts."""
    nodes_of: dict[str, float] = collections.defaultdict(float)
    by_name = {stage.name: stage for stage in stages}
    for (name, check), count in found.items():
        classes = faults.shown(by_name.get(name), check)
        for fault in classes:
            nodes_of[fault] += count / len(classes)
    return nodes_of


def choose(
    stages: t.Sequence[Stage], forms: t.Mapping[str, t.Sequence[Form]], shares: t.Mapping[str, float], budget_s: float, text: str
) -> Choice:
    """Return what to measure in `budget_s` seconds. `forms` has the forms of each stage, the longest first; `shares` are those of the
    classes of faults. The stage that finds facts and stages of nobody knows what worth are taken before all others, in their order.
    Raise PlanError if not even the first of them fits."""
    parties = _parties(stages)
    left, taken, seen = budget_s, dict[str, Form](), set[str]()

    def fitting(party: t.Sequence[Stage]) -> tuple[float, Form] | None:
        """Return the seconds that a party costs with the longest form of its stage that fits, and this form."""
        others = sum(forms[stage.name][0].seconds for stage in party[1:])
        return next(((others + form.seconds, form) for form in forms[party[0].name] if others + form.seconds <= left), None)

    def worth(party: t.Sequence[Stage]) -> float:
        classes = {fault for stage in party for fault in stage.sees}
        return sum(shares.get(fault, 0.0) * (REPEATED if fault in seen else 1.0) for fault in classes)

    def take(party: t.Sequence[Stage], cost: float, form: Form) -> None:
        nonlocal left
        left -= cost
        taken.update({stage.name: forms[stage.name][0] for stage in party[1:]})
        taken[party[0].name] = form
        seen.update(fault for stage in party for fault in stage.sees)

    first = sorted((party for party in parties if party[0].finds_facts or not worth(party)), key=lambda party: not party[0].finds_facts)
    for party in first:
        if fit := fitting(party):
            take(party, *fit)
        elif party[0].finds_facts:
            needs = sum(forms[stage.name][-1].seconds for stage in party)
            raise PlanError(f"{VARIABLE}: found {text}, expected at least {needs:.0f} s: stage {party[0].name} comes first")
    rest = [party for party in parties if party[0].name not in taken and party not in first]
    while found := [(party, fit) for party in rest if (fit := fitting(party))]:
        party, fit = max(found, key=lambda each: worth(each[0]) / max(each[1][0], 1.0))
        take(party, *fit)
        rest.remove(party)
    left_out = [stage.name for stage in stages if stage.name not in taken]
    variables = {name: value for form in taken.values() for name, value in form.variables.items()}
    notes = [_shortened(name, forms[name][0], form, text) for name, form in taken.items() if form.variables]
    unknown = [name for name, form in taken.items() if not form.is_known]
    notes += [f"{VARIABLE} {text}: how long {' and '.join(unknown)} measures is not known, and comes on top"] if unknown else []
    notes += [_missing(party, forms, seen, text) for party in parties if party[0].name in left_out]
    return Choice([stage.name for stage in stages if stage.name in taken], variables, left_out, notes)


def _parties(stages: t.Sequence[Stage]) -> list[list[Stage]]:
    """Return each stage that no other brings, followed by those that it brings. One that several bring goes with the first."""
    by_name = {stage.name: stage for stage in stages}
    brought: dict[str, str] = {}
    for stage in stages:
        for name in (*stage.before, *stage.after, *stage.last):
            if name in by_name and not by_name[name].finds_facts:
                brought.setdefault(name, stage.name)
    return [[stage, *(by_name[name] for name, by in brought.items() if by == stage.name)] for stage in stages if stage.name not in brought]


def _shortened(stage: str, whole: Form, form: Form, text: str) -> str:
    said = ", ".join(f"{name}={value}" for name, value in form.variables.items())
    times = f"{estimate.duration(form.seconds)} in place of {estimate.duration(whole.seconds)}"
    return f"{VARIABLE} {text}: {stage} with {said}, about {times}"


def _missing(party: t.Sequence[Stage], forms: t.Mapping[str, t.Sequence[Form]], seen: t.Collection[str], text: str) -> str:
    names = " and ".join(stage.name for stage in party)
    cost = sum(forms[stage.name][0].seconds for stage in party)
    unseen = sorted({fault for stage in party for fault in stage.sees} - set(seen))
    words = "; ".join(faults.CLASSES[fault].words for fault in unseen if fault in faults.CLASSES)
    shows = f"no stage of this run shows: {words}" if words else "other stages of this run show the same classes of faults"
    return f"{VARIABLE} {text}: left out {names}, about {estimate.duration(cost)}; {shows}"
