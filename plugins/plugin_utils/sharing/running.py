# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a case that runs, which the parts of the engine share: its settings, clock, cluster and evidence.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import concurrent.futures
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import AcceptanceError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cases import Case
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cluster import Cluster
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import BASELINE, FAILED, SUCCEEDED, CaseEvidence
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.parameters import Parameters
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.system import System

# Stores a text under a path below the case's folder. A text for a PACKED path is appended to the earlier ones.
Store = t.Callable[[str, str], None]
PACKED = ".gz"

OVER = (SUCCEEDED, FAILED)
# Seconds between two looks at the pods.
POLL_S = 1.0
REQUESTS_AT_ONCE = 8


class Stopped(AcceptanceError):
    """The steps cannot go on: a wait timed out. The evidence collected so far is judged all the same."""


class RunningCase:
    """One case on one cluster. `node` is the node that a destructive case may use, empty if there is none."""

    def __init__(self, case: Case, system: System, parameters: Parameters, cluster: Cluster, store: Store, node: str = "") -> None:
        self.case = case
        self.system = system
        self.parameters = parameters
        self.cluster = cluster
        self.store = store
        self.node = node
        self.evidence = CaseEvidence(system, parameters.numbers)
        self.began = cluster.now()
        self.askers = concurrent.futures.ThreadPoolExecutor(REQUESTS_AT_ONCE)

    def at(self) -> float:
        """Return the seconds since the case began."""
        return self.cluster.now() - self.began

    def until(self, met: t.Callable[[], bool], timeout: float, every: float | None = None) -> bool:
        """Return True if a condition became true in time. It is tested once more at the end, so that a slow test does not miss it."""
        every = self.parameters.interval(POLL_S) if every is None else every
        end = self.cluster.now() + timeout
        while True:
            late = self.cluster.now() >= end
            if met():
                return True
            if late:
                return False
            self.cluster.sleep(min(every, max(0.05, end - self.cluster.now())))

    def gpu_memory(self) -> dict[str, list[float]]:
        """Return {node: memory of its GPUs in bytes} for the schedulers that answered in the baseline sample."""
        baseline = self.evidence.samples.get(BASELINE, ())
        return {
            scrape.node: [series.value for series in scrape.exposition.of("gpu_memory_total_bytes")]
            for sample in baseline
            for scrape in sample.scrapes
            if scrape.exposition
        }
