# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removes the objects of a launch at its end, however this process ends.

Pods that have ended, or have answered and requested no resources, hold nothing. The API server takes seconds to delete thousands of them.
A background process does that while the run goes on; only the end of the run waits for it.

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
    """A launch on a cluster."""

    def clean(self) -> list[str]:
        """Remove all its objects. Return those that are still there."""


@t.runtime_checkable
class Ending(Launched, t.Protocol):
    """A launch whose pods end by themselves."""

    def ended(self) -> bool:
        """Return True if its removal may go on in the background: all pods have answered and hold nothing that others need."""

    def forked(self) -> None:
        """Prepare the launch for use in a process that was just forked."""


@contextlib.contextmanager
def cleanup_guard(launched: Launched, controller: int, name: str, behind: pathlib.Path | None = None) -> t.Iterator[None]:
    """Remove `launched` at the end of the context, also after Ctrl-C and SIGTERM, and when our parent process `controller` is gone. After a
    SIGKILL of this process the next start of any run removes it. With the folder `behind`, a launch that has ended is removed in the
    background, see removing.removed(). `name` is used in messages about leftovers."""
    stop = threading.Event()
    cleaning = threading.Lock()
    ending = completed = False

    def orphaned() -> None:
        while not stop.wait(0.5):
            if os.getppid() != controller:
                with cleaning, contextlib.suppress(Exception):
                    launched.clean()
                os._exit(1)

    def end(_number: int, _frame: t.Any) -> None:
        # Ansible sends both signals within a millisecond. The second must not interrupt the clean-up that the first has started.
        nonlocal ending
        if not ending:
            ending = True
            raise SystemExit(1)

    threading.Thread(target=orphaned, daemon=True).start()
    old_handlers = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
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
                except OSError:  # a full disk or too many processes: remove it here and wait
                    later = False
            if not later and (problem := _remove(launched)):
                Display().warning(f"{name}: {problem}")
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
        stop.set()


def _remove(launched: Launched) -> str:
    """Remove a launch. Return a sentence about what could not be removed, empty if all was."""
    try:
        remaining = launched.clean()
    except KubeError as error:
        return f"what was made could not be removed: {error.reason}"
    return f"still being deleted: {', '.join(remaining[:10])}" if remaining else ""


def _leave(launched: Ending, name: str, behind: pathlib.Path) -> None:
    """Remove a launch in a background process, which holds a lock on a file in `behind` until it has finished. It is detached: neither
    Ctrl-C nor a SIGKILL of the controller ends it."""
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
                except Exception as error:  # there is no other way to report it
                    problem = f"pods are left: {type(error).__name__}: {error}"
                target.write(problem or removing.DONE)
                target.flush()
        finally:
            os._exit(0)
