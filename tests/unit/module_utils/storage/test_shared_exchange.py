# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that ask each other by files and read a file that is replaced, each in a thread with a folder of its own."""

from __future__ import annotations

import concurrent.futures
import functools
import os
import pathlib
import threading
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage import shared_exchange, shared_files

PREFIX, TOKEN = "node-", "ab12"


@pytest.fixture
def folders(tmp_path: pathlib.Path) -> list[str]:
    made = []
    for number in range(3):
        path = tmp_path / (PREFIX + shared_files.folder_token(TOKEN, number))
        path.mkdir()
        shared_exchange.prepare(str(path), TOKEN, number)
        shared_files.hand_over(str(path), TOKEN, number)
        made.append(str(path))
    return made


def test_each_node_gets_answers_from_the_next_one(folders: list[str], tmp_path: pathlib.Path) -> None:
    start = threading.Barrier(3)

    def ask(number: int) -> dict[str, t.Any]:
        start.wait(60)
        return shared_exchange.echo(folders[number], str(tmp_path), PREFIX, TOKEN, number, 3, 5.0)

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        found = list(pool.map(ask, range(3)))
    assert all(each["trips"] > 0 and 0 < each["ms"] <= each["most_ms"] for each in found), found


def test_a_node_that_nobody_answers_has_no_trips(folders: list[str], tmp_path: pathlib.Path) -> None:
    assert shared_exchange.echo(folders[0], str(tmp_path), PREFIX, TOKEN, 0, 3, 0.1) == {"trips": 0}
    assert shared_exchange.echo(folders[0], str(tmp_path / "elsewhere"), PREFIX, TOKEN, 0, 3, 0.1) == {"trips": 0}


def test_a_name_that_rename_replaces_is_never_missing_and_each_content_whole(folders: list[str], tmp_path: pathlib.Path) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        replacing = pool.submit(shared_exchange.replace, folders[0], TOKEN, 0, 3.0)
        seen = shared_exchange.watch(str(tmp_path), PREFIX, TOKEN, 0, 3, 2.0)
        assert replacing.result()["replaced"] > 1
    assert seen["looks"] >= seen["generations"] > 0 and seen["missing"] == seen["torn"] == 0


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda path: path.unlink(), "missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "torn"),
        (lambda path: path.write_bytes(path.read_bytes()[9:] + b"00000001\n"), "torn"),
    ],
)
def test_a_reader_that_sees_neither_the_old_file_nor_the_new_one_says_so(
    folders: list[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, change: t.Callable[[pathlib.Path], None], what: str
) -> None:
    path = pathlib.Path(folders[0], f"replaced-{TOKEN}-0")
    monkeypatch.setattr(shared_exchange, "path_of", functools.partial(lambda *_asked: (str(path), change(path))[0]))
    seen = shared_exchange.watch(str(tmp_path), PREFIX, TOKEN, 0, 3, 0.05)
    assert seen[what] == seen["looks"] > 0


def test_files_that_go_with_all_of_their_node_are_no_fault_of_the_file_system(
    folders: list[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe that is ended has its folder removed, file by file, while others still look."""
    path, hand = (pathlib.Path(folders[0], f"{name}-{TOKEN}-0") for name in ("replaced", "hand"))
    path.unlink()
    monkeypatch.setattr(shared_exchange, "path_of", lambda *_asked: str(path))
    assert shared_exchange.watch(str(tmp_path), PREFIX, TOKEN, 0, 3, 0.05)["missing"] > 0, "the node is there"
    removing = threading.Timer(0.3, hand.unlink)
    removing.start()
    seen = shared_exchange.watch(str(tmp_path), PREFIX, TOKEN, 0, 3, 0.05)
    assert (seen["missing"], seen["generations"]) == (0, 0)


def test_owners_of_the_nodes_own_file_and_of_the_next_ones_are_said(folders: list[str], tmp_path: pathlib.Path) -> None:
    us = [os.geteuid(), os.getegid()]
    assert shared_exchange.owners(folders[2], str(tmp_path), PREFIX, TOKEN, 2, 3) == {"process": us, "own": us, "next": us}


def test_small_operations_have_a_time_and_leave_nothing(folders: list[str]) -> None:
    before = os.listdir(folders[0])
    assert shared_exchange.small_operations(folders[0], 3, 10.0) > 0 and os.listdir(folders[0]) == before


def test_many_nodes_look_less_often() -> None:
    assert [shared_exchange.look_every(count) for count in (2, 64, 1000)] == [0.005, 0.032, 0.5]


def test_a_look_at_all_nodes_asks_for_one_name_of_each(folders: list[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    lexists = os.path.lexists
    monkeypatch.setattr(os.path, "lexists", lambda path: (asked.append(path), lexists(path))[1])
    monkeypatch.setattr(os, "scandir", None)
    assert shared_files.unseen(str(tmp_path), PREFIX, TOKEN, 4, 0.0) == [3] and len(asked) == 4
