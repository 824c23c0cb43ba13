# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads single fields of a resource of a Redfish service, which may be missing, null or of another type.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import math
import typing as t

# A problem as (reason code, words).
Problem = t.Tuple[str, str]
Part = t.Mapping[str, t.Any]

# Resource.Health of DMTF's schema: OK, Warning ("a condition requires attention"), Critical ("requires immediate attention").
CODES = {"Critical": "bmc_fault", "Warning": "bmc_event"}
# {grade: its words}, those of the schema first, then those of services that keep to none.
_WORDS = {
    "OK": ("ok", "good", "normal", "healthy"),
    "Warning": ("warning", "caution", "degraded", "minor", "noncritical", "predictivefailure", "attention"),
    "Critical": (
        "critical", "failed", "fail", "failure", "fault", "faulty", "faulted", "error", "fatal", "major", "severe", "bad", "nonrecoverable",
        "unrecoverable", "emergency",
    ),
}  # fmt: skip
_GRADES = {word: grade for grade, words in _WORDS.items() for word in words}
# Words by which a service says that it knows of no health.
_UNSAID = ("", "unknown", "none", "null", "na", "notavailable", "notapplicable", "unsupported", "unavailable", "undefined", "informational")


# Resource.State of DMTF's schema.
_STATES = (
    "enabled", "disabled", "standbyoffline", "standbyspare", "intest", "starting", "absent", "unavailableoffline", "deferring", "quiesced",
    "updating", "qualified", "degraded",
)  # fmt: skip


def _plain(word: t.Any) -> str:
    """Return a word in the form in which it is compared: `Non-Recoverable` and `NonRecoverable` are one."""
    return "".join(filter(str.isalnum, text(word).lower()))


def text(value: t.Any) -> str:
    """Return a text of a resource in one line; empty if it is none."""
    return " ".join(value.split())[:120] if isinstance(value, str) else ""


def number(value: t.Any) -> float | None:
    """Return a number of a resource, None if it is none: JSON of some services has NaN."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15 and math.isfinite(value)
    return float(value) if is_number else None


def within(value: t.Any, *keys: str) -> t.Any:
    """Return a value inside objects, None if one of them is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def of_makers(part: Part, key: str) -> list[t.Any]:
    """Return the values that makers have under `key` in their own objects: `Oem.Hpe`, `Oem.Hp`, `Oem.Lenovo` ..."""
    makers = part.get("Oem")
    found = [maker.get(key) for maker in makers.values() if isinstance(maker, dict)] if isinstance(makers, dict) else []
    return [value for value in found if value is not None]


def status(part: Part) -> Part:
    """Return the status of a part; empty if it has none. Some services have a text in its place: a state of the schema, or a health."""
    found = part.get("Status")
    if text(found):
        return {"State" if _plain(found) in _STATES else "Health": found}
    return found if isinstance(found, dict) else {}


def state(part: Part) -> str:
    return text(status(part).get("State"))


def graded(word: t.Any) -> str:
    """Return OK, Warning or Critical of a word in any case; empty for another one."""
    return _GRADES.get(_plain(word), "")


def health(part: Part, of: str = "Health") -> str:
    """Return OK, Warning or Critical; empty if the part does not say it. `of` is HealthRollup for the part with all that it consists of.
    A word that nobody knows is a Warning: nothing says that it is healthy."""
    word = status(part).get(of)
    return graded(word) or ("" if _plain(word) in _UNSAID else "Warning")


def listed(resource: Part, key: str) -> list[t.Dict[str, t.Any]]:
    """Return the objects of a list in a resource; an entry that is none is a part without a state."""
    found = resource.get(key)
    return [each if isinstance(each, dict) else {} for each in found] if isinstance(found, list) else []
