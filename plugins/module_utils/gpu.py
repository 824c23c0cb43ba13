# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What probes ask about the GPUs of a node.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nvidia_smi

# A context that only holds the display or a monitoring agent stays below this.
BUSY_MEMORY_MIB = 1024
BUSY_UTILIZATION = 20

Run = t.Callable[..., t.Any]


def snapshot(run: Run, program: str = "nvidia-smi") -> dict[str, t.Any]:
    """The state of all GPUs by one `nvidia-smi -q -x`: parse_xml's dict, or an error that names the cause."""
    result = run([program, "-q", "-x"], timeout=60)
    if result.missing:
        code = "tool_missing" if result.missing == "not found" else "tool_not_executable"
        return _error(code, f"{program}: {result.missing}; install the NVIDIA driver or set acceptance_nvidia_smi")
    if result.timed_out:
        return _error("gpu_lost", f"{program} did not answer within 60 s; a GPU or its driver hangs, see dmesg")
    seen = nvidia_smi.parse_xml(result.out)
    if seen["outcome"] != "measured" and seen["reason_code"] == "bad_output":
        known = nvidia_smi.failure(result.out + result.err)
        if known:
            seen.update(reason_code=known[0], reason=known[1])
        elif result.rc:
            seen.update(reason=f"{program} ended with status {result.rc}: {' '.join((result.err or result.out).split())[:200]}")
    return seen


def _error(code: str, reason: str) -> dict[str, t.Any]:
    return {"outcome": "error", "reason_code": code, "reason": reason, "gpus": [], "driver": None, "cuda": None, "simulated": False}


def refusal(seen: dict[str, t.Any], expected: int | None, what: str) -> tuple[str, str, str] | None:
    """Why `what` is not measured on a node in this state, as (outcome, reason code, reason), or None."""
    if seen["outcome"] != "measured":
        if seen["reason_code"] in ("no_gpu", "tool_missing") and expected == 0:
            return "not_applicable", "no_gpu_expected", "the inventory says this machine has no GPU"
        return "error", seen["reason_code"], seen["reason"]
    if expected is not None and expected != len(seen["gpus"]):
        return "error", "gpu_count", f"{len(seen['gpus'])} GPUs found, acceptance_gpu_count says {expected}"
    if any((g["mig"] or "").lower() == "enabled" for g in seen["gpus"]):
        return "not_applicable", "mig_enabled", f"MIG is on; {what} of whole GPUs do not apply"
    busy = foreign_processes(seen)
    if busy:
        return "error", "busy_gpu", f"other processes use the GPUs: {'; '.join(busy)}; end them and resume"
    return None


def foreign_processes(seen: dict[str, t.Any]) -> list[str]:
    """Who uses the GPUs, in words. Called while nothing of ours does. Where processes are invisible, as in a container,
    used memory and utilisation tell."""
    found = []
    for g in seen["gpus"]:
        compute = [p for p in g["processes"] if "C" in (p["type"] or "C")]
        for p in compute:
            found.append(f"GPU {g['index']}: pid {p['pid']} ({p['name'] or 'unknown'}), {p['used_mib'] or 0} MiB")
        if not compute and ((g["memory_used_mib"] or 0) > BUSY_MEMORY_MIB or (g["utilization"] or 0) > BUSY_UTILIZATION):
            found.append(
                f"GPU {g['index']}: {g['memory_used_mib']} MiB used, {g['utilization']} % busy, by processes that are not visible here"
            )
    return found


def health(g: dict[str, t.Any]) -> list[tuple[str, str]]:
    """What is wrong with one GPU, as (reason code, words): fatal findings first."""
    found = []
    where = f"GPU {g['index']} ({g['bdf']}, serial {g['serial']})"
    for count, words in (
        (g["ecc"]["volatile_uncorrected"], "uncorrectable memory errors since the driver was loaded"),
        (g["ecc"]["aggregate_uncorrected"], "uncorrectable memory errors in its life"),
    ):
        if count:
            found.append(("ecc", f"{where}: {count} {words}"))
    if (g["ecc"]["unrepairable"] or "No") == "Yes":
        found.append(("ecc", f"{where}: memory that cannot be repaired"))
    for name, words in (("pending", "a row remap is pending: reset the GPU"), ("failure", "a row remap has failed: replace the GPU")):
        if (g["remapped_rows"][name] or "No") == "Yes":
            found.append(("ecc", f"{where}: {words}"))
    if (g["retired_pages"]["pending"] or "No") == "Yes":
        found.append(("ecc", f"{where}: a page retirement is pending: reset the GPU"))
    width, most = g["pcie"]["width"], g["pcie"]["width_max"]
    if width and most and width < most:
        found.append(("pcie_width", f"{where}: PCIe x{width}, can do x{most}"))
    state = g["fabric"]["state"]
    if state and state not in ("Completed", "Not Started") or state == "Completed" and g["fabric"]["status"] not in (None, "Success"):
        found.append(("fabric", f"{where}: fabric manager says {state}, {g['fabric']['status']}"))
    return found


def model(seen: dict[str, t.Any]) -> str:
    """Product name of a node's GPUs, as nvidia-smi prints it."""
    names = sorted({g["name"] for g in seen["gpus"]})
    return names[0] if len(names) == 1 else "mixed: " + ", ".join(names)
