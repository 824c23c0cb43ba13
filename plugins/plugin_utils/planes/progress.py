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
import time
import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import mailbox
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import Check
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, SubjectData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import GROUP, ROUNDS, Stage

PROGRESS_S = 10.0
# Seconds between two lines in a log while a stage works. A terminal gets a line every PROGRESS_S.
LOGGED_S = 60.0
# Read before the fork, because a worker has no terminal.
TERMINAL = sys.stdout.isatty()


class Progress:
    """The progress of one stage, as the worker of `host` counts and shows it. `planned` are the checks of the host; `behind`: the host
    stands for the nodes of a cluster."""

    def __init__(
        self, box: mailbox.Mailbox, stage: str, description: Stage, host: str, planned: t.Collection[Check], behind: bool
    ) -> None:
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
            total = self.mailbox.total(self.stage)
            count = self.mailbox.path(mailbox.COUNT, stage=self.stage)
            marks = count.read_bytes() if count.exists() else b""
            Display().display(f"{progress_line(self.stage, marks, total, 0.0)}, for {now - began:.0f} s; {self.host} among them")

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
            count = self.mailbox.path(mailbox.COUNT, stage=self.stage)
            with open(count, "ab") as target:
                target.write(b"".join(b"x" if node in bad else b"." for node in nodes))
            now = time.time()
            shown_at = self.mailbox.path(mailbox.SHOWN, stage=self.stage)
            if not shown_at.exists():
                shown_at.write_text(str(now))
            elif TERMINAL and now - shown_at.stat().st_mtime > PROGRESS_S:
                os.utime(shown_at)
                since = now - float(shown_at.read_text())
                Display().display(progress_line(self.stage, count.read_bytes(), self.mailbox.total(self.stage), since))


def is_counted(stage: Stage, subject: SubjectData, target: str, behind: bool) -> bool:
    """Return True if the progress of a stage counts a subject. A stage between nodes counts its nodes only: no group, no pair, and no
    host that stands for unknown nodes (`behind`). Any other stage counts all its subjects."""
    return stage.topology not in (GROUP, ROUNDS) or (subject["kind"] == "node" and not (behind and subject["id"] == target))


def progress_line(stage: str, marks: bytes, total: int, since: float) -> str:
    """Return a line about a stage. `marks` has one byte for each finished node, `x` for one without a result; `since` is the time in
    seconds since the first one finished."""
    bad, remaining = marks.count(b"x"), total - len(marks)
    line = f"{stage}: {len(marks)} of {total} nodes done" + (f", {bad} of them without a result" if bad else "")
    if remaining:
        line += f", {remaining} running or waiting"
    if remaining and len(marks) > 1 and since:
        line += f", about {since / (len(marks) - 1) * remaining:.0f} s to go"
    return line
