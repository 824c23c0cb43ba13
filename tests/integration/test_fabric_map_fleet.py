# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stage fabric_map over sshd hosts with two Ethernet ports each, whose switches a stand-in for lldpctl tells."""

from __future__ import annotations

import json
import pathlib
import subprocess
import typing as t

import pytest
import test_fabric_fleet as fabric
from harness import journals
from rigs.fleet.fleet import Fleet, Options
from rigs.simulated import pairs
from rigs.simulated.mpi import build

pytestmark = pytest.mark.fleet
ROOT = pathlib.Path(__file__).resolve().parents[2]
HOSTS = 6
LLDPCTL = "#!/bin/sh\ncat /opt/simulated/neighbours.json\n"


@pytest.fixture(scope="module")
def hosts(rig_fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    trees = tmp_path_factory.mktemp("fabric")
    (trees / "bin").mkdir()
    (trees / "bin/lldpctl").write_text(LLDPCTL)
    (trees / "bin/lldpctl").chmod(0o755)
    options = {}
    for number in range(1, HOSTS + 1):
        host = f"gpu-{number:02d}"
        address = rig_fleet.address(host)
        pairs.sysfs(trees / host, [address, f"192.0.2.{number}"], seed=host)
        laid = ((str(trees / host / "sys/class"), "/sys/class"), (str(trees / "bin"), "/usr/local/bin"))
        options[host] = Options(overlays=laid)
    rig_fleet.up(HOSTS, options)
    return rig_fleet


def plug(fleet: Fleet, **swapped: tuple[int, int]) -> None:
    """Plug port k of each host into leaf k, but those of `swapped`, {host with _ for -: leaves of its ports}."""
    for number, host in enumerate(fleet.hosts, 1):
        interfaces = [
            {
                f"ens{rail}np0": {
                    "via": "LLDP", "chassis": {f"leaf-{leaf}": {"id": {"type": "mac", "value": f"3a:b1:38:98:fa:0{leaf}"}}},
                    "port": {"id": {"type": "ifname", "value": f"swp{number}"}, "descr": f"swp{number}"},
                }
            }
            for rail, leaf in enumerate(swapped.get(host.replace("-", "_"), (1, 2)))
        ]  # fmt: skip
        (fleet.plant(host) / "neighbours.json").write_text(json.dumps({"lldp": {"interface": interfaces}}))


def run(fleet: Fleet, results: pathlib.Path, **variables: t.Any) -> tuple[int, str, list[dict[str, t.Any]]]:
    values = {"acceptance_results_dir": str(results), "acceptance_stages": ["fabric_map"], **variables}
    done = subprocess.run(
        [str(ROOT / ".venv/bin/ansible-playbook"), "acceptance.yml", "-i", str(fleet.inventory), "-e", json.dumps(values)], cwd=ROOT,
        check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip
    assert "Traceback" not in done.stdout
    (plan,) = results.glob("*/plan.json")
    return done.returncode, done.stdout, [json.loads(line) for line in (plan.parent / "verdicts.jsonl").read_text().splitlines()]


def test_two_exchanged_cables_are_found_and_cables_that_are_right_pass(hosts: Fleet, tmp_path: pathlib.Path) -> None:
    plug(hosts)
    status, output, verdicts = run(hosts, tmp_path / "right")
    by_check = {(v["check"], v["verdict"]) for v in verdicts}
    assert status == 0 and {("ports", "PASS"), ("cables", "PASS")} <= by_check, output[-3000:]
    plug(hosts, gpu_03=(2, 1))
    status, output, verdicts = run(hosts, tmp_path / "wrong")
    (bad,) = [v for v in verdicts if v["verdict"] == "FAIL"]
    assert status != 0 and bad["subject"]["id"] == "gpu-03" and bad["reason_code"] == "cable_swapped", output[-3000:]
    journal = journals.of(next((tmp_path / "wrong").glob("*/plan.json")).parent)
    heard = next(m for m in journal if m["check"] == "ports" and m["subject"]["id"] == "gpu-03")["context"]["ports"]
    assert [[each[:2] for each in port["heard"]] for port in heard] == [[["leaf-2", "swp3"]], [["leaf-1", "swp3"]]]
    assert not [path for host in hosts.hosts for path in (hosts.var_lib(host) / "gpufleet-acceptance").glob("*")]


@pytest.mark.long
def test_what_nccl_fabric_convicts_is_named_with_its_switch_and_port(hosts: Fleet, tmp_path: pathlib.Path) -> None:
    plug(hosts)
    build.plant(hosts, build.build("openmpi", tmp_path))
    build.behave(hosts, "gpu-04", slow=0.5)
    done = fabric.run(hosts, tmp_path / "runs", acceptance_stages=["fabric_map", "nccl_fabric"])
    assert done.convicted() == {"gpu-04"}, done.output[-3000:]
    said = done.reason("gpu-04", "localise")
    assert "gpu-04 mlx5_0/1 is plugged into port swp4 of leaf-1" in said and "mlx5_1/1 is plugged into port swp4 of leaf-2" in said, said
    # A run without a map takes that of the newest run before it, and says so.
    build.behave(hosts, "gpu-04")
    build.behave(hosts, "gpu-03", path__gpu__04=0.5)
    path = fabric.run(hosts, tmp_path / "runs")
    assert path.convicted() == {"gpu-03|gpu-04"}, path.output[-3000:]
    said = path.reason("gpu-03|gpu-04", "localise")
    assert "port swp3 of leaf-1" in said and "port swp4 of leaf-1" in said and f"by the map of run {done.folder.name}" in said, said
    fabric.nothing_left(hosts)
