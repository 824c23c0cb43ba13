# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The problems of the fleet of today: causes of runs that still hold, and verdicts that none of these causes explains.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import current
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bands import WORST_FIRST
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.causes import GOOD
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import keys
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.report_rows import CauseRow
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import alike

# Lines of each run.
CAUSES_OF_RUN = 20
# Verdicts that need a cause.
BAD = ("FAIL", "UNKNOWN")


class CauseLine(t.NamedTuple):
    """A cause of a run in one sentence, and the node that it is about, empty if it is about several."""

    run: str
    node: str
    verdict: str
    text: str
    simulated: bool


class WithoutCause(t.NamedTuple):
    """The nodes, groups and pairs with a verdict that no cause explains."""

    verdict: str
    names: tuple[str, ...]


class BadStage(t.NamedTuple):
    """A verdict of a node, group or pair in a stage."""

    name: str
    stage: str
    verdict: str


class OpenProblems:
    """Takes the causes of run after run, the newest first."""

    def __init__(self, fleet: current.Fleet) -> None:
        self.lines: list[CauseLine] = []
        self._fleet = fleet
        self._named: set[tuple[str, str]] = set()
        results = [(name, node.checks) for name, node in fleet.nodes.items()]
        results += [("|".join(ends), checks) for ends, checks in fleet.pairs.items()]
        self._unexplained = {
            BadStage(name, check.stage, result.verdict)
            for name, checks in results for check, result in checks.items() if result.verdict in BAD
        }  # fmt: skip

    @property
    def is_explained(self) -> bool:
        """Return True if each verdict that needs a cause has one."""
        return not self._unexplained

    def add(self, run: str, causes: t.Iterable[CauseRow], only_unexplained: bool = False) -> None:
        """Take the causes of a run that still hold, the worst first; of each name and verdict only the first, and those that say the same
        of many as one line. With `only_unexplained`, those that explain a verdict that has no cause yet."""
        found: list[CauseRow] = []
        for cause in causes:
            explained = _explained(cause)
            if not self._is_open(cause) or (only_unexplained and not explained & self._unexplained):
                continue
            # A cause that is shown no more explains its verdicts all the same.
            self._unexplained -= explained
            if (cause["name"], cause["verdict"]) not in self._named:
                self._named.add((cause["name"], cause["verdict"]))
                found.append(cause)
        lines = alike.lines(found)
        self.lines += [_line(run, first, said, len(of_line)) for first, said, of_line in lines[:CAUSES_OF_RUN]]
        if hidden := lines[CAUSES_OF_RUN:]:
            worst = min((first["verdict"] for first, _said, _causes in hidden), key=WORST_FIRST.index)
            self.lines.append(CauseLine(run, "", str(worst), f"{len(hidden)} more findings of run {run}", False))

    def worst_first(self) -> tuple[CauseLine, ...]:
        """Return the lines, those of one verdict together, of the newest run first: of a long list only the beginning is seen."""
        return tuple(sorted(self.lines, key=lambda line: WORST_FIRST.index(line.verdict)))

    def add_unreadable(self, run: str, text: str) -> None:
        """Take a run whose causes cannot be read."""
        self.lines.append(CauseLine(run, "", "UNKNOWN", text, False))

    def without_cause(self) -> tuple[WithoutCause, ...]:
        """Return the verdicts that have no cause, of each node, group and pair the worst one."""
        worst: dict[str, str] = {}
        for name, _stage, verdict in self._unexplained:
            worst[name] = min(worst.get(name, verdict), verdict, key=WORST_FIRST.index)
        names: dict[str, list[str]] = collections.defaultdict(list)
        for name, verdict in sorted(worst.items()):
            names[verdict].append(name)
        return tuple(WithoutCause(verdict, tuple(names[verdict])) for verdict in BAD if names[verdict])

    def _is_open(self, cause: CauseRow) -> bool:
        """Return False if newer runs have made all stages good in which a node was bad."""
        node = self._fleet.nodes.get(keys.node_of(cause["subject"]))
        stages = {check["stage"] for check in (*cause["findings"], *cause["explains"])}
        return node is None or any(result.verdict not in GOOD for check, result in node.checks.items() if check.stage in stages)


def _explained(cause: CauseRow) -> set[BadStage]:
    """Return the verdicts that a cause explains."""
    subject = keys.node_of(cause["subject"])
    checks = (*cause["findings"], *cause["explains"])
    return {BadStage(name, check["stage"], check["verdict"]) for check in checks for name in (keys.node_of(check["subject"]), subject)}


def _line(run: str, cause: CauseRow, said: str, count: int) -> CauseLine:
    node = keys.node_of(cause["subject"].partition("|")[0]) if cause["kind"] != "group" and count == 1 else ""
    return CauseLine(run, node, str(cause["verdict"]), said, bool(cause["simulated"]))
