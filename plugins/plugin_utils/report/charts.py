# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Charts of the report as figures of plotly.js: dictionaries with `data` and `layout`, drawn by the page's script.

Colours are left to the page, which knows the reader's theme: a trace names its verdict in `meta`.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import CheckRows, Histogram, Row
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.formats import number, plain

# A figure of plotly.js, whose fields are its own.
Figure = t.Dict[str, t.Any]
SYMBOLS = {"FAIL": "x", "UNKNOWN": "diamond", "WARN": "triangle-up", "KNOWN_FAIL": "square", "SKIPPED": "cross", "PASS": "circle"}
# From so many dots on, one dot each is slow and says less than a histogram with the abnormal ones named.
DOTS = 600
NAMED_NODES = 60
OUTLIERS = 300
BINS = 48
FLOOR_LINE = {"dash": "dash", "width": 1.5}
TIMES = ("s", "ms", "us")


def label(text: t.Any) -> str:
    """Text for plotly, which reads some HTML in it."""
    return plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def of_check(check: CheckRows) -> Figure | None:
    """Return all subjects of a check with the floor drawn in; None if nothing has a number, or the numbers have several units.

    If the parts of a node were measured, they are shown, not the node, whose number is that of its worst part.
    """
    rows = [r for r in check["rows"] if r["value"] is not None]
    if any(r["kind"] == "gpu" for r in rows):
        rows = [r for r in rows if r["kind"] == "gpu"]
    if not rows or len({r["unit"] for r in rows}) > 1:
        return None
    nodes_with_value = {r["node"] for r in rows}
    without = [r for r in check["rows"] if r["value"] is None and r["node"] not in nodes_with_value and r["kind"] != "gpu"]
    rows = sorted(rows + without, key=lambda r: r["subject"])
    return strip(rows, bool(check.get("shown_only"))) if len(rows) <= DOTS else histogram(rows)


def floor_word(unit: str) -> str:
    """Return the name of the value that just passes: the most for a time, the least otherwise."""
    return "limit" if unit in TIMES else "floor"


def strip(rows: list[Row], is_shown: bool = False) -> Figure:
    """Return a dot for each subject, nodes side by side in the order of their names; without a value it stands at the bottom. If
    `is_shown`, nothing was held against the numbers, and a PASS is drawn as such."""
    nodes = list(dict.fromkeys(r["node"] for r in rows))
    names_fit = len(nodes) <= NAMED_NODES
    place: dict[str, str | int] = {n: label(n) if names_fit else i + 1 for i, n in enumerate(nodes)}
    unit = _unit(rows)
    word = floor_word(unit)
    # What the fleet's own median set holds for single subjects; what an expectation set holds for the node.
    by_layer = sorted(rows, key=lambda r: r["layer"] != "fleet")
    floor_of = {r["node"]: r["floor"] for r in by_layer if r["floor"] is not None}
    floors = [floor_of[n] for n in nodes if n in floor_of]
    span = _range([*(r["value"] for r in rows if r["value"] is not None), *floors])
    bottom = span[0] + 0.04 * (span[1] - span[0])
    data = [
        {
            **dots,
            "x": [place[r["node"]] for r in of],
            "y": [bottom if r["value"] is None else r["value"] for r in of],
            "cliponaxis": False,
        }
        for of, dots in _traces(rows, word, is_shown)
    ]
    shapes: list[Figure] = []
    annotations: list[Figure] = []
    if len(set(floors)) == 1:
        shapes = [
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": floors[0], "y1": floors[0], "line": dict(FLOOR_LINE)}
        ]
        annotations = [
            {"xref": "paper", "x": 1, "xanchor": "right", "y": floors[0], "yanchor": "bottom", "showarrow": False,
             "text": f"{word} {number(floors[0])}"}
        ]  # fmt: skip
    elif floors:
        # Hardware of more than one kind: each node has its own.
        of = {"type": "scatter", "mode": "lines", "name": word, "meta": "floor", "hoverinfo": "skip"}
        line = {**FLOOR_LINE, "shape": "hvh"}
        data.append({**of, "line": line, "x": [place[n] for n in nodes if n in floor_of], "y": floors})
    x_axis: Figure = {"title": {"text": "nodes in order of their names"}, "zeroline": False, "showgrid": False}
    if names_fit:
        names = [place[n] for n in nodes]
        x_axis = {"type": "category", "categoryorder": "array", "categoryarray": names, "range": [-0.6, len(names) - 0.4]}
    y_axis = {"title": {"text": label(unit)}, "range": span, "zeroline": False, "automargin": True}
    return {"data": data, "layout": {"xaxis": x_axis, "yaxis": y_axis, "shapes": shapes, "annotations": annotations}}


def histogram(rows: list[Row]) -> Figure:
    """Return the figure of how many subjects have which value, with a mark for each that is not a PASS."""
    unit = _unit(rows)
    word = floor_word(unit)
    values = [r["value"] for r in rows if r["value"] is not None]
    floors = sorted({r["floor"] for r in rows if r["floor"] is not None and r["layer"] != "fleet"})[:6]
    figure = bars(bins(values), floors, unit, "subjects", top=0.76)
    layout = figure["layout"]
    for of, dots in _traces([r for r in rows if r["verdict"] != "PASS"], word):
        level = [WORST_FIRST.index(r["verdict"]) for r in of][:OUTLIERS]
        x = [layout["xaxis"]["range"][0] if r["value"] is None else r["value"] for r in of[:OUTLIERS]]
        figure["data"].append({**dots, "text": dots["text"][:OUTLIERS], "x": x, "y": level, "yaxis": "y2", "cliponaxis": False})
    layout["yaxis2"] = {"domain": [0.8, 1], "range": [4.6, -0.6], "visible": False}
    return figure


def bins(values: list[float]) -> Histogram:
    """Return the values counted in equal steps."""
    lowest, highest = min(values), max(values)
    width = (highest - lowest) / BINS or 1.0
    counts = [0] * BINS
    for value in values:
        counts[min(int((value - lowest) / width), BINS - 1)] += 1
    return {"least": lowest, "width": width, "counts": counts}


def bars(histogram: Histogram, floors: list[float], unit: str, count_title: str, top: float = 1.0) -> Figure:
    """Return the bars of a histogram, with the floors drawn in, up to a share `top` of the height. `count_title` is counted."""
    lowest, width, counts = histogram["least"], histogram["width"], histogram["counts"]
    ends = [lowest, lowest + width * len(counts), *floors]
    word = floor_word(unit)
    data = [
        {
            "type": "bar", "name": f"all {sum(counts)}", "meta": "all", "y": counts, "width": width * 0.92,
            "x": [lowest + (i + 0.5) * width for i in range(len(counts))],
            "hovertemplate": "%{y} at about %{x:.4g}<extra></extra>",
        }
    ]  # fmt: skip
    shapes = [{"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": f, "x1": f, "line": dict(FLOOR_LINE)} for f in floors]
    annotations = [
        {"yref": "paper", "y": top, "yanchor": "top", "x": f, "xanchor": "left", "showarrow": False, "text": f"{word} {number(f)}"}
        for f in floors
    ]
    layout = {
        "xaxis": {"title": {"text": label(unit)}, "zeroline": False, "range": _range(ends)},
        "yaxis": {"title": {"text": count_title}, "domain": [0, top], "automargin": True},
        "shapes": shapes,
        "annotations": annotations,
    }
    return {"data": data, "layout": layout}


def _unit(rows: list[Row]) -> str:
    return next((r["unit"] for r in rows if r["unit"] and r["value"] is not None), "")


def _traces(rows: list[Row], word: str, is_shown: bool = False) -> t.Iterator[tuple[list[Row], Figure]]:
    """Yield the rows of each verdict, and how they are drawn: the worst last, so that nothing lies over it."""
    for verdict in reversed(WORST_FIRST):
        for simulated in (False, True):
            of = [r for r in rows if r["verdict"] == verdict and r["simulated"] == simulated]
            if not of:
                continue
            symbol = SYMBOLS[verdict]
            of_shown = is_shown and verdict == "PASS"
            size = 9 if len(rows) < 200 else 6
            yield (
                of,
                {
                    "type": "scatter",
                    "mode": "markers",
                    # Hollow is simulated; the word says it too.
                    "name": verdict + (", not judged" if of_shown else "") + (" (simulated)" if simulated else ""),
                    "meta": "soft" if of_shown else verdict,
                    "legendrank": WORST_FIRST.index(verdict),
                    "marker": {"symbol": f"{symbol}-open" if simulated else symbol, "size": size, "line": {"width": 2 * simulated}},
                    "text": [_hover(r, word) for r in of],
                    "hovertemplate": "%{text}<extra></extra>",
                },
            )


def _hover(row: Row, word: str) -> str:
    of = f"<br>{word} {number(row['floor'])}" if row["floor"] is not None else ""
    stamp = "<br>simulated" if row["simulated"] else ""
    value = f"{number(row['value'])} {label(row['unit'] or '')}" if row["value"] is not None else "no value"
    return f"{label(row['subject'])}<br>{row['verdict']}: {value}{of}{stamp}"


def _range(values: list[float]) -> list[float]:
    """An axis that shows all values, and never makes a small spread look large."""
    lowest, highest = min(values), max(values)
    room = max((highest - lowest) * 0.12, abs(highest) * 0.04) or 1.0
    return [lowest - room if lowest - room > 0 or lowest < 0 else 0, highest + room]
