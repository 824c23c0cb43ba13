# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of detached jobs, kept on their node as files with a frame until a controller has them in its journal or their time is over.

The folder lies beside that of the state, which is removed with the end of each session. The modification time of a file is the time until
which it is kept; whichever job of ours comes to the node next removes those whose time is over.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import session

# The request for a kept answer, and the request to remove it, have these in place of a probe.
KEPT, COLLECTED = "kept", "collected"
_NAME = re.compile(r"[\w.-]+\.frame(?:\.new)?")


def folder_of(state_dir: str) -> str:
    """Return the folder of kept answers. `state_dir` is that of the request, empty for the usual one. A home may be shared by nodes: the
    names of files have that of the node."""
    return (state_dir or session.default_state_dir()).rstrip("/") + "-kept"


def file_name(run_id: str, stage: str, node: str) -> str:
    return f"{run_id}.{stage}.{node}.frame"


def keep(record: dict[str, t.Any], nonce: str, folder: str, name: str, seconds: float) -> None:
    """Write an answer into its file, for so many seconds."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, name)
    handle = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        frame.write(record, nonce, handle)
        os.fsync(handle)
    finally:
        os.close(handle)
    until = time.time() + seconds
    os.utime(path + ".new", (until, until))
    os.replace(path + ".new", path)


def fetch(nonce: str, folder: str, name: str, number: str) -> dict[str, t.Any]:
    """Return the answer in a file; an answer with the reason if there is none. `number` is that of its job. The file stays until remove():
    whoever fetches it may die before it is written down elsewhere."""
    path = os.path.join(folder, name)
    reader = frame.Reader(nonce)
    try:
        with open(path, "rb") as source:
            for line in source:
                reader.feed(line)
        return reader.result()
    except FileNotFoundError:
        words = f"job {number} has left no answer on the node: it was ended, its node was started anew, or its time was over"
        return {"state": "refused", "reason_code": "job_ended", "reason": words}
    except OSError as error:
        return {"state": "refused", "reason_code": "state_dir", "reason": f"{path}: {error.strerror}"}
    except ReasonedError as error:
        return {"state": "refused", "reason_code": error.reason_code, "reason": f"{path}: {error.reason}"}


def remove(folder: str, name: str) -> dict[str, t.Any]:
    """Remove the file of an answer that a controller has. Return an answer without observations."""
    _remove(folder, [name])
    return {"state": "done", "observations": []}


def remove_expired(folder: str) -> None:
    """Remove the answers whose time is over."""
    try:
        names = [name for name in os.listdir(folder) if _NAME.fullmatch(name)]
    except OSError:
        return
    with contextlib.suppress(OSError):
        _remove(folder, [name for name in names if os.stat(os.path.join(folder, name)).st_mtime < time.time() - 60])


def _remove(folder: str, names: t.Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))
    with contextlib.suppress(OSError):  # others are there
        os.rmdir(folder)
