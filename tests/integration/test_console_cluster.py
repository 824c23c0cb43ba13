# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The console of a cluster: what its API refuses of an action, and that each action ends once, whoever is killed meanwhile."""

from __future__ import annotations

import functools
import pathlib
import random
import time
import typing as t

import pytest
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions, cluster, request
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Connection, KubeError
from harness.console_controllers import Console
from rigs.kubernetes.kubernetes import CONTROL, Kubernetes
from rigs.simulated import nodes

pytestmark = pytest.mark.kubernetes


@pytest.fixture
def console(rig_kubernetes: Kubernetes, tmp_path: pathlib.Path) -> t.Iterator[Console]:
    found = Console(rig_kubernetes, tmp_path)
    try:
        yield found
    finally:
        found.close()


def refused_by(console: Console, spec: dict[str, t.Any], name: str = "bad", **query: t.Any) -> str:
    """Which fields the API server names."""
    with pytest.raises(KubeError) as caught:
        console.make(name, spec, **query)
    assert caught.value.status in (400, 422), caught.value
    causes = (caught.value.details.get("details") or {}).get("causes") or []
    return " ".join(str(cause.get("field")) for cause in causes) or caught.value.reason


PAIR = {"nodes": ["node-1", "node-2"]}
HOSTILE = "{{ lookup('pipe', 'id') }}"


def test_the_api_server_refuses_what_the_console_would_and_says_the_field(console: Console) -> None:
    refused = functools.partial(refused_by, console)
    for spec, field in (
        ({}, "spec"),
        ({"rdma": PAIR, "collective": PAIR}, "spec"),
        ({"rdma": {}}, "spec.rdma"),
        ({"rdma": {"nodes": ["a"]}}, "spec.rdma.nodes"),
        ({"rdma": {"nodes": ["a", "a"]}}, "spec.rdma.nodes[1]"),
        ({"rdma": {"nodes": ["a", HOSTILE]}}, "spec.rdma.nodes[1]"),
        ({"rdma": {"nodes": ["a", "-e"]}}, "spec.rdma.nodes[1]"),
        ({"rdma": {"nodes": ["a", "../b"]}}, "spec.rdma.nodes[1]"),
        ({"rdma": {"nodes": ["a", "b\n"]}}, "spec.rdma.nodes[1]"),
        ({"rdma": {"nodes": ["x" * 254, "a"]}}, "spec.rdma.nodes[0]"),
        ({"rdma": {**PAIR, "device": "mlx5_0 -p 1"}}, "spec.rdma.device"),
        ({"rdma": {**PAIR, "port": 0}}, "spec.rdma.port"),
        ({"rdma": {**PAIR, "operation": "atomic"}}, "spec.rdma.operation"),
        ({"rdma": {**PAIR, "scope": "pairs"}}, "spec.rdma.scope"),
        ({"collective": {**PAIR, "pool": {}}}, "spec.collective"),
        ({"collective": {**PAIR, "operation": "all_gatherv"}}, "spec.collective.operation"),
        ({"collective": {**PAIR, "library": "HCCL", "operation": "sendrecv"}}, "spec.collective.operation"),
        ({"collective": {**PAIR, "sizes": ["8M:1G -c 0"]}}, "spec.collective.sizes[0]"),
        ({"collective": {**PAIR, "gpusPerNode": "8"}}, "spec.collective.gpusPerNode"),
        ({"stages": {**PAIR, "names": ["common"]}}, "spec.stages.names[0]"),
        ({"stages": {**PAIR, "names": ["stack"], "variables": {"ansible_host": "x"}}}, "spec.stages.variables"),
        ({"stages": {**PAIR, "names": ["stack"], "variables": {"stack_cuda": ["x"]}}}, "spec.stages.variables.stack_cuda"),
        ({"rdma": PAIR, "image": "a b"}, "spec.image"),
        ({"rdma": PAIR, "schedule": {"cron": "@reboot"}}, "spec.schedule.cron"),
        ({"rdma": PAIR, "ttlSecondsAfterFinished": -1}, "spec.ttlSecondsAfterFinished"),
    ):
        assert field in refused(spec).split(), spec
    assert "extra_vars" in refused({"rdma": {**PAIR, "extra_vars": {"a": "b"}}}, fieldValidation="Strict")
    assert refused({"rdma": PAIR, "schedule": {"cron": "0 3 * * *"}}, name="a" * 53)
    # A list that is too long is refused, too, and one that is merely long is not.
    assert "spec.rdma.nodes" in refused({"rdma": {"nodes": [f"node-{n:059}" for n in range(5001)]}})
    console.make("long", {"rdma": {"nodes": [f"node-{n}" for n in range(5000)]}, "suspend": True})
    made = console.make("plain", {"rdma": PAIR})
    assert made["spec"] == {
        "rdma": {**PAIR, "operation": "read", "measure": "bandwidth", "scope": "all_pairs"}, "cancel": False, "suspend": False,
    }  # fmt: skip
    limits = request.Limits(plane="kubernetes")
    assert request.read(made["spec"], limits) == request.read({"rdma": PAIR}, limits), "both have the same defaults"
    for change, field in (
        ({"rdma": {"device": "mlx5_0"}}, "spec.rdma"),
        ({"rdma": None, "collective": PAIR}, "spec.rdma"),
        ({"schedule": {"cron": "0 3 * * *"}}, "spec.schedule"),
        ({"image": "a"}, "spec.image"),
    ):
        with pytest.raises(KubeError) as caught:
            console.admin.patch(f"{console.path}/plain", {"spec": change})
        assert field in [cause["field"] for cause in caught.value.details["details"]["causes"]]
    console.admin.patch(f"{console.path}/plain", {"spec": {"cancel": True, "suspend": True}})
    with pytest.raises(KubeError, match="what is cancelled stays so"):
        console.admin.patch(f"{console.path}/plain", {"spec": {"cancel": False}})


@pytest.mark.parametrize(("count", "blows"), [(4, 2), pytest.param(40, 12, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_each_action_ends_once_with_its_verdict_though_its_controllers_are_killed(
    console: Console, rig_kubernetes: Kubernetes, count: int, blows: int
) -> None:
    good, bad = rig_kubernetes.nodes[:2]
    rig_kubernetes.plant(bad).write_text(nodes.conf(102, faults="nccl_wrong"))
    wanted = {}
    sweep = {"nccl_node_sizes": "8M:16G"}
    for number in range(count):
        name, node = f"a-{number}", (good, bad)[number % 2]
        console.make(name, {"stages": {"nodes": [node], "names": ["nccl_node"], "variables": sweep}})
        wanted[name] = actions.NOT_ACCEPTED if node == bad else actions.ACCEPTED
    console.make("both", {"stages": {"nodes": [good, bad], "names": ["stack"]}, "ttlSecondsAfterFinished": 86400})
    console.make("never", {"stages": {"nodes": [good], "names": ["stack"]}, "suspend": True})
    wanted["both"] = actions.ACCEPTED
    dice = random.Random(14)
    for blow in range(blows):
        console.start()
        console.start()  # of two one works
        time.sleep(dice.uniform(6, 15))
        if blow % 4 == 1:
            rig_kubernetes.kill(CONTROL, "kube-apiserver")
            time.sleep(3)
            rig_kubernetes.start(CONTROL, "kube-apiserver")
        console.kill_all()
    console.start()
    console.start()
    console.wait(lambda: all(of.get("phase") == actions.FINISHED for n, of in console.statuses().items() if n != "never"), 120 * count)
    found = console.statuses()
    assert found.pop("never")["phase"] == actions.SUSPENDED
    assert console.wrong(wanted) == []
    # A running one that is deleted is cancelled first, leaves nothing, and goes.
    rig_kubernetes.plant(good).write_text(nodes.conf(101, SLEEP=60))
    console.make("slow", {"stages": {"nodes": [good], "names": ["nccl_node"], "variables": sweep}})
    console.wait(console.pods)
    console.admin.delete(f"{console.path}/slow", propagationPolicy="Background")
    console.wait(lambda: "slow" not in console.statuses())
    console.nothing_left()
    console.admin.delete(f"{console.path}/a-0")
    console.wait(lambda: "a-0" not in console.statuses())
    assert found["a-0"]["runID"] in console.runs(), "what was measured stays when the action goes"


def test_people_have_the_same_actions_by_the_api(console: Console) -> None:
    kept = cluster.ClusterActions(Connection("lab", kubeconfig=console.kubeconfig, namespace=console.namespace), selector="!type")
    told = kept.changes()
    made = kept.create("one", {"stages": {**_real(kept), "names": ["stack"]}, "suspend": True}, "somebody")
    assert made.who == "somebody" and made.status.phase == actions.PENDING
    version, action = next(told)
    assert action.name == "one"
    with pytest.raises(actions.Conflict):
        kept.create("one", dict(made.spec), "me")
    with pytest.raises(request.RequestError) as caught:
        kept.create("two", {"stages": {"nodes": ["node-99"], "names": ["stack"]}}, "me")
    assert caught.value.problems[0].field == "stages.nodes[0]"
    assert [one.name for one in kept.list(actions.Filters(text="SOMEBODY")).actions] == ["one"]
    for name in ("b", "a", "c"):
        kept.create(name, {**made.spec}, "me")
    pages = [kept.list(actions.Filters(sort="name", limit=2))]
    pages.append(kept.list(actions.Filters(sort="name", limit=2, after=pages[0].more)))
    assert [[one.name for one in page.actions] for page in pages] == [["a", "b"], ["c", "one"]] and not pages[1].more
    assert [one.name for one in kept.list(actions.Filters(sort="-who", limit=1)).actions] == ["one"]
    assert kept.set("one", cancel=True).spec["cancel"] is True
    with pytest.raises(actions.NotFound):
        kept.get("../one")
    with pytest.raises(actions.Denied):
        kept.get("one", "kube-system")
    kept.delete("one")
    while not (change := next(told))[1].gone:
        version = change[0]
    assert change[1].name == "one" and int(change[0]) >= int(version)
    assert {node.gpus for node in kept.nodes()} == {8} and all(node.labels for node in kept.nodes())


def _real(kept: cluster.ClusterActions) -> dict[str, t.Any]:
    return {"nodes": [node.name for node in kept.known()]}
