# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs one case: baseline, its steps, collection, clean-up. The result is evidence, which conclusion.py judges.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import math
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import (
    actions,
    alerts,
    dmon,
    lines,
    quantities,
    scraped,
    vocabulary,
    watched,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cases import Case
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cluster import (
    PLUGIN,
    SCHEDULER,
    Cluster,
    Daemon,
    PodRequest,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import (
    FAILED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    CaseEvidence,
    CasePod,
    QuotaChange,
    Scrape,
    SystemSample,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.parameters import Parameters
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.system import System

# Stores a text under a path below the case's folder. A text for a PACKED path is appended to the earlier ones.
Store = t.Callable[[str, str], None]
PACKED = ".gz"

OVER = (SUCCEEDED, FAILED)
ASKED_AT_ONCE = 8
# Seconds between two looks at the pods.
POLL_S = 1.0
# The last lines of a long log that stay in memory; of earlier lines only those that match a pattern stay.
KEPT_LINES = 200
NVIDIA_SMI = ("nvidia-smi",)
DMON = dmon.command(10)
TOOL_S = 30.0
# Seconds of `nvidia-smi dmon` that a median needs at least.
LEAST_BUSY_S = 3
# How many of the last changes may still appear in logs when the next one is made, and the tolerance in seconds for clocks of nodes.
RECENT, LATE_S = 2, 15.0
# Bytes of one element of the workloads' matrices.
ELEMENT = 4


class Stopped(Exception):
    """The steps cannot go on: a wait timed out. The evidence collected so far is judged all the same."""


class CaseRun:
    """One case on one cluster. `nodes` is {variable: the node that a destructive case may use}; `prometheus` queries the Prometheus that
    reads the schedulers, None if the inventory names none."""

    def __init__(
        self, case: Case, system: System, parameters: Parameters, cluster: Cluster, store: Store, nodes: t.Mapping[str, str] | None = None,
        prometheus: alerts.Ask | None = None,
    ) -> None:  # fmt: skip
        self.case = case
        self.system = system
        self.parameters = parameters
        self.cluster = cluster
        self.store = store
        self.node = (nodes or {}).get(case.node, "")
        self.prometheus = prometheus
        self.evidence = CaseEvidence(system, parameters.numbers)
        self.began = cluster.now()
        self.counted = 0
        self.cordoned = False
        self.askers = concurrent.futures.ThreadPoolExecutor(ASKED_AT_ONCE)

    def run(self) -> CaseEvidence:
        """Run the case from its baseline to its clean-up. Raise ReasonedError, after the clean-up, if the cluster does not answer."""
        try:
            self._look(vocabulary.BASELINE, processes=True)
            try:
                self._do(self.case.steps, dict(self.parameters.values))
            except Stopped as error:
                self.evidence.stopped = str(error)
            self._collect()
        finally:
            self._clean()
            self.askers.shutdown(wait=False, cancel_futures=True)
        return self.evidence

    # Time ----------------------------------------------------------------------------------------------------------

    def _at(self) -> float:
        return self.cluster.now() - self.began

    def _until(self, met: t.Callable[[], bool], timeout: float, every: float | None = None) -> bool:
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

    # Steps ---------------------------------------------------------------------------------------------------------

    def _do(self, steps: t.Iterable[actions.Step], bindings: dict[str, t.Any]) -> None:
        for step in steps:
            verb, arguments = actions.kind_of(step)
            getattr(self, f"_{verb}")(actions.filled(arguments, bindings), bindings)

    def _each(self, arguments: t.Any, bindings: dict[str, t.Any]) -> None:
        for value in arguments["in"]:
            self._do(arguments["do"], {**bindings, arguments["name"]: value})

    def _repeat(self, arguments: t.Any, bindings: dict[str, t.Any]) -> None:
        number, end = 0, self.cluster.now() + float(arguments.get("seconds", math.inf))
        while number < arguments.get("rounds", math.inf) and (number == 0 or self.cluster.now() < end):
            number += 1
            self._do(arguments["do"], {**bindings, actions.ROUND: number})

    def _pause(self, arguments: t.Any, bindings: t.Any) -> None:
        self.cluster.sleep(self.parameters.seconds(float(arguments["seconds"])))

    # Pods ----------------------------------------------------------------------------------------------------------

    def _make(self, arguments: t.Any, bindings: t.Any) -> None:
        self._apply([arguments])

    def _apply(self, groups: t.Sequence[t.Any], node: str = "") -> None:
        """Create the pods of some groups at once, on the given node if there is one."""
        requests = []
        for arguments in groups:
            for _number in range(int(arguments.get("pods", 1))):
                self.counted += 1
                request = self._pod_request(arguments, node)
                requests.append(request)
                pod = CasePod(request.name, arguments["group"], self.cluster.namespace, arguments["workload"], made_at=self._at())
                pod.core = float(arguments["core"]) if "core" in arguments else None
                amount = arguments.get("memory", arguments.get("memory_env"))
                pod.memory = quantities.number_of(amount) if amount is not None else None
                self.evidence.pods.append(pod)
        self.cluster.make(requests)

    def _pod_request(self, arguments: t.Any, node: str = "") -> PodRequest:
        slug = self.case.id.lower()
        app = f"xp{self.case.letter}-{slug}"
        group = str(arguments["group"]).replace("_", "-")
        environment = {**self._load(arguments), "GPUFLEET_W_TAG": self.system.tag}
        for key, value in (("debug", "1"), ("memory", arguments.get("memory_env")), ("oversub", "1" if arguments.get("oversub") else None)):
            if value is not None and key in self.system.environment:
                environment[self.system.environment[key]] = str(value)
        annotations = {self.system.annotations[kind]: str(arguments[kind]) for kind in ("core", "memory") if kind in arguments}
        node = self.node if arguments.get("on_node") else node
        return PodRequest(
            f"{app}-{group}-{self.counted}", app, arguments["workload"], environment, annotations, bool(arguments.get("job")), node,
            arguments.get("on_node") == "preferred",
        )  # fmt: skip

    def _load(self, arguments: t.Any) -> dict[str, str]:
        """Return the environment of a workload: the reference's settings, shorter in a scaled run. A workload with `live` runs until the
        case deletes it."""
        load = self.parameters.load(self.parameters.workloads[arguments["workload"]], self.case.needs_running_pods)
        settings: dict[str, float] = {}
        if "n" in arguments and self._sizes_itself(arguments):
            load["n"], settings["GPUFLEET_W_FACTOR"] = 0, float(arguments["n"]["of_memory"])
        elif "n" in arguments:
            load["n"] = self._size(arguments["n"])
        settings["GPUFLEET_W_N"] = load["n"]
        if "iterations" in load:
            settings["GPUFLEET_W_ITERATIONS"] = load["iterations"]
        if "duration_s" in load:
            long = self.parameters.numbers["stab_short_s"] * 4 + self.parameters.numbers["pod_timeout_s"]
            settings["GPUFLEET_W_DURATION_S"] = long if arguments.get("live") else load["duration_s"]
            settings["GPUFLEET_W_PROBE_S"] = self.parameters.interval(load["probe_s"])
        if "allocate" in arguments:
            settings["GPUFLEET_W_ALLOCATE_BYTES"] = quantities.number_of(arguments["allocate"])
        return {name: f"{value:g}" if value < 1e6 else str(int(value)) for name, value in settings.items()}

    def _sizes_itself(self, arguments: t.Any) -> bool:
        """Return True if the workload itself reads the memory size of its GPU. Only one that is meant to be too large may do so."""
        return "metrics" not in self.system.has and arguments["workload"] == "w4a" and isinstance(arguments["n"], dict)

    def _size(self, size: t.Any) -> float:
        """Return the width of the matrices: a given number, or the width at which `tensors` matrices fill the part `of_memory` of a GPU's
        memory."""
        if not isinstance(size, dict):
            return float(size)
        totals = [total for gpus in self._gpus() for total in gpus]
        if not totals:
            raise Stopped("no scheduler says how much memory a GPU has, by which the load is sized")
        width = math.sqrt(float(size["of_memory"]) * max(totals) / (float(size["tensors"]) * ELEMENT))
        return math.ceil(width) if float(size["of_memory"]) > 1 else math.floor(width)

    def _gpus(self) -> list[list[float]]:
        """Return, for each scheduler that answered in the baseline sample, the memory of its GPUs in bytes."""
        baseline = self.evidence.samples.get(vocabulary.BASELINE, ())
        expositions = [scrape.exposition for sample in baseline for scrape in sample.scrapes if scrape.exposition]
        return [[series.value for series in exposition.of("gpu_memory_total_bytes")] for exposition in expositions]

    def _refresh(self) -> None:
        """Update the state of the existing pods."""
        states = {state.name: state for state in self.cluster.workloads()}
        for pod in self.evidence.pods:
            state = states.get(pod.name)
            if pod.removed:
                continue
            if state is None:
                pod.phase, pod.words = FAILED, "somebody else has removed it"
                continue
            pod.phase, pod.words, pod.replaced = state.phase, state.words, state.replaced
            pod.node, pod.pod = state.node or pod.node, state.pod or pod.pod
            if pod.phase in OVER and pod.ended_at is None:
                pod.ended_at = self._at()

    def _live(self, group: str) -> list[CasePod]:
        return [pod for pod in self.evidence.of(group) if not pod.removed]

    def _wait(self, arguments: t.Any, bindings: t.Any) -> None:
        running = arguments["until"] == "running"
        phases = (RUNNING, *OVER) if running else OVER
        default = "running_timeout_s" if running else "pod_timeout_s"
        timeout = float(arguments.get("timeout", self.parameters.numbers[default]))
        group = arguments["group"]

        def reached() -> bool:
            self._refresh()
            return all(pod.phase in phases for pod in self._live(group))

        if not self._until(reached, timeout):
            late = [pod for pod in self._live(group) if pod.phase not in phases]
            words = f": {late[0].words}" if late and late[0].words else ""
            raise Stopped(f"{len(late)} pods of {group} are {late[0].phase if late else '?'} after {timeout:g} s{words}")

    def _delete(self, arguments: t.Any, bindings: t.Any) -> None:
        self._refresh()
        self._remove(self._live(arguments["group"]))

    def _remove(self, pods: t.Sequence[CasePod]) -> None:
        self._read(pods)
        remaining = self.cluster.remove([pod.name for pod in pods], self.parameters.numbers["delete_timeout_s"])
        for pod in pods:
            pod.removed = True
        if remaining:
            raise Stopped(f"pods are still there after {self.parameters.numbers['delete_timeout_s']:g} s: {', '.join(remaining[:5])}")

    def _together(self, arguments: t.Any, bindings: t.Any) -> None:
        """Create pods of all groups until the metrics show them on one GPU, then take a sample. The first group stays where it was placed
        while it runs; the other groups are created again on its node as long as they are on other GPUs, more often on a node with more
        GPUs. If they never meet, the sample has the pods of the last attempt, all of them running."""
        first, following = arguments["make"][:1], arguments["make"][1:]
        timeout = {"timeout": arguments["timeout"]} if "timeout" in arguments else {}
        tries = max(1, int(self.parameters.numbers["placement_tries"])) * max([1, *map(len, self._gpus())])
        begun = len(self.evidence.pods)
        split = begun
        placed_first: dict[str, str] = {}
        for attempt in range(2 * tries):
            if not placed_first or any(pod.phase in OVER for pod in self.evidence.pods[begun:split]):
                self._forget(begun)
                self._apply(first)
                self._wait({"group": first[0]["group"], "until": "running", **timeout}, bindings)
                split = len(self.evidence.pods)
                placed_first = self._gpus_of_pods(self.evidence.pods[begun:])
            self._apply(following, self.evidence.pods[begun].node)
            for group in following:
                self._wait({"group": group["group"], "until": "running", **timeout}, bindings)
            placed = {**placed_first, **self._gpus_of_pods(self.evidence.pods[split:])}
            together = len(placed) == len(self.evidence.pods) - begun and len(set(placed.values())) == 1
            over = any(pod.phase in OVER for pod in self.evidence.pods[begun:])
            if attempt + 1 == 2 * tries or (not over and (together or attempt + 1 >= tries)):
                break
            self._forget(split)
        self._look(arguments["as"])

    def _forget(self, since: int) -> None:
        """Remove the pods from index `since` on from the cluster and from the evidence."""
        if self.evidence.pods[since:]:
            self._remove(self.evidence.pods[since:])
            del self.evidence.pods[since:]

    def _gpus_of_pods(self, pods: t.Sequence[CasePod]) -> dict[str, str]:
        """Wait until the schedulers know all of these pods, or until all have ended, at most `running_timeout_s`. Return {pod: its GPU} for
        the pods they know. A running pod becomes a client only after it has loaded its library."""
        if "metrics" not in self.system.has:
            raise Stopped(f"system {self.system.name} does not say on which GPU a pod is")
        label = self.system.labels
        gpus: dict[str, str] = {}

        def all_of_them() -> bool:
            names = {pod.current_name for pod in pods}
            for scrape in self._scrape_all("", {"client_info"}).scrapes:
                for series in scrape.exposition.series if scrape.exposition else ():
                    if series.labels.get(label["pod"]) in names and series.labels.get(label["gpu"]):
                        gpus[series.labels[label["pod"]]] = series.labels[label["gpu"]]
            self._refresh()
            return len(gpus) == len(names) or all(pod.phase in OVER for pod in pods)

        self._until(all_of_them, self.parameters.numbers["running_timeout_s"])
        return gpus

    # Changes -------------------------------------------------------------------------------------------------------

    def _change(self, arguments: t.Any, bindings: t.Any) -> None:
        kind = "core" if "core" in arguments else "memory"
        if kind not in self.system.annotations:
            raise Stopped(f"system {self.system.name} cannot change the {kind} quota of a pod that runs")
        value = quantities.number_of(arguments[kind])
        self._store_written()
        pods = self._live(arguments["group"])
        old_values = {getattr(pod, kind) for pod in pods}
        marks = {pod.name: self._mark(self.cluster.log(pod.current_name, 1)) for pod in pods}
        marks.update({daemon.name: self._mark(self.cluster.daemon_log(daemon.name, tail=1)) for daemon in self.cluster.daemons(SCHEDULER)})
        marked = {name: mark for name, mark in marks.items() if mark is not None}
        at = self._at()
        self.cluster.annotate([pod.current_name for pod in pods], {self.system.annotations[kind]: str(arguments[kind])})
        change = QuotaChange(
            arguments["as"], arguments["group"], kind, old_values.pop() if len(old_values) == 1 else None, value, at, marked
        )
        for pod in pods:
            setattr(pod, kind, value)
        self.evidence.changes[change.name] = change
        if arguments.get("observe"):
            self._observed(change, arguments)

    def _store_written(self) -> None:
        """Store what the schedulers logged about earlier changes. A kubelet keeps only the end of a log, and a long soak writes more."""
        late = [change for change in list(self.evidence.changes.values())[-RECENT:] if len(change.written) < len(self._live(change.group))]
        if not late:
            return
        since = self._at() - min(change.at for change in late) + LATE_S
        for daemon in self.cluster.daemons(SCHEDULER):
            log = lines.lines_of(self.cluster.daemon_log(daemon.name, since_s=since) or [])
            for change in late:
                change.written |= vocabulary.written(self.evidence, change, daemon.name, log)

    @staticmethod
    def _mark(log: list[str] | None) -> str | None:
        """Return the time of the last line of a log: "" if the log is empty, None if it could not be read."""
        return None if log is None else next((line.stamp for line in reversed(lines.lines_of(log)) if line.stamp), "")

    def _observe(self, arguments: t.Any, bindings: t.Any) -> None:
        change = self.evidence.changes[arguments["change"]]
        if change.seen_s is None:
            self._observed(change, arguments)

    def _observed(self, change: QuotaChange, arguments: t.Any) -> None:
        """Wait until the metrics of every pod show a change. Earlier changes of the same group that were not seen yet are noted too."""
        timeout = float(arguments.get("timeout", self.parameters.numbers["dynamic_update_observe_timeout_s"]))
        pending = [
            candidate for candidate in self.evidence.changes.values() if candidate.seen_s is None and candidate.group == change.group
        ]
        pending = [candidate for candidate in pending if candidate.kind in self.system.quotas]
        # The metrics show only the last change of a quota.
        pending = [
            candidate
            for candidate in pending
            if not any(o.kind == candidate.kind and o.at > candidate.at for o in self.evidence.changes.values())
        ]

        if not pending:
            return
        nodes = {pod.node for pod in self._live(change.group)}

        def observed() -> bool:
            sample = self._scrape_all("", {self.system.quotas[candidate.kind] for candidate in pending}, nodes=nodes)
            for candidate in pending:
                if candidate.seen_s is None and self._shows(sample, candidate):
                    candidate.seen_s = self._at() - candidate.at
            return change.seen_s is not None

        self._until(observed, timeout, self.parameters.interval(self.parameters.numbers["metrics_scrape_interval_s"]) / 2)
        for candidate in pending:
            if candidate.seen_s is not None:
                marks = {pod.name: self._mark(self.cluster.log(pod.current_name, 1)) for pod in self._live(candidate.group)}
                candidate.settled = {name: mark for name, mark in marks.items() if mark is not None}

    def _shows(self, sample: SystemSample, change: QuotaChange) -> bool:
        label = self.system.labels["pod"]
        values: dict[str, float] = {}
        for scrape in sample.scrapes:
            for series in scrape.exposition.of(self.system.quotas[change.kind]) if scrape.exposition else ():
                values[series.labels.get(label, "")] = series.value
        pods = self._live(change.group)
        return bool(pods) and all(values.get(pod.current_name) == change.value for pod in pods)

    def _probes(self, arguments: t.Any, bindings: t.Any) -> None:
        """Wait until every pod has printed `count` probes since the last change took effect, or has ended."""
        timeout = float(arguments.get("timeout", self.parameters.numbers["probe_timeout_s"]))
        pods = self._live(arguments["group"])
        last = max(self.evidence.changes.values(), key=lambda change: change.at, default=None)

        def enough() -> bool:
            self._refresh()
            for pod in pods:
                if pod.phase in OVER:
                    continue
                log = lines.lines_of(self.cluster.log(pod.current_name) or [])
                since = last.since(pod.name) if last else ""
                if len(lines.probes(lines.after(log, since or ""))) < int(arguments["count"]):
                    return False
            return True

        if not self._until(enough, timeout):
            raise Stopped(f"pods of {arguments['group']} printed fewer than {arguments['count']} probes within {timeout:g} s")

    # Looking -------------------------------------------------------------------------------------------------------

    def _sample(self, arguments: t.Any, bindings: t.Any) -> None:
        self._refresh()
        if "of" in arguments and "metrics" in self.system.has:
            self._gpus_of_pods(self._live(arguments["of"]))
        self._look(arguments["as"], processes=bool(arguments.get("processes")))

    def _look(self, name: str, processes: bool = False) -> SystemSample:
        """Sample all schedulers with all their metrics, and store the texts."""
        sample = self._scrape_all(name, None, complete=True)
        if processes:
            daemons = self.cluster.daemons(SCHEDULER) if self.system.scheduler else []
            sample.processes = list(self.askers.map(self.cluster.process, daemons))
        self.evidence.sampled(sample)
        return sample

    def _scrape_all(self, name: str, only: t.Collection[str] | None, complete: bool = False, nodes: t.Collection[str] = ()) -> SystemSample:
        """Return a sample of the schedulers. `only`: parse these metrics alone. `complete`: query the health too, and store the texts.
        `nodes`: query only the schedulers on these nodes; all other facts of the sample are about all schedulers."""
        if not self.system.scheduler:
            return SystemSample(name, self._at())
        daemons = self.cluster.daemons(SCHEDULER)
        sample = SystemSample(name, self._at(), {daemon.name: daemon.restarts for daemon in daemons}, len(self.cluster.sharing_nodes()))
        if "metrics" in self.system.has:
            queried = [daemon for daemon in daemons if daemon.node in nodes] if nodes and all(nodes) else daemons
            both = list(self.askers.map(lambda daemon: self._scrape(daemon, only, complete), queried))
            sample.scrapes = [scrape for scrape, _text in both]
            if complete:
                self._keep_texts(name, both)
        sample.phases = {pod.name: pod.phase for pod in self.evidence.pods if not pod.removed}
        return sample

    def _scrape(self, daemon: Daemon, only: t.Collection[str] | None, complete: bool) -> tuple[Scrape, str]:
        at = self._at()
        answer = self.cluster.ask(daemon.name, str(self.system.scheduler["metrics"]))
        scrape = Scrape(daemon.name, daemon.node, at, answer.took_s, answer.status, problem=answer.problem, ahead_s=answer.ahead_s)
        if answer.status == 200:
            scrape.exposition = scraped.parse(answer.text, self.system.metrics, only)
            scrape.problem = scrape.exposition.wrong
        if complete:
            scrape.health = self.cluster.ask(daemon.name, str(self.system.scheduler["health"])).status
        return scrape, answer.text

    def _keep_texts(self, name: str, answers: t.Sequence[tuple[Scrape, str]]) -> None:
        number = len(self.evidence.samples.get(name, ()))
        file = {vocabulary.END: ""}.get(name, f"_{name}") + (f"_{number}" if number else "")
        head = "# scheduler {0.scheduler} on {0.node}\n"
        self.store(f"metrics{file}.txt", "".join(f"{head.format(scrape)}{text}\n" for scrape, text in answers))
        health = "".join(f"{head.format(scrape)}HTTP_CODE={scrape.health:03}\n" for scrape, _text in answers)
        self.store(f"metrics_health{file}.txt", health)

    def _watch(self, arguments: t.Any, bindings: t.Any) -> None:
        every = self.parameters.interval(float(arguments["every"]))
        group = arguments.get("until_ended")
        numbers, small = self.parameters.numbers, self.parameters.watch
        seconds = numbers["pod_timeout_s"] if group else small(float(arguments["seconds"]), float(arguments["every"]))
        end = self.cluster.now() + seconds
        driver = self._asks_drivers(arguments["as"], arguments["dmon"], seconds) if "dmon" in arguments else contextlib.nullcontext()
        file = watched.Watched(lambda text: self.store(f"watch_{arguments['as']}.jsonl{PACKED}", text))
        with contextlib.closing(file), driver:
            while True:
                begun = self.cluster.now()
                sample = self._scrape_all(arguments["as"], set(arguments["metrics"]))
                self.evidence.sampled(sample)
                file.add(sample)
                if group:
                    self._refresh()
                    if all(pod.phase in OVER for pod in self._live(group)):
                        return
                if self.cluster.now() >= end:
                    break
                self.cluster.sleep(max(0.0, every - (self.cluster.now() - begun)))
        if group:
            raise Stopped(f"pods of {group} are not over after {seconds:g} s")

    @contextlib.contextmanager
    def _asks_drivers(self, watch: str, group: str, seconds: float) -> t.Iterator[None]:
        """Run `nvidia-smi dmon` on the nodes with pods of a group while the context lasts, and store its numbers. Each run has its own
        thread, so that queries of metrics do not wait for it."""
        nodes = {pod.node for pod in self._live(group)}
        daemons = [daemon for daemon in self.cluster.daemons(SCHEDULER) if daemon.node in nodes]
        argv = dmon.command(max(LEAST_BUSY_S, math.ceil(seconds)))
        with concurrent.futures.ThreadPoolExecutor(max(1, len(daemons))) as pool:
            answers = [pool.submit(self.cluster.tool, daemon.name, argv, seconds + TOOL_S) for daemon in daemons]
            yield
        for daemon, answer in zip(daemons, answers, strict=True):
            text = answer.result()
            if text is not None:
                self.store(f"watch_{watch}_{daemon.node}_dmon.txt", text)
                self.evidence.busy.setdefault(watch, {})[daemon.node] = dmon.busy(text)

    def _alert(self, arguments: t.Any, bindings: t.Any) -> None:
        """Wait until a Prometheus holds the condition of an alert for one of the group's pods or of their GPUs."""
        condition = alerts.conditions(self.system).get(arguments["name"])
        if self.prometheus is None or condition is None:
            nobody, unknown = "gpu_sharing_prometheus names none", f"no alert {arguments['name']} is shipped for {self.system.name}"
            self.evidence.actions[arguments["as"]] = unknown if self.prometheus else nobody
            return
        ask, label, pods = self.prometheus, self.system.labels, self._live(arguments["group"])
        gpus = {(label["gpu"], gpu) for gpu in self._gpus_of_pods(pods).values()}
        clients = self._clients(pods)
        errors: list[str] = []

        def raised() -> bool:
            try:
                firing = ask(condition)
            except alerts.NoAnswer as error:
                errors[:] = [str(error)]
                return False
            errors.clear()
            # A condition of another pod on the same GPU does not count, nor that of an earlier pod of the same name.
            return any(
                any(_alike(labels, client) for client in clients) if label["pod"] in labels else bool(gpus & set(labels.items()))
                for labels in firing
            )

        met = self._until(raised, self.parameters.numbers["alert_timeout_s"])
        self.evidence.actions[arguments["as"]] = met or (errors[0] if errors else False)

    def _clients(self, pods: t.Sequence[CasePod]) -> list[t.Mapping[str, str]]:
        """Return the labels that the schedulers now have for these pods."""
        label, names = self.system.labels["pod"], {pod.current_name for pod in pods}
        expositions = (scrape.exposition for scrape in self._scrape_all("", {"client_info"}).scrapes if scrape.exposition)
        return [series.labels for exposition in expositions for series in exposition.series if series.labels.get(label) in names]

    # The system ----------------------------------------------------------------------------------------------------

    def _restart(self, arguments: t.Any, bindings: t.Any) -> None:
        kind = {"scheduler": SCHEDULER, "plugin": PLUGIN}[arguments["what"]]
        self.evidence.actions[arguments["as"]] = self.cluster.restart(kind, float(arguments.get("timeout", 240)))

    def _drain(self, arguments: t.Any, bindings: t.Any) -> None:
        self.cordoned = True
        moved = self.cluster.drain(self.node, float(arguments.get("timeout", 180)))
        idle = f"no pod of the case was let go from {self.node} before it ended: nothing had to move"
        self.evidence.actions[arguments["as"]] = idle if moved is None else moved

    def _uncordon(self, arguments: t.Any, bindings: t.Any) -> None:
        self.evidence.actions[arguments["as"]] = self.cluster.uncordon(self.node)
        self.cordoned = False

    # Collection ----------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Collect logs of all pods and daemons, a last sample, and the output of the tools."""
        self._refresh()
        self._read([pod for pod in self.evidence.pods if not pod.removed])
        since = self._at() + 1
        for kind, logs, file in ((SCHEDULER, self.evidence.logs, "scheduler"), (PLUGIN, self.evidence.plugin_logs, "device-plugin")):
            if not getattr(self.system, kind):
                continue
            texts = []
            for daemon in self.cluster.daemons(kind):
                log = self.cluster.daemon_log(daemon.name, since_s=since)
                logs[daemon.name] = None if log is None else self._trimmed(lines.lines_of(log))
                texts += [f"[pod/{daemon.name}] {line}\n" for line in log or ["this log could not be read"]]
            self.store(f"{file}.log", "".join(texts))
        end = self._look(vocabulary.END, processes=True)
        processes = (
            f"POD={process.scheduler} NODE={process.node} PID={process.pid} VMRSS_KB={process.rss_kb} FD_COUNT={process.fds}"
            for process in end.processes
        )
        self.store("scheduler_proc.txt", "".join(f"{line}\n" for line in processes))
        table = "".join(f"{pod.name}\t{pod.current_name}\t{pod.node}\t{pod.phase}\t{pod.words}\n" for pod in self.evidence.pods)
        self.store("cluster_snapshot.txt", table)
        if self.system.scheduler:
            for daemon in self.cluster.daemons(SCHEDULER):
                for tool, file in ((NVIDIA_SMI, "nvidia_smi"), (DMON, "dmon")):
                    text = self.cluster.tool(daemon.name, tool, TOOL_S) if self.parameters.scale == 1 or tool is NVIDIA_SMI else None
                    if text is not None:
                        self.store(f"remote_{daemon.node}_{file}.txt", text)

    def _read(self, pods: t.Iterable[CasePod]) -> None:
        for pod in pods:
            log = self.cluster.log(pod.current_name) if pod.phase != PENDING else []
            self.store(f"pods/{pod.name}.log", "".join(f"{line}\n" for line in log or []))
            pod.log = None if log is None else self._trimmed(lines.lines_of(log))

    def _trimmed(self, log: list[lines.LogLine]) -> list[lines.LogLine]:
        """Return a log; of a long one, only lines that match a pattern, probes, run times and the last KEPT_LINES. The log of a day does
        not fit into memory."""
        if len(log) <= KEPT_LINES:
            return log
        patterns = [pattern for name in self.system.patterns for pattern in [self._loose(name)]]
        matched = {id(line) for pattern in patterns for line in lines.matching(log, pattern)}
        first = len(log) - KEPT_LINES
        return [
            line
            for number, line in enumerate(log)
            if number >= first or id(line) in matched or lines.runtime([line]) is not None or lines.probes([line])
        ]

    def _loose(self, name: str) -> str:
        """Return a pattern with a wildcard for each name and number."""
        text = self.system.patterns[name]
        for key in ("namespace", "pod", "before", "value"):
            text = text.replace("{" + key + "}", r"\S+")
        return text

    def _clean(self) -> None:
        names = [pod.name for pod in self.evidence.pods if not pod.removed]
        try:
            if self.cordoned:
                self.cluster.uncordon(self.node)
        finally:  # the pods are removed even if the cordon cannot be
            remaining = self.cluster.remove(names, self.parameters.numbers["delete_timeout_s"]) if names else []
        if remaining:
            raise ReasonedError("timeout", f"pods of {self.case.id} are still being deleted: {', '.join(remaining[:5])}")


def _alike(first: t.Mapping[str, str], second: t.Mapping[str, str]) -> bool:
    """Return True if the labels that both have are equal."""
    return all(second.get(name, value) == value for name, value in first.items())
