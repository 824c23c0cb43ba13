# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Software stack, firmware and GPU health of a node, and whether CUDA starts.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import os
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import facts, gpu, interfaces, observation, reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node

# Initialises CUDA for real, through the driver and then through torch where it is installed. In a child, since it may
# hang or crash; it says what it knows after each step.
ASK_CUDA = """
import ctypes, json
said = {}
def say():
    print("CUDA " + json.dumps(said), flush=True)
try:
    driver = ctypes.CDLL("libcuda.so.1")
    number = ctypes.c_int()
    said["init"] = driver.cuInit(0)
    driver.cuDriverGetVersion(ctypes.byref(number))
    said["driver_cuda"] = "%d.%d" % (number.value // 1000, number.value % 1000 // 10)
    said["count_status"] = driver.cuDeviceGetCount(ctypes.byref(number))
    said["count"] = number.value if said["count_status"] == 0 else 0
    said["contexts"] = []
    for index in range(said["count"]):
        device, context = ctypes.c_int(), ctypes.c_void_p()
        status = driver.cuDeviceGet(ctypes.byref(device), index)
        status = status or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        if status == 0:
            driver.cuDevicePrimaryCtxRelease_v2(device)
        said["contexts"].append(status)
except OSError as error:
    said["library"] = str(error)
say()
try:
    import torch
    said["torch"] = torch.__version__
    said["torch_cuda"] = torch.version.cuda
    said["torch_available"] = bool(torch.cuda.is_available())
    if said["torch_available"]:
        said["torch_count"] = torch.cuda.device_count()
        said["torch_nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
except ImportError as error:
    if getattr(error, "name", None) != "torch":
        said["torch_error"] = "ImportError: %s" % error
except Exception as error:
    said["torch_error"] = "%s: %s" % (type(error).__name__, error)
say()
"""
CUDA_TIMEOUT_S = 90.0
# Status codes of the driver API (cuda.h, cudaError_enum) and what to do about them.
CUDA_STATUS = {
    2: "out of memory: another process holds the GPU's memory",
    3: "the driver is not initialised",
    46: "the GPU is unavailable: another process holds it, or its compute mode forbids us",
    100: "no CUDA device: CUDA_VISIBLE_DEVICES hides them, or the container was given none",
    101: "invalid device",
    201: "invalid context",
    719: "a kernel of the driver failed",
    802: "the NVLink fabric is not ready: start nvidia-fabricmanager of the driver's version",
    803: "the CUDA library and the kernel driver differ in version: reboot, or reinstall one of them",
    804: "the forward-compatibility library does not support this GPU",
    999: "unknown error: see dmesg for Xid, and whether nvidia-modprobe made the device files",
}


def default_checks(_params: dict[str, t.Any]) -> list[dict[str, str]]:
    """The checks of a call that names none."""
    return [{"check": name, "variant": ""} for name in ("facts", "gpu_health", "cuda")]


def probe(params: dict[str, t.Any], node: Node) -> t.Iterator[dict[str, t.Any]]:
    """Observations of `facts`, `gpu_health` (the node and each GPU) and `cuda`, whichever `params["checks"]` names."""
    wanted = {c["check"]: c["variant"] for c in params["checks"]}
    seen = gpu.snapshot(node, params["nvidia_smi"])
    links = gpu.nvlinks(node.run, seen, params["nvidia_smi"])
    identity = {
        "machine_id": node.identity().get("machine_id"),
        "gpu": gpu.model(seen) if seen["gpus"] else None,
        "gpus": len(seen["gpus"]),
        "gpu_uuids": [g["uuid"] for g in seen["gpus"] if g["uuid"]],
    }
    common: dict[str, t.Any] = {"simulated": bool(seen["simulated"])}
    if "facts" in wanted:
        found = facts.collect(params, node, seen, links)
        context = {**identity, "addresses": interfaces.addresses(), "facts": found}
        yield observation.measured("facts", variant=wanted["facts"], context=context, **common)
    if "gpu_health" in wanted:
        common["variant"] = wanted["gpu_health"]
        yield from _health(seen, links, params["gpu_count"], node, {**common, "context": identity})
    if "cuda" in wanted:
        common["variant"] = wanted["cuda"]
        yield _cuda(seen, params, node, {**common, "context": identity})


def _absent(
    check: str, seen: dict[str, t.Any], expected: int | None, fields: dict[str, t.Any]
) -> dict[str, t.Any] | None:
    """The observation of a node whose GPUs do not answer, None where all do."""
    if seen["outcome"] == "measured":
        return None
    if expected == 0 and seen["reason_code"] in ("no_gpu", "tool_missing"):
        reason = "the inventory says this machine has no GPU"
        return observation.failed(check, "no_gpu_expected", reason, "not_applicable", **fields)
    return observation.failed(check, seen["reason_code"], seen["reason"], **fields)


# GPU health ------------------------------------------------------------------------------------------------------


def _health(
    seen: dict[str, t.Any],
    links: dict[str, list[float | None]] | None,
    expected: int | None,
    node: Node,
    common: dict[str, t.Any],
) -> t.Iterator[dict[str, t.Any]]:
    by_part = {_part(g): (g, gpu.health(g)) for g in seen["gpus"]}
    for uuid, words in gpu.links_down(links or {}).items():
        if f"gpu/{uuid}" in by_part:
            by_part[f"gpu/{uuid}"][1].append(("nvlink", words))
    findings = [(code, f"{gpu.name(g)}: {words}") for g, found in by_part.values() for code, words in found]
    if seen["outcome"] == "measured":
        for bdf in gpu.unseen(node.root, seen):
            findings.append(("gpu_lost", f"the driver has a GPU at {bdf} and nvidia-smi does not show it"))
    if expected is not None and expected != len(seen["gpus"]):
        findings.append(("gpu_count", f"{len(seen['gpus'])} GPUs found, acceptance_gpu_count says {expected}"))
    context = {**common["context"], "gpu_table": [_row(g) for g in seen["gpus"]]}
    fields = {**common, "context": context, "members": sorted(by_part)}
    yield _absent("gpu_health", seen, expected, fields) or _found("gpu_health", findings, fields)
    for part, (g, found) in by_part.items():
        yield _found(
            "gpu_health",
            found,
            {**common, "part": part, "context": {"gpu": g["name"], "gpu_uuids": [g["uuid"]] if g["uuid"] else []}},
        )


def _found(check: str, findings: list[tuple[str, str]], fields: dict[str, t.Any]) -> dict[str, t.Any]:
    """Measured where nothing was found, else an error with the gravest code and all of the words."""
    if not findings:
        return observation.measured(check, **fields)
    code = next((code for code, _words in findings if code in reasons.FATAL), findings[0][0])
    said = sorted(findings, key=lambda finding: finding[0] != code)
    return observation.failed(check, code, "; ".join(words for _code, words in said)[:2000], **fields)


def _part(g: dict[str, t.Any]) -> str:
    """A GPU that no longer says who it is goes by its place."""
    return f"gpu/{g['uuid'] or g['bdf'] or g['index']}"


def _row(g: dict[str, t.Any]) -> dict[str, t.Any]:
    names = (
        "index", "uuid", "serial", "name", "bdf", "vbios", "temperature_c", "throttle_reasons",
        "pcie", "ecc", "remapped_rows", "retired_pages", "power", "fabric",
    )  # fmt: skip
    return {name: g[name] for name in names}


# CUDA ------------------------------------------------------------------------------------------------------------


def _cuda(seen: dict[str, t.Any], params: dict[str, t.Any], node: Node, fields: dict[str, t.Any]) -> dict[str, t.Any]:
    absent = _absent("cuda", seen, params["gpu_count"], fields)
    if absent:
        return absent
    argv = [node.python(params["python"]), "-c", ASK_CUDA]
    # Numbers its devices as nvidia-smi does.
    result = node.run(argv, timeout=CUDA_TIMEOUT_S, env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, contained=True)
    said = _last_words(result.out)
    fields.update(
        command=[argv[0], "-c", "initialise CUDA"],
        started_at=observation.utc(result.started_at),
        duration_s=result.duration_s,
        raw=result.out + result.err,
        tool_version=f"torch {said['torch']}" if said.get("torch") else None,
        context={**fields["context"], **said},
    )
    if result.missing:
        return observation.failed("cuda", "tool_missing", f"{argv[0]}: {result.missing}; set stack_python", **fields)
    mig = any((g["mig"] or "").lower() == "enabled" for g in seen["gpus"])
    problem = cuda_problem(said, None if mig else len(seen["gpus"])) if said else None
    if problem:
        return observation.failed("cuda", *problem, **fields)
    if result.timed_out:
        step = "importing torch" if said else "initialising CUDA"
        reason = f"{step} in {argv[0]} did not end within {CUDA_TIMEOUT_S:.0f} s"
        return observation.failed("cuda", "cuda_failed", reason, "timeout", **fields)
    if result.rc != 0 or not said:
        words = " ".join((result.err or result.out).split())[-200:]
        reason = f"initialising CUDA in {argv[0]} ended with status {result.rc}: {words}"
        return observation.failed("cuda", "cuda_failed", reason, **fields)
    return observation.measured("cuda", **fields)


def _last_words(text: str) -> dict[str, t.Any]:
    """What the child had said last, {} where it said nothing of its form."""
    for line in reversed(text.splitlines()):
        if line.startswith("CUDA {"):
            try:
                said = json.loads(line[5:])
            except ValueError:
                continue
            return said if isinstance(said, dict) else {}
    return {}


def cuda_problem(said: dict[str, t.Any], gpus: int | None) -> tuple[str, str] | None:
    """What is wrong with CUDA by what the child said of it, as (reason code, reason), or None.

    `gpus`: how many CUDA must see; None where MIG makes that another number.
    """
    if "library" in said:
        return "cuda_failed", f"the CUDA driver library cannot be loaded: {said['library']}"
    if said.get("init") != 0:
        return "cuda_failed", f"cuInit failed: {_status(said.get('init'))}"
    if said.get("count_status") != 0:
        return "cuda_failed", f"CUDA cannot count its devices: {_status(said.get('count_status'))}"
    if gpus is not None and said.get("count") != gpus:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        why = f" (CUDA_VISIBLE_DEVICES={hidden})" if hidden is not None else ""
        return "gpu_count", f"CUDA sees {said.get('count')} GPUs and nvidia-smi {gpus}{why}"
    refused = [(index, status) for index, status in enumerate(said.get("contexts") or []) if status != 0]
    if refused:
        words = "; ".join(f"GPU {index}: {_status(status)}" for index, status in refused)
        return "cuda_failed", f"no CUDA context could be made: {words}"
    if said.get("torch_error"):
        return "cuda_failed", f"torch cannot be used: {said['torch_error']}"[:500]
    if said.get("torch") and said.get("torch_available") is False:
        return "cuda_failed", _torch_cause(said)
    return None


def _torch_cause(said: dict[str, t.Any]) -> str:
    built, driver = said.get("torch_cuda"), said.get("driver_cuda")
    if not built:
        return f"torch {said['torch']} is built without CUDA"
    if _version(built) > _version(driver):
        return (
            f"torch {said['torch']} is built for CUDA {built}, newer than the driver's {driver}: "
            "update the driver, or install a torch for an older CUDA"
        )
    return f"torch {said['torch']}, built for CUDA {built}, says that CUDA is not available; the driver's is {driver}"


def _status(number: t.Any) -> str:
    return f"error {number}, {CUDA_STATUS[number]}" if number in CUDA_STATUS else f"error {number}"


def _version(text: t.Any) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d{1,6}", str(text))[:2])
