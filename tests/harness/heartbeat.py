# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines that say which tests run, where pytest would print nothing for a while."""

from __future__ import annotations

import threading
import time

import pytest

SILENCE_S = 9.0


class Heartbeat:
    """A plugin that prints a line whenever no test has ended for SILENCE_S seconds, with the tests that run and since when."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.began = self.printed = time.monotonic()
        self.running: dict[str, float] = {}
        self.tests = self.done = 0
        self.ended = threading.Event()

    def pytest_sessionstart(self) -> None:
        threading.Thread(target=self._beat, daemon=True).start()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.tests = len(session.items)

    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self.tests = len(ids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.running[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.running.pop(nodeid, None)
        self.done += 1
        self.printed = time.monotonic()

    def pytest_sessionfinish(self) -> None:
        self.ended.set()

    def line(self, now: float) -> str:
        """Return "  120 s: 7 of 372 tests done; running: test_a (12 s), test_b (3 s)", the longest first."""
        progress = f"{self.done} of {self.tests} tests done" if self.tests else "collecting tests"
        longest = sorted(self.running.items(), key=lambda item: item[1])
        names = ", ".join(f"{nodeid.rpartition('::')[2]} ({now - since:.0f} s)" for nodeid, since in longest)
        return f"  {now - self.began:.0f} s: {progress}{'; running: ' if names else ''}{names}"

    def _beat(self) -> None:
        while not self.ended.wait(0.5):
            now = time.monotonic()
            if now - self.printed > SILENCE_S:
                self.printed = now
                reporter = self.config.pluginmanager.get_plugin("terminalreporter")
                if reporter is not None:
                    reporter.ensure_newline()
                    reporter.write_line(self.line(now))
