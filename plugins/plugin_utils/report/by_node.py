# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All rows of a run by node, packed for the page, whose script unpacks those of the node that a reader opens (templates/nodes.js).

Nodes are packed together in chunks of some thousand rows. A chunk is JSON, compressed (zlib), in base64. In a chunk the rows of a
check are columns, in which equal values stand once, since that is what makes them small:

    {"subjects": [[node, part, kind], ...], "sets": [[subject, ...], ...], "checks": [{"check": number in the index, "set": number, ...}]}

`node` is a number of the chunk. A check's rows are about the subjects of its `set`, in that order. A column is a list with an entry for
each row, or one value that all rows have. Numbers are text as the page shows them.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import base64
import functools
import json
import typing as t
import zlib

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import ends_of, node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import MetricData, PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Report, Row
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.formats import number, plain

# Rows that are packed together: to open a node takes some hundredths of a second.
TOGETHER = 12_000
# The most bytes of all chunks in the page.
MOST = 7_000_000
_RANK: dict[str, int] = {word: rank for rank, word in enumerate(WORST_FIRST)}
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Check(t.NamedTuple):
    stage: str
    check: str
    variant: str


class Packed(t.NamedTuple):
    """`shown` are the places of the checks whose numbers are not judged, `nodes` the nodes with their verdicts, the worst first, `starts`
    the number of the first node of each chunk. `left_out` are the nodes for which there is no room."""

    checks: list[Check]
    shown: list[int]
    nodes: list[tuple[str, str | None]]
    starts: list[int]
    chunks: list[str]
    rows: int
    left_out: list[str]

    def contents(self) -> PlainData:
        """Return what the page's script reads before it unpacks anything."""
        nodes = [[plain(name), _RANK[verdict] if verdict else -1] for name, verdict in self.nodes]
        checks = [list(map(plain, check)) for check in self.checks]
        return {"checks": checks, "shown": self.shown, "nodes": nodes, "starts": self.starts, "words": WORST_FIRST}


class _Rows:
    """The rows of one node, each with the number of its check."""

    __slots__ = ("checks", "rows")

    def __init__(self) -> None:
        self.checks: list[int] = []
        self.rows: list[Row] = []


def pack(model: Report, most: int = MOST) -> Packed:
    """Return all rows of a run, packed by node, groups and switches as nodes of their own. A pair is at both of its nodes."""
    checks: list[Check] = []
    shown: list[int] = []
    verdicts: dict[str, str | None] = {node["name"]: node["verdict"] for node in model["nodes"] if node["kind"] != "pair"}
    of_node = {name: _Rows() for name in verdicts}
    for stage in model["stages"]:
        for group in stage["checks"]:
            checks.append(Check(stage["name"], group["check"], group["variant"]))
            if group["shown_only"]:
                shown.append(len(checks) - 1)
            for row in group["rows"]:
                at_nodes = sorted(set(map(node_of, ends_of(row["subject"])))) if row["kind"] == "pair" else [row["node"]]
                for name in at_nodes:
                    if name not in of_node:
                        of_node[name], verdicts[name] = _Rows(), None
                    of_node[name].checks.append(len(checks) - 1)
                    of_node[name].rows.append(row)
    names = [name for name in of_node if of_node[name].rows]
    packed = Packed(checks, shown, [], [], [], sum(len(of_node[name].rows) for name in names), [])
    first = size = 0
    while first < len(names):
        last, rows = first, 0
        while last < len(names) and rows < TOGETHER:
            rows += len(of_node[names[last]].rows)
            last += 1
        chunk = _chunk([(name, of_node[name]) for name in names[first:last]])
        size += len(chunk)
        if size > most:
            packed.left_out.extend(names[first:])
            break
        packed.starts.append(first)
        packed.chunks.append(chunk)
        packed.nodes.extend((name, verdicts[name]) for name in names[first:last])
        first = last
    return packed


def _chunk(nodes: list[tuple[str, _Rows]]) -> str:
    subjects: dict[tuple[int, str, str], int] = {}
    sets: dict[tuple[int, ...], int] = {}
    by_check: dict[int, list[tuple[int, Row]]] = {}
    for place, (name, of) in enumerate(nodes):
        for check, row in zip(of.checks, of.rows, strict=True):
            part = row["part"] if row["node"] == name else row["subject"] if row["kind"] == "pair" else ""
            subject = subjects.setdefault((place, part, row["kind"]), len(subjects))
            by_check.setdefault(check, []).append((subject, row))
    checks = []
    for check in sorted(by_check):
        found = sorted(by_check[check], key=lambda of_subject: of_subject[0])
        members = tuple(subject for subject, _row in found)
        columns = _columns([row for _subject, row in found])
        checks.append({"check": check, "set": sets.setdefault(members, len(sets)), **columns})
    listed = [[place, plain(part), kind] for place, part, kind in subjects]
    text = _encode({"subjects": listed, "sets": [list(members) for members in sets], "checks": checks})
    return base64.b64encode(zlib.compress(text.encode("ascii"))).decode()


def _columns(rows: list[Row]) -> PlainData:
    """Return the rows of one check as columns. A reason is there for what has no number or is not PASS: a number says as much."""
    good = "PASS"
    return {
        "verdict": _column([_RANK[row["verdict"]] for row in rows]),
        "value": _column([_number(row["value"]) for row in rows]),
        "unit": _column([_plain(row["unit"] or "") for row in rows]),
        "floor": _column([_number(row["floor"]) for row in rows]),
        "layer": _column([row["layer"] or "" for row in rows]),
        "reason": _column([_reason(row) if row["value"] is None or row["verdict"] != good else "" for row in rows]),
        "other": _metrics([row["other"] for row in rows]),
        "ungated": _metrics([row["ungated"] for row in rows]),
        "seconds": _column([_seconds(row["duration_s"]) for row in rows]),
        "simulated": _column([int(row["simulated"]) for row in rows]),
        "evidence": _column([_texts(row["evidence"]) for row in rows]),
        "unreadable": _column([_texts(row["unreadable"]) for row in rows]),
    }


def _column(values: list[t.Any]) -> t.Any:
    """Return the values, or the one that all are; a list of values is never mistaken for a column since values are no lists."""
    return values[0] if values.count(values[0]) == len(values) else values


def _metrics(rows: list[t.Mapping[str, MetricData]]) -> list[t.Any]:
    """Return the metrics that are shown only, each as [name, column of units, column of values]."""
    names = dict.fromkeys(name for row in rows for name in row) if any(rows) else {}
    return [
        [
            plain(name),
            _column([_plain(row[name]["unit"]) if name in row else "" for row in rows]),
            _column([_number(row[name]["value"]) if name in row else "" for row in rows]),
        ]
        for name in names
    ]


def _number(value: t.Any) -> str:
    return number(value) if value is None or isinstance(value, (int, float)) else plain(value)


def _reason(row: Row) -> str:
    return plain(row["reason"].removeprefix(f"{row['subject']}: ").removeprefix(f"{row['node']}: "))


def _seconds(value: float | None) -> str:
    """Return a duration in seconds as `formats.seconds` says it, without its unit; 0 for less than 0.1 s."""
    if value is None:
        return ""
    return "0" if value < 0.1 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _texts(texts: list[str]) -> str:
    return "; ".join(map(plain, texts)) if texts else ""


_plain = functools.lru_cache(maxsize=4096)(plain)
