# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser for `amd-smi SUBCOMMAND --json` of versions 24 to 27: list, static, metric, bad-pages, process, firmware, partition, topology,
xgmi and version.

Versions differ in the outer shape (an array, or an object with an array), in the case of keys, in names of keys, and in how a number has
its unit. Keys are read without case, and warnings may stand before or behind the JSON.

Pure functions; none raises, whatever the text is. A number that the tool does not print is Absent (answer/absent.py), a text None: `N/A`,
null, a missing key, a section that is `N/A`, and the largest values of 16, 32 and 64 bits, which leak through as numbers.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import absent
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, Value
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.observation import SIMULATED_MARK

LIMIT = 8 << 20
# Nobody has so many devices, and a text that says so is none of amd-smi's.
MOST_GPUS = 1024
MOST_DEPTH = 12
LACKING = ("", "n/a", "na", "none", "null", "unknown")
# Of 16, 32 and 64 bits: what a library leaves in a field that it does not fill.
SENTINELS = frozenset((0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF))
NO_GROUPS = "missing the following required groups"

# Sentences in which amd-smi says that it cannot answer: (mark, reason code, what it means).
FAILURES = (
    ("amdgpu not found in modules", "no_gpu", "amd-smi finds no driver: amdgpu is not loaded, or is kept from loading at boot"),
    ("Unable to detect any GPU devices", "no_gpu", "amd-smi finds no GPU"),
    ("AMDSMI_STATUS_DRIVER_NOT_LOADED", "no_gpu", "amd-smi finds no driver: amdgpu is not loaded"),
    ("AMDSMI_STATUS_NO_PERM", "no_permission", "the device files of the GPUs may not be opened"),
    ("ermission denied", "no_permission", "the device files of the GPUs may not be opened"),
    ("libamd_smi.so", "tool_failed", "amd-smi cannot load its library"),
    ("No module named 'amdsmi'", "tool_failed", "amd-smi cannot load its library"),
)  # fmt: skip

Record = t.Dict[str, t.Any]
# Causes of throttling that the power management firmware counts, by the beginnings of their keys.
THROTTLE_CAUSES = ("prochot", "ppt", "socket_thermal", "vr_thermal", "hbm_thermal")
ECC_KINDS = ("correctable", "uncorrectable", "deferred")


class Output(t.NamedTuple):
    """The output of a subcommand: its objects with keys in lower case, None if the text has no JSON or is cut. `no_groups`: amd-smi warns
    that the user lacks the groups of the device files."""

    records: list[Record] | None
    simulated: bool
    no_groups: bool


def failure(text: str) -> tuple[str, str] | None:
    """Return reason code and reason if amd-smi prints a sentence about why it cannot answer, else None."""
    for mark, code, meaning in FAILURES:
        if mark in text:
            line = next((line.strip() for line in text.splitlines() if mark in line), mark)
            return code, f"{meaning} (amd-smi: {line[:200]})"
    return None


def read(text: t.Any) -> Output:
    """Return the objects in the output of a subcommand. Arrays one behind the other, which some versions print, are taken together, and so
    are the arrays of an object such as `{"gpu_data": [...]}`."""
    if not isinstance(text, str) or len(text) > LIMIT:
        return Output(None, False, False)
    records: list[Record] | None = None
    decoder = json.JSONDecoder(parse_constant=lambda _word: None)
    at = 0
    while at < len(text):
        begin = re.compile(r"^[ \t]*[\[{]", re.MULTILINE).search(text, at)
        if begin is None:
            break
        try:
            value, at = decoder.raw_decode(text, begin.end() - 1)
        except (ValueError, RecursionError):
            # A warning may begin with a bracket; JSON that is cut has nothing whole behind it.
            line_end = text.find("\n", begin.end())
            if text[begin.end() - 1 :].lstrip("[{ \t\r\n").startswith(('"', "{", "[")) or line_end < 0:
                records = None
                break
            at = line_end
            continue
        records = [*(records or []), *_objects(value)]
    return Output(records, SIMULATED_MARK in text, NO_GROUPS in text)


def _objects(value: t.Any) -> list[Record]:
    if isinstance(value, list):
        return [record for one in value for record in _objects(one)]
    if not isinstance(value, dict):
        return []
    lower = _lower(value, 0)
    inner = [one for one in lower.values() if isinstance(one, list) and one and all(isinstance(of, dict) for of in one)]
    is_outer = "gpu" not in lower and "gpu_id" not in lower and bool(inner)
    return [record for one in inner for record in one] if is_outer else [lower]


def _lower(value: t.Any, depth: int) -> t.Any:
    """Return a value with all keys in lower case; what is nested deeper than any version nests is left out."""
    if depth > MOST_DEPTH:
        return None
    if isinstance(value, dict):
        return {str(key).lower(): _lower(of, depth + 1) for key, of in value.items()}
    if isinstance(value, list):
        return [_lower(of, depth + 1) for of in value]
    return value


def at(record: t.Any, *path: str) -> t.Any:
    """Return what is at a path of keys; None if a key is missing or a section is no object (`N/A`)."""
    for key in path:
        if not isinstance(record, dict):
            return None
        record = record.get(key)
    return record


def first(record: t.Any, *paths: tuple[str, ...]) -> t.Any:
    """Return what is at the first path that has something: versions name some keys differently."""
    return next((found for path in paths if (found := at(record, *path)) is not None and not _is_lacking(found)), None)


def _is_lacking(cell: t.Any) -> bool:
    if isinstance(cell, dict) and "value" in cell:
        return _is_lacking(cell["value"])
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in LACKING)


def number(cell: t.Any, name: str) -> Value:
    """Return a number of 0 or more; Absent for anything else, for `N/A` and for the largest values of 16, 32 and 64 bits."""
    if _is_lacking(cell):
        return Absent(f"amd-smi prints {'no' if cell is None else 'N/A as'} {name}")
    value = absent.number(cell, name)
    if isinstance(value, Absent):
        return value
    if value in SENTINELS or value < 0:
        return Absent(f"{name} reads {value}, which no device has")
    return value


def text(cell: t.Any) -> str | None:
    """Return a text of one line, None for none and for `N/A`."""
    if _is_lacking(cell) or isinstance(cell, (dict, list)):
        return None
    return " ".join(str(cell).split())[:200]


def gpu_of(record: Record) -> int | None:
    """Return the index of the GPU that a record is of."""
    value = number(first(record, ("gpu",), ("gpu_id",)), "gpu")
    return value if isinstance(value, int) and value < MOST_GPUS else None


def by_gpu(records: t.Iterable[Record] | None) -> dict[int, Record]:
    """Return {index: record}; sections of a GPU in several records are taken together."""
    found: dict[int, Record] = {}
    for record in records or []:
        index = gpu_of(record)
        if index is not None:
            found.setdefault(index, {}).update(record)
    return found


# The subcommands -------------------------------------------------------------------------------------------------


def identity(listed: Record) -> dict[str, t.Any]:
    """Return {"bdf", "uuid", "node_id", "kfd_id", "partition_id", "render"} of a record of `list`."""
    bdf = text(listed.get("bdf"))
    return {
        "bdf": bdf.lower() if bdf else None, "uuid": text(listed.get("uuid")), "render": text(listed.get("render")),
        **{name: number(listed.get(name), name) for name in ("node_id", "kfd_id", "partition_id")},
    }  # fmt: skip


def static(record: Record) -> dict[str, t.Any]:
    """Return the facts in a record of `static`: texts "name", "serial", "bdf", "vbios", "board_part_number", "gfx", "driver", "compute",
    "memory" (the partition modes); numbers "oam_id", "compute_units", "memory_mib", "width_max", "speed_max" (GT/s), "limit_w",
    "max_limit_w"; "ras": {block: state in upper case}, None if no state is printed."""
    limit = record.get("limit")
    bdf = text(at(record, "bus", "bdf"))
    return {
        "name": text(first(record, ("asic", "market_name"), ("board", "product_name"))),
        "serial": text(at(record, "asic", "asic_serial")),
        "bdf": bdf.lower() if bdf else None,
        "vbios": text(first(record, ("ifwi", "version"), ("vbios", "version"))),
        "board_part_number": text(first(record, ("board", "model_number"), ("vbios", "part_number"))),
        "gfx": text(at(record, "asic", "target_graphics_version")),
        "driver": text(first(record, ("driver", "version"), ("driver", "driver_version"))),
        "compute": mode(first(record, ("partition", "accelerator_partition"), ("partition", "compute_partition"))),
        "memory": mode(at(record, "partition", "memory_partition")),
        "oam_id": number(at(record, "asic", "oam_id"), "OAM id"),
        "compute_units": number(at(record, "asic", "num_compute_units"), "number of compute units"),
        "memory_mib": _size(at(record, "vram", "size")),
        "width_max": number(at(record, "bus", "max_pcie_width"), "highest PCIe width"),
        "speed_max": number(at(record, "bus", "max_pcie_speed"), "highest PCIe speed"),
        "limit_w": number(first(limit, ("ppt0", "socket_power_limit"), ("socket_power",), ("socket_power_limit",)), "power limit"),
        "max_limit_w": number(first(limit, ("ppt0", "max_power_limit"), ("max_power",), ("max_power_limit",)), "highest power limit"),
        "ras": _blocks(at(record, "ras", "ecc_block_state")),
    }  # fmt: skip


def _size(cell: t.Any) -> Value:
    """Return a size of memory in MiB: amd-smi calls them MB, and 1024 of them GB."""
    unit = text(cell.get("unit")) if isinstance(cell, dict) else (text(cell) or "").rpartition(" ")[2]
    value = number(cell, "memory")
    return value if isinstance(value, Absent) or (unit or "").upper() not in ("GB", "GIB") else int(value * 1024)


def mode(cell: t.Any) -> str | None:
    """Return a partition mode, `SPX` or `NPS1`; a profile that is in force has a `*` behind it."""
    word = (text(cell) or "").rstrip("*").strip().upper()
    return word if re.fullmatch(r"[A-Z]{2,4}\d?", word) else None


def _blocks(states: t.Any) -> dict[str, str] | None:
    """Return {block: state} of an object, or of a list of objects with a block and its state."""
    if isinstance(states, list):
        pairs = [(text(of.get("block")), text(first(of, ("status",), ("state",)))) for of in states if isinstance(of, dict)]
        states = {block: state for block, state in pairs if block}
    if not isinstance(states, dict):
        return None
    return {str(block).upper()[:40]: word.upper() for block, state in states.items() if (word := text(state))}


def metric(record: Record) -> dict[str, t.Any]:
    """Return the state in a record of `metric`: numbers "busy", "power_w", "clock_mhz", "clock_max_mhz", "memory_clock_mhz",
    "temperature_c", "memory_temperature_c", "width", "speed" (GT/s), "replays", "memory_used_mib", "memory_total_mib"; "ecc": {kind of
    ECC_KINDS: number} of all blocks together, "blocks": {block: {kind: number}}, "throttle": throttled(), "xgmi": the state of XGMI
    errors as text."""
    clocks = [of for name, of in _section(record, "clock").items() if re.fullmatch(r"gfx(_\d+)?", name)]
    powers = [("power", name) for name in ("socket_power", "current_socket_power", "average_socket_power")]
    return {
        "busy": number(at(record, "usage", "gfx_activity"), "utilisation"),
        "power_w": number(first(record, *powers), "power"),
        "clock_mhz": _highest([number(at(of, "clk"), "clock") for of in clocks], "clock"),
        "clock_max_mhz": _highest([number(at(of, "max_clk"), "highest clock") for of in clocks], "highest clock"),
        "memory_clock_mhz": number(at(record, "clock", "mem_0", "clk"), "memory clock"),
        "temperature_c": number(first(record, ("temperature", "hotspot"), ("temperature", "edge")), "temperature"),
        "memory_temperature_c": number(at(record, "temperature", "mem"), "temperature of the memory"),
        "width": number(at(record, "pcie", "width"), "PCIe width"),
        "speed": number(at(record, "pcie", "speed"), "PCIe speed"),
        "replays": number(at(record, "pcie", "replay_count"), "PCIe replays"),
        "memory_used_mib": number(at(record, "mem_usage", "used_vram"), "memory in use"),
        "memory_total_mib": number(at(record, "mem_usage", "total_vram"), "memory"),
        "ecc": {kind: number(at(record, "ecc", f"total_{kind}_count"), f"{kind} memory errors") for kind in ECC_KINDS},
        "blocks": {
            str(block).upper()[:40]: {kind: number(at(counts, f"{kind}_count"), f"{kind} errors") for kind in ECC_KINDS}
            for block, counts in _section(record, "ecc_blocks").items() if isinstance(counts, dict)
        },
        "throttle": throttled(record),
        "xgmi": text(record.get("xgmi_err")),
    }  # fmt: skip


def _section(record: Record, key: str) -> Record:
    """Return a section of a record; empty if it is `N/A`."""
    section = record.get(key)
    return section if isinstance(section, dict) else {}


def _highest(values: t.Sequence[Value], name: str) -> Value:
    readable = [value for value in values if not isinstance(value, Absent)]
    return max(readable) if readable else Absent(f"amd-smi prints no {name}")


class Throttled(t.NamedTuple):
    """The time that each cause of THROTTLE_CAUSES held a GPU back, in steps of its firmware (`total`: all steps), and the causes now."""

    counts: dict[str, Value]
    total: Value
    active: list[str]


def throttled(record: Record) -> Throttled:
    """Return the violations in a record of `metric --violation`, which is `--throttle` in other versions."""
    section = first(record, ("throttle",), ("violation",))
    counts = {cause: number(at(section, f"{cause}_accumulated"), f"time of {cause}") for cause in THROTTLE_CAUSES}
    active = [cause for cause in THROTTLE_CAUSES if (text(at(section, f"{cause}_violation_status")) or "").upper() == "ACTIVE"]
    return Throttled(counts, number(at(section, "accumulation_counter"), "accumulation counter"), active)


def bad_pages(record: Record) -> dict[str, Value]:
    """Return {"retired", "pending", "unreservable": number of pages} of a record of `bad-pages`. One page alone is an object without a
    list."""
    return {
        name: _pages(record.get(key), name)
        for name, key in (("retired", "retired"), ("pending", "pending"), ("unreservable", "un_res"))
    }  # fmt: skip


def _pages(cell: t.Any, name: str) -> Value:
    if isinstance(cell, dict):
        return 1 if "page_address" in cell else Absent(f"amd-smi prints no {name} pages")
    if isinstance(cell, list):
        pages = [one for one in cell if isinstance(one, dict) and "page_address" in one]
        return len(pages) if len(pages) == len(cell) else Absent(f"amd-smi prints {name} pages in a form that is not known")
    if isinstance(cell, str) and cell.strip().lower().startswith("no bad pages"):
        return 0
    return Absent(f"amd-smi prints {'no' if cell is None else str(cell)[:40] + ' as'} {name} pages")


def processes(record: Record) -> list[dict[str, t.Any]] | None:
    """Return [{"pid", "name", "used_mib", "type"}] of a record of `process`; None if it has no list."""
    listed = record.get("process_list")
    if not isinstance(listed, list):
        return None
    found = []
    for entry in listed:
        info = at(entry, "process_info") if isinstance(entry, dict) else None
        info = entry if info is None and isinstance(entry, dict) and "pid" in entry else info
        pid = number(at(info, "pid"), "pid")
        if isinstance(pid, int) and pid > 0:
            used = number(first(info, ("memory_usage", "vram_mem"), ("mem_usage",), ("mem",)), "memory of a process")
            found.append({"pid": pid, "name": text(at(info, "name")), "used_mib": _mib(used), "type": "C"})
    return found


def _mib(used: Value) -> Value:
    return used if isinstance(used, Absent) else int(used) >> 20


def firmware(record: Record) -> dict[str, str] | None:
    """Return {firmware: version} of a record of `firmware`; None if it has no list."""
    listed = record.get("fw_list")
    if not isinstance(listed, list):
        return None
    pairs = [(text(at(entry, "fw_id")), text(at(entry, "fw_version"))) for entry in listed if isinstance(entry, dict)]
    return {name: version for name, version in pairs if name and version}


def partition(record: Record) -> dict[str, str | None]:
    """Return the partition modes {"compute", "memory"} in a record of `partition`."""
    return {
        "compute": mode(first(record, ("accelerator_type",), ("accelerator_partition",), ("compute_partition",))),
        "memory": mode(first(record, ("current_memory_partition",), ("memory",), ("memory_partition",))),
    }


class Link(t.NamedTuple):
    """One link of a GPU to another, as `topology` prints it. `rate`: the upper end of its bandwidth, in the unit of the tool, which has had
    two names: it is compared with the rates of other links only."""

    kind: str | None
    is_enabled: bool | None
    rate: Value


def topology(records: t.Iterable[Record] | None) -> dict[str, dict[str, Link]]:
    """Return {PCI address: {PCI address of another GPU: its Link}} of `topology`, without links of a GPU to itself."""
    found: dict[str, dict[str, Link]] = {}
    for record in records or []:
        bdf = (text(record.get("bdf")) or "").lower()
        links = record.get("links")
        for link in links if bdf and isinstance(links, list) else []:
            peer = (text(at(link, "bdf")) or "").lower()
            kind = (text(at(link, "link_type")) or "").upper() or None
            if peer and peer != bdf and kind != "SELF":
                state = (text(at(link, "link_status")) or "").upper()
                is_enabled = {"ENABLED": True, "DISABLED": False}.get(state)
                found.setdefault(bdf, {})[peer] = Link(kind, is_enabled, _rate(at(link, "bandwidth")))
    return found


def _rate(cell: t.Any) -> Value:
    """Return the upper end of `50000-100000`."""
    word = text(cell)
    match = re.fullmatch(r"\d{1,12}\s*-\s*(\d{1,12})(?:\s*[A-Za-z/]+)?", word or "")
    value = number(match.group(1) if match else word, "rate of a link")
    return Absent("the rate of a link reads 0") if value == 0 else value


class Xgmi(t.NamedTuple):
    """The XGMI links of a GPU: `bit_rate` of a lane and `bandwidth` of a link in Gb/s, and the states of its links by place: U (up), D
    (down), X (switched off)."""

    bit_rate: Value
    bandwidth: Value
    states: tuple[str, ...]


def xgmi(records: t.Iterable[Record] | None) -> dict[str, Xgmi]:
    """Return {PCI address: Xgmi} of `xgmi`, whose arrays of metrics and of states are taken together."""
    found: dict[str, Xgmi] = {}
    for record in records or []:
        bdf = (text(record.get("bdf")) or "").lower()
        if not bdf:
            continue
        known = found.get(bdf, Xgmi(Absent("amd-smi prints no bit rate"), Absent("amd-smi prints no bandwidth"), ()))
        metrics, states = record.get("link_metrics"), record.get("link_status")
        if isinstance(metrics, dict):
            rate, bandwidth = number(metrics.get("bit_rate"), "bit rate"), number(metrics.get("max_bandwidth"), "bandwidth of a link")
            known = known._replace(bit_rate=rate, bandwidth=bandwidth)
        if isinstance(states, list):
            known = known._replace(states=tuple(word for state in states if (word := _state(state))))
        found[bdf] = known
    return found


_STATES = {"U": "U", "UP": "U", "D": "D", "DOWN": "D", "X": "X", "DISABLED": "X"}


def _state(cell: t.Any) -> str:
    """Return U, D or X; empty for a place without a link, or one that the tool knows nothing of."""
    word = (text(at(cell, "status") if isinstance(cell, dict) else cell) or "").upper()
    return _STATES.get(word, "")


def version(records: t.Iterable[Record] | None) -> dict[str, str | None]:
    """Return {"tool", "library", "rocm", "driver"} of `version`."""
    record = next(iter(records or []), {})
    keys = {"tool": "version", "library": "amdsmi_library_version", "rocm": "rocm_version", "driver": "amdgpu_version"}
    return {name: text(record.get(key)) for name, key in keys.items()}
