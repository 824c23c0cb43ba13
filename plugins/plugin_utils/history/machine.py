# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One machine in the history: its facts and when they changed, and its verdicts run by run.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import importing, schema
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.schema import sa
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import Store
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Facts


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
    run, judgement, placed, word, verdict = schema.run, schema.judgement, schema.placement, schema.word, schema.verdict
    machine = placed.alias("machine")
    runs = (
        sa.select(run.c.id, run.c.name, run.c.planned_at, run.c.simulated, machine.c.subject_id)
        .join(machine, sa.and_(machine.c.run_id == run.c.id, machine.c.subject_id == machine.c.node_id))
        .join(word, word.c.id == machine.c.name_id)
        .where(word.c.text == node)
        .order_by(run.c.name.desc())
        .limit(limit)
    )
    with store.reading() as connection:
        found = []
        for row in connection.execute(runs).all():
            last = sa.select(judgement.c.id).where(judgement.c.run_id == row.id).order_by(judgement.c.folder.desc()).limit(1)
            counted = (
                sa.select(verdict.c.verdict, sa.func.count())
                .join(placed, placed.c.subject_id == verdict.c.subject_id)
                .where(verdict.c.judgement_id == last.scalar_subquery())
                .where(placed.c.run_id == row.id, placed.c.node_id == row.subject_id)
                .group_by(verdict.c.verdict)
            )
            counts = {name: int(count) for name, count in connection.execute(counted)}
            if counts:
                found.append(RunOfNode(row.name, row.planned_at, bool(row.simulated), counts))
    return found
