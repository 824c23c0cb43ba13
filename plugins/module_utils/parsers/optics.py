# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parsers for what `ethtool -m`, as text or as JSON, and `mlxlink -m -c --json` print about the module in a port and about its link.

Names of the fields: ethtool 4.8 to 6.15 (sff-common.c, sfpdiag.c, qsfp.c, cmis.c, module-common.c) and mstflint 4.14 to 4.34
(mlxlink_commander.cpp). A module without diagnostics, as a passive copper cable, has no values; that is said and is no healthy value.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, Value, number

Object = t.Dict[str, t.Any]
# The values of a module and their units.
UNITS = {"temperature": "C", "voltage": "V", "bias": "mA", "tx_power": "mW", "rx_power": "mW"}
# {name in ethtool, of a value, a limit or a flag: which value it is about}.
_NAMES = {
    "module temperature": "temperature", "module voltage": "voltage",
    "laser tx bias current": "bias", "laser bias current": "bias",
    "transmit avg optical power": "tx_power", "laser output power": "tx_power", "laser tx power": "tx_power",
    "rcvr signal avg optical power": "rx_power", "receiver signal average optical power": "rx_power", "receiver signal oma": "rx_power",
    "laser rx power": "rx_power", "rx power": "rx_power",
}  # fmt: skip
LEVELS = ("high alarm", "low alarm", "high warning", "low warning")
_LEVEL = re.compile(r"(.+) (high alarm|low alarm|high warning|low warning)( threshold)?")
_LANE = re.compile(r"\s*\((?:channel|chan)\s*(\d{1,3})\)")
_LINE = re.compile(r"\s*([A-Za-z].*?)\s*:\s(.*)")
# The first number of a text of ethtool: `-0.12` of `0.9720 mW / -0.12 dBm` is in another unit and not meant. Some systems print dBm alone.
_FIRST = re.compile(r"([+-]?\d{1,9}(?:\.\d{1,9})?|-inf)\s*(?:degrees (C)|(mA|mW|V|dBm))\b.*")
# A copper cable without amplifiers, by the technology that it names (SFF-8636, byte 147; CMIS, byte 212; mlxlink: `Copper cable, passive,
# unequalized`, of SFP `Passive`). It measures nothing, and what it has in place of flags means nothing.
_PASSIVE = re.compile(r"(?:copper cable,? )?(?:passive|unequalized)", re.I)
# Identifiers of a memory that cannot be read, and of no module (SFF-8024, table 4-1).
_NO_MODULE = ("0x00", "0xff", "0", "255")
_ON = {"on": True, "off": False, True: True, False: False}
# {name in mlxlink: (value, factor to its unit)}; powers are in dBm.
_MLXLINK = {"Temperature [C]": ("temperature", 1.0), "Voltage [mV]": ("voltage", 0.001), "Bias Current [mA]": ("bias", 1.0)}
_MLXLINK_DBM = {"Rx Power Current [dBm]": "rx_power", "Tx Power Current [dBm]": "tx_power"}
# What mlxlink says of a module that has failed, and of a signal that is missing: 0 in each lane, or N/A, if all is well.
_FAULTS = (
    "Module FW Fault", "DataPath FW Fault", "Tx Fault [per lane]", "Tx LOS [per lane]", "Rx LOS [per lane]", "Tx CDR LOL [per lane]",
    "Rx CDR LOL [per lane]",
)  # fmt: skip
_NO_FAULT = ("0", "N/A", "", "None")
_BER = {"Raw Physical BER": "raw_ber", "Effective Physical BER": "effective_ber", "Symbol BER": "symbol_ber"}
_COUNTS = {"Effective Physical Errors": "effective_errors", "Symbol Errors": "symbol_errors", "Link Down Counter": "link_downed"}
# What a module says of its lanes by SFF-8636, byte 113: `Channels implemented [1_2],Channels not implemented [3_4]/...`.
_WIRED = re.compile(r"Channels implemented \[([1-9](?:\D[1-9])*)\]")
_RANGE = re.compile(r"(.*?)\s*\[(\S+?)\.\.(\S+?)\]\s*")
# No light: the lowest power that SFF-8636 can say, 0.1 uW, is printed as -40 dBm, and none as -inf.
_DARK_DBM, DARK_MW = ("-inf", "-nan"), 1.0e-4
# Nothing wrong, and nothing known (mlxlink_utils.cpp, status2Color).
_NO_ADVICE = ("0", "1023", "N/A")
_WITHOUT = "the module has no diagnostics, as a passive cable"
SHOWN = 60
MOST_LANES = 16


class Optics(t.NamedTuple):
    """A module: who made it, {value: one for each lane}, {value: {level: limit}}, and `alarms` and `warnings` that the module itself
    raises, in words. `link` is what mlxlink says of the link: bit error rates and counts. `unread` says what could not be read. `faulty`
    has the lanes of alarms that mlxlink tells lane by lane, {alarm: [number of a lane]}, which are not in `alarms`. `wired` is the number
    of lanes that the module says it has, None if it does not say. `lanes` are those of `alarms` and `warnings` that ethtool tells lane by
    lane."""

    vendor: str
    part: str
    serial: str
    values: t.Dict[str, t.List[Value]]
    limits: t.Dict[str, t.Dict[str, Value]]
    alarms: t.List[str]
    warnings: t.List[str]
    link: t.Dict[str, Value | str]
    unread: t.List[str]
    faulty: t.Dict[str, t.List[int]] = {}
    wired: int | None = None
    lanes: t.Dict[str, t.List[int]] = {}

    def unlit(self) -> t.Set[int]:
        """Return the lanes in which neither current nor light is measured in either direction, while there is some in others: a module of
        eight electrical lanes may have four optical ones, and one of four a single one."""
        bias, sent, received = (self.values.get(name, []) for name in ("bias", "tx_power", "rx_power"))
        each = zip(bias, sent, received)
        dark = {
            lane for lane, (current, *powers) in enumerate(each)
            if _is_at_most(current, 0) and all(_is_at_most(power, DARK_MW) for power in powers)
        }  # fmt: skip
        return dark if len(dark) < len(bias) else set()


def ethtool(text: str) -> Optics:
    """Return the module that `ethtool -m` prints, as text or as JSON."""
    if text.lstrip().startswith(("[", "{")):
        tree = _object(text)
        return _module(_of_tree(tree)) if tree is not None else _nothing("ethtool's JSON is not valid")
    lines = [match.groups() for match in map(_LINE.fullmatch, text.splitlines()) if match]
    return _module([(name.lower(), value.strip()) for name, value in lines])


def _of_tree(tree: Object) -> t.List[t.Tuple[str, t.Any]]:
    """Return the fields of ethtool's JSON as its text has them: a line for each lane, and limits under the name of their value."""
    fields: t.List[t.Tuple[str, t.Any]] = []
    for key, value in tree.items():
        name = key.replace("_", " ").lower()
        if isinstance(value, dict):
            for inner, each in value.items():
                words = inner.replace("_", " ").lower()
                lanes = each if isinstance(each, list) else [each]
                fields += _of_lanes(name if words in ("value", "values") else f"{name} {words}", lanes)
        else:
            fields += _of_lanes(name, value if isinstance(value, list) else [value])
    return fields


def _of_lanes(name: str, lanes: t.List[t.Any]) -> t.List[t.Tuple[str, t.Any]]:
    """Return the fields of a list as the text has them, with the number of each lane."""
    if len(lanes) == 1:
        return [(name, lanes[0])]
    return [(f"{name} (channel {number})", lane) for number, lane in enumerate(lanes[:MOST_LANES], 1)]


def _module(fields: t.Sequence[t.Tuple[str, t.Any]]) -> Optics:
    texts = {name: str(value).strip()[:SHOWN] for name, value in reversed(fields)}
    # Ports of Cumulus Linux count lanes from 0 on.
    numbers = [int(match.group(1)) for match in (_LANE.search(name) for name, _value in fields) if match]
    first_lane = min(numbers, default=0)
    in_lanes: t.Dict[str, t.List[int]] = {}
    values: t.Dict[str, t.List[Value]] = {}
    limits: t.Dict[str, t.Dict[str, Value]] = {}
    raised: t.Dict[str, t.List[str]] = {"alarm": [], "warning": []}
    unread: t.List[str] = []
    for full_name, cell in fields:
        name = re.sub(r"\s+", " ", _LANE.sub("", full_name)).replace(" measurement", "").strip()
        level = _LEVEL.fullmatch(name)
        value_name = _NAMES.get(level.group(1) if level else name)
        if value_name is None:
            continue
        if level and level.group(3):
            limits.setdefault(value_name, {})[level.group(2)] = _measured(cell, full_name, UNITS[value_name])
        elif level:
            on = _ON.get(cell.strip().lower() if isinstance(cell, str) else cell if isinstance(cell, bool) else None)
            if on is None:
                unread.append(f"{full_name} reads {str(cell)[:SHOWN]!r}")
            elif on:
                lane = _LANE.search(full_name)
                in_lanes.setdefault(name, []).extend([int(lane.group(1)) - first_lane] if lane else [])
                if name not in raised[level.group(2).split()[1]]:
                    raised[level.group(2).split()[1]].append(name)
        elif len(values.setdefault(value_name, [])) < MOST_LANES:
            value = _measured(cell, full_name, UNITS[value_name])
            values[value_name].append(value)
            if isinstance(value, Absent):
                unread.append(value.why)
    vendor, part, serial = (texts.get(name, "") for name in ("vendor name", "vendor pn", "vendor sn"))
    if not (vendor or part or serial or "identifier" in texts):
        return _nothing("ethtool prints no module")
    identifier = texts.get("identifier", "")
    if identifier.partition(" ")[0].lower() in _NO_MODULE:
        return _nothing(f"the memory of the module cannot be read: its identifier is {identifier}")
    technology = texts.get("transmitter technology description") or texts.get("transmitter technology", "").partition("(")[2]
    if _PASSIVE.match(technology) or "passive cu cmplnce." in texts:
        return Optics(vendor, part, serial, {}, {}, [], [], {}, [_WITHOUT])
    contradictory = _contradictory(limits)
    if len(contradictory) > 1:
        names = " and ".join(name.replace("_", " ") for name in contradictory)
        why = f"the limits of its {names} contradict each other: what is read are not its diagnostics"
        return Optics(vendor, part, serial, {}, {}, [], [], {}, [why])
    limits = {name: levels for name, levels in limits.items() if name not in contradictory}
    values = _without_zeros(values)
    if not values:
        unread.append(_WITHOUT)
    return Optics(vendor, part, serial, values, limits, raised["alarm"], raised["warning"], {}, unread, lanes=in_lanes)


def _contradictory(limits: t.Dict[str, t.Dict[str, Value]]) -> t.List[str]:
    """Return the values whose highest limit is not above the lowest: drivers that cannot turn to the page of the diagnostics read another
    one. Limits of 0 are none."""
    found = []
    for name, levels in limits.items():
        high, low = levels.get("high alarm"), levels.get("low alarm")
        is_told = not (high is None or low is None or isinstance(high, Absent) or isinstance(low, Absent))
        if is_told and high and low and high <= low:
            found.append(name)
    return found


def _is_at_most(value: Value, limit: float) -> bool:
    return not isinstance(value, Absent) and value <= limit


def _without_zeros(values: t.Dict[str, t.List[Value]]) -> t.Dict[str, t.List[Value]]:
    """Return the values of a module. One that answers has a voltage: if it tells none, and no temperature, all zeros stand for values that
    it does not measure."""
    told = [value for name in ("voltage", "temperature") for value in values.get(name, [])]
    if not told or any(isinstance(value, Absent) or value != 0 for value in told):
        return values
    return {name: lanes for name, lanes in values.items() if any(isinstance(value, Absent) or value > DARK_MW for value in lanes)}


def _measured(cell: t.Any, name: str, unit: str) -> Value:
    """Return the number of a field of ethtool: a number of its JSON, or the first one of a text, which has its unit."""
    match = _FIRST.fullmatch(cell.strip()) if isinstance(cell, str) else None
    if match is None:
        return Absent(f"{name} reads {cell[:SHOWN]!r}") if isinstance(cell, str) else number(cell, name)
    has = match.group(2) or match.group(3)
    if has == "dBm" and unit == "mW":
        return _converted(match.group(1), f"{name} [dBm]", lambda dbm: 10.0 ** (dbm / 10.0))
    return number(match.group(1), name) if has == unit else Absent(f"{name} reads {cell[:SHOWN]!r}")


def mlxlink(text: str) -> Optics:
    """Return module and link that `mlxlink -m -c --json` prints."""
    tree = _object(text)
    if tree is None:
        return _nothing("mlxlink's JSON is not valid")
    result, status = tree.get("result"), tree.get("status")
    output = result.get("output") if isinstance(result, dict) else None
    if not isinstance(output, dict):
        message = status.get("message") if isinstance(status, dict) else None
        return _nothing(f"mlxlink says {str(message)[:SHOWN]!r}" if message else "mlxlink's JSON has no output")
    module, counted, operating, trouble = (
        section if isinstance(section, dict) else {}
        for section in map(
            output.get, ("Module Info", "Physical Counters and BER Info", "Operational Info", "Troubleshooting Info")
        )
    )  # fmt: skip
    values: t.Dict[str, t.List[Value]] = {}
    limits: t.Dict[str, t.Dict[str, Value]] = {}
    unread: t.List[str] = []
    for name, (value_name, factor) in _MLXLINK.items():
        _add(module, name, value_name, lambda value, factor=factor: value * factor, values, limits)  # type: ignore[misc]
    for name, value_name in _MLXLINK_DBM.items():
        _add(module, name, value_name, lambda dbm: 10.0 ** (dbm / 10.0), values, limits)
    faulty = {name: [lane for lane, cell in enumerate(_cells(module.get(name))) if cell not in _NO_FAULT] for name in _FAULTS}
    alarms = [name for name, lanes in faulty.items() if lanes and not name.endswith("[per lane]")]
    of_lanes = {name: lanes for name, lanes in faulty.items() if lanes and name not in alarms}
    wired = _WIRED.search(str(module.get("Cable Breakout")))
    link: t.Dict[str, Value | str] = {
        **{name: _rate(counted[field], field) for field, name in _BER.items() if field in counted},
        **{name: number(counted[field], field) for field, name in _COUNTS.items() if field in counted},
        **{
            key: str(operating[field])[:SHOWN]
            for key, field in (("fec", "FEC"), ("speed", "Speed"), ("width", "Width"))
            if field in operating
        },
    }
    advice = str(trouble.get("Recommendation") or "")[: 2 * SHOWN]
    if str(trouble.get("Status Opcode", "0")) not in _NO_ADVICE and advice:
        link["advice"] = advice
    unread += [value.why for value in link.values() if isinstance(value, Absent)]
    unread += [value.why for lanes in values.values() for value in lanes if isinstance(value, Absent)]
    vendor, part, serial = (_name(module.get(f"Vendor {field}")) for field in ("Name", "Part Number", "Serial Number"))
    is_passive = any(_PASSIVE.match(str(module.get(name))) for name in ("Cable Type", "Cable Technology"))
    told = [values.get(name) for name in ("voltage", "temperature")]
    if is_passive or (any(told) and all(lanes in (None, [0.0]) for lanes in told)):
        # Also powers read 0 dBm then, which would be a milliwatt.
        values, limits, alarms, of_lanes = {}, {}, [], {}
        unread = [value.why for value in link.values() if isinstance(value, Absent)]
    if not values:
        unread.append(_WITHOUT if vendor or serial else "mlxlink prints no module")
    if not counted:
        unread.append("mlxlink prints no bit error rates")
    code, message = (status.get(key) if isinstance(status, dict) else None for key in ("code", "message"))
    if code not in (None, 0, "0"):
        unread.append(f"mlxlink says {' '.join(str(message).split())[: 2 * SHOWN]!r}")
    lanes_wired = len(re.findall("[1-9]", wired.group(1))) if wired else None
    return Optics(vendor, part, serial, values, limits, alarms, [], link, unread, of_lanes, lanes_wired)


def spare_lanes(width: str, lanes: int) -> int:
    """Return how many of a module's lanes its link does not use, as at an end of a splitter cable; 0 if its width is not known."""
    used = width_of(width)
    return max(0, lanes - used) if used else 0


def width_of(text: str) -> int:
    """Return the lanes of a link that mlxlink prints as `2x`; 0 if they are not known."""
    match = re.fullmatch(r"(\d{1,2})[xX]?", text.strip())
    return int(match.group(1)) if match else 0


def _add(
    module: Object,
    name: str,
    value_name: str,
    converted: t.Callable[[float], float],
    values: t.Dict[str, t.List[Value]],
    limits: t.Dict[str, t.Dict[str, Value]],
) -> None:
    """Add a field of mlxlink, `12,13 [-5..75]`: the value of each lane and the limits of the alarm."""
    field = module.get(name)
    ranged = _RANGE.fullmatch(field) if isinstance(field, str) else None
    cells = [cell for cell in _cells(ranged.group(1) if ranged else field) if cell not in ("N/A", "")]
    if cells:
        values[value_name] = [_converted(cell, name, converted) for cell in cells[:MOST_LANES]]
    if ranged:
        bounds = {"low alarm": _converted(ranged.group(2), name, converted), "high alarm": _converted(ranged.group(3), name, converted)}
        # Modules without limits print 0..0.
        if bounds["low alarm"] != bounds["high alarm"]:
            limits[value_name] = bounds


def _converted(cell: str, name: str, converted: t.Callable[[float], float]) -> Value:
    if cell.lower() in _DARK_DBM and "dBm" in name:
        return 0.0
    value = number(cell, name)
    if isinstance(value, Absent):
        return value
    # A power of 10 ** 10 mW is none.
    return converted(value) if abs(value) < (100 if "dBm" in name else 1e5) else Absent(f"{name} reads {cell[:SHOWN]!r}")


def _cells(field: t.Any) -> t.List[str]:
    """Return the values of a field of mlxlink: `1,2`, ["1", "2"] or {"values": ["1", "2"]}."""
    if isinstance(field, dict):
        field = field.get("values")
    listed = field if isinstance(field, list) else str(field).split(",") if field is not None else []
    return [str(cell).strip() for cell in listed]


def _rate(cell: t.Any, name: str) -> Value:
    """Return a bit error rate: `15E-255` is how firmware says none."""
    text = str(cell).strip()
    match = re.fullmatch(r"(\d{1,4}(?:\.\d{1,6})?)[eE]-(\d{1,3})", text)
    if match:
        return float(match.group(1)) * 10.0 ** -int(match.group(2))
    return number(cell, name)


def _name(cell: t.Any) -> str:
    text = str(cell or "").strip()[:SHOWN]
    return "" if text == "N/A" else text


def _merged(pairs: t.List[t.Tuple[str, t.Any]]) -> Object:
    """Return the object of some pairs. ethtool 6.15 has a value and its limits under one key, the value first."""
    merged: Object = {}
    for key, value in pairs:
        before = merged.get(key)
        if before is not None and (isinstance(before, dict) or isinstance(value, dict)):
            first, second = (part if isinstance(part, dict) else {"value": part} for part in (before, value))
            value = {**first, **second}
        merged[key] = value
    return merged


def _object(text: str) -> Object | None:
    """Return the object of a JSON text, of a list its first one; None if there is none."""
    try:
        tree = json.loads(text, object_pairs_hook=_merged)
    except (ValueError, RecursionError):
        return None
    tree = tree[0] if isinstance(tree, list) and tree else tree
    return tree if isinstance(tree, dict) else None


def _nothing(why: str) -> Optics:
    return Optics("", "", "", {}, {}, [], [], {}, [why])
