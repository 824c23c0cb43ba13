# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Matrix products on every GPU of a node, one by one and all at once.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import registry
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import jsonlines, observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.observation import fields
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import products as reading
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import gpu
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state.evidence import Window
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import gemm as workload
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import packing, products

# Read at import: a detached probe outlives the archive that Ansible runs it from.
SOURCE = packing.packed(products, workload)
# The kinds of accelerators that are measured.
KINDS = registry.having("products")


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """Per check {"check": "bf16", "variant": "mode=alone shape=8192x8192x8192"} one observation of the node, whose value is
    its slowest GPU, and one of each GPU."""
    checks = [(c["check"], c["variant"], fields(c["variant"])) for c in params["checks"]]
    snapshot = gpu.snapshot(node)
    refusal = gpu.refusal(snapshot, params["gpu_count"], "rates", params["mig"], KINDS, partial=True)
    if refusal:
        outcome, code, reason = refusal
        gpu_context = {"gpu": gpu.model(snapshot), "gpus": len(snapshot["gpus"])} if snapshot["gpus"] else {}
        for dtype, variant, _keys in checks:
            simulated = _simulated(snapshot)
            yield observation.failed(dtype, code, reason, outcome=outcome, variant=variant, simulated=simulated, context=gpu_context)
        return
    orders = [
        {"dtype": dtype, "mode": keys.get("mode", "alone"), "shape": [int(n) for n in keys["shape"].split("x")]}
        for dtype, _variant, keys in checks
    ]
    kind = gpu.kind(snapshot)
    order = {
        "checks": orders, "seconds": params["seconds"], "warmup_seconds": params["warmup_seconds"],
        "libraries": kind.products, "kind": kind.torch, **kind.torch_order(),
    }  # fmt: skip
    # The workload travels on standard input; its name in the command line is what a person would type.
    argv = [node.python(params["python"]), "-", json.dumps(order)]
    used, aside = gpu.without_mig(snapshot)
    env = dict(params["env"])
    if aside:  # a process that sees a partition may be shown nothing else
        env.setdefault(kind.visible, ",".join(kind.visible_names(used["gpus"])))
    with Window(node, snapshot) as window:
        result = node.run(argv, timeout=params["test_timeout"], stdin=SOURCE, env=env, merge=False, contained=True)
    snapshot = used
    records, unparsed = jsonlines.read(result.out)
    shared = {
        "command": argv,
        "evidence": window.evidence(),
        "simulated": _simulated(snapshot) or observation.SIMULATED_MARK in result.out,
    }
    rest_s = result.duration_s - sum(_when(result, [r], "time").get("duration_s", 0.0) for r in records)
    ran = next((r for r in records if r.get("kind") == "library"), {})
    library = ran.get("library")
    for want, (dtype, variant, _keys) in zip(orders, checks):
        check_records = [r for r in records if "kind" in r and all(r.get(k) == v for k, v in want.items())]
        context = {**_context(want, snapshot, ran), **({"set_aside": aside} if aside else {})}
        when = _when(result, check_records, "time")
        if not when:  # the one that did not end, or that never began because of it
            when, rest_s = {"started_at": observation.utc(result.started_at), "duration_s": max(round(rest_s, 3), 0.0)}, 0.0
        common = dict(shared, variant=variant, tool_version=library, context=context, **when)
        problem = _problem(result, records, check_records, unparsed, params, snapshot)
        if problem:
            outcome, code, reason = problem
            yield observation.failed(dtype, code, reason, outcome, raw=result.raw, **common)
        else:
            yield from _observations(dtype, [r for r in check_records if r["kind"] == "result"], snapshot, common, result)


def _numbers(record: dict[str, t.Any], *names: str) -> bool:
    return jsonlines.numbers(*(record.get(name) for name in names))


def _when(result: t.Any, records: list[dict[str, t.Any]], kind: str) -> dict[str, t.Any]:
    """Return the start and the duration of the check, or of one GPU in it."""
    for record in records:
        if record.get("kind") == kind and _numbers(record, "after_s", "took_s"):
            offset_s, took = record["after_s"], record["took_s"]
            if 0 <= offset_s <= result.duration_s and 0 <= took <= result.duration_s:
                return {"started_at": observation.utc(result.started_at + offset_s), "duration_s": round(took, 3)}
    return {}


def _context(want: dict[str, t.Any], snapshot: dict[str, t.Any], ran: dict[str, t.Any]) -> dict[str, t.Any]:
    return {
        "gpu": gpu.model(snapshot),
        "gpus": len(snapshot["gpus"]),
        "gpu_uuids": [g["uuid"] for g in snapshot["gpus"]],
        "library": ran.get("library"),
        # Who chose the kernels.
        "backend": ran.get("backend"),
        "type": want["dtype"],
        "mode": want["mode"],
        "shape": "x".join(map(str, want["shape"])),
    }


def default_checks(params: Params) -> list[dict[str, str]]:
    """Return the default checks, for a call that names none."""
    return [
        {"check": dtype, "variant": observation.variant(mode=mode, shape=params["shape"])}
        for dtype in params["types"]
        for mode in params["modes"]
    ]


def _problem(
    result: t.Any, records: list[dict[str, t.Any]], check_records: list[dict[str, t.Any]], unparsed: list[str], params: dict[str, t.Any],
    snapshot: dict[str, t.Any],
) -> tuple[str, str, str] | None:
    """Return why a check has no usable numbers, as (outcome, reason code, reason); None if it has."""
    if result.missing:
        return "error", "tool_missing", f"{result.argv[0]}: {result.missing}; set acceptance_python or gemm_python"
    if result.timed_out:
        return "timeout", "timeout", f"the matrix products did not end within {result.ended_after(params['test_timeout'])}"
    for record in check_records:
        if record["kind"] == "unsupported":
            return "error", "unsupported", str(record.get("reason"))
    faults = [r for r in check_records if r["kind"] == "fault"] or [r for r in records if r.get("kind") == "fault" and "dtype" not in r]
    if faults:
        reason = str(faults[0].get("reason"))
        return "error", "torch_missing" if "was not found" in reason else "cuda_failed", reason
    if result.rc != 0:
        return "error", "tool_failed", f"the workload ended with status {result.rc}: {' '.join((result.err.split() or unparsed)[-40:])}"
    if not any(r.get("kind") == "end" for r in records):
        return "error", "incomplete_output", "the workload's output is cut: its last line is missing"
    results = [r for r in check_records if r["kind"] == "result"]
    if not results:
        return "error", "bad_output", "the workload printed no result for this check"
    for record in results:
        device = record.get("device")
        valid = isinstance(device, int) and not isinstance(device, bool) and 0 <= device < len(snapshot["gpus"])
        if not valid or not _numbers(record, "time_ms") or not record["time_ms"] > 0:
            return "error", "bad_output", f"the workload printed time_ms {record.get('time_ms')} for GPU {device}"
    problems = list(filter(None, (reading.problem(f"GPU {record['device']}", record) for record in results)))
    # Certain faults come before results that cannot be judged.
    wrong = [problem for problem in problems if problem[0] == "wrong_results"] or problems
    return ("error", wrong[0][0], "; ".join(reason for _code, reason in wrong)) if wrong else None


def _observations(
    dtype: str, result_records: list[dict[str, t.Any]], snapshot: dict[str, t.Any], common: dict[str, t.Any], result: t.Any
) -> t.Iterator[dict[str, t.Any]]:
    results = {}
    by_uuid = {g["uuid"]: g for g in snapshot["gpus"]}
    for record in result_records:
        # A library alone may not say which GPU a device number is; both it and the kind's tool then count by PCI address.
        gpu_of = by_uuid.get(str(record.get("uuid"))) or snapshot["gpus"][record["device"]]
        results[gpu_of["uuid"]] = record
    values = [r["tflops"] for r in results.values()]
    metrics = {
        "tflops": {"value": min(values), "unit": "TFLOPS"},
        "time_ms": {"value": max(r["time_ms"] for r in results.values()), "unit": "ms"},
        "spread": {"value": 100.0 * (max(values) - min(values)) / max(values), "unit": "percent"},
    }
    # Every GPU that its tool shows must have been measured, whatever the workload was able to see.
    members = [f"gpu/{uuid}" for uuid in by_uuid]
    yield observation.measured(dtype, members=members, metrics=metrics, raw=result.out, **common)
    for uuid, record in results.items():
        yield observation.measured(
            dtype,
            part=f"gpu/{uuid}",
            metrics={
                "tflops": {"value": record["tflops"], "unit": "TFLOPS"},
                "time_ms": {"value": record["time_ms"], "unit": "ms"},
            },
            **{
                **common, **_when(result, [record], "result"), "evidence": {},
                "context": {**common["context"], "gpu_uuids": [uuid], "gpu": by_uuid[uuid]["name"]},
            },
        )


def _simulated(snapshot: dict[str, t.Any]) -> bool:
    return bool(snapshot.get("simulated"))
