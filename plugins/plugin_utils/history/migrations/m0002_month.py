# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Monthly summaries of numbers that are pruned by age.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    import sqlalchemy as sa
    from alembic import op

    op.create_table(
        "month",
        sa.Column("subject_id", sa.Integer, sa.ForeignKey("subject.id"), primary_key=True, autoincrement=False),
        sa.Column("quantity_id", sa.Integer, sa.ForeignKey("quantity.id"), primary_key=True, autoincrement=False),
        sa.Column("month", sa.Text, primary_key=True),
        sa.Column("median", sa.Double, nullable=False),
        sa.Column("least", sa.Double, nullable=False),
        sa.Column("most", sa.Double, nullable=False),
        sa.Column("runs", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
