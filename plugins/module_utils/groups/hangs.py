# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence of a group that hangs, gathered by its head from all nodes at once before anything is ended.

The head starts the collector (workloads/hang.py) on every node, as it enters them for everything else. What it prints is kept as it is, and
judged by localise/hang.py.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import typing as t
import zlib

from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import group, launching
from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise import hang
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nccl_ras
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process, session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import hang as collector
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import packing, stacks

# Read at import: a detached probe outlives the archive that Ansible runs it from.
SOURCE = base64.b64encode(zlib.compress(packing.packed(stacks, collector).encode(), 9)).decode()
BOOT = "import base64,sys,zlib;exec(compile(zlib.decompress(base64.b64decode(sys.argv.pop(1))),'hang.py','exec'),{'__name__':'__main__'})"
# Seconds for all nodes together, for the collector itself, and for the way to a node and back.
TOTAL_S, COLLECT_S, WAY_S = launching.HANG_S, 8.0, 2.0
# The collector gives up by itself (workloads/hang.py): a node of which nothing is heard is not one on which it takes long.
LEAST_S = collector.WINDOW_S + WAY_S
# The seconds that a connection takes to open, of which group.AT_ONCE are opened at a time.
OPENING_S = 0.5
# Seconds before the launch from which on lines of the kernel's log are kept, and how many of a node the measurement has.
KERNEL_S, KERNEL_LINES = 60.0, 10
# A device takes about a thousand collectives before the host must wait for it. In a test that launches more of them at a time, ranks that
# wait for lost data have launched fewer than others. Options of nccl-tests: repetitions, those of the warm-up, and launches of each.
QUEUE, ITERATIONS, AGGREGATED = 500, ("-n", "--iters", "-w", "--warmup_iters"), "-m"
QUEUED = (*ITERATIONS, AGGREGATED)
# Characters of the answers of all nodes that are kept.
KEPT = 4 << 20
_NO_CONNECTION = re.compile(r"(?i)timed out|no route to host|not responding")


class Answer(t.NamedTuple):
    """Evidence that the collector took on one node. `local`: {rank: its number on the node, None if unknown}. `kernel`: lines that the
    kernel has logged since the launch; `unread`: why they are not known, or "". `ras`: what NCCL's RAS service said of all ranks."""

    seen: tuple[hang.RankSeen, ...]
    local: dict[int, int | None]
    kernel: tuple[str, ...] = ()
    unread: str = ""
    ras: str = ""


class Asked(t.NamedTuple):
    """A collector that runs. `files`: of its output and its errors."""

    member: group.GroupMember
    child: subprocess.Popen[bytes]
    files: tuple[str, str]
    started: float


class Evidence:
    """The evidence of one launch: `gather` is called while its ranks hang. `answers`: by node; `silent`: nodes that did not answer in time;
    `unread`: {node: why it could not be asked, or its answer not read}."""

    def __init__(self, of: group.Group, python: str = "", tool: t.Sequence[str] = (), on_cpu: bool = False) -> None:
        """`python`: the interpreter of the nodes, if it has a name of its own. `tool`: a command that shows how busy the devices of a node
        are. `on_cpu`: True if ranks wait for no device."""
        self.group = of
        self.python = python
        self.tool = list(tool)
        self.on_cpu = on_cpu
        self.gathered = False
        self.answers: dict[str, Answer] = {}
        self.silent: list[str] = []
        self.unread: dict[str, str] = {}
        self.seconds = 0.0
        self.text = ""
        # When the launch that hangs began, by time.time().
        self.launched_at = 0.0
        # Where the ranks were by their own word when they were looked at.
        self.places: dict[int, tuple[int, str]] = {}

    def gather(self, job: launching.Job, places: t.Mapping[int, tuple[int, str]] | None = None) -> str:
        """Look at every rank of a launch, within TOTAL_S and so that launching.END_S are left before the deadline of the probe. Return the
        raw texts. `places`: where the ranks are by their own word. What an earlier look has seen of the same hang stays if it saw more
        ranks: those that wait end at their own deadline, and one that cannot be ended keeps its launcher waiting for it."""
        before = (self.ranks, self.answers, self.silent, self.unread, self.seconds, self.text, self.places)
        is_same = self.gathered and _last(self.places) == _last(places or {})
        self.gathered, self.launched_at, self.places = True, job.started_at, dict(places or {})
        self.text = self._look_at(job)
        if is_same and self.ranks < before[0]:
            _ranks, self.answers, self.silent, self.unread, self.seconds, self.text, self.places = before
        return self.text

    def _look_at(self, job: launching.Job) -> str:
        self.answers, self.silent, self.unread, self.seconds = {}, [], {}, 0.0
        began = time.monotonic()
        seconds = min(TOTAL_S, self.group.node.remaining() - launching.END_S)
        late = "the deadline of the stage is too near" if seconds < LEAST_S else ""
        unmarked = "" if self.group.params["token"] else "a group without member processes has no mark by which its ranks are found"
        if late or unmarked:
            self.unread = {member.name: late or unmarked for member in job.members}
            return ""
        texts = self._asked(list(job.members), began + seconds, f"{job.path}-hang")
        self.seconds = time.monotonic() - began
        text = f"\n[evidence of the hang, gathered in {self.seconds:.1f} s while the ranks hung]\n"
        text += "".join(f"{name}: {of_node}\n" for name, of_node in texts.items())
        text += "".join(f"{name}: did not answer\n" for name in self.silent)
        text += "".join(f"{name}: {why}\n" for name, why in self.unread.items())
        return process.shown(text[:KEPT], "", len(text[KEPT:].encode()))

    def _asked(self, members: list[group.GroupMember], until: float, path: str) -> dict[str, str]:
        """Run the collector on all nodes at once. Return {node: what it printed}."""
        texts: dict[str, str] = {}
        waiting = list(members)
        running: list[Asked] = []
        self.group.heard(members)
        while (waiting or running) and (current_s := time.monotonic()) < until:
            while waiting and current_s + LEAST_S <= until and sum(current_s < of.started + OPENING_S for of in running) < group.AT_ONCE:
                number = len(members) - len(waiting)
                asked = self._start(waiting.pop(0), (f"{path}-{number}.out", f"{path}-{number}.err"), until - current_s - WAY_S)
                running += [asked] if asked else []
            for asked in [asked for asked in running if process.has_exited(asked.child.pid)]:
                running.remove(asked)
                self._take(asked, texts)
            if self.group.node.live:
                self.group.node.live.tick()
            time.sleep(0.05)
        for asked in running:
            with contextlib.suppress(OSError):
                os.killpg(asked.child.pid, signal.SIGKILL)  # they end side by side
        for asked in running:
            process.end(asked.child, signal.SIGKILL)
            launching.text_of(asked.files[0]), launching.text_of(asked.files[1])
            self.silent.append(asked.member.name)
        self.unread.update({member.name: "there was no time left to ask it" for member in waiting})
        for name in self.group.heard(members) & set(self.silent):
            self.silent.remove(name)
            self.unread[name] = "it lives, but could not be asked in time"
        return texts

    def _start(self, member: group.GroupMember, files: tuple[str, str], seconds: float) -> Asked | None:
        order = {
            "mark": session.MARK, "token": self.group.params["token"], "seconds": min(COLLECT_S, seconds), "tool": self.tool,
            "since": max(0.0, time.time() - self.launched_at) + KERNEL_S,
        }  # fmt: skip
        argv = [self.python or (sys.executable if member.local else "") or "python3", "-c", BOOT, SOURCE, json.dumps(order)]
        if not member.local:
            # A step of Slurm may hand the variables of a rank on: what the collector starts is none.
            without = [word for names in collector.NUMBERS for word in ("-u", names[0])]
            argv = [*self.group.ssh, member.address, shlex.join(["env", *without, f"{session.MARK}={order['token']}", *argv])]
        try:
            with open(files[0], "wb") as out, open(files[1], "wb") as err:
                child = process.spawn(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        except OSError as error:
            self.unread[member.name] = f"{argv[0]}: {error.strerror}"
            return None
        self.group.node.record(child.pid)
        return Asked(member, child, files, time.monotonic())

    def _take(self, asked: Asked, texts: dict[str, str]) -> None:
        process.end(asked.child, signal.SIGKILL)
        name = asked.member.name
        (out, _unread), (err, _more) = launching.text_of(asked.files[0]), launching.text_of(asked.files[1])
        line = next((line for line in out.splitlines() if line.startswith('{"kind":"hang"')), "")
        if line:
            texts[name] = line
            try:
                self.answers[name] = answer_of(name, line)
            except ValueError as error:
                self.unread[name] = str(error)
            return
        words = " ".join(err.split())[-200:] or f"the collector ended with status {asked.child.returncode}"
        if asked.child.returncode == 255 and _NO_CONNECTION.search(words):
            self.silent.append(name)
        else:
            self.unread[name] = words

    # What it shows ---------------------------------------------------------------------------------------------------

    def ruling(
        self,
        job: launching.Job,
        places: t.Mapping[int, tuple[int, str]] | None = None,
        done: t.Iterable[int] = (),
        homes: t.Mapping[int, str] | None = None,
        world: int | None = None,
        ended: t.Iterable[int] = (),
    ) -> hang.Ruling:
        """Return who holds the launch up. `places`: where ranks are by their own word; `homes`: {rank: node}, as far as known; `world`:
        the number of processes that are ranks, if it is not that of the launch; `ended`: ranks that ended themselves because their
        operation took too long."""
        world = world or job.ranks
        seen: dict[int, hang.RankSeen] = {}
        for rank in (rank for answer in self.answers.values() for rank in answer.seen):
            if rank.rank >= world or rank.rank in seen:  # ranks of an earlier launch that could not be ended
                return hang.nobody(f"{rank.node} has a rank {rank.rank} that is not of this launch, or is on another node, too")
            seen[rank.rank] = rank
        known = {rank.rank: rank.node for rank in seen.values()}
        scene = hang.Scene(
            world, max(1, world // len(job.members)), tuple(member.name for member in job.members), seen, dict(places or {}),
            frozenset(done), tuple(self.silent), dict(self.unread), {**known, **(homes or {})}, self.on_cpu, frozenset(ended),
            {} if _queue(job) > QUEUE else self._late(world),
        )  # fmt: skip
        ruling = hang.judge(scene)
        moved = next((rank for rank in ruling.ranks if self._has_moved(rank, scene)), None)
        if moved is not None:
            return hang.nobody(f"rank {moved} has gone on since it was looked at, when it was in {self.places[moved][1]}")
        return ruling

    def _late(self, world: int) -> dict[int, str]:
        """Return {rank: what NCCL says of it} of ranks that have launched fewer collectives than all others. A group that goes on has other
        counts at any time, so two nodes at least must have heard the same."""
        heard = [nccl_ras.behind(answer.ras, world) for answer in self.answers.values() if answer.ras]
        behind = heard[0] if heard else None
        if behind is None or len(heard) < 2 or any(other != behind for other in heard):
            return {}
        words = f"all other {world - len(behind.at)} ranks have launched operation {behind.last} ({behind.kind})"
        return {rank: f"has launched NCCL's operations up to {number} only, while {words}" for rank, number in behind.at.items()}

    def _has_moved(self, rank: int, scene: hang.Scene) -> bool:
        """Return True if a rank is further by its last word than it was when it was looked at: it was slow, and does not hang there."""
        if rank not in self.places:
            return False
        return rank in scene.done or scene.places.get(rank, self.places[rank])[0] > self.places[rank][0]

    def is_past(self, places: t.Mapping[int, tuple[int, str]]) -> bool:
        """Return True if the group has gone on since it was looked at. `places`: where the ranks are by their last word."""
        return _last(places) != _last(self.places)

    def place(self, rank: int) -> tuple[str, int | None]:
        """Return (node, number on the node) of a rank that was seen; ("", None) for any other."""
        return next(((name, answer.local[rank]) for name, answer in self.answers.items() if rank in answer.local), ("", None))

    @property
    def ranks(self) -> int:
        """The number of ranks that were seen."""
        return sum(len(answer.seen) for answer in self.answers.values())

    def worth(self, why: str) -> str:
        """Return a clause for evidence that names nobody."""
        if self.unread and not self.answers:
            node, text = next(iter(self.unread.items()))
            why = f"{node}: {text}"
        elif not self.answers:
            why = "no node answered"
        return f"the evidence of {self.ranks} ranks on {len(self.answers)} nodes does not single one out: {why}"

    def summary(self) -> dict[str, t.Any]:
        """Return what was gathered, for the context of a measurement."""
        fields = {"nodes": len(self.answers), "ranks": self.ranks, "seconds": round(self.seconds, 1)}
        kernel = {name: collector.most_important(answer.kernel, KERNEL_LINES) for name, answer in self.answers.items() if answer.kernel}
        unread = {name: answer.unread for name, answer in self.answers.items() if answer.unread}
        return {**fields, "silent": self.silent, "unread": self.unread, "kernel": kernel, "kernel_unread": unread}


def _queue(job: launching.Job) -> int:
    """Return how many collectives a test launches without a pause, by the options of its program; 0 if it has none."""
    words = [word for command in job.commands for argument in command.argv for word in argument.split()]  # one may be a whole command
    numbers = {option: int(value) for option, value in zip(words, words[1:]) if option in QUEUED and value.isdigit()}
    return max((numbers.get(option, 0) for option in ITERATIONS), default=0) * max(1, numbers.get(AGGREGATED, 1))


def _last(places: t.Mapping[int, tuple[int, str]]) -> tuple[int, str]:
    """Return the operation of the rank that is furthest."""
    return max(places.values(), default=(0, ""))


def answer_of(node: str, line: str) -> Answer:
    """Return the answer of a node. Raise ValueError, with the reason, for one that is not as the collector writes it: a rank that was left
    out would look as if it had no process."""
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ValueError("its answer is cut off or no JSON") from error
    if record.get("problem"):
        raise ValueError(_plain(record["problem"]))
    try:
        flights = record.get("flights") if isinstance(record.get("flights"), dict) else {}
        seen = tuple(_rank(node, of_rank, record["hertz"], flights) for of_rank in record["ranks"])
        local = {int(of_rank["rank"]): None if of_rank["local"] is None else int(of_rank["local"]) for of_rank in record["ranks"]}
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ValueError("its answer is not as the collector writes it") from error
    kernel = record.get("kernel")
    if not isinstance(kernel, dict) or not isinstance(kernel.get("lines"), list):
        return Answer(seen, local, (), "its answer does not have the kernel's log", str(record.get("ras") or ""))
    return Answer(seen, local, tuple(map(_plain, kernel["lines"])), _plain(kernel.get("why") or ""), str(record.get("ras") or ""))


def _rank(node: str, record: dict[str, t.Any], hertz: int, flights: dict[str, t.Any]) -> hang.RankSeen:
    first, second = (look[0] for look in record["looks"])
    busy = None
    if "ticks" in first and "ticks" in second:
        busy = max(0, second["ticks"] - first["ticks"]) / hertz / max(0.1, second["at"] - first["at"])
    woke = max(0, second["switches"] - first["switches"]) if "switches" in first and "switches" in second else None
    flight = _flight(flights.get(str(first["pid"])))
    return hang.RankSeen(int(record["rank"]), node, (_look(first), _look(second)), busy, woke, flight)


def _flight(text: t.Any) -> hang.Flight | None:
    """Return what the flight recorder of a rank had; None if it wrote nothing, or nothing that can be read."""
    try:
        record = json.loads(text)
        return hang.Flight(int(record["operation"]), int(record["open"]))
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _look(look: dict[str, t.Any]) -> hang.Look:
    pid, state, wchan = look["pid"], str(look.get("state") or "")[:1], _plain(look.get("wchan") or "")
    threads = look.get("threads") or []
    held = tuple(_plain(name) for _thread, name, of_thread, _wchan in threads if of_thread in hang.STOPPED)
    frozen = _plain(look.get("frozen") or "")
    if look.get("how") == "faulthandler":
        return hang.Look(state, wchan, held, _frames(stacks.frames_of(str(look.get("text")))), frozen=frozen)
    main = next((thread for thread in look.get("threads_python") or () if thread["main"]), None)
    of_main = next((str(of_thread)[:1] for thread, _name, of_thread, _wchan in threads if thread == pid), state)
    frames, gil = (_frames(main["frames"]), bool(main["gil"])) if main else ((), False)
    return hang.Look(of_main, wchan, held, frames, gil, frozen, look.get("numb") is True)


def _frames(frames: t.Iterable[t.Sequence[t.Any]]) -> tuple[hang.Frame, ...]:
    return tuple(hang.Frame(_plain(function), _plain(file), int(line)) for function, file, line in frames)


def _plain(text: t.Any, most: int = 300) -> str:
    """Return the end of a text that another machine has sent, in one line."""
    return "".join(c if c.isprintable() else "?" for c in str(text)[-most:])
