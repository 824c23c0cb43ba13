# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files by which nodes find out whether a file system that they share is one: what one has written and synced the others see whole, and a
lock that one holds keeps the others out. Nodes do not speak to each other; each knows its number and when the others act.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import os
import time

# Bytes that each node hands over.
BYTES = 1 << 20
# How long the removal of a node's folder is waited for, where one of its files is missing.
GONE_S = 3.0
# The kinds of locks: of POSIX by fcntl, and of BSD by flock.
FCNTL, FLOCK = "fcntl", "flock"
LOCKS = (FCNTL, FLOCK)
# Said in place of what became of a lock, where the first node may have let it go.
LATE = "it was tried too late"
_REFUSED = (errno.EAGAIN, errno.EACCES)
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def content(token: str, number: int) -> bytes:
    """Return what the node with this number hands over; no two nodes and no two runs hand over the same."""
    block = hashlib.sha256(f"{token} {number}".encode()).digest()
    return (block * (BYTES // len(block) + 1))[:BYTES]


def hand_over(folder: str, token: str, number: int) -> None:
    """Write and sync the node's file, give it its name at once, and make the files that are locked."""
    for name in LOCKS:
        os.close(os.open(os.path.join(folder, f"{name}-{token}-{number}"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    partial = os.path.join(folder, f"partial-{token}-{number}")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        view = memoryview(content(token, number))
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    os.rename(partial, os.path.join(folder, f"hand-{token}-{number}"))


def folder_token(token: str, number: int) -> str:
    """Return what the name of the node's folder has behind its prefix. All nodes know it: to look through the folders of all for each
    file would be a million look-ups for each of a thousand nodes."""
    return hashlib.sha256(f"{token} folder {number}".encode()).hexdigest()[:16]


def path_of(parent: str, prefix: str, kind: str, token: str, number: int) -> str:
    """Return the path of a file of the node with this number; empty if it is not seen. `kind` may have a `*`."""
    folder, name = os.path.join(parent, prefix + folder_token(token, number)), f"{kind}-{token}-{number}"
    if "*" in kind:
        return next(iter(glob.glob(os.path.join(glob.escape(folder), name))), "")
    path = os.path.join(folder, name)
    return path if os.path.lexists(path) else ""


def unseen(parent: str, prefix: str, token: str, count: int, seconds: float) -> list[int]:
    """Return the numbers of the nodes whose files are not seen, looking for them until `seconds` have passed."""
    until = time.monotonic() + seconds
    while True:
        missing = [number for number in range(count) if not path_of(parent, prefix, "hand", token, number)]
        if not missing or time.monotonic() >= until:
            return missing
        time.sleep(0.2)


def is_gone(parent: str, prefix: str, token: str, number: int, seconds: float = GONE_S) -> bool:
    """Return True if the files of a node go away within `seconds`: its probe was ended, and a missing file was removed with them."""
    until = time.monotonic() + seconds
    while path_of(parent, prefix, "hand", token, number):
        if time.monotonic() >= until:
            return False
        time.sleep(0.1)
    return True


def read(parent: str, prefix: str, token: str, number: int) -> str:
    """Read what another node has handed over; return what is wrong with it, empty if it is as written."""
    path = path_of(parent, prefix, "hand", token, number)
    with open(path, "rb") as source:
        data = source.read(BYTES + 1)
    if len(data) != BYTES:
        return f"{len(data)} bytes of {BYTES}"
    wanted = content(token, number)
    wrong = next((place for place in range(BYTES) if data[place] != wanted[place]), None) if data != wanted else None
    return "" if wrong is None else f"other data from byte {wrong} on"


def _locked(handle: int, kind: str) -> str:
    """Take a lock without waiting: return "taken", "refused", or why there is no such lock."""
    take = fcntl.lockf if kind == FCNTL else fcntl.flock
    try:
        take(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _REFUSED:
            return "refused"
        if error.errno in _UNSUPPORTED:
            return str(error.strerror)
        raise
    return "taken"


def hold(folder: str, token: str, number: int, seconds: float) -> dict[str, str]:
    """Take the node's own locks, hold them for `seconds`, and return {kind: what became of it} as `_locked` says it."""
    handles = {kind: os.open(os.path.join(folder, f"{kind}-{token}-{number}"), os.O_RDWR) for kind in LOCKS}
    try:
        found = {kind: _locked(handle, kind) for kind, handle in handles.items()}
        time.sleep(seconds)
        return found
    finally:
        for handle in handles.values():
            os.close(handle)


def try_locks(parent: str, prefix: str, token: str, number: int) -> dict[str, str]:
    """Try to take the locks that another node holds; return {kind: what became of it}."""
    found = {}
    for kind in LOCKS:
        handle = os.open(path_of(parent, prefix, kind, token, number), os.O_RDWR)
        try:
            found[kind] = _locked(handle, kind)
        finally:
            os.close(handle)
    return found
