# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What of a cluster's console can be said without one."""

from __future__ import annotations

import dataclasses
import typing as t

import yaml
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions, allowed, cluster, controller, request
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import spec as spec_module
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.actions import NodeInfo, Status
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web import openapi
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError

CRD = collection.ROOT / "files/console/crd.yaml"


def item(status: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
    meta = {
        "name": "one", "namespace": "lab", "uid": "u-1", "resourceVersion": "7", "creationTimestamp": "2026-11-22T00:00:00Z",
        "annotations": {cluster.ASKED_BY: "somebody"}, "labels": {cluster.OF_SCHEDULE: "daily"},
    }  # fmt: skip
    return {"metadata": meta, "spec": {"rdma": {}}, **({"status": status} if status is not None else {})}


def test_a_status_is_read_as_it_was_written() -> None:
    names = {field.name for field in dataclasses.fields(Status)}
    assert set(cluster.FIELDS.values()) == names
    status = Status(
        phase=actions.FINISHED, run_id="20261122T000000Z-0a1b2c", verdict=actions.ACCEPTED, command=["a"], nodes=2, counts={"PASS": 3},
        progress="3/3", message="m", link="/l", queue_position=1, waiting_for="w", started="2026-11-22T00:00:00Z",
        ended="2026-11-22T00:01:00Z", last_scheduled="2026-11-22T00:00:00Z", next_scheduled="2026-11-23T00:00:00Z",
    )  # fmt: skip
    assert cluster._action(item(cluster._told(status))).status == dataclasses.replace(status, conditions=())
    assert cluster._told(Status())["completionTime"] is None, "the API refuses an empty time"


def test_an_action_without_a_status_is_pending() -> None:
    for found in (item(), item({}), item({"phase": None})):
        action = cluster._action(found)
        assert (action.status.phase, action.who, action.schedule) == (actions.PENDING, "somebody", "daily")


def test_what_the_api_refuses_is_said_at_the_field() -> None:
    causes = [{"field": "spec.rdma.nodes[1]", "message": "Invalid value"}, {"field": "metadata.name", "message": "too long"}]
    found = cluster._problems(KubeError("bad_spec", "no", 422, {"details": {"causes": causes}}))
    assert [problem.field for problem in found] == ["rdma.nodes[1]", "metadata.name"]
    assert cluster._problems(KubeError("bad_spec", "no", 422))[0].field == "spec"


def test_an_action_waits_for_gpus_that_others_hold_and_says_whose() -> None:
    asked = request.read({"collective": {"nodes": ["a", "b"]}}, request.Limits(plane="kubernetes"))
    known = {"a": NodeInfo("a", gpus=8, free=6, used_by=["prod/train-0"]), "b": NodeInfo("b", gpus=8, free=8)}
    assert controller._busy(asked, known) == "2 of 8 GPUs of a, held by prod/train-0"
    known["a"] = NodeInfo("a", gpus=8, free=None)
    assert not controller._busy(asked, known), "nobody can tell: the scheduler keeps it waiting"
    ports = request.read({"rdma": {"nodes": ["a", "b"]}}, request.Limits(plane="kubernetes"))
    assert not controller._busy(ports, {"a": NodeInfo("a", gpus=8, free=0)})


def test_the_resource_says_what_the_console_reads() -> None:
    crd = yaml.safe_load(CRD.read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    types = openapi.schemas()
    for kind in request.KINDS:
        told, read = spec[kind]["properties"], types[types["Spec"]["properties"][kind]["$ref"].rpartition("/")[2]]["properties"]
        assert set(told) == set(read)
        for name in set(told) - {"nodes", "pool", "variables"}:
            for bound in ("minimum", "maximum", "minItems", "maxItems", "default"):
                assert told[name].get(bound) == read[name].get(bound), (kind, name, bound)
    assert spec["stages"]["properties"]["names"]["items"]["enum"] == list(allowed.STAGES)
    (rule,) = spec["stages"]["properties"]["variables"]["x-kubernetes-validations"]
    assert set(rule["rule"].split("'")[1::2]) == set(allowed.VARIABLES)
    rdma, collective = spec["rdma"]["properties"], spec["collective"]["properties"]
    assert rdma["operation"]["enum"] == list(spec_module.RDMA_OPERATIONS) and rdma["scope"]["enum"] == list(spec_module.SCOPES)
    assert rdma["measure"]["enum"] == list(request.MEASURES) and collective["library"]["enum"] == list(spec_module.LIBRARIES)
    assert collective["operation"]["enum"] == list(spec_module.operations(""))
    for rule, library in zip(spec["collective"]["x-kubernetes-validations"][1:], spec_module.LIBRARIES, strict=True):
        assert set(rule["rule"].split("'")[3::2]) == set(spec_module.operations(library)) and library in rule["message"]
