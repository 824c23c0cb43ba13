# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs with a history: folders as the controller writes them, of a fleet whose numbers and whereabouts are chosen, judged for real."""

from __future__ import annotations

import base64
import dataclasses
import pathlib
import typing as t
import zlib

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import conclude
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import planner
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import measurement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from harness.records import make_plan

GPU = "NVIDIA H200"
VARIANT = "mode=alone shape=8192x8192x8192"
EXPECTED = {
    "id": "ours", "match": {"stage": "gemm", "check": "bf16", "gpu": GPU}, "metric": "tflops", "value": 670, "unit": "TFLOPS",
    "source": "our own", "date": "2026-01", "confidence": "measured",
}  # fmt: skip


@dataclasses.dataclass
class Machine:
    """A machine with its GPUs, {number of the UUID: TFLOPS}. `silent`: it says nothing, as one that cannot be reached. `sweep`: what
    each of its message sizes gives, as a share of what is usual. `lists`: those of its parts, as their checks list them."""

    machine_id: str
    gpus: dict[int, float]
    driver: str = "580.1"
    silent: bool = False
    simulated: bool = False
    sweep: float = 1.0
    lists: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)


def run_id(day: int) -> str:
    return f"202601{day:02}T000000Z-0a1b2c"


def uuid(number: int) -> str:
    return f"GPU-{number:08x}-0000-4000-8000-000000000000"


def fleet(**tflops: float) -> dict[str, Machine]:
    """Machines with a GPU each: fleet(a=670)."""
    return {name: Machine(name * 32, {ord(name): value}) for name, value in tflops.items()}


def measured(
    results: pathlib.Path, day: int, machines: dict[str, Machine], stages: t.Sequence[str] = ("stack", "gemm"), **plan: t.Any
) -> Run:
    """A run of some stages that is not judged yet."""
    run = Run(results, run_id(day))
    run.make()
    checks = [("stack", "facts", ""), ("gemm", "bf16", VARIANT)]
    items = [
        {"stage": stage, "check": check, "variant": variant, "subject": {"kind": "node", "id": name, "members": []}, "target": name}
        for name in machines
        for stage, check, variant in checks
        if stage in stages
    ]
    expected = expectations.resolve([("run", [EXPECTED])]).dump()
    written = {
        "schema": "plan/v1", "run_id": run.id, "created_at": f"2026-01-{day:02}T00:00:00Z", "mode": "run", "chained": True,
        "collection_version": "1", "ansible_version": "2", "python_version": "3", "partial": False, "left_out": [],
        "skipped_stages": [], "stages": [{"name": name, "role": f"gpufleet.acceptance.{name}"} for name in stages],
        "targets": {name: {"plane": "ssh"} for name in machines}, "items": items, "sample": {}, "check_seconds": {}, "notes": [],
        "judging": {
            "sets": [expected], "of": dict.fromkeys(machines, 0), "waivers": [], "warn": "accept", "stack": {}, "notes": [],
            "stated": {name: {"gpu_count": len(machine.gpus)} for name, machine in machines.items()},
        },
        **plan,
    }  # fmt: skip
    (run.dir / "plan.json").write_text(planner.dump(make_plan(written)))
    for name, machine in machines.items():
        run.journal.append([record for record in _observed(run, name, machine) if record["stage"] in stages])
    return run


def _observed(run: Run, name: str, machine: Machine) -> list[dict[str, t.Any]]:
    stack = measurement.Completer(run, "stack", name, "ssh", {}, machine.simulated)
    gemm = measurement.Completer(run, "gemm", name, "ssh", {}, machine.simulated)
    if machine.silent:
        return [
            stack.failure(("facts", "", name), "unreachable", "nobody answers", "missing"),
            gemm.failure(("bf16", VARIANT, name), "unreachable", "nobody answers", "missing"),
        ]
    uuids = [uuid(number) for number in machine.gpus]
    identity = {"machine_id": machine.machine_id, "gpu_uuids": uuids}
    units = {"busbw": "GB/s", "size": "B"}
    context = {"gpu": GPU, "gpus": len(uuids), "gpu_uuids": uuids, "identity": identity, "series_units": units}
    facts = {"driver": machine.driver, "kernel": "6.1", "free_disk_gib_/": 60.0 + len(run.id)}
    of_machine = {**context, "machine_id": machine.machine_id, "facts": facts, **machine.lists}
    found = [stack.complete(observation.measured("facts", context=of_machine))]
    for part, value in [("", min(machine.gpus.values())), *((f"gpu/{uuid(n)}", value) for n, value in machine.gpus.items())]:
        metrics = {"tflops": {"value": value, "unit": "TFLOPS"}, "time_ms": {"value": round(1.1e6 / value) / 1000, "unit": "ms"}}
        series = [] if part else [{"size": 8 << number, "busbw": (100.0 + number) * machine.sweep} for number in range(4)]
        seen = observation.measured("bf16", variant=VARIANT, part=part, metrics=metrics, series=series, context=context)
        seen["members"] = [] if part else [f"gpu/{one}" for one in uuids]
        seen["raw_z"] = base64.b64encode(zlib.compress(f"{name} {part} {value}".encode())).decode()
        found.append(gemm.complete(seen))
    return found


def judge(run: Run, **variables: t.Any) -> dict[str, t.Any]:
    """Judge it as the play does; `said` are all lines of the terminal."""
    planned = {"acceptance_run": {"results_dir": str(run.dir.parent), "run_id": run.id}}
    done = conclude.judge({}, None, None, {**planned, **variables})
    return {**done, "said": [line for line, _colour in [*done["lines"], *done["tell"]()]]}


def judged(results: pathlib.Path, day: int, machines: dict[str, Machine], **variables: t.Any) -> Run:
    """A judged run. Its history is written where `acceptance_history` is among the variables."""
    run = measured(results, day, machines)
    judge(run, **variables)
    return run
