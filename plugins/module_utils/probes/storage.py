# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""File systems that the inventory names: how they are mounted, that data comes back as it was written, and how fast they are.

Everything is written into a folder of our own (lease/folder.py), within a limit of bytes. Whatever touches the file system is a process of
its own that is not waited for: a server that is gone lets it sleep in the kernel, and the deadline of the probe holds all the same.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import findings, observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, plain
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params, PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import common_start
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import mounts, shared_exchange, shared_files
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import folder
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import fio, gdsio, prove
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import apart, container, interfaces, process, told
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

MOUNT, WRITE, VERIFY, READ, METADATA = "mount", "write", "verify", "read", "metadata"
RANDOM = ("random_read", "random_write")
# In the order in which they are made: what reads needs what was written, and random writes leave nothing that could be checked.
CHECKS = (MOUNT, WRITE, VERIFY, READ, *RANDOM, METADATA)
# Made only where they are named: reads and writes between a GPU and the file system, by a tool of NVIDIA's; the tests of pjdfstest.
GPUDIRECT, POSIX = "gpudirect", "posix"
NAMED = (*CHECKS, GPUDIRECT, POSIX)
# Those that nodes make together, by a timetable.
COHERENT, TOGETHER, CHECKPOINT, MODEL_LOAD = "coherent", "together", "checkpoint", "model_load"
OF_MANY = (COHERENT, TOGETHER, CHECKPOINT, MODEL_LOAD)
# Those of a file system that many nodes share and test at one time: the others would measure each node's share of one server.
OF_SHARED = (MOUNT, VERIFY, METADATA, POSIX)
BLOCK, GIB = 1 << 20, float(1 << 30)
# A first piece is written and thrown away: the first run is always the slowest. It also shows how much can be written in the time, and
# what is verified is then written over other data: if a write is lost, what is below has no checksums of fio's.
FIRST_BYTES = 64 << 20
# With less than LEAST_BYTES nothing can be measured. No node writes more than SHARED_BYTES to a file system that others test, too.
LEAST_BYTES, SHARED_BYTES = 16 << 20, 256 << 20
# Files with failed tests that a finding names.
SHOWN = 8
# No more than this share of what is free is taken: others write, too.
OF_FREE = 0.5
# Where the tests of pjdfstest may be.
PJDFSTEST = tuple(f"{folder}/pjdfstest/tests" for folder in ("/usr/share", "/usr/lib", "/usr/local/share", "/opt"))
# Seconds between what nodes see and the locks, and for which these are held; between two rates; that a node may be late;
# and by which two nodes may begin apart.
LOCK_S, BETWEEN_S, ON_TIME_S, SKEW_S = 15.0, 5.0, 2.0, 5.0
# How long nodes ask each other by files, and replace a file that the others read.
ECHO_S, REPLACE_S = 6.0, 4.0
# Each node is measured once with few others: alone where there are at most so many nodes, else in so many rounds.
ROUNDS = 16
# A pattern has so many times the time of a rate to be done. Small files that tell how long a synced operation takes.
PATTERN_TIMES, SMALL_FILES = 2.0, 50

# What a file system answers that is not there, that has lost its server, and that has shut itself down.
_MISSING = (errno.ENOENT, errno.ENOTDIR)
_STALE = (errno.ESTALE, errno.ENOTCONN)
_SHUT_DOWN = (errno.EIO, errno.ESHUTDOWN, errno.EUCLEAN, errno.ENXIO, errno.ENODEV)
_NOT_TESTED = "nothing was tested there"
# How fio writes files in whole.
_WRITING = ["--rw=write", "--bs=1M", "--refill_buffers=1", "--end_fsync=1"]


def default_checks(params: Params) -> list[dict[str, str]]:
    """Return the checks of a call that names none."""
    return [
        {"check": check, "variant": observation.variant(storage=entry["name"])}
        for entry in params["storage"] for check in params["tests"] if not entry.get("shared") or check in OF_SHARED
    ]  # fmt: skip


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """Yield an observation of the node for each check {"check": one of CHECKS, "variant": "storage=NAME"}."""
    if params.get("timetables") or params.get("meeting"):
        yield from _together(params, node)
        return
    for entry in params["storage"]:
        variant = observation.variant(storage=entry["name"])
        wanted = [check["check"] for check in params["checks"] if check["variant"] == variant]
        if wanted:
            yield from StorageTest(params, node, entry, wanted).observations()


def _together(params: Params, node: Node) -> t.Iterator[Observation]:
    """Yield the checks of many nodes, which begin together: at the moment that is told from outside, or that the first of them says."""
    try:
        if params.get("meeting"):
            message = told.message(node, **params["meeting"])
            if message is None:
                raise ReasonedError("timeout", f"which nodes work together was not told within {params['meeting']['within']:.0f} s")
            params = {**params, **{name: message[name] for name in ("timetables", "first", "own_name")}}
        if not any(params["own_name"] in table["nodes"] for table in params["timetables"]):
            raise ReasonedError("partner", "no other node takes part")
        first = params.get("first")
        if first and first["node"] == params["own_name"]:
            first = {**first, "address": ""}
        with common_start.Beginning(first, params["begins_in"], min(params["ask_timeout"], node.remaining())) as begin:
            yield from _by_timetables({**params, "begin": begin}, node)
    except ReasonedError as error:
        yield from (_not_made(check, error.reason_code, error.reason) for check in params["checks"])


def _by_timetables(params: Params, node: Node) -> t.Iterator[Observation]:
    entries = {entry["name"]: entry for entry in params["storage"]}
    own_tables = [table for table in params["timetables"] if params["own_name"] in table["nodes"]]
    tables = {observation.variant(storage=table["storage"]): table for table in own_tables}
    yield from (_not_made(check, "partner", "no other node takes part") for check in params["checks"] if check["variant"] not in tables)
    for variant, timetable in tables.items():
        wanted = [check["check"] for check in params["checks"] if check["variant"] == variant and check["check"] in OF_MANY]
        if wanted:
            yield from TogetherTest(params, node, entries[timetable["storage"]], wanted, timetable).observations()


def _not_made(check: t.Mapping[str, str], code: str, words: str) -> Observation:
    return observation.failed(check["check"], code, words, variant=check["variant"])


class Timeline(t.NamedTuple):
    """When the nodes do what, in seconds behind the beginning of their timetable. `exchange`: they ask each other by files; `steps`: the
    first step; `few`: the first round of few nodes, each of which takes `round_s`; `patterns`: the first of three, each of which has
    `pattern_s`; `end`: all is done."""

    exchange: float
    steps: float
    few: float
    round_s: float
    patterns: float
    pattern_s: float
    end: float

    @classmethod
    def of(cls, sizes: t.Sequence[int], seconds: float, patience: float) -> Timeline:
        exchange = patience + 2 * LOCK_S + BETWEEN_S
        steps = patience + 3 * LOCK_S + ECHO_S + REPLACE_S
        few = steps + 2 * len(sizes) * (seconds + BETWEEN_S)
        round_s, pattern_s = 2 * few_seconds(seconds) + BETWEEN_S, PATTERN_TIMES * seconds + BETWEEN_S
        patterns = few + -(-sizes[-1] // few_nodes(sizes[-1])) * round_s
        return cls(exchange, steps, few, round_s, patterns, pattern_s, patterns + 3 * pattern_s)


def few_nodes(count: int) -> int:
    """Return how many of `count` nodes are measured in one round of few."""
    return -(-count // ROUNDS)


def few_seconds(seconds: float) -> float:
    """Return how long each way is measured in a round of few, where a step measures it for `seconds`."""
    return max(min(2.0, seconds), seconds / 4)


class Look(t.NamedTuple):
    """A look at a file system: its path without links, its mount (None if it is not listed), in bytes its size and what is free for us, and
    its inodes and the free ones (0 if it does not count them). `problem` is a finding by which it cannot be tested, or None."""

    path: str = ""
    mount: mounts.Mounted | None = None
    size: int = 0
    free: int = 0
    inodes: int = 0
    free_inodes: int = 0
    problem: findings.Finding | None = None


class StorageTest:
    """The checks of one entry of acceptance_storage on this node."""

    def __init__(self, params: Params, node: Node, entry: PlainData, wanted: t.Sequence[str]) -> None:
        self.params = params
        self.node = node
        self.entry = entry
        self.wanted = wanted
        # A pod has the file system where its user mounts it; elsewhere the host's may lie below another root.
        self.path = entry["path"] if container.is_inside() else node.path(entry["path"])
        self.size_of_job = 0
        # What the name of the folder ends with, empty for random words.
        self.folder_token = ""
        # Chooses the data that fio writes. By itself fio writes the same data in each run: old blocks would pass for those that were
        # written, and storage that keeps equal blocks once would have nothing to write.
        self.seed = _new_seed()
        self.left = ""
        # Why the data stays in the memory of the machine, and why rates say nothing of the file system, if it does and they do not.
        self.in_memory = ""
        self.unlike = "" if params["direct"] else "storage_direct is false: they are those of the page cache"
        stated = {name: entry.get(f"gibps_{name}") for name in (READ, WRITE)}
        self.context: PlainData = {
            "storage": entry["name"], "machine": node.product(), "shared": bool(entry.get("shared")), "path": entry["path"],
            "direct": bool(params["direct"]), "stated": {name: value for name, value in stated.items() if value},
        }  # fmt: skip

    def observations(self) -> t.Iterator[Observation]:
        """Yield the checks that are wanted. The mount comes last: it is looked at before and after the load."""
        before = self.look()
        if before.mount:
            self.context["file_system"] = before.mount.kind
            if before.mount.is_cached:
                self.in_memory = f"{before.mount.words} keeps data in the memory of the machine, direct I/O or not"
            loop = mounts.loop_of(before.mount.source)
            if loop and (self.node.read(f"/sys/block/{loop}/loop/dio") or "0").strip() == "0":
                self.in_memory = f"{before.mount.source} is a file that is written and read through the page cache (losetup --direct-io=on)"
            self.unlike = self.in_memory or self.unlike
        others = [check for check in NAMED if check in self.wanted and check != MOUNT]
        if before.problem:
            _part, code, words = before.problem
            for check in others:
                yield self.failed(check, code, f"{words}: {_NOT_TESTED}")
        elif others:
            yield from self.tested(others, before)
        if MOUNT in self.wanted:
            yield self.of_mount(before, self.look() if others and not before.problem else before)

    # The file system itself -----------------------------------------------------------------------------------------

    def look(self) -> Look:
        """Look at the file system. One that does not answer is a finding."""
        seconds, name = self.params["answer_timeout"], f"{self.entry['name']} ({self.entry['path']})"
        try:
            seen = apart.call(lambda: _seen(self.path), seconds)
        except apart.NoAnswer:
            words = f"{name} does not answer within {seconds:g} s: its server, its network or its disk hangs"
            return Look(mount=self._mount(self.path), problem=("", "no_answer", words))
        except OSError as error:
            code = "mount_missing" if error.errno in _MISSING else "mount_stale" if error.errno in _STALE else "no_permission"
            code = "file_system" if error.errno in _SHUT_DOWN else code
            return Look(mount=self._mount(self.path), problem=("", code, f"{name}: {error.strerror}"))
        look = Look(seen["path"], self._mount(seen["path"], seen.get("mount_id")), *seen["numbers"])
        return look._replace(problem=self._problem(name, look))

    def _mount(self, path: str, mount_id: int | None = None) -> mounts.Mounted | None:
        try:
            with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as source:
                return mounts.mount_of(source.read(), path, mount_id)
        except OSError:
            return None

    def _problem(self, name: str, look: Look) -> findings.Finding | None:
        if look.mount is None:
            return "", "unsupported", f"{name}: /proc/self/mountinfo does not list the file system that it is on, so its kind is not known"
        kind = look.mount.kind
        is_alone = self.entry.get("shared") and not mounts.is_of_network(kind)
        if is_alone and kind not in mounts.OF_MACHINE:
            unknown = f"on {kind} at {look.mount.place}, of which it is not known whether several machines have it"
            return "", "unsupported", f"{name} should be shared and is {unknown}"
        if is_alone:
            alone = f"on {kind} at {look.mount.place}, a file system of this machine alone"
            return "", "mount_missing", f"{name} should be shared and is {alone}: it is not mounted"
        if look.mount.is_read_only:
            return "", "mount_read_only", f"{name} is mounted read-only ({kind} at {look.mount.place})"
        if look.size and look.free < LEAST_BYTES:
            return "", "mount_full", f"{name} is full: {look.free / GIB:.3f} of {look.size / GIB:.1f} GiB are free"
        if look.inodes and not look.free_inodes:
            return "", "mount_full", f"{name} is full: none of its {look.inodes} inodes is free"
        return None

    def of_mount(self, before: Look, after: Look) -> Observation:
        """Return the observation of the mount itself."""
        listed = list(dict.fromkeys(look.problem for look in (before, after) if look.problem))
        if self.left:
            listed.append(("", "no_answer", self.left))
        mount = after.mount or before.mount
        context = {
            **self.context,
            "mount": dict(mount._asdict(), options=list(mount.options)) if mount else None,
            "is_mount_point": bool(mount and mount.place == (after.path or before.path)),
            "size_gib": round(after.size / GIB, 3), "free_gib": round(after.free / GIB, 3),
            "looked_for": [f"mount, space and state of {self.entry['path']}"] if after.path else [],
            **({"unlike": self.in_memory} if self.in_memory else {}),
        }  # fmt: skip
        return findings.observed(MOUNT, listed, {"variant": self.variant, "context": context})

    # What is written ------------------------------------------------------------------------------------------------

    def tested(self, checks: list[str], look: Look) -> t.Iterator[Observation]:
        """Yield the checks that write. A file system that hangs ends them."""
        done: list[str] = []
        lease = folder.FolderLease(self.node, self.path, self.params["answer_timeout"], self.folder_token)
        try:
            owner = folder.Owner.of(self.node)
            seconds = self.params["answer_timeout"]
            abandoned = apart.call(lambda: folder.remove_abandoned(self.path, owner, seconds / 2), seconds)
            if abandoned:
                self.context["removed_first"] = abandoned
            with lease:
                for seen in self._in_folder(lease.path, checks, look):
                    done.append(seen["check"])
                    yield seen
        except (apart.NoAnswer, OSError, RuntimeError, ReasonedError) as error:
            code, words = _coded(error)
            for check in checks:
                if check not in done:
                    yield self.failed(check, code, f"{self.entry['path']}: {words}")
        self.left = lease.left

    def _in_folder(self, path: str, checks: list[str], look: Look) -> t.Iterator[Observation]:
        of_files = [check for check in checks if check not in (METADATA, GPUDIRECT, POSIX)]
        if of_files:
            yield from self._with_files(path, of_files, look)
        if METADATA in checks:
            yield self._metadata(path, look)
        if GPUDIRECT in checks:
            yield self._gpudirect(path, look)
        if POSIX in checks:
            yield self._posix(path)

    def _with_files(self, path: str, checks: list[str], look: Look) -> t.Iterator[Observation]:
        """Yield the checks of large files. What was not written whole is not read: it would be taken for wrong data."""
        try:
            written = self._write(path, look)
        except ReasonedError as error:
            yield from (self.failed(check, error.reason_code, error.reason) for check in checks)
            return
        wrong = self._wrong(WRITE, *written)
        for check in checks:
            if check == WRITE:
                yield self._measured(WRITE, *written)
            elif wrong:
                code, words = wrong
                # Where no check is about writing, the first one bears what was wrong there.
                bears = self.failed if WRITE in checks or check != checks[0] else self._broken
                yield bears(check, code, f"{words}: nothing was written that could be read")
            else:
                result, run = self._fio(path, check, self._again(check))
                yield self._measured(check, result, run)
                self._after(result)
        self._after(written[0])

    def _after(self, result: process.CommandResult) -> None:
        """Raise NoAnswer or OSError if fio was ended because the file system does not answer: what comes next would wait as long."""
        if result.timed_out:
            apart.call(lambda: _seen(self.path), self.params["answer_timeout"])

    def limit(self, look: Look) -> int:
        """Return how many bytes may be written. Raise ReasonedError if that is too little for a test."""
        if not look.size:
            raise ReasonedError("unsupported", f"{self.entry['path']}: it does not say how large it is, so nothing was written")
        share = self.params["share"] / 100.0
        nodes = max(1, self.params["nodes"]) if self.entry.get("shared") else 1
        among = f", among {nodes} nodes" if nodes > 1 else ""
        least = max(LEAST_BYTES, self.params["jobs"] * BLOCK)
        limits = {
            f"storage_gib ({self.params['gib']:g} GiB)": self.params["gib"] * GIB,
            f"storage_share ({self.params['share']:g} % of {look.size / GIB:.1f} GiB{among})": share * look.size / nodes,
            f"half of the {look.free / GIB:.2f} GiB that are free{among}": OF_FREE * look.free / nodes,
        }
        why = min(limits, key=lambda name: limits[name])
        if limits[why] < least:
            words = f"at least {least >> 20} MiB are needed for {self.params['jobs']} jobs, and {why} is less"
            raise ReasonedError("disk_full", f"{self.entry['path']}: {words}")
        return int(min(limits[why], SHARED_BYTES) if self.entry.get("shared") else limits[why])

    def _write(self, path: str, look: Look) -> tuple[process.CommandResult, fio.FioRun]:
        """Write the files that the other checks read: first a piece that nobody counts, then as much as fits into time and limit."""
        most, jobs = self.limit(look), self.params["jobs"]
        self.size_of_job = _job_size(min(FIRST_BYTES, most), jobs)
        first = self._fio(path, WRITE, _WRITING)
        if self._wrong(WRITE, *first):
            return first
        rate = first[1].write.rate
        if not self.entry.get("shared") and not isinstance(rate, Absent):
            self.size_of_job = _job_size(int(min(most, max(FIRST_BYTES, rate * self.params["seconds"]))), jobs)
        self.seed = _new_seed()
        return self._fio(path, WRITE, self._again(WRITE))

    def _again(self, check: str) -> list[str]:
        """Return fio's options of one check, besides those of all."""
        if check in RANDOM:
            timed = ["--bs=4k", "--time_based=1", f"--runtime={self.params['seconds']:g}"]
            return [f"--rw={'randread' if check == RANDOM[0] else 'randwrite'}", *timed, "--allow_file_create=0"]
        if check == WRITE:
            # What is written carries a checksum for each block, which the check VERIFY reads.
            return [*_WRITING, "--verify=crc32c", "--do_verify=0"]
        return ["--rw=read", "--bs=1M", "--allow_file_create=0", *(["--verify=crc32c", "--verify_fatal=1"] if check == VERIFY else [])]

    def _fio(self, path: str, check: str, options: list[str]) -> tuple[process.CommandResult, fio.FioRun]:
        argv = [
            # A colon would begin a second folder. Threads end with their process; processes of fio's would not.
            "fio", f"--name={check}", "--directory=" + path.replace(":", r"\:"), "--thread=1",
            "--filename_format=data.$jobnum", f"--numjobs={self.params['jobs']}",
            f"--size={self.size_of_job}", "--ioengine=libaio", f"--iodepth={self.params['depth']}",
            f"--direct={int(self.params['direct'])}", "--invalidate=1", f"--randseed={self.seed}",
            "--fallocate=none", "--group_reporting=1", "--verify_state_save=0", "--eta=never", "--output-format=json",
            *options,
        ]  # fmt: skip
        result = self.node.run(argv, timeout=self.params["test_timeout"])
        return result, fio.parse(result.out)

    def _measured(self, check: str, result: process.CommandResult, run: fio.FioRun) -> Observation:
        fields: PlainData = {"command": result.argv, "raw": result.raw, "tool_version": run.version or None}
        fields["duration_s"] = result.duration_s
        wrong = self._wrong(check, result, run)
        if wrong:
            return self._broken(check, *wrong, **fields)
        side = run.write if check in (WRITE, "random_write") else run.read
        context = {
            **self.context, "gib": round(float(plain(side.io_bytes) or 0) / GIB, 3), "mean_us": plain(side.mean_us),
            "p99_us": plain(side.p99_us), "jobs": self.params["jobs"], "depth": self.params["depth"],
        }  # fmt: skip
        context.update({"comparable": False, "unlike": self.unlike} if self.unlike else {})
        name, unit, value = ("iops", "count", side.iops) if check in RANDOM else ("bandwidth", "GiB/s", side.rate)
        if isinstance(value, Absent) or value <= 0:
            return self.failed(check, "no_result", f"fio gave no number: {value.why if isinstance(value, Absent) else value}", **fields)
        metrics = {name: {"value": value / GIB if name == "bandwidth" else value, "unit": unit}}
        return observation.measured(check, variant=self.variant, metrics=metrics, context=context, **fields)

    def _wrong(self, check: str, result: process.CommandResult, run: fio.FioRun) -> tuple[str, str] | None:
        """Return why a run of fio is no measurement, as (reason code, words)."""
        path = self.entry["path"]
        if result.missing:
            return "tool_missing", f"fio: {result.missing}; install it on the node"
        if any(word in text for word in ("O_DIRECT", "direct=1") for text in (result.err, result.out)):
            return "unsupported", f"{path} does not take direct I/O (O_DIRECT); storage_direct: false tests it through the page cache"
        if run.problem and run.problem[0] not in ("no_result", "incomplete_output"):
            return run.problem[0], f"{path}: {check}: {run.problem[1]}"
        if result.timed_out:
            return "timeout", f"{path}: {check} did not end within {result.ended_after(self.params['test_timeout'])}"
        if result.rc != 0 or run.problem:
            words = " ".join(result.err.split()[-40:]) or (run.problem[1] if run.problem else "")
            return "tool_failed", f"{path}: fio ended with status {result.rc}: {words}"
        side, due = (run.write if check == WRITE else run.read), self.size_of_job * self.params["jobs"]
        if check not in RANDOM and plain(side.io_bytes) != due:
            return "incomplete_output", f"{path}: {check}: fio moved {plain(side.io_bytes)} bytes of {due}"
        return None

    def _metadata(self, path: str, look: Look) -> Observation:
        nodes, wanted = max(1, self.params["nodes"]) if self.entry.get("shared") else 1, int(self.params["files"])
        if look.inodes and OF_FREE * look.free_inodes < nodes * wanted:
            words = f"{nodes * wanted} files are more than half of the {look.free_inodes} inodes that are free"
            return self.failed(METADATA, "disk_full", f"{self.entry['path']}: {words}")
        asked, left = self.params["test_timeout"], self.node.remaining()
        seconds = min(asked, left)
        # Half of the time is for making them, so that all are removed within it.
        made, took = apart.call(lambda: _many_files(os.path.join(path, "many"), wanted, seconds / 2), seconds)
        if made < wanted:
            limit = "storage_test_timeout" if asked <= left else f"the {left:.0f} s that were left until the deadline, storage_timeout"
            words = f"{made} of {wanted} files were made in {seconds / 2:.0f} s, half of {limit}"
            return self.failed(METADATA, "timeout", f"{self.entry['path']}: {words}")
        total = sum(took.values())
        metrics = {"operations": {"value": 3 * made / total, "unit": "count"}}
        rates = {f"{name}_per_s": round(made / each, 1) for name, each in took.items()}
        context = {**self.context, "files": made, **rates}
        return observation.measured(METADATA, variant=self.variant, metrics=metrics, context=context, duration_s=round(total, 3))

    def _gpudirect(self, path: str, look: Look) -> Observation:
        """Write from the first GPU and read what was written, each compared by gdsio. Its rates are those of GPUDirect Storage only if the
        kernel has counted its reads and writes."""
        try:
            size = _job_size(self.limit(look), self.params["jobs"])
        except ReasonedError as error:
            return self.failed(GPUDIRECT, error.reason_code, error.reason)
        place, tool = os.path.join(path, "gds"), self.node.which("gdsio") or gdsio.TOOL
        apart.call(lambda: _emptied(path, place), self.params["answer_timeout"])
        asked = [tool, "-D", place, "-d", "0", "-w", str(self.params["jobs"]), "-s", f"{size >> 20}M", "-i", "1M", "-x", "0"]
        before = gdsio.counted(self.node.read(gdsio.COUNTERS))
        metrics: PlainData = {}
        raws: list[str] = []
        for way, more in ((WRITE, ["-I", "1", "-V"]), (READ, ["-I", "0"])):
            result = self.node.run([*asked, *more], timeout=self.params["test_timeout"])
            raws.append(result.raw)
            fields: PlainData = {"command": result.argv, "raw": "\n".join(raws)}
            if result.missing:
                return self.failed(GPUDIRECT, "tool_missing", f"gdsio: {result.missing}; install GPUDirect Storage on the node", **fields)
            if result.timed_out:
                return self.failed(GPUDIRECT, "timeout", f"{self.entry['path']}: gdsio did not end in time", **fields)
            lines = {line.way: line for line in gdsio.transfers(result.out)}
            if result.rc != 0 or not {way, READ} <= set(lines) or lines[way].rate <= 0:
                words = " ".join((result.err or result.out).split()[-40:]) or "it gave no number"
                return self.failed(
                    GPUDIRECT, "tool_failed", f"{self.entry['path']}: gdsio ended with status {result.rc}: {words}", **fields
                )
            metrics[way] = {"value": lines[way].rate, "unit": "GiB/s"}
        after = gdsio.counted(self.node.read(gdsio.COUNTERS))
        unseen = [way for way in (READ, WRITE) if after.get(way, 0) <= before.get(way, 0)]
        context = {**self.context, "gib": size * self.params["jobs"] / GIB, "not_looked_for": {"other_gpus": "gdsio used the first GPU"}}
        if unseen:
            words = f"{gdsio.COUNTERS} counted no {' and no '.join(unseen)}, so data may have gone through the memory of the machine"
            context.update(comparable=False, unlike=words)
        return observation.measured(GPUDIRECT, variant=self.variant, metrics=metrics, context=context, **fields)

    def _posix(self, path: str) -> Observation:
        """Run the tests of pjdfstest in a folder of their own."""
        wanted = self.params["pjdfstest"]
        tests = next((name for name in ([wanted] if wanted else PJDFSTEST) if os.path.isdir(name)), "")
        if not tests or not self.node.which("prove"):
            words = f"pjdfstest: no folder {wanted or ', '.join(PJDFSTEST)}" if not tests else "prove: it is not installed"
            return self.failed(POSIX, "tool_missing", f"{words}; install it on the node, or name its folder tests in storage_pjdfstest")
        place = os.path.join(path, POSIX)
        apart.call(lambda: os.mkdir(place, 0o755), self.params["answer_timeout"])
        result = self.node.run(["env", f"--chdir={place}", "prove", "-r", tests], timeout=self.params["test_timeout"])
        found = prove.parse(result.out)
        fields: PlainData = {"command": result.argv, "raw": result.raw, "duration_s": result.duration_s}
        if result.timed_out or found.result not in ("PASS", "FAIL") or not found.tests or (result.rc == 0) != (found.result == "PASS"):
            code = "timeout" if result.timed_out else "tool_failed"
            words = (
                result.ended_after(self.params["test_timeout"]) if result.timed_out else " ".join((result.err or result.out).split()[-40:])
            )
            return self.failed(POSIX, code, f"{self.entry['path']}: pjdfstest did not come to its end: {words}", **fields)
        failed = {os.path.relpath(name, tests): what for name, what in found.failed.items()}
        listed: list[findings.Finding] = []
        if found.result != "PASS":
            shown = ", ".join(f"{name} ({what})" for name, what in list(failed.items())[:SHOWN])
            more = f" and {len(failed) - SHOWN} more files" if len(failed) > SHOWN else ""
            words = f"{found.not_ok} of {found.tests} tests of pjdfstest failed: {shown}{more}"
            listed.append(("", "file_system", f"{self.entry['name']} ({self.entry['path']}): {words}"))
        context = {**self.context, "failed": failed, "tests": found.tests, "looked_for": [f"{found.tests} tests of pjdfstest"]}
        return findings.observed(POSIX, listed, {"variant": self.variant, "context": context, **fields})

    @property
    def variant(self) -> str:
        return observation.variant(storage=self.entry["name"])

    def _broken(self, check: str, code: str, words: str, **fields: t.Any) -> Observation:
        """Return a check that failed while the file system worked. A fault of the file system itself is a finding of the check."""
        found = [{"code": code, "part": "", "text": words}] if code in ("file_system", "mount_stale") else []
        return self.failed(check, code, words, findings=found, **fields)

    def failed(self, check: str, code: str, words: str, findings: t.Sequence[PlainData] = (), **fields: t.Any) -> Observation:
        context = {**self.context, **({"findings": list(findings)} if findings else {})}
        outcome = "timeout" if code == "timeout" else "missing" if code == "tool_missing" else "error"
        return observation.failed(check, code, words, outcome, variant=self.variant, context=context, **fields)


class TogetherTest(StorageTest):
    """The checks of a file system that all nodes use at one time, by a timetable: `nodes` are the names of all, `sizes` how many of them
    work together in each step, `at` is when the first of it begins, in seconds behind the common beginning. `index` is the number of this
    node among them."""

    def __init__(self, params: Params, node: Node, entry: PlainData, wanted: t.Sequence[str], timetable: PlainData) -> None:
        super().__init__(params, node, entry, wanted)
        self.timetable = timetable
        self.begin = float(params["begin"])
        self.lock_at = float(params["patience"]) + LOCK_S
        self.times = Timeline.of(timetable["sizes"], float(params["seconds"]), float(params["patience"]))
        names = timetable["nodes"]
        self.index = names.index(params["own_name"])
        self.folder_token = shared_files.folder_token(timetable["token"], self.index)
        self.context.update(nodes=names, sizes=timetable["sizes"], index=self.index, condition=True)
        stated = {name: entry.get(f"gibps_{name}_all") for name in (READ, WRITE)}
        self.context["stated"] = {name: value for name, value in stated.items() if value}

    def observations(self) -> t.Iterator[Observation]:
        """Yield the checks that are wanted. What is needed for them is written before the common beginning."""
        look = self.look()
        if look.mount:
            self.context["file_system"] = look.mount.kind
        if look.problem:
            _part, code, words = look.problem
            if COHERENT in self.wanted:
                yield findings.observed(COHERENT, [look.problem], {"variant": self.variant, "context": self.context})
            yield from (self.failed(check, code, f"{words}: {_NOT_TESTED}") for check in self.wanted if check != COHERENT)
            return
        last: Observation | None = None
        for seen in self.tested(list(self.wanted), look):
            if last:
                yield last
            last = seen
        if last and self.left and last["outcome"] == "measured":
            last = self.failed(last["check"], "no_answer", self.left)
        if last:
            yield last

    def _in_folder(self, path: str, checks: list[str], look: Look) -> t.Iterator[Observation]:
        table, seconds = self.timetable, self.params["answer_timeout"]
        late_s = -self._left(self.times.patterns)
        if late_s > ON_TIME_S:  # nothing can be measured any more, and what it wrote would slow down the others
            words = f"{self.entry['path']}: the node was ready {late_s:.0f} s behind the last step: nothing was written"
            yield from (self.failed(check, "partner", words) for check in checks)
            return
        apart.call(lambda: shared_exchange.prepare(path, table["token"], self.index), seconds)
        apart.call(lambda: shared_files.hand_over(path, table["token"], self.index), seconds)
        of_rates = [check for check in checks if check != COHERENT]
        wrong = self._prepare(path, look) if of_rates else None
        if COHERENT in checks:
            yield self._coherent(path)
        if wrong:
            self._wait(self.times.steps)  # the others still look at the files of this node
            for check in of_rates:
                bears = self.failed if check != of_rates[0] else self._broken
                yield bears(check, wrong[0], f"{wrong[1]}: nothing was written that could be read")
            return
        if TOGETHER in checks:
            yield self._together(path)
        if CHECKPOINT in checks or MODEL_LOAD in checks:
            yield from (seen for seen in self._patterns(path) if seen["check"] in checks)

    def _prepare(self, path: str, look: Look) -> tuple[str, str] | None:
        """Write the files that the steps write and read again; return why they could not be written."""
        try:
            self.size_of_job = _job_size(self.limit(look), self.params["jobs"])
        except ReasonedError as error:
            return error.reason_code, error.reason
        return self._wrong(WRITE, *self._fio(path, WRITE, _WRITING))

    def _wait(self, at: float) -> bool:
        """Wait for a moment of the timetable; return False if it is past."""
        left = self._left(at)
        time.sleep(max(0.0, left))
        return left > -ON_TIME_S

    def _coherent(self, path: str) -> Observation:
        """Look for what the others have written, and try the lock that the first node holds."""
        table, parent = self.timetable, self.path
        token, index, names = table["token"], self.index, table["nodes"]
        patience = self.params["answer_timeout"]
        if not self._wait(0.0):
            return self.failed(COHERENT, "partner", f"{self.entry['path']}: the node was ready {-self._left(0.0):.0f} s too late")
        held: dict[str, str] = {}
        missing = apart.call(
            lambda: shared_files.unseen(parent, folder.PREFIX, token, len(names), self.params["patience"]),
            self.params["patience"] + patience,
        )
        if index == 0:  # the others try at self.lock_at
            until = max(0.0, self._left(self.lock_at + LOCK_S))
            held = apart.call(lambda: shared_files.hold(path, token, 0, until), until + patience)
        listed: list[findings.Finding] = []
        name = f"{self.entry['name']} ({self.entry['path']})"
        # The next node; the one behind it, and so on, if that has written nothing.
        other = next((number for number in (*range(index + 1, len(names)), *range(index)) if number not in missing), None)
        if other is not None:
            wrong = apart.call(lambda: shared_files.read(parent, folder.PREFIX, token, other), patience)
            if wrong:
                listed.append(("", "wrong_results", f"{name}: what {names[other]} has written and synced is read with {wrong}"))
        if index and 0 not in missing:
            self._wait(self.lock_at)
            held = apart.call(lambda: shared_files.try_locks(parent, folder.PREFIX, token, 0), patience)
            if not self._is_still_held():
                held = dict.fromkeys(held, shared_files.LATE)
        unseen = {f"lock_{kind}": what for kind, what in held.items() if what not in ("taken", "refused")}
        if index and 0 in missing:
            unseen["locks"] = f"the files of {names[0]} are not seen"
        exchanged, untried = self._exchange(path, missing)
        replaced = exchanged.get("replaced") or {}
        if replaced.get("missing") or replaced.get("torn"):
            words = f"in {replaced['looks']} looks at a file that {names[0]} replaces by rename, {replaced['missing']} found no file"
            listed.append(("", "file_system", f"{name}: {words} and {replaced['torn']} read neither the old one nor the new one"))
        context = {
            **self.context,
            "locks": held,
            "unseen": [names[number] for number in missing],
            "looked_for": [f"files, locks and renames of {len(names)} nodes on {self.entry['path']}"],
            **exchanged,
        }
        context["not_looked_for"] = {**unseen, **untried}
        return findings.observed(COHERENT, listed, {"variant": self.variant, "context": context})

    def _exchange(self, path: str, missing: t.Sequence[int]) -> tuple[PlainData, dict[str, str]]:
        """Return what the nodes saw of each other's changes, and what was not tried with its reason."""
        table, parent, patience = self.timetable, self.path, self.params["answer_timeout"]
        token, index, count = table["token"], self.index, len(table["nodes"])
        found: PlainData = {
            "owners": apart.call(lambda: shared_exchange.owners(path, parent, folder.PREFIX, token, index, count), patience)
        }
        untried: dict[str, str] = {}
        if self._wait(self.times.exchange):
            asked = (path, parent, folder.PREFIX, token, index, count, ECHO_S)
            found["echo"] = apart.call(lambda: shared_exchange.echo(*asked), ECHO_S + patience)
            if not found["echo"]["trips"]:
                untried["visible"] = f"{table['nodes'][(index + 1) % count]} answered none of the questions in {ECHO_S:g} s"
        else:
            untried["visible"] = "the node was too late"
        if 0 in missing or not self._wait(self.times.exchange + ECHO_S + BETWEEN_S):
            untried["rename"] = f"the files of {table['nodes'][0]} are not seen" if 0 in missing else "the node was too late"
        elif index == 0:
            found["replaced"] = apart.call(lambda: shared_exchange.replace(path, token, 0, REPLACE_S), REPLACE_S + patience)
        else:
            looked = (parent, folder.PREFIX, token, 0, count, REPLACE_S)
            found["replaced"] = apart.call(lambda: shared_exchange.watch(*looked), REPLACE_S + patience)
            if found["replaced"]["generations"] < 2:
                untried["rename"] = f"{table['nodes'][0]} did not replace its file while it was looked at"
        return found, untried

    def _is_still_held(self) -> bool:
        """Return True if the first node holds its locks yet, although it may have begun SKEW_S before this one."""
        return self._left(self.lock_at + LOCK_S - SKEW_S) > 0

    def _left(self, at: float) -> float:
        return float(self.begin + self.timetable["at"] + at - time.monotonic())

    def _together(self, path: str) -> Observation:
        """Write and read with the other nodes in each step that this node is in, and once with few of them."""
        table, rows = self.timetable, []
        raws: list[str] = []
        for step, size in enumerate(table["sizes"]):
            if self.index >= size:
                continue
            for phase, way in enumerate((WRITE, READ)):
                if self._wait(self.times.steps + (2 * step + phase) * (self.params["seconds"] + BETWEEN_S)):
                    rate = self._timed(path, way, self.params["seconds"], raws)
                    if not isinstance(rate, float):
                        return self._broken(
                            TOGETHER, rate[0], f"{self.entry['path']}: {way} with {size} nodes: {rate[1]}", raw="\n".join(raws)
                        )
                    rows.append({"nodes": size, "way": way, "rate": rate})
        few: PlainData = {"nodes": few_nodes(len(table["nodes"]))}
        if self._wait(self.times.few + self.index // few["nodes"] * self.times.round_s):
            most_s = self.params["answer_timeout"]
            few["small_ms"] = apart.call(lambda: shared_exchange.small_operations(path, SMALL_FILES, 1.0), most_s)
            for way in (WRITE, READ):
                rate = self._timed(path, way, few_seconds(self.params["seconds"]), raws)
                if not isinstance(rate, float):
                    words = f"{self.entry['path']}: {way} with few nodes: {rate[1]}"
                    return self._broken(TOGETHER, rate[0], words, raw="\n".join(raws))
                few[way] = rate
        context = {**self.context, "series_units": {"rate": "GiB/s"}, "direct": bool(self.params["direct"]), "few": few}
        context["link"] = apart.call(lambda: _link(self.path), self.params["answer_timeout"])
        context["looked_for"] = [f"rates of {self.entry['path']} from {len(table['nodes'])} nodes at one time"]
        if self.unlike:
            context["unlike"] = self.unlike
        return observation.measured(TOGETHER, variant=self.variant, series=rows, context=context, raw="\n".join(raws))

    def _timed(self, path: str, way: str, seconds: float, raws: list[str]) -> float | tuple[str, str]:
        """Write or read for so many seconds; return the rate in GiB/s, or reason code and words of what went wrong."""
        timed = [f"--rw={way}", "--bs=1M", "--time_based=1", f"--runtime={seconds:g}", "--allow_file_create=0"]
        result, run = self._fio(path, way, timed)
        raws.append(result.raw)
        rate = (run.write if way == WRITE else run.read).rate
        if result.rc != 0 or run.problem or isinstance(rate, Absent) or rate <= 0:
            return run.problem or ("tool_failed", " ".join(result.err.split()[-40:]) or "it gave no number")
        return float(rate) / GIB

    # As programs use a shared file system ---------------------------------------------------------------------------

    def _patterns(self, path: str) -> t.Iterator[Observation]:
        """Yield CHECKPOINT: all nodes write their own files at once, and each reads those of the next node. Yield MODEL_LOAD: all read the
        files of the first node. Files are written through the page cache and synced, as programs do, and what is read has the pattern of
        its writer, its number and its place."""
        table = self.timetable
        raws: list[str] = []
        index, names = self.index, table["nodes"]
        row = self._saved(path, raws)
        read = self._loaded((index + 1) % len(names), 1, raws)
        context = {**self.context, "series_units": {"rate": "GiB/s", "gib": "GiB"}}
        for check, rows in ((CHECKPOINT, (row, read)), (MODEL_LOAD, (self._loaded(0, 2, raws),))):
            wrong = next((each for each in rows if isinstance(each, tuple)), None)
            if wrong:
                yield self._broken(check, wrong[0], f"{self.entry['path']}: {wrong[1]}", raw="\n".join(raws))
            else:
                looked = [f"data of {len(names)} nodes that others read on {self.entry['path']}"]
                more = {**context, "looked_for": looked}
                yield observation.measured(check, variant=self.variant, series=list(rows), context=more, raw="\n".join(raws))
            raws = []
        if not isinstance(row, tuple):
            self._wait(self.times.end)  # slower nodes still read the files of this one

    def _saved(self, path: str, raws: list[str]) -> PlainData | tuple[str, str]:
        """Write the node's checkpoint and give it its name at once when it is whole; return its rate, or why there is none."""
        token, index = self.timetable["token"], self.index
        partial = os.path.join(path, f"partial-{CHECKPOINT}")
        apart.call(lambda: _emptied(path, partial), self.params["answer_timeout"])
        row = self._pattern(WRITE, partial, index, (self.size_of_job, self.params["jobs"]), 0, raws)
        if not isinstance(row, tuple):
            # Its name says how large it is: one that has lost a file or the end of one would be read without an error.
            whole = os.path.join(path, f"{CHECKPOINT}.{self.params['jobs']}x{self.size_of_job}-{token}-{index}")
            apart.call(lambda: os.rename(partial, whole), self.params["answer_timeout"])
        return row

    def _loaded(self, number: int, phase: int, raws: list[str]) -> PlainData | tuple[str, str]:
        """Read the checkpoint of a node; return the rate, or why there is none."""
        self._wait(self.times.patterns + phase * self.times.pattern_s - BETWEEN_S / 2)
        seconds = self.params["answer_timeout"]
        path, sizes = apart.call(lambda: _checkpoint(self.path, self.timetable["token"], number), seconds)
        if not sizes:
            whose = f"the checkpoint of {self.timetable['nodes'][number]}"
            return ("wrong_results", f"{whose} {path}") if path else ("partner", f"{whose} is not there")
        return self._pattern(READ, path, number, (min(sizes), len(sizes)), phase, raws)

    def _pattern(
        self, way: str, path: str, number: int, files: tuple[int, int], phase: int, raws: list[str]
    ) -> PlainData | tuple[str, str]:
        """Write or read whole files, (bytes of each, how many), with the pattern of the node `number`."""
        if not self._wait(self.times.patterns + phase * self.times.pattern_s):
            return "partner", f"the node was ready {-self._left(self.times.patterns + phase * self.times.pattern_s):.0f} s too late"
        size, jobs = files
        seconds = PATTERN_TIMES * self.params["seconds"]
        pattern = hashlib.sha256(f"{self.timetable['token']} {number}".encode()).hexdigest()
        asked = ["--verify=pattern", f"--verify_pattern=0x{pattern}%o", f"--runtime={seconds:g}", "--bs=1M", f"--rw={way}", "--direct=0"]
        asked += ["--do_verify=0", "--end_fsync=1"] if way == WRITE else ["--verify_fatal=1", "--allow_file_create=0"]
        result, run = self._fio(path, way, [*asked, f"--size={size}", f"--numjobs={jobs}"])
        raws.append(result.raw)
        side = run.write if way == WRITE else run.read
        whose = f"{way} of the checkpoint of {self.timetable['nodes'][number]}"
        if run.problem:
            return run.problem[0], f"{whose}: {run.problem[1]}"
        if result.rc != 0 or isinstance(side.rate, Absent) or side.rate <= 0:
            return "tool_failed", f"{whose}: {' '.join(result.err.split()[-40:]) or 'it gave no number'}"
        moved = float(plain(side.io_bytes) or 0)
        if moved < size * jobs:
            return "timeout", f"{whose}: {moved / GIB:.3g} of {size * jobs / GIB:.3g} GiB in {seconds:g} s"
        return {"way": way, "rate": float(side.rate) / GIB, "gib": moved / GIB}


def _emptied(path: str, partial: str) -> None:
    """Remove the files of the steps, whose space the checkpoint needs, and make its folder. Runs in a process of its own."""
    for name in os.listdir(path):
        if name.startswith("data."):
            os.unlink(os.path.join(path, name))
    os.mkdir(partial, 0o700)


def _checkpoint(parent: str, token: str, number: int) -> tuple[str, list[int]]:
    """Return where the checkpoint of a node is and the sizes of its files, which its name tells; else what it has, and no sizes.
    Runs in a process of its own."""
    path = shared_files.path_of(parent, folder.PREFIX, f"{CHECKPOINT}.*", token, number)
    if not path:
        return "", []
    jobs, _x, size = os.path.basename(path).partition(".")[2].partition("-")[0].partition("x")
    with os.scandir(path) as entries:
        sizes = [entry.stat().st_size for entry in entries if entry.name.startswith("data.")]
    promised = [int(size)] * int(jobs)
    if sizes != promised and shared_files.is_gone(parent, folder.PREFIX, token, number):
        return "", []
    if sizes != promised:
        return f"has {len(sizes)} files with {sum(sizes)} bytes, and {len(promised)} with {sum(promised)} were written and synced", []
    return path, sizes


def _link(path: str) -> PlainData:
    """Return {"server", "interface", "mbps"} of the way to the server of a file system, as far as they are known. Runs in a process of its
    own: names may be asked for."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as source:
        mount = mounts.mount_of(source.read(), os.path.realpath(path), mounts.mount_id(path))
    server = mounts.server_of(mount.source) if mount else ""
    interface = interfaces.towards(server) if server else ""
    found: PlainData = {"server": server, "interface": interface}
    with contextlib.suppress(OSError, ValueError):
        with open(f"/sys/class/net/{interface}/speed", encoding="ascii") as source:
            speed = int(source.read())
        found.update({"mbps": speed} if speed > 0 else {})
    return {name: value for name, value in found.items() if value}


def _seen(path: str) -> PlainData:
    """Ask a file system; runs in a process of its own. The dot behind the path makes a mount happen that waits for its first use."""
    os.stat(os.path.join(path, "."))
    real, space = os.path.realpath(path), os.statvfs(path)
    numbers = [space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize, space.f_files, space.f_favail]
    return {"path": real, "mount_id": mounts.mount_id(path), "numbers": numbers}


def _many_files(path: str, count: int, seconds: float) -> tuple[int, dict[str, float]]:
    """Make, look at and remove `count` empty files, or as many as are made in `seconds`. Return how many, and the seconds of each step.
    Runs in a process of its own."""
    os.mkdir(path, 0o700)
    names: list[str] = []
    times = [time.monotonic()]
    while len(names) < count and time.monotonic() - times[0] < seconds:
        name = os.path.join(path, str(len(names)))
        names.append(name)
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    times.append(time.monotonic())
    for name in names:
        os.stat(name)
    times.append(time.monotonic())
    for name in names:
        os.unlink(name)
    times.append(time.monotonic())
    os.rmdir(path)
    return len(names), {name: max(times[at + 1] - times[at], 1e-6) for at, name in enumerate(("create", "stat", "unlink"))}


def _new_seed() -> int:
    return int.from_bytes(os.urandom(7), "big")


def _job_size(total: int, jobs: int) -> int:
    """Return the bytes of each job's file, whole blocks, so that all have at most `total` unless that is less than a block for each."""
    return max(BLOCK, total // jobs // BLOCK * BLOCK)


def _coded(error: Exception) -> tuple[str, str]:
    """Return reason code and words of what went wrong beside fio."""
    if isinstance(error, apart.NoAnswer):
        return "no_answer", f"{error}: its server, its network or its disk hangs"
    if isinstance(error, ReasonedError):
        return error.reason_code, error.reason
    if isinstance(error, OSError) and error.errno:
        return fio.CODES.get(error.errno, "preflight"), f"{error.strerror}{f' ({error.filename})' if error.filename else ''}"
    return "preflight", str(error)
