# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Builds the simulated nccl-tests for an MPI library of this machine, and puts it on a fleet's hosts."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import typing as t

from rigs import common
from rigs.fleet.fleet import Fleet
from rigs.simulated import nodes

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = {
    "openmpi": {"/usr/bin/mpicc.openmpi": "libopenmpi-dev", "/usr/bin/mpirun.openmpi": "openmpi-bin", "gcc": "gcc"},
    "mpich": {"/usr/bin/mpicc.mpich": "libmpich-dev", "/usr/bin/mpiexec.hydra": "mpich", "gcc": "gcc"},
}


def build(library: str, folder: pathlib.Path) -> pathlib.Path:
    """all_reduce_perf linked with `openmpi` or `mpich`."""
    common.need_packages(PACKAGES[library])
    binary = folder / f"all_reduce_perf_{library}"
    subprocess.run([f"mpicc.{library}", "-O1", "-Wall", "-Werror", "-o", binary, HERE / "all_reduce_perf.c"], check=True)
    return binary


def plant(fleet: Fleet, binary: pathlib.Path) -> None:
    """Every host of the fleet gets the tools of a simulated node and this binary as all_reduce_perf_mpi; no host has a fault."""
    for number, host in enumerate(fleet.hosts, 1):
        nodes.planted(fleet.plant(host), number)
        behave(fleet, host)
        shutil.copy(binary, fleet.plant(host) / "bin" / "all_reduce_perf_mpi")


def behave(fleet: Fleet, host: str, **settings: t.Any) -> None:
    """How a host behaves, as all_reduce_perf.c reads it: slow=0.5, slow3=0.5, hang=1 ... A dash in a name is written as two
    underscores."""
    lines = [f"{name.replace('__', '-')}={value}\n" for name, value in settings.items()]
    (fleet.plant(host) / "fabric.conf").write_text("".join(lines))
