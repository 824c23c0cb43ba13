# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pair matrices in the report: every pair is in it, and none that missed its floor or was not measured is hidden."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_table import Cell
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import formats, heatmap, model, page
from harness import report_samples as samples


def test_each_pair_is_a_cell_and_each_bad_one_is_marked() -> None:
    made = heatmap.build("read_bw", samples.pairs(12))
    assert [r["rail"] for r in made["rails"]] == ["0", "1"]
    rail = made["rails"][0]
    # Eleven of the slow port, one bad path, one link that broke.
    assert (rail["tests"], rail["below"], rail["failed"], rail["unknown"]) == (66, 13, 1, 1)
    grid = rail["grid"]
    assert grid["rows"] == [f"n{n:04}" for n in range(12)]
    assert grid["values"][5][9] == grid["values"][9][5] == 300.0
    assert all(grid["values"][i][i] is None for i in range(12))
    assert len(grid["bad"]) == 2 * 13
    assert [mark[2] for mark in grid["unknown"]] == ["<b>partner never came</b>"] * 2
    assert sum(rail["histogram"]["counts"]) == 64


def test_the_worst_pairs_are_told_the_broken_ones_first_and_the_unmeasured_last() -> None:
    worst = heatmap.build("read_bw", samples.pairs(12))["worst"]
    words = [p["word"] for p in worst]
    assert words[:2] == ["the link broke"] * 2
    assert words[-2:] == ["not measured"] * 2
    assert [p["value"] for p in worst[2:-2]] == sorted(p["value"] for p in worst[2:-2])


def test_of_two_tests_of_a_pair_the_worse_is_shown() -> None:
    a, b = "a/nic/m/1", "b/nic/m/1"
    unknown = Cell(a, b, "0", None, "unknown")
    cells = [Cell(a, b, "0", 390.0, floor=380.0), Cell(b, a, "0", 200.0, again=True, floor=380.0), unknown]
    for order in (cells, cells[::-1]):
        assert heatmap.build("bw", order)["rails"][0]["grid"]["values"][0][1] == 200.0
        assert heatmap.build("lat", order, better="lower")["rails"][0]["grid"]["values"][0][1] == 390.0
    assert heatmap.build("bw", [*cells, Cell(a, b, "0", None, "failed")])["rails"][0]["failed"] == 1


def test_each_cell_has_its_own_floor() -> None:
    cells = [dataclasses.replace(c, floor=100.0) if "n0003" in c.a + c.b else c for c in samples.pairs(6)]
    made = heatmap.build("bw", cells)
    assert [r["floors"] for r in made["rails"]] == [[100.0, 380.0]] * 2
    assert [r["below"] for r in made["rails"]] == [1, 1], "the link that broke, and no cell of the slow port"
    rail = made["rails"][0]
    drawn = heatmap.figure(rail["grid"], rail["floors"], "Gb/s", "higher")["data"][0]
    assert (drawn["z"][3][0], drawn["customdata"][3][0]) == (1.9, 190.0)
    assert drawn["z"][1][0] == pytest.approx(391 / 380, rel=0.02)


def test_each_direction_has_its_half_of_the_map() -> None:
    both = [dataclasses.replace(c, directed=True) for c in samples.pairs(12)]
    both += [dataclasses.replace(c, a=c.b, b=c.a, value=390.0, outcome="measured") for c in both]
    made = heatmap.build("bw", both)
    assert made["directed"] and made["rails"][0]["tests"] == 132 and made["rails"][0]["below"] == 13
    grid = made["rails"][0]["grid"]
    assert (grid["values"][5][9], grid["values"][9][5]) == (300.0, 390.0), "the row sends, the column receives"
    assert len(grid["bad"]) == 13 and [5, 9, "misses the floor"] in grid["bad"]
    assert all(grid["values"][i][j] is not None for i in range(12) for j in range(9) if i != j)
    large = [dataclasses.replace(c, directed=True) for c in samples.pairs(256, rails=1)]
    large += [dataclasses.replace(c, a=c.b, b=c.a, value=390.0, outcome="measured") for c in large]
    rail = heatmap.build("bw", large)["rails"][0]
    assert (rail["tests"], rail["size"]) == (256 * 255, 4)
    assert rail["grid"]["values"][0][63] == 190.0 and rail["grid"]["values"][63][0] == 390.0
    assert sum(len(b["grid"]["bad"]) for b in rail["blocks"]) > 0


def test_without_a_floor_nothing_is_marked() -> None:
    made = heatmap.build("bw", [dataclasses.replace(c, floor=None) for c in samples.pairs(6)])
    assert [(r["below"], r["failed"], r["floors"]) for r in made["rails"]] == [(1, 1, [])] * 2
    heatmap.figure(made["rails"][0]["grid"], [], "Gb/s", "higher")


def test_a_large_rail_is_blocks_of_which_every_bad_one_can_be_opened() -> None:
    made = heatmap.build("read_bw", samples.pairs(512, rails=1))
    rail = made["rails"][0]
    assert rail["tests"] == 512 * 511 // 2
    assert rail["size"] == 8
    assert len(rail["grid"]["rows"]) == 64
    # Node 3 is bad in all 64 blocks of its row, in one of which lies the path; the broken link is in the last block.
    assert len(rail["blocks"]) + rail["more_blocks"] == 65
    assert sum(len(b["grid"]["bad"]) for b in rail["blocks"]) > 0
    assert all(b["grid"]["bad"] or b["grid"]["unknown"] for b in rail["blocks"])
    assert rail["grid"]["values"][0][63] == 190.0


def test_figures_are_what_plotly_takes() -> None:
    plotly = pytest.importorskip("plotly.graph_objects")
    for better, unit, floor in (("higher", "Gb/s", 380.0), ("lower", "us", 3.0)):
        cells = [dataclasses.replace(c, floor=floor * (1 + (i % 2))) for i, c in enumerate(samples.pairs(12))]
        for rail in heatmap.build("t", cells, better=better, unit=unit)["rails"]:
            plotly.Figure(heatmap.figure(rail["grid"], rail["floors"], unit, better))
            plotly.Figure(heatmap.figure(rail["grid"], [floor], unit, better))
            plotly.Figure(heatmap.distribution(rail, unit))
    silent = [Cell("a/nic/m/1", "b/nic/m/1", "0", None, "unknown")]
    assert heatmap.distribution(heatmap.build("t", silent)["rails"][0], "us") is None


def test_the_page_and_the_json_show_them() -> None:
    rounds = [{"round": 1, "pairs": 6, "started_at": None, "seconds": 5.2, "slowest": "<i>a</i>"}]
    table = Table("", "read_bw", "<script>", samples.pairs(12), "higher", "Gb/s", rounds=rounds, simulated=True)
    plan, judged = samples.fleet(12, 1)
    judged.tables["stage0"] = [table]
    made = model.build(plan, judged)
    text = page.render(made)
    assert "read_bw &lt;script&gt;" in text
    assert "&lt;b&gt;partner never came&lt;/b&gt;" in text
    assert "&lt;i&gt;a&lt;/i&gt;" in text
    assert text.count('"type":"heatmap"') == 2
    assert "the link broke" in formats.as_json(made)
