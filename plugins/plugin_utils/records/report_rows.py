# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one definition of report/v1: every kind of row that report/model.py builds and that the forms of the report show.

A report is plain data, as a run of thousands of nodes has hundreds of thousands of rows. What a row is made of, such as the facts that
drift, a table of a stage or the comparison with another run, is defined here too, so that those who make it need not know the report.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import MetricData, NodeVerdict, Number, Sample, Word

# Which values of a metric are better.
Better = t.Literal["higher", "lower"]


# Checks and what they measured -----------------------------------------------------------------------------------------------------------


class SweepSize(t.TypedDict):
    """One message size of a sweep: bytes, microseconds, GB/s."""

    size: Number
    time_us: Number
    algbw: Number
    busbw: Number


class Sweep(t.TypedDict):
    """The sweep of a group over message sizes; `world_size` is the number of ranks."""

    world_size: int
    rows: list[SweepSize]


class Row(t.TypedDict):
    """One subject of a check, with its verdict.

    `node` is the node of the subject and `part` the rest of the subject's id. `value` and `floor` are in `unit`, both of `metric`. `other`
    are the metrics that were not judged, `ungated` those that never are. `evidence` and `unreadable` are sentences. `duration_s` is None
    if nothing was measured, `sweep` if the subject is no group or has none.
    """

    subject: str
    node: str
    part: str
    kind: str
    verdict: Word
    value: Number | None
    unit: str | None
    floor: Number | None
    layer: str | None
    metric: str | None
    reason: str
    simulated: bool
    attempt: int | None
    other: t.Mapping[str, MetricData]
    ungated: t.Mapping[str, MetricData]
    duration_s: Number | None
    evidence: list[str]
    unreadable: list[str]
    sweep: Sweep | None


class Summary(t.TypedDict):
    """The values of one check, if they have one unit."""

    count: int
    min: Number
    median: Number
    max: Number
    unit: str | None


class CheckRows(t.TypedDict):
    """One check and variant, its rows the worst first. `counts` is {verdict: number of rows}. `unlisted` is how many of the rows, from the
    end, report.json, JUnit and Prometheus do not list (report/listing.py). `shown_only` is how many PASS have a number that nothing was
    compared with."""

    check: str
    variant: str
    rows: list[Row]
    counts: dict[str, int]
    summary: Summary | None
    unlisted: int
    shown_only: int


# Tests between pairs ---------------------------------------------------------------------------------------------------------------------

# (row, column, text) of a cell that has a mark, as a list since JSON has no tuples.
Mark = list[t.Any]
CellValues = list[list[float | None]]


class Grid(t.TypedDict):
    """A matrix by the names of its rows and columns; a cell is None if it was not tested or has no number. `bad` and `unknown` are the
    marks upon cells."""

    rows: list[str]
    columns: list[str]
    values: CellValues
    floors: CellValues
    bad: list[Mark]
    unknown: list[Mark]


class Block(t.TypedDict):
    """The matrix of one block of a large rail."""

    name: str
    grid: Grid


class Spread(t.TypedDict):
    """The range of the values of a rail."""

    min: float
    median: float
    max: float


class Histogram(t.TypedDict):
    """Values counted in equal steps of `width`, from `least` on."""

    least: float
    width: float
    counts: list[int]


class RailRows(t.TypedDict):
    """The tests of one rail. `size` is the number of ports of a side of a block, 1 if the grid has a cell for each pair."""

    rail: str
    floors: list[float]
    ports: list[str]
    tests: int
    below: int
    failed: int
    unknown: int
    spread: Spread | None
    histogram: Histogram | None
    size: int
    blocks: list[Block]
    more_blocks: int
    grid: Grid


class PairRow(t.TypedDict):
    """One of the worst pairs; `word` says in which way it is bad."""

    a: str
    b: str
    rail: str
    value: float | None
    floor: float | None
    reason: str
    word: str


class Round(t.TypedDict):
    """A round of a timetable as it was walked. All but its number and its pairs is None where it is not known; `slowest` is a pair's id."""

    round: int
    pairs: int
    started_at: str | None
    seconds: float | None
    slowest: str | None


class MatrixRows(t.TypedDict):
    """One test between pairs, one check and variant. `directed`: each direction has a cell of its own."""

    title: str
    unit: str
    better: Better
    simulated: bool
    directed: bool
    rails: list[RailRows]
    worst: list[PairRow]
    rounds: list[Round]


class Unlisted(t.TypedDict):
    """The part of a large run that report.json, JUnit and Prometheus do not list: `rows` `of` all rows and `pairs`, as numbers, and `said`,
    a sentence about both with the names of the files that have them."""

    rows: int
    of: int
    pairs: int
    said: str


class StageRows(t.TypedDict):
    """All that a stage measured."""

    name: str
    checks: list[CheckRows]
    matrices: list[MatrixRows]


# What stages show besides their checks ---------------------------------------------------------------------------------------------------


class Curve(t.TypedDict):
    """The points of one curve, joined by a line unless they are `dots` or `bars`. `expected`: nobody measured it."""

    name: str
    x: t.Sequence[t.Any]
    y: t.Sequence[float]
    dots: t.NotRequired[bool]
    bars: t.NotRequired[bool]
    expected: t.NotRequired[bool]


class Chart(t.TypedDict):
    """A chart; `x` and `y` are what is along the axes, `moments` are (x, words) of what happened meanwhile."""

    title: str
    x: str
    y: str
    curves: list[Curve]
    moments: list[t.Any]


class SectionChart(Chart):
    """A chart of a section: `of` says whose it is."""

    of: str
    verdict: str
    simulated: bool


class Section(t.TypedDict):
    """A table of the report that a stage makes itself; `said` are lines above it. `picture` is SVG, whose texts its maker has escaped; only
    the page shows it."""

    title: str
    said: list[str]
    columns: list[str]
    rows: list[list[str]]
    charts: t.NotRequired[list[SectionChart]]
    picture: t.NotRequired[str]


# Findings --------------------------------------------------------------------------------------------------------------------------------


class CheckOf(t.TypedDict):
    """A check of a subject and its verdict."""

    stage: str
    check: str
    variant: str
    verdict: Word
    subject: str


class Finding(CheckOf):
    """A sentence about a subject, `reason`. `also` names the other checks that say it; `raw` is the file with the tool's output and
    `command` its command line, empty if nothing was measured."""

    reason: str
    evidence: list[str]
    raw: str | None
    command: str
    also: list[str]


class CauseRow(t.TypedDict):
    """A Cause (records/model.py) with the findings of its own checks; `name` is its subject in words, `title` that with the
    parts that it is about, `place` says where the parts are, one line each (records/parts.py), `advice` is what to do next."""

    subject: str
    kind: str
    verdict: str
    convicted: bool
    whole: bool
    said: str
    name: str
    title: str
    place: list[str]
    simulated: bool
    advice: list[str]
    findings: list[Finding]
    explains: list[CheckOf]


class NodeRow(NodeVerdict):
    """The verdict of a node, pair, switch or group with its findings."""

    findings: list[Finding]


class WarningRow(t.TypedDict):
    """A warning that a signature accepts; `subject` is empty if it is about the run as a whole."""

    text: str
    subject: str
    simulated: bool


class WaiverRow(t.TypedDict):
    """A verdict that a waiver makes KNOWN_FAIL; `of` is the verdict without it."""

    subject: str
    stage: str
    check: str
    variant: str
    reason: str
    ticket: str | None
    expires: str | None
    of: Word | None
    simulated: bool


# Facts and expectations ------------------------------------------------------------------------------------------------------------------


class Deviation(t.TypedDict):
    """A fact of a node that differs from what it must be or from what most nodes have; judging/drift.py says which by `basis`.

    `agree` of `of` nodes are as expected, `agreeing`; `differing` are those that share this value.
    """

    item: str
    found: str
    expected: str
    basis: str
    agree: int
    of: int
    agreeing: list[str]
    differing: list[str]
    severity: t.NotRequired[str]


class DriftRow(Deviation):
    """A deviation once for all nodes that have it."""

    simulated: bool


class ExpectationRow(t.TypedDict):
    """An expectation that was applied. `expected` and `floor` are in `unit`."""

    stage: str
    check: str
    metric: str | None
    expected: Number | None
    unit: str | None
    floor: Number | None
    layer: str | None
    source: str | None
    date: str | None
    confidence: str | None
    expectation: str | None


# How it was measured ---------------------------------------------------------------------------------------------------------------------


class CommandRow(t.TypedDict):
    """A command line, on how many nodes it ran, and one of them."""

    stage: str
    command: str
    nodes: int
    example: str


class VersionRow(t.TypedDict):
    """The version of a tool, on so many nodes; None where it is that of the controller."""

    name: str
    version: str
    nodes: int | None


class FaultRow(t.TypedDict):
    """A class of faults: how often it is met in the `field`, the checks that looked for it, on how many `nodes` `of` all, and `why` not on
    the others."""

    fault: str
    field: str
    checks: list[str]
    nodes: int
    of: int
    why: list[str]


class LookedFor(t.TypedDict):
    """The classes of faults; `missing` are those that no check looked for, `partly` those looked for on some nodes only,
    `unseen` what checks could not see, with the number of nodes."""

    rows: list[FaultRow]
    missing: list[str]
    partly: list[str]
    unseen: list[str]


class FileDigest(t.TypedDict):
    """A file in the folder of a run; `bytes` is None before it is written."""

    path: str
    bytes: int | None
    sha256: str


class RawDigest(t.TypedDict):
    """A file with the output of a tool."""

    path: str
    sha256: str


class EvidenceRows(t.TypedDict):
    """The evidence as it lies in the run's folder. `fingerprint` is the SHA-256 of the list of all files."""

    files: list[FileDigest]
    raw: list[RawDigest]
    fingerprint: str


class Coverage(t.TypedDict):
    """The planned checks: how many were `measured` (or do not apply), how many of them `skipped`, {verdict: number}, the share that was
    measured, and in words what is not known, and each planned check that was `not_measured`."""

    planned: int
    measured: int
    skipped: int
    verdicts: dict[str, int]
    ratio: float
    unknown: list[str]
    not_measured: list[str]


# Other runs ------------------------------------------------------------------------------------------------------------------------------


class ChangeRow(t.TypedDict):
    """The change of a number since earlier runs (judging/past.py)."""

    kind: str
    subject: str
    stage: str
    check: str
    variant: str
    metric: str
    simulated: bool
    sentence: str
    reason: str
    regression: bool


class PastRows(t.TypedDict):
    """The numbers of a run against their own past: `compared` have one that is long enough, `short` have not."""

    compared: int
    short: int
    regressions: int
    said: list[str]
    changes: list[ChangeRow]


class CheckOfSubject(t.TypedDict):
    """A check of a subject in two runs; `identity` is the identity of the machine (history/identity.py)."""

    subject: str
    identity: str
    simulated: bool
    stage: str
    check: str
    variant: str


class VerdictChange(CheckOfSubject):
    """A verdict that changed."""

    before: str
    after: str
    reason: str


class ValueChange(CheckOfSubject):
    """A number of two runs, both in `unit`. `scatter_pct` is how far the subject's numbers lay apart in the runs before, `beyond` is True
    if the change is larger; both are None if too few runs say so."""

    metric: str
    unit: str
    before: float
    after: float
    change_pct: float | None
    scatter_pct: float | None
    beyond: bool | None


class PlaceChange(t.TypedDict):
    """A subject that came, went, moved or was renamed, with its node before and after."""

    what: t.Literal["came", "went", "moved", "renamed"]
    kind: str
    subject: str
    identity: str
    simulated: bool
    before: str | None
    after: str | None


class FactChange(t.TypedDict):
    """A fact that changed, with the nodes that have it."""

    item: str
    before: str
    after: str
    nodes: list[str]


class Comparison(t.TypedDict):
    """The run `after` compared with the run `before`. `in_common` is the number of checks that both runs judged, `compared` that of
    numbers. `not_in_scope` are under `before` and `after` the nodes of the other run that this one was not to measure. `not_looked_up`
    values were not held against the scatter of their subject."""

    before: str
    after: str
    before_accepted: bool
    after_accepted: bool
    before_partial: bool
    after_partial: bool
    not_in_scope: dict[t.Literal["before", "after"], list[str]]
    in_common: int
    compared: int
    not_looked_up: int
    values: list[ValueChange]
    verdicts: list[VerdictChange]
    places: list[PlaceChange]
    facts: list[FactChange]


class ComparisonRows(Comparison):
    """The comparison with the last accepted run, with `said` in sentences."""

    said: list[str]


# The report ------------------------------------------------------------------------------------------------------------------------------


class Report(EvidenceRows):
    """A judged run as report/v1, in the order in which report.json has it.

    `word` is the result in one word for people and `why` in one sentence. `counts` is {verdict: number} of all verdicts, `coverage` those
    of planned checks. `blamed` and `counted` say in words how many nodes have a cause, of how many. `unlisted` is None if the files for
    other programs list every row.
    """

    schema: t.Literal["report/v1"]
    run_id: str
    planned_at: str
    created_at: str
    mode: str
    level: str
    passed: bool
    accepted: bool
    word: str
    why: str
    partial: bool
    left_out: list[str]
    skipped_stages: list[str]
    not_proven: list[str]
    simulated: bool
    counts: dict[str, int]
    coverage: Coverage
    notes: list[str]
    causes: list[CauseRow]
    blamed: str
    unlisted: Unlisted | None
    nodes: list[NodeRow]
    counted: str
    not_measured_by_plan: list[str]
    stages: list[StageRows]
    warnings: list[WarningRow]
    waivers: list[WaiverRow]
    drift: list[DriftRow]
    sample: dict[str, Sample]
    expectations: list[ExpectationRow]
    commands: list[CommandRow]
    versions: list[VersionRow]
    past: PastRows | None
    since: ComparisonRows | None
    looked_for: LookedFor
    sections: list[Section]
