# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of nodes, run by run, and the names by which they are found.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    import sqlalchemy as sa
    from alembic import op

    op.create_table(
        "hardware",
        sa.Column("run_id", sa.Integer, sa.ForeignKey("run.id"), primary_key=True, autoincrement=False),
        sa.Column("subject_id", sa.Integer, sa.ForeignKey("subject.id"), primary_key=True, autoincrement=False),
        sa.Column("sheet_id", sa.Integer, sa.ForeignKey("sheet.id"), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("hardware_sheet", "hardware", ["sheet_id"])
    op.create_table(
        "part_name",
        sa.Column("text", sa.Text, primary_key=True),
        sa.Column("sheet_id", sa.Integer, sa.ForeignKey("sheet.id"), primary_key=True, autoincrement=False),
        sqlite_with_rowid=False,
    )
