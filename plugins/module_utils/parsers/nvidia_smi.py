# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser for nvidia-smi: XML of `-q -x`, CSV queries, NVLink state and errors, topology, the list of GPUs.

Pure functions; none raises, whatever the text is. A number that the driver does not report is Absent (answer/absent.py),
a text that it does not report is None.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t
from xml.etree import ElementTree

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import absent
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, Value
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.observation import SIMULATED_MARK
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nvlink_counters

# Eight GPUs print 200 KB of XML.
LIMIT = 32 << 20
ABSENT = {
    "", "n/a", "not supported", "not available", "not found", "none", "unknown", "unknown error", "err!",
    "requested functionality has been deprecated", "insufficient permissions", "insufficient permission",
    "function not found", "no running processes found",
}  # fmt: skip
# Of these the ones that say that the GPU or the driver lacks the value. Any other text in place of a number is a reading that failed.
LACKING = {
    "", "n/a", "not supported", "not available", "none", "requested functionality has been deprecated", "function not found",
    "no running processes found",
}  # fmt: skip
# Texts that stand in place of a word where a reading failed.
FAILED = {"unknown", "unknown error", "err!", "not found", "insufficient permissions", "insufficient permission", "timeout", "error"}
# Counters are unsigned 64-bit numbers; from here on they are the -1 of a counter that does not exist (nvml.h, NVML_VALUE_NOT_AVAILABLE).
NO_COUNTER = 1 << 63
# Printed in place of a value if the driver has lost the GPU, or keeps it from being used.
LOST = ("gpu is lost", "gpu requires reset", "gpu access blocked", "fallen off the bus")
# A GPU answers these whatever its model; an error here is the GPU's, not the question's.
VITAL = ("uuid", "product_name", "pci/pci_bus_id", "fb_memory_usage/total", "temperature/gpu_temp")

# Parts of the health of a GPU's place in the NVLink fabric (nvml.h, nvmlGpuFabricInfoV_t.healthMask). Drivers of one generation print
# them without the summary that later ones add.
FABRIC_FAULTS = ("route_recovery_in_progress", "route_unhealthy", "access_timeout_recovery", "incorrect_configuration")

# Sentences in which nvidia-smi says that it cannot answer: (mark, reason code, what it means).
FAILURES = (
    ("No devices were found", "no_gpu", "nvidia-smi finds no GPU"),
    ("GPU is lost", "gpu_lost", "a GPU has fallen off the bus: reboot, then check its seating and power"),
    ("is lost. Reboot", "gpu_lost", "a GPU has fallen off the bus: reboot, then check its seating and power"),
    ("fallen off the bus", "gpu_lost", "a GPU has fallen off the bus: reboot, then check its seating and power"),
    ("Unable to determine the device handle", "gpu_lost", "the driver cannot reach a GPU: see dmesg for Xid, reboot"),
    ("infoROM is corrupted", "gpu_fault", "the permanent settings (infoROM) of a GPU are corrupted: see Xid 93 and ask the vendor"),
    ("Driver/library version mismatch", "cuda_failed", "driver and library differ in version: reboot the node"),
    ("couldn't communicate with the NVIDIA driver", "cuda_failed", "the NVIDIA driver is not loaded"),
    ("Failed to initialize NVML: Insufficient Permissions", "no_permission", "the GPUs may not be opened"),
    ("Failed to initialize NVML", "cuda_failed", "the driver's management library cannot be initialised"),
)  # fmt: skip


def failure(text: str) -> tuple[str, str] | None:
    """Return reason code and reason if nvidia-smi prints a sentence about why it cannot answer, else None."""
    for mark, code, meaning in FAILURES:
        if mark in text:
            line = next((line.strip() for line in text.splitlines() if mark in line), mark)
            return code, f"{meaning} (nvidia-smi: {line[:200]})"
    return None


def parse_xml(text: t.Any) -> dict[str, t.Any]:
    """`nvidia-smi -q -x` of any driver generation.

    -> {"outcome": "measured"|"error", "reason_code", "reason", "driver", "cuda", "simulated", "gpus": [...]}, each GPU:

        index, uuid, serial, name, architecture, bdf (lower case), vbios, gsp_firmware,
        memory_total_mib, memory_used_mib, memory_reserved_mib (MiB), utilization (percent), persistence, mig, compute_mode,
        lost (why the GPU cannot be used, or None), recovery_action (what the driver asks for, or None),
        ecc_mode, ecc {volatile_uncorrected, volatile_corrected, aggregate_uncorrected, aggregate_corrected,
        unrepairable ("Yes", "No")},
        remapped_rows {correctable, uncorrectable, pending, failure, used_up (banks of memory without a spare row)},
        retired_pages {single_bit, double_bit, pending},
        throttle_reasons (names of the active ones), throttle_us (time spent in each, since driver 550 or so),
        clocks {sm, mem, max_sm} (MHz), application_clock {now, default} (MHz),
        power {draw_w, limit_w, default_limit_w} (W), temperature_c,
        pcie {gen, gen_max, gen_device (of the GPU alone), width, width_max, replays},
        slot_known (whether gen_max speaks for the slot too; in a virtual machine it is what the GPU alone can do; None: see
        _slot_known),
        virtual (True if a virtual machine was given the GPU, None if the driver knows of no hypervisor), module (its place on a
        baseboard, or None),
        unreadable (cells by which the GPU would be judged and that could not be read),
        fabric {state, status, health, bandwidth, faults (names of FABRIC_FAULTS), cluster, clique}, processes [{pid, name, used_mib, type}]

    `outcome` is `error` where not every attached GPU answers; `gpus` then still holds those that do.
    """
    result: dict[str, t.Any] = {
        "outcome": "error",
        "reason_code": None,
        "reason": None,
        "driver": None,
        "cuda": None,
        "simulated": False,
        "gpus": [],
    }
    if not isinstance(text, str) or len(text) > LIMIT:
        result.update(reason_code="bad_output", reason="nvidia-smi printed no text, or far too much of it")
        return result
    result["simulated"] = SIMULATED_MARK in text
    start = text.find("<nvidia_smi_log")
    end = text.rfind("</nvidia_smi_log>")
    if start < 0 or end < start:
        cut = ("incomplete_output", "the XML of nvidia-smi is cut") if start >= 0 else None
        code, reason = failure(text) or cut or ("bad_output", "nvidia-smi printed no XML of its own")
        result.update(reason_code=code, reason=reason)
        return result
    root = _tree(text[start : end + len("</nvidia_smi_log>")])
    if isinstance(root, str):
        result.update(reason_code="bad_output", reason=f"the XML of nvidia-smi is broken: {root}")
        return result
    result["driver"], result["cuda"] = _text(root, "driver_version"), _text(root, "cuda_version")
    result["gpus"] = [_gpu(index, node) for index, node in enumerate(root.findall("gpu"))]
    attached = _int(_text(root, "attached_gpus"))
    lost = [g for g in result["gpus"] if g["lost"]]
    complaint = failure(text[:start] + text[end:])
    if lost:
        reason = "; ".join(f"GPU {g['index']} ({g['bdf']}): {g['lost']}" for g in lost)
        result.update(reason_code="gpu_lost", reason=reason)
    elif complaint:
        result.update(reason_code=complaint[0], reason=complaint[1])
    elif not result["gpus"]:
        result.update(reason_code="no_gpu", reason="nvidia-smi finds no GPU")
    elif twice := _listed_twice(result["gpus"]):
        result.update(reason_code="duplicate_identity", reason=f"nvidia-smi lists {twice} for two GPUs")
    elif attached is not None and attached != len(result["gpus"]):
        reason = f"{attached} GPUs are attached and {len(result['gpus'])} answer"
        result.update(reason_code="gpu_lost", reason=reason)
    else:
        result["outcome"] = "measured"
    return result


def _listed_twice(gpus: t.Sequence[dict[str, t.Any]]) -> str:
    """Return the UUID or PCI address that two GPUs have; empty if there is none."""
    for name in ("uuid", "bdf"):
        seen: set[t.Any] = set()
        for g in gpus:
            if g[name] in seen:
                return f"{name.upper() if name == 'uuid' else 'the PCI address'} {g[name]}"
            seen.update([g[name]] if g[name] else [])
    return ""


def _tree(xml: str) -> ElementTree.Element | str:
    """Return the parsed document, or a text about what is wrong with it. The DTD is cut off, so that no entity is expanded."""
    try:
        return ElementTree.fromstring(xml)
    except (ElementTree.ParseError, ValueError, RecursionError) as error:
        problem = str(error)[:200]
    # nvidia-smi prints the names of processes as they are, `a && b <c>` and control characters among them.
    head, *pieces = xml.split("<process_name>")
    escaped = [head]
    for piece in pieces:
        name, end, tail = piece.partition("</process_name>")
        escaped += ["<process_name>", re.sub(r"[^\w ./:@%+=,-]", "?", name) if end else name, end, tail]
    try:
        return ElementTree.fromstring("".join(escaped))
    except (ElementTree.ParseError, ValueError, RecursionError):
        return problem


def _raw(node: ElementTree.Element, path: str) -> str:
    element = node.find(path)
    return (element.text or "").strip() if element is not None else ""


def _text(node: ElementTree.Element, *paths: str) -> str | None:
    """The first of `paths` that the driver fills in."""
    for path in paths:
        value = _raw(node, path)
        bare = value.strip("[]").lower()
        if bare not in ABSENT and not any(mark in bare for mark in LOST):
            return value
    return None


def _number(value: str | None) -> float | None:
    match = re.match(r"-?\d{1,18}(?:\.\d{1,9})?(?![\d.])", value or "")
    return float(match.group(0)) if match else None


def _int(value: str | None) -> int | None:
    number = _number(value)
    return int(number) if number is not None else None


def _value(node: ElementTree.Element, *paths: str) -> Value:
    """Return the number of the first of `paths` that has one, else why that of the first existing one cannot be read."""
    why: Value | None = None
    for path in paths:
        element = node.find(path)
        if element is None:
            continue
        value = absent.number((element.text or "").strip().strip("[]"), path.rpartition("/")[2])
        if not isinstance(value, Absent):
            return value
        why = value if why is None else why
    return Absent(f"{paths[0].rpartition('/')[2]} is missing") if why is None else why


def _count(node: ElementTree.Element, *paths: str) -> Value:
    """Return a counter: a whole number from 0 on."""
    value = _value(node, *paths)
    if isinstance(value, Absent) or (isinstance(value, int) and 0 <= value < NO_COUNTER):
        return value
    return Absent(f"{paths[0].rpartition('/')[2]} reads {value}")


def _banks(node: ElementTree.Element, path: str) -> Value:
    """Return the number in a cell such as `3 bank(s)`."""
    cell = _raw(node, path).strip("[]")
    return absent.number(re.sub(r" *bank\(s\)$", "", cell) or None, "row_remapper_histogram_none")


def _watts(node: ElementTree.Element, *paths: str) -> Value:
    value = _value(node, *paths)
    if isinstance(value, Absent):
        return value
    return float(value) if value >= 0 else Absent(f"{paths[0].rpartition('/')[2]} reads {value}")


def _yes(node: ElementTree.Element, *paths: str) -> str | Absent:
    """Return `Yes` if one of `paths` says so; else Absent if one of them could not be read; else `No` if one says that, else Absent."""
    answers = [_raw(node, path).strip("[]") for path in paths if node.find(path) is not None]
    words = {answer.capitalize() for answer in answers}
    if "Yes" in words:
        return "Yes"
    failed = next((answer for answer in answers if answer.lower() not in LACKING and answer.capitalize() != "No"), None)
    if failed is not None:
        return Absent(f"{paths[0].rpartition('/')[2]} reads {failed[:60]!r}")
    return "No" if "No" in words else Absent(f"{paths[0].rpartition('/')[2]} is not reported")


def _error_cells(node: ElementTree.Element, when: str, kind: str) -> list[str]:
    """Return the cells whose sum are the ECC errors of one kind: up to Volta a total over all places, since Ampere by memory, since 2023
    SRAM by code. Elements that should be there are among them."""
    base = f"ecc_errors/{when}/"
    old, new = ("double_bit", "uncorrectable") if kind == "uncorrected" else ("single_bit", "correctable")
    if node.find(f"{base}{old}") is not None and node.find(f"{base}dram_{new}") is None:
        parts = node.find(f"{base}{old}")
        readable = not isinstance(_count(node, f"{base}{old}/total"), Absent)
        places = [] if readable or parts is None else [leaf.tag for leaf in parts if leaf.tag != "total"]
        return [f"{base}{old}/{place}" for place in ("total", *places)]
    total, coded = f"{base}sram_{new}", [f"{base}sram_{new}_parity", f"{base}sram_{new}_secded"]
    present = [path for path in coded if node.find(path) is not None]
    sram = [total, *present] if node.find(total) is not None or not present else coded
    return [*sram, f"{base}dram_{new}"]


def _errors(node: ElementTree.Element, when: str, kind: str) -> Value:
    """Return the ECC errors of one kind. With MIG the GPU itself reports none; those since the driver was loaded stand with its parts."""
    own = absent.at_least(_count(node, path) for path in _error_cells(node, when, kind))
    names = {"uncorrected": "uncorrectable", "corrected": "correctable"}
    parts = [
        leaf
        for part in (node.findall("mig_devices/mig_device") if when == "volatile" else ())
        for leaf in part.iter()
        if re.fullmatch(rf"(?:sram|dram)_{names[kind]}(?:_parity|_secded)?", leaf.tag)
    ]
    if not parts:
        return own
    of_parts = [_count(leaf, ".") for leaf in parts]
    return absent.at_least(of_parts if isinstance(own, Absent) else [own, *of_parts])


def _lost(node: ElementTree.Element) -> str | None:
    """Return why the GPU cannot be used; None if it can."""
    for leaf in node.iter():
        words = (leaf.text or "").strip()
        if leaf.tag != "process_name" and any(mark in words.lower() for mark in LOST):
            return f"the driver says {words[:80]!r}"
    for path in VITAL:
        if path in ("uuid", "product_name"):
            if _text(node, path) is None:
                return f"it does not answer: no {path}"
        elif _raw(node, path).strip("[]").lower() in ("unknown error", "err!"):
            return f"it does not answer: {path} is {_raw(node, path)!r}"
    return None


def _slot_known(node: ElementTree.Element, link: str) -> bool | None:
    """Return True if gen_max includes the slot: the driver reports the slot's own. None if it does unless there is a hypervisor of which
    the driver does not know."""
    if _text(node, link + "pcie_gen/max_host_link_gen") is not None or _virtual(node) is False:
        return True
    return None if _mode(node) == "none" else False


def _mode(node: ElementTree.Element) -> str:
    return _raw(node, "gpu_virtualization_mode/virtualization_mode").strip("[]").lower()


def _virtual(node: ElementTree.Element) -> bool | None:
    """Return True if the GPU is given to a virtual machine that runs here, False if it is shared by the machine that it is in (`Host VGPU`,
    `Host VSGA`: nvml.h, nvmlGpuVirtualizationMode); None if the driver knows of no hypervisor, or does not say."""
    mode = _mode(node)
    return False if mode.startswith("host") else None if mode in ABSENT else True


def _recovery_action(node: ElementTree.Element) -> str | None:
    """Return the recovery action that the driver asks for; drivers before 565 say it as two answers, Yes or No."""
    actions = {"reset_required": "Reset", "drain_and_reset_recommended": "Drain and Reset"}
    older = next((action for name, action in actions.items() if _yes(node, f"gpu_reset_status/{name}") == "Yes"), None)
    return _text(node, "gpu_recovery_action") or older


def _fabric_faults(node: ElementTree.Element) -> list[str]:
    """Return the parts of the fabric's health that are bad, as `route unhealthy` or `incorrect configuration: No Partition`."""
    faults = []
    for name in FABRIC_FAULTS:
        value = _text(node, f"fabric/health/{name}")
        if value is not None and value.lower() not in ("false", "no"):
            faults.append(name.replace("_", " ") + ("" if value.lower() in ("true", "yes") else f": {value}"))
    return faults


def _throttle_us(node: ElementTree.Element) -> dict[str, Value]:
    counters = node.find("clocks_event_reasons_counters")
    prefix = "clocks_event_reasons_counters_"
    return {} if counters is None else {leaf.tag[len(prefix) :]: _count(leaf, ".") for leaf in counters}


class Judged(t.NamedTuple):
    """Cells by which a GPU is judged: a GPU whose cells cannot be read is not as good as one whose cells read well. `together`: a driver
    that reports one of them reports all. `numbers`, `answers` (Yes or No), `words`: the paths of cells, by what they hold."""

    about: str
    together: bool = False
    numbers: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


JUDGED: tuple[Judged, ...] = (
    Judged(
        "row remapping", True, ("remapped_rows/remapped_row_corr", "remapped_rows/remapped_row_unc"),
        ("remapped_rows/remapped_row_pending", "remapped_rows/remapped_row_failure"),
    ),
    Judged(
        "page retirement", True,
        tuple(f"retired_pages/{name}_retirement/retired_count" for name in ("multiple_single_bit", "double_bit")),
    ),
    Judged("page retirement", answers=("retired_pages/pending_retirement", "retired_pages/pending_blacklist")),
    Judged(
        "memory repair",
        answers=(
            *(f"ecc_errors/{name}" for name in ("channel_repair_pending", "tpc_repair_pending", "unrepairable_memory")),
            "ecc_errors/aggregate/sram_threshold_exceeded",
        ),
    ),
    Judged("ECC mode", words=("ecc_mode/current_ecc",)),
    Judged(
        "NVLink fabric",
        words=(
            *(f"fabric/{name}" for name in ("state", "status", "health/summary", "health/bandwidth")),
            *(f"fabric/health/{name}" for name in FABRIC_FAULTS),
        ),
    ),
    Judged("recovery action", words=("gpu_recovery_action",)),
    Judged("recovery action", answers=("gpu_reset_status/reset_required", "gpu_reset_status/drain_and_reset_recommended")),
    Judged("PCIe link", True, tuple(f"pci/pci_gpu_link_info/link_widths/{name}_link_width" for name in ("current", "max"))),
    Judged("PCIe link", False, tuple(f"pci/pci_gpu_link_info/pcie_gen/{name}_link_gen" for name in ("current", "max"))),
    Judged("PCIe link", False, ("pci/replay_counter",)),
    Judged("use", False, ("fb_memory_usage/used", "utilization/gpu_util")),
)  # fmt: skip


def _unreadable(node: ElementTree.Element) -> list[dict[str, t.Any]]:
    """Return the cells by which the GPU would be judged and that could not be read: [{"about", "cell", "reads", "failed", "may_not"}].
    `failed` is False if the driver lacks the value although it reports others that belong to it; `may_not` is True without permission."""
    groups = [*JUDGED]
    has_mig = (_text(node, "mig_mode/current_mig") or "").lower() == "enabled"
    for when in ("volatile", "aggregate"):
        for kind in ("uncorrected", "corrected"):
            cells = tuple(_error_cells(node, when, kind))
            groups.append(Judged("memory errors", not has_mig and not cells[0].endswith("/total"), cells))
    found = []
    for group in groups:
        cells = (*group.numbers, *group.answers, *group.words)
        text_of = {cell: None if node.find(cell) is None else _raw(node, cell).strip("[]") for cell in cells}
        lacking = {cell for cell, text in text_of.items() if text is None or text.lower() in LACKING}
        failed = {cell for cell, text in text_of.items() if text is not None and cell not in lacking and not _reads(cell, text, group)}
        is_partial = group.together and len(lacking) + len(failed) < len(cells)
        for cell in (cell for cell in cells if cell in failed or (is_partial and cell in lacking)):
            text = text_of[cell] or ""
            found.append(
                {
                    "about": group.about, "cell": cell.rpartition("/")[2], "reads": repr(text[:60]) if text else "nothing",
                    "failed": cell in failed, "may_not": "permission" in text.lower(),
                }
            )  # fmt: skip
    return found


def _reads(cell: str, text: str, group: Judged) -> bool:
    """Return True if a cell holds a value: a number that a counter can have, or Yes or No, a word that is not that of a failed reading."""
    if cell in group.answers:
        return text.lower() in ("yes", "no")
    if cell in group.words:
        return text.lower() not in FAILED and not any(mark in text.lower() for mark in LOST)
    value = absent.number(text)
    return isinstance(value, int) and 0 <= value < NO_COUNTER


def _gpu(index: int, node: ElementTree.Element) -> dict[str, t.Any]:
    link = "pci/pci_gpu_link_info/"
    power = "gpu_power_readings/" if node.find("gpu_power_readings") is not None else "power_readings/"
    reasons = node.find("clocks_event_reasons")
    if reasons is None:
        reasons = node.find("clocks_throttle_reasons")
    active = [] if reasons is None else [leaf.tag for leaf in reasons if (leaf.text or "").strip() == "Active"]
    return {
        "index": index,
        "uuid": _text(node, "uuid"),
        "serial": _text(node, "serial"),
        "name": _text(node, "product_name"),
        "architecture": _text(node, "product_architecture"),
        "bdf": (_text(node, "pci/pci_bus_id") or node.get("id") or "").lower() or None,
        "vbios": _text(node, "vbios_version"),
        "gsp_firmware": _text(node, "gsp_firmware_version"),
        "memory_total_mib": _count(node, "fb_memory_usage/total"),
        "memory_used_mib": _count(node, "fb_memory_usage/used"),
        "memory_reserved_mib": _count(node, "fb_memory_usage/reserved"),
        "utilization": _count(node, "utilization/gpu_util"),
        "persistence": _text(node, "persistence_mode"),
        "mig": _text(node, "mig_mode/current_mig"),
        "compute_mode": _text(node, "compute_mode"),
        "lost": _lost(node),
        "recovery_action": _recovery_action(node),
        "ecc_mode": _text(node, "ecc_mode/current_ecc"),
        "ecc": {
            "volatile_uncorrected": _errors(node, "volatile", "uncorrected"),
            "volatile_corrected": _errors(node, "volatile", "corrected"),
            "aggregate_uncorrected": _errors(node, "aggregate", "uncorrected"),
            "aggregate_corrected": _errors(node, "aggregate", "corrected"),
            "unrepairable": _yes(node, "ecc_errors/unrepairable_memory", "ecc_errors/aggregate/sram_threshold_exceeded"),
        },
        "remapped_rows": {
            "correctable": _count(node, "remapped_rows/remapped_row_corr"),
            "uncorrectable": _count(node, "remapped_rows/remapped_row_unc"),
            "pending": _yes(
                node, "remapped_rows/remapped_row_pending", "ecc_errors/channel_repair_pending", "ecc_errors/tpc_repair_pending"
            ),
            "failure": _yes(node, "remapped_rows/remapped_row_failure"),
            "used_up": _banks(node, "remapped_rows/row_remapper_histogram/row_remapper_histogram_none"),
        },
        "retired_pages": {
            "single_bit": _count(node, "retired_pages/multiple_single_bit_retirement/retired_count"),
            "double_bit": _count(node, "retired_pages/double_bit_retirement/retired_count"),
            "pending": _yes(node, "retired_pages/pending_retirement", "retired_pages/pending_blacklist"),
        },
        "throttle_reasons": [re.sub(r"^clocks_(?:event|throttle)_reason_", "", tag) for tag in active],
        "throttle_us": _throttle_us(node),
        "clocks": {
            "sm": _count(node, "clocks/sm_clock"),
            "mem": _count(node, "clocks/mem_clock"),
            "max_sm": _count(node, "max_clocks/sm_clock"),
        },
        "application_clock": {
            "now": _count(node, "applications_clocks/graphics_clock"),
            "default": _count(node, "default_applications_clocks/graphics_clock"),
        },
        "power": {
            "draw_w": _watts(node, power + "instant_power_draw", power + "power_draw", power + "average_power_draw"),
            "limit_w": _watts(node, power + "current_power_limit", power + "enforced_power_limit", power + "power_limit"),
            "default_limit_w": _watts(node, power + "default_power_limit"),
        },
        "temperature_c": _value(node, "temperature/gpu_temp"),
        "pcie": {
            "gen": _count(node, link + "pcie_gen/current_link_gen"),
            "gen_max": _count(node, link + "pcie_gen/max_link_gen"),
            "gen_device": _count(node, link + "pcie_gen/max_device_link_gen"),
            "width": _count(node, link + "link_widths/current_link_width"),
            "width_max": _count(node, link + "link_widths/max_link_width"),
            "replays": _count(node, "pci/replay_counter"),
        },
        "slot_known": _slot_known(node, link),
        "virtual": _virtual(node),
        "module": absent.plain(_count(node, "platformInfo/module_id")),
        "board_part_number": _text(node, "board_part_number"),
        "place": {
            "chassis": _text(node, "platformInfo/chassis_serial_number"),
            "tray": _text(node, "platformInfo/tray_index"),
            "slot": _text(node, "platformInfo/slot_number"),
            "module": _text(node, "platformInfo/module_id"),
        },
        "unreadable": _unreadable(node),
        "fabric": {
            "state": _text(node, "fabric/state"),
            "status": _text(node, "fabric/status"),
            "health": _text(node, "fabric/health/summary"),
            "bandwidth": _text(node, "fabric/health/bandwidth"),
            "faults": _fabric_faults(node),
            "cluster": _text(node, "fabric/clusterUuid"),
            "clique": _text(node, "fabric/cliqueId"),
        },
        "processes": [
            {
                "pid": _int(_text(entry, "pid")),
                "name": _text(entry, "process_name"),
                "used_mib": _count(entry, "used_memory"),
                "type": _text(entry, "type"),
            }
            for entry in node.findall("processes/process_info")
        ],
    }


def csv_cell(cell: str) -> t.Any:
    """`345 MHz` -> 345, `78.47 W` -> 78.47, `[N/A]` -> None; `Enabled`, `0x1`, `580.159.04` and serials stay text."""
    cell = cell.strip()
    if cell.strip("[]").lower() in ABSENT:
        return None
    match = re.fullmatch(r"(-?\d{1,9})(\.\d{1,9})?(?: (?:MHz|MiB|W|%|C|us|KB/s))?", cell)
    if not match:
        return cell
    return float(match.group(1) + match.group(2)) if match.group(2) else int(match.group(1))


def parse_nvlink_status(text: t.Any) -> dict[str, list[float | None]]:
    """`nvlink -s` -> {GPU UUID: [GB/s of each link in one direction, None where it is not up]}."""
    return {
        uuid: [_number(state) for _link, state in re.findall(r"(?m)^[ \t]*Link (\d{1,3}): *([^\n]{1,40})$", part)]
        for uuid, part in _per_gpu(text)
    }


def parse_nvlink_errors(text: t.Any) -> dict[str, dict[str, Value]]:
    """`nvlink -e` of any driver -> {GPU UUID: {counter of nvlink_counters: sum over all links, Absent if none could be read}}. Rates of bit
    errors are the worst of all links. What healthy links count in any number is left out."""
    return {uuid: nvlink_counters.read(part) for uuid, part in _per_gpu(text)}


def _per_gpu(text: t.Any) -> list[tuple[str, str]]:
    """(UUID, the lines below it) of the tools that print a heading per GPU."""
    if not isinstance(text, str) or len(text) > LIMIT:
        return []
    pieces = re.split(r"(?m)^GPU \d{1,4}: [^\n]{0,200}?\(UUID: ([^)\n]{1,80})\)", text)
    return list(zip(pieces[1::2], pieces[2::2]))
