# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A column for regressions: the number was worse than its own past when it was judged.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    import sqlalchemy as sa
    from alembic import op

    op.add_column("verdict", sa.Column("regressed", sa.Boolean, nullable=False, server_default=sa.false()))
