# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What probes ask about the accelerators of a node, which most call GPUs: whichever kind it has is settled here, behind one interface
(accelerators/base.py).

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


def kind(seen: dict[str, t.Any]) -> type[base.Accelerator]:
    """Return the kind of the devices in a snapshot."""
    return registry.KINDS[seen["kind"]] if "kind" in seen else registry.DEFAULT


def accelerator(node: Node, seen: dict[str, t.Any]) -> base.Accelerator:
    """Return the accelerator of the kind that a snapshot shows."""
    return registry.make(kind(seen).kind, node)


def snapshot(node: Node) -> dict[str, t.Any]:
    """Return the state of all accelerators of a node (base.Snapshot), or an error that names the cause. The node remembers the UUIDs, and
    how containers get the devices."""
    seen = _snapshot([registry.make(name, node) for name in registry.KINDS])
    if seen["outcome"] == "measured":
        node.gpus = [g["uuid"] for g in seen["gpus"] if g["uuid"]]
        node.devices = kind(seen).container
    return seen


def _snapshot(known: list[base.Accelerator]) -> dict[str, t.Any]:
    """Ask the tool of each kind that the node has. An image for every machine has several: then one of them must show devices."""
    first, *others = known
    there = [one for one in known if one.node.which(one.program)]
    if not there:
        seen = first.snapshot()
        if seen["reason_code"] == "tool_missing":
            for one in others:
                seen["reason"] += f"; for {one.plural} {one.program or one.tool} is not there either (acceptance_{one.option})"
        return seen
    shown = [one.snapshot() for one in there]
    if len(shown) == 1:
        return shown[0]
    having = [seen for seen in shown if seen["gpus"] or seen["reason_code"] == "gpu_lost"]
    variables = " or ".join(f"acceptance_{one.option}" for one in there)
    if len(having) > 1 and not any(seen["gpus"] for seen in having):
        reason = (
            f"neither {' nor '.join(one.program for one in there)} shows an accelerator of the node: "
            f"{'; '.join(seen['reason'] for seen in having)}; "
            f"if the node has one kind only, set {variables} of the other kind to an empty text"
        )
        return {**shown[0], "outcome": "error", "reason_code": "gpu_lost", "reason": reason}
    if len(having) > 1:
        reason = (
            f"the node has accelerators of {NUMBERS[len(having)]} kinds, {' and '.join(map(_described, having))}: "
            f"a node is accepted with one; if one of them is not meant, set {variables} to an empty text"
        )
        return {**shown[0], "outcome": "error", "reason_code": "unsupported", "reason": reason, "gpus": []}
    return having[0] if having else shown[0]


def _described(seen: dict[str, t.Any]) -> str:
    """Return the model of the accelerators in a snapshot; if it shows none, their kind and why."""
    return model(seen) if seen["gpus"] else f"{kind(seen).plural} that cannot be seen ({seen['reason']})"


def refusal(
    seen: dict[str, t.Any],
    expected: int | None,
    what: str,
    mig: str = "refused",
    kind: str | None = None,
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
    if kind is not None and seen.get("kind", registry.DEFAULT.kind) != kind:
        reason = f"{what}: of {registry.KINDS[kind].plural} only, and this node has {len(seen['gpus'])} {model(seen)}"
        return "not_applicable", "other_accelerator", reason
    parted = [name(g) for g in seen["gpus"] if _has_mig(g)]
    if some and mig == "allowed" and len(parted) < len(seen["gpus"]):
        seen, parted = without_mig(seen)[0], []
    if parted:
        on = f"MIG is on for {', '.join(parted) if len(parted) < len(seen['gpus']) else 'all GPUs'}: no {what} of whole GPUs"
        if mig == "allowed":
            return "not_applicable", "mig_enabled", on
        return "error", "mig_enabled", f"{on}; switch it off, or set acceptance_mig: allowed if that is intended"
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


def model(seen: dict[str, t.Any]) -> str:
    """Product name of a node's GPUs, as their tool prints it."""
    names = sorted({g["name"] or "unknown" for g in seen["gpus"]})
    return names[0] if len(names) == 1 else "mixed: " + ", ".join(names)
