# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""By how much the clock of a node is off, of the `Date` in its answers: whole seconds, and nobody knows how long they were on their way.
So a clock is off by what no delay can explain.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import email.utils
import typing as t

# What has to be added to our clock to have another one: at least and at most.
Offset = t.Tuple[float, float]
SECOND = 1.0


def offset(date: str | None, sent: float, came: float) -> Offset | None:
    """Return the offset of a server's clock from an answer that was requested and received at these times of our clock; None if it has no
    date."""
    try:
        written = email.utils.parsedate_to_datetime(date or "").timestamp()
    except (TypeError, ValueError):
        return None
    return written - came, written + SECOND - sent


def ahead(one: Offset | None, other: Offset | None) -> float | None:
    """By how many seconds at least the first clock is ahead of the second, behind it where negative; 0 where both may say the same."""
    if one is None or other is None:
        return None
    least, most = one[0] - other[1], one[1] - other[0]
    return least if least > 0 else min(most, 0.0)
