# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Matrix products on every GPU of a node, one by one and all at once.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import gpu, observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.evidence import Window
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes.nccl import fields
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import gemm as workload

# Read at import: a detached probe outlives the archive that Ansible runs it from.
# From a file, a zip or memory: wherever this collection was unpacked.
SOURCE: str = workload.__loader__.get_source(workload.__name__)  # type: ignore[union-attr]


def probe(params: dict[str, t.Any], node: Node) -> t.Iterator[dict[str, t.Any]]:
    """Per check {"check": "bf16", "variant": "mode=alone shape=8192x8192x8192"} one observation of the node, whose value is
    its slowest GPU, and one of each GPU."""
    checks = [(c["check"], c["variant"], fields(c["variant"])) for c in params["checks"]]
    seen = gpu.snapshot(node.run, params["nvidia_smi"])
    refusal = gpu.refusal(seen, params["gpu_count"], "rates")
    if refusal:
        outcome, code, reason = refusal
        for dtype, variant, _keys in checks:
            yield observation.failed(dtype, code, reason, outcome=outcome, variant=variant, simulated=_simulated(seen))
        return
    wanted = [
        {"dtype": dtype, "mode": keys.get("mode", "alone"), "shape": [int(n) for n in keys["shape"].split("x")]}
        for dtype, _variant, keys in checks
    ]
    order = {"checks": wanted, "seconds": params["seconds"], "warmup_seconds": params["warmup_seconds"]}
    # The workload travels on standard input; its name in the command line is what a person would type.
    argv = [node.python(params["python"]), "-", json.dumps(order)]
    with Window(node, seen, params["nvidia_smi"]) as window:
        result = node.run(argv, timeout=params["test_timeout"], stdin=SOURCE, env=params["env"], merge=False, contained=True)
    records, rest = _records(result.out)
    whole = {
        "command": argv,
        "duration_s": result.duration_s,
        "started_at": observation.utc(result.started_at),
        "evidence": window.evidence(),
        "simulated": _simulated(seen) or observation.SIMULATED_MARK in result.out,
    }
    library = next((r["library"] for r in records if r.get("kind") == "library"), None)
    for want, (dtype, variant, _keys) in zip(wanted, checks):
        mine = [r for r in records if all(r.get(k) == v for k, v in want.items())]
        context = {
            "gpu": gpu.model(seen),
            "gpus": len(seen["gpus"]),
            "gpu_uuids": [g["uuid"] for g in seen["gpus"]],
            "library": library,
            "type": dtype,
            "mode": want["mode"],
            "shape": "x".join(map(str, want["shape"])),
        }
        common = dict(whole, variant=variant, tool_version=library, context=context)
        problem = _problem(result, records, mine, rest, params)
        if problem:
            outcome, code, reason = problem
            yield observation.failed(dtype, code, reason, outcome, raw=result.out + result.err, **common)
        else:
            yield from _observations(dtype, mine, seen, common, result.out)


def default_checks(params: dict[str, t.Any]) -> list[dict[str, str]]:
    """The checks of a call that names none."""
    return [
        {"check": dtype, "variant": observation.variant(mode=mode, shape=params["shape"])}
        for dtype in params["types"]
        for mode in params["modes"]
    ]


def _records(text: str) -> tuple[list[dict[str, t.Any]], list[str]]:
    records, rest = [], []
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict):
            records.append(record)
        elif line.strip():
            rest.append(line.strip())
    return records, rest


def _problem(
    result: t.Any, records: list[dict[str, t.Any]], mine: list[dict[str, t.Any]], rest: list[str], params: dict[str, t.Any]
) -> tuple[str, str, str] | None:
    """Why a check has no usable numbers, as (outcome, reason code, reason)."""
    if result.missing:
        return "error", "tool_missing", f"{result.argv[0]}: {result.missing}; set gemm_python"
    if result.timed_out:
        return "timeout", "timeout", f"the matrix products did not end within {params['test_timeout']:.0f} s"
    for record in mine:
        if record["kind"] == "unsupported":
            return "error", "unsupported", record["reason"]
    faults = [r for r in mine if r["kind"] == "fault"] or [r for r in records if r.get("kind") == "fault" and "dtype" not in r]
    if faults:
        reason = str(faults[0]["reason"])
        return "error", "torch_missing" if "was not found" in reason else "cuda_failed", reason
    if result.rc != 0:
        return "error", "tool_failed", f"the workload ended with status {result.rc}: {' '.join((result.err.split() or rest)[-40:])}"
    if not any(r.get("kind") == "end" for r in records):
        return "error", "incomplete_output", "the workload's output is cut: its last line is missing"
    if not any(r["kind"] == "result" for r in mine):
        return "error", "bad_output", "the workload printed no result for this check"
    for record in mine:
        numbers = [record.get(k) for k in ("time_ms", "tflops")]
        if not all(isinstance(n, (int, float)) and not isinstance(n, bool) and n > 0 for n in numbers):
            return "error", "bad_output", f"the workload printed {numbers} for GPU {record.get('device')}"
        error, limit = record.get("error"), record.get("tolerance")
        if not isinstance(error, (int, float)) or not isinstance(limit, (int, float)) or error > limit:
            return "error", "wrong_results", f"GPU {record.get('device')} computed a wrong product: relative error {error}, at most {limit}"
    return None


def _observations(
    dtype: str, mine: list[dict[str, t.Any]], seen: dict[str, t.Any], common: dict[str, t.Any], raw: str
) -> t.Iterator[dict[str, t.Any]]:
    results = {}
    by_uuid = {g["uuid"]: g for g in seen["gpus"]}
    for record in mine:
        # cuBLAS alone does not say which GPU a device number is; both it and nvidia-smi then count by PCI address.
        gpu_of = by_uuid.get(record.get("uuid") or "") or seen["gpus"][record["device"]]
        results[gpu_of["uuid"]] = record
    values = [r["tflops"] for r in results.values()]
    metrics = {
        "tflops": {"value": min(values), "unit": "TFLOPS"},
        "time_ms": {"value": max(r["time_ms"] for r in results.values()), "unit": "ms"},
        "spread": {"value": 100.0 * (max(values) - min(values)) / max(values), "unit": "percent"},
    }
    # Every GPU that nvidia-smi shows must have been measured, whatever the workload was able to see.
    members = [f"gpu/{uuid}" for uuid in by_uuid]
    yield observation.measured(dtype, members=members, metrics=metrics, raw=raw, **common)
    for uuid, record in results.items():
        yield observation.measured(
            dtype,
            part=f"gpu/{uuid}",
            metrics={
                "tflops": {"value": record["tflops"], "unit": "TFLOPS"},
                "time_ms": {"value": record["time_ms"], "unit": "ms"},
            },
            **{**common, "evidence": {}, "context": {**common["context"], "gpu_uuids": [uuid], "gpu": by_uuid[uuid]["name"]}},
        )


def _simulated(seen: dict[str, t.Any]) -> bool:
    return bool(seen.get("simulated"))
