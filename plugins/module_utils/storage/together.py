# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tests of a file system that many nodes use at one time.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import findings, observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.absent import Absent, plain
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params, PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.host import mounts
from ansible_collections.gpufleet.acceptance.plugins.module_utils.lease import folder
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage import alone, shared_exchange, shared_files, timeline, touching
from ansible_collections.gpufleet.acceptance.plugins.module_utils.storage.checks import (
    CHECKPOINT,
    COHERENT,
    MODEL_LOAD,
    READ,
    TOGETHER,
    WRITE,
)
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import apart, interfaces
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

# Small files that tell how long a synced operation takes.
SMALL_FILES = 50


class TogetherTest(alone.StorageTest):
    """The checks of a file system that all nodes use at one time, by a timetable: `nodes` are the names of all, `sizes` how many of them
    work together in each step, `at` is when the first of it begins, in seconds behind the common beginning. `index` is the number of this
    node among them."""

    def __init__(self, params: Params, node: Node, entry: PlainData, wanted: t.Sequence[str], timetable: PlainData) -> None:
        super().__init__(params, node, entry, wanted)
        self.timetable = timetable
        self.begin = float(params["begin"])
        self.lock_at = float(params["patience"]) + timeline.LOCK_S
        self.times = timeline.Timeline.of(timetable["sizes"], float(params["seconds"]), float(params["patience"]))
        names = timetable["nodes"]
        self.index = names.index(params["own_name"])
        self.folder_token = shared_files.folder_token(timetable["token"], self.index)
        self.context.update(nodes=names, sizes=timetable["sizes"], index=self.index, condition=True)
        stated = {name: entry.get(f"gibps_{name}_all") for name in (READ, WRITE)}
        self.context["stated"] = {name: value for name, value in stated.items() if value}

    def observations(self) -> t.Iterator[Observation]:
        """Yield the checks that are wanted. What is needed for them is written before the common beginning."""
        look = self.look()
        if look.mount:
            self.context["file_system"] = look.mount.kind
        if look.problem:
            _part, code, words = look.problem
            if COHERENT in self.wanted:
                yield findings.observed(COHERENT, [look.problem], {"variant": self.variant, "context": self.context})
            yield from (self.failed(check, code, f"{words}: {alone.NOT_TESTED}") for check in self.wanted if check != COHERENT)
            return
        last: Observation | None = None
        for seen in self.tested(list(self.wanted), look):
            if last:
                yield last
            last = seen
        if last and self.left and last["outcome"] == "measured":
            last = self.failed(last["check"], "no_answer", self.left)
        if last:
            yield last

    def _in_folder(self, path: str, checks: list[str], look: touching.Look) -> t.Iterator[Observation]:
        table, seconds = self.timetable, self.params["answer_timeout"]
        late_s = -self._left(self.times.patterns)
        if late_s > timeline.ON_TIME_S:  # nothing can be measured any more, and what it wrote would slow down the others
            words = f"{self.entry['path']}: the node was ready {late_s:.0f} s behind the last step: nothing was written"
            yield from (self.failed(check, "partner", words) for check in checks)
            return
        apart.call(lambda: shared_exchange.prepare(path, table["token"], self.index), seconds)
        apart.call(lambda: shared_files.hand_over(path, table["token"], self.index), seconds)
        of_rates = [check for check in checks if check != COHERENT]
        wrong = self._prepare(path, look) if of_rates else None
        if COHERENT in checks:
            yield self._coherent(path)
        if wrong:
            self._wait(self.times.steps)  # the others still look at the files of this node
            for check in of_rates:
                bears = self.failed if check != of_rates[0] else self.broken
                yield bears(check, wrong[0], f"{wrong[1]}: nothing was written that could be read")
            return
        if TOGETHER in checks:
            yield self._together(path)
        if CHECKPOINT in checks or MODEL_LOAD in checks:
            yield from (seen for seen in self._patterns(path) if seen["check"] in checks)

    def _prepare(self, path: str, look: touching.Look) -> tuple[str, str] | None:
        """Write the files that the steps write and read again; return why they could not be written."""
        try:
            self.size_of_job = touching.job_size(self.limit(look), self.params["jobs"])
        except ReasonedError as error:
            return error.reason_code, error.reason
        return self._wrong(WRITE, *self._fio(path, WRITE, alone.WRITING))

    def _wait(self, at: float) -> bool:
        """Wait for a moment of the timetable; return False if it is past."""
        left = self._left(at)
        time.sleep(max(0.0, left))
        return left > -timeline.ON_TIME_S

    def _coherent(self, path: str) -> Observation:
        """Look for what the others have written, and try the lock that the first node holds."""
        table, parent = self.timetable, self.path
        token, index, names = table["token"], self.index, table["nodes"]
        patience = self.params["answer_timeout"]
        if not self._wait(0.0):
            return self.failed(COHERENT, "partner", f"{self.entry['path']}: the node was ready {-self._left(0.0):.0f} s too late")
        held: dict[str, str] = {}
        missing = apart.call(
            lambda: shared_files.unseen(parent, folder.PREFIX, token, len(names), self.params["patience"]),
            self.params["patience"] + patience,
        )
        if index == 0:  # the others try at self.lock_at
            until = max(0.0, self._left(self.lock_at + timeline.LOCK_S))
            held = apart.call(lambda: shared_files.hold(path, token, 0, until), until + patience)
        listed: list[findings.Finding] = []
        name = f"{self.entry['name']} ({self.entry['path']})"
        # The next node; the one behind it, and so on, if that has written nothing.
        other = next((number for number in (*range(index + 1, len(names)), *range(index)) if number not in missing), None)
        if other is not None:
            wrong = apart.call(lambda: shared_files.read(parent, folder.PREFIX, token, other), patience)
            if wrong:
                listed.append(("", "wrong_results", f"{name}: what {names[other]} has written and synced is read with {wrong}"))
        if index and 0 not in missing:
            self._wait(self.lock_at)
            held = apart.call(lambda: shared_files.try_locks(parent, folder.PREFIX, token, 0), patience)
            if not self._is_still_held():
                held = dict.fromkeys(held, shared_files.LATE)
        unseen = {f"lock_{kind}": what for kind, what in held.items() if what not in ("taken", "refused")}
        if index and 0 in missing:
            unseen["locks"] = f"the files of {names[0]} are not seen"
        exchanged, untried = self._exchange(path, missing)
        replaced = exchanged.get("replaced") or {}
        if replaced.get("missing") or replaced.get("torn"):
            words = f"in {replaced['looks']} looks at a file that {names[0]} replaces by rename, {replaced['missing']} found no file"
            listed.append(("", "file_system", f"{name}: {words} and {replaced['torn']} read neither the old one nor the new one"))
        context = {
            **self.context,
            "locks": held,
            "unseen": [names[number] for number in missing],
            "looked_for": [f"files, locks and renames of {len(names)} nodes on {self.entry['path']}"],
            **exchanged,
        }
        context["not_looked_for"] = {**unseen, **untried}
        return findings.observed(COHERENT, listed, {"variant": self.variant, "context": context})

    def _exchange(self, path: str, missing: t.Sequence[int]) -> tuple[PlainData, dict[str, str]]:
        """Return what the nodes saw of each other's changes, and what was not tried with its reason."""
        table, parent, patience = self.timetable, self.path, self.params["answer_timeout"]
        token, index, count = table["token"], self.index, len(table["nodes"])
        found: PlainData = {
            "owners": apart.call(lambda: shared_exchange.owners(path, parent, folder.PREFIX, token, index, count), patience)
        }
        untried: dict[str, str] = {}
        if self._wait(self.times.exchange):
            asked = (path, parent, folder.PREFIX, token, index, count, timeline.ECHO_S)
            found["echo"] = apart.call(lambda: shared_exchange.echo(*asked), timeline.ECHO_S + patience)
            if not found["echo"]["trips"]:
                untried["visible"] = f"{table['nodes'][(index + 1) % count]} answered none of the questions in {timeline.ECHO_S:g} s"
        else:
            untried["visible"] = "the node was too late"
        if 0 in missing or not self._wait(self.times.exchange + timeline.ECHO_S + timeline.BETWEEN_S):
            untried["rename"] = f"the files of {table['nodes'][0]} are not seen" if 0 in missing else "the node was too late"
        elif index == 0:
            asked_to = (path, token, 0, timeline.REPLACE_S)
            found["replaced"] = apart.call(lambda: shared_exchange.replace(*asked_to), timeline.REPLACE_S + patience)
        else:
            looked = (parent, folder.PREFIX, token, 0, count, timeline.REPLACE_S)
            found["replaced"] = apart.call(lambda: shared_exchange.watch(*looked), timeline.REPLACE_S + patience)
            if found["replaced"]["generations"] < 2:
                untried["rename"] = f"{table['nodes'][0]} did not replace its file while it was looked at"
        return found, untried

    def _is_still_held(self) -> bool:
        """Return True if the first node holds its locks yet, although it may have begun SKEW_S before this one."""
        return self._left(self.lock_at + timeline.LOCK_S - timeline.SKEW_S) > 0

    def _left(self, at: float) -> float:
        return float(self.begin + self.timetable["at"] + at - time.monotonic())

    def _together(self, path: str) -> Observation:
        """Write and read with the other nodes in each step that this node is in, and once with few of them."""
        table, rows = self.timetable, []
        raws: list[str] = []
        for step, size in enumerate(table["sizes"]):
            if self.index >= size:
                continue
            for phase, way in enumerate((WRITE, READ)):
                if self._wait(self.times.steps + (2 * step + phase) * (self.params["seconds"] + timeline.BETWEEN_S)):
                    rate = self._timed(path, way, self.params["seconds"], raws)
                    if not isinstance(rate, float):
                        return self.broken(
                            TOGETHER, rate[0], f"{self.entry['path']}: {way} with {size} nodes: {rate[1]}", raw="\n".join(raws)
                        )
                    rows.append({"nodes": size, "way": way, "rate": rate})
        few: PlainData = {"nodes": timeline.few_nodes(len(table["nodes"]))}
        if self._wait(self.times.few + self.index // few["nodes"] * self.times.round_s):
            most_s = self.params["answer_timeout"]
            few["small_ms"] = apart.call(lambda: shared_exchange.small_operations(path, SMALL_FILES, 1.0), most_s)
            for way in (WRITE, READ):
                rate = self._timed(path, way, timeline.few_seconds(self.params["seconds"]), raws)
                if not isinstance(rate, float):
                    words = f"{self.entry['path']}: {way} with few nodes: {rate[1]}"
                    return self.broken(TOGETHER, rate[0], words, raw="\n".join(raws))
                few[way] = rate
        context = {**self.context, "series_units": {"rate": "GiB/s"}, "direct": bool(self.params["direct"]), "few": few}
        context["link"] = apart.call(lambda: _link(self.path), self.params["answer_timeout"])
        context["looked_for"] = [f"rates of {self.entry['path']} from {len(table['nodes'])} nodes at one time"]
        if self.unlike:
            context["unlike"] = self.unlike
        return observation.measured(TOGETHER, variant=self.variant, series=rows, context=context, raw="\n".join(raws))

    def _timed(self, path: str, way: str, seconds: float, raws: list[str]) -> float | tuple[str, str]:
        """Write or read for so many seconds; return the rate in GiB/s, or reason code and words of what went wrong."""
        timed = [f"--rw={way}", "--bs=1M", "--time_based=1", f"--runtime={seconds:g}", "--allow_file_create=0"]
        result, run = self._fio(path, way, timed)
        raws.append(result.raw)
        rate = (run.write if way == WRITE else run.read).rate
        if result.rc != 0 or run.problem or isinstance(rate, Absent) or rate <= 0:
            return run.problem or ("tool_failed", " ".join(result.err.split()[-40:]) or "it gave no number")
        return float(rate) / touching.GIB

    # As programs use a shared file system ---------------------------------------------------------------------------

    def _patterns(self, path: str) -> t.Iterator[Observation]:
        """Yield CHECKPOINT: all nodes write their own files at once, and each reads those of the next node. Yield MODEL_LOAD: all read the
        files of the first node. Files are written through the page cache and synced, as programs do, and what is read has the pattern of
        its writer, its number and its place."""
        table = self.timetable
        raws: list[str] = []
        index, names = self.index, table["nodes"]
        row = self._saved(path, raws)
        read = self._loaded((index + 1) % len(names), 1, raws)
        context = {**self.context, "series_units": {"rate": "GiB/s", "gib": "GiB"}}
        for check, rows in ((CHECKPOINT, (row, read)), (MODEL_LOAD, (self._loaded(0, 2, raws),))):
            wrong = next((each for each in rows if isinstance(each, tuple)), None)
            if wrong:
                yield self.broken(check, wrong[0], f"{self.entry['path']}: {wrong[1]}", raw="\n".join(raws))
            else:
                looked = [f"data of {len(names)} nodes that others read on {self.entry['path']}"]
                more = {**context, "looked_for": looked}
                yield observation.measured(check, variant=self.variant, series=list(rows), context=more, raw="\n".join(raws))
            raws = []
        if not isinstance(row, tuple):
            self._wait(self.times.end)  # slower nodes still read the files of this one

    def _saved(self, path: str, raws: list[str]) -> PlainData | tuple[str, str]:
        """Write the node's checkpoint and give it its name at once when it is whole; return its rate, or why there is none."""
        token, index = self.timetable["token"], self.index
        partial = os.path.join(path, f"partial-{CHECKPOINT}")
        apart.call(lambda: touching.emptied(path, partial), self.params["answer_timeout"])
        row = self._pattern(WRITE, partial, index, (self.size_of_job, self.params["jobs"]), 0, raws)
        if not isinstance(row, tuple):
            # Its name says how large it is: one that has lost a file or the end of one would be read without an error.
            whole = os.path.join(path, f"{CHECKPOINT}.{self.params['jobs']}x{self.size_of_job}-{token}-{index}")
            apart.call(lambda: os.rename(partial, whole), self.params["answer_timeout"])
        return row

    def _loaded(self, number: int, phase: int, raws: list[str]) -> PlainData | tuple[str, str]:
        """Read the checkpoint of a node; return the rate, or why there is none."""
        self._wait(self.times.patterns + phase * self.times.pattern_s - timeline.BETWEEN_S / 2)
        seconds = self.params["answer_timeout"]
        path, sizes = apart.call(lambda: _checkpoint(self.path, self.timetable["token"], number), seconds)
        if not sizes:
            whose = f"the checkpoint of {self.timetable['nodes'][number]}"
            return ("wrong_results", f"{whose} {path}") if path else ("partner", f"{whose} is not there")
        return self._pattern(READ, path, number, (min(sizes), len(sizes)), phase, raws)

    def _pattern(
        self, way: str, path: str, number: int, files: tuple[int, int], phase: int, raws: list[str]
    ) -> PlainData | tuple[str, str]:
        """Write or read whole files, (bytes of each, how many), with the pattern of the node `number`."""
        if not self._wait(self.times.patterns + phase * self.times.pattern_s):
            return "partner", f"the node was ready {-self._left(self.times.patterns + phase * self.times.pattern_s):.0f} s too late"
        size, jobs = files
        seconds = timeline.PATTERN_TIMES * self.params["seconds"]
        pattern = hashlib.sha256(f"{self.timetable['token']} {number}".encode()).hexdigest()
        asked = ["--verify=pattern", f"--verify_pattern=0x{pattern}%o", f"--runtime={seconds:g}", "--bs=1M", f"--rw={way}", "--direct=0"]
        asked += ["--do_verify=0", "--end_fsync=1"] if way == WRITE else ["--verify_fatal=1", "--allow_file_create=0"]
        result, run = self._fio(path, way, [*asked, f"--size={size}", f"--numjobs={jobs}"])
        raws.append(result.raw)
        side = run.write if way == WRITE else run.read
        whose = f"{way} of the checkpoint of {self.timetable['nodes'][number]}"
        if run.problem:
            return run.problem[0], f"{whose}: {run.problem[1]}"
        if result.rc != 0 or isinstance(side.rate, Absent) or side.rate <= 0:
            return "tool_failed", f"{whose}: {' '.join(result.err.split()[-40:]) or 'it gave no number'}"
        moved = float(plain(side.io_bytes) or 0)
        if moved < size * jobs:
            return "timeout", f"{whose}: {moved / touching.GIB:.3g} of {size * jobs / touching.GIB:.3g} GiB in {seconds:g} s"
        return {"way": way, "rate": float(side.rate) / touching.GIB, "gib": moved / touching.GIB}


def _checkpoint(parent: str, token: str, number: int) -> tuple[str, list[int]]:
    """Return where the checkpoint of a node is and the sizes of its files, which its name tells; else what it has, and no sizes.
    Runs in a process of its own."""
    path = shared_files.path_of(parent, folder.PREFIX, f"{CHECKPOINT}.*", token, number)
    if not path:
        return "", []
    jobs, _x, size = os.path.basename(path).partition(".")[2].partition("-")[0].partition("x")
    with os.scandir(path) as entries:
        sizes = [entry.stat().st_size for entry in entries if entry.name.startswith("data.")]
    promised = [int(size)] * int(jobs)
    if sizes != promised and shared_files.is_gone(parent, folder.PREFIX, token, number):
        return "", []
    if sizes != promised:
        return f"has {len(sizes)} files with {sum(sizes)} bytes, and {len(promised)} with {sum(promised)} were written and synced", []
    return path, sizes


def _link(path: str) -> PlainData:
    """Return {"server", "interface", "mbps"} of the way to the server of a file system, as far as they are known. Runs in a process of its
    own: names may be asked for."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as source:
        mount = mounts.mount_of(source.read(), os.path.realpath(path), mounts.mount_id(path))
    server = mounts.server_of(mount.source, mount.kind) if mount else ""
    interface = interfaces.towards(server) if server else ""
    found: PlainData = {"server": server, "interface": interface}
    with contextlib.suppress(OSError, ValueError):
        with open(f"/sys/class/net/{interface}/speed", encoding="ascii") as source:
            speed = int(source.read())
        found.update({"mbps": speed} if speed > 0 else {})
    return {name: value for name, value in found.items() if value}
