# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report as one HTML file: tables and charts, no network.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import base64
import functools
import json
import pathlib
import typing as t
import zlib

import jinja2
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.subjects import PLURAL, counted
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import charts, curves, heatmap
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.formats import left_out, number, plain, seconds
from markupsafe import Markup

TEMPLATES = pathlib.Path(__file__).resolve().parent / "templates"
# The bundle of plotly.js that has charts with two axes, of which ours are scatter, bar and heatmap; its licence lies beside it. A newer one
# is taken whole from npm, plotly.js-cartesian-dist-min.
LIBRARY = pathlib.Path(__file__).resolve().parent / "plotly" / "plotly-cartesian.min.js"
# How much of a large fleet the page shows (report.json has all): a check of up to `all` rows is listed whole, of a longer
# one what is abnormal and `rows` of it; `nodes` likewise, with `abnormal` cards; other lists are cut at `list`.
LIMITS = {"all": 64, "nodes": 128, "abnormal": 100, "rows": 40, "list": 300, "commands": 4, "warnings": 40, "findings": 12}


def environment(*folders: pathlib.Path) -> jinja2.Environment:
    """For every page of ours: what came from a node is escaped by the template, or stands in JSON without any `<`. `folders`: of templates
    beside those of the report."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, TEMPLATES]), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined, finalize=_seen,
    )  # fmt: skip
    made.filters.update(number=number, seconds=seconds, left_out=left_out, counted=counted)
    made.filters.update(figure=figure, floor_word=charts.floor_word)
    made.globals.update(heatmap=heatmap.figure, curves=curves.figure, distribution=heatmap.distribution, plural=PLURAL)
    return made


def render(model: dict[str, t.Any]) -> str:
    """The page of a run."""
    figures = {
        (stage["name"], group["check"], group["variant"]): charts.of_check(group) for stage in model["stages"] for group in stage["checks"]
    }
    drawn = any(figures.values()) or any(s["matrices"] for s in model["stages"]) or any(s.get("charts") for s in model["sections"])
    return environment().get_template("report.html.j2").render(
        model=model,
        figures=figures,
        limits=LIMITS,
        library=packed_library() if drawn else "",
    )


@functools.cache
def packed_library() -> Markup:
    """What draws the charts, packed for the page's script to unpack: less than half of it, and the page is shown before it is read."""
    return Markup(base64.b64encode(zlib.compress(LIBRARY.read_bytes())).decode())


def _seen(value: t.Any) -> t.Any:
    """What the template prints: without characters that cannot be seen, but for its own markup."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def figure(of: dict[str, t.Any]) -> Markup:
    """A figure as JSON that cannot end the script element it stands in."""
    text = json.dumps(of, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))
