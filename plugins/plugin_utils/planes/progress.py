# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The progress of a stage, in lines for people.

The workers of a stage count their nodes in files of the run's mailbox. Any worker that sees that a line is due shows it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import threading
import time
import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import mailbox
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import Check
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, SubjectData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import GROUP, ROUNDS, TOGETHER, Stage

PROGRESS_S = 10.0
# Seconds between two lines in a log while a stage works. A terminal gets a line every PROGRESS_S.
LOGGED_S = 60.0
# Read before the fork, because a worker has no terminal.
TERMINAL = sys.stdout.isatty()


class Progress:
    """The progress of one stage, as the worker of `host` counts and shows it. `planned` are the checks of the host; `behind`: the host
    stands for the nodes of a cluster."""

    def __init__(self, box: mailbox.Mailbox, stage: str, description: Stage, host: str, planned: t.Collection[Check], behind: bool) -> None:
        self.mailbox, self.stage, self.description, self.host = box, stage, description, host
        self.planned, self.behind = planned, behind

    def pulse(self) -> None:
        """Show a line that the stage still works if no worker has shown one for a while. To be called repeatedly while a target works."""
        place = self.mailbox.path(mailbox.PULSE, stage=self.stage)
        with contextlib.suppress(OSError, ValueError, KeyError), open(place, "a+", encoding="ascii") as moments:
            fcntl.flock(moments, fcntl.LOCK_EX | fcntl.LOCK_NB)
            moments.seek(0)
            now, words = time.time(), moments.read().split()
            if not words:
                moments.write(f"{now}\n")
                return
            began, last = float(words[0]), float(words[-1])
            if now - last < (PROGRESS_S if TERMINAL or len(words) == 1 else LOGGED_S):
                return
            moments.write(f"{now}\n")
            moments.flush()
            Display().display(f"{self._line(now, began)}, for {now - began:.0f} s{'' if self.behind else f'; {self.host} among them'}")

    @contextlib.contextmanager
    def pulsing(self) -> t.Iterator[None]:
        """Within this context a thread calls `pulse`, so that a stage that works in silence is spoken of."""
        stop = threading.Event()

        def pulse() -> None:
            while not stop.wait(1.0):
                self.pulse()

        threading.Thread(target=pulse, daemon=True).start()
        try:
            yield
        finally:
            stop.set()

    def add(self, measurements: list[PlainData]) -> None:
        """Count the nodes of these measurements as done. On a terminal, show a line if none was shown for PROGRESS_S."""
        with contextlib.suppress(OSError):
            nodes = {
                m["subject"]["id"]
                for m in measurements
                if (m["check"], m["variant"], m["subject"]["id"]) in self.planned
                and is_counted(self.description, m["subject"], self.host, self.behind)
            }
            bad = {m["subject"]["id"] for m in measurements if m["outcome"] not in ("measured", "not_applicable")}
            with open(self.mailbox.path(mailbox.COUNT, stage=self.stage), "ab") as target:
                target.write(b"".join(b"x" if node in bad else b"." for node in nodes))
            now = time.time()
            shown_at = self.mailbox.path(mailbox.SHOWN, stage=self.stage)
            if not shown_at.exists():
                shown_at.write_text(str(now))
            elif TERMINAL and now - shown_at.stat().st_mtime > PROGRESS_S:
                os.utime(shown_at)
                Display().display(self._line(now))

    def _line(self, now: float, began: float | None = None) -> str:
        """Return the line of this moment. Raises OSError or KeyError if the plan says nothing of this stage. `began`: when the stage
        did."""
        total = self.mailbox.total(self.stage)
        count, first = self.mailbox.path(mailbox.COUNT, stage=self.stage), self.mailbox.path(mailbox.SHOWN, stage=self.stage)
        marks = count.read_bytes() if count.exists() else b""
        since = now - float(first.read_text()) if first.exists() else 0.0
        expected, behind = self.mailbox.expected_seconds(self.stage)
        left = time_left(len(marks), total, since, max(0.0, expected - (now - began)) if began is not None else 0.0)
        return progress_line(self.stage, marks, total, left, behind)


@contextlib.contextmanager
def still(what: str) -> t.Iterator[None]:
    """Within this context show a line about `what` this task does, as often as one about a stage."""
    stop, began = threading.Event(), time.monotonic()

    def say() -> None:
        while not stop.wait(PROGRESS_S if TERMINAL else LOGGED_S):
            Display().display(f"{what}, for {time.monotonic() - began:.0f} s")

    threading.Thread(target=say, daemon=True).start()
    try:
        yield
    finally:
        stop.set()


def is_counted(stage: Stage, subject: SubjectData, target: str, behind: bool) -> bool:
    """Return True if the progress of a stage counts a subject. A stage between nodes counts its nodes only: no group, no pair, and no
    host that stands for unknown nodes (`behind`). Any other stage counts all its subjects."""
    return stage.topology not in (GROUP, ROUNDS, TOGETHER) or (subject["kind"] == "node" and not (behind and subject["id"] == target))


def time_left(done: int, total: int, since: float, expected: float) -> float:
    """Return the seconds that a stage still needs, 0.0 if that cannot be said. `since` is the time since the first node was done, and
    `expected` is what is left of the time that the plan gives to the stage; it is returned until two nodes are done."""
    if done >= total:
        return 0.0
    return since / (done - 1) * (total - done) if done > 1 and since else expected


def progress_line(stage: str, marks: bytes, total: int, left: float, behind: float = 0.0) -> str:
    """Return a line about a stage. `marks` has one byte for each finished node, `x` for one without a result. `left` are the seconds that
    the stage still needs, `behind` those of the stages behind it, 0.0 if not known."""
    bad, remaining = marks.count(b"x"), total - len(marks)
    line = f"{stage}: {len(marks)} of {total} nodes done" + (f", {bad} of them without a result" if bad else "")
    if remaining > 0:
        line += f", {remaining} running or waiting"
    if left:
        line += f", about {_duration(left)} to go" + (f", and {_duration(behind)} for the stages behind it" if behind else "")
    return line


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
