# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defects of the results folder and the history of a console, by which runs that begin now would be lost or not be found again.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import pathlib
import threading
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import runner
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.past import Past
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

# How long an answer holds: every page asks.
HOLDS_S = 5.0


class StorageProblem(t.NamedTuple):
    """A defect of the storage. `text` names a text of the pages, `values` fill it; `fatal`: a run that begins now cannot be kept."""

    text: str
    values: t.Mapping[str, str]
    fatal: bool = False


class Storage:
    """The state of a console's storage, looked at every few seconds at most."""

    def __init__(self, results_dir: str, past: Past) -> None:
        self._results, self._past = pathlib.Path(results_dir), past
        self._lock = threading.Lock()
        self._looked_at = float("-inf")
        self._problems: tuple[StorageProblem, ...] = ()

    def problems(self) -> tuple[StorageProblem, ...]:
        """Return the defects as of the last look. One caller looks; the others do not wait for a history that answers slowly."""
        if time.monotonic() - self._looked_at > HOLDS_S and self._lock.acquire(blocking=False):
            try:
                self._problems = tuple(self._look())
                self._looked_at = time.monotonic()
            finally:
                self._lock.release()
        return self._problems

    def _look(self) -> t.Iterator[StorageProblem]:
        folder = str(self._results)
        try:
            room = os.statvfs(folder)
        except OSError as error:
            yield StorageProblem("storage_away", {"folder": folder, "reason": error.strerror or str(error)}, True)
            return
        if not os.access(folder, os.W_OK | os.X_OK):
            yield StorageProblem("storage_read_only", {"folder": folder}, True)
        elif not runner.has_room(self._results):
            yield StorageProblem("storage_full", {"folder": folder, "free": str(room.f_bavail * room.f_frsize // 1024**2)}, True)
        try:
            listed = self._past.runs(limit=1)
        except RunError as error:
            yield StorageProblem("history_broken", {"reason": str(error)})
            return
        if not listed and any(self._results.glob("*/report.json")):
            yield StorageProblem("history_lost", {})
