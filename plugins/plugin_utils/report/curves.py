# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Charts of a stage's sections as figures of plotly.js.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Curve, SectionChart
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.charts import FLOOR_LINE, Figure, label

# The words of more moments lie over one another; their lines are drawn all the same.
WORDS = 12


def figure(chart: SectionChart) -> Figure:
    """Return a chart with its curves in their order; hollow dots are simulated."""
    data = [_trace(curve, chart) for curve in chart["curves"]]
    bars = any(trace["type"] == "bar" for trace in data)
    shapes = [
        {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": x, "x1": x, "line": {**FLOOR_LINE, "dash": "dot"}}
        for x, _text in chart["moments"]
    ]
    words = [
        {"yref": "paper", "y": 1, "yanchor": "top", "x": x, "xanchor": "left", "showarrow": False, "text": label(text)}
        for x, text in chart["moments"][:WORDS]
    ]
    layout = {
        "xaxis": {"title": {"text": label(chart["x"])}, "zeroline": False, **({"type": "category"} if bars else {})},
        "yaxis": {"title": {"text": label(chart["y"])}, "rangemode": "tozero", "automargin": True},
        "shapes": shapes,
        "annotations": words if len(chart["moments"]) <= WORDS else [],
        **({"barmode": "stack"} if bars else {}),
    }
    return {"data": data, "layout": layout}


def _trace(curve: Curve, chart: SectionChart) -> Figure:
    axes = {"name": label(curve["name"]), "x": [label(x) if isinstance(x, str) else x for x in curve["x"]], "y": curve["y"]}
    hover = {"hovertemplate": f"{axes['name']}<br>%{{x}}: %{{y}} {label(chart['y'])}<extra></extra>"}
    if curve.get("bars"):
        return {"type": "bar", **axes, **hover}
    if curve.get("expected"):
        return {"type": "scatter", "mode": "lines", "meta": "floor", "line": dict(FLOOR_LINE), **axes, **hover}
    marker = {"size": 6, "symbol": "circle-open" if chart["simulated"] else "circle"}
    return {"type": "scatter", "mode": "markers" if curve.get("dots") else "lines+markers", "marker": marker, **axes, **hover}
