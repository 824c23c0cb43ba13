# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares the numbers of a run that is being judged with those of earlier runs in the history, by `regression`.

Earlier runs are those with a smaller name, so a run that is resumed or judged again is never its own past. One check after the other is
read and compared until the time is up.

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
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.series import ChangeKind, Facts, Key, Point, Today
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

# The most earlier runs with which a number is compared, the latest ones.
RUNS = 60
# A check with more subjects is not compared, and no comparison starts after so many seconds.
MOST, SECONDS = 20_000, 12.0
# The same for a number of a sweep: sweeps are stored packed and must be unpacked one by one.
MOST_SIZED = 1000
# Kinds of changes that are reported: regressions and two more.
TOLD = frozenset((*regression.ALARMS, ChangeKind.HICCUP, ChangeKind.IMPROVEMENT))


class PastQuantity(t.NamedTuple):
    """The key of comparable numbers; `size` is 0 for a number outside a sweep."""

    stage: str
    check: str
    variant: str
    metric: str
    unit: str
    size: int

    @property
    def label(self) -> str:
        return f"{self.stage} {self.check}" + (f" {self.metric} at {human(self.size)}" if self.size else "")


def compare(
    store: Store, plan: Plan, deciding: t.Mapping[keys.Key, Measurement], numbers: t.Iterable[Number],
    begun: t.Sequence[Reference] = (), seconds: float = SECONDS, *, racks: t.Mapping[str, str] | None = None,
) -> PastReport:  # fmt: skip
    """Return the change of each number of a run against its past. `begun` are the references that the inventory declares as new, `racks`
    the racks of the nodes that it states."""
    end = time.monotonic() + seconds
    report = PastReport()
    checks: dict[PastQuantity, list[Number]] = collections.defaultdict(list)
    for number in numbers:
        checks[PastQuantity(*number.key[:3], number.metric, number.unit, number.size or 0)].append(number)
    with store.reading() as connection:
        past = _Baselines(connection, plan, deciding, begun, racks or {})
        for quantity, of_check in sorted(checks.items()):
            name, max_subjects = quantity.label, MOST_SIZED if quantity.size else MOST
            if len(of_check) > max_subjects:
                report.left_out.append(
                    f"{name} was measured on {len(of_check)} subjects: more than {max_subjects} are not held against their past"
                )
            elif time.monotonic() > end:
                report.left_out.append(f"{name} was not held against its past: the history took longer than {seconds:g} s")
            else:
                past.look(quantity, of_check, report)
    for reference, anew in sorted(past.anew.items(), key=lambda item: dataclasses.astuple(item[0])):
        author = f"{reference.ticket} ({reference.reason})" if reference.reason != entries.UNSAID else reference.ticket
        report.left_out.append(
            f"a new reference since {reference.since} by {author}: {len(anew)} numbers are not held against what was before, "
            f"{reference.subject} {reference.stage} {reference.check}"
        )
    return report


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
        row_ids: dict[tuple[str, bool], int] = {}
        for identities_chunk in chunks(sorted(set(identities.values())), importing.MANY):
            query = sa.select(subject.c.id, subject.c.identity, subject.c.simulated).where(subject.c.identity.in_(identities_chunk))
            row_ids.update({(row.identity, bool(row.simulated)): row.id for row in connection.execute(query)})
        self.ids: dict[Who, int] = {
            known_subject: row_ids[identity, known_subject.simulated]
            for known_subject, identity in identities.items()
            if (identity, known_subject.simulated) in row_ids
        }
        self.runs = self._runs(str(plan.run_id))
        self.quantities = self._quantities()
        self.facts = self._facts(measurements)

    def _runs(self, before_run: str) -> dict[int, tuple[str, str]]:
        """Return {run id: (name, time of the plan)} of the latest RUNS runs that had any of the subjects."""
        run, placed = schema.run, schema.placement
        run_ids: set[int] = set()
        for ids in chunks(sorted(set(self.ids.values())), importing.MANY):
            query = sa.select(placed.c.run_id).where(placed.c.subject_id.in_(ids)).distinct()
            run_ids.update(self.connection.execute(query).scalars())
        latest = sa.select(run.c.id, run.c.name, run.c.planned_at).where(run.c.name < before_run, ~run.c.pruned).order_by(run.c.name.desc())
        rows = [row for row in self.connection.execute(latest) if row.id in run_ids]
        return {row.id: (row.name, row.planned_at) for row in rows[:RUNS]}

    def _quantities(self) -> dict[tuple[str, ...], tuple[int, int]]:
        """Return {(stage, check, variant, metric, unit): (check id, quantity id)}."""
        check, quantity = schema.check, schema.quantity
        query = sa.select(check.c.id, quantity.c.id, check.c.stage, check.c.check, check.c.variant, quantity.c.metric, quantity.c.unit)
        return {tuple(row[2:]): (row[0], row[1]) for row in self.connection.execute(query.join(check, check.c.id == quantity.c.check_id))}

    def _facts(self, measurements: t.Iterable[Measurement]) -> Facts:
        """Return the explaining facts of each node in each run, by the node's name of today."""
        fact, sheet = schema.fact, schema.sheet
        nodes = {self.ids[subject_key]: subject_key.id for subject_key in self.ids if subject_key.kind == "node"}
        rows: list[t.Any] = []
        for ids in chunks(sorted(nodes), importing.MANY):
            query = sa.select(fact.c.run_id, fact.c.subject_id, fact.c.sheet_id)
            rows += self.connection.execute(query.where(fact.c.run_id.in_(self.runs), fact.c.subject_id.in_(ids)))
        sheets: dict[int, NodeFacts] = {}
        for ids in chunks(sorted({row.sheet_id for row in rows}), importing.MANY):
            for row in self.connection.execute(sa.select(sheet.c.id, sheet.c.facts).where(sheet.c.id.in_(ids))):
                sheets[row.id] = _telling(importing.unpacked(row.facts))
        facts_by_run: dict[str, dict[str, t.Mapping[str, t.Any]]] = collections.defaultdict(dict)
        for row in rows:
            facts_by_run[self.runs[row.run_id][0]][nodes[row.subject_id]] = sheets[row.sheet_id]
        for m in measurements if rows else ():
            if m.subject.kind == "node" and isinstance(m.context.get("facts"), dict):
                facts_by_run[str(self.plan.run_id)][m.subject.id] = _telling(importing.lasting(m))
        return facts_by_run

    def look(self, quantity: PastQuantity, numbers: t.Sequence[Number], report: PastReport) -> None:
        """Compare one quantity of all its subjects with earlier runs, and add the changes to `report`."""
        stage, check, variant, metric, unit, size = quantity
        run_and_time = (str(self.plan.run_id), str(self.plan.created_at))
        today: dict[str, Today] = {}
        simulated: dict[str, bool] = {}
        ids: dict[int, str] = {}
        begun: dict[str, Reference] = {}
        for number in numbers:
            record = number.record
            subject, subject_key = number.key.subject, who(record)
            label = quantity.label + ("" if size or primary(record) == metric else f" {metric}")
            places = tuple(_places(subject_key, self.racks))
            today[subject] = Today(
                subject=subject, check=" ".join(map(str, quantity)), point=Point(*run_and_time, number.value), places=places,
                model=f"{subject_key.kind} {hardware(record)}", better=number.better, unit=unit, label=label,
            )  # fmt: skip
            simulated[subject] = subject_key.simulated
            new = references.since(self.begun, subject, stage, check)
            if new:
                begun[subject] = new
            if subject_key in self.ids:
                ids[self.ids[subject_key]] = subject
        past: dict[Key, list[Point]] = collections.defaultdict(list)
        for subject, point in self._points(quantity, ids):
            if subject in begun and point.time < begun[subject].since:
                self.anew[begun[subject]].add((subject, quantity))
            else:
                past[today[subject].key].append(point)
        for change in regression.changes(today.values(), past, self.facts):
            if change.subject:
                report.short += change.kind == ChangeKind.SHORT
                report.compared += change.kind not in (ChangeKind.SHORT, ChangeKind.UNUSABLE)
            name = f"{metric} at {human(size)}" if size else metric
            if change.kind in TOLD:
                marked = simulated[change.subject or change.members[0]]
                reason = change.sentence.removeprefix(f"{stage} {check} ")
                sentence = f"{subjects.spoken(change.subject)} {change.sentence}" if change.subject else change.sentence
                sentence += " (simulated)" if marked else ""
                is_one = bool(change.subject) and change.alarm
                report.changes.append(
                    Change(str(change.kind), change.subject, stage, check, variant, name, marked, sentence, reason, is_one)
                )

    def _points(self, quantity: PastQuantity, ids: t.Mapping[int, str]) -> t.Iterator[tuple[str, Point]]:
        key = tuple(map(clean, quantity[:5]))
        read, quantity_id = (self._sized, self._swept(key)) if quantity.size else (self._plain, self.quantities.get(key, (0, 0))[1])
        for ids_chunk in chunks(sorted(ids) if quantity_id else [], importing.MANY):
            for run, subject, value in read(quantity, quantity_id, ids_chunk):
                yield ids[subject], Point(*self.runs[run], value)

    def _swept(self, key: tuple[str, ...]) -> int:
        """Return the id of the check whose sweeps may have a number, 0 for none. Sweeps are stored without units, so a check whose own
        number of this name has another unit does not count."""
        units = {quantity_key[4] for quantity_key in self.quantities if quantity_key[:4] == key[:4]}
        check = next((ids[0] for quantity_key, ids in self.quantities.items() if quantity_key[:3] == key[:3]), 0)
        return check if not units or key[4] in units else 0

    def _plain(self, _of: PastQuantity, quantity: int, of: t.Sequence[int]) -> t.Iterable[t.Any]:
        metric = schema.metric
        query = sa.select(metric.c.run_id, metric.c.subject_id, metric.c.value)
        conditions = metric.c.run_id.in_(self.runs), metric.c.subject_id.in_(of), metric.c.quantity_id == quantity
        return self.connection.execute(query.where(*conditions))

    def _sized(self, quantity: PastQuantity, check: int, subjects_of: t.Sequence[int]) -> t.Iterator[tuple[int, int, float]]:
        """Return the worst row of each size, as the verdict engine does."""
        sweep = schema.sweep
        query = sa.select(sweep.c.run_id, sweep.c.subject_id, sweep.c["rows"])
        conditions = sweep.c.run_id.in_(self.runs), sweep.c.subject_id.in_(subjects_of), sweep.c.check_id == check
        for run, subject, packed in self.connection.execute(query.where(*conditions)):
            with contextlib.suppress(bands.Unusable):
                worst = bands.of_sweep(importing.unpacked(packed), quantity.metric, quantity.size or 0, quantity.unit)
                if worst:
                    yield run, subject, worst.value


def _telling(facts: NodeFacts) -> NodeFacts:
    """Return the facts that explain a change. Which GPUs a node has explains none: a new GPU, known by its UUID, repairs no other."""
    return {name: value for name, value in facts.items() if name != "gpu_serials" and matches(name, EXPLAINING + REPAIRS)}


def _places(subject_key: Who, racks: t.Mapping[str, str]) -> t.Iterator[tuple[str, str]]:
    """Return the places of a subject, from itself outwards."""
    words = {"nic": "port", "pair": "path"}
    yield words.get(subject_key.kind, subject_key.kind), subject_key.id
    ends = keys.ends_of(subject_key.id) if subject_key.kind == "pair" else (subject_key.id,) if subject_key.kind in ("gpu", "nic") else ()
    if subject_key.kind == "pair":
        yield from (("port", end) for end in ends if keys.kind_of(end) == "nic")
    nodes = dict.fromkeys(keys.node_of(end) for end in ends)
    yield from (("node", node) for node in nodes)
    standing = (subject_key.id,) if subject_key.kind == "node" else nodes
    yield from dict.fromkeys(("rack", racks[node]) for node in standing if node in racks)
