# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Comparison of the ports of several nodes, as the stage `rdma_ports` saw them.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import ipaddress
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import nic_models
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import peer_values
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import Opinion
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, is_number
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.rdma_rows import Device, Port

# So many nodes, and most of them alike, say how the rails of the others should be.
MAJORITY = 3


def opinions(deciding: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Yield what only a comparison of nodes shows: duplicate identities, and rails, MTU and firmware that differ from most."""
    nodes = {k: r for k, r in deciding.items() if k[0] == "rdma_ports" and r.outcome == "measured"}
    owners: dict[str, list[tuple[Key, str]]] = collections.defaultdict(list)
    for key, record in nodes.items():
        devices, ports = hardware(record)
        for name, device in devices.items():
            if str(device.get("guid") or "").strip("0:"):
                owners[f"GUID {device['guid']}"].append((key, name))
        for port in ports:
            for address in {str(g.get("address")) for g in _dicts(port.get("gids")) if g.get("type") != "RoCE v1"}:
                owners[f"GID {address}"].append((key, f"{port['device']} port {port.get('port')}"))
    for identity, of in owners.items():
        if len(of) > 1:
            places = ", ".join(f"{key[3]} {identity}" for key, identity in of[:4])
            for key in {key for key, _what in of}:
                yield key, Opinion("FAIL", f"{identity} is there twice: {places}", "duplicate_identity")
    yield from _unlike(nodes, "rail_order", "FAIL", _network)
    yield from _unlike(nodes, "mtu", "FAIL", lambda port, _device: f"MTU {port['mtu']}" if port.get("mtu") else None)
    yield from _unlike(nodes, "firmware", "WARN", _firmware)
    yield from _unlike(nodes, "link_slow", "WARN", _link)
    yield from _slow(nodes)
    yield from _counts(nodes)


class _Running(t.NamedTuple):
    """An active port and its rate, and the highest rate of its device's chip, Gb/s."""

    rate: float
    port: Port
    device: Device
    chip_gbps: int

    @property
    def board(self) -> str:
        return str(self.device.get("board"))

    @property
    def part(self) -> str:
        return str(self.device.get("part_number"))


def _slow(nodes: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Ports slower than the same rail elsewhere, unless the inventory says how fast they should be, which the probe has looked at.

    Slower than most is a FAIL. Where most are as slow, or there is no most, a port whose very board runs faster elsewhere is UNKNOWN:
    one of them is not what it should be, and nobody says which. A port that says that it can do more is worth a look, as is one whose
    part number or chip can.
    """
    by_rail: dict[int, dict[Key, _Running]] = collections.defaultdict(dict)
    silent: dict[int, list[tuple[Key, Port]]] = collections.defaultdict(list)
    for key, record in nodes.items():
        devices, ports = hardware(record)
        for rail, port in enumerate(ports):
            rate = port.get("rate_gbps")
            if port.get("state") == "ACTIVE" and not is_number(rate):
                silent[rail].append((key, port))
            elif port.get("state") == "ACTIVE":
                device = devices[str(port["device"])]
                by_rail[rail][key] = _Running(float(t.cast(float, rate)), port, device, _chip_gbps(device, port, devices))
    for rail, running in by_rail.items():
        for key, port in silent[rail]:
            text = f"rail {rail} ({port['device']} port {port.get('port')}) does not say its rate, {len(running)} of other nodes do"
            yield key, Opinion("WARN", text, "link_slow")
        usual, agree = collections.Counter(this_port.rate for this_port in running.values()).most_common(1)[0]
        for key, this_port in running.items():
            rate, port = this_port.rate, this_port.port
            best, who = max((another.rate, k[3]) for k, another in running.items() if another.board == this_port.board)
            most_gbps = port.get("most_gbps") if is_number(port.get("most_gbps")) else None
            sentence = f"rail {rail} ({port['device']} port {port.get('port')}) runs at {rate:g} Gb/s"
            if _wanted(nodes[key], "gbps"):
                continue
            if _enough(agree, len(running)) and rate < usual:
                yield key, Opinion("FAIL", f"{sentence}, {agree} of {len(running)} nodes at {usual:g}", "link_slow")
            elif rate < best and most_gbps != rate:
                text = f"{sentence}, the same board at {best:g} on {who}; set rdma_ports_gbps to the right one"
                yield key, Opinion("UNKNOWN", text, "link_slow")
            elif most_gbps is not None and rate < most_gbps:
                yield key, Opinion("WARN", f"{sentence}, and can do {most_gbps:g}; set rdma_ports_gbps to the right one", "link_slow")
            elif rate < nic_models.part_gbps(this_port.part):
                able = nic_models.part_gbps(this_port.part)
                text = f"{sentence}, and {this_port.part} can do {able}; set rdma_ports_gbps to the right one"
                yield key, Opinion("WARN", text, "link_slow")
            elif rate < this_port.chip_gbps and most_gbps is None and not nic_models.part_gbps(this_port.part):
                text = f"{sentence}, InfiniBand ports of its chip {this_port.device.get('type')} can do {this_port.chip_gbps}, "
                text += "and its part number does not say less; rdma_ports_gbps says which is right"
                yield key, Opinion("WARN", text, "link_slow")


def held_to(nodes: t.Iterable[Measurement]) -> dict[str, float]:
    """Return the rate in Gb/s that each port should have, by the id of the port: what the inventory states (`rdma_ports_gbps`), else by the
    ports of its model (judging/peer_values.py), whatever it negotiated. RDMA in software, and ports of unknown models, are left out."""
    stated: dict[str, float] = {}
    peers: dict[str, tuple[str, peer_values.Peer]] = {}
    for record in sorted((r for r in nodes if r.stage == "rdma_ports" and r.outcome == "measured"), key=lambda r: r.attempt):
        devices, ports = hardware(record)
        wanted = _wanted(record, "gbps")
        rates = [rate for rate in wanted if is_number(rate)] if isinstance(wanted, list) else []
        rates = rates * len(ports) if len(rates) == 1 else rates
        for rail, port in enumerate(ports):
            device, rate = devices[str(port["device"])], port.get("rate_gbps")
            place = f"{port['device']}/{port.get('port')}"
            name = f"{record.subject.id}/nic/{place}"
            if rail < len(rates):
                stated[name] = float(rates[rail])
            elif device.get("board") or device.get("pci_id"):
                now = float(rate) if port.get("state") == "ACTIVE" and is_number(rate) else None
                peers[name] = record.subject.id, peer_values.Peer("nic_gbps", nic_models.model(device), "", place, now)
    values = peer_values.PeerValues(peers.values())
    by_peers = {name: values.should_be(peer) for name, (_node, peer) in peers.items()}
    return {**{name: gbps for name, gbps in by_peers.items() if gbps is not None}, **stated}


def _chip_gbps(device: Device, port: Port, devices: t.Mapping[str, Device]) -> int:
    """Return the highest rate of a port by the chip of its adapter, Gb/s; 0 for Ethernet, whose driver reports the modes of the port."""
    return nic_models.chip_gbps(device, port, devices.values()) if port.get("link_layer") == "InfiniBand" else 0


def _counts(nodes: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Opinion]]:
    """Numbers of rails that differ, of nodes of which the inventory does not say how many they should have."""
    counts = {key: len(hardware(record)[1]) for key, record in nodes.items()}
    if len(set(counts.values())) < 2:
        return
    usual, agree = collections.Counter(counts.values()).most_common(1)[0]
    examples = ", ".join(f"{key[3]} has {rails}" for key, rails in list(counts.items())[:4])
    for key, rails in counts.items():
        if _wanted(nodes[key], "rails"):
            continue
        if not _enough(agree, len(counts)):
            text = f"{rails} rails, and no number of rails has a majority ({examples}); set rdma_ports_rails"
            yield key, Opinion("UNKNOWN", text, "rail_order")
        elif rails != usual:
            yield key, Opinion("FAIL", f"{rails} rails, {agree} of {len(counts)} nodes have {usual}", "rail_order")


def _wanted(record: Measurement, name: str) -> t.Any:
    """Return the value of `name` that the inventory states for a node, or None."""
    stated = record.context.get("wanted")
    return stated.get(name) if isinstance(stated, dict) else None


def _link(port: Port, _device: Device) -> str | None:
    """Rate, lanes and speed of each."""
    if port.get("state") != "ACTIVE" or not is_number(port.get("rate_gbps")):
        return None
    return f"a link of {port['rate_gbps']:g} Gb/s ({port.get('width')} lanes of {port.get('speed')})"


def _network(port: Port, _device: Device) -> str | None:
    """The network that a rail is in."""
    gid = port.get("gid")
    try:
        address, prefix = (gid["address"], int(t.cast(int, port["prefix"]))) if isinstance(gid, dict) else ("", 0)
        return f"network {ipaddress.IPv4Network((address, prefix), strict=False)}" if address else None
    except (KeyError, TypeError, ValueError):  # no IPv4 address with a prefix
        return None


def _firmware(_port: Port, device: Device) -> str | None:
    return f"firmware {device['firmware']} of board {device.get('board')}" if device.get("firmware") else None


def _dicts(value: t.Any) -> list[t.Any]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def hardware(record: Measurement) -> tuple[dict[str, Device], list[Port]]:
    """Return devices by name, and the ports of those in the order of the rails."""
    devices = {str(d.get("device")): d for d in _dicts(record.context.get("devices"))}
    return devices, [p for p in _dicts(record.context.get("ports")) if str(p.get("device")) in devices]


def _unlike(
    nodes: t.Mapping[Key, Measurement], code: str, verdict: str, of: t.Callable[[Port, Device], str | None]
) -> t.Iterator[tuple[Key, Opinion]]:
    """Rails that differ from the same rail of most nodes."""
    by_rail: dict[int, dict[Key, tuple[str, str]]] = collections.defaultdict(dict)
    for key, record in nodes.items():
        if code == "link_slow" and _wanted(record, "gbps"):
            continue  # the inventory says how fast it is
        devices, ports = hardware(record)
        for rail, port in enumerate(ports):
            value = of(port, devices[str(port["device"])])
            if value is not None:
                by_rail[rail][key] = (value, f"{port['device']} port {port.get('port')}")
    for rail, by_node in by_rail.items():
        usual, agree = collections.Counter(value for value, _where in by_node.values()).most_common(1)[0]
        if not _enough(agree, len(by_node)):
            continue
        for key, (value, where) in by_node.items():
            if value != usual:
                text = f"rail {rail} ({where}) has {value}, {agree} of {len(by_node)} nodes have {usual}"
                yield key, Opinion(verdict, text, code)


def _enough(agree: int, of: int) -> bool:
    return of >= MAJORITY and 2 * agree > of
