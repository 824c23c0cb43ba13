# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The processor time that others used, of machines made of files."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import others
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from hypothesis import given
from hypothesis import strategies as st

HZ = os.sysconf("SC_CLK_TCK")
# pid: (name, parent). 50 is our own, 40 its guardian, 30 the module, 20 the connection, 10 sshd; 51 and 52 are the test.
TREE = {1: ("systemd", 0), 10: ("sshd", 1), 20: ("sshd", 10), 30: ("python3", 20), 40: ("python3", 30), 50: ("python3", 40),
        51: ("python3", 50), 52: ("worker", 51), 90: ("stress-ng", 1), 91: ("stress-ng", 90), 92: ("my job) x", 1)}  # fmt: skip


def state(
    at: float, busy: float, ticks: dict[int, float], reaped: dict[int, float] | None = None, stolen: float = 0, **more: t.Any
) -> others.Look:
    """A look; times in seconds of a processor."""
    processes = {}
    for pid, (name, parent) in TREE.items():
        if pid in more.get("alive", TREE):
            used, of_children = (int((times or {}).get(pid, 0) * HZ) for times in (ticks, reaped))
            processes[pid] = others.Process(name, parent, more.get("started", {}).get(pid, pid), used, of_children)
    return others.Look(at, 16, int(busy * HZ), int(stolen * HZ), more.get("stalled", 0), 50, processes)


def between(busy: float, ticks: dict[int, float], only_old: bool = False, **more: t.Any) -> dict[str, t.Any]:
    return others.used(state(100.0, 0, {}), state(110.0, busy, ticks, **more), only_old)


def test_a_quiet_machine_has_no_others() -> None:
    assert between(10.0, {51: 8.0, 52: 2.0}) == {"processors": 0.0, "of": 16, "stolen": 0.0, "stalled": 0.0, "programs": []}


def test_our_own_children_count_as_ours_whether_they_live_or_have_ended() -> None:
    ended = [pid for pid in TREE if pid not in (51, 52)]
    found = between(10.0, {50: 1.0}, reaped={50: 8.9}, alive=ended)
    assert found["processors"] == 0.01
    found = between(10.0, {50: 1.0}, reaped={40: 8.9}, alive=ended)  # the guardian waits for what outlived its parent
    assert found["processors"] == 0.01
    found = between(10.0, {50: 1.0}, reaped={1: 8.9, 10: 8.9}, alive=ended)  # systemd waits for everybody
    assert found["processors"] == 0.9


@given(ours=st.floats(0, 100), theirs=st.lists(st.floats(0, 50), min_size=3, max_size=3), short=st.floats(0, 50))
def test_the_rest_is_of_others_whoever_they_are(ours: float, theirs: list[float], short: float) -> None:
    """Also what began and ended between the looks, which only the sum shows."""
    ticks = {52: ours, **dict(zip((90, 91, 92), theirs))}
    found = between(ours + sum(theirs) + short, ticks)
    assert abs(found["processors"] - (sum(theirs) + short) / 10) < 0.02
    named = " ".join(found["programs"])
    assert ("my job) x" in named) == (theirs[2] * HZ // 1 / HZ / 10 >= others.LEAST)


def test_the_programs_are_named_the_busiest_first() -> None:
    found = between(80.0, {90: 10.0, 91: 60.0, 92: 9.0})
    assert found["programs"] == ["2 x stress-ng (7.0 processors)", "my job) x (0.9 processors)"]


def test_a_process_that_began_meanwhile_counts_whole_and_behind_a_container_engine_not_at_all() -> None:
    ticks = {92: 30.0}
    assert between(30.0, ticks, started={92: 5})["processors"] == 3.0
    assert between(30.0, ticks, True, started={92: 5})["processors"] == 0.0
    assert between(30.0, ticks, True)["processors"] == 3.0


def test_stolen_time_and_waiting_are_told() -> None:
    found = between(0.0, {}, stolen=20.0, stalled=9_000_000)
    assert found["stolen"] == 2.0 and found["stalled"] == 0.9
    assert "stalled" not in between(0.0, {}, stalled=Absent("no such file"))


@pytest.mark.parametrize("text", ["", "cpu\n", "cpu a b c\n", "cpu 1 2 3\n", "intr 5\n"])
def test_a_kernel_that_does_not_show_it_is_absent_and_says_why(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(text)
    watch = others.Watch(Node(60, root=str(tmp_path)))
    watch.begin()
    watch.end()
    assert watch.found and set(watch.found) == {"why"} and "stat cannot be read" in watch.found["why"]


def test_a_simulated_machine_without_files_is_not_looked_at(tmp_path: pathlib.Path) -> None:
    watch = others.Watch(Node(60, root=str(tmp_path)), simulated=True)
    watch.begin()
    watch.end()
    assert watch.found is None


def test_this_machine_has_numbers_and_our_own_child_is_none_of_the_others() -> None:
    watch = others.Watch(Node(60))
    watch.begin()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"], check=True)
    watch.end()
    assert watch.found and watch.found["of"] == os.cpu_count()
    assert not isinstance(watch.first, Absent) and watch.first.me == os.getpid()
    last = others.look("/proc")
    assert not isinstance(last, Absent) and last.processes[os.getpid()].ticks_of_children >= HZ // 3
    # A foreign process of this machine cannot be ruled out here, but ours is not among the named ones.
    assert time.monotonic() >= watch.first.at
