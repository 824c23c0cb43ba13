# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pod whose controller is gone ends by itself, and everything that it has started: real processes."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload

WITHIN = 6.0


@pytest.fixture
def begin(tmp_path: pathlib.Path) -> t.Iterator[t.Callable[[], subprocess.Popen[str]]]:
    """Start a pod that measures for ever; its sign of the controller is the file `at`, its tool says its pid in the file `pid`."""
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        args = {
            "checks": [{"check": "read"}], "argv": ["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 600"], "metrics": [],
            "state_dir": str(tmp_path / "state"),
        }  # fmt: skip
        asked = payload.request("measure", payload.options("measure"), args)
        (tmp_path / "payload.zip").write_bytes(payload.archive())
        (tmp_path / "request.json").write_text(json.dumps({**asked, "sign": {"path": str(tmp_path / "at"), "within": WITHIN}}))
        words = [sys.executable, str(tmp_path / "payload.zip"), str(tmp_path / "request.json")]
        environment = {**os.environ, "GPUFLEET_SECRET": "secret", "GPUFLEET_POD_UID": "uid", "PYTHONPATH": ""}
        started.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for child in started:
        child.terminate()
        child.wait()


def test_a_pod_whose_controller_falls_silent_ends_with_its_tools(
    tmp_path: pathlib.Path, begin: t.Callable[[], subprocess.Popen[str]]
) -> None:
    child = begin()
    until = time.monotonic() + 3 * WITHIN
    while time.monotonic() < until:  # renewed as a controller does it, gone for a moment in between
        (tmp_path / "at").unlink(missing_ok=True)
        (tmp_path / "at").write_text(str(time.monotonic()))
        time.sleep(WITHIN / 12)
    assert child.poll() is None
    tool = int((tmp_path / "pid").read_text())
    started = process.start_time(tool)
    assert process.is_alive(tool, started)
    said, _nothing = child.communicate(timeout=60)
    assert child.returncode == 143 and "the controller has not shown itself for 6 s" in said
    until = time.monotonic() + 60
    while process.is_alive(tool, started) and time.monotonic() < until:
        time.sleep(0.1)
    assert not process.is_alive(tool, started)


def test_a_pod_that_never_sees_its_controller_ends(begin: t.Callable[[], subprocess.Popen[str]]) -> None:
    assert begin().wait(timeout=60) == 143


def test_a_probe_that_is_to_run_once_does_nothing_when_it_is_started_again(tmp_path: pathlib.Path) -> None:
    """What it was before has no part in it: its message is empty, as a new container's is."""
    args = {"checks": [{"check": "read"}], "argv": ["touch", str(tmp_path / "ran")], "metrics": [], "state_dir": str(tmp_path / "state")}
    more = {"message": str(tmp_path / "message"), "once": str(tmp_path / "once")}
    (tmp_path / "payload.zip").write_bytes(payload.archive())
    (tmp_path / "request.json").write_text(json.dumps({**payload.request("measure", payload.options("measure"), args), **more}))
    words = [sys.executable, str(tmp_path / "payload.zip"), str(tmp_path / "request.json")]
    environment = {**os.environ, "GPUFLEET_SECRET": "secret", "GPUFLEET_POD_UID": "uid", "PYTHONPATH": ""}
    said = []
    for _start in range(2):
        (tmp_path / "ran").unlink(missing_ok=True)
        (tmp_path / "message").write_text("")
        said.append(subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout)
        assert (tmp_path / "ran").exists() == bool((tmp_path / "message").read_text()) == (len(said) == 1)
    assert "gpufleet-frame" in said[0] and said[1].startswith("started again: a probe runs once")


@pytest.mark.parametrize("copies", [True, False])
def test_what_a_pod_leaves_as_its_message(tmp_path: pathlib.Path, copies: bool) -> None:
    """Its answer; nothing where its log has more to say: of a copy that could not be written."""
    args = {
        "checks": [{"check": "read"}], "argv": ["echo", "busbw=42"], "state_dir": str(tmp_path / "state"),
        "metrics": [{"name": "busbw", "unit": "GB/s", "regex": "busbw=([0-9]+)"}],
    }  # fmt: skip
    asked = {**payload.request("measure", payload.options("measure"), args), "message": str(tmp_path / "message")}
    (tmp_path / "payload.zip").write_bytes(payload.archive())
    (tmp_path / "request.json").write_text(json.dumps(asked))
    (tmp_path / "message").touch()
    (tmp_path / "results").touch()
    words = [sys.executable, str(tmp_path / "payload.zip"), str(tmp_path / "request.json")]
    environment = {**os.environ, "GPUFLEET_SECRET": "secret", "GPUFLEET_POD_UID": "uid", "PYTHONPATH": ""}
    if not copies:
        environment["GPUFLEET_RESULTS"] = str(tmp_path / "results")
    said = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
    found = frame.left((tmp_path / "message").read_text(), frame.nonce_of("secret", "uid"))
    assert ("was not written" in said) != copies
    assert bool(found) == copies and (not found or found["observations"][0]["metrics"]["busbw"]["value"] == 42)
