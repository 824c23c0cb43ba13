# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The line that people see while a stage runs."""

from __future__ import annotations

import pathlib

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import answers, progress
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.progress import Progress, is_counted, progress_line
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import mailbox
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import ddp, gemm, gpu_sharing, rdma
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage


@pytest.mark.parametrize(
    ("done", "total", "since", "line"),
    [
        (b".", 4, 0.0, "gemm: 1 of 4 nodes done, 3 running or waiting"),
        (b".x..", 8, 6.0, "gemm: 4 of 8 nodes done, 1 of them without a result, 4 running or waiting, about 8 s to go"),
        (b"....", 4, 6.0, "gemm: 4 of 4 nodes done"),
    ],
)
def test_it_says_done_failing_running_and_the_end(done: bytes, total: int, since: float, line: str) -> None:
    assert progress_line("gemm", done, total, since) == line


@pytest.mark.parametrize(
    ("stage", "kind", "name", "counted"),
    [
        (ddp.STAGE, "node", "lab/gpu-01", True),
        (ddp.STAGE, "node", "lab", False),  # a cluster whose nodes nobody knows, or in which the stage is skipped
        (ddp.STAGE, "group", "ddp/lab", False),
        (rdma.STAGE, "pair", "lab/gpu-01|lab/gpu-02", False),
        (gemm.STAGE, "node", "lab", True),
        (gpu_sharing.STAGE, "cluster", "lab", True),
    ],
)
def test_what_of_a_cluster_is_counted_as_a_node(stage: Stage, kind: str, name: str, counted: bool) -> None:
    assert is_counted(stage, {"kind": kind, "id": name, "members": []}, "lab", True) is counted


def test_a_machine_behind_ssh_is_a_node_of_its_group() -> None:
    assert is_counted(ddp.STAGE, {"kind": "node", "id": "gpu-01", "members": []}, "gpu-01", False)


@pytest.mark.parametrize("reason", ["away: https://192.0.2.1 does not answer", "https://192.0.2.1 does not answer"])
def test_a_reason_names_its_host_once(reason: str) -> None:
    said = answers.why_nothing({"state": "refused", "reason_code": "cluster_unreachable", "reason": reason}, "away")
    assert said == ("cluster_unreachable", "away: https://192.0.2.1 does not answer", "error")


@pytest.mark.parametrize(("terminal", "moments"), [(True, [10, 20, 30, 40, 50, 60, 70, 80]), (False, [10, 70])])
def test_a_stage_that_works_in_silence_is_spoken_of(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, terminal: bool, moments: list[int]
) -> None:
    box = mailbox.Mailbox(tmp_path)
    box.make()
    box.set_totals({"fabric": 4})
    box.path(mailbox.COUNT, stage="fabric").write_bytes(b".")
    said: list[str] = []
    monkeypatch.setattr(progress.Display, "display", lambda _self, text: said.append(text))
    monkeypatch.setattr(progress, "TERMINAL", terminal)
    now = 1e9
    monkeypatch.setattr(progress.time, "time", lambda: now)
    workers = [Progress(box, "fabric", gemm.STAGE, "gpu-01", {}, False) for _each in range(3)]
    for _second in range(85):
        for worker in workers:
            worker.pulse()
        now += 1
    words = "fabric: 1 of 4 nodes done, 3 running or waiting, for {} s; gpu-01 among them"
    assert said == [words.format(moment) for moment in moments]
