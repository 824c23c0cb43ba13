# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pair tests in the report: a heat map for each rail, the worst pairs, distributions, and the timetable of the rounds.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import math
import statistics
import sys
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.matrix_table import Cell, standing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.tables import Table
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import (
    Better,
    Block,
    CellValues,
    Grid,
    MatrixRows,
    PairRow,
    RailRows,
    Round,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import charts

# Up to so many ports a rail has one cell for each pair; above it blocks of pairs, of which the worst can be opened.
PORTS = 128
BLOCKS = 64
OPEN = 24
WORST = 50
# Vermilion under the floor and blue above it, which colour-blind people tell apart; bad cells have a mark besides.
COLOURS = ("#8c1d04", "#d1501f", "#f3b48f", "#f4f2ee", "#a9c8e2", "#2f6da3")


def of_table(table: Table) -> MatrixRows:
    """Return a table of the verdict engine for the page and report.json."""
    return build(
        table.title, table.cells, better=table.better, unit=table.unit, rounds=table.rounds, simulated=table.simulated,
    )  # fmt: skip


def build(
    title: str,
    cells: t.Iterable[Cell],
    *,
    better: Better = "higher",
    unit: str = "Gb/s",
    rounds: t.Sequence[Round] = (),
    simulated: bool = False,
) -> MatrixRows:
    """Return one test between pairs (one check and variant) for the page and report.json.

    `cells` are those of plugin_utils/judging/matrix.py, each with its own floor, a limit where `better` is `lower`; a pair that was tested
    more than once, or each of its directions, shows its worst test.
    """
    rails: dict[str, dict[tuple[str, str], Cell]] = {}
    for cell in cells:
        pair = (cell.a, cell.b) if cell.directed or cell.a < cell.b else (cell.b, cell.a)
        tests = rails.setdefault(cell.rail, {})
        if pair not in tests or _badness(cell, better) > _badness(tests[pair], better):
            tests[pair] = cell
    return {
        "title": title,
        "unit": unit,
        "better": better,
        "simulated": simulated,
        "directed": any(cell.directed for tests in rails.values() for cell in tests.values()),
        "rails": [_rail(name, rails[name], better) for name in sorted(rails)],
        "worst": _worst(rails, better),
        "rounds": list(rounds),
    }


def _badness(cell: Cell, better: Better) -> float:
    """The more the worse, above 1 what misses its floor: a link that broke before any number, and any number before what was
    not measured."""
    if cell.outcome == "failed":
        return math.inf
    if cell.value is None or cell.outcome != "measured":
        return -math.inf
    share = cell.value / (cell.floor or 1.0)
    return share if better == "lower" else 1 / share if share > 0 else sys.float_info.max


def _misses(cell: Cell, better: Better) -> bool:
    return standing(cell.outcome, cell.value, cell.floor, better) == "bad"


def _rail(name: str, tests: dict[tuple[str, str], Cell], better: Better) -> RailRows:
    ports = sorted({port for pair in tests for port in pair})
    nodes = [node_of(port) for port in ports]
    values = [c.value for c in tests.values() if c.outcome == "measured" and c.value is not None]
    # If there is one port of each node, the node's name says enough.
    labels = nodes if len(set(nodes)) == len(nodes) else ports
    place = {port: i for i, port in enumerate(ports)}
    every = range(len(ports))
    small = len(ports) <= PORTS
    rail: RailRows = {
        "rail": name,
        "floors": sorted({c.floor for c in tests.values() if c.floor is not None}),
        "ports": labels,
        "tests": len(tests),
        "below": sum(_misses(c, better) for c in tests.values()),
        "failed": sum(c.outcome == "failed" for c in tests.values()),
        "unknown": sum(c.outcome == "unknown" for c in tests.values()),
        "spread": {"min": min(values), "median": statistics.median(values), "max": max(values)} if values else None,
        "histogram": charts.bins(values) if values else None,
        "size": 1,
        "blocks": [],
        "more_blocks": 0,
        "grid": _grid(labels, labels, place, tests, better, every, every) if small else _no_cells(),
    }
    return rail if small else _in_blocks(rail, place, tests, better)


def _in_blocks(rail: RailRows, place: dict[str, int], tests: dict[tuple[str, str], Cell], better: Better) -> RailRows:
    """Return a rail of many ports with a grid of BLOCKS x BLOCKS cells, each the worst of its pairs, and the worst blocks opened."""
    labels = rail["ports"]
    size = math.ceil(len(labels) / BLOCKS)
    of_block: dict[tuple[int, int], list[Cell]] = {}
    for (a, b), cell in tests.items():
        of_block.setdefault((place[a] // size, place[b] // size), []).append(cell)
    count = math.ceil(len(labels) / size)
    values_of, floors_of = _empty(count, count), _empty(count, count)
    for (i, j), members in of_block.items():
        worst = max(members, key=lambda c: _badness(c, better))
        for row, column in dict.fromkeys(((i, j), (i, j) if worst.directed else (j, i))):
            values_of[row][column], floors_of[row][column] = worst.value, worst.floor
    spans = [range(i * size, min((i + 1) * size, len(labels))) for i in range(count)]
    names = [f"{labels[s[0]]} to {labels[s[-1]]}" for s in spans]
    bad = {key: sum(_misses(c, better) for c in members) for key, members in of_block.items()}
    unmeasured = {key: sum(c.outcome == "unknown" for c in members) for key, members in of_block.items()}
    marks = [[i, j, f"{bad[i, j]} of {len(of_block[i, j])} pairs miss the floor"] for i, j in sorted(bad) if bad[i, j]]
    unknown = [[i, j, f"{n} pairs were not measured"] for (i, j), n in sorted(unmeasured.items()) if n and not bad[i, j]]
    opened = sorted((key for key in bad if bad[key] or unmeasured[key]), key=lambda k: (-bad[k], -unmeasured[k], k))
    blocks: list[Block] = []
    for i, j in opened[:OPEN]:
        inside = {(c.a, c.b): c for c in of_block[i, j]}
        rows, columns = ([labels[n] for n in spans[k]] for k in (i, j))
        counts = f"{bad[i, j]} miss the floor, {unmeasured[i, j]} not measured, of {len(inside)}"
        grid = _grid(rows, columns, place, inside, better, spans[i], spans[j])
        blocks.append({"name": f"{names[i]} with {names[j]}: {counts}", "grid": grid})
    whole_grid: Grid = {"rows": names, "columns": names, "values": values_of, "floors": floors_of, "bad": marks, "unknown": unknown}
    return {**rail, "grid": whole_grid, "size": size, "blocks": blocks, "more_blocks": max(0, len(opened) - OPEN)}


def _no_cells() -> Grid:
    return {"rows": [], "columns": [], "values": [], "floors": [], "bad": [], "unknown": []}


def _empty(rows: int, columns: int) -> CellValues:
    return [[None] * columns for _unused in range(rows)]


def _grid(
    rows: list[str],
    columns: list[str],
    place: dict[str, int],
    tests: t.Mapping[t.Any, Cell],
    better: Better,
    row_span: range,
    column_span: range,
) -> Grid:
    """Return values and floors by row and column (None: not tested or without a number), and the marks [row, column, text] upon them. Rows
    send and columns receive where directions have cells of their own; else both halves are the same."""
    values, floors = _empty(len(rows), len(columns)), _empty(len(rows), len(columns))
    bad, unknown = [], []
    for cell in tests.values():
        for a, b in ((place[cell.a], place[cell.b]), (place[cell.b], place[cell.a]))[: 1 if cell.directed else 2]:
            if a in row_span and b in column_span:
                i, j = a - row_span.start, b - column_span.start
                values[i][j], floors[i][j] = cell.value, cell.floor
                if _misses(cell, better):
                    bad.append([i, j, "the link broke" if cell.outcome == "failed" else "misses the floor"])
                elif cell.outcome == "unknown" or cell.value is None:
                    unknown.append([i, j, cell.reason or "not measured"])
    return {"rows": rows, "columns": columns, "values": values, "floors": floors, "bad": sorted(bad), "unknown": sorted(unknown)}


def _worst(rails: dict[str, dict[tuple[str, str], Cell]], better: Better) -> list[PairRow]:
    """Return the worst pairs of all rails: those that miss the floor, the furthest first, then those without a measurement."""
    bad = [c for tests in rails.values() for c in tests.values() if c.outcome == "unknown" or _misses(c, better)]
    bad.sort(key=lambda c: (-_badness(c, better), c.a, c.b))
    return [
        {
            "a": c.a, "b": c.b, "rail": c.rail, "value": c.value, "floor": c.floor, "reason": c.reason,
            "word": {"measured": "misses the floor", "failed": "the link broke", "unknown": "not measured"}[c.outcome],
        }
        for c in bad[:WORST]
    ]  # fmt: skip


def figure(grid: Grid, floors: list[float], unit: str, better: Better) -> charts.Figure:
    """A heat map of a grid, in which bad cells are crossed and unmeasured ones are diamonds. Where the cells of its rail have several
    floors, its colours are shares of each cell's own."""
    values, floor, value_format, title = grid["values"], (floors or [1.0])[0], "%{z:.4g}", charts.label(unit)
    if len(floors) > 1:
        pairs = [list(zip(*rows, strict=True)) for rows in zip(grid["values"], grid["floors"], strict=True)]
        values = [[v / f if f and v is not None else None for v, f in row] for row in pairs]
        floor, value_format, title = 1.0, "%{customdata:.4g}", "of the floor"
    rows, columns = ([charts.label(name) for name in grid[side]] for side in ("rows", "columns"))
    low, high = (0.5 * floor, 1.2 * floor) if better == "higher" else (0.6 * floor, 2 * floor)
    middle = (floor - low) / (high - low)
    under, above = COLOURS[:3], COLOURS[3:]
    if better == "lower":
        under, above = tuple(reversed(above)), tuple(reversed(under))
    # The colour changes at the floor, not gradually around it.
    scale = [[middle * i / 2, colour] for i, colour in enumerate(under)]
    scale += [[middle + (1 - middle) * i / 2, colour] for i, colour in enumerate(above)]
    data: list[charts.Figure] = [
        {
            "type": "heatmap", "x": columns, "y": rows, "z": values, "zmin": low, "zmax": high, "colorscale": scale,
            "customdata": grid["values"],
            "xgap": 1 if len(rows) <= 64 else 0, "ygap": 1 if len(rows) <= 64 else 0, "hoverongaps": False,
            "hovertemplate": f"%{{y}}<br>%{{x}}<br>{value_format} {charts.label(unit)}<extra></extra>",
            "colorbar": {"thickness": 10, "title": {"text": title, "side": "right"}},
        }
    ]  # fmt: skip
    for marks, name, symbol, meta in (
        (grid["bad"], "misses the floor", "x-thin", "mark"), (grid["unknown"], "not measured", "diamond-open", "UNKNOWN"),
    ):  # fmt: skip
        if marks:
            size = max(3, min(9, 420 // max(len(rows), len(columns))))
            data.append(
                {
                    "type": "scatter", "mode": "markers", "name": name, "meta": meta,
                    "x": [columns[j] for _i, j, _text in marks], "y": [rows[i] for i, _j, _text in marks],
                    "text": [f"{rows[i]}<br>{columns[j]}<br>{charts.label(text)}" for i, j, text in marks],
                    "marker": {"symbol": symbol, "size": size, "line": {"width": 1.5}}, "hovertemplate": "%{text}<extra></extra>",
                }
            )  # fmt: skip
    axis = {"type": "category", "categoryorder": "array", "showgrid": False, "automargin": True}
    x_axis = {**axis, "categoryarray": columns, "range": [-0.5, len(columns) - 0.5]}
    y_axis = {**axis, "categoryarray": rows, "range": [len(rows) - 0.5, -0.5]}
    return {"data": data, "layout": {"xaxis": x_axis, "yaxis": y_axis, "height": 360 if len(rows) <= 16 else 560}}


def distribution(rail: RailRows, unit: str) -> charts.Figure | None:
    """Return the histogram of the values of a rail; None if it has none."""
    return charts.bars(rail["histogram"], rail["floors"], unit, "pairs") if rail["histogram"] else None
