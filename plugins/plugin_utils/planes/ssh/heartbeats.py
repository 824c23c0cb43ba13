# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that keeps detached probes alive while their controller lives, and tells them to end when it does not.

The worker that starts a probe writes a file for its host: the words that reach the host, and the heartbeat file there
(module_utils/system/heartbeat.py). This process changes that file every BEAT_S seconds, by the connection that Ansible has left open. When
the controller is interrupted or gone, it tells every host to end, all at once, and waits for them; only a probe that may outlive its
controller goes on, unless the controller was interrupted.

It runs as a program of its own, so it imports nothing of Ansible: 2,000 hosts are 130 calls a second.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import threading
import time
import typing as t

SUFFIX, LOOK, LIVE = ".heartbeat", ".look", ".live"  # those of mailbox.HEARTBEAT, LOOK and LIVE
LIVES, END = "0600", "0400"  # heartbeat.LIVES and END, as chmod takes them
BEAT_S, CALL_S, END_S = 15.0, 12.0, 60.0
AT_ONCE = 48
# Of ssh itself; any other status is that of chmod.
NOT_REACHED = 255
GONE, TOLD, UNREACHED = "gone", "told", "unreached"
# live.LOOKS_S, live.ANSWER_S and live_output.LIMIT.
LOOKS_S, ANSWER_S, OUTPUT_LIMIT = 15.0, 2.0, 16384


@dataclasses.dataclass(frozen=True)
class Host:
    """A host with a probe: the words that reach it, its heartbeat file, whether the probe may outlive its controller, its stage, and the
    file that shows the output of its tool."""

    name: str
    reach: tuple[str, ...]
    path: str
    outlives: bool
    stage: str = ""
    output: str = ""

    def call(self, mode: str) -> str:
        """Change the mode of the heartbeat file: TOLD, GONE if there is none any more, or UNREACHED."""
        try:
            done = subprocess.run(
                [*self.reach, "chmod", mode, self.path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                timeout=CALL_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return UNREACHED
        return TOLD if done.returncode == 0 else UNREACHED if done.returncode == NOT_REACHED and self.reach else GONE

    def last_output(self) -> tuple[str, str]:
        """Return the last lines that the tool on the host has printed, and why they cannot be had, empty if they can."""
        try:
            child = subprocess.Popen(
                [*self.reach, "tail", "-c", str(OUTPUT_LIMIT), self.output], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            return "", f"{(*self.reach, 'tail')[0]}: {error.strerror}"
        killer = threading.Timer(CALL_S, child.kill)
        killer.start()
        with t.cast("t.IO[bytes]", child.stdout) as out:
            text = out.read(OUTPUT_LIMIT)  # a node is not believed: it may print for ever
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1.0)
        child.kill()
        killer.cancel()
        status = child.wait()
        if not status or text:
            return text.decode("utf-8", "replace"), ""
        is_away = self.reach and status in (NOT_REACHED, -signal.SIGKILL)
        return "", f"{self.name} cannot be reached beside Ansible's connection" if is_away else "no tool has run for a second yet"


def write(path: pathlib.Path, host: Host) -> None:
    """Write the file of a host, `path` with SUFFIX. Replaces the one of an earlier stage."""
    path.with_suffix(".new").write_text(json.dumps(dataclasses.asdict(host)), encoding="utf-8")
    path.with_suffix(".new").replace(path)


def hosts(folder: pathlib.Path) -> dict[str, Host]:
    """Return {name: host} of all hosts that have a file."""
    found = (read(path) for path in folder.glob(f"*{SUFFIX}"))
    return {host.name: host for host in found if host}


def read(path: pathlib.Path) -> Host | None:
    """Return the host of a file, None if there is none."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):  # it is removed at this moment
        fields = json.loads(path.read_text(encoding="utf-8"))
        return Host(**{**fields, "reach": tuple(fields["reach"])})
    return None


def is_due(folder: pathlib.Path, stem: str) -> bool:
    """Return True if somebody looks at the output of the host whose files begin with `stem`, and the next answer is due."""
    asked_at, answered_at = (_changed_at(folder / f"{stem}{suffix}") for suffix in (LOOK, LIVE))
    now = time.time()
    return now < asked_at + LOOKS_S and now > answered_at + ANSWER_S


def _changed_at(path: pathlib.Path) -> float:
    """Return when a file was changed, 0.0 if there is none."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def answer(folder: pathlib.Path, stem: str, host: Host) -> None:
    """Write the output of a host for whoever looks at it."""
    text, problem = host.last_output()
    told = {"stage": host.stage, "at": time.time(), "text": text, "problem": problem}
    new = folder / f"{stem}{LIVE}.new"
    with contextlib.suppress(OSError):  # the run is over, and its mailbox gone
        new.write_text(json.dumps(told), encoding="utf-8")
        new.replace(folder / f"{stem}{LIVE}")


def begin(folder: pathlib.Path, controller: int, told: int, said: int, terminal: int, advice: str) -> bool:
    """Begin the process for this controller unless it runs already, and return when it listens. Return False if it cannot be begun. The
    descriptors are those of interruption.Inherited; `advice` is the command that ends what could not be told."""
    lock = os.open(folder / "heartbeats.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if _runs(lock):
            return True
        words = [sys.executable, "-I", __file__, str(folder), str(controller), str(told), str(said), str(terminal), str(lock), advice]
        keeper = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            pass_fds=(lock, told, said, terminal),
        )  # fmt: skip
        with t.cast("t.IO[bytes]", keeper.stdout) as lives:
            return lives.read(1) == b"+"
    except OSError:
        return False
    finally:
        os.close(lock)


def _runs(lock: int) -> bool:
    """Return True if the process of this folder listens, and else lock the file for the one that is to begin. Whoever begins it holds an
    exclusive lock until it listens, and it holds a shared one as long as it lives."""
    for kind in (fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_SH, fcntl.LOCK_EX | fcntl.LOCK_NB):
        try:
            fcntl.flock(lock, kind)
            if kind != fcntl.LOCK_SH:
                return False
        except BlockingIOError:
            continue
    return True


class Keeper:
    """Beats while the controller lives; then ends."""

    def __init__(self, folder: pathlib.Path, controller: int, told: int, terminal: int, advice: str) -> None:
        self.folder = folder
        self.controller = controller
        self.started = _start_time(controller)
        self.told = told
        self.terminal = terminal
        self.advice = advice
        self.pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
        self.beaten: dict[str, float] = {}
        self.beating: dict[str, concurrent.futures.Future[str]] = {}
        # {what the files of a host begin with: its answer that is on the way}
        self.answering: dict[str, concurrent.futures.Future[None]] = {}
        # Heartbeat files that are gone: their probes have ended and wait to be collected.
        self.gone: set[str] = set()

    def keep(self) -> bool:
        """Beat until the controller is interrupted (return True) or gone (return False)."""
        while True:
            if select.select([self.told], [], [], 1.0)[0]:
                return bool(os.read(self.told, 1))  # its end where the controller and all workers are gone
            if not self.started or _start_time(self.controller) != self.started:
                return False
            self._beat()
            self._answer()

    def _answer(self) -> None:
        """Answer whoever looks at the output of a host."""
        for asked in self.folder.glob(f"*{LOOK}"):
            stem = asked.name[: -len(LOOK)]
            if (stem in self.answering and not self.answering[stem].done()) or not is_due(self.folder, stem):
                continue
            host = read(self.folder / f"{stem}{SUFFIX}")
            if host and host.output:
                self.answering[stem] = self.pool.submit(answer, self.folder, stem, host)

    def _beat(self) -> None:
        for path, call in list(self.beating.items()):
            if call.done():
                del self.beating[path]
                if call.result() == GONE:
                    self.gone.add(path)
        now = time.monotonic()
        for host in hosts(self.folder).values():
            if host.outlives or host.path in self.gone or host.path in self.beating or now < self.beaten.get(host.path, 0.0) + BEAT_S:
                continue
            self.beaten[host.path] = now
            self.beating[host.path] = self.pool.submit(host.call, LIVES)

    def end(self, interrupted: bool) -> None:
        """Tell the hosts to end and wait until they have given everything back. So too those where a worker was just starting a probe."""
        states: dict[str, str] = {}
        # A worker that collects a probe removes its file; the probe is waited for all the same.
        known: dict[str, Host] = {}
        until, shown = time.monotonic() + END_S, 0.0
        while time.monotonic() < until:
            known.update((host.path, host) for host in self._started(interrupted))
            pending = [host for host in known.values() if states.get(host.path) != GONE]
            if not pending:
                break
            if not states:
                why = "interrupted" if interrupted else "the controller is gone"
                self._show(f"{why}: telling {_counted(len(pending))} to end what was started there")
                shown = time.monotonic()
            elif time.monotonic() > shown + 5:
                shown = time.monotonic()
                self._show(f"{len(states) - len(pending)} of {_counted(len(states))} have ended")
            states.update(zip((host.path for host in pending), self.pool.map(lambda host: host.call(END), pending), strict=True))
            time.sleep(0.5)
        self._conclude(known, states)

    def _started(self, interrupted: bool) -> list[Host]:
        """Return the hosts whose probe is to end."""
        return [host for host in hosts(self.folder).values() if host.path not in self.gone and (interrupted or not host.outlives)]

    def _conclude(self, known: dict[str, Host], states: dict[str, str]) -> None:
        remaining = {host.name: states.get(path) for path, host in known.items() if states.get(path) != GONE}
        ended = list(states.values()).count(GONE)
        if not remaining:
            if states:
                self._show(f"{_counted(ended)} of {ended} have ended and given back what was changed")
            return
        words = {TOLD: "told, still at work"}
        named = ", ".join(f"{name} ({words.get(state or '', 'not reached')})" for name, state in sorted(remaining.items())[:20])
        self._show(f"{_counted(ended)} of {len(states)} have ended. Not ended: {named}{' ...' if len(remaining) > 20 else ''}")
        self._show(f"a probe that hears nothing ends by itself after a minute, one of a soak goes on; to end them: {self.advice}")

    def _show(self, line: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self.terminal, f"{line}\n".encode())


def _start_time(pid: int) -> str:
    """Return when a process was started, in the kernel's words; empty if there is none. The id of one that is gone may be another's."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def _counted(count: int) -> str:
    return f"{count} host" if count == 1 else f"{count} hosts"


def main(words: t.Sequence[str]) -> None:
    folder, controller, told, said, terminal, lock, advice = words
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the controller says when
    keeper = Keeper(pathlib.Path(folder), int(controller), int(told), int(terminal), advice)
    os.write(int(said), b"+")
    fcntl.flock(int(lock), fcntl.LOCK_SH)
    os.write(1, b"+")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        keeper.end(keeper.keep())
    finally:
        with contextlib.suppress(OSError):
            os.write(int(said), b"-")
        os._exit(0)  # threads may wait for hosts that do not answer


if __name__ == "__main__":
    main(sys.argv[1:])
