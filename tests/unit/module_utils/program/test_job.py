# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program of a job, in a process of its own: its answer, and how it ends when nobody waits for it."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import time

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import job

NONCE = "0" * 32
# It stands in for the probe under its guardian: the guardian is a daemon that takes a while to give back.
STAND_IN = """\
import os, sys, time
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import job, runner
def answer(request):
    params = request["params"]
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while os.path.exists(params["probe_file"]): time.sleep(0.02)
            time.sleep(0.5); open(params["given_back"], "w").close()
        os._exit(0)
    os.wait()
    open(params["begun"], "w").close()
    for _ in range(int(params["work_s"] * 50)):
        time.sleep(0.02)
    os.unlink(params["probe_file"])
    return {"state": "done", "observations": [], "dir": params["state_dir"]}
runner.answer = answer
job.SILENCE_S = float(sys.argv[1])
job.main({"probe": "x", "params": eval(sys.argv[2])}, sys.argv[3], "77", "n1")
"""


def start(folder: pathlib.Path, work_s: float, silence_s: float = 30.0) -> subprocess.Popen[bytes]:
    params = {name: str(folder / name) for name in ("begun", "given_back", "probe_file")}
    (folder / "probe_file").touch()
    argv = [sys.executable, "-c", STAND_IN, str(silence_s), repr({**params, "work_s": work_s}), NONCE]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": ":".join(sys.path)})


def test_the_answer_is_a_frame_behind_a_line_that_says_that_it_runs(tmp_path: pathlib.Path) -> None:
    process = start(tmp_path, 0.1)
    out = process.stdout.read() if process.stdout else b""
    assert process.wait(30) == 0 and out.startswith(f"{job.BEGUN} {NONCE} begun 77 n1\n".encode())
    reader = frame.Reader(NONCE)
    for line in out.splitlines():
        reader.feed(line)
    assert reader.result() == {"state": "done", "observations": [], "dir": job.state_dir()}
    assert (tmp_path / "given_back").exists()  # its guardian was waited for


@pytest.mark.parametrize("how", ["end of input", "silence", "told"])
def test_it_ends_when_nobody_waits_and_its_guardian_gives_back(tmp_path: pathlib.Path, how: str) -> None:
    process = start(tmp_path, 60.0, 1.0 if how == "silence" else 30.0)
    until = time.monotonic() + 30
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    if how == "end of input" and process.stdin:
        process.stdin.close()
    elif how == "told":
        process.terminate()
    time.sleep(1.5)
    (tmp_path / "probe_file").unlink()  # as the guardian would see that the probe's parent is gone
    assert process.wait(30) == 0 and (tmp_path / "given_back").exists()
    assert process.stdout and b"gpufleet-frame" not in process.stdout.read()


def test_the_state_of_a_user_is_not_in_a_home_that_nodes_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job.os, "geteuid", lambda: 0)
    assert job.state_dir() == ""
    monkeypatch.setattr(job.os, "geteuid", lambda: 1000)
    assert job.state_dir() == "/tmp/gpufleet-acceptance-1000"
