# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""File systems for the drill: nodes with folders that stand for them, mounted as a text says, and with a fio that prints what the file
system would give. The real probe measures them, and they are judged as in a run. Nothing is mounted, and nobody waits."""

from __future__ import annotations

import builtins
import contextlib
import errno
import fcntl
import io
import json
import os
import pathlib
import random
import re
import time
import types
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import common_start
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import folder as lease
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import storage
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage import (
    alone,
    base,
    checks,
    shared_exchange,
    shared_files,
    together,
    touching,
)
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import apart, interfaces, session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.process import CommandResult
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import Completer
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry, storage_together
from harness import report_samples as samples

STAGE, TOGETHER = "storage", "storage_together"
GIB = 1 << 30
TOKEN = "ab12cd34"
PARAMS = {
    "tests": list(checks.CHECKS), "gib": 0.05, "share": 5.0, "seconds": 10.0, "jobs": 2, "depth": 4, "direct": True, "nodes": 1,
    "answer_timeout": 20.0, "test_timeout": 20.0, "files": 100, "pjdfstest": "", "patience": 0.0,
    "ask_timeout": 20.0,
}  # fmt: skip
# An answer of fio: it changes the JSON, or gives (exit status, standard output, standard error); None: it never ends.
Change = t.Callable[[t.Dict[str, t.Any]], t.Any]


class Disk:
    """A file system as one node has it. Rates in GiB/s by check, `few` and `all` of those of nodes together."""

    def __init__(self, kind: str, options: str, source: str, rates: dict[str, float]) -> None:
        self.kind, self.options, self.source, self.rates = kind, options, source, rates
        self.is_mounted = True
        self.space = {"size": 4000 * GIB, "free": 3000 * GIB, "inodes": 10**8, "free_inodes": 9 * 10**7}
        # Raised by each look at it, or how long a look lasts.
        self.error = 0
        self.hangs = False
        self.metadata_s = 0.02
        # {check, or a way of many nodes with the number of its run: what fio does there, and for how many seconds it stalls}
        self.fio: dict[str, Change] = {}
        self.stalls: dict[str, float] = {}
        self.has_fio = True
        self.small_ms = 0.6
        self.mbps = 100000
        # Between nodes.
        self.ready_s = 0.0
        self.blind: set[int] = set()
        self.owner: tuple[int, int] | None = None
        self.sees_next_as: tuple[int, int] | None = None
        self.echo: dict[str, t.Any] = {"trips": 40, "ms": 2.0, "most_ms": 9.0}
        self.replaced = {"missing": 0, "torn": 0}
        self.lacks_checkpoint: set[int] = set()


class Machine(Node):
    """A node whose fio is a stand-in."""

    def __init__(self, name: str, disk: Disk, ledger: session.Ledger, source: random.Random, maker: str, clock: Clock) -> None:
        super().__init__(600.0, ledger=ledger)
        self.name, self.disk, self.source, self.maker, self.clock = name, disk, source, maker, clock
        self.runs: dict[str, int] = {}

    def product(self) -> str:
        return self.maker

    def identity(self) -> dict[str, t.Any]:
        return {"machine_id": f"machine-{self.name}", "boot_id": f"boot-{self.name}"}

    def which(self, name: str) -> str | None:
        return None

    def run(self, argv: list[str], *_more: t.Any, **_others: t.Any) -> CommandResult:
        result = CommandResult(argv)
        if argv[0] != "fio" or not self.disk.has_fio:
            result.missing = "not found"
            return result
        words = {key: value for key, _equal, value in (word[2:].partition("=") for word in argv[1:])}
        document = self._document(words)
        change = self._change(words)
        answer: t.Any = (0, json.dumps(document, indent=1), "")
        if change is not None:
            answer = change(document) or (int(bool(document["jobs"][0].get("error"))), json.dumps(document, indent=1), "")
        if answer == "hangs":
            result.timed_out, result.rc, result.timeout_s = True, -9, 20.0
        else:
            result.rc, result.out, result.err = answer
        return result

    def _change(self, words: dict[str, str]) -> Change | None:
        """Return what goes wrong in this run: by the name of its check, or of a pattern or a step of many nodes with its number."""
        name = words["name"]
        is_step = "time_based" in words and words["bs"] == "1M"
        key = f"checkpoint_{name}" if "verify_pattern" in words else f"step_{name}" if is_step else name
        self.runs[key] = self.runs.get(key, 0) + 1
        self.clock.sleep(self.disk.stalls.get(f"{key} {self.runs[key]}", 0.0))
        return self.disk.fio.get(key) or self.disk.fio.get(f"{key} {self.runs[key]}")

    def _document(self, words: dict[str, str]) -> dict[str, t.Any]:
        name, jobs, size = words["name"], int(words["numjobs"]), int(words["size"])
        is_write = "write" in words["rw"]
        if is_write and name == "write" and "time_based" not in words:
            for job in range(jobs):
                path = os.path.join(words["directory"].replace(r"\:", ":"), words["filename_format"].replace("$jobnum", str(job)))
                with open(path, "wb") as target:
                    target.truncate(size)
        rate = self.disk.rates.get(name, 1.0)
        if "time_based" in words and words["bs"] == "1M":
            seconds = float(words["runtime"])
            rate = self._together(name, seconds < t.cast(float, PARAMS["seconds"]))
        rate *= self.source.uniform(0.995, 1.005)
        took_ms = size * jobs * 1e3 / max(1, int(rate * GIB))
        side = {
            "io_bytes": size * jobs, "bw_bytes": int(rate * GIB), "total_ios": rate * took_ms, "iops": rate * 1000.0, "runtime": took_ms,
            "clat_ns": {"mean": 200000.0, "percentile": {"99.000000": 900000}},
        }  # fmt: skip
        idle = {"io_bytes": 0, "bw_bytes": 0, "iops": 0.0}
        job = {"jobname": name, "error": 0, "read": idle, "write": idle}
        job["write" if is_write else "read"] = side
        version = self.source.choice(("fio-3.28", "fio-3.33", "fio-3.36"))
        return {"fio version": version, "jobs": [job]}

    def _together(self, way: str, is_few: bool) -> float:
        count = self.runs.get(f"step_{way}", 0)
        rates = self.disk.rates
        if is_few:
            return rates[f"few_{way}"]
        return rates.get(f"step_{way} {count + 1}", rates[f"few_{way}"])


class Clock:
    """A clock that is moved by whoever would wait."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class World:
    """What the probe's modules see of the machine that is measured: its mounts, its space, and the time."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.disk: Disk | None = None
        self.clock = Clock()

    @contextlib.contextmanager
    def entered(self) -> t.Iterator[None]:
        """Replace what the probe asks of its kernel while this lasts."""
        clock = types.SimpleNamespace(monotonic=self._now, sleep=self._sleep, time=time.time)
        changes: list[tuple[t.Any, str, t.Any]] = [
            (base, "open", self._open), (together, "open", self._open), (touching, "seen", self._seen),
            (touching, "many_files", self._many_files), (together, "time", clock), (shared_files, "time", clock),
            (common_start, "time", clock), (together, "_checkpoint", self._checkpoint),
            (shared_exchange, "echo", lambda *_asked: self._disk.echo), (shared_exchange, "replace", lambda *_asked: {"replaced": 300}),
            (shared_exchange, "watch", lambda *_asked: {"looks": 400, "generations": 200, "stale": 0, **self._disk.replaced}),
            (shared_exchange, "small_operations", lambda *_asked: self._disk.small_ms),
            (interfaces, "towards", lambda _server: "bond0"), (shared_files, "path_of", self._path_of),
            (shared_exchange, "owners", self._owners), (shared_files, "try_locks", self._try_locks),
            *((module, "apart", types.SimpleNamespace(call=self._call, NoAnswer=apart.NoAnswer)) for module in (base, alone, together)),
        ]  # fmt: skip
        self._own_path_of, self._own_owners = shared_files.path_of, shared_exchange.owners
        self._own_try_locks = shared_files.try_locks
        before = [(module, name, module.__dict__.get(name)) for module, name, _new in changes]
        try:
            for module, name, new in changes:
                setattr(module, name, new)
            yield
        finally:
            for module, name, old in before:
                if old is None:
                    delattr(module, name)
                else:
                    setattr(module, name, old)

    @property
    def _disk(self) -> Disk:
        assert self.disk is not None
        return self.disk

    def _now(self) -> float:
        return self.clock.monotonic()

    def _sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    def _open(self, path: t.Any, *more: t.Any, **others: t.Any) -> t.Any:
        if path == "/proc/self/mountinfo":
            disk = self._disk
            place = str(self.path).replace(" ", r"\040")
            lines = ["22 1 253:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro"]
            if disk.is_mounted:
                lines.append(f"81 22 0:53 / {place} {disk.options} shared:7 - {disk.kind} {disk.source} {disk.options.partition(',')[0]}")
            return io.StringIO("\n".join(lines) + "\n")
        if re.fullmatch(r"/sys/class/net/\w+/speed", str(path)):
            return io.StringIO(f"{self._disk.mbps}\n")
        return builtins.open(path, *more, **others)

    def _call(self, function: t.Callable[[], t.Any], seconds: float) -> t.Any:
        """Call a function here, which a process of its own would do as well; one that hangs gets its process."""
        if self._disk.hangs:
            return apart.call(function, seconds)
        try:
            return json.loads(json.dumps(function()))
        except OSError as error:
            raise OSError(error.errno or errno.EIO, os.strerror(error.errno or errno.EIO), str(error.filename or "")) from error

    def _try_locks(self, *where: t.Any) -> dict[str, str]:
        """Try the locks in another process than that which holds them."""
        return t.cast("dict[str, str]", apart.call(lambda: self._own_try_locks(*where), 20.0))

    def _seen(self, path: str) -> dict[str, t.Any]:
        disk = self._disk
        if disk.hangs:
            time.sleep(60)
        if disk.error:
            raise OSError(disk.error, os.strerror(disk.error), path)
        return {"path": os.path.realpath(path), "numbers": list(disk.space.values())}

    def _many_files(self, _path: str, count: int, _seconds: float) -> tuple[int, dict[str, float]]:
        return count, dict.fromkeys(("create", "stat", "unlink"), self._disk.metadata_s)

    def _path_of(self, parent: str, prefix: str, kind: str, token: str, number: int) -> str:
        return "" if number in self._disk.blind else self._own_path_of(parent, prefix, kind, token, number)

    def _owners(self, folder: str, parent: str, prefix: str, token: str, number: int, count: int) -> dict[str, t.Any]:
        found = self._own_owners(folder, parent, prefix, token, number, count)
        others = {"own": self._disk.owner, "next": self._disk.sees_next_as}
        return {**found, **{name: list(owner) for name, owner in others.items() if owner and name in found}}

    def _checkpoint(self, _parent: str, _token: str, number: int) -> tuple[str, list[int]]:
        jobs, size = t.cast(int, PARAMS["jobs"]), 8 << 20
        return (str(self.path), [size] * jobs) if number not in self._disk.lacks_checkpoint else ("", [])


class Fleet:
    """Nodes with one file system each, `shared` by all or their own; `entry` is that of acceptance_storage."""

    def __init__(self, source: random.Random, disks: dict[str, Disk], shared: bool, makers: t.Sequence[str] = ("Maker Model",)) -> None:
        self.source, self.disks, self.shared = source, disks, shared
        self.entry: dict[str, t.Any] = {"name": source.choice(("scratch", "lustre-1", "data")), "shared": shared}
        self.makers = {name: makers[place % len(makers)] for place, name in enumerate(disks)}
        self.options: dict[str, t.Any] = {}
        self.checks = [check for check in checks.CHECKS if not shared or check in checks.OF_SHARED]
        # Whether the locks of the first node hold for others, and what became of what a node has handed over: {node: change of its bytes}.
        self.locks_hold = True
        self.handed: dict[int, t.Callable[[bytes], bytes]] = {}
        self.owners: dict[int, tuple[int, int]] = {}

    @property
    def variant(self) -> str:
        return f"storage={self.entry['name']}"

    def judged(self, folder: pathlib.Path) -> verdict.Judgement:
        """Measure the file system from each node alone, and judge."""
        world, (completers, items) = World(folder / "file system"), self._run(folder, STAGE, self.checks)
        records: list[t.Any] = []
        with world.entered():
            for name, disk in self.disks.items():
                world.disk = disk
                asked = [{"check": check, "variant": self.variant} for check in self.checks]
                params = {**PARAMS, "nodes": len(self.disks), **self.options, "checks": asked}
                params["storage"] = [{**self.entry, "path": str(world.path)}]
                machine = self._machine(folder, name, world.clock)
                records += [completers[name].complete(one) for one in storage.probe(params, machine)]
        assert not list(world.path.iterdir()), "something is left"
        return self._verdict(STAGE, items, records)

    def judged_together(self, folder: pathlib.Path) -> verdict.Judgement:
        """Measure the file system from all nodes by a timetable, one node after the other, and judge."""
        world, (completers, items) = World(folder / "file system"), self._run(folder, TOGETHER, checks.OF_MANY)
        names = list(self.disks)
        table = {"storage": self.entry["name"], "nodes": names, "sizes": storage_together.steps(len(names)), "token": TOKEN, "at": 0.0}
        records: list[t.Any] = []
        with world.entered():
            for index, (name, disk) in enumerate(self.disks.items()):
                world.disk, world.clock = disk, Clock()
                params = {
                    **PARAMS, "nodes": len(names), **self.options, "storage": [{**self.entry, "path": str(world.path)}],
                    "checks": [{"check": check, "variant": self.variant} for check in checks.OF_MANY], "begins_in": 60.0 - disk.ready_s,
                    "timetables": [table], "own_name": name,
                }  # fmt: skip
                machine = self._machine(folder, name, world.clock)
                with self._others(world, index, len(names)):
                    records += [completers[name].complete(one) for one in storage.probe(params, machine)]
        return self._verdict(TOGETHER, items, records)

    def _machine(self, folder: pathlib.Path, name: str, clock: Clock) -> Machine:
        state = folder / "state" / name
        state.mkdir(parents=True)
        return Machine(name, self.disks[name], session.Ledger(str(state)), self.source, self.makers[name], clock)

    def _run(self, folder: pathlib.Path, stage: str, checks: t.Iterable[str]) -> tuple[dict[str, Completer], list[dict[str, t.Any]]]:
        run = Run(folder, samples.RUN)
        completers: dict[str, Completer] = {}
        items: list[dict[str, t.Any]] = []
        run.dir.mkdir(parents=True)
        (folder / "file system").mkdir()
        for name in self.disks:
            subject = {"kind": "node", "id": name, "members": []}
            own = [{"stage": stage, "check": check, "variant": self.variant, "target": name, "subject": subject} for check in checks]
            completers[name] = Completer(run, stage, name, "ssh", {(i["check"], i["variant"], name): t.cast(t.Any, i) for i in own})
            items += own
        return completers, items

    def _verdict(self, stage: str, items: list[dict[str, t.Any]], records: list[t.Any]) -> verdict.Judgement:
        plan, known = samples.plan(list(self.disks), [stage], items=items), expectations.shipped()
        return verdict.judge(t.cast(t.Any, plan), records, lambda *_who: known, stages=registry.shipped().values())

    @contextlib.contextmanager
    def _others(self, world: World, index: int, count: int) -> t.Iterator[None]:
        """The folders of the other nodes, with what they have handed over, while one node looks; the first of them holds its locks."""
        held: list[int] = []
        made: list[pathlib.Path] = []
        for number in range(count):
            if number == index:
                continue
            folder = world.path / (lease.PREFIX + shared_files.folder_token(TOKEN, number))
            folder.mkdir()
            made.append(folder)
            shared_exchange.prepare(str(folder), TOKEN, number)
            shared_files.hand_over(str(folder), TOKEN, number)
            path = folder / f"hand-{TOKEN}-{number}"
            if number in self.handed:
                path.write_bytes(self.handed[number](path.read_bytes()))
            if number in self.owners:
                os.chown(path, *self.owners[number])
            if number == 0 and self.locks_hold:
                for kind, take in ((shared_files.FCNTL, fcntl.lockf), (shared_files.FLOCK, fcntl.flock)):
                    handle = os.open(folder / f"{kind}-{TOKEN}-0", os.O_RDWR)
                    take(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    held.append(handle)
        try:
            yield
        finally:
            for handle in held:
                os.close(handle)
            for folder in made:
                for path in folder.iterdir():
                    path.unlink()
                folder.rmdir()
