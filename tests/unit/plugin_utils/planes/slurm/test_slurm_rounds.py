# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests of pairs on a Slurm cluster: which timetable a node gets, who is left out by name, and which pair has whose word."""

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
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import jobs, rounds, together
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planning import todo
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import node_messages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import rdma
from harness.records import make_plan, measurement

ROLES = [yaml.safe_load((collection.ROOT / f"roles/{name}/defaults/main.yml").read_text()) for name in ("common", "rdma_ports", "rdma")]
SETTINGS: dict[str, t.Any] = {
    **{name: value for role in ROLES for name, value in role.items() if "{{" not in str(value)},
    "acceptance_plane": "slurm", "acceptance_realm": "lab", "rdma_tests": ["write_lat"],
}  # fmt: skip
BUSY = node_messages.refused("node_busy", "b is in use")
WELL = ("measured", None)


def port(number: int) -> dict[str, t.Any]:
    gid = {"index": 3, "type": "RoCE v2", "address": f"192.0.2.{number}"}
    return {
        "device": "mlx5_0", "port": 1, "state": "ACTIVE", "link_layer": "Ethernet", "rate_gbps": 400.0, "gid": gid, "gid_others": [],
        "address": gid["address"], "prefix": 24,
    }  # fmt: skip


class Lab:
    """A run over a cluster of three nodes, whose ports are known. `jobs` are those that it has launched; `blockers` of each come from the
    list, if any; `says` are more observations of a node; `instead` is what a node answers."""

    def __init__(self, folder: pathlib.Path, program: t.Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
        self.program = program
        self.run = Run(folder, "20260101T000000Z-0a1b2c")
        self.run.make()
        self.run.claim(os.getppid())
        self.jobs: list[jobs.Job] = []
        self.blockers: list[dict[str, NodeAnswer]] = []
        self.says: dict[str, list[dict[str, t.Any]]] = {}
        self.instead: dict[str, NodeAnswer] = {}
        self.has(a={}, b={}, c={})
        fake = lambda *_given: types.SimpleNamespace(run=self._answers, close=lambda: None)  # noqa: E731
        monkeypatch.setattr(together.jobs, "Launch", fake)

    def has(self, **nodes: dict[str, t.Any]) -> None:
        records = [{"name": name, "state": ["IDLE"], "gres": "gpu:8", "address": f"{name}.lab", **own} for name, own in nodes.items()]
        self.program("scontrol", f"echo '{json.dumps({'nodes': records})}'")

    def _answers(self, launched: t.Sequence[jobs.Job], _common: str) -> t.Iterator[jobs.Answered]:
        (job,) = launched
        self.jobs.append(job)
        blockers = self.blockers.pop(0) if self.blockers else {}
        answers = {node: BUSY if blockers else self.instead.get(node) or self._answer(job, node) for node in job.nodes}
        yield jobs.Answered(job, answers, blockers)

    def _answer(self, job: jobs.Job, node: str) -> NodeAnswer:
        params = job.requests[node]["params"]
        asked = [test for planned in params["rounds"] for test in planned["tests"] if test["role"] == "client"]
        own = [pair(test["subject"], params["kinds"][test["kind"]]["variant"]) for test in asked]
        return {"state": "done", "end": "done", "observations": [*own, observation.measured("timetable"), *self.says.get(node, ())]}

    def tests(self, node: str) -> list[tuple[str, str, str]]:
        """Return (role, partner, address of the server) of the tests of a node in the last job."""
        planned = self.jobs[-1].requests[node]["params"]["rounds"]
        return [(test["role"], test["partner"], test["peer"]) for part in planned for test in part["tests"]]

    def measure(self, **variables: t.Any) -> dict[str, tuple[str, str | None]]:
        """Return {subject: (outcome, reason code)} of all that a controller writes in the stage."""
        settings = {**SETTINGS, **variables}
        nodes = {f"lab/{name}": "lab" for name in "abc"}
        items = rdma.STAGE.items(nodes, {"lab": settings})[0]
        plan = make_plan({"items": items, "judging": {"sets": [expectations.shipped().dump()], "of": {"lab": 0}}})
        (self.run.dir / "plan.json").write_text(json.dumps(plan.as_dict()))
        looked = [
            measurement({
                "stage": "rdma_ports", "check": "ports", "subject": {"kind": "node", "id": node, "members": []}, "target": "lab",
                "outcome": "measured", "context": {"devices": [{"device": "mlx5_0", "type": "MT4129"}], "ports": [port(number)]},
            }).as_dict()
            for number, node in enumerate(nodes, 1)
        ]  # fmt: skip
        self.run.journal.append(looked)
        self.run.mailbox.make()
        self.run.mailbox.assign("lab", {"stages": todo.remaining(plan, [], [rdma.STAGE])["lab"], "settings": settings})
        self.run.mailbox.set_totals({"rdma": 1})
        action: t.Any = types.SimpleNamespace(
            module="perftest_rounds", spec=payload.options("perftest_rounds"), _task=types.SimpleNamespace(args={}),
            _templar=types.SimpleNamespace(template=lambda value: value),
        )  # fmt: skip
        task_vars = {**settings, "inventory_hostname": "lab", "acceptance_stage": {"name": "rdma", "role": "gpufleet.acceptance.rdma"}}
        planned = {"results_dir": str(self.run.dir.parent), "run_id": self.run.id}
        rounds.RoundsOnSlurm(action, planned, task_vars, "slurm").run()
        records = [m for m in self.run.journal.read()[0] if m["stage"] == "rdma"]
        assert len(records) == len({(m["check"], m["subject"]["id"]) for m in records})
        return {m["subject"]["id"].replace("lab/", ""): (m["outcome"], m["reason_code"]) for m in records}


def pair(subject: str, variant: str) -> dict[str, t.Any]:
    """Return what a node says of a pair."""
    return observation.measured(
        "write_lat", variant=variant, subject={"kind": "pair", "id": subject, "members": []},
        metrics={"latency": {"value": 2.0, "unit": "us"}},
    )  # fmt: skip


@pytest.fixture
def lab(tmp_path: pathlib.Path, program: t.Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, program, monkeypatch)


def test_all_nodes_walk_their_timetables_in_one_job(lab: Lab) -> None:
    assert lab.measure() == dict.fromkeys(["a", "b", "c", "a|b", "a|c", "b|c"], WELL)
    (job,) = lab.jobs
    assert job.nodes == ("a", "b", "c") and "--no-kill" in job.argv and "--gres=gpu:8" in job.argv
    for node in "abc":
        for role, partner, peer in lab.tests(node):
            assert peer == (f"{node}.lab" if role == "server" else f"{partner.partition('/')[2]}.lab")
    assert job.requests["a"]["params"]["governor"] == "performance"


def test_a_drained_node_is_refused_by_name_with_its_pairs(lab: Lab) -> None:
    lab.has(a={}, b={"state": ["IDLE", "DRAIN"]}, c={})
    found = lab.measure()
    drained = ("error", "node_drained")
    assert found == {"a": WELL, "c": WELL, "a|c": WELL, "b": drained, "a|b": drained, "b|c": drained}
    assert lab.jobs[0].nodes == ("a", "c") and {partner for _role, partner, _peer in lab.tests("a")} == {"lab/c"}


def test_the_others_go_on_without_a_node_that_does_not_become_free(lab: Lab) -> None:
    lab.blockers = [{"b": BUSY}]
    found = lab.measure()
    assert [job.nodes for job in lab.jobs] == [("a", "b", "c"), ("a", "c")]
    busy = ("error", "node_busy")
    assert found == {"a": WELL, "c": WELL, "a|c": WELL, "b": busy, "a|b": busy, "b|c": busy}


def test_a_node_without_a_partner_is_not_launched(lab: Lab) -> None:
    lab.has(a={}, b={"state": ["DOWN"]})
    found = lab.measure()
    assert not lab.jobs and found["a"] == ("error", "partner") and found["b"] == ("error", "node_down") == found["b|c"]


def test_a_node_may_be_its_own_partner(lab: Lab) -> None:
    lab.has(a={}, b={"state": ["DOWN"]})
    found = lab.measure(rdma_scope="loopback")
    assert lab.jobs[0].nodes == ("a",) and found["a"] == WELL == found["a|a"] and found["b|b"] == ("error", "node_down")


def test_nodes_with_unlike_gpus_are_tested_without_gres(lab: Lab) -> None:
    lab.has(a={}, b={"gres": "gpu:4"}, c={})
    assert set(lab.measure().values()) == {WELL} and not [word for word in lab.jobs[0].argv if word.startswith("--gres")]


def test_only_its_client_speaks_for_a_pair(lab: Lab) -> None:
    lab.has(a={}, b={}, c={"state": ["DOWN"]})
    lab.says = {"b": [pair("lab/a|lab/c", "size=2")]}
    assert lab.measure()["a|c"] == ("error", "node_down")


@pytest.mark.parametrize(("code", "of_pairs"), [("node_drained", ["node_drained"]), ("job_ended", [None, "job_ended"])])
def test_of_a_node_that_is_taken_out_of_service_no_number_is_used(lab: Lab, code: str, of_pairs: list[str | None]) -> None:
    """What was measured with a node before it was lost stays."""
    lab.instead = {"b": node_messages.refused(code, "drained meanwhile")}
    found = lab.measure()
    assert found["b"] == ("error", code) and found["a|c"] == WELL
    assert sorted({found["a|b"][1], found["b|c"][1]}, key=str) == sorted(of_pairs, key=str)
