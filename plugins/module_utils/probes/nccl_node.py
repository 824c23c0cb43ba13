# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collectives between the GPUs of one node, by nccl-tests or the programs of another kind that have their form.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nccl, nccl_settings
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nccl_tests
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import gpu
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state.evidence import Window
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

# How nccl-tests is called, over one node or many: options of both modules.
OPTIONS: dict[str, dict[str, t.Any]] = {
    "ops": {"type": "list", "elements": "str", "default": ["all_reduce"]},
    "gpus": {"type": "str", "default": "all"},
    "sizes": {"type": "str", "default": "8M:auto"},
    "type": {"type": "str", "default": "float"},
    "factor": {"type": "int", "default": 2},
    "iterations": {"type": "int", "default": 20},
    "warmup": {"type": "int", "default": 5},
    "binary_dir": {"type": "str", "default": ""},
    "binary_suffix": {"type": "str", "default": ""},
    "extra_args": {"type": "list", "elements": "str", "default": []},
}


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """One observation per check of `params["checks"]`: {"check": op, "variant": "gpus=all sizes=8M:auto type=float"}."""
    checks = [(c["check"], c["variant"], observation.fields(c["variant"])) for c in params["checks"]]
    snapshot = gpu.snapshot(node)
    if snapshot["outcome"] == "measured" and len(snapshot["gpus"]) == 1 and params["gpu_count"] in (None, 1):
        refusal: t.Any = ("not_applicable", "single_gpu", "one GPU: there is no link to measure")
    else:
        refusal = gpu.refusal(snapshot, params["gpu_count"], nccl.WHAT, params["mig"], nccl.KINDS, partial=True)
    if refusal:
        outcome, code, reason = refusal
        gpu_context = {"gpu": gpu.model(snapshot), "gpus": len(snapshot["gpus"])} if snapshot["gpus"] else {}
        for op, variant, _keys in checks:
            simulated = bool(snapshot.get("simulated"))
            yield observation.failed(op, code, reason, outcome=outcome, variant=variant, simulated=simulated, context=gpu_context)
        return
    for op, variant, keys in checks:
        record, snapshot_after = _measure(op, variant, keys, snapshot, params, node)
        yield record
        if snapshot_after and snapshot_after["outcome"] == "measured":
            snapshot = snapshot_after  # what changed during one test must not be held against the next


def default_checks(params: Params) -> list[dict[str, str]]:
    """Return the default checks, for a call that names none."""
    variant = observation.variant(gpus=params["gpus"], sizes=params["sizes"], type=params["type"])
    return [{"check": op, "variant": variant} for op in params["ops"]]


def _measure(
    op: str, variant: str, keys: dict[str, str], snapshot: dict[str, t.Any], params: dict[str, t.Any], node: Node
) -> tuple[dict[str, t.Any], dict[str, t.Any] | None]:
    """The observation of one test, and the state of the GPUs after it."""
    kind = gpu.kind(snapshot)
    unpartitioned, aside = gpu.without_mig(snapshot)
    count = len(unpartitioned["gpus"]) if keys.get("gpus", "all") == "all" else int(keys["gpus"])
    if count > len(unpartitioned["gpus"]):
        reason = f"{count} GPUs were asked for and {len(unpartitioned['gpus'])} are here"
        return observation.failed(op, "gpu_count", reason, variant=variant, simulated=bool(snapshot.get("simulated"))), None
    if count == 1:
        reason = "one GPU was asked for: there is no link to measure"
        simulated = bool(snapshot.get("simulated"))
        return observation.failed(op, "single_gpu", reason, "not_applicable", variant=variant, simulated=simulated), None
    used = unpartitioned["gpus"][:count]
    smallest, _colon, largest = keys.get("sizes", "8M:auto").partition(":")
    max_bytes = nccl.largest_that_fits(used) if largest in ("", "auto") else nccl.size(largest)
    binary = _binary(op, params)
    argv = [binary, "-b", str(nccl.size(smallest)), "-e", str(max_bytes), "-f", str(params["factor"]), "-g", str(count)]
    argv += ["-n", str(params["iterations"]), "-w", str(params["warmup"]), "-d", keys.get("type", "float"), "-c", "1"]
    argv += params["extra_args"]
    env = {str(k): str(v) for k, v in params["env"].items()}
    if count < len(snapshot["gpus"]):
        env.setdefault(kind.visible, ",".join(kind.visible_names(used)))
    with Window(node, snapshot) as window:
        result = node.run(argv, timeout=params["test_timeout"], env=env, merge=True, contained=True)
    context = {**_context(op, keys, used, env, node), **({"set_aside": aside} if aside else {})}
    common: dict[str, t.Any] = {
        "variant": variant,
        "members": [],
        "command": [f"{k}={v}" for k, v in sorted(env.items())] + argv,
        "duration_s": result.duration_s,
        "started_at": observation.utc(result.started_at),
        "raw": result.raw,
        "context": context,
        "evidence": window.evidence(),
        "simulated": bool(snapshot.get("simulated")),
    }
    if result.missing:
        code = "tool_missing" if result.missing == "not found" else "tool_not_executable"
        reason = f"{binary}: {result.missing}; install {kind.collective_tests} or set nccl_node_binary_dir"
        return observation.failed(op, code, reason, **common), window.after
    if result.timed_out:
        reason = f"{os.path.basename(binary)} did not end within {result.ended_after(params['test_timeout'])} and was ended"
        return observation.failed(op, "timeout", reason, "timeout", **common), window.after
    read = nccl_tests.parse(result.out, rc=result.rc or 0, expect_ranks=count, expect_max_bytes=max_bytes)
    common["tool_version"] = read.get("tool_version")
    context.update(nccl_version=read.get("nccl_version"), warnings=read.get("warnings") or [])
    if read["outcome"] != "measured":
        if result.too_much and read["reason_code"] in ("bad_output", "incomplete_output"):
            reason = f"{os.path.basename(binary)}: {result.too_much} (NCCL_DEBUG)"
            return observation.failed(op, "incomplete_output", reason, **common), window.after
        return observation.failed(op, read["reason_code"], read["reason"], **common), window.after
    if read["op"] not in (None, op):
        return observation.failed(op, "bad_output", f"{binary} printed results of {read['op']}", **common), window.after
    return observation.measured(op, metrics=nccl.metrics(read), series=nccl.series(read), **common), window.after


def _binary(op: str, params: dict[str, t.Any]) -> str:
    name = f"{op}_perf{params['binary_suffix']}"
    return os.path.join(params["binary_dir"], name) if params["binary_dir"] else name


def _context(
    op: str, keys: dict[str, str], gpus: list[dict[str, t.Any]], env: dict[str, str], node: Node
) -> dict[str, t.Any]:
    machine_settings = nccl_settings.of_machine(node, env)
    settings = {**machine_settings, **env}
    names = sorted({g["name"] for g in gpus})
    return {
        "op": op,
        "type": keys.get("type", "float"),
        "gpu": names[0] if len(names) == 1 else "mixed: " + ", ".join(names),
        "gpus": len(gpus),
        "gpu_uuids": [g["uuid"] for g in gpus],
        **nccl.selection(names, len(gpus), env, settings),
        "nodes": 1,
        "nccl_env": {k: v for k, v in sorted(settings.items()) if k.startswith("NCCL_")},
        "nccl_machine": machine_settings,
        "series_units": {"size": "B", "time_us": "us", "algbw": "GB/s", "busbw": "GB/s"},
    }
