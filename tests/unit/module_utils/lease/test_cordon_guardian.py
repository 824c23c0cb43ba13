# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cordon is given back by its guardian at the deadline and when that is told to end, and never one that is somebody else's."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import cordon_guardian
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease.cordon_guardian import ApiError, CordonGuardian
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import packing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import leases, marks

MINE = {leases.CORDONED: "r", "other": "stays"}


class Node:
    """An API server with one node and a clock. `happens`: {second: what then becomes of it}."""

    def __init__(self, labels: dict[str, str], cordoned: bool = True, **happens: t.Any) -> None:
        self.now, self.version = 0.0, 1
        self.labels, self.cordoned = dict(labels), cordoned
        self.happens = {int(second[1:]): what for second, what in happens.items()}
        self.answers: list[int] = []
        self.dry: list[str] = []
        self.ended = False

    def get(self, _path: str) -> dict[str, t.Any]:
        if self.answers:
            raise ApiError(self.answers.pop(), "no")
        return {"metadata": {"labels": dict(self.labels), "resourceVersion": str(self.version)}, "spec": {}}

    def patch(self, path: str, body: dict[str, t.Any]) -> dict[str, t.Any]:
        if "dryRun" in path:
            self.dry.append(path)
            return {}
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise ApiError(409, "conflict")
        assert body["spec"] == {"unschedulable": None} and body["metadata"]["annotations"] == {marks.EXPIRES: None, marks.CONTROLLER: None}
        assert body["metadata"]["labels"] == {leases.CORDONED: None}
        del self.labels[leases.CORDONED]
        self.cordoned = False
        return {}

    # As the guardian's clock and the word to end.

    def is_set(self) -> bool:
        return self.ended

    def wait(self, seconds: float) -> None:
        for second in range(int(self.now) + 1, int(self.now + seconds) + 1):
            if second in self.happens:
                self.happens[second](self)
        self.now += seconds


def guard(node: Node, deadline_s: float = 60.0) -> str:
    told = {**leases.guarded("n1", "r"), "deadline_s": deadline_s, "every_s": 2.0}
    return CordonGuardian(told, node, 0.0, node, lambda: node.now).guard()


def released(node: Node) -> None:
    node.labels.pop(leases.CORDONED)
    node.cordoned = False


def test_at_the_deadline_it_is_given_back_and_nothing_else_is_touched() -> None:
    node = Node(MINE)
    assert guard(node) == "gave node n1 back"
    assert (node.cordoned, node.labels, node.now) == (False, {"other": "stays"}, 60)


def test_it_is_there_before_the_cordon_and_ends_with_it() -> None:
    node = Node({}, False, s10=lambda node: node.labels.update(MINE), s20=released)
    assert guard(node) == "node n1 was given back" and node.now == 20
    node = Node({}, False)
    assert guard(node) == "nothing was to be given back" and node.now == 60


def test_a_cordon_of_somebody_else_is_left_alone() -> None:
    node = Node({leases.CORDONED: "another run"})
    assert guard(node) == "nothing was to be given back" and node.cordoned
    node = Node(MINE, s10=lambda node: node.labels.update({leases.CORDONED: "another run"}))
    assert guard(node) == "node n1 was given back" and node.cordoned


def test_who_is_told_to_end_gives_back_first() -> None:
    node = Node(MINE, s10=lambda node: setattr(node, "ended", True))
    assert guard(node) == "gave node n1 back" and node.now == 10 and not node.cordoned


def test_an_api_that_is_away_is_asked_again_after_the_deadline_too(capsys: pytest.CaptureFixture[str]) -> None:
    node = Node(MINE)
    node.answers = [500] * 40
    assert guard(node) == "gave node n1 back" and node.now == 80
    assert "no" in capsys.readouterr().out


def test_what_changed_since_it_was_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    node, read = Node(MINE), Node.get
    stale = [True]

    def get(self: Node, path: str) -> dict[str, t.Any]:
        found = read(self, path)
        if self.now >= 60 and stale.pop() if stale else False:
            self.version += 1
        elif self.now < 60:
            stale[:] = [True]
        return found

    monkeypatch.setattr(Node, "get", get)
    assert guard(node) == "gave node n1 back" and node.now == 62


def test_that_it_may_give_back_is_tried_before(capsys: pytest.CaptureFixture[str]) -> None:
    node = Node({})
    CordonGuardian({"node": "n1"}, node, 0.0, node).may()
    assert node.dry == ["/api/v1/nodes/n1?dryRun=All"]
    node.answers = [403]
    with pytest.raises(ApiError):
        CordonGuardian({"node": "n1"}, node, 0.0, node).may()


def test_a_container_that_is_started_again_has_no_more_time(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "began")
    first = cordon_guardian.since(path)
    assert cordon_guardian.since(path) == first


def test_it_is_one_text_that_needs_nothing_else() -> None:
    text = packing.packed(cordon_guardian)
    assert "ansible" not in text.replace("gpufleet.acceptance", "").replace("ansible_collections.gpufleet", "").partition("import json")[2]
    compile(text, "cordon_guardian.py", "exec")
