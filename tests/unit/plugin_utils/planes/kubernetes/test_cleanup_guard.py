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
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.cleanup_guard import cleanup_guard
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.removing import removed

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


def hold(path: pathlib.Path, controller: int, signals: tuple[signal.Signals, ...]) -> None:
    """In a child of `controller`: hold a thing, and be told to end by all `signals` in the same moment."""
    with cleanup_guard(Thing(path), controller, "lab"):
        signal.pthread_sigmask(signal.SIG_BLOCK, BOTH)
        for number in signals:
            os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, BOTH)
        while True:
            time.sleep(0.1)


def child(path: pathlib.Path, signals: tuple[signal.Signals, ...]) -> int:
    controller = os.getpid()  # not asked in the child, whose parent may be gone by then
    pid = os.fork()
    if not pid:
        status = 3
        try:
            hold(path, controller, signals)
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
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    os.kill(controller, signal.SIGKILL)
    os.waitpid(controller, 0)
    while path.exists():
        assert time.monotonic() < end
        time.sleep(0.05)


class Pods(Thing):
    """A thing that has ended by itself, or not; its removal takes a moment."""

    def __init__(self, path: pathlib.Path, over: bool = True, left: tuple[str, ...] = (), dies: bool = False) -> None:
        super().__init__(path)
        self.over, self.left, self.dies, self.here = over, list(left), dies, os.getpid()

    def ended(self) -> bool:
        return self.over

    def forked(self) -> None:
        assert os.getpid() != self.here

    def clean(self) -> list[str]:
        if os.getpid() != self.here:
            time.sleep(0.5)
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        super().clean()
        return self.left


def test_what_has_ended_is_removed_behind_our_back_and_waited_for_in_the_end(tmp_path: pathlib.Path) -> None:
    pods = Pods(tmp_path / "thing")
    with cleanup_guard(pods, os.getppid(), "lab: run 1", tmp_path / "removing"):
        pass
    assert pods.path.exists()
    assert list(removed(tmp_path / "removing")) == [] and not pods.path.exists()
    assert not list((tmp_path / "removing").iterdir())


def test_what_still_runs_is_removed_at_once(tmp_path: pathlib.Path) -> None:
    pods = Pods(tmp_path / "thing", over=False)
    with cleanup_guard(pods, os.getppid(), "lab: run 1", tmp_path / "removing"):
        pass
    assert not pods.path.exists() and not (tmp_path / "removing").exists()


def test_what_fails_is_removed_at_once(tmp_path: pathlib.Path) -> None:
    pods = Pods(tmp_path / "thing")
    with pytest.raises(ValueError, match="mine"), cleanup_guard(pods, os.getppid(), "lab: run 1", tmp_path / "removing"):
        raise ValueError("mine")
    assert not pods.path.exists() and not (tmp_path / "removing").exists()


def test_what_is_left_and_a_remover_that_died_are_named(tmp_path: pathlib.Path) -> None:
    for pods in (Pods(tmp_path / "a", left=("pods/x",)), Pods(tmp_path / "b", dies=True)):
        with cleanup_guard(pods, os.getppid(), f"lab: run {pods.path.name}", tmp_path / "removing"):
            pass
    said = sorted(removed(tmp_path / "removing"))
    assert said[0] == "lab: run a: still being deleted: pods/x"
    assert said[1].startswith("lab: run b: something may be left on nodes: whatever removes it has not ended")


def test_where_nothing_can_be_left_for_later_it_is_removed_at_once(tmp_path: pathlib.Path) -> None:
    pods = Pods(tmp_path / "thing")
    (tmp_path / "removing").write_text("a file is in the way, as good as a disk that is full")
    with cleanup_guard(pods, os.getppid(), "lab: run 1", tmp_path / "removing"):
        pass
    assert not pods.path.exists()
