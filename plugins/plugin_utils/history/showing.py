# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows results of the history: a table in the terminal, and a page with charts.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.observation import utc
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.searching import (
    FoundVerdict,
    NumberData,
    Query,
    SearchResult,
    number_of,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import page, terminal
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.charts import FLOOR_LINE, Figure, floor_word, label
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.formats import number, plain

# Lines of the table, charts of the page, and curves in one of them.
LINES, CHARTS, CURVES = 60, 24, 16


def words(query: Query) -> str:
    return ", ".join(f"{name} {value}" for name, value in query._asdict().items() if value)


def table(answer: SearchResult) -> list[terminal.Line]:
    """Return the lines with their colours: a row for each node of the newest run first, then one for each subject and check, the newest
    first."""
    lines = _by_node(answer)
    rows = answer.rows[:LINES]
    head = ("run", "subject", "check", "verdict", "value", "floor")
    cells = [
        (
            row["run"], plain(row["subject"]) + "*" * row["simulated"], plain(f"{row['stage']} {row['check']} {row['variant']}".rstrip()),
            row["verdict"], f"{number(row['value'])} {plain(row['unit'])}".strip(), number(row["floor"]),
        )
        for row in rows
    ]  # fmt: skip
    widths = [min(60, max(map(terminal.columns, column))) for column in zip(head, *cells, strict=True)]
    lines.append((_line(head, widths), None))
    lines += [(_line(of, widths), terminal.COLOURS[row["verdict"]]) for of, row in zip(cells, rows, strict=True)]
    if len(answer.rows) > LINES:
        lines.append((f"and {len(answer.rows) - LINES} more; history_json=FILE or history_page=FILE has them", None))
    if any(row["simulated"] for row in rows):
        lines.append(("* simulated", "yellow"))
    counts = collections.Counter(row["verdict"] for row in answer.rows)
    verdict_counts = ", ".join(f"{counts[word]} {word}" for word in terminal.COLOURS if counts[word])
    lines.append(
        (
            f"{len(answer.rows)} verdicts in {len(answer.runs)} runs: {verdict_counts or 'none'}{'; there is more' if answer.cut else ''}",
            None,
        )
    )
    return lines


def _by_node(answer: SearchResult) -> list[terminal.Line]:
    """Return a row for each node, with its last run in the answer, the worst verdict there and what has it; the worst nodes first. Empty
    if each node has one row in the answer anyway. Pairs and groups are rows of their own."""
    last: dict[str, list[FoundVerdict]] = {}
    for row in answer.rows:  # the newest run comes first
        of = last.setdefault(node_of(row["subject"]), [])
        if not of or of[0]["run"] == row["run"]:
            of.append(row)
    if len(last) == len(answer.rows):
        return []
    ranks = {word: rank for rank, word in enumerate(WORST_FIRST)}
    worst = {node: min(of, key=lambda row: ranks.get(row["verdict"], 0)) for node, of in last.items()}
    chosen = sorted(last, key=lambda node: (ranks.get(worst[node]["verdict"], 0), node))[:LINES]
    head = ("node", "run", "worst", "verdicts", "first of the worst")
    cells = []
    for node in chosen:
        counts = collections.Counter(row["verdict"] for row in last[node])
        verdict_counts = ", ".join(f"{counts[word]} {word}" for word in WORST_FIRST if counts[word])
        bad = worst[node]
        worst_words = f"{bad['stage']} {bad['check']}: {bad['reason']}" if bad["verdict"] != "PASS" else ""
        cells.append((plain(node) + "*" * bad["simulated"], bad["run"], bad["verdict"], verdict_counts, plain(worst_words)))
    widths = [min(60, max(map(terminal.columns, column))) for column in zip(head, *cells, strict=True)]
    lines: list[terminal.Line] = [(_line(head, widths), None)]
    lines += [(_line(of, widths), terminal.COLOURS[of[2]]) for of in cells]
    if len(last) > LINES:
        lines.append((f"and {len(last) - LINES} more nodes", None))
    return [*lines, ("", None)]


def _line(cells: t.Iterable[str], widths: t.Iterable[int]) -> str:
    return "  ".join(terminal.pad(cell, width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def html(query: Query, answer: SearchResult) -> str:
    """Return one HTML page that needs no network."""
    charts = _charts(answer.rows)
    visible = charts[:CHARTS]
    return page.environment().get_template("history.html.j2").render(
        asked=words(query), runs=answer.runs, rows=answer.rows, cut=answer.cut, charts=visible, all_charts=len(charts), made=utc(),
        limits=page.LIMITS, library=page.packed_library() if visible else "",
    )  # fmt: skip


class CurvePoint(NumberData):
    """A number of a subject in one run, with the floor if the verdict was made by it."""

    at: str
    name: str
    run: str
    floor: float | None


class HistoryChart(t.TypedDict):
    """A chart of the page; `left_out` is how many curves it does not show."""

    title: str
    variant: str
    left_out: int
    figure: Figure


def _charts(rows: list[FoundVerdict]) -> list[HistoryChart]:
    """Return a chart for each check and metric, with a curve for each subject; simulated and real each have their own."""
    curves: dict[tuple[t.Any, ...], dict[str, list[CurvePoint]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in reversed(rows):
        numbers = row["numbers"] or ([number_of(row)] if row["value"] is not None else [])
        for entry in numbers:
            key = (
                row["stage"],
                row["check"],
                row["variant"],
                entry["metric"] != row["metric"],
                entry["metric"],
                entry["unit"],
                row["simulated"],
            )
            floor = row["floor"] if entry["metric"] == row["metric"] else None
            curves[key][row["identity"]].append(
                {**entry, "at": row["planned_at"], "name": row["subject"], "run": row["run"], "floor": floor}
            )
    return [_chart(key, of) for key, of in sorted(curves.items(), key=lambda item: item[0])]


def _chart(key: tuple[t.Any, ...], of: dict[str, list[CurvePoint]]) -> HistoryChart:
    stage, check, variant, _other, metric, unit, simulated = key
    drawn = sorted(of.values(), key=lambda points: points[-1]["name"])[:CURVES]
    data: list[Figure] = [
        {
            "type": "scatter", "mode": "lines+markers", "name": label(points[-1]["name"]), "x": [p["at"] for p in points],
            "y": [p["value"] for p in points], "text": [label(f"{p['name']} in {p['run']}") for p in points],
            "hovertemplate": "%{text}<br>%{y:.5g}<extra></extra>", "marker": {"size": 6},
        }
        for points in drawn
    ]  # fmt: skip
    floors = [p for p in max(drawn, key=len) if p["floor"] is not None]
    if floors:
        line = {**FLOOR_LINE, "shape": "hv"}
        of_floor = {"type": "scatter", "mode": "lines", "name": floor_word(unit), "meta": "floor", "hoverinfo": "skip", "line": line}
        data.append({**of_floor, "x": [p["at"] for p in floors], "y": [p["floor"] for p in floors]})
    layout = {"xaxis": {"type": "date"}, "yaxis": {"title": {"text": label(unit)}, "automargin": True}}
    return {
        "title": f"{stage} {check}: {metric}{' (simulated)' if simulated else ''}", "variant": variant, "left_out": len(of) - len(drawn),
        "figure": {"data": data, "layout": layout},
    }  # fmt: skip
