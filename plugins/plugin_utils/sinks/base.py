# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface of a sink: it is told of a run that begins, of measurements that were stored, and of a judged run. It changes none of them.

A sink of a team's own is a module of its collection with `SINK = ...()`, named in `acceptance_sinks`; docs/sinks.md is the way through it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.judgement import Judgement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Plan
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import Report

Options = t.Mapping[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Begun:
    """A run that begins or is resumed. `left` is the number of checks that it still has to measure."""

    run_id: str
    folder: pathlib.Path
    plan: Plan
    left: int
    resumed: bool


@dataclasses.dataclass(frozen=True)
class Kept:
    """New measurements (measurement/v1) in the journal of a run, of one stage and one inventory host. `folder` is the run's."""

    run_id: str
    folder: pathlib.Path
    stage: str
    target: str
    measurements: t.Sequence[t.Mapping[str, t.Any]]


@dataclasses.dataclass(frozen=True)
class Judged:
    """A judged run: its plan, its judgement and its report (report/v1). `folder` is where the report is written: the run's folder, or for a
    later judgement a folder in it."""

    run_id: str
    folder: pathlib.Path
    plan: Plan
    judgement: Judgement
    report: Report


class Sink:
    """The base class of sinks. A sink overrides the attributes and methods that it needs, and is called only for events whose method it
    overrides. `options` is an argument spec of Ansible; the value of an option with `no_log` is never shown."""

    name: str = ""
    options: t.Mapping[str, t.Mapping[str, t.Any]] = {}

    def problem(self, options: Options) -> str | None:
        """Return an error in the sink's options that their argument spec cannot express, or None. Called before anything is measured."""
        return None

    def begun(self, of: Begun, options: Options) -> None:
        """Called when the plan is written, before anything is measured."""

    def kept(self, of: Kept, options: Options) -> None:
        """Called in the worker that has measured; the stage waits for it. sinks/telling.py has the time limits."""

    def judged(self, of: Judged, options: Options) -> None:
        """Called when the run is judged and its report is written."""

    def wants(self, event: str) -> bool:
        """Return True if the sink has a method of its own for an event."""
        return getattr(type(self), event) is not getattr(Sink, event)
