# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Exchange of files between nodes that are all at work on a file system that they share: how soon one reads what another has written and
synced, and whether the name of a file that is replaced by rename is ever missing elsewhere.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import errno
import os
import statistics
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage.shared_files import is_gone, path_of

# Names of the files of a node: its questions, its answers to the node before it, and the file that it replaces again and again.
ASK, ANSWER, REPLACED = "ask", "answer", "replaced"
# A replaced file is so many lines of its generation; a reader sees lines of one generation, whichever it is.
_LINES, _DIGITS = 512, 8
# How often nodes look, in seconds; many nodes look less often, about LOOKS_PER_S times a second in all.
_LOOK_S, _LOOKS_PER_S = 0.005, 2000.0


def look_every(count: int) -> float:
    """Return after how many seconds one of `count` nodes looks again."""
    return max(_LOOK_S, count / _LOOKS_PER_S)


def prepare(folder: str, token: str, number: int) -> None:
    """Make the files of the node with this number, before the others know of its folder."""
    for name, data in ((ASK, _number(0)), (ANSWER, _number(0)), (REPLACED, _generation(0))):
        _write(os.path.join(folder, f"{name}-{token}-{number}"), data)


def echo(folder: str, parent: str, prefix: str, token: str, number: int, count: int, seconds: float) -> dict[str, t.Any]:
    """Ask the next node and answer the one before for `seconds`. Return {"trips": questions that were answered, "ms": half of the median
    time of an answer, "most_ms": half of the longest}; the first answer does not count, as nodes do not begin at one moment."""
    theirs = path_of(parent, prefix, ASK, token, (number - 1) % count)
    answers = path_of(parent, prefix, ANSWER, token, (number + 1) % count)
    ours, replies = (os.path.join(folder, f"{name}-{token}-{number}") for name in (ASK, ANSWER))
    asked, answered, trips = 1, 0, []
    end = time.monotonic() + seconds
    _overwrite(ours, asked)
    since = time.monotonic()
    while time.monotonic() < end:
        question = _read(theirs) if theirs else None
        if question and question != answered:
            answered = question
            _overwrite(replies, answered)
        if answers and _read(answers) == asked:
            trips.append(time.monotonic() - since)
            asked += 1
            since = time.monotonic()
            _overwrite(ours, asked)
        time.sleep(look_every(count))
    halves = [1e3 * trip / 2 for trip in trips[1:]]
    return {"trips": len(halves), "ms": round(statistics.median(halves), 3), "most_ms": round(max(halves), 3)} if halves else {"trips": 0}


def replace(folder: str, token: str, number: int, seconds: float) -> dict[str, int]:
    """Replace the node's own file by rename for `seconds`; return {"replaced": how often}."""
    path, partial = (os.path.join(folder, f"{name}-{token}-{number}") for name in (REPLACED, f"partial-{REPLACED}"))
    end, generation = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        generation += 1
        _write(partial, _generation(generation))
        os.rename(partial, path)
        time.sleep(_LOOK_S)
    return {"replaced": generation}


def watch(parent: str, prefix: str, token: str, number: int, count: int, seconds: float) -> dict[str, int]:
    """Look at the file that another node replaces. Return {"looks", "generations": how many different ones were seen, "missing": looks that
    found no file, "torn": looks that read neither the old file nor the new one, "stale": looks that read nothing as the file had been
    replaced since it was opened (ESTALE of NFS)}. Without generations if the other node was ended meanwhile: its files are removed then."""
    path = path_of(parent, prefix, REPLACED, token, number)
    found = {"looks": 0, "generations": 0, "missing": 0, "torn": 0, "stale": 0}
    seen: set[bytes] = set()
    end = time.monotonic() + seconds
    while path and time.monotonic() < end:
        found["looks"] += 1
        try:
            with open(path, "rb") as source:
                data = source.read()
        except FileNotFoundError:
            found["missing"] += 1
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            found["stale"] += 1
        else:
            line = data[: _DIGITS + 1]
            if len(line) == _DIGITS + 1 and data == line * _LINES:
                seen.add(line)
            else:
                found["torn"] += 1
        time.sleep(look_every(count))
    if found["missing"] and is_gone(parent, prefix, token, number):
        return {"looks": found["looks"], "generations": 0, "missing": 0, "torn": 0, "stale": found["stale"]}
    found["generations"] = len(seen)
    return found


def small_operations(folder: str, most: int, seconds: float) -> float:
    """Make, sync and remove small files one after the other, `most` of them or for `seconds`; return the median of one in ms."""
    times: list[float] = []
    end = time.monotonic() + seconds
    path = os.path.join(folder, "small")
    while len(times) < most and (not times or time.monotonic() < end):
        begin = time.monotonic()
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(handle, b"\0" * 4096)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.unlink(path)
        times.append(time.monotonic() - begin)
    return round(1e3 * statistics.median(times), 3)


def owners(folder: str, parent: str, prefix: str, token: str, number: int, count: int) -> dict[str, list[int]]:
    """Return {"process", "own", "next"}: user and group of this process, of the file that it has made, and of that of the next node."""
    found = {"process": [os.geteuid(), os.getegid()]}
    of_next = path_of(parent, prefix, "hand", token, (number + 1) % count)
    for name, path in (("own", os.path.join(folder, f"hand-{token}-{number}")), ("next", of_next)):
        if path:
            state = os.stat(path)
            found[name] = [state.st_uid, state.st_gid]
    return found


def _number(value: int) -> bytes:
    return b"%0*d\n" % (_DIGITS, value)


def _generation(value: int) -> bytes:
    return _number(value) * _LINES


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as target:
        target.write(data)


def _overwrite(path: str, value: int) -> None:
    """Write a number over that in a file and sync it: the file stays the same, so that nobody keeps the name of an older one."""
    handle = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(handle, _number(value), 0)
        os.fsync(handle)
    finally:
        os.close(handle)


def _read(path: str) -> int | None:
    """Return the number in a file; None if it cannot be read just now."""
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as source:
        return int(source.read(_DIGITS + 1))
    return None
