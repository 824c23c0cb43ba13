# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the resource of one part of a machine from a Redfish service, and returns its problems in the words of a technician.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import math
import typing as t

# A problem as (reason code, words).
Problem = t.Tuple[str, str]

# Resource.Health of DMTF's schema: OK, Warning ("a condition requires attention"), Critical ("requires immediate attention").
CODES = {"Critical": "bmc_fault", "Warning": "bmc_event"}
_HEALTH = {word.lower(): word for word in ("OK", *CODES)}
# {limit in Thermal and Power: (its name in a Sensor, sign of a reading beyond it, reason code)}, the gravest first.
_LIMITS = {
    "UpperThresholdFatal": ("UpperFatal", 1, "bmc_fault"),
    "UpperThresholdCritical": ("UpperCritical", 1, "bmc_fault"),
    "LowerThresholdFatal": ("LowerFatal", -1, "bmc_fault"),
    "LowerThresholdCritical": ("LowerCritical", -1, "bmc_fault"),
    "UpperThresholdNonCritical": ("UpperCaution", 1, "bmc_event"),
    "LowerThresholdNonCritical": ("LowerCaution", -1, "bmc_event"),
}
# {reading: its unit, if the part does not say it}
_READINGS = {"Reading": "", "ReadingCelsius": "C"}


def text(value: t.Any) -> str:
    """Return a text of a resource in one line; empty if it is none."""
    return " ".join(value.split())[:120] if isinstance(value, str) else ""


def number(value: t.Any) -> float | None:
    """Return a number of a resource, None if it is none: JSON of some services has NaN."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15 and math.isfinite(value)
    return float(value) if is_number else None


def status(part: t.Mapping[str, t.Any]) -> t.Mapping[str, t.Any]:
    """Return the status of a part; empty if it has none."""
    found = part.get("Status")
    return found if isinstance(found, dict) else {}


def is_absent(part: t.Mapping[str, t.Any]) -> bool:
    """Return True for an empty slot. A part that should be there and is not has a health."""
    return status(part).get("State") == "Absent" and health(part) not in CODES


def health(part: t.Mapping[str, t.Any], of: str = "Health") -> str:
    """Return OK, Warning or Critical; empty if the part does not say it. `of` is HealthRollup for the part with all that it consists of."""
    return _HEALTH.get(text(status(part).get(of)).lower(), "")


def has_reading(part: t.Mapping[str, t.Any]) -> bool:
    return any(number(part.get(key)) is not None for key in _READINGS)


def listed(resource: t.Mapping[str, t.Any], key: str) -> list[t.Dict[str, t.Any]]:
    """Return the objects of a list in a resource; an entry that is none is a part without a state."""
    found = resource.get(key)
    return [each if isinstance(each, dict) else {} for each in found] if isinstance(found, list) else []


def name_of(kind: str, part: t.Mapping[str, t.Any]) -> str:
    """Return the name of a part with its place and its numbers, as far as the service has them."""
    name = next((found for key in ("Name", "FanName", "MemberId", "Id") if (found := text(part.get(key)))), "without a name")
    details = []
    locator = text(part.get("DeviceLocator")) or text(_within(part, "Location", "PartLocation", "ServiceLabel"))
    if locator and locator != name:
        details.append(f"at {locator}")
    location = part.get("MemoryLocation")
    if isinstance(location, dict):
        places = [f"{key.lower()} {location[key]}" for key in ("Socket", "Channel", "Slot") if number(location.get(key)) is not None]
        details += [", ".join(places)] if places else []
    for key, words in (("Model", "model"), ("PartNumber", "part number"), ("SerialNumber", "serial number")):
        details += [f"{words} {text(part[key])}"] if text(part.get(key)) else []
    return f"{kind} {name} ({'; '.join(details)})" if details else f"{kind} {name}"


def problems(kind: str, part: t.Mapping[str, t.Any]) -> list[Problem]:
    """Return the problems of a part: its health, and a reading beyond its own limits."""
    if is_absent(part):
        return []
    name = name_of(kind, part)
    reading, beyond = _beyond(part)
    conditions = [message for each in listed(status(part), "Conditions") if (message := text(each.get("Message")))]
    state = health(part)
    found = [CODES[state]] if state in CODES else []
    found += [beyond[1]] if beyond else []
    if number(part.get("LineInputVoltage")) == 0:
        # Not a fault: some services have 0 for a voltage that they do not measure, and say in Health what is wrong.
        found.append("bmc_event")
        conditions.append("its input has 0 V")
    state_name = status(part).get("State")
    if state_name == "UnavailableOffline" or (state_name == "Disabled" and (number(part.get("CapacityMiB")) or 0) > 0):
        # There, and not usable; memory is switched off by the firmware if it failed its test. Other parts may be so by a setting.
        found.append("bmc_event")
        conditions.append(f"it is there and not used (state {state_name})")
    if not found:
        return []
    words = [f"health {state}"] if state in CODES else []
    words += [f"reading {reading}"] if reading else []
    words += [f"beyond its limit {beyond[0]}"] if beyond else []
    return [("bmc_fault" if "bmc_fault" in found else "bmc_event", f"{name}: {', '.join([*words, *conditions])[:400]}")]


def _beyond(part: t.Mapping[str, t.Any]) -> tuple[str, tuple[str, str] | None]:
    """Return the reading of a sensor with its unit, and the gravest limit that it is beyond with its reason code."""
    key = next((key for key in _READINGS if number(part.get(key)) is not None), None)
    if key is None:
        return "", None
    reading, unit = float(part[key]), _READINGS[key] or text(part.get("ReadingUnits"))
    for limit, (of_sensor, sign, code) in _LIMITS.items():
        threshold = number(part.get(limit, _within(part, "Thresholds", of_sensor, "Reading")))
        if threshold == 0 and sign > 0 and health(part) == "OK":
            continue  # some services have 0 for an upper limit that is not set
        if threshold is not None and (reading - threshold) * sign > 0:
            return f"{reading:g} {unit}".strip(), (f"{limit} {threshold:g}", code)
    return f"{reading:g} {unit}".strip(), None


def event(entry: t.Mapping[str, t.Any]) -> Problem | None:
    """Return what an entry of a log of events reports, None if it is no fault, or one that was resolved."""
    severity = _HEALTH.get((text(entry.get("Severity")) or text(entry.get("MessageSeverity"))).lower(), "")
    if severity not in CODES or entry.get("Resolved") is True or "Deassert" in str(entry.get("EntryCode")):
        return None
    when = text(entry.get("EventTimestamp")) or text(entry.get("Created")) or "an unknown time"
    what = text(entry.get("Message")) or text(entry.get("MessageId")) or text(entry.get("Name")) or "an event without words"
    about = ": ".join(filter(None, (text(entry.get("SensorType")), what)))
    return CODES[severity], f"its log has, at {when}: {about} ({severity})"


def _within(value: t.Any, *keys: str) -> t.Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
