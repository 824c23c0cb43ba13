# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is said where rights, the namespace, a pod or its node are missing."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import access
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client, KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.settings import PodSettings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods.following import Follower, Pod


class Api:
    """An API that grants some rights; `there` are the paths that it answers, others with a status."""

    name = "lab"
    namespace = "tests"

    def __init__(self, granted: t.Callable[[dict[str, t.Any]], bool], status: int = 404, there: t.Sequence[str] = ()) -> None:
        self.granted, self.status, self.there = granted, status, there

    def post(self, _path: str, body: dict[str, t.Any]) -> dict[str, t.Any]:
        return {"status": {"allowed": self.granted(body["spec"]["resourceAttributes"])}}

    def get(self, path: str) -> dict[str, t.Any]:
        if path not in self.there:
            raise KubeError("no_permission", f"GET {path}: status {self.status}", self.status)
        return {"metadata": {"name": path.rpartition("/")[2]}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def of_cluster(right: dict[str, t.Any]) -> bool:
    return "namespace" not in right


def refused(api: t.Any) -> tuple[str, str]:
    with pytest.raises(KubeError) as caught:
        access.require(api, access.PROBE, access.NODES)
    return caught.value.reason_code, caught.value.reason


def test_a_namespace_that_is_gone_is_not_a_list_of_rights() -> None:
    code, words = refused(Api(of_cluster))
    assert (code, words) == ("namespace_gone", "lab: namespace tests does not exist: create it or set acceptance_kube_namespace")
    # With its RoleBindings goes the right to ask for it.
    code, words = refused(Api(of_cluster, 403))
    assert code == "no_permission" and "may do nothing at all" in words and "it does not exist" in words and "RoleBinding" in words
    assert "deletecollection" not in words


def test_single_rights_are_named() -> None:
    code, words = refused(Api(lambda right: right["resource"] != "events"))
    assert code == "no_permission" and words == "lab: in namespace tests we may not list events; apply the role of files/rbac"


def deleted(api: Api) -> tuple[str, str]:
    follower = Follower(t.cast("Client", api), PodSettings(), "run=x", 60.0, "lab")
    return follower.why_removed(Pod(node="n1", name="gpufleet-x-1"), "its answer was read")


def test_a_pod_that_is_gone_says_who_removed_it() -> None:
    everything = ["/api/v1/namespaces/tests", "/api/v1/nodes/n1"]
    one = "somebody deleted pod gpufleet-x-1 before its answer was read"
    assert deleted(Api(of_cluster, 404, everything)) == ("pod_deleted", f"{one}; a resume measures again")
    words = f"{one}; node n1 no longer exists; a resume measures again"
    assert deleted(Api(of_cluster, 404, everything[:1])) == ("pod_deleted", words)
    assert deleted(Api(of_cluster, 404, [])) == ("namespace_gone", "namespace tests is gone")
