# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of a run whose verdict is worse than in the last accepted run of the same nodes.

Only the verdicts that are no PASS are read, so that a run of thousands of nodes takes little time. `comparing` has all differences.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import comparing, schema
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.current import Check
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.schema import sa
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.store import Store
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import SEVERITY
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.causes import GOOD

if t.TYPE_CHECKING:
    import sqlalchemy

# More checks than anybody reads one by one.
MOST = 1000


class Worsened(t.NamedTuple):
    """A check of a subject with its verdicts in both runs."""

    subject: str
    check: Check
    before: str
    after: str


class SinceAccepted(t.NamedTuple):
    """The checks of `run` that became worse since `accepted`, the worst first; at most MOST."""

    run: str
    accepted: str
    checks: list[Worsened]


def since_accepted(store: Store, run: str) -> SinceAccepted | None:
    """Return what became worse in a run since the last accepted run of its nodes; None if there is none, or the history lacks the run."""
    with store.reading() as connection:
        new = _last_judgement(connection, run)
        nodes = comparing.nodes_of(connection, new[0]) if new else set()
    accepted = comparing.last_accepted_with(store, run, nodes) if nodes else None
    if not new or not accepted:
        return None
    with store.reading() as connection:
        old = _last_judgement(connection, accepted)
        checks = _worsened(connection, new, old[1]) if old else []
    return SinceAccepted(run, accepted, checks)


def _last_judgement(connection: sqlalchemy.Connection, name: str) -> tuple[int, int] | None:
    """Return the ids of a run and of its last judgement; None if the history does not have it any more."""
    run, judgement = schema.run, schema.judgement
    query = sa.select(run.c.id, judgement.c.id).join(judgement, judgement.c.run_id == run.c.id)
    row = connection.execute(query.where(run.c.name == name, ~run.c.pruned).order_by(judgement.c.folder.desc()).limit(1)).first()
    return (row[0], row[1]) if row else None


def _worsened(connection: sqlalchemy.Connection, new: tuple[int, int], old_judgement: int) -> list[Worsened]:
    run_id, judgement_id = new
    verdict, earlier, check = schema.verdict, schema.verdict.alias(), schema.check
    placed, word = schema.placement, schema.word
    of = sa.select(sa.func.min(word.c.text)).join(placed, placed.c.name_id == word.c.id)
    name = of.where(placed.c.run_id == run_id, placed.c.subject_id == verdict.c.subject_id).scalar_subquery()
    of_subject = sa.and_(
        earlier.c.judgement_id == old_judgement, earlier.c.subject_id == verdict.c.subject_id, earlier.c.check_id == verdict.c.check_id
    )
    severity_now, severity_before = (sa.case(SEVERITY, value=of_run.c.verdict) for of_run in (verdict, earlier))
    query = (
        sa.select(name, check.c.stage, check.c.check, check.c.variant, earlier.c.verdict, verdict.c.verdict)
        .select_from(verdict)
        .join(earlier, of_subject)
        .join(check, check.c.id == verdict.c.check_id)
        .where(verdict.c.judgement_id == judgement_id, verdict.c.verdict.not_in(GOOD), severity_now > severity_before)
        .order_by(severity_now.desc(), check.c.stage, verdict.c.subject_id)
        .limit(MOST)
    )
    return [Worsened(row[0] or "", Check(*row[1:4]), row[4], row[5]) for row in connection.execute(query)]
