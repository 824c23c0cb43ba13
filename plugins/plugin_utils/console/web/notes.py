# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Notes of people on runs, some of which hand a run to a colleague.

Each is a file of its own in the results folder, outside the folder of its run: a note changes nothing that the run's fingerprint covers,
and several consoles over one volume share them without a lock. The console neither changes nor removes one. The notes on a run are removed
when it was taken out of the history and its folder is gone, so that no page of it is left.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import json
import pathlib
import secrets
import shutil
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.observation import utc
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.actions import Conflict, Unavailable
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import files
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RUN_ID

FOLDER = pathlib.PurePath(".console", "notes")
# The most notes on a run, characters of one, and of the name of a colleague.
MOST, MOST_TEXT, MOST_TO = 100, 2000, 80
# A character has at most 12 bytes as JSON.
_MOST_BYTES = 12 * (MOST_TEXT + MOST_TO) + 4096


class Note(t.NamedTuple):
    """A note on a run: who wrote it, when in UTC, and its text. `to` is the colleague to whom the run is handed, empty if it is not."""

    text: str
    to: str
    who: str
    at: str


class Notes:
    """The notes of a results folder."""

    def __init__(self, results: pathlib.Path) -> None:
        self._results = results
        self._folder = results / FOLDER

    def all(self, run: str) -> list[Note]:
        """Return the notes on a run, the newest first. Files that are none, or cannot be read, are left out."""
        return [note for path in self._paths(run) if (note := _read(path)) is not None]

    def last(self, run: str) -> Note | None:
        """Return the newest note on a run; None if there is none."""
        return next((note for path in self._paths(run) if (note := _read(path)) is not None), None)

    def add(self, run: str, text: str, to: str, who: str) -> None:
        """Add a note. Raise Conflict if the run has as many as it may have, Unavailable if the results folder cannot be written."""
        if len(self._paths(run)) >= MOST:
            raise Conflict(f"run {run} has {MOST} notes, as many as a run may have")
        path = self._folder / run / f"{time.time_ns()}-{secrets.token_hex(4)}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_atomically(path, json.dumps(Note(text, to, who, utc())._asdict()))
        except (OSError, RunError) as error:
            raise Unavailable(f"the note cannot be saved: {error}") from error

    def remove(self, runs: t.Container[str]) -> list[str]:
        """Remove the notes on those of the runs whose folder is gone, and return these. Raise Unavailable if they cannot be removed."""
        removed = []
        try:
            for folder in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
                if folder.name in runs and RUN_ID.fullmatch(folder.name) and not (self._results / folder.name).exists():
                    shutil.rmtree(folder)
                    removed.append(folder.name)
        except OSError as error:
            raise Unavailable(f"the notes on removed runs cannot be removed: {error}") from error
        return removed

    def _paths(self, run: str) -> list[pathlib.Path]:
        """Return the files of the notes on a run, the newest first."""
        try:
            # Writers at the same moment may each have added the last one.
            return sorted((self._folder / run).glob("*.json"), reverse=True)[: 2 * MOST] if RUN_ID.fullmatch(run) else []
        except OSError:
            return []


def _read(path: pathlib.Path) -> Note | None:
    try:
        with open(path, "rb") as source:
            content = json.loads(source.read(_MOST_BYTES))
        return Note(*(str(content[name]) for name in Note._fields))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
