# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work of a large run that a second process does meanwhile, out of what its parent had in memory when it was begun.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import marshal
import os
import signal
import sys
import threading
import typing as t

# As many things, or bytes of a journal, are worth a process.
THINGS = 10_000
BYTES = 64 << 20
# Things that are handed over together.
TOGETHER = 2_000
# linux/prctl.h: a process is sent a signal when its parent ends.
_PR_SET_PDEATHSIG = 1


class Beside:
    """`work` yields parts of plain data (what `marshal` takes, which keeps shared what a part shares). They are the same whoever does it:
    where no second process can be had, or it fails, it is done here when its parts are asked for. Its context ends it."""

    def __init__(self, work: t.Callable[[], t.Iterable[t.Any]], worth: bool = True) -> None:
        self._work = work
        self._child = 0
        self._from: t.IO[bytes] | None = None
        # A process is not copied while a thread of it, as one that still asks the history, may hold a lock.
        alone = threading.active_count() == 1 and sys.platform == "linux"
        if worth and alone and len(os.sched_getaffinity(0)) > 1:
            with contextlib.suppress(OSError):
                self._begin()

    def _begin(self) -> None:
        read, write = os.pipe()
        parent = os.getpid()
        try:
            self._child = os.fork()
        except OSError:
            os.close(read)
            os.close(write)
            raise
        if self._child:
            os.close(write)
            self._from = os.fdopen(read, "rb")
            return
        try:
            os.close(read)
            self._end_with(parent)
            parts = [marshal.dumps(part) for part in self._work()]
            with open(write, "wb") as target:
                for data in (*parts, b""):  # an empty one was the last
                    target.write(len(data).to_bytes(8, "big"))
                    target.write(data)
        finally:
            os._exit(0)

    @staticmethod
    def _end_with(parent: int) -> None:
        """Whoever is killed writes no verdicts any more, and neither does what it began."""
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._from:
            self._from.close()  # one that is still at work ends when nobody hears it any more
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._child, 0)

    def parts(self) -> t.Iterator[t.Any]:
        """To be asked once; a part as soon as it is there."""
        told = 0
        if self._from:
            while len(head := self._from.read(8)) == 8:
                size = int.from_bytes(head, "big")
                if not size:
                    return
                data = self._from.read(size)
                if len(data) < size:
                    break
                told += 1
                yield marshal.loads(data)
        # Whatever went wrong there goes wrong here as well, where somebody hears of it.
        yield from itertools.islice(self._work(), told, None)
