# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sessions of runs on this node, whoever began them: what runs, since when, until when; and their end.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.session import Ledger, Lock

# What the lock says of a session, with what stands for it where an older version of the collection signed the lock.
FIELDS = {"run_id": "", "stage": "", "since": 0, "until": 0, "outlives": False, "driver": "", "by": "", "pid": 0}
END_S = 40.0
# What is behind the name of the state directory in that of a run's governors.
GOVERNORS = "-governor"
# Kinds of entries of the ledger that are no leases: the kernel kills processes with their guardian.
PROCESSES = frozenset({"process", "session"})


def listed(state_dir: str) -> list[PlainData]:
    """Return a row for the session that holds the node, and one for each result that a guardian keeps for its controller: FIELDS and
    `state`, `running` or `kept`."""
    rows = []
    holder = Lock(state_dir).holder()
    if process.is_alive(holder.get("pid", 0), holder.get("started")):
        rows.append({**{name: holder.get(name, default) for name, default in FIELDS.items()}, "state": "running"})
    running = {(row["run_id"], row["stage"]) for row in rows}
    for run_id, stage, path in _results(state_dir):
        if (run_id, stage) not in running and _is_kept(path):
            rows.append({**FIELDS, "run_id": run_id, "stage": stage, "state": "kept"})
    return rows


def end(state_dir: str, run_ids: t.Collection[str]) -> list[PlainData]:
    """End the sessions of these runs and remove what is kept of them. Return their rows, as `listed` has them, each with `ended`."""
    rows = [row for row in listed(state_dir) if row["run_id"] in run_ids]
    _remove_results(state_dir, run_ids)  # before, or a living controller begins a soak again that it takes for cut off
    for row in rows:
        row["ended"] = _end_running(state_dir, row) if row["state"] == "running" else True
    _remove_results(state_dir, run_ids)  # what a probe has written since
    for run_id in run_ids:
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(state_dir, run_id))
    with contextlib.suppress(OSError):
        os.rmdir(state_dir)
    return rows


def pending(state_dir: str) -> list[str]:
    """Return in words what sessions that are over have left to give back; nothing while one holds the node, which still needs it."""
    found = []
    for place in (state_dir, state_dir.rstrip("/") + GOVERNORS):
        holder = Lock(place).holder()
        if not process.is_alive(holder.get("pid", 0), holder.get("started")):
            ledger = Ledger(place)
            try:
                found += [_in_words(entry) for entry in ledger.entries() if entry.get("kind") not in PROCESSES]
            except OSError as error:
                found.append(f"what {ledger.path} says, which cannot be read: {error.strerror}")
    return found


def _in_words(entry: PlainData) -> str:
    named = next((f" {entry[name]}" for name in ("path", "folder", "cidfile") if entry.get(name)), "")
    return f"{entry.get('kind')}{named}{', which could not be removed' if entry.get('left') else ''}"


def _remove_results(state_dir: str, run_ids: t.Collection[str]) -> None:
    """Remove the results of these runs. A guardian that keeps one sees that and ends."""
    for run_id, _stage, path in _results(state_dir):
        if run_id in run_ids:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _end_running(state_dir: str, row: PlainData) -> bool:
    """Tell a guardian to end, and wait until it has given the node back. Return False if it has not."""
    lock = Lock(state_dir)
    until = time.monotonic() + END_S
    while time.monotonic() < until:
        holder = lock.holder()
        if (holder.get("run_id"), holder.get("pid")) != (row["run_id"], row["pid"]):
            return True
        if not process.is_alive(holder.get("pid", 0), holder.get("started")):
            return True  # killed: the next session on the node undoes its leases
        lock.tell_to_end(row["run_id"])
        time.sleep(0.2)
    return False


def _results(state_dir: str) -> t.Iterator[tuple[str, str, str]]:
    """Yield run id, stage and path of each result in a state directory."""
    with contextlib.suppress(OSError):
        for run_id in sorted(os.listdir(state_dir)):
            folder = os.path.join(state_dir, run_id)
            if os.path.isdir(folder):
                for name in sorted(os.listdir(folder)):
                    stage, suffix = os.path.splitext(name)
                    if suffix == ".jsonl":
                        yield run_id, stage, os.path.join(folder, name)


def _is_kept(path: str) -> bool:
    """Return True if a guardian holds a result: it has locked the file."""
    try:
        with open(path, "rb") as result:
            fcntl.flock(result, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False
