# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removals that go on in the background of a run. The removing process holds a lock on a file in the run's folder and writes its result
there.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import fcntl
import pathlib
import time
import typing as t

# The second line of the file of a removal that succeeded. The first line names what is removed.
DONE = "done"


def removed(behind: pathlib.Path, wait_s: float = 120.0) -> t.Iterator[str]:
    """Wait at most `wait_s` seconds for the removals of a run. Yield a sentence for each that failed or has not ended."""
    until = time.monotonic() + wait_s
    for path in sorted(behind.glob("*")):
        with open(path, encoding="utf-8") as target:
            while True:
                try:
                    fcntl.flock(target, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        break
                    time.sleep(0.05)
            name, _line, message = target.read().partition("\n")
        if message != DONE:
            yield f"{name}: {message or 'something may be left on nodes: whatever removes it has not ended; the next start does it again'}"
        path.unlink()
