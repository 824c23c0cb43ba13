# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of one machine in the history, and when they changed.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import importing, schema
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.schema import sa
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import Store
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
