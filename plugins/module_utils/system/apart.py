# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A function in a process of its own, which may never come back: a call to a file system whose server is gone sleeps in the kernel, and no
signal ends it.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process

# How long an ended child is waited for, which has said what it had to say or sleeps in the kernel.
_REAP_S = 0.5


class NoAnswer(Exception):
    """The function did not come back in time, and may still sleep in the kernel."""


def call(function: t.Callable[[], t.Any], seconds: float) -> t.Any:
    """Return what `function` returns (data of JSON), called in a child process. Raise its OSError here; NoAnswer after `seconds`: the child
    is killed and not waited for. Raise RuntimeError with the words of any other exception."""
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _work(function, writing, parent)
    os.close(writing)
    try:
        said = _read(reading, time.monotonic() + seconds)
    finally:
        os.close(reading)
        _end(pid)
    if said is None:
        raise NoAnswer(f"no answer within {seconds:g} s")
    try:
        answer = json.loads(said)
    except ValueError as error:
        raise RuntimeError("the child process ended without an answer") from error
    if "errno" in answer:
        raise OSError(answer["errno"], os.strerror(answer["errno"]), answer["path"])
    if "fault" in answer:
        raise RuntimeError(answer["fault"])
    return answer["value"]


def _work(function: t.Callable[[], t.Any], writing: int, parent: int) -> t.NoReturn:
    """Run in the child. It keeps no open file but its pipe: a lock among them would be held for as long as it sleeps."""
    try:
        process.die_with(parent)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) != writing:
                with contextlib.suppress(OSError):
                    os.close(int(name))
        try:
            answer = {"value": function()}
        except OSError as error:
            answer = {"errno": error.errno or 5, "path": str(error.filename or "")}
        except Exception as error:
            answer = {"fault": f"{type(error).__name__}: {error}"[:500]}
        data = json.dumps(answer).encode()
        while data:
            data = data[os.write(writing, data) :]
    finally:
        os._exit(0)


def _read(reading: int, end: float) -> bytes | None:
    """Return all that the child writes; None if it has not ended by then."""
    pieces: list[bytes] = []
    while True:
        ready, _w, _x = select.select([reading], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return None
        piece = os.read(reading, 1 << 16)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + _REAP_S
    with contextlib.suppress(ChildProcessError):
        while not os.waitpid(pid, os.WNOHANG)[0] and time.monotonic() < until:
            time.sleep(0.005)
