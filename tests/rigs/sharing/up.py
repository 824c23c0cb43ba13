#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts up two simulated clusters with a system that shares GPUs, writes their inventory, and takes them down at Ctrl-C."""

from __future__ import annotations

import argparse
import functools
import json
import os
import pathlib
import signal
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / ".collections")]

from harness.sharing import two_clusters  # noqa: E402
from harness.sharing_runs import NODES, PARAMETERS  # noqa: E402
from rigs.sharing.real import build  # noqa: E402
from rigs.sharing.real.real import Real  # noqa: E402
from rigs.sharing.sharing import Sharing  # noqa: E402

INVENTORY = ROOT / ".cache" / "sharing" / "clusters.json"
# What the real system needs beside the parameters of the stand-in: quotas hold over 4 s, and annotations are looked at every 5 s.
REAL = {"quota_window_s": 4, "dynamic_update_expect_s": 15, "dynamic_update_observe_timeout_s": 60, "probe_timeout_s": 90}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default="2,1", help="nodes of the two clusters (2,1)")
    parser.add_argument("--source", type=pathlib.Path, help="a clone of the real system's repository, to run it instead of the stand-in")
    parser.add_argument("--prefix", default="nvshare", choices=sorted(build.COMMITS), help="the name of the system (nvshare)")
    parser.add_argument("--commit", default="", help="the commit of the real system to build, such as one with a planted defect")
    given = parser.parse_args()
    if os.geteuid():
        parser.error("rigs make namespaces and mounts: run as root")
    # A signal ends it like Ctrl-C, so that nothing is left.
    signal.signal(signal.SIGTERM, lambda *_args: signal.raise_signal(signal.SIGINT))
    if given.source:
        system = functools.partial(Real, source=given.source, prefix=given.prefix, commit=given.commit)
        parameters, speeds = {**PARAMETERS, **REAL}, (0.2, 0.04)
    else:
        system, parameters, speeds = functools.partial(Sharing, prefix=given.prefix), PARAMETERS, (1.0, 0.2)
    first, second = (int(number) for number in given.nodes.split(","))
    print("Two clusters are made; the first time their programs are built, which takes some minutes.", flush=True)
    with two_clusters((first, second), speeds=speeds, system=system) as clusters:
        inventory = clusters.inventory(gpu_sharing_parameters=parameters, acceptance_simulated=True, gpu_sharing_scale=0.002)
        for cluster, nodes in NODES.items():
            there = clusters.both[cluster].cluster.nodes
            inventory["all"]["hosts"][f"lab-{cluster}"].update({variable: node for variable, node in nodes.items() if node in there})
        INVENTORY.parent.mkdir(parents=True, exist_ok=True)
        INVENTORY.write_text(json.dumps(inventory, indent=1) + "\n")
        where = INVENTORY.relative_to(ROOT)
        print("Both clusters are up until Ctrl-C. In another shell:", flush=True)
        print(f"    ansible-playbook playbooks/gpu_sharing.yml -i {where}", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("Both clusters are taken down.", flush=True)
        finally:
            INVENTORY.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
