# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run while it is in progress: which checks of each node and stage are measured, the last lines of its log and of the tools on its nodes.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import pathlib
import threading
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.runner import KEY, MeasuredChecks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history.searching import FoundVerdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import live
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import keys
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RUN_ID, Run

# Runs whose plan and journal are remembered.
MOST_RUNS = 16
LOG_BYTES, LOG_LINES = 64 * 1024, 60


@dataclasses.dataclass
class Cell:
    """The checks of one node in one stage. `failed` are those of which the test itself did not end well. `verdict` is the worst of them,
    empty before they are judged and if all passed or were skipped."""

    planned: int = 0
    measured: int = 0
    failed: int = 0
    verdict: str = ""

    @property
    def state(self) -> str:
        if self.verdict:
            return self.verdict
        if self.failed:
            return "failed"
        return "done" if self.measured >= self.planned else "begun" if self.measured else "open"


class RunGrid(t.NamedTuple):
    """The cells of a run by node and stage, and the sums of its stages in the order of the plan."""

    nodes: t.Mapping[str, t.Mapping[str, Cell]]
    stages: t.Mapping[str, Cell]


def judged(grid: RunGrid, rows: t.Iterable[FoundVerdict]) -> RunGrid:
    """Return the grid of a run with the verdicts that are no pass: a check that was measured and failed is not done well."""
    for row in rows:
        nodes = [grid.nodes.get(keys.node_of(end), {}) for end in row["subject"].split("|")]
        for cell in (cells[row["stage"]] for cells in (grid.stages, *nodes) if row["stage"] in cells):
            cell.verdict = min(row["verdict"], cell.verdict or row["verdict"], key=WORST_FIRST.index)
    return grid


class _FollowedRun:
    """A run whose plan was read, and the part of its journal that was read so far."""

    def __init__(self, folder: pathlib.Path) -> None:
        plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        # {(stage, check, variant, subject): its nodes}
        self.planned: dict[tuple[str, str, str, str], tuple[str, ...]] = {}
        for item in plan["items"]:
            subject = item["subject"]
            nodes = tuple(subject.get("members") or ()) or (keys.node_of(subject["id"]),)
            self.planned[item["stage"], item["check"], item["variant"], subject["id"]] = nodes
        self.checks = MeasuredChecks(folder)
        self.lock = threading.Lock()


class RunProgress:
    """Reads the progress of runs. `logs` is the folder of the actions of the runner, None if it is on another machine."""

    def __init__(self, results: pathlib.Path, logs: pathlib.Path | None) -> None:
        self._results, self._logs = results, logs
        self._followed: dict[str, _FollowedRun] = {}
        self._lock = threading.Lock()

    def grid(self, run: str) -> RunGrid | None:
        """Return the grid of a run; None before it has a plan, or if its folder is gone."""
        if not RUN_ID.fullmatch(run):
            return None
        try:
            followed = self._follow(run)
            with followed.lock:
                outcomes = followed.checks.outcomes()
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # the plan is being written, or its page of results says what is wrong with it
        nodes: dict[str, dict[str, Cell]] = collections.defaultdict(dict)
        stages: dict[str, Cell] = {}
        for key, names in followed.planned.items():
            outcome = outcomes.get(key)
            for cells, name in ((stages, key[0]), *((nodes[node], key[0]) for node in names)):
                cell = cells.setdefault(name, Cell())
                cell.planned += 1
                cell.measured += outcome is not None
                cell.failed += outcome not in (None, "measured", "not_applicable")
        return RunGrid(dict(sorted(nodes.items())), stages)

    def _follow(self, run: str) -> _FollowedRun:
        with self._lock:
            if run not in self._followed:
                if len(self._followed) >= MOST_RUNS:
                    self._followed.clear()
                self._followed[run] = _FollowedRun(self._results / run)
            return self._followed[run]

    def output(self, run: str, node: str) -> live.Output | None:
        """Return the last lines that the tool on a node has printed, and have them fetched while somebody asks; None if the run has no such
        node or is not in progress."""
        grid = self.grid(run)
        return live.look(Run(self._results, run), node) if grid and node in grid.nodes else None

    def log(self, uid: str, node: str = "") -> list[str]:
        """Return the last lines of an action's log, only those that name `node` if it is not empty."""
        if self._logs is None or not KEY.match(uid):
            return []
        try:
            with open(self._logs / uid / "log", "rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return []
        return [line for line in lines if line.strip() and node in line][-LOG_LINES:]
