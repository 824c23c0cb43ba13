# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The line that people see while a stage runs."""

from __future__ import annotations

import json
import pathlib
import types

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import answers, base
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.base import progress_line
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
    assert base.is_counted(stage, {"kind": kind, "id": name, "members": []}, "lab", True) is counted


def test_a_machine_behind_ssh_is_a_node_of_its_group() -> None:
    assert base.is_counted(ddp.STAGE, {"kind": "node", "id": "gpu-01", "members": []}, "gpu-01", False)


@pytest.mark.parametrize("reason", ["away: https://192.0.2.1 does not answer", "https://192.0.2.1 does not answer"])
def test_a_reason_names_its_host_once(reason: str) -> None:
    said = answers.why_nothing({"state": "refused", "reason_code": "cluster_unreachable", "reason": reason}, "away")
    assert said == ("cluster_unreachable", "away: https://192.0.2.1 does not answer", "error")


@pytest.mark.parametrize(("terminal", "moments"), [(True, [10, 20, 30, 40, 50, 60, 70, 80]), (False, [10, 70])])
def test_a_stage_that_works_in_silence_is_spoken_of(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, terminal: bool, moments: list[int]
) -> None:
    (tmp_path / "todo").mkdir()
    (tmp_path / "todo" / "totals").write_text(json.dumps({"fabric": 4}))
    (tmp_path / "todo" / "fabric.count").write_bytes(b".")
    said: list[str] = []
    monkeypatch.setattr(base.Display, "display", lambda _self, text: said.append(text))
    monkeypatch.setattr(base, "TERMINAL", terminal)
    now = 1e9
    monkeypatch.setattr(base.time, "time", lambda: now)
    targets = [base.StageOnTarget.__new__(base.StageOnTarget) for _each in range(3)]
    for target in targets:
        target.acting = types.SimpleNamespace(dir=tmp_path)  # type: ignore[assignment]
        target.stage, target.host = "fabric", "gpu-01"
    for _second in range(85):
        for target in targets:
            target.pulse()
        now += 1
    words = "fabric: 1 of 4 nodes done, 3 running or waiting, for {} s; gpu-01 among them"
    assert said == [words.format(moment) for moment in moments]
