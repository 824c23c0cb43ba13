# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of nodes as a technician finds them: GPUs, RDMA devices, the modules or cables in their ports, disks and memory modules, with
slot, address and serial number.

A person who is to replace a part needs them; verdicts name a part by its UUID or device only. They are read from a run's journal, whose
checks have listed the parts of their node. What a node did not say is said to be unknown.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import contextlib
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import keys
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData

# Which lines of a journal describe parts; the others are not parsed.
MARKS = (b'"gpu_table"', b'"serial_number"', b'"dimms": [{', b'"disks": [{', b'"links": [{', b'"machine_product"', b'"modules": [{')
SHOWN = 80
# The most parts of a node that a cause is shown with.
MOST = 4
# The key of the machine itself among the parts of its node.
MACHINE = ""
# The name of what is plugged into a port: its data do not always say which of the two it is.
PLUGGED = "optical module or cable"
# The model of a memory slot without a module.
EMPTY = "empty"
_GPU_FACTS = ("slot or tray", "PCIe", "serial number", "board part number")
_NIC_FACTS = ("slot or tray", "PCIe", "serial number", "board part number", "cable to")
_KINDS = {"gpu": ("GPU", _GPU_FACTS), "nic": ("RDMA device", _NIC_FACTS)}


class Part(t.NamedTuple):
    """A GPU (`gpu/UUID`), an RDMA device (`nic/DEVICE`), what is plugged into a port of one, an optical module or a cable
    (`optic/DEVICE:PORT`), a memory module (`dimm/SLOT`), a disk (`disk/NAME`) or the machine. `slot` are the words for where it is plugged
    in, `board` its part number, of a machine that of its main board, `connected` the switch and its port at
    each port of the device, `switches` the names of these switches, `firmware` its version, of a machine that of its BIOS. What is not
    known is empty; `facts` are those that a part of its kind should have."""

    key: str
    name: str
    model: str = ""
    serial: str = ""
    pci: str = ""
    connected: str = ""
    slot: str = ""
    board: str = ""
    facts: tuple[str, ...] = ()
    guid: str = ""
    switches: tuple[str, ...] = ()
    firmware: str = ""

    @property
    def kind(self) -> str:
        """Return `gpu`, `nic`, `optic`, `dimm`, `disk` or `machine`."""
        return self.key.partition("/")[0] or "machine"

    @property
    def place(self) -> str:
        """Return what a person at the machine needs, in one line: where the part is, its numbers, and last its UUID."""
        known = {
            "slot or tray": self.slot, "PCIe": self.pci, "serial number": self.serial,
            "part number" if self.kind == "optic" else "board part number" if self.key else "board": self.board,
            "cable to": self.connected,
        }  # fmt: skip
        words = [self.name, self.slot, *(f"{fact} {value}" for fact, value in known.items() if value and value != self.slot), self.model]
        missing = [fact for fact in self.facts if not known[fact]]
        words += [f"not known: {', '.join(missing)}"] if missing else []
        words += [f"UUID {self.key.removeprefix('gpu/')}"] if self.key.startswith("gpu/") else []
        return " · ".join(word for word in words if word)


# {node: {key of a part: the part}}
Parts = t.Mapping[str, t.Mapping[str, Part]]


class Seen(t.NamedTuple):
    """The hardware that a run has seen on its nodes. `devices` has the names of all RDMA devices of each node of which they are known."""

    parts: Parts
    devices: t.Mapping[str, frozenset[str]]


def of_records(records: t.Iterable[PlainData], nodes: t.Collection[str] | None = None) -> Seen:
    """Return the parts that measurements, as plain data, have listed; those of some nodes only if `nodes` is given."""
    parts: dict[str, dict[str, Part]] = {}
    devices: dict[str, frozenset[str]] = {}
    slots: dict[str, dict[str, str]] = {}
    for record in records:
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):  # a node may have made it up
            node, context = keys.node_of(str(record["subject"]["id"])), record["context"]
            if nodes is not None and node not in nodes:
                continue
            for part in _listed(context):
                of_node = parts.setdefault(node, {})
                of_node[part.key] = _joined(of_node[part.key], part) if part.key in of_node else part
            slots.setdefault(node, {}).update(_slots(context))
            if context.get("present"):
                devices[node] = frozenset(map(str, context["present"]))
    return Seen({node: _in_slots(of_node, slots.get(node, {})) for node, of_node in parts.items()}, devices)


def find(parts: Parts, subject: str) -> Part | None:
    """Return the part that a subject such as `node/gpu/UUID` or `node/nic/DEVICE/PORT` is; None if it is none or unknown."""
    node = keys.node_of(subject)
    key = subject[len(node) + 1 :]
    of_node = parts.get(node, {})
    return (of_node.get(key) or of_node.get("/".join(key.split("/")[:2]))) if key else None


def plugged(parts: Parts, subject: str) -> Part | None:
    """Return what is plugged into the port that a subject such as `node/nic/DEVICE/PORT` is; None if it is none or unknown."""
    node = keys.node_of(subject)
    kind, _slash, port = subject[len(node) + 1 :].partition("/")
    return parts.get(node, {}).get(f"optic/{port.replace('/', ':')}") if kind == "nic" else None


def places(parts: Parts, subject: str, texts: t.Iterable[str] = ()) -> list[str]:
    """Return where the part that a finding is about is: one line for each part, then one for the machine.

    `subject` is a node, a part of one or a pair, both ends of which are named; of a node the parts that `texts` name.
    """
    lines: list[str] = []
    for end in keys.ends_of(subject) if "|" in subject else (subject,):
        node = keys.node_of(end)
        of_node, prefix = parts.get(node, {}), f"{node} " if "|" in subject else ""
        if end == node:
            of_texts = named(parts, node, texts)
            lines += [part.place for part in of_texts[:MOST]]
            lines += [f"and {len(of_texts) - MOST} more parts of {node}"] if len(of_texts) > MOST else []
        else:
            part = find(parts, end)
            lines.append(f"{prefix}{part.place if part else _unknown(end, node)}")
            module = plugged(parts, end)
            lines += [f"{prefix}{module.place}"] if module else []
        if MACHINE in of_node:
            lines.append(f"{prefix}{of_node[MACHINE].place}")
    return lines


def named(parts: Parts, node: str, texts: t.Iterable[str]) -> list[Part]:
    """Return the parts of a node that texts about it name."""
    texts = list(texts)
    return [part for part in parts.get(node, {}).values() if part.key != MACHINE and names(part, texts)]


def name(parts: Parts, subject: str) -> str:
    """Return the name of a GPU by its index, `gpu-03 GPU 7`; empty if the subject is none, or its index is not known."""
    part = find(parts, subject) if "|" not in subject else None
    return f"{keys.node_of(subject)} {part.name}" if part and part.key.startswith("gpu/") else ""


def names(part: Part, texts: t.Iterable[str]) -> bool:
    """Return True if a text names a part by its index, device, port or slot."""
    if part.kind == "optic":
        device, _colon, port = part.key.partition("/")[2].rpartition(":")
        at = re.compile(rf"(?<![\w.-]){re.escape(device)}(?:/| port ){re.escape(port)}(?![\w-]|\.\d)")
        return any(at.search(text) for text in texts)
    name = part.key.partition("/")[2] if part.key.startswith("dimm/") else part.name
    named = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\d)")
    return any(named.search(text) for text in texts)


def ids(parts: Parts, subject: str, texts: t.Iterable[str]) -> list[str]:
    """Return the ids, as `NODE/gpu/UUID` or `NODE/dimm/SLOT`, of the parts that `places` has lines for."""
    found: list[str] = []
    for end in keys.ends_of(subject) if "|" in subject else (subject,):
        of_node = parts.get(end, {})
        found += [f"{end}/{part.key}" for part in of_node.values() if part.key != MACHINE and names(part, texts)][:MOST]
        found += [end] if keys.node_of(end) != end else []
    return found


def _unknown(subject: str, node: str) -> str:
    kind, _slash, of_kind = subject[len(node) + 1 :].partition("/")
    word, facts = _KINDS.get(kind, ("part", _GPU_FACTS))
    missing = ", ".join(("index", *facts) if kind == "gpu" else facts)
    own = f"UUID {of_kind}" if kind == "gpu" else of_kind
    return f"{word} · not known: {missing} (no check of this run listed the parts of {node}) · {own}"


def _joined(first: Part, second: Part) -> Part:
    """Return a part with what either of two checks knew."""
    return first._replace(**{field: value for field, value in second._asdict().items() if value})


def _in_slots(of_node: dict[str, Part], slots: dict[str, str]) -> dict[str, Part]:
    """Return the parts of a node, each with the slot that the machine names at its PCIe address."""
    return {
        key: part._replace(slot=f"slot {slot} {part.slot}".strip())
        if part.pci and "slot" not in part.slot and (slot := slots.get(_short(part.pci)))
        else part
        for key, part in of_node.items()
    }


def _listed(context: t.Mapping[str, t.Any]) -> t.Iterator[Part]:
    yield from _gpus(context)
    yield from _devices(context)
    yield from _in_ports(context)
    yield from _modules(context)
    yield from _disks(context)
    yield from _machine(context)


def _gpus(context: t.Mapping[str, t.Any]) -> t.Iterator[Part]:
    for row in context.get("gpu_table") or ():
        if row.get("uuid"):
            model, serial, pci, board = (_text(row.get(name)) for name in ("name", "serial", "bdf", "board_part_number"))
            index, place = _text(row.get("index")), row.get("place") or {}
            slot = " ".join(f"{word} {_text(place[word])}" for word in ("chassis", "tray", "slot", "module") if _text(place.get(word)))
            firmware = _text(row.get("vbios"))
            yield Part(f"gpu/{row['uuid']}", f"GPU {index}", model, serial, pci, "", slot, board, _GPU_FACTS, firmware=firmware)


def _devices(context: t.Mapping[str, t.Any]) -> t.Iterator[Part]:
    for row in context.get("devices") or ():
        if row.get("device"):
            serial, pci, board, guid = (_text(row.get(name)) for name in ("serial_number", "pci", "part_number", "guid"))
            yield Part(
                f"nic/{row['device']}", _text(row["device"]), _text(row.get("type")), serial, pci, _connected(context, row["device"]), "",
                board, _NIC_FACTS, guid if set(guid) - set("0x:") else "",
                tuple(_text(port["switch"]) for port in _plugged(context, row["device"])), _text(row.get("firmware")),
            )  # fmt: skip


def _in_ports(context: t.Mapping[str, t.Any]) -> t.Iterator[Part]:
    modules = context.get("modules")
    for row in modules if isinstance(modules, list) else ():
        device, _slash, port = _text(row.get("port")).rpartition("/") if isinstance(row, dict) else ("", "", "")
        if device:
            model, board, serial = (_text(row.get(name)) for name in ("vendor", "part_number", "serial"))
            yield Part(f"optic/{device}:{port}", PLUGGED, model, serial, slot=f"{device}/{port}", board=board, facts=("serial number",))


def _modules(context: t.Mapping[str, t.Any]) -> t.Iterator[Part]:
    dimms = context.get("dimms")
    rows = [row for row in dimms if isinstance(row, dict) and row.get("slot")] if isinstance(dimms, list) else []
    slots = collections.Counter(str(row["slot"]) for row in rows)
    for row in rows:
        size = f"{row['mib'] / 1024:g} GiB" if row.get("mib") else EMPTY
        slot, bank = _text(row["slot"]), _text(row.get("bank"))
        words = f"{slot}{bank and f' ({bank})'}"
        # Slots of some machines have the same names on each channel.
        key = slot if slots[str(row["slot"])] == 1 else words
        facts = ("serial number",) if row.get("mib") else ()
        yield Part(f"dimm/{key}", "memory module", size, _text(row.get("serial")), slot=words, facts=facts)


def _disks(context: t.Mapping[str, t.Any]) -> t.Iterator[Part]:
    disks = context.get("disks")
    for row in disks if isinstance(disks, list) else ():
        if isinstance(row, dict) and row.get("disk"):
            name, model, serial, pci, firmware = (_text(row.get(field)) for field in ("disk", "model", "serial", "pci", "firmware"))
            yield Part(f"disk/{name}", name, model, serial, pci, facts=("serial number",), firmware=firmware)


def _machine(context: t.Mapping[str, t.Any]) -> t.Iterator[Part]:
    facts, system = context.get("facts"), context.get("system")
    if isinstance(facts, dict) and facts.get("machine_product"):
        words = " ".join(_text(facts.get(name)) for name in ("machine_vendor", "machine_product") if facts.get(name))
        board, firmware = _text(facts.get("machine_board")), _text(facts.get("bios_version"))
        yield Part(MACHINE, "machine", words, board=board, facts=("serial number",), firmware=firmware)
    if isinstance(system, dict):
        yield Part(MACHINE, "machine", "", _text(system.get("serial")), facts=("serial number",))


def _slots(context: t.Mapping[str, t.Any]) -> t.Iterator[tuple[str, str]]:
    """Yield the name of the slot at each PCIe address of which the machine names it."""
    links = context.get("links")
    for row in links if isinstance(links, list) else ():
        if isinstance(row, dict) and row.get("slot") and row.get("device"):
            yield _short(str(row["device"])), _text(row["slot"])


def _short(address: str) -> str:
    """Return a PCIe address as the kernel writes it: nvidia-smi has eight digits of the domain, the kernel four."""
    domain, colon, rest = address.lower().partition(":")
    return f"{domain[-4:]}{colon}{rest}"


def _connected(context: t.Mapping[str, t.Any], device: str) -> str:
    """Return the switches and their ports that a device is connected to: `leaf-03 Ethernet1/7`."""
    return ", ".join(f"{_text(port['switch'])} {_text(port.get('switch_port'))}".strip() for port in _plugged(context, device))


def _plugged(context: t.Mapping[str, t.Any], device: str) -> list[t.Mapping[str, t.Any]]:
    """Return the ports of a device of which the switch is known."""
    return [port for port in context.get("ports") or () if port.get("device") == device and port.get("switch")]


def _text(value: t.Any) -> str:
    return "" if value is None else str(value)[:SHOWN]
