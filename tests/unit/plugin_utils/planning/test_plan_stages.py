# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stages that bring others along, and what --tags makes of them."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import planner as plan

OWN = {"name": "rdma", "role": "gpufleet.acceptance.rdma"}


@pytest.mark.parametrize(
    ("wanted", "whole"),
    [
        (["rdma"], ["rdma_ports", "rdma", "rdma_again"]),
        (["stack", "rdma", "nccl_fabric"], ["stack", "rdma_ports", "rdma", "rdma_again", "nccl_fabric"]),
        (["rdma_ports", "stack", "rdma"], ["rdma_ports", "stack", "rdma", "rdma_again"]),
        (["rdma_ports", "rdma", "rdma_again"], ["rdma_ports", "rdma", "rdma_again"]),
        (["rdma_ports"], ["rdma_ports"]),
        ([OWN], [OWN]),
        (["stack", "host_health"], ["stack", "host_health"]),
        (["stack", "host_health", "rdma_ports"], ["stack", "host_health", "rdma_ports"]),
        (["stack", "gemm", "host_health"], ["stack", "gemm", "host_health"]),
        (["stack", "host_health", "gemm"], ["stack", "host_health", "gemm", "host_health_after"]),
        (["stack", "host_health", OWN, "stack"], ["stack", "host_health", OWN, "stack", "host_health_after"]),
        (["host_health", "rdma"], ["stack", "host_health", "rdma_ports", "rdma", "rdma_again", "host_health_after"]),
        (["stack", "host_health", "gemm", "host_health_after"], ["stack", "host_health", "gemm", "host_health_after"]),
        (["stack", "host_health", "host_health_after", "gemm"], ["stack", "host_health", "host_health_after", "gemm"]),
        (["rdma", "rdma"], ["rdma_ports", "rdma", "rdma_again", "rdma_ports", "rdma", "rdma_again"]),  # refused later: listed twice
    ],
)
def test_a_stage_brings_what_it_needs(wanted: list[t.Any], whole: list[t.Any]) -> None:
    found, additions = plan.complete(wanted)
    assert [item for _number, item in found] == whole
    assert [wanted[number] for number, item in found if item in wanted] == [item for item in whole if item in wanted]
    assert len(additions) == len(whole) - len(wanted)


@pytest.mark.parametrize(
    ("wanted", "running", "said"),
    [
        (["stack", "rdma"], {"stack", "rdma_ports", "rdma", "rdma_again"}, ["rdma brings rdma_ports before it and rdma_again after it"]),
        (["rdma_ports", "rdma"], {"rdma_ports", "rdma", "rdma_again"}, ["rdma brings rdma_again after it"]),
        (["stack", "host_health", "gemm"], {"stack", "host_health", "gemm", "host_health_after"},
         ["host_health brings host_health_after behind the last load"]),
        (["stack", "host_health", "gemm"], {"gemm"}, []),
        (["stack", "host_health", "gemm"], {"stack", "host_health", "gemm"}, []),
        (["stack", "rdma"], {"rdma_ports"}, []),
        (["stack", "rdma"], {"rdma_ports", "rdma"}, ["rdma brings rdma_ports before it"]),
    ],
)  # fmt: skip
def test_only_a_stage_of_the_run_is_said_to_bring_others_into_it(wanted: list[str], running: set[str], said: list[str]) -> None:
    notes = plan.addition_notes(plan.complete(wanted)[1], running)
    assert notes == [f"stage {one}; --skip-tags leaves one out" for one in said]


@pytest.mark.parametrize(
    ("only", "skip", "here"),
    [
        ([], [], True),
        (["all"], [], True),
        (["rdma"], [], True),
        (["rdma_ports"], [], True),
        (["rdma_again"], [], False),
        (["stack"], [], False),
        (["all"], ["rdma_ports"], False),
        (["all"], ["rdma"], False),
        (["all"], ["rdma_again"], True),
    ],
)
def test_tags_of_what_was_brought_along(only: list[str], skip: list[str], here: bool) -> None:
    assert plan.selected(["rdma_ports", "rdma"], only, skip) == here
