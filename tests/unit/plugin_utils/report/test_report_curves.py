# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Charts that a stage tells stand in the report, theirs and nothing that a name could smuggle in."""

from __future__ import annotations

import html
import json
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import curves, formats, model, page
from harness import report_samples as samples

HARM = "</script><b>x</b>"


def chart(**changes: t.Any) -> dict[str, t.Any]:
    told = [{"name": HARM, "x": [1, 2], "y": [3, 4]}, {"name": "by the quota", "x": [1, 2], "y": [3, 5], "expected": True}]
    return {
        "of": "FUNC-012 on lab", "verdict": "PASS", "simulated": True, "title": "Throughput over time", "x": "seconds", "y": "it/s",
        "curves": told, "moments": [[1.5, HARM]], **changes,
    }  # fmt: skip


def test_curves_have_their_axes_moments_and_expectation() -> None:
    found = curves.figure(chart())
    measured, expected = found["data"]
    assert (measured["x"], measured["y"], measured["mode"]) == ([1, 2], [3, 4], "lines+markers")
    assert measured["marker"]["symbol"] == "circle-open" and "<" not in measured["name"]
    assert (expected["mode"], expected["meta"], expected["line"]["dash"]) == ("lines", "floor", "dash")
    layout = found["layout"]
    assert (layout["xaxis"]["title"]["text"], layout["yaxis"]["title"]["text"]) == ("seconds", "it/s")
    assert [shape["x0"] for shape in layout["shapes"]] == [1.5] and "<" not in layout["annotations"][0]["text"]
    assert curves.figure(chart(simulated=False))["data"][0]["marker"]["symbol"] == "circle"


def test_many_moments_are_lines_without_words() -> None:
    found = curves.figure(chart(moments=[[n, "30 %"] for n in range(curves.WORDS + 1)]))
    assert len(found["layout"]["shapes"]) == curves.WORDS + 1 and not found["layout"]["annotations"]


def test_bars_are_stacked_by_name() -> None:
    found = curves.figure(chart(curves=[{"name": name, "x": ["GPU-<1>"], "y": [2], "bars": True} for name in "ab"], moments=[]))
    assert [trace["type"] for trace in found["data"]] == ["bar", "bar"] and found["data"][0]["x"] == ["GPU-&lt;1&gt;"]
    assert (found["layout"]["barmode"], found["layout"]["xaxis"]["type"]) == ("stack", "category")
    dots = curves.figure(chart(curves=[{"name": "measured", "x": [25], "y": [9], "dots": True}]))
    assert dots["data"][0]["mode"] == "markers"


def test_a_page_has_the_charts_of_its_sections_and_says_whose_they_are() -> None:
    plan, judged = samples.fleet(2, 1)
    built = model.build(plan, judged)
    section = {"title": "Cases", "said": [], "columns": ["case"], "rows": [["FUNC-012"]]}
    told = [chart(), chart(of="LEAK-001 on lab", verdict="FAIL", simulated=False, title="Memory")]
    without = page.render({**built, "sections": [section]})
    text = page.render({**built, "sections": [{**section, "charts": told}]})
    assert text.count('class="figure"') == without.count('class="figure"') + 2
    assert HARM not in text
    labels = [html.unescape(one) for one in re.findall(r'role="img" aria-label="([^"]*)"', text)]
    assert {"FUNC-012 on lab: Throughput over time", "LEAK-001 on lab: Memory"} <= set(labels)
    (simulated,) = re.findall(r"<summary>FUNC-012 on lab.*?</summary>", text)
    assert "simulated" in simulated
    # What failed is seen without unfolding it.
    assert "<details open><summary>LEAK-001" in text and "<details><summary>FUNC-012" in text
    drawn = [json.loads(one) for one in re.findall(r'class="figure"[^>]*>(.*?)</script>', text, re.S)]
    assert drawn[-1]["layout"]["yaxis"]["title"]["text"] == "it/s" or drawn[-2]["layout"]["yaxis"]["title"]["text"] == "it/s"
    assert "FUNC-012" in formats.markdown({**built, "sections": [{**section, "charts": told}]})
