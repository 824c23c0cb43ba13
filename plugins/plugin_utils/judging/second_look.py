# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings of the second look at a machine that the first look of the run lacks: they came up in the stages in between.

What the first look has found stays found by it alone. What it saw and the second look does not see any more is a finding too: a part that
is gone, or one that answers no more. A fault that came and went between the two looks is worth a look itself: power supplies and retimers
fail under load.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import datetime
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import loads
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.single_checks import coded
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, PlainData

# How a finding ends that is new; a waiver for what was there before the run does not cover it (waiving.NEW).
SINCE = ", new since the first look"
# What a part of a kind in `parts` means that the first look saw and the second does not see: {kind: (reason code, words)}.
GONE = {
    "pci": ("pcie_error", "is no longer on the PCI bus"),
    "disks": ("disk", "is no longer among the disks"),
}
# What may be unreadable for a moment on a healthy machine: a ring that was overwritten, a time service, a database in use.
PASSING = frozenset({"kernel_log_since_boot", "rasdaemon", "ipmi_words", "clock", "clock_offset", "numa", "latency"})
# By so much two looks may read the time of one line of the kernel's log differently.
CLOCK_S = loads.CLOCK_S
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_TIMES = re.compile(r", (\d+) times since boot(?:, \d+ of them in the last 24 hours)?")
# Readings, and limits that grow with the time since boot: the same fault has others a minute later.
_READING = re.compile(
    r"(?<![\w.])-?\d+(?:\.\d+)?(?: ?%| (?:degrees C|RPM|Volts|Watts|Amps|percent|ms|us|s|h|hours|days|GiB|MiB)\b)|(?<=more than )\d+"
)


class _Fault(t.NamedTuple):
    """A finding as two looks can be compared: its words without times, readings and counts."""

    code: str
    words: str
    times: tuple[float, ...]
    times_logged: int


def reduced(second: Measurement, first: Measurement | None, between: t.Sequence[str]) -> Measurement:
    """Return the record of a second look with only what is new since the first one. `between` are the stages between the two. Without a
    first look that looked, the second one stands as a whole."""
    before = first.context if first is not None else {}
    if "looked_for" not in before or "looked_for" not in second.context or not _came_to_an_end(second):
        return second
    where = f" (between them: {', '.join(between)})" if between else ""
    known = [_fault(finding) for finding in _listed(before, "findings")]
    found = [{**finding, "text": f"{coded(finding)[1]}{where}{SINCE}"} for finding in _listed(second.context, "findings")
             if not any(_is_same(_fault(finding), fault) for fault in known)]  # fmt: skip
    lost = list(_gone(before, second.context))
    found += [{"code": code, "part": "", "text": f"{words}{where}{SINCE}"} for code, words in lost if code != "no_answer"]
    ended = [_fault(fault) for fault in _listed(before, "ended")]
    found += [
        {"code": "fault_passed", "part": "", "text": f"{coded(fault)[1]}: it came and went{where}{SINCE}"}
        for fault in _listed(second.context, "ended")
        if not any(_is_same(_fault(fault), old) for old in ended) and not any(_stood(_fault(fault), old) for old in known)
    ]
    unseen = _unseen(second.context)
    silent = [unseen[code] for code in sorted(unseen.keys() - _unseen(before).keys() - PASSING)]
    silent += [words for code, words in lost if code == "no_answer"]
    grave = [finding for finding in found if str(finding.get("code")) not in reasons.MILD]
    context = {name: value for name, value in second.context.items() if name != "findings"}
    if found:
        context["findings"] = found
    fields: PlainData = {"context": context, "outcome": "measured", "reason_code": None, "reason": None}
    if grave:
        reason = "; ".join(str(finding["text"]) for finding in grave)[:2000]
        fields.update(outcome="error", reason_code=str(grave[0].get("code")), reason=reason)
    elif silent:
        reason = f"the first look saw it, the second does not{where}: {'; '.join(silent)}"[:2000]
        fields.update(outcome="error", reason_code="no_answer", reason=reason)
    elif second.outcome == "not_applicable":
        return second
    return second.replaced(**fields)


def seen_before(second: Measurement, firsts: t.Sequence[Measurement]) -> Measurement | None:
    """Return what a second look is held against: the last first look before it that looked, with the parts that any first look saw, and
    with what any of them could read. A resume looks again, perhaps at a machine that has lost a part by then."""
    looked = sorted((m for m in firsts if "looked_for" in m.context), key=lambda m: (loads.began(m), m.attempt, m.as_text()))
    before = [m for m in looked if loads.began(m) <= loads.began(second) + CLOCK_S] or looked
    if len(before) < 2:
        return before[0] if before else None
    never = set.intersection(*(set(_unseen(m.context)) for m in before))
    unseen = {code: why for m in before for code, why in _unseen(m.context).items() if code in never}
    return before[-1].replaced(context={**before[-1].context, "parts": _parts(before), "not_looked_for": unseen})


def _parts(looks: t.Sequence[Measurement]) -> PlainData:
    """Return the parts that any of the looks saw, as one look lists them."""
    parts: PlainData = {}
    for look in looks:
        of_look = look.context.get("parts")
        for kind, names in of_look.items() if isinstance(of_look, dict) else ():
            old = parts.get(kind)
            if isinstance(names, list):
                parts[kind] = [*(old if isinstance(old, list) else []), *names]
            elif isinstance(names, dict):
                seen = old if isinstance(old, dict) else {}
                parts[kind] = {**seen, **{name: bool(is_there) or bool(seen.get(name)) for name, is_there in names.items()}}
    return {kind: list(dict.fromkeys(names)) if isinstance(names, list) else names for kind, names in parts.items()}


def _came_to_an_end(second: Measurement) -> bool:
    """Return True if a look came to an end that its findings explain: another error or a timeout leaves the state unknown."""
    if second.outcome == "error":
        return str(second.reason_code) in (*reasons.DEFECTS, *reasons.MILD)
    return second.outcome in ("measured", "not_applicable")


def _gone(before: PlainData, now: PlainData) -> t.Iterator[tuple[str, str]]:
    """Yield (reason code, words) for each part that the first look saw and the second does not; `no_answer` for those of which the second
    does not know whether they are there: without a reading, or all of a kind."""
    all_three = before.get("parts"), now.get("parts"), now.get("silent_parts")
    parts, later, silent = (value if isinstance(value, dict) else {} for value in all_three)
    for kind, names in parts.items():
        names_now, silent_now = later.get(kind), silent.get(kind)
        if kind in GONE and isinstance(names, list):
            yield from _gone_of_list(kind, names, names_now)
        elif isinstance(names, dict):  # of a management controller: {kind: {name: whether it is there}}
            shown = [name for name, is_there in names.items() if is_there]
            where = f"management controller: {kind}"
            if not isinstance(names_now, dict):
                if shown:
                    yield "no_answer", f"{where}: none is shown any more, of {', '.join(shown)}"
                continue
            for name in shown:
                if isinstance(silent_now, list) and name in silent_now:
                    yield "no_answer", f"{where}: {name} has no reading any more"
                elif not names_now.get(name):
                    gone = "is not" if name in names_now else "is no longer listed, while others of its kind are"
                    yield "bmc_fault", f"{where}: {name} was there at the first look and {gone}"


def _gone_of_list(kind: str, names: list[t.Any], names_now: t.Any) -> t.Iterator[tuple[str, str]]:
    code, words = GONE[kind]
    if not isinstance(names_now, list):
        if names:
            yield "no_answer", f"the list of {kind} is missing, and had {', '.join(map(str, names))}"
        return
    for name in names:
        if name not in names_now:
            yield code, f"{name} {words}"


def _unseen(context: PlainData) -> dict[str, str]:
    unseen = context.get("not_looked_for")
    return {str(code): str(why) for code, why in unseen.items()} if isinstance(unseen, dict) else {}


def _listed(context: PlainData, name: str) -> list[PlainData]:
    """Return the findings of a context, or its faults that ended."""
    listed = context.get(name)
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


def _fault(finding: PlainData) -> _Fault:
    code, text = coded(finding)
    times = tuple(_seconds(time) for time in _TIME.findall(text))
    counts = [int(count) for count in _TIMES.findall(text)]
    return _Fault(code, _READING.sub("R", _TIMES.sub("", _TIME.sub("T", text))), times, counts[0] if counts else 1)


def _is_same(fault: _Fault, old: _Fault) -> bool:
    """Return True if a fault of the second look is one of the first: the same words at the same times, no more often."""
    same_times = len(fault.times) == len(old.times) and all(abs(a - b) <= CLOCK_S for a, b in zip(fault.times, old.times, strict=True))
    return (fault.code, fault.words) == (old.code, old.words) and same_times and fault.times_logged <= old.times_logged


def _stood(fault: _Fault, old: _Fault) -> bool:
    """Return True if a fault that is over now is one that the first look found standing; the log of the end may tell its time behind it."""
    return fault.words.startswith(old.words) and fault.times[: len(old.times)] == old.times


def _seconds(time: str) -> float:
    try:
        return datetime.datetime.strptime(time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.UTC).timestamp()
    except ValueError:
        return 0.0
