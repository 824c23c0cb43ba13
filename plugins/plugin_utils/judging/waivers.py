# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Known failures: what may fail for a while, by which ticket, until when.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import json
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import entries
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, is_number

KEYS = ("subject", "stage", "check", "codes", "state", "ticket", "expires", "reason", "wide")
# A code and the beginning of a digest, as waiving.state_of() makes it.
_STATE = re.compile(r"^[a-z0-9_]+-[0-9a-f]{8}$")
# Days that a date can always be away.
_CENTURY = 36500
_TEXTS = ("subject", "stage", "check", "ticket", "expires", "reason")


class WaiverError(RunError):
    """A waiver that cannot be used: names it, the key, what was found and what is expected."""


@dataclasses.dataclass(frozen=True)
class Waiver(entries.About):
    """`codes` are the reason codes of the failures that are known, `state` what they were when it was written: fingerprints of failures, or
    one number that a measured value may not be worse than. `wide` says that it may cover more than one node."""

    ticket: str
    expires: str  # YYYY-MM-DD, the last day on which it holds
    reason: str
    codes: tuple[str, ...] = reasons.LOW
    wide: bool = False
    state: tuple[str | float, ...] = ()


def parse(raw: t.Any, where: str = "acceptance_waivers") -> list[Waiver]:
    """A list of {subject, stage, check, codes, state, ticket, expires, reason, wide} as the user wrote it; without stage or check it is for
    all, without codes for numbers that are too low, without a state for whatever was there before the run, and a reason is for people
    only."""
    if not isinstance(raw, list):
        raise WaiverError(f"{where}: found {raw!r}, expected a list of waivers")
    return [_one(item, f"{where}[{index}]") for index, item in enumerate(raw)]


def _one(raw: t.Any, where: str) -> Waiver:
    values, where = entries.read(raw, where, KEYS, _TEXTS, "expires", WaiverError)
    values["codes"] = _codes(values.get("codes", list(reasons.LOW)), where)
    values["state"] = _state(values.get("state", []), where)
    if not isinstance(values.get("wide", False), bool):
        raise WaiverError(f"{where}: wide: found {values['wide']!r}, expected true or false")
    return Waiver(**values)


def _state(raw: t.Any, where: str) -> tuple[str | float, ...]:
    """The states that a waiver was written for: fingerprints as the run's WARN says them, or one number."""
    states = raw if isinstance(raw, list) else [raw]
    for state in states:
        if not (is_number(state) and state > 0) and not (isinstance(state, str) and _STATE.match(state)):
            expected = "what the report says, as ecc-0a1b2c3d, a list of such, or the number above 0 that was measured"
            raise WaiverError(f"{where}: state: found {state!r}, expected {expected}")
    return tuple(states)


def _codes(raw: t.Any, where: str) -> tuple[str, ...]:
    if not isinstance(raw, list) or not raw:
        raise WaiverError(f"{where}: codes: found {raw!r}, expected a list of reason codes, like {', '.join(reasons.LOW)}")
    for code in raw:
        if not isinstance(code, str) or code not in reasons.ALL:
            near = difflib.get_close_matches(str(code), reasons.ALL, 1, 0.0)
            raise WaiverError(f"{where}: codes: found {code!r}, expected a reason code, like {near[0]}")
    return tuple(raw)


class Book:
    """The waivers of a run, gathered from its hosts within the limits of how far and how long one may reach. `raw` are they."""

    def __init__(self, today: datetime.date) -> None:
        self.today = today
        self._raw: dict[str, PlainData] = {}
        self._inherited: dict[str, str] = {}

    @property
    def raw(self) -> list[PlainData]:
        return list(self._raw.values())

    def take(self, raw: t.Any, where: str, subject: str, days: int) -> None:
        """Add the waivers of a host, for `subject` if they name none. Raises WaiverError if one cannot be used, ends later than `days`
        from now, or covers more than one node and does not say `wide: true`."""
        if not isinstance(raw, list):
            raise WaiverError(f"{where}: found {raw!r}, expected a list of waivers")
        for index, item in enumerate(raw):
            full_item = {"subject": subject, **item} if isinstance(item, dict) else item
            waiver = _one(full_item, f"{where}[{index}]")
            place = f"{where}[{index}] ({waiver.ticket})"
            last = (self.today + datetime.timedelta(days=min(days, _CENTURY))).isoformat()
            if waiver.expires > last:
                raise WaiverError(
                    f"{place}: expires: found {waiver.expires}, expected a day until {last}, {days} days from now; "
                    "acceptance_waiver_days sets how many"
                )
            if re.search(r"[*?\[]", node_of(waiver.subject)) and not waiver.wide:
                raise WaiverError(f"{place}: subject: found {waiver.subject!r}, expected one node, or wide: true for more than one")
            if "subject" not in item:
                first = self._inherited.setdefault(json.dumps(item, sort_keys=True, default=str), subject)
                if first != subject and not waiver.wide:
                    raise WaiverError(f"{place}: subject: found none, for {first} and {subject}, expected one node, or wide: true")
            self._raw.setdefault(json.dumps(full_item, sort_keys=True, default=str), full_item)
