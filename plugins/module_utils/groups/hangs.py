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
import json
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
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import process, session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import hang as collector
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import packing, stacks

# Read at import: a detached probe outlives the archive that Ansible runs it from.
SOURCE = base64.b64encode(zlib.compress(packing.packed(stacks, collector).encode(), 9)).decode()
BOOT = "import base64,sys,zlib;exec(compile(zlib.decompress(base64.b64decode(sys.argv.pop(1))),'hang.py','exec'),{'__name__':'__main__'})"
# Seconds for all nodes together, and of these for the collector itself.
TOTAL_S, COLLECT_S = launching.HANG_S, 8.0
# Bytes of the answers of all nodes that are kept.
KEPT = 4 << 20
_NO_CONNECTION = re.compile(r"(?i)timed out|no route to host|not responding")


class Evidence:
    """The evidence of one launch: `gather` is called while its ranks hang. `answers`: {node: the collector's record}; `silent`: nodes that
    did not answer in time; `unread`: {node: why it could not be asked}."""

    def __init__(self, of: group.Group, python: str = "", tool: t.Sequence[str] = (), on_cpu: bool = False) -> None:
        """`python`: the interpreter of the nodes, if it has a name of its own. `tool`: a command that shows how busy the devices of a node
        are. `on_cpu`: True if ranks wait for no device."""
        self.group = of
        self.python = python
        self.tool = list(tool)
        self.on_cpu = on_cpu
        self.gathered = False
        self.answers: dict[str, dict[str, t.Any]] = {}
        self.silent: list[str] = []
        self.unread: dict[str, str] = {}
        self.seconds = 0.0
        # Where the ranks were by their own word when they were looked at.
        self.places: dict[int, tuple[int, str]] = {}

    def gather(self, job: launching.Job) -> str:
        """Look at every rank of a launch. Return the raw texts."""
        self.gathered = True
        began = time.monotonic()
        seconds = min(TOTAL_S, self.group.node.remaining() - 2 * launching.END_S)
        self.answers, self.silent, self.unread = {}, [], {}
        late = "the deadline of the stage is too near" if seconds < collector.WINDOW_S + 2 else ""
        unmarked = "" if self.group.params["token"] else "a group without member processes has no mark by which its ranks are found"
        if late or unmarked:
            self.unread = {member.name: late or unmarked for member in job.members}
            return ""
        texts = self._asked(list(job.members), began + seconds, f"{job.path}-hang", min(COLLECT_S, seconds - 2))
        self.seconds = time.monotonic() - began
        head = f"\n[evidence of the hang, gathered in {self.seconds:.1f} s while the ranks hung]\n"
        lines = [f"{name}: {text}\n" for name, text in texts.items()]
        lines += [f"{name}: did not answer\n" for name in self.silent] + [f"{name}: {why}\n" for name, why in self.unread.items()]
        return (head + "".join(lines))[:KEPT]

    def _asked(self, members: list[t.Any], until: float, path: str, seconds: float) -> dict[str, str]:
        """Run the collector on all nodes at once. Return {node: what it printed}."""
        texts: dict[str, str] = {}
        waiting = list(members)
        running: list[tuple[t.Any, subprocess.Popen[bytes], tuple[str, str]]] = []
        while (waiting or running) and time.monotonic() < until:
            while waiting and len(running) < group.AT_ONCE:
                member = waiting.pop(0)
                files = (f"{path}-{len(members) - len(waiting)}.out", f"{path}-{len(members) - len(waiting)}.err")
                child = self._start(member, files, seconds)
                if child:
                    running.append((member, child, files))
            for asked in [asked for asked in running if process.has_exited(asked[1].pid)]:
                running.remove(asked)
                self._take(*asked, texts)
            if self.group.node.live:
                self.group.node.live.tick()
            time.sleep(0.05)
        for member, child, files in running:
            process.end(child, signal.SIGKILL)
            launching.text_of(files[0]), launching.text_of(files[1])
            self.silent.append(member.name)
        self.unread.update({member.name: "there was no time left to ask it" for member in waiting})
        return texts

    def _start(self, member: t.Any, files: tuple[str, str], seconds: float) -> subprocess.Popen[bytes] | None:
        order = {"mark": session.MARK, "token": self.group.params["token"], "seconds": seconds, "tool": self.tool}
        argv = [self.python or (sys.executable if member.local else "") or "python3", "-c", BOOT, SOURCE, json.dumps(order)]
        if not member.local:
            argv = [*self.group.ssh, member.address, shlex.join(["env", f"{session.MARK}={order['token']}", *argv])]
        with open(files[0], "wb") as out, open(files[1], "wb") as err:
            try:
                child = process.spawn(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
            except OSError as error:
                self.unread[member.name] = f"{argv[0]}: {error.strerror}"
                return None
        self.group.node.record(child.pid)
        return child

    def _take(self, member: t.Any, child: subprocess.Popen[bytes], files: tuple[str, str], texts: dict[str, str]) -> None:
        process.end(child, signal.SIGKILL)
        (out, _unread), (err, _more) = launching.text_of(files[0]), launching.text_of(files[1])
        line = next((line for line in out.splitlines() if line.startswith('{"kind":"hang"')), "")
        try:
            answer = json.loads(line)
        except ValueError:
            words = " ".join(err.split())[-200:] or f"the collector ended with status {child.returncode}"
            if child.returncode == 255 and _NO_CONNECTION.search(words):
                self.silent.append(member.name)
            else:
                self.unread[member.name] = words
            return
        self.answers[member.name] = answer
        texts[member.name] = line

    # What it shows ---------------------------------------------------------------------------------------------------

    def ruling(
        self,
        job: launching.Job,
        places: t.Mapping[int, tuple[int, str]] | None = None,
        done: t.Iterable[int] = (),
        homes: t.Mapping[int, str] | None = None,
        world: int | None = None,
    ) -> hang.Ruling:
        """Return who holds the launch up. `places`: where ranks are by their own word; `homes`: {rank: node}, as far as known; `world`:
        the number of processes that are ranks, if it is not that of the launch."""
        world = world or job.ranks
        seen = {rank.rank: rank for name, answer in self.answers.items() for rank in ranks_of(name, answer)}
        known = {rank.rank: rank.node for rank in seen.values()}
        scene = hang.Scene(
            world, max(1, world // len(job.members)), tuple(member.name for member in job.members), seen, dict(places or {}),
            frozenset(done), tuple(self.silent), dict(self.unread), {**known, **(homes or {})}, self.on_cpu,
        )  # fmt: skip
        return hang.judge(scene)

    def place(self, rank: int) -> tuple[str, int | None]:
        """Return (node, number on the node) of a rank that was seen; ("", None) for any other."""
        for name, answer in self.answers.items():
            for record in answer.get("ranks") or ():
                if record.get("rank") == rank:
                    local = record.get("local")
                    return name, local if isinstance(local, int) else None
        return "", None

    def worth(self, why: str) -> str:
        """Return a clause for evidence that names nobody."""
        if self.unread and not self.answers:
            node, text = next(iter(self.unread.items()))
            why = f"{node}: {text}"
        elif not self.answers:
            why = "no node answered"
        ranks = sum(len(answer.get("ranks") or ()) for answer in self.answers.values())
        return f"the evidence of {ranks} ranks on {len(self.answers)} nodes does not single one out: {why}"

    def summary(self) -> dict[str, t.Any]:
        """Return what was gathered, for the context of a measurement."""
        ranks = sum(len(answer.get("ranks") or ()) for answer in self.answers.values())
        return {"nodes": len(self.answers), "ranks": ranks, "seconds": round(self.seconds, 1), "silent": self.silent, "unread": self.unread}


def ranks_of(node: str, answer: dict[str, t.Any]) -> t.Iterator[hang.RankSeen]:
    """Yield the ranks in the answer of a node. Records that are not as the collector writes them are left out."""
    for record in answer.get("ranks") or ():
        try:
            first, second = (_look(look[0]) for look in record["looks"])
            ticks = [look[0].get("ticks") for look in record["looks"]]
            busy = None if None in ticks else max(0, ticks[1] - ticks[0]) / answer["hertz"] / max(0.1, answer["window"])
            yield hang.RankSeen(int(record["rank"]), node, (first, second), busy)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            continue


def _look(look: dict[str, t.Any]) -> hang.Look:
    pid = look["pid"]
    threads = look.get("threads") or []
    held = tuple(str(name) for _thread, name, state, _wchan in threads if state in hang.STOPPED)
    if look.get("how") == "faulthandler":
        return hang.Look(look.get("state") or "", look.get("wchan") or "", held, _frames(stacks.frames_of(str(look.get("text")))))
    main = next((thread for thread in look.get("threads_python") or () if thread["main"]), None)
    frames = _frames(main["frames"]) if main else ()
    of_main = next((state for thread, _name, state, _wchan in threads if thread == pid), look.get("state") or "")
    return hang.Look(of_main, look.get("wchan") or "", held, frames, bool(main and main["gil"]))


def _frames(frames: t.Iterable[t.Sequence[t.Any]]) -> tuple[hang.Frame, ...]:
    return tuple(hang.Frame(str(function), str(file), int(line)) for function, file, line in frames)
