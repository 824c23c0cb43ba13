# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The accelerators of a node for probes. The kind of accelerators is settled here, behind one interface (accelerators/base.py).

`Node.tools` says where the tool of each kind is.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import re
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import base, registry
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import plain
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

NUMBERS = ("no", "one", "two", "three", "four")
# Driver and monitoring agents hold less, on every GPU model seen.
BUSY_MEMORY_MIB = 1024
BUSY_UTILIZATION = 20
# Without persistence mode a GPU is initialised for each query, and its memory is cleared and checked: its utilisation reads high for a
# moment. It is asked again so often, with so many seconds in between, before somebody else is blamed.
ASKED_AGAIN, SETTLES_S = 3, 1.0
# Why no tool shows an accelerator, where none may be there.
_NONE = ("no_gpu", "tool_missing")
MOST_SHOWN = 4


def kind(snapshot: dict[str, t.Any]) -> type[base.Accelerator]:
    """Return the kind of the devices in a snapshot."""
    return registry.KINDS[snapshot["kind"]] if "kind" in snapshot else registry.DEFAULT


def accelerator(node: Node, snapshot: dict[str, t.Any]) -> base.Accelerator:
    """Return the accelerator of the kind that a snapshot shows."""
    return registry.make(kind(snapshot).kind, node)


def snapshot(node: Node, settled: bool = True) -> dict[str, t.Any]:
    """Return the state of all accelerators of a node (base.Snapshot), or an error that names the cause. The node remembers the UUIDs, and
    how containers get the devices. `settled`: ask again if devices work without memory or a process of anybody."""
    state = _snapshot([registry.make(name, node) for name in registry.KINDS])
    for _attempt in range(ASKED_AGAIN if settled else 0):
        if not any(_works_alone(g) for g in state["gpus"]) or node.remaining() < 10 * SETTLES_S:
            break
        time.sleep(SETTLES_S)
        again = accelerator(node, state).snapshot()
        if again["outcome"] != "measured":
            break
        state = again
    if any(_works_alone(g) for g in state["gpus"]):
        state["holders"] = holders(kind(state).device_files)
    if state["reason_code"] in _NONE:
        state["on_bus"] = _on_bus(node, state)
    if state["outcome"] == "measured":
        node.gpus = [g["uuid"] for g in state["gpus"] if g["uuid"]]
        node.devices = kind(state).container
    return state


def not_expected(snapshot: dict[str, t.Any], expected: int | None) -> tuple[str, str, str] | None:
    """Return (outcome, reason code, reason) of a node of which the inventory says that it has no GPU, and of which no tool shows one; None
    of any other. A PCI bus with accelerators contradicts it."""
    if expected != 0 or snapshot["reason_code"] not in _NONE:
        return None
    devices = snapshot.get("on_bus") or []
    if devices:
        more = f" and {len(devices) - MOST_SHOWN} more" if len(devices) > MOST_SHOWN else ""
        reason = (
            f"acceptance_gpu_count says that this machine has no GPU, and its PCI bus has {len(devices)}: "
            f"{', '.join(devices[:MOST_SHOWN])}{more}; {snapshot['reason']}"
        )
        return "error", "gpu_count", reason
    return "not_applicable", "no_gpu_expected", "the inventory says this machine has no GPU"


def _on_bus(node: Node, state: dict[str, t.Any]) -> list[str]:
    """Return the accelerators of any kind that the PCI bus has for this process, in words; of a simulated machine those of its tree."""
    if (state.get("simulated") or node.root != "/") and not os.path.isdir(node.path("/sys")):
        return []
    return [
        f"{of.word} {device.address} ({f'driver {device.driver}' if device.driver else 'no driver'})"
        for of in (registry.make(name, node) for name in registry.KINDS)
        for device in of.present()
    ]


def _snapshot(accelerators: list[base.Accelerator]) -> dict[str, t.Any]:
    """Return the snapshot of the kind of accelerators that the node has.

    An image for every machine has the tools of several kinds. Then exactly one tool must show devices.
    """
    installed = [candidate for candidate in accelerators if candidate.is_installed()]
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
    # A tool that cannot answer says more than one that finds nothing.
    return having[0] if having else next((state for state in snapshots if state["reason_code"] not in _NONE), snapshots[0])


def _described(snapshot: dict[str, t.Any]) -> str:
    """Return the model of the accelerators in a snapshot; if it shows none, their kind and why."""
    return model(snapshot) if snapshot["gpus"] else f"{kind(snapshot).plural} that cannot be seen ({snapshot['reason']})"


def refusal(
    snapshot: dict[str, t.Any],
    expected: int | None,
    purpose: str,
    mig: str = "refused",
    kinds: t.Collection[str] | None = None,
    partial: bool = False,
) -> tuple[str, str, str] | None:
    """Return why `purpose` is not measured on a node in this state, as (outcome, reason code, reason); None if it is. `expected`: number of
    GPUs by the inventory. `mig`: `allowed` or `refused`. `kinds`: the kinds of accelerators that can be measured, None for every kind.
    `partial`: True if the GPUs without MIG can be measured while others have MIG (without_mig())."""
    if snapshot["outcome"] != "measured":
        return not_expected(snapshot, expected) or ("error", snapshot["reason_code"], snapshot["reason"])
    if expected is not None and expected != len(snapshot["gpus"]):
        return "error", "gpu_count", f"{len(snapshot['gpus'])} GPUs found, acceptance_gpu_count says {expected}"
    if kinds is not None and kind(snapshot).kind not in kinds:
        measured = " or ".join(registry.KINDS[name].plural for name in kinds)
        reason = f"{purpose}: of {measured or 'no kind of accelerators'} only, and this node has {len(snapshot['gpus'])} {model(snapshot)}"
        return "not_applicable", "other_accelerator", reason
    parted = [name(g) for g in snapshot["gpus"] if _has_mig(g)]
    if partial and mig == "allowed" and len(parted) < len(snapshot["gpus"]):
        snapshot, parted = without_mig(snapshot)[0], []
    if parted:
        is_whole_node = len(parted) == len(snapshot["gpus"])
        on = f"MIG is on for {'all GPUs' if is_whole_node else ', '.join(parted)}: no {purpose} of whole GPUs"
        if mig == "allowed" and is_whole_node:
            return "not_applicable", "mig_enabled", on
        if mig == "allowed":
            others = len(snapshot["gpus"]) - len(parted)
            return "not_applicable", "mig_partly", f"{on}, and the other {others} GPUs of the node were not measured by themselves"
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
        users = _users(g)
        for p in users:
            if p["pid"] not in own_pids:
                who = f"pid {p['pid']} ({p['name'] or 'name unknown'})"
                texts.append(f"{word(g)} {g['index']}: {who}, {plain(p['used_mib']) or 0} MiB")
        memory, busy = plain(g["memory_used_mib"]) or 0, plain(g["utilization"]) or 0
        if not users and (memory > g.get("idle_mib", BUSY_MEMORY_MIB) or busy > BUSY_UTILIZATION):
            held = snapshot.get("holders")
            who = f"; its device files are open in {held}" if held else ", by processes invisible from here"
            texts.append(f"{word(g)} {g['index']}: {memory} MiB used, {busy} % busy{who}")
    return texts


def _users(g: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    """Return the processes that compute on a device. Types are C (compute), G (graphics), C+G and M+C (through MPS); a driver that gives
    none lists compute only."""
    return [p for p in g["processes"] if "C" in (p["type"] or "C")]


def _works_alone(g: dict[str, t.Any]) -> bool:
    """Return True if a device works, and neither a process nor memory in use tells for whom."""
    memory, busy = plain(g["memory_used_mib"]) or 0, plain(g["utilization"]) or 0
    return not _users(g) and busy > BUSY_UTILIZATION and memory <= g.get("idle_mib", BUSY_MEMORY_MIB)


def holders(device_files: str) -> str:
    """Return the names and pids of up to four processes that have a device file open whose path is of this pattern, as far as they can be
    seen."""
    found = []
    for pid in sorted((name for name in _listed("/proc") if name.isdigit()), key=int):
        if int(pid) == os.getpid():
            continue
        for number in _listed(f"/proc/{pid}/fd"):
            try:
                target = os.readlink(f"/proc/{pid}/fd/{number}")
            except OSError:
                continue
            if device_files and re.fullmatch(device_files, target):
                found.append(f"{Node(0).read(f'/proc/{pid}/comm') or 'a process'} (pid {pid})")
                break
    return ", ".join(found[:4]) + (" ..." if len(found) > 4 else "")


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


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
