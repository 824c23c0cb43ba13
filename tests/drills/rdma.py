#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kill something at a random moment while the probe of stage rdma holds the governors of a pair and perftest runs between them.

Runs on the soft-RoCE guests (tests/rigs/rdma), two pairs at a time, each over SSH and over a timetable of its own. Each run gives
every CPU of both guests a random governor, kills one part on one of them with SIGKILL, and looks at both machines as the next
session does: governors given back, no process and no file left, and the partner came to its end by itself within its deadlines.
Exit status 0 only if all runs hold.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import subprocess
import sys
import threading
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor

import governor as drill  # which puts tests/ on the path
from rigs import common
from rigs.rdma.rdma import Guests, Options

PAIRS = (("rdma-01", "rdma-02"), ("rdma-03", "rdma-04"))
KIND = {
    "check": "write_bw", "variant": "", "tool": "ib_write_bw", "options": ["-s", "65536", "-D", "2", "-q", "1", "--report_gbits"],
    "op": "write", "kind": "bw", "bytes": 65536, "iterations": None, "qps": 1, "context": {},
}  # fmt: skip
ROUNDS, WINDOW_S, SLOT_S, TEST_S = 4, 4.0, 5.0, 12.0
# The partner of whoever dies has its last test behind it by then; what an emulated processor needs on top.
LONGEST_S = WINDOW_S + ROUNDS * SLOT_S + TEST_S + 90


def timetable(guests: Guests, pair: tuple[str, str], role: str) -> str:
    """The arguments of one side: the first of a pair serves."""
    server, client = pair
    addresses = {"server": guests.rail_address(server, 0), "client": guests.rail_address(client, 0)}
    other = {"server": "client", "client": "server"}[role]
    test = {
        "kind": 0, "role": role, "device": "mlx5_0", "port": 1, "gid_index": 1, "gid": addresses[role], "peer_gid": addresses[other],
        "peer": addresses["server"], "partner": client if role == "server" else server, "rail": "0", "subject": "|".join(pair),
        "a": f"{server}/nic/mlx5_0/1", "b": f"{client}/nic/mlx5_0/1", "context": {},
    }  # fmt: skip
    rounds = [{"round": number, "tests": [{**test, "tcp_port": 18515 + number}]} for number in range(ROUNDS)]
    return json.dumps({
        "checks": [], "kinds": [KIND], "rounds": rounds, "absent": [], "begins_in": WINDOW_S, "slot": SLOT_S, "test_timeout": TEST_S,
        "pause": 0.2, "governor": "performance", "binary_dir": "", "meeting": {}, "own_ports": {},
    })  # fmt: skip


def one(guests: Guests, pair: tuple[str, str], struck: int, victim: str, seconds: float, rng: random.Random) -> dict[str, t.Any]:
    """One run in which a part of the pair's `struck` half dies; what came of it, with `faults` in words."""
    wanted = {guest: drill.shuffle(guests, guest, rng) for guest in pair}
    guest, partner = pair[struck], pair[1 - struck]
    roles = dict(zip(pair, ("server", "client")))
    other: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        other.append(drill.holder(guests, partner, "walk", timetable(guests, pair, roles[partner])))
        return drill.holder(guests, guest, "walk", timetable(guests, pair, roles[guest]))

    begin = time.monotonic()
    found = drill.strike(guests, guest, victim, seconds, start)
    wrong = [f"{guest}: {text}" for text in drill.faults(found, wanted[guest], victim)]
    try:
        said = other[0].communicate(timeout=max(LONGEST_S - (time.monotonic() - begin), 1))[0]
        rows = json.loads(said)
        wrong += [f"{partner}: {outcome} with numbers" for outcome, numbers in rows if outcome != "measured" and numbers]
    except subprocess.TimeoutExpired:
        wrong.append(f"{partner}: did not come to its end within {LONGEST_S:.0f} s")
    except ValueError:
        wrong.append(f"{partner}: said {said[-200:]!r}")
    finally:
        other[0].kill()
        other[0].communicate()
    after = json.loads(guests.inside(partner, *drill.NODE, "look"))
    wrong += [f"{partner}: {text}" for text in drill.faults(after, wanted[partner], "")]
    return dict(found, faults=wrong, seconds=time.monotonic() - begin)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    begin = time.monotonic()
    results: list[tuple[str, dict[str, t.Any]]] = []
    with Guests().lent(4, {"rdma-01": Options(cpus=2), "rdma-04": Options(cpus=2)}) as guests:
        lock = threading.Lock()
        runs = iter([(number, drill.VICTIMS[number % len(drill.VICTIMS)]) for number in range(arguments.kills)])

        def work(pair: tuple[str, str]) -> None:
            own = random.Random(f"{arguments.seed} {pair}")
            for guest in pair:
                drill.install(guests, guest)
            while True:
                with lock:
                    number, victim = next(runs, (0, ""))
                    seconds, struck = rng.uniform(0, 15), rng.randrange(2)
                if not victim:
                    return
                result = one(guests, pair, struck, victim, seconds, own)
                results.append((victim, result))
                for fault in result["faults"]:
                    print(f"run {number} on {pair[struck]}, {victim} after {seconds:.2f} s: {fault}", flush=True)

        with ThreadPoolExecutor() as pool:
            for future in [pool.submit(work, pair) for pair in PAIRS]:
                future.result()
    counted = collections.Counter(victim for victim, result in results if not result["faults"])
    total = collections.Counter(victim for victim, _result in results)
    for victim in drill.VICTIMS:
        print(f"{victim:<11} {counted[victim]} of {total[victim]} held")
    whole = [result for _victim, result in results if "took_s" in result]
    if whole:
        switched, testing = (sum(result[name] for result in whole) for name in ("switched", "testing"))
        took = sorted(result["took_s"] for result in whole)
        print(f"of {len(whole)}: in {switched} the governor was switched when it struck, in {testing} perftest ran")
        print(f"next session possible after {took[len(took) // 2]:.1f} s (median), {took[-1]:.1f} s (longest)")
        print(f"a run took {max(result['seconds'] for result in whole):.0f} s at most")
    print(f"{time.monotonic() - begin:.0f} s in all")
    return 0 if counted == total and sum(total.values()) == arguments.kills else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except common.RigError as error:
        sys.exit(f"drill: {error}")
