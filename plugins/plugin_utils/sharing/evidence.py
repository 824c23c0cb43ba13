# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The evidence of a case: pods with their logs, samples of every scheduler, the changes that were made. No rule is applied here.

Times are seconds since the start of the case, by the controller's clock.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.folded import Folded
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.lines import LogLine
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.scraped import SystemExposition
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.system import System

# Phases of a pod. A pod of a Job has the phase of its current replacement.
SUCCEEDED, FAILED, RUNNING, PENDING = "Succeeded", "Failed", "Running", "Pending"
# The samples of every case: before its first step, and after its last.
BASELINE, END = "baseline", "end"


@dataclasses.dataclass
class CasePod:
    """A pod of a case. `log` is None if it could not be read. `pod` is the current pod of its Job, and `replaced` counts the pods before
    it. `removed`: a step has removed it; its other fields then keep their last values."""

    name: str
    group: str
    namespace: str
    workload: str = ""
    core: float | None = None
    memory: float | None = None
    phase: str = PENDING
    words: str = ""
    node: str = ""
    made_at: float = 0.0
    ended_at: float | None = None
    replaced: int = 0
    log: list[LogLine] | None = None
    pod: str = ""
    removed: bool = False
    # The number of the step that brought the pod together with others; 0 without one.
    batch: int = 0

    @property
    def current_name(self) -> str:
        """Return the name of the current pod in the cluster, under which the sharing system knows it."""
        return self.pod or self.name


@dataclasses.dataclass
class Scrape:
    """One answer of one scheduler. `health` and `status` are HTTP statuses, 0 without an answer."""

    scheduler: str
    node: str
    at: float
    took_s: float = 0.0
    status: int = 0
    health: int = 0
    exposition: SystemExposition | None = None
    problem: str = ""


@dataclasses.dataclass
class Process:
    """The process of a scheduler on a node. `ahead_s`: seconds that the node's clock is ahead of the API server's. A field is None if it
    could not be read."""

    scheduler: str
    node: str
    pid: int | None = None
    rss_kb: float | None = None
    fds: float | None = None
    problem: str = ""
    ahead_s: float | None = None


@dataclasses.dataclass
class SystemSample:
    """One sample of the whole system. `schedulers` is {running scheduler: restarts of its containers}; `expected` is the number that should
    run, one for each node with shared GPUs. `processes` is empty if they were not sampled."""

    name: str
    at: float
    schedulers: dict[str, int] = dataclasses.field(default_factory=dict)
    expected: int = 0
    scrapes: list[Scrape] = dataclasses.field(default_factory=list)
    processes: list[Process] = dataclasses.field(default_factory=list)
    phases: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class QuotaChange:
    """A quota that was changed while pods ran. `marks` is {pod or scheduler: time of the last line of its log before the change}. `seen_s`
    is the time in seconds until the metrics of every pod showed the change, None if they never did. `settled` is {pod: time of the last
    line of its log at that moment}. `written` has the pods for which a scheduler had logged the change before the next one."""

    name: str
    group: str
    kind: str
    old_value: float | None
    value: float
    at: float
    marks: dict[str, str] = dataclasses.field(default_factory=dict)
    seen_s: float | None = None
    settled: dict[str, str] = dataclasses.field(default_factory=dict)
    written: set[str] = dataclasses.field(default_factory=set)
    # {pod: the scheduler of its node} if what that log has begins after the change: earlier lines are gone.
    cut: dict[str, str] = dataclasses.field(default_factory=dict)

    def since(self, pod: str) -> str | None:
        """Return the time in the pod's log from which on the change was in effect, None if it is not known."""
        return self.settled.get(pod, self.marks.get(pod))


@dataclasses.dataclass
class CaseEvidence:
    """The evidence of one case. `actions` is {name of an action: True if it succeeded, False if not, or a text that says why that is not
    known}. `logs` is {scheduler: its lines since the case began}, None for a log that could not be read."""

    system: System
    parameters: t.Mapping[str, float]
    pods: list[CasePod] = dataclasses.field(default_factory=list)
    samples: dict[str, Folded[SystemSample]] = dataclasses.field(default_factory=dict)
    changes: dict[str, QuotaChange] = dataclasses.field(default_factory=dict)
    logs: dict[str, list[LogLine] | None] = dataclasses.field(default_factory=dict)
    plugin_logs: dict[str, list[LogLine] | None] = dataclasses.field(default_factory=dict)
    actions: dict[str, bool | str] = dataclasses.field(default_factory=dict)
    # {watch: {node: {index of a GPU: its utilisation in percent, one number per second}}}, as the driver reports it.
    busy: dict[str, dict[str, dict[str, list[float]]]] = dataclasses.field(default_factory=dict)
    # Why the steps ended early; empty if all ran.
    stopped: str = ""
    # One object for each value that samples have in common, so that equal values take memory once.
    _once: dict[t.Any, t.Any] = dataclasses.field(default_factory=dict)

    def sampled(self, sample: SystemSample) -> None:
        """Add a finished sample."""
        once, numbers = self._once.setdefault, 0
        for scrape in sample.scrapes:
            scrape.scheduler, scrape.node = once(scrape.scheduler, scrape.scheduler), once(scrape.node, scrape.node)
            if scrape.exposition:
                scrape.exposition.form = once(scrape.exposition.form, scrape.exposition.form)
                numbers += len(scrape.exposition.values)
        sample.schedulers, sample.phases = (once(tuple(of.items()), of) for of in (sample.schedulers, sample.phases))
        if self.samples.setdefault(sample.name, Folded()).append(sample, 1 + 8 * len(sample.scrapes) + numbers):
            self._once.clear()

    def of(self, group: str) -> list[CasePod]:
        return [pod for pod in self.pods if group in ("all", pod.group)]
