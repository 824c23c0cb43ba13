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

Options = t.Mapping[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Begun:
    """A run of which nothing is measured yet, or one that goes on. `left` is how many checks of its plan it still has to measure."""

    run_id: str
    folder: pathlib.Path
    plan: Plan
    left: int
    resumed: bool


@dataclasses.dataclass(frozen=True)
class Kept:
    """Measurements (measurement/v1) that have just come into the journal of a run: of one stage, from one inventory host. `folder` is the
    run's."""

    run_id: str
    folder: pathlib.Path
    stage: str
    target: str
    measurements: t.Sequence[t.Mapping[str, t.Any]]


@dataclasses.dataclass(frozen=True)
class Judged:
    """A run that was judged: its plan, the judgement, and what the forms of the report show (report/v1). `folder` is where they are
    written: the run's, and for a later judgement one in it."""

    run_id: str
    folder: pathlib.Path
    plan: Plan
    judgement: Judgement
    report: t.Mapping[str, t.Any]


class Sink:
    """Attributes and methods are what a sink may say of itself; what it does not say holds as here. It is told only of what it has a
    method for. `options` are its own, as Ansible's argument specs have them; where `no_log` is true the value is shown nowhere."""

    name: str = ""
    options: t.Mapping[str, t.Mapping[str, t.Any]] = {}

    def problem(self, options: Options) -> str | None:
        """Return an error in the sink's options that their argument spec cannot express, or None. Called before anything is measured."""
        return None

    def begun(self, of: Begun, options: Options) -> None:
        """When the plan is written, before anything is measured."""

    def kept(self, of: Kept, options: Options) -> None:
        """In the worker that has measured, while others wait for it: see sinks/telling.py for how long it may take."""

    def judged(self, of: Judged, options: Options) -> None:
        """When the run is judged and its report written."""

    def wants(self, event: str) -> bool:
        """Return True if the sink has a method of its own for an event."""
        return getattr(type(self), event) is not getattr(Sink, event)
