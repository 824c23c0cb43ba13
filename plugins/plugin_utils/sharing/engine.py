# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs one case: baseline, its steps, collection, clean-up. The result is evidence, which conclusion.py judges.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import math
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import actions, alerts, lines, watched
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cases import Case
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.changing import Changing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cluster import PLUGIN, SCHEDULER, Cluster
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import BASELINE, END, RUNNING, CaseEvidence
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.looking import TOOL_S, Looking
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.parameters import Parameters
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.placing import Placing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.podwork import PodWork, trimmed
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.running import OVER, PACKED, RunningCase, Stopped, Store
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.system import System
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.words import schedulers

NVIDIA_SMI = ("nvidia-smi",)
# The sample that every case has between its first and its last; steps that take one of pods that run, or read the metrics themselves.
MIDDLE, SAMPLING = "middle", ("together", "watch")


class CaseRun:
    """One case on one cluster. `nodes` is {variable: the node that a destructive case may use}; `prometheus` queries the Prometheus that
    reads the schedulers, None if the inventory names none. Each step of a case is the method of its name with an underscore."""

    def __init__(
        self, case: Case, system: System, parameters: Parameters, cluster: Cluster, store: Store, nodes: t.Mapping[str, str] | None = None,
        prometheus: alerts.Ask | None = None,
    ) -> None:  # fmt: skip
        self.state = RunningCase(case, system, parameters, cluster, store, (nodes or {}).get(case.node, ""))
        self.case, self.system, self.parameters, self.cluster, self.store = case, system, parameters, cluster, store
        self.prometheus = prometheus
        self.evidence = self.state.evidence
        self.looking = Looking(self.state)
        self.pods = PodWork(self.state)
        self.placing = Placing(self.state, self.pods, self.looking)
        self.changing = Changing(self.state, self.pods, self.looking)
        self.cordoned = False
        # (node, the output of nvidia-smi dmon to come), from when the first pods run.
        self.loaded: list[tuple[str, t.Any]] | None = None

    def run(self) -> CaseEvidence:
        """Run the case from its baseline to its clean-up. Raise ReasonedError, after the clean-up, if the cluster does not answer."""
        try:
            self.looking.sample(BASELINE, processes=True)
            try:
                self._do(self.case.steps, dict(self.parameters.values))
            except Stopped as error:
                self.evidence.stopped = str(error)
            self._collect()
        finally:
            self._clean()
            self.state.askers.shutdown(wait=False, cancel_futures=True)
        return self.evidence

    # Steps ---------------------------------------------------------------------------------------------------------

    def _do(self, steps: t.Iterable[actions.Step], bindings: dict[str, t.Any]) -> None:
        for step in steps:
            verb, arguments = actions.kind_of(step)
            getattr(self, f"_{verb}")(actions.filled(arguments, bindings), bindings)

    def _each(self, arguments: t.Any, bindings: dict[str, t.Any]) -> None:
        for value in arguments["in"]:
            self._do(arguments["do"], {**bindings, arguments["name"]: value})

    def _repeat(self, arguments: t.Any, bindings: dict[str, t.Any]) -> None:
        """Repeat so many rounds, or for so long: at least so often that a trend can be seen, however long a round takes."""
        number, end = 0, self.cluster.now() + float(arguments.get("seconds", math.inf))
        while number < arguments.get("rounds", math.inf) and (number < schedulers.TREND_LOOKS or self.cluster.now() < end):
            number += 1
            self._do(arguments["do"], {**bindings, actions.ROUND: number})

    def _pause(self, arguments: t.Any, bindings: t.Any) -> None:
        self.cluster.sleep(self.parameters.seconds(float(arguments["seconds"])))

    # Pods ----------------------------------------------------------------------------------------------------------

    def _make(self, arguments: t.Any, bindings: t.Any) -> None:
        self.pods.create([arguments])

    def _wait(self, arguments: t.Any, bindings: t.Any) -> None:
        self.pods.wait(arguments["group"], arguments["until"] == "running", _timeout(arguments), self._middle)

    def _middle(self) -> None:
        """Look at drivers and schedulers while the first pods run. Where a case reads metrics on purpose, nothing else does."""
        if self.loaded is not None:
            return
        nodes = {pod.node for pod in self.evidence.pods if pod.phase == RUNNING and not pod.removed}
        self.loaded = self.looking.under_load(nodes)
        if not actions.does(self.case.steps, SAMPLING):
            self.looking.sample(MIDDLE)

    def _delete(self, arguments: t.Any, bindings: t.Any) -> None:
        self.pods.refresh()
        self.pods.remove(self.pods.live(arguments["group"]))

    def _together(self, arguments: t.Any, bindings: t.Any) -> None:
        self.placing.together(arguments["make"], _timeout(arguments))
        self.looking.sample(arguments["as"])
        self._middle()

    def _probes(self, arguments: t.Any, bindings: t.Any) -> None:
        """Wait until every pod has printed `count` probes (or lines that match `pattern`) since the last change took effect, or has
        ended."""
        timeout = float(arguments.get("timeout", self.parameters.numbers["probe_timeout_s"]))
        pods = self.pods.live(arguments["group"])
        pattern = self.system.pattern(arguments["pattern"]) if "pattern" in arguments else ""
        last = max(self.evidence.changes.values(), key=lambda change: change.at, default=None)

        def enough() -> bool:
            self.pods.refresh()
            for pod in pods:
                if pod.phase in OVER:
                    continue
                log = lines.lines_of(self.cluster.log(pod.current_name) or [])
                since = last.since(pod.name) if last else ""
                recent = lines.after(log, since or "")
                printed = lines.matching(recent, pattern) if pattern else lines.probes(recent)
                if len(printed) < int(arguments["count"]):
                    return False
            return True

        if not self.state.until(enough, timeout):
            raise Stopped(f"pods of {arguments['group']} printed fewer than {arguments['count']} probes within {timeout:g} s")

    def _progress(self, arguments: t.Any, bindings: t.Any) -> None:
        """Wait until every pod has printed `count` more lines about its progress, all of them running."""
        group = arguments["group"]
        marks = {pod.name: lines.last_stamp(self.cluster.log(pod.current_name, 1)) for pod in self.pods.live(group)}

        def going() -> bool:
            self.pods.refresh()
            for pod in self.pods.live(group):
                recent = lines.after(lines.lines_of(self.cluster.log(pod.current_name) or []), marks[pod.name])
                if pod.phase != RUNNING or not lines.goes_on(recent, int(arguments.get("count", actions.PROGRESS))):
                    return False
            return True

        timeout = float(arguments.get("timeout", self.parameters.numbers["probe_timeout_s"]))
        self.evidence.actions[arguments["as"]] = self.state.until(going, timeout)

    # Changes -------------------------------------------------------------------------------------------------------

    def _change(self, arguments: t.Any, bindings: t.Any) -> None:
        self.changing.change(arguments)

    def _observe(self, arguments: t.Any, bindings: t.Any) -> None:
        self.changing.observe(self.evidence.changes[arguments["change"]], arguments)

    # Looking -------------------------------------------------------------------------------------------------------

    def _sample(self, arguments: t.Any, bindings: t.Any) -> None:
        self.pods.refresh()
        if "of" in arguments and "metrics" in self.system.has:
            self.looking.gpus_of_pods(self.pods.live(arguments["of"]), self.pods.refresh)
        self.looking.sample(arguments["as"], processes=bool(arguments.get("processes")))

    def _watch(self, arguments: t.Any, bindings: t.Any) -> None:
        every = self.parameters.interval(float(arguments["every"]))
        group = arguments.get("until_ended")
        numbers, small = self.parameters.numbers, self.parameters.watch
        seconds = numbers["pod_timeout_s"] if group else small(float(arguments["seconds"]), float(arguments["every"]))
        end = self.cluster.now() + seconds
        nodes = {pod.node for pod in self.pods.live(arguments["dmon"])} if "dmon" in arguments else set()
        driver = self.looking.drivers(arguments["as"], nodes, seconds) if nodes else contextlib.nullcontext()
        file = watched.Watched(lambda text: self.store(f"watch_{arguments['as']}.jsonl{PACKED}", text))
        with contextlib.closing(file), driver:
            while True:
                begun = self.cluster.now()
                sample = self.looking.scrape_all(arguments["as"], set(arguments["metrics"]))
                self.evidence.sampled(sample)
                file.add(sample)
                if group:
                    self.pods.refresh()
                    if all(pod.phase in OVER for pod in self.pods.live(group)):
                        return
                if self.cluster.now() >= end:
                    break
                self.cluster.sleep(max(0.0, every - (self.cluster.now() - begun)))
        if group:
            raise Stopped(f"pods of {group} are not over after {seconds:g} s")

    def _alert(self, arguments: t.Any, bindings: t.Any) -> None:
        """Wait until a Prometheus holds the condition of an alert for one of the group's pods or of their GPUs."""
        condition = alerts.conditions(self.system).get(arguments["name"])
        if self.prometheus is None or condition is None:
            nobody, unknown = "gpu_sharing_prometheus names none", f"no alert {arguments['name']} is shipped for {self.system.name}"
            self.evidence.actions[arguments["as"]] = unknown if self.prometheus else nobody
            return
        ask, label, pods = self.prometheus, self.system.labels, self.pods.live(arguments["group"])
        gpus = {(label["gpu"], gpu) for gpu in self.looking.gpus_of_pods(pods, self.pods.refresh).values()}
        clients = self.looking.clients(pods)
        schedulers = {daemon.name for daemon in self.cluster.daemons(SCHEDULER)}
        errors: list[str] = []

        def raised() -> bool:
            try:
                firing = ask(condition)
            except alerts.NoAnswer as error:
                errors[:] = [str(error)]
                return False
            errors.clear()
            # A condition of another pod on the same GPU does not count, nor that of an earlier pod of the same name. A series of a GPU
            # has no pod of its own, but may have that of the target: the scheduler.
            return any(
                bool(gpus & set(labels.items()))
                if labels.get(label["pod"]) in {None, *schedulers}
                else any(_alike(labels, client) for client in clients)
                for labels in map(alerts.own_labels, firing)
            )

        met = self.state.until(raised, self.parameters.numbers["alert_timeout_s"])
        self.evidence.actions[arguments["as"]] = met or (errors[0] if errors else False)

    # The system ----------------------------------------------------------------------------------------------------

    def _restart(self, arguments: t.Any, bindings: t.Any) -> None:
        kind = {"scheduler": SCHEDULER, "plugin": PLUGIN}[arguments["what"]]
        self.evidence.actions[arguments["as"]] = self.cluster.restart(kind, float(arguments.get("timeout", 240)))

    def _drain(self, arguments: t.Any, bindings: t.Any) -> None:
        self.cordoned, node = True, self.state.node
        moved = self.cluster.drain(node, float(arguments.get("timeout", 180)))
        idle = f"no pod of the case was let go from {node} before it ended: nothing had to move"
        self.evidence.actions[arguments["as"]] = idle if moved is None else moved

    def _uncordon(self, arguments: t.Any, bindings: t.Any) -> None:
        self.evidence.actions[arguments["as"]] = self.cluster.uncordon(self.state.node)
        self.cordoned = False

    # Collection and clean-up ---------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Collect logs of all pods and daemons, a last sample, and the output of the tools."""
        self.pods.refresh()
        self.pods.read([pod for pod in self.evidence.pods if not pod.removed])
        since = self.state.at() + 1
        for kind, logs, file in ((SCHEDULER, self.evidence.logs, "scheduler"), (PLUGIN, self.evidence.plugin_logs, "device-plugin")):
            if not getattr(self.system, kind):
                continue
            texts = []
            for daemon in self.cluster.daemons(kind):
                log = self.cluster.daemon_log(daemon.name, since_s=since)
                logs[daemon.name] = None if log is None else trimmed(self.state, lines.lines_of(log))
                texts += [f"[pod/{daemon.name}] {line}\n" for line in log or ["this log could not be read"]]
            self.store(f"{file}.log", "".join(texts))
        self.looking.sample(END, processes=True)
        table = "".join(f"{pod.name}\t{pod.current_name}\t{pod.node}\t{pod.phase}\t{pod.words}\n" for pod in self.evidence.pods)
        self.store("cluster_snapshot.txt", table)
        if self.system.scheduler:
            for daemon in self.cluster.daemons(SCHEDULER):
                text = self.cluster.tool(daemon.name, NVIDIA_SMI, TOOL_S)
                if text is not None:
                    self.store(f"remote_{daemon.node}_nvidia_smi.txt", text)
        for node, output in self.loaded or ():
            text = output.result()
            if text is not None:
                self.store(f"remote_{node}_dmon.txt", text)

    def _clean(self) -> None:
        names = [pod.name for pod in self.evidence.pods if not pod.removed]
        try:
            if self.cordoned:
                self.cluster.uncordon(self.state.node)
        finally:  # the pods are removed even if the cordon cannot be
            remaining = self.cluster.remove(names, self.parameters.numbers["delete_timeout_s"]) if names else []
        if remaining:
            raise ReasonedError("timeout", f"pods of {self.case.id} are still being deleted: {', '.join(remaining[:5])}")


def _timeout(arguments: t.Mapping[str, t.Any]) -> float | None:
    return float(arguments["timeout"]) if "timeout" in arguments else None


def _alike(first: t.Mapping[str, str], second: t.Mapping[str, str]) -> bool:
    """Return True if the labels that both have are equal."""
    return all(second.get(name, value) == value for name, value in first.items())
