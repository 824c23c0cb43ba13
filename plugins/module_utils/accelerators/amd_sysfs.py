# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD GPUs as the kernel shows them in /sys, for nodes without amd-smi: the topology of amdkfd and the files of amdgpu, in the form that
parsers/amd_smi.py gives.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import amd_products
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, Value, at_least
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import amd_smi
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import hip_sensors

NODES = "/sys/class/kfd/kfd/topology/nodes"
PROCESSES = "/sys/class/kfd/kfd/proc"
DEVICES = "/sys/bus/pci/devices"
VENDOR = 0x1002
# Types of links in the topology (kfd_crat.h).
XGMI = 11
_ERRORS = re.compile(r"(?m)^(ue|ce|de): *(\d{1,18})\s*$")
_PAGE = re.compile(r"(?m)^0x[0-9a-fA-F]+ : 0x[0-9a-fA-F]+ : ([RPF])\s*$")
_KINDS = {"ue": "uncorrectable", "ce": "correctable", "de": "deferred"}


def gpus(tree: Tree) -> dict[str, dict[str, int]]:
    """Return {name of the node in the topology: its properties} of the GPUs, in the order of the runtime."""
    found = {}
    for name in sorted((name for name in tree.names(NODES) if name.isdigit()), key=int):
        properties = _properties(tree, f"{NODES}/{name}/properties")
        if properties.get("simd_count", 0) > 0 and properties.get("vendor_id") == VENDOR:
            found[name] = properties
    return found


def _properties(tree: Tree, path: str) -> dict[str, int]:
    rows = [line.split() for line in (tree.text(path) or "").splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def address(properties: t.Mapping[str, int]) -> str:
    """Return the PCI address in the properties of a node of the topology."""
    location = properties.get("location_id", 0)
    return f"{properties.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"


def devices(tree: Tree) -> list[dict[str, t.Any]]:
    """Return the GPUs in the form that amd.gathered() gives."""
    return [_device(tree, index, name, properties) for index, (name, properties) in enumerate(gpus(tree).items())]


def _device(tree: Tree, index: int, name: str, properties: dict[str, int]) -> dict[str, t.Any]:
    bdf = address(properties)
    # The parts of a partitioned GPU have functions of their own in the topology only.
    folder = next((of for of in (f"{DEVICES}/{bdf}", f"{DEVICES}/{bdf[:-1]}0") if tree.exists(of)), f"{DEVICES}/{bdf}")
    blocks = _blocks(tree, folder)
    # Drivers since 2025 give each part a number of its own in the topology.
    unique = _hex(tree.text(f"{folder}/unique_id")) or properties.get("unique_id")
    simds = properties.get("simd_per_cu", 0)
    hwmon = next((f"{folder}/hwmon/{of}" for of in tree.names(f"{folder}/hwmon")), f"{folder}/hwmon/none")
    temperatures = _temperatures(tree, hwmon)
    used, total = (_mib(tree, f"{folder}/mem_info_vram_{of}") for of in ("used", "total"))
    device_id = properties.get("device_id")
    return {
        "index": index,
        "identity": {
            "bdf": bdf, "uuid": None, "render": None, "node_id": int(name), "kfd_id": _number(tree, f"{NODES}/{name}/gpu_id"),
            "partition_id": int(bdf[-1]),
        },
        "static": {
            "name": tree.text(f"{folder}/product_name") or None,
            "device_id": device_id,
            "serial": f"{unique:016x}" if unique else None,
            "bdf": bdf,
            "vbios": tree.text(f"{folder}/vbios_version") or None,
            "board_part_number": tree.text(f"{folder}/product_number") or None,
            "gfx": amd_products.gfx(properties.get("gfx_target_version", 0)),
            "driver": tree.text("/sys/module/amdgpu/version") or None,
            "compute": amd_smi.mode(tree.text(f"{folder}/current_compute_partition")),
            "memory": amd_smi.mode(tree.text(f"{folder}/current_memory_partition")),
            "oam_id": _number(tree, f"{folder}/xgmi_physical_id"),
            "compute_units": properties["simd_count"] // simds if simds else Absent("the topology does not have it"),
            "memory_mib": total,
            "width_max": _number(tree, f"{folder}/max_link_width"),
            "speed_max": _speed(tree, f"{folder}/max_link_speed"),
            "limit_w": _scaled(_number(tree, f"{hwmon}/power1_cap"), 1_000_000),
            "max_limit_w": _scaled(_number(tree, f"{hwmon}/power1_cap_max"), 1_000_000),
            "ras": None,
        },
        "metric": {
            "busy": _number(tree, f"{folder}/gpu_busy_percent"),
            "power_w": _scaled(_either(tree, f"{hwmon}/power1_average", f"{hwmon}/power1_input"), 1_000_000),
            "clock_mhz": current_level(tree.text(f"{folder}/pp_dpm_sclk")),
            "clock_max_mhz": Absent("/sys has no highest clock for certain"),
            "memory_clock_mhz": current_level(tree.text(f"{folder}/pp_dpm_mclk")),
            "temperature_c": temperatures.get("junction", Absent("/sys has no temperature of the junction")),
            "memory_temperature_c": temperatures.get("mem", Absent("/sys has no temperature of the memory")),
            "width": _number(tree, f"{folder}/current_link_width"),
            "speed": _speed(tree, f"{folder}/current_link_speed"),
            "replays": _number(tree, f"{folder}/pcie_replay_count"),
            "memory_used_mib": used,
            "memory_total_mib": total,
            "ecc": {kind: _sum(blocks, kind) for kind in amd_smi.ECC_KINDS},
            "blocks": blocks,
            "throttle": _throttled(tree, folder),
            "xgmi": tree.text(f"{folder}/xgmi_error"),
        },
        "pages": _pages(tree.text(f"{folder}/ras/gpu_vram_bad_pages")),
        "processes": _processes(tree, tree.text(f"{NODES}/{name}/gpu_id") or ""),
        "firmware": {
            of[: -len("_fw_version")]: version
            for of in tree.names(f"{folder}/fw_version")
            if of.endswith("_fw_version") and (version := tree.text(f"{folder}/fw_version/{of}"))
        },
    }  # fmt: skip


def links(tree: Tree) -> dict[str, dict[str, amd_smi.Link]]:
    """Return {PCI address: {PCI address of another GPU: its link}}, as amd_smi.topology() does: of links through other devices only those
    that the topology has."""
    by_node = {name: address(properties) for name, properties in gpus(tree).items()}
    found: dict[str, dict[str, amd_smi.Link]] = {}
    for name, bdf in by_node.items():
        for group in ("io_links", "p2p_links"):
            for link in tree.names(f"{NODES}/{name}/{group}"):
                properties = _properties(tree, f"{NODES}/{name}/{group}/{link}/properties")
                peer = by_node.get(str(properties.get("node_to")))
                if not peer or peer == bdf:
                    continue
                kind = "XGMI" if properties.get("type") == XGMI else "PCIE"
                rate: Value = properties.get("max_bandwidth") or Absent("the topology has no rate of the link")
                if kind == "XGMI" or peer not in found.get(bdf, {}):
                    found.setdefault(bdf, {})[peer] = amd_smi.Link(kind, True, rate)
    return found


def _hex(text: str | None) -> int:
    return int(text, 16) if text and re.fullmatch(r"(?:0x)?[0-9a-fA-F]{1,16}", text) else 0


def _number(tree: Tree, path: str) -> Value:
    return amd_smi.number(tree.text(path), path.rsplit("/", maxsplit=1)[-1])


def _either(tree: Tree, *paths: str) -> Value:
    values = [_number(tree, path) for path in paths]
    return next((value for value in values if not isinstance(value, Absent)), values[-1])


def _scaled(value: Value, by: int) -> Value:
    return value if isinstance(value, Absent) else value / by


def _mib(tree: Tree, path: str) -> Value:
    value = _number(tree, path)
    return value if isinstance(value, Absent) else int(value) >> 20


def _speed(tree: Tree, path: str) -> Value:
    """Return the GT/s of `32.0 GT/s PCIe`."""
    return amd_smi.number((tree.text(path) or "").replace("PCIe", "").strip(), "PCIe speed")


def current_level(text: str | None) -> Value:
    """Return the MHz of the level with a `*`; some devices mark none while they are idle."""
    match = re.search(r"(?m)^\s*\S+:\s*(\d{1,6})\s*M[Hh]z\s*\*", text or "")
    return int(match.group(1)) if match else Absent("the driver marks no level as current")


def _temperatures(tree: Tree, hwmon: str) -> dict[str, Value]:
    return {
        label: _scaled(_number(tree, f"{hwmon}/temp{number}_input"), 1000)
        for number in (1, 2, 3)
        if (label := tree.text(f"{hwmon}/temp{number}_label"))
    }


def _throttled(tree: Tree, folder: str) -> amd_smi.Throttled:
    """Return the firmware's counters of throttling in gpu_metrics, which has them since its version 1.6."""
    counted: list[Value] = [*hip_sensors.counters(tree.data(f"{folder}/gpu_metrics") or b"")]
    if not counted:
        counted = [Absent("gpu_metrics of the driver does not have it")] * (1 + len(amd_smi.THROTTLE_CAUSES))
    return amd_smi.Throttled(dict(zip(amd_smi.THROTTLE_CAUSES, counted[1:])), counted[0], [])


def _blocks(tree: Tree, folder: str) -> dict[str, dict[str, Value]]:
    """Return {block: {kind of amd_smi.ECC_KINDS: errors}}. A driver that does not count a kind has no line of it."""
    found: dict[str, dict[str, Value]] = {}
    for name in tree.names(f"{folder}/ras"):
        if name.endswith("_err_count"):
            counts = {_KINDS[kind]: int(count) for kind, count in _ERRORS.findall(tree.text(f"{folder}/ras/{name}") or "")}
            block = name[: -len("_err_count")].upper()
            found[block] = {kind: counts.get(kind, Absent(f"{name} does not have it")) for kind in amd_smi.ECC_KINDS}
    return found


def _sum(blocks: t.Mapping[str, t.Mapping[str, Value]], kind: str) -> Value:
    return at_least(of[kind] for of in blocks.values()) if blocks else Absent("the driver has no RAS counters that may be read")


def _pages(text: str | None) -> dict[str, Value]:
    if text is None:
        return {name: Absent("gpu_vram_bad_pages cannot be read") for name in ("retired", "pending", "unreservable")}
    states = _PAGE.findall(text)
    return {"retired": states.count("R"), "pending": states.count("P"), "unreservable": states.count("F")}


def _processes(tree: Tree, gpu_id: str) -> list[dict[str, t.Any]]:
    found = []
    for pid in tree.names(PROCESSES) if gpu_id else []:
        used = tree.number(f"{PROCESSES}/{pid}/vram_{gpu_id}")
        if pid.isdigit() and used:
            found.append({"pid": int(pid), "name": tree.text(f"/proc/{pid}/comm"), "used_mib": used >> 20, "type": "C"})
    return found
