# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The process that keeps detached probes alive, with hosts that are files of this machine."""

from __future__ import annotations

import concurrent.futures
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import heartbeat
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import interruption
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.ssh import heartbeats
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.ssh.heartbeats import Host


class Controller:
    """A process that is the controller, and the keeper of its hosts."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(["sleep", "600"])
        self.told_read, self.told = os.pipe()
        self.said, said_write = os.pipe()
        self.screen = folder / "screen"
        with open(self.screen, "wb") as screen:
            heartbeats.begin(folder, self.process.pid, self.told_read, said_write, screen.fileno(), "stop it")
        os.close(said_write)
        assert os.read(self.said, 1) == b"+"

    def interrupt(self) -> None:
        os.write(self.told, b"!")

    def kill(self) -> None:
        self.process.kill()

    def shown(self) -> str:
        """Wait for the end of the keeper; return what it has shown."""
        assert os.read(self.said, 1) == b"-"
        return self.screen.read_text()


@pytest.fixture
def controller(tmp_path):
    made = Controller(tmp_path)
    yield made
    made.process.kill()
    made.process.wait()


def started(folder: pathlib.Path, name: str, outlives: bool = False, reach: tuple[str, ...] = ()) -> pathlib.Path:
    file = folder / f"file-of-{name}"
    file.touch(mode=0o600)
    heartbeats.write(folder / f"{name}.heartbeat", Host(name, reach, str(file), outlives))
    return file


def guardian(*files: pathlib.Path) -> subprocess.Popen[bytes]:
    """Remove each file as soon as its mode says so."""
    program = """
import os, sys, time
files = sys.argv[1:]
while files:
    for file in list(files):
        if not os.stat(file).st_mode & 0o200:
            os.unlink(file)
            files.remove(file)
    time.sleep(0.02)
"""
    return subprocess.Popen([sys.executable, "-c", program, *map(str, files)])


def test_the_heartbeat_file_is_touched_while_the_controller_lives(controller) -> None:
    file = started(controller.folder, "a")
    before = file.stat().st_ctime_ns
    end = time.monotonic() + 60
    while file.stat().st_ctime_ns == before:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_ctrl_c_ends_all_also_what_may_outlive_the_controller(controller) -> None:
    with guardian(started(controller.folder, "a"), started(controller.folder, "soak", outlives=True)) as files:
        controller.interrupt()
        assert "interrupted: telling 2 hosts to end" in (shown := controller.shown()) and "2 hosts of 2 have ended" in shown
        assert files.wait(60) == 0


def test_a_probe_that_a_worker_collects_meanwhile_is_waited_for_and_counted(controller) -> None:
    file = started(controller.folder, "a")
    with guardian(started(controller.folder, "b")):
        controller.interrupt()
        while file.stat().st_mode & 0o200:
            time.sleep(0.02)
        (controller.folder / "a.heartbeat").unlink()
        file.unlink()
        assert "2 hosts of 2 have ended" in controller.shown()


def test_a_controller_that_is_gone_ends_all_but_what_may_outlive_it(controller) -> None:
    soak = started(controller.folder, "soak", outlives=True)
    with guardian(started(controller.folder, "a")):
        controller.kill()
        assert "the controller is gone: telling 1 host to end" in controller.shown()
    assert soak.stat().st_mode & 0o200


def test_a_controller_that_was_gone_before_the_keeper_began_is_gone(tmp_path) -> None:
    keeper = heartbeats.Keeper(tmp_path, 2**22 + 1, os.open(os.devnull, os.O_RDONLY), 2, "")
    told_read, told = os.pipe()
    keeper.told = told_read
    assert not keeper.keep()
    os.close(told)


def test_hosts_that_do_not_answer_are_named_with_the_command_that_ends_them(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(heartbeats, "END_S", 2.0)
    started(tmp_path, "far", reach=("sh", "-c", "exit 255"))
    started(tmp_path, "stuck")
    with open(tmp_path / "screen", "wb") as screen:
        heartbeats.Keeper(tmp_path, os.getpid(), 0, screen.fileno(), "stop it").end(interrupted=True)
    shown = (tmp_path / "screen").read_text()
    assert "far (not reached), stuck (told, still at work)" in shown and "stop it" in shown


def test_one_process_keeps_all_hosts_of_a_controller(controller) -> None:
    heartbeats.begin(controller.folder, controller.process.pid, controller.told_read, controller.told, 2, "")
    assert len([p for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if _is_ours(p, controller.folder)]) == 1


def test_a_worker_waits_for_the_process_that_another_one_begins(tmp_path) -> None:
    """Before it listens, Ctrl-C reaches nobody: what a worker then has started would go on."""
    with open(tmp_path / "heartbeats.lock", "w") as lock, concurrent.futures.ThreadPoolExecutor() as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)
        begun = pool.submit(heartbeats.begin, tmp_path, os.getpid(), 0, 1, 2, "")
        assert concurrent.futures.wait([begun], 0.5).not_done
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert begun.result(10)
    assert not [p for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if _is_ours(p, tmp_path)]


def _is_ours(path: pathlib.Path, folder: pathlib.Path) -> bool:
    try:
        return str(folder).encode() in path.read_bytes() and b"heartbeats.py" in path.read_bytes()
    except OSError:
        return False


def test_two_runs_of_one_process_are_both_told(tmp_path) -> None:
    """ansible-playbook acceptance.yml soak.yml: each run has its own helper, and both hear of Ctrl-C."""
    told_read, told = os.pipe()
    said, said_write = os.pipe()
    controller = subprocess.Popen(["sleep", "600"])
    folders = [tmp_path / "one", tmp_path / "two"]
    try:
        for folder in folders:
            folder.mkdir()
            with open(folder / "screen", "wb") as screen:
                assert heartbeats.begin(folder, controller.pid, told_read, said_write, screen.fileno(), "stop it")
        with guardian(*(started(folder, "soak", outlives=True) for folder in folders)):
            os.write(told, b"!" * interruption.HELPERS)
            words = b""
            while words.count(b"-") < 2:
                words += os.read(said, 8)
        assert all("interrupted: telling 1 host" in (folder / "screen").read_text() for folder in folders)
    finally:
        controller.kill()
        controller.wait()


def test_a_helper_that_cannot_begin_is_told(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(heartbeats.sys, "executable", "/nowhere/python3")
    assert not heartbeats.begin(tmp_path, os.getpid(), 0, 1, 2, "")


def test_a_file_that_is_being_removed_or_no_file_of_ours_is_passed_over(tmp_path) -> None:
    started(tmp_path, "a")
    (tmp_path / "b.heartbeat").write_text("{")
    (tmp_path / "c.heartbeat").write_text(json.dumps({"name": "c"}))
    assert list(heartbeats.hosts(tmp_path)) == ["a"]


def test_the_modes_are_those_of_the_node() -> None:
    assert (int(heartbeats.LIVES, 8), int(heartbeats.END, 8)) == (heartbeat.LIVES, heartbeat.END)
    assert heartbeats.BEAT_S * 3 < heartbeat.LAPSE_S
