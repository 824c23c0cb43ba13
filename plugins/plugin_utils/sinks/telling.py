# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls of sinks with time limits. A failure of a sink becomes a note and stops nothing.

A call with measurements blocks its worker, and so the stage. It may take CALL_S. The time of all such calls of a run beyond FAST_S each
may add up to BUDGET_S; after that the sink gets no more measurements of the run. The call at the start of a run may take CALL_S, the call
with a judgement JUDGED_S. A call that exceeds its limit goes on in its thread until the process ends.

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

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.observation import utc
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import mailbox
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.mailbox import Mailbox
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Begun, Judged, Kept
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.registry import ChosenSink

CALL_S = 5.0
FAST_S = 0.02
BUDGET_S = 60.0
JUDGED_S = 120.0
# The failed calls of sinks in the run's folder, one JSON object per line.
NOTES = "sinks.jsonl"
# The most kinds of failure that a report lists.
SHOWN = 5


def begun(sinks: t.Iterable[ChosenSink], of: Begun) -> list[str]:
    """Call the sinks at the start of a run. Return a note for each failure."""
    notes = []
    for chosen in sinks:
        problem = _call(chosen, "begun", of, CALL_S) if chosen.sink.wants("begun") else None
        if problem:
            _note(of.folder, chosen, "begun", problem, of.run_id)
            notes.append(f"sink {chosen.sink.name} was not told that the run begins: {problem}")
    return notes


def kept(sinks: t.Iterable[ChosenSink], of: Kept) -> list[str]:
    """Call the sinks with measurements. Return a note for each failure that is the first of its sink in this run."""
    notes = []
    for chosen in sinks:
        spent = Mailbox(of.folder).path(mailbox.SINK_SPENT, sink=chosen.sink.name)
        if _size(spent) >= BUDGET_S * 100:
            continue
        began = time.monotonic()
        problem = _call(chosen, "kept", copy.deepcopy(of), CALL_S)
        took = time.monotonic() - began - FAST_S
        with contextlib.suppress(OSError):
            if took > 0 and _append(spent, b"." * int(took * 100 + 1)) >= BUDGET_S * 100:
                problem = f"{problem or 'it is slow'}; it gets no more measurements of this run"
        if problem and _note(of.folder, chosen, "kept", problem, f"{of.stage} on {of.target}"):
            notes.append(f"sink {chosen.sink.name}: {of.stage} on {of.target}: {problem}")
    return notes


def judged(sinks: t.Iterable[ChosenSink], of: Judged, run: pathlib.Path, seconds: float | None = JUDGED_S) -> list[str]:
    """Call the sinks with a judgement. Return a note for each failure. With `seconds` None there is no time limit."""
    notes = []
    for chosen in sinks:
        problem = _call(chosen, "judged", of, seconds) if chosen.sink.wants("judged") else None
        if problem:
            _note(run, chosen, "judged", problem, of.folder.name)
            notes.append(f"sink {chosen.sink.name} was not told of the judgement: {problem}")
    return notes


def notes_of(run: pathlib.Path) -> list[str]:
    """Return the failures of sinks while the run was measured, for its report."""
    counts: dict[tuple[str, str], int] = {}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        for line in (run / NOTES).read_text(encoding="utf-8").splitlines():
            note = json.loads(line)
            if note["event"] == "kept":
                key = (str(note["sink"]), str(note["problem"]))
                counts[key] = counts.get(key, 0) + 1
    notes = [f"sink {name} was not told of measurements ({count} times): {problem}" for (name, problem), count in counts.items()]
    return notes[:SHOWN] + ([f"sinks: {len(notes) - SHOWN} more kinds of trouble, see {NOTES}"] if len(notes) > SHOWN else [])


def _call(chosen: ChosenSink, event: str, of: Begun | Kept | Judged, seconds: float | None) -> str | None:
    """Call a sink; return its failure in one line without secrets, or None."""
    errors: list[str] = []

    def call() -> None:
        try:
            getattr(chosen.sink, event)(of, chosen.options)
        except BaseException as error:  # no exception of a sink, not even SystemExit, may stop the run
            errors.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=call, daemon=True, name=f"sink {chosen.sink.name}")
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        return f"it took longer than {seconds:g} s"
    return _plain(chosen, errors[0]) if errors else None


def _plain(chosen: ChosenSink, text: str) -> str:
    hidden = [str(chosen.options[name]) for name, spec in chosen.sink.options.items() if spec.get("no_log") and chosen.options.get(name)]
    for secret in hidden:
        text = text.replace(secret, "********")
    return "".join(c if c.isprintable() else " " for c in text)[:600]


def _note(run: pathlib.Path, chosen: ChosenSink, event: str, problem: str, topic: str) -> bool:
    """Write a note into the run's folder. Return True if it is the first for this sink and event."""
    line = json.dumps({"at": utc(), "sink": chosen.sink.name, "event": event, "about": topic, "problem": problem})
    first = False
    with contextlib.suppress(OSError):
        _append(run / NOTES, f"{line}\n".encode())
        noted = Mailbox(run).path(mailbox.SINK_NOTED, sink=chosen.sink.name, event=event)
        os.close(os.open(noted, os.O_CREAT | os.O_EXCL))
        first = True
    return first


def _append(path: pathlib.Path, data: bytes) -> int:
    """Append data to a file. Return the new size in bytes."""
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
