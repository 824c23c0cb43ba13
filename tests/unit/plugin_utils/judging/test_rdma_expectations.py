# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the shipped tables hold a pair of ports against."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import bands
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging.expectations import shipped


def judged(check: str, metric: str, unit: str, size: int, rails: list[float], **context: t.Any) -> str:
    record: dict[str, t.Any] = {
        "stage": "rdma",
        "check": check,
        "context": {"op": "send", "nic_gbps": 400, "bidirectional": False, **context},
        "series": [{"size": size, metric: value} for value in rails],
        "metrics": {metric: {"value": rails[0], "unit": unit}},
    }
    chosen = [(one.expectation, bands.reading(record, one.expectation.metric, one.size)) for one in shipped().choose(record)]
    (opinion,) = [bands.compare(found, expectation) for expectation, found in chosen if found]
    return opinion.verdict


@pytest.mark.parametrize(
    ("rails", "verdict"), [([1.9, 3.4], "PASS"), ([3.4, 9.6], "WARN"), ([9.6, 3.4], "WARN"), ([1.9, 10.2], "FAIL"), ([10.2, 1.9], "FAIL")]
)
def test_a_pair_is_as_late_as_its_latest_rail(rails: list[float], verdict: str) -> None:
    assert judged("send_lat", "latency", "us", 2, rails) == verdict


@pytest.mark.parametrize(("rails", "verdict"), [([384, 390], "PASS"), ([390, 350], "WARN"), ([340, 390], "FAIL")])
def test_a_pair_is_as_fast_as_its_slowest_rail(rails: list[float], verdict: str) -> None:
    assert judged("send_bw", "bandwidth", "Gb/s", 65536, rails) == verdict
