# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of JSON in a workload's output, among lines that its libraries print.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import typing as t

LARGEST = 1e100


def read(text: str) -> tuple[list[dict[str, t.Any]], list[str]]:
    """The objects, and the other lines that say anything."""
    records, other_lines = [], []
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict):
            records.append(record)
        elif line.strip():
            other_lines.append(line.strip())
    return records, other_lines


def numbers(*values: t.Any) -> bool:
    """Return True if all values are finite numbers of a size that can be computed with."""
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) and abs(v) < LARGEST for v in values)
