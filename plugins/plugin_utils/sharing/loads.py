# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pods that a step of a case requests: their names, quotas, and the environment that sets their load.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import math
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import quantities
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cluster import SCHEDULER, PodRequest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.running import RunningCase, Stopped

# The workload of a pod that only holds a shared device, and that of one that only opens connections to the schedulers.
HOLD, CONNECTING = "hold", "connecting"
# Bytes of one element of the workloads' matrices.
ELEMENT = 4
SMALL = 1e6


def app_of(run: RunningCase) -> str:
    """Return the label `app` of the case's pods, with which their names begin."""
    return f"xp{run.case.letter}-{run.case.id.lower()}"


def request_of(run: RunningCase, arguments: t.Mapping[str, t.Any], number: int, node: str = "") -> PodRequest:
    """Return the request for pod `number` of the case, on the given node if there is one. Raise Stopped if its load cannot be sized."""
    system = run.system
    group = str(arguments["group"]).replace("_", "-")
    environment = {**_load(run, arguments), "GPUFLEET_W_TAG": system.tag}
    for key, value in (("debug", "1"), ("memory", arguments.get("memory_env")), ("oversub", "1" if arguments.get("oversub") else None)):
        if value is not None and key in system.environment:
            environment[system.environment[key]] = str(value)
    if arguments["workload"] == CONNECTING:
        addresses = [f"{daemon.address}:{system.scheduler['port']}" for daemon in run.cluster.daemons(SCHEDULER) if daemon.address]
        environment["GPUFLEET_W_ADDRESSES"] = ",".join(addresses)
    annotations = {system.annotations[kind]: str(arguments[kind]) for kind in ("core", "memory") if kind in arguments}
    app = app_of(run)
    return PodRequest(
        f"{app}-{group}-{number}", app, arguments["workload"], environment, annotations, bool(arguments.get("job")),
        run.node if arguments.get("on_node") else node, arguments.get("on_node") == "preferred" or bool(arguments.get("gather")),
    )  # fmt: skip


def holder(run: RunningCase, number: int, node: str = "") -> PodRequest:
    """Return the request for an idle pod that takes a shared device and does not use it."""
    app = app_of(run)
    return PodRequest(f"{app}-{HOLD}-{number}", app, HOLD, {}, {}, node=node)


def _load(run: RunningCase, arguments: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Return the environment of a workload: the reference's settings, shorter in a scaled run. A workload with `live` runs until the case
    deletes it."""
    parameters = run.parameters
    load = parameters.load(parameters.workloads[arguments["workload"]], run.case.needs_running_pods)
    settings: dict[str, float] = {}
    if "n" in arguments and _sizes_itself(run, arguments):
        load["n"], settings["GPUFLEET_W_FACTOR"] = 0, float(arguments["n"]["of_memory"])
    elif "n" in arguments:
        load["n"] = _size(run, arguments["n"], arguments.get("memory", arguments.get("memory_env")))
    if "n" in load:
        settings["GPUFLEET_W_N"] = load["n"]
    if "iterations" in load:
        settings["GPUFLEET_W_ITERATIONS"] = load["iterations"]
    if "duration_s" in load:
        long = parameters.numbers["stab_short_s"] * 4 + parameters.numbers["pod_timeout_s"]
        settings["GPUFLEET_W_DURATION_S"] = long if arguments.get("live") else load["duration_s"]
        least = min(load["probe_s"], 2 * parameters.numbers["quota_window_s"])
        settings["GPUFLEET_W_PROBE_S"] = max(parameters.interval(load["probe_s"]), least)
    if "probe" in arguments:
        settings["GPUFLEET_W_PROBE_S"] = parameters.interval(float(arguments["probe"]))
    settings["GPUFLEET_W_SETTLE_S"] = parameters.numbers["settle_s"]
    if "allocate" in arguments:
        settings["GPUFLEET_W_ALLOCATE_BYTES"] = quantities.number_of(arguments["allocate"])
    return {name: f"{value:g}" if value < SMALL else str(int(value)) for name, value in settings.items()}


def _sizes_itself(run: RunningCase, arguments: t.Mapping[str, t.Any]) -> bool:
    """Return True if the workload itself reads the memory size of its GPU. Only one that is meant to be too large may do so."""
    return (
        "metrics" not in run.system.has
        and arguments["workload"] == "w4a"
        and "of_memory" in (arguments["n"] if isinstance(arguments["n"], dict) else ())
    )


def _size(run: RunningCase, size: t.Any, quota: t.Any) -> float:
    """Return the width of the matrices: a given number, or the width at which `tensors` matrices fill the part `of_memory` of a GPU's
    memory or the part `of_quota` of the pod's memory quota. Raise Stopped if no scheduler reports the memory, or there is no quota."""
    if not isinstance(size, dict):
        return float(size)
    if "of_quota" in size:
        if quota is None:
            raise Stopped("the load is sized by the pod's memory quota, and the pod has none")
        return math.floor(math.sqrt(float(size["of_quota"]) * quantities.number_of(quota) / (float(size["tensors"]) * ELEMENT)))
    totals = [total for gpus in run.gpu_memory().values() for total in gpus]
    if not totals:
        raise Stopped("no scheduler says how much memory a GPU has, by which the load is sized")
    width = math.sqrt(float(size["of_memory"]) * max(totals) / (float(size["tensors"]) * ELEMENT))
    return math.ceil(width) if float(size["of_memory"]) > 1 else math.floor(width)
