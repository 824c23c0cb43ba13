# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of the first version. A new database is made by schema.py; this is where an old one begins.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the first tables."""
