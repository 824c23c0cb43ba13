# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's log, read as /dev/kmsg gives it: `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT`.

The log is a ring: where the first sequence number is not 0, older lines were overwritten. Processes with root's rights may write into
/dev/kmsg too; the kernel marks their lines with a facility other than its own (0), and such lines are left out.
(Documentation/ABI/testing/dev-kmsg of Linux.)

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import typing as t

PATH = "/dev/kmsg"
# A record has at most 8 KiB; a ring of 64 MiB, which nobody has, holds fewer lines than this.
RECORD = 8192
MOST = 500000
# The kernel numbers its lines from 0; a log that is a file, as in a test, may begin with 1.
FIRST_LINE = 1
_HEADER = re.compile(r"(\d{1,6}),(\d{1,20}),(\d{1,20}),[^;]{0,200};(.*)", re.DOTALL)


class Line(t.NamedTuple):
    """One line of the kernel. `sequence` counts the lines since boot, `seconds` is the time since boot; None where the log says neither."""

    text: str
    sequence: int | None = None
    seconds: float | None = None

    def when(self) -> str:
        """The time of day at which it was logged, as `2026-11-24T03:12:45Z`; "at an unknown time" where the log does not say."""
        if self.seconds is None:
            return "at an unknown time"
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - time.monotonic() + self.seconds))


class KernelLog:
    """An open log. `lost` becomes True when lines were overwritten before they could be read, or when there were too many."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.lost = False

    def close(self) -> None:
        os.close(self.handle)

    def lines(self) -> t.Iterator[Line]:
        """Yield the kernel's lines from here to the end of what is logged by now."""
        pending = b""
        for _record in range(MOST):
            try:
                piece = os.read(self.handle, RECORD)
            except BrokenPipeError:  # the next read goes on behind what was overwritten
                self.lost = True
                continue
            except OSError:
                piece = b""
            if not piece:
                if pending:
                    yield from _parsed(pending)
                return
            complete, newline, pending = (pending + piece).rpartition(b"\n")
            if newline:
                yield from _parsed(complete)
        self.lost = True


def _parsed(data: bytes) -> t.Iterator[Line]:
    for row in data.decode("utf-8", "replace").split("\n"):
        if not row or row[0] == " ":  # properties of the record before: ` SUBSYSTEM=pci`
            continue
        match = _HEADER.fullmatch(row)
        if match is None:
            yield Line(row)
        elif int(match.group(1)) >> 3 == 0:
            yield Line(match.group(4), int(match.group(2)), int(match.group(3)) / 1e6)


def at_start(path: str) -> KernelLog | None:
    """The log from its oldest line on, or None where it may not be read."""
    try:
        return KernelLog(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return None


def at_end(path: str) -> KernelLog | None:
    """The log behind its last line, or None where it may not be read."""
    log = at_start(path)
    if log is None:
        return None
    try:
        os.lseek(log.handle, 0, os.SEEK_END)
        with contextlib.suppress(BlockingIOError, BrokenPipeError):  # nothing new yet, which is what we want
            os.read(log.handle, RECORD)
    except OSError:
        log.close()
        return None
    return log


class Boot(t.NamedTuple):
    """The lines of a log: `last` is {key: (what was made of the last line with this key, that line, number of lines)}. `complete`:
    the log reaches back to the boot. `since` is the time of its first line."""

    last: dict[t.Any, tuple[t.Any, Line, int]]
    complete: bool
    since: str | None


def since_boot(path: str, read: t.Callable[[str], tuple[t.Any, t.Any] | None]) -> Boot | None:
    """Return what `read` makes of the text of each line, as (key, anything), or None for a line that says nothing to it. Return None if
    the log may not be read."""
    log = at_start(path)
    if log is None:
        return None
    last: dict[t.Any, tuple[t.Any, Line, int]] = {}
    first: Line | None = None
    for line in log.lines():
        first = first or line
        entry = read(line.text)
        if entry:
            key, value = entry
            last[key] = (value, line, last[key][2] + 1 if key in last else 1)
    log.close()
    started = first is not None and first.sequence is not None and first.sequence > FIRST_LINE
    return Boot(last, not (started or log.lost), None if first is None or first.seconds is None else first.when())


def times(line: Line, count: int) -> str:
    """Return when a line was logged last, and how often since boot if more than once."""
    return f"{line.when()}, {count} times since boot" if count > 1 else line.when()
