# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Old runs are taken out of the history, month by month; of their numbers the medians stay.

Whole months only, so that a median is that of all runs of its month. That a run was taken out is remembered: an import does not bring
it back.

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
    """The runs that were or would be taken out, how many numbers they have, and how many medians stay of these."""

    runs: list[str]
    numbers: int
    medians: int


def prune(store: Store, older_than: str, really: bool = False) -> Pruned:
    """Take out the months that ended before a day, or so long ago. Not `really`: only say what would be."""
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
                medians += _keep(connection, month, ids)
            for row in rows:
                _take_out(connection, row.id)
    if really and rows and store.url.get_backend_name() == "sqlite":
        # The room is given back where there is room to do it; where not, what comes next takes it.
        with contextlib.suppress(sa.exc.SQLAlchemyError), store.engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM")
    return Pruned([row.name for row in rows], numbers, medians)


def _keep(connection: sqlalchemy.Connection, month: str, runs: list[int]) -> int:
    """The medians of a month; one that is there already, of a run that came after its month had gone, stays."""
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
    """All of a run but that it was, and how it was judged."""
    judged = sa.select(schema.judgement.c.id).where(schema.judgement.c.run_id == run)
    connection.execute(schema.verdict.delete().where(schema.verdict.c.judgement_id.in_(judged)))
    for table in schema.OF_RUN:
        if table is not schema.placement:  # under which names a subject was known stays known
            connection.execute(table.delete().where(table.c.run_id == run))
    connection.execute(schema.run.update().where(schema.run.c.id == run).values(pruned=True))
