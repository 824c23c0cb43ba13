#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Install the packages of every rig, before tests run side by side: hosts of the fleet lie over this machine's own files, which had
better not change under them. Each rig still asks for its own, for whoever uses it alone."""

from __future__ import annotations

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from rigs import browser, common, lldp, pytorch, rulebook, storage
from rigs.fleet import fleet
from rigs.kubernetes import images, kubernetes
from rigs.postgres import postgres
from rigs.prometheus import prometheus
from rigs.rdma import rdma
from rigs.simulated.mpi import build
from rigs.slurm import slurm

if __name__ == "__main__":
    if os.geteuid():
        print("not root: tests that need a rig will be skipped", file=sys.stderr)
        sys.exit(0)
    every: dict[str, str] = {}
    rigs = (fleet, rdma, kubernetes, images, browser, prometheus, postgres, pytorch, rulebook, lldp, slurm, storage)
    for packages in (*(rig.PACKAGES for rig in rigs), slurm.ACCOUNTING, *build.PACKAGES.values()):
        every.update(packages)
    try:
        common.need_packages(every)
    except common.RigError as error:
        sys.exit(f"{error}")
