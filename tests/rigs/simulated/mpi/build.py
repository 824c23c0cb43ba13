# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Builds the simulated nccl-tests for an MPI library of this machine, the simulated hccl_test for MPICH from PyPI (Debian 12's hangs), and
puts them on a fleet's hosts."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
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


MPICH = "4.3.2"
# Where a host finds it.
ON_HOSTS = "/opt/simulated/mpich"


def mpich() -> pathlib.Path:
    """MPICH from PyPI: a folder with bin and lib that works wherever it lies."""
    prefix = common.CACHE / f"mpich-{MPICH}"
    with common.locked(common.CACHE / "mpich.lock"):
        if not (prefix / "bin/mpirun").exists():
            new = prefix.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--ignore-installed", "--prefix", str(new)]
            common.run(*pip, f"mpich=={MPICH}")
            new.rename(prefix)
    return prefix


def hccl_test(folder: pathlib.Path, compiler: str) -> pathlib.Path:
    """all_reduce_test, built by this mpicc; of whatever name of hccl_test it is called, that it plays."""
    binary = folder / "all_reduce_test"
    flags = ["-O1", "-Wall", "-Werror", f"-Wl,-rpath,{ON_HOSTS}/lib"]
    subprocess.run([compiler, *flags, "-o", binary, HERE / "hccl_test.c"], check=True)
    return binary


def plant_npus(fleet: Fleet, binary: pathlib.Path, **settings: t.Any) -> None:
    """Every host of the fleet is a node with NPUs, MPICH and this hccl_test; none has a fault."""
    for number, host in enumerate(fleet.hosts, 1):
        there = fleet.plant(host)
        nodes.planted(there, number, model="Ascend 910B3", **settings)
        (there / "hccl.conf").write_text("")
        for name in ("all_reduce_test", "all_gather_test", "broadcast_test"):
            shutil.copy(binary, there / "bin" / name)
        if not (there / "mpich").exists():
            shutil.copytree(mpich(), there / "mpich", symlinks=True, copy_function=_link)


def _link(source: str, target: str) -> None:
    """A second name of a file where the file system can, else a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def plant(fleet: Fleet, binary: pathlib.Path) -> None:
    """Every host of the fleet gets the tools of a simulated node and this binary as all_reduce_perf_mpi; no host has a fault."""
    for number, host in enumerate(fleet.hosts, 1):
        nodes.planted(fleet.plant(host), number)
        behave(fleet, host)
        shutil.copy(binary, fleet.plant(host) / "bin" / "all_reduce_perf_mpi")


def behave(fleet: Fleet, host: str, **settings: t.Any) -> None:
    """Set how a host behaves, as all_reduce_perf.c reads it: slow=0.5, slow3=0.5, hang=1 ... A dash in a name is written as two
    underscores."""
    lines = [f"{name.replace('__', '-')}={value}\n" for name, value in settings.items()]
    (fleet.plant(host) / "fabric.conf").write_text("".join(lines))
