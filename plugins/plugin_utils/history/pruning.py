# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removes old runs from the history, month by month, and keeps the monthly medians of their numbers.

Only complete months are removed, so that a median covers all runs of its month. The history remembers the removed runs, so that an import
does not write them again.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import statistics
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import schema, searching
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.schema import sa
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import HistoryError, Store, chunks, insert

if t.TYPE_CHECKING:
    import sqlalchemy


class Pruned(t.NamedTuple):
    """The runs that were or would be removed, the number of their numbers, and the number of medians that stay."""

    runs: list[str]
    numbers: int
    medians: int


def prune(store: Store, older_than: str, really: bool = False) -> Pruned:
    """Remove the months that ended before a day or an age such as 6m. Without `really`, only return what would be removed."""
    if not older_than:
        raise HistoryError("older_than: found nothing, expected a day as 2026-08-01, or 30d, 8w, 6m, 1y")
    first = searching.since_when(older_than)[:7]  # the month that stays
    run, metric = schema.run, schema.metric
    query = sa.select(run.c.id, run.c.name, run.c.planned_at).where(run.c.planned_at < first, ~run.c.pruned).order_by(run.c.name)
    with store.writing() if really else store.reading() as connection:
        rows = connection.execute(query).all()
        numbers = medians = 0
        months: dict[str, list[int]] = collections.defaultdict(list)
        for row in rows:
            months[row.planned_at[:7]].append(row.id)
            numbers += int(connection.execute(sa.select(sa.func.count()).select_from(metric).where(metric.c.run_id == row.id)).scalar_one())
        if really:
            for month, ids in months.items():
                medians += _write_medians(connection, month, ids)
            for row in rows:
                _take_out(connection, row.id)
    if really and rows and store.url.get_backend_name() == "sqlite":
        # VACUUM needs free disk space. Without it the file keeps its size, and later runs use the space.
        with contextlib.suppress(sa.exc.SQLAlchemyError), store.engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM")
    return Pruned([row.name for row in rows], numbers, medians)


def taken_out(store: Store) -> set[str]:
    """Return the names of the runs that are removed, by whichever call."""
    with store.reading() as connection:
        return set(connection.execute(sa.select(schema.run.c.name).where(schema.run.c.pruned)).scalars())


def _write_medians(connection: sqlalchemy.Connection, month: str, runs: list[int]) -> int:
    """Write the medians of a month and return their number. A median that exists already stays: a run came after its month was removed."""
    metric, of = schema.metric, schema.month
    kept_keys = {tuple(row) for row in connection.execute(sa.select(of.c.subject_id, of.c.quantity_id).where(of.c.month == month))}
    subjects = sa.select(schema.placement.c.subject_id).where(schema.placement.c.run_id.in_(runs)).distinct()
    ids = sorted(connection.execute(subjects).scalars())
    count = 0
    for subject_ids in chunks(ids, 500):
        query = (
            sa.select(metric.c.subject_id, metric.c.quantity_id, metric.c.value)
            .where(metric.c.run_id.in_(runs), metric.c.subject_id.in_(subject_ids))
            .order_by(metric.c.subject_id, metric.c.quantity_id)
        )
        grouped = itertools.groupby(connection.execute(query), key=lambda row: (row[0], row[1]))
        rows = []
        for key, group in grouped:
            values = [row[2] for row in group]
            if key not in kept_keys:
                rows.append((*key, month, statistics.median(values), min(values), max(values), len(values)))
        count += insert(connection, of, rows)
    return count


def _take_out(connection: sqlalchemy.Connection, run: int) -> None:
    """Remove the rows of a run, except the run itself and its judgements."""
    judged = sa.select(schema.judgement.c.id).where(schema.judgement.c.run_id == run)
    connection.execute(schema.verdict.delete().where(schema.verdict.c.judgement_id.in_(judged)))
    for table in schema.OF_RUN:
        if table not in schema.LASTING:
            connection.execute(table.delete().where(table.c.run_id == run))
    connection.execute(schema.run.update().where(schema.run.c.id == run).values(pruned=True))
