# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Children with deadlines, and processes told apart by pid and start time.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import math
import os
import selectors
import signal
import subprocess
import time
import typing as t

# More than any tool we run prints; what is beyond is counted, not kept.
OUTPUT_LIMIT = 8 << 20
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


class CommandResult:
    """The result of a child: `rc` (negative: the signal), `out`, `err` (text), `timed_out`, `missing` (`not found` or `not executable` if
    it could not be started), `timeout_s` (the seconds that it had), `dropped` (bytes of output beyond the limit), `duration_s`."""

    def __init__(self, argv: list[str]) -> None:
        self.argv = argv
        self.rc: int | None = None
        self.out = ""
        self.err = ""
        self.timed_out = False
        # The seconds that it was given.
        self.timeout_s = math.inf
        self.missing: str | None = None
        self.dropped = 0
        self.started_at = time.time()
        self.duration_s = 0.0

    @property
    def raw(self) -> str:
        """All that was kept of what it printed, and how much was not."""
        return shown(self.out, self.err, self.dropped)

    @property
    def too_much(self) -> str | None:
        """A sentence for output that lacks something because it was not read to its end; None if it was."""
        return too_much(self.out, self.err, self.dropped, OUTPUT_LIMIT) if self.dropped else None

    def ended_after(self, wanted_s: float) -> str:
        """Return how long a tool had that was ended, in words. `wanted_s` is its own limit: a probe near its deadline gives less."""
        if not self.cut_short(wanted_s):
            return f"{wanted_s:.0f} s"
        return f"{max(0.0, self.timeout_s):.1f} s, all that was left until the deadline of its stage (its variable NAME_timeout)"

    def cut_short(self, wanted_s: float) -> bool:
        """Return True if a tool was ended before its own limit of `wanted_s` seconds, by the deadline of the probe."""
        return self.timed_out and self.timeout_s < wanted_s

    @property
    def ok(self) -> bool:
        return self.rc == 0 and not self.timed_out and self.missing is None


def shown(out: str, err: str, dropped: int) -> str:
    """Return the stored output of a tool, with the number of bytes left out."""
    return out + err + (f"\n[... {dropped} bytes left out ...]\n" if dropped else "")


def too_much(out: str, err: str, dropped: int, limit: int) -> str:
    """Return why output says less than it should: it was not read to its end."""
    printed = len(out.encode()) + len(err.encode()) + dropped
    return f"it printed {printed >> 20} MiB, of which the first {limit >> 20} are read: switch off debug output of the library"


def prctl(option: int, value: int) -> bool:
    """prctl(2); a kernel that does not know the option is no error, the ledger still has the pid."""
    return bool(_libc.prctl(option, value, 0, 0, 0) == 0)


def start_time(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot (field 22 of /proc/PID/stat); None if it does not run."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] == b"Z" else int(fields[19])


def is_alive(pid: int, started: int | None) -> bool:
    """Return True if this very process runs: another process may have its pid by now."""
    return started is not None and start_time(pid) == started


def descendants(pid: int) -> list[int]:
    """Return all processes below `pid`, children before parents, so that none escapes by re-parenting meanwhile."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:
                    parent = int(stat.read().rsplit(b")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(name))
    processes: list[int] = []
    queue = list(children.get(pid, []))
    while queue:
        child = queue.pop()
        processes.append(child)
        queue.extend(children.get(child, []))
    return processes[::-1]


def kill_group(pid: int, started: int | None, number: int) -> None:
    """Signal the process group that a recorded process leads, if it is still that process."""
    if is_alive(pid, started):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)


def kill(pid: int, started: int | None, number: int) -> None:
    """Signal one recorded process, if it is still that process."""
    if is_alive(pid, started):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def with_environment(name: str, value: str) -> list[tuple[int, int]]:
    """Processes that were started with this variable in their environment, with their start times."""
    variable = f"{name}={value}".encode()
    matches = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            started = start_time(int(entry))
            try:
                with open(f"/proc/{entry}/environ", "rb") as source:
                    carries = variable in source.read().split(b"\0")
            except OSError:
                continue
            if carries and started is not None:
                matches.append((int(entry), started))
    return matches


def wait_gone(pid: int, started: int | None, seconds: float) -> bool:
    """Wait until a process that need not be our child is gone."""
    end = time.monotonic() + seconds
    while is_alive(pid, started):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def die_with(parent: int) -> None:
    """Let this process, a new child of `parent`, be killed when the thread that made it ends, or now if the parent is gone already: the
    kernel sends no signal for what happened before."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def spawn(argv: list[str], **options: t.Any) -> subprocess.Popen[bytes]:
    """Start a child in its own session and process group that dies with the thread that started it."""
    return subprocess.Popen(argv, start_new_session=True, preexec_fn=functools.partial(die_with, os.getpid()), **options)


def run(
    argv: list[str],
    timeout: float,
    env: dict[str, str] | None = None,
    cwd: str | None = None,
    merge: bool = False,
    stdin: str | None = None,
    on_start: t.Callable[[int], None] | None = None,
    limit: int = OUTPUT_LIMIT,
    on_output: t.Callable[[bytes], t.Any] | None = None,
) -> CommandResult:
    """Run `argv` to its end or to `timeout` seconds, then end its whole process group.

    What it printed until then is in the result. `env` is added to ours. `merge` puts stderr where it was printed, into
    `out`. `on_start` gets the pid, to record it. `on_output` gets each piece of what it prints, and empty ones while it prints nothing.
    Never raises for what the child does.
    """
    result = CommandResult(list(argv))
    result.timeout_s = timeout
    begin = time.monotonic()
    try:
        child = spawn(
            argv,
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merge else subprocess.PIPE,
            env=dict(os.environ, **env) if env else None,
            cwd=cwd,
        )
    except OSError as error:
        result.missing = "not executable" if error.errno in (errno.EACCES, errno.ENOEXEC) else "not found"
        result.err = f"{argv[0]}: {os.strerror(error.errno or 0)}"
        return result
    try:
        if on_start:
            on_start(child.pid)
        if stdin is not None and child.stdin:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(stdin.encode())
            child.stdin.close()
        pieces = _collect(child, begin + timeout, limit, result, on_output)
    finally:
        end(child)
    result.rc = child.returncode
    result.duration_s = time.monotonic() - begin
    result.out, result.err = (b"".join(pieces[k]).decode("utf-8", "replace") for k in ("out", "err"))
    return result


def _collect(
    child: subprocess.Popen[bytes], end: float, limit: int, result: CommandResult, on_output: t.Callable[[bytes], t.Any] | None = None
) -> dict[str, list[bytes]]:
    pieces: dict[str, list[bytes]] = {"out": [], "err": []}
    stored = 0
    with selectors.DefaultSelector() as selector:
        for stream, name in ((child.stdout, "out"), (child.stderr, "err")):
            if stream:
                selector.register(stream, selectors.EVENT_READ, name)
        gone_at: float | None = None
        while selector.get_map():
            current_s = time.monotonic()
            if current_s >= end:
                result.timed_out = gone_at is None
                break
            # A grandchild may hold the pipe open after the tool itself has ended: wait a moment for it, not for ever.
            if gone_at is None and has_exited(child.pid):
                gone_at = current_s
            if gone_at is not None and current_s - gone_at > 0.5:
                break
            if on_output:
                on_output(b"")
            for key, _events in selector.select(min(0.2, end - current_s)):
                piece = os.read(key.fd, 1 << 16)
                if not piece:
                    selector.unregister(key.fileobj)
                    continue
                room = max(0, limit - stored)
                stored += len(piece[:room])
                result.dropped += len(piece) - len(piece[:room])
                pieces[key.data].append(piece[:room])
                if on_output:
                    on_output(piece)
    while not result.timed_out and not has_exited(child.pid):
        if time.monotonic() >= end:
            result.timed_out = True
        time.sleep(0.01)
    return pieces


def has_exited(pid: int) -> bool:
    """Return True if the child has ended, without reaping it: its pid, and with it the id of its group, must stay taken."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def end(child: subprocess.Popen[bytes], first: int = signal.SIGTERM, grace: float = 3.0) -> None:
    """End a child of spawn() and its group, and reap it."""
    for number, patience in ((first, grace), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        if number != signal.SIGKILL and has_exited(child.pid):
            continue  # the tool has ended; whoever is left of its group is ended at once
        end = time.monotonic() + patience
        while not has_exited(child.pid) and time.monotonic() < end:
            time.sleep(0.01)
    for stream in (child.stdout, child.stderr):
        if stream:
            stream.close()
    try:
        child.wait(timeout=5)
    except subprocess.TimeoutExpired:
        child.returncode = -signal.SIGKILL  # in uninterruptible sleep: the ledger keeps its pid for the janitor
