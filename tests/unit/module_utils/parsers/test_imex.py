# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-imex-ctl prints: the JSON of NVIDIA's ai-cloud-validation (2026-09), and the form without -j."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import imex

RECORDED = """{"nodes": {"0": {"status": "READY", "host": "10.0.0.1", "hostName": "N/A",
                 "connections": {"0": {"host": "10.0.0.1", "status": "CONNECTED", "changed": false}}}},
 "timestamp": "9/4/2026 00:00:00.000", "status": "UP"}"""


def test_the_recorded_domain_is_up_and_its_node_is_ready() -> None:
    assert imex.parse(RECORDED) == imex.ImexDomain("UP", [imex.ImexNode(0, "10.0.0.1", "READY", "", {})])


def test_connections_that_are_not_up_are_named_by_the_address_of_the_other_node() -> None:
    domain = imex.parse(RECORDED.replace('"CONNECTED"', '"INVALID"').replace('"UP"', '"DOWN"').replace('"READY"', '"UNAVAILABLE"'))
    assert domain == imex.ImexDomain("DOWN", [imex.ImexNode(0, "10.0.0.1", "UNAVAILABLE", "", {"10.0.0.1": "INVALID"})])


def test_the_form_without_json_has_the_state_and_the_versions() -> None:
    text = "Connectivity Table Legend:\nI - Invalid\nNode #0   - 10.0.0.1   - READY   - Version: 570.172\nDomain State: UP\n"
    assert imex.parse(text) == imex.ImexDomain("UP", [imex.ImexNode(0, "10.0.0.1", "READY", "570.172", {})])


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"status": "UP"}', '{"nodes": {}, "status": 3}', '{"nodes": {"a": 1}, "status": "UP"}', None, 7, '{"a":' * 100000],
)
def test_anything_else_is_no_domain(text: t.Any) -> None:
    assert imex.parse(text) is None


@pytest.mark.parametrize(
    ("text", "state"),
    [("READY\n", "READY"), ("\nWAITING_FOR_PEERS", "WAITING_FOR_PEERS"), ("Failed to connect", None), ("", None), (None, None)],
)
def test_the_state_of_the_daemon_is_one_word(text: t.Any, state: str | None) -> None:
    assert imex.state_of_daemon(text) == state


def test_the_order_of_the_list_of_nodes_counts_and_comments_do_not() -> None:
    first, second = imex.nodes_of_config("# rack 7\n10.0.0.1\n\n10.0.0.2 # tray 2\n"), imex.nodes_of_config("10.0.0.2\n10.0.0.1\n")
    assert first == ["10.0.0.1", "10.0.0.2"]
    assert imex.digest(first) != imex.digest(second) and imex.digest(first) == imex.digest(["10.0.0.1", "10.0.0.2"])
