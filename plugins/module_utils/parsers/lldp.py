# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parsers for `lldpctl -f keyvalue` and `-f json`: the switch and the port that each Ethernet interface of a machine is connected to, as
the switch says.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import re
import typing as t

# lldp.INTERFACE.chassis.name=VALUE, or the same of the port; an interface may have dots in its name (lldpctl(8)). Each neighbour has a
# `rid`; of two neighbours it may be the only name that both have.
# The words for kinds of ids are those of lldpd (src/lib/atoms/chassis.c and port.c).
_LINE = re.compile(
    r"lldp\.(\S+?)\.(rid|chassis\.(?:name|mac|local|ifname|ifalias|ip|unhandled)|port\.(?:ifname|local|descr|ifalias|mac|ip|unhandled))=(.*)"
)
# Which of the values names the switch and the port, the best first.
_CHASSIS = ("chassis.mac", "chassis.local", "chassis.ifname", "chassis.ifalias", "chassis.ip", "chassis.unhandled")
_PORT = ("port.ifname", "port.local", "port.descr", "port.ifalias", "port.mac", "port.ip", "port.unhandled")
_SWITCH = ("chassis.name", *_CHASSIS)
# The name of a port that stands in its description where the id is the number of the interface in SNMP, as Junos sends it: `xe-0/0/4`.
_PORT_NAME = re.compile(r"[A-Za-z]+-?\d+(?:/\d+)+(?:[:.]\d+)*")
SHOWN = 80


class Neighbour(t.NamedTuple):
    """The switch and the port that an interface is connected to; a name that the switch does not send is empty. `chassis` is the id of the
    switch: several may have one name, that of their maker."""

    switch: str
    port: str
    chassis: str = ""


def neighbours(text: str) -> dict[str, Neighbour]:
    """Return {interface: its neighbour}. If several neighbours are heard at one interface, which is the right one is not known: it is left
    out."""
    values: dict[str, dict[str, str]] = {}
    several: set[str] = set()
    for line in text.splitlines():
        match = _LINE.match(line)
        if match:
            interface, name, value = match.groups()
            of_interface = values.setdefault(interface, {})
            if name in of_interface:
                several.add(interface)
            of_interface[name] = " ".join(value.split())[:SHOWN]
    return {
        interface: Neighbour(_first(of_interface, _SWITCH), _port(of_interface), _first(of_interface, _CHASSIS))
        for interface, of_interface in values.items()
        if interface not in several
    }


def _port(values: dict[str, str]) -> str:
    port, described = _first(values, _PORT), values.get("port.descr", "")
    return described if port.isdigit() and _PORT_NAME.fullmatch(described) else port


def _first(values: dict[str, str], names: tuple[str, ...]) -> str:
    return next((values[name] for name in names if values.get(name)), "")


def heard(text: str) -> t.Dict[str, t.List[Neighbour]] | None:
    """Return {interface: the neighbours that are heard at it} of `lldpctl -f json` or `-f json0`; None if the text is neither. In `json`
    the interfaces, and the names of the neighbours, are keys, of one object or of several in a list; in `json0` they are values. lldpctl
    0.9.7 prints the ends of lines in a description as they are, which is no JSON."""
    try:
        tree = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    if tree == {}:
        return {}
    if not isinstance(tree, dict) or "lldp" not in tree:
        return None
    found: t.Dict[str, t.List[_Heard]] = {}
    for part in _listed(tree["lldp"]):
        for interface in _listed(part.get("interface")):
            named = [(str(interface["name"]), interface)] if isinstance(interface.get("name"), str) else list(interface.items())
            for name, value in named:
                if isinstance(value, dict):
                    found.setdefault(name[:SHOWN], []).extend(_of_json(value))
    return {interface: _switches(each) for interface, each in found.items()}


class _Heard(t.NamedTuple):
    """A neighbour as an interface hears it; `is_switch` is None if it does not say. `is_bare` is True if it says nothing but the addresses
    of itself and of its port, as the firmware of network cards does."""

    neighbour: Neighbour
    is_switch: bool | None
    is_bare: bool
    protocol: str


def _switches(several: t.List[_Heard]) -> t.List[Neighbour]:
    """Return the only switch among neighbours that all say whether they are one, as beside a DPU or a virtual machine; else all. One that
    is heard twice, as by LLDP and by CDP, is one."""
    by_lldp = {each.neighbour.switch.partition(".")[0] for each in several if each.protocol == "LLDP"}
    # The names of CDP may have a domain or a serial number behind them: `leaf-1.example.com`, `leaf-1(FDO1234)`.
    again = [each for each in several if each.protocol != "LLDP" and re.split(r"[.(]", each.neighbour.switch)[0] in by_lldp - {""}]
    heard = [each for each in several if each not in again]
    switches = [each.neighbour for each in heard if each.is_switch]
    if len(set(switches)) == 1 and all(each.is_switch is not None or each.is_bare for each in heard):
        return switches[:1]
    return list(dict.fromkeys(each.neighbour for each in heard))


def _of_json(interface: t.Dict[str, t.Any]) -> t.List[_Heard]:
    """Return the neighbours in the value of an interface, one for each chassis."""
    port = next(iter(_listed(interface.get("port"))), {})
    chassis = [
        pair
        for listed in _listed(interface.get("chassis"))
        for pair in ([("", listed)] if "id" in listed else [(n, v) for n, v in listed.items() if isinstance(v, dict)])
    ]
    described = _json_text(port.get("descr"))
    port_name = _json_text(_id(port, "ifname", "local"), described, _id(port))
    if port_name.isdigit() and _PORT_NAME.fullmatch(described):
        port_name = described
    protocol = str(interface.get("via") or "LLDP")
    has_addresses_alone = bool(_id(port, "mac")) and not described
    found = []
    for name, values in chassis:
        switch, is_switch = _json_text(name, values.get("name"), _id(values)), _is_switch(values)
        is_bare = has_addresses_alone and is_switch is None and switch == _id(values, "mac") and not _json_text(values.get("descr"))
        found.append(_Heard(Neighbour(switch, port_name, _json_text(_id(values))), is_switch, is_bare, protocol))
    return found


def _is_switch(chassis: t.Dict[str, t.Any]) -> bool | None:
    """Return True if a chassis says that it forwards packets, None if it says nothing of that."""
    enabled = {str(each.get("type")): each.get("enabled") for each in _listed(chassis.get("capability"))}
    return any(enabled.get(kind) is True for kind in ("Bridge", "Router")) if enabled else None


def _id(values: t.Dict[str, t.Any], *kinds: str) -> str:
    """Return the id of a chassis or a port, if it is of one of the kinds, or of any."""
    ids = _listed(values.get("id"))
    return next((str(each.get("value") or "") for each in ids if not kinds or each.get("type") in kinds), "")


def _json_text(*values: t.Any) -> str:
    """Return the first of the values that is a text, or that holds one as `value`; empty if there is none."""
    for value in values:
        for each in value if isinstance(value, list) else [value]:
            text = each.get("value") if isinstance(each, dict) else each
            if isinstance(text, str) and text.strip():
                return " ".join(text.split())[:SHOWN]
    return ""


def _listed(value: t.Any) -> t.List[t.Dict[str, t.Any]]:
    """Return the objects of a value that is one or a list of them."""
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]
