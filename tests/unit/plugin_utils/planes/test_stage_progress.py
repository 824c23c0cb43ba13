# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The line that people see while a stage runs."""

from __future__ import annotations

import pathlib
import threading

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import answers, progress
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.progress import Progress, is_counted, progress_line
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import mailbox
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import stage as gpu_sharing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import ddp, gemm, rdma
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import Stage


@pytest.mark.parametrize(
    ("done", "total", "left", "line"),
    [
        (b".", 4, 0.0, "gemm: 1 of 4 nodes done, 3 running or waiting"),
        (
            b".x..", 8, 8.0,
            "gemm: 4 of 8 nodes done, 1 of them without a result, 4 running or waiting, about 8 s to go, and 20 min for the stages "
            "behind it",
        ),
        (b"....", 4, 0.0, "gemm: 4 of 4 nodes done"),
    ],
)  # fmt: skip
def test_it_says_done_failing_running_and_the_end(done: bytes, total: int, left: float, line: str) -> None:
    assert progress_line("gemm", done, total, left, 1200.0) == line


@pytest.mark.parametrize(
    ("done", "since", "left"),
    [(0, 0.0, 90.0), (1, 10.0, 90.0), (4, 6.0, 8.0), (8, 60.0, 0.0)],
)
def test_time_left_is_the_plans_until_two_nodes_are_done(done: int, since: float, left: float) -> None:
    assert progress.time_left(done, 8, since, 90.0) == left


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
    box.set_totals({"stack": 3, "fabric": 4, "gemm": 3, "ddp": 0}, {"stack": 7.0, "fabric": 72.0, "gemm": 30.0, "ddp": 900.0})
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
    words = "fabric: 1 of 4 nodes done, 3 running or waiting{}, for {} s; gpu-01 among them"
    to_go = [f", about {72 - moment} s to go, and 30 s for the stages behind it" if moment < 72 else "" for moment in moments]
    assert said == [words.format(left, moment) for left, moment in zip(to_go, moments, strict=True)]


def test_a_cluster_is_spoken_of_in_a_log_while_its_one_worker_works(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = mailbox.Mailbox(tmp_path)
    box.make()
    box.set_totals({"gemm": 2000})
    said: list[str] = []
    spoken = threading.Event()
    monkeypatch.setattr(progress.Display, "display", lambda _self, text: (said.append(text), spoken.set()))
    monkeypatch.setattr(progress, "TERMINAL", False)
    monkeypatch.setattr(progress, "PROGRESS_S", 0.0)
    monkeypatch.setattr(progress, "LOGGED_S", 0.0)
    with Progress(box, "gemm", gemm.STAGE, "lab", {}, True).pulsing():
        assert spoken.wait(60)
    assert said[0].startswith("gemm: 0 of 2000 nodes done, 2000 running or waiting, for ") and "among" not in said[0]


def test_judging_is_spoken_of_too(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    spoken = threading.Event()
    monkeypatch.setattr(progress.Display, "display", lambda _self, text: (said.append(text), spoken.set()))
    monkeypatch.setattr(progress, "LOGGED_S", 0.01)
    monkeypatch.setattr(progress, "TERMINAL", False)
    with progress.still("judging the run"):
        assert spoken.wait(60)
    assert said[0] == "judging the run, for 0 s"
