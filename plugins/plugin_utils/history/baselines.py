# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The numbers of a run that is being judged against those of the runs before it: what the history knows, for `regression` to say.

Only runs before this one count, by their names, so a run that is resumed or judged again is never its own past. One check after the other
is read and looked at, as long as there is time.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import importing, regression, schema
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.attribution import EXPLAINING, REPAIRS, matches
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.identity import Identities, Who, who
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.schema import sa
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.series import Facts, Key, Kind, Point, Today
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import Store, chunks, clean
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands, entries, references
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import human
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.past import Change, Number, PastReport
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.peer_comparison import hardware
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.references import Reference
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.single_checks import primary
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import keys, subjects
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Facts as NodeFacts
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, Plan

if t.TYPE_CHECKING:
    import sqlalchemy

# Earlier runs that a number is held against, the latest of its subjects.
RUNS = 60
# Of more subjects than this a check is not looked at, and no check is begun after so long.
MOST, SECONDS = 20_000, 12.0
# Numbers of a sweep are kept packed, a sweep at a time.
MOST_SIZED = 1000
# What is told besides regressions.
TOLD = frozenset((*regression.ALARMS, Kind.HICCUP, Kind.IMPROVEMENT))


class Quantity(t.NamedTuple):
    """The key of comparable numbers; `size` is 0 for a number outside a sweep."""

    stage: str
    check: str
    variant: str
    metric: str
    unit: str
    size: int

    @property
    def said(self) -> str:
        return f"{self.stage} {self.check}" + (f" {self.metric} at {human(self.size)}" if self.size else "")


def compare(
    store: Store, plan: Plan, deciding: t.Mapping[keys.Key, Measurement], numbers: t.Iterable[Number],
    begun: t.Sequence[Reference] = (), seconds: float = SECONDS, *, racks: t.Mapping[str, str] | None = None,
) -> PastReport:  # fmt: skip
    """Return the change of each number of a run against its past. `begun` are the references that the inventory declares as new, `racks`
    the racks of the nodes that it states."""
    end = time.monotonic() + seconds
    found = PastReport()
    checks: dict[Quantity, list[Number]] = collections.defaultdict(list)
    for number in numbers:
        checks[Quantity(*number.key[:3], number.metric, number.unit, number.size or 0)].append(number)
    with store.reading() as connection:
        past = _Baselines(connection, plan, deciding, begun, racks or {})
        for quantity, of_check in sorted(checks.items()):
            name, most = quantity.said, MOST_SIZED if quantity.size else MOST
            if len(of_check) > most:
                found.left_out.append(f"{name} was measured on {len(of_check)} subjects: more than {most} are not held against their past")
            elif time.monotonic() > end:
                found.left_out.append(f"{name} was not held against its past: the history took longer than {seconds:g} s")
            else:
                past.look(quantity, of_check, found)
    for reference, anew in sorted(past.anew.items(), key=lambda item: dataclasses.astuple(item[0])):
        said = f"{reference.ticket} ({reference.reason})" if reference.reason != entries.UNSAID else reference.ticket
        found.left_out.append(
            f"a new reference since {reference.since} by {said}: {len(anew)} numbers are not held against what was before, "
            f"{reference.subject} {reference.stage} {reference.check}"
        )
    return found


class _Baselines:
    """The values of earlier runs for the subjects of one run."""

    def __init__(
        self, connection: sqlalchemy.Connection, plan: Plan, deciding: t.Mapping[keys.Key, Measurement],
        begun: t.Sequence[Reference], racks: t.Mapping[str, str],
    ) -> None:  # fmt: skip
        self.connection, self.plan, self.begun, self.racks = connection, plan, begun, racks
        self.anew: dict[Reference, set[t.Any]] = collections.defaultdict(set)  # numbers of which something was before
        measurements = [m for m in deciding.values() if m.started_at]
        identities = importing.identities_of(connection, Identities(measurements), measurements)
        subject = schema.subject
        there: dict[tuple[str, bool], int] = {}
        for some in chunks(sorted(set(identities.values())), importing.MANY):
            asked = sa.select(subject.c.id, subject.c.identity, subject.c.simulated).where(subject.c.identity.in_(some))
            there.update({(row.identity, bool(row.simulated)): row.id for row in connection.execute(asked)})
        self.ids: dict[Who, int] = {
            one: there[identity, one.simulated] for one, identity in identities.items() if (identity, one.simulated) in there
        }
        self.runs = self._runs(str(plan.run_id))
        self.quantities = self._quantities()
        self.facts = self._facts(measurements)

    def _runs(self, before: str) -> dict[int, tuple[str, str]]:
        """{run: its name, when it was planned}, the latest that had any of the subjects."""
        run, placed = schema.run, schema.placement
        seen: set[int] = set()
        for some in chunks(sorted(set(self.ids.values())), importing.MANY):
            asked = sa.select(placed.c.run_id).where(placed.c.subject_id.in_(some)).distinct()
            seen.update(self.connection.execute(asked).scalars())
        latest = sa.select(run.c.id, run.c.name, run.c.planned_at).where(run.c.name < before, ~run.c.pruned).order_by(run.c.name.desc())
        mine = [row for row in self.connection.execute(latest) if row.id in seen]
        return {row.id: (row.name, row.planned_at) for row in mine[:RUNS]}

    def _quantities(self) -> dict[tuple[str, ...], tuple[int, int]]:
        """{what a number is of: its check, and it}."""
        check, quantity = schema.check, schema.quantity
        asked = sa.select(check.c.id, quantity.c.id, check.c.stage, check.c.check, check.c.variant, quantity.c.metric, quantity.c.unit)
        return {tuple(row[2:]): (row[0], row[1]) for row in self.connection.execute(asked.join(check, check.c.id == quantity.c.check_id))}

    def _facts(self, measurements: t.Iterable[Measurement]) -> Facts:
        """Those that explain something, of each node by the name that it has today."""
        fact, sheet = schema.fact, schema.sheet
        nodes = {self.ids[one]: one.id for one in self.ids if one.kind == "node"}
        rows: list[t.Any] = []
        for some in chunks(sorted(nodes), importing.MANY):
            asked = sa.select(fact.c.run_id, fact.c.subject_id, fact.c.sheet_id)
            rows += self.connection.execute(asked.where(fact.c.run_id.in_(self.runs), fact.c.subject_id.in_(some)))
        sheets: dict[int, NodeFacts] = {}
        for some in chunks(sorted({row.sheet_id for row in rows}), importing.MANY):
            for row in self.connection.execute(sa.select(sheet.c.id, sheet.c.facts).where(sheet.c.id.in_(some))):
                sheets[row.id] = _telling(importing.unpacked(row.facts))
        found: dict[str, dict[str, t.Mapping[str, t.Any]]] = collections.defaultdict(dict)
        for row in rows:
            found[self.runs[row.run_id][0]][nodes[row.subject_id]] = sheets[row.sheet_id]
        for m in measurements if rows else ():
            if m.subject.kind == "node" and isinstance(m.context.get("facts"), dict):
                found[str(self.plan.run_id)][m.subject.id] = _telling(importing.lasting(m))
        return found

    def look(self, quantity: Quantity, numbers: t.Sequence[Number], found: PastReport) -> None:
        """One number of one check, of all subjects that have it."""
        stage, check, variant, metric, unit, size = quantity
        now = (str(self.plan.run_id), str(self.plan.created_at))
        today: dict[str, Today] = {}
        simulated: dict[str, bool] = {}
        ids: dict[int, str] = {}
        begun: dict[str, Reference] = {}
        for number in numbers:
            record = number.record
            subject, one = number.key.subject, who(record)
            said = quantity.said + ("" if size or primary(record) == metric else f" {metric}")
            places = tuple(_places(one, self.racks))
            today[subject] = Today(
                subject=subject, check=" ".join(map(str, quantity)), point=Point(*now, number.value), places=places,
                model=f"{one.kind} {hardware(record)}", better=number.better, unit=unit, label=said,
            )  # fmt: skip
            simulated[subject] = one.simulated
            new = references.since(self.begun, subject, stage, check)
            if new:
                begun[subject] = new
            if one in self.ids:
                ids[self.ids[one]] = subject
        past: dict[Key, list[Point]] = collections.defaultdict(list)
        for subject, point in self._points(quantity, ids):
            if subject in begun and point.time < begun[subject].since:
                self.anew[begun[subject]].add((subject, quantity))
            else:
                past[today[subject].key].append(point)
        for change in regression.changes(today.values(), past, self.facts):
            if change.subject:
                found.short += change.kind == Kind.SHORT
                found.compared += change.kind not in (Kind.SHORT, Kind.UNUSABLE)
            name = f"{metric} at {human(size)}" if size else metric
            if change.kind in TOLD:
                marked = simulated[change.subject or change.members[0]]
                reason = change.sentence.removeprefix(f"{stage} {check} ")
                sentence = f"{subjects.spoken(change.subject)} {change.sentence}" if change.subject else change.sentence
                sentence += " (simulated)" if marked else ""
                is_one = bool(change.subject) and change.alarm
                found.changes.append(
                    Change(str(change.kind), change.subject, stage, check, variant, name, marked, sentence, reason, is_one)
                )

    def _points(self, of: Quantity, ids: t.Mapping[int, str]) -> t.Iterator[tuple[str, Point]]:
        wanted = tuple(map(clean, of[:5]))
        read, there = (self._sized, self._swept(wanted)) if of.size else (self._plain, self.quantities.get(wanted, (0, 0))[1])
        for some in chunks(sorted(ids) if there else [], importing.MANY):
            for run, subject, value in read(of, there, some):
                yield ids[subject], Point(*self.runs[run], value)

    def _swept(self, wanted: tuple[str, ...]) -> int:
        """The check whose sweeps may have it; none where its own number of this name has another unit, for a sweep is kept without."""
        units = {one[4] for one in self.quantities if one[:4] == wanted[:4]}
        check = next((ids[0] for one, ids in self.quantities.items() if one[:3] == wanted[:3]), 0)
        return check if not units or wanted[4] in units else 0

    def _plain(self, _of: Quantity, quantity: int, of: t.Sequence[int]) -> t.Iterable[t.Any]:
        metric = schema.metric
        asked = sa.select(metric.c.run_id, metric.c.subject_id, metric.c.value)
        mine = metric.c.run_id.in_(self.runs), metric.c.subject_id.in_(of), metric.c.quantity_id == quantity
        return self.connection.execute(asked.where(*mine))

    def _sized(self, of: Quantity, check: int, subjects_of: t.Sequence[int]) -> t.Iterator[tuple[int, int, float]]:
        """Return the worst row of each size, as the verdict engine does."""
        sweep = schema.sweep
        asked = sa.select(sweep.c.run_id, sweep.c.subject_id, sweep.c["rows"])
        mine = sweep.c.run_id.in_(self.runs), sweep.c.subject_id.in_(subjects_of), sweep.c.check_id == check
        for run, subject, packed in self.connection.execute(asked.where(*mine)):
            with contextlib.suppress(bands.Unusable):
                found = bands.of_sweep(importing.unpacked(packed), of.metric, of.size or 0, of.unit)
                if found:
                    yield run, subject, found.value


def _telling(facts: NodeFacts) -> NodeFacts:
    """Return the facts that explain a change. Which GPUs a node has explains none: a new GPU, known by its UUID, repairs no other."""
    return {name: value for name, value in facts.items() if name != "gpu_serials" and matches(name, EXPLAINING + REPAIRS)}


def _places(one: Who, racks: t.Mapping[str, str]) -> t.Iterator[tuple[str, str]]:
    """Return the places of a subject, from itself outwards."""
    words = {"nic": "port", "pair": "path"}
    yield words.get(one.kind, one.kind), one.id
    ends = keys.ends_of(one.id) if one.kind == "pair" else (one.id,) if one.kind in ("gpu", "nic") else ()
    if one.kind == "pair":
        yield from (("port", end) for end in ends if keys.kind_of(end) == "nic")
    nodes = dict.fromkeys(keys.node_of(end) for end in ends)
    yield from (("node", node) for node in nodes)
    standing = (one.id,) if one.kind == "node" else nodes
    yield from dict.fromkeys(("rack", racks[node]) for node in standing if node in racks)
