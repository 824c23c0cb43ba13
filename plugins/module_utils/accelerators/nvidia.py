# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA GPUs, by nvidia-smi.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import base, cuda
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nvidia_smi

# The first query after boot without persistence mode initialises every GPU, some 2 s each.
QUERY_TIMEOUT_S = 60.0
# What the sampler asks for. The last is the older name of its field; drivers of both generations answer to it.
SAMPLED = ("uuid", "clocks.sm", "power.draw", "temperature.gpu", "clocks_throttle_reasons.active")
SERIES = ("sm_clock", "power", "temperature")
INTERVAL_MS = 1000
# Bits of the active reasons (nvml.h, nvmlClocksEventReason*).
THROTTLE = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clocks_setting",
}
# Those that no machine in order shows under load, and the driver's own counter of the time spent in them.
BAD_THROTTLE = {
    "hw_slowdown": None,
    "sw_thermal_slowdown": "sw_therm_slowdown",
    "hw_thermal_slowdown": "hw_therm_slowdown",
    "hw_power_brake_slowdown": "hw_power_brake",
}
_XID = re.compile(
    r"S?Xid \((?:PCI:)?([0-9a-fA-F]{1,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})[^)]{0,8}\): (\d{1,6})[^\n]{0,200}"
)

Run = t.Callable[..., t.Any]


class Nvidia(base.Accelerator):
    kind = "nvidia"
    link_code = "nvlink_error"
    link = "NVLink"
    bad_throttle = BAD_THROTTLE

    def snapshot(self) -> base.Snapshot:
        return {**_snapshot(self.node.run, self.program), "kind": self.kind}

    def health(self, device: base.Device) -> list[tuple[str, str]]:
        return health(device)

    def links(self, seen: base.Snapshot) -> base.Links | None:
        """parse_nvlink_status's dict. A GPU alone is not asked."""
        if len(seen["gpus"]) < 2:
            return {}
        result = self.node.run([self.program, "nvlink", "-s"], timeout=QUERY_TIMEOUT_S)
        return nvidia_smi.parse_nvlink_status(result.out) if result.ok else None

    def links_down(self, links: base.Links) -> dict[str, tuple[str, str]]:
        return {uuid: ("nvlink", words) for uuid, words in links_down(links).items()}

    def unseen(self, seen: base.Snapshot) -> list[str]:
        return unseen(self.node.root, seen)

    def facts(self, seen: base.Snapshot, links: base.Links | None) -> dict[str, t.Any]:
        gpus = seen["gpus"]

        def each(read: t.Callable[[dict[str, t.Any]], t.Any]) -> list[t.Any]:
            return sorted({value for value in map(read, gpus) if value is not None})

        return {
            "driver": seen["driver"],
            "cuda_driver": seen["cuda"],
            "gpu_memory_mib": each(lambda g: g["memory_total_mib"]),
            "vbios": each(lambda g: g["vbios"]),
            "gpu_gsp_firmware": each(lambda g: g["gsp_firmware"]),
            "gpu_persistence": each(lambda g: g["persistence"]),
            "gpu_ecc_mode": each(lambda g: g["ecc_mode"]),
            "gpu_mig": each(lambda g: g["mig"]),
            "gpu_compute_mode": each(lambda g: g["compute_mode"]),
            "gpu_power_limit_w": each(lambda g: g["power"]["limit_w"]),
            "gpu_max_sm_clock_mhz": each(lambda g: g["clocks"]["max_sm"]),
            "gpu_pcie": each(lambda g: f"gen{g['pcie']['gen_max']} x{g['pcie']['width']}"),
            "gpu_fabric": each(lambda g: g["fabric"]["state"]),
            "gpu_nvlinks": sorted({link_words(states) for states in (links or {}).values()}) or None,
        }

    def start(self) -> base.Start:
        # Numbers its devices as nvidia-smi does.
        return base.Start("CUDA", cuda.ASK_CUDA, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "cuda_failed", cuda.problem)

    def sampling(self) -> list[str]:
        query = [f"--query-gpu={','.join(SAMPLED)}", "--format=csv,noheader,nounits", "-lms", str(INTERVAL_MS)]
        return [self.program, *query]

    def sample(self, line: str, seen: base.Snapshot) -> base.Sample | None:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(SAMPLED) or cells[0] not in {g["uuid"] for g in seen["gpus"]}:
            return None
        read = {name: nvidia_smi.csv_cell(cell) for name, cell in zip(SERIES, cells[1:])}
        values = {name: value for name, value in read.items() if isinstance(value, (int, float))}
        throttle: set[str] = set()
        with contextlib.suppress(ValueError):
            bits = int(cells[4], 16)
            throttle = {name for bit, name in THROTTLE.items() if bits & bit}
        return base.Sample(cells[0], values, throttle)

    def link_errors(self, seen: base.Snapshot) -> dict[str, dict[str, int]] | None:
        """GPUs without NVLink have no counters, which is no gap."""
        if len(seen["gpus"]) < 2:
            return {}
        result = self.node.run([self.program, "nvlink", "-e"], timeout=QUERY_TIMEOUT_S)
        return nvidia_smi.parse_nvlink_errors(result.out) if result.ok else None

    def logged(self, line: str) -> tuple[str, str] | None:
        """An Xid."""
        found = _XID.search(line)
        return (found.group(1), found.group(0).strip()) if found else None


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


def link_words(states: list[float | None]) -> str:
    """`18 x 26.562 GB/s`: the links that are up."""
    up = [speed for speed in states if speed]
    return " + ".join(f"{up.count(speed)} x {speed:g} GB/s" for speed in sorted(set(up))) or "none"


def links_down(by_uuid: dict[str, list[float | None]]) -> dict[str, str]:
    """{GPU UUID: words} of GPUs with fewer links up, or slower ones, than the best of the node. How many there should
    be the driver does not say: it lists the unused links of a GPU without NVSwitch as inactive too."""
    total = {uuid: sum(speed or 0 for speed in states) for uuid, states in by_uuid.items()}
    best = max(total, key=lambda uuid: total[uuid], default="")
    return {
        uuid: f"NVLink: {link_words(by_uuid[uuid])} up, on another GPU of this node {link_words(by_uuid[best])}"
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
