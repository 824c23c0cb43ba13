# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What else happened on a node while a test ran.

Counters are read before and after; in between a light sampler watches clocks, power, temperature and throttle reasons.
What cannot be read is named: nobody must take silence for health.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import gpu, process
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import base
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node

SERIES = (("sm_clock", "MHz"), ("power", "W"), ("temperature", "C"))
# Less than this in a whole test is no reason for a lower number.
THROTTLE_US = 1000
# Code of a change -> the counter of a snapshot's GPU that must not rise.
COUNTERS: dict[str, t.Callable[[dict[str, t.Any]], int | None]] = {
    "ecc": lambda g: g["ecc"]["volatile_uncorrected"],
    "ecc_corrected": lambda g: g["ecc"]["volatile_corrected"],
    "remap": lambda g: g["remapped_rows"]["uncorrectable"],
    "pcie_replay": lambda g: g["pcie"]["replays"],
}


class Window:
    """`with Window(node, snapshot) as window:` run the test; then `window.evidence()`.

    `before` is gpu.snapshot's dict from just before the test. Afterwards `after` is the one from behind it, and may
    serve as the next window's `before`.
    """

    def __init__(self, node: Node, before: dict[str, t.Any], program: str = "nvidia-smi") -> None:
        self.node = node
        self.before = before
        self.after: dict[str, t.Any] = {}
        self.program = program
        self.accelerator = gpu.accelerator(node, before, program)
        self.window: dict[str, dict[str, t.Any]] = {}
        self.changes: list[dict[str, t.Any]] = []
        self.unreadable: set[str] = set()

    def __enter__(self) -> Window:
        self.kernel_log = _open_at_end(self.node.path("/dev/kmsg"))
        self._start_sampler()
        self.links = self.accelerator.link_errors(self.before)
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop_sampler()
        self.after = gpu.snapshot(self.node, self.program)
        if self.after["outcome"] == "measured":
            self._compare_counters()
            self._compare_links(self.accelerator.link_errors(self.before))
        else:
            code = "gpu_lost" if self.after["reason_code"] in ("gpu_lost", "no_gpu") else "gpu_state"
            self._change(code, None, f"after the test: {self.after['reason']}")
            self.unreadable.update(COUNTERS, [self.accelerator.link_code])
        self._read_kernel_log()

    def evidence(self) -> dict[str, t.Any]:
        """{"window": {GPU UUID: {"samples", "sm_clock": {"unit", "min", "max", "mean"}, "power", "temperature",
        "throttle": [names]}}, "changes": [{"code", "part", "text", "before", "after"}], "unreadable": [codes]}.

        Codes: xid, ecc, ecc_corrected, remap, pcie_replay, nvlink_error, link_errors, throttle_hw, throttle_thermal, gpu_lost,
        gpu_state; `samples` in `unreadable` stands for clocks, power, temperature and throttle reasons."""
        return {"window": self.window, "changes": self.changes, "unreadable": sorted(self.unreadable)}

    def state(self) -> dict[str, t.Any] | None:
        """What evidence() would be told from, as the window begins: where a later window begins so too (`quiet`), nothing has happened in
        between that it would tell. None where nobody could say so: a GPU's driver that does not count throttled time is only sampled."""
        counted = [counter for counter in self.accelerator.bad_throttle.values() if counter]
        if any(not isinstance(g["throttle_us"].get(counter), int) for g in self.before["gpus"] for counter in counted):
            return None
        gpus = {g["uuid"]: [read(g) for read in COUNTERS.values()] + [g["throttle_us"][c] for c in counted] for g in self.before["gpus"]}
        return {"counters": {"gpus": gpus, "links": self.links}, "log": _log(self.node.path("/dev/kmsg"), self.accelerator)}

    # The sampler -------------------------------------------------------------------------------------------------

    def _start_sampler(self) -> None:
        self.sampler: subprocess.Popen[bytes] | None = None
        try:
            self.samples = tempfile.TemporaryFile()  # noqa: SIM115
            self.sampler = process.spawn(
                self.accelerator.sampling(), stdin=subprocess.DEVNULL, stdout=self.samples, stderr=subprocess.DEVNULL
            )
            self.node.record(self.sampler.pid)
        except OSError:
            self.unreadable.add("samples")

    def _stop_sampler(self) -> None:
        if self.sampler:
            process.end(self.sampler, signal.SIGKILL)
            self.samples.seek(0)
            for line in self.samples:
                self._sample(line[:500].decode("utf-8", "replace"))
            self.samples.close()
        for of in self.window.values():
            for name, _unit in SERIES:
                if name in of:
                    of[name]["mean"] = round(of[name].pop("sum") / of[name].pop("count"), 2)
        if not self.window:
            self.unreadable.add("samples")
        self._judge_sampled_throttle()

    def _sample(self, line: str) -> None:
        read = self.accelerator.sample(line, self.before)
        if read is None:
            return
        of = self.window.setdefault(read.uuid, {"samples": 0, "throttle": []})
        of["samples"] += 1
        of["throttle"] = sorted({*read.throttle, *of["throttle"]})
        for name, unit in SERIES:
            if name in read.values:
                value = read.values[name]
                seen = of.setdefault(name, {"unit": unit, "min": value, "max": value, "sum": 0, "count": 0})
                seen.update(min=min(seen["min"], value), max=max(seen["max"], value))
                seen["sum"] += value
                seen["count"] += 1

    def _judge_sampled_throttle(self) -> None:
        for g in self.before["gpus"]:
            for name in self.window.get(g["uuid"], {}).get("throttle", []):
                if name in self.accelerator.bad_throttle:
                    self._throttled(g, name, "seen while the test ran", None, None)

    def _throttled(self, g: dict[str, t.Any], name: str, how: str, before: int | None, after: int | None) -> None:
        code = "throttle_hw" if name.startswith("hw_") else "throttle_thermal"
        if not any(c["code"] == code and c["part"] == f"gpu/{g['uuid']}" for c in self.changes):
            self._change(code, g, f"{gpu.word(g)} {g['index']} was throttled: {name}, {how}", before, after)

    # Counters ----------------------------------------------------------------------------------------------------

    def _compare_counters(self) -> None:
        now = {g["uuid"]: g for g in self.after["gpus"]}
        for g in self.before["gpus"]:
            if g["uuid"] not in now:
                self._change("gpu_lost", g, f"{gpu.word(g)} {g['index']} is gone after the test")
                continue
            for code, read in COUNTERS.items():
                was, is_now = read(g), read(now[g["uuid"]])
                if was is None or is_now is None:
                    self.unreadable.add(code)
                elif is_now > was:
                    self._change(code, g, f"{gpu.word(g)} {g['index']}: {code} rose from {was} to {is_now}", was, is_now)
            for words in self.accelerator.changed(g, now[g["uuid"]]):
                self._change("gpu_state", g, f"{gpu.word(g)} {g['index']}: {words}")
            for name, counter in self.accelerator.bad_throttle.items():
                was, is_now = (of["throttle_us"].get(counter) or 0 for of in (g, now[g["uuid"]]))
                if is_now - was > THROTTLE_US:
                    self._throttled(g, name, f"for {(is_now - was) / 1e6:.3f} s", was, is_now)

    def _compare_links(self, now: dict[str, dict[str, int]] | None) -> None:
        code, link = self.accelerator.link_code, self.accelerator.link
        if now is None or self.links is None:
            self.unreadable.add(code)
            return
        for g in self.before["gpus"]:
            was, is_now = self.links.get(g["uuid"], {}), now.get(g["uuid"], {})
            if set(was) != set(is_now):
                self.unreadable.add(code)
            for kind in sorted(set(was) & set(is_now)):
                if is_now[kind] > was[kind]:
                    text = f"{gpu.word(g)} {g['index']}: {link} {kind} errors rose from {was[kind]} to {is_now[kind]}"
                    self._change(code, g, text, was[kind], is_now[kind])

    # Kernel log --------------------------------------------------------------------------------------------------

    def _read_kernel_log(self) -> None:
        if self.kernel_log is None:
            self.unreadable.add("xid")
            return
        for line in _new_lines(self.kernel_log):
            found = self.accelerator.logged(line)
            if found:
                slot = _slot(found[0])
                g = next((g for g in self.before["gpus"] if _slot(g["bdf"] or "") == slot), None)
                self._change("xid", g, found[1], 0, 1)
        os.close(self.kernel_log)

    def _change(
        self, code: str, g: dict[str, t.Any] | None, text: str, before: int | None = None, after: int | None = None
    ) -> None:
        part = f"gpu/{g['uuid']}" if g else ""
        self.changes.append({"code": code, "part": part, "text": text, "before": before, "after": after})


def quiet(then: t.Any, now: t.Any) -> bool:
    """Whether nothing has happened between two states of a node, each as state() has it (of "counters" anything that tells them apart)."""
    if not isinstance(then, dict) or not isinstance(now, dict) or then["counters"] != now["counters"]:
        return False
    if then["log"] is None or now["log"] is None:
        return then["log"] is now["log"]  # nobody may read it, which the evidence says
    (_first, last, xid), (first, _last, now_xid) = then["log"], now["log"]
    return bool(first <= last + 1 and xid == now_xid)  # no line between the two was overwritten, and none tells of an Xid


def _log(path: str, accelerator: base.Accelerator) -> list[int | None] | None:
    """Of the kernel log the numbers of its first line, of its last, and of the last that tells of an error of a device; None where it may
    not be read."""
    found: list[int | None] = [None, None, None]
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        for line in _new_lines(handle):
            header, _semicolon, text = line.partition(";")
            number = header.split(",")[1:2]
            if number and number[0].isdigit():
                at = int(number[0])
                found = [at if found[0] is None else found[0], at, at if accelerator.logged(text) else found[2]]
    finally:
        os.close(handle)
    return None if found[0] is None else found


def _slot(bdf: str) -> tuple[int, ...] | None:
    """`0000:1A:00`, `00000000:1a:00.0` -> (0, 0x1a, 0): driver and nvidia-smi write domains of different widths."""
    try:
        return tuple(int(word, 16) for word in bdf.partition(".")[0].split(":"))
    except ValueError:
        return None


def _open_at_end(path: str) -> int | None:
    """The kernel log behind its last line, or None where it may not be read."""
    handle = None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(handle, 0, os.SEEK_END)
        with contextlib.suppress(BlockingIOError, BrokenPipeError):  # nothing new yet, which is what we want
            os.read(handle, 8192)
    except OSError:
        if handle is not None:
            os.close(handle)
        return None
    return handle


def _new_lines(handle: int, most: int = 100000) -> t.Iterator[str]:
    """What was logged since; /dev/kmsg gives one record a read, at most 8 KiB."""
    for _record in range(most):
        try:
            piece = os.read(handle, 8192)
        except BrokenPipeError:  # older records were overwritten meanwhile; the next read goes on behind them
            continue
        except OSError:
            return
        if not piece:
            return
        yield from piece.decode("utf-8", "replace").splitlines()
