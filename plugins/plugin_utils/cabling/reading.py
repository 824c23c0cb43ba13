# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The map of a fabric from what the nodes of a run have measured.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import base64
import binascii
import collections
import dataclasses
import re
import typing as t
import zlib

from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import infiniband
from ansible_collections.gpufleet.acceptance.plugins.module_utils.rdma import subnet
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import form
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import NODE, OTHER, SWITCH, Device, End, Finding, Map, Rate
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, PlainData, is_number

# The checks of the stage: the ports of a node, their modules, and the fabric as a node sees it.
PORTS, OPTICS, DISCOVERY = "ports", "optics", "discovery"
# Descriptions of managed and unmanaged switches: `MF0;leaf-4:MQM9700/U1`, `Quantum Mellanox Technologies`.
_DESCRIPTION = re.compile(r"(?:[A-Z]{2}\d;)?(.+?)(?::([\w-]+)(?:/\w+)*)?")
ACTIVE = "ACTIVE"
SHOWN = 4
# The most ports of adapters of which a switch tells the routes.
LONGEST = 65536


class Reading(t.NamedTuple):
    """A map, and what reading it has found: two nodes that see different fabrics."""

    fabric: Map
    findings: list[Finding]


def read(records: t.Iterable[Measurement]) -> Reading:
    """Return the map of the measured records of the stage, whatever their order."""
    measured = sorted((record for record in records if record.outcome == "measured"), key=lambda record: record.key)
    ordered = [record for record in measured if form.is_of_probe(record)]
    fabric = Map()
    for record in measured:
        if not form.is_of_probe(record):
            fabric.unread.append(f"what {record.subject.id} says in the check {record.check} has not the form of the probe")
    guids: dict[str, End] = {}
    managers: dict[End, str] = {}
    for record in ordered:
        if record.check == PORTS:
            for port in form.ports_of(record):
                end = _port(fabric, record.subject.id, port)
                if port.get("guid"):
                    guids[str(port["guid"])] = end
                if is_number(port.get("sm_lid")) and end not in fabric.down:
                    managers[end] = f"LID {port['sm_lid']}" if port["sm_lid"] else ""
    seen: list[tuple[set[str], str, set[tuple[End, End]]]] = []
    findings: list[Finding] = []
    for record in ordered:
        if record.check == DISCOVERY:
            for one in record.context.get("fabrics") or ():
                findings += _add(fabric, one, record.subject.id, guids, managers, seen)
    _name_apart(fabric)
    return Reading(fabric, findings)


def _name_apart(fabric: Map) -> None:
    """Give switches of one name, as those of two fabrics or with the name of their maker, names of their own."""
    names = collections.Counter(device.name for device in fabric.devices.values() if device.kind == SWITCH)
    for device in list(fabric.devices.values()):
        if device.kind == SWITCH and names[device.name] > 1:
            own = device.id.rpartition(f"{device.name}:")[2]
            fabric.devices[device.id] = dataclasses.replace(device, name=f"{device.name} ({own})")


def _port(fabric: Map, node: str, port: PlainData) -> End:
    """Add a port of a node as the node itself sees it."""
    fabric.devices.setdefault(node, Device(node, NODE, node))
    end = End(node, f"{port.get('device')}/{port.get('port')}")
    fabric.ports.setdefault(node, []).append(end)
    if port.get("netdev"):
        fabric.aliases[End(node, str(port["netdev"]))] = end
    if port.get("state") != ACTIVE:
        fabric.down[end] = f"{port.get('state') or 'without a state'}, {port.get('physical') or 'physical state unknown'}"
    if port.get("link_layer"):
        fabric.layers[end] = str(port["link_layer"])
    if port.get("model"):
        fabric.models[end] = str(port["model"])
    heard = [each for each in port.get("heard") or () if isinstance(each, list) and len(each) in (2, 3) and all(each[:2])]
    if len(heard) == 1 and end not in fabric.down:
        switch, switch_port, chassis = map(str, [*heard[0], ""][:3])
        name = f"lldp:{switch}:{chassis}" if chassis and chassis != switch else f"lldp:{switch}"
        fabric.devices.setdefault(name, Device(name, SWITCH, switch))
        there = End(name, switch_port)
        if there in fabric.links:
            fabric.unread.append(f"{fabric.spoken(end)} and {fabric.spoken(fabric.links[there])} both hear {fabric.spoken(there)}")
        else:
            fabric.connect(end, there)
            if is_number(port.get("rate_gbps")):
                width = port.get("width")
                words = f"{width}x {port.get('speed')}" if width else "Ethernet"
                fabric.rates[end] = Rate(width, float(port["rate_gbps"]), words)
    elif len(heard) > 1:
        fabric.unread.append(f"{fabric.spoken(end)} hears {len(heard)} neighbours, and which one is the switch is not known")
    return end


def _add(
    fabric: Map,
    one: PlainData,
    node: str,
    guids: t.Mapping[str, End],
    managers: t.Mapping[End, str],
    seen: list[tuple[set[str], str, set[tuple[End, End]]]],
) -> list[Finding]:
    """Add an InfiniBand fabric as one node sees it, or compare it with what another one has seen of the same fabric."""
    adapters: dict[tuple[str, int], End] = {}
    names: collections.Counter[str] = collections.Counter()
    devices: dict[str, Device] = {}
    for guid, kind, description, _ports, _system, model, port_guids in one.get("devices") or ():
        for port, port_guid in port_guids or ():
            if port_guid in guids:
                adapters[guid, int(port)] = guids[port_guid]
        match = _DESCRIPTION.fullmatch(str(description))
        name = (match.group(1) if match and kind == infiniband.SWITCH else str(description)) or guid
        names[name] += 1
        product = (match.group(2) if match else None) or str(model)
        devices[guid] = Device(guid, SWITCH if kind == infiniband.SWITCH else OTHER, name, product, (one.get("firmware") or {}).get(guid))
    devices = {
        guid: d if names[d.name] == 1 else Device(guid, d.kind, f"{d.name} ({guid})", d.model, d.firmware) for guid, d in devices.items()
    }

    def end_of(guid: str, port: t.Any) -> End:
        return adapters.get((guid, int(port))) or End(guid, str(port))

    links = {tuple(sorted((end_of(a, pa), end_of(b, pb)))) for a, pa, b, pb, *_rates in one.get("links") or ()}
    pairs = t.cast("set[tuple[End, End]]", links)
    known = {guid for guid, device in devices.items() if device.kind == SWITCH}
    place = f"{node} {one.get('through')}"
    for switches, where, before in seen:
        if switches & known or before & pairs:
            if one.get("manager_lid"):
                fabric.silent.pop(_called(where), None)
            return _differing(fabric, devices, where, before, place, pairs)
    seen.append((known, place, pairs))
    of_nodes = {guid for guid, _port in adapters}
    fabric.devices.update({guid: device for guid, device in devices.items() if guid not in of_nodes})
    for a, port_a, b, port_b, width_a, speed_a, width_b, speed_b in one.get("links") or ():
        rates = [Rate(w, infiniband.gbps(w, s), f"{w}x {s}") for w, s in ((width_a, speed_a), (width_b, speed_b))]
        fabric.connect(end_of(a, port_a), end_of(b, port_b), *rates)
    fabric.routes.update(_routes(one))
    order = [(guid, int(number)) for guid, *_more, ports in one.get("devices") or () for number, _guid in ports or ()]
    fabric.destinations.update({adapters[port]: number for number, port in enumerate(order) if port in adapters})
    for guid, port, state, physical in one.get("down") or ():
        if end_of(guid, port) not in fabric.links:
            fabric.down.setdefault(end_of(guid, port), f"{state}, {physical}")
    for target, rows in ((fabric.counted, one.get("errors")), (fabric.rose, one.get("rose"))):
        for guid, port, counters in rows or ():
            end = guids.get(guid) or End(guid, str(port))
            target[end] = {str(name): int(count) for name, count in counters.items()}
    for guid, port, lane_gbps in one.get("could") or ():
        fabric.could[guids.get(guid) or End(guid, str(port))] = float(lane_gbps)
    wider = {guids.get(guid) or End(guid, str(port)): lanes for guid, port, lanes in one.get("wider") or ()}
    if "wider" in one and subnet.STATES not in (one.get("not_looked_for") or {}):
        for a, b in pairs:
            running = max((fabric.rates[end].width or 0 for end in (a, b) if end in fabric.rates), default=0)
            fabric.widest[a] = fabric.widest[b] = max(wider.get(a, 0), wider.get(b, 0), running)
    members = {end for pair in pairs for end in pair}
    masters: dict[str, list[str]] = collections.defaultdict(list)
    for end, manager in managers.items():
        if end in members:
            masters[manager].append(end.device)
    if one.get("manager_lid"):
        masters[f"LID {one['manager_lid']}"].append(node)
    if one.get("manager_silent"):
        state = one.get("manager_state")
        fabric.silent[_called(place)] = f"the subnet manager that answers is no master ({state})" if state else "no subnet manager answers"
    if masters:
        fabric.managers[_called(place)] = {key: sorted(set(nodes)) for key, nodes in masters.items()}
    return []


def _routes(one: PlainData) -> t.Iterator[tuple[str, bytes]]:
    """Yield the routes of each switch; what a node made up is left out."""
    tables = one.get("routes")
    for guid, text in tables.items() if isinstance(tables, dict) else ():
        try:
            yield guid, zlib.decompressobj().decompress(base64.b64decode(text), LONGEST)
        except (binascii.Error, zlib.error, ValueError, TypeError):
            continue


def _called(place: str) -> str:
    return f"the InfiniBand fabric that {place} sees"


def _differing(
    fabric: Map, devices: t.Mapping[str, Device], where: str, before: set[tuple[End, End]], place: str, pairs: set[tuple[End, End]]
) -> list[Finding]:
    """Return the finding about two nodes that see different links in one fabric."""
    texts = []
    for who, only in ((where, before - pairs), (place, pairs - before)):
        if only:
            spoken = [f"{_spoken(fabric, devices, a)} with {_spoken(fabric, devices, b)}" for a, b in sorted(only)[:SHOWN]]
            texts.append(f"only {who} sees {len(only)} links, such as {'; '.join(spoken)}")
    return [Finding("UNKNOWN", "unresolved", f"two nodes see different fabrics: {'; '.join(texts)}")] if texts else []


def _spoken(fabric: Map, devices: t.Mapping[str, Device], end: End) -> str:
    return (
        fabric.spoken(end)
        if end.device in fabric.devices
        else f"port {end.port} of {devices[end.device].name}"
        if end.device in devices
        else str(end)
    )
