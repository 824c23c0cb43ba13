# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One machine in the history: its facts and when they changed, and its verdicts run by run.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import importing, schema
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.schema import sa
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import Store, chunks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Facts

if t.TYPE_CHECKING:
    import sqlalchemy


class FactsSince(t.NamedTuple):
    """Facts that hold from a run on."""

    run: str
    planned_at: str
    facts: Facts


def facts(store: Store, node: str, limit: int = 20) -> list[FactsSince]:
    """Return the last changes of the facts of a node, the newest first, over all machines that ever had this name."""
    run, placed, word, fact, sheet = schema.run, schema.placement, schema.word, schema.fact, schema.sheet
    subject_ids = sa.select(placed.c.subject_id).join(word, word.c.id == placed.c.name_id)
    subject_ids = subject_ids.where(word.c.text == node, placed.c.subject_id == placed.c.node_id).distinct()
    query = (
        sa.select(run.c.name, run.c.planned_at, fact.c.sheet_id)
        .join(placed, sa.and_(placed.c.run_id == run.c.id, placed.c.subject_id == placed.c.node_id))
        .join(fact, sa.and_(fact.c.run_id == run.c.id, fact.c.subject_id == placed.c.subject_id))
        .where(placed.c.subject_id.in_(subject_ids))
        .order_by(run.c.name)
    )
    with store.reading() as connection:
        changes: list[t.Any] = []
        for row in connection.execute(query):
            if not changes or changes[-1].sheet_id != row.sheet_id:
                changes.append(row)
        changes = changes[: -limit - 1 : -1]
        texts = sa.select(sheet.c.id, sheet.c.facts).where(sheet.c.id.in_({row.sheet_id for row in changes}))
        sheets = {row.id: importing.unpacked(row.facts) for row in connection.execute(texts)}
    return [FactsSince(row.name, row.planned_at, sheets[row.sheet_id]) for row in changes]


class RunOfNode(t.NamedTuple):
    """A run with a node, and how many verdicts of each kind the node, its parts and its pairs had in it."""

    run: str
    planned_at: str
    simulated: bool
    counts: t.Mapping[str, int]

    @property
    def verdict(self) -> str:
        return min(self.counts, key=WORST_FIRST.index)


def timeline(store: Store, node: str, limit: int = 40) -> list[RunOfNode]:
    """Return the last runs with a node, the newest first, by the judgement that holds."""
    run, placed, word = schema.run, schema.placement, schema.word
    found = []
    with store.reading() as connection:
        # Asked one after the other: in one query a database may go through all nodes, or all verdicts, of each run.
        name = connection.execute(sa.select(word.c.id).where(word.c.text == node)).scalar()
        machines = sa.select(placed.c.run_id, placed.c.subject_id).where(placed.c.name_id == name, placed.c.subject_id == placed.c.node_id)
        of_runs = {row.run_id: row.subject_id for row in connection.execute(machines)}
        columns = sa.select(run.c.id, run.c.name, run.c.planned_at, run.c.simulated)
        rows: list[t.Any] = []
        for run_ids in chunks(sorted(of_runs), importing.MANY):
            rows += connection.execute(columns.where(run.c.id.in_(run_ids)))
        for row in sorted(rows, key=lambda row: str(row.name), reverse=True)[:limit]:
            counts = _counts(connection, row.id, of_runs[row.id])
            if counts:
                found.append(RunOfNode(row.name, row.planned_at, bool(row.simulated), counts))
    return found


def _counts(connection: sqlalchemy.Connection, run: int, node: int) -> dict[str, int]:
    """Return {verdict: how many the node, its parts and its pairs have in a run}, by the judgement that holds."""
    judgement, placed, verdict = schema.judgement, schema.placement, schema.verdict
    last = sa.select(judgement.c.id).where(judgement.c.run_id == run).order_by(judgement.c.folder.desc()).limit(1)
    judged = connection.execute(last).scalar()
    subjects = connection.execute(sa.select(placed.c.subject_id).where(placed.c.run_id == run, placed.c.node_id == node)).scalars().all()
    counts: collections.Counter[str] = collections.Counter()
    for many in chunks(sorted(subjects), importing.MANY):
        counted = sa.select(verdict.c.verdict, sa.func.count()).where(verdict.c.judgement_id == judged, verdict.c.subject_id.in_(many))
        counts.update({name: int(count) for name, count in connection.execute(counted.group_by(verdict.c.verdict))})
    return dict(counts)
