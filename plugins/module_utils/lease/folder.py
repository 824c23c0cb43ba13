# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A folder of our own on a file system under test, as a lease: whatever is in it goes when the probe ends, whoever dies.

It has a random name and a marker with the same token, and nothing without that marker is ever removed. It is recorded in the ledger
before it is made, so that the guardian and the next session remove it. Should its file system not answer then, or should it have too many
files, the rest is left and said: it stays in the ledger for the next sessions of this machine and for `restore`, and the next probe on that
path finds it without a ledger (`remove_abandoned`).

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import math
import os
import re
import stat
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import apart, session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

PREFIX = ".gpufleet-acceptance-"
MARKER = "made-by-gpufleet.acceptance"
_NAME = re.compile(re.escape(PREFIX) + r"([0-9a-f]{16})")
_LATER = "playbooks/restore.yml and the next sessions on this machine go on"
# The guardian removes all folders within the time that it has after its deadline (program/runner.py).
UNDO_S = 20.0
# A session that finds what was left spends no more on it than this: the file system may still hang.
AGAIN_S = 4.0
# How long a restore goes on with a folder whose file system answers. 220,000 files of an ext4 went in 15 s, as measured; a million on a
# server that needs a millisecond for each take 17 minutes.
RESTORE_S = 3600.0
# A folder without a marker is one that is being made. One this old is not: the file system made it after its maker had given up.
MAKING_S = 3600.0
# A folder of ours is among the first of a path; one with millions of names is not read to its end.
_MOST_NAMES = 100_000
# Tools of others, such as pjdfstest, leave deep folders where they are ended.
_DEEPEST = 64


class OutOfTime(OSError):
    """There are more files than could be removed, on a file system that answers."""


class Owner(t.NamedTuple):
    """The machine that a folder belongs to, empty where it is not known."""

    machine_id: str
    boot_id: str

    @classmethod
    def of(cls, node: Node) -> Owner:
        identity = node.identity()
        return cls(str(identity.get("machine_id") or ""), str(identity.get("boot_id") or ""))

    def has_left(self, marker: t.Mapping[str, t.Any]) -> bool:
        """Return True if a session of this machine before ours has left the folder with this marker. Machines made of one image may have
        the same id: only this boot of the kernel, or an end of the session that is past, says that nobody works there."""
        if not self.machine_id or marker.get("machine_id") != self.machine_id:
            return False
        until = marker.get("until")
        is_over = isinstance(until, (int, float)) and time.time() > until
        return is_over or bool(self.boot_id and marker.get("boot_id") == self.boot_id)


class FolderLease:
    """A new folder below `parent`, for as long as a probe needs it. `token`: what its name has behind PREFIX, 16 hexadecimal digits, random
    if it is empty. Raises OSError or apart.NoAnswer where it cannot be made."""

    def __init__(self, node: Node, parent: str, answer_s: float, token: str = "") -> None:
        self.node = node
        self.answer_s = answer_s
        self.token = token or os.urandom(8).hex()
        self.path = os.path.join(parent, PREFIX + self.token)
        self.left = ""

    def __enter__(self) -> FolderLease:
        if self.node.ledger:
            self.node.ledger.record("folder", path=self.path, token=self.token)
        until = time.time() + self.node.remaining() + 2 * UNDO_S
        apart.call(lambda: make(self.path, self.token, Owner.of(self.node), until), self.answer_s)
        return self

    def __exit__(self, *_exception: object) -> None:
        """Remove it now; the guardian will find nothing to do. `left` says why it is still there, if it is."""
        try:
            patience_s = max(UNDO_S, self.answer_s)
            self.left = _removed(self.path, self.token, patience_s, patience_s)
        except session.Left as left:
            self.left = str(left)


def make(path: str, token: str, owner: Owner, until: float) -> None:
    """Make the folder and its marker. `until`: when its session has ended for certain, in seconds since 1970."""
    os.mkdir(path, 0o700)
    handle = os.open(os.path.join(path, MARKER), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.write(handle, json.dumps({"token": token, "until": until, **owner._asdict()}).encode())
    finally:
        os.close(handle)


def remove(path: str, token: str, until: float = math.inf) -> str:
    """Remove the folder with all that is in it, if its marker has this token. Return why it is left, empty if it is gone. Links are not
    followed and other file systems not entered: others may write to the folder above. Raises OutOfTime at `until` (time.monotonic());
    the folder then keeps its marker."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return ""
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            return f"{path} is left: it is no folder"
        raise
    try:
        if not _is_bare(handle) and _marker(handle).get("token") != token:
            return f"{path} is left: it does not have the marker of this run"
        _empty(handle, os.fstat(handle).st_dev, 0, until)
    finally:
        os.close(handle)
    os.rmdir(path)
    return ""


def remove_abandoned(parent: str, owner: Owner, seconds: float = math.inf) -> list[str]:
    """Remove folders of this machine that a session before ours had to leave; return their paths. One machine has one session at a time.
    After `seconds` the rest is left to the next session: a million files, and the folders of thousands of nodes, are no fault of the file
    system."""
    removed: list[str] = []
    until = time.monotonic() + seconds
    with os.scandir(parent) as entries:
        names = [entry.name for _number, entry in zip(range(_MOST_NAMES), entries)]
    for name in names:
        match = _NAME.fullmatch(name)
        if not match or time.monotonic() >= until:
            continue
        path = os.path.join(parent, name)
        with contextlib.suppress(OSError):  # another node may remove it at this moment
            if _is_abandoned(path, owner) and not remove(path, match.group(1), until):
                removed.append(path)
    return removed


def undo(entry: dict[str, t.Any]) -> str:
    """Undo an entry of the ledger; the guardian and the janitor call it. Raise session.Left if the folder is still there."""
    path, token = str(entry.get("path")), str(entry.get("token"))
    if os.path.basename(path) != PREFIX + token:
        return f"{path} is left: it is no name of ours"
    return _removed(path, token, _UNDOING.left(bool(entry.get("left"))), UNDO_S) or f"removed {path}"


class _Undoing:
    """The time that this process has for all that it undoes, from the first on: several file systems may hang at once."""

    def __init__(self) -> None:
        self.pid = 0
        self.end = 0.0
        self.again_s = AGAIN_S

    def left(self, again: bool) -> float:
        """Return the seconds for a folder. `again`: it was left before."""
        if self.pid != os.getpid():  # the guardian is a fork of a process that may have undone something
            self.allow(UNDO_S, AGAIN_S)
        return max(1.0, min(self.end - time.monotonic(), self.again_s if again else math.inf))

    def allow(self, seconds: float, again_s: float) -> None:
        self.pid, self.end, self.again_s = os.getpid(), time.monotonic() + seconds, again_s


_UNDOING = _Undoing()
session.LEASES["folder"] = undo


def take_time() -> None:
    """Let this process, which restores, go on for RESTORE_S where a file system answers."""
    _UNDOING.allow(RESTORE_S, RESTORE_S)


def _removed(path: str, token: str, seconds: float, patience_s: float) -> str:
    """remove() within `seconds`, and within `patience_s` where the file system does not answer. Return why a folder is none of ours; raise
    session.Left if it is still there."""

    def remove_some(until: float) -> str | None:
        try:
            return remove(path, token, until)
        except OutOfTime:
            return None

    end = time.monotonic() + seconds
    while True:
        answer_s = min(patience_s, max(1.0, end - time.monotonic()))
        try:
            # Having given up by itself, half way, it shows that the file system answers.
            why = apart.call(functools.partial(remove_some, time.monotonic() + answer_s / 2), answer_s)
        except apart.NoAnswer:
            raise session.Left(f"{path} is left: its file system did not remove it within {answer_s:.0f} s; {_LATER}") from None
        except (OSError, RuntimeError) as error:
            raise session.Left(f"{path} is left: {getattr(error, 'strerror', None) or error}; {_LATER}") from error
        if why is not None:
            return str(why)
        if time.monotonic() + 1 > end:
            raise session.Left(f"{path} is left: it has more files than could be removed within {seconds:.0f} s; {_LATER}")


def _is_abandoned(path: str, owner: Owner) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        marker = _marker(handle)
        if marker:
            return owner.has_left(marker)
        return _is_bare(handle) and time.time() - os.fstat(handle).st_mtime > MAKING_S
    finally:
        os.close(handle)


def _is_bare(folder: int) -> bool:
    """Return True if an open folder is empty, or has a marker without text alone: a full disk takes the file and not what is in it."""
    names = _names(folder)
    if names != [MARKER]:
        return not names
    of = os.stat(MARKER, dir_fd=folder, follow_symlinks=False)
    return stat.S_ISREG(of.st_mode) and of.st_size == 0


def _names(folder: int) -> list[str]:
    """Return the names in an open folder. It is opened anew: sshfs lists a folder that is open only once."""
    handle = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
    try:
        return os.listdir(handle)
    finally:
        os.close(handle)


def _marker(folder: int) -> dict[str, t.Any]:
    try:
        handle = os.open(MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return {}
    with open(handle, encoding="utf-8", errors="replace") as source:
        # Somebody else may have made a pipe of this name, which nobody ever writes to.
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return {}
        try:
            content = json.loads(source.read(4096))
        except (ValueError, RecursionError):
            return {}
    return content if isinstance(content, dict) else {}


def _empty(folder: int, device: int, depth: int, until: float) -> None:
    """Remove everything in an open folder, the marker last: what is interrupted can be gone on with. Raises OutOfTime at `until`."""
    for name in sorted(_names(folder), key=lambda name: name == MARKER):
        if time.monotonic() >= until:
            raise OutOfTime(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), name)
        of = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISDIR(of.st_mode):
            os.unlink(name, dir_fd=folder)
        elif of.st_dev == device and depth < _DEEPEST:
            handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            try:
                _empty(handle, device, depth + 1, until)
            finally:
                os.close(handle)
            os.rmdir(name, dir_fd=folder)
