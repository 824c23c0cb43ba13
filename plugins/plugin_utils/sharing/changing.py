# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Quotas that are changed while pods run: the change, the wait until the metrics show it, and the log lines about it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import lines, quantities
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cluster import SCHEDULER
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import QuotaChange, SystemSample
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.looking import Looking
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.podwork import PodWork
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.running import RunningCase, Stopped
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words import changes

# How many of the last changes may still appear in logs when the next one is made, and the tolerance in seconds for clocks of nodes.
RECENT, LATE_S = 2, 15.0
# Seconds in which a log line about a change that the metrics show must have reached the API.
LOGGED_S = 5.0
# Seconds in which a pod must have heard of a change that the metrics show.
TOLD_S = 0.5


class Changing:
    """Changes the quotas of one case's pods."""

    def __init__(self, run: RunningCase, pods: PodWork, looking: Looking) -> None:
        self.run, self.pods, self.looking = run, pods, looking

    def change(self, arguments: t.Mapping[str, t.Any]) -> None:
        """Change a quota of a group, and wait until the metrics show it if the step says so. A step with `remove` removes the annotation;
        its quota is then the one that the system falls back to."""
        run = self.run
        kind = "core" if "core" in arguments else "memory"
        if kind not in run.system.annotations:
            raise Stopped(f"system {run.system.name} cannot change the {kind} quota of a pod that runs")
        value = quantities.number_of(arguments[kind])
        self.store_written()
        pods = self.pods.live(arguments["group"])
        old_values = {getattr(pod, kind) for pod in pods}
        marks = self._marks("all")  # what other pods log after the change is looked at too
        for daemon in run.cluster.daemons(SCHEDULER):
            mark = _mark(run.cluster.daemon_log(daemon.name, tail=1))
            if mark is not None:
                marks[daemon.name] = mark
        at = run.at()
        text = None if arguments.get("remove") else str(arguments[kind])
        run.cluster.annotate([pod.current_name for pod in pods], {run.system.annotations[kind]: text})
        old_value = old_values.pop() if len(old_values) == 1 else None
        change = QuotaChange(arguments["as"], arguments["group"], kind, old_value, value, at, marks)
        for pod in pods:
            setattr(pod, kind, value)
        run.evidence.changes[change.name] = change
        if arguments.get("observe"):
            self.observe(change, arguments)

    def observe(self, change: QuotaChange, arguments: t.Mapping[str, t.Any]) -> None:
        """Wait until the metrics of every pod show a change, then read the schedulers' log lines about it. Earlier changes of the same
        group that were not seen yet are noted too."""
        run, pending = self.run, self._unseen(change)
        if change.seen_s is not None or not pending:
            return
        nodes = {pod.node for pod in self.pods.live(change.group)}

        def observed() -> bool:
            sample = self.looking.scrape_all("", {run.system.quotas[candidate.kind] for candidate in pending}, nodes=nodes)
            for candidate in pending:
                if candidate.seen_s is None and self._shows(sample, candidate):
                    candidate.seen_s = run.at() - candidate.at
            return change.seen_s is not None

        timeout = float(arguments.get("timeout", run.parameters.numbers["dynamic_update_observe_timeout_s"]))
        run.until(observed, timeout, run.parameters.interval(run.parameters.numbers["metrics_scrape_interval_s"]) / 2)
        run.cluster.sleep(TOLD_S)
        for candidate in pending:
            if candidate.seen_s is not None:
                candidate.settled = self._marks(candidate.group)
        if run.system.scheduler and not run.until(self.store_written, LOGGED_S):
            self._note_cut(change)

    def store_written(self) -> bool:
        """Store what the schedulers logged about recent changes, and return True if nothing is missing. A kubelet keeps only the end of a
        log: with debug output a scheduler fills 10 MiB in minutes, and the API has the current file only."""
        run = self.run
        late = [change for change in list(run.evidence.changes.values())[-RECENT:] if self._is_unwritten(change)]
        if not late:
            return True
        since = run.at() - min(change.at for change in late) + LATE_S
        for daemon in run.cluster.daemons(SCHEDULER):
            log = lines.lines_of(run.cluster.daemon_log(daemon.name, since_s=since) or [])
            for change in late:
                change.written |= changes.written(run.evidence, change, daemon.name, log)
        return not any(map(self._is_unwritten, late))

    def _note_cut(self, change: QuotaChange) -> None:
        """Note the pods whose scheduler's log does not reach back to the change any more: a missing line proves nothing of them."""
        run = self.run
        pods = [pod for pod in self.pods.live(change.group) if pod.name not in change.written]
        for daemon in run.cluster.daemons(SCHEDULER):
            here, mark = [pod for pod in pods if pod.node == daemon.node], change.marks.get(daemon.name)
            if not here or not mark:
                continue
            log = run.cluster.daemon_log(daemon.name)
            if log is not None and not lines.up_to(lines.lines_of(log), mark):
                change.cut.update({pod.name: daemon.name for pod in here})

    def _is_unwritten(self, change: QuotaChange) -> bool:
        return len(change.written) < len(self.pods.live(change.group))

    def _unseen(self, change: QuotaChange) -> list[QuotaChange]:
        """Return the changes of the same group that the metrics can still show: only the last change of each quota."""
        changes = self.run.evidence.changes.values()
        return [
            candidate
            for candidate in changes
            if candidate.seen_s is None
            and candidate.group == change.group
            and candidate.kind in self.run.system.quotas
            and not any(later.kind == candidate.kind and later.at > candidate.at for later in changes)
        ]

    def _shows(self, sample: SystemSample, change: QuotaChange) -> bool:
        label = self.run.system.labels["pod"]
        values: dict[str, float] = {}
        for scrape in sample.scrapes:
            for series in scrape.exposition.of(self.run.system.quotas[change.kind]) if scrape.exposition else ():
                values[series.labels.get(label, "")] = series.value
        pods = self.pods.live(change.group)
        return bool(pods) and all(values.get(pod.current_name) == change.value for pod in pods)

    def _marks(self, group: str) -> dict[str, str]:
        """Return {pod: time of the last line of its log} for the pods whose log can be read."""
        marks = {pod.name: _mark(self.run.cluster.log(pod.current_name, 1)) for pod in self.pods.live(group)}
        return {name: mark for name, mark in marks.items() if mark is not None}


def _mark(log: list[str] | None) -> str | None:
    """Return the time of the last line of a log: "" if the log is empty, None if it could not be read."""
    return None if log is None else lines.last_stamp(log)
