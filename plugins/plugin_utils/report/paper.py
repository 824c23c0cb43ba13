# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report on paper: the pages that somebody signs, as the page of the report prints them (templates/paper.html.j2).

Paper has what a signature is about, not every number: the verdict and its scope, one entry for each cause, one line for each node, and the
expectations. The tables stay in the files that the run's fingerprint covers, so a run of hundreds of nodes is some tens of pages.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import operator
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import node_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import (
    CauseRow,
    ExpectationRow,
    Finding,
    NodeRow,
    Report,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.subjects import folded

# The most that is printed: findings with place, evidence and action; findings in all, the others a line each; nodes with a line each, of
# larger fleets those that are PASS are named in ranges; rows of the appendix, entries of a list on the first page.
FULL, FINDINGS, NODES, ROWS, ENTRIES = 100, 500, 600, 60, 6
# Checks of a cause, stages of a node, and characters of a text that comes from a node.
CHECKS, STAGES, TEXT = 3, 5, 260
GOOD = ("PASS", "SKIPPED")


class FindingOnPaper(t.TypedDict):
    """A cause by its number, with the checks that say so."""

    number: int
    cause: CauseRow
    said: str
    checks: list[Finding]


class NodeOnPaper(t.TypedDict):
    """A node, with its stages that are not good, and the numbers of the findings about it."""

    node: NodeRow
    stages: list[str]
    findings: list[int]


class Paper(t.TypedDict):
    """Fields of the printed report that the report itself does not have. `hidden` are findings without a line; `ranges` are the
    nodes without a line by verdict."""

    findings: list[FindingOnPaper]
    lines: list[FindingOnPaper]
    hidden: int
    nodes: list[NodeOnPaper]
    ranges: dict[str, str]
    expectations: list[ExpectationRow]


def of(model: Report) -> Paper:
    """Return what is printed of a report."""
    found = [_finding(number, cause) for number, cause in enumerate(model["causes"], 1)]
    numbers: dict[str, list[int]] = {}
    for finding in found:
        for end in finding["cause"]["subject"].split("|"):
            numbers.setdefault(node_of(end), []).append(finding["number"])
    nodes = [node for node in model["nodes"] if node["kind"] != "pair"]
    listed = nodes if len(nodes) <= NODES else [node for node in nodes if node["verdict"] not in GOOD][:NODES]
    names = {node["name"] for node in listed}
    others = [node for node in nodes if node["name"] not in names]
    ranges = {word: folded(node["name"] for node in others if node["verdict"] == word) for word in WORST_FIRST}
    return {
        "findings": found[:FULL],
        "lines": found[FULL:FINDINGS],
        "hidden": max(0, len(found) - FINDINGS),
        "nodes": [_node(node, numbers.get(node["name"], [])) for node in listed],
        "ranges": {word: text for word, text in ranges.items() if text},
        "expectations": _expectations(model["expectations"]),
    }


def mark(model: Report) -> str:
    """Return what stands at the foot of each page, as a string of CSS: only characters that mean nothing there."""
    run, fingerprint = (re.sub(r"[^\w.-]", "", text) for text in (model["run_id"], model["fingerprint"]))
    return f"Run {run}  ·  {fingerprint}"


def _finding(number: int, cause: CauseRow) -> FindingOnPaper:
    said = cause["said"].removeprefix(f"{cause['name']}: ")
    checks = [finding for finding in cause["findings"] if _reason(finding, cause) not in said]
    return {"number": number, "cause": cause, "said": said, "checks": checks[:CHECKS]}


def _reason(finding: Finding, cause: CauseRow) -> str:
    """Return the reason of a check without the subject of the cause or its node, which the entry names."""
    return finding["reason"].removeprefix(f"{cause['subject']}: ").removeprefix(f"{node_of(cause['subject'])}: ")


def _node(node: NodeRow, numbers: list[int]) -> NodeOnPaper:
    bad = [f"{stage} {word}" for stage, word in node["stages"].items() if word and word not in GOOD]
    return {"node": node, "stages": bad[:STAGES] + ["..."] * (len(bad) > STAGES), "findings": numbers[:STAGES]}


def _expectations(rows: list[ExpectationRow]) -> list[ExpectationRow]:
    """Return each expectation once, whatever its sizes."""
    fields = operator.itemgetter("stage", "check", "metric", "expected", "floor", "layer", "source")
    return list({fields(row): row for row in rows}.values())
