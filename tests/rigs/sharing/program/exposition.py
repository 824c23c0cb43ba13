# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a Prometheus reads of the stand-in: the names and labels of the real one, and its traps."""

from __future__ import annotations

import time
import typing as t

from gpus import CONTEXT_BYTES, Client, Gpu
from names import PREFIX, variable
from planted import defect, planted

TYPES = (
    "REGISTER", "SCHED_ON", "SCHED_OFF", "REQ_LOCK", "LOCK_OK", "DROP_LOCK", "LOCK_RELEASED", "SET_TQ", "MEM_UPDATE", "WAIT_FOR_MEM",
    "MEM_AVAILABLE", "PREPARE_SWAP_OUT", "UPDATE_LIMIT", "UPDATE_CORE_LIMIT",
)  # fmt: skip
# A number that nobody set.
GARBAGE = 25769803781
COUNTERS = ("drop_lock", "client_disconnect", "wait_for_mem", "mem_available")
Sample = tuple[str, dict[str, t.Any], float]


def text(
    gpus: list[Gpu], messages: dict[str, int], counters: dict[str, int], ghosts: list[Client], strays: int, stale: list[Client]
) -> str:
    samples = [*of_gpus(gpus), *of_clients(gpus, ghosts), *of_scheduler(gpus, messages, counters)]
    samples += [("client_throttled", {"client_id": f"{stray:016x}"}, 0.0) for stray in range(strays)]
    samples += [("client_memory_quota_bytes", of_pod(client, client.gpu.uuid), client.memory_limit) for client in stale]
    missing = defect()["metric"] if planted("metric_missing") else None
    families: dict[str, list[str]] = {}
    for name, labels, value in samples:
        inside = ",".join(f'{key}="{labels[key]}"' for key in labels)
        amount = f"{value:g}" if abs(value) < 1e5 else f"{value:.0f}"
        families.setdefault(name, []).append(f"{PREFIX}_{name}{{{inside}}} {amount}" if labels else f"{PREFIX}_{name} {amount}")
    lines = ["# simulated by gpufleet.acceptance"]
    for name, family in families.items():
        if name != missing:
            lines += [f"# TYPE {PREFIX}_{name} {'counter' if name.endswith('_total') else 'gauge'}", *family]
    return "\n".join(lines) + "\n"


def of_gpus(gpus: list[Gpu]) -> t.Iterator[Sample]:
    up = not planted("nvml_down")
    if PREFIX == "xpushare":
        yield "gpu_sampler_up", {}, float(up)
        yield from [("gpu_sampler_backend_info", {"backend": "nvml"}, 1.0)] if up else []
    yield "nvml_up", {}, float(up)
    now = time.monotonic()
    for number, gpu in enumerate(gpus if up else []):
        labels = {"gpu_uuid": gpu.uuid, "gpu_index": gpu.index}
        read = gpus[(number + 1) % len(gpus)] if planted("gpus_swapped") else gpu
        used = read.sampled / (1 << 20) if planted("used_in_mib") else read.sampled
        load = 0.0 if planted("utilization_zero") else 1.0 if planted("utilization_stuck") else read.utilization(now)
        yield "gpu_info", {**labels, "gpu_name": gpu.name}, 1.0
        yield "gpu_memory_total_bytes", labels, gpu.total
        yield "gpu_memory_used_bytes", labels, used
        yield "gpu_memory_free_bytes", labels, gpu.total - read.sampled
        yield "gpu_utilization_ratio", labels, load
        yield "gpu_memory_utilization_ratio", labels, load * 0.6
        yield "gpu_process_count", labels, len(gpu.clients)


def of_clients(gpus: list[Gpu], ghosts: list[Client]) -> t.Iterator[Sample]:
    now = time.monotonic()
    window = int(variable("COMPUTE_WINDOW_MS", "2000"))
    up = not planted("nvml_down")
    for client in [*(client for gpu in gpus for client in gpu.clients), *ghosts]:
        gpu = client.gpu
        uuid = "GPU-00000000-0000-4000-8000-000000000000" if planted("uuid_wrong") else gpu.uuid
        if planted("client_other_gpu"):
            uuid = gpus[(gpus.index(gpu) + 1) % len(gpus)].uuid
        labels = of_pod(client, uuid)
        used, effective = client.used(now), gpu.effective(client)
        if planted("core_sum_of_all_gpus"):
            effective = client.core * 100 // max(100, sum(other.core for every in gpus for other in every.clients))
        quota = client.memory_limit
        if planted("quota_garbage"):
            quota = GARBAGE
        elif planted("quota_inherited") and not quota:
            quota = gpu.last_quota
        elif planted("quota_in_mib"):
            quota //= 1 << 20
        elif planted("memory_shown_of_all"):
            quota = next((other.memory_limit for every in gpus for other in every.clients if other.updated), quota)
        told = client.core_told / 100 if planted("core_as_ratio") else client.core_told
        if planted("quota_of_newest"):
            newest = max((other for every in gpus for other in every.clients), key=lambda other: other.order, default=client)
            quota, told = newest.memory_limit, newest.core_told
        exceeded = bool(client.memory_limit) and client.allocated > client.memory_limit and not planted("exceeded_never")
        client.exceeded |= exceeded
        exceeded |= planted("exceeded_always") or (planted("exceeded_sticks") and client.exceeded)
        throttled = (client.throttled or planted("throttled_always")) and not planted("throttled_never")
        allocated = sum(other.allocated for other in gpu.clients) if planted("allocated_of_gpu") else client.allocated
        index = gpu.index if up and not planted("index_unknown") else -1
        yield "client_info", {**labels, "gpu_index": index, "host_pid": client.host_pid}, 1.0
        yield "client_managed_allocated_bytes", labels, allocated
        yield "client_managed_allocated_peak_bytes", labels, client.peak
        if up:
            yield "client_nvml_used_bytes", {**labels, "host_pid": client.host_pid}, CONTEXT_BYTES  # managed memory is not in it
        yield "client_memory_quota_bytes", labels, quota
        yield "client_memory_quota_exceeded", labels, float(exceeded)
        yield "client_core_quota_config_percent", labels, told
        yield "client_core_quota_effective_percent", labels, client.core_told if client.core_told != client.core else effective
        yield "client_core_window_usage_ms", labels, round(used * window)
        yield "client_core_window_limit_ms", labels, effective * window // 100
        yield "client_core_usage_ratio", labels, used
        yield "client_throttled", labels, float(throttled)
        yield "client_pending_drop", labels, 0.0
        yield "client_quota_debt_ms", labels, 0.0


def of_pod(client: Client, uuid: str) -> dict[str, t.Any]:
    return {"namespace": client.namespace, "pod": client.pod, "client_id": client.id, "gpu_uuid": uuid}


def of_scheduler(gpus: list[Gpu], messages: dict[str, int], counters: dict[str, int]) -> t.Iterator[Sample]:
    for gpu in gpus:
        labels = {"gpu_uuid": gpu.uuid, "gpu_index": gpu.index}
        locked = [client for client in gpu.running() if client.takes_lock]
        running = gpu.stale + sum(client.allocated for client in locked)
        waiting = len(gpu.clients) - len(gpu.running())
        yield "scheduler_running_clients", labels, len(locked)
        yield "scheduler_request_queue_clients", labels, 0.0
        yield "scheduler_wait_queue_clients", labels, waiting
        yield "scheduler_running_memory_bytes", labels, running
        yield "scheduler_peak_running_memory_bytes", labels, gpu.peak
        yield "scheduler_memory_safe_limit_bytes", labels, gpu.safe
        yield "scheduler_memory_overloaded", labels, float(running > gpu.safe or (gpu.overloaded and planted("overload_sticks")))
    for kind in TYPES:  # only what came in is counted: UPDATE_LIMIT and its like stay 0 for ever
        yield "scheduler_messages_total", {"type": kind}, messages.get(kind, 0)
    for name in COUNTERS:
        yield f"scheduler_{name}_total", {}, counters.get(name, 0)
