# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Amounts as quotas and case files write them: `4Gi` of memory.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import math
import re
import typing as t


def number_of(value: t.Any) -> float:
    """Return the number of a value that is a number, or an amount as Kubernetes writes quantities; `8B` is 8. Raise ValueError for anything
    else, and for text of a number that is negative or not finite."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    try:
        # 0.7 s, for the client's API classes: runs without GPU sharing do not take them.
        from kubernetes.utils import parse_quantity
    except ImportError:
        raise ValueError("the controller lacks the Python package kubernetes; install the collection's requirements.txt") from None
    try:
        number = float(parse_quantity(re.sub(r"(?<=[0-9])\s*B$", "", str(value).strip())))
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError(f"found {value!r}, expected a number or an amount like 4Gi")
    return number
