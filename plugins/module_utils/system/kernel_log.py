# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's log, read as /dev/kmsg gives it: `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT`.

The log is a ring: where the first sequence number is not 0, older lines were overwritten. Processes with root's rights may write into
/dev/kmsg too; the kernel marks their lines with a facility other than its own (0), and such lines are left out.
(Documentation/ABI/testing/dev-kmsg of Linux.)

A record of several lines stands in one row there, and bytes that are not printable ASCII as `\\x0a`. `plain` makes the text of it, with
line feeds. It stays one record: what stands behind a line feed may come from a process, whose name the kernel printed.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import stat
import time
import typing as t


class Class(t.NamedTuple):
    """A class of errors that a driver logs: the reason code that decides the verdict, the code if the process belongs to our own test, and
    advice."""

    name: str
    code: str
    own_code: str
    advice: str


PATH = "/dev/kmsg"
# Its device (Documentation/admin-guide/devices.txt).
_DEVICE = os.makedev(1, 11)
# A record has at most 8 KiB; a ring of 64 MiB, which nobody has, holds fewer lines than this.
RECORD = 8192
MOST = 500000
# The kernel numbers its lines from 0; a log that is a file, as in a test, may begin with 1.
FIRST_LINE = 1
# Lines of one key within this time are counted together.
DAY_S = 86400.0
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")
# What consoles, dmesg, syslog and the journal put before the text: a priority, `<4>`, by `dmesg -x` `kern  :err   : `; a date, with the
# host where `kernel:` follows; a time in brackets: `[   12.345678] `, by `dmesg -T` `[Mon May 25 05:20:57 2026] `, by `dmesg -H`
# `[May25 05:20] ` and `[  +0.000012] `; the caller, `[  T123] `.
_CLOCK = r"\d\d:\d\d:\d\d"
_KERNEL = r"kernel(?:\[\d{1,8}\])?: "
_OF_KERNEL = rf"{_KERNEL}|kernel - \S{{1,32}} - "
_BEFORE = re.compile(
    r"(?:<\d{1,3}>(?:1 )?|kern *:[a-z]{2,7} *: )?"
    rf"(?:[A-Z][a-z]{{2}} [ \d]\d {_CLOCK}(?:\.\d{{1,9}})? \S{{1,64}} |"
    rf"(?:[A-Z][a-z]{{2}} )?\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?:[.,]\d{{1,9}})?(?:Z|[+-]\d\d:?\d\d)?"
    rf"(?:(?: [A-Z]{{2,5}})? \S{{1,64}} (?={_OF_KERNEL})| )|"
    rf"\d{{9,11}}\.\d{{6}} \S{{1,64}} (?={_OF_KERNEL}))?"
    rf"(?:{_OF_KERNEL})?"
    rf"(?:\[ *\d{{1,10}}\.\d{{6}}(?: <[ \d.]{{1,20}}>)?\] ?|\[[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [ \d]\d {_CLOCK} \d{{4}}\] ?|"
    r"\[[A-Z][a-z]{2} ?\d{1,2} \d\d:\d\d\] ?|\[ *\+\d{1,10}\.\d{6}\] ?)?"
    rf"(?:\S{{1,64}} {_KERNEL})?(?:\[ *[TC]\d{{1,8}}\] ?)?"
)
_BEGIN_BEFORE = frozenset("<[0123456789")
# Months, and days of the week before a date of the journal.
_BEGIN_DATE = frozenset((
    "Jan ", "Feb ", "Mar ", "Apr ", "May ", "Jun ", "Jul ", "Aug ", "Sep ", "Oct ", "Nov ", "Dec ",
    "Mon ", "Tue ", "Wed ", "Thu ", "Fri ", "Sat ", "Sun ",
))  # fmt: skip
_BEGIN_WORDS = ("kernel: ", "kernel[", "kern :", "kern  :", "kern:")
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


def plain(text: str) -> str:
    """Return the text of a message without what stands before it, and with its escaped bytes as they were printed."""
    if "\\x" in text:
        text = _ESCAPED.sub(lambda match: chr(int(match.group(1), 16)), text)
    if text[:1] in _BEGIN_BEFORE or text[:4] in _BEGIN_DATE or text.startswith(_BEGIN_WORDS):
        match = _BEFORE.match(text)
        return text[match.end() :] if match else text
    return text


def _parsed(data: bytes) -> t.Iterator[Line]:
    for row in data.decode("utf-8", "replace").split("\n"):
        if not row or row[0] == " ":  # properties of the record before: ` SUBSYSTEM=pci`
            continue
        match = _HEADER.fullmatch(row)
        if match is None:
            yield Line(plain(row))
        elif int(match.group(1)) >> 3 == 0:
            yield Line(plain(match.group(4)), int(match.group(2)), int(match.group(3)) / 1e6)


def at_start(path: str) -> KernelLog | None:
    """The log from its oldest line on, or None where it may not be read. Runtimes of containers put another device in its place, such as
    /dev/null or a console, which reads as a log without a line."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return None
    state = os.fstat(handle)
    if stat.S_ISREG(state.st_mode) or (stat.S_ISCHR(state.st_mode) and state.st_rdev == _DEVICE):
        return KernelLog(handle)
    os.close(handle)
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
    """The lines of a log: `last` is {key: (what was made of the last line with this key, that line, number of lines)}, in the order of
    these lines. `complete`: the log reaches back to the boot. `since` is the time of its first line. `busiest` is {key: most lines within
    one day}, `recent` {key: lines of the last day}, of keys whose lines have times."""

    last: dict[t.Any, tuple[t.Any, Line, int]]
    complete: bool
    since: str | None
    busiest: dict[t.Any, int]
    recent: dict[t.Any, int]


def since_boot(path: str, read: t.Callable[[str], tuple[t.Any, t.Any] | None]) -> Boot | None:
    """Return what `read` makes of the text of each line, as (key, anything), or None for a line that says nothing to it. Return None if
    the log may not be read, or has no line at all: the kernel has said something by the time that anything reads it."""
    log = at_start(path)
    if log is None:
        return None
    last: dict[t.Any, tuple[t.Any, Line, int]] = {}
    days: dict[t.Any, collections.deque[float]] = {}
    busiest: dict[t.Any, int] = {}
    first: Line | None = None
    for line in log.lines():
        first = first or line
        entry = read(line.text)
        if entry:
            key, value = entry
            count = last.pop(key)[2] + 1 if key in last else 1
            last[key] = (value, line, count)
            if line.seconds is not None:
                day = days.setdefault(key, collections.deque())
                day.append(line.seconds)
                while day[0] <= line.seconds - DAY_S:
                    day.popleft()
                busiest[key] = max(busiest.get(key, 0), len(day))
    log.close()
    if first is None:
        return None
    started = first.sequence is not None and first.sequence > FIRST_LINE
    now = time.monotonic()
    recent = {key: sum(seconds > now - DAY_S for seconds in day) for key, day in days.items()}
    since = None if first.seconds is None else first.when()
    return Boot(last, not (started or log.lost), since, busiest, recent)


def times(line: Line, count: int, recent: int = 0) -> str:
    """Return when a line was logged last, and how often since boot if more than once; how many of these in the last day, if `recent`."""
    if count == 1:
        return line.when()
    lately = f", {recent} of them in the last 24 hours" if 0 < recent < count else ""
    return f"{line.when()}, {count} times since boot{lately}"
