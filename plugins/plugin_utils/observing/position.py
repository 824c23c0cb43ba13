# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file with the events that a source has yielded, so that a restart yields every event at least once, and seldom twice.

Events of a run are in the file before the first of them is handed over, and leave it when the receiver has had time to work on them.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pathlib
import time
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.observing import events
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import write_atomically
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData

SCHEMA = "eda-position/v1"
# The argument by which ansible-rulebook gives a source the queue for what it has stored.
FEEDBACK = "eda_feedback_queue"


class Position:
    """The position of one source. `seen` is {run: judgement that was read last}, `open` what was found and is not over, `pending` the
    events of which nobody knows yet that they were worked on."""

    def __init__(self, path: str) -> None:
        """Read the file, if there is one, and hold it against a second source. Raise RunError if it cannot be used."""
        self.path = pathlib.Path(path)
        self.is_new = True
        self.seen: dict[str, str] = {}
        self.open: events.Open = {}
        self.pending: dict[str, PlainData] = {}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"position {path}: another source uses this file; give each its own") from None
        except OSError as error:
            raise RunError(f"position {path}: {error.strerror}; expected a file that can be written") from error
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def _load(self) -> None:
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if content["schema"] != SCHEMA:
                raise ValueError(content["schema"])
            self.seen, self.open = dict(content["seen"]), dict(content["open"])
            self.pending = {event["id"]: event for event in content["pending"]}
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(
                f"position {self.path}: {type(error).__name__}: {error}; expected a file that a source of events wrote ({SCHEMA}); "
                "remove it to begin anew"
            ) from error
        self.is_new = False

    def save(self) -> None:
        """Write the file, whole or not at all. Raise RunError if that fails."""
        content = {"schema": SCHEMA, "seen": self.seen, "open": self.open, "pending": list(self.pending.values())}
        write_atomically(self.path, json.dumps(content) + "\n", 0o600)
        self.is_new = False

    def close(self) -> None:
        os.close(self._lock)


class Delivery:
    """Hands events over to a rulebook. `feedback` is the queue on which the rulebook returns each event that it has stored, if it does
    (ansible-rulebook with a persistence id); without it an event counts as worked on after `confirm_after` seconds."""

    def __init__(self, queue: t.Any, position: Position, feedback: t.Any = None, confirm_after: float = 30.0) -> None:
        self._queue, self._position, self._feedback, self._confirm_after = queue, position, feedback, confirm_after
        self._handed_over: dict[str, float] = {}
        self._lock = asyncio.Lock()

    async def deliver(self) -> None:
        """Hand over all pending events that were not handed over yet."""
        async with self._lock:
            for identity, event in list(self._position.pending.items()):
                if identity in self._handed_over:
                    continue
                await self._queue.put(event)
                if self._feedback is not None:
                    await self._feedback.get()
                    self._confirm([identity])
                else:
                    self._handed_over[identity] = time.monotonic()

    def confirm(self) -> None:
        """Forget the events that were handed over long enough ago."""
        end = time.monotonic() - self._confirm_after
        self._confirm([identity for identity, since in self._handed_over.items() if since <= end])

    def _confirm(self, identities: t.Sequence[str]) -> None:
        for identity in identities:
            self._position.pending.pop(identity, None)
            self._handed_over.pop(identity, None)
        if identities:
            self._position.save()


def options(spec: t.Mapping[str, t.Any], given: t.Mapping[str, t.Any]) -> tuple[dict[str, t.Any], t.Any]:
    """Return the options of a source by its argument spec, and the queue on which ansible-rulebook returns events, None if it does not.
    Raise RunError if an option is wrong."""
    validated = ArgumentSpecValidator(dict(spec)).validate({name: value for name, value in given.items() if name != FEEDBACK})
    if validated.error_messages:
        raise RunError("; ".join(validated.error_messages))
    return dict(validated.validated_parameters), given.get(FEEDBACK)
