# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL, and what speaks its language, as nccl-tests and PyTorch use it: message sizes, settings that select a floor, what is kept of a
result.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nvlink_domain, registry
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import plain

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
LARGEST = 16 << 30
# The kinds of accelerators whose collective library has NCCL's variables and programs in the form of nccl-tests.
KINDS = registry.having("collective_tests")
LIBRARIES = list(dict.fromkeys(registry.KINDS[kind].collective_library for kind in KINDS))
WHAT = f"{' and '.join(filter(None, (', '.join(LIBRARIES[:-1]), LIBRARIES[-1])))} numbers"
# nccl-tests holds a send, a receive and an expected buffer of the largest size, and NCCL its own.
BUFFERS = 4
# GPUs whose NVSwitch reduces in the fabric, and from how many GPUs on NCCL uses it (measured: reference of the tables).
NVLS_FROM = {"H100": 5, "H200": 5, "H800": 5, "H20": 5, "GH200": 5, "B100": 6, "B200": 6, "B300": 6, "GB200": 6, "GB300": 6}


def size(text: t.Any) -> int:
    """Bytes of `8M`, `1G`, `1024`; ValueError for anything else."""
    word = str(text).strip().upper().rstrip("B")
    unit = word[-1:] if word[-1:] in UNITS and not word[-1:].isdigit() else ""
    count = word[: len(word) - len(unit)]
    if not count.isdecimal():
        raise ValueError(f"size: found {str(text)[:40]!r}, expected bytes such as 1024, 8M or 1G")
    return int(count) * UNITS[unit]


def largest_that_fits(gpus: list[dict[str, t.Any]]) -> int:
    """Return the largest power of two in bytes that fits into every GPU, 16 GiB at most, 1 GiB if the memory is unknown."""
    memory = min(int(plain(g["memory_total_mib"]) or 0) for g in gpus) * (1 << 20)
    if not memory:
        return 1 << 30
    return min(LARGEST, 1 << max(20, (int(memory) // BUFFERS).bit_length() - 1))


def selection(names: list[str], count: int, given: t.Mapping[str, str], in_force: t.Mapping[str, str]) -> dict[str, t.Any]:
    """Return the settings that select a floor: those of the run (`given`), and not what machines have set by themselves. If these make a
    difference, `as_set` has what the settings `in_force` would select."""
    given, in_force = ({name: str(value) for name, value in of.items()} for of in (given, in_force))
    by_run, as_set = (
        {
            "nvls": nvls(names, count, of), "algorithm": of.get("NCCL_ALGO", "auto").lower(), "proto": of.get("NCCL_PROTO", "auto").lower(),
        }
        for of in (given, in_force)
    )  # fmt: skip
    return by_run if by_run == as_set else {**by_run, "as_set": as_set}


def nvls(names: list[str], count: int, settings: dict[str, str]) -> bool:
    """Return True if this hardware should reduce in the switch, as configured. Whether it did is not asked: a node with broken NVLS is held
    to the number of a node with NVLS."""
    if settings.get("NCCL_NVLS_ENABLE") == "0" or "nvls" not in settings.get("NCCL_ALGO", "nvls").lower():
        return False
    thresholds = [nvls_from(name) for name in names]
    return bool(thresholds) and all(threshold is not None and count >= threshold for threshold in thresholds)


def nvls_from(name: str) -> int | None:
    """Return from how many such GPUs on NCCL reduces in the switch; None if there is no such switch."""
    thresholds = [NVLS_FROM[word] for word in name.replace("-", " ").split() if word in NVLS_FROM and "PCIe" not in name]
    return thresholds[0] if len(thresholds) == 1 else None


def mnnvl(names: t.Iterable[str]) -> bool:
    """Return True if NVLink connects GPUs of these models across nodes by design: a rack of trays is one NVLink domain, and NICs carry only
    what goes between racks."""
    return any(nvlink_domain.trays_by_design([name]) is not None for name in names)


def metrics(read: dict[str, t.Any]) -> dict[str, t.Any]:
    metrics = {"busbw": {"value": read["peak_busbw"]["value"], "unit": "GB/s"}}
    if read.get("avg_busbw"):
        metrics["avg_busbw"] = {"value": read["avg_busbw"]["value"], "unit": "GB/s"}
    if read.get("out_of_bounds"):
        metrics["out_of_bounds"] = {"value": read["out_of_bounds"]["count"], "unit": "count"}
    return metrics


def series(read: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    """Return the rows as printed. `busbw` is the better of the two halves; both are given, too."""
    rows = []
    for row in read["rows"]:
        halves = [half for half in (row["out_of_place"], row["in_place"]) if half]
        best = max(halves, key=lambda half: half["busbw"])
        rows.append(
            {
                **{k: row[k] for k in ("size", "count", "type", "redop", "root")},
                "time_us": best["time_us"],
                "algbw": best["algbw"],
                "busbw": best["busbw"],
                "busbw_out_of_place": (row["out_of_place"] or {}).get("busbw"),
                "busbw_in_place": (row["in_place"] or {}).get("busbw"),
            }
        )
    return rows
