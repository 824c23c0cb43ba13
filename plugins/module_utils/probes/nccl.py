# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL between the GPUs of one node, by nccl-tests.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import gpu, observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nccl_settings, nvidia
from ansible_collections.gpufleet.acceptance.plugins.module_utils.evidence import Window
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nccl_tests
from ansible_collections.gpufleet.acceptance.plugins.module_utils.plain_data import Observation, Params

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
LARGEST = 16 << 30
WHAT, KIND = "NCCL numbers", nvidia.Nvidia.kind
# nccl-tests holds a send, a receive and an expected buffer of the largest size, and NCCL its own.
BUFFERS = 4
# GPUs whose NVSwitch reduces in the fabric, and from how many GPUs on NCCL uses it (measured: reference of the tables).
NVLS_FROM = {"H100": 5, "H200": 5, "H800": 5, "H20": 5, "GH200": 5, "B100": 6, "B200": 6, "B300": 6, "GB200": 6, "GB300": 6}
# GPUs whose NVLink leaves the node: a rack of trays is one NVLink domain, and NICs carry only what goes between racks.
MNNVL = ("GB200", "GB300")


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """One observation per check of `params["checks"]`: {"check": op, "variant": "gpus=all sizes=8M:auto type=float"}."""
    checks = [(c["check"], c["variant"], fields(c["variant"])) for c in params["checks"]]
    snapshot = gpu.snapshot(node)
    if snapshot["outcome"] == "measured" and len(snapshot["gpus"]) == 1 and params["gpu_count"] in (None, 1):
        refusal: t.Any = ("not_applicable", "single_gpu", "one GPU: there is no link to measure")
    else:
        refusal = gpu.refusal(snapshot, params["gpu_count"], WHAT, params["mig"], KIND, partial=True)
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


def fields(variant: str) -> dict[str, str]:
    """`a=1 b=2` -> {"a": "1", "b": "2"}."""
    return dict(word.split("=", 1) for word in variant.split() if "=" in word)


def size(text: t.Any) -> int:
    """Bytes of `8M`, `1G`, `1024`; ValueError for anything else."""
    word = str(text).strip().upper().rstrip("B")
    unit = word[-1:] if word[-1:] in UNITS and not word[-1:].isdigit() else ""
    count = word[: len(word) - len(unit)]
    if not count.isdecimal():
        raise ValueError(f"size: found {str(text)[:40]!r}, expected bytes such as 1024, 8M or 1G")
    return int(count) * UNITS[unit]


def _measure(
    op: str, variant: str, keys: dict[str, str], snapshot: dict[str, t.Any], params: dict[str, t.Any], node: Node
) -> tuple[dict[str, t.Any], dict[str, t.Any] | None]:
    """The observation of one test, and the state of the GPUs after it."""
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
    max_bytes = largest_that_fits(used) if largest in ("", "auto") else size(largest)
    binary = _binary(op, params)
    argv = [binary, "-b", str(size(smallest)), "-e", str(max_bytes), "-f", str(params["factor"]), "-g", str(count)]
    argv += ["-n", str(params["iterations"]), "-w", str(params["warmup"]), "-d", keys.get("type", "float"), "-c", "1"]
    argv += params["extra_args"]
    env = {str(k): str(v) for k, v in params["env"].items()}
    if count < len(snapshot["gpus"]):
        env.setdefault(gpu.kind(snapshot).visible, ",".join(g["uuid"] for g in used))
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
        reason = f"{binary}: {result.missing}; install nccl-tests or set nccl_node_binary_dir"
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
    return observation.measured(op, metrics=metrics(read), series=series(read), **common), window.after


def _binary(op: str, params: dict[str, t.Any]) -> str:
    name = f"{op}_perf{params['binary_suffix']}"
    return os.path.join(params["binary_dir"], name) if params["binary_dir"] else name


def largest_that_fits(gpus: list[dict[str, t.Any]]) -> int:
    """Return the largest power of two in bytes that fits into every GPU, 16 GiB at most, 1 GiB if the memory is unknown."""
    memory = min((g.get("memory_total_mib") or 0) for g in gpus) * (1 << 20)
    if not memory:
        return 1 << 30
    return min(LARGEST, 1 << max(20, (int(memory) // BUFFERS).bit_length() - 1))


def _context(
    op: str, keys: dict[str, str], gpus: list[dict[str, t.Any]], env: dict[str, str], node: Node
) -> dict[str, t.Any]:
    machine_settings = nccl_settings.of_machine(node, env)
    settings = {**machine_settings, **env}
    names = sorted({g["name"] for g in gpus})
    algorithm = settings.get("NCCL_ALGO", "auto").lower()
    return {
        "op": op,
        "type": keys.get("type", "float"),
        "gpu": names[0] if len(names) == 1 else "mixed: " + ", ".join(names),
        "gpus": len(gpus),
        "gpu_uuids": [g["uuid"] for g in gpus],
        "nvls": nvls(names, len(gpus), settings),
        "algorithm": algorithm,
        "nodes": 1,
        "nccl_env": {k: v for k, v in sorted(settings.items()) if k.startswith("NCCL_")},
        "nccl_machine": machine_settings,
        "series_units": {"size": "B", "time_us": "us", "algbw": "GB/s", "busbw": "GB/s"},
    }


def nvls(names: list[str], count: int, settings: dict[str, str]) -> bool:
    """Return True if this hardware should reduce in the switch, as configured. Whether it did is not asked: a node with broken NVLS is held
    to the number of a node with NVLS."""
    if settings.get("NCCL_NVLS_ENABLE") == "0" or "nvls" not in settings.get("NCCL_ALGO", "nvls").lower():
        return False
    thresholds = [nvls_from(name) for name in names]
    return bool(thresholds) and all(threshold is not None and count >= threshold for threshold in thresholds)


def nvls_from(name: str) -> int | None:
    """Return from how many such GPUs on NCCL reduces in the switch; None if there is no such switch."""
    thresholds = [NVLS_FROM[word] for word in name.replace("-", " ").split() if word in NVLS_FROM and "PCIe" not in name]
    return thresholds[0] if len(thresholds) == 1 else None


def mnnvl(names: t.Iterable[str]) -> bool:
    """Return True if NVLink connects GPUs of these models across nodes by design."""
    return any(word in MNNVL for name in names for word in name.replace("-", " ").replace(",", " ").split())


def metrics(read: dict[str, t.Any]) -> dict[str, t.Any]:
    metrics = {"busbw": {"value": read["peak_busbw"]["value"], "unit": "GB/s"}}
    if read.get("avg_busbw"):
        metrics["avg_busbw"] = {"value": read["avg_busbw"]["value"], "unit": "GB/s"}
    if read.get("out_of_bounds"):
        metrics["out_of_bounds"] = {"value": read["out_of_bounds"]["count"], "unit": "count"}
    return metrics


def series(read: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    """Return the rows as printed. `busbw` is the better of the two halves; both are given, too."""
    rows = []
    for row in read["rows"]:
        halves = [half for half in (row["out_of_place"], row["in_place"]) if half]
        best = max(halves, key=lambda half: half["busbw"])
        rows.append(
            {
                **{k: row[k] for k in ("size", "count", "type", "redop", "root")},
                "time_us": best["time_us"],
                "algbw": best["algbw"],
                "busbw": best["busbw"],
                "busbw_out_of_place": (row["out_of_place"] or {}).get("busbw"),
                "busbw_in_place": (row["in_place"] or {}).get("busbw"),
            }
        )
    return rows
