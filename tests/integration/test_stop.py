# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stop means stop: with more hosts than forks every probe is detached, and still ends with its controller. A gate holds the tool."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import time

import pytest
from harness.fleet_runs import Acceptance, Done, results_of, run_folder, wait

pytestmark = pytest.mark.fleet
HOSTS = ("gpu-01", "gpu-02", "gpu-03", "gpu-04", "gpu-05")
STOP, STATUS, RESTORE, SOAK = (f"playbooks/{name}.yml" for name in ("stop", "status", "restore", "soak"))


# As a shell starts what runs in its background.
IN_BACKGROUND = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")


def detached(healthy: Acceptance, *before: str) -> tuple[list[str], subprocess.Popen[str]]:
    """A run with two forks whose tool waits on all five hosts. `before` are words before its command."""
    variables = healthy.gate(*HOSTS)
    command = healthy.command(HOSTS, "-f", "2", "--tags", "nccl_node", variables=variables)
    running = healthy.start([*before, *command])
    healthy.at_gate(running, *HOSTS)
    wait(lambda: len(list(results_of(command).glob("*/todo/*.heartbeat"))) == len(HOSTS), running)
    return command, running


@pytest.fixture
def held(healthy: Acceptance) -> tuple[list[str], subprocess.Popen[str]]:
    return detached(healthy)


def keeper(command: list[str]) -> int:
    """Return the process that keeps the probes of a run alive."""
    folder = str(results_of(command))
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().decode(errors="replace").split("\0") if path.exists() else []
        if any(word.endswith("ssh/heartbeats.py") for word in words) and any(word.startswith(folder) for word in words):
            return int(path.parent.name)
    raise AssertionError("no process keeps the probes alive")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=["ctrl-c", "term", "hup"])
def test_a_signal_ends_what_was_started_detached_and_says_so(healthy: Acceptance, held, number: int) -> None:
    command, running = held
    running.send_signal(number)
    assert running.wait(90) != 0
    output = healthy.output(command).read_text()
    assert "telling 5 hosts to end" in output and "5 hosts of 5 have ended" in output, output[-2000:]
    healthy.nothing_left(*HOSTS, seconds=5, but_results=True)


def test_a_controller_that_was_started_with_ctrl_c_ignored_ends_all_on_sigterm(healthy: Acceptance) -> None:
    command, running = detached(healthy, *IN_BACKGROUND)
    running.terminate()
    assert running.wait(90) != 0
    assert "5 hosts of 5 have ended" in healthy.output(command).read_text()
    healthy.nothing_left(*HOSTS, seconds=5, but_results=True)


def test_a_killed_controller_is_missed_at_once(healthy: Acceptance, held) -> None:
    _command, running = held
    running.kill()
    running.wait()
    healthy.nothing_left(*HOSTS, seconds=30, but_results=True)


def test_probes_end_by_themselves_a_minute_after_the_last_sign_of_life(healthy: Acceptance, held) -> None:
    command, running = held
    for pid in (keeper(command), running.pid):
        os.kill(pid, signal.SIGKILL)
    running.wait()
    healthy.nothing_left(*HOSTS, seconds=90, but_results=True)


def test_probes_that_outlast_the_silence_allowed_live_on_with_their_controller(healthy: Acceptance, held) -> None:
    command, running = held
    time.sleep(75)
    status = healthy.run(HOSTS, playbook=STATUS)
    folder = run_folder(results_of(command))
    assert folder and status.output.count(f"run {folder.name}: nccl_node runs since") == 5, status.output
    healthy.open(*HOSTS)
    done = healthy.end(command, running)
    assert done.status == 0, done.output[-3000:]
    healthy.nothing_left(*HOSTS)


def test_stop_ends_a_run_of_somebody_else_and_refuses_one_that_nobody_has(healthy: Acceptance, held) -> None:
    command, running = held
    folder = run_folder(results_of(command))
    assert folder
    unknown = healthy.run(HOSTS, "-e", "run_id=20260101T000000Z-0a1b2c", playbook=STOP)
    assert unknown.status != 0 and "expected a run that has something on one of these hosts" in unknown.output
    assert running.poll() is None
    stopped = healthy.run(HOSTS, "-e", f"run_id={folder.name}", playbook=STOP)
    assert stopped.status == 0 and stopped.output.count(": ended") == 5, stopped.output
    done: Done = healthy.end(command, running)
    assert done.status != 0 and {code for host in HOSTS for code in done.codes(host, "nccl_node")} == {"interrupted"}, done.output[-3000:]
    healthy.nothing_left(*HOSTS)


def test_restore_ends_a_run_whose_controller_is_gone(healthy: Acceptance, held) -> None:
    command, running = held
    for pid in (keeper(command), running.pid):
        os.kill(pid, signal.SIGKILL)
    running.wait()
    assert healthy.run(HOSTS, playbook=RESTORE).status == 0
    healthy.nothing_left(*HOSTS, seconds=20)


@pytest.fixture
def soaking(healthy: Acceptance) -> tuple[list[str], subprocess.Popen[str]]:
    """A soak of an hour on two hosts, whose first leg does not end."""
    for host in HOSTS[:2]:
        healthy.plant(host, FAULTS="soak_hang")
    command = healthy.command(HOSTS[:2], "-e", "hours=1", playbook=SOAK)
    running = healthy.start(command)
    wait(lambda: len(list(results_of(command).glob("*/todo/*.heartbeat"))) == 2, running)
    return command, running


def test_ctrl_c_ends_a_soak(healthy: Acceptance, soaking) -> None:
    command, running = soaking
    output = healthy.output(command).read_text()
    assert "soak goes on if this controller is killed" in output, output
    running.send_signal(signal.SIGINT)
    assert running.wait(90) != 0
    healthy.nothing_left(*HOSTS[:2], seconds=5, but_results=True)


def test_a_soak_outlives_a_killed_controller_and_says_so_until_it_is_stopped(healthy: Acceptance, soaking) -> None:
    _command, running = soaking
    running.kill()
    running.wait()
    time.sleep(10)
    status = healthy.run(HOSTS[:2], playbook=STATUS)
    assert status.output.count("soak runs since") == status.output.count("it goes on if its controller ends") == 2, status.output
    assert healthy.run(HOSTS[:2], playbook=STOP).status == 0
    healthy.nothing_left(*HOSTS[:2], seconds=20)


def test_a_soak_that_was_stopped_is_not_begun_again_by_its_living_controller(healthy: Acceptance, soaking) -> None:
    command, running = soaking
    folder = run_folder(results_of(command))
    assert folder
    stopped = healthy.run(HOSTS[:2], "-e", f"run_id={folder.name}", playbook=STOP)
    assert stopped.status == 0 and stopped.output.count(": ended") == 2, stopped.output
    done = healthy.end(command, running)
    assert done.status != 0 and {"UNKNOWN"} == {v["verdict"] for v in done.verdicts if v["stage"] == "soak"}
    healthy.nothing_left(*HOSTS[:2], seconds=5)
