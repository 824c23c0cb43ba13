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
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.subjects import counted
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.formats import coverage, left_out, plain

Line = t.Tuple[str, str | None]
COLOURS = {"FAIL": "red", "UNKNOWN": "purple", "WARN": "yellow", "KNOWN_FAIL": "cyan", "SKIPPED": "cyan", "PASS": "green"}
# All nodes are listed up to this many; of a larger fleet only those with findings, and of these so many.
ALL_NODES = 40
ABNORMAL_NODES = 100
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
    shown_nodes = nodes if len(nodes) <= ALL_NODES else [n for n in nodes if n["findings"]][:ABNORMAL_NODES]
    lines: list[Line] = [("", None)]
    if model["partial"]:
        lines += wrapped(f"PARTIAL: {_line(left_out(model))}", width, "yellow")
    if model["simulated"]:
        lines.append(("SIMULATED: results marked with * come from simulated tools, not from hardware", "yellow"))
    lines += _causes(model["causes"], width)
    lines += _rows(model, shown_nodes, width)
    listed = {n["name"] for n in shown_nodes}
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
        few = f"; too short a past {past['short']}" if past["short"] else ""
        lines += wrapped(f"against their own past, numbers {past['compared']}: {changes or 'nothing new'}{few}", width, None)
        for sentence in [change["sentence"] for change in past["changes"] if not change["subject"]][:TOGETHER]:
            lines += wrapped(_line(sentence), width, "yellow")
    since = model["since"]
    if since:
        counts = {
            "verdicts": len(since["verdicts"]), "numbers beyond their scatter": len(since["values"]), "places": len(since["places"]),
            "facts": len(since["facts"]),
        }  # fmt: skip
        changed = ", ".join(f"{kind} {count}" for kind, count in counts.items() if count)
        lines += wrapped(f"since the last accepted run, {since['before']}, changed: {changed or 'nothing'}", width, None)
    lines += [("", None), (coverage(model), None)]
    if model["looked_for"]["missing"]:
        lines += wrapped(f"not looked for: {'; '.join(model['looked_for']['missing'])}", width, None)
    return lines + wrapped(_line(model["why"]), width, "green" if model["passed"] else "red")


def _causes(causes: list[CauseRow], width: int) -> t.Iterator[Line]:
    """Each cause in one sentence, under it what is bad because of it."""
    for cause in causes[:CAUSES]:
        mark = "*" if cause["simulated"] else ""
        yield from wrapped(f"{cause['verdict']:7} {_line(cause['said'])}{mark}", width, COLOURS[cause["verdict"]], 8)
        names = list(dict.fromkeys(_line(check_of["subject"]) for check_of in cause["explains"]))
        if names:
            hidden_text = f" and {len(names) - EXPLAINED} more" if len(names) > EXPLAINED else ""
            yield from wrapped(f"        {', '.join(names[:EXPLAINED])}{hidden_text}", width, None, 8)
    if len(causes) > CAUSES:
        yield f"and {len(causes) - CAUSES} more, see the report", None
    if causes:
        yield "", None


def _rows(model: Report, shown_nodes: list[NodeRow], width: int) -> t.Iterator[Line]:
    """Node by stage."""
    stages = [s["name"] for s in model["stages"]]
    names = [_line(n["name"]) + ("*" if n["simulated"] else "") for n in shown_nodes]
    cells = [max(10, len(stage)) for stage in stages]
    # What stages and the verdict leave, but never less than a name needs to be told from its neighbours.
    name_width = max(20, min(max([4, *map(columns, names)]), width - 12 - sum(cells) - 2 * len(cells)))
    head = "  ".join(f"{stage:{w}}" for stage, w in zip(stages, cells, strict=True))
    yield f"{pad('node', name_width)}  {'verdict':10}  {head}".rstrip(), None
    for node, name in zip(shown_nodes, names, strict=True):
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
