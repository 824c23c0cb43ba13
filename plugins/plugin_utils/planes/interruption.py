# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ctrl-C and signals: the main process of ansible-playbook tells its helper processes, and waits for them before it ends.

A helper is a process that ends what the run has started elsewhere. It is begun by a worker, which has left the terminal, so it inherits
from the main process two pipes and the terminal's error output. Without a helper nothing changes.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import select
import signal
import time
import typing as t

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Longer than a helper takes to tell its hosts (ssh/heartbeats.py).
WAIT_S = 75.0
BEGUN, DONE = b"+", b"-"
# More than a process begins: one for each run.
HELPERS = 256


class Inherited(t.NamedTuple):
    """File descriptors for a helper: `told` has a byte, or its end, when it shall work; it writes BEGUN and DONE to `said`; `terminal`
    shows text."""

    told: int
    said: int
    terminal: int


class _Main:
    """The main process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.told_read, self.told_write = os.pipe()
        self.said_read, self.said_write = os.pipe()
        self.terminal = os.dup(2)
        self.is_told = False
        self.previous: dict[int, t.Any] = {}
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if handler not in (signal.SIG_IGN, None):  # nohup, or not set by Python
                self.previous[number] = handler
                signal.signal(number, self.on_signal)

    def on_signal(self, number: int, frame: t.Any) -> None:
        """Tell the helpers and wait for them, then do what the signal does without us. A second signal waits for nobody."""
        if os.getpid() == self.pid and not self.is_told:
            self.is_told = True
            os.write(self.told_write, b"!" * HELPERS)  # each helper takes one
            self._wait()
        previous = self.previous[number]
        if callable(previous):
            previous(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _wait(self) -> None:
        at_work, until = 0, time.monotonic() + WAIT_S
        while select.select([self.said_read], [], [], max(0.0, until - time.monotonic()) if at_work else 0)[0]:
            words = os.read(self.said_read, 64)
            at_work += words.count(BEGUN) - words.count(DONE)
            if not words or (at_work <= 0 and not select.select([self.said_read], [], [], 0)[0]):
                return


_main: _Main | None = None


def install() -> None:
    """Handle signals from now on. Called in the main process, before it forks; again, it does nothing."""
    global _main  # noqa: PLW0603
    if _main is None:
        _main = _Main()


def inherited() -> Inherited | None:
    """Return what a helper of this process, or of its worker, needs; None if signals are not handled."""
    return Inherited(_main.told_read, _main.said_write, _main.terminal) if _main else None
