# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser for `lldpctl -f keyvalue`: the switch and the port that each Ethernet interface of a machine is connected to, as the switch says.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

# lldp.INTERFACE.chassis.name=VALUE, or the same of the port; an interface may have dots in its name (lldpctl(8)). Each neighbour has a
# `rid`; of two neighbours it may be the only name that both have.
_LINE = re.compile(r"lldp\.(\S+?)\.(rid|chassis\.name|chassis\.mac|port\.ifname|port\.local|port\.descr|port\.mac)=(.*)")
# Which of the values names the switch and the port, the best first.
_SWITCH, _PORT = ("chassis.name", "chassis.mac"), ("port.ifname", "port.local", "port.descr", "port.mac")
SHOWN = 80


class Neighbour(t.NamedTuple):
    """The switch and the port that an interface is connected to; a name that the switch does not send is empty."""

    switch: str
    port: str


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
        interface: Neighbour(_first(of_interface, _SWITCH), _first(of_interface, _PORT))
        for interface, of_interface in values.items()
        if interface not in several
    }


def _first(values: dict[str, str], names: tuple[str, ...]) -> str:
    return next((values[name] for name in names if values.get(name)), "")
