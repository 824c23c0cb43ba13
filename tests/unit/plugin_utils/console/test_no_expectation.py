# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a preview says of numbers for which there is no expectation, shipped or of the inventory."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions, commands, hosts, no_expectation, request
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations

MATCHES: list[dict[str, t.Any]] = [
    {"stage": "nccl_node", "check": "all_reduce", "gpu": "A", "gpus": 8, "nvls": True, "size": "plateau"},
    {"stage": "nccl_node", "check": ["all_gather", "reduce_scatter"], "gpu": ["A", "B"], "gpus": [4, 8]},
    {"stage": "nccl_fabric", "check": "all_reduce", "nics": 8},
    {"stage": "gemm", "check": "bf16", "gpu": "A", "shape": "8192x8192x8192", "backend": "torch"},
    {"stage": "rdma", "op": ["read", "write"], "nic_gbps": 400, "bidirectional": False, "size": [65536, 131072]},
    {"stage": "rdma", "check": "read_lat", "nic_gbps": 400, "hops": 1, "size": [2]},
]


@pytest.fixture(autouse=True)
def shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        expectations.Expectation(f"e{number}", match, "busbw", 1.0, "GB/s", "a test", "2026-01", "measured")
        for number, match in enumerate(MATCHES)
    ]
    monkeypatch.setattr(expectations, "shipped", lambda overlays=(): expectations.Expectations(entries))


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
        ("stack", None, None, {"n": 8}, {"n": "C"}, []),
    ],
)
def test_an_operation_is_named_if_no_expectation_can_hold(
    stage: str, operations: list[str] | None, counts: list[str] | None, gpus: dict[str, int], models: dict[str, str], lines: list[str]
) -> None:
    settings = {f"{stage}_ops": operations, f"{stage}_gpus": counts} if operations else {}
    assert no_expectation.missing([stage], settings, ["n"], gpus, models, {}) == lines


GEMM = {"gemm_types": ["bf16", "fp8"], "gemm_shapes": ["8192x8192x8192"]}


@pytest.mark.parametrize(
    ("models", "more", "lines"),
    [
        ({"n": "A"}, {}, ["gemm fp8 shape=8192x8192x8192 on A"]),
        ({"n": "B"}, {"gemm_types": ["bf16"]}, ["gemm bf16 shape=8192x8192x8192 on B"]),
        ({"n": "A"}, {"gemm_types": ["bf16"], "gemm_shapes": ["64x64x64"]}, ["gemm bf16 shape=64x64x64 on A"]),
        ({}, {"gemm_types": ["bf16"]}, []),
    ],
)
def test_a_type_and_a_shape_of_matrix_products_are_named(models: dict[str, str], more: dict[str, t.Any], lines: list[str]) -> None:
    assert no_expectation.missing(["gemm"], {**GEMM, **more}, ["n"], {"n": 8}, models, {}) == lines


@pytest.mark.parametrize(
    ("operation", "measure", "more", "lines"),
    [
        ("read", "bandwidth", {}, []),
        ("write", "bandwidth", {}, []),
        ("send", "bandwidth", {}, ["rdma send_bw size=65536"]),
        ("read", "latency", {}, []),
        ("write", "latency", {}, ["rdma write_lat size=2"]),
        ("read", "bandwidth", {"rdma_size": 4096}, ["rdma read_bw size=4096"]),
        ("read", "bandwidth", {"rdma_bidirectional": True}, ["rdma read_bw size=65536"]),
    ],
)
@pytest.mark.parametrize("where", [{"nodes": ["a", "b"]}, {"pool": {"matchLabels": {"of": "pool"}}}])
def test_a_test_of_rdma_is_named_over_nodes_and_over_a_pool(
    where: dict[str, t.Any], operation: str, measure: str, more: dict[str, t.Any], lines: list[str]
) -> None:
    limits = request.Limits(plane="ssh", nodes={"a": {"of": "pool"}, "b": {"of": "pool"}})
    asked = request.read({"rdma": {**where, "operation": operation, "measure": measure}}, limits)
    asked = asked.on(asked.chosen(limits.nodes or {}))
    settings = {**commands.settings_of(["rdma"], asked.settings), **more}
    found = no_expectation.missing(["rdma"], settings, asked.nodes, {}, {}, {})
    assert (found if more else asked.without_expectation(limits, {})) == lines


def test_the_expectations_of_the_inventory_count(tmp_path: pathlib.Path) -> None:
    """As a plan reads them: of a group, of a host, from a file, with templates."""
    entry = {"metric": "busbw", "value": 100, "unit": "GB/s", "source": "a test", "date": "2026-01", "confidence": "measured"}
    match = {"stage": "nccl_node", "gpu": "A", "gpus": 8, "size": "plateau"}
    of_group = [{"id": "own-gather", "match": {**match, "check": "gather"}, **entry}]
    of_host = [{"id": "own-scatter", "match": {**match, "check": "{{ operation }}"}, **entry}]
    (tmp_path / "own.yml").write_text(yaml.safe_dump([{"id": "own-hypercube", "match": {**match, "check": "hypercube"}, **entry}]))
    hosts_of_group = {
        "plain": None,
        "own": {"acceptance_expectations": of_host, "operation": "scatter", "acceptance_expectation_files": [str(tmp_path / "own.yml")]},
        "wrong": {"acceptance_expectations": [{"id": "no match"}]},
    }
    group = {"hosts": hosts_of_group, "vars": {"acceptance_expectations": of_group}}
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": {"other": None}, "children": {"pool": group}}}))
    nodes = hosts.of(str(tmp_path / "inventory.yml"))
    own = actions.known_expectations(nodes)
    assert set(own) == {"plain", "own"}
    settings = {"nccl_node_ops": ["gather", "scatter", "hypercube"], "nccl_node_gpus": ["all"]}

    def missing(node: str) -> list[str]:
        lines = no_expectation.missing(["nccl_node"], settings, [node], {node: 8}, {node: "A"}, own)
        return [line.split()[1] for line in lines]

    assert missing("other") == missing("wrong") == ["gather", "scatter", "hypercube"]
    assert missing("plain") == ["scatter", "hypercube"] and missing("own") == []


def test_the_expectations_of_a_cluster_are_those_of_its_inventory(tmp_path: pathlib.Path) -> None:
    match = {"stage": "nccl_node", "check": "gather", "gpu": "A", "gpus": 8, "size": "plateau"}
    number = {"metric": "busbw", "value": 100, "unit": "GB/s", "source": "a test", "date": "2026-01", "confidence": "measured"}
    entry = {"id": "own", "match": match, **number}
    cluster = {"acceptance_plane": "kubernetes", "acceptance_node_vars": [{"names": ["n"], "expectations": [entry]}]}
    path = tmp_path / "inventory.json"
    path.write_text(json.dumps({"all": {"hosts": {"cluster": cluster}}}))
    found = hosts.expectations_of(str(path))
    assert found and "own" in [one.id for one in found.entries]
    path.write_text(json.dumps({"all": {"hosts": {"cluster": {}}}}))
    assert hosts.expectations_of(str(path)) is None


def test_kinds_of_nodes_are_named_once_each_and_not_without_end() -> None:
    nodes = [f"n{number}" for number in range(100)]
    models = {node: f"model {number % 50}" for number, node in enumerate(nodes)}
    found = no_expectation.missing(["nccl_node"], {"nccl_node_ops": ["scatter"]}, nodes, {}, models, {})
    assert found[:2] == ["nccl_node scatter on model 0", "nccl_node scatter on model 1"] and len(found) == no_expectation.MOST


def test_a_request_knows_the_operations_that_its_stages_measure() -> None:
    limits = request.Limits(plane="kubernetes")
    one = request.read({"collective": {"nodes": ["a"], "operation": "gather", "gpusPerNode": 4}}, limits)
    assert one.without_expectation(limits, {"a": "A"}) == ["nccl_node gather on 4 x A"]
    several = request.read({"collective": {"nodes": ["a", "b"], "operation": "all_reduce"}}, limits)
    assert several.without_expectation(limits, {"a": "A"}) == []
