# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that use one file system at one time, each in a thread, with real files and locks and a stand-in for fio."""

from __future__ import annotations

import concurrent.futures
import functools
import json
import os
import pathlib
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import mounts
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import folder
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import storage
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage import checks, shared_exchange, shared_files, timeline, touching
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage import together as together_tests
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from test_storage_probe import PARAMS, STAND_IN

NAMES = ["n0", "n1", "n2"]
# How many nodes try the locks of the first one.
EXPECTED = {"nodes": 2}
# Nodes that come to the patterns; 0 if none waits for the others there.
AT_PATTERNS = {"nodes": 3}


class Machine(Node):
    """A node with an identity of its own: the folders of one machine are removed by its next session."""

    def __init__(self, index: int, ledger: session.Ledger) -> None:
        super().__init__(2000, ledger=ledger)
        self.index = index

    def identity(self) -> dict[str, t.Any]:
        return {"machine_id": f"machine-{self.index}", "boot_id": f"boot-{self.index}"}


@pytest.fixture(autouse=True)
def quick(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/fio").write_text(STAND_IN)
    (tmp_path / "bin/fio").chmod(0o755)
    (tmp_path / "plan").write_text(json.dumps({"read": {"rate": 1 << 30}}))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("FIO_PLAN", str(tmp_path / "plan"))
    monkeypatch.setattr(mounts, "is_of_network", lambda _kind: True)
    for name, seconds in (("LOCK_S", 0.1), ("BETWEEN_S", 0.1), ("ON_TIME_S", 300.0), ("ECHO_S", 0.2), ("REPLACE_S", 0.2)):
        monkeypatch.setattr(timeline, name, seconds)
    # The machine may be slow: the locks are held for as long as they are tried, whatever the clock says.
    monkeypatch.setattr(together_tests.TogetherTest, "_is_still_held", lambda _self: True)
    monkeypatch.setattr(shared_files, "hold", functools.partial(held, tmp_path))
    monkeypatch.setattr(together_tests, "_checkpoint", functools.partial(loaded, together_tests._checkpoint))
    own_patterns = together_tests.TogetherTest._patterns
    monkeypatch.setattr(together_tests.TogetherTest, "_patterns", functools.partialmethod(patterns, tmp_path, own_patterns))
    monkeypatch.setattr(shared_files, "try_locks", functools.partial(tried, tmp_path, shared_files.try_locks))


def until(there: t.Callable[[], bool]) -> None:
    for _turn in range(6000):
        if there():
            return
        time.sleep(0.05)


def held(marks: pathlib.Path, folder: str, token: str, number: int, _seconds: float) -> dict[str, str]:
    handles = {kind: os.open(os.path.join(folder, f"{kind}-{token}-{number}"), os.O_RDWR) for kind in shared_files.LOCKS}
    found = {kind: shared_files._locked(handle, kind) for kind, handle in handles.items()}
    (marks / "held").touch()
    until(lambda: len(list(marks.glob("tried-*"))) == EXPECTED["nodes"])
    return found


def tried(marks: pathlib.Path, try_locks: t.Any, parent: str, prefix: str, token: str, number: int) -> dict[str, str]:
    until((marks / "held").exists)
    found = try_locks(parent, prefix, token, number)
    (marks / f"tried-{os.getpid()}").touch()
    return t.cast("dict[str, str]", found)


def loaded(checkpoint: t.Any, parent: str, token: str, number: int) -> t.Any:
    """Wait for the checkpoint of a node whose folder is seen."""
    if AT_PATTERNS["nodes"] and shared_files.path_of(parent, folder.PREFIX, "ask", token, number):
        until(lambda: checkpoint(parent, token, number)[1])
    return checkpoint(parent, token, number)


def patterns(self: together_tests.TogetherTest, marks: pathlib.Path, own: t.Any, path: str) -> t.Iterator[t.Any]:
    """Leave a node's files there until all nodes have read them."""
    seen = list(own(self, path))
    (marks / f"read-{self.index}").touch()
    until(lambda: len(list(marks.glob("read-*"))) >= AT_PATTERNS["nodes"])
    yield from seen


def moments(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[float]]:
    """Return {index of a node: the moments of the timetable that it waits for}, which fills as they work."""
    waited: dict[int, list[float]] = {0: [], 1: [], 2: []}
    wait = together_tests.TogetherTest._wait

    def waits(self: together_tests.TogetherTest, at: float) -> bool:
        waited[self.index].append(at)
        return wait(self, at)

    monkeypatch.setattr(together_tests.TogetherTest, "_wait", waits)
    return waited


def together(tmp_path: pathlib.Path, folders: t.Mapping[int, str] | None = None, begins_in: float = 3.0) -> dict[str, dict[str, t.Any]]:
    """Return {node: {check: observation}}; `folders` are those of nodes that have not the same one as the others."""
    (tmp_path / "shared").mkdir(exist_ok=True)
    table = {"storage": "lustre", "nodes": NAMES, "sizes": [1, 2, 3], "token": "ab12", "at": 0.0}

    def work(index: int) -> dict[str, t.Any]:
        path = tmp_path / (folders or {}).get(index, "shared")
        path.mkdir(exist_ok=True)
        state = tmp_path / f"state-{index}"
        state.mkdir()
        params = {
            **PARAMS, "storage": [{"name": "lustre", "path": str(path), "shared": True, "gibps_read_all": 5}], "nodes": 3, "seconds": 0.05,
            "checks": [{"check": check, "variant": "storage=lustre"} for check in checks.OF_MANY], "patience": 0.5,
            "begins_in": begins_in, "ask_timeout": 1.0, "timetables": [table], "own_name": NAMES[index],
        }  # fmt: skip
        return {seen["check"]: seen for seen in storage.probe(params, Machine(index, session.Ledger(str(state))))}

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        found = dict(zip(NAMES, pool.map(work, range(3)), strict=True))
    assert list((tmp_path / "shared").iterdir()) == [], "something is left"
    return found


@pytest.mark.parametrize("nodes", [[["n1"]], []])
def test_a_node_with_which_no_other_one_takes_part_has_seen_nothing(nodes: list[list[str]], tmp_path: pathlib.Path) -> None:
    tables = [{"storage": "lustre", "nodes": names, "sizes": [1], "token": "ab12", "at": 0.0} for names in nodes]
    params = {
        **PARAMS, "storage": [{"name": "lustre", "path": str(tmp_path), "shared": True}], "timetables": tables, "own_name": "n2",
        "meeting": {}, "begins_in": 0.0, "ask_timeout": 1.0, "first": {"node": "n2", "address": "127.0.0.1", "port": 1, "token": "word"},
        "checks": [{"check": check, "variant": "storage=lustre"} for check in checks.OF_MANY],
    }  # fmt: skip
    seen = list(storage._together(params, Machine(0, session.Ledger(str(tmp_path)))))
    assert [(each["check"], each["outcome"], each["reason_code"]) for each in seen] == [(c, "error", "partner") for c in checks.OF_MANY]


def test_nodes_see_each_others_files_and_locks_and_measure_in_their_steps(tmp_path: pathlib.Path) -> None:
    found = together(tmp_path)
    assert [seen["coherent"]["outcome"] for seen in found.values()] == ["measured"] * 3, found["n1"]["coherent"]
    assert found["n0"]["coherent"]["context"]["locks"] == {"fcntl": "taken", "flock": "taken"}
    assert found["n2"]["coherent"]["context"]["locks"] == {"fcntl": "refused", "flock": "refused"}
    rows = {name: [(row["nodes"], row["way"], row["rate"]) for row in seen["together"]["series"]] for name, seen in found.items()}
    assert rows["n2"] == [(3, "write", 2.0), (3, "read", 1.0)] and [row[0] for row in rows["n1"]] == [2, 2, 3, 3] and len(rows["n0"]) == 6
    few = found["n1"]["together"]["context"]["few"]
    assert (few["nodes"], few["write"], few["read"]) == (1, 2.0, 1.0) and few["small_ms"] > 0
    assert [seen["checkpoint"]["reason"] or seen["model_load"]["reason"] for seen in found.values()] == [None] * 3
    assert found["n2"]["checkpoint"]["series"] == [{"way": "write", "rate": 2.0, "gib": 0.25}, {"way": "read", "rate": 1.0, "gib": 0.25}]
    assert found["n0"]["model_load"]["series"] == [{"way": "read", "rate": 1.0, "gib": 0.25}]
    calls = [json.loads(line) for line in pathlib.Path(f"{tmp_path / 'plan'}.calls").read_text().splitlines()]
    of_patterns = [call for call in calls if "verify_pattern" in call]
    written, read = ([call["verify_pattern"] for call in of_patterns if call["rw"] == way] for way in ("write", "read"))
    first = max(set(read), key=read.count)
    assert len(set(written)) == 3 and sorted(read) == sorted([*written, *[first] * 3])
    owners = found["n0"]["coherent"]["context"]["owners"]
    assert owners["process"] == owners["own"] == owners["next"] == [os.geteuid(), os.getegid()]
    assert found["n1"]["coherent"]["context"]["replaced"]["missing"] == found["n1"]["coherent"]["context"]["replaced"]["torn"] == 0


def test_a_folder_that_is_left_is_said_by_the_last_check(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removed = folder._removed
    monkeypatch.setattr(folder, "_removed", lambda *of: removed(*of) or f"{of[0]} is left: why")
    found = together(tmp_path)
    assert {seen["model_load"]["reason_code"] for seen in found.values()} == {"no_answer"} and "is left" in found["n0"]["model_load"][
        "reason"
    ]
    assert {seen["checkpoint"]["reason_code"] for seen in found.values()} == {None}


def test_a_node_keeps_its_checkpoint_until_the_last_node_must_have_read_it(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = moments(monkeypatch)
    together(tmp_path)
    assert {each[-1] for each in waited.values()} == {timeline.Timeline.of([1, 2, 3], 0.05, 0.5).end}


def test_a_node_with_another_file_system_at_the_path_sees_nobody(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXPECTED, "nodes", 1)
    found = together(tmp_path, {2: "other"})
    assert {name: seen["coherent"]["context"]["unseen"] for name, seen in found.items()} == {
        "n0": ["n2"], "n1": ["n2"], "n2": ["n0", "n1"],
    }  # fmt: skip
    assert {name: (seen["checkpoint"]["reason_code"], seen["model_load"]["reason_code"]) for name, seen in found.items()} == {
        "n0": (None, None), "n1": ("partner", None), "n2": ("partner", "partner"),
    }  # fmt: skip
    assert set(found["n2"]["coherent"]["context"]["not_looked_for"]) >= {"visible", "rename"}


def test_a_node_that_has_not_mounted_it_says_so_once(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "is_of_network", lambda _kind: False)
    found = together(tmp_path)
    assert {seen["coherent"]["reason_code"] for seen in found.values()} == {"mount_missing"}
    assert [finding["code"] for finding in found["n0"]["coherent"]["context"]["findings"]] == ["mount_missing"]
    assert not any("findings" in found["n0"][check]["context"] for check in ("together", "checkpoint", "model_load"))


def test_data_that_another_node_reads_otherwise_than_written_is_wrong(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hand_over = shared_files.hand_over

    def hands(folder: str, token: str, number: int) -> None:
        hand_over(folder, token, number)
        if number == 1:
            pathlib.Path(folder, f"hand-{token}-{number}").write_bytes(b"\0" * shared_files.BYTES)

    monkeypatch.setattr(shared_files, "hand_over", hands)
    found = together(tmp_path)
    assert {name: seen["coherent"]["reason_code"] for name, seen in found.items()} == {"n0": "wrong_results", "n1": None, "n2": None}
    assert "what n1 has written and synced is read with other data from byte 0 on" in found["n0"]["coherent"]["reason"]


def test_the_data_of_the_one_behind_is_read_where_the_next_node_has_written_nothing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over = shared_files.hand_over

    def hands(folder: str, token: str, number: int) -> None:
        hand_over(folder, token, number)
        if number == 1:
            pathlib.Path(folder, f"hand-{token}-{number}").unlink()
        if number == 2:
            pathlib.Path(folder, f"hand-{token}-{number}").write_bytes(b"\0" * shared_files.BYTES)

    monkeypatch.setattr(shared_files, "hand_over", hands)
    # The node whose file is missing does not come to the patterns.
    monkeypatch.setitem(AT_PATTERNS, "nodes", 2)
    seen = together(tmp_path)["n0"]["coherent"]
    assert seen["reason_code"] == "wrong_results" and "what n2 has written" in seen["reason"]


def test_a_node_that_is_not_ready_when_the_others_begin_has_no_rate(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "ON_TIME_S", 0.0)
    monkeypatch.setitem(AT_PATTERNS, "nodes", 0)
    monkeypatch.setattr(shared_exchange, "prepare", None)
    found = together(tmp_path, begins_in=-100.0)
    assert {seen[check]["reason_code"] for seen in found.values() for check in checks.OF_MANY} == {"partner"}
    assert not (tmp_path / "plan.calls").exists(), "what it wrote would slow down the others"


def test_a_node_that_is_late_for_the_steps_alone_has_no_rate(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "ON_TIME_S", 0.0)
    monkeypatch.setattr(together_tests.TogetherTest, "_left", lambda self, at: 1.0 if at >= self.times.patterns else -100.0)
    monkeypatch.setattr(together_tests.time, "sleep", lambda _seconds: None)
    monkeypatch.setitem(AT_PATTERNS, "nodes", 0)
    found = together(tmp_path)
    assert {seen["coherent"]["reason_code"] for seen in found.values()} == {"partner"}
    assert [seen["together"]["series"] for seen in found.values()] == [[], [], []]


def test_an_error_of_the_file_system_in_a_step_is_a_finding_of_its_node(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together_tests.TogetherTest, "_timed", lambda *_asked: ("file_system", "Input/output error"))
    seen = together(tmp_path)["n1"]["together"]
    assert seen["context"]["findings"][0]["code"] == seen["reason_code"] == "file_system"


def test_a_checkpoint_that_has_lost_a_part_is_wrong(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of it has the right pattern."""
    checkpoint = together_tests._checkpoint
    at_once = t.cast("functools.partial[t.Any]", checkpoint).args[0]

    def losing(parent: str, token: str, number: int) -> t.Any:
        path, sizes = checkpoint(parent, token, number)
        if sizes and number == 1:
            os.truncate(os.path.join(path, "data.1"), touching.BLOCK)
        if sizes and number == 2:
            pathlib.Path(path, "data.1").unlink(missing_ok=True)
        return at_once(parent, token, number)

    monkeypatch.setattr(together_tests, "_checkpoint", losing)
    found = together(tmp_path)
    assert {name: (seen["checkpoint"]["reason_code"], seen["model_load"]["reason_code"]) for name, seen in found.items()} == {
        "n0": ("wrong_results", None), "n1": ("wrong_results", None), "n2": (None, None),
    }  # fmt: skip
    assert "the checkpoint of n2 has 1 files with 134217728 bytes, and 2 with 268435456 were" in found["n1"]["checkpoint"]["reason"]


def test_a_checkpoint_that_is_removed_with_all_of_its_node_is_not_wrong(tmp_path: pathlib.Path) -> None:
    of = tmp_path / (folder.PREFIX + shared_files.folder_token("ab12", 1))
    (of / "checkpoint.2x4096-ab12-1").mkdir(parents=True)
    (of / "checkpoint.2x4096-ab12-1/data.1").write_bytes(b"x" * 4096)
    assert together_tests._checkpoint(str(tmp_path), "ab12", 1) == ("", []), "its node is gone"
    (of / "hand-ab12-1").touch()
    assert together_tests._checkpoint(str(tmp_path), "ab12", 1)[0].startswith("has 1 files with 4096 bytes")


def test_a_node_that_cannot_write_keeps_its_files_until_the_others_have_looked(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plan").write_text(json.dumps({"write": {"error": 28}}))
    waited = moments(monkeypatch)
    monkeypatch.setitem(AT_PATTERNS, "nodes", 0)
    found = together(tmp_path)
    assert {seen["together"]["reason_code"] for seen in found.values()} == {"disk_full"}
    assert {each[-1] for each in waited.values()} == {timeline.Timeline.of([1, 2, 3], 0.05, 0.5).steps}


def test_a_fault_in_the_round_of_few_nodes_is_a_fault(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = together_tests.TogetherTest._timed

    def fails(self: together_tests.TogetherTest, path: str, way: str, seconds: float, raws: list[str]) -> t.Any:
        return ("file_system", "Input/output error") if seconds == 0.1 and way == "read" else timed(self, path, way, seconds, raws)

    monkeypatch.setattr(timeline, "few_seconds", lambda _seconds: 0.1)
    monkeypatch.setattr(together_tests.TogetherTest, "_timed", fails)
    monkeypatch.setitem(AT_PATTERNS, "nodes", 0)
    found = together(tmp_path)
    assert {seen["together"]["reason_code"] for seen in found.values()} == {"file_system"}
