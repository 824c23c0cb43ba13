# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a launch has made goes with it, whatever ends us.

Pods that have ended, or have answered and asked for no resources, hold nothing. Thousands of them take the API server seconds to delete,
for which nobody needs to wait: a process of its own does it while the run goes on, and only the end of the run waits for that.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import secrets
import signal
import threading
import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import removing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError


class Launched(t.Protocol):
    """Something that is on a cluster."""

    def clean(self) -> list[str]:
        """Remove all of it; what is still there in the end."""


@t.runtime_checkable
class Ending(Launched, t.Protocol):
    """Something whose parts end by themselves."""

    def ended(self) -> bool:
        """Whether nobody has to wait for its removal: all of it has answered, and holds nothing that others want."""

    def forked(self) -> None:
        """What has to be done first in a process that was just forked."""


@contextlib.contextmanager
def cleanup_guard(launched: Launched, controller: int, name: str, behind: pathlib.Path | None = None) -> t.Iterator[None]:
    """Remove `launched` in the end, after Ctrl-C and SIGTERM too, and when process `controller`, our parent, is gone. After SIGKILL of
    us the next start of any run does it. What has ended by itself is removed behind our back where `behind` is given: a folder, for
    removed(). `name` stands in what is said of leftovers."""
    stop = threading.Event()
    cleaning = threading.Lock()
    ending = completed = False

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
    old_handlers = {number: signal.signal(number, told) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        try:
            yield
            completed = True
        finally:
            ending = True
    finally:
        with cleaning:
            later = completed and behind is not None and isinstance(launched, Ending) and launched.ended()
            if later:
                try:
                    _leave(t.cast("Ending", launched), name, t.cast("pathlib.Path", behind))
                except OSError:  # a disk that is full, a process too many: then somebody has to wait
                    later = False
            if not later and (problem := _remove(launched)):
                Display().warning(f"{name}: {problem}")
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
        stop.set()


def _remove(launched: Launched) -> str:
    """What could not be removed, in words."""
    try:
        remaining = launched.clean()
    except KubeError as error:
        return f"what was made could not be removed: {error.reason}"
    return f"still being deleted: {', '.join(remaining[:10])}" if remaining else ""


def _leave(launched: Ending, name: str, behind: pathlib.Path) -> None:
    """Remove it in a process of its own, which holds a lock on a file in `behind` until it has, and belongs to nobody: neither Ctrl-C
    nor SIGKILL of the controller ends it."""
    behind.mkdir(exist_ok=True)
    with open(behind / secrets.token_hex(8), "w", encoding="utf-8") as target:
        target.write(f"{name}\n")
        target.flush()
        fcntl.flock(target, fcntl.LOCK_EX)
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
        try:
            os.setsid()
            if not os.fork():
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, signal.SIG_IGN)
                nothing = os.open(os.devnull, os.O_RDWR)
                for stream in (0, 1, 2):
                    os.dup2(nothing, stream)
                try:
                    launched.forked()
                    problem = _remove(launched)
                except Exception as error:  # nobody else would hear of it
                    problem = f"pods are left: {type(error).__name__}: {error}"
                target.write(problem or removing.DONE)
                target.flush()
        finally:
            os._exit(0)
