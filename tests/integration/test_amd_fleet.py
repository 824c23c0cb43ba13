# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stages between nodes with AMD GPUs through Ansible over sshd hosts: real mpirun and SSH with a stand-in for rccl-tests, real PyTorch over
gloo; the GPUs are simulated."""

from __future__ import annotations

import pathlib
import shutil
import typing as t

import pytest
from rigs import common, pytorch
from rigs.fleet.fleet import Fleet
from rigs.simulated import nodes
from rigs.simulated.mpi import build
from test_ddp_fleet import SMALL
from test_fabric_fleet import COMMON, nothing_left, run

pytestmark = [pytest.mark.fleet, pytest.mark.long]
MODEL = "AMD Instinct MI300X"
TOOLS = "/opt/simulated/bin"
EXPECTED = [
    {"id": "rccl", "match": {"stage": "nccl_fabric", "check": "all_reduce", "gpu": MODEL, "size": 1 << 30}, "metric": "busbw", "value": 375,
     **COMMON},
    {"id": "gloo", "match": {"stage": "ddp", "check": "all_reduce", "size": 256 << 10}, "metric": "busbw", "value": 0.0001, **COMMON},
]  # fmt: skip


@pytest.fixture
def fleet(rig_fleet: Fleet, tmp_path: pathlib.Path) -> t.Iterator[Fleet]:
    common.need_packages(pytorch.PACKAGES)
    rig_fleet.up(2)
    build.plant(rig_fleet, build.build("openmpi", tmp_path))
    for number, host in enumerate(rig_fleet.hosts, 1):
        nodes.planted(rig_fleet.plant(host), number, model=MODEL, gpus=2)
        (rig_fleet.plant(host) / "bin/nvidia-smi").unlink()
        build.behave(rig_fleet, host, amd=1)
        rig_fleet.inside(host, "sh", "-c", "echo nameserver 127.0.0.1 > /etc/resolv.conf")
    yield rig_fleet
    nothing_left(rig_fleet)
    for host in rig_fleet.hosts:
        shutil.rmtree(rig_fleet.plant(host) / "bin", ignore_errors=True)


def test_nodes_with_amd_gpus_are_a_group_of_nccl_fabric_and_of_ddp(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    ddp = {f"ddp_{name}": value for name, value in {**SMALL, "straggler_percent": 1000.0}.items()}
    done = run(
        fleet, tmp_path / "results", acceptance_stages=["stack", "nccl_fabric", "ddp"], acceptance_expectations=EXPECTED,
        acceptance_gpu_count=2, acceptance_amd_smi=f"{TOOLS}/amd-smi", stack_python=f"{TOOLS}/python3", **ddp,
    )  # fmt: skip
    bad = [(v["subject"]["id"], v["check"], v["reason"]) for v in done.verdicts if v["verdict"] not in ("PASS", "WARN", "SKIPPED")]
    assert done.status == 0 and not bad, (bad, done.output[-3000:])
    assert {"PASS"} == done.of("nccl_fabric", "all_reduce") == done.of("ddp", "all_reduce")
    assert done.group()["context"]["gpu"] == MODEL and done.group()["simulated"]
