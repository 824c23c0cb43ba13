# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A probe that continues outlives its controller, its guardian and its node."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import checkpoints, sessions
from test_session import holder, until

ROOT = pathlib.Path(__file__).resolve().parents[4]
RUN = "20260101T000000Z-000001"

# A module in small: three legs, each ends when the file of its number is there.
MODULE = """
import json, os, sys, time
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import checkpoints
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner
params = json.loads(sys.argv[1])
def probe(params, node):
    legs = [memo["by"] for memo in node.checkpoints]
    while len(legs) < 3:
        while not os.path.exists(os.path.join(sys.argv[2], str(len(legs)))):
            time.sleep(0.01)
        legs.append(os.getppid())
        yield checkpoints.checkpoint("one", len(legs), by=os.getppid())
    yield observation.measured("one", context={"legs": legs})
print(json.dumps(runner.perform(probe, params, "own")))
"""


class Place(t.NamedTuple):
    root: pathlib.Path

    @property
    def state(self) -> pathlib.Path:
        return self.root / "state"

    @property
    def file(self) -> pathlib.Path:
        return self.state / RUN / "own.jsonl"

    def start(self, phase: str, module: str = MODULE, **changes: t.Any) -> subprocess.Popen[bytes]:
        run = {
            "run_id": RUN, "stage": "own", "phase": phase, "grace": 0.0, "attempts": {"one": 1}, "settings": "x", "continues": True,
            **changes,
        }  # fmt: skip
        params = {
            "checks": [{"check": "one", "variant": ""}], "timeout": 600.0, "state_dir": str(self.state), "lock_wait": 0.0,
            "root": str(self.root), "nvidia_smi": "nvidia-smi", "npu_smi": "npu-smi", "exec": {"kind": "host"}, "run": run,
        }  # fmt: skip
        environment = dict(os.environ, PYTHONPATH=str(ROOT / ".collections"))
        command = [sys.executable, "-c", module, json.dumps(params), str(self.root)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)

    def run(self, phase: str, **changes: t.Any) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", json.loads(self.start(phase, **changes).communicate()[0]))

    def let(self, *legs: int) -> None:
        for leg in legs:
            (self.root / str(leg)).touch()

    def legs(self) -> int:
        return self.file.read_text().count('"memo"') if self.file.exists() else 0

    def kill(self) -> int:
        """Kill the guardian, as a power cut would; return its pid."""
        pid = int(holder(str(self.state))["pid"])
        os.kill(pid, signal.SIGKILL)
        until(lambda: not (pathlib.Path("/proc") / str(pid)).exists())
        return pid


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Place:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    return Place(tmp_path)


def test_a_second_start_finds_it_running_and_lets_it_be(place: Place) -> None:
    assert place.run("start")["state"] == "running"
    first = holder(str(place.state))["pid"]
    place.let(0)
    until(lambda: place.legs() == 1)
    assert place.run("start", attempts={"one": 2})["state"] == "running"
    assert holder(str(place.state))["pid"] == first
    place.let(1, 2)
    found = place.run("collect")
    assert found["end"] == "done" and found["observations"][0]["context"]["legs"] == [first] * 3
    assert not place.state.exists()


def test_a_collection_begins_again_what_was_cut_off_behind_its_last_leg(place: Place) -> None:
    place.run("start")
    place.let(0)
    until(lambda: place.legs() == 1)
    first = place.kill()
    with open(place.file, "ab") as half:
        half.write(b'{"memo": {"of": "one", "ke')
    collecting = place.start("collect")
    until(lambda: holder(str(place.state)).get("pid", first) != first)
    place.let(1, 2)
    found = json.loads(collecting.communicate()[0])
    assert found["state"] == "done", found
    assert found["end"] == "done"
    legs = found["observations"][0]["context"]["legs"]
    assert legs[0] == first and legs[1] == legs[2] != first


def test_a_later_attempt_after_a_reboot_goes_on(place: Place) -> None:
    place.run("start")
    place.let(0, 1)
    until(lambda: place.legs() == 2)
    first = place.kill()
    place.let(2)
    found = place.run("start", attempts={"one": 2})
    if found["state"] == "running":
        found = place.run("collect", attempts={"one": 2})
    assert found["observations"][0]["context"]["legs"][:2] == [first] * 2


def test_checkpoints_of_other_settings_are_not_taken(place: Place) -> None:
    place.run("start")
    place.let(0)
    until(lambda: place.legs() == 1)
    place.kill()
    assert checkpoints.is_cut_off(str(place.file))
    place.let(1, 2)
    found = place.run("collect", settings="y")
    assert len(set(found["observations"][0]["context"]["legs"])) == 1


@pytest.mark.parametrize(
    ("lines", "cut_off"),
    [
        ([], False),
        ([{"began": {}, "memos": True}], False),
        ([{"began": {}, "memos": True, "continues": True}], True),
        ([{"began": {}, "memos": True, "continues": True}, {"memo": {}}, {"end": "interrupted"}], True),
        ([{"began": {}, "memos": True, "continues": True}, {"memo": {}}, {"end": "done"}], False),
        ([{"began": {}, "memos": True, "continues": True}, {"memo": {}}, {"end": "timeout"}], False),
    ],
)
def test_only_what_nobody_ended_was_cut_off(tmp_path: pathlib.Path, lines: list[t.Any], cut_off: bool) -> None:
    (tmp_path / "file").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert checkpoints.is_cut_off(str(tmp_path / "file")) is cut_off
    assert not checkpoints.is_cut_off(str(tmp_path / "none"))


def test_one_that_no_controller_has_heard_of_ends_and_one_that_was_found_running_goes_on(place: Place) -> None:
    brief = MODULE.replace("params =", "from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import heartbeat\n"
                           "heartbeat.Heartbeat.new.__func__.__defaults__ = (1.0, *heartbeat.Heartbeat.new.__func__.__defaults__[1:])\n"
                           "params =")  # fmt: skip
    place.start("start", module=brief).communicate()
    until(lambda: not place.state.exists())  # Ctrl-C in the moment between its detachment and the answer
    place.start("start", module=brief).communicate()
    first = holder(str(place.state))["pid"]
    assert place.run("start")["state"] == "running"
    time.sleep(2)
    assert holder(str(place.state))["pid"] == first
    place.let(0, 1, 2)
    assert place.run("collect")["end"] == "done"


def test_one_that_is_begun_again_hears_what_is_told_at_the_file_that_the_controller_knows(place: Place) -> None:
    path = place.run("start")["heartbeat"]
    place.let(0)
    until(lambda: place.legs() == 1)
    first = place.kill()
    collecting = place.start("collect", heartbeat=path)
    again = until(lambda: holder(str(place.state)) if holder(str(place.state))["pid"] != first else None)
    assert again["heartbeat"] == path and os.path.exists(path)
    collecting.kill()
    collecting.communicate()
    os.chmod(path, 0o400)
    until(lambda: not os.path.exists(path))
    sessions.end(str(place.state), {RUN})
    until(lambda: not place.state.exists())


def test_a_run_that_is_ended_is_not_taken_for_cut_off(place: Place) -> None:
    place.run("start")
    place.let(0)
    until(lambda: place.legs() == 1)
    collecting = place.start("collect")
    ended = sessions.end(str(place.state), {RUN})
    assert [row["ended"] for row in ended] == [True]
    assert json.loads(collecting.communicate()[0])["observations"] == []
    assert not place.state.exists()


def test_a_collection_does_not_wait_for_days(place: Place) -> None:
    place.run("start")
    found = json.loads(place.start("collect", module=MODULE.replace("print(json", "runner.CALL_S = 0.2\nprint(json")).communicate()[0])
    assert found["state"] == "running" and found["observations"] == []
    place.let(0, 1, 2)
    assert place.run("collect")["end"] == "done"


def test_a_collection_whose_connection_is_gone_ends_and_beats_no_more(place: Place) -> None:
    """Its beats would hold the node until the time limit of the stage, for a controller that was killed."""
    place.run("start", continues=False)
    with place.start("collect", continues=False) as collecting:
        t.cast("t.IO[bytes]", collecting.stdout).close()
        assert collecting.wait(30) == 1
    place.kill()
