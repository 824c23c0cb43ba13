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
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import apart, session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

PREFIX = ".gpufleet-acceptance-"
MARKER = "made-by-gpufleet.acceptance"
_NAME = re.compile(re.escape(PREFIX) + r"([0-9a-f]{16})")
# The guardian removes within the time that it has after its deadline (program/runner.py).
UNDO_S = 20.0
# A folder of ours is among the first of a path; one with millions of names is not read to its end.
_MOST_NAMES = 100_000
_DEEPEST = 4


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
        machine_id = str(self.node.identity().get("machine_id") or "")
        apart.call(lambda: make(self.path, self.token, machine_id), self.answer_s)
        return self

    def __exit__(self, *_exception: object) -> None:
        """Remove it now; the guardian will find nothing to do. `left` says why it is still there, if it is."""
        self.left = _removed(self.path, self.token, max(UNDO_S, self.answer_s))


def make(path: str, token: str, machine_id: str) -> None:
    """Make the folder and its marker."""
    os.mkdir(path, 0o700)
    handle = os.open(os.path.join(path, MARKER), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.write(handle, json.dumps({"token": token, "machine_id": machine_id}).encode())
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
        names = os.listdir(handle)
        if names and _marker(handle).get("token") != token:
            return f"{path} is left: it does not have the marker of this run"
        _empty(handle, os.fstat(handle).st_dev, 0)
    finally:
        os.close(handle)
    os.rmdir(path)
    return ""


def remove_abandoned(parent: str, machine_id: str) -> list[str]:
    """Remove folders of this machine that a session before ours had to leave; return their paths. One machine has one session at a time."""
    removed: list[str] = []
    if not machine_id:
        return removed
    with os.scandir(parent) as entries:
        names = [entry.name for _number, entry in zip(range(_MOST_NAMES), entries)]
    for name in names:
        match = _NAME.fullmatch(name)
        if match and _is_of(os.path.join(parent, name), machine_id):
            with contextlib.suppress(OSError):
                if not remove(os.path.join(parent, name), match.group(1)):
                    removed.append(os.path.join(parent, name))
    return removed


def undo(entry: dict[str, t.Any]) -> str:
    """Undo an entry of the ledger; the guardian and the janitor call it."""
    path, token = str(entry.get("path")), str(entry.get("token"))
    if os.path.basename(path) != PREFIX + token:
        return f"{path} is left: it is no name of ours"
    return _removed(path, token, UNDO_S) or f"removed {path}"


session.LEASES["folder"] = undo


def _removed(path: str, token: str, seconds: float) -> str:
    """remove() within `seconds`, in words where it fails."""
    try:
        return str(apart.call(lambda: remove(path, token), seconds))
    except apart.NoAnswer:
        return f"{path} is left: its file system did not remove it within {seconds:g} s; the next run on this machine does"
    except (OSError, RuntimeError) as error:
        return f"{path} is left: {getattr(error, 'strerror', None) or error}"


def _is_of(path: str, machine_id: str) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return bool(_marker(handle).get("machine_id") == machine_id)
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
    for name in sorted(os.listdir(folder), key=lambda name: name == MARKER):
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
