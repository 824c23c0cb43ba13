# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock of a machine that is in an inventory twice, by itself and as a node of a cluster: the two are never measured at once.

Runs on the machine itself share a lock (flock) on one file that every machine has and no other program locks; runs in containers share a
lock on another file. Each run checks whether the other kind holds its lock. Nothing is written, so that a container's read-only mount of
the host's root suffices. Which plane started a run does not matter here.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import fcntl
import os

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import container

ITSELF, CONTAINED = "etc", "etc/machine-id"
HOLDERS = {ITSELF: "a run on the machine itself", CONTAINED: "a run in a container of a cluster"}


class Machine:
    """The machine whose root is at `root`, as a process sees it that runs on it or in a container."""

    def __init__(self, root: str = "/", contained: bool = False) -> None:
        self.own, self.other = (CONTAINED, ITSELF) if contained else (ITSELF, CONTAINED)
        self.root = root
        self.handle = -1

    @classmethod
    def of_session(cls, root: str) -> Machine:
        """Return the machine of a probe that sees the host's files at `root`. A container that does not see them has a root of its own,
        which no other run uses."""
        return cls(root, contained=container.is_inside() and root != "/")

    def try_acquire(self) -> bool:
        """Hold the machine, together with other runs of our kind. Return False if the other kind holds it, or tries at this very moment:
        try again a little later. A machine without these files cannot be recognised and is not locked."""
        try:
            handle = os.open(os.path.join(self.root, self.own), os.O_RDONLY)
            other_handle = os.open(os.path.join(self.root, self.other), os.O_RDONLY)
        except OSError:
            return True
        try:
            acquired = _lock(handle, fcntl.LOCK_SH) and _lock(other_handle, fcntl.LOCK_EX)
        except OSError:  # a file system without locks
            acquired = True
        os.close(other_handle)  # with it goes its lock: it was a question
        if acquired:
            self.handle = handle
        else:
            os.close(handle)
        return acquired

    def release(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)
        self.handle = -1

    @property
    def holder(self) -> str:
        """Return a text for the kind of run that holds the machine instead."""
        return HOLDERS[self.other]


def _lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
