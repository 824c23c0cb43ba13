# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Questions to a file system and work on it, for processes of their own: one that hangs holds up nothing else.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import findings
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import mounts

BLOCK, GIB = 1 << 20, float(1 << 30)


class Look(t.NamedTuple):
    """A look at a file system: its path without links, its mount (None if it is not listed), in bytes its size and what is free for us, and
    its inodes and the free ones (0 if it does not count them). `problem` is a finding by which it cannot be tested, or None."""

    path: str = ""
    mount: mounts.Mounted | None = None
    size: int = 0
    free: int = 0
    inodes: int = 0
    free_inodes: int = 0
    problem: findings.Finding | None = None


def seen(path: str) -> PlainData:
    """Ask a file system; runs in a process of its own. The dot behind the path makes a mount happen that waits for its first use."""
    os.stat(os.path.join(path, "."))
    real, space = os.path.realpath(path), os.statvfs(path)
    numbers = [space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize, space.f_files, space.f_favail]
    return {"path": real, "mount_id": mounts.mount_id(path), "numbers": numbers}


def many_files(path: str, count: int, seconds: float) -> tuple[int, dict[str, float]]:
    """Make, look at and remove `count` empty files, or as many as are made in `seconds`. Return how many, and the seconds of each step.
    Runs in a process of its own."""
    os.mkdir(path, 0o700)
    names: list[str] = []
    times = [time.monotonic()]
    while len(names) < count and time.monotonic() - times[0] < seconds:
        name = os.path.join(path, str(len(names)))
        names.append(name)
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    times.append(time.monotonic())
    for name in names:
        os.stat(name)
    times.append(time.monotonic())
    for name in names:
        os.unlink(name)
    times.append(time.monotonic())
    os.rmdir(path)
    return len(names), {name: max(times[at + 1] - times[at], 1e-6) for at, name in enumerate(("create", "stat", "unlink"))}


def emptied(path: str, partial: str) -> None:
    """Remove the files of the steps, whose space the checkpoint needs, and make its folder. Runs in a process of its own."""
    for name in os.listdir(path):
        if name.startswith("data."):
            os.unlink(os.path.join(path, name))
    os.mkdir(partial, 0o700)


def job_size(total: int, jobs: int) -> int:
    """Return the bytes of each job's file, whole blocks, so that all have at most `total` unless that is less than a block for each."""
    return max(BLOCK, total // jobs // BLOCK * BLOCK)
