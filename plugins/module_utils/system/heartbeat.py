# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The heartbeat file of a probe that runs detached: by it the controller says that it lives, or that the probe shall end.

The guardian makes the file on its node and gives it to the user who logs in, since the controller then needs no privileges and no Python:
`chmod 0600 FILE` says that the controller lives, `chmod 0400 FILE` that the probe shall end. Each chmod changes the file's ctime, which
nobody can set back. The guardian removes the file when it has given everything back, so a chmod that fails says that all has ended.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
import typing as t

# A user who logs in without root's rights must reach the file; the folder is the one that both have for certain.
FOLDER = "/tmp"
PATH = re.compile(r"/tmp/gpufleet-acceptance-[0-9a-f]{32}")
LIVES, END = 0o600, 0o400
# A probe whose controller has been silent for so long ends. The controller beats every 15 s (planes/ssh/heartbeats.py): three may be lost.
LAPSE_S = 60.0


class Heartbeat:
    """The file at `path`, open as `handle`. `lapse_s`: how long the controller may be silent, in seconds. A probe that `outlives` its
    controller waits for one sign of life only: before that sign, no controller knows how to end it."""

    def __init__(self, path: str, handle: int, lapse_s: float, outlives: bool = False) -> None:
        self.path = path
        self.handle = handle
        self.lapse_s = lapse_s
        self.outlives = outlives
        self._has_heard = False
        self._seen = os.fstat(handle).st_ctime_ns
        self._heard = time.monotonic()

    @classmethod
    def new(cls, record: t.Callable[..., None], lapse_s: float = LAPSE_S, outlives: bool = False, known: str = "") -> Heartbeat:
        """Make the file. `record` writes it into the ledger before. `known`: the path by which the controller knows an earlier file of the
        same probe, which is used again if it is free. Raises OSError."""
        path = known if PATH.fullmatch(known) and not os.path.lexists(known) else _new_path()
        record("heartbeat", path=path)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, LIVES)
        owner = login_user()
        if owner != os.geteuid():
            with contextlib.suppress(PermissionError):  # not root: the controller then cannot change it, and collects at once
                os.fchown(handle, owner, -1)
        return cls(path, handle, lapse_s, outlives)

    def is_told_to_end(self) -> bool:
        return not os.fstat(self.handle).st_mode & stat.S_IWUSR

    def has_lapsed(self) -> bool:
        """Return True if the controller has been silent for too long. Called again and again."""
        changed = os.fstat(self.handle).st_ctime_ns
        if changed != self._seen:
            self._seen, self._heard, self._has_heard = changed, time.monotonic(), True
        return not (self.outlives and self._has_heard) and time.monotonic() - self._heard > self.lapse_s


def _new_path() -> str:
    return os.path.join(FOLDER, f"gpufleet-acceptance-{os.urandom(16).hex()}")


def login_user() -> int:
    """Return the id of the user whose login began this process: before sudo, or before whatever else became root."""
    with contextlib.suppress(ValueError, KeyError):
        return int(os.environ["SUDO_UID"])
    with contextlib.suppress(OSError, ValueError), open("/proc/self/loginuid", encoding="ascii") as source:
        uid = int(source.read())
        if uid != 0xFFFFFFFF:  # no login: a service, or a container
            return uid
    return os.geteuid()


def beat(path: str) -> None:
    """Say on the node itself, with the guardian's rights, that the controller lives: it asks for the result. An order to end stays."""
    if PATH.fullmatch(path):
        with contextlib.suppress(OSError):
            os.utime(path, follow_symlinks=False)


def undo(entry: dict[str, t.Any]) -> str:
    """Remove the file that the ledger has: the last thing that a guardian gives back. There is nothing to say of it."""
    path = str(entry.get("path"))
    if PATH.fullmatch(path):
        with contextlib.suppress(OSError):
            os.unlink(path)
    return ""
