# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last lines that the tools of a probe have printed, in a file on the node, while they run.

The controller names the file (planes/live.py) and reads it only if somebody looks. It belongs to the user who logs in, and the guardian
removes it, like the heartbeat file. Tools that end within WRITE_S are not shown, so that short queries do not hide the test.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import heartbeat

# The size of the file at most, in bytes, and the seconds between two writes at least.
LIMIT, WRITE_S = 16384, 1.0
# The file in a pod, whose folder goes with the pod.
IN_POD = "/gpufleet/work/output"


def new(record: t.Callable[..., None], path: str) -> LiveOutput | None:
    """Make the file at `path` and return what writes to it; None if it cannot be made, which is no fault of the probe. `record` writes it
    into the ledger before."""
    if not _is_ours(path):
        return None
    try:
        record("output", path=path)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        os.fchown(handle, heartbeat.login_user(), -1)
    return LiveOutput(handle)


def undo(entry: dict[str, t.Any]) -> str:
    """Remove the file that the ledger has. There is nothing to say of it."""
    path = str(entry.get("path"))
    if _is_ours(path):
        with contextlib.suppress(OSError):
            os.unlink(path)
    return ""


def _is_ours(path: str) -> bool:
    return path == IN_POD or heartbeat.PATH.fullmatch(path) is not None


class LiveOutput:
    """Writes to the open file `handle` what the tools that run have printed last."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._tools: list[RunningTool] = []
        self._written_at = 0.0
        self._lock = threading.Lock()

    def begin(self, argv: t.Sequence[str], read: t.Callable[[int], bytes] | None = None) -> RunningTool:
        """Show a tool from now on. `read` returns the last bytes, at most so many, of one that prints into a file; without it `add` of what
        is returned gets them."""
        tool = RunningTool(self, argv, read)
        with self._lock:
            self._tools.append(tool)
        return tool

    def end(self, tool: RunningTool) -> None:
        """Write the last lines of a tool for the last time."""
        self.tick(is_last=True)
        with self._lock, contextlib.suppress(ValueError):
            self._tools.remove(tool)

    def tick(self, is_last: bool = False) -> None:
        """Write the file if that is due. To be called again and again. `is_last`: a tool ends now, so do not wait for the next time."""
        now = time.monotonic()
        if not is_last and now < self._written_at + WRITE_S:
            return
        with self._lock, contextlib.suppress(OSError, ValueError):
            shown = [tool for tool in self._tools if now >= tool.began + WRITE_S]
            if not shown:
                return
            self._written_at = now
            text = b"".join(tool.last(LIMIT // len(shown)) for tool in shown)
            os.pwrite(self.handle, text, 0)
            os.ftruncate(self.handle, len(text))


class RunningTool:
    """One tool that runs, and what it has printed last."""

    def __init__(self, live: LiveOutput, argv: t.Sequence[str], read: t.Callable[[int], bytes] | None) -> None:
        self.live = live
        self.began = time.monotonic()
        self._head = f"$ {' '.join(' '.join(argv).split())}"[:500].encode("utf-8", "replace") + b"\n"
        self._read = read
        self._last = b""

    def add(self, piece: bytes) -> None:
        """Take what the tool has printed, empty if that is nothing: to be called again and again."""
        if piece:
            self._last = (self._last + piece)[-LIMIT:]
        self.live.tick()

    def end(self) -> None:
        self.live.end(self)

    def last(self, most: int) -> bytes:
        """Return the command and the last whole lines, at most so many bytes; of output that is cut, without the line that is cut."""
        room = max(0, most - len(self._head) - 1)
        text = self._read(room + 1) if self._read else self._last
        if len(text) > room:
            text = text[-room:].partition(b"\n")[2] if room else b""
        return self._head + text + (b"" if text.endswith(b"\n") or not text else b"\n")


def end_of(handle: int, most: int) -> bytes:
    """Return the last bytes of an open file, at most so many; its offset stays."""
    size = os.fstat(handle).st_size
    return os.pread(handle, most, max(0, size - most))


def end_of_file(path: str, most: int) -> bytes:
    """Return the last bytes of the file at a path, at most so many; empty if there is none."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return end_of(handle, most)
    finally:
        os.close(handle)
