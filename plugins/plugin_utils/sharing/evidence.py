# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Observations of a running case: pods with their logs, samples of every scheduler, the changes that were made. They hold no opinion.

Seconds count from the start of the case, by the controller's clock.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.folded import Folded
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.lines import LogLine
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.scraped import SystemExposition
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.system import System

# Phases of a pod; a Job's pod that another replaces counts as that one.
SUCCEEDED, FAILED, RUNNING, PENDING = "Succeeded", "Failed", "Running", "Pending"


@dataclasses.dataclass
class CasePod:
    """A pod that a case made. `log` is None where it could not be read; `replaced`: how many pods of its Job came before `pod`, which is
    the one that stands for it now; `gone`: it was removed by a step, and is what it was then."""

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
    gone: bool = False

    @property
    def known(self) -> str:
        """By what name the system knows it."""
        return self.pod or self.name


@dataclasses.dataclass
class Scrape:
    """One answer of one scheduler. `health` and `status` are HTTP statuses, 0 where nothing answered."""

    scheduler: str
    node: str
    at: float
    took_s: float = 0.0
    status: int = 0
    health: int = 0
    exposition: SystemExposition | None = None
    problem: str = ""
    # By how much its clock is ahead of the API server's.
    ahead_s: float | None = None


@dataclasses.dataclass
class Process:
    """The scheduler's own process on a node; None for what could not be read."""

    scheduler: str
    node: str
    pid: int | None = None
    rss_kb: float | None = None
    fds: float | None = None
    problem: str = ""


@dataclasses.dataclass
class SystemSample:
    """One look at the whole system. `schedulers`: {pod: how often its containers were restarted}, of those that run; `expected` how many
    there should be, one for each node with shared GPUs. `processes` is empty where they were not asked for."""

    name: str
    at: float
    schedulers: dict[str, int] = dataclasses.field(default_factory=dict)
    expected: int = 0
    scrapes: list[Scrape] = dataclasses.field(default_factory=list)
    processes: list[Process] = dataclasses.field(default_factory=list)
    phases: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class QuotaChange:
    """A quota that was changed while pods ran. `marks` has, of each log that could tell of it, the time of the last line before it;
    `seen_s` how long it took until the metrics of every pod said it, None where they never did; `settled` has, of each pod's log, the
    time of the last line before they said it; `written` are the pods of which a scheduler had written it before the next change."""

    name: str
    group: str
    kind: str
    before: float | None
    value: float
    at: float
    marks: dict[str, str] = dataclasses.field(default_factory=dict)
    seen_s: float | None = None
    settled: dict[str, str] = dataclasses.field(default_factory=dict)
    written: set[str] = dataclasses.field(default_factory=set)

    def since(self, pod: str) -> str | None:
        """From when on what this pod does is what the change came to; None where nobody knows."""
        return self.settled.get(pod, self.marks.get(pod))


@dataclasses.dataclass
class CaseEvidence:
    """All of one case. `done`: {name of an action: whether it ended well, or why nobody knows}. `logs`: {scheduler's pod: its lines since
    the case began}, None where one could not be read."""

    system: System
    parameters: t.Mapping[str, float]
    pods: list[CasePod] = dataclasses.field(default_factory=list)
    samples: dict[str, Folded[SystemSample]] = dataclasses.field(default_factory=dict)
    changes: dict[str, QuotaChange] = dataclasses.field(default_factory=dict)
    logs: dict[str, list[LogLine] | None] = dataclasses.field(default_factory=dict)
    plugin_logs: dict[str, list[LogLine] | None] = dataclasses.field(default_factory=dict)
    done: dict[str, bool | str] = dataclasses.field(default_factory=dict)
    # {watch: {node: {index of a GPU: percent of each second in which it computed}}}, as the driver says.
    busy: dict[str, dict[str, dict[str, list[float]]]] = dataclasses.field(default_factory=dict)
    # Why the steps did not go on to their end.
    stopped: str = ""
    # What answers and looks have in common, one of each.
    _once: dict[t.Any, t.Any] = dataclasses.field(default_factory=dict)

    def sampled(self, sample: SystemSample) -> None:
        """Keep a look, which does not change any more."""
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
