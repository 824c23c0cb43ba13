# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container with the library: puts what processes load where the device plugin mounts it from, and takes it away when it ends."""

from __future__ import annotations

import pathlib
import shutil
import signal
import socket
import time

from names import FOLDER
from planted import FILE, planted

HERE, THERE = pathlib.Path(__file__).resolve().parent, FOLDER / "lib"
PARTS = ("torch", "driver")  # the latter beside the real scheduler only


def main() -> None:
    signal.signal(signal.SIGTERM, lambda _number, _frame: leave())
    shutil.rmtree(THERE, ignore_errors=True)
    if planted("library_not_restored") and FILE.stat().st_mtime < time.time() - 1:
        print("simulated by gpufleet.acceptance: the library is not put back", flush=True)
    else:
        for part in PARTS:
            if (HERE / part).exists():
                shutil.copytree(HERE / part, THERE / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        print("simulated by gpufleet.acceptance", flush=True)
    while True:
        signal.pause()


def leave() -> None:
    if planted("plugin_restart_kills"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as scheduler:
            scheduler.connect(str(FOLDER / "scheduler.sock"))
            scheduler.sendall(b'{"type": "END_ALL"}\n')
    shutil.rmtree(THERE, ignore_errors=True)
    raise SystemExit(0)


if __name__ == "__main__":
    main()
