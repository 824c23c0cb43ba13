# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What probes ask about the GPUs of a node.

`run` is Node.run or anything like it: run(argv, timeout=seconds) -> a result with rc, out, err, timed_out, missing.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import glob
import os
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nvidia_smi

# Driver and monitoring agents hold less, on every GPU model seen.
BUSY_MEMORY_MIB = 1024
BUSY_UTILIZATION = 20
# The first query after boot without persistence mode initialises every GPU, some 2 s each.
QUERY_TIMEOUT_S = 60.0

Run = t.Callable[..., t.Any]


def snapshot(node: Node, program: str = "nvidia-smi") -> dict[str, t.Any]:
    """The state of all GPUs by one `nvidia-smi -q -x`: the dict of parse_xml, or an error that names the cause. The node remembers whom
    it has shown."""
    seen = _snapshot(node.run, program)
    if seen["outcome"] == "measured":
        node.gpus = [g["uuid"] for g in seen["gpus"] if g["uuid"]]
    return seen


def _snapshot(run: Run, program: str) -> dict[str, t.Any]:
    result = run([program, "-q", "-x"], timeout=QUERY_TIMEOUT_S)
    if result.missing:
        code = "tool_missing" if result.missing == "not found" else "tool_not_executable"
        return _error(code, f"{program}: {result.missing}; install the NVIDIA driver, or set acceptance_nvidia_smi")
    if result.timed_out:
        reason = f"{program} did not answer in {QUERY_TIMEOUT_S:.0f} s: a GPU or its driver hangs, see dmesg"
        return _error("gpu_lost", reason)
    seen = nvidia_smi.parse_xml(result.out)
    if seen["outcome"] == "measured" and result.rc:
        code, reason = nvidia_smi.failure(result.err) or _status(program, result)
        seen.update(outcome="error", reason_code=code, reason=reason)
    elif seen["reason_code"] in ("bad_output", "incomplete_output"):
        said = nvidia_smi.failure(f"{result.out}\n{result.err}") or (_status(program, result) if result.rc else None)
        if said:
            seen.update(reason_code=said[0], reason=said[1])
    return seen


def _status(program: str, result: t.Any) -> tuple[str, str]:
    words = " ".join((result.err or result.out[:1000]).split())[:200]
    return "tool_failed", f"{program} ended with status {result.rc}: {words}"


def _error(code: str, reason: str) -> dict[str, t.Any]:
    return dict(nvidia_smi.parse_xml(""), reason_code=code, reason=reason)


def refusal(seen: dict[str, t.Any], expected: int | None, what: str, mig: str = "refused") -> tuple[str, str, str] | None:
    """Why `what` is not measured on a node in this state, as (outcome, reason code, reason), or None. `mig`: whether MIG is `allowed`."""
    if seen["outcome"] != "measured":
        if expected == 0 and seen["reason_code"] in ("no_gpu", "tool_missing"):
            return "not_applicable", "no_gpu_expected", "the inventory says this machine has no GPU"
        return "error", seen["reason_code"], seen["reason"]
    if expected is not None and expected != len(seen["gpus"]):
        return "error", "gpu_count", f"{len(seen['gpus'])} GPUs found, acceptance_gpu_count says {expected}"
    parted = [name(g) for g in seen["gpus"] if (g["mig"] or "").lower() == "enabled"]
    if parted:
        on = f"MIG is on for {', '.join(parted) if len(parted) < len(seen['gpus']) else 'all GPUs'}: {what} of whole GPUs do not apply"
        if mig == "allowed":
            return "not_applicable", "mig_enabled", on
        return "error", "mig_enabled", f"{on}; switch it off, or say acceptance_mig: allowed where it is meant"
    busy = foreign_processes(seen)
    if busy:
        return "error", "busy_gpu", f"other processes use the GPUs: {'; '.join(busy)}; end them and resume"
    return None


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
                found.append(f"GPU {g['index']}: {who}, {p['used_mib'] or 0} MiB")
        memory, busy = g["memory_used_mib"] or 0, g["utilization"] or 0
        if not users and (memory > BUSY_MEMORY_MIB or busy > BUSY_UTILIZATION):
            found.append(f"GPU {g['index']}: {memory} MiB used, {busy} % busy, by processes invisible from here")
    return found


def health(g: dict[str, t.Any]) -> list[tuple[str, str]]:
    """What is wrong with one GPU of a snapshot, as (reason code, words), the gravest first; empty where nothing is.

    PCIe width is judged at any load, the generation is not: an idle link runs slower to save power.
    MIG is a setting, not a fault: it is a fact, and refusal() says what it makes meaningless.
    """
    found = []
    if g["lost"]:
        found.append(("gpu_lost", g["lost"]))
    for count, words in (
        (g["ecc"]["volatile_uncorrected"], "uncorrectable memory errors since the driver was loaded"),
        (g["ecc"]["aggregate_uncorrected"], "uncorrectable memory errors in the GPU's life"),
    ):
        if count:
            found.append(("ecc", f"{count} {words}"))
    for group, name, words in (
        ("ecc", "unrepairable", "memory errors beyond repair: replace the GPU"),
        ("remapped_rows", "failure", "a row remap has failed: replace the GPU"),
        ("remapped_rows", "pending", "a row remap or channel repair is pending: reset the GPU"),
        ("retired_pages", "pending", "a page retirement is pending: reset the GPU"),
    ):
        if g[group][name] == "Yes":
            found.append(("ecc", words))
    if g["recovery_action"]:
        found.append(("gpu_reset", f"the driver asks for a recovery action: {g['recovery_action']}"))
    width, most = g["pcie"]["width"], g["pcie"]["width_max"]
    if width and most and width < most:
        found.append(("pcie_width", f"the PCIe link is x{width} and can be x{most}: reseat the GPU or its riser"))
    found += [("fabric", words) for words in _fabric(g["fabric"])]
    return found


def _fabric(fabric: dict[str, str | None]) -> list[str]:
    """What is wrong with a GPU's place in its NVSwitch fabric. `Not Started` is also said where there is no NVSwitch;
    where there is one, CUDA then refuses to start with error 802, which the check `cuda` names."""
    found = []
    state = (fabric["state"] or "").lower()
    if state and state not in ("completed", "not started", "not supported"):
        found.append(f"the NVLink fabric is {fabric['state']}: start nvidia-fabricmanager of the driver's version")
    if state == "completed" and (fabric["status"] or "success").lower() not in ("success", "nvml_success"):
        found.append(f"the NVLink fabric was set up with the error {fabric['status']}")
    if (fabric["health"] or "healthy").lower() not in ("healthy", "not supported"):
        found.append(f"the NVLink fabric is {fabric['health']}")
    if (fabric["bandwidth"] or "").lower() == "degraded":
        found.append("the NVLink fabric's bandwidth is degraded")
    return found


def nvlink_domain(seen: dict[str, t.Any]) -> str:
    """The NVLink domain of a node's GPUs that goes beyond the node, as `CLUSTER/CLIQUE`; empty where the driver tells of none."""
    found = {(g["fabric"]["cluster"] or "", g["fabric"]["clique"] or "") for g in seen["gpus"]}
    cluster, clique = found.pop() if len(found) == 1 else ("", "")
    return f"{cluster}/{clique}" if cluster.strip("0-") and cluster.upper() != "N/A" else ""


def nvlinks(run: Run, seen: dict[str, t.Any], program: str = "nvidia-smi") -> dict[str, list[float | None]] | None:
    """parse_nvlink_status's dict; None where it cannot be read. A GPU alone is not asked."""
    if len(seen["gpus"]) < 2:
        return {}
    result = run([program, "nvlink", "-s"], timeout=QUERY_TIMEOUT_S)
    return nvidia_smi.parse_nvlink_status(result.out) if result.ok else None


def links(states: list[float | None]) -> str:
    """`18 x 26.562 GB/s`: the links that are up."""
    up = [speed for speed in states if speed]
    return " + ".join(f"{up.count(speed)} x {speed:g} GB/s" for speed in sorted(set(up))) or "none"


def links_down(by_uuid: dict[str, list[float | None]]) -> dict[str, str]:
    """{GPU UUID: words} of GPUs with fewer links up, or slower ones, than the best of the node. How many there should
    be the driver does not say: it lists the unused links of a GPU without NVSwitch as inactive too."""
    total = {uuid: sum(speed or 0 for speed in states) for uuid, states in by_uuid.items()}
    best = max(total, key=lambda uuid: total[uuid], default="")
    return {
        uuid: f"NVLink: {links(by_uuid[uuid])} up, on another GPU of this node {links(by_uuid[best])}"
        for uuid in by_uuid
        if total[uuid] < total[best]
    }


def unseen(root: str, seen: dict[str, t.Any]) -> list[str]:
    """PCI addresses of GPUs that the kernel driver has and nvidia-smi does not show; not those that were excluded on
    purpose. In a container the driver lists only the GPUs that are given to it."""
    shown = {_bdf(g["bdf"] or "") for g in seen["gpus"]}
    found = []
    for path in sorted(glob.glob(os.path.join(root, "proc/driver/nvidia/gpus/*"))):
        try:
            with open(os.path.join(path, "information"), encoding="utf-8", errors="replace") as source:
                excluded = any(line.replace(" ", "").split() == ["GPUExcluded:", "Yes"] for line in source)
        except OSError:
            excluded = False
        if not excluded and _bdf(os.path.basename(path)) not in shown:
            found.append(os.path.basename(path))
    return found


def _bdf(text: str) -> str:
    """Driver and nvidia-smi write the PCI domain in 4 and in 8 digits."""
    domain, _colon, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def name(g: dict[str, t.Any]) -> str:
    """A GPU in words by which a technician finds it."""
    return f"GPU {g['index']} ({g['bdf']}, serial {g['serial'] or 'unknown'})"


def model(seen: dict[str, t.Any]) -> str:
    """Product name of a node's GPUs, as nvidia-smi prints it."""
    names = sorted({g["name"] or "unknown" for g in seen["gpus"]})
    return names[0] if len(names) == 1 else "mixed: " + ", ".join(names)
