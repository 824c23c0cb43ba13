# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stage fabric_map over 16 sshd hosts whose unmodified tools of infiniband-diags see a fat tree of ibsim that OpenSM has brought up."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import threading
import time
import typing as t

import pytest
from harness import journals
from harness.fat_tree import FatTree
from rigs.fleet.fleet import Fleet, Options
from rigs.infiniband import DEVICE, Fabric

pytestmark = [pytest.mark.fleet, pytest.mark.long]
ROOT = pathlib.Path(__file__).resolve().parents[2]
HOSTS = 16
# A stage that works the machines: until the test says so.
ROLE = {
    "defaults/main.yml": "work_checks: \"{{ {'check': ['work']} | gpufleet.acceptance.checks }}\"\n",
    "tasks/main.yml": "- name: Work\n  gpufleet.acceptance.measure:\n    argv: [work]\n    metrics: []\n",
}
WORK = "#!/bin/sh\ntouch /opt/simulated/at-work\nuntil [ -e /opt/simulated/go ]; do sleep 0.1; done\n"


class Site:
    """Hosts that are plugged into a fabric."""

    def __init__(self, fleet: Fleet, folder: pathlib.Path) -> None:
        self.fleet, self.folder = fleet, folder
        options = {}
        for host in tree().hosts:
            self.plug(Fabric(tree()), host)
            laid = ((str(folder / host / "sys/class"), "/sys/class"), (str(folder / host / "dev"), "/dev"))
            options[host] = Options(overlays=laid)
        fleet.up(HOSTS, options)
        for name, text in ROLE.items():
            (folder / "roles/work" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "roles/work" / name).write_text(text)

    def plug(self, fabric: Fabric, host: str) -> None:
        """Let the kernel of a host say what its port has in this fabric."""
        fabric.sysfs(host, self.folder / host)

    def join(self, fabric: Fabric) -> None:
        """Plug all hosts in, and give them the tools at their adapters."""
        for host in self.fleet.hosts:
            self.plug(fabric, host)
            plant = self.fleet.plant(host)
            fabric.plant(host, plant, "/opt/simulated")
            (plant / "bin/work").write_text(WORK)
            (plant / "bin/work").chmod(0o755)
            for flag in ("at-work", "go"):
                (plant / flag).unlink(missing_ok=True)

    def run(self, results: pathlib.Path, stages: t.Sequence[t.Any] = ("fabric_map",), **variables: t.Any) -> tuple[int, str, Verdicts]:
        values = {
            "acceptance_results_dir": str(results), "acceptance_stages": list(stages), "fabric_map_watch": 1,
            "fabric_map_devices": [DEVICE], **variables,
        }  # fmt: skip
        shutil.rmtree(results, ignore_errors=True)
        done = subprocess.run(
            [str(ROOT / ".venv/bin/ansible-playbook"), "acceptance.yml", "-i", str(self.fleet.inventory), "-f", str(HOSTS), "-e",
             json.dumps(values)],
            cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL, timeout=500,
            env={**os.environ, "ANSIBLE_ROLES_PATH": str(self.folder / "roles")},
        )  # fmt: skip
        assert "Traceback" not in done.stdout, done.stdout[-3000:]
        (plan,) = results.glob("*/plan.json")
        verdicts = [json.loads(line) for line in (plan.parent / "verdicts.jsonl").read_text().splitlines()]
        return done.returncode, done.stdout, verdicts

    def left(self) -> list[str]:
        """Return what a run has left on the hosts: files, and processes beside sshd."""
        files = [str(path) for host in self.fleet.hosts for path in (self.fleet.var_lib(host) / "gpufleet-acceptance").glob("*")]
        for host in self.fleet.hosts:
            files += [f"{host}: {path}" for path in self.fleet.find(host, "/tmp", "-mindepth", "1")]
        return files


Verdicts = t.List[t.Dict[str, t.Any]]


def tree() -> FatTree:
    return FatTree(HOSTS, digits=2)


def plan(folder: pathlib.Path) -> str:
    """Write the plan of the cables of a healthy fabric, and return its path."""
    rows = [f"{host},{DEVICE},{leaf},{port}" for (host, _rail), (leaf, port) in tree().cables.values() if host.startswith("gpu")]
    path = folder / "cables.csv"
    path.write_text("\n".join(["node,port,switch,switch_port", *rows]) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def site(rig_fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(rig_fleet, tmp_path_factory.mktemp("site"))


def bad(verdicts: Verdicts, stage: str = "fabric_map") -> set[tuple[str, str, str]]:
    """Return subject, verdict and reason code of what is neither a pass nor left out."""
    return {
        (v["subject"]["id"], v["verdict"], v["reason_code"])
        for v in verdicts if v["stage"] == stage and v["verdict"] not in ("PASS", "SKIPPED")
    }  # fmt: skip


def test_a_healthy_fabric_is_accepted_by_plan_and_by_symmetry_and_nothing_is_left(site: Site, tmp_path: pathlib.Path) -> None:
    with Fabric(tree()) as fabric:
        site.join(fabric)
        status, output, verdicts = site.run(tmp_path / "planned", acceptance_fabric_plan=plan(tmp_path))
    assert status == 0 and not bad(verdicts), output[-3000:]
    switches = {v["subject"]["id"] for v in verdicts if v["check"] == "cables" and v["verdict"] == "PASS"}
    assert switches == {"leaf-1", "leaf-2", "leaf-3", "leaf-4", "spine-1", "spine-2"}
    journal = journals.of(next((tmp_path / "planned").glob("*/plan.json")).parent)
    (first, second) = [m["context"]["fabrics"][0] for m in journal if m["check"] == "discovery"]
    assert sorted(first["links"]) == sorted(second["links"]) and len(first["links"]) == 32 and first["manager_lid"]
    # ibsim has no firmware, which is said and costs no verdict.
    assert list(first["not_looked_for"]) == ["vendstat"] and len(first["routes"]) == 6
    assert not site.left()


def test_cables_that_are_missing_exchanged_or_trained_down_are_found_and_nothing_else(site: Site, tmp_path: pathlib.Path) -> None:
    faulty = tree()
    faulty.swap("gpu-03:1", "gpu-05:1")
    del faulty.cables["gpu-07:1"]
    faulty.rates["gpu-10:1"] = "1xHDR"
    faulty.rates["leaf-1:5"] = "1xHDR"
    with Fabric(faulty) as fabric:
        site.join(fabric)
        _status, output, verdicts = site.run(tmp_path / "planned", acceptance_fabric_plan=plan(tmp_path))
    found = bad(verdicts)
    assert {(who, word) for who, word, _code in found} - {("spine-1", "FAIL")} == {
        ("gpu-03", "FAIL"), ("gpu-07", "FAIL"), ("gpu-10", "FAIL"), ("leaf-1", "FAIL"),
    }, output[-3000:]  # fmt: skip
    codes = {who: code for who, _word, code in found}
    assert codes == {"gpu-03": "cable_swapped", "gpu-07": "cable_missing", "gpu-10": "link_slow", "leaf-1": "link_slow"}
    assert not site.left()


def test_a_subnet_manager_that_is_gone_is_found(site: Site, tmp_path: pathlib.Path) -> None:
    with Fabric(tree()) as fabric:
        site.join(fabric)
        fabric.end_manager()
        _status, output, verdicts = site.run(tmp_path / "unmanaged")
    # Without a manager nothing goes by LID, so the witness cannot read the counters of ports.
    found = {(word, code) for _who, word, code in bad(verdicts)}
    assert found - {("UNKNOWN", "incomplete_output")} == {("FAIL", "subnet_manager")}, output[-3000:]


def test_nodes_that_know_different_subnet_managers_are_found(site: Site, tmp_path: pathlib.Path) -> None:
    with Fabric(tree()) as fabric:
        site.join(fabric)
        # OpenSM itself yields to the one that is there. What a split fabric shows is a port with another manager.
        (site.folder / "gpu-09" / "sys/class/infiniband" / DEVICE / "ports/1/sm_lid").write_text("0x63\n")
        _status, output, verdicts = site.run(tmp_path / "two")
    assert {(word, code) for _who, word, code in bad(verdicts)} == {("FAIL", "subnet_manager")}, output[-3000:]
    assert "LID 99 as gpu-09 say" in " ".join(v["reason"] for v in verdicts)


def test_counters_and_a_switch_that_go_wrong_while_the_run_works_are_found_at_its_end(site: Site, tmp_path: pathlib.Path) -> None:
    with Fabric(tree()) as fabric:
        site.join(fabric)
        worker = threading.Thread(target=_break, args=(site, fabric))
        worker.start()
        try:
            stages = ["fabric_map", {"name": "work", "role": "work"}]
            _status, output, verdicts = site.run(tmp_path / "during", stages)
        finally:
            worker.join()
    assert not bad(verdicts), output[-3000:]
    leaves = {"leaf-1", "leaf-2", "leaf-3", "leaf-4"}
    assert bad(verdicts, "fabric_map_after") == {(leaf, "FAIL", "cable_missing") for leaf in leaves}, output[-3000:]
    said = {v["subject"]["id"]: " ".join([v["reason"], *v["findings"]]) for v in verdicts if v["stage"] == "fabric_map_after"}
    assert {leaf for leaf in leaves if "SymbolErrorCounter by 1200" in said[leaf]} == {"leaf-2"}, said
    assert all("spine-2" in said[leaf] and "spine-1" not in said[leaf] for leaf in leaves), said
    assert not site.left()


def _break(site: Site, fabric: Fabric) -> None:
    """Once the hosts work, let the counters of a port rise and take a spine away; then let them end."""
    end = time.monotonic() + 300
    plants = [site.fleet.plant(host) for host in site.fleet.hosts]
    try:
        while time.monotonic() < end and not any((plant / "at-work").exists() for plant in plants):
            time.sleep(0.1)
        fabric.command(
            f"PerformanceSet {fabric.node('leaf-2')}[2] PortCounters.SymbolErrorCounter=1200",
            *(f"Unlink {fabric.node('spine-2')}[{port}]" for port in range(1, 9)),
        )
    finally:
        for plant in plants:
            (plant / "go").touch()
