# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rails of a group by themselves: real mpirun over sshd hosts, a real MPI program that stands in for nccl-tests and says what NCCL says."""

from __future__ import annotations

import pathlib
import shutil
import typing as t

import pytest
import test_fabric_fleet as fabric
from rigs.fleet.fleet import Fleet, Options
from rigs.simulated import pairs
from rigs.simulated.mpi import build

pytestmark = pytest.mark.fleet
HOSTS, RAILS = 4, 4
ONE = {"stage": "nccl_fabric", "check": "all_reduce", "nics": 1, "size": 1 << 30}
EXPECTED = {**fabric.EXPECTED, "id": "test-rail", "match": ONE, "value": 47}


@pytest.fixture(scope="module")
def hosts(rig_fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Fleet]:
    trees, options = tmp_path_factory.mktemp("sysfs"), {}
    for number in range(1, HOSTS + 1):
        host = f"gpu-{number:02d}"
        pairs.sysfs(trees / host, [f"10.{rail}.0.{number}" for rail in range(RAILS)], seed=host)
        options[host] = Options(overlays=((str(trees / host / "sys/class"), "/sys/class"),))
    shutil.rmtree(trees / "gpu-02/sys/class/infiniband/mlx5_2")
    rig_fleet.up(HOSTS, options)
    build.plant(rig_fleet, build.build("openmpi", tmp_path_factory.mktemp("mpi")))
    yield rig_fleet
    fabric.nothing_left(rig_fleet)


def test_a_bad_rail_is_found_and_nothing_else_passes_for_one(hosts: Fleet, tmp_path: pathlib.Path) -> None:
    """The first rail is well; the port of one node is slow on the second; one node lacks the third; one takes sockets for the fourth."""
    build.behave(hosts, "gpu-03", slow__mlx5_1=0.5)
    build.behave(hosts, "gpu-01", socket__mlx5_3=1)
    rails = [f"mlx5_{rail}" for rail in range(RAILS)]
    done = fabric.run(hosts, tmp_path, nccl_fabric_rails=rails, nccl_fabric_gpus=[], acceptance_expectations=[EXPECTED])
    of = {v["variant"].split()[1]: v for v in done.verdicts if v["subject"]["id"] == "nccl_fabric"}
    found = {words.removeprefix("rail="): (v["verdict"], v["reason_code"]) for words, v in of.items()}
    assert {rail: verdict for rail, (verdict, _code) in found.items()} == dict(zip(rails, ("PASS", "FAIL", "UNKNOWN", "UNKNOWN"))), of
    assert found["mlx5_2"][1] == "no_rdma" and "gpu-02 has no such device" in of["rail=mlx5_2"]["reason"]
    assert found["mlx5_3"][1] == "other_way" and "NCCL on gpu-01 used no RDMA device" in of["rail=mlx5_3"]["reason"]
    assert done.status != 0 and done.convicted() == {"gpu-03"}, done.output[-3000:]
    blamed = [v["variant"] for v in done.verdicts if v["check"] == "localise"]
    assert blamed and all("rail=mlx5_1" in variant for variant in blamed) and "over rail mlx5_1" in done.reason("gpu-03", "localise")
    measured = {m["context"]["rail"]: m["context"] for m in done.journal if m["outcome"] == "measured" and "rail" in m["context"]}
    assert measured["mlx5_0"]["nics"] == 1 and measured["mlx5_0"]["slot"] == 0 and measured["mlx5_1"]["slot"] == 2
