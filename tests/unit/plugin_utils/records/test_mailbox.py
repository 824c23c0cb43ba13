# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that the processes of one controller exchange."""

from __future__ import annotations

import fnmatch
import pathlib
import re

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import mailbox
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run

PLUGINS = pathlib.Path(__file__).resolve().parents[4] / "plugins"


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Run:
    run = Run(tmp_path, "20260101T000000Z-0a1b2c")
    run.make()
    return run


def test_lost_hosts_and_todo_survive_odd_names(run: Run) -> None:
    names = ("gpu/../01", "[::1]", "..", "ж" * 20, "ж" * 250 + "1", "ж" * 250 + "2", "n" * 300)
    for name in names:
        run.mailbox.assign(name, {"stages": {"stack": 1}})
        run.mailbox.save_checkpoints("nccl_fabric", name, [name])
        run.mailbox.lose(name, "unreachable", "gone")
        assert run.mailbox.todo(name) == {"stages": {"stack": 1}} and run.mailbox.lost(name) == ("unreachable", "gone")
    assert run.mailbox.todo("other") == {} and run.mailbox.lost("other") is None
    assert run.mailbox.todos("nccl_fabric") == {name: {"stages": {"stack": 1}, "finished": [name]} for name in names}


def test_work_is_computed_once_and_each_target_reads_its_own(run: Run) -> None:
    computed: list[int] = []

    def compute() -> dict[str, dict[str, int]]:
        computed.append(1)
        return {"a/../b": {"own": 1}, "c": {"own": 2}}

    assert [run.mailbox.compute_once("rdma", name, compute) for name in ("a/../b", "c", "nobody")] == [{"own": 1}, {"own": 2}, {}]
    assert computed == [1]
    assert {path.stat().st_mode & 0o777 for path in run.mailbox.folder.glob("*.share")} == {0o600}


def test_the_table_has_every_kind_of_file_once(run: Run) -> None:
    assert {id(kind) for kind in vars(mailbox).values() if isinstance(kind, mailbox.FileKind)} == set(map(id, mailbox.KINDS))
    assert all(kind.holds and kind.writer and kind.reader for kind in mailbox.KINDS)
    names = {"stage": "gemm", "sink": "log", "event": "kept"}
    paths = [run.mailbox.path(kind, target="gpu-01", **names) for kind in mailbox.KINDS]
    assert len({path.name for path in paths}) == len(mailbox.KINDS) and {path.parent for path in paths} == {run.mailbox.folder}


def test_what_the_calls_write_is_in_the_table(run: Run) -> None:
    box = run.mailbox
    box.assign("a", {})
    box.write_tasks([])
    box.mark_cut_off(["rdma"])
    box.set_totals({"gemm": 2})
    box.save_checkpoints("rdma", "a", [])
    box.compute_once("ddp", "a", lambda: {"a": {}})
    box.finish("gemm", "a", 1)
    box.lose("a", "unreachable", "gone")
    patterns = [re.sub(r"\{[a-z]+\}", "*", kind.name) for kind in mailbox.KINDS]
    files = [path.name for path in box.folder.iterdir()]
    assert len(files) == 12 and all(any(fnmatch.fnmatch(name, pattern) for pattern in patterns) for name in files), files
    assert box.cut_off() == {"rdma", "ddp"} and box.total("gemm") == 2 and box.is_finished("gemm", "a")
    box.clear()
    assert not box.folder.exists() and box.todo("a") == {} and box.lost("a") is None and box.cut_off() == set()
    box.clear()


def test_nobody_else_names_the_folder() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in PLUGINS.rglob("*.py")}
    assert [path.name for path, text in texts.items() if re.search(r"""/ ["']todo["']|["']todo/""", text)] == ["mailbox.py"]
