# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect the files for a part of a node that is sent back: the output of its tool, the kernel's log and, where it is allowed, the archive
that the maker's own program writes.

That program takes minutes, writes to the disk of the node, and may hang on the very GPU that it is about. So it works in a folder that is a
lease, its files have a largest size, and its time is a part of the deadline. What it has written until it was ended is kept, under a name
that says so.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import base64
import contextlib
import os
import resource
import stat
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import base, registry
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease.folder import FolderLease
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import apart, kernel_log, process
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

TOOL_S, FOLDER_S = 60.0, 20.0
# The share of the time that the first try of a bug report has; the second one has the rest.
FIRST_TRY = 0.6
# Times the largest size of a file that must be free on the disk, for what the program writes beside it.
FREE = 3
# Characters of the kernel's log that are kept, its last ones.
LOG_LIMIT = 4 << 20
# Characters of a reason.
SHOWN = 300

# {"file", "content" (base64), "complete", "why"} of a file, and {"not_collected", "why"} of what there is none of.
Record = t.Dict[str, t.Any]


def collect(node: Node, bug_report: bool, limit: int, folder: str) -> t.Iterator[Record]:
    """Yield the files. `bug_report`: run the maker's program too, in a folder below `folder`, no file of it larger than `limit` bytes."""
    present = [accelerator for accelerator in (registry.make(kind, node) for kind in registry.KINDS) if accelerator.is_installed()]
    if not present:
        yield _nothing("output of a GPU's tool", "no tool of any kind of GPUs is on this node")
    for accelerator in present:
        hung = ""
        for name, options in accelerator.support.items():
            if hung:
                yield _nothing(name, f"{accelerator.program} hung before, for {hung}")
                continue
            result = node.run([accelerator.program, *options], timeout=TOOL_S, merge=True)
            why, hung = _why(result), name if result.timed_out else ""
            yield _file(name, result.out.encode("utf-8", "replace"), why) if result.out else _nothing(name, why or "it printed nothing")
    yield _kernel_log(node)
    for accelerator in present if bug_report else ():
        report = accelerator.bug_report
        if report is None:
            yield _nothing("bug report", f"no program of the maker is known for {accelerator.plural or accelerator.word}")
        else:
            yield from _bug_report(node, accelerator, report, limit, folder)


def _kernel_log(node: Node) -> Record:
    log = kernel_log.at_start(node.path(kernel_log.PATH))
    if log is None:
        return _nothing("kernel.log", f"{kernel_log.PATH} cannot be read{': it needs root (acceptance_become)' if os.geteuid() else ''}")
    try:
        text = "".join(f"{line.when()} {line.text}\n" for line in log.lines())
    finally:
        log.close()
    cut = len(text) > LOG_LIMIT
    why = "its first part is left out" if cut else "older lines were overwritten" if log.lost else ""
    return _file("kernel.log", text[-LOG_LIMIT:].encode("utf-8", "replace"), why)


# The maker's program ----------------------------------------------------------------------------------------------------------------------


def _bug_report(node: Node, accelerator: base.Accelerator, report: base.BugReport, limit: int, folder: str) -> t.Iterator[Record]:
    program = _program(node, accelerator, report)
    if not program:
        yield _nothing(report.program, "it is not on this node")
        return
    if os.geteuid():
        yield _nothing(report.program, "it needs root (acceptance_become)")
        return
    try:
        disk = os.statvfs(folder)
        if disk.f_bavail * disk.f_frsize < FREE * limit:
            yield _nothing(report.program, f"{folder} has less than {FREE * limit >> 20} MiB free")
            return
        with FolderLease(node, folder, FOLDER_S) as lease:
            first_s = node.remaining() * (FIRST_TRY if report.safe else 1.0)
            hung = yield from _try(node, [program], report, lease.path, first_s, limit)
            if hung and report.safe:
                yield from _try(node, [program, *report.safe], report, lease.path, node.remaining(), limit)
        if lease.left:
            yield _nothing("the end of the folder that it worked in", lease.left)
    except (OSError, apart.NoAnswer) as error:
        yield _nothing(report.program, f"{folder}: {getattr(error, 'strerror', None) or error}")


def _program(node: Node, accelerator: base.Accelerator, report: base.BugReport) -> str:
    """Return the path of the program: beside the tool if that has a path, else in PATH or where packages put it; empty if it is missing."""
    beside = [os.path.join(os.path.dirname(accelerator.program), report.program)] if "/" in accelerator.program else []
    return next((path for path in (*beside, report.program, *report.places) if node.which(path)), "")


def _try(node: Node, argv: list[str], report: base.BugReport, folder: str, seconds: float, limit: int) -> t.Generator[Record, None, bool]:
    """Run the program once, and yield what it wrote. Return True if it hung."""
    name = f"{os.path.splitext(report.program)[0]}{'-safe' if len(argv) > 1 else ''}.log"
    with _no_file_larger_than(limit):
        result = process.run(
            [*argv, *report.options, os.path.join(folder, name)], seconds, {"TMPDIR": folder, "HOME": folder}, cwd=folder, merge=True,
            on_start=node.record,
        )  # fmt: skip
    why = _why(result)
    written = f"{name}{report.suffix}"
    content = _written(os.path.join(folder, written), limit)
    if content is None:
        yield _nothing(written, why or "the program wrote no such file")
        return result.timed_out
    if len(content) >= limit:
        why = f"it reached the largest size of {limit >> 20} MiB (acceptance_bug_report_mib), and is cut"
    yield _file(written if not why else f"incomplete-{written}", content, why)
    return result.timed_out


@contextlib.contextmanager
def _no_file_larger_than(limit: int) -> t.Iterator[None]:
    """Let no process that is started meanwhile write a file of more than `limit` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _written(path: str, limit: int) -> bytes | None:
    """Return what a file has, of at most `limit` bytes; None if it is no file or cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with open(handle, "rb") as source:
        return source.read(limit) if stat.S_ISREG(os.fstat(handle).st_mode) else None


def _why(result: process.CommandResult) -> str:
    """Return why what a tool gave is not whole, empty if it is."""
    words = " ".join((result.out or result.err).split())[-SHOWN:]
    if result.missing:
        return f"{result.argv[0]}: {result.missing}"
    if result.timed_out:
        return f"it did not end within {result.timeout_s:.0f} s, and was ended"
    return "" if result.ok and not result.dropped else f"it ended with status {result.rc}: {words}"


def _file(name: str, content: bytes, why: str) -> Record:
    return {"file": name, "content": base64.b64encode(content).decode("ascii"), "complete": not why, "why": why}


def _nothing(what: str, why: str) -> Record:
    return {"not_collected": what, "why": why}
