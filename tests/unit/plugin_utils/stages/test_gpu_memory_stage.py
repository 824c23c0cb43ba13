# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The description of the stage gpu_memory."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import measurement_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.gpu_memory import STAGE


def row(node: str, check: str, index: int, value: float, series: list[dict[str, t.Any]], **context: t.Any) -> t.Any:
    subject = {"kind": "gpu", "id": f"{node}/gpu/GPU-{index}", "members": []}
    record = {
        "schema": "measurement/v1", "run_id": "20261124T160000Z-abcdef", "plane": "ssh", "stage": "gpu_memory", "check": check,
        "variant": "", "target": node, "attempt": 1, "subject": subject, "outcome": "measured", "reason_code": None, "reason": None,
        "simulated": True, "metrics": {"bandwidth": {"value": value, "unit": "GB/s"}}, "series": series,
        "context": {"index": index, **context}, "evidence": {}, "started_at": "2026-11-24T16:00:00Z", "duration_s": 0.0,
        "tool_version": None, "command": [], "raw": None, "raw_sha256": None,
    }  # fmt: skip
    return None, measurement_of(record)


def peers(node: str, index: int, others: dict[int, float], direct: bool = True) -> t.Any:
    series = [{"to": to, "bandwidth": rate, "direct": direct} for to, rate in others.items()]
    return row(node, "peer", index, min(others.values()), series)


def test_the_matrix_of_the_slowest_nodes_is_shown() -> None:
    rows = [peers(f"n{n}", a, {b: 390.0 - n for b in range(3) if b != a}) for n in range(5) for a in range(3)]
    rows.append(peers("slow", 0, {1: 30.0}, direct=False))
    found = STAGE.sections(rows)
    assert [one["title"] for one in found] == [f"Copies between the GPUs of {node}" for node in ("slow", "n4", "n3")]
    assert found[0]["rows"] == [["GPU 0", "30 *"]] and found[0]["columns"] == ["", "GPU 1"]
    assert found[1]["rows"] == [["GPU 0", "", "386", "386"], ["GPU 1", "386", "", "386"], ["GPU 2", "386", "386", ""]]


def test_the_slowest_ways_from_far_memory_are_shown() -> None:
    series = [{"node": 1, "h2d": 40.0, "d2h": 50.0}]
    rows = [row("a", "numa", n, 48.0 - n, series, worst=f"GPU {n} from NUMA node 1") for n in range(30)]
    (found,) = STAGE.sections(rows)
    assert len(found["rows"]) == 20 and found["rows"][0] == ["a", "GPU 29 from NUMA node 1", "19.0"]


@pytest.mark.parametrize("value", [None, "x", float("nan")])
def test_rows_without_a_number_are_left_out(value: t.Any) -> None:
    series = [{"to": 1, "bandwidth": value, "direct": True}, {"to": 2, "bandwidth": 390.0, "direct": True}]
    (found,) = STAGE.sections([row("a", "peer", 0, 390.0, series)])
    assert found["rows"] == [["GPU 0", "", "390"]]


def test_a_test_that_does_not_exist_is_refused_in_the_plan() -> None:
    assert STAGE.problem({"gpu_memory_tests": ["h2d", "h2h"]}) == (
        "gpu_memory_tests: found 'h2h', expected h2d, d2h, bidirectional, h2d_all, d2h_all, bidirectional_all, numa, peer, device, "
        "latency, pattern"
    )
    assert STAGE.problem({"gpu_memory_tests": ["h2d"]}) is None
