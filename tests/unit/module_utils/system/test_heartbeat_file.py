# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pathlib
import subprocess
import time

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import heartbeat
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.heartbeat import Heartbeat


@pytest.fixture
def entries() -> list[dict]:
    return []


@pytest.fixture
def beating(entries):
    made = Heartbeat.new(lambda kind, **fields: entries.append({"kind": kind, **fields}), 0.5)
    yield made
    pathlib.Path(made.path).unlink(missing_ok=True)
    os.close(made.handle)


def chmod(mode: str, beating: Heartbeat) -> int:
    return subprocess.run(["chmod", mode, beating.path], stderr=subprocess.DEVNULL).returncode


def lapses(beating: Heartbeat, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if beating.has_lapsed():
            return True
        time.sleep(0.02)
    return False


def test_the_file_is_in_the_ledger_and_its_undo_removes_it(beating, entries) -> None:
    assert entries == [{"kind": "heartbeat", "path": beating.path}] and heartbeat.PATH.fullmatch(beating.path)
    assert heartbeat.undo(entries[0]) == ""
    assert not os.path.exists(beating.path) and chmod("0600", beating) != 0


def test_silence_lapses_and_each_change_of_the_same_mode_is_a_sign_of_life(beating) -> None:
    for _beat in range(3):
        time.sleep(0.3)
        assert chmod("0600", beating) == 0 and not beating.has_lapsed()
    assert lapses(beating, 3) and not beating.is_told_to_end()


def test_an_order_to_end_stays_when_the_node_beats_by_itself(beating) -> None:
    assert chmod("0400", beating) == 0 and beating.is_told_to_end()
    heartbeat.beat(beating.path)
    assert beating.is_told_to_end()


def test_a_file_that_somebody_removed_is_silence(beating) -> None:
    os.unlink(beating.path)
    assert lapses(beating, 3)


@pytest.fixture
def outliving():
    made = Heartbeat.new(lambda kind, **fields: None, 0.3, outlives=True)
    yield made
    pathlib.Path(made.path).unlink(missing_ok=True)
    os.close(made.handle)


def test_a_probe_that_may_outlive_its_controller_does_not_lapse_behind_the_first_sign_of_life(outliving) -> None:
    assert chmod("0600", outliving) == 0
    assert not lapses(outliving, 0.9)


def test_a_probe_that_may_outlive_its_controller_lapses_if_the_controller_never_heard_of_it(outliving) -> None:
    assert lapses(outliving, 3)


def test_the_file_that_the_controller_knows_is_made_again(outliving) -> None:
    def made(known: str) -> str:
        again = Heartbeat.new(lambda kind, **fields: None, known=known)
        os.close(again.handle)
        if again.path != outliving.path:
            os.unlink(again.path)
        return again.path

    assert made(outliving.path) != outliving.path, "it exists: another guardian has it"
    assert made("/etc/passwd") != "/etc/passwd"
    os.unlink(outliving.path)
    assert made(outliving.path) == outliving.path


@pytest.mark.parametrize("path", ["/etc/passwd", "/tmp/gpufleet-acceptance-", "/tmp/gpufleet-acceptance-" + "0" * 31, "", "; reboot"])
def test_no_other_file_is_touched_or_removed(path: str, tmp_path: pathlib.Path) -> None:
    assert not heartbeat.PATH.fullmatch(path)
    heartbeat.beat(path)
    heartbeat.undo({"path": path})


def test_the_login_user_is_the_one_before_sudo(monkeypatch) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    assert heartbeat.login_user() == 1234
    monkeypatch.setenv("SUDO_UID", "root")
    assert heartbeat.login_user() != 1234
