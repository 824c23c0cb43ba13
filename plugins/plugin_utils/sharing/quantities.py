# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Amounts as quotas and case files write them: `4Gi` of memory.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

_BYTES = {"": 1, "B": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?i?|B)")


def number_of(value: t.Any) -> float:
    """Return the number of a value that is a number or an amount with a unit, in bytes. Raise ValueError for anything else."""
    if isinstance(value, bool):
        raise ValueError(f"found {value!r}, expected a number or an amount like 4Gi")
    if isinstance(value, (int, float)):
        return float(value)
    match = _AMOUNT.fullmatch(str(value).strip())
    if not match or match.group(2) not in _BYTES:
        raise ValueError(f"found {value!r}, expected a number or an amount like 4Gi")
    return float(match.group(1)) * _BYTES[match.group(2)]
