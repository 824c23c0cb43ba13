# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs commands side by side for a controller that is elsewhere, feeds them, and ends them when the controller is gone.

It is sent as one text to a machine between the controller and the nodes, so it imports the standard library only. Orders are lines of JSON
on standard input:

    {"common": TEXT}                            what the program of every command begins with
    {"start": NAME, "argv": [...], "own": TEXT, "tasks": NUMBER}
                                                start a command, with so many answers; its standard input gets the length of common and own
                                                text in a line, the text, and then a byte every BEAT_S seconds
    {"end": NAME}                               end a command
    {"finally": [...]}                          a command to run before all others are ended, and if one of them was killed
    {}                                          the controller lives

News are lines of JSON on standard output:

    {"line": NAME, "text": TEXT}                a line that a command has printed, if it begins like one of ours, perhaps behind a label
                                                such as "12: "
    {"ended": NAME, "status": NUMBER, "words": TEXT, "dropped": BYTES}   its status, what it said on standard error, and how much it printed

At the end of standard input, or SILENCE_S seconds after the last order, all commands are ended: each gets the end of its standard input,
and signals only if it takes no notice. If this process is killed, their standard input ends too.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import re
import resource
import selectors
import signal
import subprocess
import sys
import time
import typing as t

BEAT_S, SILENCE_S = 5.0, 30.0
# How long a command that has printed a line of ours may take to end when its standard input has; then SIGTERM, twice, and SIGKILL. At a
# SIGTERM srun kills what it runs, and by then a guardian must have given back what it had changed.
ORDERLY_S, AGAIN_S, KILL_S = 30.0, 2.0, 8.0
END_S = 42.0
# How long the last command may take.
LAST_S = 15.0
OURS = re.compile(rb" *(?:\d+: )?gpufleet-")
LINE_LIMIT, WORDS_LIMIT = 8192, 4096
# At most so many bytes of a command's lines are passed on for each of its answers: more than the largest result.
PASSED_LIMIT = 16 << 20
# The limits of open files, which are of our three pipes to each command. A command has the limit that we had.
FILES = resource.getrlimit(resource.RLIMIT_NOFILE)
# Commands that are started between two looks at those that run.
AT_ONCE = 16


class Command:
    """A command that runs, what it still has to read, and what it has printed."""

    def __init__(self, name: str, argv: list[str], program: bytes, feeds: selectors.BaseSelector, answers: int = 1) -> None:
        self.name = name
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, FILES),
        )  # fmt: skip
        self.limit = PASSED_LIMIT * answers
        self.feeds = feeds
        self.unread = memoryview(b"%d\n%s" % (len(program), program))
        self.rest = b""
        self.words = b""
        self.passed = self.dropped = 0
        self.open = {self.process.stdout, self.process.stderr}
        self.told_at = 0.0
        self.signals = 0
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            os.set_blocking(t.cast("t.IO[bytes]", stream).fileno(), False)
        feeds.register(t.cast("t.IO[bytes]", self.process.stdin), selectors.EVENT_WRITE, self)
        for stream in self.open:
            feeds.register(t.cast("t.IO[bytes]", stream), selectors.EVENT_READ, self)

    def write(self) -> None:
        stdin = t.cast("t.IO[bytes]", self.process.stdin)
        try:
            self.unread = self.unread[os.write(stdin.fileno(), self.unread[: 1 << 16]) :]
        except BlockingIOError:
            return
        except OSError:  # it has closed its standard input
            self.unread = memoryview(b"")
        if not self.unread:
            self.feeds.unregister(stdin)

    def beat(self) -> None:
        if not self.unread:
            with contextlib.suppress(OSError, ValueError):  # it is full of beats that nobody reads, or closed
                os.write(t.cast("t.IO[bytes]", self.process.stdin).fileno(), b"\n")

    def read(self, stream: t.Any) -> t.Iterator[str]:
        """Read what a stream has. Yield the lines of standard output that are ours."""
        try:
            data = os.read(stream.fileno(), 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self.feeds.unregister(stream)
            self.open.discard(stream)
            stream.close()
            return
        if stream is self.process.stderr:
            self.words = (self.words + data)[-WORDS_LIMIT:]
            return
        *lines, self.rest = (self.rest + data).split(b"\n")
        if len(self.rest) > LINE_LIMIT:
            self.dropped += len(self.rest) - LINE_LIMIT
            self.rest = self.rest[:LINE_LIMIT]
        for line in lines:
            if OURS.match(line) and len(line) <= LINE_LIMIT and self.passed < self.limit:
                self.passed += len(line)
                yield line.decode("utf-8", "replace")
            else:
                self.dropped += len(line) + 1

    def end(self, now: float) -> None:
        """End the standard input of the command, and signal it if it does not end. To be called repeatedly."""
        if not self.told_at:
            self.told_at = now + (ORDERLY_S if self.passed else 0.0)
            self.end_input()
        steps = (0.0, AGAIN_S, KILL_S)
        if self.signals < len(steps) and now >= self.told_at + steps[self.signals]:
            if self.signals == 2:  # with what it has started, which would keep its streams open
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.send_signal(signal.SIGTERM)
            self.signals += 1

    def end_input(self) -> None:
        stdin = t.cast("t.IO[bytes]", self.process.stdin)
        if not stdin.closed:
            if self.unread:
                self.feeds.unregister(stdin)
                self.unread = memoryview(b"")
            stdin.close()

    def has_ended(self) -> bool:
        return self.process.poll() is not None and not self.open


class Feeder:
    """Takes orders from `orders`, and tells news by `tell`."""

    def __init__(self, orders: int, tell: t.Callable[[dict[str, t.Any]], None]) -> None:
        self.orders = orders
        self.tell = tell
        self.feeds = selectors.DefaultSelector()
        self.feeds.register(orders, selectors.EVENT_READ)
        self.common = ""
        self.last: list[str] = []
        self.to_start: collections.deque[dict[str, t.Any]] = collections.deque()
        self.running: dict[str, Command] = {}
        self.ending: set[str] = set()
        self.was_killed = False
        self.rest = b""
        self.heard = time.monotonic()

    def run(self) -> None:
        """Work until the controller is gone, or has no orders any more and all commands have ended."""
        beaten = 0.0
        while self.orders >= 0:
            for key, _events in self.feeds.select(0.2 if not self.to_start else 0.01):
                self._serve(key)
            now = time.monotonic()
            if now - self.heard > SILENCE_S:
                break
            for _number in range(min(AT_ONCE, len(self.to_start))):
                self._start(self.to_start.popleft())
            if now - beaten > BEAT_S:
                beaten = now
                for command in self.running.values():
                    command.beat()
            self._look(now)
        self._end_all()

    def _serve(self, key: selectors.SelectorKey) -> None:
        if key.data is None:
            self._take_orders()
        elif key.fileobj is key.data.process.stdin:
            key.data.write()
        else:
            for line in key.data.read(key.fileobj):
                self.tell({"line": key.data.name, "text": line})

    def _look(self, now: float) -> None:
        """Signal the commands that are to end, and tell of those that have ended."""
        for name, command in list(self.running.items()):
            if name in self.ending and command.process.poll() is None:
                command.end(now)
            if command.has_ended():
                del self.running[name]
                self.ending.discard(name)
                command.end_input()
                self.was_killed |= command.process.returncode < 0  # Slurm keeps the job of such an srun to its time limit
                words = command.words.decode("utf-8", "replace")
                self.tell({"ended": name, "status": command.process.returncode, "words": words, "dropped": command.dropped})

    def _take_orders(self) -> None:
        data = os.read(self.orders, 1 << 20)
        self.heard = time.monotonic()
        if not data:
            self.feeds.unregister(self.orders)
            self.orders = -1
            return
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))

    def _obey(self, order: dict[str, t.Any]) -> None:
        if "common" in order:
            self.common = order["common"]
        elif "finally" in order:
            self.last = order["finally"]
        elif "start" in order:
            self.to_start.append(order)
        elif "end" in order:
            kept = [item for item in self.to_start if item["start"] != order["end"]]
            if len(kept) < len(self.to_start):
                self.to_start = collections.deque(kept)
                self.tell({"ended": order["end"], "status": -1, "words": "", "dropped": 0})
            self.ending.add(order["end"])

    def _start(self, order: dict[str, t.Any]) -> None:
        program = (self.common + order["own"]).encode()
        try:
            self.running[order["start"]] = Command(order["start"], order["argv"], program, self.feeds, order.get("tasks", 1))
        except OSError as error:
            self.tell({"ended": order["start"], "status": 127, "words": f"{order['argv'][0]}: {error.strerror}", "dropped": 0})

    def _end_all(self) -> None:
        if self.last and (self.running or self.to_start or self.was_killed):
            _run_last(self.last)
        self.ending = set(self.running)
        until = time.monotonic() + END_S
        while self.running and time.monotonic() < until:
            for key, _events in self.feeds.select(0.1):
                if key.data is not None:
                    self._serve(key)
            self._look(time.monotonic())


def _run_last(argv: list[str]) -> None:
    """Run the last command. That it fails is no news: the controller is gone, and commands are ended without it too."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=LAST_S, check=False)


def _take_no_notice(_number: int, _frame: t.Any) -> None:
    pass


def main() -> None:
    gone = False

    def tell(news: dict[str, t.Any]) -> None:
        nonlocal gone
        if not gone:
            try:
                sys.stdout.write(json.dumps(news) + "\n")
                sys.stdout.flush()
            except OSError:
                gone = True

    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _take_no_notice)  # the end of standard input says when; commands would inherit SIG_IGN
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES[1], FILES[1]))
    Feeder(sys.stdin.fileno(), tell).run()
    os._exit(0)  # what is buffered for a reader that has gone would raise an error
