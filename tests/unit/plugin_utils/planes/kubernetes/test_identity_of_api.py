# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the API knows of a node's machine and devices stands in every measurement of it."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import behind
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import inventory

GPU = "nvidia.com/gpu"


def node(allocatable: t.Any = "8", capacity: t.Any = "8", **info: str) -> inventory.ClusterNode:
    status: dict[str, t.Any] = {"nodeInfo": info}
    for name, count in (("allocatable", allocatable), ("capacity", capacity)):
        status[name] = {} if count is None else {GPU: count}
    return inventory.summary({"metadata": {"name": "n1"}, "status": status}, GPU)


def test_a_node_is_known_by_its_machine_and_its_devices() -> None:
    known = node(machineID="a" * 32, systemUUID="4C4C").identity(GPU)
    assert known == {"node_info": f"{'a' * 32} 4C4C", "devices": {"resource": GPU, "capacity": 8, "allocatable": 8}}
    assert node(None, None).identity(GPU) == {}, "a machine without GPUs, of which the API says nothing"
    assert node(None, None, bootID="c" * 36).identity(GPU) == {"node_boot": "c" * 36}
    assert node("7").identity(GPU)["devices"]["allocatable"] == 7
    assert node(capacity=None).identity(GPU)["devices"] == {"resource": GPU, "capacity": 0, "allocatable": 8}


@pytest.mark.parametrize("context", [{}, {"identity": {"machine_id": "b"}}, {"identity": "no"}, None])
def test_it_stands_beside_what_the_node_knows_itself_by(context: t.Any) -> None:
    own = context.get("identity") if isinstance(context, dict) and isinstance(context.get("identity"), dict) else {}
    said = {"check": "facts", **({} if context is None else {"context": {**context, "gpu": "x"}})}
    (found,) = behind.with_identity({"observations": [said]}, {"node_info": "c"})["observations"]
    assert found["context"]["identity"] == {**own, "node_info": "c"} and found["check"] == "facts"
    assert behind.with_identity({"observations": [said]}, {}) == {"observations": [said]}


@pytest.mark.parametrize("said", [None, "x", [], {"context": "x"}])
def test_what_is_no_observation_is_left_as_it_is(said: t.Any) -> None:
    answer: t.Any = {"observations": [said]}
    assert behind.with_identity(answer, {"node_info": "c"}) == answer
