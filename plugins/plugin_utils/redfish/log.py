# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the entries of a log of events of a Redfish service, and pairs the faults with what ends them.

Entries name what happened in three ways: by the state of a sensor (`EntryCode`, as the log of IPMI), by the key of a message of a registry
(`MessageId`: `Environmental.1.4.FanFailed`), or in a maker's words only (Dell's `PSU0003`, Lenovo, Supermicro, HPE).

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import datetime
import itertools
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.standing import Event, over, standing
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import ipmi_states
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.redfish import registries
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.redfish.fields import (
    CODES,
    Part,
    Problem,
    graded,
    of_makers,
    text,
    within,
)

# Logs of hardware, by the names that makers give them: SEL, iLO's IML, OpenBMC's EventLog, Lenovo's PlatformLog and ActiveLog, Dell's
# FaultList. Other logs have logins, settings and updates: iLO's event log (IEL), Lenovo's audit log, Supermicro's maintenance log.
_HARDWARE_LOG = re.compile(
    r"(?i)\b(sel|iml|event ?log|health event log|system event log|platform ?log|active ?log|active events|fault ?list)\b"
)
_OTHER_LOG = re.compile(
    r"(?i)\b(iel|ilo event log)\b|audit|security|access log|log-?ins?\b|maintenance|journal|post ?code|dump|host ?logger"
)
# Entries of people and programs that a log of hardware has among its own, by their message and by the category that makers give them.
_OF_PEOPLE = re.compile(
    r"(?i)logged[ -]?(?:in|out|on|off)\b|log[ -]?(?:in|out|on|off)s?\b|login|logout|session|password|passphrase|authenticat|user ?name"
    r"|user ?account|unauthori[sz]ed|certificate|virtual ?media|remote ?(?:console|media|control)|\bkvm\b|\bssh\b|snmp|firewall|ip address"
)
# Keys under which makers have the state of an entry (Huawei: `Status`), and its words for one that has ended.
_STATES_OF_MAKERS = ("Status", "EventStatus", "EventState", "State", "AlertState")
_ENDED_STATES = ("repaired", "resolved", "cleared", "closed", "recovered", "fixed")
# The categories of entries about parts (HPE, Dell), and words of a part in an entry that is Critical: such an entry is one of a part,
# even if it tells how to log in.
_CATEGORIES_OF_PARTS = ("hardware", "system health", "hardware failure", "powerandthermal", "power", "cooling", "storage", "memory", "cpu")
_OF_PARTS = re.compile(r"(?i)machine check|uncorrectable|unrecoverable|fatal error|thermal trip|hardware|\becc\b|power (?:lost|fail|fault)")
_CATEGORIES_OF_PEOPLE = ("audit", "configuration", "updates", "work notes", "worknotes", "security")
# {what an entry is about: its words}; singular and plural, and the abbreviations of makers. The first that fits names the part.
_PARTS = (
    ("GPU", r"\bgpus?(?![a-z])|accelerators?(?![a-z])|\bsxm(?=[ _-]?\d)"),
    ("power supply", r"power[ -]?suppl(?:y|ies)|\bpsus?(?![a-z])|\bps(?=[ _-]?\d)|power ?unit"),
    ("fan", r"fans?(?![a-z])|cooling"),
    ("memory module", r"\bdimms?(?![a-z])|memory|\bddr\d"),
    ("drive", r"drives?(?![a-z])|disks?(?![a-z])|\bssd|\bhdd|nvme"),
    ("processor", r"\bcpus?(?![a-z])|processors?"),
    ("battery", r"batter(?:y|ies)"),
    ("temperature", r"temperatures?|\btemp\b|thermal"),
    ("voltage", r"voltages?|\bvolt"),
    ("leak", r"leak"),
    ("PCIe device", r"\bpci-?e?x?(?![a-z])|slots?(?![a-z])|component at bus"),
    ("NIC", r"\bnics?(?![a-z])|network|ethernet|infiniband|\bhcas?(?![a-z])|connectx|bluefield"),
    ("board", r"boards?(?![a-z])|riser|backplane|planar"),
)
# Parts that have parts of their own, which may be well while they are not; without a place they name none.
_WHOLE = ("GPU", "PCIe device", "NIC", "board")
_INNER = (*_PARTS[1:], ("firmware", r"firmware|driver|software"), ("port", r"\bports?(?![a-z])|\blinks?(?![a-z])|nvlink"))
_ADDRESS = re.compile(r"(?i)\bbus (\w+),? device (\w+),? function (\w+)")
_PLACE = r"(?:[ _-]*(?:number|no\.?|slot|bay|in slot|in bay|module|unit|sensor)?\s*[:#]?\s*[\[(<\"']?([A-Za-z]{0,8}[ _-]?\d[\w.-]*))?"
_NUMBERED = ("power supply", "fan", "processor")
_GONE = re.compile(r"(?i)\b(?:absent|removed|missing|not present|unplugged|pulled out|not installed)\b")
_BACK = re.compile(r"(?i)\b(?:is|was|has been|now) (?:now )?(?:present|inserted|installed|added)\b|\b(?:inserted|added to)\b")
# Kinds of faults in a maker's words, and the words of their end.
_KINDS = (
    ("redundancy", re.compile(r"(?i)redundan"), re.compile(r"(?i)regain|restor|fully|(?:are|is) redundant|normal|ok\b|recover")),
    (
        "input",
        re.compile(r"(?i)input|\bac\b|power cord|line voltage|power (?:is |has been |was )?lost"),
        re.compile(r"(?i)restor|return|recover|normal|regain|back|within|ok\b|present"),
    ),
)
_OTHER = "other"
# An entry that says that a part was repaired, which also ends an error that has happened once.
_REPAIRED = re.compile(r"(?i)repair|replac|resolved|cleared")
# An entry that says that a part is well altogether.
_WELL = re.compile(
    r"(?i)operat(?:ing|es|ional)|normal|recover|restor|regain|return|repair|replac|resolved|cleared|no longer|within (?:range|limit)"
    r"|functional|healthy|\bok\b|running|online|passed|corrected"
)
_ASSERTION = re.compile(r"(?i)(?:\b(?:is|was|has been) )?\b(de-?)?assert(?:ed|ion)?\b")
# Supermicro begins messages with a number of its own: `[PS-0010] Power Supply 2`.
_NUMBER_OF_MAKER = re.compile(r"^\[[A-Z]+-\d+\]\s*")
# A key of a registry: words without blanks. A maker's number (Dell's `RDU0012`) is none.
_KEY = re.compile(r"(?![A-Z]+\d+$)(?:[A-Z][a-z0-9]*|[A-Z]+(?![a-z])){2,}")


# Kinds of errors that have happened: an OK of the same part is no end of them.
_MOMENTARY = {
    state.kind for rows in (*ipmi_states.SPECIFIC.values(), *ipmi_states.GENERIC.values()) for state in rows.values() if state.is_momentary
}


class Logged(t.NamedTuple):
    """An entry about a part: `part` and `kind` of Event, and `code` if it reports a fault, else "". `is_missing` is whether it reports that
    a part is not there any more, `about` the kind of the part (`power supply`); `ends_all` is True if its part is well altogether,
    `is_repaired` if the entry says that it was repaired, `has_key` if `kind` is the key of a message of a registry."""

    part: t.Hashable
    kind: str
    code: str
    words: str
    about: str = ""
    is_missing: bool = False
    ends_all: bool = False
    is_repaired: bool = False
    has_key: bool = False


def is_of_hardware(service: Part) -> bool:
    """Return True for a log service whose entries are about parts of the machine."""
    names = " ".join(filter(None, (text(service.get("Id")), text(service.get("Name")))))
    if _OTHER_LOG.search(names):
        return False
    return service.get("LogEntryType") == "SEL" or bool(_HARDWARE_LOG.search(names))


def problem(entry: Part) -> Problem | None:
    """Return what one entry reports, None if it is no fault, or one that was resolved."""
    found = _logged(entry)
    return (found.code, found.words) if found is not None and found.code else None


class Faults(t.NamedTuple):
    """The faults of a log that no later entry has ended, and words for those that came and went, in the order in which they were logged."""

    standing: list[Logged]
    over: list[str]


def faults(entries: t.Iterable[Part]) -> list[Logged]:
    """Return the faults of a log that no later entry has ended, in the order in which they were logged."""
    return read(entries).standing


def read(entries: t.Iterable[Part]) -> Faults:
    """Return the faults of a log."""
    events: list[Event] = []
    kinds: dict[t.Hashable, dict[str, bool]] = {}
    for entry in _in_order(list(entries)):
        found = _logged(entry)
        if found is None:
            continue
        known = kinds.setdefault(found.part, {})
        events += [Event(found.part, kind, False) for kind, has_key in known.items() if _ends(found, kind, has_key)]
        known[found.kind] = found.has_key
        events.append(Event(found.part, found.kind, bool(found.code), (found, text(entry.get("Created")) or "at an unknown time")))
    ended = [f"{found.words}, {created}" for found, created in (event.data for event in over(events))]
    return Faults([event.data[0] for event in standing(events)], ended)


def _ends(entry: Logged, kind: str, has_key: bool) -> bool:
    """Return True if an entry ends the faults of an earlier kind of its part; `has_key` is whether that kind is a key of a registry."""
    if kind in _MOMENTARY and not entry.is_repaired:
        return False
    return entry.ends_all or (entry.has_key and has_key and registries.ends(entry.kind, kind, bool(entry.code)))


def _in_order(entries: list[Part]) -> list[Part]:
    """Return the entries of a log, the oldest first: some services list the newest first."""
    times = [_time(entry) for entry in entries]
    steps = [(earlier, later) for earlier, later in itertools.pairwise(times) if earlier is not None and later is not None]
    if sum(later < earlier for earlier, later in steps) > sum(later > earlier for earlier, later in steps):
        entries, times = entries[::-1], times[::-1]
    if None in times:
        return entries
    ids = [int(number) if (number := text(entry.get("Id"))).isdecimal() else None for entry in entries]
    # Ids tell the order of entries of one second, unless the newest has the lowest.
    pairs = [(one, two) for one, two in itertools.pairwise(zip(times, ids, strict=True)) if one[0] != two[0]]
    falling = sum(((one[0] or 0) < (two[0] or 0)) != ((one[1] or 0) < (two[1] or 0)) for one, two in pairs)
    sign = 0 if None in ids else -1 if 2 * falling > len(pairs) else 1
    return [entries[place] for place in sorted(range(len(entries)), key=lambda place: (times[place] or 0.0, sign * (ids[place] or 0)))]


def _time(entry: Part) -> float | None:
    """Return the time of an entry as seconds since 1970, None if it has none."""
    for key in ("EventTimestamp", "Created"):
        try:
            found = datetime.datetime.fromisoformat(text(entry.get(key)))
        except ValueError:
            continue
        return (found if found.tzinfo else found.replace(tzinfo=datetime.UTC)).timestamp()
    return None


def _logged(entry: Part) -> Logged | None:
    """Return what an entry reports; None for one that is not about a part of the machine, says nothing of its state, or was resolved."""
    message = _NUMBER_OF_MAKER.sub("", text(entry.get("Message")) or text(entry.get("Name")))
    message_id = text(entry.get("MessageId")) or next(map(text, of_makers(entry, "MessageId")), "")
    if _is_of_people(entry, f"{message} {message_id}") or _is_resolved(entry):
        return None
    severity = _severity(entry)
    key = message_id.rpartition(".")[2]
    has_key = bool(_KEY.fullmatch(key))
    about, place = _about(" ".join(filter(None, (text(entry.get("SensorType")), message, key if has_key else ""))))
    names_part = bool(about) and (bool(place) or about not in _WHOLE)
    bare = " ".join(_ASSERTION.sub(" ", message).split()).strip(" .:-,")
    part = _part(entry, about, place if names_part else ipmi_states.normal(bare), has_key)
    kind, is_missing, is_end = _read(entry, message, key if has_key else "", severity)
    is_key = has_key and kind == key
    if kind in _MOMENTARY and (is_end or severity not in CODES):
        return None
    words = f"its log has, at {_when(entry)}: {_event_words(entry, message)} ({severity or 'no severity'})"
    if is_missing and (severity in CODES or about in ("power supply", "fan")):
        return Logged(part, kind, CODES.get(severity, CODES["Warning"]), words, about, True, has_key=is_key)
    if not is_end and not is_missing and severity in CODES:
        return Logged(part, kind, CODES[severity], words, about, has_key=is_key)
    is_well = severity not in CODES and not is_missing and (_is_of_sensor(entry) or (kind == _OTHER and bool(_WELL.search(message))))
    if not (is_end or is_well or is_key):
        return None
    ends_all = is_well and (names_part or part[0] != "words")
    return Logged(part, kind, "", words, about, ends_all=ends_all, is_repaired=bool(_REPAIRED.search(message)), has_key=is_key)


def _read(entry: Part, message: str, key: str, severity: str) -> tuple[str, bool, bool]:
    """Return the kind of an entry, whether it reports a missing part, and whether it ends a fault of its kind."""
    code = _entry_code(entry)
    assertion = _ASSERTION.fullmatch(code) or _ASSERTION.search(message)
    is_deasserted = bool(assertion and assertion.group(1))
    state = ipmi_states.look_up(code, None, message) if code else None
    is_deasserted = is_deasserted and state is None  # a state such as "Predictive Failure deasserted" is one that holds
    bare = " ".join(_ASSERTION.sub(" ", message).split()).strip(" .:-,")
    last = [bare.rpartition(mark)[2].strip() for mark in (":", ",", " - ", "]")]
    for words in (message, bare, *last, *(each.partition("@")[0].strip() for each in last)):  # Supermicro: `Uncorrectable ECC@DIMMA1`
        state = state or ipmi_states.look_up(words, None, message)
    limit = ipmi_states.crossed(code) or (ipmi_states.crossed(bare) if not code or assertion else None)
    if limit is not None:
        side, level, is_beyond = limit
        return f"{side} {ipmi_states.LEVELS[level]}", False, is_beyond == is_deasserted
    if state is not None and state.present is not None:
        return "presence", state.present == is_deasserted, state.present != is_deasserted
    if state is not None:
        return state.kind, False, is_deasserted or state.logged == ipmi_states.GOOD or severity not in CODES
    if key:
        is_missing = key.endswith(("Removed", "Missing"))
        return key, is_missing, severity not in CODES and not is_missing
    if re.search(r"(?i)presence", message) and assertion:
        return "presence", is_deasserted, not is_deasserted
    if _GONE.search(message):
        return "presence", not is_deasserted, is_deasserted
    if _BACK.search(message) and severity not in CODES:
        return "presence", False, True
    for kind, _fault, end in (kind for kind in _KINDS if kind[1].search(message)):
        return kind, False, is_deasserted or (severity not in CODES and bool(end.search(message)))
    return (ipmi_states.normal(bare) if assertion else _OTHER), False, is_deasserted


def _severity(entry: Part) -> str:
    for word in (entry.get("Severity"), entry.get("MessageSeverity"), *of_makers(entry, "Severity")):
        if found := graded("Warning" if text(word) == "Caution" else word):
            return found
    return ""


def _is_of_people(entry: Part, words: str) -> bool:
    """Return True for an entry of a login, a setting or an update."""
    found = [value for key in ("Category", "Categories") for value in of_makers(entry, key)]
    categories = [text(each).lower() for value in found for each in (value if isinstance(value, list) else [value])]
    if any(category in _CATEGORIES_OF_PARTS for category in categories):
        return False
    is_grave = _severity(entry) == "Critical" and bool(_OF_PARTS.search(words) or (_about(words)[1] and _about(words)[0] != "NIC"))
    return (bool(_OF_PEOPLE.search(words)) and not is_grave) or (
        bool(categories) and all(category in _CATEGORIES_OF_PEOPLE for category in categories)
    )


def _is_resolved(entry: Part) -> bool:
    """Return True if the service has marked an entry as ended: `Resolved` of the schema, `Repaired` of HPE (iLO 4: `Hp`), a state or a
    severity that says so. That a service provider was told of it (`ServiceProviderNotified`) ends nothing."""
    marks = [entry.get("Resolved"), *(mark for key in ("Repaired", "Resolved", "Cleared") for mark in of_makers(entry, key))]
    states = [entry.get("Severity"), *(word for key in ("Severity", *_STATES_OF_MAKERS) for word in of_makers(entry, key))]
    is_marked = any(mark is True or text(mark).lower() in ("true", "yes") for mark in marks)
    return is_marked or any(text(word).lower() in _ENDED_STATES for word in states)


def _entry_code(entry: Part) -> str:
    """Return the state of a sensor: a text, or a list of objects in the first versions of the schema; some makers have it as their own."""
    code = entry.get("EntryCode")
    if isinstance(code, list):
        code = within(code[0], "Member") if code else None
    own = [text(word) for key in _STATES_OF_MAKERS for word in of_makers(entry, key)]
    return text(code) or next(filter(_ASSERTION.fullmatch, own), "")


def _is_of_sensor(entry: Part) -> bool:
    number = entry.get("SensorNumber")
    return isinstance(number, int) and not isinstance(number, bool) and number > 0


def _about(words: str) -> tuple[str, str]:
    """Return the kind of part that words are about, and which one; both may be empty."""
    for about, pattern in _PARTS:
        places = [match.group(1) or "" for match in re.finditer(rf"(?i)(?:{pattern}){_PLACE}", words)]
        if places:
            place = ipmi_states.normal(next(filter(None, places), ""))
            if about not in _WHOLE:
                return about, re.sub(r"^[a-z ]+(?=\d)", "", place) if about in _NUMBERED else place
            address = _ADDRESS.search(words)
            place = " ".join(address.groups()) if address else place
            inner = next((name for name, inner in _INNER if name != about and re.search(rf"(?i){inner}", words)), "") if place else ""
            return about, f"{place} {inner}".strip()
    return "", ""


def _part(entry: Part, about: str, place: str, has_key: bool) -> tuple[t.Any, ...]:
    """Return by what two entries are about the same part: the resource that they name, the number of a sensor, else words. A resource that
    is a whole system names no part; where no words name one, `place` is the whole message."""
    origin = within(entry, "Links", "OriginOfCondition", "@odata.id") or within(entry, "OriginOfCondition", "@odata.id")
    if isinstance(origin, str) and len(origin.strip("/").split("/")) > 4:
        return "origin", origin.rstrip("/")
    if _is_of_sensor(entry):
        return "sensor", text(entry.get("SensorType")), entry["SensorNumber"]
    arguments = entry.get("MessageArgs")
    if has_key and isinstance(arguments, list) and arguments:
        return "argument", str(arguments[0])[:120]
    return "words", about, place


def _when(entry: Part) -> str:
    return text(entry.get("EventTimestamp")) or text(entry.get("Created")) or "an unknown time"


def _event_words(entry: Part, message: str) -> str:
    what = message or text(entry.get("MessageId")) or "an event without words"
    return ": ".join(filter(None, (text(entry.get("SensorType")), what)))
