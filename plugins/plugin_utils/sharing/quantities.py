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
    """A number, or an amount with a unit of bytes. ValueError for anything else: a quota that is misread would be asserted."""
    if isinstance(value, bool):
        raise ValueError(f"found {value!r}, expected a number or an amount like 4Gi")
    if isinstance(value, (int, float)):
        return float(value)
    found = _AMOUNT.fullmatch(str(value).strip())
    if not found or found.group(2) not in _BYTES:
        raise ValueError(f"found {value!r}, expected a number or an amount like 4Gi")
    return float(found.group(1)) * _BYTES[found.group(2)]
