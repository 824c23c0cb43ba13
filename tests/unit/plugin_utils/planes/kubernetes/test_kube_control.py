# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of a cluster out of service: cordoned with an annotation, and only as they were read."""

from __future__ import annotations

import copy
import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import control
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError


class Api:
    """The nodes of a cluster, by merge patches that name the version that they were made for."""

    name = "lab"

    def __init__(self) -> None:
        self.items = {name: {"metadata": {"name": name, "resourceVersion": "1", "labels": {"x": "y"}}, "spec": {}} for name in ("a", "b")}

    def pages(self, _path: str) -> list[dict[str, t.Any]]:
        return [{"items": list(self.items.values())}]

    def get(self, path: str) -> dict[str, t.Any]:
        name = path.rpartition("/")[2]
        if name not in self.items:
            raise KubeError("bad_spec", "lab: nodes not found", 404)
        return copy.deepcopy(self.items[name])

    def patch(self, path: str, body: dict[str, t.Any]) -> None:
        item = self.items[path.rpartition("/")[2]]
        if body["metadata"].pop("resourceVersion") != item["metadata"]["resourceVersion"]:
            raise KubeError("bad_spec", "lab: the object has been modified", 409)
        self._merge(item, body)
        item["metadata"]["resourceVersion"] = str(int(item["metadata"]["resourceVersion"]) + 1)

    def _merge(self, old: dict[str, t.Any], new: dict[str, t.Any]) -> None:
        for key, value in new.items():
            if isinstance(value, dict):
                self._merge(old.setdefault(key, {}), value)
            elif value is None:
                old.pop(key, None)
            else:
                old[key] = value


def made() -> tuple[Api, control.KubeControl]:
    api = Api()
    return api, control.KubeControl(t.cast("t.Any", api))


def test_a_node_is_cordoned_with_its_reason_and_given_back_as_it_was() -> None:
    api, cluster = made()
    before = copy.deepcopy(api.items["a"])
    node = cluster.read("lab/a")
    assert node is not None and not node.held and [state.name for state in cluster.nodes()] == ["lab/a", "lab/b"]
    cluster.drain(node, "because")
    held = cluster.read("lab/a")
    assert held is not None and held.held and held.reason == "because"
    assert api.items["a"]["spec"] == {"unschedulable": True} and api.items["a"]["metadata"]["labels"][control.LABEL] == "true"
    cluster.resume(held)
    after = copy.deepcopy(api.items["a"])
    after["metadata"].pop("annotations")
    assert {**after["metadata"], "resourceVersion": "1"} == before["metadata"] and after["spec"] == {}


@pytest.mark.parametrize(("added", "at"), [("2026-01-01T00:00:00Z", 1767225600), ("yesterday", 0), (None, 0)])
def test_when_a_node_was_cordoned_is_the_time_of_its_taint(added: str | None, at: int) -> None:
    api, cluster = made()
    taints = [{"key": "x", "timeAdded": "2025-01-01T00:00:00Z"}, {"key": control.CORDONED, "timeAdded": added}]
    api.items["a"]["spec"] = {"unschedulable": True, "taints": taints}
    assert [state.held_at for state in cluster.nodes()] == [at, 0]


def test_a_comment_is_an_annotation_alone() -> None:
    api, cluster = made()
    cluster.comment(cluster.nodes()[0], "look at it")
    assert cluster.nodes()[0].comment == "look at it" and not cluster.nodes()[0].held and api.items["a"]["spec"] == {}
    cluster.comment(cluster.nodes()[0], "")
    assert cluster.nodes()[0].comment == "" and api.items["a"]["metadata"]["annotations"] == {}


def test_a_node_that_has_changed_since_it_was_read_is_refused() -> None:
    api, cluster = made()
    node = cluster.nodes()[0]
    api.items["a"]["metadata"]["resourceVersion"] = "7"
    with pytest.raises(RunError, match="the object has been modified"):
        cluster.drain(node, "because")
    assert api.items["a"]["spec"] == {}


def test_a_node_that_is_gone_is_none_and_another_refusal_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    api, cluster = made()
    assert cluster.read("lab/z") is None

    def refuse(*_given: t.Any) -> None:
        raise KubeError("no_permission", "lab: not permitted", 403)

    monkeypatch.setattr(cluster, "client", types.SimpleNamespace(name="lab", get=refuse, pages=refuse))
    for call in (lambda: cluster.read("lab/a"), cluster.nodes):
        with pytest.raises(RunError, match="lab: not permitted"):
            call()
    assert api.items
