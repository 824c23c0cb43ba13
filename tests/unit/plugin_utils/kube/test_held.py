# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real processes that are told to end, or whose parent dies, while they hold something."""

from __future__ import annotations

import os
import pathlib
import signal
import time

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.kube.held import held

BOTH = (signal.SIGINT, signal.SIGTERM)


class Thing:
    """Something on a cluster: a file."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        path.touch()

    def clean(self) -> list[str]:
        time.sleep(0.01)  # requests take a while, and signals come meanwhile
        self.path.unlink(missing_ok=True)
        return []


def hold(path: pathlib.Path, signals: tuple[signal.Signals, ...]) -> None:
    """In a child: hold a thing, and be told to end by all `signals` in the same moment."""
    with held(Thing(path), os.getppid(), "lab"):
        signal.pthread_sigmask(signal.SIG_BLOCK, BOTH)
        for number in signals:
            os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, BOTH)
        while True:
            time.sleep(0.1)


def child(path: pathlib.Path, signals: tuple[signal.Signals, ...]) -> int:
    pid = os.fork()
    if not pid:
        status = 3
        try:
            hold(path, signals)
        except SystemExit as done:
            status = int(str(done.code))
        finally:
            os._exit(status)
    return pid


@pytest.mark.parametrize("signals", [(signal.SIGINT,), (signal.SIGTERM,), BOTH, BOTH * 3])
def test_what_was_made_goes_however_many_signals_come_at_once(tmp_path: pathlib.Path, signals: tuple[signal.Signals, ...]) -> None:
    path = tmp_path / "thing"
    for _again in range(5):
        _pid, status = os.waitpid(child(path, signals), 0)
        assert os.waitstatus_to_exitcode(status) == 1
        assert not path.exists()


def test_it_goes_when_the_parent_is_killed(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "thing"
    controller = os.fork()
    if not controller:
        child(path, ())
        time.sleep(60)
        os._exit(0)
    end = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    os.kill(controller, signal.SIGKILL)
    os.waitpid(controller, 0)
    while path.exists():
        assert time.monotonic() < end
        time.sleep(0.05)
