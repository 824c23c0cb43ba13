# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plane that a test adds to a copy of the collection as one folder, without another change. Its nodes are processes of this machine."""

from __future__ import annotations

import pathlib
import shutil
import types
import typing as t

import pytest
from harness import sites

P = "ansible_collections.gpufleet.acceptance.plugins"
RUN = "20260101T000000Z-0a1b2c"
PLANE = f"""
import subprocess
import sys

from {P}.module_utils.answer import observation
from {P}.plugin_utils.planes import base
from {P}.plugin_utils.planes.answers import interpret
from {P}.plugin_utils.stages.base import GROUP, MEMBER
from {P}.plugin_utils.stages.ranges import Range


class OnProcesses(base.StageOnTarget):
    def run(self):
        nodes = sorted(subject for check, _variant, subject in self.planned if check == MEMBER)
        if self.description.topology != GROUP or len(nodes) > self.settings["acceptance_process_slots"]:
            words = f"{{len(nodes)}} nodes of {{self.settings['acceptance_process_slots']}}"
            answers = interpret({{"state": "refused", "reason_code": "no_slot", "reason": words}}, self.completer)
        else:
            answers = [self._measured(key, nodes) for key in list(self.planned)]
        self.keep(answers)
        return self.result(answers)

    def _measured(self, key, nodes):
        check, variant, subject = key
        members = [subject] if check == MEMBER else nodes
        children = [subprocess.Popen([sys.executable, "-c", "print(50)"], stdout=subprocess.PIPE) for _node in members]
        rate = sum(int(child.communicate()[0]) for child in children)
        seen = observation.measured(check, variant=variant, metrics={{"rate": {{"value": rate, "unit": "GB/s"}}}})
        if check == MEMBER:
            return self.completer.complete(seen, subject)
        return self.completer.complete({{**seen, "subject": self.planned[key]["subject"]}})


class Processes(base.Plane):
    name = "process"
    variables = ("acceptance_process_",)
    options = {{"acceptance_process_slots": {{"type": "int", "default": 2}}, "acceptance_process_key": {{"type": "str", "default": ""}}}}
    ranges = {{"acceptance_process_slots": Range(1, 8)}}
    hidden = ("acceptance_process_key",)
    nodes_behind = True

    def subjects(self, host, settings):
        return base.Subjects([f"{{host}}/a", f"{{host}}/b"], [])

    def reachability_domain(self, host):
        return host

    def on(self, action, planned, task_vars):
        return OnProcesses(action, planned, task_vars, self.name)


PLANE = Processes()
"""
REASON_CODES = """
REASON_CODES = {"no_slot": ("more processes were asked for than there are slots", "Raise acceptance_process_slots.")}
"""
MODULES = ("judging.advice", "planes.registry", "records.reason_codes", "records.run", "stages.grouping")
BOX = {"box": {"acceptance_plane": "process"}}


@pytest.fixture(scope="module")
def planning(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[types.SimpleNamespace]:
    """The modules of a copy of the collection in which the plane is a folder."""
    collections = tmp_path_factory.mktemp("collections")
    copy = collections / "ansible_collections/gpufleet/acceptance"
    for name in ("plugins", "roles", "meta", "playbooks"):
        shutil.copytree(sites.ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("galaxy.yml", "acceptance.yml"):
        shutil.copy(sites.ROOT / name, copy / name)
    folder = copy / "plugins/plugin_utils/planes/process"
    folder.mkdir()
    (folder / "plane.py").write_text(PLANE)
    (folder / "reason_codes.py").write_text(REASON_CODES)
    yield from sites.planning(collections, *MODULES)


@pytest.fixture
def site(tmp_path: pathlib.Path, planning: types.SimpleNamespace) -> sites.Site:
    return sites.Site(tmp_path, planning)


def refused(site: sites.Site, hosts: dict[str, t.Any]) -> str:
    with pytest.raises(site.of.interface.PlanError) as caught:
        site.planner(hosts=hosts).build(RUN, ["stack"])
    return str(caught.value)


def test_its_variables_have_its_defaults_and_ranges_and_belong_to_its_hosts(site: sites.Site) -> None:
    box = {"acceptance_plane": "process", "acceptance_process_key": "hunter2"}
    plan, _stages, settings = site.planner(hosts={"box": box}).build(RUN, ["stack"])
    assert settings["box"]["acceptance_process_slots"] == 2 and "hunter2" not in site.of.planner.dump(plan)
    many, misspelt = {"box": {**box, "acceptance_process_slots": 9}}, {"box": {**box, "acceptance_process_slot": 1}}
    assert "acceptance_process_slots: found 9, expected at least 1 and at most 8" in refused(site, many)
    assert "unknown variable acceptance_process_slot;" in refused(site, misspelt)
    assert "acceptance_process_slots has no effect on plane ssh" in refused(site, {"gpu-01": {"acceptance_process_slots": 1}})


def measured(site: sites.Site, hosts: dict[str, t.Any]) -> list[t.Any]:
    """Plan a group stage on the hosts, run it on each by its plane, and return the measurements of the journal."""
    plan, stages, settings = site.planner(hosts=hosts).build(RUN, ["nccl_fabric"])
    run = site.of.run.Run(site.folder, RUN)
    run.make()
    (run.dir / "plan.json").write_text(site.of.planner.dump(plan))
    todo: dict[str, t.Any] = {}
    for item in plan.items:
        todo.setdefault(item.target, {}).setdefault(item.stage, []).append(item.todo(1))
    action = types.SimpleNamespace(spec={}, _templar=types.SimpleNamespace(template=lambda value: value))
    planned = {"run_id": RUN, "results_dir": str(site.folder)}
    for host, stages_of in todo.items():
        run.mailbox.assign(host, {"settings": settings[host], "stages": stages_of})
        for stage in stages:
            if stage.name in stages_of:
                plane = site.of.registry.of(settings[host], host)
                plane.on(action, planned, {"inventory_hostname": host, "acceptance_stage": {**stage.entry, "hosts": 1}}).run()
    return list(run.journal.read()[0])


def test_it_runs_a_group_of_its_nodes_its_own_way(site: sites.Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.of.run.Run, "is_mine", lambda _run, _driver: True)
    records = [m for m in measured(site, BOX) if m.stage == "nccl_fabric"]
    group = [m for m in records if m.subject.kind == "group"]
    (place,) = {(m.subject.id, tuple(m.subject.members), m.plane) for m in group}
    assert place == ("nccl_fabric/box", ("box/a", "box/b"), "process")
    assert {m.metrics["rate"].value for m in group} == {100.0}
    assert {m.subject.id for m in records if m.check == site.of.grouping.MEMBER} == {"box/a", "box/b"}


def test_its_reason_codes_are_kept_with_its_advice(site: sites.Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.of.run.Run, "is_mine", lambda _run, _driver: True)
    records = measured(site, {"box": {"acceptance_plane": "process", "acceptance_process_slots": 1}})
    assert records and {(m.outcome, m.reason_code) for m in records} == {("error", "no_slot")}
    assert site.of.advice.ADVICE["no_slot"] == "Raise acceptance_process_slots."
    assert site.of.reason_codes.ALL["no_slot"] == "more processes were asked for than there are slots"
