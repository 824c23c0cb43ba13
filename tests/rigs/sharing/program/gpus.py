# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated GPUs of a node, by its node.conf, and who has how much of them."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shlex
import time
import typing as t

from names import PREFIX, variable
from planted import number, planted

CONF = pathlib.Path("/opt/simulated/node.conf")
MIB = 1 << 20
# Bytes per second that a sum of two matrices moves, so that W2 takes as long as it is known to take on such a GPU; others are as an H200.
SPEEDS = {"T4": 240.6e9, "A800": 1.88e12}
OTHERS = 4.2e12
IDLE_BYTES = 300 * MIB
CONTEXT_BYTES = 256 * MIB  # of each process on a GPU


@dataclasses.dataclass
class Client:
    """A process that uses a GPU through us."""

    id: str
    pod: str
    namespace: str
    gpu: Gpu
    host_pid: int
    send: t.Callable[[dict[str, t.Any]], None]
    memory_limit: int = 0  # 0: none
    core: int = 100
    core_told: int = 100  # what its metrics say
    allocated: int = 0
    peak: int = 0
    waiting: bool = False
    busy: list[tuple[float, float]] = dataclasses.field(default_factory=list)  # (when, milliseconds of the GPU until then)
    share: float = -1.0
    updated: bool = False  # its limits were changed while it ran
    throttled: bool = False
    hindered: bool = False  # by a defect, until it ends
    order: int = 0  # in which clients came
    deaf: bool = False  # to its pod's annotations, by a defect
    oversubscribes: bool = False
    exceeded: bool = False  # its memory quota, if only once
    left: bool = False  # it said so before its connection ended
    limited: bool = False  # has a core quota, if only of 100 percent
    loose: bool = False  # from its core quota, by a defect
    changes: int = 0  # of its core quota while it ran
    began: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        return f"{self.namespace}/{self.pod}"

    @property
    def takes_lock(self) -> bool:
        """Return False for a process that the scheduler lets alone: in the later version one without a quota."""
        return PREFIX == "nvshare" or self.core < 100 or bool(self.memory_limit)

    def used(self, now: float, span: float = 1.0) -> float:
        """The part of the GPU that it had for the last second."""
        self.busy = [entry for entry in self.busy if entry[0] > now - 10] or self.busy[-1:]
        late = [entry for entry in self.busy if entry[0] >= now - span - 0.6]
        if len(late) < 2 or late[-1][0] < now - 1.5:
            return 0.0
        return min(1.0, (late[-1][1] - late[0][1]) / 1000 / max(1e-3, late[-1][0] - late[0][0]))


@dataclasses.dataclass
class Gpu:
    index: int
    uuid: str
    name: str
    total: int
    speed: float
    clients: list[Client] = dataclasses.field(default_factory=list)
    peak: int = 0
    lost: int = 0  # bytes that nobody has and nobody gets
    stale: int = 0  # bytes that are counted as running of clients that are gone
    last_quota: int = 0  # of the last client that had one
    overloaded: bool = False  # more than `safe` was in use once
    sampled: int = 0  # bytes in use when the driver was last asked

    @property
    def safe(self) -> int:
        return self.total * (100 - int(variable("MEMORY_RESERVE_PERCENT", "10"))) // 100

    @property
    def used(self) -> int:
        of_clients = sum(min(client.allocated, self.total) + CONTEXT_BYTES for client in self.clients)
        return min(self.total, IDLE_BYTES + self.lost + of_clients)

    def running(self) -> list[Client]:
        return [client for client in self.clients if not client.waiting]

    def utilization(self, now: float) -> float:
        return min(1.0, sum(client.used(now) for client in self.running()))

    def admit(self) -> list[Client]:
        """In the order in which they came, as many as have room; one that is larger than all of it runs alone. Those who now wait."""
        taken, held = 0, []
        for client in self.clients:
            forgotten = client.waiting and planted("waiter_forgotten")
            client.waiting = client.takes_lock and (forgotten or (bool(taken) and taken + client.allocated > self.safe))
            if client.waiting:
                held.append(client)
            elif client.takes_lock:
                taken += client.allocated
        self.peak = max(self.peak, taken)
        self.overloaded |= taken > self.safe
        return held

    def effective(self, client: Client) -> int:
        """Its quota; where all together are more than the GPU, its part of it."""
        total = sum(other.core for other in self.running())
        if total <= 100 or client.waiting or planted("core_sum_unscaled"):
            return client.core
        return client.core * 100 // total

    @staticmethod
    def lifted(client: Client) -> bool:
        """Return True for a client that a defect gives what the GPU has, whatever its quota."""
        return (
            (planted("core_lifted_on_update") and client.updated)
            or (planted("oversub_lifts_core") and client.oversubscribes)
            or (planted("memory_lifts_core") and bool(client.memory_limit))
            or (planted("memory_change_lifts_core", "restart_core_not_kept") and client.loose)
            or (planted("core_first_gpu_only") and bool(client.gpu.index))
            or (planted("core_first_client_only") and client is not client.gpu.clients[0])
        )

    def given(self, client: Client) -> float:
        """The part of the GPU that it really gets: its effective quota, if all is well."""
        if client.waiting or planted("deadlock") or (planted("third_waits") and client in self.clients[2:]):
            return 0.0
        if planted("newest_waits") and client in self.clients[1:] and client is self.clients[-1]:
            return 0.0
        if planted("deleted_keeps_lock") and client.hindered:
            return 0.0
        if planted("lower_waits") and any(other.core > client.core for other in self.running()):
            return 0.0
        quota = self.effective(client)
        if planted("core_ignored") or self.lifted(client):
            quota = 100 // max(1, len(self.running()))
        elif planted("uneven") and len(self.running()) > 1:
            quota = 85 if client is self.running()[0] else 15 // (len(self.running()) - 1)
        elif planted("core_too_much") and quota < 100:
            quota = min(100, quota + int(number("points", 20)))
        elif planted("core_too_little") and quota < 100:
            quota = max(2, quota - int(number("points", 20)))
        elif planted("core_inverted") and quota < 100:
            quota = 100 - quota
        elif planted("core_scaled") and client.limited:
            quota = max(1, quota * 3 // 4)
        elif planted("core_drifts") and quota < 100:
            quota = min(100, quota + int(number("points", 2) * (time.monotonic() - client.began)))
        elif (planted("core_told_only") and client.updated) or (planted("core_fourth_change") and client.changes > 3):
            return client.share
        elif planted("starvation"):
            client.hindered |= len(self.running()) > 1 and client is self.running()[-1]
            quota = 2 if client.hindered else quota
        elif planted("cliff"):
            client.hindered |= len(self.running()) > int(number("clients", 2))
            quota = max(1, quota // 10) if client.hindered else quota
        return quota / 100


def settings() -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in shlex.split(CONF.read_text()))


def present() -> list[Gpu]:
    conf = settings()
    identity, speed = int(conf.get("IDENTITY", "1")), float(os.environ.get("SIM_SPEED") or 1)
    name = conf.get("NAME", "NVIDIA H200")
    speed *= next((known for word, known in SPEEDS.items() if word in name), OTHERS)
    return [
        Gpu(index, f"GPU-{identity:08x}-0000-4000-8000-{index:012x}", name, int(conf.get("MEMORY", "143771")) * MIB, speed)
        for index in range(int(conf.get("GPUS", "8")))
    ]
