# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All pairs over hosts with a tool of fixed time: what the rounds cost beyond the tool, and what rounds driven from outside cost.

    python tests/bench/all_pairs.py        one JSON line for each figure, progress on stderr

The hosts are real sshd hosts, the tool is the simulated perftest, which takes exactly as long as it is told to.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.pairing import pair_rounds  # noqa: E402
from harness import journals  # noqa: E402
from rigs.fleet.fleet import Fleet, Options  # noqa: E402
from rigs.simulated import pairs  # noqa: E402

HOSTS, LONG, SHORT, DRIVEN = (
    int(os.environ.get(f"BENCH_{n}", d)) for n, d in (("PAIR_HOSTS", 32), ("TOOL", 5), ("SHORT", 1), ("DRIVEN", 4))
)
GOAL, GOAL_DRIVEN, GOAL_PLAN_S = 1.05, 5.0, 1.0


def show(figure: str, value: float, unit: str, goal: str, compared_with: str, holds: bool) -> None:
    line = {"figure": figure, "value": round(value, 3), "unit": unit, "goal": goal, "compared_with": compared_with, "holds": holds}
    print(json.dumps(line), flush=True)


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def raised(fleet: Fleet, folder: pathlib.Path, count: int) -> None:
    """Hosts with one simulated port each, whose GID is the host's own address."""
    options = {}
    for number in range(1, count + 1):
        host = f"gpu-{number:02d}"
        pairs.sysfs(folder / host, [fleet.address(host)], seed=host)
        options[host] = Options(overlays=((str(folder / host / "sys/class"), "/sys/class"),))
    fleet.up(count, options)
    for host in fleet.hosts:
        pairs.planted(fleet.plant(host))


def tool_takes(fleet: Fleet, seconds: float) -> None:
    for host in fleet.hosts:
        pairs.settings(fleet.plant(host), f"seconds {seconds}")


def acceptance(fleet: Fleet, folder: pathlib.Path, *more: str) -> tuple[pathlib.Path, float]:
    """A run of the stages; its folder and the seconds it took."""
    results = pathlib.Path(tempfile.mkdtemp(dir=folder))
    variables = {
        "acceptance_results_dir": str(results), "acceptance_stages": ["rdma"], "rdma_iterations": 1000, "rdma_qps": 1,
        "rdma_governor": "", "acceptance_expectations": {"rdma-400g": {"value": 384}},
    }  # fmt: skip
    binary = str(ROOT / ".venv/bin/ansible-playbook")
    command = [binary, "acceptance.yml", "-i", str(fleet.inventory), "-f", str(max(HOSTS, 64)), "-e", json.dumps(variables), *more]
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL
    )
    took = time.monotonic() - began
    found = sorted(results.glob("*/journal.jsonl.gz"))
    if not found:
        raise SystemExit(done.stdout[-3000:])
    return found[0].parent, took


def walked(run: pathlib.Path) -> tuple[float, int, int]:
    """Seconds from the first test's begin to the last one's end, rounds, and pairs without a number; hosts share one clock here."""
    begin, end, rounds, bad = float("inf"), 0.0, set(), 0
    first: list[float] = []
    for m in journals.of(run):
        if m["stage"] == "rdma" and m["check"] == "timetable":
            for row in m["series"]:
                began = row["began_epoch"]
                begin, end = min(begin, began), max(end, began + row["duration_s"])
                rounds.add(row["round"])
                first += [began] if row["round"] == 0 else []
        elif m["stage"] == "rdma" and m["outcome"] != "measured":
            bad += 1
    say(f"the first round began within {max(first) - min(first):.1f} s")
    return end - begin, len(rounds), bad


def driven(fleet: Fleet, rounds: list[t.Any]) -> float:
    """Seconds that these rounds take when Ansible drives each, in both directions: servers in the background, clients, both as tasks."""
    tool = "ib_read_bw -d mlx5_0 -i 1 -x 3 -s 65536 -n 1000 -q 1 --noPeak --report_gbits -p 18515"
    plays = []
    for number, pairs_of in enumerate(way for pairs_of in rounds for way in (pairs_of, [pair[::-1] for pair in pairs_of])):
        servers, clients = {a: b for a, b in pairs_of}, {b: fleet.address(a) for a, b in pairs_of}
        plays.append(
            {
                "name": f"round {number}", "hosts": "all", "gather_facts": False,
                "tasks": [
                    {"name": "serve", "ansible.builtin.command": {"cmd": tool}, "async": 120, "poll": 0, "register": "server",
                     "when": f"inventory_hostname in {sorted(servers)}"},
                    {"name": "ask", "ansible.builtin.command": {"cmd": tool + " {{ " + json.dumps(clients) + "[inventory_hostname] }}"},
                     "when": f"inventory_hostname in {sorted(clients)}", "retries": 20, "delay": 1, "register": "client",
                     "until": "client.rc == 0"},
                    {"name": "take", "ansible.builtin.async_status": {"jid": "{{ server.ansible_job_id }}"}, "register": "done",
                     "until": "done.finished", "retries": 60, "delay": 1, "when": f"inventory_hostname in {sorted(servers)}"},
                ],
            }
        )  # fmt: skip
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as book:
        json.dump(plays, book)
        book.flush()
        command = [str(ROOT / ".venv/bin/ansible-playbook"), book.name, "-i", str(fleet.inventory), "-f", str(max(HOSTS, 64))]
        began = time.monotonic()
        done = subprocess.run(
            command, cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL
        )
    if done.returncode:
        raise SystemExit(done.stdout[-3000:])
    return time.monotonic() - began


def main() -> int:
    began = time.process_time()
    rounds = pair_rounds([f"gpu-{n:04d}" for n in range(2048)])
    took = time.process_time() - began
    show("all_pairs_schedule", took, "s", f"<= {GOAL_PLAN_S}", f"2048 nodes, {len(rounds)} rounds", took <= GOAL_PLAN_S)
    fleet = Fleet.reserve()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        try:
            raised(fleet, folder, HOSTS)
            tool_takes(fleet, LONG)
            run, whole = acceptance(fleet, folder)
            seconds, count, bad = walked(run)
            say(f"{HOSTS} hosts, tool of {LONG} s: {count} rounds in {seconds:.1f} s, {bad} pairs without a number")
            say(f"{whole:.1f} s with plan, ports and verdict")
            ideal = 2 * (HOSTS - 1) * LONG
            against = f"{HOSTS - 1} rounds of {LONG} s in each direction"
            show("all_pairs", seconds / ideal, "x", f"<= {GOAL}", against, seconds / ideal <= GOAL and not bad)
            tool_takes(fleet, SHORT)
            run, _whole = acceptance(fleet, folder)
            seconds, count, bad = walked(run)
            slow = driven(fleet, pair_rounds(fleet.hosts)[:DRIVEN]) * (HOSTS - 1) / DRIVEN
            say(f"tool of {SHORT} s: {count} rounds in {seconds:.1f} s; driven by tasks {slow:.1f} s, from {DRIVEN} rounds")
            show(
                "all_pairs_driven",
                slow / seconds,
                "x",
                f">= {GOAL_DRIVEN}",
                "rounds driven by Ansible tasks",
                slow / seconds >= GOAL_DRIVEN and not bad,
            )
        finally:
            fleet.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
