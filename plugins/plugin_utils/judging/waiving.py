# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Failures that are known: what a waiver takes from a verdict, and what it does not.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands, physics
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.waivers import Waiver
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key

Record = dict[str, t.Any]


class Waiving:
    """The waivers of a run on the day that it is judged."""

    def __init__(self, waivers: list[Waiver], today: str) -> None:
        self.waivers = waivers
        self.today = today
        self.used: set[Waiver] = set()

    def waive(self, key: Key, opinion: Opinion) -> Opinion:
        """A failure under the waiver that names its code. Each is waived by itself, so that a known one hides no other."""
        if opinion.verdict != "FAIL":
            return opinion
        mine = [w for w in self.waivers if w.covers(key[3], key[0], key[1])]
        waiver = self._naming(mine, (opinion.reason_code,))
        if waiver is None:
            others = [f"waiver {w.ticket} does not name {opinion.reason_code}, only {', '.join(w.codes)}" for w in mine]
            return opinion._replace(findings=[*opinion.findings, *others])
        self.used.add(waiver)
        if waiver.expires < self.today:
            reason = f"{opinion.reason}; its waiver {waiver.ticket} expired on {waiver.expires}"
            changed = opinion.but("FAIL", "expired_waiver", reason)
            return changed._replace(ticket=waiver.ticket, expires=waiver.expires)
        return _known(opinion, waiver, opinion.reason)

    @staticmethod
    def _naming(of: t.Iterable[Waiver], codes: t.Iterable[str | None]) -> Waiver | None:
        """The waiver that names one of the codes; of several the one that holds longest."""
        naming = [w for w in of if set(codes) & set(w.codes)]
        return max(naming, key=lambda w: (w.expires, w.ticket), default=None)

    def by_parts(
        self, key: Key, opinion: Opinion, members: t.Iterable[str], parts: t.Mapping[Key, tuple[Record, Opinion]]
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
        others = [value for name, value in values.items() if name not in waived]
        slow = [name for name in waived if math.isclose(values[name], opinion.value, rel_tol=1e-6)]
        if not slow or any(value > limit if lower else value < limit for value in others):
            return opinion
        return _known(opinion, waived[slow[0]], f"{opinion.reason}; that is its part {slow[0]}, and the others are fast enough")

    def unused(self) -> t.Iterator[str]:
        """Waivers that cover nothing in this run; of a wide one, which stands for many subjects, only where it covers none of them."""
        groups: dict[Waiver, list[Waiver]] = collections.defaultdict(list)
        for waiver in self.waivers:
            groups[dataclasses.replace(waiver, subject="") if waiver.wide else waiver].append(waiver)
        for group in groups.values():
            if not self.used.intersection(group):
                w = group[0]
                about = " ".join(word for word in (w.stage, w.check) if word != "*") or "any check"
                subjects = ", ".join(one.subject for one in group[:4]) + (" ..." if len(group) > 4 else "")
                yield f"waiver {w.ticket} covers nothing in this run: {about} on {subjects}, {', '.join(w.codes)}"


def _number(part: Record, opinion: Opinion) -> float | None:
    """A part's number of the metric that an opinion is about, in its unit."""
    try:
        found = bands.reading(part, str(opinion.metric), None)
        return physics.convert(found.value, found.unit, str(opinion.unit)) if found else None
    except ValueError:
        return None


def _known(opinion: Opinion, waiver: Waiver, said: str) -> Opinion:
    changed = opinion.but("KNOWN_FAIL", "waived", f"known failure, {waiver.ticket}, until {waiver.expires}: {said}")
    return changed._replace(of="FAIL", ticket=waiver.ticket, expires=waiver.expires)
