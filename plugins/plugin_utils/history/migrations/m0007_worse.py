# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An index that finds regressions without reading every verdict.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    import sqlalchemy as sa
    from alembic import op

    worse = sa.text("regressed")
    op.create_index("verdict_worse", "verdict", ["regressed", "judgement_id"], sqlite_where=worse, postgresql_where=worse)
