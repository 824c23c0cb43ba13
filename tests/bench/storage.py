# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figure `storage`: the time of a run of the stage storage on many hosts, from the command to its verdict, over that of the slowest host's
fio. A stand-in for fio, which sleeps.

    python tests/bench/storage.py [--hosts 64] [--seconds 10] [--forks 64]

One JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]

from rigs.fleet.fleet import Fleet  # noqa: E402

TIMES, BESIDE_S = 1.10, 3.0
SCRATCH = {"name": "scratch", "path": "/var/lib/scratch", "gibps_read": 0.001, "gibps_write": 0.001}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--forks", type=int, default=64)
    arguments = parser.parse_args()
    fleet = Fleet.reserve()
    try:
        with tempfile.TemporaryDirectory(prefix="gb", ignore_cleanup_errors=True) as folder:
            measure(fleet, pathlib.Path(folder), arguments)
    finally:
        fleet.down()


def measure(fleet: Fleet, folder: pathlib.Path, arguments: argparse.Namespace) -> None:
    fleet.up(arguments.hosts)
    for host in fleet.hosts:
        plant = fleet.plant(host)
        shutil.copy(ROOT / "tests/bench/instant/fio", plant / "bin/fio")
        (plant / "seconds").write_text(f"{arguments.seconds:g}")
        (fleet.var_lib(host) / "scratch").mkdir()
    variables = {
        "acceptance_results_dir": str(folder / "results"), "acceptance_stages": ["storage"], "acceptance_storage": [SCRATCH],
        "acceptance_history": False, "acceptance_simulated": True, "storage_gib": 0.06,
    }  # fmt: skip
    command = [str(pathlib.Path(sys.executable).parent / "ansible-playbook"), "acceptance.yml", "-i", str(fleet.inventory)]
    began = time.monotonic()
    done = subprocess.run(
        [*command, "-f", str(arguments.forks), "-e", json.dumps(variables)], cwd=ROOT, env={**os.environ}, check=False,
        stdin=subprocess.DEVNULL, stdout=sys.stderr,
    )  # fmt: skip
    took = time.monotonic() - began
    (run,) = (folder / "results").glob("*/verdicts.jsonl")
    verdicts = [json.loads(line) for line in run.read_text().splitlines()]
    passed = {v["subject"]["id"] for v in verdicts if v["check"] == "read" and v["verdict"] == "PASS"}
    if done.returncode or len(passed) != arguments.hosts:
        raise SystemExit(f"status {done.returncode}, {len(passed)} of {arguments.hosts} hosts have a rate")
    slowest = max(of_fio(fleet, host) for host in fleet.hosts)
    ratio = (took - BESIDE_S) / slowest
    line = {
        "figure": "storage", "value": round(ratio, 3), "unit": "ratio", "goal": f"at most {TIMES:g}, {BESIDE_S:g} s left out",
        "compared_with": f"{arguments.hosts} hosts, forks {arguments.forks}: {took:.2f} s against {slowest:.2f} s of the slowest fio",
        "holds": ratio <= TIMES,
    }  # fmt: skip
    print(json.dumps(line), flush=True)


def of_fio(fleet: Fleet, host: str) -> float:
    """Return the seconds of all runs of a host's fio."""
    rows = [line.split() for line in (fleet.plant(host) / "fio.times").read_text().splitlines()]
    return sum(float(end) - float(began) for began, end in rows)


if __name__ == "__main__":
    main()
