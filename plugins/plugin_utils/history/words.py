# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes one sentence about a change.

Pure. This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.series import EVERYBODY, ChangeKind, SeriesChange, Today

# The kind of a subject is that of its first place.
PLURAL = {"node": "nodes", "gpu": "GPUs", "port": "ports", "path": "paths", "group": "groups"}


@dataclasses.dataclass(frozen=True)
class Siblings:
    """The number of identical subjects of the same check on the same node, and how many of them changed at the same time."""

    count: int = 0
    changed: int = 0


def number(value: float | None) -> str:
    """Return a number with 4 significant digits, and from 10,000 on as a whole number."""
    if value is None:
        return "no number"
    return f"{value:.0f}" if abs(value) >= 10000 else f"{value:.4g}"


def percent(change: float) -> str:
    return f"{abs(change):.1f} % {'below' if change < 0 else 'above'}"


def runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def sentence(today: Today, change: SeriesChange, siblings: Siblings, wider: float = 1.0) -> str:
    """Return the sentence for a change. The percentage of the change is written as above or below."""
    label = _label(today)
    if change.kind == ChangeKind.UNUSABLE:
        return f"{label}: today's {change.value if change.value is not None else 'run'} gives no number above zero to compare"
    if change.kind == ChangeKind.SHORT:
        ignored = f", {change.ignored} without a usable number" if change.ignored else ""
        new = ", a new reference" if change.attribution.fact else ""
        return f"{label} {_value(today, change)}: {runs(change.runs)} before{new}{ignored}; too few to tell a change (8 are needed)"
    own_median = f"its own median {number(change.reference)} of {runs(change.runs)} since {day(change.reference_since)}"
    text = {
        ChangeKind.STEP: _moved, ChangeKind.DRIFT: _moved, ChangeKind.IMPROVEMENT: _moved,
    }.get(change.kind, _at)(today, change, own_median)  # fmt: skip
    if change.kind == ChangeKind.NOTHING:
        return text
    if change.kind == ChangeKind.HICCUP:
        return f"{text}; one run alone, a hiccup until the next ones say more{_siblings(siblings)}"
    if change.kind == ChangeKind.DROP:
        text += "; one run so far, but far outside the scatter: measure again"
        return text + _attribution(today, change) + _siblings(siblings)
    if change.kind == ChangeKind.SCATTER:
        return (
            f"{label} {_value(today, change)} scatters about {wider:.0f} times as much as before since {day(change.onset_time)}, "
            f"about {own_median}{_siblings(siblings)}"
        )
    if change.kind == ChangeKind.FLAPPING:
        return (
            f"{label} {_value(today, change)}, flaps since {day(change.onset_time)} between {own_median} and {number(change.level)}, "
            f"{percent(_signed(today, change))} it{_siblings(siblings)}"
        )
    return text + _attribution(today, change) + _siblings(siblings)


def of_all(today: Today, change: SeriesChange) -> str:
    """Return the sentence for a change that all subjects of a check share."""
    plural = PLURAL.get(today.places[0][0] if today.places else "", "subjects")
    who = f"all {len(change.members)} {plural}"
    because = f" when {change.attribution.fact} became {change.attribution.value}" if change.attribution.fact else ""
    went = {ChangeKind.DRIFT: "drifted to", ChangeKind.SCATTER: "scatter, and are", ChangeKind.FLAPPING: "flap, and are"}.get(
        change.kind, "went to"
    )
    return (
        f"{_label(today)}: {who} together {went} {percent(_signed(today, change))} their medians of {runs(change.runs)} before, "
        f"since {day(change.onset_time)}{because}; shared, no regression of one of them"
    )


def day(time: str) -> str:
    return time[:10]


def _label(today: Today) -> str:
    return today.label or today.check


def _value(today: Today, change: SeriesChange) -> str:
    return f"{number(change.value)} {today.unit}".rstrip()


def _signed(today: Today, change: SeriesChange) -> float:
    """Return the change in percent, 0 if there is none. A time that became worse is above 0."""
    return change.change or 0.0


def _at(today: Today, change: SeriesChange, own_median: str) -> str:
    if change.value is None or not change.reference:
        return f"{_label(today)} {_value(today, change)}"
    return f"{_label(today)} {_value(today, change)}, {percent(100 * (change.value / change.reference - 1))} {own_median}"


def _moved(today: Today, change: SeriesChange, own_median: str) -> str:
    """Return today's value and the level that it is about, if they differ."""
    today_change = 100 * (change.value / change.reference - 1) if change.value and change.reference else 0.0
    moved = change.change or 0.0
    drifting = "drifting " if change.kind == ChangeKind.DRIFT else ""
    if today_change * moved > 0 and 0.5 * abs(moved) < abs(today_change) < 1.5 * abs(moved):
        return f"{_label(today)} {_value(today, change)}, {drifting and 'drifted to '}{percent(today_change)} {own_median}"
    since = f"{number(change.level)} {today.unit}".rstrip()
    return f"{_label(today)} {_value(today, change)} today, {drifting}{since} since {day(change.onset_time)}, {percent(moved)} {own_median}"


def _attribution(today: Today, change: SeriesChange) -> str:
    attribution = change.attribution
    if attribution.kind == EVERYBODY:
        return f"; everybody's since {attribution.fact} became {attribution.value}" if attribution.fact else "; everybody's"
    likely = f"; likely cause: {attribution.fact} became {attribution.value}" if attribution.fact else ""
    if attribution.name and (attribution.kind, attribution.name) not in today.places[:1] and attribution.name != today.subject:
        return f"; so is most of {attribution.kind} {attribution.name}{likely}"
    return likely


def _siblings(siblings: Siblings) -> str:
    if not siblings.count:
        return ""
    many = siblings.count > 1
    if not siblings.changed:
        return f"; its {siblings.count} siblings unchanged" if many else "; its sibling unchanged"
    if siblings.changed == siblings.count:
        return f"; its {siblings.count} siblings as well" if many else "; its sibling as well"
    return f"; {siblings.changed} of its {siblings.count} siblings as well"
