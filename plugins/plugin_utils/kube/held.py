# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a launch has made goes with it, whatever ends us.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube.client import KubeError


class Launched(t.Protocol):
    """Something that is on a cluster."""

    def clean(self) -> list[str]:
        """Remove all of it; what is still there in the end."""


@contextlib.contextmanager
def held(launched: Launched, controller: int, name: str) -> t.Iterator[None]:
    """Remove `launched` in the end, after Ctrl-C and SIGTERM too, and when process `controller`, our parent, is gone. After SIGKILL of
    us the next start of any run does it. `name` stands in what is said of leftovers."""
    stop = threading.Event()
    ending = False
    cleaning = threading.Lock()

    def orphaned() -> None:
        while not stop.wait(0.5):
            if os.getppid() != controller:
                with cleaning, contextlib.suppress(Exception):
                    launched.clean()
                os._exit(1)

    def told(_number: int, _frame: t.Any) -> None:
        # Ansible sends both within a millisecond: the second may not stop what the first has begun.
        nonlocal ending
        if not ending:
            ending = True
            raise SystemExit(1)

    threading.Thread(target=orphaned, daemon=True).start()
    before = {number: signal.signal(number, told) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        try:
            yield
        finally:
            ending = True
    finally:
        try:
            with cleaning:
                left = launched.clean()
            if left:
                Display().warning(f"{name}: still being deleted: {', '.join(left[:10])}")
        except KubeError as error:
            Display().warning(f"{name}: what was made could not be removed: {error.reason}")
        for number, handler in before.items():
            signal.signal(number, handler)
        stop.set()
