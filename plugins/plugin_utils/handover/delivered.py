# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory of what was delivered: each machine and part that a round has seen, held against the order where there is one.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import csv
import io
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover.rounds import Round
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.parts import EMPTY, MACHINE, PLUGGED, Part

COLUMNS = ("node", "kind", "name", "slot", "model", "serial", "part_number", "firmware", "pcie", "id", "cable", "seen_in")
ORDERED = ("kind", "model", "serial", "part_number", "node")
_KINDS = {
    "gpu": "GPU", "nic": "RDMA device", "optic": PLUGGED, "dimm": "memory module", "disk": "disk", "machine": "machine",
}  # fmt: skip
# Facts that are versions of a node's own software and firmware, beside those of its parts.
_VERSION = re.compile(r"(\w+_)?driver|bios_version|kernel|os|(\w+_)?firmware(_.*)?")
# No stage looks at these.
NOT_LOOKED_FOR = (
    "switches and their power supplies",
    "NVLink switch trays",
    "power shelves",
    "optical modules in switches, and cables that have no memory",
    "coolant distribution",
)


def parts_of(rounds: t.Sequence[Round]) -> list[dict[str, str]]:
    """Return a row for each machine and part, as the newest round that listed its kind on its node saw it."""
    newest: dict[tuple[str, str], dict[str, tuple[Part, Round]]] = {}
    for round_ in rounds:
        for node, of_node in round_.parts.items():
            kinds: dict[tuple[str, str], dict[str, tuple[Part, Round]]] = {}
            for key, part in of_node.items():
                kinds.setdefault((node, part.kind), {})[key] = (part, round_)
            newest.update(kinds)
    rows = [_row(node, part, round_) for (node, _kind), of_kind in sorted(newest.items()) for part, round_ in of_kind.values()]
    return [*rows, *_software(rounds)]


def _row(node: str, part: Part, round_: Round) -> dict[str, str]:
    return {
        "node": node, "kind": _KINDS.get(part.kind, part.kind), "name": part.name, "slot": part.slot, "model": part.model,
        "serial": part.serial, "part_number": part.board, "firmware": part.firmware, "pcie": part.pci,
        "id": part.key.partition("/")[2] if part.kind == "gpu" else part.guid, "cable": part.connected, "seen_in": round_.run.id,
    }  # fmt: skip


def _software(rounds: t.Sequence[Round]) -> t.Iterator[dict[str, str]]:
    newest = {node: (facts, round_) for round_ in rounds for node, facts in round_.facts.items() if facts}
    for node, (facts, round_) in sorted(newest.items()):
        for name in sorted(filter(_VERSION.fullmatch, facts)):
            value = facts.get(name)
            if value not in (None, "", []):
                words = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
                yield {
                    **dict.fromkeys(COLUMNS, ""),
                    "node": node,
                    "kind": "version",
                    "name": name,
                    "firmware": words,
                    "seen_in": round_.run.id,
                }


def not_seen(rows: t.Sequence[t.Mapping[str, str]], nodes: t.Collection[str]) -> list[str]:
    """Return what the inventory lacks, in words: kinds of parts that nothing has listed on a node, serial numbers that were not told, and
    what no stage looks at."""
    words = []
    for kind in _KINDS.values():
        having = {row["node"] for row in rows if row["kind"] == kind}
        lacking = sorted(set(nodes) - having)
        if lacking:
            which = (
                "no node"
                if not having
                else f"{len(lacking)} of {len(nodes)} nodes ({', '.join(lacking[:3])}{' ...' if len(lacking) > 3 else ''})"
            )
            words.append(f"{kind}: {'seen on ' if not having else 'not seen on '}{which}")
        mute = sum(row["kind"] == kind and not row["serial"] and row["model"] != EMPTY for row in rows)
        if mute:
            words.append(f"{kind}: {mute} without a serial number, which nothing told")
    return [*words, *(f"{what}: no stage looks at them" for what in NOT_LOOKED_FOR)]


def read_order(text: str, name: str) -> list[dict[str, str]]:
    """Return the rows of an order or packing list, a CSV file with a column `serial` and, as far as it has them, kind, model, part_number
    and node.

    Raise RunError if it has no such column, or a serial number twice."""
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")))
    if "serial" not in (reader.fieldnames or ()):
        raise RunError(
            f"{name}: found the columns {', '.join(reader.fieldnames or ()) or '(none)'}, expected serial, and maybe {', '.join(ORDERED)}"
        )
    try:
        rows = [{column: (row.get(column) or "").strip() for column in ORDERED} for row in reader]
    except csv.Error as error:
        raise RunError(f"{name}: line {reader.line_num}: {error}") from error
    rows = [row for row in rows if any(row.values())]
    serials: set[str] = set()
    for place, row in enumerate(rows, 2):
        if not row["serial"] or row["serial"] in serials:
            raise RunError(f"{name}: row {place}: serial: found {row['serial']!r}, expected a serial number, each once")
        serials.add(row["serial"])
    return rows


def against_order(rows: t.Sequence[t.Mapping[str, str]], order: t.Sequence[t.Mapping[str, str]]) -> list[PlainData]:
    """Return what differs between the order and what was seen: {what, serial, kind, node, expected, found} for each part."""
    seen = {row["serial"]: row for row in rows if row["serial"]}
    ordered = {row["serial"]: row for row in order}
    kinds = {row["kind"] for row in order} - {""}
    found: list[PlainData] = []
    for serial, row in ordered.items():
        of = seen.get(serial)
        if of is None:
            found.append(_difference("ordered and not seen", row, "", ""))
            continue
        for field in ("model", "part_number", "node"):
            if row[field] and of[field] != row[field]:
                found.append(_difference(f"another {field.replace('_', ' ')}", {**of}, row[field], of[field]))
    for serial, of in seen.items():
        if serial not in ordered and (not kinds or of["kind"] in kinds):
            found.append(_difference("seen and not ordered", of, "", ""))
    return found


def _difference(what: str, row: t.Mapping[str, str], expected: str, found: str) -> PlainData:
    return {"what": what, "serial": row["serial"], "kind": row["kind"], "node": row["node"], "expected": expected, "found": found}


def gpus_of(rounds: t.Sequence[Round]) -> dict[str, int]:
    """Return how many GPUs each node has, as the newest round that listed them saw it."""
    found: dict[str, int] = {}
    for round_ in rounds:
        for node, of_node in round_.parts.items():
            count = sum(part.kind == "gpu" for part in of_node.values())
            if count:
                found[node] = count
    return found


def machine_of(rounds: t.Sequence[Round], node: str) -> Part | None:
    """Return the machine of a node as the newest round has seen it; None if none has."""
    return next((round_.parts[node][MACHINE] for round_ in reversed(rounds) if MACHINE in round_.parts.get(node, {})), None)
