# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figure `soak`: the folder of 1,000 nodes after 72 hours under load, and the time to judge and report it.

    python tests/bench/soak.py [--nodes 1000]

One simulated node with 8 GPUs is loaded for 72 hours of its own clock, with a sample each minute; its records stand for those of all nodes,
under other names. One JSON line for each figure.
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

from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import soak  # noqa: E402
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program.runner import signed  # noqa: E402
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node  # noqa: E402
from ansible_collections.gpufleet.acceptance.plugins.modules.soak import OPTIONS  # noqa: E402
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.judging import expectations  # noqa: E402
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.measurement import Completer  # noqa: E402
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run  # noqa: E402
from harness import report_samples as samples  # noqa: E402
from rigs.simulated import nodes as simulated  # noqa: E402

Record = t.Dict[str, t.Any]
HOURS, LEG_MINUTES = 72.0, 720.0


def observed(folder: pathlib.Path) -> list[Record]:
    """Return the observations of a healthy node, as they come back from it."""
    simulated.planted(folder, 0xABCDE)
    params: Record = {name: option.get("default") for name, option in OPTIONS.items()}
    params.update(hours=HOURS, leg_minutes=LEG_MINUTES, gpu_count=8, python=str(folder / "bin/python3"))
    params["checks"] = soak.default_checks(params)
    node = Node(3600, root=str(folder), tools={"nvidia_smi": str(folder / "bin/nvidia-smi")})
    return [one for one in signed(soak.probe(params, node), node) if "memo" not in one]


def make(results: pathlib.Path, one: list[Record], nodes: int) -> Run:
    """Write the run of so many nodes."""
    run = Run(results, samples.RUN)
    run.make()
    names = [f"node{number:05}" for number in range(nodes)]
    checks = [(o["check"], o["variant"]) for o in one if not o["part"]]
    items = [
        {"stage": "soak", "check": check, "variant": variant, "subject": {"kind": "node", "id": name, "members": []}, "target": name}
        for check, variant in checks for name in names
    ]  # fmt: skip
    judging = {
        "sets": [expectations.shipped().dump()], "of": dict.fromkeys(names, 0), "waivers": [], "warn": "accept", "stack": {},
        "stated": {name: {"gpu_count": 8, "mig": "refused"} for name in names}, "required": {}, "leaf": {}, "notes": [],
    }  # fmt: skip
    plan = samples.plan(names, (), items=items, judging=judging, chained=True)
    plan.stages = [{"name": "soak", "role": "gpufleet.acceptance.soak"}]
    (run.dir / "plan.json").write_text(json.dumps(plan.as_dict(), sort_keys=True))
    text = json.dumps(one)
    for number, name in enumerate(names):
        planned = {(i["check"], i["variant"], name): t.cast(t.Any, {**i, "attempt": 1}) for i in items[number::nodes]}
        completer = Completer(run, "soak", name, "ssh", planned, True)
        own = json.loads(text.replace(f"{0xABCDE:08x}", f"{number + 1:08x}"))
        run.journal.append([completer.complete(observation) for observation in own])
    return run


def judge(results: str) -> None:
    """Judge the run there and print what it took; for a process of its own."""
    from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import conclude

    began = time.monotonic()
    done = conclude.judge({}, None, None, {"acceptance_run": {"results_dir": results, "run_id": samples.RUN}})
    print(json.dumps({"seconds": time.monotonic() - began, "why": done["why"], "planned": done["coverage"]["planned"]}))


def show(figure: str, value: float, unit: str, goal: str, compared_with: str, holds: bool) -> None:
    line = {"figure": f"soak.{figure}", "value": value, "unit": unit, "goal": goal, "compared_with": compared_with, "holds": holds}
    print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--judge", default="")
    args = parser.parse_args()
    if args.judge:
        judge(args.judge)
        return
    what = f"{args.nodes} nodes of 8 GPUs, {HOURS:g} hours, a sample each minute"
    with tempfile.TemporaryDirectory(prefix="gpufleet-bench-") as name:
        folder = pathlib.Path(name)
        run = make(folder / "results", observed(folder / "node"), args.nodes)
        size = sum(path.stat().st_size for path in run.dir.rglob("*") if path.is_file()) / 1e6
        show("records", round(size, 1), "MB", "< 300", what, size < 300)
        command = [sys.executable, __file__, "--judge", str(folder / "results")]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
        why = f"{what}; {found['planned']} checks; {found['why'] or 'accepted'}"
        show("judged", round(found["seconds"], 1), "s", "< 20", why, found["seconds"] < 20)


if __name__ == "__main__":
    main()
