# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of a run of thousands of nodes, as the planner and the planes leave it: plan, chained journal, raw files. Seeded.

Each node has its facts, its health and that of its 8 GPUs, three collectives at 12 sizes and GEMM on each GPU, alone and together:
31 records with 227 measured numbers. Two nodes of a hundred have a slow GPU, one a slow NVLink, one of a thousand says nothing.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import random
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from harness import report_samples as samples

Record = t.Dict[str, t.Any]
GPU, GPUS = "NVIDIA H200", 8
COLLECTIVES = {"all_reduce": 480.0, "all_gather": 361.0, "reduce_scatter": 361.0}
MODES = ("alone", "together")
SIZES = [8 << 20 << n for n in range(12)]
NCCL, GEMM = "gpus=all sizes=8M:16G type=float", "mode={} shape=8192x8192x8192"
CHECKS = (
    ("stack", "facts", ""), ("stack", "gpu_health", ""),
    *(("nccl_node", name, NCCL) for name in COLLECTIVES), *(("gemm", "bf16", GEMM.format(mode)) for mode in MODES),
)  # fmt: skip
# Nodes whose records go into the journal at once.
TOGETHER = 100


class Made(t.NamedTuple):
    run: Run
    records: int
    numbers: int


def make(results: pathlib.Path, nodes: int, seed: int = 1) -> Made:
    run = Run(results, samples.RUN)
    run.make()
    names = [f"node{n:05}" for n in range(1, nodes + 1)]
    items = [
        {"stage": stage, "check": check, "variant": variant, "subject": {"kind": "node", "id": name, "members": []}, "target": name}
        for stage, check, variant in CHECKS
        for name in names
    ]
    judging = {
        "sets": [expectations.shipped().dump()], "of": dict.fromkeys(names, 0), "waivers": [], "warn": "accept", "stack": {},
        "stated": {name: {"gpu_count": GPUS, "mig": "refused"} for name in names}, "required": {}, "leaf": {}, "notes": [],
    }  # fmt: skip
    stages = [{"name": name, "role": f"gpufleet.acceptance.{name}"} for name in ("stack", "nccl_node", "gemm")]
    plan = samples.plan(names, (), items=items, judging=judging, chained=True)
    plan.stages = stages
    (run.dir / "plan.json").write_text(json.dumps(plan.as_dict(), sort_keys=True))
    rng, records, numbers = random.Random(seed), 0, 0
    for first in range(0, nodes, TOGETHER):
        found = [one for number in range(first, min(first + TOGETHER, nodes)) for one in _of_node(run.dir, number, names[number], rng)]
        run.journal.append(found)
        records += len(found)
        numbers += sum(len(one["metrics"]) + sum(isinstance(v, float) for row in one["series"] for v in row.values()) for one in found)
    return Made(run, records, numbers)


def _of_node(folder: pathlib.Path, number: int, name: str, rng: random.Random) -> t.Iterator[Record]:
    """Everything that was measured of one node."""
    uuids = [f"GPU-{number:08x}-0000-4000-8000-{gpu:012x}" for gpu in range(GPUS)]
    machine = f"{number:032x}"
    known = {name: {"machine_id": machine, "gpu_uuids": uuids}}
    common = {"gpu": GPU, "gpu_uuids": uuids, "gpus": GPUS, "identities": known}
    members = [f"{name}/gpu/{uuid}" for uuid in uuids]
    whole = {"kind": "node", "id": name, "members": members}
    dice = rng.random()
    silent, slow_link, slow_gpu = dice < 0.001, dice < 0.011, dice < 0.031
    rawness = folder / "raw" / name
    rawness.mkdir()

    def measured(stage: str, check: str, raw: str | None = "", **fields: t.Any) -> Record:
        place = digest = None
        if raw:
            place = f"raw/{name}/{stage}-{check}-{len(fields.get('variant', ''))}-1.txt"
            (folder / place).write_text(raw)
            digest = hashlib.sha256(raw.encode()).hexdigest()
        of: Record = {"command": [], "tool_version": None, "raw": place, "raw_sha256": digest, "duration_s": round(rng.uniform(1, 20), 3)}
        return samples.measurement(name, stage, check, **{**of, **fields})

    yield measured("stack", "facts", context={**common, "machine_id": machine, "facts": _facts(number)})
    yield measured("stack", "gpu_health", subject=whole, context={**common, "gpu_table": [_health(uuid) for uuid in uuids]})
    for uuid, member in zip(uuids, members, strict=True):
        of = {"kind": "gpu", "id": member, "members": []}
        yield measured("stack", "gpu_health", subject=of, context={"gpu": GPU, "gpu_uuids": [uuid], "identities": known})
    if silent:
        return
    for check, value in COLLECTIVES.items():
        yield _collective(measured, common, check, value * rng.gauss(1.0, 0.005) * (0.8 if slow_link else 1.0), _window(uuids, rng))
    for mode in MODES:
        tflops = [rng.gauss(690, 5) * (0.88 if slow_gpu and gpu == 3 else 1) for gpu in range(GPUS)]
        context = {**common, "library": "torch 2.11.0+cu130, CUDA 13.0", "mode": mode, "shape": "8192x8192x8192", "type": "bf16"}
        asked = json.dumps({"checks": [{"dtype": "bf16", "mode": mode, "shape": [8192, 8192, 8192]}], "seconds": 2.0})
        same: Record = {"variant": GEMM.format(mode), "command": ["python3", "-", asked], "tool_version": "torch 2.11.0+cu130"}
        window, spread = {"changes": [], "unreadable": [], "window": _window(uuids, rng)}, (max(tflops) - min(tflops)) / max(tflops) * 100
        metrics = {**_gemm(min(tflops)), "spread": {"value": spread, "unit": "percent"}}
        yield measured("gemm", "bf16", str(tflops), subject=whole, context=context, evidence=window, metrics=metrics, **same)
        for uuid, member, one in zip(uuids, members, tflops, strict=True):
            of = {"kind": "gpu", "id": member, "members": []}
            yield measured("gemm", "bf16", subject=of, context={**context, "gpu_uuids": [uuid]}, metrics=_gemm(one), **same)


def _gemm(tflops: float) -> Record:
    return {"tflops": {"value": tflops, "unit": "TFLOPS"}, "time_ms": {"value": 2 * 8192**3 / tflops / 1e9, "unit": "ms"}}


def _collective(measured: t.Callable[..., Record], common: Record, check: str, busbw: float, window: Record) -> Record:
    factor = 1.75 if check == "all_reduce" else 0.875
    series = []
    for size in SIZES:
        speed = busbw * size / (size + (12 << 20))
        row = {"busbw": speed, "busbw_in_place": speed, "busbw_out_of_place": speed, "algbw": speed / factor}
        took = size * factor / speed / 1e3
        series.append({**row, "time_us": took, "size": size, "count": size // 4, "redop": "sum", "root": -1, "type": "float"})
    context = {
        **common, "algorithm": "auto", "nccl_env": {}, "nccl_machine": {}, "nccl_version": "2.28.9", "nodes": 1,
        "nvls": check == "all_reduce", "op": check, "type": "float", "warnings": [],
        "series_units": {"algbw": "GB/s", "busbw": "GB/s", "size": "B", "time_us": "us"},
    }  # fmt: skip
    mean = sum(row["busbw"] for row in series) / len(series)
    metrics = {"avg_busbw": {"value": mean, "unit": "GB/s"}, "busbw": {"value": series[-1]["busbw"], "unit": "GB/s"}}
    metrics["out_of_bounds"] = {"value": 0, "unit": "count"}
    command = [f"{check}_perf", "-b", "8388608", "-e", "17179869184", "-f", "2", "-g", "8", "-n", "20", "-w", "5", "-d", "float"]
    evidence = {"changes": [], "unreadable": [], "window": window}
    text = "\n".join(f"{row['size']:12d} {row['time_us']:8.2f} {row['algbw']:7.2f} {row['busbw']:7.2f} 0" for row in series)
    return measured(
        "nccl_node", check, text, variant=NCCL, command=command, tool_version="2.19.6", context=context, evidence=evidence, series=series,
        metrics=metrics,
    )  # fmt: skip


def _window(uuids: list[str], rng: random.Random) -> Record:
    """Return the evidence of each GPU by the samples taken during a test."""
    found = {}
    for uuid in uuids:
        watts, celsius = rng.uniform(590, 640), rng.randint(52, 66)
        found[uuid] = {
            "power": {"max": watts + 9, "mean": watts, "min": watts - 30, "unit": "W"}, "samples": 12, "throttle": [],
            "sm_clock": {"max": 1980, "mean": 1975.0, "min": 1965, "unit": "MHz"},
            "temperature": {"max": celsius, "mean": celsius - 2.0, "min": celsius - 6, "unit": "C"},
        }  # fmt: skip
    return found


def _facts(number: int) -> Record:
    same = {f"package_{name}": "absent" for name in ("flash-attn", "sglang", "torchaudio", "torchvision", "transformers", "xformers")}
    return {
        **same, "architecture": "x86_64", "cpu": "AMD EPYC 9654 96-Core Processor", "cpus": 192, "cuda_driver": "13.0",
        "driver": "580.159.03" if number % 1000 == 7 else "580.159.04", "gpu": GPU, "gpu_count": GPUS, "gpu_ecc_mode": ["Enabled"],
        "gpu_gsp_firmware": ["580.159.04"], "gpu_max_sm_clock_mhz": [1980], "gpu_memory_mib": [143771], "gpu_mig": ["Disabled"],
        "gpu_nvlinks": ["18 x 26.562 GB/s"], "gpu_pcie": ["gen5 x16"], "gpu_persistence": ["Enabled"], "gpu_power_limit_w": [700.0],
        "gpu_serials": [f"165{number:05}{gpu:04}" for gpu in range(GPUS)], "hostname": f"node{number + 1:05}", "hugepages": 0,
        "kernel": "6.8.0-79-generic", "kernel_command_line": "root=UUID=0a1b2c ro iommu=pt pci=realloc=off quiet", "memory_gib": 2267,
        "numa_nodes": 2, "os": "Ubuntu 24.04.3 LTS", "package_torch": "2.11.0", "pip_freeze": ["torch==2.11.0", "triton==3.6.0"],
        "python": "3.12.3", "transparent_hugepages": "madvise", "ulimit_memlock": -1, "ulimit_nofile": 1048576, "vbios": ["96.00.A5.00.1A"],
    }  # fmt: skip


def _health(uuid: str) -> Record:
    return {
        "uuid": uuid, "name": GPU, "temperature_c": 33, "throttle_reasons": ["gpu_idle"], "vbios": "96.00.A5.00.1A",
        "ecc": {"aggregate_corrected": 0, "aggregate_uncorrected": 0, "volatile_corrected": 0, "volatile_uncorrected": 0},
        "pcie": {"gen": 5, "gen_max": 5, "replays": 0, "width": 16, "width_max": 16},
        "power": {"default_limit_w": 700.0, "draw_w": 78.69, "limit_w": 700.0},
        "remapped_rows": {"correctable": 0, "failure": "No", "pending": "No", "uncorrectable": 0},
    }  # fmt: skip
