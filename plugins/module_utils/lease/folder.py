# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A folder of our own on a file system under test, as a lease: whatever is in it goes when the probe ends, whoever dies.

It has a random name and a marker with the same token, and nothing without that marker is ever removed. It is recorded in the ledger
before it is made, so that the guardian and the next session remove it. Should its file system not answer then, the folder is left and said;
the next probe of this machine on that path removes it (`remove_abandoned`).

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import json
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
# The guardian removes all folders within the time that it has after its deadline (program/runner.py).
UNDO_S = 20.0
# A folder without a marker is one that is being made. One this old is not: the file system made it after its maker had given up.
MAKING_S = 3600.0
# A folder of ours is among the first of a path; one with millions of names is not read to its end.
_MOST_NAMES = 100_000
# Tools of others, such as pjdfstest, leave deep folders where they are ended.
_DEEPEST = 64


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
    """A new folder below `parent`, for as long as a probe needs it. Raises OSError or apart.NoAnswer where it cannot be made."""

    def __init__(self, node: Node, parent: str, answer_s: float) -> None:
        self.node = node
        self.answer_s = answer_s
        self.token = os.urandom(8).hex()
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
        self.left = _removed(self.path, self.token, max(UNDO_S, self.answer_s))


def make(path: str, token: str, owner: Owner, until: float) -> None:
    """Make the folder and its marker. `until`: when its session has ended for certain, in seconds since 1970."""
    os.mkdir(path, 0o700)
    handle = os.open(os.path.join(path, MARKER), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.write(handle, json.dumps({"token": token, "until": until, **owner._asdict()}).encode())
    finally:
        os.close(handle)


def remove(path: str, token: str) -> str:
    """Remove the folder with all that is in it, if its marker has this token. Return why it is left, empty if it is gone. Links are not
    followed and other file systems not entered: others may write to the folder above."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return ""
    try:
        if not _is_bare(handle) and _marker(handle).get("token") != token:
            return f"{path} is left: it does not have the marker of this run"
        _empty(handle, os.fstat(handle).st_dev, 0)
    finally:
        os.close(handle)
    os.rmdir(path)
    return ""


def remove_abandoned(parent: str, owner: Owner) -> list[str]:
    """Remove folders of this machine that a session before ours had to leave; return their paths. One machine has one session at a time."""
    removed: list[str] = []
    with os.scandir(parent) as entries:
        names = [entry.name for _number, entry in zip(range(_MOST_NAMES), entries)]
    for name in names:
        match = _NAME.fullmatch(name)
        if match and _is_abandoned(os.path.join(parent, name), owner):
            with contextlib.suppress(OSError):
                if not remove(os.path.join(parent, name), match.group(1)):
                    removed.append(os.path.join(parent, name))
    return removed


def undo(entry: dict[str, t.Any]) -> str:
    """Undo an entry of the ledger; the guardian and the janitor call it."""
    path, token = str(entry.get("path")), str(entry.get("token"))
    if os.path.basename(path) != PREFIX + token:
        return f"{path} is left: it is no name of ours"
    return _removed(path, token, _UNDOING.left()) or f"removed {path}"


class _Undoing:
    """The time that this process has for all that it undoes, from the first on: several file systems may hang at once."""

    def __init__(self) -> None:
        self.pid = 0
        self.end = 0.0

    def left(self) -> float:
        if self.pid != os.getpid():  # the guardian is a fork of a process that may have undone something
            self.pid, self.end = os.getpid(), time.monotonic() + UNDO_S
        return max(1.0, self.end - time.monotonic())


_UNDOING = _Undoing()
session.LEASES["folder"] = undo


def _removed(path: str, token: str, seconds: float) -> str:
    """remove() within `seconds`, in words where it fails."""
    try:
        return str(apart.call(lambda: remove(path, token), seconds))
    except apart.NoAnswer:
        return f"{path} is left: its file system did not remove it within {seconds:g} s; the next run on this machine does"
    except (OSError, RuntimeError) as error:
        return f"{path} is left: {getattr(error, 'strerror', None) or error}"


def _is_abandoned(path: str, owner: Owner) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if _is_bare(handle):
            return time.time() - os.fstat(handle).st_mtime > MAKING_S
        return owner.has_left(_marker(handle))
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
        handle = os.open(MARKER, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        return {}
    with open(handle, encoding="utf-8", errors="replace") as source:
        try:
            content = json.loads(source.read(4096))
        except ValueError:
            return {}
    return content if isinstance(content, dict) else {}


def _empty(folder: int, device: int, depth: int) -> None:
    """Remove everything in an open folder, the marker last: what is interrupted can be gone on with."""
    for name in sorted(_names(folder), key=lambda name: name == MARKER):
        of = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISDIR(of.st_mode):
            os.unlink(name, dir_fd=folder)
        elif of.st_dev == device and depth < _DEEPEST:
            handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            try:
                _empty(handle, device, depth + 1)
            finally:
                os.close(handle)
            os.rmdir(name, dir_fd=folder)
