# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a preview says of collectives for which there is no expectation."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import no_expectation, request
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations

MATCHES: list[dict[str, t.Any]] = [
    {"stage": "nccl_node", "check": "all_reduce", "gpu": "A", "gpus": 8, "nvls": True, "size": "plateau"},
    {"stage": "nccl_node", "check": ["all_gather", "reduce_scatter"], "gpu": ["A", "B"], "gpus": [4, 8]},
    {"stage": "nccl_fabric", "check": "all_reduce", "nics": 8},
]


@pytest.fixture(autouse=True)
def shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        expectations.Expectation(f"e{number}", match, "busbw", 1.0, "GB/s", "a test", "2026-01", "measured")
        for number, match in enumerate(MATCHES)
    ]
    monkeypatch.setattr(expectations, "shipped", lambda: expectations.Expectations(entries))


@pytest.mark.parametrize(
    ("stage", "operations", "counts", "gpus", "models", "lines"),
    [
        ("nccl_node", ["all_reduce", "alltoall"], ["all"], {"n": 8}, {"n": "A"}, ["nccl_node alltoall on 8 x A"]),
        ("nccl_node", ["all_reduce"], ["all"], {"n": 8}, {"n": "B"}, ["nccl_node all_reduce on 8 x B"]),
        ("nccl_node", ["all_gather"], ["4", "2"], {}, {"n": "B"}, ["nccl_node all_gather on 2 x B"]),
        # What nobody knows before the run rules nothing out.
        ("nccl_node", ["all_reduce"], ["all"], {}, {}, []),
        ("nccl_node", ["all_reduce"], ["all"], {}, {"n": "A"}, []),
        ("nccl_node", ["broadcast"], ["all"], {}, {}, ["nccl_node broadcast"]),
        ("nccl_fabric", ["all_reduce"], ["all"], {"n": 8}, {"n": "C"}, []),
        ("hccl", ["all_reduce"], ["all"], {}, {}, ["hccl all_reduce"]),
        ("gemm", None, None, {"n": 8}, {"n": "C"}, []),
    ],
)
def test_an_operation_is_named_if_no_expectation_can_hold(
    stage: str, operations: list[str] | None, counts: list[str] | None, gpus: dict[str, int], models: dict[str, str], lines: list[str]
) -> None:
    settings = {f"{stage}_ops": operations, f"{stage}_gpus": counts} if operations else {}
    assert no_expectation.missing([stage], settings, ["n"], gpus, models) == lines


def test_kinds_of_nodes_are_named_once_each_and_not_without_end() -> None:
    nodes = [f"n{number}" for number in range(100)]
    models = {node: f"model {number % 50}" for number, node in enumerate(nodes)}
    found = no_expectation.missing(["nccl_node"], {"nccl_node_ops": ["scatter"]}, nodes, {}, models)
    assert found[:2] == ["nccl_node scatter on model 0", "nccl_node scatter on model 1"] and len(found) == no_expectation.MOST


def test_a_request_knows_the_operations_that_its_stages_measure() -> None:
    limits = request.Limits(plane="kubernetes")
    one = request.read({"collective": {"nodes": ["a"], "operation": "gather", "gpusPerNode": 4}}, limits)
    assert one.without_expectation({}, {"a": "A"}) == ["nccl_node gather on 4 x A"]
    several = request.read({"collective": {"nodes": ["a", "b"], "operation": "all_reduce"}}, limits)
    assert several.without_expectation({}, {"a": "A"}) == []
