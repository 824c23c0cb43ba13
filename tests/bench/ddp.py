# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Figure `ddp`: the stage over hosts, from the written plan to the last measurement that is kept, against what the slowest of its agents
says that it took in that very run: real torchrun and PyTorch over gloo, one rank on each host of the rig. The whole run, from the
command to its exit status, is shown beside it.

Prints one JSON line. Wants root, as the rig does.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import raw  # noqa: E402
from harness import journals  # noqa: E402
from rigs import common, pytorch  # noqa: E402
from rigs.fleet.fleet import Fleet  # noqa: E402
from rigs.simulated import nodes  # noqa: E402

FACTOR, MORE_S = 1.10, 3.0


def variables(results: str, steps: int) -> dict[str, object]:
    small = {
        "backend": "gloo", "python": pytorch.PYTHON, "gpus": [1], "elements": 4096, "rounds": 1, "types": ["int64", "float32"],
        "sizes": "64K:1M", "collectives": ["all_reduce"], "iterations": 5, "warmup": 1, "fill_seconds": 0.0, "steps": steps, "width": 32,
        "batch": 32, "straggler_percent": 1000.0, "join_timeout": 300, "collective_timeout": 300, "test_timeout": 900, "timeout": 1200,
        "localise": False,
    }  # fmt: skip
    return {
        "acceptance_results_dir": results, "acceptance_stages": ["ddp"], "acceptance_simulated": True,
        "acceptance_fabric_address": "{{ ansible_host }}", **nodes.tools_at("/opt/simulated/bin"),
        **{f"ddp_{name}": value for name, value in small.items()},
    }  # fmt: skip


class Seconds(t.NamedTuple):
    """Of one run: the stage, the slowest agent, the whole command."""

    stage: float
    agent: float
    run: float

    @property
    def share(self) -> float:
        return self.stage / (FACTOR * self.agent + MORE_S)


def once(fleet: Fleet, steps: int) -> Seconds:
    with tempfile.TemporaryDirectory(prefix="gb", ignore_cleanup_errors=True) as folder:
        argv = [str(pathlib.Path(sys.executable).parent / "ansible-playbook"), "acceptance.yml", "-i", str(fleet.inventory)]
        began = time.monotonic()
        done = subprocess.run(
            [*argv, "-e", json.dumps(variables(folder, steps))],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        took = time.monotonic() - began
        plans = [*pathlib.Path(folder).glob("*/plan.json")]
        if not plans:
            raise SystemExit(f"not planned: {done.stdout[-3000:]}")
        run = plans[0].parent
        lines = journals.of(run)
        group = [one for one in lines if one["subject"]["kind"] == "group"]
        if not group or {one["outcome"] for one in group} != {"measured"}:
            raise SystemExit(f"not measured: {done.stdout[-3000:]}")
        said = [json.loads(line) for line in raw.read(run, group[0]["raw"]).decode().splitlines() if line.startswith('{"kind":"agent"')]
        if len(said) != len(fleet.hosts):
            raise SystemExit(f"{len(said)} of {len(fleet.hosts)} agents say how long they took")
        stage = (run / "journal.jsonl.gz").stat().st_mtime - plans[0].stat().st_mtime
        return Seconds(stage, max(one["seconds"] for one in said), took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    common.need_packages(pytorch.PACKAGES)
    fleet = Fleet.reserve()
    try:
        fleet.up(asked.hosts)
        for number, host in enumerate(fleet.hosts, 1):
            nodes.planted(fleet.plant(host), number, gpus=1)
            # A resolver that is not there costs ten seconds for each connection.
            fleet.inside(host, "sh", "-c", "echo nameserver 127.0.0.1 > /etc/resolv.conf")
        once(fleet, 20)  # warm
        found = [once(fleet, asked.steps) for _ in range(asked.rounds)]
    finally:
        fleet.down()
    print(f"{'stage s':>8} {'agent s':>8} {'whole run s':>12} {'of what it may':>15}", file=sys.stderr)
    for one in found:
        print(f"{one.stage:>8.1f} {one.agent:>8.1f} {one.run:>12.1f} {one.share:>15.2f}", file=sys.stderr)
    middle = sorted(found, key=lambda one: one.share)[len(found) // 2]
    line = {
        "figure": "ddp", "value": round(middle.stage, 2), "unit": "s", "goal": f"<= {FACTOR:.2f} x the slowest agent + {MORE_S:.0f} s",
        "compared_with": f"the slowest agent of {asked.hosts} hosts: {middle.agent:.2f} s; the whole run took {middle.run:.2f} s",
        "holds": middle.share <= 1,
    }  # fmt: skip
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
