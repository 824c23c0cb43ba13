# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster in memory with a clock of its own: a day of it takes a second. The real one is in tests/integration/test_gpu_sharing.py."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import itertools
import random
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cluster import (
    SCHEDULER,
    Answer,
    Daemon,
    PodRequest,
    WorkloadState,
)
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.evidence import Process
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.system import System

GIB = 1 << 30
START_S, WATCH_S = 2.0, 4.0
# Iterations of small matrices per second with a whole GPU.
SPEED = 400.0
# Seconds after which a line of a scheduler's log is gone: debug output fills a file in minutes, and the API has the current file only.
ROTATED_S = 120.0
# Seconds between two looks of a scheduler at a pod, whose whole JSON it logs each time.
DEBUG_S = 5.0
# Memory of a GPU that the driver's total has and CUDA has not, and what the library keeps from pods without oversubscription.
DRIVER_SHARE, RESERVE = 0.029, 1536 << 20
# What the driver says of a process whose memory is managed: its context.
CONTEXT = 256 << 20
# The words of the two versions.
WORDS = {
    "nvshare": ("Memory allocation rejected", "Memory allocations exceeded physical GPU memory capacity"),
    "xpushare": ("cuMemAlloc rejected", "cuMemAlloc exceeds physical GPU memory; oversub mode enabled"),
}
EPOCH = datetime.datetime(2026, 2, 17, tzinfo=datetime.UTC)


@dataclasses.dataclass
class Running:
    wanted: PodRequest
    node: str
    gpu: int
    memory: float
    made: float
    quotas: dict[str, float]
    phase: str = "Pending"
    done: float = 0.0
    probed: float = 0.0
    pending: list[tuple[float, str, float]] = dataclasses.field(default_factory=list)
    log: list[str] = dataclasses.field(default_factory=list)
    # Of the library: {kind: quota}, and when it is told the first.
    kept: dict[str, float] = dataclasses.field(default_factory=dict)
    shown: float = 0.0  # when a change of memory was shown last
    forgotten: bool = False
    exceeded: bool = False
    before: float = 100.0  # the quota that was changed last
    changes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def exceeds(self, memory: float, defects: t.Collection[str]) -> bool:
        exceeded = bool(memory) and self.bytes > memory
        self.exceeded = self.exceeded or exceeded
        return exceeded or "exceeded_always" in defects or ("exceeded_sticks" in defects and self.exceeded)

    def env(self, name: str, default: float) -> float:
        return float(self.wanted.environment.get(f"GPUFLEET_W_{name}", default))

    @property
    def bytes(self) -> float:
        n, load = self.env("N", 14000), self.wanted.workload
        if load in ("hold", "connecting", "first"):
            return 0
        if n == 0:  # it asks its GPU
            return self.env("FACTOR", 1.25) * self.memory
        return (12 if load in ("w4a", "w4b") else 16) * n * n


class Memory:
    """`defects`: what is wrong with it, by the names that the tests use."""

    namespace = "default"

    def __init__(self, system: System, nodes: int = 2, gpus: int = 2, memory: float = 16 * GIB, defects: t.Collection[str] = ()) -> None:
        self.system = system
        self.memory = memory
        self.defects = defects
        self.random = random.Random(1)
        self.clock = 0.0
        self.nodes = [f"node-{n}" for n in range(nodes)]
        self.gpus = gpus
        self.pods: dict[str, Running] = {}
        self.gone: list[Running] = []
        self.restarts = 0
        self.killed = False
        self.scraped: collections.Counter[str] = collections.Counter()
        self.logs: dict[str, list[str]] = {node: [] for node in self.nodes}
        self.cordons: set[str] = set()

    # The clock -----------------------------------------------------------------------------------------------------

    def now(self) -> float:
        return self.clock

    def sleep(self, seconds: float) -> None:
        end = self.clock + seconds
        while self.clock < end - 1e-9:
            step = min(1.0, end - self.clock)
            self.clock += step
            for pod in self.pods.values():
                self.advance(pod, step)
                if int(self.clock / DEBUG_S) > int((self.clock - step) / DEBUG_S) and pod.phase == "Running":
                    self.say(self.logs[pod.node], f'[DEBUG]: {{"metadata": {{"name": "{pod.wanted.name}"}}}} gpu-memory-limit')

    def stamp(self) -> str:
        return (EPOCH + datetime.timedelta(seconds=self.clock)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def say(self, log: list[str], text: str) -> None:
        log.append(f"{self.stamp()} {text}")

    def share(self, pod: Running) -> float:
        if "quota_ignored" in self.defects:
            return 1.0
        if "stuck" in self.defects or pod.forgotten or self.waits(pod):
            return 0.0
        quota = pod.quotas.get("core", 100.0) + (20 if "core_too_much" in self.defects else 0)
        here = self.beside(pod)
        lifted = ("memory_lifts_core" in self.defects and "memory" in pod.quotas) or (
            "oversub_lifts_core" in self.defects and self.system.environment.get("oversub") in pod.wanted.environment
        )
        lifted = lifted or ("core_first_gpu_only" in self.defects and bool(pod.gpu))
        lifted = lifted or ("core_ignored_on_one" in self.defects and pod.node == self.nodes[-1])
        lifted = lifted or ("memory_change_lifts_core" in self.defects and bool(pod.changes["memory"]))
        lifted = lifted or ("restart_core_not_kept" in self.defects and bool(self.restarts))
        if lifted or ("core_first_client_only" in self.defects and pod is not here[0]):
            return 1 / len(here)
        if "lower_waits" in self.defects and any(other.quotas.get("core", 100.0) > quota for other in here):
            return 0.0
        if "uneven" in self.defects and len(here) > 1:
            return 0.85 if pod is here[0] else 0.15 / (len(here) - 1)
        if "effect_late" in self.defects and pod.changes["core"] and self.clock - pod.shown < 25:
            quota = pod.before
        if "core_fourth_change" in self.defects and pod.changes["core"] > 3:
            quota = 90.0  # that of the second
        if "core_scaled" in self.defects and "core" in pod.quotas:
            quota *= 0.75
        if "core_drifts" in self.defects:
            quota = min(100.0, quota + 0.1 * (self.clock - pod.made))
        return quota / max(100.0, sum(other.quotas.get("core", 100.0) for other in here))

    def beside(self, pod: Running) -> list[Running]:
        """Return the pods that use the GPU of one, in the order in which they came."""
        running = [other for other in self.pods.values() if other.phase == "Running" and other.bytes]
        return [other for other in running if (other.node, other.gpu) == (pod.node, pod.gpu)]

    def waits(self, pod: Running) -> bool:
        """Return True for a pod that a defect lets wait until those before it have ended."""
        running = [other for other in self.pods.values() if other.phase == "Running" and other.bytes]
        here = self.beside(pod)
        if "waiter_forgotten" in self.defects:
            before = itertools.takewhile(lambda other: other is not pod, here)
            pod.forgotten = pod.forgotten or sum(other.bytes for other in before) + pod.bytes > 0.9 * pod.memory
            return pod.forgotten
        most = {"third_waits": 2, "newest_waits": 1}
        first = next((here[:limit] for name, limit in most.items() if name in self.defects), None)
        if "four_clients" in self.defects:
            first = [other for other in running if other.node == pod.node][:4]
        return first is not None and pod not in first

    def advance(self, pod: Running, step: float) -> None:
        for due, kind, value in [one for one in pod.pending if one[0] <= self.clock]:
            pod.pending.remove((due, kind, value))
            self.apply(pod, kind, value)
        if pod.phase == "Pending" and self.clock - pod.made >= START_S and "pending" not in self.defects:
            pod.phase = "Running"
            rejected, beyond = WORDS.get(self.system.prefix, ("", ""))
            free = self.memory * (1 - DRIVER_SHARE) - RESERVE
            if pod.wanted.workload == "hold":
                self.say(pod.log, f"--- on GPU-{pod.node}-{pod.gpu} ---")
            elif pod.wanted.workload != "connecting":
                self.say(pod.log, "--- begun ---")
            if pod.wanted.workload == "hold":
                pass
            elif pod.wanted.workload == "connecting":
                self.say(pod.log, f"connected to {len(pod.wanted.environment['GPUFLEET_W_ADDRESSES'].split(','))} schedulers")
            elif pod.wanted.workload == "first":
                refused = pod.env("ALLOCATE_BYTES", 0) > (pod.kept.get("memory") or 1e18) and "quota_late" not in self.defects
                self.say(pod.log, f"[{self.system.tag}][ALLOCATION_PROBE] elapsed=0s bytes=1 {'refused: oom' if refused else 'granted'}")
                pod.phase = "Succeeded"
            elif pod.bytes > self.most(pod):
                self.refuse(pod, f"{rejected}: 1 + {pod.bytes:.0f} = {pod.bytes:.0f} would exceed limit 1 bytes")
            elif pod.bytes > free and (
                self.system.environment.get("oversub") not in pod.wanted.environment or "oversub_refused" in self.defects
            ):
                self.refuse(pod, "torch.OutOfMemoryError: CUDA out of memory")
            elif pod.bytes > free:
                self.say(pod.log, "" if "oversub_unlogged" in self.defects else beyond)
        if pod.phase == "Running":
            self.work(pod, step)

    def most(self, pod: Running) -> float:
        """Return the bytes that the library grants a pod by its quota."""
        quota = pod.kept.get("memory") or 1e18
        oversubscribes = self.system.environment.get("oversub") in pod.wanted.environment
        if "core_lifts_memory" in self.defects and pod.quotas.get("core", 100.0) < 100:
            return 1e18
        if "memory_first_gpu_only" in self.defects and pod.gpu:
            return 1e18
        if "memory_ignored_on_one" in self.defects and pod.node == self.nodes[-1]:
            return 1e18
        return quota * (1.1 if "oversub_quota_large" in self.defects and oversubscribes else 1)

    def refuse(self, pod: Running, text: str) -> None:
        if "oom_not_raised" in self.defects or ("oom_lenient" in self.defects and pod.bytes < 1.2 * self.memory):
            return
        self.say(pod.log, text)
        pod.phase = "Failed"

    def work(self, pod: Running, step: float) -> None:
        if not pod.bytes:
            return
        pod.done += step * SPEED * self.share(pod)
        tag = self.system.tag
        if pod.done and pod.env("PROBE_S", 0) and self.clock - pod.probed >= pod.env("PROBE_S", 10):
            pod.probed, since = self.clock, self.clock - pod.made - START_S
            self.say(pod.log, f"[{tag}][QUOTA_PROBE] elapsed={since:.1f}s it={int(pod.done)} it_per_sec=1.00")
            asked = pod.env("ALLOCATE_BYTES", 0)
            if asked:
                refused = pod.bytes + asked > self.most(pod) and "lower_ignored" not in self.defects
                refused = refused or "new_refused" in self.defects
                if refused and "refusal_kills_others" in self.defects:
                    for other in self.beside(pod):
                        other.phase = other.phase if other is pod else "Failed"
                if "cut_late" in self.defects and pod.shown and self.clock - pod.shown < 8:
                    refused = False
                self.say(pod.log, f"[{tag}][ALLOCATION_PROBE] elapsed={since:.1f}s bytes=1 {'refused: oom' if refused else 'granted'}")
        if pod.wanted.workload == "w5":
            over = self.clock - pod.made - START_S >= pod.env("DURATION_S", 300) and self.share(pod) > 0
        else:
            over = pod.done >= pod.env("ITERATIONS", 400)
        if over:
            took = self.clock - pod.made - START_S
            self.say(pod.log, "PASS")
            self.say(pod.log, f"--- {took:.2f} seconds ---")
            pod.phase = "Failed" if "limited_fails" in self.defects and pod.quotas.get("core", 100.0) < 100 else "Succeeded"

    def apply(self, pod: Running, kind: str, value: float) -> None:
        if "update_kills" in self.defects:
            pod.phase = "Failed"
        before = pod.quotas.get(kind, 0.0 if kind == "memory" else 100.0)
        pod.quotas[kind] = value
        pod.shown, pod.before = self.clock, before
        name = pod.wanted.name
        told = pod
        pod.changes[kind] += 1
        if "core_change_lifts_memory" in self.defects and kind == "core":
            pod.kept.pop("memory", None)
        if "other_gpu" in self.defects:
            others = (other for other in self.pods.values() if other.node == pod.node and other.gpu != pod.gpu)
            told = next(others, pod)
        late = "memory_fourth_change" in self.defects and pod.changes["memory"] > 3
        if not late and ("raise_not_kept" not in self.defects or value < before):
            told.kept[kind] = value
        if kind == "memory":
            self.say(self.logs[pod.node], f"Memory limit changed for pod default/{name}: {before:.0f} -> {value:.0f} bytes")
            self.say(told.log, f"Memory limit updated: {before:.0f} -> {value:.0f} bytes")
        else:
            self.say(self.logs[pod.node], f"Compute limit changed for pod default/{name}: {before:.0f}% -> {value:.0f}%")
            self.say(told.log, f"Core limit updated dynamically to {value:.0f}%")

    # Pods ----------------------------------------------------------------------------------------------------------

    def make(self, wanted: t.Sequence[PodRequest]) -> None:
        for one in wanted:
            asked = {key for key in one.annotations if key not in self.system.annotations.values()}
            assert not asked, f"annotations {asked} that the system does not know"
            free = [one.node] if one.node else [node for node in self.nodes if node not in self.cordons]
            node = self.random.choice(free)
            quotas = self.quotas(one)
            made = self.pods[one.name] = Running(one, node, self.gpu_for(node), self.memory, self.clock, quotas)
            made.kept = {kind: value * (0.954 if "library_smaller" in self.defects else 1) for kind, value in quotas.items()}

    def gpu_for(self, node: str) -> int:
        """The device plugin's choice: a GPU with the fewest pods."""
        held = [sum(pod.node == node and pod.gpu == gpu and pod.phase in ("Pending", "Running") for pod in self.pods.values())
                for gpu in range(self.gpus)]  # fmt: skip
        return self.random.choice([gpu for gpu in range(self.gpus) if held[gpu] == min(held)])

    def quotas(self, wanted: PodRequest) -> dict[str, float]:
        found = {kind: amount(wanted.annotations[key]) for kind, key in self.system.annotations.items() if key in wanted.annotations}
        memory = wanted.annotations.get(str(self.system.annotations.get("memory")), "")
        if memory.startswith("-") or (memory.endswith("G") and "decimal_quota_ignored" in self.defects):
            found["memory"] = 2.0**64 + amount(memory) if "negative_quota_huge" in self.defects else 0.0
        limit = self.system.environment.get("memory")
        if limit in wanted.environment:
            found["memory"] = amount(wanted.environment[str(limit)])
        return found

    def workloads(self) -> list[WorkloadState]:
        return [WorkloadState(name, name, pod.phase, "", pod.node, int(self.killed)) for name, pod in self.pods.items()]

    def remove(self, names: t.Sequence[str], timeout: float) -> list[str]:
        for name in names if "deleted_keeps_lock" in self.defects else ():
            for other in self.beside(self.pods[name]) if name in self.pods and self.pods[name].phase == "Running" else ():
                other.forgotten = True
        self.gone += [self.pods.pop(name) for name in names if name in self.pods]
        return []

    def annotate(self, pods: t.Sequence[str], annotations: t.Mapping[str, str | None]) -> None:
        kinds = {key: kind for kind, key in self.system.annotations.items()}
        late = 40.0 if "applied_late" in self.defects else WATCH_S
        for name in pods:
            if "update_ignored" not in self.defects:
                kept = {key: value for key, value in annotations.items() if value or "removal_ignored" not in self.defects}
                due = self.clock + late
                self.pods[name].pending += [(due, kinds[key], amount(value) if value else 100.0) for key, value in kept.items()]

    def log(self, pod: str, tail: int | None = None) -> list[str] | None:
        return self.pods[pod].log[-tail if tail else 0 :] if pod in self.pods else None

    # The system ------------------------------------------------------------------------------------------------------

    def sharing_nodes(self) -> list[str]:
        return self.nodes

    def daemons(self, what: str) -> list[Daemon]:
        return [Daemon(f"{what}-{node}", node, self.restarts, f"10.0.0.{1 + self.nodes.index(node)}") for node in self.nodes]

    def daemon_log(self, pod: str, since_s: float | None = None, tail: int | None = None) -> list[str] | None:
        first = (EPOCH + datetime.timedelta(seconds=self.clock - ROTATED_S)).strftime("%Y-%m-%dT%H:%M:%S")
        log = [line for line in self.logs[pod.partition("-")[2]] if line >= first]
        if "log_cut" in self.defects:  # each change ends a file
            changes = [number for number, line in enumerate(log) if "changed for pod" in line]
            log = log[changes[-1] + 1 :] if changes else log
        return log[-tail if tail else 0 :]

    def ask(self, scheduler: str, path: str) -> Answer:
        node = scheduler.partition("-")[2]
        if "one_silent" in self.defects and node == self.nodes[-1]:
            return Answer(0, "", 0.1, "no answer in time")
        if "idle_blocks" in self.defects and any(pod.wanted.workload == "connecting" for pod in self.pods.values()):
            return Answer(0, "", 10.0, "no answer in time")
        self.scraped[node] += path != "/healthz"
        return Answer(200, "OK" if path == "/healthz" else self.exposition(node), 0.01)

    def exposition(self, node: str) -> str:
        mine = [pod for pod in self.pods.values() if pod.node == node and pod.phase == "Running" and pod.bytes]
        prefix = self.system.metrics
        ghosts = self.gone if "ghosts" in self.defects else []
        text = "".join(f"{prefix}{name} 1\n" for name in self.system.required_metrics if name.startswith("scheduler_"))
        lacking = "utilization_ratio" if "missing_on_one" in self.defects and node == self.nodes[-1] else ""
        for gpu in range(self.gpus):
            here = [pod for pod in mine if pod.gpu == gpu]
            used = 4e8 + sum(pod.bytes for pod in here)
            if "full_elsewhere" in self.defects:
                used = 4e8 if here else self.memory
            labels = f'{{gpu_uuid="GPU-{node}-{gpu}",gpu_index="{gpu}"}}'
            busy = here or "utilization_stuck" in self.defects
            if "gpus_swapped" in self.defects:
                busy = [pod for pod in mine if pod.gpu == (gpu + 1) % self.gpus]
                used = 4e8 + sum(pod.bytes for pod in busy)
            values = {
                "info": 1, "memory_total_bytes": self.memory, "memory_used_bytes": min(used, self.memory),
                "utilization_ratio": (0.5 if "utilization_wrong" in self.defects else 0.9) if busy else 0.0,
            }  # fmt: skip
            text += "".join(f"{prefix}gpu_{name}{labels} {value}\n" for name, value in values.items() if name != lacking)
            held = sum(pod.bytes for pod in [*here, *(self.gone if "overload_sticks" in self.defects else [])])
            text += f"{prefix}scheduler_memory_overloaded{labels} {float(held > 0.9 * self.memory)}\n"
            counted = [*here, *(pod for pod in self.gone if "running_stays" in self.defects and (pod.node, pod.gpu) == (node, gpu))]
            text += f"{prefix}scheduler_running_memory_bytes{labels} {sum(pod.bytes for pod in counted)}\n"
        for pod in [*mine, *(one for one in ghosts if one.node == node)]:
            place = (pod.gpu + 1) % self.gpus if "client_other_gpu" in self.defects else pod.gpu
            labels = f'{{namespace="default",pod="{pod.wanted.name}",client_id="1",gpu_uuid="GPU-{node}-{place}"'
            index = -1 if "index_unknown" in self.defects else pod.gpu
            text += f'{prefix}client_info{labels},gpu_index="{index}"}} 1\n'
            labels += "}"
            memory, core = pod.quotas.get("memory", self.quota_of_nobody()), pod.quotas.get("core", 100.0)
            if "memory_shown_of_all" in self.defects:
                memory = next((other.quotas["memory"] for other in mine if other.shown and "memory" in other.quotas), memory)
            if "quota_of_newest" in self.defects:
                memory, core = mine[-1].quotas.get("memory", 0.0), mine[-1].quotas.get("core", 100.0)
            here = [other for other in mine if other.gpu == pod.gpu] if "allocated_of_gpu" in self.defects else [pod]
            beside = [other for other in mine if other.gpu == pod.gpu or "gpus_added_up" in self.defects]
            together = sum(other.quotas.get("core", 100.0) for other in beside)
            values = {
                "managed_allocated_bytes": sum(other.bytes for other in here), "nvml_used_bytes": CONTEXT, "memory_quota_bytes": memory,
                "core_quota_config_percent": core,
                "core_quota_effective_percent": 1.0 if "effective_wrong" in self.defects else core * 100 / max(100.0, together),
                "core_window_usage_ms": 1, "core_window_limit_ms": 1,
                "throttled": 0.95 if core < 100 or "throttled_always" in self.defects else 0.0,
                "memory_quota_exceeded": float(pod.exceeds(memory, self.defects)),
            }  # fmt: skip
            text += "".join(f"{prefix}client_{name}{labels} {value}\n" for name, value in values.items())
        for pod in self.gone if "series_stay" in self.defects else ():
            text += f'{prefix}client_memory_quota_bytes{{namespace="default",pod="{pod.wanted.name}"}} 1\n' if pod.node == node else ""
        return text

    def quota_of_nobody(self) -> float:
        """What a pod without a memory quota is shown with."""
        earlier = [pod.quotas["memory"] for pod in self.gone if "memory" in pod.quotas]
        return earlier[-1] if earlier and "quota_inherited" in self.defects else 0.0

    def process(self, scheduler: Daemon) -> Process:
        leak = 9000.0 * len(self.gone) if "leak" in self.defects else 0.0
        leak = 9000.0 * self.scraped[scheduler.node] if "scrape_leaks" in self.defects else leak
        ahead = 300.0 if "clock_skew" in self.defects and scheduler.node == self.nodes[-1] else 0.0
        return Process(scheduler.name, scheduler.node, 7, 9000.0 + leak, 20.0 + leak / 900, ahead_s=ahead)

    def tool(self, scheduler: str, argv: t.Sequence[str], timeout: float) -> str | None:
        if "dmon" not in argv or "no_driver" in self.defects:
            return None
        node = scheduler.partition("-")[2]
        busy = {pod.gpu for pod in self.pods.values() if pod.node == node and pod.phase == "Running" and pod.bytes}
        rows = [f"    {gpu}  {90 if gpu in busy else 0}  4\n" for gpu in range(self.gpus)]
        return "# gpu  sm  mem\n# Idx  %  %\n" + "".join(rows) * int(argv[-1])

    def restart(self, what: str, timeout: float) -> bool:
        self.restarts += what == SCHEDULER
        self.killed = what != SCHEDULER and "plugin_restart_kills" in self.defects
        if what == SCHEDULER and "restart_loses_quotas" in self.defects:
            for pod in self.pods.values():
                pod.quotas, pod.kept = {}, {}
        return True

    def drain(self, node: str, timeout: float) -> bool | None:
        self.cordons.add(node)
        mine = [pod for pod in self.pods.values() if pod.node == node and pod.phase == "Running"]
        for pod in mine:
            pod.node, pod.phase, pod.made, pod.done = next(one for one in self.nodes if one != node), "Pending", self.clock, 0.0
        return "drain_hangs" not in self.defects if mine else None

    def uncordon(self, node: str) -> bool:
        self.cordons.discard(node)
        return True


def amount(text: str) -> float:
    if text.endswith("Mi"):
        return float(text[:-2]) * (1 << 20)
    return float(text[:-2]) * GIB if text.endswith("Gi") else float(text[:-1]) * 1e9 if text.endswith("G") else float(text)
