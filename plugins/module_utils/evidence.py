# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What else happened on a node while a test ran.

Counters are read before and after; in between a light sampler watches clocks, power and temperature. What cannot be read is
named: nobody must take silence for health.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import tempfile
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import gpu, process
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nvidia_smi

SAMPLED = ("uuid", "clocks.sm", "power.draw", "temperature.gpu", "clocks_event_reasons.active")
# Bits of clocks_event_reasons.active (nvml.h, nvmlClocksEventReasons) that a healthy machine under load does not show.
BAD_THROTTLE = {0x8: "hw_slowdown", 0x20: "sw_thermal_slowdown", 0x40: "hw_thermal_slowdown", 0x80: "hw_power_brake_slowdown"}
# Counter of a snapshot -> code of the change.
COUNTERS: dict[str, t.Callable[[dict[str, t.Any]], int | None]] = {
    "ecc_uncorrected": lambda g: g["ecc"]["volatile_uncorrected"],
    "ecc_corrected": lambda g: g["ecc"]["volatile_corrected"],
    "remapped_rows": lambda g: g["remapped_rows"]["uncorrectable"],
    "pcie_replays": lambda g: g["pcie"]["replays"],
}


class Window:
    """`with Window(node, snapshot) as window: run the test`, then `window.evidence()`."""

    def __init__(self, node: Node, before: dict[str, t.Any], program: str = "nvidia-smi") -> None:
        self.node = node
        self.before = before
        self.program = program
        self.after: dict[str, t.Any] | None = None
        self.changes: list[dict[str, t.Any]] = []
        self.unreadable: list[str] = []
        self.samples: list[list[str]] = []

    def __enter__(self) -> Window:
        self.kernel_log = _open_kernel_log()
        self.output = tempfile.TemporaryFile()  # noqa: SIM115: lives as long as the window
        argv = [self.program, f"--query-gpu={','.join(SAMPLED)}", "--format=csv,noheader,nounits", "-lms", "1000"]
        try:
            self.sampler: subprocess.Popen[bytes] | None = process.spawn(
                argv, stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.DEVNULL
            )
            self.node.record(self.sampler.pid)
        except OSError:
            self.sampler = None
            self.unreadable.append("clocks, power and temperature during the test")
        return self

    def __exit__(self, *_error: object) -> None:
        if self.sampler:
            process.end(self.sampler, signal.SIGKILL)
            self.output.seek(0)
            text = self.output.read(16 << 20).decode("utf-8", "replace")
            self.samples = [line.split(", ") for line in text.splitlines()]
        self.output.close()
        self.after = gpu.snapshot(self.node.run, self.program)
        self._compare()
        self._kernel()

    def _compare(self) -> None:
        after = self.after or {}
        if after.get("outcome") != "measured":
            self._change("gpu_state", "", f"after the test: {after.get('reason')}", None, None)
            self.unreadable.append("the GPUs' counters after the test")
            return
        now = {g["uuid"]: g for g in after["gpus"]}
        for g in self.before["gpus"]:
            if g["uuid"] not in now:
                self._change("gpu_lost", g["uuid"], f"GPU {g['index']} is gone after the test", None, None)
                continue
            for code, read in COUNTERS.items():
                was, is_now = read(g), read(now[g["uuid"]])
                if was is not None and is_now is not None and is_now > was:
                    self._change(code, g["uuid"], f"GPU {g['index']}: {code} rose from {was} to {is_now}", was, is_now)

    def _change(self, code: str, uuid: str, text: str, before: int | None, after: int | None) -> None:
        part = f"gpu/{uuid}" if uuid else ""
        self.changes.append({"code": code, "part": part, "text": text, "before": before, "after": after})

    def _kernel(self) -> None:
        if self.kernel_log < 0:
            self.unreadable.append("Xid errors (the kernel log needs root)")
            return
        for line in _read_kernel_log(self.kernel_log):
            found = re.search(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)[^\n]{0,200}", line)
            if found:
                bdf = found.group(1).lower()
                uuid = next((g["uuid"] for g in self.before["gpus"] if (g["bdf"] or "").startswith(bdf.rjust(13, "0"))), "")
                self._change("xid", uuid, f"Xid {found.group(2)} during the test: {found.group(0)}", 0, 1)
        os.close(self.kernel_log)

    def evidence(self) -> dict[str, t.Any]:
        """{"window": {GPU UUID: clocks, power, temperature}, "changes": [...], "unreadable": [...]}."""
        window: dict[str, t.Any] = {}
        throttled: dict[str, int] = {}
        for sample in self.samples:
            if len(sample) != len(SAMPLED):
                continue
            of = window.setdefault(sample[0], {"samples": 0})
            of["samples"] += 1
            for name, unit, cell in (("sm_clock", "MHz", sample[1]), ("power", "W", sample[2]), ("temperature", "C", sample[3])):
                value = nvidia_smi.csv_cell(cell)
                if isinstance(value, float):
                    seen = of.setdefault(name, {"unit": unit, "min": value, "max": value})
                    seen["min"], seen["max"] = min(seen["min"], value), max(seen["max"], value)
            try:
                throttled[sample[0]] = throttled.get(sample[0], 0) | int(sample[4], 16)
            except ValueError:
                pass
        changes = list(self.changes)
        for uuid, bits in throttled.items():
            names = [name for bit, name in BAD_THROTTLE.items() if bits & bit]
            window[uuid]["throttle"] = names
            if names:
                index = next((g["index"] for g in self.before["gpus"] if g["uuid"] == uuid), "?")
                changes.append(
                    {"code": "throttle", "part": f"gpu/{uuid}", "text": f"GPU {index} was throttled: {', '.join(names)}",
                     "before": None, "after": None}
                )  # fmt: skip
        return {"window": window, "changes": changes, "unreadable": self.unreadable}


def _open_kernel_log() -> int:
    """/dev/kmsg at its end, or -1."""
    try:
        handle = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return -1
    try:
        os.lseek(handle, 0, os.SEEK_END)
        os.read(handle, 8192)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EPIPE):
            os.close(handle)
            return -1
    return handle


def _read_kernel_log(handle: int) -> t.Iterator[str]:
    for _line in range(100000):
        try:
            yield os.read(handle, 8192).decode("utf-8", "replace")
        except OSError as error:
            if error.errno == errno.EPIPE:  # older lines were overwritten meanwhile; the next read goes on
                continue
            return
