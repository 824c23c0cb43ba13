# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of detached jobs on their node: fetched by who knows the secret, and gone when a controller has them or their time is over."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import job, keeping

NONCE, OTHER = "0" * 32, "1" * 32
NAME = keeping.file_name("20260101T000000Z-0a1b2c", "gemm", "n1")
ANSWER = {"state": "done", "observations": [{"check": "x" * 5000}]}


def test_an_answer_stays_until_whoever_fetched_it_has_it(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "kept"
    keeping.keep(ANSWER, NONCE, str(folder), NAME, 600)
    assert (folder / NAME).stat().st_mode & 0o777 == 0o600 and folder.stat().st_mode & 0o777 == 0o700
    for _interrupted in range(2):
        assert keeping.fetch(NONCE, str(folder), NAME, "7") == ANSWER
    assert keeping.remove(str(folder), NAME)["state"] == "done" and not folder.exists()
    again = keeping.fetch(NONCE, str(folder), NAME, "7")
    assert again["reason_code"] == "job_ended" and "job 7 has left no answer" in again["reason"]


def test_an_answer_of_another_job_or_one_that_is_cut_is_none(tmp_path: pathlib.Path) -> None:
    keeping.keep(ANSWER, OTHER, str(tmp_path), NAME, 600)
    assert keeping.fetch(NONCE, str(tmp_path), NAME, "7")["reason_code"] == "forged_frame"
    keeping.keep(ANSWER, NONCE, str(tmp_path), NAME, 600)
    (tmp_path / NAME).write_bytes((tmp_path / NAME).read_bytes()[:-60])
    assert keeping.fetch(NONCE, str(tmp_path), NAME, "7")["reason_code"] == "incomplete_output"


def test_answers_whose_time_is_over_are_removed_and_files_of_others_stay(tmp_path: pathlib.Path) -> None:
    keeping.keep(ANSWER, NONCE, str(tmp_path), "a.frame", -120)
    keeping.keep(ANSWER, NONCE, str(tmp_path), "b.frame", 600)
    (tmp_path / "notes").touch()
    os.utime(tmp_path / "notes", (0, 0))
    keeping.remove_expired(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.frame", "notes"]
    keeping.remove_expired(str(tmp_path / "none"))


DETACHED = """\
import sys
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import job, runner
runner.answer = lambda request: {"state": "done", "observations": [], "probe": request["probe"]}
job.main(eval(sys.argv[1]), sys.argv[2], "77", "n1")
"""


def run(request: object, nonce: str) -> list[bytes]:
    argv = [sys.executable, "-c", DETACHED, repr(request), nonce]
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}, timeout=300
    ).stdout.splitlines()  # fmt: skip


def told(request: object) -> list[bytes]:
    """Return what a job with a controller prints."""
    process = subprocess.Popen(
        [sys.executable, "-c", DETACHED, repr(request), OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    lines = (process.stdout.read() if process.stdout else b"").splitlines()
    assert process.wait(300) == 0
    return lines


def test_a_detached_job_keeps_its_answer_without_a_word_and_another_job_tells_it(tmp_path: pathlib.Path) -> None:
    """Its standard input is empty, at whose end a job with a controller ends."""
    state = str(tmp_path / "state")
    kept = {"file": NAME, "seconds": 600}
    assert run({"probe": "gemm", "params": {"state_dir": state}, "keep": kept}, NONCE) == []
    assert (tmp_path / "state-kept" / NAME).stat().st_mtime > time.time()
    asked = {"state_dir": state, "file": NAME, "nonce": NONCE, "job": "77"}
    lines = told({"probe": keeping.KEPT, "params": asked})
    reader = frame.Reader(OTHER)
    for line in lines:
        reader.feed(line)
    assert lines[0] == f"{job.BEGUN} {OTHER} begun 77 n1".encode() and reader.result()["probe"] == "gemm"
    assert (tmp_path / "state-kept" / NAME).exists()
    told({"probe": keeping.COLLECTED, "params": asked})
    assert not (tmp_path / "state-kept").exists()
