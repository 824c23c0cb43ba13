# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A team's own tool: a number that was asked for is there once, or the check is an error; one without numbers says so."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import tool
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node


def measure(argv: list[str], *metrics: dict[str, str], **params: t.Any) -> dict[str, t.Any]:
    checks = [{"check": "read", "variant": "size=1G"}]
    asked = {"checks": checks, "argv": argv, "metrics": list(metrics), "context": {}, "env": {}, "test_timeout": 20.0, **params}
    (found,) = tool.probe(asked, Node(60))
    return found


def by(regex: str) -> dict[str, str]:
    return {"name": "bandwidth", "unit": "MiB/s", "regex": regex}


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        (by("bw=([0-9]+)GiB/s"), "bandwidth: 'bw=([0-9]+)GiB/s' matches 0 times in the output, expected once"),
        (by("([0-9])"), "matches 3 times"),
        (by("bw=(.*)"), "bandwidth: found '512MiB/s', expected a number"),
        (by("bw=([0-9]+"), "bandwidth: regex: found 'bw=([0-9]+', expected a regular expression"),
        ({"name": "bandwidth", "unit": "MiB/s", "json": "bw"}, "bandwidth: no number 'bw' in the JSON"),
    ],
)
def test_a_number_that_is_asked_for_and_not_found_is_an_error(metric: dict[str, str], said: str) -> None:
    found = measure(["echo", "bw=512MiB/s"], metric)
    assert (found["outcome"], found["reason_code"]) == ("error", "bad_output") and said in found["reason"]


def test_a_tool_without_a_number_is_a_condition_only_if_none_is_asked_for() -> None:
    found = measure(["echo", "bw=512MiB/s {size}"], by("bw=([0-9]+)"))
    assert found["metrics"]["bandwidth"]["value"] == 512 and found["context"] == {"size": "1G"}
    assert measure(["true"])["context"] == {"size": "1G", "condition": True}
    assert measure(["false"])["reason_code"] == "tool_failed"


def test_a_number_may_stand_where_errors_go_but_once() -> None:
    found = measure(["sh", "-c", "echo bw=512 >&2"], by("bw=([0-9]+)"))
    assert found["metrics"]["bandwidth"]["value"] == 512
    assert measure(["sh", "-c", "echo bw=512; echo bw=512 >&2"], by("bw=([0-9]+)"))["reason_code"] == "bad_output"
    # The two are not one text: what ends one does not begin a number of the other.
    assert measure(["sh", "-c", "printf bw=5; printf 12 >&2"], by("bw=([0-9]+)"))["metrics"]["bandwidth"]["value"] == 5
