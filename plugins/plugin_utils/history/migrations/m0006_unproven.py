# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs that passed and whose gates of GPU sharing were not proven are not accepted: 0004 gave them the word of those that are.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    import sqlalchemy as sa
    from alembic import op

    judgement = sa.table("judgement", sa.column("accepted", sa.Boolean), sa.column("word"), sa.column("why"))
    # Of one that was refused the reason begins with what refused it.
    passed = sa.or_(judgement.c.word == "ACCEPTED", judgement.c.why.like("all %are acceptable%"))
    which = sa.and_(judgement.c.word.in_(("ACCEPTED", "NOT ACCEPTED")), passed, judgement.c.why.like("%gates of GPU sharing:%"))
    op.execute(judgement.update().where(which).values(word="PASSED, NOT PROVEN", accepted=False))
