# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program that serves on loopback for as long as a test needs it: started without an init system, its output kept in a file."""

from __future__ import annotations

import pathlib
import socket
import subprocess
import time
import typing as t

from rigs.common import RigError

READY_S = 60.0


def free_port() -> int:
    """A port of the loopback that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Service:
    """One process; `folder` has its output and is where it runs."""

    def __init__(self, name: str, argv: t.Sequence[str], folder: pathlib.Path) -> None:
        self.name = name
        self.argv = list(argv)
        self.folder = folder
        self.log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                self.argv, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def until(self, what: str, ready: t.Callable[[], t.Any]) -> t.Any:
        """Return what `ready` returns once it is true; RigError with the end of its output where it ended before or never was."""
        end = time.monotonic() + READY_S
        while time.monotonic() < end:
            if self._process is None or self._process.poll() is not None:
                break
            found = ready()
            if found:
                return found
            time.sleep(0.05)
        tail = self.log.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise RigError(f"{self.name}: not {what} after {READY_S:.0f} s: {tail}")

    def listens(self, port: int) -> None:
        self.until(f"listening on {port}", lambda: _answers(port))

    def end(self, within: float = 20.0) -> None:
        """End the process, by force if it lives on for so many seconds."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(within)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
