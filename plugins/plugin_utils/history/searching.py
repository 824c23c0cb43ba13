# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Queries of the history.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import datetime
import difflib
import fnmatch
import itertools
import json
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import hardware, importing, schema
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.schema import sa
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import HistoryError, Store, chunks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST

if t.TYPE_CHECKING:
    import sqlalchemy


class FoundRun(t.TypedDict):
    """A run of the history, by the judgement that holds."""

    run: str
    planned_at: str
    inventory: str
    accepted: bool
    word: str
    why: str
    partial: bool
    simulated: bool


class JudgedRun(FoundRun):
    """A run with the numbers of its verdicts, {verdict: number}, and the SHA-256 of its journal."""

    counts: dict[str, int]
    journal_sha256: str


class NumberData(t.TypedDict):
    """A number of a measurement."""

    metric: str
    unit: str
    value: float | None


class FoundVerdict(t.TypedDict):
    """A verdict of the history with the numbers of its measurement; `value`, `floor` and `expected` are in `unit`."""

    run: str
    planned_at: str
    subject: str
    kind: str
    identity: str
    simulated: bool
    stage: str
    check: str
    variant: str
    verdict: str
    metric: str
    value: float | None
    unit: str
    floor: float | None
    expected: float | None
    layer: str | None
    source: str | None
    reason_code: str | None
    reason: str | None
    regressed: bool
    numbers: list[NumberData]


# A row of the table of runs with the judgement that holds.
RunRow = dict[str, t.Any]
_AGO = re.compile(r"(\d+)\s*(d|w|m|y)")
_MOMENT = re.compile(r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z")
_DAYS = {"d": 1, "w": 7, "m": 30, "y": 365}


class Quantity(t.NamedTuple):
    """The check, metric and unit of a series."""

    stage: str
    check: str
    variant: str
    metric: str
    unit: str


class HistorySubject(t.NamedTuple):
    """A subject of the history, independent of its name."""

    kind: str
    identity: str
    simulated: bool


# (run, when it was planned, value)
Point = tuple[str, str, float]


def series(store: Store, subject: HistorySubject, key: Quantity, before_run: str = "") -> list[Point]:
    """Return the values of one subject in all runs, the oldest first; if a run is named, in the runs before it."""
    run, metric, quantity, check, of = schema.run, schema.metric, schema.quantity, schema.check, schema.subject
    query = (
        sa.select(run.c.name, run.c.planned_at, metric.c.value)
        .select_from(of)
        .join(schema.placement, schema.placement.c.subject_id == of.c.id)
        .join(run, run.c.id == schema.placement.c.run_id)
        .join(metric, sa.and_(metric.c.run_id == run.c.id, metric.c.subject_id == of.c.id))
        .join(quantity, quantity.c.id == metric.c.quantity_id)
        .join(check, check.c.id == quantity.c.check_id)
        .where(of.c.identity == subject.identity, of.c.simulated == subject.simulated)
        .where(check.c.stage == key.stage, check.c.check == key.check, check.c.variant == key.variant)
        .where(quantity.c.metric == key.metric, quantity.c.unit == key.unit)
        .order_by(run.c.name)
        .distinct()
    )
    if before_run:
        query = query.where(run.c.name < before_run)
    with store.reading() as connection:
        return [(row.name, row.planned_at, row.value) for row in connection.execute(query)]


def all_series(
    store: Store, before_run: str, runs: int = 60, simulated: bool | None = None
) -> t.Iterator[tuple[HistorySubject, Quantity, list[Point]]]:
    """Yield every series of the last `runs` runs before one, in the order of the runs. importing.MANY subjects are in memory at a time."""
    with store.reading() as connection:
        run = schema.run
        latest = connection.execute(
            sa.select(run.c.id, run.c.name, run.c.planned_at)
            .where(run.c.name < before_run, ~run.c.pruned)
            .order_by(run.c.name.desc())
            .limit(runs)
        ).all()
        of_run = {row.id: (row.name, row.planned_at) for row in latest}
        quantities = _quantities(connection)
        of = sa.select(schema.subject).order_by(schema.subject.c.id)
        if simulated is not None:
            of = of.where(schema.subject.c.simulated == simulated)
        metric = schema.metric
        for subjects_chunk in chunks(connection.execute(of).all(), importing.MANY):
            subjects = {row.id: HistorySubject(row.kind, row.identity, bool(row.simulated)) for row in subjects_chunk}
            query = (
                sa.select(metric.c.subject_id, metric.c.quantity_id, metric.c.run_id, metric.c.value)
                .where(metric.c.run_id.in_(of_run), metric.c.subject_id.between(subjects_chunk[0].id, subjects_chunk[-1].id))
                .order_by(metric.c.subject_id, metric.c.quantity_id)
            )
            rows = (row for row in connection.execute(query) if row.subject_id in subjects)
            for (subject, quantity), points in itertools.groupby(rows, key=lambda row: (row.subject_id, row.quantity_id)):
                yield subjects[subject], quantities[quantity], sorted((*of_run[row.run_id], row.value) for row in points)


def _quantities(connection: sqlalchemy.Connection) -> dict[int, Quantity]:
    check, quantity = schema.check, schema.quantity
    query = sa.select(quantity.c.id, check.c.stage, check.c.check, check.c.variant, quantity.c.metric, quantity.c.unit)
    rows = connection.execute(query.join(check, check.c.id == quantity.c.check_id))
    return {row[0]: Quantity(*row[1:]) for row in rows}


# What people ask -----------------------------------------------------------------------------------------------------------------------


class Query(t.NamedTuple):
    """A search; empty fields match everything. `node` and `check` may be patterns; `check` is `CHECK` or `STAGE CHECK`. `since` and
    `until` are days, the last one included, or how long ago, as 30d or 6m, or moments, as 2026-08-01T10:00:00Z. `part` is a name of a
    part, at whatever node it was."""

    node: str = ""
    check: str = ""
    since: str = ""
    verdict: str = ""
    run: str = ""
    until: str = ""
    part: str = ""


def number_of(row: FoundVerdict) -> NumberData:
    """Return the number that a verdict was made by."""
    return {"metric": row["metric"], "value": row["value"], "unit": row["unit"]}


def literally(name: str) -> str:
    """Return a name that a search does not take for a pattern."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)


class SearchResult(t.NamedTuple):
    """`runs` that hold something of it, the newest first; `rows` by run, node, subject and check; `cut`: there is more."""

    runs: list[FoundRun]
    rows: list[FoundVerdict]
    cut: bool


def search(store: Store, query: Query, limit: int = 100_000) -> SearchResult:
    """Return the verdicts that match a query, each with the numbers of its measurement, at most `limit`."""
    runs: list[FoundRun] = []
    rows: list[FoundVerdict] = []
    for run, matches in found_in_runs(store, query):
        runs.append(run)
        rows += matches
        if len(rows) > limit:
            return SearchResult(runs, rows[:limit], True)
    return SearchResult(runs, rows, False)


def found_in_runs(store: Store, query: Query, limit: int = 0, regressed: bool = False) -> t.Iterator[tuple[FoundRun, list[FoundVerdict]]]:
    """Yield the matches of each run, the newest run first, one run at a time; at most `limit` per run, if given, and with `regressed` only
    regressions. Raise HistoryError for a verdict, run, node or check that does not exist."""
    words = [word.strip().upper() for word in query.verdict.split(",") if word.strip()]
    if unknown := sorted(set(words) - set(WORST_FIRST)):
        raise HistoryError(f"verdict: found {unknown[0]}, expected some of {', '.join(WORST_FIRST)}")
    since, until = _bound(query.since), _bound(query.until, "until")
    with store.reading() as connection:
        runs = _runs(connection, since, query.run, until)
        if query.run and not runs:
            raise HistoryError(f"run {query.run} is not in the history {store.where}")
        places = _places(connection, query.node, runs) if query.node else None
        if query.node and not places:
            raise HistoryError(f"node {query.node} is not in the history {store.where}{_known_nodes(connection, query.node)}")
        if query.part:
            of_part = _places_of_part(connection, query.part, runs)
            if of_part is None:
                raise HistoryError(f"part {query.part} is not in the history {store.where}")
            places = {run: [one for one in of_part[run] if places is None or one in places.get(run, ())] for run in of_part}
        checks = _checks(connection, query.check)
        if query.check and not checks:
            raise HistoryError(f"check {query.check} is not in the history {store.where}{_known_checks(connection, query.check)}")
        quantities = _quantities(connection)
        for run in sorted(runs.values(), key=lambda run: run["name"], reverse=True):
            if places is None or run["id"] in places:
                subjects = places[run["id"]] if places is not None else None
                narrowed = Narrowed(checks if query.check else None, words, limit, regressed)
                matches = list(_rows(connection, run, subjects, checks, narrowed, quantities))
                if matches:
                    yield _found_run(run), matches


def _bound(text: str, name: str = "since") -> str:
    """Return a moment as it is, and other text as the day that it means."""
    if not _MOMENT.fullmatch(text):
        return since_when(text, name=name)
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        raise HistoryError(f"{name}: found {text!r}, expected a moment as 2026-08-01T10:00:00Z") from None
    return text


def since_when(text: str, today: datetime.date | None = None, name: str = "since") -> str:
    """Return the day of 2026-08-01, or of an age such as 30d, 8w, 6m or 1y, as text. `name` is the option, for the error message."""
    if not text:
        return ""
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago:
            today = today or datetime.datetime.now(datetime.UTC).date()
            return (today - datetime.timedelta(days=int(ago[1]) * _DAYS[ago[2]])).isoformat()
        return datetime.date.fromisoformat(text.strip()).isoformat()
    except (ValueError, OverflowError):
        raise HistoryError(f"{name}: found {text!r}, expected a day as 2026-08-01, or 30d, 8w, 6m, 1y") from None


def runs(store: Store, name: str = "", before_run: str = "", limit: int = 50, since: str = "", until: str = "") -> list[JudgedRun]:
    """Return runs with the judgement that holds, the newest first; one by its name, or those before another. `since` and `until` are as in
    a Query."""
    query = _planned(_judged_runs(), _bound(since), _bound(until, "until"))
    if name:
        query = query.where(schema.run.c.name == name)
    if before_run:
        query = query.where(schema.run.c.name < before_run)
    with store.reading() as connection:
        rows = connection.execute(query.order_by(schema.run.c.name.desc()).limit(limit)).mappings().all()
    return [{**_found_run(dict(row)), "counts": json.loads(row["counts"]), "journal_sha256": row["journal_sha256"]} for row in rows]


def partial_runs(store: Store, names: t.Iterable[str]) -> set[str]:
    """Return those of the named runs that measured only a part of the fleet or of the stages."""
    query = sa.select(schema.run.c.name).where(schema.run.c.name.in_(sorted(names)), schema.run.c.partial)
    with store.reading() as connection:
        return set(connection.execute(query).scalars())


def run_of_digest(store: Store, sha256: str) -> str | None:
    """Return the name of the run whose journal has this digest, None if there is none."""
    with store.reading() as connection:
        name = connection.execute(sa.select(schema.run.c.name).where(schema.run.c.journal_sha256 == sha256)).scalar()
    return str(name) if name else None


def _judged_runs() -> sqlalchemy.Select[t.Any]:
    run, judgement = schema.run, schema.judgement
    last = sa.select(judgement.c.run_id, sa.func.max(judgement.c.folder).label("folder")).group_by(judgement.c.run_id).subquery()
    return (
        sa.select(run, judgement.c.id.label("judgement_id"), judgement.c.accepted, judgement.c.word, judgement.c.why)
        .add_columns(judgement.c.judged_at, judgement.c.counts)
        .join(judgement, judgement.c.run_id == run.c.id)
        .join(last, sa.and_(last.c.run_id == judgement.c.run_id, last.c.folder == judgement.c.folder))
        .where(~run.c.pruned)
    )


def _planned(query: sqlalchemy.Select[t.Any], since: str, until: str) -> sqlalchemy.Select[t.Any]:
    """Narrow a query to runs that were planned between two days or moments."""
    if since:
        query = query.where(schema.run.c.planned_at >= since)
    if until:
        query = query.where(schema.run.c.planned_at <= (until if "T" in until else f"{until}T99"))  # the whole day
    return query


def _runs(connection: sqlalchemy.Connection, since: str, name: str, until: str = "") -> dict[int, RunRow]:
    """Return runs with the judgement that holds, the last of each."""
    query = _planned(_judged_runs(), since, until)
    if name:
        query = query.where(schema.run.c.name == name)
    return {row["id"]: dict(row) for row in connection.execute(query).mappings()}


def _found_run(run: RunRow) -> FoundRun:
    return {
        "run": run["name"], "planned_at": run["planned_at"], "inventory": run["inventory"], "accepted": run["accepted"],
        "word": run["word"], "why": run["why"], "partial": run["partial"], "simulated": run["simulated"],
    }  # fmt: skip


def _matching(names: t.Iterable[str], pattern: str) -> list[str]:
    return [name for name in names if name == pattern or fnmatch.fnmatchcase(name, pattern)]


def _places(connection: sqlalchemy.Connection, node: str, runs: t.Container[int]) -> dict[int, list[int]]:
    """Return {run: subjects on the nodes of that name}. A renamed node is found by both names."""
    subject, placed, word = schema.subject, schema.placement, schema.word
    subjects_query = sa.select(subject.c.id).join(placed, placed.c.subject_id == subject.c.id).join(word, word.c.id == placed.c.name_id)
    if any(character in node for character in "*?["):
        every = (
            sa.select(word.c.id, word.c.text)
            .where(word.c.id.in_(sa.select(placed.c.name_id).where(placed.c.subject_id == placed.c.node_id)))
            .distinct()
        )
        ids = [row.id for row in connection.execute(every) if fnmatch.fnmatchcase(row.text, node)]
    else:
        ids = list(connection.execute(sa.select(word.c.id).where(word.c.text == node)).scalars())
    nodes: set[int] = set()
    for ids_chunk in chunks(ids, importing.MANY):
        nodes |= set(connection.execute(subjects_query.where(word.c.id.in_(ids_chunk), subject.c.kind == "node").distinct()).scalars())
    subjects_by_run: dict[int, list[int]] = collections.defaultdict(list)
    for many in chunks(sorted(nodes), importing.MANY):
        query = sa.select(placed.c.run_id, placed.c.subject_id).where(placed.c.node_id.in_(many)).distinct()
        for row in connection.execute(query):
            if row.run_id in runs:
                subjects_by_run[row.run_id].append(row.subject_id)
    return dict(subjects_by_run)


def _places_of_part(connection: sqlalchemy.Connection, part: str, runs: t.Container[int]) -> dict[int, list[int]] | None:
    """Return {run: the subjects whose numbers are those of a part, pairs included}; None if there is no such part."""
    parts = hardware.found(connection, part)
    if not parts:
        return None
    placed = schema.placement
    subjects_by_run: dict[int, list[int]] = collections.defaultdict(list)
    subjects = hardware.with_pairs(connection, {subject for found in parts for subject in found.subjects})
    for many in chunks(sorted(subjects), importing.MANY):
        query = sa.select(placed.c.run_id, placed.c.subject_id).where(placed.c.subject_id.in_(many)).distinct()
        for row in connection.execute(query).all():
            if row.run_id in runs:
                subjects_by_run[row.run_id].append(row.subject_id)
    return dict(subjects_by_run)


def _checks(connection: sqlalchemy.Connection, pattern: str) -> dict[int, tuple[str, str, str]]:
    check = schema.check
    rows = connection.execute(sa.select(check.c.id, check.c.stage, check.c.check, check.c.variant)).all()
    return {
        row.id: (row.stage, row.check, row.variant)
        for row in rows
        if not pattern or _matching((row.stage, row.check, f"{row.stage} {row.check}", f"{row.stage} {row.check} {row.variant}"), pattern)
    }


def _suggestion(name: str, names: t.Sequence[str]) -> str:
    """Return the names that a misspelt one may stand for, in words; empty if none is near."""
    near = difflib.get_close_matches(name, names, 3, 0.75)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _known_nodes(connection: sqlalchemy.Connection, requested: str) -> str:
    placed, word, subject = schema.placement, schema.word, schema.subject
    query = (
        sa.select(word.c.text)
        .join(placed, placed.c.name_id == word.c.id)
        .join(subject, sa.and_(subject.c.id == placed.c.subject_id, subject.c.kind == "node"))
        .distinct()
        .order_by(word.c.text)
    )
    names = list(connection.execute(query).scalars())
    if suggestion := _suggestion(requested, names):
        return suggestion
    return f"; there are {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}" if names else ": it is empty"


def _known_checks(connection: sqlalchemy.Connection, requested: str) -> str:
    stage_checks = {(stage, check) for stage, check, _variant in _checks(connection, "").values()}
    names = sorted({f"{stage} {check}" for stage, check in stage_checks})
    if suggestion := _suggestion(requested, [*names, *sorted({word for pair in stage_checks for word in pair})]):
        return suggestion
    return f"; there are {', '.join(names[:12])}{' ...' if len(names) > 12 else ''}" if names else ": it is empty"


class Narrowed(t.NamedTuple):
    """The filter for verdicts in the database. `checks` None means all checks."""

    checks: t.Collection[int] | None
    words: list[str]
    most: int
    regressed: bool

    @property
    def few(self) -> bool:
        """Return True if an index has everything that is searched for."""
        return self.regressed or bool(self.words and "PASS" not in self.words)


def _seldom(connection: sqlalchemy.Connection, judgement: int, narrowed: Narrowed) -> list[int]:
    """Return the subjects of a judgement with verdicts that an index covers. With this separate query SQLite reads the index; otherwise it
    reads every verdict of the judgement."""
    verdict = schema.verdict
    query = sa.select(verdict.c.subject_id).where(verdict.c.judgement_id == judgement)
    if narrowed.regressed:
        query = query.where(verdict.c.regressed == sa.true(), sa.text("verdict.regressed"))  # in the words of the index
    else:
        query = query.where(verdict.c.verdict.in_(narrowed.words), sa.text("verdict.verdict <> 'PASS'"))
    is_complete = not (narrowed.regressed and narrowed.words)
    if narrowed.checks is not None:
        is_complete = is_complete and len(narrowed.checks) <= importing.MANY
        query = query.where(verdict.c.check_id.in_(narrowed.checks)) if len(narrowed.checks) <= importing.MANY else query
    if narrowed.most and is_complete:
        query = query.limit(narrowed.most)
    return list(connection.execute(query).scalars())


def _rows(
    connection: sqlalchemy.Connection,
    run: RunRow,
    subjects: list[int] | None,
    checks: t.Mapping[int, tuple[str, str, str]],
    narrowed: Narrowed,
    quantities: t.Mapping[int, Quantity],
) -> t.Iterator[FoundVerdict]:
    """Yield the verdicts of one run, of some subjects or of all."""
    verdict, basis, subject, placed, word = schema.verdict, schema.basis, schema.subject, schema.placement, schema.word
    if subjects is None and narrowed.few:
        subjects = _seldom(connection, run["judgement_id"], narrowed)
    parts: t.Iterable[list[int] | None] = [None] if subjects is None else chunks(sorted(set(subjects)), importing.MANY)
    for part in parts:
        query = (
            sa.select(
                verdict.c.subject_id, verdict.c.check_id, verdict.c.verdict, verdict.c.value, verdict.c.floor, verdict.c.expected,
                verdict.c.reason_code, verdict.c.reason, verdict.c.regressed, basis.c.metric, basis.c.unit, basis.c.layer,
                basis.c.source, subject.c.kind, subject.c.identity, subject.c.simulated,
            )
            .join(basis, basis.c.id == verdict.c.basis_id)
            .join(subject, subject.c.id == verdict.c.subject_id)
            .where(verdict.c.judgement_id == run["judgement_id"])
        )  # fmt: skip
        if part is not None:
            query = query.where(verdict.c.subject_id.in_(part))
        if narrowed.words:
            query = query.where(verdict.c.verdict.in_(narrowed.words))
        too_many = narrowed.checks is not None and len(narrowed.checks) > importing.MANY
        if narrowed.checks is not None and not too_many:
            query = query.where(verdict.c.check_id.in_(narrowed.checks))
        if narrowed.regressed:
            query = query.where(verdict.c.regressed)
        if narrowed.most and not too_many:
            query = query.limit(narrowed.most)
        matches = [dict(row) for row in connection.execute(query).mappings().all() if row["check_id"] in checks]
        ids = sorted({row["subject_id"] for row in matches})
        names: dict[int, str] = {}
        numbers: dict[tuple[int, tuple[str, str, str]], list[NumberData]] = collections.defaultdict(list)
        for ids_chunk in chunks(ids, importing.MANY):
            places = sa.select(placed.c.subject_id, word.c.text).join(word, word.c.id == placed.c.name_id)
            # All rows at once: a row at a time costs more than the database.
            places = places.where(placed.c.run_id == run["id"], placed.c.subject_id.in_(ids_chunk))
            names.update((subject_id, name) for subject_id, name in connection.execute(places).all())
            metric = schema.metric
            values = sa.select(metric.c.subject_id, metric.c.quantity_id, metric.c.value)
            values = values.where(metric.c.run_id == run["id"], metric.c.subject_id.in_(ids_chunk))
            for subject_id, quantity_id, value in connection.execute(values).all():
                quantity = quantities[quantity_id]
                numbers[subject_id, quantity[:3]].append({"metric": quantity.metric, "unit": quantity.unit, "value": value})
        for match in sorted(matches, key=lambda match: (names.get(match["subject_id"], ""), checks[match["check_id"]])):
            stage, check, variant = checks[match["check_id"]]
            yield {
                "run": run["name"], "planned_at": run["planned_at"], "subject": names.get(match["subject_id"], ""), "kind": match["kind"],
                "identity": match["identity"], "simulated": bool(match["simulated"]), "stage": stage, "check": check, "variant": variant,
                "verdict": match["verdict"], "metric": match["metric"], "value": match["value"], "unit": match["unit"],
                "floor": match["floor"], "expected": match["expected"], "layer": match["layer"], "source": match["source"],
                "reason_code": match["reason_code"],
                "reason": match["reason"], "regressed": bool(match["regressed"]),
                "numbers": numbers[match["subject_id"], (stage, check, variant)],
            }  # fmt: skip
