# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report as one HTML file: tables and charts, no network.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import pathlib
import typing as t

import jinja2
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.formats import plain

try:
    import plotly.graph_objects as plotly
    from plotly.offline import get_plotlyjs
except ImportError:  # tables without charts are still a report
    plotly = None

TEMPLATES = pathlib.Path(__file__).resolve().parent / "templates"
COLOURS = {"FAIL": "#b3261e", "UNKNOWN": "#6b4fa0", "WARN": "#b26a00", "KNOWN_FAIL": "#4a6a8a", "SKIPPED": "#7a7a7a", "PASS": "#2e7d4f"}
SYMBOLS = {"FAIL": "x", "UNKNOWN": "diamond", "WARN": "triangle-up", "KNOWN_FAIL": "square", "SKIPPED": "line-ew", "PASS": "circle"}
# Rows of a table; of a larger fleet the worst come first and the rest stands in report.json.
ROWS = 400


def render(model: dict[str, t.Any]) -> str:
    """The page. Everything that came from a node is escaped by the template, and kept out of scripts' markup by plotly."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    environment.filters["number"] = number
    environment.filters["plain"] = plain
    charts = {
        (stage["name"], group["check"], group["variant"]): chart(group) for stage in model["stages"] for group in stage["checks"]
    }
    return environment.get_template("report.html.j2").render(
        model=model,
        charts=charts,
        rows=ROWS,
        plotly=jinja2_safe(get_plotlyjs()) if plotly and any(charts.values()) else "",
        missing="" if plotly else "Charts need the Python package plotly on the controller.",
    )


def jinja2_safe(text: str) -> t.Any:
    """Our own markup, as opposed to anything from outside."""
    from markupsafe import Markup

    return Markup(text)


def number(value: t.Any) -> str:
    """Four significant digits; nothing for None."""
    return "" if value is None else f"{value:.4g}"


def chart(group: dict[str, t.Any]) -> t.Any:
    """A strip of all nodes with the floor drawn in, or None where nothing has a number."""
    rows = [r for r in group["rows"] if r["value"] is not None]
    if not plotly or not rows:
        return None
    kinds = {"gpu"} if any(r["kind"] == "gpu" for r in rows) else {r["kind"] for r in rows}
    rows = sorted((r for r in rows if r["kind"] in kinds), key=lambda r: r["subject"])
    place = {r["subject"]: i + 1 for i, r in enumerate(rows)}
    figure = plotly.Figure()
    for verdict, colour in COLOURS.items():
        of = [r for r in rows if r["verdict"] == verdict]
        if of:
            figure.add_scatter(
                x=[place[r["subject"]] for r in of],
                y=[r["value"] for r in of],
                mode="markers",
                name=verdict,
                marker={"color": colour, "symbol": SYMBOLS[verdict], "size": 8 if len(rows) < 200 else 5},
                text=[plain(r["subject"]).replace("<", "&lt;") + (" (simulated)" if r["simulated"] else "") for r in of],
                hovertemplate="%{text}<br>%{y:.4g}<extra></extra>",
            )
    for floor in sorted({r["floor"] for r in rows if r["floor"] is not None})[:6]:
        figure.add_hline(y=floor, line={"dash": "dash", "width": 1, "color": "#888"}, annotation_text=f"floor {floor:.4g}")
    unit = next((r["unit"] for r in rows if r["unit"]), "")
    figure.update_layout(
        height=280, margin={"l": 55, "r": 15, "t": 25, "b": 40}, template="none", showlegend=True,
        legend={"orientation": "h", "y": 1.15}, xaxis_title="subjects in order of their names", yaxis_title=unit,
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", font={"color": "#777"},
    )  # fmt: skip
    if all(r["floor"] is None or r["floor"] <= r["value"] * 20 for r in rows):
        figure.update_yaxes(rangemode="tozero")
    return jinja2_safe(
        figure.to_html(full_html=False, include_plotlyjs=False, config={"displayModeBar": False, "responsive": True})
    )
