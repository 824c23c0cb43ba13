# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a second process does is the same as what is done here, whatever becomes of it."""

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
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import forked_worker
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.forked_worker import ForkedWorker
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.journal import NAME, PLAIN_NAME, Journal
from harness import journals
from harness import report_samples as samples


@pytest.fixture(params=["two processes", "one"])
def processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The runner of tests has threads of its own, which hold nothing that a copy would wait for."""
    two = request.param == "two processes"
    monkeypatch.setattr(forked_worker.threading, "active_count", lambda: 1)
    monkeypatch.setattr(forked_worker.os, "sched_getaffinity", lambda _pid: {0, 1} if two else {0})
    return str(request.param)


def test_the_parts_are_the_same_whoever_makes_them(processes: str) -> None:
    here = os.getpid()

    def work() -> t.Iterator[t.Any]:
        yield os.getpid() == here
        yield {"a": [1, 2.5, None, "\ud800"]}
        yield []

    with ForkedWorker(work) as worker:
        first, *rest = worker.parts()
    assert rest == [{"a": [1, 2.5, None, "\ud800"]}, []] and first == (processes == "one")


@pytest.mark.parametrize("processes", ["two processes"], indirect=True)
def test_work_whose_worker_is_killed_is_done_by_the_parent(processes: str) -> None:
    here = os.getpid()

    def killed() -> t.Iterator[int]:
        yield 1
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        yield 2

    def wrong() -> t.Iterator[int]:
        yield 1
        raise ValueError("the disk is full")

    with ForkedWorker(killed) as worker:
        assert list(worker.parts()) == [1, 2]
    with ForkedWorker(wrong) as worker, pytest.raises(ValueError, match="the disk is full"):
        list(worker.parts())


@pytest.mark.parametrize("processes", ["two processes"], indirect=True)
def test_a_worker_whose_parent_stops_waiting_ends(processes: str) -> None:
    with pytest.raises(KeyError), ForkedWorker(lambda: [bytes(1 << 20)] * 4) as worker:
        raise KeyError
    with pytest.raises(ChildProcessError):
        os.waitpid(worker._child, os.WNOHANG)


FORMS = pytest.mark.parametrize("form", [NAME, PLAIN_NAME])


def journal(folder: pathlib.Path, name: str) -> Journal:
    (folder / "plan.json").write_text("{}")
    made = Journal(folder / name)
    whom = [{"kind": "gpu", "id": f"a/gpu/{number}", "members": []} for number in range(40)]
    for one in whom:
        made.append([samples.measurement("a", "gemm", "bf16", subject=one, reason="\u00fc")])
    return made


PARENT = """
import sys, threading, time
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import forked_worker
forked_worker.os.sched_getaffinity = lambda _pid: {0, 1}
def work():
    time.sleep(600)
    yield 1
worker = forked_worker.ForkedWorker(work)
print(worker._child, flush=True)
time.sleep(600)
"""


def test_a_worker_does_not_outlive_a_parent_that_is_killed() -> None:
    """Else it wrote verdicts of a run that somebody has resumed by then."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    child = int(parent.stdout.readline())
    stat = pathlib.Path(f"/proc/{child}/stat")
    assert child and stat.exists()
    parent.kill()
    parent.communicate()
    until = time.monotonic() + 60
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":  # whoever takes it over may reap it late
        assert time.monotonic() < until
        time.sleep(0.05)


@FORMS
def test_a_journal_is_the_same_read_by_two(processes: str, form: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = journal(tmp_path, form)
    alone = one.examine()
    monkeypatch.setattr(forked_worker, "MIN_BYTES", 1)
    monkeypatch.setattr(forked_worker, "BATCH", 3)
    assert one.examine() == alone and alone[2].whole == len(alone[0]) == 40 and not alone[1]


@FORMS
@pytest.mark.parametrize("line", [1, 19, 20, 21, 39])
@pytest.mark.parametrize("how", ["changed", "cut", "empty", "unchained", "strange", "gone"])
def test_a_changed_journal_is_refused_alike_by_one_and_two_processes(
    processes: str, form: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, line: int, how: str
) -> None:
    one = journal(tmp_path, form)
    lines = journals.lines(one.path)
    record = json.loads(lines[line])
    lines[line] = {
        "changed": lines[line].replace(b"bf16", b"bf17"), "cut": lines[line][:100] + b"\n" * (form == NAME), "empty": b"\n" + lines[line],
        "unchained": json.dumps({k: v for k, v in record.items() if k != "chain"}).encode() + b"\n",
        "strange": json.dumps({**record, "more": 1}).encode() + b"\n", "gone": b"",
    }[how]  # fmt: skip
    journals.write(one.path, b"".join(lines))
    alone = one.examine()
    monkeypatch.setattr(forked_worker, "MIN_BYTES", 1)
    assert one.examine() == alone
    assert how == "empty" or alone[2].broken or alone[1] or alone[2].whole < 40
