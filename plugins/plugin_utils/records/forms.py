# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records of a run: what stands in its plan, its journal and its verdicts.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import math
import sys
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key

_MOST = sys.float_info.max  # a node can send a whole number of 400 digits


class Subject(t.TypedDict):
    """What a number is about. `members` are the parts or the nodes that it covers."""

    kind: str
    id: str
    members: list[str]


class Item(t.TypedDict):
    """One entry of a plan; in a todo it has the number of the attempt that it will be."""

    stage: t.NotRequired[str]
    check: str
    variant: str
    subject: Subject
    target: t.NotRequired[str]
    attempt: t.NotRequired[int]


class Metric(t.TypedDict):
    """A number with its unit; None where the tool printed none."""

    value: float | None
    unit: str


class Measurement(t.TypedDict):
    """measurement/v1: what one check saw on one subject. It holds no opinion."""

    schema: str
    run_id: str
    stage: str
    check: str
    variant: str
    subject: Subject
    plane: str
    target: str
    attempt: int
    outcome: str
    reason_code: str | None
    reason: str | None
    metrics: dict[str, Metric]
    series: list[dict[str, t.Any]]
    context: dict[str, t.Any]
    evidence: dict[str, t.Any]
    command: list[str]
    tool_version: str | None
    started_at: str
    duration_s: float
    raw: str | None
    raw_sha256: str | None
    simulated: bool


class Verdict(t.TypedDict):
    """verdict/v1: an expectation applied to a measurement, or why there is no verdict."""

    schema: str
    run_id: str
    stage: str
    check: str
    variant: str
    subject: Subject
    attempt: int | None
    simulated: bool
    verdict: str
    reason: str
    reason_code: str | None
    value: float | None
    unit: str | None
    floor: float | None
    layer: str | None
    source: str | None
    confidence: str | None
    metric: str | None
    expected: float | None
    date: str | None
    expectation: str | None
    ticket: str | None
    expires: str | None
    of: str | None
    regressed: bool
    findings: list[str]


class Cause(t.TypedDict):
    """What lies behind verdicts that are no PASS: a subject with its kind, `said` in one sentence; `own` are the checks of it that say
    so, `explains` those of others that are bad because of it. `convicted`: by its stage, from several tests; `whole`: `said` tells all.
    """

    subject: str
    kind: str
    convicted: bool
    whole: bool
    verdict: str
    said: str
    own: list[Key]
    explains: list[Key]


class NodeVerdict(t.TypedDict):
    """The verdict of a whole node with its parts, of a pair, a switch or a group, and that of each stage that has one of it."""

    name: str
    kind: str
    verdict: str
    stages: dict[str, str]
    simulated: bool


def number(value: t.Any) -> bool:
    """Whether it is a finite number; true and false are none."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and value is not True and value is not False and -_MOST <= value <= _MOST
