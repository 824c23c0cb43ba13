# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stage that every host has finished as soon as it was begun is collected by one host; any other by all."""

from __future__ import annotations

import pathlib

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import todo
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run

STAGE = {"name": "nccl_node", "role": "gpufleet.acceptance.nccl_node", "tags": []}


def test_the_last_to_finish_says_that_all_have(tmp_path: pathlib.Path) -> None:
    run = Run(str(tmp_path), "r")
    (run.dir / "todo").mkdir(parents=True)
    everywhere = pathlib.Path(run.mailbox.finished_everywhere("nccl_node"))
    run.mailbox.finish("nccl_node", "a", 2)
    assert run.mailbox.is_finished("nccl_node", "a") and not run.mailbox.is_finished("nccl_node", "b") and not everywhere.exists()
    run.mailbox.finish("nccl_node", "b", 2)
    assert everywhere.exists() and not pathlib.Path(run.mailbox.finished_everywhere("gemm")).exists()


def test_only_what_is_collected_may_be_said_by_one() -> None:
    start, collect, whole = (todo.task_of({**STAGE, "phase": phase}, "/r/todo/x") for phase in ("start", "collect", "all"))
    assert "run_once" not in start and "run_once" not in whole
    assert collect["run_once"] == '{{ "/r/todo/x" is ansible.builtin.exists }}'


def test_a_start_waits_the_longer_the_fewer_rounds_of_forks_there_are() -> None:
    assert [todo.grace(*hosts_forks) for hosts_forks in ((6, 5), (64, 16), (2000, 50))] == [3.0, 2.0, 1.0]
