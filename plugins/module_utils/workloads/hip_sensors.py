# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sensors of AMD GPUs by the files of the driver, with the names of cuda_driver.Sensors.

Power, its limit and the temperature of the junction are in `hwmon`, the clock is in `pp_dpm_sclk`, and the highest clock in the kernel's
topology. Reasons for lower clocks are counters of the firmware in `gpu_metrics`, a structure whose first bytes tell its version: 1.6 and
later have them. What 1.4 and 1.5 call the state of throttling has bits of the past, so it is not read.

Parts of a partitioned GPU have the sensors of the whole GPU. It travels to the nodes as text, behind hip_driver.py and in front of a
workload that uses it (workloads/packing.py): no imports of this collection but of that. This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import re
import statistics
import struct
import typing as t

if "topology" not in globals():  # else it stands above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.hip_driver import Links, text_of, topology, whole

# Reasons for lower clocks in the order of the firmware's counters, by the names that the evidence of a test has for them.
REASONS = ("hw_prochot", "power_limit", "socket_thermal", "vr_thermal", "hbm_thermal")
# Where the counters stand, {(format, content) of gpu_metrics: (bytes of the whole at least, offset)} (Linux, kgd_pp_interface.h). A
# structure 1.6 of a few weeks of 2024 was shorter and had them elsewhere.
COUNTERS_AT = {(1, 6): (1024, 32), (1, 7): (1024, 40), (1, 8): (1024, 40)}
# 1.9 is a list of attributes: the number of the cycles' counter, which those of the reasons follow, and the forms of values by their type.
CYCLES, TYPES = 9, "BbHhIiQq"
# Less of the time between two looks than this is no throttling: looks at a state would not see it either.
LEAST_SHARE = 0.01
# More than this is more than the time there was: they are not these counters. A few cycles more may be counted a moment later.
MOST_SHARE = 1.1
# A look that comes sooner says nothing; a cycle is about a millisecond.
LEAST_CYCLES = 100


class Sensors(Links):
    """The sensors and counters of GPUs by the files of the driver. A value that a GPU or a driver does not have is missing.

    `throttle` is {reason: share of the time since the look before}. The first look is made when the object is.
    """

    # Units: C, W, MHz, shares, replays.
    VALUES = ("temperature", "power", "power_limit", "sm_clock", "sm_clock_max", "throttle", "replays")

    def __init__(self) -> None:
        super().__init__()
        self.highest = {folder: topology(os.path.basename(folder)).get("max_engine_clk_fcompute") for folder in self.folders.values()}
        self.counted: dict[str, list[int]] = {uuid: counters(_bytes(f"{folder}/gpu_metrics")) for uuid, folder in self.folders.items()}

    @staticmethod
    def shares(looks: list[dict[str, float]]) -> dict[str, float]:
        """Return the mean share of each reason."""
        return {name: round(statistics.fmean(look[name] for look in looks), 3) for name in REASONS}

    def read(self, uuid: str) -> dict[str, t.Any]:
        """Return the values that the GPU has now."""
        folder = self.folder(uuid)
        if not folder:
            return {}
        hwmon = _hwmon(folder)
        heat = next((_number(label[: -len("_label")] + "_input", 1000) for label in _labels(hwmon) if text_of(label) == "junction"), None)
        levels = re.findall(r":\s*(\d{1,5})\s*M[Hh]z\s*(\*?)", text_of(f"{folder}/pp_dpm_sclk"))
        found = {
            "temperature": heat,
            "power": next((of for name in ("average", "input") if (of := _number(f"{hwmon}/power1_{name}", 1_000_000))), None),
            "power_limit": _number(f"{hwmon}/power1_cap", 1_000_000),
            "sm_clock": next((int(mhz) for mhz, mark in levels if mark), None),
            "sm_clock_max": self.highest[folder] or max((int(mhz) for mhz, _mark in levels), default=None),
            "throttle": self._throttle(uuid, folder),
            "replays": _number(f"{folder}/pcie_replay_count"),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _throttle(self, uuid: str, folder: str) -> dict[str, float] | None:
        """Return the share of each reason since the look before; None if the counters cannot be read, began anew in between, or say nothing
        yet. The next look that can be made is then about that time too."""
        now, before = counters(_bytes(f"{folder}/gpu_metrics")), self.counted.get(uuid) or self.counted.get(whole(uuid)) or []
        if not now:
            return None
        if not before or any(later < first for first, later in zip(before, now)):
            self.counted[uuid] = now
            return None
        passed, *held = (later - first for first, later in zip(before, now))
        if passed < LEAST_CYCLES:
            return None
        self.counted[uuid] = now
        if max(held) > MOST_SHARE * passed:
            return None
        return {name: min(1.0, cycles / passed) if cycles >= LEAST_SHARE * passed else 0.0 for name, cycles in zip(REASONS, held)}


def counters(metrics: bytes) -> list[int]:
    """Return the counters of a gpu_metrics: cycles of the firmware, and in how many of them each of REASONS held the GPU back. Empty if it
    does not have them all."""
    if len(metrics) < 8:
        return []
    size, *version = struct.unpack_from("<HBB", metrics)
    if size > len(metrics):
        return []
    if version == [1, 9]:
        found = _attributes(metrics[:size])
        numbers = [found.get(number, (None, 0))[0] for number in range(CYCLES, CYCLES + 1 + len(REASONS))]
        widths = {found[number][1] for number in range(CYCLES, CYCLES + 1 + len(REASONS)) if number in found}
        values = [value for value in numbers if value is not None and not any(value == (1 << 8 * width) - 1 for width in widths)]
        return values if len(values) == len(numbers) else []
    least, at = COUNTERS_AT.get((version[0], version[1]), (0, 0))
    if not at or size < least:
        return []
    values = list(struct.unpack_from(f"<{1 + len(REASONS)}I", metrics, at))
    return [] if 0xFFFFFFFF in values else values


def _attributes(metrics: bytes) -> dict[int, tuple[int, int]]:
    """Return {number: (value, bytes)} of the single numbers in a list of attributes; empty if the list is not whole. A word of 64 bits
    before each attribute has its number, its type and how many values it has."""
    (count,), at = struct.unpack_from("<i", metrics, 4), 8
    found: dict[int, tuple[int, int]] = {}
    for _attribute in range(count):
        if at + 8 > len(metrics):
            return {}
        (code,) = struct.unpack_from("<Q", metrics, at)
        kind, number, many = code >> 20 & 15, code >> 10 & 1023, code & 1023
        width = struct.calcsize("<" + TYPES[kind]) if kind < len(TYPES) else 0
        at += 8 + width * many
        if not width or at > len(metrics):
            return {}
        if many == 1:
            found[number] = struct.unpack_from("<" + TYPES[kind], metrics, at - width)[0], width
    return found


def _hwmon(folder: str) -> str:
    names = sorted(os.listdir(f"{folder}/hwmon")) if os.path.isdir(f"{folder}/hwmon") else []
    return f"{folder}/hwmon/{names[0] if names else 'none'}"


def _labels(hwmon: str) -> list[str]:
    return [f"{hwmon}/temp{number}_label" for number in (1, 2, 3)]


def _number(path: str, by: int = 1) -> float | None:
    """Return the number in a file; None if there is none, or the largest one of 16, 32 or 64 bits, which stands for none."""
    text = text_of(path)
    return int(text) / by if text.isdigit() and int(text) not in (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF) else None


def _bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(65536)
    except OSError:
        return b""
