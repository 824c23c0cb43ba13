# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the shipped tables hold a pair of ports against."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import shipped
from harness import records


def judged(check: str, metric: str, unit: str, size: int, rails: list[float], **context: t.Any) -> str:
    record = records.measurement({
        "stage": "rdma",
        "check": check,
        "context": {"op": "send", "nic_gbps": 400, "bidirectional": False, **context},
        "series": [{"size": size, metric: value} for value in rails],
        "metrics": {metric: {"value": rails[0], "unit": unit}},
    })
    chosen = shipped().choose("rdma", check, record.context)
    numbers = [(one.expectation, bands.reading(record, one.expectation.metric, one.size)) for one in chosen]
    (opinion,) = [bands.compare(found, expectation) for expectation, found in numbers if found]
    return opinion.verdict


@pytest.mark.parametrize(
    ("rails", "verdict"), [([1.9, 3.4], "PASS"), ([3.4, 5.4], "WARN"), ([5.4, 3.4], "WARN"), ([1.9, 6.0], "FAIL"), ([6.0, 1.9], "FAIL")]
)
def test_a_pair_is_as_late_as_its_latest_rail(rails: list[float], verdict: str) -> None:
    assert judged("send_lat", "latency", "us", 2, rails) == verdict


@pytest.mark.parametrize(("rails", "verdict"), [([384, 390], "PASS"), ([390, 355], "WARN"), ([340, 390], "FAIL")])
def test_a_pair_is_as_fast_as_its_slowest_rail(rails: list[float], verdict: str) -> None:
    assert judged("send_bw", "bandwidth", "Gb/s", 65536, rails) == verdict


IB = {"link_layer": "InfiniBand"}


@pytest.mark.parametrize(
    ("check", "context", "value", "verdict"),
    [
        ("write_lat", {}, 6.0, "FAIL"),
        ("write_lat", {}, 9.0, "FAIL"),
        ("write_lat", IB, 1.9, "PASS"),
        ("write_lat", IB, 3.4, "FAIL"),
        ("write_lat", {**IB, "hops": 1}, 1.9, "PASS"),
        ("write_lat", {**IB, "hops": 1}, 2.5, "FAIL"),
        ("write_lat", {"link_layer": "Ethernet"}, 4.2, "PASS"),
        ("write_lat", {"link_layer": "Ethernet", "hops": 1}, 4.2, "FAIL"),
        ("write_lat", {"link_layer": "Ethernet", "hops": 1}, 2.4, "PASS"),
        ("read_lat", IB, 4.0, "PASS"),
        ("read_lat", {**IB, "hops": 1}, 4.0, "FAIL"),
        ("send_lat", {"nic_gbps": 800, **IB}, 9.0, "FAIL"),
    ],
)
def test_a_latency_is_held_to_its_network_and_its_leaf(check: str, context: dict[str, t.Any], value: float, verdict: str) -> None:
    assert judged(check, "latency", "us", 2, [value], **context) == verdict


@pytest.mark.parametrize(
    ("gbps", "context", "value", "verdict"),
    [
        (400, {}, 346, "FAIL"),
        (400, IB, 346, "FAIL"),
        (400, IB, 392, "PASS"),
        (400, IB, 384, "PASS"),
        (400, IB, 369, "WARN"),
        (400, {"link_layer": "Ethernet"}, 370, "WARN"),  # RoCE v2 with an MTU of 1024: a setting, which chooses no softer floor
        (400, {"gpu": "AMD Instinct MI300X", "link_layer": "Ethernet"}, 389, "WARN"),
        (400, {"gpu": "AMD Instinct MI300X", "link_layer": "Ethernet"}, 390, "PASS"),
        (400, {"gpu": "NVIDIA B300 SXM6 AC", "link_layer": "Ethernet"}, 375, "PASS"),
        (400, {"bidirectional": True}, 770, "PASS"),
        (400, {"bidirectional": True}, 769, "WARN"),
        (400, {"bidirectional": True, **IB}, 700, "FAIL"),
        (400, {"bidirectional": True}, 692, "FAIL"),
        (200, IB, 192, "PASS"),
        (100, {}, 95, "WARN"),
        (800, IB, 760, "WARN"),
        (200, IB, 197, "PASS"),
        (200, IB, 170, "FAIL"),
        (200, IB, 180, "WARN"),
        (100, IB, 96.6, "PASS"),
        (50, {}, 48.0, "PASS"),
        (25, {}, 23.1, "WARN"),
        (25, {}, 23.3, "PASS"),
        (25, {}, 20.0, "FAIL"),
        (800, IB, 784, "PASS"),
        (800, {}, 690, "FAIL"),
    ],
)
def test_a_rate_starts_from_what_the_wire_allows(gbps: float, context: dict[str, t.Any], value: float, verdict: str) -> None:
    assert judged("send_bw", "bandwidth", "Gb/s", 65536, [value], nic_gbps=gbps, **context) == verdict
