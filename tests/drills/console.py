#!/usr/bin/env python3
# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The console's drill, over a real Kubernetes: many actions at once, while whatever carries them out is taken away; and many at rest.

Actions over a good node and one whose results are wrong are made at once. Until they have ended, all controllers are killed with all that
they have begun at random moments, the API server is restarted, and the history's database is away for a while. Each must end once, with the
verdict of its node; what the history has missed, it is brought afterwards. Then thousands of actions wait for one that runs: how long until
each knows for whom, what the pages and the API take meanwhile, and how much memory. A line of JSON for each half. Exit status 0 exactly
when nothing is wrong, and everything was struck as often as was asked for.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import typing as t
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console import actions, cluster  # noqa: E402
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import folders, searching, store  # noqa: E402
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api import client  # noqa: E402
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.kubernetes.api.client import KubeError  # noqa: E402
from cryptography.fernet import Fernet  # noqa: E402
from harness.console_controllers import Console  # noqa: E402
from harness.console_lab import person  # noqa: E402
from rigs.kubernetes.kubernetes import CONTROL, Kubernetes  # noqa: E402
from rigs.postgres.postgres import Postgres, programs, running  # noqa: E402
from rigs.simulated import nodes  # noqa: E402

PAGES = "ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.web.in_cluster"
SWEEP = {"nccl_node_sizes": "8M:16G"}
# Of the one that all others wait for.
LASTING = {**SWEEP, "nccl_node_timeout": 3600, "nccl_node_test_timeout": 3600}
MAKERS = 8
# How long each action may take, whatever else this machine does.
PATIENCE_S = 240.0


def made(console: Console, specs: t.Mapping[str, dict[str, t.Any]]) -> None:
    """All at once, as far as the API server takes them."""

    def some(part: list[tuple[str, dict[str, t.Any]]]) -> None:
        admin = client.connect(client.Connection("lab", kubeconfig=str(console.cluster.kubeconfig), namespace=console.namespace))
        for name, spec in part:
            admin.post(console.path, cluster._object(name, spec, {}))

    every = list(specs.items())
    with concurrent.futures.ThreadPoolExecutor(MAKERS) as pool:
        list(pool.map(some, (every[number::MAKERS] for number in range(MAKERS))))


def phases(console: Console) -> dict[str, int]:
    found: dict[str, int] = {}
    with contextlib.suppress(KubeError):  # it may be restarting
        for of in console.statuses().values():
            found[of.get("phase", actions.PENDING)] = found.get(of.get("phase", actions.PENDING), 0) + 1
    return found


class Storm:
    """Takes away, one after another in random order, what actions are carried out by."""

    def __init__(self, console: Console, history: Postgres | None, dice: random.Random, away_s: float) -> None:
        self.console, self.history, self.dice, self.away_s = console, history, dice, away_s
        self.back_at = 0.0
        self.struck: dict[str, int] = {"kill": 0, "api": 0, "history": 0}

    def blow(self, kind: str) -> None:
        self.struck[kind] += 1
        if kind == "kill":
            self.console.kill_all()
            self.begin()
        elif kind == "api":
            self.console.cluster.kill(CONTROL, "kube-apiserver")
            time.sleep(self.dice.uniform(0.5, 5))
            self.console.cluster.start(CONTROL, "kube-apiserver")
        elif self.history:
            self.history.stop()
            self.back_at = time.monotonic() + self.away_s

    def begin(self) -> None:
        """Two controllers, of which one works."""
        self.console.start()
        self.console.start()

    def calm(self, whatever: bool = False) -> None:
        """The database comes back when its time is over."""
        if self.history and self.back_at and (whatever or time.monotonic() > self.back_at):
            self.history.start()
            self.back_at = 0.0


def storm(console: Console, history: Postgres | None, given: argparse.Namespace) -> bool:
    dice = random.Random(given.seed)
    good, bad = console.cluster.nodes[:2]
    console.cluster.plant(bad).write_text(nodes.conf(102, faults="nccl_wrong"))
    specs, wanted = {}, {}
    for number in range(given.actions):
        node = (good, bad)[number % 2]
        specs[f"a-{number}"] = {"stages": {"nodes": [node], "names": ["nccl_node"], "variables": SWEEP}}
        wanted[f"a-{number}"] = actions.NOT_ACCEPTED if node == bad else actions.ACCEPTED
    blows = ["kill"] * given.kills + ["api"] * given.api + ["history"] * bool(history and given.away)
    dice.shuffle(blows)
    whole = len(blows)
    taking = Storm(console, history, dice, given.away)
    began, said = time.monotonic(), 0.0
    taking.begin()
    made(console, specs)
    while True:
        found = phases(console)
        over = sum(found.get(phase, 0) for phase in actions.ENDED)
        if time.monotonic() > said + 30:
            said = time.monotonic()
            print(f"drill: {over} of {given.actions} have ended, {len(blows)} of {whole} blows are left", file=sys.stderr, flush=True)
        if over == given.actions or time.monotonic() > began + PATIENCE_S * given.actions:
            break
        taking.calm()
        # Spread over the whole of it: as many blows as actions allow.
        if blows and len(blows) >= whole * (1 - (over + 1) / given.actions):
            time.sleep(dice.uniform(0, 12))
            taking.blow(blows.pop())
        else:
            time.sleep(1)
    took = time.monotonic() - began
    taking.calm(whatever=True)
    wrong = console.wrong(wanted)
    console.kill_all()
    results = str(console.folder / "results")
    with store.Store(store.url_of(console.folder / "results", history.url if history else ""), make=True) as kept:
        before = len(searching.runs(kept, limit=given.actions + 1))
        folders.bring(kept, results)
        after = [run["run"] for run in searching.runs(kept, limit=given.actions + 1)]
    left = console.left()
    whole_history = sorted(after) == sorted(console.runs())
    for line in [*wrong, *map(str, left)]:
        print(f"WRONG  {line}")
    print(json.dumps({
        "actions": given.actions, "seconds": round(took), "controllers_killed": taking.struck["kill"], "api_restarts": taking.struck["api"],
        "history_away_s": given.away if taking.struck["history"] else 0, "wrong": len(wrong), "left": len(left),
        "in_history": before, "in_history_after_import": len(after),
    }), flush=True)  # fmt: skip
    return not wrong and not left and whole_history and not blows


def resident(pid: int) -> float:
    """MiB."""
    return int(pathlib.Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


class Pages:
    """The pages of the same actions, as a process of their own."""

    def __init__(self, console: Console) -> None:
        key, self.port = console.folder / "key", 8470 + console.cluster.instance
        key.write_bytes(Fernet.generate_key())
        self.token = person(console.admin, console.namespace, "reader", ["get", "list"])
        self.process = subprocess.Popen(
            [sys.executable, "-m", PAGES, "--namespace", console.namespace, "--results-dir", str(console.folder / "results"),
             "--session-key", str(key), "--plain", "--kubeconfig", console.kubeconfig, "--address", "127.0.0.1", "--port", str(self.port),
             "--selector", "!type"],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / ".collections")}, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def ask(self, way: str) -> float:
        """Seconds."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{way}", headers={"authorization": f"Bearer {self.token}"})
        began = time.monotonic()
        with urllib.request.urlopen(request, timeout=120) as answer:
            answer.read()
        return time.monotonic() - began

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def at_rest(console: Console, given: argparse.Namespace) -> bool:
    node = console.cluster.nodes[0]
    console.cluster.plant(node).write_text(nodes.conf(101, SLEEP=3600))
    first = console.start()
    console.make("holder", {"stages": {"nodes": [node], "names": ["nccl_node"], "variables": LASTING}})
    console.wait(lambda: console.statuses()["holder"].get("phase") == actions.RUNNING)
    began = time.monotonic()
    spec = {"stages": {"nodes": [node], "names": ["stack"]}}
    made(console, {f"w-{number:05}": spec for number in range(given.waiting)})
    taken = time.monotonic() - began
    console.wait(lambda: phases(console).get(actions.QUEUED) == given.waiting, 3600)
    told = time.monotonic() - began
    pages = Pages(console)
    try:
        end = time.monotonic() + 300
        while True:
            with contextlib.suppress(OSError):
                pages.ask("/runs")
                break
            if time.monotonic() > end:
                raise SystemExit("the pages did not open")
            time.sleep(0.5)
        ways = {"list": "/api/v1/actions?limit=100", "page": "/runs", "sorted": "/runs?sort=name", "searched": "/runs?text=w-00007"}
        took = {name: round(statistics.median(pages.ask(way) for _ in range(9)), 3) for name, way in ways.items()}
        memory = {"controller_mib": round(resident(first.pid)), "pages_mib": round(resident(pages.process.pid))}
    finally:
        pages.close()
    places = sorted(of.get("queuePosition") or 0 for name, of in console.statuses().items() if name != "holder")
    # Whoever holds the node goes: the next one's turn comes, and few others are told anything.
    console.cluster.plant(node).write_text(nodes.conf(101))
    began = time.monotonic()
    console.admin.patch(f"{console.path}/holder", {"spec": {"cancel": True}})
    console.wait(lambda: console.statuses()["w-00000"].get("phase") in (actions.RUNNING, *actions.ENDED) or any(
        of.get("phase") == actions.RUNNING and name != "holder" for name, of in console.statuses().items()), 900)
    following = time.monotonic() - began
    print(json.dumps({
        "waiting": given.waiting, "made_s": round(taken, 1), "all_told_s": round(told, 1), "next_begins_s": round(following, 1),
        "seconds": took, **memory, "last_place": places[-1],
    }), flush=True)  # fmt: skip
    return all(seconds <= 1 for seconds in took.values()) and places[0] == 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Many actions at once, while whatever carries them out is taken away.")
    parser.add_argument("--actions", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20, help="of all controllers and all that they have begun")
    parser.add_argument("--api", type=int, default=3, help="restarts of the API server")
    parser.add_argument("--away", type=float, default=60, help="seconds for which the history's database is away")
    parser.add_argument("--waiting", type=int, default=10_000, help="actions that wait for one that runs; 0: none")
    parser.add_argument("--seed", type=int, default=14)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))  # takes the cluster down too
    rig = Kubernetes.reserve()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gpufleet-drill-"))
    wrong = True
    try:
        rig.up(2, 0, operators=())
        every = []
        for number, half in enumerate((storm, at_rest)):
            if not (given.actions, given.waiting)[number]:
                continue
            with contextlib.ExitStack() as stack:
                history = stack.enter_context(running()) if half is storm and programs() else None
                place = folder / str(number)
                place.mkdir()
                told = {"acceptance_history_url": history.url} if history else {}
                console = Console(rig, place, **told)
                stack.callback(console.close)
                every.append(storm(console, history, given) if half is storm else at_rest(console, given))
        wrong = not all(every)
    finally:
        rig.down()
        if wrong:
            print(f"drill: runs and logs are kept in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
