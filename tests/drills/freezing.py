# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Freezes a random thread or process of a random rank at a random time, in real groups of torchrun over gloo, and counts whom the evidence
of the hang names: it may name nobody, but never a rank that is sound.

    python tests/drills/freezing.py --rounds 200

Needs PyTorch and root. A round is a launch of its own, with the workload, the deadline and the evidence of the stage `ddp`.
"""

from __future__ import annotations

import argparse
import base64
import collections
import concurrent.futures
import contextlib
import ctypes
import json
import multiprocessing
import os
import pathlib
import random
import signal
import socket
import sys
import tempfile
import time
import types
import typing as t
import zlib

from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import group, hangs, launching
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import ddp as parser
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import ddp as probe
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import node, session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import ddp as workload
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import hang as collector

PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207


class Control(t.NamedTuple):
    """A file of a control group that holds its processes up, what is written there, and what lets them go."""

    file: str
    hold: str
    free: str


# By kind: as the runtime of containers pauses them in both versions, and 1 % of a processor.
CONTROLS = {
    "paused": (Control("cgroup.freeze", "1", "0"), Control("freezer.state", "FROZEN", "THAWED")),
    "starved": (Control("cpu.max", "1000 100000", "max"), Control("cpu.cfs_quota_us", "1000", "-1")),
}
# How a round freezes: one thread, as a debugger holds it, a process, as job control stops it, or by a control group.
KINDS = ("thread", "thread", "process", *CONTROLS)
# Seconds of a round from the first rank to its fault; of a rank's wait for the others (it says so 20 s before); of a whole round.
FAULT_S, WAIT_S, JOIN_S, LAUNCH_S = 20.0, 26.0, 40.0, 100.0
# How much a healthy rank has to do, so that it is at work when its fault comes.
ROUNDS, STEPS = 12, 20


class Plan(t.NamedTuple):
    """A round. `thread`: a number between 0 and 1 that picks one of the threads that the rank has when it is frozen."""

    number: int
    kind: str
    rank: int
    after_s: float
    thread: float


class Outcome(t.NamedTuple):
    """`word`: right, WRONG, nobody, went on, or not frozen; `ruling`: how it was named, or why nobody was."""

    plan: Plan
    word: str
    ruling: str
    frozen: str


def plans(rounds: int, ranks: int, seed: int) -> list[Plan]:
    of = random.Random(seed)
    return [Plan(n, of.choice(KINDS), of.randrange(ranks), of.uniform(0.0, FAULT_S), of.random()) for n in range(rounds)]


# What freezes ------------------------------------------------------------------------------------------------------------


def hold_thread(pid: int, share: float) -> str:
    """Stop one thread of a process for as long as this process lives."""
    threads = sorted(map(int, os.listdir(f"/proc/{pid}/task")))
    thread = threads[int(share * len(threads))]
    libc = ctypes.CDLL(None, use_errno=True)
    for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
        if libc.ptrace(request, thread, None, None):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    name = pathlib.Path(f"/proc/{pid}/task/{thread}/comm").read_text(encoding="utf-8").strip()
    return f"thread {threads.index(thread)} of {len(threads)} ({name})"


def places() -> list[pathlib.Path]:
    """Return where control groups are made, one for each hierarchy that is mounted."""
    mounts = [line.split() for line in pathlib.Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    return [pathlib.Path(mount[1]) for mount in mounts if mount[2] in ("cgroup", "cgroup2") and os.access(mount[1], os.W_OK)]


def into_group(pid: int, controls: t.Iterable[Control]) -> str:
    """Move a process into a control group of its own that holds it. Raise OSError if no hierarchy here can."""
    for place in places():
        folder = place / f"freezing-{pid}"
        folder.mkdir()
        for control in controls:
            if (folder / control.file).exists():
                (folder / "cgroup.procs").write_text(str(pid), encoding="ascii")
                (folder / control.file).write_text(control.hold, encoding="ascii")
                return f"{control.file}={control.hold}"
        folder.rmdir()
    raise OSError("no control group")


def freeze(plan: Plan, pid: int) -> str:
    if plan.kind == "thread":
        return hold_thread(pid, plan.thread)
    if plan.kind == "process":
        os.kill(pid, signal.SIGSTOP)
        return "SIGSTOP"
    return into_group(pid, CONTROLS[plan.kind])


def cold(plan: Plan, mark: str, ranks: int, note: pathlib.Path) -> None:
    """Wait for the ranks, freeze what the plan says, and hold it until this process is ended."""
    while len(found := collector.ranks(session.MARK, mark)) < ranks:
        time.sleep(0.05)
    time.sleep(plan.after_s)
    with contextlib.suppress(OSError, IndexError):  # it has ended
        note.write_text(freeze(plan, found[plan.rank][0]["pid"]), encoding="utf-8")
    signal.pause()


def thaw(name: str = "freezing-*") -> list[str]:
    """Let all that control groups of this drill hold go. Return the groups that are left."""
    left = []
    for folder in (folder for place in places() for folder in place.glob(name)):
        for control in (control for controls in CONTROLS.values() for control in controls if (folder / control.file).exists()):
            with contextlib.suppress(OSError):
                (folder / control.file).write_text(control.free, encoding="ascii")
        try:
            folder.rmdir()
        except OSError:
            left.append(str(folder))
    return left


# A round -----------------------------------------------------------------------------------------------------------------


def freed(mark: str) -> None:
    """Let the ranks of a round go: what one version of the freezer holds cannot be killed."""
    for process in (process for of_rank in collector.ranks(session.MARK, mark).values() for process in of_rank):
        thaw(f"freezing-{process['pid']}")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def of_round(plan: Plan, ranks: int, python: str) -> Outcome:
    hangs.TOTAL_S, hangs.COLLECT_S = 60.0, 40.0  # machines of tests are slow at times
    mark = f"{random.SystemRandom().getrandbits(128):032x}"
    with tempfile.TemporaryDirectory(prefix="freezing-") as name:
        folder = pathlib.Path(name)
        rank_order = {
            "device": "cpu", "backend": "gloo", "beat": 1.0, "collective_timeout": WAIT_S, "rounds": ROUNDS, "steps": STEPS,
            "fill_seconds": 0.05, "sizes": [1 << 16, 1 << 20],
        }  # fmt: skip
        order = {
            "role": "agent", "id": mark[:16], "nodes": ["gpu-01"], "addresses": ["127.0.0.1"], "rendezvous": "static",
            "join_timeout": JOIN_S, "socket_interface": True, "order": rank_order,
        }  # fmt: skip
        env = {
            session.MARK: mark, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "NNODES": "1", "NODE_RANK": "0",
            "NPROC_PER_NODE": str(ranks),
        }  # fmt: skip
        argv = [python, "-c", probe.BOOT, base64.b64encode(zlib.compress(probe.SOURCE.encode(), 9)).decode(), json.dumps(order)]
        member = types.SimpleNamespace(name="gpu-01", local=True, address="")
        of = types.SimpleNamespace(node=node.Node(600), params={"token": mark}, ssh=[], heard=lambda _members: set())
        job = launching.Job([launching.LaunchCommand(argv, env)], [t.cast(t.Any, member)], ranks, LAUNCH_S, str(folder / "out"))
        evidence = hangs.Evidence(t.cast(group.Group, of), on_cpu=True)
        job.plea = workload.PLEA

        freezer = multiprocessing.get_context("spawn").Process(target=cold, args=(plan, mark, ranks, folder / "frozen"))
        looks = []

        def look(of_job: launching.Job) -> str:
            looks.append(time.time() - of_job.started_at)
            text = evidence.gather(of_job, parser.places(parser.parse(of_job.printed())))
            if (folder / "frozen").exists():
                freezer.kill()
                freezer.join()
                freed(mark)
                of_job.timeout, of_job.on_hang = 0.0, None
            return text

        job.on_hang = look
        freezer.start()
        try:
            launching.run([job], of.node, 1)
        finally:
            freezer.kill()
            freezer.join()
        frozen = (folder / "frozen").read_text(encoding="utf-8") if (folder / "frozen").exists() else ""
        of_looks = f"looks at {', '.join(f'{at:.0f}' for at in looks)} of {job.duration_s:.0f} s, {evidence.ranks} ranks"
        outcome = judged(plan, job, evidence, frozen)
        return outcome._replace(ruling=f"{of_looks}: {outcome.ruling}")


def judged(plan: Plan, job: launching.Job, evidence: hangs.Evidence, frozen: str) -> Outcome:
    parsed = parser.parse(job.out)
    if not evidence.gathered:
        why = f"rc {job.rc} after {job.duration_s:.0f} s{f': {job.err[-400:]}' if job.rc else ''}"
        return Outcome(plan, "ended" if job.rc else "went on", why, frozen)
    places = parser.places(parsed)
    if evidence.is_past(places):
        return Outcome(plan, "nobody", "the group has gone on since", frozen)
    ruling = evidence.ruling(job, places, parsed["done"])
    text = f"{ruling.rule or 'nobody'}: " + "; ".join(f"{rank}: {words}" for rank, words in ruling.text.items())
    if not ruling.named:
        return Outcome(plan, "nobody", text, frozen)
    return Outcome(plan, "right" if frozen and ruling.ranks == (plan.rank,) else "WRONG", text, frozen)


def main() -> int:
    parser_ = argparse.ArgumentParser(description=__doc__)
    parser_.add_argument("--rounds", type=int, default=20)
    parser_.add_argument("--ranks", type=int, default=4)
    parser_.add_argument("--only", type=int, nargs="*", help="numbers of rounds")
    parser_.add_argument("--seed", type=int, default=1)
    parser_.add_argument("--beside", type=int, default=1, help="rounds that run at a time")
    parser_.add_argument("--python", default=sys.executable, help="an interpreter with PyTorch")
    args = parser_.parse_args()
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    with concurrent.futures.ProcessPoolExecutor(args.beside, multiprocessing.get_context("spawn")) as pool:
        chosen = [plan for plan in plans(args.rounds, args.ranks, args.seed) if not args.only or plan.number in args.only]
        waiting = [pool.submit(of_round, plan, args.ranks, args.python) for plan in chosen]
        for done in concurrent.futures.as_completed(waiting):
            outcome = done.result()
            counts[outcome.plan.kind, outcome.word] += 1
            print(
                f"{outcome.plan.number:4} {outcome.plan.kind:8} rank {outcome.plan.rank} after {outcome.plan.after_s:4.1f} s "
                f"{outcome.word:8} [{outcome.frozen}] {outcome.ruling}", flush=True,
            )  # fmt: skip
    for kind in sorted({kind for kind, _word in counts}):
        print(f"{kind:8}", {word: number for (of_kind, word), number in sorted(counts.items()) if of_kind == kind})
    left = thaw()
    wrong = sum(number for (_kind, word), number in counts.items() if word == "WRONG")
    print(f"{len(chosen)} rounds, {wrong} named wrongly; left: {left or 'nothing'}")
    return 1 if wrong or left else 0


if __name__ == "__main__":
    sys.exit(main())
