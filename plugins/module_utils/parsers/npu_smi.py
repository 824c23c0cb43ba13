# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parser for npu-smi and hccn_tool: the table of `info`, the `name : value` lines of `info -t ...`, samples of `info watch`, and the link
of an NPU's own network port.

The table has three shapes: one chip to an NPU (910, 910B), two dies to one with a physical number each (910_93, called A3), and one without
chips (950, and whatever comes after it). Versions differ in widths and blanks; cells are read, not columns.

Pure functions; none raises, whatever the text is. A number that the driver does not report is Absent (answer/absent.py), a text None.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import absent
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, Value
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.observation import SIMULATED_MARK

LIMIT = 4 << 20
ABSENT = ("", "na", "n/a", "-", "unknown", "not supported", "--")
# Of these the ones that say that a device lacks the value.
LACKING = ("", "na", "n/a", "-", "not supported", "--")

# Sentences in which npu-smi says that it cannot answer: (mark, reason code, what it means).
FAILURES = (
    ("There is no NPU", "no_gpu", "npu-smi finds no NPU"),
    ("because the device is used", "busy_gpu", "the NPUs are held by somebody else, a container for example"),
    ("ret is -8005", "acl_failed", "the Ascend driver is not loaded, or its devices may not be opened"),
    ("ret is -8020", "busy_gpu", "the NPUs are held by somebody else, a container for example"),
    ("initialize failed", "acl_failed", "the Ascend driver's management library cannot be initialised"),
    ("initialized failed", "acl_failed", "the Ascend driver's management library cannot be initialised"),
    ("ermission denied", "no_permission", "the NPUs may not be opened"),
)  # fmt: skip

_VERSION = re.compile(r"npu-smi \S+\s+Version: *(\S+)")
_BDF = re.compile(r"^[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]$")
_PAIR = re.compile(r"(?m)^[ \t]*([A-Za-z][^:\n]{0,60}?)[ \t]*:[ \t]*([^\n]*?)[ \t]*$")
_USED = re.compile(r"(\d{1,9})\s*/\s*(\d{1,9})")


class _BadRow(Exception):
    pass


def failure(text: str) -> tuple[str, str] | None:
    """Return reason code and reason if npu-smi prints a sentence about why it cannot answer, else None."""
    for mark, code, meaning in FAILURES:
        if mark in text:
            line = next((line.strip() for line in text.splitlines() if mark in line), mark)
            return code, f"{meaning} (npu-smi: {line[:200]})"
    return None


def parse_info(text: t.Any) -> dict[str, t.Any]:
    """`npu-smi info` of any version.

    -> {"outcome": "measured"|"error", "reason_code", "reason", "driver", "simulated", "chips": [...], "processes": [...]}; each chip:
    npu, chip (numbers), phy (the number hccn_tool knows it by, None where it is not told), name, health, power_w, temperature_c, bdf (lower
    case), utilization (percent), memory_used_mib, memory_total_mib; each process: npu, chip, pid, name, used_mib.
    """
    result: dict[str, t.Any] = {
        "outcome": "error", "reason_code": None, "reason": None, "driver": None, "simulated": False, "chips": [], "processes": [],
    }  # fmt: skip
    if not isinstance(text, str) or len(text) > LIMIT:
        result.update(reason_code="bad_output", reason="npu-smi printed no text, or far too much of it")
        return result
    result["simulated"] = SIMULATED_MARK in text
    version = _VERSION.search(text)
    if not version:
        code, reason = failure(text) or ("bad_output", "npu-smi printed no table of its own")
        result.update(reason_code=code, reason=reason)
        return result
    result["driver"] = version.group(1)
    try:
        _table(text, result)
    except (_BadRow, ValueError, IndexError) as error:
        result.update(reason_code="bad_output", reason=f"the table of npu-smi is not readable: {error}"[:300])
        return result
    complaint = failure(text)
    if complaint and not result["chips"]:
        result.update(reason_code=complaint[0], reason=complaint[1])
    elif "Process id" not in text:
        result.update(reason_code="incomplete_output", reason="the table of npu-smi is cut: its processes are missing")
    elif not result["chips"]:
        result.update(reason_code="no_gpu", reason="npu-smi finds no NPU")
    else:
        result["outcome"] = "measured"
    return result


def _table(text: str, result: dict[str, t.Any]) -> None:
    """Fills the chips, each of two rows, and the processes."""
    upper: list[str] | None = None
    processes = False
    for line in text.splitlines():
        line = line.strip()
        if not line.startswith("|") or not line.endswith("|"):
            continue
        cells = [cell.strip() for cell in line[1:-1].split("|")]
        if len(cells) < 3:
            continue
        if "Process id" in line:
            processes = True
        elif processes:
            if cells[0][:1].isdigit() and cells[1].isdigit():
                numbers = cells[0].split()
                result["processes"].append(
                    {
                        "npu": int(numbers[0]), "chip": int(numbers[1]) if len(numbers) > 1 else 0, "pid": int(cells[1]),
                        "name": cells[2] or None, "used_mib": int(cells[3]) if cells[3].isdigit() else None,
                    }
                )  # fmt: skip
        elif upper is None:
            if cells[0][:1].isdigit():
                upper = cells
        else:
            result["chips"].append(_chip(upper, cells))
            upper = None
    if upper is not None:
        raise _BadRow("an NPU has one row of two")


def _chip(upper: list[str], lower: list[str]) -> dict[str, t.Any]:
    # One without chips has a cell of its own for the name.
    words = upper[0].split(None, 1) if len(upper) == 3 else [upper[0], upper[1]]
    health, load = upper[-2], upper[-1].split()
    numbers, bdf, use = ([] if len(lower) == 4 else lower[0].split()), lower[-2], lower[-1]
    memories = _USED.findall(use)
    if len(words) != 2 or len(load) < 2 or not memories or (len(lower) == 3 and not numbers):
        raise _BadRow(f"{' | '.join(upper)} / {' | '.join(lower)}"[:200])
    used, total = memories[-1]  # of the HBM, which the older parts without it do not have
    return {
        "npu": int(words[0]), "chip": int(numbers[0]) if numbers else 0, "phy": int(numbers[1]) if len(numbers) > 1 else None,
        "name": words[1], "health": health,
        "power_w": absent.number(load[0], "power"), "temperature_c": absent.number(load[1], "temperature"),
        "bdf": bdf.lower() if _BDF.match(bdf) else None, "utilization": absent.number(use.split()[0], "utilization"),
        "memory_used_mib": int(used), "memory_total_mib": int(total),
    }  # fmt: skip


def _number(word: str | None) -> float | None:
    match = re.match(r"^-?\d{1,12}(?:\.\d{1,6})?$", (word or "").strip())
    return float(match.group(0)) if match else None


def parse_pairs(text: t.Any) -> dict[str, str]:
    """The `Name : value` lines of `npu-smi info -t ...` and of hccn_tool; what is not available is left out, the first of a name counts."""
    pairs: dict[str, str] = {}
    for name, value in _PAIR.findall(text if isinstance(text, str) and len(text) <= LIMIT else ""):
        if value.lower() not in ABSENT:
            pairs.setdefault(" ".join(name.split()), value)
    return pairs


def parse_ecc(text: t.Any) -> dict[str, Value]:
    """`info -t ecc`: {"single", "double": errors since the driver was loaded, "total_single", "total_double": in its life,
    "isolated_single", "isolated_double": pages taken out of use}, each the sum of HBM and DDR; Absent if one of them cannot be read and
    the other has counted nothing."""
    kinds = ("single", "double", "total_single", "total_double", "isolated_single", "isolated_double")
    cells: dict[str, list[Value]] = {name: [] for name in kinds}
    with_hbm: set[str] = set()
    for name, value in _PAIR.findall(text if isinstance(text, str) and len(text) <= LIMIT else ""):
        words = " ".join(name.split())
        match = re.match(r"^(?:(HBM|DDR) )?(Single|Double)[ -][Bb]it (Error Count|Aggregate Total Err Cnt|Isolated Pages Count)$", words)
        if match:
            kind = {"E": "", "A": "total_", "I": "isolated_"}[match.group(3)[0]] + match.group(2).lower()
            if match.group(1) == "HBM":
                with_hbm.add(kind)
            # A device without DDR reports it as missing.
            if not (match.group(1) == "DDR" and value.lower() in LACKING):
                cells[kind].append(absent.number(value, words) if value.isdigit() else Absent(f"{words} reads {value[:60]!r}"))
    for kind in kinds if with_hbm else ():
        if kind not in with_hbm and cells[kind]:
            cells[kind].append(Absent("npu-smi reports it of DDR and not of HBM"))
    return {
        kind: absent.at_least(values) if values else Absent("npu-smi does not report it (info -t ecc)") for kind, values in cells.items()
    }


def parse_list(text: t.Any) -> int | None:
    """Return the number of NPUs in `info -l`; None if it is not there."""
    pairs = parse_pairs(text)
    count = pairs.get("Total Count") or pairs.get("Card Count") or ""
    return int(count) if count.isdigit() else None


def parse_identity(text: t.Any) -> str | None:
    """The die's own number of `info -t board`, which no other die has."""
    pairs = parse_pairs(text)
    number = next((pairs[name] for name in ("VDie ID", "DDie ID", "Die ID") if name in pairs), "")
    words = number.upper().split()
    return "-".join(words) if len(words) == 5 and any(word.strip("0") for word in words) else None


def parse_alarms(text: t.Any) -> str:
    """Return the error codes of `info -t health` with their meaning; empty if there are none."""
    if not isinstance(text, str) or len(text) > LIMIT:
        return ""
    pairs = parse_pairs(text)
    return " ".join(f"{pairs.get('Error Code', '')} {pairs.get('Error Information', '')}".split())[:300]


def parse_watch(line: t.Any) -> tuple[int, int, float | None, float | None] | None:
    """Return (NPU, chip, power in W, temperature in C) of a row of `info watch -s pt`; None for any other line."""
    words = line.split() if isinstance(line, str) else []
    if len(words) < 4 or not words[0].isdigit() or not words[1].isdigit():
        return None
    return int(words[0]), int(words[1]), _number(words[2]), _number(words[3])


def parse_link(text: t.Any) -> str | None:
    """`hccn_tool -i N -link -g`: UP or DOWN."""
    match = re.search(r"link status:?\s*(UP|DOWN)\b", text if isinstance(text, str) else "", re.IGNORECASE)
    return match.group(1).upper() if match else None


def parse_speed(text: t.Any) -> float | None:
    """`hccn_tool -i N -speed -g`: Gb/s."""
    match = re.search(r"[Ss]peed:?\s*(\d{1,9}) *Mb/s", text if isinstance(text, str) else "")
    return int(match.group(1)) / 1000 if match else None


def parse_net_health(text: t.Any) -> str | None:
    """`hccn_tool -i N -net_health -g`: its word."""
    match = re.search(r"net health status:?\s*(\w[\w ]{0,40})", text if isinstance(text, str) else "")
    return match.group(1).strip() if match else None


# Counters of packets that were bad; pauses, retries and congestion belong to many that talk at once.
BAD_PACKETS = (
    "mac_tx_bad_pkt_num", "mac_rx_bad_pkt_num", "mac_rx_fcs_err_pkt_num", "roce_rx_err_pkt_num", "roce_tx_err_pkt_num",
    "roce_verification_err_num",
)  # fmt: skip


def parse_stat(text: t.Any) -> dict[str, int]:
    """`hccn_tool -i N -stat -g` and `-link_stat -g`: what must not rise."""
    pairs = parse_pairs(re.sub(r"(?m)^\s*\[dev\w* \d+\]\s*", "", text) if isinstance(text, str) and len(text) <= LIMIT else "")
    counters = (*BAD_PACKETS, "link down count")
    return {name.replace(" ", "_"): int(pairs[name]) for name in counters if pairs.get(name, "").isdigit()}
