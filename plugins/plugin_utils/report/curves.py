# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Charts that a stage's description tells (stages/base.py) as figures of plotly.js.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.charts import FLOOR_LINE, Figure, Record, label

# From so many moments on their words lie over one another; the lines are there still.
WORDS = 12


def figure(of: Record) -> Figure:
    """Its curves in the order in which they are told; hollow dots are simulated, and its title says so too."""
    data = [_trace(curve, of) for curve in of["curves"]]
    bars = any(trace["type"] == "bar" for trace in data)
    shapes = [
        {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": x, "x1": x, "line": {**FLOOR_LINE, "dash": "dot"}}
        for x, _text in of["moments"]
    ]
    words = [
        {"yref": "paper", "y": 1, "yanchor": "top", "x": x, "xanchor": "left", "showarrow": False, "text": label(text)}
        for x, text in of["moments"][:WORDS]
    ]
    layout = {
        "xaxis": {"title": {"text": label(of["x"])}, "zeroline": False, **({"type": "category"} if bars else {})},
        "yaxis": {"title": {"text": label(of["y"])}, "rangemode": "tozero", "automargin": True},
        "shapes": shapes,
        "annotations": words if len(of["moments"]) <= WORDS else [],
        **({"barmode": "stack"} if bars else {}),
    }
    return {"data": data, "layout": layout}


def _trace(curve: Record, of: Record) -> Figure:
    named = {"name": label(curve["name"]), "x": [label(x) if isinstance(x, str) else x for x in curve["x"]], "y": curve["y"]}
    hover = {"hovertemplate": f"{named['name']}<br>%{{x}}: %{{y}} {label(of['y'])}<extra></extra>"}
    if curve.get("bars"):
        return {"type": "bar", **named, **hover}
    if curve.get("expected"):
        return {"type": "scatter", "mode": "lines", "meta": "floor", "line": dict(FLOOR_LINE), **named, **hover}
    marker = {"size": 6, "symbol": "circle-open" if of.get("simulated") else "circle"}
    return {"type": "scatter", "mode": "markers" if curve.get("dots") else "lines+markers", "marker": marker, **named, **hover}
