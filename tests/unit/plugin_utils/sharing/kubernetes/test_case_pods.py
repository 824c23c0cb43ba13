# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods of a case that are evicted, which a budget may keep for a while or for good; and their logs."""

from __future__ import annotations

import gzip
import json
import pathlib
import types
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import leases, marks, settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing import running, system
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.cluster import PodRequest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.kubernetes import installed
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.kubernetes.case_pods import Options, SharingCluster
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.sharing.kubernetes.on_cluster import keeper


class Api:
    """A node with one pod of ours; `answers` are what evictions come to, one after the other, and the last for ever."""

    name, namespace = "lab", "cases"

    def __init__(self, *answers: int, there: int = 1000) -> None:
        self.answers = list(answers)
        self.there = there  # looks until the pod has ended by itself
        self.asked = 0
        self.labels: dict[str, str] = {}

    def pages(self, _path: str, **_query: str) -> list[dict[str, t.Any]]:
        self.there -= 1
        gone = self.there < 0 or (self.asked and self.answers[0] in (0, 404))
        metadata = {"name": "one", "namespace": "cases", "resourceVersion": "7", "labels": self.labels}
        return [{"items": [] if gone else [{"metadata": metadata, "status": {"phase": "Running"}}]}]

    def post(self, path: str, body: dict[str, t.Any]) -> None:
        assert path.endswith("/pods/one/eviction") and body["kind"] == "Eviction"
        assert body["deleteOptions"] == {"preconditions": {"resourceVersion": "7"}}
        if self.asked and len(self.answers) > 1:
            self.answers.pop(0)
        self.asked += 1
        if self.answers[0]:
            raise KubeError("cluster_unreachable", f"status {self.answers[0]}", self.answers[0])


def cluster_of(api: t.Any) -> SharingCluster:
    pods = settings.pods({"acceptance_kube_image": "i"})
    return SharingCluster(api, system.load("nvshare"), "r", "gpu_sharing", Options("i", pods, 60))


class Held:
    """A node that a run has cordoned."""

    name, namespace = "lab", "cases"

    def __init__(self, run: str, refusals: int = 0) -> None:
        self.labels, self.unschedulable, self.refusals = {leases.CORDONED: run}, True, refusals

    def _node(self) -> dict[str, t.Any]:
        return {"metadata": {"name": "node", "labels": dict(self.labels)}, "spec": {"unschedulable": self.unschedulable}}

    def get(self, _path: str, **_query: t.Any) -> dict[str, t.Any]:
        if self.refusals:
            self.refusals -= 1
            raise KubeError("cluster_unreachable", "away")
        return self._node()

    def patch(self, _path: str, _body: dict[str, t.Any], **_query: t.Any) -> dict[str, t.Any]:
        self.labels, self.unschedulable = {}, False
        return self._node()


def test_a_cordon_of_another_run_is_not_given_back() -> None:
    api = Held("another")
    assert cluster_of(api).uncordon("node") is False and api.unschedulable
    api = Held("r")
    assert cluster_of(api).uncordon("node") is True and not api.unschedulable


def test_a_node_that_could_not_be_given_back_is_not_forgotten() -> None:
    cluster = cluster_of(Held("r", refusals=1))
    cluster.cordoned.add("node")
    with pytest.raises(ReasonedError):
        cluster.uncordon("node")
    assert cluster.cordoned == {"node"}
    assert cluster.uncordon("node") is True and not cluster.cordoned


def test_a_pod_is_pinned_by_the_name_of_its_node() -> None:
    """The label kubernetes.io/hostname may say another."""
    cluster = cluster_of(Api(0))
    wanted = PodRequest("a", "main", "w2", {}, {}, node="node")
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node"]}]}
    spec = cluster._spec(wanted)
    assert "nodeSelector" not in spec
    assert spec["affinity"]["nodeAffinity"] == {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}


def test_a_job_ends_at_the_deadline_and_makes_no_pod_after_it() -> None:
    spec = cluster_of(Api(0))._job(PodRequest("a", "main", "w2", {}, {}, job=True))["spec"]
    assert spec["activeDeadlineSeconds"] == spec["template"]["spec"]["activeDeadlineSeconds"] == 60


def drained(monkeypatch: pytest.MonkeyPatch, api: Api, timeout: float = 30.0) -> bool | None:
    monkeypatch.setattr(leases, "cordon", lambda *_args: None)
    cluster = cluster_of(api)
    api.labels = {"gpufleet.acceptance/launch": cluster.launch.name}
    return cluster.drain("node", timeout)


def test_what_a_budget_keeps_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api(429, 429, 0)
    assert drained(monkeypatch, api) is True and api.asked == 3


def test_a_drain_without_pods_to_move_has_no_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drained(monkeypatch, Api(404)) is None
    assert drained(monkeypatch, Api(0, there=1)) is None
    assert drained(monkeypatch, Api(409, there=3)) is None  # it ended while the API was asked to let it go


def test_a_drain_that_a_budget_forbids_ends_and_the_cluster_is_not_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drained(monkeypatch, Api(429), timeout=0.0) is False


def test_pods_that_ended_while_nobody_let_them_go_were_not_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drained(monkeypatch, Api(429, there=3)) is False


def test_a_drain_that_is_refused_for_another_reason_says_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ReasonedError, match="status 403"):
        drained(monkeypatch, Api(403))


class Guarded(Api):
    """Says what was asked of it in which order, and what a guardian's log has."""

    def __init__(self, log: str, refusal: int = 0) -> None:
        super().__init__(0)
        self.said, self.refusal, self.made = log, refusal, {}
        self.order: list[str] = []

    def post(self, path: str, body: dict[str, t.Any], **query: t.Any) -> None:
        if body["kind"] != "Pod":
            super().post(path, body)
            return
        self.order.append("guardian")
        self.made = body
        if self.refusal:
            raise KubeError("no_permission", "serviceaccount not found", self.refusal)

    def lines(self, _path: str, **_query: t.Any) -> t.Iterator[bytes]:
        yield from (f"2026-01-01T00:00:00Z {line}".encode() for line in self.said.splitlines())

    def get(self, _path: str, **_query: t.Any) -> dict[str, t.Any]:
        return {"metadata": {"name": "g"}, "status": {"phase": "Pending"}}


def guarded(monkeypatch: pytest.MonkeyPatch, api: Guarded) -> bool | None:
    deadlines: list[float] = []

    def cordon(_client: t.Any, _node: str, _run: str, deadline_s: float) -> None:
        api.order.append("cordon")
        deadlines.append(deadline_s)

    monkeypatch.setattr(leases, "cordon", cordon)
    pods = settings.pods({"acceptance_kube_image": "i"})
    cluster = SharingCluster(t.cast("t.Any", api), system.load("nvshare"), "r", "gpu_sharing", Options("i", pods, 9000, "keeper"))
    cluster.launch.owner = {"name": "o"}
    api.labels = {"gpufleet.acceptance/launch": cluster.launch.name}
    found: bool | None = cluster.drain("node", 30.0)
    told = json.loads(next(one["value"] for one in api.made["spec"]["containers"][0]["env"] if one["name"] == "GPUFLEET_GUARDED"))
    assert deadlines == [told["deadline_s"]] == [30 + 300]
    assert (told["node"], told["run"], told["label"]) == ("node", "r", leases.CORDONED)
    return found


def test_a_guardian_is_there_before_the_cordon_on_another_node_and_may_no_more_than_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Guarded("guarding node node")
    assert guarded(monkeypatch, api) is True
    assert api.order == ["guardian", "cordon"]
    spec, (container,) = api.made["spec"], api.made["spec"]["containers"]
    assert spec["serviceAccountName"] == "keeper" and spec["activeDeadlineSeconds"] > 330
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node"]}]}
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert "nvshare.com/gpu" not in container["resources"]["limits"] and "runtimeClassName" not in spec


@pytest.mark.parametrize(
    ("api", "words"),
    [
        (Guarded("", refusal=403), "as service account keeper: serviceaccount not found"),
        (Guarded("cannot guard node node: status 403: nodes is forbidden"), "nodes is forbidden"),
    ],
)
def test_no_cordon_without_its_guardian(monkeypatch: pytest.MonkeyPatch, api: Guarded, words: str) -> None:
    with pytest.raises(ReasonedError, match="node node is not cordoned: if this run is killed, nothing would uncordon it") as caught:
        guarded(monkeypatch, api)
    assert words in caught.value.reason and api.order == ["guardian"]


class Reviews(Api):
    """Lets us make a guardian or not, and says who may what: `no` are verbs that the account has not, `ours` that we have not."""

    def __init__(self, refusal: KubeError | None = None, no: t.Collection[str] = (), ours: t.Collection[str] = (), asking: int = 0) -> None:
        super().__init__(0)
        self.refusal, self.no, self.ours, self.asking = refusal, no, ours, asking
        self.names: list[str] = []

    def post(self, path: str, body: dict[str, t.Any], **query: t.Any) -> dict[str, t.Any]:  # type: ignore[override]
        if body["kind"] == "Pod":
            assert query["dryRun"] == "All" and body["spec"]["serviceAccountName"] == "keeper"
            if self.refusal:
                raise self.refusal
            return body
        asked = body["spec"]["resourceAttributes"]
        self.names += [asked["name"]] if "name" in asked else []
        assert path.endswith(f"/{body['kind'].lower()}s")
        if body["kind"] == "SelfSubjectAccessReview":
            return {"status": {"allowed": asked["verb"] not in self.ours}}
        assert body["spec"]["user"] == "system:serviceaccount:cases:keeper"
        if self.asking:
            raise KubeError("no_permission", "lab: subjectaccessreviews.authorization.k8s.io is forbidden", self.asking)
        return {"status": {"allowed": asked["verb"] not in self.no}}


ABSENT = KubeError("no_permission", 'lab: pods "g" is forbidden: error looking up service account cases/keeper: not found', 403)


@pytest.mark.parametrize(
    ("api", "refused", "unknown"),
    [
        (Reviews(), "", ""),
        (Reviews(no=["patch"]), "it may not patch nodes", ""),
        (Reviews(ABSENT), "its pod is refused: lab: pods \"g\" is forbidden: error looking up service account cases/keeper", ""),
        (Reviews(asking=403), "", "its rights we may not ask for, files/rbac/sharing-drain.yaml lets us"),
        (Reviews(KubeError("bad_spec", "lab: a webhook does not know dry runs", 400)), "", "a webhook does not know dry runs"),
    ],
)
def test_before_anything_is_made_it_is_known_whether_a_guardian_could_be(api: Reviews, refused: str, unknown: str) -> None:
    pods = settings.pods({"acceptance_kube_image": "i"})
    cluster = SharingCluster(t.cast("t.Any", api), system.load("nvshare"), "r", "gpu_sharing", Options("i", pods, 60, "keeper"))
    found = installed._draining(t.cast("t.Any", api), cluster, "node")
    assert (found.account, list(found.lacking)) == ("cases/keeper", [])
    assert refused in found.refused and bool(refused) == bool(found.refused)
    assert unknown in found.unknown and bool(unknown) == bool(found.unknown)
    assert set(api.names) == {"node"}  # a role may name the node that it is for


def test_what_of_a_drain_we_may_not_is_known_before() -> None:
    api = Reviews(ours=["patch", "create"])
    found = installed._draining(t.cast("t.Any", api), cluster_of(api), "node")
    assert list(found.lacking) == ["create pods/eviction", "patch node node"] and not found.account


def test_a_log_is_that_of_the_only_container_whatever_it_is_called() -> None:
    """Schedulers and pods of cases do not call theirs as our probes do."""
    asked: list[dict[str, t.Any]] = []

    def lines(path: str, **query: t.Any) -> t.Iterator[bytes]:
        asked.append({"path": path, **query})
        yield b"QUOTA_PROBE 1"

    api: t.Any = types.SimpleNamespace(name="lab", namespace="cases", lines=lines)
    assert cluster_of(api).log("one", 5) == ["QUOTA_PROBE 1"]
    assert asked[0]["path"].endswith("/pods/one/log") and asked[0]["container"] is None and asked[0]["tailLines"] == 5


def test_a_case_that_is_repeated_keeps_nothing_of_the_one_that_was_killed(tmp_path: pathlib.Path) -> None:
    name = f"watch_w{running.PACKED}"
    (tmp_path / name).write_bytes(gzip.compress(b"old\n")[:-3])
    keep = keeper(tmp_path)
    keep(name, "first\n")
    keep(name, "second\n")
    assert gzip.decompress((tmp_path / name).read_bytes()) == b"first\nsecond\n"


class Leased(Api):
    """A system's namespace with a Lease of another run, or with none."""

    def __init__(self, holder: str = "", expires: float = 0.0) -> None:
        super().__init__(0)
        annotations = {marks.EXPIRES: str(int(expires)), marks.CONTROLLER: "elsewhere/1/1"}
        lease = {"spec": {"holderIdentity": holder}, "metadata": {"annotations": annotations}}
        self.lease: dict[str, t.Any] | None = lease if holder else None

    def post(self, path: str, body: dict[str, t.Any]) -> None:
        assert path == "/apis/coordination.k8s.io/v1/namespaces/nvshare-system/leases"
        if self.lease:
            raise KubeError("cluster_unreachable", "there", 409)
        self.lease = body

    def get(self, path: str) -> dict[str, t.Any]:
        if not self.lease:
            raise KubeError("cluster_unreachable", "gone", 404)
        return self.lease

    def delete(self, path: str) -> None:
        self.lease = None


def test_a_system_is_tested_by_one_run_at_a_time() -> None:
    api: t.Any = Leased()
    leases.take(api, "nvshare-system", "launch-1", "run-a", 60)
    leases.take(api, "nvshare-system", "launch-1", "run-a", 60)
    with pytest.raises(KubeError, match=r"run run-a tests the system in namespace nvshare-system already.*kubectl delete lease -n nvshare"):
        leases.take(api, "nvshare-system", "launch-2", "run-b", 60)
    leases.take(api, "nvshare-system", "launch-3", "run-a", 60)  # a resume, while the process before it still cleans up
    leases.release(api, "nvshare-system", "launch-1")
    assert api.lease["spec"]["holderIdentity"] == "launch-3"
    api.name = "lab-2"  # the same run, with another inventory host for the same cluster
    with pytest.raises(KubeError, match="run run-a tests the system"):
        leases.take(api, "nvshare-system", "launch-4", "run-a", 60)
    leases.release(api, "nvshare-system", "launch-3")
    leases.release(api, "nvshare-system", "launch-3")
    assert api.lease is None
    late: t.Any = Leased("launch-0", 1)
    leases.take(late, "nvshare-system", "launch-2", "run-b", 60)
    assert late.lease["spec"]["holderIdentity"] == "launch-2"


class Listed(Leased):
    """A system's namespace in which a run holds the Lease, and a namespace with one that is not on a system; `status` refuses the list."""

    def __init__(self, status: int = 0) -> None:
        super().__init__("launch-1", 1.0)
        self.status = status
        labels = {"app.kubernetes.io/managed-by": marks.MANAGER, marks.RUN: "run-a"}
        assert self.lease
        self.lease["metadata"].update(name=leases.SYSTEM_LEASE, namespace="nvshare-system", labels=labels)

    def pages(self, path: str, labelSelector: str) -> t.Iterator[dict[str, t.Any]]:
        assert path == "/apis/coordination.k8s.io/v1/leases" and marks.OURS in labelSelector
        if self.status:
            raise KubeError("cluster_unreachable", "no", self.status)
        of_run = [self.lease] if self.lease and labelSelector.rpartition("=")[2] in ("run-a", marks.RUN) else []
        yield {"items": [*of_run, {"metadata": {"name": "console", "namespace": "x", "labels": {marks.RUN: "run-a"}}}]}


def test_the_lease_of_a_system_is_found_and_given_back_by_its_run() -> None:
    api: t.Any = Listed()
    assert leases.systems(api, "run-b") == []
    (held,) = leases.systems(api, "run-a")
    assert marks.abandoned(held) and "launch-1" in str(held)
    api.lease = {**held, "spec": {"holderIdentity": "launch-2"}}
    leases.give_back_systems(api, [held])
    assert api.lease["spec"]["holderIdentity"] == "launch-2"  # another run has taken it since
    api.lease = held
    said = leases.give_back_systems(api, leases.systems(api, "run-a"))
    assert said == [f"{api.name}: removed the Lease of run run-a on the system in namespace nvshare-system"] and api.lease is None
    assert leases.systems(t.cast("t.Any", Listed(403))) == []
    with pytest.raises(KubeError):
        leases.systems(t.cast("t.Any", Listed(500)))


def test_rights_in_the_systems_namespace_are_known_before_anything_is_made() -> None:
    api: t.Any = Reviews()
    installed.require_rights(api, system.load("nvshare"), True)
    with pytest.raises(KubeError, match=r"in namespace nvshare-system of the system under test we may not create leases\.coordination"):
        installed.require_rights(t.cast("t.Any", Reviews(ours=["create"])), system.load("nvshare"), False)
    installed.require_rights(t.cast("t.Any", Reviews(ours=["patch"])), system.load("time_slicing"), False)
