# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of a node as the history keeps them: a text for all parts of a node, and the names by which each part is found.

Pure. This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import json
import re
import typing as t
import zlib

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.identity import Who
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import keys, parts
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.parts import Part

# The keys of contexts that list parts (records/parts.py).
_LISTS = ("gpu_table", "devices", "ports", "modules", "dimms", "disks", "links", "system", "facts")
# {node: what each of its checks lists, as compressed JSON}: the parts of thousands of nodes are many times larger.
Listed = t.Mapping[Who, t.Sequence[bytes]]
# Firmware that was never told a serial number says words, one character many times, or counts.
_TELLING = re.compile(r"(?!(.)\1*\Z)(?!0?1234567890?\Z)(?![0x:./-]*\Z)(?!.*SerNum)(?=.*\d)\S{4,}\Z", re.IGNORECASE)
_GUID = re.compile(r"(?:0x)?([0-9a-f]{16})\Z")


def listed(records: t.Iterable[PlainData]) -> Listed:
    """Return what the records of a journal, as plain data, list of the parts of each node."""
    of_nodes: dict[Who, list[bytes]] = collections.defaultdict(list)
    for record in records:
        subject, context = record.get("subject"), record.get("context")
        if isinstance(subject, dict) and isinstance(context, dict) and subject.get("kind") in ("node", "gpu", "nic"):
            lists = {name: context[name] for name in _LISTS if context.get(name)}
            node = Who("node", keys.node_of(str(subject.get("id"))), bool(record.get("simulated")))
            of_nodes[node].append(zlib.compress(json.dumps(lists).encode(), 1))
    return of_nodes


def of_nodes(lists: Listed) -> t.Iterator[tuple[Who, list[Part]]]:
    """Yield each node of which parts are known, with its parts."""
    for node, packed_lists in lists.items():
        records = ({"subject": {"id": node.id}, "context": json.loads(zlib.decompress(data))} for data in packed_lists)
        seen = parts.of_records(records).parts.get(node.id)
        if seen:
            yield node, list(seen.values())


def packed(seen: t.Iterable[Part]) -> bytes:
    """Return the text of the parts of a node; what is empty is left out."""
    rows = [{name: value for name, value in part._asdict().items() if value and name != "facts"} for part in seen]
    return json.dumps(sorted(rows, key=lambda row: str(row.get("key", ""))), sort_keys=True, separators=(",", ":")).encode()


def unpacked(rows: t.Iterable[t.Mapping[str, t.Any]]) -> list[Part]:
    """Return the parts of a text of `packed`, which may be that of another version."""
    found = []
    for row in rows:
        known: dict[str, t.Any] = {name: value for name, value in row.items() if name in Part._fields}
        found.append(Part(**{"key": parts.MACHINE, "name": "", **known, "switches": tuple(known.get("switches", ()))}))
    return found


def names(part: Part) -> set[str]:
    """Return the names by which a part is found: UUID, GUID and serial number, and the switches that it is connected to."""
    return {*own_names(part), *map(folded, part.switches)}


def own_names(part: Part) -> set[str]:
    """Return the names of a part itself."""
    uuid = part.key.partition("/")[2] if part.kind == "gpu" else ""
    serial = part.serial if _TELLING.match(part.serial) else ""
    return {folded(text) for text in (uuid, part.guid, serial) if text}


def folded(text: str) -> str:
    """Return a name in the form in which it is looked for: a GUID without colons, others in small letters."""
    small = text.strip().lower()
    guid = _GUID.match(small.replace(":", ""))
    return guid[1] if guid else small


def identity(part: Part, node: str) -> str:
    """Return the same text for a part at whatever node it is: by its UUID, its GUID or its serial number, as far as it has one. Devices of
    one card have the same serial number, so a device without a GUID is known by its node."""
    if part.kind == "gpu":
        return part.key
    if part.kind == "nic":
        return f"nic/{folded(part.guid)}" if part.guid else at_node(part, node)
    return f"{part.kind}/{folded(part.serial)}" if _TELLING.match(part.serial) else at_node(part, node)


def at_node(part: Part, node: str) -> str:
    """Return the name of a part that has no identity of its own, by its node."""
    return f"{node}/{part.key or part.kind}"


def address(part: Part, node: str) -> str:
    """Return a name that leads to this part alone."""
    if part.kind == "gpu":
        return part.key.partition("/")[2]
    if part.guid:
        return part.guid
    is_own = part.kind != "nic" and _TELLING.match(part.serial)
    return part.serial if is_own else at_node(part, node)
