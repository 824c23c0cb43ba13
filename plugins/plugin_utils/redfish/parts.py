# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the resource of one part of a machine from a Redfish service, and returns its problems in the words of a technician.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.redfish import log
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.redfish.fields import (
    CODES,
    Part,
    Problem,
    graded,
    health,
    listed,
    number,
    of_makers,
    state,
    status,
    text,
    within,
)

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
# Resource.State of DMTF's schema: a part that is there and cannot be used, or not well. A setting may switch a part off (`Disabled`), or
# keep it for later (`StandbyOffline`, `StandbySpare`, `Deferring`, `Quiesced`).
_UNUSABLE = {"unavailableoffline": "it is there and not used", "degraded": "it works worse than it should"}
# PowerSupply.LineInputStatus of DMTF's schema ("lost", "out of range"), with the grades that IPMI has for the same (table 42-3, type 08h).
_INPUTS = {"lossofinput": "bmc_fault", "outofrange": "bmc_event"}
_FINE_INPUTS = ("normal", "ok", "unknown", "unavailable", "none", "n/a")
# iLO's state of a memory module (HpeServerMemory, DIMMStatus) that is not in use as it should be.
_DIMM_STATES = {
    "ExpectedButMissing": "bmc_fault", "MapOutError": "bmc_fault", "Degraded": "bmc_event", "ConfigurationError": "bmc_event",
    "DoesNotMatch": "bmc_event", "NotSupported": "bmc_event", "PresentUnused": "bmc_event", "AddedButUnused": "bmc_event",
    "UpgradedButUnused": "bmc_event", "MapOutConfiguration": "bmc_event", "GoodPartiallyInUse": "bmc_event",
}  # fmt: skip
# A supply may stop its own fan at little load.
_FAN_OF_SUPPLY = re.compile(r"(?i)psu|ps ?\d|power ?supply")


def is_absent(part: Part) -> bool:
    """Return True for an empty slot. A part that should be there and is not has a health."""
    return state(part).lower() == "absent" and graded(status(part).get("Health")) not in CODES


def has_reading(part: Part) -> bool:
    return any(number(part.get(key)) is not None for key in _READINGS) or speed(part) is not None


def speed(fan: Part) -> float | None:
    """Return the speed of a fan in the unit of its service, RPM or percent; None if it has none."""
    found = number(fan.get("Reading"))
    inner = (number(within(fan, "SpeedPercent", key)) for key in ("SpeedRPM", "Reading"))
    return found if found is not None else next((value for value in inner if value is not None), None)


def standing_fans(fans: t.Sequence[Part]) -> t.Iterator[Problem]:
    """Yield a problem for each fan that stands while others turn, and says nothing of it itself."""
    speeds = [(fan, found) for fan in fans if (found := speed(fan)) is not None]
    turning = sum(found > 0 for _fan, found in speeds)
    for fan, found in speeds:
        if found == 0 and not state(fan).lower().startswith("standby") and not problems("fan", fan):
            may_stand = _FAN_OF_SUPPLY.search(name_of("", fan)) or turning < len(speeds) - turning  # as where liquids cool
            code = "bmc_event" if may_stand else "bmc_fault"
            yield code, f"{name_of('fan', fan)}: it stands while {turning} of {len(speeds)} fans of the chassis turn"


def name_of(kind: str, part: Part) -> str:
    """Return the name of a part with its place and its numbers, as far as the service has them."""
    name = next((found for key in ("Name", "FanName", "MemberId", "Id") if (found := text(part.get(key)))), "without a name")
    details = []
    locator = text(part.get("DeviceLocator")) or text(within(part, "Location", "PartLocation", "ServiceLabel"))
    if locator and locator != name:
        details.append(f"at {locator}")
    location = part.get("MemoryLocation")
    if isinstance(location, dict):
        places = [f"{key.lower()} {location[key]}" for key in ("Socket", "Channel", "Slot") if number(location.get(key)) is not None]
        details += [", ".join(places)] if places else []
    for key, words in (("Model", "model"), ("PartNumber", "part number"), ("SerialNumber", "serial number")):
        details += [f"{words} {text(part[key])}"] if text(part.get(key)) else []
    return f"{kind} {name} ({'; '.join(details)})" if details else f"{kind} {name}"


def problems(kind: str, part: Part) -> list[Problem]:
    """Return the problems of a part: its health, and a reading beyond its own limits."""
    if is_absent(part):
        return []
    name = name_of(kind, part)
    reading, beyond = _beyond(part)
    word = health(part)
    conditions = [*_conditions(kind, part)]
    found = [CODES[word]] if word in CODES else []
    found += [beyond[1]] if beyond else []
    found += [code for code, _words in conditions]
    if not found:
        return []
    own = text(status(part).get("Health"))
    words = [f"health {word}" if own.lower() == word.lower() else f"health {own!r}, read as {word}"] if word in CODES else []
    words += [f"reading {reading}"] if reading else []
    words += [f"beyond its limit {beyond[0]}"] if beyond else []
    words += [message for each in listed(status(part), "Conditions") if (message := text(each.get("Message")))]
    words += [condition for _code, condition in conditions]
    return [("bmc_fault" if "bmc_fault" in found else "bmc_event", f"{name}: {', '.join(words)[:400]}")]


def _conditions(kind: str, part: Part) -> t.Iterator[Problem]:
    """Yield what is wrong with a part by other fields than its health and its reading."""
    if number(part.get("LineInputVoltage")) == 0:
        # Not a fault: some services have 0 for a voltage that they do not measure, and say in Health what is wrong.
        yield "bmc_event", "its input has 0 V"
    line = text(part.get("LineInputStatus"))
    if line and line.lower() not in _FINE_INPUTS:
        yield _INPUTS.get(line.lower(), "bmc_event"), f"the controller calls its input {line}"
    if part.get("FailurePredicted") is True:
        yield "bmc_event", "it foretells its failure"
    word = state(part)
    if word.lower() in _UNUSABLE:
        yield "bmc_event", f"{_UNUSABLE[word.lower()]} (state {word})"
    elif "CapacityMiB" in part or kind == "memory module":
        # Memory is switched off by the firmware if it failed its test.
        size = number(part.get("CapacityMiB"))
        is_there = bool(text(part.get("SerialNumber"))) if size is None else size > 0
        if is_there and (word.lower() == "disabled" or part.get("Enabled") is False):
            yield "bmc_event", f"it is there and not used (state {word or 'not enabled'})"
        for found in of_makers(part, "DIMMStatus"):
            if text(found) in _DIMM_STATES:
                yield _DIMM_STATES[text(found)], f"the controller calls it {text(found)}"
    if part.get("Throttled") is True:
        causes = part.get("ThrottleCauses")
        why = f" ({', '.join(filter(None, map(text, causes)))})" if isinstance(causes, list) and causes else ""
        # The machine rests: a CPU that is throttled now will be so under load.
        yield ("bmc_fault" if text(part.get("ProcessorType")) in ("", "CPU") else "bmc_event"), f"it is throttled{why}"
    detected = graded(part.get("DetectorState"))
    if detected in CODES:
        yield CODES[detected], f"it reports a leak (state {detected})"


def _beyond(part: Part) -> tuple[str, tuple[str, str] | None]:
    """Return the reading of a sensor with its unit, and the gravest limit that it is beyond with its reason code."""
    key = next((key for key in _READINGS if number(part.get(key)) is not None), None)
    if key is None:
        return "", None
    reading, unit = float(part[key]), _READINGS[key] or text(part.get("ReadingUnits"))
    for limit, (of_sensor, sign, code) in _LIMITS.items():
        threshold = number(part.get(limit, within(part, "Thresholds", of_sensor, "Reading")))
        if threshold == 0 and sign > 0 and health(part) == "OK":
            continue  # some services have 0 for an upper limit that is not set
        if threshold is not None and (reading - threshold) * sign > 0:
            return f"{reading:g} {unit}".strip(), (f"{limit} {threshold:g}", code)
    return f"{reading:g} {unit}".strip(), None


def event(entry: Part) -> Problem | None:
    """Return what an entry of a log of events reports, None if it is no fault, or one that was resolved."""
    return log.problem(entry)
