# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What nvidia-smi printed: XML of `-q -x`, CSV queries, NVLink state and errors, topology.

Pure functions; nothing here raises for bad text. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t
import xml.etree.ElementTree as ElementTree

from ansible_collections.gpufleet.acceptance.plugins.module_utils.observation import SIMULATED_MARK

LIMIT = 32 << 20
ABSENT = {"", "n/a", "[n/a]", "not supported", "[not supported]", "none", "unknown error", "[unknown error]", "err!", "requested functionality has been deprecated"}
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

# Texts with which nvidia-smi says that it has no list of GPUs; (text, reason code, what to do).
FAILURES = (
    ("No devices were found", "no_gpu", "nvidia-smi finds no GPU"),
    ("is lost", "gpu_lost", "a GPU has fallen off the bus; reboot, and check its seating and power"),
    ("fallen off the bus", "gpu_lost", "a GPU has fallen off the bus; reboot, and check its seating and power"),
    ("Unable to determine the device handle", "gpu_lost", "the driver cannot reach a GPU; reboot, and check dmesg for Xid"),
    ("Driver/library version mismatch", "cuda_failed", "driver and library differ in version: reboot or reload the driver"),
    ("couldn't communicate with the NVIDIA driver", "cuda_failed", "the NVIDIA driver is not loaded"),
    ("Failed to initialize NVML", "cuda_failed", "NVML cannot be initialised"),
)


def failure(text: str) -> tuple[str, str] | None:
    """Reason code and reason where nvidia-smi says that something is wrong, else None."""
    for mark, code, advice in FAILURES:
        if mark in text:
            line = next((line.strip() for line in text.splitlines() if mark in line), mark)
            return code, f"{advice}: {line[:200]}"
    return None


def parse_xml(text: t.Any) -> dict[str, t.Any]:
    """`nvidia-smi -q -x` of any driver -> {"outcome", "reason_code", "reason", "driver", "cuda", "simulated", "gpus": [...]}.

    Memory in MiB, power in W, clocks in MHz, temperature in C; what the driver does not say is None.
    """
    result: dict[str, t.Any] = {
        "outcome": "error", "reason_code": None, "reason": None, "driver": None, "cuda": None, "simulated": False, "gpus": [],
    }  # fmt: skip
    if not isinstance(text, str) or len(text) > LIMIT:
        result.update(reason_code="bad_output", reason="nvidia-smi printed no text of a sane size")
        return result
    result["simulated"] = SIMULATED_MARK in text
    start = text.find("<nvidia_smi_log")
    end = text.rfind("</nvidia_smi_log>")
    if start < 0 or end < 0:
        code, reason = failure(text) or ("bad_output", "nvidia-smi printed no XML of its own")
        result.update(reason_code=code, reason=reason)
        return result
    try:
        root = ElementTree.fromstring(text[start : end + len("</nvidia_smi_log>")])
    except (ElementTree.ParseError, ValueError) as error:
        result.update(reason_code="bad_output", reason=f"the XML of nvidia-smi is broken: {error}")
        return result
    result["driver"], result["cuda"] = _text(root, "driver_version"), _text(root, "cuda_version")
    result["gpus"] = [_gpu(index, node) for index, node in enumerate(root.findall("gpu"))]
    attached = _int(_text(root, "attached_gpus"))
    lost = [g for g in result["gpus"] if not g["uuid"] or not g["name"]]
    problem = failure(text)
    if problem and problem[0] != "no_gpu":
        result.update(reason_code=problem[0], reason=problem[1])
    elif lost:
        bdf = lost[0]["bdf"] or "?"
        result.update(reason_code="gpu_lost", reason=f"the GPU at {bdf} does not answer: no UUID or name")
    elif not result["gpus"]:
        result.update(reason_code="no_gpu", reason="nvidia-smi finds no GPU")
    elif attached is not None and attached != len(result["gpus"]):
        result.update(reason_code="gpu_lost", reason=f"{attached} GPUs are attached and {len(result['gpus'])} answer")
    else:
        result["outcome"] = "measured"
    return result


def _text(node: t.Any, path: str) -> str | None:
    found = node.find(path)
    value = (found.text or "").strip() if found is not None else ""
    return None if value.lower() in ABSENT else value


def _number(value: str | None) -> float | None:
    found = re.match(r"-?\d{1,18}(?:\.\d{1,9})?", value or "")
    return float(found.group(0)) if found else None


def _int(value: str | None) -> int | None:
    number = _number(value)
    return int(number) if number is not None else None


def _sum(node: t.Any, paths: t.Iterable[str]) -> int | None:
    found = [n for n in (_int(_text(node, p)) for p in paths) if n is not None]
    return sum(found) if found else None


def _uncorrectable(node: t.Any, when: str) -> int | None:
    """All uncorrectable errors; newer drivers count SRAM by kind, older ones by place with a total."""
    base = f"ecc_errors/{when}/"
    total = _int(_text(node, base + "double_bit/total"))
    if total is not None:
        return total
    places = ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable")
    return _sum(node, [base + place for place in places])


def _gpu(index: int, node: t.Any) -> dict[str, t.Any]:
    pcie = "pci/pci_gpu_link_info/"
    reasons = node.find("clocks_event_reasons")
    if reasons is None:
        reasons = node.find("clocks_throttle_reasons")
    active = [
        re.sub(r"^clocks_(?:event|throttle)_reason_", "", child.tag)
        for child in (reasons if reasons is not None else [])
        if (child.text or "").strip() == "Active"
    ]
    power = "gpu_power_readings/" if node.find("gpu_power_readings") is not None else "power_readings/"
    draw = next(
        (v for v in (_number(_text(node, power + n)) for n in ("instant_power_draw", "power_draw", "average_power_draw")) if v is not None),
        None,
    )
    limit = next(
        (v for v in (_number(_text(node, power + n)) for n in ("current_power_limit", "enforced_power_limit", "power_limit")) if v is not None),
        None,
    )
    memory = "fb_memory_usage/"
    return {
        "index": index,
        "uuid": _text(node, "uuid"),
        "serial": _text(node, "serial"),
        "name": _text(node, "product_name"),
        "architecture": _text(node, "product_architecture"),
        "bdf": (_text(node, "pci/pci_bus_id") or node.get("id") or "").lower() or None,
        "vbios": _text(node, "vbios_version"),
        "gsp_firmware": _text(node, "gsp_firmware_version"),
        "memory_total_mib": _int(_text(node, memory + "total")),
        "memory_used_mib": _int(_text(node, memory + "used")),
        "utilization": _int(_text(node, "utilization/gpu_util")),
        "persistence": _text(node, "persistence_mode"),
        "mig": _text(node, "mig_mode/current_mig"),
        "compute_mode": _text(node, "compute_mode"),
        "ecc_mode": _text(node, "ecc_mode/current_ecc"),
        "ecc": {
            "volatile_uncorrected": _uncorrectable(node, "volatile"),
            "aggregate_uncorrected": _uncorrectable(node, "aggregate"),
            "volatile_corrected": _sum(node, [f"ecc_errors/volatile/{p}" for p in ("sram_correctable", "dram_correctable", "single_bit/total")]),
            "unrepairable": _text(node, "ecc_errors/unrepairable_memory"),
        },
        "remapped_rows": {
            "correctable": _int(_text(node, "remapped_rows/remapped_row_corr")),
            "uncorrectable": _int(_text(node, "remapped_rows/remapped_row_unc")),
            "pending": _text(node, "remapped_rows/remapped_row_pending"),
            "failure": _text(node, "remapped_rows/remapped_row_failure"),
        },
        "retired_pages": {
            "single_bit": _int(_text(node, "retired_pages/multiple_single_bit_retirement/retired_count")),
            "double_bit": _int(_text(node, "retired_pages/double_bit_retirement/retired_count")),
            "pending": _text(node, "retired_pages/pending_retirement") or _text(node, "retired_pages/pending_blacklist"),
        },
        "throttle_reasons": active,
        "clocks": {
            "sm": _int(_text(node, "clocks/sm_clock")),
            "mem": _int(_text(node, "clocks/mem_clock")),
            "max_sm": _int(_text(node, "max_clocks/sm_clock")),
        },
        "power": {"draw_w": draw, "limit_w": limit, "default_limit_w": _number(_text(node, power + "default_power_limit"))},
        "temperature_c": _int(_text(node, "temperature/gpu_temp")),
        "pcie": {
            "gen": _int(_text(node, pcie + "pcie_gen/current_link_gen")),
            "gen_max": _int(_text(node, pcie + "pcie_gen/max_link_gen")),
            "width": _int(_text(node, pcie + "link_widths/current_link_width")),
            "width_max": _int(_text(node, pcie + "link_widths/max_link_width")),
            "replays": _int(_text(node, "pci/replay_counter")),
        },
        "fabric": {"state": _text(node, "fabric/state"), "status": _text(node, "fabric/status")},
        "processes": [
            {
                "pid": _int(_text(p, "pid")),
                "name": _text(p, "process_name"),
                "used_mib": _int(_text(p, "used_memory")),
                "type": _text(p, "type"),
            }
            for p in node.findall("processes/process_info")
        ],
    }


def parse_csv(text: t.Any) -> list[dict[str, t.Any]]:
    """`--query-gpu=... --format=csv` (with its header line) -> a dict per GPU: numbers where a cell is one, its unit dropped."""
    lines = [line for line in text.splitlines() if line.strip()] if isinstance(text, str) and len(text) < LIMIT else []
    if len(lines) < 2:
        return []
    names = [re.sub(r"\s*\[[^\]]*\]$", "", cell.strip()) for cell in lines[0].split(",")]
    rows = []
    for line in lines[1:]:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(names):
            rows.append({name: csv_cell(cell) for name, cell in zip(names, cells)})
    return rows


def csv_cell(cell: str) -> t.Any:
    """`345 MHz` -> 345.0, `[N/A]` -> None, `Enabled` -> "Enabled"."""
    if cell.lower() in ABSENT:
        return None
    found = re.fullmatch(r"(-?\d{1,15}(?:\.\d{1,9})?)(?: (?:MHz|MiB|W|%|C))?", cell)
    return float(found.group(1)) if found and not (len(cell) > 9 and cell.isdigit()) else cell


def parse_nvlink_status(text: t.Any) -> dict[str, list[float | None]]:
    """`nvlink -s` -> GPU UUID -> GB/s of each link, None where it is inactive."""
    return {
        uuid: [_number(m.group(2)) if m.group(2)[0].isdigit() else None for m in re.finditer(r"Link (\d+): (\S+)", part)]
        for uuid, part in _per_gpu(text)
    }


def parse_nvlink_errors(text: t.Any) -> dict[str, dict[str, int]]:
    """`nvlink -e` -> GPU UUID -> sum over all links of each kind of error."""
    found: dict[str, dict[str, int]] = {}
    for uuid, part in _per_gpu(text):
        sums = found.setdefault(uuid, {})
        for kind, count in re.findall(r"Link \d{1,3}: ([A-Z][A-Za-z ]{1,40}?)(?: Errors)?: (\d{1,18})", part):
            name = kind.strip().lower().replace(" ", "_")
            sums[name] = sums.get(name, 0) + int(count)
    return found


def _per_gpu(text: t.Any) -> list[tuple[str, str]]:
    if not isinstance(text, str) or len(text) > LIMIT:
        return []
    pieces = re.split(r"(?m)^GPU \d{1,4}: [^\n]{0,200}?\(UUID: ([^)\n]{1,80})\)", text)
    return list(zip(pieces[1::2], pieces[2::2]))


def parse_topology(text: t.Any) -> dict[str, dict[str, str]]:
    """`topo -m` -> row -> column -> link, as "NV18", "SYS", "PIX"; only GPUs and NICs."""
    if not isinstance(text, str) or len(text) > LIMIT:
        return {}
    lines = [_ANSI.sub("", line) for line in text.splitlines()]
    header = next((line for line in lines if re.match(r"\s*GPU0\b", line) and "\t" in line), None)
    if header is None:
        return {}
    names = [w.strip() for w in header.split("\t") if re.match(r"(?:GPU|NIC|mlx)\w*$", w.strip())]
    table = {}
    for line in lines[lines.index(header) + 1 :]:
        cells = [c.strip() for c in line.split("\t")]
        if cells[0] in names and len(cells) > len(names):
            table[cells[0]] = dict(zip(names, cells[1 : len(names) + 1]))
    return table


def parse_list(text: t.Any) -> list[dict[str, str]]:
    """`-L` -> [{"index", "name", "uuid"}]."""
    if not isinstance(text, str) or len(text) > LIMIT:
        return []
    found = re.findall(r"(?m)^GPU (\d{1,4}): ([^\n(]{1,120}?) \(UUID: ([^)\n]{1,80})\)", text)
    return [{"index": index, "name": name, "uuid": uuid} for index, name, uuid in found]
