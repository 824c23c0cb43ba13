# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of tables: by a column that a link in its head names, backwards with a dash before the name.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData

# The columns of a table of verdicts.
VERDICTS_BY: dict[str, t.Callable[[PlainData], t.Any]] = {
    "run": lambda row: row["run"], "subject": lambda row: row["subject"], "check": lambda row: (row["stage"], row["check"], row["variant"]),
    "verdict": lambda row: WORST_FIRST.index(row["verdict"]), "value": lambda row: (row["value"] is None, row["value"] or 0.0),
}  # fmt: skip


def ordered(rows: t.Sequence[t.Any], order: str, by: t.Mapping[str, t.Callable[[t.Any], t.Any]]) -> list[t.Any]:
    """Return the rows in an order; as they are if there is no such column."""
    key = by.get(order.removeprefix("-"))
    return sorted(rows, key=key, reverse=order.startswith("-")) if key else list(rows)


def verdicts(rows: t.Sequence[t.Any], order: str) -> list[t.Any]:
    """Return rows of verdicts in an order."""
    return ordered(rows, order, VERDICTS_BY)
