# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The map of a fabric: its nodes, switches and other devices, their ports, and the links between them.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import re
import typing as t

NODE: t.Literal["node"] = "node"
SWITCH: t.Literal["switch"] = "switch"
OTHER = "other"
# Switches between two nodes of a fabric, at most: routes that go round are none.
MOST_HOPS = 16
# Each number in a name is compared as a number: swp2 before swp10.
_NUMBERS = re.compile(r"(\d+)")


class End(t.NamedTuple):
    """A port: the id of its device in the map, and its name there: `mlx5_0/1` of a node, `5` or `swp5` of a switch."""

    device: str
    port: str


class Rate(t.NamedTuple):
    """The negotiated width and rate of a link: lanes, and Gb/s of the whole link; `words` are as the tool has them: `4x HDR`."""

    width: int | None
    gbps: float
    words: str


@dataclasses.dataclass(frozen=True)
class Device:
    """A device of the fabric. `name` is for people; a node's is its subject id, and so is its id. `model` is what tells one kind of device
    from another, `firmware` is None if it could not be read."""

    id: str
    kind: str
    name: str
    model: str = ""
    firmware: str | None = None


@dataclasses.dataclass
class Map:
    """A fabric as it is cabled.

    `links` has each link twice, from both of its ends; the rate is what the first end has. `ports` are the ports of each node in their
    order, which numbers its rails. `down` says in words why a port is known to have no link. `unplugged` are nodes' ports without one.
    `counted` are counters of errors above the thresholds of the tool, {port: {name: count}}, `rose` what they rose by while the fabric was
    watched. `managers` are the subnet managers of each InfiniBand fabric, {fabric: {who answered or says so: nodes that say it}}, `silent`
    are the fabrics in which no master answered, with the answer in words. `routes` have, for each switch that tells them, the number of the
    port by which it sends what goes to a node's port, at the place that `destinations` says; 0 is none. `aliases` are other names of a
    node's port. `unread` says what makes the map incomplete. `could` are Gb/s of a lane that both ends of a link say they can, where it has
    less; `widest` are the lanes that both ends of a link say they can, as far as somebody has asked them; `models` are the chips of nodes'
    adapters, `layers` the link layers of nodes' ports, by port.
    """

    devices: dict[str, Device] = dataclasses.field(default_factory=dict)
    links: dict[End, End] = dataclasses.field(default_factory=dict)
    rates: dict[End, Rate] = dataclasses.field(default_factory=dict)
    ports: dict[str, list[End]] = dataclasses.field(default_factory=dict)
    down: dict[End, str] = dataclasses.field(default_factory=dict)
    counted: dict[End, dict[str, int]] = dataclasses.field(default_factory=dict)
    rose: dict[End, dict[str, int]] = dataclasses.field(default_factory=dict)
    could: dict[End, float] = dataclasses.field(default_factory=dict)
    widest: dict[End, int] = dataclasses.field(default_factory=dict)
    models: dict[End, str] = dataclasses.field(default_factory=dict)
    layers: dict[End, str] = dataclasses.field(default_factory=dict)
    managers: dict[str, dict[str, list[str]]] = dataclasses.field(default_factory=dict)
    silent: dict[str, str] = dataclasses.field(default_factory=dict)
    routes: dict[str, bytes] = dataclasses.field(default_factory=dict)
    destinations: dict[End, int] = dataclasses.field(default_factory=dict)
    aliases: dict[End, End] = dataclasses.field(default_factory=dict)
    unread: list[str] = dataclasses.field(default_factory=list)

    def connect(self, a: End, b: End, rate_a: Rate | None = None, rate_b: Rate | None = None) -> None:
        """Add the link between two ports."""
        self.links[a], self.links[b] = b, a
        for end, rate in ((a, rate_a), (b, rate_b or rate_a)):
            if rate is not None:
                self.rates[end] = rate

    def kind(self, device: str) -> str:
        return self.devices[device].kind if device in self.devices else OTHER

    def name(self, device: str) -> str:
        return self.devices[device].name if device in self.devices else device

    def spoken(self, end: End) -> str:
        """Return a port in words: `port 5 of leaf-1`, `gpu-03 mlx5_0/1`."""
        return f"{self.name(end.device)} {end.port}" if self.kind(end.device) == NODE else f"port {end.port} of {self.name(end.device)}"

    def leaves(self) -> dict[str, list[End]]:
        """Return the switches that nodes are plugged into, each with its ports to nodes."""
        found: dict[str, list[End]] = {}
        for ports in self.ports.values():
            for end in ports:
                far = self.links.get(end)
                if far is not None and self.kind(far.device) == SWITCH:
                    found.setdefault(far.device, []).append(far)
        return found

    def leaf_of(self, end: End) -> str | None:
        """Return the switch that a node's port is plugged into."""
        far = self.links.get(end)
        return far.device if far is not None and self.kind(far.device) == SWITCH else None

    def route(self, start: End, to: End) -> list[End]:
        """Return the ports by which packets from one node's port to another leave the switches on their way; empty if it is not known."""
        way: list[End] = []
        place = self.destinations.get(to)
        here = self.links.get(start)
        while here is not None and place is not None and len(way) < MOST_HOPS and here.device in self.routes:
            table = self.routes[here.device]
            way.append(End(here.device, str(table[place] if place < len(table) else 0)))
            here = self.links.get(way[-1])
            if here == to:
                return way
        return []

    def switches(self) -> dict[str, str]:
        """Return the ids of switches by their names and by their ids; a name that several have is left out."""
        names = collections.Counter(device.name for device in self.devices.values() if device.kind == SWITCH)
        switches = [device for device in self.devices.values() if device.kind == SWITCH]
        return {**{each.name: each.id for each in switches if names[each.name] == 1}, **{each.id: each.id for each in switches}}


@dataclasses.dataclass(frozen=True)
class Finding:
    """A fault in a fabric: `verdict` and `code` as of an opinion, `words` for people, `ends` the ports to look at, the first one at
    the device that bears the finding. An empty `ends` is about the fabric as a whole."""

    verdict: str
    code: str
    words: str
    ends: tuple[End, ...] = ()


def in_order(name: str) -> list[t.Any]:
    """Return the key by which names with numbers are sorted."""
    return [(1, int(word), "") if word.isdigit() and len(word) < 16 else (0, 0, word) for word in _NUMBERS.split(name)]
