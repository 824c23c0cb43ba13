# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stage over groups on a cluster: who is asked what, who is left out by name, and where what they said goes."""

from __future__ import annotations

import json
import os
import pathlib
import types
import typing as t

import pytest
import yaml
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import discovery
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import Client
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.groups.group import GroupResult
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.stages import group as stage_group
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import todo
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import file_name, new_file
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import nccl_fabric
from harness.records import make_plan

DEFAULTS = yaml.safe_load((collection.ROOT / "roles/nccl_fabric/defaults/main.yml").read_text())
SETTINGS = {**DEFAULTS, "acceptance_plane": "kubernetes", "acceptance_realm": "lab", "acceptance_kube_image": "lab/tester:1"}
NODES = ["a", "b", "c"]
GROUP = "nccl_fabric/lab"


def node(name: str, gpus: int = 8, **spec: t.Any) -> dict[str, t.Any]:
    conditions = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"name": name, "labels": {}, "uid": name}, "spec": spec,
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": conditions, "nodeInfo": {}},
    }  # fmt: skip


class Lab:
    """A run over a cluster of these nodes, with what each of its launches was made of."""

    def __init__(self, folder: pathlib.Path, script: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.script = script
        self.run = Run(folder, "20260101T000000Z-0a1b2c")
        self.run.make()
        self.run.claim(os.getppid())
        self.has(*map(node, NODES))
        subjects = {f"lab/{name}": "lab" for name in NODES}
        items = nccl_fabric.STAGE.items(subjects, {"lab": SETTINGS})[0]
        self.plan = make_plan({"items": items, "judging": {"sets": [expectations.shipped().dump()], "of": {"lab": 0}}})
        (self.run.dir / "plan.json").write_text(json.dumps(self.plan.as_dict()))
        self.launches: list[t.Any] = []
        self.answers: list[GroupResult] = []
        monkeypatch.setattr(stage_group, "launched", self._launched)
        monkeypatch.setattr(stage_group.discovery, "choose", lambda *_given: discovery.Choice(["job"], []))
        monkeypatch.setattr(stage_group.GroupsOnCluster, "_begin", lambda *_given: t.cast(Client, script.client()))

    def has(self, *nodes: dict[str, t.Any]) -> None:
        self.script.says("/api/v1/nodes", {"items": list(nodes), "metadata": {}})

    def _launched(self, kinds: t.Sequence[str], make: t.Callable[[str], t.Any], *_others: t.Any) -> tuple[GroupResult, list[str]]:
        made = make(kinds[0])
        self.launches.append(made)
        with new_file(made.raw()) as log:
            log.write(b"launch %d\n" % len(self.launches))
        return self.answers.pop(0) if self.answers else said(made.shape.nodes), []

    def measure(self) -> dict[str, t.Any]:
        """One controller: what is left to do is done; {subject: (outcome, reason code)} of all that it wrote."""
        before = len(self.journal())
        left = todo.remaining(self.plan, self.journal(), [nccl_fabric.STAGE]).get("lab", {})
        self.run.mailbox.make()
        self.run.mailbox.assign("lab", {"stages": left, "settings": SETTINGS})
        self.run.mailbox.set_totals({"nccl_fabric": 1})
        action: t.Any = types.SimpleNamespace(
            module="nccl_fabric", spec=payload.options("nccl_fabric"), _task=types.SimpleNamespace(args={}),
            _templar=types.SimpleNamespace(template=lambda value: value),
        )  # fmt: skip
        stage = {"name": "nccl_fabric", "role": "gpufleet.acceptance.nccl_fabric"}
        task_vars = {**SETTINGS, "inventory_hostname": "lab", "acceptance_stage": stage}
        planned = {"results_dir": str(self.run.dir.parent), "run_id": self.run.id}
        stage_group.GroupsOnCluster(action, planned, task_vars, "kubernetes").run()
        return {f"{m['subject']['id']} {m['check']}": (m["outcome"], m["reason_code"]) for m in self.journal()[before:]}

    def journal(self) -> list[dict[str, t.Any]]:
        return self.run.journal.read()[0]

    def head(self) -> dict[str, t.Any]:
        """What the last launch's head is asked, once its workers are there."""
        made = self.launches[-1]
        seats = [{"node": name, "address": f"10.0.0.{n}", "host": name} for n, name in enumerate(made.shape.nodes)]
        return t.cast("dict[str, t.Any]", made.head(seats))


def said(nodes: t.Iterable[str], measured: bool = True, **more: t.Any) -> GroupResult:
    """What a group says whose nodes are all well."""
    subject = {"kind": "group", "id": GROUP, "members": [f"lab/{name}" for name in NODES]}
    variant = "gpus=all sizes=8M:auto type=float"
    metrics = {"busbw": {"value": 380.0, "unit": "GB/s"}}
    seen = (
        observation.measured("all_reduce", variant=variant, subject=subject, metrics=metrics)
        if measured
        else observation.failed("all_reduce", "tool_failed", "it broke", variant=variant, subject=subject)
    )
    workers = {name: {"state": "done", "end": "done", "observations": [observation.measured("member")]} for name in nodes}
    about = {"launcher": "job", "image": "lab/tester:1"}
    return GroupResult({"state": "done", "end": "done", "observations": [seen]}, about, workers, **more)


@pytest.fixture
def lab(tmp_path: pathlib.Path, script: t.Any, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, script, monkeypatch)


WELL = ("measured", None)


def test_the_head_is_asked_for_the_group_and_every_node_for_itself(lab: Lab) -> None:
    found = lab.measure()
    assert found == {f"{GROUP} all_reduce": WELL, **{f"lab/{name} member": WELL for name in NODES}}
    (made,) = lab.launches
    assert made.shape.nodes == NODES and made.shape.devices == 8
    work = lab.head()["work"]["params"]
    assert [check["check"] for check in work["checks"]] == ["all_reduce"] and work["group"] == GROUP and work["floors"]
    assert [member["name"] for member in lab.head()["members"]] == ["lab/a", "lab/b", "lab/c"]
    worker = made.worker["work"]["params"]
    assert [check["check"] for check in worker["checks"]] == ["member"] and worker["token"] == work["token"] and not worker["floors"]


def test_a_node_that_cannot_be_used_is_refused_by_name_and_the_head_knows(lab: Lab) -> None:
    lab.has(node("a"), node("b", unschedulable=True), node("c"))
    found = lab.measure()
    assert found.pop("lab/b member") == ("error", "node_cordoned") and set(found.values()) == {WELL}
    (absent,) = [member for member in lab.head()["members"] if member.get("problem")]
    assert absent["name"] == "lab/b" and lab.launches[0].shape.nodes == ["a", "c"]


def test_a_group_of_one_is_not_launched(lab: Lab) -> None:
    lab.has(node("a"), node("b", unschedulable=True))
    found = lab.measure()
    assert not lab.launches
    assert found[f"{GROUP} all_reduce"] == ("error", "member") == found["lab/a member"]
    assert (found["lab/b member"][1], found["lab/c member"][1]) == ("node_cordoned", "node_absent")
    (reason,) = {m["reason"] for m in lab.journal() if m["subject"]["id"] == GROUP}
    assert "1 of 3 nodes can take part" in reason and "lab/c" in reason


def test_nodes_of_unlike_size_are_no_group_unless_a_number_is_said(lab: Lab) -> None:
    lab.has(node("a"), node("b", 4), node("c"))
    found = lab.measure()
    assert not lab.launches and {code for _outcome, code in found.values()} == {"gpu_count"}
    assert "set nccl_fabric_gpus" in next(m["reason"] for m in lab.journal())


def test_a_node_whose_pod_does_not_come_up_is_left_out_and_the_others_are_measured(lab: Lab) -> None:
    late = said([], absent={"b": ("image_pull", "no such image")})
    lab.answers = [late]
    found = lab.measure()
    assert [made.shape.nodes for made in lab.launches] == [NODES, ["a", "c"]]
    assert found.pop("lab/b member") == ("error", "image_pull") and set(found.values()) == {WELL}
    assert [member["name"] for member in lab.head()["members"] if member.get("problem")] == ["lab/b"]


def test_who_says_nothing_has_the_reason_of_the_group(lab: Lab) -> None:
    lab.answers = [GroupResult({"state": "refused", "reason_code": "no_result", "reason": "the head was evicted"}, {}, {})]
    found = lab.measure()
    assert set(found.values()) == {("error", "no_result")}
    assert all(m["reason"].endswith(": the head was evicted") for m in lab.journal())


def test_the_log_of_every_attempt_and_of_every_launch_stays(lab: Lab) -> None:
    lab.answers = [said([], absent={"b": ("image_pull", "no such image")}), said(["a", "c"], measured=False), said(NODES, measured=False)]
    for _controller in range(3):
        lab.measure()
    assert [m["attempt"] for m in lab.journal() if m["subject"]["id"] == GROUP] == [1, 2, 3]
    folder = lab.run.dir / "raw" / file_name(GROUP)
    assert {path.name: path.read_text() for path in folder.glob("*.log")} == {
        "nccl_fabric-head-1.log": "launch 1\n",
        "nccl_fabric-head-1~2.log": "launch 2\n",
        "nccl_fabric-head-2.log": "launch 3\n",
        "nccl_fabric-head-3.log": "launch 4\n",
    }
