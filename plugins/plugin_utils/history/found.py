# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On how many nodes the runs of the past found something by each check.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import schema
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.schema import sa
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import Store


def nodes_by_check(store: Store) -> dict[tuple[str, str], int]:
    """Return {(stage, check): on how many nodes it has failed in runs of real hardware}. A pair or a group counts for none: it has a bad
    node among good ones."""
    judgement, verdict, check = schema.judgement, schema.verdict, schema.check
    placement, subject = schema.placement, schema.subject
    last = sa.select(judgement.c.run_id, sa.func.max(judgement.c.folder).label("folder")).group_by(judgement.c.run_id).subquery()
    query = (
        sa.select(check.c.stage, check.c.check, sa.func.count(sa.distinct(placement.c.node_id)))
        .select_from(verdict)
        .join(judgement, judgement.c.id == verdict.c.judgement_id)
        .join(last, sa.and_(last.c.run_id == judgement.c.run_id, last.c.folder == judgement.c.folder))
        .join(check, check.c.id == verdict.c.check_id)
        .join(subject, subject.c.id == verdict.c.subject_id)
        .join(placement, sa.and_(placement.c.subject_id == verdict.c.subject_id, placement.c.run_id == judgement.c.run_id))
        .where(verdict.c.verdict == "FAIL", sa.not_(subject.c.simulated), subject.c.kind.not_in(("pair", "group", "domain")))
        .group_by(check.c.stage, check.c.check)
    )
    with store.reading() as connection:
        return {(stage, name): int(count) for stage, name, count in connection.execute(query)}
