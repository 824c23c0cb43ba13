# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Heartbeats of a controller to a cluster that only remembers them; test_kube_probe.py has a real one."""

from __future__ import annotations

import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import access, settings
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.pods import heartbeat, objects

PODS = settings.pods({"acceptance_kube_image": "registry.invalid/tester:1"})
RUN = "20260101T000000Z-0a1b2c"
AWAY = KubeError("cluster_unreachable", "lab: https://192.0.2.1 does not answer: connection refused")


class Cluster:
    """`beats`: the deadlines that it was asked for. `error`: what it answers to the next heartbeats; `refuses`: to the Job."""

    name, namespace = "lab", "here"

    def __init__(self) -> None:
        self.made: list[dict[str, t.Any]] = []
        self.beats: list[int] = []
        self.deleted: list[str] = []
        self.error: KubeError | None = None
        self.refuses: KubeError | None = None
        self.going = False

    def post(self, _path: str, body: dict[str, t.Any], **_query: t.Any) -> dict[str, t.Any]:
        if self.refuses:
            raise self.refuses
        self.made.append(body)
        return {**body, "metadata": {**body["metadata"], "uid": "u-1"}}

    def patch_once(self, path: str, body: dict[str, t.Any], _timeout: float) -> dict[str, t.Any]:
        assert path == f"/apis/batch/v1/namespaces/here/jobs/{self.made[0]['metadata']['name']}"
        self.beats.append(body["spec"]["activeDeadlineSeconds"])
        if self.error:
            raise self.error
        return {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"} if self.going else {}}

    def delete(self, _path: str, **query: t.Any) -> None:
        self.deleted.append(query["fieldSelector"])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(access, "missing", lambda _client, _rights: [])
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.02)
    monkeypatch.setattr(heartbeat, "AGAIN_S", 0.02)
    return Cluster()


def beating(cluster: Cluster, deadline_s: float = 600.0) -> heartbeat.Heartbeat:
    made = heartbeat.Heartbeat(t.cast("t.Any", cluster), objects.Launch(RUN, "stack", "here", deadline_s, "lab"))
    made.start(PODS)
    return made


def until(what: t.Callable[[], t.Any]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_minute_after_the_last_heartbeat_is_enough_for_the_cluster() -> None:
    """LAPSE_S counts from the last heartbeat; the pods have 5 s to end, and the cluster's controllers take the rest."""
    assert heartbeat.LAPSE_S + 15 <= 60
    assert heartbeat.LAPSE_S - heartbeat.BEAT_S - heartbeat.ANSWER_S >= 30, "an API server that restarts costs nothing"


def test_the_job_makes_no_pod_owns_the_launch_and_goes_at_its_deadline(cluster: Cluster) -> None:
    alive = beating(cluster)
    (job,) = cluster.made
    assert job["spec"]["parallelism"] == 0 and job["spec"]["completions"] == 1, "or it would be complete at once"
    assert (job["spec"]["activeDeadlineSeconds"], job["spec"]["ttlSecondsAfterFinished"]) == (45, 0)
    assert "ownerReferences" not in job["metadata"]
    owned = alive.launch.metadata("some", "owner", PODS)
    assert owned["ownerReferences"] == [{"apiVersion": "batch/v1", "kind": "Job", "name": job["metadata"]["name"], "uid": "u-1"}]
    alive.end()
    assert cluster.deleted == [f"metadata.name={job['metadata']['name']}"]


def test_each_heartbeat_moves_the_deadline_on_until_the_end(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat.Heartbeat, "_elapsed", lambda self: 10.0 * len(cluster.beats))
    alive = beating(cluster)
    until(lambda: len(cluster.beats) >= 4)
    alive.stop()
    assert cluster.beats[:4] == [45, 55, 65, 75]
    beats = len(cluster.beats)
    time.sleep(0.1)
    assert len(cluster.beats) == beats and alive.lapsed() == ""


def test_no_heartbeat_comes_after_the_deadline_of_the_launch(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat.Heartbeat, "_elapsed", lambda self: 10.0 * len(cluster.beats))
    alive = beating(cluster, deadline_s=35.0)
    until(lambda: len(cluster.beats) == 4)
    time.sleep(0.1)
    assert cluster.beats == [45, 55, 65, 75]
    alive.end()


def test_an_api_server_that_is_away_is_asked_again(cluster: Cluster) -> None:
    cluster.error = AWAY
    alive = beating(cluster)
    until(lambda: len(cluster.beats) >= 3)
    assert alive.lapsed() == ""
    cluster.error = None
    beats = len(cluster.beats)
    until(lambda: len(cluster.beats) > beats + 1)
    assert alive.lapsed() == ""
    alive.end()


@pytest.mark.parametrize("how", ["gone", "going"])
def test_a_controller_that_was_taken_for_dead_says_so(cluster: Cluster, how: str) -> None:
    """A Job whose dependents are being removed still answers, with its deletionTimestamp."""
    alive = beating(cluster)
    cluster.going = how == "going"
    cluster.error = KubeError("bad_spec", "lab: not found", 404) if how == "gone" else None
    until(alive.lapsed)
    assert "no heartbeat reached Job gpufleet-alive-" in alive.lapsed() and "look at the way from here to the API server" in alive.lapsed()
    alive.end()


def test_why_heartbeats_failed_is_said_with_it(cluster: Cluster) -> None:
    cluster.error = KubeError("admission", "lab: an admission webhook refuses it: no", 400)
    alive = beating(cluster)
    until(lambda: cluster.beats)
    cluster.error = KubeError("bad_spec", "lab: not found", 404)
    until(alive.lapsed)
    assert "to the API server (before: lab: an admission webhook refuses it: no)" in alive.lapsed()
    alive.end()


@pytest.mark.parametrize("why", ["rights", "quota"])
def test_without_heartbeats_a_run_goes_on_and_warns(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], why: str
) -> None:
    if why == "rights":
        monkeypatch.setattr(access, "missing", lambda _client, _rights: ["patch jobs.batch"])
    cluster.refuses = KubeError("quota", "lab: the namespace's quota is used up", 403)
    alive = beating(cluster)
    said = " ".join(capsys.readouterr().err.split())
    assert "lab: stack: if this machine dies, its pods stay until their deadline, 600 s:" in said
    assert ("we may not patch jobs.batch; apply the roles of files/rbac again" if why == "rights" else "quota is used up") in said
    assert not alive.launch.owner and not cluster.beats and alive.lapsed() == ""
    alive.end()
    assert not cluster.deleted


def test_a_cluster_that_is_away_fails_the_launch(cluster: Cluster) -> None:
    cluster.refuses = AWAY
    with pytest.raises(KubeError):
        beating(cluster)
