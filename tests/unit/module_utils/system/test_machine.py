# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

import pathlib
import threading
import time

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.machine import CONTAINED, HOLDERS, ITSELF, JOB, JOB_NUMBER, Machine

RUN = "20261121T100000Z-0a1b2c"


@pytest.fixture
def root(tmp_path: pathlib.Path) -> str:
    """A host's root as a container sees it."""
    for name in ("etc", "usr"):
        (tmp_path / "host" / name).mkdir(parents=True)
    (tmp_path / "host" / "etc" / "machine-id").write_text("0" * 32 + "\n")
    return str(tmp_path / "host")


@pytest.mark.parametrize(("own", "others"), [(way, [other for other in HOLDERS if other != way]) for way in HOLDERS])
def test_a_machine_belongs_to_many_that_come_in_one_way_and_never_to_two(root: str, own: str, others: list[str]) -> None:
    first, second = Machine(root, own), Machine(root, own)
    assert first.try_acquire() and second.try_acquire()
    for way in others:
        other = Machine(root, way)
        assert not other.try_acquire()
        assert other.holder == HOLDERS[own]
    first.release()
    assert not any(Machine(root, way).try_acquire() for way in others)
    second.release()
    for way in others:
        other = Machine(root, way)
        assert other.try_acquire()
        assert not first.try_acquire()
        other.release()


def test_a_machine_without_an_identity_is_held_as_it_is(tmp_path: pathlib.Path) -> None:
    nameless = Machine(str(tmp_path), CONTAINED)
    assert nameless.try_acquire()
    nameless.release()


def test_only_a_container_that_sees_its_host_stands_for_it(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Machine.of_session(root).own == Machine(root).own
    monkeypatch.setenv("GPUFLEET_POD_UID", "a uid")
    assert Machine.of_session(root).own == Machine(root, CONTAINED).own
    assert Machine.of_session("/").own == Machine("/").own


def test_a_job_is_another_way_than_the_machine_itself(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Machine.of_session(root).own == ITSELF
    monkeypatch.setenv(JOB_NUMBER, "77")
    assert Machine.of_session(root).own == JOB


def test_the_guardian_holds_it_for_as_long_as_the_probe_runs(root: str, tmp_path: pathlib.Path) -> None:
    state = str(tmp_path / "state")
    running = session.Session(state, RUN, "stack", 120, Machine(root))
    refused_once = tmp_path / "refused"

    def probe() -> list[dict[str, object]]:
        while not refused_once.exists():
            time.sleep(0.05)
        time.sleep(1)
        return [{"check": "facts"}]

    running.start(probe)
    other = session.Session(str(tmp_path / "pod"), RUN, "stack", 120, Machine(root, CONTAINED))
    with pytest.raises(ReasonedError) as refused:
        other.start(lambda: [])
    assert refused.value.reason_code == "duplicate_identity"
    assert "a run on the machine itself measures this very machine" in refused.value.reason
    assert not (tmp_path / "pod").exists()
    refused_once.touch()
    other.start(lambda: [{"check": "facts"}], wait_for_lock_s=60)  # it waits where it may
    assert running.wait(60) and running.collect()["end"] == "done"
    assert other.wait(60) and other.collect()["end"] == "done"
    assert Machine(root).try_acquire(), "a guardian that is done holds nothing"


def test_none_of_those_that_come_at_once_loses_for_ever(root: str, tmp_path: pathlib.Path) -> None:
    found: list[str] = []

    def come(way: str) -> None:
        mine = Machine(root, way)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if mine.try_acquire():
                found.append("in")
                time.sleep(0.05)
                found.append("out")
                mine.release()
                return
            time.sleep(0.01)

    threads = [threading.Thread(target=come, args=(way,)) for way in HOLDERS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["in", "out"] * 3
