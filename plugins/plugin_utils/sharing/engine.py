# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs one case: baseline, its steps, collection, clean-up. What it saw is evidence; conclusion.py says what that is worth.

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

# Where what a case collects is kept: path below the case's folder, and text. Of what is PACKED a text is a part, behind those before it.
Store = t.Callable[[str, str], None]
PACKED = ".gz"

OVER = (SUCCEEDED, FAILED)
ASKED_AT_ONCE = 8
# How often pods are looked at, in seconds.
POLL_S = 1.0
# Lines of a log that are kept in memory where nothing in them is looked for: a debugging library prints one per launch.
KEPT_LINES = 200
NVIDIA_SMI = ("nvidia-smi",)
DMON = dmon.command(10)
TOOL_S = 30.0
# Of fewer seconds no median is worth anything.
LEAST_BUSY_S = 3
# Of how many changes the schedulers may write when the next one is made, and how far clocks of nodes are off when a log is asked for.
RECENT, LATE_S = 2, 15.0
# Bytes of a number of the workloads' matrices.
ELEMENT = 4


class Stopped(Exception):
    """The steps cannot go on: what they wait for did not come. What was seen is judged all the same."""


class CaseRun:
    """One case on one cluster. `nodes` are the names that destructive cases may take, by the variable that says them; `prometheus` asks
    the one that reads the schedulers, where there is one."""

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
                self._do(self.case.steps, dict(self.parameters.given))
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

    def _do(self, steps: t.Iterable[actions.Step], known: dict[str, t.Any]) -> None:
        for step in steps:
            verb, taken = actions.kind_of(step)
            getattr(self, f"_{verb}")(actions.filled(taken, known), known)

    def _each(self, taken: t.Any, known: dict[str, t.Any]) -> None:
        for value in taken["in"]:
            self._do(taken["do"], {**known, taken["name"]: value})

    def _repeat(self, taken: t.Any, known: dict[str, t.Any]) -> None:
        number, end = 0, self.cluster.now() + float(taken.get("seconds", math.inf))
        while number < taken.get("rounds", math.inf) and (number == 0 or self.cluster.now() < end):
            number += 1
            self._do(taken["do"], {**known, actions.ROUND: number})

    def _pause(self, taken: t.Any, known: t.Any) -> None:
        self.cluster.sleep(self.parameters.seconds(float(taken["seconds"])))

    # Pods ----------------------------------------------------------------------------------------------------------

    def _make(self, taken: t.Any, known: t.Any) -> None:
        self._apply([taken])

    def _apply(self, groups: t.Sequence[t.Any], node: str = "") -> None:
        """Make the pods of some groups at once, all on one node where that is named."""
        asked = []
        for taken in groups:
            for _number in range(int(taken.get("pods", 1))):
                self.counted += 1
                wanted = self._wanted(taken, node)
                asked.append(wanted)
                pod = CasePod(wanted.name, taken["group"], self.cluster.namespace, taken["workload"], made_at=self._at())
                pod.core = float(taken["core"]) if "core" in taken else None
                amount = taken.get("memory", taken.get("memory_env"))
                pod.memory = quantities.number_of(amount) if amount is not None else None
                self.evidence.pods.append(pod)
        self.cluster.make(asked)

    def _wanted(self, taken: t.Any, node: str = "") -> PodRequest:
        slug = self.case.id.lower()
        app = f"xp{self.case.letter}-{slug}"
        group = str(taken["group"]).replace("_", "-")
        environment = {**self._load(taken), "GPUFLEET_W_TAG": self.system.tag}
        for key, value in (("debug", "1"), ("memory", taken.get("memory_env")), ("oversub", "1" if taken.get("oversub") else None)):
            if value is not None and key in self.system.environment:
                environment[self.system.environment[key]] = str(value)
        annotations = {self.system.annotations[kind]: str(taken[kind]) for kind in ("core", "memory") if kind in taken}
        node = self.node if taken.get("on_node") else node
        return PodRequest(
            f"{app}-{group}-{self.counted}", app, taken["workload"], environment, annotations, bool(taken.get("job")), node,
            taken.get("on_node") == "preferred",
        )  # fmt: skip

    def _load(self, taken: t.Any) -> dict[str, str]:
        """Return the settings of a workload: those of the reference, shorter in a scaled run. A workload that the case itself deletes
        runs on."""
        known = self.parameters.load(self.parameters.workloads[taken["workload"]], self.case.beside)
        found: dict[str, float] = {}
        if "n" in taken and self._sizes_itself(taken):
            known["n"], found["GPUFLEET_W_FACTOR"] = 0, float(taken["n"]["of_memory"])
        elif "n" in taken:
            known["n"] = self._size(taken["n"])
        found["GPUFLEET_W_N"] = known["n"]
        if "iterations" in known:
            found["GPUFLEET_W_ITERATIONS"] = known["iterations"]
        if "duration_s" in known:
            long = self.parameters.numbers["stab_short_s"] * 4 + self.parameters.numbers["pod_timeout_s"]
            found["GPUFLEET_W_DURATION_S"] = long if taken.get("live") else known["duration_s"]
            found["GPUFLEET_W_PROBE_S"] = self.parameters.interval(known["probe_s"])
        if "allocate" in taken:
            found["GPUFLEET_W_ALLOCATE_BYTES"] = quantities.number_of(taken["allocate"])
        return {name: f"{value:g}" if value < 1e6 else str(int(value)) for name, value in found.items()}

    def _sizes_itself(self, taken: t.Any) -> bool:
        """Return True if the load reads the size of its GPU's memory itself: only a load that is meant to be too large may."""
        return "metrics" not in self.system.has and taken["workload"] == "w4a" and isinstance(taken["n"], dict)

    def _size(self, asked: t.Any) -> float:
        """Matrices of this width, or those of which so many are a part of a GPU's memory."""
        if not isinstance(asked, dict):
            return float(asked)
        of = [total for gpus in self._gpus() for total in gpus]
        if not of:
            raise Stopped("no scheduler says how much memory a GPU has, by which the load is sized")
        width = math.sqrt(float(asked["of_memory"]) * max(of) / (float(asked["tensors"]) * ELEMENT))
        return math.ceil(width) if float(asked["of_memory"]) > 1 else math.floor(width)

    def _gpus(self) -> list[list[float]]:
        """How much memory its GPUs have, of each scheduler that said so before the case."""
        baseline = self.evidence.samples.get(vocabulary.BASELINE, ())
        told = [scrape.exposition for sample in baseline for scrape in sample.scrapes if scrape.exposition]
        return [[one.value for one in exposition.of("gpu_memory_total_bytes")] for exposition in told]

    def _refresh(self) -> None:
        """Update the state of the existing pods."""
        found = {one.name: one for one in self.cluster.seen()}
        for pod in self.evidence.pods:
            one = found.get(pod.name)
            if pod.gone:
                continue
            if one is None:
                pod.phase, pod.words = FAILED, "somebody else has removed it"
                continue
            pod.phase, pod.words, pod.replaced = one.phase, one.words, one.replaced
            pod.node, pod.pod = one.node or pod.node, one.pod or pod.pod
            if pod.phase in OVER and pod.ended_at is None:
                pod.ended_at = self._at()

    def _live(self, group: str) -> list[CasePod]:
        return [pod for pod in self.evidence.of(group) if not pod.gone]

    def _wait(self, taken: t.Any, known: t.Any) -> None:
        running = taken["until"] == "running"
        wanted = (RUNNING, *OVER) if running else OVER
        default = "running_timeout_s" if running else "pod_timeout_s"
        timeout = float(taken.get("timeout", self.parameters.numbers[default]))
        group = taken["group"]

        def there() -> bool:
            self._refresh()
            return all(pod.phase in wanted for pod in self._live(group))

        if not self._until(there, timeout):
            late = [pod for pod in self._live(group) if pod.phase not in wanted]
            words = f": {late[0].words}" if late and late[0].words else ""
            raise Stopped(f"{len(late)} pods of {group} are {late[0].phase if late else '?'} after {timeout:g} s{words}")

    def _delete(self, taken: t.Any, known: t.Any) -> None:
        self._refresh()
        self._remove(self._live(taken["group"]))

    def _remove(self, pods: t.Sequence[CasePod]) -> None:
        self._read(pods)
        left = self.cluster.remove([pod.name for pod in pods], self.parameters.numbers["delete_timeout_s"])
        for pod in pods:
            pod.gone = True
        if left:
            raise Stopped(f"pods are still there after {self.parameters.numbers['delete_timeout_s']:g} s: {', '.join(left[:5])}")

    def _together(self, taken: t.Any, known: t.Any) -> None:
        """Pods of all groups on one GPU, as the metrics say while they run. The first group stays where it came to be, as long as it runs;
        the others are made again, on its node, as long as they are elsewhere: the more GPUs that has, the more often. Where they stay
        elsewhere, those that are looked at still run, all of them."""
        first, others = taken["make"][:1], taken["make"][1:]
        timeout = {"timeout": taken["timeout"]} if "timeout" in taken else {}
        tries = max(1, int(self.parameters.numbers["placement_tries"])) * max([1, *map(len, self._gpus())])
        begun = len(self.evidence.pods)
        before = begun
        held: dict[str, str] = {}
        for attempt in range(2 * tries):
            if not held or any(pod.phase in OVER for pod in self.evidence.pods[begun:before]):
                self._forget(begun)
                self._apply(first)
                self._wait({"group": first[0]["group"], "until": "running", **timeout}, known)
                before = len(self.evidence.pods)
                held = self._known(self.evidence.pods[begun:])
            self._apply(others, self.evidence.pods[begun].node)
            for group in others:
                self._wait({"group": group["group"], "until": "running", **timeout}, known)
            placed = {**held, **self._known(self.evidence.pods[before:])}
            together = len(placed) == len(self.evidence.pods) - begun and len(set(placed.values())) == 1
            over = any(pod.phase in OVER for pod in self.evidence.pods[begun:])
            if attempt + 1 == 2 * tries or (not over and (together or attempt + 1 >= tries)):
                break
            self._forget(before)
        self._look(taken["as"])

    def _forget(self, since: int) -> None:
        """Pods that came to be where they are of no use."""
        if self.evidence.pods[since:]:
            self._remove(self.evidence.pods[since:])
            del self.evidence.pods[since:]

    def _known(self, mine: t.Sequence[CasePod]) -> dict[str, str]:
        """{pod: its GPU}, of these that the schedulers know: all, unless that takes too long or they end before. A pod that runs is no
        client yet: it has to load its library first."""
        if "metrics" not in self.system.has:
            raise Stopped(f"system {self.system.name} does not say on which GPU a pod is")
        label = self.system.labels
        found: dict[str, str] = {}

        def all_of_them() -> bool:
            names = {pod.known for pod in mine}
            for scrape in self._scraped("", {"client_info"}).scrapes:
                for one in scrape.exposition.series if scrape.exposition else ():
                    if one.labels.get(label["pod"]) in names and one.labels.get(label["gpu"]):
                        found[one.labels[label["pod"]]] = one.labels[label["gpu"]]
            self._refresh()
            return len(found) == len(names) or all(pod.phase in OVER for pod in mine)

        self._until(all_of_them, self.parameters.numbers["running_timeout_s"])
        return found

    # Changes -------------------------------------------------------------------------------------------------------

    def _change(self, taken: t.Any, known: t.Any) -> None:
        kind = "core" if "core" in taken else "memory"
        if kind not in self.system.annotations:
            raise Stopped(f"system {self.system.name} cannot change the {kind} quota of a pod that runs")
        value = quantities.number_of(taken[kind])
        self._noted()
        pods = self._live(taken["group"])
        before = {getattr(pod, kind) for pod in pods}
        marks = {pod.name: self._mark(self.cluster.log(pod.known, 1)) for pod in pods}
        marks.update({one.name: self._mark(self.cluster.daemon_log(one.name, tail=1)) for one in self.cluster.daemons(SCHEDULER)})
        marked = {name: mark for name, mark in marks.items() if mark is not None}
        at = self._at()
        self.cluster.annotate([pod.known for pod in pods], {self.system.annotations[kind]: str(taken[kind])})
        change = QuotaChange(taken["as"], taken["group"], kind, before.pop() if len(before) == 1 else None, value, at, marked)
        for pod in pods:
            setattr(pod, kind, value)
        self.evidence.changes[change.name] = change
        if taken.get("observe"):
            self._observed(change, taken)

    def _noted(self) -> None:
        """Store what the schedulers logged about earlier changes: a kubelet keeps only the end of a log, and in the hours of a soak they
        write more than that."""
        late = [one for one in list(self.evidence.changes.values())[-RECENT:] if len(one.written) < len(self._live(one.group))]
        if not late:
            return
        since = self._at() - min(one.at for one in late) + LATE_S
        for daemon in self.cluster.daemons(SCHEDULER):
            log = lines.lines_of(self.cluster.daemon_log(daemon.name, since_s=since) or [])
            for one in late:
                one.written |= vocabulary.written(self.evidence, one, daemon.name, log)

    @staticmethod
    def _mark(log: list[str] | None) -> str | None:
        """The time of the last line of a log; "" where it has none yet, None where nobody knows."""
        return None if log is None else next((line.stamp for line in reversed(lines.lines_of(log)) if line.stamp), "")

    def _observe(self, taken: t.Any, known: t.Any) -> None:
        change = self.evidence.changes[taken["change"]]
        if change.seen_s is None:
            self._observed(change, taken)

    def _observed(self, change: QuotaChange, taken: t.Any) -> None:
        """Wait until the metrics of every pod of a change show it, and of all earlier ones that are waited for beside it."""
        timeout = float(taken.get("timeout", self.parameters.numbers["dynamic_update_observe_timeout_s"]))
        pending = [one for one in self.evidence.changes.values() if one.seen_s is None and one.group == change.group]
        pending = [one for one in pending if one.kind in self.system.quotas]
        # Of one quota the last change is what is shown.
        pending = [one for one in pending if not any(o.kind == one.kind and o.at > one.at for o in self.evidence.changes.values())]

        if not pending:
            return
        nodes = {pod.node for pod in self._live(change.group)}

        def shown() -> bool:
            sample = self._scraped("", {self.system.quotas[one.kind] for one in pending}, nodes=nodes)
            for one in pending:
                if one.seen_s is None and self._shows(sample, one):
                    one.seen_s = self._at() - one.at
            return change.seen_s is not None

        self._until(shown, timeout, self.parameters.interval(self.parameters.numbers["metrics_scrape_interval_s"]) / 2)
        for one in pending:
            if one.seen_s is not None:
                marks = {pod.name: self._mark(self.cluster.log(pod.known, 1)) for pod in self._live(one.group)}
                one.settled = {name: mark for name, mark in marks.items() if mark is not None}

    def _shows(self, sample: SystemSample, change: QuotaChange) -> bool:
        label = self.system.labels["pod"]
        values: dict[str, float] = {}
        for scrape in sample.scrapes:
            for one in scrape.exposition.of(self.system.quotas[change.kind]) if scrape.exposition else ():
                values[one.labels.get(label, "")] = one.value
        pods = self._live(change.group)
        return bool(pods) and all(values.get(pod.known) == change.value for pod in pods)

    def _probes(self, taken: t.Any, known: t.Any) -> None:
        """Until every pod has printed so many probes since the last change took effect, or has ended."""
        timeout = float(taken.get("timeout", self.parameters.numbers["probe_timeout_s"]))
        pods = self._live(taken["group"])
        last = max(self.evidence.changes.values(), key=lambda one: one.at, default=None)

        def enough() -> bool:
            self._refresh()
            for pod in pods:
                if pod.phase in OVER:
                    continue
                seen = lines.lines_of(self.cluster.log(pod.known) or [])
                since = last.since(pod.name) if last else ""
                if len(lines.probes(lines.after(seen, since or ""))) < int(taken["count"]):
                    return False
            return True

        if not self._until(enough, timeout):
            raise Stopped(f"pods of {taken['group']} printed fewer than {taken['count']} probes within {timeout:g} s")

    # Looking -------------------------------------------------------------------------------------------------------

    def _sample(self, taken: t.Any, known: t.Any) -> None:
        self._refresh()
        if "of" in taken and "metrics" in self.system.has:
            self._known(self._live(taken["of"]))
        self._look(taken["as"], processes=bool(taken.get("processes")))

    def _look(self, name: str, processes: bool = False) -> SystemSample:
        """A look at all schedulers, kept whole."""
        sample = self._scraped(name, None, whole=True)
        if processes:
            daemons = self.cluster.daemons(SCHEDULER) if self.system.scheduler else []
            sample.processes = list(self.askers.map(self.cluster.process, daemons))
        self.evidence.sampled(sample)
        return sample

    def _scraped(self, name: str, only: t.Collection[str] | None, whole: bool = False, nodes: t.Collection[str] = ()) -> SystemSample:
        """`nodes`: ask only the schedulers there, which alone know their pods. What else a sample says is of all of them."""
        if not self.system.scheduler:
            return SystemSample(name, self._at())
        daemons = self.cluster.daemons(SCHEDULER)
        sample = SystemSample(name, self._at(), {one.name: one.restarts for one in daemons}, len(self.cluster.sharing_nodes()))
        if "metrics" in self.system.has:
            asked = [one for one in daemons if one.node in nodes] if nodes and all(nodes) else daemons
            both = list(self.askers.map(lambda one: self._asked(one, only, whole), asked))
            sample.scrapes = [scrape for scrape, _text in both]
            if whole:
                self._keep_texts(name, both)
        sample.phases = {pod.name: pod.phase for pod in self.evidence.pods if not pod.gone}
        return sample

    def _asked(self, daemon: Daemon, only: t.Collection[str] | None, whole: bool) -> tuple[Scrape, str]:
        at = self._at()
        answer = self.cluster.ask(daemon.name, str(self.system.scheduler["metrics"]))
        found = Scrape(daemon.name, daemon.node, at, answer.took_s, answer.status, problem=answer.problem, ahead_s=answer.ahead_s)
        if answer.status == 200:
            found.exposition = scraped.parse(answer.text, self.system.metrics, only)
            found.problem = found.exposition.wrong
        if whole:
            found.health = self.cluster.ask(daemon.name, str(self.system.scheduler["health"])).status
        return found, answer.text

    def _keep_texts(self, name: str, answers: t.Sequence[tuple[Scrape, str]]) -> None:
        number = len(self.evidence.samples.get(name, ()))
        file = {vocabulary.END: ""}.get(name, f"_{name}") + (f"_{number}" if number else "")
        head = "# scheduler {0.scheduler} on {0.node}\n"
        self.store(f"metrics{file}.txt", "".join(f"{head.format(scrape)}{text}\n" for scrape, text in answers))
        health = "".join(f"{head.format(scrape)}HTTP_CODE={scrape.health:03}\n" for scrape, _text in answers)
        self.store(f"metrics_health{file}.txt", health)

    def _watch(self, taken: t.Any, known: t.Any) -> None:
        every = self.parameters.interval(float(taken["every"]))
        group = taken.get("until_ended")
        numbers, small = self.parameters.numbers, self.parameters.watch
        seconds = numbers["pod_timeout_s"] if group else small(float(taken["seconds"]), float(taken["every"]))
        end = self.cluster.now() + seconds
        driver = self._asks_drivers(taken["as"], taken["dmon"], seconds) if "dmon" in taken else contextlib.nullcontext()
        file = watched.Watched(lambda text: self.store(f"watch_{taken['as']}.jsonl{PACKED}", text))
        with contextlib.closing(file), driver:
            while True:
                begun = self.cluster.now()
                sample = self._scraped(taken["as"], set(taken["metrics"]))
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
        """Meanwhile the drivers of the nodes with pods of a group say how busy their GPUs are. Each has a thread of its own: who is asked
        for metrics meanwhile must not wait for it."""
        nodes = {pod.node for pod in self._live(group)}
        asked = [one for one in self.cluster.daemons(SCHEDULER) if one.node in nodes]
        argv = dmon.command(max(LEAST_BUSY_S, math.ceil(seconds)))
        with concurrent.futures.ThreadPoolExecutor(max(1, len(asked))) as pool:
            answers = [pool.submit(self.cluster.tool, one.name, argv, seconds + TOOL_S) for one in asked]
            yield
        for one, answer in zip(asked, answers, strict=True):
            text = answer.result()
            if text is not None:
                self.store(f"watch_{watch}_{one.node}_dmon.txt", text)
                self.evidence.busy.setdefault(watch, {})[one.node] = dmon.busy(text)

    def _alert(self, taken: t.Any, known: t.Any) -> None:
        """Until a Prometheus that reads the schedulers holds the condition of an alert for one of these pods, or of their GPUs."""
        condition = alerts.conditions(self.system).get(taken["name"])
        if self.prometheus is None or condition is None:
            nobody, unknown = "gpu_sharing_prometheus names none", f"no alert {taken['name']} is shipped for {self.system.name}"
            self.evidence.done[taken["as"]] = unknown if self.prometheus else nobody
            return
        ask, label, mine = self.prometheus, self.system.labels, self._live(taken["group"])
        gpus = {(label["gpu"], gpu) for gpu in self._known(mine).values()}
        clients = self._clients(mine)
        said: list[str] = []

        def raised() -> bool:
            try:
                held = ask(condition)
            except alerts.NoAnswer as error:
                said[:] = [str(error)]
                return False
            said.clear()
            # What holds for another pod on the same GPU is not about this one, nor what held for one of the same name that is gone.
            return any(
                any(_alike(one, client) for client in clients) if label["pod"] in one else bool(gpus & set(one.items())) for one in held
            )

        met = self._until(raised, self.parameters.numbers["alert_timeout_s"])
        self.evidence.done[taken["as"]] = met or (said[0] if said else False)

    def _clients(self, mine: t.Sequence[CasePod]) -> list[t.Mapping[str, str]]:
        """The labels by which the schedulers know these pods now."""
        label, names = self.system.labels["pod"], {pod.known for pod in mine}
        seen = (scrape.exposition for scrape in self._scraped("", {"client_info"}).scrapes if scrape.exposition)
        return [one.labels for exposition in seen for one in exposition.series if one.labels.get(label) in names]

    # The system ----------------------------------------------------------------------------------------------------

    def _restart(self, taken: t.Any, known: t.Any) -> None:
        what = {"scheduler": SCHEDULER, "plugin": PLUGIN}[taken["what"]]
        self.evidence.done[taken["as"]] = self.cluster.restart(what, float(taken.get("timeout", 240)))

    def _drain(self, taken: t.Any, known: t.Any) -> None:
        self.cordoned = True
        moved = self.cluster.drain(self.node, float(taken.get("timeout", 180)))
        idle = f"no pod of the case was let go from {self.node} before it ended: nothing had to move"
        self.evidence.done[taken["as"]] = idle if moved is None else moved

    def _uncordon(self, taken: t.Any, known: t.Any) -> None:
        self.evidence.done[taken["as"]] = self.cluster.uncordon(self.node)
        self.cordoned = False

    # Collection ----------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """All that is read when the steps are over: logs with every line, by pod; every scheduler; what the tools say."""
        self._refresh()
        self._read([pod for pod in self.evidence.pods if not pod.gone])
        since = self._at() + 1
        for what, into, file in ((SCHEDULER, self.evidence.logs, "scheduler"), (PLUGIN, self.evidence.plugin_logs, "device-plugin")):
            if not getattr(self.system, what):
                continue
            whole = []
            for daemon in self.cluster.daemons(what):
                log = self.cluster.daemon_log(daemon.name, since_s=since)
                into[daemon.name] = None if log is None else self._kept(lines.lines_of(log))
                whole += [f"[pod/{daemon.name}] {line}\n" for line in log or ["this log could not be read"]]
            self.store(f"{file}.log", "".join(whole))
        end = self._look(vocabulary.END, processes=True)
        said = (f"POD={one.scheduler} NODE={one.node} PID={one.pid} VMRSS_KB={one.rss_kb} FD_COUNT={one.fds}" for one in end.processes)
        self.store("scheduler_proc.txt", "".join(f"{line}\n" for line in said))
        seen = "".join(f"{pod.name}\t{pod.known}\t{pod.node}\t{pod.phase}\t{pod.words}\n" for pod in self.evidence.pods)
        self.store("cluster_snapshot.txt", seen)
        if self.system.scheduler:
            for daemon in self.cluster.daemons(SCHEDULER):
                for tool, file in ((NVIDIA_SMI, "nvidia_smi"), (DMON, "dmon")):
                    text = self.cluster.tool(daemon.name, tool, TOOL_S) if self.parameters.scale == 1 or tool is NVIDIA_SMI else None
                    if text is not None:
                        self.store(f"remote_{daemon.node}_{file}.txt", text)

    def _read(self, pods: t.Iterable[CasePod]) -> None:
        for pod in pods:
            log = self.cluster.log(pod.known) if pod.phase != PENDING else []
            self.store(f"pods/{pod.name}.log", "".join(f"{line}\n" for line in log or []))
            pod.log = None if log is None else self._kept(lines.lines_of(log))

    def _kept(self, log: list[lines.LogLine]) -> list[lines.LogLine]:
        """A long log without the lines in which nothing is looked for: a day of them does not fit into memory."""
        if len(log) <= KEPT_LINES:
            return log
        known = [pattern for name in self.system.patterns for pattern in [self._loose(name)]]
        told = {id(line) for pattern in known for line in lines.matching(log, pattern)}
        first = len(log) - KEPT_LINES
        return [
            line
            for number, line in enumerate(log)
            if number >= first or id(line) in told or lines.runtime([line]) is not None or lines.probes([line])
        ]

    def _loose(self, name: str) -> str:
        """A pattern with anything where names and numbers would be."""
        text = self.system.patterns[name]
        for key in ("namespace", "pod", "before", "value"):
            text = text.replace("{" + key + "}", r"\S+")
        return text

    def _clean(self) -> None:
        names = [pod.name for pod in self.evidence.pods if not pod.gone]
        try:
            if self.cordoned:
                self.cluster.uncordon(self.node)
        finally:  # a cordon that cannot be taken back now is no reason to keep the pods as well
            left = self.cluster.remove(names, self.parameters.numbers["delete_timeout_s"]) if names else []
        if left:
            raise ReasonedError("timeout", f"pods of {self.case.id} are still being deleted: {', '.join(left[:5])}")


def _alike(one: t.Mapping[str, str], other: t.Mapping[str, str]) -> bool:
    """Return True if the labels that both have are equal."""
    return all(other.get(name, value) == value for name, value in one.items())
