# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks that a later round measures again: the rows of `next_round.csv`, which a hand-over wrote, found in the plan of the fleet.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import csv
import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning.interface import PlanError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key, ends_of, node_of, pair_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlanItem
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage

VARIABLE = "acceptance_open_checks"
COLUMNS = ("node", "stage", "check", "variant", "subject")


class OpenCheck(t.NamedTuple):
    """A check to measure again. `node` is one of the nodes that it is about, for a check whose subject no plan names."""

    node: str
    stage: str
    check: str
    variant: str
    subject: str

    @property
    def subjects(self) -> list[str]:
        """Return the subjects by which a plan may have it: its own, the node of a part or the nodes of a pair of ports, and the node."""
        whole = pair_of(*map(node_of, ends_of(self.subject))) if "|" in self.subject else node_of(self.subject)
        return [self.subject, whole, self.node]

    @property
    def words(self) -> str:
        """Return it for people."""
        return f"{self.stage} {self.check} of {self.subject}"


def read(path: str) -> list[OpenCheck]:
    """Return the rows of a file. Raise PlanError if it cannot be read, has other columns, or no row."""
    try:
        with open(pathlib.Path(path).expanduser(), encoding="utf-8", newline="") as source:
            reader = csv.DictReader(source)
            missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
            if missing:
                raise PlanError(f"{VARIABLE}: {path}: the column {missing[0]} is missing; expected next_round.csv of a hand-over")
            rows = [OpenCheck(*((row[column] or "").removeprefix("'") for column in COLUMNS)) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PlanError(f"{VARIABLE}: {path}: {getattr(error, 'strerror', None) or error}") from error
    if not rows:
        raise PlanError(f"{VARIABLE}: {path}: found no row, expected the checks that are measured again")
    return rows


def stages_of(rows: t.Iterable[OpenCheck]) -> list[str]:
    """Return the shipped stages that have these checks, with the one that lists the parts of nodes, in the order in which they run."""
    names = {row.stage for row in rows} | {registry.finding_facts().name}
    return [stage.name for stage in sorted(registry.shipped().values(), key=lambda stage: stage.place) if stage.name in names]


def chosen(items: t.Sequence[PlanItem], rows: t.Iterable[OpenCheck], stages: t.Sequence[Stage]) -> tuple[list[PlanItem], list[str]]:
    """Return the items of a plan that measure these checks, with what has to be measured together with them, and a sentence for each check
    that the plan does not have. The parts of each node that is measured are listed again: a change of them must be seen."""
    found: dict[tuple[str, str], list[PlanItem]] = collections.defaultdict(list)
    for item in items:
        found[item.stage, item.subject.id].append(item)
    keys: set[Key] = set()
    missing = []
    for row in rows:
        candidates = next((found[row.stage, name] for name in row.subjects if (row.stage, name) in found), None)
        if not candidates:
            missing.append(f"{row.words}: it is in no plan of this fleet")
            continue
        same = [item for item in candidates if item.check == row.check]
        exact = [item for item in same if item.variant == row.variant]
        keys.update(item.key for item in exact or same or candidates)
    measured = {key.stage for key in keys}
    for stage in (stage for stage in stages if stage.name in measured):
        keys |= stage.complete([item for item in items if item.stage == stage.name], frozenset(keys))
    beside = _beside(stages, [item for item in items if item.key in keys])
    keys |= {item.key for item in items if subjects.nodes_of(item.subject) <= beside.get(item.stage, frozenset())}
    return [item for item in items if item.key in keys], missing


def _beside(stages: t.Sequence[Stage], measured: t.Sequence[PlanItem]) -> dict[str, set[str]]:
    """Return {stage: nodes} of what measured stages bring along, of looks before and after a load, and of the lists of parts."""
    nodes: dict[str, set[str]] = collections.defaultdict(set)
    for item in measured:
        nodes[item.stage] |= subjects.nodes_of(item.subject)
    beside: dict[str, set[str]] = collections.defaultdict(set)
    for stage in stages:
        if stage.finds_facts:
            beside[stage.name] |= set().union(*nodes.values())
        for name in (*stage.before, *stage.after, *stage.last, stage.looks_after) if stage.name in nodes else ():
            beside[name] |= nodes[stage.name]
    return beside
