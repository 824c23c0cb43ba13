#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kill something at a random moment while a session holds a real governor; every value has to come back.

Runs on the soft-RoCE guests (tests/rigs/rdma). Each run gives every CPU a random governor, starts a session over SSH
whose probe switches to `performance`, kills one of its parts with SIGKILL, and looks at the machine as the next session
does. At the end every guest loses its power once in mid-lease. Exit status 0 only if all runs hold.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import io
import json
import pathlib
import random
import subprocess
import sys
import tarfile
import threading
import time
import typing as t

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from rigs import common  # noqa: E402
from rigs.rdma.rdma import Guests, Options  # noqa: E402

VICTIMS = ("probe", "module", "sshd", "controller", "guardian")
VALUES = ("powersave", "ondemand", "schedutil")
NODE = ["env", "PYTHONPATH=/tmp/drill", "python3", "/tmp/drill/governor_node.py"]
UTILS = "plugins/module_utils"


def install(guests: Guests, guest: str) -> None:
    """Over SSH, as a module comes: the guests' view of this machine's files may be stale."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for file in sorted((ROOT / UTILS).rglob("*.py")):
            tar.add(file, f"ansible_collections/gpufleet/acceptance/{file.relative_to(ROOT)}")
        tar.add(ROOT / "tests/drills/governor_node.py", "governor_node.py")
    untar = guests.ssh(guest, "sh", "-c", "mkdir -p /tmp/drill && tar -x -C /tmp/drill")
    subprocess.run(untar, input=archive.getvalue(), check=True)


def shuffle(guests: Guests, guest: str, rng: random.Random) -> list[str]:
    values = [rng.choice(VALUES) for _cpu in guests.governors(guest)]
    for cpu, value in enumerate(values):
        guests.set_governor(guest, value, cpu)
    return values


def holder(guests: Guests, guest: str, *what: str) -> subprocess.Popen[bytes]:
    command = guests.ssh(guest, *NODE, *(what or ("hold",)))
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def strike(
    guests: Guests, guest: str, victim: str, seconds: float, start: t.Callable[[], subprocess.Popen[bytes]]
) -> dict[str, t.Any]:
    """Start a session on the guest, kill the victim that long after its begin; what is found there then."""
    command = guests.ssh(guest, *NODE, "kill", victim, str(seconds))
    killer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert killer.stdout and killer.stderr
    assert killer.stdout.readline() == "ready\n"
    session = start()
    try:
        if killer.stdout.readline() == "begun\n" and victim == "controller":
            time.sleep(seconds)
            session.kill()
        answer, errors = killer.communicate(timeout=200)
        try:
            return t.cast("dict[str, t.Any]", json.loads(answer))
        except ValueError:
            return {"failed": f"the drill itself failed: {errors[-500:]}"}
    finally:
        session.kill()
        session.communicate()


def faults(found: dict[str, t.Any], wanted: list[str], victim: str) -> list[str]:
    """Return what is wrong with the findings, in words."""
    if "failed" in found:
        return [found["failed"]]
    wrong = []
    if found["governors"] != wanted:
        wrong.append(f"governors are {found['governors']}, were {wanted}")
    if found["undone"] and victim != "guardian":
        wrong.append(f"left to the next session: {found['undone']}")
    if found["tools"] or found["left"]:
        wrong.append(f"left: processes {found['tools']}, files {found['left']}")
    return wrong


def one(guests: Guests, guest: str, victim: str, seconds: float, rng: random.Random) -> dict[str, t.Any]:
    """One run; what came of it, with `faults` in words."""
    wanted = shuffle(guests, guest, rng)
    found = strike(guests, guest, victim, seconds, lambda: holder(guests, guest))
    return dict(found, faults=faults(found, wanted, victim))


def power_cut(guests: Guests, guest: str, born: list[str], rng: random.Random) -> dict[str, t.Any]:
    """The guest dies in mid-lease: what it was born with stays, and the ledger is closed."""
    shuffle(guests, guest, rng)
    session = holder(guests, guest)
    until = time.monotonic() + 60
    while set(guests.governors(guest)) != {"performance"}:
        if time.monotonic() > until:
            return {"faults": ["the governor was not switched"]}
    time.sleep(rng.uniform(0, 2))
    guests.power_off(guest)
    session.kill()
    session.communicate()
    guests.power_on(guest)
    install(guests, guest)
    found = json.loads(guests.inside(guest, *NODE, "look"))
    wrong = []
    if found["governors"] != born or "ledger.jsonl" in found["left"]:
        wrong.append(f"after a power cut: {found['governors']} (born with {born}), files {found['left']}")
    if not any("rebooted" in word for word in found["undone"]):
        wrong.append(f"after a power cut the ledger was not closed with a word: {found['undone']}")
    return {"faults": wrong}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    begin = time.monotonic()
    results: list[tuple[str, dict[str, t.Any]]] = []
    with Guests().lent(4, {"rdma-01": Options(cpus=2), "rdma-04": Options(cpus=2)}) as guests:
        lock = threading.Lock()
        runs = iter([(number, VICTIMS[number % len(VICTIMS)]) for number in range(arguments.runs)])

        def work(guest: str) -> None:
            own = random.Random(f"{arguments.seed} {guest}")
            install(guests, guest)
            born = guests.governors(guest)
            while True:
                with lock:
                    number, victim = next(runs, (0, ""))
                    seconds = rng.uniform(0, 4)
                if not victim:
                    break
                result = one(guests, guest, victim, seconds, own)
                results.append((victim, result))
                for fault in result["faults"]:
                    print(f"run {number} on {guest}, {victim} after {seconds:.2f} s: {fault}", flush=True)
            result = power_cut(guests, guest, born, own)
            results.append(("power", result))
            for fault in result["faults"]:
                print(f"power cut of {guest}: {fault}", flush=True)

        with concurrent.futures.ThreadPoolExecutor() as pool:
            for future in [pool.submit(work, guest) for guest in guests.hosts]:
                future.result()
    counted = collections.Counter(victim for victim, result in results if not result["faults"])
    total = collections.Counter(victim for victim, _result in results)
    for victim in (*VICTIMS, "power"):
        print(f"{victim:<11} {counted[victim]} of {total[victim]} restored")
    kills = [result for victim, result in results if victim != "power" and "took_s" in result]
    if kills:
        took = sorted(result["took_s"] for result in kills)
        held = sum(result["switched"] for result in kills)
        print(f"in {held} of {len(kills)} the governor was switched when it struck")
        print(f"next session possible after {took[len(took) // 2]:.1f} s (median), {took[-1]:.1f} s (longest)")
    print(f"{time.monotonic() - begin:.0f} s in all")
    return 0 if counted == total and sum(total.values()) == arguments.runs + 4 else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except common.RigError as error:
        sys.exit(f"drill: {error}")
