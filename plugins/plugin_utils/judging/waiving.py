# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Failures that are known: what a waiver takes from a verdict, and what it does not.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import hashlib
import math
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import (
    bands,
    health,
    identity,
    physics,
    second_look,
    single_checks,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.waivers import Waiver
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Deviation

# How a failure begins that an earlier attempt told.
_EARLIER = re.compile(r"^on attempt \d+, which no other takes back: ")
# How the reason of a failure ends that was not there before the run, and when it came up.
NEW = {
    single_checks.DURING: "while a test ran", health.SINCE: "after the health check", identity.IN_THIS_RUN: "during the run",
    second_look.SINCE: "after the first look",
}  # fmt: skip
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
CLOCK_S = 5  # by which two runs may read the time of one line of the kernel's log differently
# Failures that are a state of the machine, and stay what they are from run to run: codes of a health check, of its counters and facts.
STATES = {*reasons.FATAL, *reasons.DEFECTS, "drift", "firmware", "health"} - {"wrong_results", "not_trained"}


def state_of(opinion: Opinion, deviating: t.Iterable[Deviation] = (), later_s: int = 0) -> str:
    """Return the fingerprint of the state that a failure tells of, as `ecc-0a1b2c3d`.

    It is equal for the same words, which name parts and counters, and of drift for the same values of the same facts (`deviating`, of
    drift.py), however many neighbours have them. A time in the words counts by its minute, read `later_s` seconds later: two runs
    compute the time of one line of the kernel's log from two readings of the clock.
    """
    items = sorted(f"{item['item']}={item['found']}" for item in deviating) if opinion.reason_code == "drift" else []
    words = "\n".join(items) or _EARLIER.sub("", opinion.reason)
    words = _TIME.sub(lambda time: _minute(time.group(), later_s), words)
    return f"{opinion.reason_code}-{hashlib.sha256(words.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _minute(time: str, later_s: int) -> str:
    """Return the minute of `YYYY-MM-DDTHH:MM:SSZ`, `later_s` seconds later; the text itself where it is no time."""
    try:
        read = datetime.datetime.strptime(time, "%Y-%m-%dT%H:%M:%SZ") + datetime.timedelta(seconds=later_s)
    except (ValueError, OverflowError):
        return time
    return f"{read:%Y-%m-%dT%H:%M}"


class Waiving:
    """The waivers of a run on the day that it is judged."""

    def __init__(self, waivers: list[Waiver], today: str) -> None:
        self.waivers = waivers
        self.today = today
        self.used: set[Waiver] = set()
        # Of each ticket the states that its waivers covered without naming them.
        self.stateless: dict[str, set[str]] = collections.defaultdict(set)

    def waive(self, key: Key, opinion: Opinion, deviating: t.Iterable[Deviation] = ()) -> Opinion:
        """A failure under the waiver that names its code and holds its state. Each is waived by itself, so that a known one hides no other.
        `deviating` are the facts that the node drifts in."""
        if opinion.verdict != "FAIL":
            return opinion
        covering = [w for w in self.waivers if w.covers(key[3], key[0], key[1])]
        naming = [w for w in covering if opinion.reason_code in w.codes]
        state, early, late = (state_of(opinion, deviating, later) if naming else "" for later in (0, -CLOCK_S, CLOCK_S))
        holding = [w for w in naming if _holds(w, opinion, {state, early, late})]
        waiver = self._naming(holding, (opinion.reason_code,))
        if waiver is None:
            notes = [
                f"waiver {w.ticket} does not name {opinion.reason_code}, only {', '.join(w.codes)}" for w in covering if w not in naming
            ]
            return opinion._replace(findings=[*opinion.findings, *(_exceeded(w, opinion, state) for w in naming), *notes])
        self.used.add(waiver)
        if waiver.expires < self.today:
            reason = f"{opinion.reason}; its waiver {waiver.ticket} expired on {waiver.expires}"
            changed = opinion.but("FAIL", "expired_waiver", reason)
            return changed._replace(ticket=waiver.ticket, expires=waiver.expires)
        if not waiver.state and opinion.reason_code in STATES:
            self.stateless[waiver.ticket].add(state)
        return _as_known_failure(opinion, waiver, opinion.reason)

    def unbound(self) -> list[str]:
        """A line for each ticket whose waivers cover states of machines and do not say which."""
        return [
            f"waiver {ticket} does not say for which state it is and covers a worse one too: add state: [{', '.join(sorted(states)[:8])}]"
            for ticket, states in sorted(self.stateless.items())
        ]

    @staticmethod
    def _naming(of: t.Iterable[Waiver], codes: t.Iterable[str | None]) -> Waiver | None:
        """The waiver that names one of the codes; of several the one that holds longest."""
        naming = [w for w in of if set(codes) & set(w.codes)]
        return max(naming, key=lambda w: (w.expires, w.ticket), default=None)

    def by_parts(
        self, key: Key, opinion: Opinion, members: t.Iterable[str], parts: t.Mapping[Key, tuple[Measurement, Opinion]]
    ) -> Opinion:
        """A node's number is that of its slowest part: where that part is waived and the others alone would not be too slow, the node
        is a known failure too."""
        if opinion.verdict != "FAIL" or opinion.reason_code not in reasons.LOW:
            return opinion
        promised = set(members)
        names = {part[3]: part for part in parts}
        if not promised or promised - set(names):
            return opinion
        if opinion.value is None or opinion.expected is None or opinion.floor is None:
            return opinion
        values, waived = {}, {}
        for name, part in names.items():
            value = _number(parts[part][0], opinion)
            if value is None:
                return opinion
            values[name] = value
            waiver = self._naming((w for w in self.waivers if w.covers(name, *key[:2])), reasons.LOW)
            if parts[part][1].verdict == "KNOWN_FAIL" and waiver and waiver.expires >= self.today:
                waived[name] = waiver
        lower = opinion.floor > opinion.expected
        limit = bands.floors(opinion.expected, "lower" if lower else "higher")[1]
        unwaived = [value for name, value in values.items() if name not in waived]
        slow = [name for name in waived if math.isclose(values[name], opinion.value, rel_tol=1e-6)]
        if not slow or any(value > limit if lower else value < limit for value in unwaived):
            return opinion
        return _as_known_failure(opinion, waived[slow[0]], f"{opinion.reason}; that is its part {slow[0]}, and the others are fast enough")

    def unused(self) -> t.Iterator[str]:
        """Waivers that cover nothing in this run; of a wide one, which stands for many subjects, only where it covers none of them."""
        groups: dict[Waiver, list[Waiver]] = collections.defaultdict(list)
        for waiver in self.waivers:
            groups[dataclasses.replace(waiver, subject="") if waiver.wide else waiver].append(waiver)
        for group in groups.values():
            if not self.used.intersection(group):
                w = group[0]
                check_text = " ".join(word for word in (w.stage, w.check) if word != "*") or "any check"
                subjects = ", ".join(each.subject for each in group[:4]) + (" ..." if len(group) > 4 else "")
                yield f"waiver {w.ticket} covers nothing in this run: {check_text} on {subjects}, {', '.join(w.codes)}"


def _holds(waiver: Waiver, opinion: Opinion, states: set[str]) -> bool:
    """Return True if a failure with one of the fingerprints `states` is in a waiver's state, or no worse than its number.

    A waiver without a state holds for what was there before the run, not for what came up in it (NEW).
    """
    if not waiver.state:
        return opinion.reason_code not in STATES or not opinion.reason.endswith(tuple(NEW))
    limits = [state for state in waiver.state if not isinstance(state, str)]
    if opinion.value is not None and limits:
        lower = opinion.floor is not None and opinion.expected is not None and opinion.floor > opinion.expected
        floors = [bands.floors(limit, "lower" if lower else "higher")[0] for limit in limits]
        return any(opinion.value <= floor if lower else opinion.value >= floor for floor in floors)
    return not states.isdisjoint(state for state in waiver.state if isinstance(state, str))


def _exceeded(waiver: Waiver, opinion: Opinion, state: str) -> str:
    """Return why a waiver that names the code of a failure does not cover it."""
    if not waiver.state:
        when = next((words for end, words in NEW.items() if opinion.reason.endswith(end)), "in the run")
        return f"waiver {waiver.ticket} is for what was there before the run, and this came up {when}: a new failure ({state})"
    value = "" if opinion.value is None else f" {opinion.value:g} {opinion.unit}"
    return f"waiver {waiver.ticket} was written for {', '.join(map(str, waiver.state))}, this is{value} {state}: a new failure"


def _number(part: Measurement, opinion: Opinion) -> float | None:
    """A part's number of the metric that an opinion is about, in its unit."""
    try:
        reading = bands.reading(part, str(opinion.metric), None)
        return physics.convert(reading.value, reading.unit, str(opinion.unit)) if reading else None
    except ValueError:
        return None


def _as_known_failure(opinion: Opinion, waiver: Waiver, reason: str) -> Opinion:
    changed = opinion.but("KNOWN_FAIL", "waived", f"known failure, {waiver.ticket}, until {waiver.expires}: {reason}")
    return changed._replace(of="FAIL", ticket=waiver.ticket, expires=waiver.expires)
