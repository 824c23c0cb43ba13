# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which groups are planned, what head and members are told, and what of a head's findings is believed."""

from __future__ import annotations

import pathlib
import typing as t

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import member, membership
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program import runner
from ansible_collections.gpufleet.acceptance.plugins.modules.nccl_fabric import OPTIONS
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations, verdict
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import measurement
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.keys import key_of
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import Plan
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import grouping, nccl_fabric
from harness import records
from harness.records import make_plan

ROLE = collection.ROOT / "roles" / "nccl_fabric"
DEFAULTS = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
NODES = {f"gpu-{n:02d}": f"gpu-{n:02d}" for n in range(1, 7)}


def settings(**changes: t.Any) -> dict[str, dict[str, t.Any]]:
    """What the inventory says of each node; a change that is a list is one value a node."""
    found = {}
    for number, node in enumerate(NODES):
        own = {k: v[number] if isinstance(v, tuple) else v for k, v in changes.items()}
        found[node] = {**DEFAULTS, "acceptance_plane": "ssh", "acceptance_fabric_address": f"10.0.0.{number + 1}", **own}
    return found


def groups(items: list[dict[str, t.Any]]) -> dict[str, tuple[str, list[str]]]:
    return {i["subject"]["id"]: (i["target"], i["subject"]["members"]) for i in items if i["subject"]["kind"] == "group"}


def test_one_group_and_every_node_a_member() -> None:
    items, notes = nccl_fabric.STAGE.items(NODES, settings(nccl_fabric_ops=["all_reduce", "broadcast"]))
    assert groups(items) == {"nccl_fabric": ("gpu-01", list(NODES))} and not notes
    variant = "gpus=all sizes=8M:auto type=float"
    assert [(i["check"], i["variant"]) for i in items[:2]] == [("all_reduce", variant), ("broadcast", variant)]
    assert [(i["check"], i["target"]) for i in items[2:]] == [("member", node) for node in NODES]


def test_each_rail_is_a_check_of_the_group_with_one_gpu_of_each_node() -> None:
    items, _notes = nccl_fabric.STAGE.items(NODES, settings(nccl_fabric_rails=["mlx5_0", "mlx5_1:2"], nccl_fabric_gpus=["8"]))
    found = [i["variant"] for i in items if i["check"] == "all_reduce"]
    rest = "sizes=8M:auto type=float"
    assert found == [f"gpus=8 {rest}", f"gpus=1 rail=mlx5_0 {rest}", f"gpus=1 rail=mlx5_1:2 {rest}"]
    assert {i["subject"]["id"] for i in items if i["check"] == "all_reduce"} == {"nccl_fabric"}
    only = settings(nccl_fabric_rails=["mlx5_0"], nccl_fabric_gpus=[])
    assert nccl_fabric.STAGE.problem(only["gpu-01"]) is None and len(nccl_fabric.STAGE.checks(only["gpu-01"])) == 1


@pytest.mark.parametrize("rails", [["mlx5_0"] * 2, ["mlx5_0,mlx5_1"], ["^mlx5_0"], ["=mlx5_0"], [""], ["mlx5_0 -x A=1"], ["mlx5_0:0"]])
def test_a_rail_that_is_no_rdma_device_is_refused(rails: list[str]) -> None:
    said = nccl_fabric.STAGE.problem(settings(nccl_fabric_rails=rails)["gpu-01"])
    assert said and said.startswith(f"nccl_fabric_rails: found {rails[0]!r}, expected RDMA devices")


def test_groups_by_name_and_nodes_in_none() -> None:
    items, _notes = nccl_fabric.STAGE.items(NODES, settings(nccl_fabric_group=("h200", "h100", "h200", "h100", "", "")))
    assert groups(items) == {
        "nccl_fabric/h200": ("gpu-01", ["gpu-01", "gpu-03"]),
        "nccl_fabric/h100": ("gpu-02", ["gpu-02", "gpu-04"]),
    }


def test_the_nodes_of_a_cluster_are_a_group_of_their_own() -> None:
    nodes = {"gpu-01": "gpu-01", "gpu-02": "gpu-02", "k8s/a": "k8s", "k8s/b": "k8s"}
    wanted = {**settings(), "k8s": {**DEFAULTS, "acceptance_realm": "k8s"}}
    items, _notes = nccl_fabric.STAGE.items(nodes, wanted)
    assert groups(items) == {"nccl_fabric": ("gpu-01", ["gpu-01", "gpu-02"]), "nccl_fabric/k8s": ("k8s", ["k8s/a", "k8s/b"])}
    assert [i["target"] for i in items if i["check"] == "member"] == ["gpu-01", "gpu-02", "k8s", "k8s"]


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 6),
        ({"nccl_fabric_node_count": 4}, 4),
        ({"nccl_fabric_world_size": 16, "acceptance_gpu_count": 8}, 2),
        ({"nccl_fabric_world_size": 8, "nccl_fabric_gpus": ["2"]}, 4),
    ],
)
def test_a_group_has_the_number_of_nodes_that_the_variables_ask_for(changes: dict[str, t.Any], count: int) -> None:
    items, notes = nccl_fabric.STAGE.items(NODES, settings(**changes))
    assert len(groups(items)["nccl_fabric"][1]) == count and bool(notes) == (count < 6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nccl_fabric_node_count": 7}, "7 nodes were asked for and 6"),
        ({"nccl_fabric_node_count": 1}, "at least two"),
        ({"nccl_fabric_world_size": 15, "acceptance_gpu_count": 8}, "a multiple of the 8"),
        ({"nccl_fabric_world_size": 16}, "needs acceptance_gpu_count"),
        ({"nccl_fabric_world_size": 32, "acceptance_gpu_count": 8, "nccl_fabric_node_count": 2}, "found 32"),
        ({"nccl_fabric_world_size": 800, "acceptance_gpu_count": 8}, "100 nodes were asked for"),
        ({"acceptance_fabric_address": ""}, "set acceptance_fabric_address"),
    ],
)
def test_what_cannot_be_planned_is_refused_before_anything_runs(changes: dict[str, t.Any], words: str) -> None:
    with pytest.raises(RunError, match=words):
        nccl_fabric.STAGE.items(NODES, settings(**changes))


@pytest.mark.parametrize(
    ("there", "changes", "refused"),
    [
        (["k8s"], {}, None),  # nobody can say which nodes it has: its API's words come with the stage
        (["k8s/a"], {}, "found 1 node (k8s/a), expected at least two"),
        (["k8s/a", "k8s/b"], {"nccl_fabric_node_count": 3}, "3 nodes were asked for and 2 are in the group"),
        (["k8s/a", "k8s/b"], {}, None),
    ],
)
def test_a_cluster_without_enough_nodes_costs_nobody_else_anything(there: list[str], changes: t.Any, refused: str | None) -> None:
    wanted = {**settings(), "k8s": {**DEFAULTS, "acceptance_realm": "k8s", **changes}}
    items, notes = nccl_fabric.STAGE.items({**NODES, **dict.fromkeys(there, "k8s")}, wanted)
    assert groups(items) == {"nccl_fabric": ("gpu-01", list(NODES)), "nccl_fabric/k8s": ("k8s", there)}
    assert {i["subject"]["id"] for i in items if i["check"] == "member"} == {*NODES, *there}
    own = [item.get("refused") for item in items if item["subject"]["id"] == "nccl_fabric/k8s"]
    assert own and all((refused in said) if refused else said is None for said in own)
    assert any(refused in note for note in notes) if refused else not notes


def test_a_node_has_its_stated_address_or_one_in_the_wanted_network() -> None:
    seen = ["192.168.7.3", "10.1.30.43", "fd00::3"]
    assert grouping.address({"acceptance_fabric_address": "ib0.gpu-03"}, seen) == ("ib0.gpu-03", None)
    assert grouping.address({}, seen) == ("192.168.7.3", None)
    assert grouping.address({"acceptance_fabric_network": "10.1.0.0/16"}, seen) == ("10.1.30.43", None)
    assert grouping.address({"acceptance_fabric_network": "fd00::/64"}, seen) == ("fd00::3", None)
    assert "no address in" in str(grouping.address({"acceptance_fabric_network": "10.9.0.0/16"}, seen)[1])
    assert "not known" in str(grouping.address({}, [])[1])


@pytest.mark.parametrize("own", [(), ("gpu-02",), ("gpu-01", "gpu-03")], ids=["none", "one member", "head and a member"])
def test_a_group_whose_nodes_have_no_address_fails_at_once(acting: Run, monkeypatch: pytest.MonkeyPatch, own: tuple[str, ...]) -> None:
    """Nobody waits for a head that cannot come, and each node that is to blame is named with the cause."""
    seen = {node: ["10.1.30.7"] if node in own else ["192.168.7.3"] for node in NODES}
    monkeypatch.setattr(grouping, "addresses", lambda records: seen)
    plan, todos = planned(acceptance_fabric_address="", acceptance_fabric_network="10.1.30.0/24", stack_drift={})
    told = nccl_fabric.STAGE.work(acting, plan, todos)
    said = {node: {o["check"]: o for o in work.answer["observations"]} for node, work in told.items() if work.answer is not None}
    cause = "it has no address in acceptance_fabric_network 10.1.30.0/24, only 192.168.7.3; correct the network"
    for node in set(NODES) - set(own):
        refused = said[node]["member"]
        assert (refused["outcome"], refused["reason_code"]) == ("error", "no_address") and refused["reason"].startswith(f"{node}: {cause}")
    if "gpu-01" in own:  # the head has an address, and one member: the group is measured without the others
        assert set(said) == set(NODES) - set(own) and len(told["gpu-01"].options["members"]) == len(NODES)
        return
    assert set(said) == set(NODES)
    group = said["gpu-01"]["all_reduce"]
    assert (group["reason_code"], group["subject"]["id"]) == ("no_address", "nccl_fabric") and f"gpu-01: {cause}" in group["reason"]
    for node in own:
        assert said[node]["member"]["reason_code"] == "partner" and "gpu-01: it has no address" in said[node]["member"]["reason"]
    items = {(i.check, i.variant, i.subject.id): i.todo(1) for i in plan.items if i.target == "gpu-01"}
    completer = measurement.Completer(acting, "nccl_fabric", "gpu-01", "ssh", items, False)
    assert {completer.complete(o)["reason_code"] for o in said["gpu-01"].values()} == {"no_address"}


@pytest.fixture
def acting(tmp_path: pathlib.Path) -> Run:
    run = Run(tmp_path, "20260101T000000Z-0a1b2c")
    run.make()
    return run


def planned(**changes: t.Any) -> tuple[Plan, dict[str, t.Any]]:
    wanted = settings(**changes)
    items = nccl_fabric.STAGE.items(NODES, wanted)[0]
    plan = make_plan({"items": items, "judging": {"sets": [expectations.shipped().dump()], "of": dict.fromkeys(NODES, 0)}})
    todos = {
        node: {"settings": wanted[node], "stages": {"nccl_fabric": [i.todo(1) for i in items if i.target == node]}} for node in NODES
    }
    return plan, todos


def test_what_head_and_members_are_told(acting: Run) -> None:
    acting.mailbox.lose("gpu-05", "unreachable", "gpu-05 cannot be reached: no route")
    works = nccl_fabric.STAGE.work(acting, *planned(nccl_fabric_leaf=("a", "a", "b", "b", "", "")))
    told = {target: work.options for target, work in works.items()}
    head = told.pop("gpu-01")
    for args in (head, *told.values()):
        assert not ArgumentSpecValidator({**OPTIONS, **runner.COMMON}).validate({**args, "checks": []}).error_messages
    assert [(m["name"], m["address"], m["local"]) for m in head["members"]][:2] == [
        ("gpu-01", "10.0.0.1", True), ("gpu-02", "10.0.0.2", False)
    ]  # fmt: skip
    assert [m["name"] for m in head["members"] if m["problem"]] == ["gpu-05"]
    assert head["topology"] == {"gpu-01": "a", "gpu-02": "a", "gpu-03": "b", "gpu-04": "b"} and head["floors"]
    assert "OPENSSH PRIVATE KEY" in head["key"]["private"] and set(head["key"]) == {"private"}
    for args in told.values():
        assert args["token"] == head["token"] and set(args) == {"token", "key", "timeout"} and args["timeout"] > 3600
        assert "private" not in args["key"]
        assert 'from="10.0.0.1"' in member.authorization(args["token"], args["key"]["public"], args["key"]["from"], args["key"]["seconds"])


def test_with_the_ssh_that_is_there_no_key_is_made(acting: Run) -> None:
    told = nccl_fabric.STAGE.work(acting, *planned(nccl_fabric_ssh="existing"))
    assert all(work.options["key"] is None for work in told.values())


def test_a_group_is_repeated_whole() -> None:
    plan, _todos = planned()
    left = {key_of(item) for item in plan["items"] if item["subject"]["id"] == "gpu-03"}
    assert {key.subject for key in nccl_fabric.STAGE.complete(plan["items"], left)} == {"nccl_fabric", *NODES}
    assert not nccl_fabric.STAGE.complete(plan["items"], set())


@pytest.mark.parametrize(
    ("subject", "taken"),
    [
        ({"kind": "node", "id": "gpu-02", "members": ["gpu-02"]}, True),
        ({"kind": "gpu", "id": "gpu-02/gpu/GPU-x", "members": ["gpu-02"]}, True),
        ({"kind": "pair", "id": "gpu-02|gpu-03", "members": ["gpu-02", "gpu-03"]}, True),
        ({"kind": "switch", "id": "leaf-1", "members": ["gpu-02", "gpu-03"]}, True),
        ({"kind": "node", "id": "stranger", "members": ["gpu-02"]}, False),
        ({"kind": "gpu", "id": "stranger/gpu/GPU-x", "members": ["gpu-02"]}, False),
        ({"kind": "pair", "id": "gpu-02|stranger", "members": ["gpu-02", "stranger"]}, False),
        ({"kind": "switch", "id": "leaf-1", "members": []}, False),
    ],
)
def test_findings_are_taken_of_the_heads_own_group_only(acting: Run, subject: dict[str, t.Any], taken: bool) -> None:
    plan, _todos = planned()
    mine = {(i.check, i.variant, i.subject.id): i.todo(1) for i in plan.items if i.target == "gpu-01"}
    completer = measurement.Completer(acting, "nccl_fabric", "gpu-01", "ssh", mine)
    seen = observation.measured("localise", subject=subject, context={"findings": [{"code": "localised", "text": "slow"}]})
    found = completer.complete(seen)
    assert (found["outcome"] == "measured") == taken and measurement.problem(found) is None
    own = {(i.check, i.variant, i.subject.id): i.todo(1) for i in plan.items if i.target == "gpu-02"}
    assert measurement.Completer(acting, "nccl_fabric", "gpu-02", "ssh", own).complete(seen)["outcome"] == "error", "it is no head"


def test_a_finding_is_a_fail_of_its_node_and_a_member_without_numbers_a_pass(acting: Run) -> None:
    plan, _todos = planned()
    plan.run_id = acting.id
    mine = {(i.check, i.variant, i.subject.id): i.todo(1) for i in plan.items}
    records = []
    for node in NODES:
        completer = measurement.Completer(acting, "nccl_fabric", node, "ssh", mine)
        records.append(completer.complete(observation.measured("member")))
        if node == "gpu-01":
            subject = {"kind": "node", "id": "gpu-04", "members": ["gpu-04"]}
            findings = {"findings": [{"code": "localised", "text": "node gpu-04: it fails with good partners"}]}
            records.append(completer.complete(observation.measured("localise", subject=subject, context=findings)))
    judged = verdict.judge(plan, records, lambda *_who: expectations.Expectations([]), stages=[nccl_fabric.STAGE])
    said = {(v["subject"]["id"], v["check"]): (v["verdict"], v["reason_code"]) for v in judged.verdicts}
    assert said[("gpu-04", "localise")] == ("FAIL", "localised") and said[("gpu-04", "member")][0] == "PASS"
    words = {node["name"]: node["verdict"] for node in judged.nodes}
    assert words["gpu-04"] == "FAIL" and words["gpu-03"] == "PASS" and not judged.accepted


class Ddp(grouping.Grouped):
    """Another stage over groups, as a team would write it: no floors, nothing else for the head."""

    name = "ddp"

    def checks(self, wanted: dict[str, t.Any]) -> list[tuple[str, str]]:
        return [("all_reduce", f"backend={backend}") for backend in wanted["ddp_backends"]]


def test_a_stage_over_groups_says_what_is_checked_and_no_more(acting: Run) -> None:
    own = {f"ddp_{name}": spec["default"] for name, spec in Ddp.variables.items()}
    assert own == {f"ddp_{name}": DEFAULTS[f"nccl_fabric_{name}"] for name in Ddp.variables}, "they mean what those of nccl_fabric do"
    wanted = {node: {**own, "acceptance_fabric_address": f"10.0.0.{n}", "ddp_backends": ["nccl"]} for n, node in enumerate(NODES)}
    found, notes = Ddp().items(NODES, wanted)
    assert groups(found) == {"ddp": ("gpu-01", list(NODES))} and not notes
    assert [(one["check"], one["variant"]) for one in found][:2] == [("all_reduce", "backend=nccl"), ("member", "")]
    plan = make_plan({"items": found})
    works = Ddp().work(acting, plan, {node: {"settings": wanted[node]} for node in NODES})
    told = {target: work.options for target, work in works.items()}
    assert set(told["gpu-01"]) == {"group", "token", "key", "members"} and set(told["gpu-02"]) == {"token", "key", "timeout"}
    for args in told.values():
        assert not ArgumentSpecValidator({**membership.OPTIONS, **runner.COMMON}).validate(args).error_messages
    with pytest.raises(RunError, match="ddp_group '' leaves a host out"):
        Ddp().items({"gpu-01": "gpu-01"}, wanted)


@pytest.mark.parametrize("settled", [True, False])
def test_a_slow_group_stands_under_whom_the_search_convicts(acting: Run, settled: bool) -> None:
    plan, _todos = planned()
    plan.run_id = acting.id
    mine = {(i.check, i.variant, i.subject.id): i.todo(1) for i in plan.items}
    completer = measurement.Completer(acting, "nccl_fabric", "gpu-01", "ssh", mine)
    (group,) = (i for i in plan.items if i.subject.kind == "group")
    variant = " ".join(sorted([*group.variant.split(), f"op={group.check}"]))
    text = "node gpu-04: it misses the floor with two partners"
    culprit = {"kind": "node", "id": "gpu-04", "members": ["gpu-04"]}
    seen = [
        observation.measured(group.check, variant=group.variant, subject=group.subject.as_dict(), context={"condition": True}),
        observation.measured("localise", variant=variant, subject=culprit, context={"findings": [{"code": "localised", "text": text}]}),
    ]
    if not settled:
        part = {"kind": "group", "id": "nccl_fabric/part-2", "members": ["gpu-02", "gpu-03"]}
        seen.append(observation.failed("localise", "unresolved", "open", variant=variant, subject=part))
    deciding = {key_of(record): records.measurement(record) for record in (completer.complete(one) for one in seen)}
    (blame,) = nccl_fabric.convicted("nccl_fabric", deciding)
    assert blame.culprit == "gpu-04" and blame.said == "bad between nodes: it misses the floor with two partners"
    assert {key.subject for key in blame.explains} == ({"nccl_fabric"} if settled else set())
