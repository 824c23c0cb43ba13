# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The events of a node since a run convicted it: given back, booted, or found good by a later run. An old conviction of a repaired
node drains it no more.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import functools
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.node_control import NodeState
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine import convictions, reason
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine.convictions import Conviction, Judged
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine.ledger import SEEN, Ledger
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.quarantine.measured import Measured
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import judged_runs

AGAIN = "measure it again"
GOOD = frozenset({"PASS", "WARN"})


class LaterRuns:
    """The judged runs of a results folder that began after a time, the newest first; each is read when somebody asks for it."""

    def __init__(self, results_dir: str, run: str) -> None:
        self.results_dir = results_dir
        # Of two runs that began in one second nobody knows which was first.
        self.ids = [name for name in judged_runs.run_ids(results_dir) if reason.began(name) > reason.began(run)]
        self._read = functools.lru_cache(maxsize=None)(self._judged)

    def _judged(self, run: str) -> Judged | None:
        try:
            return convictions.read(self.results_dir, run)
        except RunError:
            return None  # not judged yet, or not as it was written: it says nothing

    def __iter__(self) -> t.Iterator[Judged]:
        for run in self.ids:
            judged = self._read(run)
            if judged is not None:
                yield judged


def about(judged: Judged, conviction: Conviction) -> bool | None:
    """Return True if a run finds good what convicts a node in another one, False if it convicts the node for it, too, None if it did not
    measure it. Pairs count with any partner, and parts under any name: a part may have been replaced."""
    if conviction.simulated < (conviction.node in judged.simulated):
        return None
    if convictions.confirmed(conviction, judged):
        return False
    wanted = {(key.stage, key.check) for key in conviction.checks}
    words = [(key, word) for key, word in judged.of_node(conviction.node) if (key.stage, key.check) in wanted]
    measured = {(key.stage, key.check) for key, _word in words}
    return True if wanted and measured == wanted and all(word in GOOD for _key, word in words) else None


class Since:
    """The events of nodes since the run `judged`."""

    def __init__(self, judged: Judged, measured: Measured, ledger: Ledger, later: t.Iterable[Judged]) -> None:
        self.run, self.measured, self.ledger, self.later = judged.run, measured, ledger, later
        self.began = reason.began(judged.run)

    def why_not(self, conviction: Conviction, state: NodeState) -> str:
        """Return why a node is not what the run has convicted any more, in words; empty if nothing is known against it."""
        return self.what_happened(state) or self._found_good(conviction)

    def what_happened(self, state: NodeState) -> str:
        """Return what has been done to a node since the run, in words; empty if nothing is known."""
        return self._given_back(state) or self._restarted(state)

    def _given_back(self, state: NodeState) -> str:
        mark = reason.mark_of(state.reason)
        if mark is not None and not state.held and mark.at >= self.began:
            return f"it was taken at {_at(mark.at)} for run {mark.run}, and somebody has given it back since: {AGAIN}"
        returned, drained = self.ledger.last(state.name, "resume"), self.ledger.last(state.name, "drain")
        if returned is not None and returned.at >= self.began:
            return f"it was given back at {_at(returned.at)}, after run {self.run} began: {AGAIN}"
        if drained is not None and drained.at >= self.began and not state.held:
            return f"it was taken at {_at(drained.at)} for run {drained.run}, and somebody has given it back since: {AGAIN}"
        seen = self.ledger.last(state.name, SEEN)
        if seen is not None and seen.at >= self.began and not state.held:
            return f"it was out of service at {_at(seen.at)}, after run {self.run} began, and somebody has given it back since: {AGAIN}"
        return ""

    def _restarted(self, state: NodeState) -> str:
        ended, boot = self.measured.ended.get(state.name, self.began), self.measured.boots.get(state.name, "")
        if state.since > ended:
            return f"it is there since {_at(state.since)}, and run {self.run} measured it last at {_at(ended)}: {AGAIN}"
        if state.boot and boot and state.boot != boot:
            return f"it has been restarted since run {self.run} measured it: {AGAIN}"
        return ""

    def _found_good(self, conviction: Conviction) -> str:
        for judged in self.later:
            good = about(judged, conviction)
            if good is not None:
                return f"run {judged.run}, which is newer, finds it good" if good else ""
        return ""


def _at(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
