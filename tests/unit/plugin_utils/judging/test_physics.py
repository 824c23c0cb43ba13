# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What no measurement can exceed: lies are UNKNOWN, and no healthy number that somebody has published is one."""

from __future__ import annotations

import re
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import nvidia
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands, peer_comparison, physics, single_checks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.bandwidth import bandwidth_verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import Expectations, parse, shipped
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import Key
from harness import records

GIB = 1 << 30
H200 = {"gpu": "NVIDIA H200", "algorithm": "auto", "nodes": 1}
PORT = {"nic_gbps": 400.0, "link_layer": "InfiniBand", "nic": "mlx5_ib", "bidirectional": False, "op": "write"}
FABRIC = {**H200, "gpu": "NVIDIA H100 80GB HBM3", "gpus": 8, "nodes": 2, "nics": 8, "nic_gbps": 400.0, "nvls": True, "mnnvl": False}
METRICS = {"nccl_node": ("busbw", "GB/s"), "nccl_fabric": ("busbw", "GB/s"), "gemm": ("tflops", "TFLOPS"), "rdma": ("bandwidth", "Gb/s")}


def measured(stage: str, check: str, context: dict[str, t.Any], value: float, metric: str = "", unit: str = "") -> dict[str, t.Any]:
    metric, unit = metric or METRICS[stage][0], unit or METRICS[stage][1]
    metrics = {metric: {"value": value, "unit": unit}}
    return {
        "stage": stage, "check": check, "variant": "", "outcome": "measured", "reason_code": None, "reason": None, "metrics": metrics,
        "series": [], "context": context, "subject": {"kind": "node", "id": "n1", "members": []},
    }  # fmt: skip


def code(seen: dict[str, t.Any]) -> str | None:
    """By a run's verdict, and by the filter's: against an expectation that this number would meet."""
    (metric, found), *_rest = seen["metrics"].items()
    lower = metric == "latency"
    given = {"value": found["value"] or 1, "unit": found["unit"], "metric": metric, "better": "lower" if lower else "higher"}
    one = {**given, "id": "mine", "match": {"stage": seen["stage"]}, "source": "x", "date": "2026-11", "confidence": "measured"}
    key = Key(seen["stage"], seen["check"], "", "n1")
    opinion, _compared = single_checks.measured(key, records.measurement(seen), Expectations([parse(one, "here")]))
    by_filter = bandwidth_verdict(seen, given)
    assert by_filter["reason_code"] == opinion.reason_code, (by_filter["reason"], opinion.reason)
    assert opinion.verdict == ("UNKNOWN" if opinion.reason_code else "PASS")
    return opinion.reason_code


@pytest.mark.parametrize(
    ("stage", "check", "context", "value"),
    [
        ("nccl_node", "all_reduce", {**H200, "gpus": 8, "nvls": True}, 3824.0),
        ("nccl_node", "all_reduce", {**H200, "gpus": 8, "nvls": True}, 47800.0),
        ("nccl_node", "all_reduce", {**H200, "gpus": 8, "nvls": False}, 840.0),
        ("nccl_node", "all_reduce", {**H200, "gpus": 4, "nvls": False}, 3824.0),
        ("nccl_node", "all_reduce", {**H200, "gpus": 2, "nvls": False}, 702.0),  # both directions of 351
        ("nccl_node", "all_gather", {**H200, "gpus": 8, "nvls": True}, 500.0),
        ("nccl_node", "all_reduce", {**H200, "gpus": 8, "nvls": False, "algorithm": "ring"}, 500.0),
        ("nccl_node", "all_reduce", {"gpu": "NVIDIA L40S", "gpus": 8}, 45.0),
        ("nccl_fabric", "all_reduce", FABRIC, 3824.0),
        ("nccl_fabric", "all_reduce", FABRIC, 800.0),
        ("nccl_fabric", "all_reduce", {**FABRIC, "algorithm": "ring", "nvls": False}, 430.0),
        ("nccl_fabric", "all_reduce", {**FABRIC, "nics": 1}, 384.0),
        ("nccl_fabric", "all_reduce", {"gpu": "NVIDIA GB200", "gpus": 4, "nodes": 18, "nvls": True, "mnnvl": True}, 6774.0),
        ("gemm", "bf16", {**H200, "type": "bf16"}, 6800.0),
        ("gemm", "bf16", {**H200, "type": "bf16"}, 1340.0),
        ("gemm", "fp64", {**H200, "type": "fp64"}, 120.0),
        ("gemm", "fp32", {**H200, "type": "fp32"}, 350.0),  # computed in TF32
        ("gemm", "fp8", {**H200, "type": "fp8"}, 2430.0),
        ("rdma", "write_bw", PORT, 420.0),
        ("rdma", "write_bw", {**PORT, "bidirectional": True}, 820.0),
        ("rdma", "write_bw", {**PORT, "nic_gbps": 200.0}, 384.0),
    ],
)
def test_more_than_the_hardware_can_give_is_unknown(stage: str, check: str, context: dict[str, t.Any], value: float) -> None:
    seen = measured(stage, check, context, value)
    assert code(seen) == "above_physics"
    reason = str(bands.impossible(records.measurement(seen)))
    assert "a wrong unit, a run of something else" in reason


@pytest.mark.parametrize("what", ["gpus", "nodes", "nics", "nic_gbps"])
def test_hardware_without_end_gives_no_number_without_end(what: str) -> None:
    """JSON has numbers that no machine has: 1e400 is infinite for who reads it."""
    for number in (float("inf"), float("nan"), 1 << 2000):
        assert code(measured("nccl_node", "all_reduce", {**H200, "gpus": 8, "nvls": True, what: number}, 6774.0)) == "above_physics"


@pytest.mark.parametrize(("value", "unit"), [(0.0, "us"), (0.0019, "us"), (1.9e-6, "ms")])
def test_a_latency_that_no_message_can_have(value: float, unit: str) -> None:
    assert code(measured("rdma", "write_lat", PORT, value, "latency", unit)) == "above_physics"


def test_one_row_above_the_limit_spoils_the_table() -> None:
    seen = measured("nccl_node", "all_reduce", {**H200, "gpus": 4, "nvls": False, "series_units": {"busbw": "GB/s"}}, 367.0)
    seen["series"] = [{"size": GIB, "busbw": 354.0}, {"size": 2 * GIB, "busbw": 3540.0}]
    wrong = bands.impossible(records.measurement(seen))
    assert wrong and wrong.value == 3540.0 and "at 2 GiB" in wrong.reason


def test_the_filter_reads_the_hardware_from_the_expectation() -> None:
    entry = next(e for e in shipped().dump() if e["id"] == "h200-8-all_reduce-nvls-plateau")
    found = bandwidth_verdict({"value": 3824, "unit": "GB/s", "size": 16 * GIB}, entry)
    assert (found["verdict"], found["reason_code"]) == ("UNKNOWN", "above_physics")
    assert "bits taken for bytes" in found["reason"]
    assert bandwidth_verdict({"value": 478, "unit": "GB/s", "size": 16 * GIB}, entry)["verdict"] == "PASS"


def test_every_expectation_is_below_the_ceiling_of_its_hardware() -> None:
    for overlays in ((), ("operator-targets",)):
        for entry in shipped(overlays).entries:
            context = {k: v for k, v in entry.match.items() if k not in ("stage", "size")}
            most = physics.ceiling(context, entry.metric)
            # Of a port all is known: its wire less the headers.
            room = 1.02 if entry.metric == "bandwidth" and "nic_gbps" in entry.match else 1.05
            assert most is None or physics.convert(entry.value, entry.unit, most[1]) < most[0] / room, entry.id


A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("gpu", "gpus", "nodes", "more", "value"),
    [
        ("Tesla V100-PCIE-32GB", 8, 1, {}, 11.67),
        ("Tesla V100-SXM2-32GB", 8, 1, {}, 135.0),
        (A100, 8, 1, {}, 240.0),
        ("NVIDIA A100 80GB PCIe", 2, 1, {}, 280.0),  # over an NVLink bridge
        ("NVIDIA H100 NVL", 2, 1, {}, 208.0),
        ("NVIDIA H100 PCIe", 2, 1, {}, 260.0),
        (H100, 8, 1, {"nvls": True}, 480.0),
        (H100, 8, 1, {"nvls": True}, 479.0),
        ("NVIDIA H200", 4, 1, {"nvls": False}, 480.0),  # another NCCL may reduce in the switch from fewer GPUs on
        ("NVIDIA H200", 8, 1, {"nvls": False}, 480.0),  # a setting that NCCL did not see
        ("NVIDIA H800", 8, 1, {"nvls": True}, 215.0),
        ("NVIDIA H20", 8, 1, {"nvls": True}, 480.0),
        ("NVIDIA B200", 8, 1, {"nvls": True}, 838.0),
        ("NVIDIA GB200", 4, 1, {"nvls": False}, 679.6),
        ("NVIDIA GB200", 4, 18, {"nvls": True, "nics": 4, "nic_gbps": 400.0}, 846.8),
        ("NVIDIA GB200", 4, 36, {"nvls": True, "nics": 4, "nic_gbps": 400.0}, 820.0),
        ("NVIDIA GB300", 4, 18, {"nvls": True, "nics": 4, "nic_gbps": 800.0}, 937.0),
        ("AMD Instinct MI300X", 8, 1, {}, 314.0),
        ("AMD Instinct MI300X", 8, 2, {"nics": 8, "nic_gbps": 400.0}, 350.0),
        (H100, 8, 2, {"nvls": True, "nics": 8, "nic_gbps": 400.0}, 492.0),
        (H100, 8, 2, {"algorithm": "nvlstree", "nics": 8, "nic_gbps": 400.0}, 430.0),
        (H100, 8, 8, {"nvls": True, "nics": 8, "nic_gbps": 400.0}, 450.0),  # SHARP
        (A100, 8, 2, {"nics": 8, "nic_gbps": 200.0}, 191.0),
        # Four bonds of 2 x 200G, of which sysfs tells one half.
        ("NVIDIA H800", 8, 4, {"nvls": True, "nics": 4, "nic_gbps": 200.0, "bonded": True, "link_layer": "Ethernet"}, 192.0),
        # EFA: sysfs says 100 of an adapter of 200.
        ("NVIDIA H200", 8, 4, {"nvls": True, "nics": 16, "nic_gbps": 100.0, "link_layer": "Unspecified"}, 395.0),
        ("NVIDIA Something New", 8, 1, {}, 47800.0),
        ("mixed: NVIDIA H100 80GB HBM3, NVIDIA H200", 8, 1, {}, 480.0),
    ],
)  # fmt: skip
def test_no_healthy_bus_bandwidth_is_refused(gpu: str, gpus: int, nodes: int, more: dict[str, t.Any], value: float) -> None:
    context = {"gpu": gpu, "gpus": gpus, "nodes": nodes, "algorithm": "auto", **more}
    assert code(measured("nccl_fabric" if nodes > 1 else "nccl_node", "all_reduce", context, value)) is None


@pytest.mark.parametrize(
    ("gpu", "kind", "value"),
    [
        ("NVIDIA H200", "bf16", 794.5), ("NVIDIA H200", "fp8", 1377.0), ("NVIDIA H200", "tf32", 352.0), ("NVIDIA H200", "fp32", 51.3),
        ("NVIDIA H200", "fp64", 60.1), (H100, "bf16", 794.5), (H100, "fp16", 769.0), (A100, "bf16", 271.2), (A100, "fp64", 19.4),
        ("NVIDIA A100 80GB PCIe", "bf16", 252.9), ("NVIDIA B200", "bf16", 1745.0), ("NVIDIA B300 SXM6 AC", "bf16", 1769.0),
        ("NVIDIA GB200", "bf16", 1822.0), ("NVIDIA GB200", "fp8", 2907.0), ("NVIDIA GB300", "bf16", 1850.0), ("NVIDIA H20", "bf16", 147.0),
        ("AMD Instinct MI300X", "bf16", 668.4), ("AMD Instinct MI300X", "fp8", 1215.0), ("Tesla V100-SXM2-32GB", "fp32", 14.0),
        ("NVIDIA H800", "fp64", 0.98), ("NVIDIA H200", "fp4", 3000.0),
    ],
)  # fmt: skip
def test_no_healthy_matrix_product_is_refused(gpu: str, kind: str, value: float) -> None:
    assert code(measured("gemm", kind, {"gpu": gpu, "type": kind}, value)) is None


@pytest.mark.parametrize(
    ("context", "value"),
    [
        (PORT, 396.0),
        ({**PORT, "bidirectional": True}, 784.0),
        ({**PORT, "nic": "rdma_rxe", "nic_gbps": 2.5, "link_layer": "Ethernet"}, 9.0),
        ({**PORT, "nic_gbps": 200.0, "rails": [{"a": "n1/nic/mlx5_bond_0/1", "b": "n2/nic/mlx5_bond_0/1"}]}, 390.0),
        ({**PORT, "nic_gbps": 200.0, "rails": [{"a": "n1/nic/mlx5_0/1", "b": "n1/nic/mlx5_1/1"}]}, 250.0),
        ({**PORT, "nic_gbps": 100.0, "link_layer": "Unspecified"}, 190.0),
    ],
)
def test_no_healthy_port_is_refused(context: dict[str, t.Any], value: float) -> None:
    assert code(measured("rdma", "write_bw", context, value)) is None


def test_what_cannot_be_is_no_yardstick_for_neighbours() -> None:
    context = {**H200, "gpus": 8, "nvls": True, "series_units": {"busbw": "GB/s"}}
    seen = {f"n{n}": measured("nccl_node", "all_reduce", context, 3824.0 if n < 6 else 478.0) for n in range(9)}
    by_itself = single_checks.SingleChecks((), lambda _node, _target: shipped(), {}, lambda _stage, _check: False)
    deciding = {}
    for name, one in seen.items():
        one.update(subject={"kind": "node", "id": name, "members": []}, target=name, simulated=False)
        deciding[Key("nccl_node", "all_reduce", "", name)] = records.measurement(one)
    assert not list(peer_comparison.opinions(deciding, {key: by_itself.own(key, one)[1] for key, one in deciding.items()}, {}))


def test_the_probe_knows_the_links_that_physics_knows() -> None:
    names = {
        "NVIDIA H100 80GB HBM3": 18, "NVIDIA H200": 18, "NVIDIA H20": 18, "NVIDIA H20-3e": 18, "NVIDIA H800": 8, "NVIDIA B200": 18,
        "NVIDIA B300 SXM6 AC": 18, "NVIDIA GB200": 18, "NVIDIA GB300": 18, "NVIDIA A100-SXM4-80GB": 12, "NVIDIA A800-SXM4-80GB": 8,
        "Tesla V100-SXM2-32GB": 6,
    }  # fmt: skip
    for name, links in names.items():
        found = physics.gpu(name)
        assert found and found.links == links
        assert [row[1:3] for row in nvidia.BOARDS if re.fullmatch(row[0], name)] == [(links, found.link_rate)], name
    for name in ("H100 PCIe", "H100 NVL", "H200 NVL", "A100 80GB PCIe", "L40S", "GH200 480GB", "H800 PCIe"):
        assert not [row for row in nvidia.BOARDS if re.fullmatch(row[0], f"NVIDIA {name}")], name
