# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples of the sharing system: metrics, health and processes of its schedulers, and what the drivers report.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import math
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import dmon, scraped
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cluster import SCHEDULER, Daemon
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import END, CasePod, Scrape, SystemSample
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.running import OVER, RunningCase, Stopped

TOOL_S = 30.0
# Seconds of `nvidia-smi dmon` that a median needs at least.
SHORTEST_DMON_S = 3
# Seconds of it beside the load of a case, and the most nodes on which it runs at once: others ask the schedulers meanwhile.
DMON_S, DMON_NODES = 10, 4


class Looking:
    """Takes the samples of one case."""

    def __init__(self, run: RunningCase) -> None:
        self.run = run

    def sample(self, name: str, processes: bool = False) -> SystemSample:
        """Sample all schedulers with all their metrics, and store the texts."""
        run = self.run
        sample = self.scrape_all(name, None, complete=True)
        if processes:
            daemons = run.cluster.daemons(SCHEDULER) if run.system.scheduler else []
            sample.processes = list(run.askers.map(run.cluster.process, daemons))
            self._store_processes(sample)
        run.evidence.sampled(sample)
        return sample

    def scrape_all(
        self, name: str, only: t.Collection[str] | None, complete: bool = False, nodes: t.Collection[str] = ()
    ) -> SystemSample:  # fmt: skip
        """Return a sample of the schedulers. `only`: parse these metrics alone. `complete`: query the health too, and store the texts.
        `nodes`: query only the schedulers on these nodes; all other facts of the sample are about all schedulers."""
        run = self.run
        if not run.system.scheduler:
            return SystemSample(name, run.at())
        daemons = run.cluster.daemons(SCHEDULER)
        sample = SystemSample(name, run.at(), {daemon.name: daemon.restarts for daemon in daemons}, len(run.cluster.sharing_nodes()))
        if "metrics" in run.system.has:
            queried = [daemon for daemon in daemons if daemon.node in nodes] if nodes and all(nodes) else daemons
            answers = list(run.askers.map(lambda daemon: self._scrape(daemon, only, complete), queried))
            sample.scrapes = [scrape for scrape, _text in answers]
            if complete:
                self._store_texts(name, answers)
        sample.phases = {pod.name: pod.phase for pod in run.evidence.pods if not pod.removed}
        return sample

    def _scrape(self, daemon: Daemon, only: t.Collection[str] | None, complete: bool) -> tuple[Scrape, str]:
        run, at = self.run, self.run.at()
        answer = run.cluster.ask(daemon.name, str(run.system.scheduler["metrics"]))
        scrape = Scrape(daemon.name, daemon.node, at, answer.took_s, answer.status, problem=answer.problem)
        if answer.status == 200:
            scrape.exposition = scraped.parse(answer.text, run.system.metrics, only)
            scrape.problem = scrape.exposition.wrong
        if complete:
            scrape.health = run.cluster.ask(daemon.name, str(run.system.scheduler["health"])).status
        return scrape, answer.text

    def _store_texts(self, name: str, answers: t.Sequence[tuple[Scrape, str]]) -> None:
        file = self._suffix(name)
        head = "# scheduler {0.scheduler} on {0.node}\n"
        self.run.store(f"metrics{file}.txt", "".join(f"{head.format(scrape)}{text}\n" for scrape, text in answers))
        health = "".join(f"{head.format(scrape)}HTTP_CODE={scrape.health:03}\n" for scrape, _text in answers)
        self.run.store(f"metrics_health{file}.txt", health)

    def _store_processes(self, sample: SystemSample) -> None:
        texts = (
            f"POD={process.scheduler} NODE={process.node} PID={process.pid} VMRSS_KB={process.rss_kb} FD_COUNT={process.fds}\n"
            for process in sample.processes
        )
        self.run.store(f"scheduler_proc{self._suffix(sample.name)}.txt", "".join(texts))

    def _suffix(self, name: str) -> str:
        """Return what the files of a sample have in their names: nothing for the last one of a case."""
        number = len(self.run.evidence.samples.get(name, ()))
        return {END: ""}.get(name, f"_{name}") + (f"_{number}" if number else "")

    def under_load(self, nodes: t.Collection[str]) -> list[tuple[str, concurrent.futures.Future[str | None]]]:
        """Start `nvidia-smi dmon` on some nodes, and return (node, its output to come) for each."""
        run = self.run
        argv = dmon.command(DMON_S if run.parameters.scale == 1 else SHORTEST_DMON_S)
        daemons = [daemon for daemon in run.cluster.daemons(SCHEDULER) if daemon.node in nodes] if run.system.scheduler else []
        return [(daemon.node, run.askers.submit(run.cluster.tool, daemon.name, argv, TOOL_S)) for daemon in daemons[:DMON_NODES]]

    def gpus_of_pods(self, pods: t.Sequence[CasePod], refresh: t.Callable[[], None]) -> dict[str, str]:
        """Wait until the schedulers know all of these pods, or until all have ended, at most `running_timeout_s`. Return {pod: its GPU} for
        the pods they know. A running pod becomes a client only after it has loaded its library. `refresh` updates the state of the pods."""
        run, label = self.run, self.run.system.labels
        if "metrics" not in run.system.has:
            raise Stopped(f"system {run.system.name} does not say on which GPU a pod is")
        gpus: dict[str, str] = {}

        def all_of_them() -> bool:
            names = {pod.current_name for pod in pods}
            for scrape in self.scrape_all("", {"client_info"}).scrapes:
                for series in scrape.exposition.series if scrape.exposition else ():
                    if series.labels.get(label["pod"]) in names and series.labels.get(label["gpu"]):
                        gpus[series.labels[label["pod"]]] = series.labels[label["gpu"]]
            refresh()
            return len(gpus) == len(names) or all(pod.phase in OVER for pod in pods)

        run.until(all_of_them, run.parameters.numbers["running_timeout_s"])
        return gpus

    def clients(self, pods: t.Sequence[CasePod]) -> list[t.Mapping[str, str]]:
        """Return the labels that the schedulers now have for these pods."""
        label, names = self.run.system.labels["pod"], {pod.current_name for pod in pods}
        expositions = (scrape.exposition for scrape in self.scrape_all("", {"client_info"}).scrapes if scrape.exposition)
        return [series.labels for exposition in expositions for series in exposition.series if series.labels.get(label) in names]

    @contextlib.contextmanager
    def drivers(self, watch: str, nodes: t.Collection[str], seconds: float) -> t.Iterator[None]:
        """Run `nvidia-smi dmon` on these nodes while the context lasts, and store its numbers. Each run has its own thread, so that queries
        of metrics do not wait for it."""
        run = self.run
        daemons = [daemon for daemon in run.cluster.daemons(SCHEDULER) if daemon.node in nodes]
        argv = dmon.command(max(SHORTEST_DMON_S, math.ceil(seconds)))
        with concurrent.futures.ThreadPoolExecutor(max(1, len(daemons))) as pool:
            answers = [pool.submit(run.cluster.tool, daemon.name, argv, seconds + TOOL_S) for daemon in daemons]
            yield
        for daemon, answer in zip(daemons, answers, strict=True):
            text = answer.result()
            if text is not None:
                run.store(f"watch_{watch}_{daemon.node}_dmon.txt", text)
                run.evidence.busy.setdefault(watch, {})[daemon.node] = dmon.busy(text)
