# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stage hccl over a real Slurm: MPICH's mpirun enters the nodes of its job by steps, none of which has an sshd."""

from __future__ import annotations

import pathlib

import pytest
from harness.slurm_runs import Runs
from rigs.simulated import nodes
from rigs.simulated.mpi import build
from rigs.slurm.slurm import Slurm

pytestmark = [pytest.mark.fleet, pytest.mark.long]
SSHD = "/usr/sbin/sshd"
TOOLS = "/opt/simulated/bin"
HCCL = {
    "acceptance_slurm_launcher": "srun", "hccl_gpus": [2], "hccl_repeats": 1,
    "hccl_join_timeout": 60, "hccl_test_timeout": 90,
    **{f"{stage}_binary_dir": TOOLS for stage in ("hccl", "hccl_local")},
    **{f"{stage}_mpirun": f"{build.ON_HOSTS}/bin/mpirun" for stage in ("hccl", "hccl_local")},
    "acceptance_gpu_count": 2,
    **nodes.tools_at(TOOLS, "Ascend 910B3"),
    "acceptance_expectations": [
        {"id": f"test-{stage}", "match": {"stage": stage, "check": "all_reduce", "gpu": "Ascend 910B3", "size": 64 << 20},
         "metric": "busbw", "value": 158, "unit": "GB/s", "source": "test", "date": "2026-11", "confidence": "measured"}
        for stage in ("hccl", "hccl_local")
    ],
}  # fmt: skip


def test_mpich_enters_the_nodes_of_a_job_by_steps(rig_slurm: Slurm, tmp_path: pathlib.Path) -> None:
    runs, fleet = Runs(rig_slurm, tmp_path), rig_slurm.fleet
    build.plant_npus(fleet, build.hccl_test(tmp_path, str(build.mpich() / "bin/mpicc")), gpus=2)
    hosts = fleet.hosts[1:]  # by the sshd of the first one the controller comes
    for host in hosts:
        fleet.inside(host, "mv", SSHD, f"{SSHD}.away")
    try:
        done = runs.run(["hccl"], **{**HCCL, "acceptance_nodes": {"names": hosts}})
    finally:
        for host in hosts:
            fleet.inside(host, "mv", f"{SSHD}.away", SSHD)
    assert done.status == 0, done.output
    (group,) = [m for m in done.journal if m["subject"]["kind"] == "group"]
    assert group["context"]["hosts"] == dict.fromkeys(hosts, 2) and group["context"]["launcher"] == "Hydra 4.3.2"
    runs.nothing_left(30)
