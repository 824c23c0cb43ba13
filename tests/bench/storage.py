# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figure `storage`: the time of the stage storage on many hosts over that of the slowest host's fio, by the clock of Ansible's log. Beside
it, that of the whole command, with plan, verdicts and report. A stand-in for fio, which sleeps; few files of metadata, which are no work of
fio and which hosts of one machine make one after the other.

    python tests/bench/storage.py [--hosts 64] [--seconds 10] [--forks 64]

One JSON line.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]

from rigs.fleet.fleet import Fleet  # noqa: E402

# A line that begins a task or a play.
LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) .*(?:TASK|PLAY|RUNNING HANDLER) (?:\[|RECAP)")
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
        "acceptance_history": False, "acceptance_simulated": True, "storage_gib": 0.06, "storage_files": 10,
    }  # fmt: skip
    command = [str(pathlib.Path(sys.executable).parent / "ansible-playbook"), "acceptance.yml", "-i", str(fleet.inventory)]
    began = time.monotonic()
    done = subprocess.run(
        [*command, "-f", str(arguments.forks), "-e", json.dumps(variables)], cwd=ROOT, check=False,
        env={**os.environ, "ANSIBLE_LOG_PATH": str(folder / "log")}, stdin=subprocess.DEVNULL, stdout=sys.stderr,
    )  # fmt: skip
    took = time.monotonic() - began
    (run,) = (folder / "results").glob("*/verdicts.jsonl")
    verdicts = [json.loads(line) for line in run.read_text().splitlines()]
    passed = {v["subject"]["id"] for v in verdicts if v["check"] == "read" and v["verdict"] == "PASS"}
    if done.returncode or len(passed) != arguments.hosts:
        raise SystemExit(f"status {done.returncode}, {len(passed)} of {arguments.hosts} hosts have a rate")
    slowest = max(of_fio(fleet, host) for host in fleet.hosts)
    of_stage = seconds_of("gpufleet.acceptance.storage", (folder / "log").read_text())
    ratio = (of_stage - BESIDE_S) / slowest
    seconds = f"{of_stage:.2f} s of {took:.2f} s against {slowest:.2f} s of the slowest fio"
    line = {
        "figure": "storage", "value": round(ratio, 3), "unit": "ratio", "goal": f"at most {TIMES:g}, {BESIDE_S:g} s left out",
        "compared_with": f"{arguments.hosts} hosts, forks {arguments.forks}: {seconds}",
        "holds": ratio <= TIMES,
    }  # fmt: skip
    print(json.dumps(line), flush=True)


def seconds_of(role: str, log: str) -> float:
    """Return how long the tasks of a role took, by Ansible's log: from the line that begins the first one to the next line that begins
    something else."""
    began, ended = None, None
    for line in log.splitlines():
        match = LINE.match(line)
        if not match:
            continue
        at = datetime.datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f")
        if f"TASK [{role} :" in line:
            began = began or at
        elif began:
            ended = at
            break
    if began is None or ended is None:
        raise SystemExit(f"no task of {role} in the log")
    return (ended - began).total_seconds()


def of_fio(fleet: Fleet, host: str) -> float:
    """Return the seconds of all runs of a host's fio."""
    rows = [line.split() for line in (fleet.plant(host) / "fio.times").read_text().splitlines()]
    return sum(float(end) - float(began) for began, end in rows)


if __name__ == "__main__":
    main()
