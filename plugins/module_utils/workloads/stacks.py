# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Python stacks of a rank, asked for by a signal: shared by ranks and the collector of evidence (hang.py).

It travels in front of both (workloads/packing.py), so it imports nothing of this collection. This workload is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import time
import typing as t

# The variable that names a folder into which a rank's faulthandler writes, as a file named after its pid, when it gets ASK_STACKS.
STACKS = "GPUFLEET_STACKS"
ASK_STACKS = signal.SIGUSR1
# Bytes of a rank's stacks that are kept, the last, and that are read; and the seconds in which it writes them.
STACKS_LIMIT, STACKS_READ, STACKS_S = 16384, 1 << 20, 2.0
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]{1,16}\b[^\n]{0,80}\(most recent call first\):")
# Python writes ??? for what it cannot tell of a frame: the frame is one all the same.
_FRAME = re.compile(r'File (?:"([^"\n]{1,600})"|\?\?\?), line (\d{1,9}|\?\?\?) in (.{1,200})')
# What a main thread began with: a script or a string, or a module (`python -m`).
OUTERMOST = ("<module>", "_run_module_as_main")


def answer_with_stacks(handle: int | None = None) -> None:
    """Let this process write its stacks when it gets ASK_STACKS: to an open file, or into its folder for them, if it has one."""
    folder = os.environ.get(STACKS)
    with contextlib.suppress(OSError, ValueError):
        if handle is None and folder:  # open as long as the process lives
            handle = os.open(os.path.join(folder, str(os.getpid())), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if handle is not None:
            faulthandler.register(ASK_STACKS, file=handle, all_threads=True)


class StacksOfProcess:
    """The request to another process for its stacks. `problem` says why it was not asked; empty if it was. The process has STACKS_S from
    then on, so that many processes that do not answer cost no more than one."""

    def __init__(self, pid: int, folder: str) -> None:
        self.problem = ""
        self._pid = pid
        self._path = os.path.join(folder, str(pid))
        self._offset = 0
        self._until = time.monotonic() + STACKS_S
        if not folder or not has_signal(pid, "SigCgt", ASK_STACKS):  # it would die of the signal
            self.problem = "it has not armed faulthandler"
            return
        try:
            self._offset = os.path.getsize(self._path)
            os.kill(pid, ASK_STACKS)
        except OSError as error:
            self.problem = f"{self._path}: {error.strerror}"

    def read(self, until: float) -> str:
        """Return what the process has written until then: threads one by one, the main one last. Empty if it does not run."""
        text, until = "", min(until, self._until)
        while not self.problem and not frames_of(text):
            with contextlib.suppress(OSError), open(self._path, "rb") as source:
                source.seek(self._offset)
                text = source.read(STACKS_READ).decode("utf-8", "replace")[-STACKS_LIMIT:]
            if time.monotonic() >= until:
                break
            time.sleep(0.05)
        return text

    @property
    def is_numb(self) -> bool:
        """True if the process was asked and none of its threads has run since: each would take the signal, unless its main thread blocks
        it, as other threads may, too."""
        pending = has_signal(self._pid, "ShdPnd", ASK_STACKS)
        return not self.problem and pending and not has_signal(self._pid, "SigBlk", ASK_STACKS)


def has_signal(pid: int, field: str, number: int) -> bool:
    """Return True if a process has a signal in a set of /proc/PID/status: SigCgt, those that it catches; SigBlk, those that its main
    thread blocks; ShdPnd, those that were sent to it and that none of its threads has taken. False if that cannot be read."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as source:
            signals = re.search(rf"{field}:\s+([0-9a-f]+)", source.read())
    except OSError:
        return False
    return bool(signals and int(signals.group(1), 16) >> (number - 1) & 1)


def frames_of(text: str) -> t.List[t.Tuple[str, str, int]]:
    """Return the (function, file, line) of the main thread from faulthandler's text, innermost first: of the last thread, since it begins
    with the newest. Empty if the text has none, or does not reach to the end of it, which is a frame of OUTERMOST."""
    frames: t.List[t.Tuple[str, str, int]] = []
    for line in text.splitlines():
        frame = _FRAME.search(line)
        if _THREAD.search(line):
            frames = []
        elif frame:
            frames.append((frame.group(3).strip(), frame.group(1) or "???", int(frame.group(2).replace("?", "") or 0)))
    return frames if frames and frames[-1][0] in OUTERMOST else []
