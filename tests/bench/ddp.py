# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Figure `ddp`: a whole run of the stage over hosts, plan, verdict and report included, against what its agents took in that very run:
real torchrun and PyTorch over gloo, one rank on each host of the rig.

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

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]

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


def once(fleet: Fleet, steps: int) -> tuple[float, float]:
    """Seconds of the whole run, and of its agents from the first one's start to the last one's end."""
    with tempfile.TemporaryDirectory(prefix="gb", ignore_cleanup_errors=True) as folder:
        argv = [str(pathlib.Path(sys.executable).parent / "ansible-playbook"), "acceptance.yml", "-i", str(fleet.inventory)]
        began = time.monotonic()
        done = subprocess.run(
            [*argv, "-e", json.dumps(variables(folder, steps))],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        took = time.monotonic() - began
        lines = [json.loads(line) for path in pathlib.Path(folder).glob("*/journal.jsonl") for line in path.read_text().splitlines()]
    group = [one for one in lines if one["subject"]["kind"] == "group"]
    if not group or {one["outcome"] for one in group} != {"measured"}:
        raise SystemExit(f"not measured: {done.stdout[-3000:]}")
    return took, max(one["duration_s"] for one in group)


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
        for host in fleet.hosts:  # a resolver that is not there costs ten seconds for each connection
            fleet.inside(host, "sh", "-c", "echo nameserver 127.0.0.1 > /etc/resolv.conf")
        once(fleet, 10)  # warm
        pairs = [once(fleet, asked.steps) for _ in range(asked.rounds)]
    finally:
        fleet.down()
    took, agents = sorted(pairs, key=lambda pair: pair[0] / (FACTOR * pair[1] + MORE_S))[len(pairs) // 2]
    line = {
        "figure": "ddp", "value": round(took, 2), "unit": "s", "goal": f"<= {FACTOR:.2f} x agents + {MORE_S:.0f} s",
        "compared_with": f"the agents themselves on {asked.hosts} hosts: {agents:.2f} s", "holds": took <= FACTOR * agents + MORE_S,
    }  # fmt: skip
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
