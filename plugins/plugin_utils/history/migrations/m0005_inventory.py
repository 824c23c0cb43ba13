# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A column for the inventory of a run.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    import sqlalchemy as sa
    from alembic import op

    op.add_column("run", sa.Column("inventory", sa.Text, nullable=False, server_default=""))
