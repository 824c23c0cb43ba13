# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser for `ipmitool sdr elist` and `ipmitool sel elist`: the sensors of a machine's management controller, and its log of events.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import calendar
import re
import time
import typing as t

Problem = t.Tuple[str, str]

# States of a sensor with thresholds: beyond the critical or the non-recoverable one, beyond the first one (ipmitool(1)).
_CRITICAL, _WARNING = ("lcr", "ucr", "lnr", "unr", "cr", "nr"), ("lnc", "unc", "nc")
# States of a sensor without thresholds, and events, in ipmitool's words for those of IPMI 2.0, table 42-3. A power supply that failed has
# the state `ok`: only these words tell.
_GRAVE = re.compile(
    r"(?i)failure detected|ac lost|input lost|drive fault|in (?:critical|failed) array|redundancy lost|insufficient resources"
    r"|uncorrectable ecc|uncorrectable machine check|\bierr\b|thermal trip|\bfrb\d|bus fatal error|pci (?:serr|perr)|bus uncorrectable"
    r"|(?:upper|lower) (?:critical|non-recoverable) going|transition to (?:critical|non-recoverable)|memory scrub failed"
)
_WORTH_A_LOOK = re.compile(
    r"(?i)\bcorrectable ecc|correctable machine check|bus correctable|redundancy degraded|predictive failure|going (?:high|low)"
    r"|transition to non-critical|correctable memory error logging limit|bus degraded|non-redundant|config(?:uration)? error|out-of-range"
)


class SelEvent(t.NamedTuple):
    """An event of the log that reports a fault: its time in seconds since 1970 (None if the controller did not know it), reason code and
    words."""

    when: float | None
    code: str
    words: str


def sensors(text: str) -> tuple[list[Problem], int]:
    """Return the problems of `ipmitool sdr elist` as (reason code, words), and how many sensors it lists."""
    problems: list[Problem] = []
    count = 0
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != 5:
            continue
        count += 1
        name, _number, state, _entity, reading = cells
        faults = [word.strip() for word in reading.split(",") if _GRAVE.search(word)]
        if faults:
            problems.append(("bmc_fault", f"{name}: {', '.join(faults)}"))
        elif state in _CRITICAL:
            problems.append(("bmc_fault", f"{name}: {reading}, beyond its critical limit ({state})"))
        elif state in _WARNING:
            problems.append(("bmc_event", f"{name}: {reading}, beyond its first limit ({state})"))
        elif _WORTH_A_LOOK.search(reading):
            problems.append(("bmc_event", f"{name}: {reading}"))
    return problems, count


def events(text: str) -> list[SelEvent]:
    """Return the events of `ipmitool sel elist` that tell of a fault and were not taken back by a later event of the same sensor."""
    asserted: dict[tuple[str, str], SelEvent] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 5 or not re.fullmatch(r"[0-9a-f]+", cells[0]):
            continue
        # A controller that does not know the time writes one cell in place of two: `Pre-Init`, `PostInit`.
        cells = cells if re.search(r"\d:\d\d", cells[2]) else [cells[0], "", "", *cells[2:]]
        if len(cells) < 5:
            continue
        sensor, event = cells[3], cells[4]
        if "Deasserted" in cells[5:]:
            asserted.pop((sensor, event), None)
            continue
        code = "bmc_fault" if _GRAVE.search(event) else "bmc_event" if _WORTH_A_LOOK.search(event) else ""
        if code:
            reading = f" ({cells[6]})" if len(cells) > 6 and cells[6] else ""
            asserted[sensor, event] = SelEvent(_time(cells[1], cells[2]), code, f"{sensor}: {event}{reading}")
    return list(asserted.values())


def _time(day: str, clock: str) -> float | None:
    """Return a time of the log as seconds since 1970. Without `UTC` it is the local time of the machine."""
    matches = re.match(r"(\d\d)/(\d\d)/(\d{2,4})$", day), re.match(r"(\d\d):(\d\d):(\d\d)( UTC)?", clock)
    if not (matches[0] and matches[1]):
        return None
    month, of_month, year = (int(part) for part in matches[0].groups())
    hour, minute, second = (int(part) for part in matches[1].groups()[:3])
    parts = (year + 2000 if year < 100 else year, month, of_month, hour, minute, second, 0, 0, -1)
    try:
        return float(calendar.timegm(parts)) if matches[1].group(4) else time.mktime(parts)
    except (ValueError, OverflowError):
        return None
