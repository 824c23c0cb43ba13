# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figure `slurm_stage`: the jobs of `nccl_node` with an instant tool over the nodes of a Slurm cluster, from the first one that Slurm
allocates to the last one that it ends, and beside it one bare `srun` of the same tool over the same nodes, one of a bare Python, and one
`srun` of the tool for each node. `ratio` is that of one job that the nodes share (acceptance_slurm_nodes_per_job).

    python tests/bench/slurm_stage.py [--nodes 32]

Slurm is real, and its nodes are namespaces of this machine (rigs/slurm): all of them share its processors, so that what costs a cluster the
time of one node, such as the start of Python, is here the sum over all nodes. `stage_1` is the same over one node: what is above it grows
with the nodes. One JSON line for each figure.

The goal is missed. Two runs on two cores beside other work, Slurm 22.05, 32 nodes: a bare srun of the tool 0.82 and 1.33 s, of Python
1.65 and 2.27 s, so that any program of ours is above the goal here; the stage with a job for each node 11.2 and 12.6 s (13.6 and 9.4
times), in a shared job 18.9 and 15.6 s (23.0 and 11.7 times). Most of it is the program, 1.05 MB for each node, which srun passes on in
pieces of a kilobyte: a bare srun that only reads as much takes 8.3 s over 32 nodes, 0.5 s over one. The probes themselves take 0.1 to
0.3 s. For that reason a job for each node is the default.
"""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/bench"
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import settings  # noqa: E402
from harness.slurm_runs import Runs  # noqa: E402
from rigs.fleet.fleet import Fleet  # noqa: E402
from rigs.simulated import nodes  # noqa: E402
from rigs.slurm.slurm import Slurm  # noqa: E402

GOAL = 1.2
TOOL = ["/opt/simulated/bin/all_reduce_perf", "-b", "8M", "-e", "16G", "-f", "2", "-g", "8"]


def show(figure: str, value: float, unit: str, goal: str, compared_with: str, holds: bool | None) -> None:
    line = {"figure": f"slurm_stage.{figure}", "value": round(value, 2), "unit": unit, "goal": goal, "compared_with": compared_with}
    print(json.dumps({**line, "holds": holds}), flush=True)


def client(slurm: Slurm, *commands: t.Sequence[str]) -> float:
    """Return the seconds that commands take on the machine with the client commands, side by side, over one connection each."""
    began = time.monotonic()
    running = [
        subprocess.Popen(
            slurm.fleet.ssh(slurm.controller, *argv), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for argv in commands
    ]
    if any([process.wait() for process in running]):
        raise SystemExit("a bare srun fails")
    return time.monotonic() - began


def stage(runs: Runs, names: t.Sequence[str], **variables: t.Any) -> tuple[float, str, int]:
    """Return the seconds between the first allocation and the last end of the jobs of a stage, by the log of slurmctld; words about the
    run; and how many nodes were measured."""
    before = len(_log(runs.slurm))
    began = time.monotonic()
    done = runs.run(["nccl_node"], acceptance_nodes={"names": list(names)}, **variables)
    whole = time.monotonic() - began
    measured = {m["subject"]["id"] for m in done.journal if m["outcome"] == "measured"}
    stamps = [
        line[1:24] for line in _log(runs.slurm)[before:] if "_slurm_rpc_allocate_resources JobId=" in line or "_job_complete: " in line
    ]
    if not stamps or not measured:
        raise SystemExit(done.output[-3000:])
    first, last = (datetime.datetime.fromisoformat(stamp) for stamp in (min(stamps), max(stamps)))
    return (last - first).total_seconds(), f"{len(measured)} of {len(names)} nodes measured; whole run {whole:.1f} s", len(measured)


def _log(slurm: Slurm) -> list[str]:
    return slurm.client("cat", "/var/log/slurm/slurmctld.log").splitlines()


def main(argv: t.Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=32)
    count = parser.parse_args(argv).nodes
    fleet = Fleet.reserve()
    try:
        for number, host in enumerate(fleet.up(count), 1):
            nodes.planted(fleet.plant(host) / "slow", number)
            for tool in nodes.TOOLS.iterdir():
                shutil.copy(HERE / "instant/replay", fleet.plant(host) / "bin" / tool.name)
        slurm = Slurm(fleet)
        slurm.up()
        with tempfile.TemporaryDirectory() as folder:
            names = slurm.fleet.hosts
            srun = settings.of("rig", {}).job("bench", "a bench", names, "", 600.0)
            client(slurm, [*srun, *TOOL])
            bare = min(client(slurm, [*srun, *TOOL]) for _round in range(2))
            show("bare", bare, "s", "", f"one srun of the tool over {count} nodes, the better of two", None)
            python = client(slurm, [*srun, "/usr/bin/python3", "-c", "import json, subprocess, selectors, zlib, base64"])
            show("python", python, "s", "", f"one srun of Python, with what any program of ours imports, over {count} nodes", None)
            single = [[*settings.of("rig", {}).job("bench", "a bench", [name], "", 600.0), *TOOL] for name in names]
            show(
                "sruns",
                client(slurm, ["sh", "-c", " & ".join(map(_quoted, single)) + " & wait"]),
                "s",
                "",
                f"{count} sruns of the tool, side by side",
                None,
            )
            runs = Runs(slurm, pathlib.Path(folder))
            stage(runs, names)  # each tool says something for the first time
            seconds, words, _measured = stage(runs, names[:1])
            show("stage_1", seconds, "s", "", words, None)
            seconds, words, measured = stage(runs, names)
            show("stage", seconds, "s", "", words, measured == count)
            apart = seconds
            seconds, words, measured = stage(runs, names, acceptance_slurm_nodes_per_job=count)
            show("shared", seconds, "s", "", words, measured == count)
            show("ratio_apart", apart / bare, "", "", "one bare srun of the tool over all nodes = 1; a job for each node", None)
            show("ratio", seconds / bare, "", f"<= {GOAL}", "one bare srun of the tool over all nodes = 1", seconds <= GOAL * bare)
    finally:
        fleet.down()
    return 0


def _quoted(words: t.Sequence[str]) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words) + " > /dev/null"


if __name__ == "__main__":
    sys.exit(main())
