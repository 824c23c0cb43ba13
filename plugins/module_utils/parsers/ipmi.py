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
    r"|critical overtemperature|\bparity$|memory device disabled|fatal nmi|fault status|soft-power control"
    r"|controller (?:off-line|unavailable)"
)
_WORTH_A_LOOK = re.compile(
    r"(?i)\bcorrectable ecc|correctable machine check|bus correctable|redundancy degraded|predictive failure|going (?:high|low)"
    r"|transition to non-critical|correctable memory error logging limit|bus degraded|non-redundant|config(?:uration)? error|out-of-range"
    r"|\blimit exceeded|\blog full|event logging disabled|sensor failure|fru failure|access degraded|rebuild aborted|bus timeout|^failed$"
)


# Words for the states of sensors without thresholds, {type of sensor: {state: words}} (IPMI 2.0, table 42-3), those that tell of a fault or
# of a part that is there.
DISCRETE_WORDS: dict[int, dict[int, str]] = {
    0x07: {
        0: "IERR", 1: "Thermal Trip", 2: "FRB1/BIST failure", 3: "FRB2/Hang in POST failure", 4: "FRB3/Processor startup failure",
        5: "Configuration Error", 7: "Presence detected", 8: "Disabled", 10: "Throttled", 11: "Uncorrectable machine check exception",
        12: "Correctable machine check error",
    },
    0x08: {
        0: "Presence detected", 1: "Failure detected", 2: "Predictive failure", 3: "Power Supply AC lost", 4: "AC lost or out-of-range",
        5: "AC out-of-range, but present", 6: "Config Error", 7: "Power Supply Inactive",
    },
    0x09: {0: "Power off/down", 4: "AC lost", 5: "Soft-power control failure", 6: "Failure detected", 7: "Predictive failure"},
    0x0C: {
        0: "Correctable ECC", 1: "Uncorrectable ECC", 2: "Parity", 3: "Memory Scrub Failed", 4: "Memory Device Disabled",
        5: "Correctable memory error logging limit reached", 6: "Presence Detected", 7: "Configuration Error", 8: "Spare", 9: "Throttled",
        10: "Critical Overtemperature",
    },
    0x0D: {
        0: "Drive Present", 1: "Drive Fault", 2: "Predictive Failure", 3: "Hot Spare", 4: "Parity Check In Progress",
        5: "In Critical Array", 6: "In Failed Array", 7: "Rebuild In Progress", 8: "Rebuild Aborted",
    },
    0x10: {
        0: "Correctable memory error logging disabled", 1: "Event logging disabled", 2: "Log area reset/cleared",
        3: "All event logging disabled", 4: "Log full", 5: "Log almost full",
    },
    0x13: {
        0: "NMI/Diag Interrupt", 1: "Bus Timeout", 2: "I/O Channel check NMI", 3: "Software NMI", 4: "PCI PERR", 5: "PCI SERR",
        6: "EISA failsafe timeout", 7: "Bus Correctable error", 8: "Bus Uncorrectable error", 9: "Fatal NMI", 10: "Bus Fatal Error",
        11: "Bus Degraded",
    },
    0x21: {0: "Fault Status", 1: "Identify Status"},
    0x28: {
        0: "Sensor access degraded", 1: "Controller access degraded", 2: "Management controller off-line",
        3: "Management controller unavailable", 4: "Sensor failure", 5: "FRU failure",
    },
    0x29: {0: "Low", 1: "Failed", 2: "Presence Detected"},
}  # fmt: skip
# The same for the general kinds of events, {kind: {state: words}} (table 42-2).
GENERIC_WORDS: dict[int, dict[int, str]] = {
    0x03: {0: "State Deasserted", 1: "State Asserted"},
    0x04: {0: "No failure predicted", 1: "Predictive Failure Asserted"},
    0x05: {0: "Limit Not Exceeded", 1: "Limit Exceeded"},
    0x06: {0: "Performance Met", 1: "Performance Lags"},
    0x07: {
        0: "Transition to OK", 1: "Transition to Non-critical from OK", 2: "Transition to Critical from less severe",
        3: "Transition to Non-recoverable from less severe", 4: "Transition to Non-critical from more severe",
        5: "Transition to Critical from Non-recoverable", 6: "Transition to Non-recoverable", 7: "Monitor", 8: "Informational",
    },
    0x08: {0: "Device Absent", 1: "Device Present"},
    0x09: {0: "Device Disabled", 1: "Device Enabled"},
    0x0B: {
        0: "Fully Redundant", 1: "Redundancy Lost", 2: "Redundancy Degraded", 3: "Non-Redundant: Sufficient from Redundant",
        4: "Non-Redundant: Sufficient from Insufficient", 5: "Non-Redundant: Insufficient Resources",
        6: "Redundancy Degraded from Fully Redundant", 7: "Redundancy Degraded from Non-Redundant",
    },
}  # fmt: skip


class SelEvent(t.NamedTuple):
    """An event of the log that reports a fault: its time in seconds since 1970 (None if the controller did not know it), reason code and
    words."""

    when: float | None
    code: str
    words: str


def sensors(text: str) -> tuple[list[Problem], int]:
    """Return the problems of `ipmitool sdr elist` as (reason code, words), and how many of the sensors that it lists have a reading."""
    problems: list[Problem] = []
    count = 0
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != 5:
            continue
        name, _number, state, _entity, reading = cells
        count += state != "ns"
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


def clock(text: str) -> float | None:
    """Return the time that `ipmitool sel time get` prints as seconds since 1970, None if it prints none."""
    match = re.fullmatch(r"(\d\d/\d\d/\d{4}) (\d\d:\d\d:\d\d(?: \w+)?)", text.strip())
    return _time(*match.groups()) if match else None


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
