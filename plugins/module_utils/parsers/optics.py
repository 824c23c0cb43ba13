# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parsers for what `ethtool -m`, as text or as JSON, and `mlxlink -m -c --json` print about the module in a port and about its link.

Names of the fields: ethtool 4.8 to 6.15 (sff-common.c, sfpdiag.c, qsfp.c, cmis.c, module-common.c) and mstflint 4.20 to 4.34
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
_LANE = re.compile(r"\s*\((?:channel|chan)\s*\d+\)")
_LINE = re.compile(r"\s*([A-Za-z].*?)\s*:\s(.*)")
# The first number of a text of ethtool: `-0.12` of `0.9720 mW / -0.12 dBm` is in another unit and not meant.
_FIRST = re.compile(r"([+-]?\d{1,9}(?:\.\d{1,9})?)\s*(degrees C|mA|mW|V)\b.*")
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
_DARK_DBM = ("-inf", "-nan")
SHOWN = 60
MOST_LANES = 16


class Optics(t.NamedTuple):
    """A module: who made it, {value: one for each lane}, {value: {level: limit}}, and `alarms` and `warnings` that the module itself
    raises, in words. `link` is what mlxlink says of the link: bit error rates and counts. `unread` says what could not be read. `faulty`
    has the lanes of alarms that mlxlink tells lane by lane, {alarm: [number of a lane]}, which are not in `alarms`. `wired` is the number
    of lanes that the module says it has, None if it does not say."""

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
                fields += [(name if words in ("value", "values") else f"{name} {words}", lane) for lane in lanes[:MOST_LANES]]
        else:
            fields += [(name, lane) for lane in (value[:MOST_LANES] if isinstance(value, list) else [value])]
    return fields


def _module(fields: t.Sequence[t.Tuple[str, t.Any]]) -> Optics:
    texts = {name: str(value).strip()[:SHOWN] for name, value in reversed(fields)}
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
            limits.setdefault(value_name, {})[level.group(2)] = _measured(cell, full_name)
        elif level:
            on = _ON.get(cell.strip().lower() if isinstance(cell, str) else cell if isinstance(cell, bool) else None)
            if on is None:
                unread.append(f"{full_name} reads {str(cell)[:SHOWN]!r}")
            elif on and name not in raised[level.group(2).split()[1]]:
                raised[level.group(2).split()[1]].append(name)
        elif len(values.setdefault(value_name, [])) < MOST_LANES:
            value = _measured(cell, full_name)
            values[value_name].append(value)
            if isinstance(value, Absent):
                unread.append(value.why)
    vendor, part, serial = (texts.get(name, "") for name in ("vendor name", "vendor pn", "vendor sn"))
    if not (vendor or part or serial or "identifier" in texts):
        return _nothing("ethtool prints no module")
    if not values:
        unread.append("the module has no diagnostics, as a passive cable")
    return Optics(vendor, part, serial, values, limits, raised["alarm"], raised["warning"], {}, unread)


def _measured(cell: t.Any, name: str) -> Value:
    """Return the number of a field of ethtool: a number of its JSON, or the first one of a text, which has its unit."""
    match = _FIRST.fullmatch(cell.strip()) if isinstance(cell, str) else None
    if match:
        return number(match.group(1), name)
    return Absent(f"{name} reads {cell[:SHOWN]!r}") if isinstance(cell, str) else number(cell, name)


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
    if str(trouble.get("Status Opcode", "0")) not in ("0", "N/A") and advice:
        link["advice"] = advice
    unread += [value.why for value in link.values() if isinstance(value, Absent)]
    unread += [value.why for lanes in values.values() for value in lanes if isinstance(value, Absent)]
    vendor, part, serial = (_name(module.get(f"Vendor {field}")) for field in ("Name", "Part Number", "Serial Number"))
    if not values:
        unread.append("the module has no diagnostics, as a passive cable" if vendor or serial else "mlxlink prints no module")
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


def _object(text: str) -> Object | None:
    """Return the object of a JSON text, of a list its first one; None if there is none."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return None
    tree = tree[0] if isinstance(tree, list) and tree else tree
    return tree if isinstance(tree, dict) else None


def _nothing(why: str) -> Optics:
    return Optics("", "", "", {}, {}, [], [], {}, [why])
