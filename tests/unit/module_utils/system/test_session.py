# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A session's promises, each kept with real processes: whoever dies first, nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.session import LEASES, Ledger, Session

ROOT = pathlib.Path(__file__).resolve().parents[4]
RUN = "20260101T000000Z-000001"

# A module in small: it starts a session whose probe runs a tool with a helper that has left its process group.
MODULE = """
import json, sys, time
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.session import Session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
state, run_id, seconds, deadline, detach = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
session = Session(state, run_id, "nccl_node", deadline)
session.driven = {"host": sys.argv[7]}
node = Node(1000, ledger=session.ledger)
def probe():
    yield {"check": "first"}
    node.run(["sh", "-c", "setsid sleep %s & sleep %s" % (seconds, seconds)], timeout=900)
    yield {"check": "second"}
try:
    session.start(probe, float(sys.argv[6]))
except ReasonedError as error:
    print(json.dumps({"refused": error.reason_code, "reason": error.reason})); sys.exit(0)
if detach == "detach":
    session.detach()
    print(json.dumps({"detached": True}))
else:
    session.wait(900)
    print(json.dumps(dict(session.collect(), undone=session.undone)))
"""


@pytest.fixture
def state(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "state")


def module(
    state: str, run_id: str = RUN, seconds: float = 300, deadline: float = 600, detach: str = "no", wait: float = 0, host: str = "n1"
) -> t.Any:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(MODULE), state, run_id, str(seconds), str(deadline), detach, str(wait), host],
        stdout=subprocess.PIPE,
        env=dict(os.environ, PYTHONPATH=str(ROOT / ".collections")),
    )


def until(what: t.Callable[[], t.Any], seconds: float = 60) -> t.Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError, ValueError, KeyError):
            found = what()
            if found:
                return found
        time.sleep(0.02)
    raise AssertionError(f"did not happen within {seconds} s")


def holder(state: str) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", json.loads((pathlib.Path(state) / "lock").read_text()))


def tools(state: str) -> list[tuple[int, int]]:
    """Every process of the running session's tools, with its start time."""
    guardian = holder(state)["pid"]
    found = [(pid, process.start_time(pid)) for pid in process.descendants(guardian)]
    # probe, sh, two sleeps
    return t.cast("list[tuple[int, int]]", found) if len(found) >= 4 else []


def all_gone(pids: list[tuple[int, int]]) -> bool:
    return not any(process.is_alive(pid, started) for pid, started in pids)


def test_a_probe_that_ends_leaves_its_result_and_nothing_else(state: str) -> None:
    answer = json.loads(module(state, seconds=0.1).communicate(timeout=60)[0])
    assert [o["check"] for o in answer["observations"]] == ["first", "second"]
    assert answer["end"] == "done" and answer["fault"] is None and not answer["running"]
    assert not os.path.exists(state)


def test_deadline_ends_the_probe_and_keeps_what_it_had(state: str) -> None:
    answer = json.loads(module(state, deadline=1).communicate(timeout=60)[0])
    assert [o["check"] for o in answer["observations"]] == ["first"] and answer["end"] == "timeout"
    assert not os.path.exists(state)


@pytest.mark.parametrize("victim", ["module", "probe", "guardian"])
def test_kill_9_of_module_probe_or_guardian_leaves_no_process(state: str, victim: str) -> None:
    running = module(state)
    pids = until(lambda: tools(state))
    guardian = holder(state)["pid"]
    probe = next(pid for pid, _s in pids if pid in direct_children(guardian))
    os.kill({"module": running.pid, "probe": probe, "guardian": guardian}[victim], signal.SIGKILL)
    until(lambda: all_gone(pids))
    running.communicate(timeout=30)
    # The guardian may still be putting its things away.
    answer = json.loads(module(state, run_id="20260101T000000Z-000002", seconds=0.1, wait=60).communicate(timeout=60)[0])
    assert answer["end"] == "done"
    until(lambda: not os.path.exists(state) or os.listdir(state) == [RUN])


def direct_children(pid: int) -> set[int]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as source:
        return {int(word) for word in source.read().split()}


@pytest.mark.parametrize("second", ["same run", "other run"])
def test_kill_9_of_module_and_guardian_is_put_right_by_the_next_start(state: str, second: str) -> None:
    running = module(state)
    pids = until(lambda: tools(state))
    running.send_signal(signal.SIGSTOP)  # so that it cannot clear up between the two kills
    os.kill(holder(state)["pid"], signal.SIGKILL)
    running.kill()
    running.communicate(timeout=30)
    until(lambda: not process.is_alive(*pids[-1]))
    run_id = RUN if second == "same run" else "20260101T000000Z-000002"
    answer = json.loads(module(state, run_id=run_id, seconds=0.1).communicate(timeout=60)[0])
    assert answer["end"] == "done" and answer["undone"] and all_gone(pids)


def test_a_second_run_is_refused_by_name(state: str) -> None:
    running = module(state)
    until(lambda: tools(state))
    answer = json.loads(module(state, run_id="20260101T000000Z-000002").communicate(timeout=60)[0])
    assert answer["refused"] == "busy_run" and RUN in answer["reason"]
    running.kill()
    running.communicate()


def test_the_same_run_takes_over_from_its_dead_controller(state: str) -> None:
    module(state, detach="detach").communicate(timeout=30)
    pids = until(lambda: tools(state))
    answer = json.loads(module(state, seconds=0.1).communicate(timeout=60)[0])
    assert answer["end"] == "done" and all_gone(pids)


def test_a_machine_with_two_names_is_measured_by_the_first_one(state: str) -> None:
    running = module(state)
    pids = until(lambda: tools(state))
    answer = json.loads(module(state, host="n2").communicate(timeout=60)[0])
    assert answer["refused"] == "duplicate_identity" and "n1 and n2 are one machine" in answer["reason"]
    assert not all_gone(pids), "the probe of the first name was ended"
    running.kill()
    running.communicate()


def test_a_detached_probe_is_collected_later(state: str) -> None:
    module(state, seconds=1, detach="detach").communicate(timeout=30)
    session = Session(state, RUN, "nccl_node", 10)
    answer = until(lambda: (found := session.collect()) and not found["running"] and found)
    assert [o["check"] for o in answer["observations"]] == ["first", "second"] and answer["end"] == "done"
    until(lambda: not os.path.exists(state))


def test_a_probe_that_ends_as_it_is_detached_keeps_its_result(state: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its guardian hears of the end before it hears that nobody waits."""
    ended, detached = tmp_path / "ended", tmp_path / "detached"

    def slow(_lease: dict[str, t.Any]) -> str:
        ended.touch()
        until(detached.exists)
        return "given back"

    monkeypatch.setitem(LEASES, "slow", slow)
    session = Session(state, RUN, "nccl_node", 10)

    def probe() -> t.Iterator[dict[str, t.Any]]:
        session.ledger.record("slow")
        yield {"check": "only"}

    session.start(probe)
    until(ended.exists)
    session.detach()
    os.close(session._alive_pipe)
    detached.touch()
    until(lambda: not os.path.exists(os.path.join(state, "lock")))
    time.sleep(0.2)  # a guardian that takes the module for lost would remove the result now
    answer = Session(state, RUN, "nccl_node", 10).collect()
    assert answer["observations"] == [{"check": "only"}] and answer["end"] == "done"
    until(lambda: not os.path.exists(state))


def test_another_run_removes_what_the_dead_left_and_keeps_what_a_guardian_holds(state: str) -> None:
    module(state, seconds=0, detach="detach").communicate(timeout=30)
    until(lambda: '"end": "done"' in pathlib.Path(state, RUN, "nccl_node.jsonl").read_text())
    until(lambda: not os.path.exists(os.path.join(state, "lock")))
    dead = pathlib.Path(state, "20200101T000000Z-00000d", "gemm.jsonl")
    dead.parent.mkdir()
    dead.write_text("")
    module(state, "20260101T000000Z-000002", seconds=0).communicate(timeout=30)
    assert not dead.parent.exists()
    answer = Session(state, RUN, "nccl_node", 10).collect()
    assert [o["check"] for o in answer["observations"]] == ["first", "second"] and answer["end"] == "done"
    until(lambda: not os.path.exists(state))


def test_ledger_survives_a_half_written_line_and_ends_only_what_it_recorded(tmp_path: pathlib.Path) -> None:
    ours = process.spawn(["sleep", "100"])
    theirs = process.spawn(["sleep", "100"])
    ledger = Ledger(str(tmp_path))
    ledger.process(ours.pid)
    ledger.record("process", pid=theirs.pid, started=(process.start_time(theirs.pid) or 0) - 1)  # a recycled pid
    with open(ledger.path, "a", encoding="utf-8") as half:
        half.write('{"kind": "process", "pid": ')
    ours_started = process.start_time(ours.pid)
    assert ledger.undo() == [f"ended process {ours.pid}"]
    assert not process.is_alive(ours.pid, ours_started) and theirs.poll() is None
    theirs.kill()
    ours.wait()
    theirs.wait()
    assert ledger.undo() == []


def test_a_state_directory_that_cannot_be_written_is_named(tmp_path: pathlib.Path) -> None:
    plain = tmp_path / "file"
    plain.write_text("")
    with pytest.raises(ReasonedError) as refusal:
        Session(str(plain / "state"), RUN, "stack", 10).start(lambda: iter(()))
    assert refusal.value.reason_code == "state_dir" and str(plain) in refusal.value.reason


def test_a_guardian_that_ends_while_its_result_is_read_has_not_died(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(state, RUN, "nccl_node", 10)
    result = pathlib.Path(session.result_path)
    result.parent.mkdir(parents=True)
    result.write_text('{"check": "first"}\n')

    def asked() -> bool:  # between our question and our reading, or between our reading and our question
        with result.open("a") as target:
            target.write('{"end": "done"}\n')
        return False

    monkeypatch.setattr(session, "_guardian_lives", asked)
    assert session.collect() == {"observations": [{"check": "first"}], "end": "done", "fault": None, "running": False}
