# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes a judged run to the history in one transaction. Repeated imports of a run write it only once.

The measurements are identified by the digest of the journal, a judgement by its folder and the digest of its verdicts. Rows with the same
digest stay; rows with another digest are replaced.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing as t
import zlib

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import part_sheets, schema
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.identity import NAME, Identities, Who, who
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.schema import sa
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import Store, chunks, clean, insert
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import drift
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Facts, Measurement, Plan, Verdict, is_number

if t.TYPE_CHECKING:
    import sqlalchemy

# The most values of an IN clause.
MANY = 500


@dataclasses.dataclass
class Judging:
    """One judgement of a run. `folder` is its path in the run's folder, empty for the first judgement."""

    folder: str
    digest: str
    judged_at: str
    accepted: bool
    word: str
    why: str
    counts: t.Mapping[str, int]
    coverage: t.Mapping[str, t.Any]
    verdicts: t.Sequence[Verdict]


@dataclasses.dataclass
class Content:
    """The content of a run with its judgements. `measurements` are those that were judged, `parts` reads what the journal lists of the
    parts of its nodes."""

    plan: Plan
    journal_sha256: str
    measurements: t.Sequence[Measurement]
    judgements: t.Sequence[Judging]
    parts: t.Callable[[], part_sheets.Listed] = dict


class Written(t.NamedTuple):
    """The numbers of new judgements and metrics. `pruned`: nothing was written, because the run was removed by its age before."""

    judgements: int
    metrics: int
    pruned: bool = False


def write(store: Store, of: Content) -> Written:
    """Write a run, or the parts of it that are missing. Return the numbers of new rows."""
    with store.writing() as connection:
        return _Import(connection, of).write()


class _Import:
    def __init__(self, connection: sqlalchemy.Connection, of: Content) -> None:
        self.connection = connection
        self.content = of
        self.measurements = [m for m in of.measurements if m.started_at]  # what was refused has none
        self.run = 0
        self.subjects: dict[Who, int] = {}
        self.checks: dict[tuple[str, str, str], int] = {}  # as they were named, before what no database takes is replaced

    def write(self) -> Written:
        name = str(self.content.plan.run_id)
        table = schema.run
        stored = self.connection.execute(sa.select(table).where(table.c.name == name)).mappings().first()
        if stored and stored["pruned"]:
            return Written(0, 0, pruned=True)
        measured = not stored or stored["journal_sha256"] != self.content.journal_sha256
        judgements = [judgement for judgement in self.content.judgements if self._is_new(int(stored["id"]) if stored else None, judgement)]
        if not measured and not judgements:
            return Written(0, 0)
        self.run = int(stored["id"]) if stored else self._next(table)
        if stored and measured:
            for dependent in schema.OF_RUN:
                self.connection.execute(dependent.delete().where(dependent.c.run_id == self.run))
        self._write_run(name, bool(stored))
        cleaned_keys = {check_key: tuple(map(clean, check_key)) for check_key in {_check(record) for record in self._everything()}}
        checks = self._ids(schema.check, set(cleaned_keys.values()), "check")
        self.checks = {check_key: checks[cleaned] for check_key, cleaned in cleaned_keys.items()}
        self._subjects()
        metrics = self._write_measurements() if measured else 0
        for judgement in judgements:
            self._write_judgement(judgement)
        return Written(len(judgements), metrics)

    def _everything(self) -> t.Iterator[Measurement | Verdict]:
        yield from self.measurements
        for judgement in self.content.judgements:
            yield from judgement.verdicts

    def _is_new(self, run: int | None, judgement: Judging) -> bool:
        """Return True if this judgement must be written. Removes another judgement of the same run."""
        if run is None:
            return True
        table = schema.judgement
        stored = self.connection.execute(
            sa.select(table.c.id, table.c.digest).where(table.c.run_id == run, table.c.folder == judgement.folder)
        ).first()
        if stored and stored.digest == judgement.digest:
            return False
        if stored:
            self.connection.execute(schema.verdict.delete().where(schema.verdict.c.judgement_id == stored.id))
            self.connection.execute(table.delete().where(table.c.id == stored.id))
        return True

    def _write_run(self, name: str, is_stored: bool) -> None:
        plan, table = self.content.plan, schema.run
        scope = {
            "targets": {target: of["plane"] for target, of in plan.targets.items()},
            "stages": [stage["name"] for stage in plan.stages],
            "left_out": plan.left_out,
            "skipped_stages": plan.skipped_stages,
        }
        values = {
            "name": name, "planned_at": str(plan.created_at), "mode": str(plan.mode), "partial": bool(plan.partial),
            "simulated": any(record.simulated for record in self._everything()), "pruned": False,
            "scope": clean(json.dumps(scope, sort_keys=True)), "collection_version": clean(plan.collection_version),
            "ansible_version": clean(plan.ansible_version), "python_version": clean(plan.python_version),
            "journal_sha256": self.content.journal_sha256, "inventory": clean(plan.inventory),
        }  # fmt: skip
        if is_stored:
            self.connection.execute(table.update().where(table.c.id == self.run).values(**values))
        else:
            self.connection.execute(table.insert().values(id=self.run, **values))

    # Subjects ------------------------------------------------------------------------------------------------------------------------

    def _subjects(self) -> None:
        """Write the subjects and their places."""
        run_identities = Identities(self.measurements)
        identities = identities_of(self.connection, run_identities, self._everything())
        subject_keys = list(identities)
        self._adopt(identities)
        ids = self._ids(
            schema.subject,
            {(subject_key.kind, identity, subject_key.simulated) for subject_key, identity in identities.items()},
            "identity",
            ("identity", "simulated"),
        )
        self.subjects = {
            subject_key: ids[subject_key.kind, identity, subject_key.simulated] for subject_key, identity in identities.items()
        }
        names = self._words({subject_key.id for subject_key in subject_keys} | {*run_identities.models.values(), ""})
        placed = schema.placement
        placed_ids = {row.subject_id for row in self.connection.execute(sa.select(placed.c.subject_id).where(placed.c.run_id == self.run))}
        rows: dict[tuple[int, int], tuple[int, ...]] = {}
        for subject_key, subject in self.subjects.items():
            for node in subject_key.nodes:
                at = (
                    self.subjects.get(Who("node", node, subject_key.simulated), subject)
                    if subject_key.kind not in ("group", "switch", "nvlink_domain")
                    else subject
                )
                if subject not in placed_ids:
                    model = names[run_identities.models.get(node, "") if subject_key.kind in ("node", "gpu") else ""]
                    rows.setdefault((subject, at), (self.run, subject, at, names[subject_key.id], model))
        insert(self.connection, placed, (rows[key] for key in sorted(rows)))

    def _adopt(self, identities: t.Mapping[Who, str]) -> None:
        """Give nodes that were known by name only, and their parts, the identity that they report now, so that they keep their history."""
        subject = schema.subject
        silent = {
            (clean(NAME + subject_key.id), subject_key.simulated): identity
            for subject_key, identity in identities.items()
            if subject_key.kind == "node"
        }
        silent = {key: identity for key, identity in silent.items() if key[0] != identity}
        stored: set[tuple[str, bool]] = set()
        for chunk in chunks({*(name for name, _s in silent), *silent.values()}, MANY):
            rows = self.connection.execute(sa.select(subject.c.identity, subject.c.simulated).where(subject.c.identity.in_(chunk)))
            stored |= {(row.identity, bool(row.simulated)) for row in rows}
        for (name, simulated), identity in silent.items():
            if (name, simulated) not in stored or (identity, simulated) in stored:
                continue
            is_node_or_part = sa.and_(
                subject.c.simulated == simulated,
                # Not LIKE, which ignores case in SQLite.
                sa.or_(subject.c.identity == name, sa.func.substr(subject.c.identity, 1, len(name) + 1) == name + "/"),
            )
            for row in self.connection.execute(sa.select(subject.c.id, subject.c.identity).where(is_node_or_part)).all():
                self.connection.execute(
                    subject.update().where(subject.c.id == row.id).values(identity=identity + row.identity[len(name) :])
                )

    # What was measured ---------------------------------------------------------------------------------------------------------------

    def _write_measurements(self) -> int:
        tools = self._words({m.tool_version or "" for m in self.measurements})
        units = {(_check(m), name, metric.unit) for m in self.measurements for name, metric in m.metrics.items()}
        cleaned_keys = {unit_key: (self.checks[unit_key[0]], clean(unit_key[1]), clean(unit_key[2])) for unit_key in units}
        ids = self._ids(schema.quantity, set(cleaned_keys.values()), "check_id")
        quantities = {unit_key: ids[cleaned] for unit_key, cleaned in cleaned_keys.items()}
        keyed = sorted(
            (((self.run, self.subjects[who(m)], self.checks[_check(m)]), m) for m in self.measurements), key=lambda pair: pair[0]
        )  # fmt: skip
        insert(
            self.connection,
            schema.measurement,
            (
                (
                    *key, m.attempt, m.outcome, m.reason_code, m.started_at, _float(m.duration_s),
                    tools[m.tool_version or ""],
                )
                for key, m in keyed
            ),
        )  # fmt: skip
        metrics = insert(
            self.connection,
            schema.metric,
            ((*key[:2], quantities[_check(m), name, unit], value) for key, m in keyed for name, unit, value in _numbers(m)),
        )
        insert(self.connection, schema.sweep, ((*key, _packed(m.series)) for key, m in keyed if m.series))
        self._write_sheets(
            schema.fact,
            ((key[1], _sheet(m)) for key, m in keyed if m.subject.kind == "node" and isinstance(m.context.get("facts"), dict)),
        )
        self._write_parts()
        return metrics

    def _write_parts(self) -> None:
        """Write the parts of the nodes, and of those sheets that are new the names of their parts."""
        names: dict[str, list[str]] = {}

        def sheets() -> t.Iterator[tuple[int, bytes]]:
            known = {node: lists for node, lists in self.content.parts().items() if node in self.subjects}
            for node, seen in part_sheets.of_nodes(known):
                text = part_sheets.packed(seen)
                names.setdefault(hashlib.sha256(text).hexdigest(), sorted({clean(name) for of in seen for name in part_sheets.names(of)}))
                yield self.subjects[node], text

        first_new = self._next(schema.sheet)
        ids = self._write_sheets(schema.hardware, sheets())
        new = sorted((name, ids[digest]) for digest, of_sheet in names.items() for name in of_sheet if ids[digest] >= first_new)
        insert(self.connection, schema.part_name, new)

    def _write_sheets(self, table: sqlalchemy.Table, sheets: t.Iterable[tuple[int, bytes]]) -> dict[str, int]:
        """Write texts of nodes, given as (subject id, text), and return the id of each by its digest. The texts of all nodes are never in
        memory at once."""
        digests: dict[int, str] = {}
        rows: dict[str, tuple[str, bytes]] = {}
        for subject, text in sheets:
            digests[subject] = digest = hashlib.sha256(text).hexdigest()
            if digest not in rows:
                rows[digest] = (digest, zlib.compress(text, 6))
        ids = self._ids(schema.sheet, set(rows.values()), "digest", ("digest",))
        insert(self.connection, table, ((self.run, subject, ids[rows[digest]]) for subject, digest in sorted(digests.items())))
        return {digest: ids[row] for digest, row in rows.items()}

    def _write_judgement(self, content: Judging) -> None:
        judgement = self._next(schema.judgement)
        self.connection.execute(
            schema.judgement.insert().values(
                id=judgement, run_id=self.run, folder=content.folder, digest=content.digest, judged_at=content.judged_at,
                accepted=content.accepted, why=clean(content.why), counts=json.dumps(dict(content.counts), sort_keys=True),
                planned=content.coverage["planned"], measured=content.coverage["measured"], word=content.word,
            )
        )  # fmt: skip
        cleaned_bases = {basis: tuple(clean(text or "") for text in basis) for basis in {_basis(v) for v in content.verdicts}}
        ids = self._ids(schema.basis, set(cleaned_bases.values()), "metric")
        bases = {basis: ids[cleaned] for basis, cleaned in cleaned_bases.items()}
        rows = {(self.subjects[who(v)], self.checks[_check(v)]): v for v in reversed(content.verdicts)}  # the worst first
        insert(
            self.connection,
            schema.verdict,
            (
                (
                    judgement, *key, v.verdict, *map(_float, (v.value, v.floor, v.expected)), bases[_basis(v)],
                    v.reason_code,
                    None if v.verdict == "PASS" else clean(v.reason), v.regressed,
                )
                for key, v in sorted(rows.items(), key=lambda item: item[0])
            ),
        )  # fmt: skip

    # Texts that many rows share ------------------------------------------------------------------------------------------------------

    def _words(self, texts: t.Iterable[str]) -> dict[str, int]:
        cleaned_texts = {text: (clean(text),) for text in texts}
        ids = self._ids(schema.word, set(cleaned_texts.values()), "text")
        return {text: ids[cleaned] for text, cleaned in cleaned_texts.items()}

    def _ids(
        self, table: sqlalchemy.Table, rows: t.Collection[tuple[t.Any, ...]], by: str, unique: t.Sequence[str] = ()
    ) -> dict[tuple[t.Any, ...], int]:
        """Return {row without id: id} and insert rows that are missing; there is no other writer now. Rows are looked up by the column `by`
        and compared by the columns `unique` (default: all)."""
        names = [column.name for column in table.columns if column.name != "id"]
        unique = unique or names
        places = [names.index(name) for name in unique]
        known_ids: dict[tuple[t.Any, ...], int] = {}
        columns = [table.c[name] for name in unique]
        for chunk in chunks({row[names.index(by)] for row in rows}, MANY):
            for stored in self.connection.execute(sa.select(table.c.id, *columns).where(table.c[by].in_(chunk))):
                known_ids[tuple(stored[1:])] = stored[0]
        ids: dict[tuple[t.Any, ...], int] = {}
        new: list[tuple[t.Any, ...]] = []
        next_id = self._next(table)
        for row in sorted(rows):
            key = tuple(row[place] for place in places)
            if key not in known_ids:
                known_ids[key] = next_id + len(new)
                new.append((known_ids[key], *row))
            ids[row] = known_ids[key]
        insert(self.connection, table, new)
        return ids

    def _next(self, table: sqlalchemy.Table) -> int:
        return int(self.connection.execute(sa.select(sa.func.coalesce(sa.func.max(table.c.id), 0))).scalar_one()) + 1


def identities_of(
    connection: sqlalchemy.Connection, run_identities: Identities, records: t.Iterable[Measurement | Verdict]
) -> dict[Who, str]:
    """Return the identity of every subject of a run's records, and of the nodes of these subjects."""
    subject_keys = dict.fromkeys(who(record) for record in records)
    for subject_key in list(subject_keys):
        if subject_key.kind in ("node", "gpu", "nic", "pair"):
            subject_keys.update(dict.fromkeys(Who("node", node, subject_key.simulated) for node in subject_key.nodes))
    # Nodes that report an identity come first, so that no other node of their name takes it.
    identities: dict[Who, str] = {}
    used: set[tuple[str, bool]] = set()
    for subject_key in sorted(
        subject_keys, key=lambda subject_key: (subject_key.kind != "node", run_identities.of(subject_key).startswith(NAME))
    ):
        identity = clean(run_identities.of(subject_key, lambda name, simulated: _last_identity(connection, name, simulated, used)))
        if (identity, subject_key.simulated) in used:
            identity = clean(f"{NAME}{subject_key.kind}:{subject_key.id}")
        used.add((identity, subject_key.simulated))
        identities[subject_key] = identity
    return identities


def _last_identity(connection: sqlalchemy.Connection, name: str, simulated: bool, used: t.Container[tuple[str, bool]]) -> str | None:
    """Return the last identity of a node of this name; None if that node has another name since, or is another node of this run."""
    subject, placed, word, run = schema.subject, schema.placement, schema.word, schema.run
    last = (
        sa.select(subject.c.id, subject.c.identity, word.c.text)
        .join(placed, placed.c.subject_id == subject.c.id)
        .join(word, word.c.id == placed.c.name_id)
        .join(run, run.c.id == placed.c.run_id)
        .order_by(run.c.name.desc())
        .limit(1)
    )
    bearer = connection.execute(last.where(word.c.text == clean(name), subject.c.kind == "node", subject.c.simulated == simulated)).first()
    if bearer is None or (bearer.identity, simulated) in used:
        return None
    called = connection.execute(last.where(subject.c.id == bearer.id)).first()
    return str(bearer.identity) if called and called.text == clean(name) else None


def _check(record: Measurement | Verdict) -> tuple[str, str, str]:
    return record.stage, record.check, record.variant


def _numbers(m: Measurement) -> t.Iterator[tuple[str, str, float]]:
    """Yield the numbers that were properly measured: metric, unit, value."""
    if m.outcome == "measured":
        for name, of in m.metrics.items():
            if is_number(of.value):
                yield name, of.unit, float(of.value)


def _float(value: float | None) -> float | None:
    """Return a float, because SQLite takes no integer of more than 64 bits."""
    return None if value is None else float(value)


def _basis(v: Verdict) -> tuple[str | None, ...]:
    return v.metric, v.unit, v.layer, v.source, v.confidence, v.date, v.expectation


def _packed(value: t.Any) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 1)


def unpacked(data: bytes) -> t.Any:
    """Return the rows of a sweep, or the facts of a node, from their packed form."""
    return json.loads(zlib.decompress(data))


def lasting(m: Measurement) -> Facts:
    """Return the facts of a node that stay what they are until somebody changes them."""
    return {name: value for name, value in m.context["facts"].items() if drift.lasting(name)}


def _sheet(m: Measurement) -> bytes:
    return json.dumps(lasting(m), sort_keys=True, separators=(",", ":")).encode()
