# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A killed controller loses nothing that a node had finished, and a resume takes nothing that is not certainly of its own attempt."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import textwrap
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import checkpoints, process, session
from test_session import holder, until

ROOT = pathlib.Path(__file__).resolve().parents[4]
RUN = "20260101T000000Z-000001"
CHECKS = [{"check": "one", "variant": "op=a"}, {"check": "two", "variant": ""}, {"check": "three", "variant": ""}]

# A module in small. Its probe says of each check who measured it; of the third it says so when its tool has ended.
MODULE = """
import json, os, sys
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner
params = json.loads(sys.argv[1])
seconds = float(sys.argv[2])
def probe(params, node):
    for wanted in params["checks"]:
        about = {"variant": wanted["variant"], "context": {"by": os.getppid()}}
        if wanted["check"] == "three":
            result = node.run(["sleep", str(seconds)])
            if result.rc:
                yield observation.failed("three", "tool_failed", "it was ended", **about)
                continue
        yield observation.measured(wanted["check"], members=["gpu/A", "gpu/B"], **about)
        for part in ("gpu/A", "gpu/B"):
            yield observation.measured(wanted["check"], part=part, **about)
print(json.dumps(runner.perform(probe, params, "own")))
"""


class Place(t.NamedTuple):
    root: pathlib.Path
    state: pathlib.Path

    def start(self, seconds: float, phase: str = "all", **changes: t.Any) -> subprocess.Popen[bytes]:
        run = {"run_id": RUN, "stage": "own", "phase": phase, "grace": 0.0, "attempts": {"one op=a": 1, "two": 1, "three": 1}}
        run.update(changes.pop("run", {}))
        params = {
            "checks": CHECKS, "warmup": 5, "timeout": 600.0, "state_dir": str(self.state), "lock_wait": 0.0, "root": str(self.root),
            "nvidia_smi": "nvidia-smi", "npu_smi": "npu-smi", "exec": {"kind": "host"}, "run": run, **changes,
        }  # fmt: skip
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(MODULE), json.dumps(params), str(seconds)],
            stdout=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=str(ROOT / ".collections")),
        )

    def run(self, **changes: t.Any) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", json.loads(self.start(0.0, **changes).communicate(timeout=60)[0]))

    def file(self) -> pathlib.Path:
        return self.state / RUN / "own.jsonl"

    def killed(self) -> tuple[int, int | None]:
        """A module that was killed when two of its three checks were finished; its guardian."""
        running = self.start(300.0)
        guardian = self.at_the_third()
        started = process.start_time(guardian)
        running.kill()
        running.communicate(timeout=30)
        until(lambda: not (self.state / "lock").exists())
        return guardian, started

    def at_the_third(self) -> int:
        """The guardian, when its probe runs the tool of the third check."""
        return int(until(lambda: len(process.descendants(holder(str(self.state))["pid"])) >= 2 and holder(str(self.state))["pid"]))


@pytest.fixture
def place(tmp_path: pathlib.Path) -> t.Iterator[Place]:
    (tmp_path / "root/etc").mkdir(parents=True)
    (tmp_path / "root/etc/machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    yield Place(tmp_path / "root", tmp_path / "state")
    shutil.rmtree(tmp_path / "state", ignore_errors=True)  # whoever keeps a result there ends


def measured_by(answer: dict[str, t.Any]) -> dict[str, int]:
    assert answer["end"] == "done", answer
    assert all(o["outcome"] == "measured" for o in answer["observations"])
    assert len(answer["observations"]) == 9, "each check of the node and of two parts"
    return {o["check"]: o["context"]["by"] for o in answer["observations"]}


def test_what_was_finished_is_taken_and_the_rest_measured(place: Place) -> None:
    guardian, started = place.killed()
    by = measured_by(place.run())
    assert by["one"] == by["two"] == guardian and by["three"] != guardian
    assert not place.state.exists()
    until(lambda: not process.is_alive(guardian, started))


def test_killed_twice_it_is_still_there(place: Place) -> None:
    guardian, _started = place.killed()
    place.killed()
    by = measured_by(place.run())
    assert by["one"] == by["two"] == guardian


def test_a_probe_that_works_on_by_itself_is_ended_and_what_it_had_is_taken(place: Place) -> None:
    place.start(300.0, "start").communicate(timeout=60)
    guardian = place.at_the_third()
    by = measured_by(place.run())
    assert by["one"] == by["two"] == guardian and by["three"] != guardian


def test_all_that_was_finished_and_not_collected_is_taken(place: Place) -> None:
    place.start(0.0, "start").communicate(timeout=60)
    until(lambda: '"end": "done"' in place.file().read_text())
    taken = place.file().read_text()
    by = measured_by(place.run())
    assert len(set(by.values())) == 1 and f'"by": {by["one"]}' in taken


def test_nothing_stays_where_nothing_was_finished(place: Place) -> None:
    running = place.start(300.0, checks=CHECKS[2:])
    place.at_the_third()
    running.kill()
    running.communicate(timeout=30)
    until(lambda: not place.state.exists())


def test_where_nobody_resumes_it_goes_in_the_end(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "KEEP_S", 0.0)
    state = tmp_path / "state"
    mine = session.Session(str(state), RUN, "own", 2.0)
    mine.start(lambda: iter([{"check": "two"}]), header={"began": {"attempts": {"two": 1}}})
    until(lambda: '"check"' in (state / RUN / "own.jsonl").read_text())
    os.close(mine._alive_pipe)
    until(lambda: not state.exists())


def test_of_a_member_that_ended_by_itself_nothing_stays_without_a_checkpoint(tmp_path: pathlib.Path) -> None:
    """As of one whose head went before its own connection did: nobody will come for what it says."""
    state = tmp_path / "state"
    mine = session.Session(str(state), RUN, "own", 600.0)
    mine.start(lambda: iter([{"check": "member"}]), header={"began": {"attempts": {"member": 1}}, "memos": True})
    until(lambda: '"end": "done"' in (state / RUN / "own.jsonl").read_text())
    os.close(mine._alive_pipe)
    until(lambda: not state.exists())


# What is not taken -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"run": {"attempts": {"one op=a": 2, "two": 2, "three": 2}}},
        {"warmup": 6},
        {"run": {"attempts": {}}},
        {"run": {"stage": "other"}},
    ],
    ids=["another attempt", "other settings", "outside a run", "another stage"],
)
def test_what_is_asked_otherwise_is_measured_again(place: Place, changes: dict[str, t.Any]) -> None:
    guardian, _started = place.killed()
    assert guardian not in measured_by(place.run(**changes)).values()


def test_another_machine_takes_nothing(place: Place) -> None:
    guardian, _started = place.killed()
    (place.root / "etc/machine-id").write_text("ffffffffffffffffffffffffffffffff\n")
    assert guardian not in measured_by(place.run()).values()


def test_of_a_guardian_that_was_killed_nothing_is_taken(place: Place) -> None:
    running = place.start(300.0)
    guardian = place.at_the_third()
    running.send_signal(signal.SIGSTOP)  # so that it cannot clear up between the two kills
    os.kill(guardian, signal.SIGKILL)
    running.kill()
    running.communicate(timeout=30)
    until(lambda: not process.is_alive(guardian, None))
    assert guardian not in measured_by(place.run()).values()


ASKED = {
    "began": {
        "run_id": RUN, "stage": "own", "machine_id": "m", "boot_id": "b", "settings": 1, "attempts": {"one op=a": 1, "two": 1},
    },
}  # fmt: skip
SAID = [
    {"check": "one", "variant": "op=a", "part": "", "members": ["gpu/A"]},
    {"check": "one", "variant": "op=a", "part": "gpu/A", "members": []},
    {"check": "two", "variant": "", "part": "", "members": [], "outcome": "error", "reason_code": "wrong_results"},
]


def written(path: pathlib.Path, records: list[dict[str, t.Any]]) -> str:
    path.unlink(missing_ok=True)
    for record in records:
        session.append(str(path), record)
    session.append(str(path), checkpoints.trailer(str(path), "connection lost", []))
    return str(path)


def asked(**changes: t.Any) -> dict[str, t.Any]:
    return {"began": {**ASKED["began"], **changes}}


def test_an_error_is_finished_too_and_cannot_be_washed_by_a_kill(tmp_path: pathlib.Path) -> None:
    assert checkpoints.load(written(tmp_path / "r", [ASKED, *SAID]), ASKED) == SAID


@pytest.mark.parametrize(
    ("began", "said", "taken"),
    [
        ({"run_id": "20260101T000000Z-000002"}, SAID, 0),
        ({"machine_id": "other"}, SAID, 0),
        ({"boot_id": "before"}, SAID, 0),
        ({"boot_id": ""}, SAID, 0),
        ({"settings": 2}, SAID, 0),
        ({"attempts": None}, SAID, 0),
        ({"attempts": {"one op=a": 2, "two": 1}}, SAID, 1),
        ({}, SAID[:1], 0),  # of the part that it names nothing is there
        ({}, SAID[1:], 1),  # a part alone
        ({}, [*SAID, SAID[2]], 2),  # said twice
        ({}, [*SAID, {"check": "stranger", "variant": "", "part": "", "members": []}], 0),
        ({}, [*SAID, {**SAID[2], "subject": {"kind": "pair", "id": "a|b"}}], 0),
        ({}, [], 0),
    ],
)
def test_what_is_not_certainly_its_own_is_not_taken(tmp_path: pathlib.Path, began: t.Any, said: t.Any, taken: int) -> None:
    assert len(checkpoints.load(written(tmp_path / "r", [asked(**began), *said]), ASKED)) == taken


# Stages between nodes ----------------------------------------------------------------------------------------------------

CHECKPOINTS = [checkpoints.checkpoint("one op=a", 1, more="x"), checkpoints.checkpoint("two a|b", 2), {"check": "one", "variant": "op=a"}]


def between(**changes: t.Any) -> dict[str, t.Any]:
    run = {"run_id": RUN, "stage": "own", "settings": "5e", "attempts": {"one op=a": 1, "two a|b": 1}, **changes}
    found = checkpoints.header(run, [], "m", "b", {"token": os.urandom(4)})
    assert found
    return found


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({}, [1, 2]),
        ({"attempts": {"one op=a": 2, "two a|b": 1}}, [2]),
        ({"attempts": {"one op=a": 1}}, [1]),
        ({"settings": "5f"}, []),
        ({"stage": "other"}, []),
    ],
)
def test_of_a_stage_between_nodes_the_checkpoints_are_taken(tmp_path: pathlib.Path, changes: dict[str, t.Any], keys: list[int]) -> None:
    path = written(tmp_path / "r", [between(), *CHECKPOINTS])
    assert [one["memo"]["key"] for one in checkpoints.load(path, between(**changes))] == keys
    assert checkpoints.load(path, ASKED) == [] and checkpoints.has_finished(path)


def test_without_a_checkpoint_nothing_is_finished_between_nodes(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path / "r", [between(), CHECKPOINTS[2]])
    pathlib.Path(path).write_text(pathlib.Path(path).read_text().rsplit("\n", 2)[0] + "\n")  # before its guardian ends it
    assert not checkpoints.has_finished(path)


def test_the_name_of_an_item_is_that_of_its_observation() -> None:
    pair = {"kind": "pair", "id": "a|b"}
    assert checkpoints.name_of({"check": "c", "variant": "v", "subject": pair}) == "c v a|b"
    assert checkpoints.name_of({"check": "c", "variant": "", "subject": {"kind": "node", "id": "a"}}) == "c"
    assert checkpoints.name_of({"check": "c"}) == "c"


def test_a_file_is_whole_or_nothing_of_it_is_taken(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "r"
    whole = pathlib.Path(written(path, [ASKED, *SAID])).read_bytes()
    lines = whole.splitlines(keepends=True)
    torn = [
        whole[:-1],
        whole[: len(whole) // 2],
        b"".join(lines[:-1]),
        b"".join([*lines[:2], *lines[3:]]),
        b"".join(lines[1:]),
        b"",
        whole * 2,
    ]
    torn += [whole.replace(b'"wrong_results"', b'"wrong_result_"'), whole.replace(b'"two"', b'"one"'), whole + b"\n", b"\0" * 100]
    for data in torn:
        path.write_bytes(data)
        assert checkpoints.load(str(path), ASKED) == [], data
    path.unlink()
    assert checkpoints.load(str(path), ASKED) == []


class Late(session.Lock):
    """Of a resume that is held up between seeing who has the node and asking him to end."""

    def tell_to_end(self, run_id: str) -> None:
        until(lambda: not os.path.exists(self.path))
        super().tell_to_end(run_id)


def test_a_resume_that_is_late_to_end_the_old_guardian_loses_nothing(place: Place) -> None:
    running = place.start(300.0)
    guardian = place.at_the_third()
    started = process.start_time(guardian)
    resume = session.Session(str(place.state), RUN, "own", 600)
    resume.lock = Late(str(place.state))
    running.kill()
    resume.acquire(20)
    resume.release()
    running.communicate(timeout=30)
    assert process.is_alive(guardian, started), "it holds what was finished"
    by = measured_by(place.run())
    assert by["one"] == by["two"] == guardian


def test_a_resume_ends_a_guardian_that_measures_on(place: Place) -> None:
    running = place.start(300.0, phase="start")  # detached: it goes on without its module
    guardian = place.at_the_third()
    running.communicate(timeout=30)
    by = measured_by(place.run())
    assert by["one"] == by["two"] == guardian and by["three"] != guardian


def test_a_guardian_that_goes_does_not_take_the_file_of_the_next_one_along(place: Place) -> None:
    guardian, started = place.killed()
    folder = os.open(place.file().parent, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)  # as a resume does that is about to put its own file there
    os.kill(guardian, signal.SIGTERM)
    until(lambda: waits_for_a_lock(guardian))
    new = place.file().with_suffix(".new")
    new.write_text("the next one's")
    os.replace(new, place.file())
    os.close(folder)
    until(lambda: not process.is_alive(guardian, started))
    assert place.file().read_text() == "the next one's"


def waits_for_a_lock(pid: int) -> bool:
    return any("->" in line and line.split()[5] == str(pid) for line in pathlib.Path("/proc/locks").read_text().splitlines())
