# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller takes from a pod's answer. The answer itself stays as the pod sent it."""

from __future__ import annotations

import copy
import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.probe import NodeResult
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.stages.nodes import StageOnCluster
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.stages.rounds import RoundsOnCluster
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import TIMETABLE

PODS = t.cast("t.Any", types.SimpleNamespace(allow=()))
PAIR = {"kind": "pair", "id": "lab/a|lab/b", "members": ["forged"]}


def rounds(guarded: bool = True) -> t.Any:
    """A stage in which lab/a is the client of one test with lab/b."""
    stage = t.cast("t.Any", RoundsOnCluster.__new__(RoundsOnCluster))
    stage.host, stage.asks, stage.refused = "lab", {}, {}
    stage.kinds = [{"check": "write_bw", "variant": ""}]
    roles = {"lab/a": "client", "lab/b": "server"}
    stage.timetables = {
        node: {"rounds": [{"tests": [{"role": role, "kind": 0, "subject": PAIR["id"]}]}]} for node, role in roles.items()
    }
    stage.governor, stage.guarded = "performance", guarded
    stage.description, stage.settings = types.SimpleNamespace(isolation=lambda _settings: {"governor_switch": "rdma_governor"}), {}
    return stage


def taken(stage: t.Any, node: str, *observations: t.Any) -> list[t.Any]:
    """Return the observations that the stage takes from the answer of a node, which stays as it is."""
    answer: t.Any = {"state": "done", "observations": list(observations)}
    before = copy.deepcopy(answer)
    subject, result = StageOnCluster._result(stage, NodeResult(node, answer, {"image": "tester:1"}), PODS)
    assert answer == before and subject == f"lab/{node}"
    return t.cast("list[t.Any]", result["observations"])


def test_a_pod_speaks_only_for_its_own_node() -> None:
    stage = t.cast("t.Any", StageOnCluster.__new__(StageOnCluster))
    stage.host = "lab"
    (found,) = taken(stage, "a", {"check": "facts", "subject": PAIR, "context": {"gpu": "x"}})
    assert found["subject"] is None and found["context"] == {"gpu": "x", "image": "tester:1"}
    assert taken(stage, "a", None, "text") == [None, "text"]


@pytest.mark.parametrize(("node", "subject"), [("a", {**PAIR, "members": []}), ("b", None)])
def test_a_pair_is_taken_from_its_client(node: str, subject: t.Any) -> None:
    (found,) = taken(rounds(), node, {"check": "write_bw", "variant": "", "subject": PAIR, "context": {}})
    assert found["subject"] == subject and "governor" not in found["context"]


def test_without_guardians_each_observation_says_that_the_governor_was_not_switched() -> None:
    (found,) = taken(rounds(guarded=False), "a", {"check": "write_bw", "variant": "", "subject": PAIR, "context": {}})
    assert found["context"]["governor"]["state"] == "not_switched" and "rdma_governor" in found["context"]["governor"]["reason"]


def test_a_node_that_could_not_begin_its_timetable_is_noted_for_its_pairs() -> None:
    stage = rounds()
    taken(stage, "a", {"check": TIMETABLE, "outcome": "error", "reason_code": "no_ports", "reason": "none is up"}, None)
    assert stage.refused == {"lab/a": ("no_ports", "none is up")}
