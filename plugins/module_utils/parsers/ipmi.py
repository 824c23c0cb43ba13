# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser for what ipmitool lists: the sensors of a machine's management controller (`sdr elist`, `sdr list`, `sensor`), and its log of
events (`sel elist`, `sel list`), each also with `-c`.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import calendar
import collections
import re
import statistics
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Value, is_absent, number, plain
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.standing import Event, over, standing
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import ipmi_states as states

Problem = t.Tuple[str, str]

FAULT, LOOK = "bmc_fault", "bmc_event"
_CODES = {states.FAIL: FAULT, states.WARN: LOOK}
# States of a sensor with limits: beyond the critical or the non-recoverable one, beyond the first one (ipmitool(1)).
_CRITICAL, _WARNING = ("lcr", "ucr", "lnr", "unr", "cr", "nr"), ("lnc", "unc", "nc")
_WITHOUT_READING = ("ns", "na")
_STATES = ("ok", *_WITHOUT_READING, *_CRITICAL, *_WARNING)
# Records of `sdr elist` that are no sensors: where controllers and lists of parts are found.
_LOCATOR = re.compile(r"(?i)(?:static|dynamic) mc @|(?:log(?:ical)?|phy(?:sical)?) fru @|generic (?:device )?@|^event-only$")
_NO_READING = re.compile(r"(?i)|no reading|disabled|not readable|unknown|refused with .*")
# Sensors of another controller, which the kernel's device does not ask (host/ipmi_device.py).
NOT_ASKED = "not asked"
# Words that no table has and that sound like a fault; the second ones sound like the end of one.
_SUSPICIOUS = re.compile(
    r"(?i)fail|fault|(?<![a-z])err(?:or)?s?(?![a-z])|(?<![a-z])lost|critical|degrad|absent|remov|missing|(?<![a-z])trip|over-?(?:temp|heat|volt)"
    r"|(?<![a-z])leak|abort|unavailable|off-?line|non-?recoverable|panic|uncorrect|corrupt|mismatch"
    r"|(?<![a-z])xid(?![a-z])|stopped|runaway|link[ _-]?down|fallen off|(?<![a-z])h[au]ng(?![a-z])"
)
_REASSURING = re.compile(
    r"(?i)(?<![a-z])(?:no|not|non) (?:fail|fault|err|lost|critical|leak|degrad)|recover|restor|clear|normal|deassert|repair"
)
_LEAK = re.compile(r"(?i)(?<![a-z])leak")
# The parts that are neither power supplies nor fans.
OTHER_PARTS = "other parts"
# A fan that turns at less than this share of the median of the machine's fans: those of one machine differ by a factor of 3 or so.
_SLOW_FAN = 0.1
_IN_SUPPLY = re.compile(r"(?i)psu|ps ?\d|power ?supply")


class Sensors(t.NamedTuple):
    """The sensors that a controller lists: `problems` are (reason code, words), `readable` of them have a reading, `listed` are all that it
    lists; `parts` are power supplies, fans and others by name, with whether they are there; `unread` are lines, or states, that no table
    has; `silent` are the names of parts without a reading: whether these are there is not known. `unread_parts` are the names of all
    sensors that are listed and have none, those that were not asked among them: a part among these has not left the list."""

    problems: list[Problem]
    readable: int
    listed: int
    parts: dict[str, dict[str, bool]]
    unread: list[str]
    silent: dict[str, list[str]] = {}
    unread_parts: dict[str, list[str]] = {}


class SelEvent(t.NamedTuple):
    """An event of the log that reports a fault: its time in seconds since 1970 (None if the controller did not know it), reason code and
    words. `part` is the sensor if the event says that its part is missing; `after` is the last time of an earlier line, and `before` the
    first of a later one."""

    when: float | None
    code: str
    words: str
    part: str = ""
    after: float | None = None
    before: float | None = None


class Log(t.NamedTuple):
    """The faults of a log that nothing has ended; `unread` are lines that cannot be read, or whose words no table has; `of_maker` is the
    number of records whose form is the maker's own; `over` are faults that came and went."""

    events: list[SelEvent]
    unread: list[str]
    of_maker: int
    over: list[SelEvent] = []


class _Sensor(t.NamedTuple):
    """One line: the name of a sensor, its state (`ok`, `ucr`, `ns`), its entity, empty where the form has none, and its reading."""

    name: str
    state: str
    entity: str
    reading: str


def sensors(text: str) -> tuple[list[Problem], int]:
    """Return the problems of `ipmitool sdr elist` as (reason code, words), and how many of the sensors that it lists have a reading."""
    found = list_sensors(text)
    return found.problems, found.readable


def list_sensors(text: str) -> Sensors:
    """Return what a list of sensors says."""
    problems: list[Problem] = []
    unread: list[str] = []
    fans: dict[str, Value] = {}
    units: dict[str, str] = {}
    read: list[tuple[_Sensor, int | None, list[states.State]]] = []
    count = 0
    lines = [(line, _sensor(line)) for line in text.splitlines() if line.strip()]
    names = collections.Counter(sensor.name for _line, sensor in lines if sensor is not None)
    for line, sensor in lines:
        if sensor is None:
            unread.append(line.strip()[:80])
            continue
        if names[sensor.name] > 1 and sensor.entity:  # iDRAC calls the sensor of each supply and each processor `Status`
            sensor = sensor._replace(name=f"{sensor.name} {sensor.entity.replace(' ', '')}")
        if _LOCATOR.search(sensor.reading):
            continue
        if sensor.reading.startswith(NOT_ASKED):
            unread.append(f"{sensor.name}: {sensor.reading}")
        kind = states.guessed_type(sensor.name, sensor.entity)
        has_reading = sensor.state not in _WITHOUT_READING
        count += has_reading
        named, unknown = _named(sensor, kind) if has_reading else ([], [])
        read.append((sensor, kind, [state for _words, state in named]))
        unread += [f"{sensor.name}: {words}"[:80] for words in unknown]
        is_gone = any(state.present is False for _words, state in named)
        if (
            has_reading
            and not is_gone
            and (re.search(r"(?i)\brpm\b", sensor.reading) or (kind == states.FAN and re.search(r"(?i)\bpercent\b|%", sensor.reading)))
        ):
            fans[sensor.name] = number(sensor.reading.split(",")[0], sensor.name)
            units[sensor.name] = "RPM" if re.search(r"(?i)\brpm\b", sensor.reading) else "percent"
        problems += _problem(sensor, named, unknown)
    parts, silent = _parts(read, fans)
    problems += _standing_fans(fans, units, problems)
    return Sensors(problems, count, len(read), parts, unread, silent, _without_reading(read, silent))


def together(first: Sensors, later: Sensors) -> Sensors:
    """Return what two lists of the same sensors say, the later one a moment after the first: a part is silent if it is so in both."""
    parts: dict[str, dict[str, bool]] = {}
    for kind in {**first.parts, **later.parts}:
        parts[kind] = {}
        for name in {**first.parts.get(kind, {}), **later.parts.get(kind, {})}:
            read = (of.parts[kind][name] for of in (later, first) if name in of.parts.get(kind, {}) and name not in of.silent.get(kind, []))
            parts[kind][name] = next(read, False)
    silent = {kind: [name for name in names if name in later.silent.get(kind, [])] for kind, names in first.silent.items()}
    problems = list(dict.fromkeys([*first.problems, *later.problems]))
    silent = {kind: names for kind, names in silent.items() if names}
    return first._replace(problems=problems, parts=parts, silent=silent, unread_parts=later.unread_parts)


def _sensor(line: str) -> _Sensor | None:
    """Return the sensor of a line in one of the forms of `sdr elist`, `sdr list` and `sensor`; None for a line in none of them."""
    cells = [cell.strip() for cell in line.split("|" if "|" in line else ",")]
    if len(cells) >= 5 and re.fullmatch(r"(?i)[0-9a-f]{1,2}h", cells[1]) and cells[2].lower() in _STATES:
        return _Sensor(cells[0], cells[2].lower(), cells[3], ", ".join(cells[4:]))
    if len(cells) >= 8 and cells[2].lower() == "discrete":  # `sensor`: the states are two bytes
        return _Sensor(cells[0], "na" if cells[3].lower() == "na" else "ok", "", _bits(cells[0], cells[3]))
    if len(cells) >= 8 and cells[3].lower() in _STATES:
        return _Sensor(cells[0], cells[3].lower(), "", "No Reading" if cells[1].lower() == "na" else f"{cells[1]} {cells[2]}")
    if len(cells) == 4 and cells[3].lower() in _STATES:  # -c sdr
        return _Sensor(cells[0], cells[3].lower(), "", f"{cells[1]} {cells[2]}".strip())
    if len(cells) == 4 and re.fullmatch(r"(?i)[0-9a-f]{1,2}h", cells[1]):  # -c: where a controller is found
        return _Sensor(cells[0], "ok", cells[3], "Generic @")
    if len(cells) == 3 and cells[2].lower() in _STATES:
        return _Sensor(cells[0], cells[2].lower(), "", cells[1])
    return None


def _bits(name: str, cell: str) -> str:
    """Return the states of a cell of `sensor`, 0x0b00, in words: the first byte has the states 0 to 7, the second 8 to 14."""
    if not re.fullmatch(r"0x[0-9a-fA-F]{4}", cell):
        return cell
    bits = int(cell[2:4], 16) | (int(cell[4:6], 16) & 0x7F) << 8
    known = states.SPECIFIC.get(states.guessed_type(name) or 0, {})
    return ", ".join(known[bit].words[0] if bit in known else f"state {bit}" for bit in range(15) if bits >> bit & 1)


def _named(sensor: _Sensor, kind: int | None) -> tuple[list[tuple[str, states.State]], list[str]]:
    """Return the states of a reading as (words, state), and the words that no table has. Words may have a comma in them."""
    pieces = [piece.strip() for piece in sensor.reading.split(",")]
    found: list[tuple[str, states.State]] = []
    unknown: list[str] = []
    at = 0
    while at < len(pieces):
        for end in range(len(pieces), at, -1):
            words = ", ".join(pieces[at:end])
            state = states.look_up(words, kind, sensor.name)
            if state is not None:
                found.append((words, state))
                break
        else:
            end, words = at + 1, pieces[at]
            if words and not re.match(r"[-+]?\d|0x|raw 0x", words) and not _NO_READING.fullmatch(words):
                unknown.append(words)
        at = end
    return found, unknown


def _problem(sensor: _Sensor, named: list[tuple[str, states.State]], unknown: list[str]) -> list[Problem]:
    """Return the worst problem of a sensor, none if it is well."""
    faults = [words for words, state in named if state.now == states.FAIL]
    if faults:
        return [(FAULT, f"{sensor.name}: {', '.join(faults)}")]
    if sensor.state in _CRITICAL:
        return [(FAULT, f"{sensor.name}: {sensor.reading}, beyond its critical limit ({sensor.state})")]
    if sensor.state in _WARNING:
        return [(LOOK, f"{sensor.name}: {sensor.reading}, beyond its first limit ({sensor.state})")]
    if any(_LEAK.search(words) and _is_suspicious(words) for words in unknown):
        return [(FAULT, f"{sensor.name}: {sensor.reading}")]
    if any(state.now == states.WARN for _words, state in named) or any(map(_is_suspicious, unknown)):
        return [(LOOK, f"{sensor.name}: {sensor.reading}")]
    return []


def _is_suspicious(words: str) -> bool:
    return bool(_SUSPICIOUS.search(words)) and not _REASSURING.search(words)


def _standing_fans(fans: dict[str, Value], units: dict[str, str], problems: list[Problem]) -> t.Iterator[Problem]:
    """Yield a problem for each fan that stands, or hardly turns, while others of the machine turn, and whose limits do not say so. A fan of
    a power supply may stand by design: supplies stop theirs at little load; and a share of 0 percent may be that of an empty place."""
    known = {words.partition(":")[0] for _code, words in problems}
    for unit in ("RPM", "percent"):
        speeds = {name: speed for name, value in fans.items() if units[name] == unit and (speed := plain(value)) is not None}
        turning = [speed for speed in speeds.values() if speed]
        usual = statistics.median(turning) if turning else 0
        for name, speed in speeds.items():
            is_slow = speed < _SLOW_FAN * usual and unit == "RPM" and not _IN_SUPPLY.search(name)
            if name in known or (speed and not is_slow):
                continue
            may_stand = unit == "percent" or _IN_SUPPLY.search(name) or 2 * len(turning) < len(speeds)
            words = f"{name}: {speed:g} {unit}, {len(turning)} of {len(speeds)} fans turn, at {usual:g} {unit} in the median"
            yield (LOOK if speed or may_stand else FAULT), words


def _parts(
    read: list[tuple[_Sensor, int | None, list[states.State]]], fans: dict[str, Value]
) -> tuple[dict[str, dict[str, bool]], dict[str, list[str]]]:
    """Return {"power supplies", "fans" or OTHER_PARTS: {name of a sensor: whether its part is there}}, and the names of those without a
    reading. A sensor shows presence if it says that a part is there, or another one whose name differs in numbers only; a fan with a speed
    is there."""
    silent: dict[str, list[str]] = {"power supplies": [], "fans": [], OTHER_PARTS: []}
    parts: dict[str, dict[str, bool]] = {"power supplies": {}, "fans": {}, OTHER_PARTS: {}}
    shown = {name: not is_absent(value) for name, value in fans.items()}
    shown.update({sensor.name: True for sensor, _kind, named in read if any(state.present for state in named)})
    stems = {re.sub(r"\d+", "#", name) for name, is_there in shown.items() if is_there}
    for sensor, kind, named in read:
        group = _group(kind)
        is_gone = any(state.present is False for state in named)
        if is_gone or (re.sub(r"\d+", "#", sensor.name) in stems):
            parts[group][sensor.name] = shown.get(sensor.name, False) and not is_gone
        if _is_silent(sensor) and not sensor.reading.startswith(NOT_ASKED) and (group != OTHER_PARTS or sensor.name in parts[group]):
            silent[group].append(sensor.name)
    supplies = _read_supplies(read)
    silent["power supplies"] += [name for name, is_there in supplies.items() if not is_there]
    if any(supplies.values()):
        parts["power supplies"].update(supplies)
    return {group: names for group, names in parts.items() if names}, {group: names for group, names in silent.items() if names}


def _group(kind: int | None) -> str:
    return {states.FAN: "fans", states.SUPPLY: "power supplies"}.get(kind or 0, OTHER_PARTS)


def _without_reading(read: list[tuple[_Sensor, int | None, list[states.State]]], silent: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return {kind of parts: names of sensors that are listed and have no reading}, with the silent ones."""
    names: dict[str, list[str]] = {kind: list(of_kind) for kind, of_kind in silent.items()}
    for sensor, kind, _named in read:
        of_kind = names.setdefault(_group(kind), [])
        if _is_silent(sensor) and sensor.name not in of_kind:
            of_kind.append(sensor.name)
    return {kind: of_kind for kind, of_kind in names.items() if of_kind}


def _is_silent(sensor: _Sensor) -> bool:
    """Return True if a sensor has no reading; a discrete sensor of which no state holds has an empty one."""
    return sensor.state in _WITHOUT_READING or bool(sensor.reading and _NO_READING.fullmatch(sensor.reading))


def _read_supplies(read: list[tuple[_Sensor, int | None, list[states.State]]]) -> dict[str, bool]:
    """Return {words: whether a supply is there} of the supplies that show numbers: all sensors of one that is missing are silent. Supplies
    are told apart by their entity, 10.1 and 10.2; controllers that number none have all of theirs in one."""
    shown: dict[str, bool] = {}
    for sensor, _kind, _named in read:
        if re.fullmatch(r"10\.\d+", sensor.entity.replace(" ", "")):
            has_number = not _is_silent(sensor) and re.match(r"[-+]?\d", sensor.reading)
            if has_number or _is_silent(sensor):
                name = f"readings of entity {sensor.entity.strip()}"
                shown[name] = shown.get(name, False) or bool(has_number)
    return shown


def events(text: str) -> list[SelEvent]:
    """Return the events of `ipmitool sel elist` that tell of a fault and that no later event of the same sensor has ended."""
    return read_log(text).events


def read_log(text: str) -> Log:
    """Return what a log says."""
    unread: list[str] = []
    logged: list[Event] = []
    of_maker = 0
    holds: _Holds = {}
    times: list[float | None] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        entry = _entry(line)
        if entry is None:
            unread.append(line.strip()[:80])
            continue
        if entry.sensor.startswith("OEM record"):
            of_maker += 1
            continue
        times.append(entry.when)
        found = _events_of(entry, holds, len(times) - 1)
        if found is None:
            unread += [f"{entry.sensor}: {entry.words or 'an event without words'}"[:80]]
            found = _unknown(entry, len(times) - 1)
        logged += found
    return Log([_dated(event, times) for event in standing(logged)], unread, of_maker, [_dated(event, times) for event in over(logged)])


def _dated(event: Event, times: t.Sequence[float | None]) -> SelEvent:
    """Return a fault with its time, and with those of its neighbours in the log."""
    at, code, words, part = event.data
    after = next((when for when in reversed(times[:at]) if when is not None), None)
    before = next((when for when in times[at + 1 :] if when is not None), None)
    return SelEvent(times[at], code, words, part, after, before)


class _Entry(t.NamedTuple):
    """One line of a log. `more` is a reading with its limit, or what a maker adds."""

    when: float | None
    sensor: str
    words: str
    is_asserted: bool
    more: str


# The time of an entry while the controller does not know the date. Versions differ in whether a cell with its seconds follows.
_UNDATED = re.compile(r"(?i)pre-?init.*|post-?init.*|unspecified|unknown|s\+.*|")
_CLOCK = re.compile(r"(?i)\d{1,2}[:.]\d\d.*|\d{10}|unspecified|unknown|")
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}\.?")


def _entry(line: str) -> _Entry | None:
    """Return the entry of a line of `sel elist` or `sel list`; None for a line that is none."""
    is_table = "|" in line
    cells = [cell.strip() for cell in line.split("|" if is_table else ",")]
    if len(cells) < 2 or not re.fullmatch(r"(?i)(?:0x)?[0-9a-f]+h?", cells[0]):
        return None
    panic = next((cell for cell in cells[1:] if cell.startswith("Linux kernel panic")), None)
    if panic is not None:
        return _Entry(None, "Linux kernel panic", panic.partition(":")[2].strip(), True, "")
    maker = next((cell for cell in cells[1:4] if cell.startswith("OEM record")), None)
    if maker is not None:
        return _Entry(None, maker, "", True, "")
    rest, day, clock = cells[1:], "", ""
    if _DATE.fullmatch(rest[0]) or _UNDATED.fullmatch(rest[0]):
        day = rest.pop(0)
        if rest and _CLOCK.fullmatch(rest[0]):
            clock = rest.pop(0)
    ends = [at for at, cell in enumerate(rest) if at and cell.lower() in ("asserted", "deasserted")]
    if len(rest) < 2 or not rest[0] or (not is_table and not ends):
        return None
    end = ends[0] if ends else 2
    more = " ".join(filter(None, rest[end + 1 :]))
    return _Entry(_time(day, clock), rest[0], ", ".join(filter(None, rest[1:end])), not ends or rest[end].lower() == "asserted", more)


class _Held(t.NamedTuple):
    """A state that a sensor is in by the log: with its grade, the place of its entry in the log, and the words of that."""

    state: states.State
    grade: int
    at: int
    words: str


# The states that each sensor was last said to be in, by sensor and kind of states; under the kind _GONE, that its part is not there.
_Holds = t.Dict[t.Tuple[str, str], t.List[_Held]]
_GONE = "gone"


def _events_of(entry: _Entry, holds: _Holds, at: int) -> list[Event] | None:
    """Return the events of an entry, None if no table has its words. `holds` is as of before the entry; `at` is the place of the
    entry in the log."""
    if entry.sensor == "Linux kernel panic":
        return [Event(entry.sensor, at, True, (at, LOOK, f"{entry.sensor}: {entry.words}", ""))]
    sensor = " ".join(entry.sensor.split())
    words = f"{sensor}: {entry.words}" + (f" ({entry.more})" if entry.more else "")
    limit = states.crossed(entry.words)
    if limit is not None:
        side, level, is_beyond = limit
        if is_beyond == entry.is_asserted:
            code = LOOK if level == 0 or not entry.is_asserted else FAULT
            return [Event(sensor, (side, level), True, (at, code, words, ""))]
        # A reading that is within a limit is within those behind it.
        return [Event(sensor, (side, behind), False) for behind in range(level, len(states.LEVELS))]
    kind, name = states.type_of(sensor)
    state, suffix = states.look_up(entry.words, kind, name), ""
    added = re.search(r" \(| ; ", entry.words)
    if state is None and added:  # makers add the place: `Correctable ECC (DIMM A1)`
        plain_words, suffix = entry.words[: added.start()], entry.words[added.end() :].rstrip(")")
        state = states.look_up(plain_words, kind, name)
    if state is None:
        return None
    part = f"{sensor} ({suffix})" if suffix else sensor
    words += "" if entry.is_asserted else ": Deasserted"
    held = holds.setdefault((part, state.kind), [])
    if entry.is_asserted:
        was_there = any(each.state.present for each in held)
        grade = states.FAIL if state.present is False and was_there else state.logged
        held[:] = [each for each in held if states.may_hold_together(each.state, state)]
        held.append(_Held(state, grade, at, words))
        of_others = _ended_by_new_part(part, state, holds)
    elif state.is_momentary:
        return []
    else:
        # Only a state that holds can end: a controller takes an old one back before or behind the new one.
        if held and all(each.state.words != state.words for each in held):
            return []
        held[:] = [each for each in held if each.state.words != state.words]
        if state.present:
            holds.setdefault((part, _GONE), [_Held(state, states.FAIL, at, words)])
        of_others = []
    worst = max(held, key=lambda each: each.grade) if held else _Held(state, _without(state), at, words)
    code, present = _CODES.get(worst.grade, ""), worst.state.present
    is_missing = bool(code) and present is not None and (present is False) == (worst in held)
    missing = sensor if is_missing else ""
    return [*of_others, Event(part, state.kind, bool(code), (worst.at, code, worst.words, missing))]


def _ended_by_new_part(part: str, state: states.State, holds: _Holds) -> list[Event]:
    """Return the ends of what the log has of a part that was gone and is there again: it is another one, or was put in anew, and the
    controller logs again what is wrong with it. An error of a moment is not ended: a processor may be seen to go with the power."""
    if state.present is False:
        holds.setdefault((part, _GONE), [_Held(state, states.FAIL, -1, "")])
    if not state.present or holds.pop((part, _GONE), None) is None:
        return []
    others = [(kind, held) for (of, kind), held in holds.items() if of == part and kind != state.kind]
    ended = [kind for kind, held in others if not any(each.state.is_momentary for each in held)]
    for kind in ended:
        del holds[part, kind]
    return [Event(part, kind, False) for kind in ended]


def _without(state: states.State) -> int:
    """Return the grade of a state that no longer holds: a part that was there is missing; a pair of states has the other one."""
    if state.present:
        return states.FAIL
    others = [
        other.logged for kind in states.GENERIC.values() if state.kind in {of.kind for of in kind.values()} for other in kind.values()
    ]
    is_good_one_of_several = state.logged == states.GOOD and others and max(others) > states.NOTE
    return states.WARN if is_good_one_of_several else states.GOOD


def _unknown(entry: _Entry, at: int) -> list[Event]:
    """Return the event of words that no table has, if they sound like a fault."""
    words = f"{entry.sensor}: {entry.words}" + (f" ({entry.more})" if entry.more else "")
    kind = states.normal(re.sub(r"(?i)(?:de-?)?assert(?:ed|ion)?", "", entry.words))
    if entry.is_asserted and not _is_suspicious(entry.words):
        return []
    code = FAULT if _LEAK.search(entry.words) and _is_suspicious(entry.words) else LOOK
    return [Event(entry.sensor, kind, entry.is_asserted, (at, code, words, ""))]


def clock(text: str) -> float | None:
    """Return the time that `ipmitool sel time get` prints as seconds since 1970, None if it prints none."""
    match = re.fullmatch(r"(\S+) (\d\d?:\d\d:\d\d(?: \w+)*)", text.strip())
    return _time(*match.groups()) if match else None


def _time(day: str, clock: str) -> float | None:
    """Return a time of the log as seconds since 1970. Without `UTC` it is the local time of the machine. The order of a date is that of the
    machine's language: 11/24/26, 24.11.2026 or 2026-11-24."""
    date = re.fullmatch(r"(\d{1,4})([-/.])(\d{1,2})[-/.](\d{1,4})\.?", day)
    of_day = re.match(r"(?i)(\d{1,2})[:.](\d\d)[:.](\d\d)(?:\s*([ap])m)?(.*)", clock)
    if not (date and of_day):
        return None
    first, second, third = (int(date.group(index)) for index in (1, 3, 4))
    if len(date.group(1)) == 4:
        year, month, of_month = first, second, third
    elif date.group(2) == "." or first > 12:
        of_month, month, year = first, second, third
    else:
        month, of_month, year = first, second, third
    hour, minute, second = (int(of_day.group(index)) for index in (1, 2, 3))
    if of_day.group(4):
        hour = hour % 12 + (12 if of_day.group(4).lower() == "p" else 0)
    if not (1 <= month <= 12 and 1 <= of_month <= 31):  # no date at all, which the functions below would take for one
        return None
    parts = (year + 2000 if year < 100 else year, month, of_month, hour, minute, second, 0, 0, -1)
    try:
        return float(calendar.timegm(parts)) if re.search(r"\b(?:UTC|GMT)\b", of_day.group(5)) else time.mktime(parts)
    except (ValueError, OverflowError):
        return None
