# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What probes ask about the accelerators of a node, which most call GPUs: whichever kind it has is settled here, behind one interface
(accelerators/base.py).

`program` is the nvidia-smi of the node; the tool of the other kind is the node's (`Node.npu_smi`).

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import ascend, base, nvidia
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node

KINDS: dict[str, type[base.Accelerator]] = {"nvidia": nvidia.Nvidia, "ascend": ascend.Ascend}
# What people call the accelerators that a test is for.
WORDS = {"nvidia": "NVIDIA GPUs", "ascend": "Ascend NPUs"}
# Driver and monitoring agents hold less, on every GPU model seen.
BUSY_MEMORY_MIB = 1024
BUSY_UTILIZATION = 20


def accelerator(node: Node, seen: dict[str, t.Any], program: str = "nvidia-smi") -> base.Accelerator:
    """Who knows more about the devices of a snapshot."""
    kind = seen.get("kind", "nvidia")
    return KINDS[kind](node, program if kind == "nvidia" else node.npu_smi)


def snapshot(node: Node, program: str = "nvidia-smi") -> dict[str, t.Any]:
    """The state of all accelerators of a node: base.Snapshot, or an error that names the cause. The node remembers whom it has shown."""
    seen = _snapshot(node, program)
    if seen["outcome"] == "measured":
        node.gpus = [g["uuid"] for g in seen["gpus"] if g["uuid"]]
    return seen


def _snapshot(node: Node, program: str) -> dict[str, t.Any]:
    """By the tool of the kind that the node has. Where both tools are there, an image for every machine, both are asked."""
    first: base.Accelerator = nvidia.Nvidia(node, program)
    other: base.Accelerator = ascend.Ascend(node, node.npu_smi)
    if not node.which(other.program):
        seen = first.snapshot()
        if seen["reason_code"] == "tool_missing":
            seen["reason"] += f"; for Ascend NPUs {other.program or 'npu-smi'} is not there either (acceptance_npu_smi)"
        return seen
    if not node.which(first.program):
        return other.snapshot()
    both = [first.snapshot(), other.snapshot()]
    there = [seen for seen in both if seen["gpus"] or seen["reason_code"] == "gpu_lost"]
    if len(there) == 2 and not any(seen["gpus"] for seen in there):
        reason = (
            f"neither {first.program} nor {other.program} shows an accelerator of the node: {there[0]['reason']}; {there[1]['reason']}; "
            "if the node has one kind only, set acceptance_nvidia_smi or acceptance_npu_smi of the other kind to an empty text"
        )
        return {**both[0], "outcome": "error", "reason_code": "gpu_lost", "reason": reason}
    if len(there) == 2:
        reason = (
            f"the node has accelerators of two kinds, {' and '.join(map(_kind, there))}: a node is accepted with one; "
            "if one of them is not meant, set acceptance_nvidia_smi or acceptance_npu_smi to an empty text"
        )
        return {**both[0], "outcome": "error", "reason_code": "unsupported", "reason": reason, "gpus": []}
    return there[0] if there else both[0]


def _kind(seen: dict[str, t.Any]) -> str:
    """Return the model of the accelerators in a snapshot; if it shows none, their kind and why."""
    return model(seen) if seen["gpus"] else f"{WORDS[seen['kind']]} that cannot be seen ({seen['reason']})"


def refusal(
    seen: dict[str, t.Any],
    expected: int | None,
    what: str,
    mig: str = "refused",
    kind: str | None = "nvidia",
    some: bool = False,
) -> tuple[str, str, str] | None:
    """Why `what` is not measured on a node in this state, as (outcome, reason code, reason), or None. `mig`: whether MIG is `allowed`;
    `kind`: of the accelerators that it is measured on, None where it is on each; `some`: whether it can be measured on the GPUs that are
    whole, where others have MIG (without_mig())."""
    if seen["outcome"] != "measured":
        if expected == 0 and seen["reason_code"] in ("no_gpu", "tool_missing"):
            return "not_applicable", "no_gpu_expected", "the inventory says this machine has no GPU"
        return "error", seen["reason_code"], seen["reason"]
    if expected is not None and expected != len(seen["gpus"]):
        return "error", "gpu_count", f"{len(seen['gpus'])} GPUs found, acceptance_gpu_count says {expected}"
    if kind is not None and seen.get("kind", "nvidia") != kind:
        reason = f"{what}: of {WORDS[kind]} only, and this node has {len(seen['gpus'])} {model(seen)}"
        return "not_applicable", "other_accelerator", reason
    parted = [name(g) for g in seen["gpus"] if _has_mig(g)]
    if some and mig == "allowed" and len(parted) < len(seen["gpus"]):
        seen, parted = without_mig(seen)[0], []
    if parted:
        on = f"MIG is on for {', '.join(parted) if len(parted) < len(seen['gpus']) else 'all GPUs'}: no {what} of whole GPUs"
        if mig == "allowed":
            return "not_applicable", "mig_enabled", on
        return "error", "mig_enabled", f"{on}; switch it off, or say acceptance_mig: allowed where it is meant"
    busy = foreign_processes(seen)
    if busy:
        return "error", "busy_gpu", f"other processes use the GPUs: {'; '.join(busy)}; end them and resume"
    return None


def without_mig(seen: dict[str, t.Any]) -> tuple[dict[str, t.Any], dict[str, str]]:
    """The snapshot with the GPUs that are whole, and those that MIG parts, {UUID: name}."""
    aside = {str(g["uuid"]): name(g) for g in seen["gpus"] if _has_mig(g)}
    return ({**seen, "gpus": [g for g in seen["gpus"] if not _has_mig(g)]}, aside) if aside else (seen, {})


def _has_mig(g: dict[str, t.Any]) -> bool:
    return (g["mig"] or "").lower() == "enabled"


def foreign_processes(seen: dict[str, t.Any], own_pids: t.Collection[int] = ()) -> list[str]:
    """Who else uses the GPUs, in words; empty where nobody does.

    Where processes are invisible, as in a container, used memory and utilisation tell: call it while nothing of ours
    runs.
    """
    found = []
    for g in seen["gpus"]:
        # Types are C (compute), G (graphics), C+G and M+C (through MPS); a driver that gives none lists compute only.
        users = [p for p in g["processes"] if "C" in (p["type"] or "C")]
        for p in users:
            if p["pid"] not in own_pids:
                who = f"pid {p['pid']} ({p['name'] or 'name unknown'})"
                found.append(f"{word(g)} {g['index']}: {who}, {p['used_mib'] or 0} MiB")
        memory, busy = g["memory_used_mib"] or 0, g["utilization"] or 0
        if not users and (memory > g.get("idle_mib", BUSY_MEMORY_MIB) or busy > BUSY_UTILIZATION):
            found.append(f"{word(g)} {g['index']}: {memory} MiB used, {busy} % busy, by processes invisible from here")
    return found


def slot(bdf: str) -> tuple[int, ...] | None:
    """`0000:1A:00`, `00000000:1a:00.0` -> (0, 0x1a, 0): drivers and their tools write domains of different widths."""
    try:
        return tuple(int(word, 16) for word in bdf.partition(".")[0].split(":"))
    except ValueError:
        return None


def word(g: dict[str, t.Any]) -> str:
    """What people call such a device."""
    return str(g.get("word", "GPU"))


def name(g: dict[str, t.Any]) -> str:
    """A GPU in words by which a technician finds it."""
    return f"{word(g)} {g['index']} ({g['bdf']}, serial {g['serial'] or 'unknown'})"


def nvlink_domain(seen: dict[str, t.Any]) -> str:
    """As accelerators/nvidia.py tells it; other kinds have none."""
    return nvidia.nvlink_domain(seen)


def model(seen: dict[str, t.Any]) -> str:
    """Product name of a node's GPUs, as their tool prints it."""
    names = sorted({g["name"] or "unknown" for g in seen["gpus"]})
    return names[0] if len(names) == 1 else "mixed: " + ", ".join(names)
