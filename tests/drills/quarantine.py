#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The quarantine drill: random sequences of runs, other tools' drains, restarts of the control plane, quarantine, undo and return, over a
real Slurm of four nodes and a real Kubernetes API of eight.

Each sequence comes from its seed, which is printed. After every step: no state of somebody else was touched, no job or pod was ended, no
cap was passed, nobody was taken who had been given back or found good since the run, and nobody was given back whose reason was not ours.
The last line is JSON: {"sequences": n, "steps": m, "drained": d, "resumed": r, "wrong": 0}. Exit status 0 exactly if `wrong` is 0.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import signal
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from harness import signals  # noqa: E402
from harness.own_rig import own  # noqa: E402
from harness.quarantine_worlds import KubernetesWorld, Sequence, SlurmWorld, World  # noqa: E402
from rigs.fleet.fleet import Fleet  # noqa: E402
from rigs.kubernetes.kubernetes import Kubernetes  # noqa: E402
from rigs.slurm.slurm import Slurm  # noqa: E402

NODES = {"slurm": 4, "kubernetes": 8}


def world_of(plane: str, rigs: contextlib.ExitStack, folder: pathlib.Path) -> World:
    """Stand up what a plane needs."""
    if plane == "slurm":
        fleet = rigs.enter_context(own(Fleet))
        fleet.up(NODES[plane])
        slurm = Slurm(fleet)
        slurm.up()
        return SlurmWorld(slurm, folder)
    cluster = rigs.enter_context(own(Kubernetes))
    cluster.up(nodes=0, operators=())
    for number in range(1, NODES[plane] + 1):  # nodes without kubelet: the API server and its controllers are what is tried
        cluster.api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"api-{number:02}"}})
    return KubernetesWorld(cluster)


def main() -> int:
    parser = argparse.ArgumentParser(description="Random sequences of quarantine; nothing of somebody else may be touched.")
    parser.add_argument("--sequences", type=int, default=200, help="of each plane")
    parser.add_argument("--steps", type=int, default=12, help="of each sequence")
    parser.add_argument("--seed", type=int, default=1, help="of the first sequence")
    parser.add_argument("--planes", nargs="+", choices=sorted(NODES), default=sorted(NODES, reverse=True))
    parser.add_argument("--tell", action="store_true", help="print each step")
    arguments = parser.parse_args()
    signals.restore()
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))  # takes the rigs down too
    counts = {"sequences": 0, "steps": 0, "drained": 0, "resumed": 0, "wrong": 0}
    for plane in arguments.planes:
        with contextlib.ExitStack() as rigs, tempfile.TemporaryDirectory(prefix="gpufleet-drill-") as folder:
            world = world_of(plane, rigs, pathlib.Path(folder))
            for seed in range(arguments.seed, arguments.seed + arguments.sequences):
                results = pathlib.Path(folder) / f"{plane}-{seed}"
                sequence = Sequence(world, results, seed)
                wrong = sequence.play(arguments.steps)
                counts["sequences"] += 1
                counts["steps"] += len(sequence.told)
                counts["drained"] += sequence.drained
                counts["resumed"] += sequence.resumed
                counts["wrong"] += len(wrong)
                print(f"{plane} seed {seed}: {sequence.drained} drained, {sequence.resumed} resumed, {len(wrong)} wrong", flush=True)
                if wrong or arguments.tell:
                    print(*(f"  {line}" for line in [*sequence.told, *(f"WRONG {line}" for line in wrong)]), sep="\n", flush=True)
    print(json.dumps(counts))
    return 1 if counts["wrong"] or not counts["drained"] or not counts["resumed"] else 0


if __name__ == "__main__":
    sys.exit(main())
