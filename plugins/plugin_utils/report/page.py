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
import re
import typing as t
import urllib.parse
import zlib

import jinja2
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Report, Row
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.subjects import PLURAL, SINGULAR, counted
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import by_node, charts, curves, heatmap, paper
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report.formats import is_only_shown, left_out, number, plain, seconds
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry
from markupsafe import Markup

TEMPLATES = pathlib.Path(__file__).resolve().parent / "templates"
# The bundle of plotly.js that has charts with two axes, of which ours are scatter, bar and heatmap; its licence lies beside it. A newer one
# is taken whole from npm, plotly.js-cartesian-dist-min.
LIBRARY = pathlib.Path(__file__).resolve().parent / "plotly" / "plotly-cartesian.min.js"
# The bundle: its licence; in a wrapper for loaders of modules its program, whose last word runs all of it; the licences of what is in it.
BUNDLE = re.compile(
    r"(/\*.*?\*/\n).*\n\"use strict\";var Plotly=\(\(\)=>\{(.*)return [\w$]+\(\);\}\)\(\);\n(/\*.*\*/\n).*", re.DOTALL
)  # fmt: skip
# What makes each part of the program a function, which runs the part when it is first called.
MAKER = "(e,r)=>()=>{try{return r||e((r={exports:{}}).exports,r),r.exports}catch(t){throw r=0,t}}"
# How much of a large fleet the page shows at once: a check of up to `all` rows is listed whole, of a longer one `rows` that are not PASS;
# `nodes` likewise. The first `abnormal` findings have a card, the others up to `lines` a line each; other lists are cut at `list`. All rows
# are there to be opened by node (by_node.py).
LIMITS = {
    "all": 64, "nodes": 128, "abnormal": 100, "lines": 10_000, "rows": 40, "list": 300, "commands": 4, "warnings": 40, "findings": 12,
    "explained": 40, "names": 64, "entries": paper.ENTRIES, "paper_rows": paper.ROWS, "paper_text": paper.TEXT,
}  # fmt: skip


@functools.cache
def _shown_only() -> frozenset[tuple[str, str]]:
    """Return (stage, check) of the collection's checks whose numbers are not judged."""
    return frozenset((name, check) for name, stage in registry.shipped().items() for check in stage.shown_only)


def is_not_judged(row: t.Mapping[str, t.Any]) -> bool:
    """Return True if a verdict of any run is a PASS of a number that is only shown."""
    return is_only_shown(row) and (row["stage"], row["check"]) in _shown_only()


def environment(*folders: pathlib.Path) -> jinja2.Environment:
    """For every page of ours: what came from a node is escaped by the template, or stands in JSON without any `<`. `folders`: of templates
    beside those of the report."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, TEMPLATES]), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined, finalize=_seen,
    )  # fmt: skip
    templates.filters.update(number=number, seconds=seconds, left_out=left_out, counted=counted)
    templates.filters.update(figure=figure, picture=picture, floor_word=charts.floor_word, parted=parted, named=_named, node_of=node_of)
    templates.tests.update(only_shown=is_only_shown, not_judged=is_not_judged)
    templates.globals.update(heatmap=heatmap.figure, curves=curves.figure, distribution=heatmap.distribution, plural=PLURAL)
    templates.globals.update(singular=SINGULAR)
    return templates


def render(model: Report) -> str:
    """Return the page of a run."""
    figures = {
        (stage["name"], group["check"], group["variant"]): charts.of_check(group) for stage in model["stages"] for group in stage["checks"]
    }
    drawn = any(figures.values()) or any(s["matrices"] for s in model["stages"]) or any(s.get("charts") for s in model["sections"])
    packed = by_node.pack(model)
    return environment().get_template("report.html.j2").render(
        model=model,
        figures=figures,
        limits=LIMITS,
        library=packed_library() if drawn else "",
        packed=packed,
        paper=paper.of(model),
        paper_mark=Markup(paper.mark(model)),
        openable={name for name, _verdict in packed.nodes},
    )


class PartedRows(t.TypedDict):
    """The rows of a check as the page lists them. `numbers`: any of them has a value."""

    numbers: bool
    good: list[Row]
    bad: list[Row]
    sweeps: list[Row]
    unreadable: list[str]


def parted(rows: list[Row]) -> PartedRows:
    """Return the rows of a check as the page lists them; the template's own filters take a second for those of thousands of nodes."""
    return {
        "numbers": any(row["value"] is not None for row in rows),
        "good": [row for row in rows if row["verdict"] == "PASS"],
        "bad": [row for row in rows if row["verdict"] != "PASS"],
        "sweeps": [row for row in rows if row["sweep"]],
        "unreadable": list(dict.fromkeys(text for row in rows for text in row["unreadable"])),
    }


@functools.cache
def packed_library() -> Markup:
    """Return the charts' library, packed for the page's script to unpack: less than half the size, and the page is shown before it is
    read."""
    return Markup(base64.b64encode(zlib.compress(in_parts(LIBRARY.read_text(encoding="utf-8")).encode())).decode())


def in_parts(library: str) -> str:
    """The bundle as a script that only lists the parts of its program, each after those that it needs: run all at once, as the bundle does,
    they hold up the page for a third of a second. The last returns Plotly. One without exports is there for what it does to a page, and
    left to those that call it."""
    parts = BUNDLE.fullmatch(library)
    if not parts or library.count(MAKER) != 1:
        raise ValueError(f"{LIBRARY.name} is not made as in_parts() knows it")
    licence, program, licences = parts.groups()
    lists = MAKER.replace("=>()", "=>{const part=()", 1) + ";if(e.length)parts.push(part);return part}"
    return f'{licence}"use strict";window.plotlyParts=((parts=[])=>{{{program.replace(MAKER, lists)}return parts;}})();\n{licences}'


def _named(name: str) -> str:
    """Return the name of a node as it stands in an address behind #node=."""
    return urllib.parse.quote(plain(name), safe="")


def _seen(value: t.Any) -> t.Any:
    """Return a value for the template without invisible characters, except for the template's own markup."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def picture(svg: str) -> Markup:
    """Return the picture of a section, whose maker has escaped its texts, without invisible characters."""
    return Markup(plain(svg))


def figure(drawn: charts.Figure) -> Markup:
    """Return a figure as JSON that cannot end the script element it stands in."""
    text = json.dumps(drawn, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))
