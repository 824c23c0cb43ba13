# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The evidence of a test: what changed on its node while it ran.

Counters are read before and after; in between a light sampler watches clocks, power, temperature and throttle reasons.
What cannot be read is named, so that a missing value is not taken for health. The machine beside its accelerators is part of it: its
error counters, devices and links, and the errors that its kernel logs.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import base, registry
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import plain
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import changes as of_host
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import kernel, others
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host.tree import Tree
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state import gpu
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import container, kernel_log, process
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

SERIES = (("sm_clock", "MHz"), ("power", "W"), ("temperature", "C"), ("pcie_gen", "generation"), ("pcie_width", "lanes"))
# Less than this in a whole test is no reason for a lower number.
THROTTLE_US = 1000
# A window that lasts so long demands samples of each device, a quarter of what the interval of the sampler gives, and of some device
# under load. A shorter one may be over before the sampler's second look: without persistence it starts in seconds.
SAMPLED_S = 10.0
SAMPLED_SHARE = 0.25
# Code of a change -> the counter of a snapshot's GPU that must not rise.
COUNTERS: dict[str, t.Callable[[dict[str, t.Any]], float | None]] = {
    "ecc": lambda g: plain(g["ecc"]["volatile_uncorrected"]),
    "ecc_corrected": lambda g: plain(g["ecc"]["volatile_corrected"]),
    "remap": lambda g: plain(g["remapped_rows"]["uncorrectable"]),
    "pcie_replay": lambda g: plain(g["pcie"]["replays"]),
}


# What a counter of COUNTERS means by reason code, where that is another word.
MEANS = {"remap": "ecc", "pcie_replay": "pcie_corrected"}


class Window:
    """The evidence window of one test: `with Window(node, snapshot) as window:` run the test; then `window.evidence()`.

    `before` is gpu.snapshot's dict from just before the test. Afterwards `after` is the one from behind it, and may
    serve as the next window's `before`. What a health check finds after the test and did not find before is a change with the code that it
    would have in a health check.

    `whole`: False if not all processes of the test are below this one, as of a group, whose ranks others start.
    """

    def __init__(self, node: Node, snapshot: dict[str, t.Any], whole: bool = True) -> None:
        self.node = node
        self.others = others.Watch(node, bool(snapshot.get("simulated"))) if whole else None
        self.before = snapshot
        self.after: dict[str, t.Any] = {}
        self.accelerator = gpu.accelerator(node, snapshot)
        self.window: dict[str, dict[str, t.Any]] = {}
        self.changes: list[dict[str, t.Any]] = []
        self.unreadable: set[str] = set()
        self.loads: dict[str, base.Load] = {}
        self.began: list[dict[str, str]] = []

    def __enter__(self) -> Window:
        self.kernel_log = kernel_log.at_end(self.node.path(kernel_log.PATH))
        self.links = self.accelerator.link_errors(self.before)
        self.links_down = self.accelerator.links_beside(self.before)
        self.host = of_host.read(Tree(self.node))
        self.began = self._health_before()
        self.last_pid = _last_pid()
        self._start_sampler()
        if self.others:
            self.others.begin()
        return self

    def __exit__(self, *_error: object) -> None:
        if self.others:
            self.others.end()
        self._stop_sampler()
        self.after = gpu.snapshot(self.node, settled=False)
        if self.after["outcome"] == "measured":
            self._compare_counters()
            self._compare_links(self.accelerator.link_errors(self.before))
            self._compare_health()
        else:
            code = "gpu_lost" if self.after["reason_code"] in ("gpu_lost", "no_gpu") else "gpu_state"
            self._change(code, None, f"after the test: {self.after['reason']}")
            self.unreadable.update(COUNTERS, [self.accelerator.link_code])
        self.changes += of_host.between(self.host, of_host.read(Tree(self.node)))
        self._judge_samples()
        self._read_kernel_log()

    def under_load(self, uuid: str, values: dict[str, float]) -> None:
        """Take in what a test itself read of a device while it worked: values of SERIES; before the window ends."""
        self.loads.setdefault(uuid, base.Load()).add(base.DeviceSample(uuid, values, frozenset(), busy=True))

    def evidence(self) -> dict[str, t.Any]:
        """{"window": {GPU UUID: {"samples", "sm_clock": {"unit", "min", "max", "mean"}, "power", "temperature",
        "throttle": [names]}}, "changes": [{"code", "part", "text", "before", "after"}], "unreadable": [codes]}.

        Codes of counters: ecc_corrected, remap, pcie_replay, nvlink_error, link_errors, throttle_hw, throttle_thermal. All others are
        reason codes: of a health check (ecc, ecc_past, pcie_width, pcie_speed, fabric, nvlink ...), of the kernel's log (xid, xid_own,
        xid_unknown, ecc, gpu_fault, gpu_lost, nvlink, gpu_reset), of a health check of the machine (host/changes.py, host/kernel.py:
        machine_check, pcie_error, disk, nic_fault, host_memory ...; no change if it has no counters), and gpu_state.
        In `unreadable`, `samples` stands for clocks, power,
        temperature and throttle reasons (also a change, if the sampler ended by itself), `throttle` for reasons and times of throttling,
        `pcie_link` for the speed of the PCIe link under
        load. "health": what a health check would have
        found as the test began, the kernel's log since boot included, [{"code", "part", "text"}], if anything. "others": what others used
        of the processors (host/others.py), of a test whose own processes are known."""
        record: dict[str, t.Any] = {"window": self.window, "changes": self.changes, "unreadable": sorted(self.unreadable)}
        if self.others and self.others.found:
            record["others"] = self.others.found
        return {**record, "health": self.began} if self.began else record

    def state(self) -> dict[str, t.Any] | None:
        """Return the state of the node as the window begins. If a later window begins with the same state (`quiet`), nothing has happened
        in between that evidence() would report. None if that cannot be known: a driver that does not count throttled time is only
        sampled."""
        counted = [counter for counter in self.accelerator.bad_throttle.values() if counter]
        if any(not isinstance(g["throttle_us"].get(counter), int) for g in self.before["gpus"] for counter in counted):
            return None
        gpus = {g["uuid"]: [read(g) for read in COUNTERS.values()] + [g["throttle_us"][c] for c in counted] for g in self.before["gpus"]}
        health = [[self.accelerator.health(g) for g in self.before["gpus"]], self.accelerator.siblings(self.before)]
        counters: dict[str, t.Any] = {"gpus": gpus, "links": self.links, "health": health, "down": self.links_down}
        counters["host"] = of_host.counted(self.host)
        return {"counters": counters, "log": _log(self.node.path(kernel_log.PATH), self.accelerator)}

    def _health_before(self) -> list[dict[str, str]]:
        """Return the defects of the devices as the test begins, and the errors of devices that the kernel has logged since boot."""
        problems = self._logged_before()
        siblings = self.accelerator.siblings(self.before)
        links = self.accelerator.links_unreadable(self.before) if self.links_down is None else self.links_down
        for g in self.before["gpus"]:
            down = links.get(g["uuid"])
            for code, words in [*self.accelerator.health(g), *siblings.get(g["uuid"], []), *([down] if down else [])]:
                problems.append({"code": code, "part": f"gpu/{g['uuid']}", "text": f"{gpu.word(g)} {g['index']}: {words}"})
        return problems

    def _logged_before(self) -> list[dict[str, str]]:
        """Return the last error of each kind and device in the kernel's log, as the test begins; none if the log may not be read."""
        log = kernel_log.at_start(self.node.path(kernel_log.PATH)) if self.kernel_log is not None else None
        if log is None:
            return []
        last: dict[tuple[t.Any, ...], base.Logged | base.TakenBack] = {}
        for line in log.lines():
            entry = self.accelerator.logged(line.text) or self.accelerator.takes_back(line.text)
            if entry:
                key = (entry.where, entry.name) if isinstance(entry, base.Logged) else (entry,)
                last.pop(key, None)
                last[key] = entry
        log.close()
        problems = []
        for event, _data in base.standing((entry, None) for entry in last.values()):
            g = self._at(event.where)
            part, text = (f"gpu/{g['uuid']}", f"{gpu.word(g)} {g['index']}: {event.words}") if g else ("", event.words)
            problems.append({"code": event.code, "part": part, "text": text})
        return problems

    def _at(self, where: str | None) -> dict[str, t.Any] | None:
        """Return the device at a PCI address."""
        return next((g for g in self.before["gpus"] if where and gpu.slot(g["bdf"] or "") == gpu.slot(where)), None)

    # The sampler -------------------------------------------------------------------------------------------------

    def _start_sampler(self) -> None:
        self.sampler: subprocess.Popen[bytes] | None = None
        self.sampled_since = time.monotonic()
        try:
            self.samples = tempfile.TemporaryFile()  # noqa: SIM115
            self.sampler = process.spawn(
                self.accelerator.sampling(), stdin=subprocess.DEVNULL, stdout=self.samples, stderr=subprocess.DEVNULL
            )
            self.node.record(self.sampler.pid)
        except OSError:
            self.unreadable.add("samples")

    def _stop_sampler(self) -> None:
        self.lasted = time.monotonic() - self.sampled_since
        status = None
        if self.sampler:
            status = self.sampler.poll()
            process.end(self.sampler, signal.SIGKILL)
            self.samples.seek(0)
            working: set[str] = set()
            for line in self.samples:
                self._sample(line[:500].decode("utf-8", "replace"), working)
            self.samples.close()
        for of in self.window.values():
            for name, _unit in SERIES:
                if name in of:
                    of[name]["mean"] = round(of[name].pop("sum") / of[name].pop("count"), 2)
        self._judge_sampler(status)
        self._judge_sampled_throttle()

    def _judge_sampler(self, status: int | None) -> None:
        """Record samples that are missing. `status` is that of a sampler that ended before the test, None if it ran to the end."""
        counts = [self.window.get(g["uuid"], {}).get("samples", 0) for g in self.before["gpus"]]
        demanded = SAMPLED_SHARE * self.lasted / self.accelerator.sample_s if self.lasted >= SAMPLED_S else 0
        if not self.window or status is not None or min(counts, default=0) < demanded:
            self.unreadable.add("samples")
        if self.window and status is not None:
            words = f"the sampler of clocks and PCIe links ended by itself with status {status}, after {max(counts)} samples in a test"
            self._change("samples", None, f"{words} of {self.lasted:.0f} s")

    def _sample(self, line: str, working: set[str]) -> None:
        """Take one line of the sampler in; `working` are the GPUs that worked in their last one."""
        read = self.accelerator.sample(line, self.before)
        if read is None:
            return
        if read.busy and read.uuid in working:
            self.loads.setdefault(read.uuid, base.Load()).add(read)
        (working.add if read.busy else working.discard)(read.uuid)
        of = self.window.setdefault(read.uuid, {"samples": 0, "throttle": []})
        of["samples"] += 1
        of["throttle"] = sorted({*read.throttle, *of["throttle"]})
        for name, unit in SERIES:
            if name in read.values:
                value = read.values[name]
                stats = of.setdefault(name, {"unit": unit, "min": value, "max": value, "sum": 0, "count": 0})
                stats.update(min=min(stats["min"], value), max=max(stats["max"], value))
                stats["sum"] += value
                stats["count"] += 1

    def _judge_sampled_throttle(self) -> None:
        for g in self.before["gpus"]:
            for name in self.window.get(g["uuid"], {}).get("throttle", []):
                if name in self.accelerator.bad_throttle:
                    self._throttled(g, name, "seen while the test ran", None, None)

    def _judge_samples(self) -> None:
        """Record the defects that samples under load show on each GPU, except those that it had before the test."""
        siblings = self.accelerator.siblings(self.before)
        for g in self.before["gpus"]:
            known_codes = {code for code, _words in (*self.accelerator.health(g), *siblings.get(g["uuid"], []))}
            for code, words in self.accelerator.sampled(g, self.loads, self.before):
                if code not in known_codes and not self._has(code, g):
                    self._change(code, g, f"{gpu.word(g)} {g['index']}: {words}")
        if self.loads or self.lasted >= SAMPLED_S:
            self.unreadable.update(self.accelerator.unsampled(self.loads))

    def _throttled(self, g: dict[str, t.Any], name: str, how: str, value_before: float | None, value_after: float | None) -> None:
        code = "throttle_hw" if name.startswith("hw_") else "throttle_thermal"
        if not self._has(code, g):
            self._change(code, g, f"{gpu.word(g)} {g['index']} was throttled: {name}, {how}", value_before, value_after)

    # Counters ----------------------------------------------------------------------------------------------------

    def _compare_counters(self) -> None:
        gpus_after = {g["uuid"]: g for g in self.after["gpus"]}
        for g in self.before["gpus"]:
            if g["uuid"] not in gpus_after:
                self._change("gpu_lost", g, f"{gpu.word(g)} {g['index']} is gone after the test")
                continue
            for code, read in COUNTERS.items():
                value_before, value_after = read(g), read(gpus_after[g["uuid"]])
                if value_before is not None and value_after is None:
                    text = f"{gpu.word(g)} {g['index']}: its counter of {code} cannot be read any more"
                    self._change("gpu_state", g, text, value_before, None)
                    self.unreadable.add(code)
                elif value_before is None or value_after is None:
                    self.unreadable.add(code)
                elif value_after > value_before:
                    text = f"{gpu.word(g)} {g['index']}: {code} rose from {value_before} to {value_after}"
                    self._change(code, g, text, value_before, value_after)
            self._compare_lifetime(g, gpus_after[g["uuid"]])
            for name, counter in self.accelerator.bad_throttle.items():
                value_before, value_after = (plain(of["throttle_us"].get(counter, 0)) for of in (g, gpus_after[g["uuid"]]))
                if value_before is None or value_after is None:
                    self.unreadable.add("throttle")
                elif value_after - value_before > THROTTLE_US:
                    self._throttled(g, name, f"for {(value_after - value_before) / 1e6:.3f} s", value_before, value_after)

    def _compare_lifetime(self, g: dict[str, t.Any], gpu_after: dict[str, t.Any]) -> None:
        """Record uncorrectable memory errors that only the counter of the device's life shows.

        Without persistence mode the driver is unloaded when a test ends, and its own counters begin anew.
        """
        value_before, value_after = plain(g["ecc"]["aggregate_uncorrected"]), plain(gpu_after["ecc"]["aggregate_uncorrected"])
        if value_before is not None and value_after is not None and value_after > value_before and not self._has("ecc", g):
            words = f"the uncorrectable memory errors of its life rose from {value_before} to {value_after}"
            self._change("ecc", g, f"{gpu.word(g)} {g['index']}: {words}", value_before, value_after)

    def _compare_links(self, errors_after: dict[str, dict[str, int]] | None) -> None:
        code, link = self.accelerator.link_code, self.accelerator.link
        if errors_after is None or self.links is None:
            self.unreadable.add(code)
            return
        for g in self.before["gpus"]:
            counts_before, counts_after = self.links.get(g["uuid"], {}), errors_after.get(g["uuid"], {})
            if set(counts_before) != set(counts_after):
                self.unreadable.add(code)
            for kind in sorted(set(counts_before) & set(counts_after)):
                if counts_after[kind] > counts_before[kind]:
                    text = f"{gpu.word(g)} {g['index']}: {link} {kind} errors rose from {counts_before[kind]} to {counts_after[kind]}"
                    self._change(code, g, text, counts_before[kind], counts_after[kind])

    def _compare_health(self) -> None:
        """Record what a health check finds after the test and did not find before it."""
        gpus_before, down = {g["uuid"]: g for g in self.before["gpus"]}, self.accelerator.links_beside(self.after)
        if down is None or self.links_down is None:
            self.unreadable.add(self.accelerator.links_code)
        if down is None and self.links_down is not None:
            down = self.accelerator.links_unreadable(self.after)
        siblings_after, siblings_before = self.accelerator.siblings(self.after), self.accelerator.siblings(self.before)
        for g in self.after["gpus"]:
            if g["uuid"] not in gpus_before:
                self._change("gpu_state", g, f"{gpu.name(g)} was not there before the test")
                continue
            old = [*self.accelerator.health(gpus_before[g["uuid"]]), *siblings_before.get(g["uuid"], [])]
            problems = [problem for problem in [*self.accelerator.health(g), *siblings_after.get(g["uuid"], [])] if problem not in old]
            problem = (down or {}).get(g["uuid"])
            if problem and self.links_down is not None and self.links_down.get(g["uuid"]) != problem:
                problems.append(problem)
            for code, words in problems:
                if not self._counted(code, words, g):
                    self._change(code, g, f"{gpu.word(g)} {g['index']}: {words}")

    def _counted(self, code: str, words: str, g: dict[str, t.Any]) -> bool:
        """Return True if a counter of a health check (`3 uncorrectable memory errors ...`) is already recorded, as equally grave."""
        return words[:1].isdigit() and (self._has(code, g) or (code == "ecc_past" and self._has("ecc", g)))

    def _has(self, code: str, g: dict[str, t.Any]) -> bool:
        """Return True if a change with the meaning of this code has already been recorded for a GPU."""
        return any(MEANS.get(c["code"], c["code"]) == code and c["part"] == f"gpu/{g['uuid']}" for c in self.changes)

    # Kernel log --------------------------------------------------------------------------------------------------

    def _read_kernel_log(self) -> None:
        code_unread = self.accelerator.log_code or "kernel_log"
        if self.kernel_log is None:
            self.unreadable.add(code_unread)
            return
        of_machine: list[kernel_log.Line] = []
        test_pids = _Pids(self.last_pid)
        recorded: dict[tuple[t.Any, ...], dict[str, t.Any]] = {}
        for line in self.kernel_log.lines():
            event = self.accelerator.logged(line.text)
            if not event:
                of_machine.append(line)
                continue
            g = self._at(event.where)
            code = event.own_code if event.own_code != event.code and test_pids.may_be(event.pid) else event.code
            key = (code, event.name, event.where)
            if key in recorded:
                recorded[key]["after"] += 1
            else:
                self._change(code, g, event.words, 0, 1)
                recorded[key] = self.changes[-1]
        self.changes += of_host.logged(of_machine, Tree(self.node))
        if self.kernel_log.lost:
            self.unreadable.add(code_unread)
        self.kernel_log.close()

    def _change(
        self, code: str, g: dict[str, t.Any] | None, text: str, value_before: float | None = None, value_after: float | None = None
    ) -> None:
        part = f"gpu/{g['uuid']}" if g else ""
        self.changes.append({"code": code, "part": part, "text": text, "before": value_before, "after": value_after})


def quiet(earlier: t.Any, later: t.Any) -> bool:
    """Return True if nothing has happened on a node between two states of Window.state(). Their "counters" may be any value that changes
    with the counters."""
    if not isinstance(earlier, dict) or not isinstance(later, dict) or earlier["counters"] != later["counters"]:
        return False
    if earlier["log"] is None or later["log"] is None:
        return earlier["log"] is later["log"]  # nobody may read it, which the evidence says
    (_first, last, error), (first, _last, now_error) = earlier["log"], later["log"]
    return bool(first <= last + 1 and error == now_error)  # no line between the two was overwritten, and none tells of an error


def _log(path: str, accelerator: base.Accelerator) -> list[int | None] | None:
    """Return the numbers of the kernel log's first line, of its last line, and of the last line with an error of a device or of the
    machine; None if the log may not be read."""
    log = kernel_log.at_start(path)
    if log is None:
        return None
    positions: list[int | None] = [None, None, None]
    for line in log.lines():
        if line.sequence is not None:
            first = line.sequence if positions[0] is None else positions[0]
            is_error = accelerator.logged(line.text) or kernel.read(line.text)
            positions = [first, line.sequence, line.sequence if is_error else positions[2]]
    log.close()
    return None if positions[0] is None else positions


class LoggedErrors:
    """The events on a node during tests without a Window: `with LoggedErrors(node) as logged:` run them; then `logged.changes` has, in
    the form of Window.evidence(), the errors of accelerators and of the machine that the kernel logged (none if the log may not be read),
    and what changed for the worse on the machine. Tests of ports compare the ports' own counters."""

    def __init__(self, node: Node) -> None:
        self.kinds = [registry.make(kind, node) for kind, accelerator in registry.KINDS.items() if accelerator.log_code]
        self.path = node.path(kernel_log.PATH)
        self.tree = Tree(node)
        self.changes: list[dict[str, t.Any]] = []

    def __enter__(self) -> LoggedErrors:
        self.log = kernel_log.at_end(self.path)
        self.host = of_host.read(self.tree)
        return self

    def __exit__(self, *_error: object) -> None:
        of_machine = [change for change in of_host.between(self.host, of_host.read(self.tree)) if not change["part"]]
        self.changes = [*self._logged(), *of_machine]

    def _logged(self) -> list[dict[str, t.Any]]:
        if self.log is None:
            return []
        of_machine: list[kernel_log.Line] = []
        recorded: dict[tuple[str, str, str | None], dict[str, t.Any]] = {}
        for line in self.log.lines():
            events = [event for kind in self.kinds if (event := kind.logged(line.text))]
            if not events:
                of_machine.append(line)
            for event in events:
                prefix = f"the GPU at {event.where}: " if event.where else ""
                change = {"code": event.code, "part": "", "text": f"{prefix}{event.words}", "at": line.when(), "before": 0, "after": 0}
                recorded.setdefault((event.code, event.name, event.where), change)["after"] += 1
        self.log.close()
        return [*recorded.values(), *of_host.logged(of_machine, self.tree)]


# Where the kernel begins again at the end of the range of pids (RESERVED_PIDS, kernel/pid.c): smaller ones are of the boot.
_FIRST_PID_AGAIN = 300


class _Pids:
    """The pids that may belong to the test: processes started since the window began. The kernel gives numbers in order and begins again at
    the end of the range. In a container the kernel's numbers differ from those that it sees."""

    def __init__(self, pid_before: int | None) -> None:
        self.before = pid_before
        self.last = None if container.is_inside() else _last_pid()

    def may_be(self, pid: int | None) -> bool:
        """Return False only if the process is certainly older than the window."""
        if pid is None or self.before is None or self.last is None:
            return True
        if self.before <= self.last:
            return self.before < pid <= self.last
        return pid > self.before or _FIRST_PID_AGAIN <= pid <= self.last


def _last_pid() -> int | None:
    """The number of the process that was started last on this machine (proc(5), /proc/loadavg)."""
    try:
        with open("/proc/loadavg", encoding="ascii") as source:
            return int(source.read().split()[4]) or None
    except (OSError, ValueError, IndexError):
        return None
