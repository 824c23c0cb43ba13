# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The verdict table of the terminal.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import shutil
import typing as t
import unicodedata

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import CauseRow, NodeRow, Report
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.subjects import counted, folded
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import alike
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.formats import coverage, left_out, plain

Line = t.Tuple[str, str | None]
COLOURS = {"FAIL": "red", "UNKNOWN": "purple", "WARN": "yellow", "KNOWN_FAIL": "cyan", "SKIPPED": "cyan", "PASS": "green"}
# All nodes are listed up to this many, each in a row. Of a larger fleet only those with findings, nodes with the same row in one, and of
# these rows so many.
ALL_NODES = 40
ABNORMAL_ROWS = 100
# Ranges of names in a row.
RANGES = 4
# So many changes of everybody are said; the report has all.
TOGETHER = 5
# So many causes are said, and so many of what each explains.
CAUSES = 100
EXPLAINED = 12


def coloured(model: Report, width: int | None = None) -> list[Line]:
    """Return the causes, then the table, as (line, name of one of Ansible's colours or None); last the reason of the verdict, which
    whoever prints this says in one word.

    `width` in columns, that of the terminal by default: what is longer goes on in the next line. Nothing in it can steer a terminal.
    """
    width = max(60, min(width or shutil.get_terminal_size((120, 40)).columns, 200))
    nodes = [n for n in model["nodes"] if n["kind"] != "pair"]
    rows = [[n] for n in nodes] if len(nodes) <= ALL_NODES else _groups_of_equal_nodes([n for n in nodes if n["findings"]])[:ABNORMAL_ROWS]
    lines: list[Line] = [("", None)]
    if model["partial"]:
        lines += wrapped(f"PARTIAL: {_line(left_out(model))}", width, "yellow")
    if model["simulated"]:
        lines.append(("SIMULATED: results marked with * come from simulated tools, not from hardware", "yellow"))
    lines += _causes(model["causes"], width)
    lines += _rows(model, rows, width)
    listed = {n["name"] for row in rows for n in row}
    hidden_nodes = [n for n in model["nodes"] if n["name"] not in listed]
    for word, colour in COLOURS.items():
        kinds = [n["kind"] for n in hidden_nodes if n["verdict"] == word]
        if kinds:
            lines.append((f"and {counted(kinds)} with {word}", colour))
    for note in model["notes"]:
        lines += wrapped(f"note: {_line(note)}", width, "yellow")
    for warning in model["warnings"]:
        if not warning["subject"]:
            lines += wrapped(f"WARN: {_line(warning['text'])}", width, COLOURS["WARN"])
    past = model["past"]
    if past:
        counts_of = collections.Counter(change["kind"] for change in past["changes"] if change["subject"])
        changes = ", ".join(f"{kind} {count}" for kind, count in counts_of.items())
        few = f"; {past['short']} have too short a past" if past["short"] else ""
        lines += wrapped(f"{past['compared']} numbers held against their own past: {changes or 'nothing new'}{few}", width, None)
        for sentence in [change["sentence"] for change in past["changes"] if not change["subject"]][:TOGETHER]:
            lines += wrapped(_line(sentence), width, "yellow")
    since = model["since"]
    if since:
        counts = {
            "verdicts": len(since["verdicts"]), "numbers beyond their scatter": len(since["values"]), "places": len(since["places"]),
            "facts": len(since["facts"]),
        }  # fmt: skip
        changed = ", ".join(f"{kind} {count}" for kind, count in counts.items() if count)
        changed = changed or ("nothing" if since["in_common"] else "not known, the two runs have no check in common")
        lines += wrapped(f"since the last accepted run, {since['before']}, changed: {changed}", width, None)
    lines += [("", None), (coverage(model), None)]
    if model["looked_for"]["missing"]:
        lines += wrapped(f"not looked for: {'; '.join(model['looked_for']['missing'])}", width, None)
    return lines + wrapped(_line(model["why"]), width, "green" if model["passed"] else "red")


def _causes(causes: list[CauseRow], width: int) -> t.Iterator[Line]:
    """Each cause in one sentence, once for all subjects of which it is said, and under it what is bad because of it."""
    lines = alike.lines(causes)
    for first, sentence, of_line in lines[:CAUSES]:
        mark = "*" if first["simulated"] else ""
        yield from wrapped(f"{first['verdict']:7} {_line(sentence)}{mark}", width, COLOURS[first["verdict"]], 8)
        parts = [cause["name"] for cause in of_line] if len(of_line) > 1 and first["kind"] != "node" else []
        explained = [check_of["subject"] for cause in of_line for check_of in cause["explains"]]
        names = list(dict.fromkeys(map(_line, (*parts, *explained))))
        if names:
            hidden_text = f" and {len(names) - EXPLAINED} more" if len(names) > EXPLAINED else ""
            yield from wrapped(f"        {', '.join(names[:EXPLAINED])}{hidden_text}", width, None, 8)
    if len(lines) > CAUSES:
        yield f"and {len(lines) - CAUSES} more, see the report", None
    if causes:
        yield "", None


def _groups_of_equal_nodes(nodes: list[NodeRow]) -> list[list[NodeRow]]:
    """Return the nodes whose rows are the same together, in the order of the first of each."""
    rows: dict[tuple[t.Any, ...], list[NodeRow]] = {}
    for node in nodes:
        rows.setdefault((node["verdict"], node["simulated"], *node["stages"].values()), []).append(node)
    return list(rows.values())


def _rows(model: Report, rows: list[list[NodeRow]], width: int) -> t.Iterator[Line]:
    """Node by stage. Nodes of one row have the same verdicts."""
    stages = [s["name"] for s in model["stages"]]
    names = [folded((_line(n["name"]) for n in row), RANGES) + ("*" if row[0]["simulated"] else "") for row in rows]
    cells = [max(10, len(stage)) for stage in stages]
    # What stages and the verdict leave, but never less than a name needs to be told from its neighbours.
    name_width = max(20, min(max([4, *map(columns, names)]), width - 12 - sum(cells) - 2 * len(cells)))
    head = "  ".join(f"{stage:{w}}" for stage, w in zip(stages, cells, strict=True))
    yield f"{pad('node', name_width)}  {'verdict':10}  {head}".rstrip(), None
    for (node, *_others), name in zip(rows, names, strict=True):
        row = "  ".join(f"{node['stages'][stage]:{w}}" for stage, w in zip(stages, cells, strict=True))
        yield f"{pad(name, name_width)}  {node['verdict']:10}  {row}".rstrip(), COLOURS[node["verdict"]]


def wrapped(text: str, width: int, colour: str | None, indent: int = 4) -> list[Line]:
    """A text in as many lines as it takes, those after the first indented. A word that is longer than a line stays whole: a path or a
    command that the terminal breaks can still be copied."""
    lines: list[Line] = []
    line = text[: len(text) - len(text.lstrip(" "))]
    room = True  # nothing but blanks in the line yet
    for word in text.split(" "):
        if not word and room:
            continue
        if not room and columns(f"{line} {word}") > width:
            lines.append((line.rstrip(), colour))
            line, room = " " * indent, True
        line, room = line + ("" if room else " ") + word, False
    return [*lines, (line.rstrip(), colour)]


def _line(text: t.Any) -> str:
    """Text in one line."""
    return " ".join(plain(text).split())


def columns(text: str) -> int:
    """Return the number of columns that a text takes: wide characters take two, combining ones none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def fit(text: str, width: int) -> str:
    """Text cut to a width, with three dots where something is missing."""
    if columns(text) <= width:
        return text
    cut = ""
    for character in text:
        if columns(cut + character) > width - 3:
            break
        cut += character
    return cut + "..."


def pad(text: str, width: int) -> str:
    """Text in exactly so many columns."""
    text = fit(text, width)
    return text + " " * (width - columns(text))
