# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tests of a file system that one node makes by itself.

Everything is written into a folder of our own (lease/folder.py), within a limit of bytes. Whatever touches the file system is a process of
its own that is not waited for: a server that is gone lets it sleep in the kernel, and the deadline of the probe holds all the same.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import findings, observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, plain
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import mounts
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import folder
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import fio
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage import gpudirect, posix, touching
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage.base import OF_FREE, FileSystemTest, new_seed
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage.checks import (
    GPUDIRECT,
    METADATA,
    MOUNT,
    NAMED,
    POSIX,
    RANDOM,
    VERIFY,
    WRITE,
)
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage.touching import GIB, Look
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import apart, process

# A first piece is written and thrown away: the first run is always the slowest. It also shows how much can be written in the time, and
# what is verified is then written over other data: if a write is lost, what is below has no checksums of fio's.
FIRST_BYTES = 64 << 20
NOT_TESTED = "nothing was tested there"
# How fio writes files in whole.
WRITING = ["--rw=write", "--bs=1M", "--refill_buffers=1", "--end_fsync=1"]


class StorageTest(FileSystemTest):
    """The checks of one entry of acceptance_storage on this node."""

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
                yield self.failed(check, code, f"{words}: {NOT_TESTED}")
        elif others:
            yield from self.tested(others, before)
        if MOUNT in self.wanted:
            yield self.of_mount(before, self.look() if others and not before.problem else before)

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
            yield gpudirect.observed(self, path, look)
        if POSIX in checks:
            yield posix.observed(self, path)

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
                bears = self.failed if WRITE in checks or check != checks[0] else self.broken
                yield bears(check, code, f"{words}: nothing was written that could be read")
            else:
                result, run = self._fio(path, check, self._again(check))
                yield self._measured(check, result, run)
                self._after(result)
        self._after(written[0])

    def _after(self, result: process.CommandResult) -> None:
        """Raise NoAnswer or OSError if fio was ended because the file system does not answer: what comes next would wait as long."""
        if result.timed_out:
            apart.call(lambda: touching.seen(self.path), self.params["answer_timeout"])

    def _write(self, path: str, look: Look) -> tuple[process.CommandResult, fio.FioRun]:
        """Write the files that the other checks read: first a piece that nobody counts, then as much as fits into time and limit."""
        most, jobs = self.limit(look), self.params["jobs"]
        self.size_of_job = touching.job_size(min(FIRST_BYTES, most), jobs)
        first = self._fio(path, WRITE, WRITING)
        if self._wrong(WRITE, *first):
            return first
        rate = first[1].write.rate
        if not self.entry.get("shared") and not isinstance(rate, Absent):
            self.size_of_job = touching.job_size(int(min(most, max(FIRST_BYTES, rate * self.params["seconds"]))), jobs)
        self.seed = new_seed()
        return self._fio(path, WRITE, self._again(WRITE))

    def _again(self, check: str) -> list[str]:
        """Return fio's options of one check, besides those of all."""
        if check in RANDOM:
            timed = ["--bs=4k", "--time_based=1", f"--runtime={self.params['seconds']:g}"]
            return [f"--rw={'randread' if check == RANDOM[0] else 'randwrite'}", *timed, "--allow_file_create=0"]
        if check == WRITE:
            # What is written carries a checksum for each block, which the check VERIFY reads.
            return [*WRITING, "--verify=crc32c", "--do_verify=0"]
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
            return self.broken(check, *wrong, **fields)
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
        made, took = apart.call(lambda: touching.many_files(os.path.join(path, "many"), wanted, seconds / 2), seconds)
        if made < wanted:
            limit = "storage_test_timeout" if asked <= left else f"the {left:.0f} s that were left until the deadline, storage_timeout"
            words = f"{made} of {wanted} files were made in {seconds / 2:.0f} s, half of {limit}"
            return self.failed(METADATA, "timeout", f"{self.entry['path']}: {words}")
        total = sum(took.values())
        metrics = {"operations": {"value": 3 * made / total, "unit": "count"}}
        rates = {f"{name}_per_s": round(made / each, 1) for name, each in took.items()}
        context = {**self.context, "files": made, **rates}
        return observation.measured(METADATA, variant=self.variant, metrics=metrics, context=context, duration_s=round(total, 3))


def _coded(error: Exception) -> tuple[str, str]:
    """Return reason code and words of what went wrong beside fio."""
    if isinstance(error, apart.NoAnswer):
        return "no_answer", f"{error}: its server, its network or its disk hangs"
    if isinstance(error, ReasonedError):
        return error.reason_code, error.reason
    if isinstance(error, OSError) and error.errno:
        return fio.CODES.get(error.errno, "preflight"), f"{error.strerror}{f' ({error.filename})' if error.filename else ''}"
    return "preflight", str(error)
