# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Events of a log paired with the events that end them: what a management controller, Redfish or the kernel logged and never took back.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t


class Event(t.NamedTuple):
    """One event of a log. `part` and `kind` name a set of states of which one holds at a time (a power supply's redundancy: full, degraded,
    lost), so that the last event of the set says what holds. `is_fault` is False if the event says that the part is good again. `data` is
    the reader's own: reason code, words, time."""

    part: t.Hashable
    kind: t.Hashable
    is_fault: bool
    data: t.Any = None


def standing(events: t.Iterable[Event]) -> list[Event]:
    """Return the faults that no later event of the same part and kind has ended or replaced, in the order in which they were logged.
    `events` are in the order of the log, the oldest first."""
    last: dict[tuple[t.Hashable, t.Hashable], Event] = {}
    for event in events:
        last.pop((event.part, event.kind), None)
        if event.is_fault:
            last[event.part, event.kind] = event
    return list(last.values())


def over(events: t.Iterable[Event]) -> list[Event]:
    """Return the faults that came and went: those of parts and kinds of which none stands, in the order in which they were logged."""
    events = list(events)
    still = {(event.part, event.kind) for event in standing(events)}
    return [event for event in events if event.is_fault and (event.part, event.kind) not in still]
