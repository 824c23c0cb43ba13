# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The accelerators of a node for probes. The kind of accelerators is settled here, behind one interface (accelerators/base.py).

`Node.tools` says where the tool of each kind is.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import base, registry
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node

NUMBERS = ("no", "one", "two", "three", "four")
# Driver and monitoring agents hold less, on every GPU model seen.
BUSY_MEMORY_MIB = 1024
BUSY_UTILIZATION = 20


def kind(snapshot: dict[str, t.Any]) -> type[base.Accelerator]:
    """Return the kind of the devices in a snapshot."""
    return registry.KINDS[snapshot["kind"]] if "kind" in snapshot else registry.DEFAULT


def accelerator(node: Node, snapshot: dict[str, t.Any]) -> base.Accelerator:
    """Return the accelerator of the kind that a snapshot shows."""
    return registry.make(kind(snapshot).kind, node)


def snapshot(node: Node) -> dict[str, t.Any]:
    """Return the state of all accelerators of a node (base.Snapshot), or an error that names the cause. The node remembers the UUIDs, and
    how containers get the devices."""
    state = _snapshot([registry.make(name, node) for name in registry.KINDS])
    if state["outcome"] == "measured":
        node.gpus = [g["uuid"] for g in state["gpus"] if g["uuid"]]
        node.devices = kind(state).container
    return state


def _snapshot(accelerators: list[base.Accelerator]) -> dict[str, t.Any]:
    """Return the snapshot of the kind of accelerators that the node has.

    An image for every machine has the tools of several kinds. Then exactly one tool must show devices.
    """
    installed = [candidate for candidate in accelerators if candidate.node.which(candidate.program)]
    if not installed:
        state = accelerators[0].snapshot()
        if state["reason_code"] == "tool_missing":
            for candidate in accelerators[1:]:
                missing = candidate.program or candidate.tool
                state["reason"] += f"; for {candidate.plural} {missing} is not there either (acceptance_{candidate.option})"
        return state
    snapshots = [candidate.snapshot() for candidate in installed]
    if len(snapshots) == 1:
        return snapshots[0]
    having = [state for state in snapshots if state["gpus"] or state["reason_code"] == "gpu_lost"]
    variables = " or ".join(f"acceptance_{candidate.option}" for candidate in installed)
    if len(having) > 1 and not any(state["gpus"] for state in having):
        reason = (
            f"neither {' nor '.join(candidate.program for candidate in installed)} shows an accelerator of the node: "
            f"{'; '.join(state['reason'] for state in having)}; "
            f"if the node has one kind only, set {variables} of the other kind to an empty text"
        )
        return {**snapshots[0], "outcome": "error", "reason_code": "gpu_lost", "reason": reason}
    if len(having) > 1:
        reason = (
            f"the node has accelerators of {NUMBERS[len(having)]} kinds, {' and '.join(map(_described, having))}: "
            f"a node is accepted with one; if one of them is not meant, set {variables} to an empty text"
        )
        return {**snapshots[0], "outcome": "error", "reason_code": "unsupported", "reason": reason, "gpus": []}
    return having[0] if having else snapshots[0]


def _described(snapshot: dict[str, t.Any]) -> str:
    """Return the model of the accelerators in a snapshot; if it shows none, their kind and why."""
    return model(snapshot) if snapshot["gpus"] else f"{kind(snapshot).plural} that cannot be seen ({snapshot['reason']})"


def refusal(
    snapshot: dict[str, t.Any],
    expected: int | None,
    purpose: str,
    mig: str = "refused",
    kind: str | None = None,
    partial: bool = False,
) -> tuple[str, str, str] | None:
    """Return why `purpose` is not measured on a node in this state, as (outcome, reason code, reason); None if it is. `expected`: number of
    GPUs by the inventory. `mig`: `allowed` or `refused`. `kind`: the only kind of accelerators that can be measured, None for every kind.
    `partial`: True if the GPUs without MIG can be measured while others have MIG (without_mig())."""
    if snapshot["outcome"] != "measured":
        if expected == 0 and snapshot["reason_code"] in ("no_gpu", "tool_missing"):
            return "not_applicable", "no_gpu_expected", "the inventory says this machine has no GPU"
        return "error", snapshot["reason_code"], snapshot["reason"]
    if expected is not None and expected != len(snapshot["gpus"]):
        return "error", "gpu_count", f"{len(snapshot['gpus'])} GPUs found, acceptance_gpu_count says {expected}"
    if kind is not None and snapshot.get("kind", registry.DEFAULT.kind) != kind:
        reason = f"{purpose}: of {registry.KINDS[kind].plural} only, and this node has {len(snapshot['gpus'])} {model(snapshot)}"
        return "not_applicable", "other_accelerator", reason
    parted = [name(g) for g in snapshot["gpus"] if _has_mig(g)]
    if partial and mig == "allowed" and len(parted) < len(snapshot["gpus"]):
        snapshot, parted = without_mig(snapshot)[0], []
    if parted:
        on = f"MIG is on for {', '.join(parted) if len(parted) < len(snapshot['gpus']) else 'all GPUs'}: no {purpose} of whole GPUs"
        if mig == "allowed":
            return "not_applicable", "mig_enabled", on
        return "error", "mig_enabled", f"{on}; switch it off, or set acceptance_mig: allowed if that is intended"
    busy = foreign_processes(snapshot)
    if busy:
        return "error", "busy_gpu", f"other processes use the GPUs: {'; '.join(busy)}; end them and resume"
    return None


def without_mig(snapshot: dict[str, t.Any]) -> tuple[dict[str, t.Any], dict[str, str]]:
    """Return the snapshot with the GPUs that MIG does not partition, and {UUID: name} of the others."""
    aside = {str(g["uuid"]): name(g) for g in snapshot["gpus"] if _has_mig(g)}
    return ({**snapshot, "gpus": [g for g in snapshot["gpus"] if not _has_mig(g)]}, aside) if aside else (snapshot, {})


def _has_mig(g: dict[str, t.Any]) -> bool:
    return (g["mig"] or "").lower() == "enabled"


def foreign_processes(snapshot: dict[str, t.Any], own_pids: t.Collection[int] = ()) -> list[str]:
    """Return a text for each GPU that other processes use; empty if there are none.

    Where processes are invisible, as in a container, used memory and utilisation tell: call it while nothing of ours
    runs.
    """
    texts = []
    for g in snapshot["gpus"]:
        # Types are C (compute), G (graphics), C+G and M+C (through MPS); a driver that gives none lists compute only.
        users = [p for p in g["processes"] if "C" in (p["type"] or "C")]
        for p in users:
            if p["pid"] not in own_pids:
                who = f"pid {p['pid']} ({p['name'] or 'name unknown'})"
                texts.append(f"{word(g)} {g['index']}: {who}, {p['used_mib'] or 0} MiB")
        memory, busy = g["memory_used_mib"] or 0, g["utilization"] or 0
        if not users and (memory > g.get("idle_mib", BUSY_MEMORY_MIB) or busy > BUSY_UTILIZATION):
            texts.append(f"{word(g)} {g['index']}: {memory} MiB used, {busy} % busy, by processes invisible from here")
    return texts


def slot(bdf: str) -> tuple[int, ...] | None:
    """`0000:1A:00`, `00000000:1a:00.0` -> (0, 0x1a, 0): drivers and their tools write domains of different widths."""
    try:
        return tuple(int(word, 16) for word in bdf.partition(".")[0].split(":"))
    except ValueError:
        return None


def word(g: dict[str, t.Any]) -> str:
    """Return the word for such a device in texts, such as GPU or NPU."""
    return str(g.get("word", "GPU"))


def name(g: dict[str, t.Any]) -> str:
    """A GPU in words by which a technician finds it."""
    return f"{word(g)} {g['index']} ({g['bdf']}, serial {g['serial'] or 'unknown'})"


def model(snapshot: dict[str, t.Any]) -> str:
    """Product name of a node's GPUs, as their tool prints it."""
    names = sorted({g["name"] or "unknown" for g in snapshot["gpus"]})
    return names[0] if len(names) == 1 else "mixed: " + ", ".join(names)
