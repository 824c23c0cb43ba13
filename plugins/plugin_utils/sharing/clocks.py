# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clock offsets, from the `Date` header of the API server's answers and from `date +%s` on nodes. Both have whole seconds and an unknown
delay, so an offset is an interval, and only the part that no delay can explain counts.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import email.utils
import typing as t

# Lower and upper bound of the seconds to add to the controller's clock to get the other clock.
Offset = t.Tuple[float, float]
SECOND = 1.0


def offset(date: str | None, sent: float, came: float) -> Offset | None:
    """Return the offset of a server's clock. `sent` and `came` are the controller's times of request and answer. Return None without a
    valid date."""
    try:
        return offset_of(email.utils.parsedate_to_datetime(date or "").timestamp(), sent, came)
    except (TypeError, ValueError):
        return None


def offset_of(second: float, sent: float, came: float) -> Offset:
    """Return the offset of a clock that showed this whole second between two times of the controller."""
    return second - came, second + SECOND - sent


def ahead(first: Offset | None, second: Offset | None) -> float | None:
    """Return the least number of seconds by which the first clock is ahead of the second (negative: behind). Return 0 if both may agree,
    None if an offset is unknown."""
    if first is None or second is None:
        return None
    lower, upper = first[0] - second[1], first[1] - second[0]
    return lower if lower > 0 else min(upper, 0.0)
