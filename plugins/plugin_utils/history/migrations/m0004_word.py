# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A column for the word of a judgement. Before, a quick test that passed was stored as accepted.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    import sqlalchemy as sa
    from alembic import op

    op.add_column("judgement", sa.Column("word", sa.Text, nullable=False, server_default=""))
    run = sa.table("run", sa.column("id"), sa.column("mode"))
    judgement = sa.table("judgement", sa.column("run_id"), sa.column("accepted", sa.Boolean), sa.column("word"))
    quick = judgement.c.run_id.in_(sa.select(run.c.id).where(run.c.mode == "quick"))
    words = ((quick, "QUICK TEST PASSED", "QUICK TEST NOT PASSED"), (~quick, "ACCEPTED", "NOT ACCEPTED"))
    for which, passed, failed in words:
        word = sa.case((judgement.c.accepted, passed), else_=failed)
        op.execute(judgement.update().where(which).values(word=word))
    op.execute(judgement.update().where(quick).values(accepted=False))
