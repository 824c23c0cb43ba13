# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Removal from an API server that is slower than its own deadline; the rest is tested on real ones."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import cleanup, marks
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import driver

RUN = "20260101T000000Z-0a1b2c"
PODS = (("/api/v1", "pods"),)
LATE = KubeError("cluster_unreachable", "lab: DELETE pods: status 504: the request did not complete within the allotted duration", 504)
SILENT = KubeError("cluster_unreachable", "lab: https://192.0.2.1 does not answer: no answer in time")
DOWN = KubeError("cluster_unreachable", "lab: https://192.0.2.1 does not answer: connection refused")


class Slow:
    """Deletes a thousand pods per request, and fails with `error` where some are left."""

    namespace = "lab"

    def __init__(self, pods: int, error: KubeError) -> None:
        self.pods, self.error, self.asked = pods, error, 0

    def get(self, _path: str, **_query: t.Any) -> dict[str, t.Any]:
        return {"items": [{"metadata": {"name": f"p-{self.pods}"}}] if self.pods else []}

    def delete(self, _path: str, **_query: t.Any) -> None:
        self.asked += 1
        self.pods = max(0, self.pods - 1000)
        if self.pods:
            raise self.error


@pytest.mark.parametrize("error", [LATE, SILENT])
def test_what_one_request_does_not_manage_the_next_one_does(error: KubeError) -> None:
    slow = Slow(4000, error)
    assert cleanup.remove(t.cast("t.Any", slow), "a=b", PODS) == []
    assert slow.asked == 4


def test_removal_gives_up_after_a_number_of_requests() -> None:
    slow = Slow(100_000, LATE)
    with pytest.raises(KubeError):
        cleanup.remove(t.cast("t.Any", slow), "a=b", PODS)
    assert slow.asked == cleanup.DELETES


def test_a_server_that_is_down_is_asked_once() -> None:
    down = Slow(4000, DOWN)
    with pytest.raises(KubeError):
        cleanup.remove(t.cast("t.Any", down), "a=b", PODS)
    assert down.asked == 1


class Holding:
    """A namespace with one launch, made by an inventory host for a run whose controller is this process."""

    namespace = "lab"

    def __init__(self, name: str, launched_by: str | None) -> None:
        self.name = name
        self.deleted: list[str] = []
        annotations = {marks.EXPIRES: str(1 << 40), marks.CONTROLLER: driver.of()}
        if launched_by is not None:
            annotations[marks.HOST] = launched_by
        labels = {marks.RUN: RUN, marks.STAGE: "hccl", marks.LAUNCH: "gpufleet-launch"}
        self.pod = {"metadata": {"name": "pod-0", "labels": labels, "annotations": annotations}}

    def pages(self, path: str, **_query: t.Any) -> t.Iterator[dict[str, t.Any]]:
        yield {"items": [self.pod] if path.endswith("/pods") and not self.deleted else []}

    def get(self, path: str, **_query: t.Any) -> dict[str, t.Any]:
        return next(self.pages(path)) if "/namespaces/" in path else {"items": []}

    def delete(self, path: str, **_query: t.Any) -> None:
        self.deleted.append(path)


@pytest.mark.parametrize(("launched_by", "removed"), [("poola", True), ("poolb", False), (None, True)])
def test_a_stage_removes_what_its_own_inventory_host_launched_before_and_nothing_of_another(
    monkeypatch: pytest.MonkeyPatch, launched_by: str | None, removed: bool
) -> None:
    monkeypatch.setattr(cleanup.leases, "abandoned", lambda _client: [])
    holding = Holding("poola", launched_by)
    said = cleanup.janitor(t.cast("t.Any", holding), RUN, "hccl")
    assert bool(holding.deleted) is bool(said) is removed
