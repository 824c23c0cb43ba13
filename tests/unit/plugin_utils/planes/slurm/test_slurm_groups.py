# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stage over groups on a Slurm cluster: who is asked what, who is left out by name, and where what they said goes."""

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
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload, together_behind
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import groups, jobs
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import todo
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import node_messages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import nccl_fabric
from harness.records import make_plan

DEFAULTS = yaml.safe_load((collection.ROOT / "roles/nccl_fabric/defaults/main.yml").read_text())
SETTINGS = {**DEFAULTS, "acceptance_plane": "slurm", "acceptance_realm": "lab"}
GROUP = "nccl_fabric/lab"
BUSY = node_messages.refused("node_busy", "b is in use")


class Lab:
    """A run over a cluster of three nodes. `jobs` are those that it has launched; `blockers` of each come from the list, if any."""

    def __init__(self, folder: pathlib.Path, program: t.Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
        self.program = program
        program("sinfo", "exit 1")
        self.run = Run(folder, "20260101T000000Z-0a1b2c")
        self.run.make()
        self.run.claim(os.getppid())
        self.jobs: list[jobs.Job] = []
        self.blockers: list[dict[str, NodeAnswer]] = []
        self.has(a={}, b={}, c={})
        monkeypatch.setattr(groups.jobs, "Launch", lambda *_given: types.SimpleNamespace(run=self._answers, close=lambda: None))

    def has(self, **nodes: dict[str, t.Any]) -> None:
        records = [{"name": name, "state": ["IDLE"], "gres": "gpu:8", "address": f"{name}.lab", **own} for name, own in nodes.items()]
        self.program("scontrol", f"echo '{json.dumps({'nodes': records})}'")

    def _answers(self, launched: t.Sequence[jobs.Job], _common: str) -> t.Iterator[jobs.Answered]:
        (job,) = launched
        self.jobs.append(job)
        blockers = self.blockers.pop(0) if self.blockers else {}
        yield jobs.Answered(job, {node: BUSY if blockers else answer_of(job, node) for node in job.nodes}, blockers)

    def measure(self, **variables: t.Any) -> dict[str, tuple[str, str | None]]:
        """Return {subject and check: (outcome, reason code)} of all that a controller writes."""
        settings = {**SETTINGS, **variables}
        items = nccl_fabric.STAGE.items({f"lab/{name}": "lab" for name in "abc"}, {"lab": settings})[0]
        plan = make_plan({"items": items, "judging": {"sets": [expectations.shipped().dump()], "of": {"lab": 0}}})
        (self.run.dir / "plan.json").write_text(json.dumps(plan.as_dict()))
        self.run.mailbox.make()
        self.run.mailbox.assign("lab", {"stages": todo.remaining(plan, [], [nccl_fabric.STAGE])["lab"], "settings": settings})
        self.run.mailbox.set_totals({"nccl_fabric": 1})
        action: t.Any = types.SimpleNamespace(
            module="nccl_fabric", spec=payload.options("nccl_fabric"), _task=types.SimpleNamespace(args={}),
            _templar=types.SimpleNamespace(template=lambda value: value),
        )  # fmt: skip
        stage = {"name": "nccl_fabric", "role": "gpufleet.acceptance.nccl_fabric"}
        task_vars = {**settings, "inventory_hostname": "lab", "acceptance_stage": stage}
        planned = {"results_dir": str(self.run.dir.parent), "run_id": self.run.id}
        groups.GroupsOnSlurm(action, planned, task_vars, "slurm").run()
        records = self.run.journal.read()[0]
        return {f"{m['subject']['id']} {m['check']}": (m["outcome"], m["reason_code"]) for m in records}


def answer_of(job: jobs.Job, node: str) -> NodeAnswer:
    """Return what a node that is well answers to its request."""
    request = job.requests.get(node) or job.requests[""]
    work = request["params"].get("work") or request
    subject = {"kind": "group", "id": GROUP, "members": ["lab/a", "lab/b", "lab/c"]}
    observations = [
        observation.measured(check["check"])
        if check["check"] == "member"
        else observation.measured(
            check["check"], variant=check["variant"], subject=subject, metrics={"busbw": {"value": 380.0, "unit": "GB/s"}}
        )
        for check in work["params"]["checks"]
    ]
    return {"state": "done", "end": "done", "observations": observations}


@pytest.fixture
def lab(tmp_path: pathlib.Path, program: t.Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, program, monkeypatch)


WELL = ("measured", None)


def test_the_first_node_is_asked_for_the_group_and_every_node_for_itself(lab: Lab) -> None:
    found = lab.measure()
    assert found == {f"{GROUP} all_reduce": WELL, "lab/a member": WELL, "lab/b member": WELL, "lab/c member": WELL}
    (job,) = lab.jobs
    assert job.nodes == ("a", "b", "c") and "--nodelist=a,b,c" in job.argv and "--gres=gpu:8" in job.argv
    head, worker = job.requests["a"], job.requests[""]
    options, member = head["params"], worker["params"]["work"]["params"]
    assert [check["check"] for check in options["checks"]] == ["all_reduce", "member"] and options["floors"] and options["token"]
    assert [(m["name"], m["address"], m["local"]) for m in options["members"]] == [
        ("lab/a", "a.lab", True), ("lab/b", "b.lab", False), ("lab/c", "c.lab", False),
    ]  # fmt: skip
    assert [check["check"] for check in member["checks"]] == ["member"] and member["token"] == options["token"]
    assert options["ssh_args"] == ["-p", str(worker["params"]["port"])] and worker["params"]["port"] in together_behind.PORTS
    assert "PRIVATE KEY" in options["key"]["private"] and "PRIVATE KEY" not in json.dumps(worker)
    assert worker["params"]["public_key"].startswith("ssh-ed25519 ") and member["timeout"] > options["timeout"]


@pytest.mark.parametrize(("launcher", "when"), [("auto", "auto"), ("ssh", None), ("srun", "always")])
def test_the_head_enters_the_others_as_the_user_wants(lab: Lab, launcher: str, when: str | None) -> None:
    assert set(lab.measure(acceptance_slurm_launcher=launcher).values()) == {WELL}
    head, other = lab.jobs[0].requests["a"]["params"], lab.jobs[0].requests[""]
    assert (head["job_steps"] or {}).get("when") == when
    assert (head["job_steps"] or {}).get("nodes") == ({"lab/a": "a", "lab/b": "b", "lab/c": "c"} if when else None)
    if launcher == "srun":
        assert other["probe"] == "nccl_group" and other["params"]["job_steps"] is None and "public_key" not in other["params"]
    else:
        assert other["probe"] == "groups.worker" and other["params"]["optional"] == (launcher == "auto")
        assert other["params"]["work"]["params"]["job_steps"] is None


def test_a_node_on_which_no_job_starts_is_refused_by_name_and_the_head_knows(lab: Lab) -> None:
    lab.has(a={}, b={"state": ["IDLE", "DRAIN"]}, c={})
    found = lab.measure()
    assert found.pop("lab/b member") == ("error", "node_drained") and set(found.values()) == {WELL}
    (job,) = lab.jobs
    (absent,) = [member for member in job.requests["a"]["params"]["members"] if member.get("problem")]
    assert absent["name"] == "lab/b" and job.nodes == ("a", "c")


def test_a_group_goes_on_without_a_node_that_does_not_become_free(lab: Lab) -> None:
    lab.blockers = [{"b": BUSY}]
    found = lab.measure()
    assert [job.nodes for job in lab.jobs] == [("a", "b", "c"), ("a", "c")]
    assert found.pop("lab/b member") == ("error", "node_busy") and set(found.values()) == {WELL}


def test_a_group_of_one_is_not_launched(lab: Lab) -> None:
    lab.has(a={}, b={"state": ["DOWN"]})
    found = lab.measure()
    assert not lab.jobs and found[f"{GROUP} all_reduce"] == ("error", "member") == found["lab/a member"]
    assert (found["lab/b member"][1], found["lab/c member"][1]) == ("node_down", "node_absent")


def test_nodes_with_unlike_gpus_are_no_group(lab: Lab) -> None:
    lab.has(a={}, b={"gres": "gpu:4"}, c={})
    assert {code for _outcome, code in lab.measure().values()} == {"gpu_count"} and not lab.jobs


def test_who_waits_in_vain_has_the_reason_of_the_group(lab: Lab) -> None:
    lab.blockers = [{"b": BUSY, "c": BUSY}]
    assert {code for _outcome, code in lab.measure().values()} == {"node_busy"} and len(lab.jobs) == 1
