# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the history says of the fleet of today: of each node and check the last that is known, as long as the node is there.

A node is there until a later whole run of the same targets does without it. A partial run says something new of what it has measured; the
rest is as the whole run before it left it. Runs over other targets do not concern each other.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import schema
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.schema import sa
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import Store
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST

if t.TYPE_CHECKING:
    import sqlalchemy

# Longer ago than this nothing is of today.
DAYS = 90


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a check says of a node, its parts with it, or of a pair: the worst verdict, and of those that have it the number that is the
    furthest from its floor."""

    verdict: str
    value: float | None
    floor: float | None
    expected: float | None
    metric: str
    unit: str
    regressed: bool

    @property
    def badness(self) -> tuple[int, float]:
        return (-WORST_FIRST.index(self.verdict), self.shortfall)

    @property
    def shortfall(self) -> float:
        if self.value is None or not self.floor:
            return float("-inf")
        short = (self.floor - self.value) / abs(self.floor)
        return -short if self.expected is not None and self.expected < self.floor else short  # of a time less is better


class Check(t.NamedTuple):
    stage: str
    check: str
    variant: str


@dataclasses.dataclass
class Node:
    """A node, a group or a switch, by its name; `run` is the last in which it was."""

    kind: str
    run: str
    judged_at: float
    simulated: bool
    checks: dict[Check, Seen] = dataclasses.field(default_factory=dict)

    @property
    def verdict(self) -> str:
        return min((seen.verdict for seen in self.checks.values()), key=WORST_FIRST.index)


@dataclasses.dataclass
class Run:
    name: str
    judged_at: float
    accepted: bool
    partial: bool
    simulated: bool
    planned: int
    measured: int
    counts: dict[str, int]


@dataclasses.dataclass
class Fleet:
    """`runs`: those that say something of today, the newest first. `pairs`: {(end, end): {check: what it says}}, each in its run's
    words."""

    runs: list[Run] = dataclasses.field(default_factory=list)
    nodes: dict[str, Node] = dataclasses.field(default_factory=dict)
    pairs: dict[tuple[str, str], dict[Check, Seen]] = dataclasses.field(default_factory=dict)


def version(store: Store) -> tuple[int, int]:
    """Another one whenever there is another judgement."""
    judgement = schema.judgement
    with store.reading() as connection:
        found = connection.execute(sa.select(sa.func.count(), sa.func.max(judgement.c.id))).one()
    return int(found[0]), int(found[1] or 0)


def fleet(store: Store, now: datetime.datetime | None = None) -> Fleet:
    since = (now or datetime.datetime.now(datetime.UTC)) - datetime.timedelta(days=DAYS)
    found = Fleet()
    with store.reading() as connection:
        checks = {row.id: Check(row.stage, row.check, row.variant) for row in connection.execute(sa.select(schema.check))}
        closed: set[str] = set()  # targets of which a whole run was seen: what is older says nothing of them
        for row in _judged(connection, since.strftime("%Y-%m-%dT%H:%M:%SZ")):
            targets = set(json.loads(row.scope)["targets"])
            if targets & closed:
                continue
            if not row.partial:
                closed |= targets
            run = Run(
                row.name, _epoch(row.judged_at), bool(row.accepted), bool(row.partial), bool(row.simulated), row.planned, row.measured,
                json.loads(row.counts),
            )  # fmt: skip
            found.runs.append(run)
            _add(found, run, connection, row.id, row.judgement_id, checks)
    return found


def _judged(connection: sqlalchemy.Connection, since: str) -> list[t.Any]:
    """Runs with the judgement that holds, the last of each; the newest first."""
    run, judgement = schema.run, schema.judgement
    last = sa.select(judgement.c.run_id, sa.func.max(judgement.c.folder).label("folder")).group_by(judgement.c.run_id).subquery()
    asked = (
        sa.select(run.c.id, run.c.name, run.c.partial, run.c.simulated, run.c.scope, judgement.c.id.label("judgement_id"),
                  judgement.c.accepted, judgement.c.judged_at, judgement.c.counts, judgement.c.planned, judgement.c.measured)
        .join(judgement, judgement.c.run_id == run.c.id)
        .join(last, sa.and_(last.c.run_id == judgement.c.run_id, last.c.folder == judgement.c.folder))
        .where(run.c.planned_at >= since)
        .order_by(run.c.planned_at.desc(), run.c.name.desc())
    )  # fmt: skip
    return list(connection.execute(asked))


def _add(
    found: Fleet, run: Run, connection: sqlalchemy.Connection, run_id: int, judgement_id: int, checks: t.Mapping[int, Check]
) -> None:
    """What a run says of nodes and checks of which no newer one has said anything."""
    placed, word, subject, verdict, basis = schema.placement, schema.word, schema.subject, schema.verdict, schema.basis
    places = sa.select(placed.c.subject_id, placed.c.node_id, word.c.text, subject.c.kind)
    places = places.join(word, word.c.id == placed.c.name_id).join(subject, subject.c.id == placed.c.subject_id)
    at: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    kinds: dict[int, str] = {}
    for row in connection.execute(places.where(placed.c.run_id == run_id)):
        at.setdefault(row[0], []).append(row[1])
        names[row[0]], kinds[row[0]] = row[2], row[3]
    asked = sa.select(
        verdict.c.subject_id, verdict.c.check_id, verdict.c.verdict, verdict.c.value, verdict.c.floor, verdict.c.expected,
        verdict.c.regressed, basis.c.metric, basis.c.unit,
    ).join(basis, basis.c.id == verdict.c.basis_id)  # fmt: skip
    new: dict[str, dict[Check, Seen]] = {}
    of: dict[str, str] = {}
    for one in connection.execute(asked.where(verdict.c.judgement_id == judgement_id)):
        seen = Seen(one.verdict, one.value, one.floor, one.expected, one.metric, one.unit, bool(one.regressed))
        check, number = checks[one[1]], one[0]
        if kinds.get(number) == "pair":
            ends = tuple(names[number].split("|", 1))
            if len(ends) == 2:
                _worse(found.pairs.setdefault((ends[0], ends[1]), {}), check, seen, run)
            continue
        for node in at.get(number, ()):
            name = names.get(node)
            if name is not None:
                of[name] = kinds[node]
                _worse(new.setdefault(name, {}), check, seen, run)
    for name, said in new.items():
        there = found.nodes.get(name)
        if there is None:
            found.nodes[name] = Node(of[name], run.name, run.judged_at, run.simulated, said)
        else:
            there.checks.update({check: seen for check, seen in said.items() if check not in there.checks})


def _worse(into: dict[Check, Seen], check: Check, seen: Seen, run: Run) -> None:
    there = into.get(check)
    if there is None or seen.badness > there.badness:
        into[check] = dataclasses.replace(seen, regressed=seen.regressed or bool(there and there.regressed))
    elif seen.regressed and not there.regressed:
        into[check] = dataclasses.replace(there, regressed=True)


def _epoch(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()
