# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The places of the parts of nodes, as a run has seen them: which GPU or RDMA device, its serial number, its address on the PCI bus.

A person who is to replace a part needs them; verdicts name a part by its UUID or device only.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import json
import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import keys

# Journals of very large runs are not read for a page.
MOST_BYTES = 64 * 1024 * 1024
# Which lines describe parts; the others are not parsed.
_MARKS = (b'"gpu_table"', b'"serial_number"')
SHOWN = 80


class Part(t.NamedTuple):
    """A GPU (`gpu/UUID`) or an RDMA device (`nic/DEVICE`) of a node. `connected` is the switch and its port at each port of the device.
    What is not known is empty."""

    key: str
    name: str
    model: str
    serial: str
    pci: str
    connected: str = ""

    @property
    def place(self) -> str:
        """Return what a person at the machine needs, in one line."""
        words = (self.name, self.serial and f"serial {self.serial}", self.pci and f"PCIe {self.pci}", self.model, self.connected)
        return " · ".join(word for word in words if word)


# {node: {key of a part: the part}}
Parts = t.Mapping[str, t.Mapping[str, Part]]


class Seen(t.NamedTuple):
    """The hardware that a run has seen on its nodes. `devices` has the names of all RDMA devices of each node of which they are known."""

    parts: Parts
    devices: t.Mapping[str, frozenset[str]]


def of_run(journal: pathlib.Path) -> Seen:
    """Return what a run has seen; nothing if its journal is gone or too large."""
    try:
        status = journal.stat()
    except OSError:
        return Seen({}, {})
    return _read(journal, status.st_size, status.st_mtime_ns) if status.st_size <= MOST_BYTES else Seen({}, {})


@functools.lru_cache(maxsize=8)
def _read(journal: pathlib.Path, _size: int, _changed: int) -> Seen:
    parts: dict[str, dict[str, Part]] = {}
    devices: dict[str, frozenset[str]] = {}
    try:
        with open(journal, "rb") as lines:
            for line in lines:
                if not any(mark in line for mark in _MARKS):
                    continue
                try:
                    record = json.loads(line)
                    node, context = keys.node_of(str(record["subject"]["id"])), record["context"]
                    for part in (*_gpus(context), *_devices(context)):
                        parts.setdefault(node, {})[part.key] = part
                    if context.get("present"):
                        devices[node] = frozenset(map(str, context["present"]))
                except (ValueError, KeyError, TypeError, AttributeError):
                    continue  # a line that is being written, or that a node made up
    except OSError:
        return Seen({}, {})
    return Seen(parts, devices)


def _gpus(context: t.Mapping[str, t.Any]) -> t.Iterator[Part]:
    for row in context.get("gpu_table") or ():
        if row.get("uuid"):
            model, serial, pci = (_text(row.get(name)) for name in ("name", "serial", "bdf"))
            yield Part(f"gpu/{row['uuid']}", f"GPU {_text(row.get('index'))}", model, serial, pci)


def _devices(context: t.Mapping[str, t.Any]) -> t.Iterator[Part]:
    for row in context.get("devices") or ():
        if row.get("device"):
            model = _text(row.get("part_number")) or _text(row.get("type"))
            serial, pci = _text(row.get("serial_number")), _text(row.get("pci"))
            yield Part(f"nic/{row['device']}", _text(row["device"]), model, serial, pci, _connected(context, row["device"]))


def _connected(context: t.Mapping[str, t.Any], device: str) -> str:
    """Return the switches and their ports that a device is connected to: `leaf-03 Ethernet1/7`."""
    ports = [port for port in context.get("ports") or () if port.get("device") == device and port.get("switch")]
    return ", ".join(f"{_text(port['switch'])} {_text(port.get('switch_port'))}".strip() for port in ports)


def _text(value: t.Any) -> str:
    return "" if value is None else str(value)[:SHOWN]


def find(parts: Parts, subject: str) -> Part | None:
    """Return the part that a subject such as `node/gpu/UUID` or `node/nic/DEVICE/PORT` is; None if it is none or unknown."""
    node = keys.node_of(subject)
    key = subject[len(node) + 1 :]
    of_node = parts.get(node, {})
    return of_node.get(key) or of_node.get("/".join(key.split("/")[:2]))
