# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Log lines: each is one JSON object in one line, whatever a node is called, and says run, stage, node and verdict."""

from __future__ import annotations

import json
import pathlib
import re
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.observing import log
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import model
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sinks.base import Begun, Judged, Kept
from harness import report_samples as samples


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(log.Display(), "display", said.append)
    return said


def test_each_event_is_one_line_of_json_with_level_and_time(lines: list[str], tmp_path: pathlib.Path) -> None:
    item = {"stage": "gemm", "check": "bf16", "variant": "", "subject": {"kind": "node", "id": "a", "members": []}, "target": "a"}
    log.SINK.begun(Begun("r", tmp_path, samples.plan(["a"], ["gemm"], items=[item]), 1, False), {})
    good, bad = samples.measurement("a", "gemm", "bf16"), samples.measurement("b/gpu/1", "gemm", "bf16", outcome="timeout", reason="hangs")
    bad["subject"]["id"] = "b/gpu/1"
    log.SINK.kept(Kept("r", tmp_path, "gemm", "a", [t.cast(t.Any, one) for one in (good, bad)]), {})
    plan, judged = samples.fleet(200, 1)
    log.SINK.judged(Judged("r", tmp_path, plan, t.cast(t.Any, judged), model.build(plan, t.cast(t.Any, judged))), {})
    said = [json.loads(line) for line in lines]
    assert [one["event"] for one in said[:3]] == ["run_begun", "stage_kept", "stage_kept"] and said[-1]["event"] == "run_judged"
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", one["time"]) and one["run"] == "r" for one in said)
    assert (said[0]["nodes"], said[0]["checks"], said[0]["stages"]) == (1, 1, ["gemm"])
    assert [(one["node"], one["stage"], one["outcome"], one["level"]) for one in said[1:3]] == [
        ("a", "gemm", "measured", "info"), ("b", "gemm", "timeout", "warn"),
    ]  # fmt: skip
    nodes = {one["node"]: (one["verdict"], one["level"]) for one in said if one["event"] == "node_judged"}
    assert len(nodes) == 200 and {level for verdict, level in nodes.values() if verdict == "FAIL"} == {"error"}
    assert said[-1]["verdict"] == "NOT ACCEPTED" and said[-1]["counts"]["FAIL"]


@pytest.mark.parametrize("name", [*samples.HOSTILE, "x" * 5000])
def test_no_name_ends_a_line_or_makes_it_too_long(lines: list[str], tmp_path: pathlib.Path, name: str) -> None:
    one = samples.measurement(name, "gemm", "bf16", outcome="error", reason=name)
    log.SINK.kept(Kept("r", tmp_path, "gemm", name, [t.cast(t.Any, one)]), {})
    (line,) = lines
    assert line.isascii() and line.isprintable() and len(line) < 16384 and json.loads(line)["stage"] == "gemm"
