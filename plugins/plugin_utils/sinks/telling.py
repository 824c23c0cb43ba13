# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Telling sinks: what goes wrong there is a note, and nothing waits for one longer than it may.

A sink that is told of measurements holds its worker up, and so the stage: a call may take CALL_S, and what all calls of a run take beyond
FAST_S each may come to BUDGET_S together; from then on that sink gets no more measurements of the run. That a run begins may take
CALL_S to be told, a judgement JUDGED_S. A call that is not over by then goes on by itself for as long as its process lives.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import pathlib
import threading
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.observation import utc
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import mailbox
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.mailbox import Mailbox
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Begun, Judged, Kept
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.registry import ChosenSink

CALL_S = 5.0
FAST_S = 0.02
BUDGET_S = 60.0
JUDGED_S = 120.0
# In the run's folder: what sinks could not be told, one JSON object a line.
NOTES = "sinks.jsonl"
# Kinds of trouble that are said one by one.
SHOWN = 5


def begun(sinks: t.Iterable[ChosenSink], of: Begun) -> list[str]:
    """Tell them that a run begins; what went wrong, in words."""
    notes = []
    for one in sinks:
        problem = _call(one, "begun", of, CALL_S) if one.sink.wants("begun") else None
        if problem:
            _note(of.folder, one, "begun", problem, of.run_id)
            notes.append(f"sink {one.sink.name} was not told that the run begins: {problem}")
    return notes


def kept(sinks: t.Iterable[ChosenSink], of: Kept) -> list[str]:
    """Tell them of measurements; what went wrong for the first time in this run, in words."""
    notes = []
    for one in sinks:
        spent = Mailbox(of.folder).path(mailbox.SINK_SPENT, sink=one.sink.name)
        if _size(spent) >= BUDGET_S * 100:
            continue
        began = time.monotonic()
        problem = _call(one, "kept", copy.deepcopy(of), CALL_S)
        took = time.monotonic() - began - FAST_S
        with contextlib.suppress(OSError):
            if took > 0 and _append(spent, b"." * int(took * 100 + 1)) >= BUDGET_S * 100:
                problem = f"{problem or 'it is slow'}; it gets no more measurements of this run"
        if problem and _note(of.folder, one, "kept", problem, f"{of.stage} on {of.target}"):
            notes.append(f"sink {one.sink.name}: {of.stage} on {of.target}: {problem}")
    return notes


def judged(sinks: t.Iterable[ChosenSink], of: Judged, run: pathlib.Path, seconds: float | None = JUDGED_S) -> list[str]:
    """Tell them of a judgement; what went wrong, in words. Without `seconds` they are waited for."""
    notes = []
    for one in sinks:
        problem = _call(one, "judged", of, seconds) if one.sink.wants("judged") else None
        if problem:
            _note(run, one, "judged", problem, of.folder.name)
            notes.append(f"sink {one.sink.name} was not told of the judgement: {problem}")
    return notes


def notes_of(run: pathlib.Path) -> list[str]:
    """Return the failures of sinks while the run was measured, for its report."""
    found: dict[tuple[str, str], int] = {}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        for line in (run / NOTES).read_text(encoding="utf-8").splitlines():
            said = json.loads(line)
            if said["event"] == "kept":
                key = (str(said["sink"]), str(said["problem"]))
                found[key] = found.get(key, 0) + 1
    notes = [f"sink {name} was not told of measurements ({count} times): {problem}" for (name, problem), count in found.items()]
    return notes[:SHOWN] + ([f"sinks: {len(notes) - SHOWN} more kinds of trouble, see {NOTES}"] if len(notes) > SHOWN else [])


def _call(one: ChosenSink, event: str, of: Begun | Kept | Judged, seconds: float | None) -> str | None:
    """Call a sink; return its failure in one line without secrets, or None."""
    said: list[str] = []

    def call() -> None:
        try:
            getattr(one.sink, event)(of, one.options)
        except BaseException as error:  # whatever a sink does, SystemExit too, is its own trouble
            said.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=call, daemon=True, name=f"sink {one.sink.name}")
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        return f"it took longer than {seconds:g} s"
    return _plain(one, said[0]) if said else None


def _plain(one: ChosenSink, text: str) -> str:
    hidden = [str(one.options[name]) for name, spec in one.sink.options.items() if spec.get("no_log") and one.options.get(name)]
    for secret in hidden:
        text = text.replace(secret, "********")
    return "".join(c if c.isprintable() else " " for c in text)[:600]


def _note(run: pathlib.Path, one: ChosenSink, event: str, problem: str, about: str) -> bool:
    """Into the run's folder; whether it is the first of this sink there."""
    line = json.dumps({"at": utc(), "sink": one.sink.name, "event": event, "about": about, "problem": problem})
    first = False
    with contextlib.suppress(OSError):
        _append(run / NOTES, f"{line}\n".encode())
        noted = Mailbox(run).path(mailbox.SINK_NOTED, sink=one.sink.name, event=event)
        os.close(os.open(noted, os.O_CREAT | os.O_EXCL))
        first = True
    return first


def _append(path: pathlib.Path, data: bytes) -> int:
    """How large the file is then."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, data)
        return os.fstat(handle).st_size
    finally:
        os.close(handle)


def _size(path: pathlib.Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
