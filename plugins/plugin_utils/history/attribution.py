# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The attribution of a change: to the subject alone, to its node or port, or to everybody since a fact changed.

A change is attributed to the largest place most of whose subjects changed at the same time. It is attributed to a fact if most places
that got the fact's new value changed then, and hardly any others did.

Pure. This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import typing as t
from collections import defaultdict

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators.registry import LIBRARY_FACTS
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.series import EVERYBODY, Attribution, Facts

MOST = 0.6  # least part of a place's subjects that changed
NEARLY = 0.8  # least part of the subjects with a fact's new value that changed
EXACTLY = 0.9  # of all subjects that moved or got a fact's new value, the least part that did both
TOGETHER = 3  # runs within which changes count as simultaneous
# Facts that change with a repair or an exchange: earlier runs are those of another machine.
EXCHANGED = ("*serial*", "machine_id", "*uuid*", "*guid*")
REPAIRS = ("repaired*", *EXCHANGED)
EXPLAINING = ("*driver*", "*firmware*", *LIBRARY_FACTS, "vbios*", "bios*", "kernel*", "ofed*", "*version*", "image*")

Moved = tuple[int, frozenset[str]]  # number of the run, subjects


@dataclasses.dataclass(frozen=True)
class FactOnset:
    """A fact's new value, first seen in the run with that number."""

    at: int
    fact: str
    value: str


class FactHistory:
    """The changes of the facts of each place, in the order of the runs."""

    def __init__(self, facts: Facts, runs: t.Sequence[str]) -> None:
        self.facts, self.runs = facts, runs
        self.changes_of: dict[str, list[FactOnset]] = {}

    def place(self, name: str) -> list[FactOnset]:
        if name not in self.changes_of:
            self.changes_of[name] = list(self._changes(name))
        return self.changes_of[name]

    def _changes(self, name: str) -> t.Iterator[FactOnset]:
        earlier_values: dict[str, list[t.Any]] = defaultdict(list)
        known_facts: t.Mapping[str, t.Any] | None = None
        last: t.Mapping[str, t.Any] | None = None
        for at, run in enumerate(self.runs):
            sheet = self.facts.get(run, {}).get(name)
            if not sheet or sheet is last:
                continue
            last = sheet
            for fact in sorted(sheet) if known_facts is not None and sheet != known_facts else ():
                was_known = known_facts is not None and fact in known_facts
                if known_facts is None or sheet[fact] in earlier_values[fact]:
                    continue  # a fact that alternates between values was not exchanged each time
                if known_facts[fact] != sheet[fact] if was_known else fnmatch.fnmatchcase(fact, "repaired*"):
                    yield FactOnset(at, fact, str(sheet[fact]))
            for fact, value in sheet.items():
                if matches(fact, EXCHANGED) and value not in earlier_values[fact]:
                    earlier_values[fact].append(value)
            # A fact that one run could not read keeps its earlier value.
            known_facts = {**(known_facts or {}), **sheet}

    def repaired(self, names: t.Iterable[str]) -> int:
        """Return the number of the last run with a repair at one of these places, 0 if there was none."""
        return max((change.at for name in names for change in self.place(name) if matches(change.fact, REPAIRS)), default=0)


@functools.lru_cache(maxsize=4096)
def matches(fact: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(fact.lower(), pattern) for pattern in patterns)


@dataclasses.dataclass(frozen=True)
class ChangeCase:
    """A subject of one check: its places, and the number of the run in which it changed, None if it did not."""

    subject: str
    places: tuple[tuple[str, str], ...]
    onset: int | None


def attribute(cases: t.Sequence[ChangeCase], history: FactHistory, splits: t.Sequence[Moved] = ()) -> dict[str, Attribution]:
    """Return {subject: the attribution of its change} for the subjects that changed.

    `splits` are the parts of the fleet that stepped together: (number of the run, subjects).
    """
    changed = [case for case in cases if case.onset is not None]
    attributions = {case.subject: _to_own_place(case) for case in changed}
    if not changed:
        return attributions
    if len(changed) > 1:
        attributions |= _to_small_fleet(cases, changed) | _to_places(cases, changed) | _to_facts(cases, changed, history)
    attributions |= _to_facts_of_splits(cases, changed, history, splits)
    return _with_likely_causes(cases, changed, history, attributions)


def _to_small_fleet(cases: t.Sequence[ChangeCase], changed: t.Sequence[ChangeCase]) -> dict[str, Attribution]:
    """Attribute a change to everybody if all subjects changed together on more than one node. A small fleet has no run effect."""
    together = len(changed) == len(cases) and all(_together(changed[0], case) for case in changed)
    nodes = {name for case in cases for kind, name in case.places if kind == "node"}
    return {case.subject: Attribution(EVERYBODY) for case in changed} if together and len(nodes) > 1 else {}


def _getters(cases: t.Sequence[ChangeCase], history: FactHistory) -> dict[tuple[str, str], dict[str, int]]:
    """Return {(fact, new value): {subject: number of the run since which a place of the subject has it}}."""
    changed_at: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for case in cases:
        for name in _names(case):
            for change in history.place(name):
                if matches(change.fact, EXPLAINING):
                    changed_at[change.fact, change.value][case.subject] = change.at
    return changed_at


def _to_facts_of_splits(
    cases: t.Sequence[ChangeCase], changed: t.Sequence[ChangeCase], history: FactHistory, splits: t.Sequence[Moved]
) -> dict[str, Attribution]:
    """Attribute the change of subjects that moved with a part of the fleet to the fact that changed then for exactly that part. Not every
    subject of the part must have a change of its own, because the part as a whole shows it more clearly."""
    attributions: dict[str, Attribution] = {}
    changed_at = _getters(cases, history) if splits else {}
    for at, moved in splits:
        for (fact, value), since in sorted(changed_at.items()):
            changed_then = {subject for subject, run in since.items() if abs(run - at) <= 1}
            if len(changed_then & moved) < EXACTLY * len(changed_then | moved):
                continue
            for case in changed:
                if case.subject in moved and case.onset is not None and abs(case.onset - at) <= TOGETHER:
                    attributions.setdefault(case.subject, Attribution(EVERYBODY, "", fact, value, history.runs[at]))
    return attributions


def _with_likely_causes(
    cases: t.Sequence[ChangeCase], changed: t.Sequence[ChangeCase], history: FactHistory, attributions: dict[str, Attribution]
) -> dict[str, Attribution]:
    """Add to an attribution the fact that changed at the same time, unless other subjects that got its new value did not change."""
    completed, of_all_cases = dict(attributions), _getters(cases, history)
    for (fact, value), since in sorted(_getters(changed, history).items()):
        all_that_got = of_all_cases[fact, value]
        explained = [c for c in changed if c.subject in since and c.onset is not None and abs(c.onset - since[c.subject]) <= 1]
        if len(explained) < NEARLY * len(all_that_got):
            continue
        for case in explained:
            attribution = completed[case.subject]
            if attribution.kind != EVERYBODY and not attribution.fact:
                completed[case.subject] = dataclasses.replace(attribution, fact=fact, value=value, run=history.runs[since[case.subject]])
    return completed


def attribute_to_fleet(cases: t.Sequence[ChangeCase], onset: int, history: FactHistory) -> Attribution:
    """Return the fact that changed on most of the fleet in a run in which all of it moved."""
    nodes = {name for case in cases for kind, name in case.places if kind == "node"}
    counts: dict[tuple[str, str], int] = defaultdict(int)
    places = {name for case in cases for name in _names(case)}
    standing = {name for name in places if history.place(name)}
    for name in standing:
        for change in {
            (b.fact, b.value): b for b in history.place(name) if abs(b.at - onset) <= 1 and matches(b.fact, EXPLAINING)
        }.values():
            counts[change.fact, change.value] += 1
    if counts:
        (fact, value), count = max(counts.items(), key=lambda item: (item[1], item[0]))
        if 2 * count >= max(len(nodes), 1):
            return Attribution(EVERYBODY, "", fact, value, history.runs[onset])
    return Attribution(EVERYBODY, run=history.runs[onset])


def _names(case: ChangeCase) -> set[str]:
    return {case.subject, *(name for _kind, name in case.places)}


def _to_own_place(case: ChangeCase) -> Attribution:
    kind, name = case.places[0] if case.places else ("subject", case.subject)
    return Attribution(kind, name)


def _to_places(cases: t.Sequence[ChangeCase], changed: t.Sequence[ChangeCase]) -> dict[str, Attribution]:
    members: dict[tuple[str, str], int] = defaultdict(int)
    for case in cases:
        for place in case.places:
            members[place] += 1
    attributions: dict[str, Attribution] = {}
    for case in changed:
        best: tuple[int, int] | None = None
        for rank, place in enumerate(case.places):
            if members[place] < 2:
                continue
            alike = sum(place in neighbour.places and _together(case, neighbour) for neighbour in changed)
            if alike >= 2 and alike >= MOST * members[place] and (best is None or (alike, -rank) > best):
                best = (alike, -rank)
                attributions[case.subject] = Attribution(*place)
    return attributions


def _together(case: ChangeCase, neighbour: ChangeCase) -> bool:
    return case.onset is not None and neighbour.onset is not None and abs(case.onset - neighbour.onset) <= TOGETHER


def _to_facts(cases: t.Sequence[ChangeCase], changed: t.Sequence[ChangeCase], history: FactHistory) -> dict[str, Attribution]:
    """Attribute changes to the fact whose new value most of the changed subjects got at that time, if few others changed."""
    changed_at = _getters(cases, history)
    if not changed_at:
        return {}
    nodes = {case.subject: next((name for kind, name in case.places if kind == "node"), case.subject) for case in cases}
    attributions: dict[str, Attribution] = {}
    for (fact, value), since in sorted(changed_at.items()):
        explained = [c for c in changed if c.subject in since and c.onset is not None and abs(c.onset - since[c.subject]) <= TOGETHER]
        spread = {nodes[c.subject] for c in explained}
        unexplained = [c for c in changed if c.subject not in since]
        without = len(cases) - len(since)
        if len(spread) < 2 or len(explained) < NEARLY * len(since) or (without and len(unexplained) > (1 - NEARLY) * without):
            continue
        for case in explained:
            attributions.setdefault(case.subject, Attribution(EVERYBODY, "", fact, value, history.runs[since[case.subject]]))
    return attributions
