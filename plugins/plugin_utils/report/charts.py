# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Charts of the report as figures of plotly.js: dictionaries with `data` and `layout`, drawn by the page's script.

Colours are left to the page, which knows the reader's theme: a trace names its verdict in `meta`.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.formats import number, plain
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.model import ORDER

Record = t.Dict[str, t.Any]
Figure = t.Dict[str, t.Any]
SYMBOLS = {"FAIL": "x", "UNKNOWN": "diamond", "WARN": "triangle-up", "KNOWN_FAIL": "square", "SKIPPED": "cross", "PASS": "circle"}
# From so many dots on, one dot each is slow and says less than a histogram with the abnormal ones named.
DOTS = 600
NAMED_NODES = 60
NAMED_OUTLIERS = 300
BINS = 48
TIMES = ("s", "ms", "us")


def label(text: t.Any) -> str:
    """Text for plotly, which reads some HTML in it."""
    return plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def of_check(group: Record) -> Figure | None:
    """All subjects of a check with the floor drawn in; None where nothing has a number, or the numbers have two units.

    `group` is one of the model's `stages[].checks[]`. Where the parts of a node were measured, they are shown, not the
    node, whose number is that of its worst part.
    """
    rows = [r for r in group["rows"] if r["value"] is not None]
    if any(r["kind"] == "gpu" for r in rows):
        rows = [r for r in rows if r["kind"] == "gpu"]
    if not rows or len({r["unit"] for r in rows}) > 1:
        return None
    rows.sort(key=lambda r: r["subject"])
    return strip(rows) if len(rows) <= DOTS else histogram(rows)


def floor_word(unit: str) -> str:
    """What the value that just passes is called: of a time it is the most, not the least."""
    return "limit" if unit in TIMES else "floor"


def strip(rows: list[Record]) -> Figure:
    """A dot for each subject, nodes side by side in the order of their names."""
    nodes = list(dict.fromkeys(r["node"] for r in rows))
    named = len(nodes) <= NAMED_NODES
    place: dict[str, t.Any] = {n: label(n) if named else i + 1 for i, n in enumerate(nodes)}
    word = floor_word(rows[0]["unit"])
    data = []
    for verdict in ORDER:
        for simulated in (False, True):
            of = [r for r in rows if r["verdict"] == verdict and r["simulated"] == simulated]
            if of:
                data.append(
                    {
                        **_dots(verdict, simulated, len(rows)),
                        "x": [place[r["node"]] for r in of],
                        "y": [r["value"] for r in of],
                        "text": [_hover(r, word) for r in of],
                    }
                )
    floors = {r["node"]: r["floor"] for r in rows if r["floor"] is not None}
    shapes, annotations = [], []
    if len(set(floors.values())) == 1:
        floor = next(iter(floors.values()))
        shapes = [{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": floor, "y1": floor, "line": {"dash": "dash", "width": 1.5}}]
        annotations = [
            {"xref": "paper", "x": 1, "xanchor": "right", "y": floor, "yanchor": "bottom", "showarrow": False,
             "text": f"{word} {number(floor)}"}
        ]  # fmt: skip
    elif floors:
        # Hardware of more than one kind: each node has its own.
        line = {"dash": "dash", "width": 1.5, "shape": "hvh"}
        of = {"type": "scatter", "mode": "lines", "name": word, "meta": "floor", "line": line, "hoverinfo": "skip"}
        data.append({**of, "x": [place[n] for n in floors], "y": list(floors.values())})
    values = [r["value"] for r in rows] + list(floors.values())
    x_axis: Figure = {"title": {"text": "nodes in order of their names"}, "zeroline": False}
    if named:
        x_axis = {"type": "category", "categoryorder": "array", "categoryarray": [place[n] for n in nodes], "automargin": True}
    y_axis = {"title": {"text": label(rows[0]["unit"] or "")}, "range": _range(values), "zeroline": False, "automargin": True}
    return {"data": data, "layout": {"xaxis": x_axis, "yaxis": y_axis, "shapes": shapes, "annotations": annotations}}


def histogram(rows: list[Record]) -> Figure:
    """How many subjects have which value, and above it each one that is not a PASS."""
    word = floor_word(rows[0]["unit"])
    values = [r["value"] for r in rows]
    least, most = min(values), max(values)
    width = (most - least) / BINS or 1.0
    counts = [0] * BINS
    for value in values:
        counts[min(int((value - least) / width), BINS - 1)] += 1
    centres = [least + (i + 0.5) * width for i in range(BINS)]
    data: list[Figure] = [
        {
            "type": "bar", "name": f"all {len(rows)}", "meta": "all", "x": centres, "y": counts, "width": width * 0.92,
            "hovertemplate": "%{y} at about %{x:.4g}<extra></extra>",
        }
    ]  # fmt: skip
    for verdict in ORDER[:-1]:
        for simulated in (False, True):
            of = [r for r in rows if r["verdict"] == verdict and r["simulated"] == simulated][:NAMED_OUTLIERS]
            if of:
                dots = {**_dots(verdict, simulated, len(of)), "yaxis": "y2", "y": [ORDER.index(verdict)] * len(of)}
                data.append({**dots, "x": [r["value"] for r in of], "text": [_hover(r, word) for r in of]})
    floors = sorted({r["floor"] for r in rows if r["floor"] is not None})[:6]
    shapes = [
        {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": f, "x1": f, "line": {"dash": "dash", "width": 1.5}}
        for f in floors
    ]
    annotations = [
        {"yref": "paper", "y": 1, "yanchor": "bottom", "x": f, "showarrow": False, "text": f"{word} {number(f)}"} for f in floors
    ]
    layout = {
        "xaxis": {"title": {"text": label(rows[0]["unit"] or "")}, "zeroline": False, "range": _range([*values, *floors])},
        "yaxis": {"title": {"text": "subjects"}, "domain": [0, 0.76], "automargin": True},
        "yaxis2": {"domain": [0.8, 1], "range": [4.6, -0.6], "visible": False},
        "shapes": shapes,
        "annotations": annotations,
        "bargap": 0,
    }
    return {"data": data, "layout": layout}


def _dots(verdict: str, simulated: bool, count: int) -> Figure:
    symbol = SYMBOLS[verdict]
    return {
        "type": "scatter",
        "mode": "markers",
        # Hollow is simulated; the word says it too.
        "name": verdict + (" (simulated)" if simulated else ""),
        "meta": verdict,
        "marker": {"symbol": f"{symbol}-open" if simulated else symbol, "size": 9 if count < 200 else 6},
        "hovertemplate": "%{text}<extra></extra>",
    }


def _hover(row: Record, word: str) -> str:
    of = f"<br>{word} {number(row['floor'])}" if row["floor"] is not None else ""
    stamp = "<br>simulated" if row["simulated"] else ""
    value = f"{number(row['value'])} {label(row['unit'] or '')}"
    return f"{label(row['subject'])}<br>{value} {row['verdict']}{of}{stamp}"


def _range(values: list[float]) -> list[float]:
    """An axis that shows all values, and never makes a small spread look large."""
    least, most = min(values), max(values)
    room = max((most - least) * 0.12, abs(most) * 0.04) or 1.0
    return [least - room if least - room > 0 or least < 0 else 0, most + room]
