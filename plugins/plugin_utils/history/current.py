# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet of today, from the history: the last known verdict of each node and check, as long as the node exists.

A node exists until a later complete run of the same targets does not have it. A partial run updates the checks that it has measured; the
others stay as the last complete run left them. Runs over other targets do not affect each other, and neither do simulated and real
targets: a simulated node never replaces a real one. A run of another inventory updates the targets that both have and removes no others. A
run that was planned after today has a wrong clock and is left out, because it would stay the latest until that day.

Whoever knows which nodes exist, as a console does, asks for the last verdict of each node and stage instead: there a run is often of a few
nodes and one stage, and says nothing of others.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import json
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import schema
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.schema import sa
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import Store
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import keys

if t.TYPE_CHECKING:
    import sqlalchemy

# The age in days up to which a run counts, and how many days in the future its plan may be.
DAYS, AHEAD_DAYS = 90, 1
# Rows that are fetched at once.
ROWS = 5000
_BADNESS = {verdict: -place for place, verdict in enumerate(WORST_FIRST)}

Target = tuple[str, bool]  # its name, whether it is simulated


class CurrentResult(t.NamedTuple):
    """The result of a check for a node with its parts, or for a pair: the worst verdict, with the number furthest from its floor among
    those that have this verdict. A tuple, because a large fleet has hundreds of thousands."""

    verdict: str
    value: float | None
    floor: float | None
    expected: float | None
    metric: str
    unit: str
    regressed: bool

    @property
    def badness(self) -> tuple[int, float]:
        return (_BADNESS[self.verdict], self.shortfall)

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
class CurrentNode:
    """A node, a group or a switch. `run` is the last run with it."""

    kind: str
    run: str
    judged_at: float
    simulated: bool
    checks: dict[Check, CurrentResult] = dataclasses.field(default_factory=dict)

    @property
    def verdict(self) -> str:
        return min((result.verdict for result in self.checks.values()), key=WORST_FIRST.index)


@dataclasses.dataclass
class CurrentRun:
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
    """The fleet of today. `runs` are the runs that contribute to it, the newest first. `pairs` is {(end, end): {check: result}}, with the
    names that the ends had in their run. `ahead` counts the runs that are left out because they were planned after today."""

    runs: list[CurrentRun] = dataclasses.field(default_factory=list)
    nodes: dict[str, CurrentNode] = dataclasses.field(default_factory=dict)
    pairs: dict[tuple[str, str], dict[Check, CurrentResult]] = dataclasses.field(default_factory=dict)
    ahead: int = 0


@dataclasses.dataclass
class DescribedFleet:
    """The fleet as runs describe it; simulated nodes are kept apart from real ones."""

    nodes: dict[tuple[str, bool], CurrentNode] = dataclasses.field(default_factory=dict)
    pairs: dict[tuple[tuple[str, str], bool], dict[Check, CurrentResult]] = dataclasses.field(default_factory=dict)


def version(store: Store) -> tuple[int, int]:
    """Return a value that changes with each new judgement."""
    judgement = schema.judgement
    with store.reading() as connection:
        row = connection.execute(sa.select(sa.func.count(), sa.func.max(judgement.c.id))).one()
    return int(row[0]), int(row[1] or 0)


def fleet(store: Store, now: datetime.datetime | None = None, exists: t.Callable[[str], bool] | None = None) -> Fleet:
    """Return the fleet of today. Each stage of a node that `exists` says is there is as the last complete run with both left it."""
    today = now or datetime.datetime.now(datetime.UTC)
    since, until = (today + datetime.timedelta(days=days) for days in (-DAYS, AHEAD_DAYS))
    result, described = Fleet(), DescribedFleet()
    with store.reading() as connection:
        checks = {row.id: Check(row.stage, row.check, row.variant) for row in connection.execute(sa.select(schema.check))}
        # {target: inventories of the complete runs with it}. Older runs do not count for these targets.
        closed: dict[Target, set[str]] = {}
        # {node that exists: stages of the complete runs with it}
        closed_stages: dict[Target, set[str]] = {}
        for row in _judged(connection, f"{since:%Y-%m-%dT%H:%M:%SZ}"):
            if row.planned_at > f"{until:%Y-%m-%dT%H:%M:%SZ}":
                result.ahead += 1
                continue
            run = CurrentRun(
                row.name, _epoch(row.judged_at), bool(row.accepted), bool(row.partial), bool(row.simulated), row.planned, row.measured,
                json.loads(row.counts),
            )  # fmt: skip
            placed = _placed(connection, row.id, "node")
            targets = {placed.target(node) for node in placed.nodes}
            silent = set(json.loads(row.scope)["targets"]) - {name for name, _simulated in targets}
            targets |= {(name, run.simulated) for name in silent}
            closed_targets = targets & closed.keys()
            followed = any(_same(row.inventory, inventory) for target in closed_targets for inventory in closed[target])
            for target in () if row.partial else targets:
                closed.setdefault(target, set()).add(row.inventory)
            is_past = followed or bool(closed_targets and closed_targets == targets)
            stages = set(json.loads(row.scope)["stages"])
            nodes = {node for node in map(placed.node, placed.nodes) if exists and exists(node[0])}
            behind = {node: frozenset(closed_stages.get(node, ())) for node in nodes}
            for node in () if row.partial else nodes:
                closed_stages.setdefault(node, set()).update(stages)
            if is_past and all(stages <= closed_of_node for closed_of_node in behind.values()):
                continue
            result.runs.append(run)
            # Most runs end above; their GPUs, devices and pairs, which are many times their nodes, are not read.
            placed = _placed(connection, row.id)
            of_today = _OfToday(placed, frozenset(targets if is_past else closed_targets), behind)
            _add(described, run, placed, _verdicts(connection, row.judgement_id), checks, of_today)
    # Sort real nodes after simulated ones, so that they replace those of the same name.
    result.nodes = {name: node for (name, _simulated), node in sorted(described.nodes.items(), key=lambda entry: -entry[0][1])}
    result.pairs = {ends: of for (ends, _simulated), of in sorted(described.pairs.items(), key=lambda entry: -entry[0][1])}
    return result


def _same(inventory: str, second: str) -> bool:
    """Return True if two runs may be of one inventory; older versions did not store the inventory."""
    return inventory == second or not (inventory and second)


def _judged(connection: sqlalchemy.Connection, since: str) -> list[t.Any]:
    """Return the runs with their last judgement, the newest first."""
    run, judgement = schema.run, schema.judgement
    last = sa.select(judgement.c.run_id, sa.func.max(judgement.c.folder).label("folder")).group_by(judgement.c.run_id).subquery()
    query = (
        sa.select(run.c.id, run.c.name, run.c.planned_at, run.c.partial, run.c.simulated, run.c.scope, run.c.inventory,
                  judgement.c.id.label("judgement_id"),
                  judgement.c.accepted, judgement.c.judged_at, judgement.c.counts, judgement.c.planned, judgement.c.measured)
        .join(judgement, judgement.c.run_id == run.c.id)
        .join(last, sa.and_(last.c.run_id == judgement.c.run_id, last.c.folder == judgement.c.folder))
        .where(run.c.planned_at >= since)
        .order_by(run.c.planned_at.desc(), run.c.name.desc())
    )  # fmt: skip
    return list(connection.execute(query))


class _Placed(t.NamedTuple):
    """The subjects of a run by their ids: the nodes, name and kind of each, and if it is simulated."""

    at: dict[int, list[int]]
    names: dict[int, str]
    kinds: dict[int, str]
    simulated: dict[int, bool]

    @property
    def nodes(self) -> list[int]:
        return [number for number, kind in self.kinds.items() if kind == "node"]

    def node(self, node: int) -> Target:
        return self.names[node], self.simulated[node]

    def target(self, node: int) -> Target:
        return keys.target_of(self.names[node]), self.simulated[node]


class _OfToday(t.NamedTuple):
    """Tells which results of a run hold today. `stages` has the nodes that are there, each with the stages that newer complete runs had;
    other nodes hold unless their target is `closed`."""

    placed: _Placed
    closed: frozenset[Target]
    stages: t.Mapping[Target, frozenset[str]]

    def has(self, node: int, check: Check) -> bool:
        stages = self.stages.get(self.placed.node(node))
        return self.placed.target(node) not in self.closed if stages is None else check.stage not in stages


def _placed(connection: sqlalchemy.Connection, run_id: int, kind: str = "") -> _Placed:
    """Return the subjects of a run, of one kind or of all."""
    placement, word, subject = schema.placement, schema.word, schema.subject
    query = sa.select(placement.c.subject_id, placement.c.node_id, word.c.text, subject.c.kind, subject.c.simulated)
    query = query.join(word, word.c.id == placement.c.name_id).join(subject, subject.c.id == placement.c.subject_id)
    query = query.where(placement.c.run_id == run_id, *([subject.c.kind == kind] if kind else []))
    places = _Placed({}, {}, {}, {})
    for number, node, name, subject_kind, simulated in _rows(connection, query):
        places.at.setdefault(number, []).append(node)
        places.names[number], places.kinds[number], places.simulated[number] = name, subject_kind, bool(simulated)
    return places


def _verdicts(connection: sqlalchemy.Connection, judgement_id: int) -> t.Iterable[t.Any]:
    verdict, basis = schema.verdict, schema.basis
    query = sa.select(
        verdict.c.subject_id, verdict.c.check_id, verdict.c.verdict, verdict.c.value, verdict.c.floor, verdict.c.expected,
        verdict.c.regressed, basis.c.metric, basis.c.unit,
    ).join(basis, basis.c.id == verdict.c.basis_id)  # fmt: skip
    return _rows(connection, query.where(verdict.c.judgement_id == judgement_id))


def _rows(connection: sqlalchemy.Connection, query: sqlalchemy.Select[t.Any]) -> t.Iterable[t.Any]:
    """Return the rows of a query, fetched thousands at a time: one by one they take twice as long."""
    return itertools.chain.from_iterable(connection.execute(query).partitions(ROWS))


def _add(
    described: DescribedFleet,
    run: CurrentRun,
    placed: _Placed,
    verdicts: t.Iterable[t.Any],
    checks: t.Mapping[int, Check],
    today: _OfToday,
) -> None:
    """Add the results of a run that hold today, for nodes, pairs and checks that no newer run has."""
    nodes: dict[tuple[str, bool], dict[Check, CurrentResult]] = {}
    pairs: dict[tuple[tuple[str, str], bool], dict[Check, CurrentResult]] = {}
    kinds: dict[tuple[str, bool], str] = {}
    for number, check_id, verdict, value, floor, expected, regressed, metric, unit in verdicts:
        result = CurrentResult(verdict, value, floor, expected, metric, unit, bool(regressed))
        check = checks[check_id]
        at, kind, simulated = placed.at.get(number, []), placed.kinds.get(number), placed.simulated.get(number, False)
        if kind == "pair":
            if not all(today.has(node, check) for node in at if node in placed.names):
                continue
            _worse(pairs.setdefault((keys.ends_of(placed.names[number]), simulated), {}), check, result)
            continue
        for node in at:
            if node not in placed.names or not today.has(node, check):
                continue
            whom = placed.names[node], simulated
            kinds[whom] = placed.kinds[node]
            _worse(nodes.setdefault(whom, {}), check, result)
    for whom, of_node in nodes.items():
        node_state = described.nodes.setdefault(whom, CurrentNode(kinds[whom], run.name, run.judged_at, whom[1], {}))
        node_state.checks = {**of_node, **node_state.checks}
    for pair, of_pair in pairs.items():
        described.pairs[pair] = {**of_pair, **described.pairs.get(pair, {})}


def _worse(into: dict[Check, CurrentResult], check: Check, result: CurrentResult) -> None:
    worst = into.get(check)
    if worst is None or result.badness > worst.badness:
        into[check] = result._replace(regressed=True) if worst and worst.regressed and not result.regressed else result
    elif result.regressed and not worst.regressed:
        into[check] = worst._replace(regressed=True)


def _epoch(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()
