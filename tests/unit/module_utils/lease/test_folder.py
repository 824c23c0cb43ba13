# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A folder of our own on a file system under test: nothing else is ever removed, and it goes whoever dies."""

from __future__ import annotations

import errno
import os
import pathlib
import time

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import folder
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import apart, session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

TOKEN = "0123456789abcdef"
NOBODY, OURS = folder.Owner("", ""), folder.Owner("machine-a", "boot-2")


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    (tmp_path / "state").mkdir()
    return Node(60, ledger=session.Ledger(str(tmp_path / "state")), root=str(tmp_path / "root"))


@pytest.fixture
def scratch(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def test_the_folder_and_all_in_it_go_and_what_lies_beside_it_stays(node: Node, scratch: pathlib.Path) -> None:
    (scratch / "thesis").write_text("mine")
    with folder.FolderLease(node, str(scratch), 5) as lease:
        made = pathlib.Path(lease.path)
        assert made.stat().st_mode & 0o777 == 0o700
        (made / "many").mkdir()
        (made / "many/file").write_text("x")
        (made / "link").symlink_to(scratch / "thesis")
        (made / "loop").symlink_to(scratch)
    assert [path.name for path in scratch.iterdir()] == ["thesis"] and lease.left == ""


def test_a_file_system_that_lists_an_open_folder_only_once_is_cleaned_too(scratch: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As sshfs does."""
    path = scratch / (folder.PREFIX + TOKEN)
    folder.make(str(path), TOKEN, OURS, time.time() + 60)
    (path / "many").mkdir()
    (path / "many/file").write_text("x")
    listed: set[int] = set()
    names, close = os.listdir, os.close

    def once(of: int) -> list[str]:
        found = [] if of in listed else names(of)
        listed.add(of)
        return found

    monkeypatch.setattr(os, "listdir", once)
    monkeypatch.setattr(os, "close", lambda handle: (listed.discard(handle), close(handle)))
    assert folder.remove(str(path), TOKEN) == "" and not path.exists()


def test_whoever_dies_the_ledger_removes_it(node: Node, scratch: pathlib.Path) -> None:
    lease = folder.FolderLease(node, str(scratch), 5).__enter__()
    (pathlib.Path(lease.path) / "data.0").write_bytes(b"x" * 4096)
    assert node.ledger is not None and node.ledger.undo() == [f"removed {lease.path}"]
    assert list(scratch.iterdir()) == []


def test_it_is_in_the_ledger_before_it_is_made(node: Node, tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError):
        folder.FolderLease(node, str(tmp_path / "gone"), 5).__enter__()
    assert node.ledger is not None and [entry["kind"] for entry in node.ledger.entries()] == ["folder"]
    node.ledger.undo()


@pytest.mark.parametrize("marker", [None, "", "{}", '{"token": "other"}', "[1]"])
def test_without_its_marker_nothing_is_removed(scratch: pathlib.Path, marker: str | None) -> None:
    path = scratch / (folder.PREFIX + TOKEN)
    path.mkdir()
    (path / "precious").write_text("mine")
    if marker is not None:
        (path / folder.MARKER).write_text(marker)
    words = folder.undo({"path": str(path), "token": TOKEN})
    assert "is left" in words and (path / "precious").read_text() == "mine"


def test_a_link_in_its_place_is_not_followed(scratch: pathlib.Path, tmp_path: pathlib.Path) -> None:
    other = tmp_path / "other"
    folder.make(str(other), TOKEN, NOBODY, 0.0)
    path = scratch / (folder.PREFIX + TOKEN)
    path.symlink_to(other)
    assert "is left" in folder.undo({"path": str(path), "token": TOKEN}) and (other / folder.MARKER).exists()
    assert "is left" in folder.undo({"path": str(other), "token": TOKEN}) and (other / folder.MARKER).exists()


def test_the_next_probe_of_a_machine_removes_what_an_earlier_one_had_to_leave(scratch: pathlib.Path) -> None:
    mine, others = scratch / (folder.PREFIX + TOKEN), scratch / (folder.PREFIX + TOKEN[::-1])
    folder.make(str(mine), TOKEN, OURS, time.time() + 900)
    folder.make(str(others), TOKEN[::-1], OURS._replace(machine_id="machine-b"), 0.0)
    assert folder.remove_abandoned(str(scratch), NOBODY) == []
    assert folder.remove_abandoned(str(scratch), OURS) == [str(mine)]
    assert not mine.exists() and others.exists()


def test_what_takes_too_long_to_remove_is_left_to_the_next_probe_with_its_marker(scratch: pathlib.Path) -> None:
    """A file system that a killed run has left a million files on answers as before."""
    mine = scratch / (folder.PREFIX + TOKEN)
    folder.make(str(mine), TOKEN, OURS, time.time() + 900)
    (mine / "many").mkdir()
    for number in range(3000):
        (mine / "many" / str(number)).touch()
    assert apart.call(lambda: folder.remove_abandoned(str(scratch), OURS, 0.0), 30) == []
    assert apart.call(lambda: folder.remove_abandoned(str(scratch), OURS, 0.001), 30) == [] and (mine / folder.MARKER).exists()
    assert folder.remove_abandoned(str(scratch), OURS, 60) == [str(mine)]


@pytest.mark.parametrize("marker", ["[" * 4096, '{"until": 1e999, "machine_id": ["machine-a"]}', "\0"])
def test_a_marker_that_somebody_else_has_written_stops_nobody(scratch: pathlib.Path, marker: str) -> None:
    foreign, mine = scratch / (folder.PREFIX + TOKEN), scratch / (folder.PREFIX + TOKEN[::-1])
    foreign.mkdir()
    (foreign / folder.MARKER).write_text(marker)
    folder.make(str(mine), TOKEN[::-1], OURS, time.time() + 900)
    assert folder.remove_abandoned(str(scratch), OURS) == [str(mine)] and foreign.exists()
    assert "does not have the marker" in folder.remove(str(foreign), TOKEN)


def test_a_folder_that_another_node_removes_meanwhile_stops_nobody(scratch: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a shared file system nodes end while others begin."""
    theirs = scratch / (folder.PREFIX + TOKEN)
    folder.make(str(theirs), TOKEN, OURS._replace(machine_id="machine-b"), time.time() + 900)
    opened = os.open

    def removing(path: str, *more: int, **others: int) -> int:
        if path == "." and not theirs.exists():
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))  # as NFS says it
        handle = opened(path, *more, **others)
        if path == str(theirs):
            theirs.joinpath(folder.MARKER).unlink()
            theirs.rmdir()
        return handle

    monkeypatch.setattr(os, "open", removing)
    assert folder.remove_abandoned(str(scratch), OURS) == [] and not theirs.exists()


def test_a_machine_made_of_the_same_image_loses_nothing_while_it_works(scratch: pathlib.Path) -> None:
    """It has the same machine-id, on a file system that both share."""
    clone = scratch / (folder.PREFIX + TOKEN)
    folder.make(str(clone), TOKEN, OURS._replace(boot_id="boot-1"), time.time() + 900)
    assert folder.remove_abandoned(str(scratch), OURS) == []
    clone.joinpath(folder.MARKER).unlink()
    clone.rmdir()
    folder.make(str(clone), TOKEN, OURS._replace(boot_id="boot-1"), time.time() - 1)
    assert folder.remove_abandoned(str(scratch), OURS) == [str(clone)]


def test_what_a_full_or_slow_file_system_made_of_a_folder_goes_too(scratch: pathlib.Path) -> None:
    bare = scratch / (folder.PREFIX + TOKEN)
    bare.mkdir()
    (bare / folder.MARKER).touch()  # the name had room, its text had none
    assert folder.undo({"path": str(bare), "token": TOKEN}) == f"removed {bare}"
    bare.mkdir()  # made after its maker was ended
    assert folder.remove_abandoned(str(scratch), OURS) == [] and bare.exists()
    os.utime(bare, (0, 0))
    assert folder.remove_abandoned(str(scratch), OURS) == [str(bare)]


def test_a_pipe_in_place_of_a_marker_is_not_waited_for(scratch: pathlib.Path) -> None:
    """Anybody may make one on a file system that all write to."""
    foreign = scratch / (folder.PREFIX + TOKEN)
    foreign.mkdir()
    os.mkfifo(foreign / folder.MARKER)
    assert apart.call(lambda: folder.remove_abandoned(str(scratch), OURS), 30) == [] and foreign.exists()
    assert "does not have the marker" in apart.call(lambda: folder.remove(str(foreign), TOKEN), 30)


def test_file_systems_that_hang_share_the_time_of_the_guardian(scratch: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "UNDO_S", 1.0)
    monkeypatch.setattr(folder, "_UNDOING", folder._Undoing())
    monkeypatch.setattr(folder, "remove", lambda _path, _token, _until: time.sleep(100))
    for _number in range(2):
        with pytest.raises(session.Left, match="did not remove it within 1 s"):
            folder.undo({"path": str(scratch / (folder.PREFIX + TOKEN)), "token": TOKEN})


def test_what_is_left_stays_in_the_ledger_until_a_restore_has_removed_it(
    node: Node, scratch: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guardian of a killed run has less time than a million files take."""
    monkeypatch.setattr(folder, "_UNDOING", folder._Undoing())
    monkeypatch.setattr(folder._UNDOING, "left", lambda again: 0.5 if again else 0.0)
    slow = folder.remove
    monkeypatch.setattr(folder, "remove", lambda path, token, until: slow(path, token, until - 1))
    lease = folder.FolderLease(node, str(scratch), 5).__enter__()
    (pathlib.Path(lease.path) / "data").touch()
    ledger = node.ledger
    assert ledger is not None
    for _session in range(2):
        (said,) = ledger.undo()
        assert "more files than could be removed" in said and "playbooks/restore.yml" in said
        assert [(entry["kind"], entry["left"]) for entry in ledger.entries()] == [("folder", True)]
    monkeypatch.undo()
    folder.take_time()
    assert ledger.undo() == [f"removed {lease.path}"] and ledger.entries() == [] and list(scratch.iterdir()) == []


def test_a_call_that_never_comes_back_is_not_waited_for() -> None:
    began = time.monotonic()
    with pytest.raises(apart.NoAnswer):
        apart.call(lambda: time.sleep(60), 0.1)
    assert time.monotonic() - began < 30


def test_a_call_hands_over_its_value_or_its_error(tmp_path: pathlib.Path) -> None:
    assert apart.call(lambda: {"pid": os.getpid()}, 30)["pid"] != os.getpid()
    with pytest.raises(FileNotFoundError, match="gone"):
        apart.call(lambda: os.listdir(tmp_path / "gone"), 30)
    with pytest.raises(RuntimeError, match="ValueError: invalid"):
        apart.call(lambda: int("no"), 30)
    with pytest.raises(RuntimeError, match="without an answer"):
        apart.call(lambda: os._exit(3), 30)


def test_the_child_of_a_call_keeps_no_file_open(tmp_path: pathlib.Path) -> None:
    """One that sleeps in the kernel would hold a lock of its parent's."""

    def open_files() -> list[str]:
        folders = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        return [os.readlink(name) for name in folders if os.path.lexists(name)]

    with open(tmp_path / "lock", "w"):
        assert [name for name in open_files() if name.startswith(str(tmp_path))]
        assert not [name for name in apart.call(open_files, 30) if name.startswith(str(tmp_path))]
