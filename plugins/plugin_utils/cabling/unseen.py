# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find what a node could not tell of a fabric that other nodes of the run have seen.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling import reading
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.cabling.model import Finding
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Measurement, PlainData

SHOWN = 4


def findings(records: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Finding]]:
    """Yield UNKNOWN for each check of the stage that says less of a node than the same check says of others."""
    yield from _neighbours(records)
    yield from _modules(records)
    yield from _fabrics(records)


def _neighbours(records: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Finding]]:
    """Yield the nodes with active Ethernet ports that hear no switch: the same port of another node hears one, or the node hears none at
    all and others do, or the inventory requires it."""
    measured = {key: record for key, record in records.items() if key.check == reading.PORTS and record.outcome == "measured"}
    hearing = {
        key: {_name(port) for port in _active(record) if port.get("heard")}
        for key, record in measured.items()
    }  # fmt: skip
    heard = set().union(*hearing.values()) if hearing else set()
    for key, record in measured.items():
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
        states = {port.get("state") for port in (ports.context.get("ports") if ports else None) or ()}
        if not states or reading.ACTIVE in states:
            words = f"{record.reason}; modules of other nodes were read, those of {read} for one"
            yield key, Finding("UNKNOWN", "no_answer", words)


def _fabrics(records: t.Mapping[Key, Measurement]) -> t.Iterator[tuple[Key, Finding]]:
    """Yield the nodes that lack what it takes to discover their fabric although another node of the run has it."""
    looks = {key: record for key, record in records.items() if key.check == reading.DISCOVERY}
    discovered = next((key.subject for key, record in sorted(looks.items()) if record.outcome == "measured"), None)
    for key, record in looks.items():
        if discovered is not None and record.outcome == "not_applicable" and record.reason_code == "not_visible":
            yield key, Finding("UNKNOWN", "no_answer", f"{record.reason}; {discovered} has discovered a fabric")


def _active(record: Measurement) -> list[PlainData]:
    """Return the active Ethernet ports of a node."""
    ports = record.context.get("ports") or ()
    return [port for port in ports if port.get("link_layer") == "Ethernet" and port.get("state") == reading.ACTIVE and port.get("netdev")]


def _name(port: PlainData) -> str:
    return f"{port.get('device')}/{port.get('port')}"
