# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A plane and stages that live outside the collection: a whole acceptance, without a change of anything shared."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import typing as t

import pytest
import yaml
from harness import journals

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = "ansible_collections.gpufleet.acceptance.plugins"

PLANE = f"""
from {PACKAGE}.module_utils.answer import observation
from {PACKAGE}.plugin_utils.planes import base

class OnToy(base.StageOnTarget):
    def run(self):
        found = []
        for check, variant, subject in self.planned:
            kind = self.planned[check, variant, subject]["subject"]["kind"]
            assert self.args()["metrics"][0]["name"] == "rate"
            seen = observation.measured(check, variant=variant, metrics={{"rate": {{"value": 95.0, "unit": "GB/s"}}}})
            if kind == "pair":
                seen["subject"] = self.planned[check, variant, subject]["subject"]
            found.append(self.completer.complete(seen, "" if kind == "pair" else subject))
        self.keep(found)
        return self.result(found)

class Toy(base.Plane):
    name = "toy"
    def subjects(self, host, settings):
        return [f"{{host}}/a", f"{{host}}/b"], ["the toys were counted"]
    def reachability_domain(self, host):
        return host
    def on(self, action, planned, task_vars):
        return OnToy(action, planned, task_vars, self.name)

PLANE = Toy()
"""

BETWEEN = f"""
from {PACKAGE}.plugin_utils.records.keys import pair_of
from {PACKAGE}.plugin_utils.stages import base

class Link(base.Stage):
    topology = base.ROUNDS
    def items(self, nodes, settings):
        names = sorted(nodes)
        pair = {{"kind": "pair", "id": pair_of(*names[:2]), "members": []}}
        return [{{"check": "link", "variant": "", "subject": pair, "target": nodes[names[0]]}}], ["one link"]
    def work(self, run, plan, todos):
        return {{target: base.StageWork() for target in todos}}

STAGE = Link()
"""

TASK = """
- name: Measure
  gpufleet.acceptance.measure:
    argv: [echo, "rate=95"]
    metrics: [{name: rate, unit: GB/s, regex: 'rate=([0-9]+)'}]
"""

PROBED = f"""
from {PACKAGE}.plugin_utils.stages import base

class Scratch(base.Stage):
    probe = "scratch.py"

STAGE = Scratch()
"""

PROBE = f"""
from {PACKAGE}.module_utils.answer import observation

def probe(params, node):
    for check in params["checks"]:
        rate = {{"value": params["options"]["rate"], "unit": "GB/s"}}
        yield observation.measured(check["check"], variant=check["variant"], metrics={{"rate": rate}})
"""


def expectation(stage: str) -> dict[str, t.Any]:
    return {
        "id": f"{stage}-rate", "match": {"stage": stage}, "metric": "rate", "value": 95, "unit": "GB/s", "source": "a toy",
        "date": "2026-11", "confidence": "measured",
    }  # fmt: skip


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with a collection that holds the plane, and with roles of two stages."""
    plugin_utils = tmp_path / "collections/ansible_collections/toy/lab/plugins/plugin_utils"
    plugin_utils.mkdir(parents=True)
    (plugin_utils / "plane.py").write_text(PLANE)
    for role, described in (("disk", ""), ("link", BETWEEN)):
        for name, text in (
            ("defaults/main.yml", f"{role}_checks: [{{check: {role}}}]\n"),
            ("tasks/main.yml", TASK),
            ("files/stage.py", described),
        ):
            if text:
                path = tmp_path / "roles" / role / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    for name, text in (
        ("defaults/main.yml", "scratch_checks: [{check: scratch}]\nscratch_rate: 95.0\n"),
        ("tasks/main.yml", "- name: Measure\n  gpufleet.acceptance.own_probe:\n    options: {rate: '{{ scratch_rate }}'}\n"),
        ("files/stage.py", PROBED),
        ("files/scratch.py", PROBE),
    ):
        path = tmp_path / "roles" / "scratch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def accept(place: pathlib.Path, hosts: dict[str, t.Any], stages: list[t.Any]) -> tuple[int, str, list[dict[str, t.Any]]]:
    names = [stage["name"] for stage in stages]
    variables = {"acceptance_stages": stages, "acceptance_expectations": [expectation(name) for name in names]}
    (place / "inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": variables}}))
    paths = f"{ROOT / '.collections'}:{place / 'collections'}"
    environment = {
        **os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_COLLECTIONS_PATH": paths, "PYTHONPATH": paths,
        "ANSIBLE_ROLES_PATH": str(place / "roles"),
    }  # fmt: skip
    done = subprocess.run(
        ["ansible-playbook", str(ROOT / "acceptance.yml"), "-i", "inventory.yml", "-e", f"acceptance_results_dir={place / 'results'}"],
        cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    written = [line for path in place.glob("results/*/verdicts.jsonl") for line in path.read_text().splitlines()]
    return done.returncode, done.stdout + done.stderr, [json.loads(line) for line in written]


def test_a_plane_and_stages_of_ones_own_are_accepted_like_the_shipped_ones(place: pathlib.Path) -> None:
    toy = {"acceptance_plane": "ansible_collections.toy.lab.plugins.plugin_utils.plane"}
    status, output, verdicts = accept(place, {"box": toy}, [{"name": "disk", "role": "disk"}, {"name": "link", "role": "link"}])
    assert status == 0, output[-3000:]
    found = {(v["stage"], v["subject"]["kind"], v["subject"]["id"], v["verdict"]) for v in verdicts}
    nodes = {("disk", "node", "box/a", "PASS"), ("disk", "node", "box/b", "PASS")}
    assert found == nodes | {("link", "pair", "box/a|box/b", "PASS")}
    assert "the toys were counted" in output and "one link" in output
    assert {m["plane"] for m in journals.all_in(place / "results")} == {"toy"}


def test_a_stage_of_ones_own_is_the_same_on_a_machine_behind_ssh(place: pathlib.Path) -> None:
    machine = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "acceptance_become": False,
               "acceptance_state_dir": str(place / "state")}  # fmt: skip
    status, output, verdicts = accept(place, {"box": machine}, [{"name": "disk", "role": "disk"}])
    assert (status, [v["verdict"] for v in verdicts]) == (0, ["PASS"]), output[-3000:]


def test_a_probe_of_ones_own_is_run_on_a_machine_behind_ssh(place: pathlib.Path) -> None:
    machine = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "acceptance_become": False,
               "acceptance_state_dir": str(place / "state")}  # fmt: skip
    status, output, verdicts = accept(place, {"box": machine}, [{"name": "scratch", "role": "scratch"}])
    assert (status, [(v["verdict"], v["value"]) for v in verdicts]) == (0, [("PASS", 95.0)]), output[-3000:]


@pytest.mark.parametrize("plane", ["pbs", "ansible_collections.toy.lab.plugins.plugin_utils.nothing"])
def test_an_unknown_plane_is_refused_by_the_plan(place: pathlib.Path, plane: str) -> None:
    status, output, _verdicts = accept(place, {"box": {"acceptance_plane": plane}}, [{"name": "disk", "role": "disk"}])
    assert status != 0 and "box: acceptance_plane" in output and "Traceback" not in output
    assert not list(place.glob("results/*/journal.*"))


def test_a_description_that_cannot_be_used_is_named(place: pathlib.Path) -> None:
    (place / "roles/link/files/stage.py").write_text("STAGE = 1\n")
    status, output, _verdicts = accept(place, {"box": {"ansible_connection": "local"}}, [{"name": "link", "role": "link"}])
    assert status != 0 and "files/stage.py: found no STAGE" in " ".join(output.split()) and "Traceback" not in output


SINK = f"""
import json

from {PACKAGE}.plugin_utils.sinks import base

class Ledger(base.Sink):
    \"\"\"Notes down what it is told.\"\"\"
    name = "ledger"
    options = {{"file": {{"type": "path", "required": True}}, "token": {{"type": "str", "no_log": True}}}}

    def kept(self, of, options):
        with open(options["file"], "a") as target:
            for m in of.measurements:
                target.write(json.dumps([m["stage"], m["subject"]["id"], m["outcome"]]) + "\\n")
        raise OSError("the ledger is away")

    def judged(self, of, options):
        with open(options["file"], "a") as target:
            target.write(json.dumps([of.judgement.accepted, [node["verdict"] for node in of.judgement.nodes]]) + "\\n")
        raise SystemExit("wrong token " + options["token"])

SINK = Ledger()
"""


def test_a_sink_of_ones_own_is_told_and_its_failure_is_a_note(place: pathlib.Path) -> None:
    (place / "collections/ansible_collections/toy/lab/plugins/plugin_utils/ledger.py").write_text(SINK)
    told = {"sink": "toy.lab.plugins.plugin_utils.ledger", "options": {"file": str(place / "ledger"), "token": "s3cret"}}
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "acceptance_become": False}
    state = {"acceptance_state_dir": str(place / "state"), "acceptance_sinks": [told]}
    status, output, verdicts = accept(place, {"here": {**local, **state}}, [{"name": "disk", "role": "disk"}])
    assert status == 0 and [v["verdict"] for v in verdicts] == ["PASS"], output[-3000:]
    heard = [json.loads(line) for line in (place / "ledger").read_text().splitlines()]
    assert heard == [["disk", "here", "measured"], [True, ["PASS"]]]
    assert "sink ledger: disk on here: OSError: the ledger is away" in output
    assert "sink ledger was not told of the judgement: SystemExit: wrong token ********" in output
    (folder,) = place.glob("results/*/")
    assert "sink ledger was not told of measurements (1 times): OSError: the ledger is away" in (folder / "report.json").read_text()
    assert [json.loads(line)["event"] for line in (folder / "sinks.jsonl").read_text().splitlines()] == ["kept", "judged"]
    assert not [path for path in folder.rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()]
    told["options"] = {"flie": "x"}
    status, output, _verdicts = accept(place, {"here": {**local, **state}}, [{"name": "disk", "role": "disk"}])
    assert status != 0 and "acceptance_sinks[0]: sink ledger: " in output and "flie" in output
