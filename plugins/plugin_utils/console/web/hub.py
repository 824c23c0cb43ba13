# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells every open page what changes: one thread listens, however many pages there are.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import threading
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.actions import Action, ActionError, Actions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.settings import CallLimits
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import WebError

# A page that does not read for so many changes looks at everything again.
BEHIND = 100
AGAIN_S = 2.0

Change = tuple[str, Action]


class Full(WebError):
    """As many pages listen as may."""


class Hub:
    def __init__(self, actions: Actions, limits: CallLimits) -> None:
        self._actions, self._limits = actions, limits
        self._listeners: dict[asyncio.Queue[Change], asyncio.AbstractEventLoop] = {}
        self._of: collections.Counter[str] = collections.Counter()
        self._lock = threading.Lock()
        self._begun = False

    @property
    def open(self) -> int:
        return len(self._listeners)

    @contextlib.contextmanager
    def listening(self, who: str) -> t.Iterator[asyncio.Queue[Change]]:
        """Changes from now on."""
        queue: asyncio.Queue[Change] = asyncio.Queue(BEHIND)
        with self._lock:
            if len(self._listeners) >= self._limits.streams or self._of[who] >= self._limits.streams_of_one:
                raise Full
            self._listeners[queue] = asyncio.get_running_loop()
            self._of[who] += 1
            if not self._begun:
                self._begun = True
                threading.Thread(target=self._listen, name="console-changes", daemon=True).start()
        try:
            yield queue
        finally:
            with self._lock:
                del self._listeners[queue]
                self._of[who] -= 1
                if not self._of[who]:
                    del self._of[who]

    def _listen(self) -> None:
        since = ""
        while True:
            try:
                for version, action in self._actions.changes(since):
                    since = version
                    self._tell((version, action))
                since = ""
            except ActionError:
                pass  # the pages show by themselves that nobody answers
            time.sleep(AGAIN_S)

    def _tell(self, change: Change) -> None:
        with self._lock:
            listeners = list(self._listeners.items())
        for queue, loop in listeners:
            with contextlib.suppress(RuntimeError):  # its loop has ended
                loop.call_soon_threadsafe(_put, queue, change)


def _put(queue: asyncio.Queue[Change], change: Change) -> None:
    if not queue.full():
        queue.put_nowait(change)
