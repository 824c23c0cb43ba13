# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find what a node could not tell of a fabric that other nodes of the run have seen.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import form, reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import Finding
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, PlainData

SHOWN = 4


def findings(records: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Finding]]:
    """Yield UNKNOWN for each check of the stage that says less of a node than the same check says of others."""
    yield from _neighbours(records)
    yield from _modules(records)
    yield from _fabrics(records)
    yield from _ports_in_no_fabric(records)


def _neighbours(records: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Finding]]:
    """Yield the nodes with active Ethernet ports whose neighbours a tool told in a form that cannot be read, and those that hear no switch:
    the same port of another node hears one, or the node hears none at all and others do, or the inventory requires it."""
    measured = {key: record for key, record in records.items() if key.check == reading.PORTS and record.outcome == "measured"}
    hearing = {
        key: {_name(port) for port in _active(record) if port.get("heard")}
        for key, record in measured.items()
    }  # fmt: skip
    heard = set().union(*hearing.values()) if hearing else set()
    for key, record in measured.items():
        unread = (record.context.get("unread") or {}).get("lldp")
        if unread and _active(record):
            yield key, Finding("UNKNOWN", "incomplete_output", f"the switches of the active Ethernet ports cannot be read: {unread}")
            continue
        silent = [port for port in _active(record) if not port.get("heard")]
        expected = [port for port in silent if record.context.get("required") or (heard and (_name(port) in heard or not hearing[key]))]
        if expected:
            why = (record.context.get("not_looked_for") or {}).get("lldp") or "no neighbour is heard there: is LLDP on at the switch?"
            names = ", ".join(_name(port) for port in expected[:SHOWN])
            who = "the inventory requires it" if not heard else "other nodes of the run hear their switches"
            words = f"the switches of {len(expected)} active Ethernet ports ({names}) are not known, and {who}: {why}"
            yield key, Finding("UNKNOWN", "cable_unknown", words)


def _modules(records: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Finding]]:
    """Yield the nodes with an active port that could read no module although another node of the run could."""
    optics = {key: record for key, record in records.items() if key.check == reading.OPTICS}
    read = next((key.subject for key, record in sorted(optics.items()) if record.outcome == "measured"), None)
    if read is None:
        return
    for key, record in optics.items():
        if record.outcome != "not_applicable" or record.reason_code != "not_visible":
            continue
        ports = records.get(key._replace(check=reading.PORTS))
        states = {port.get("state") for port in form.ports_of(ports)}
        if not states or reading.ACTIVE in states:
            words = f"{record.reason}; modules of other nodes were read, those of {read} for one"
            yield key, Finding("UNKNOWN", "no_answer", words)


def _fabrics(records: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Finding]]:
    """Yield the nodes that lack what it takes to discover their fabric although another node of the run has it, and those of which a tool
    ran and cannot be read."""
    looks = {key: record for key, record in records.items() if key.check == reading.DISCOVERY}
    discovered = next((key.subject for key, record in sorted(looks.items()) if record.outcome == "measured"), None)
    for key, record in looks.items():
        if discovered is not None and record.outcome == "not_applicable" and record.reason_code == "not_visible":
            yield key, Finding("UNKNOWN", "no_answer", f"{record.reason}; {discovered} has discovered a fabric")
        for fabric in (record.context.get("fabrics") or ()) if form.is_of_probe(record) else ():
            for why in (fabric.get("unread") or {}).values():
                yield key, Finding("UNKNOWN", "incomplete_output", f"errors of the ports that {fabric.get('through')} sees: {why}")


def _ports_in_no_fabric(records: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Finding]]:
    """Yield the nodes with active InfiniBand ports that are in none of the fabrics that were discovered, if there is one or if the nodes
    that should discover one have no InfiniBand port. That no node has tools is said by their discoveries."""
    looks = [record for key, record in records.items() if key.check == reading.DISCOVERY]
    discovered = [record for record in looks if record.outcome == "measured" and form.is_of_probe(record)]
    outside = [record for record in looks if record.outcome == "not_applicable" and record.reason_code == "no_rdma_expected"]
    if not discovered and (not outside or len(outside) < len(looks)):
        return
    fabrics = [fabric for record in discovered for fabric in record.context.get("fabrics") or ()]
    known = {guid for fabric in fabrics for device in fabric.get("devices") or () for _number, guid in device[6]}
    for key, record in records.items():
        if key.check == reading.PORTS and record.outcome == "measured":
            unknown = [port for port in _active(record, "InfiniBand") if port.get("guid") not in known]
            if unknown:
                names = ", ".join(_name(port) for port in unknown[:SHOWN])
                seen_by = ", ".join(sorted({each.subject.id for each in looks})[:SHOWN])
                words = f"{len(unknown)} active InfiniBand ports ({names}) are in no fabric that was discovered (by {seen_by}): "
                words += "nodes in fabrics that do not meet need different values of fabric_map_fabric"
                yield key, Finding("UNKNOWN", "cable_unknown", words)


def _active(record: Measurement, layer: str = "Ethernet") -> list[PlainData]:
    """Return the active ports of a node, of Ethernet those with a network device."""
    ports = [port for port in form.ports_of(record) if port.get("link_layer") == layer and port.get("state") == reading.ACTIVE]
    return [port for port in ports if layer != "Ethernet" or port.get("netdev")]


def _name(port: PlainData) -> str:
    return f"{port.get('device')}/{port.get('port')}"
