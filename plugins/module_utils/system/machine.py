# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock of a machine that is in an inventory more than once, by itself and as a node of clusters: runs that come to it in different ways
never measure it at once.

A run comes to a machine in one of three ways: to the machine itself, as a job that a scheduler has started, or in a container. Runs that
come in one way share a lock (flock) on one file that every machine has and no other program locks; each way has a file of its own. Each
run checks whether runs of another way hold theirs. Nothing is written, so that a container's read-only mount of the host's root suffices.
Which plane started a run does not matter here, nor where its state is kept.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import fcntl
import os

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import container

ITSELF, JOB, CONTAINED = "etc", "usr", "etc/machine-id"
HOLDERS = {ITSELF: "a run on the machine itself", JOB: "a job of a cluster", CONTAINED: "a run in a container of a cluster"}
# The program of a job sets it in its environment, to the number of the job.
JOB_NUMBER = "GPUFLEET_JOB"


class Machine:
    """The machine whose root is at `root`, as a process sees it that has come to it in the way `own`."""

    def __init__(self, root: str = "/", own: str = ITSELF) -> None:
        self.own = own
        self.others = [way for way in HOLDERS if way != own]
        self.root = root
        self.handle = -1
        # A text for the kind of run that held the machine when it was last refused.
        self.holder = ""

    @classmethod
    def of_session(cls, root: str) -> Machine:
        """Return the machine of a probe that sees the host's files at `root`. A container that does not see them has a root of its own,
        which no other run uses."""
        if container.is_inside() and root != "/":
            return cls(root, CONTAINED)
        return cls(root, JOB if os.environ.get(JOB_NUMBER) else ITSELF)

    def try_acquire(self) -> bool:
        """Hold the machine, together with other runs of our way. Return False if a run of another way holds it, or tries at this very
        moment: try again a little later. A machine without the file of our way cannot be recognised and is not locked."""
        with contextlib.ExitStack() as opened:
            handles = {}
            for way in HOLDERS:
                with contextlib.suppress(OSError):
                    handles[way] = os.open(os.path.join(self.root, way), os.O_RDONLY)
                    opened.callback(os.close, handles[way])
            if self.own not in handles:
                return True
            try:
                # They are given back with their handles: each is a question.
                taken = [way for way in self.others if way in handles and not _lock(handles[way], fcntl.LOCK_EX)]
                if taken or not _lock(handles[self.own], fcntl.LOCK_SH):
                    self.holder = HOLDERS[(taken or self.others)[0]]
                    return False
            except OSError:  # a file system without locks
                pass
            self.handle = os.dup(handles[self.own])
            return True

    def release(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)
        self.handle = -1


def _lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
