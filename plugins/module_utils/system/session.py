# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A probe's stay on a node: one lock, one ledger, one guardian.

    module ---alive pipe---> guardian ---fork---> probe ---spawn---> tools
                             (subreaper)          (dies with it)     (die with the probe)

The guardian outlives the connection and ends everything: when the probe is done, when the module or its connection is
gone (of a detached probe: when its controller has been silent for a minute, see heartbeat.py), when it is told to, at the
deadline, and on SIGTERM. If the guardian itself is killed, the probe and its
tools die with it, and the next session on the node finds the ledger and undoes the leases in it.

Files under the state directory, which is removed when nothing is left in it:
    lock                     held (flock) by the guardian; says who holds it
    ledger.jsonl             processes and leases, one line each, written before the thing itself happens
    RUN_ID/STAGE.jsonl       observations, and a trailer that says how it ended; in a run also a header and checkpoints, see checkpoints.py

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import random
import select
import shutil
import signal
import sys
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import checkpoints, heartbeat, live_output, process
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.machine import Machine

DEFAULT_STATE_DIR = "/var/lib/gpufleet-acceptance"
# An uncollected result of a detached probe, or of one whose controller is gone, is kept this long after its deadline.
KEEP_S = 3600.0
# Two runs that come to a machine at the same moment, one of them in a container, may each see the other first.
MEETING_S = 2.0


# Every tool of a session carries this variable: the janitor finds even those that have left their process group.
MARK = "GPUFLEET_SESSION"


class Left(Exception):
    """A lease could not be given back, in words. It stays in the ledger, marked `left`: the next session and a restore try again."""


# kind of lease -> function that undoes it from its ledger record and returns what it did, in words, or raises Left.
Undo = t.Callable[[t.Dict[str, t.Any]], str]
LEASES: dict[str, Undo] = {"heartbeat": heartbeat.undo, "output": live_output.undo}


def default_state_dir() -> str:
    if os.geteuid() == 0:
        return DEFAULT_STATE_DIR
    return os.path.expanduser("~/.gpufleet-acceptance")  # needs no folder that would stay behind


def result_path(state_dir: str, run_id: str, stage: str) -> str:
    """Return the path of the file with the observations of a stage of a run, while they are made."""
    return os.path.join(state_dir, run_id, stage + ".jsonl")


# The random id that the kernel gives itself when it starts (random(4)); a machine that is suspended and resumed keeps it.
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def boot_id() -> str:
    try:
        with open(BOOT_ID, encoding="ascii") as source:
            return source.read().strip()
    except OSError:
        return ""


class Ledger:
    """The ledger: everything that this run may leave behind, on disk before it happens."""

    def __init__(self, state_dir: str) -> None:
        self.path = os.path.join(state_dir, "ledger.jsonl")

    def record(self, kind: str, **fields: t.Any) -> None:
        line = json.dumps(dict(fields, kind=kind, boot_id=boot_id())) + "\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            _write_all(handle, line.encode())
            os.fsync(handle)
        finally:
            os.close(handle)

    def process(self, pid: int) -> None:
        self.record("process", pid=pid, started=process.start_time(pid))

    def entries(self) -> list[dict[str, t.Any]]:
        try:
            with open(self.path, encoding="utf-8", errors="replace") as source:
                lines = source.read().splitlines()
        except FileNotFoundError:
            return []
        entries = []
        for line in lines:
            with contextlib.suppress(ValueError):  # a half-written last line: the thing itself never happened
                entry = json.loads(line)
                if isinstance(entry, dict):
                    entries.append(entry)
        return entries

    def undo(self, processes: bool = True, only: str = "") -> list[str]:
        """End recorded processes and give leases back, last first; return what was done. Safe to repeat. `processes`: False if all
        processes have ended already (the search reads all of /proc). `only`: the one kind of lease to give back; others stay recorded."""
        actions, remaining = [], []
        current_boot = boot_id()
        for entry in reversed(self.entries()):
            if only and entry["kind"] != only:
                remaining.append(entry)
            elif entry["kind"] in ("process", "session"):
                if processes and entry.get("boot_id") == current_boot:
                    for pid, started in _survivors(entry):
                        process.kill_group(pid, started, signal.SIGKILL)
                        process.kill(pid, started, signal.SIGKILL)
                        process.wait_gone(pid, started, 5)
                        actions.append(f"ended process {pid}")
            elif entry["kind"] in LEASES:
                try:
                    actions += filter(None, [LEASES[entry["kind"]](entry)])
                except Left as left:
                    remaining.append({**entry, "left": True})
                    actions.append(str(left))
            else:
                # It is of another version of the collection, which gives this lease back.
                remaining.append(entry)
                actions.append(f"left a lease of unknown kind {entry['kind']!r} in {self.path}")
        if remaining:
            self._rewrite(remaining[::-1])
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)
        return actions

    def _rewrite(self, entries: list[dict[str, t.Any]]) -> None:
        with open(self.path + ".new", "w", encoding="utf-8") as target:
            target.writelines(json.dumps(entry) + "\n" for entry in entries)
            target.flush()
            os.fsync(target.fileno())
        os.replace(self.path + ".new", self.path)


def _survivors(entry: dict[str, t.Any]) -> list[tuple[int, int]]:
    """The recorded process if it still runs, or every process that carries the recorded session's mark."""
    if entry["kind"] == "process":
        return [(entry["pid"], entry["started"])] if process.is_alive(entry["pid"], entry.get("started")) else []
    return process.with_environment(MARK, entry["mark"])


class Lock:
    """The node belongs to one session at a time."""

    def __init__(self, state_dir: str) -> None:
        self.path = os.path.join(state_dir, "lock")
        self.handle = -1
        self._signed = 0

    def try_acquire(self) -> bool:
        while True:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            try:
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            except FileNotFoundError:
                continue  # its last holder removed the folder between our two calls
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(handle)
                if error.errno in (errno.EAGAIN, errno.EACCES):
                    return False
                raise
            # Its last holder may have removed the file between our open and our lock.
            if _stands_at(self.path, handle):
                self.handle = handle
                return True
            os.close(handle)

    def holder(self) -> dict[str, t.Any]:
        try:
            with open(self.path, encoding="utf-8") as source:
                return _signature(source.readline())
        except (OSError, ValueError):
            return {}

    def sign(self, **who: t.Any) -> None:
        text = (json.dumps(who) + "\n").encode()
        os.ftruncate(self.handle, 0)
        os.pwrite(self.handle, text, 0)
        self._signed = len(text)

    def tell_to_end(self, run_id: str) -> None:
        """Ask the guardian of this run that holds the node to end. The request is written into the lock file, so that it cannot reach a
        guardian that has given the node back and only keeps the result, as a signal would."""
        with contextlib.suppress(OSError, ValueError), open(self.path, "r+", encoding="utf-8") as lock_file:
            if _signature(lock_file.readline()).get("run_id") == run_id:
                lock_file.seek(0, os.SEEK_END)
                lock_file.write("end\n")

    def told_to_end(self) -> bool:
        """Return True if somebody has asked the holder of the lock to end."""
        return os.fstat(self.handle).st_size > self._signed > 0

    def remove(self) -> None:
        os.unlink(self.path)


def _signature(line: str) -> dict[str, t.Any]:
    signature = json.loads(line)
    return signature if isinstance(signature, dict) else {}


class Session:
    """One probe of one run on this node. `machine`: what may be known under another name too."""

    def __init__(self, state_dir: str, run_id: str, stage: str, deadline_s: float, machine: Machine | None = None) -> None:
        self.state_dir = state_dir or default_state_dir()
        self.run_id = run_id
        self.stage = stage
        self.deadline_s = deadline_s
        self.result_path = result_path(self.state_dir, run_id, stage)
        self.ledger = Ledger(self.state_dir)
        self.lock = Lock(self.state_dir)
        self.machine = machine or Machine()
        self.undone: list[str] = []
        self.continues = False
        # What the node had finished before, as the same attempt of the same run: part of the result, or checkpoints.
        self.finished: list[dict[str, t.Any]] = []
        # True if a resumed run may take what is finished.
        self.keeps = False
        # What the lock says of the run besides: who drives it, and the name that the node has there.
        self.driven: dict[str, t.Any] = {}
        self.heartbeat: heartbeat.Heartbeat | None = None
        # The heartbeat file of an earlier guardian of this stage, as its controller knows it; empty if it knows none.
        self.known_heartbeat = ""
        # The path of the file that shows the output of tools, as the controller names it; empty for none.
        self.output_path = ""
        self.output: live_output.LiveOutput | None = None
        self._done_pipe = -1
        self._alive_pipe = -1

    # The module's side -------------------------------------------------------------------------------------------

    def start(
        self,
        probe: t.Callable[[], t.Iterable[dict[str, t.Any]]],
        wait_for_lock_s: float = 0.0,
        header: dict[str, t.Any] | None = None,
        detachable: bool = False,
    ) -> None:
        """Take the node, undo what a dead session left, start guardian and probe. `header` is that of checkpoints.py. What the node had
        finished of it is in `finished` when `probe` is called. `detachable`: detach() may follow, so it needs a heartbeat file."""
        try:
            self.acquire(wait_for_lock_s)
            self.undone = self.ledger.undo()
            self._remove_abandoned()
            self._begin(header)
            if detachable:
                self.heartbeat = heartbeat.Heartbeat.new(self.ledger.record, outlives=self.continues, known=self.known_heartbeat)
            self.output = live_output.new(self.ledger.record, self.output_path) if self.output_path else None
        except OSError as error:
            code = {errno.ENOSPC: "disk_full", errno.EDQUOT: "disk_full"}.get(error.errno or 0, "state_dir")
            raise ReasonedError(code, f"state directory {self.state_dir}: {os.strerror(error.errno or 0)}") from error
        done_read, done_write = os.pipe()
        alive_read, alive_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                if os.fork() == 0:
                    os.close(done_read)
                    os.close(alive_write)
                    ProbeGuardian(self, alive_read, done_write).guard(probe)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        os.close(done_write)
        os.close(alive_read)
        os.close(self.lock.handle)  # the guardian's copy keeps the lock
        if self.heartbeat:
            os.close(self.heartbeat.handle)
        if self.output:
            os.close(self.output.handle)
        self.machine.release()  # and that of the machine
        self._done_pipe, self._alive_pipe = done_read, alive_write
        self._await_signature()

    def _begin(self, header: dict[str, t.Any] | None) -> None:
        """Begin a new file for the result, with what is finished in the present one. A second kill loses nothing."""
        self.keeps = header is not None
        self.continues = bool(header and header.get("continues"))
        begun = False
        while not begun:  # its last user may remove the folder between our two calls
            os.makedirs(os.path.dirname(self.result_path), mode=0o700, exist_ok=True)
            with _alone_in(os.path.dirname(self.result_path)) as begun:
                if begun:
                    self._renew(header)

    def _renew(self, header: dict[str, t.Any] | None) -> None:
        self.finished = checkpoints.load(self.result_path, header) if header else []
        new = self.result_path + ".new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        try:
            with open(new, "xb"):
                pass
            for record in [header, *self.finished] if header else []:
                append(new, record)
            if self.continues:
                _sync(new)
            os.replace(new, self.result_path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(new)
            raise

    def _await_signature(self) -> None:
        """Wait until the guardian has signed the lock: before that a collect would take it for dead, or find the signature of an
        earlier one of this run."""
        end = time.monotonic() + 5
        while not self._guardian_lives() and time.monotonic() < end:
            if select.select([self._done_pipe], [], [], 0.005)[0]:
                return

    def wait(self, seconds: float) -> bool:
        """Wait for the probe's end; False when `seconds` passed first. Ends the process when our own output is gone:
        with it went the connection, and the guardian then ends the probe."""
        poll = _watching_output()
        poll.register(self._done_pipe, select.POLLIN | select.POLLHUP)
        end = time.monotonic() + seconds
        while True:
            events = dict(poll.poll(max(0.0, min(1.0, end - time.monotonic())) * 1000))
            if self._done_pipe in events:
                holder = self.lock.holder()
                if holder.get("run_id") == self.run_id:  # killed: its files close a moment before it is gone
                    process.wait_gone(holder.get("pid", 0), holder.get("started"), 5)
                return True
            if events:
                raise SystemExit(1)  # so that Ansible's own temporary files go too
            if time.monotonic() >= end:
                return False

    def end_without_output(self) -> None:
        """End this process if nobody reads its output any more: the connection is gone, and with it the worker that asked."""
        if _watching_output().poll(0):
            raise SystemExit(1)  # so that Ansible's own temporary files go too

    def detach(self) -> None:
        """Let the probe go on without us, to its deadline at the latest."""
        os.write(self._alive_pipe, b"d")

    def look(self, header: dict[str, t.Any], wait_for_lock_s: float = 0.0) -> list[dict[str, t.Any]]:
        """Return what `start` with this header would find, and leave it in place. End our own probe if it still runs: its other side, on
        another node, has ended or will end."""
        if not os.path.exists(self.result_path):
            return []
        self.acquire(wait_for_lock_s)
        try:
            self.lock.sign(run_id=self.run_id, stage=self.stage, pid=os.getpid(), started=process.start_time(os.getpid()))
            return checkpoints.load(self.result_path, header)
        finally:
            self.release()

    def collect(self) -> dict[str, t.Any]:
        """Return the result and remove it: {"observations": [...], "end": how the session ended or None, "fault": error of the probe or
        None, "running": bool}."""
        observations: list[dict[str, t.Any]] = []
        end = None
        fault = None
        # Asked before the file is read: a guardian that ends in between has written its end, and one that lives may yet.
        lives = self._guardian_lives()
        try:
            source = open(self.result_path, encoding="utf-8", errors="replace")  # noqa: SIM115  (closed below)
        except FileNotFoundError:
            return {"observations": [], "end": None, "fault": None, "running": False}
        with source:
            for line in source:
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                if not checkpoints.is_result(record):
                    continue
                if "end" in record:
                    end = record["end"]
                elif "fault" in record:
                    fault = record["fault"]
                else:
                    observations.append(record)
            running = end is None and lives
            if end is None and not running:
                fault = fault or _full_disk(self.state_dir)
                self._replace_guardian()
            if not running:
                self._remove_result(source.fileno())
        return {"observations": observations, "end": end, "fault": fault, "running": running}

    def is_running(self) -> bool:
        """Return True if this stage of this run has a guardian on the node."""
        return self._guardian_lives() and self.lock.holder().get("stage") == self.stage

    def heartbeat_path(self) -> str:
        """Return the heartbeat file of this run's guardian on the node, empty if it has none."""
        path = str(self.lock.holder().get("heartbeat") or "") if self._guardian_lives() else ""
        return path if heartbeat.PATH.fullmatch(path) else ""

    def was_cut_off(self) -> bool:
        """Return True if a probe that continues has left checkpoints here and no result: it, its guardian or the node was ended."""
        return not self._guardian_lives() and checkpoints.is_cut_off(self.result_path)

    def _guardian_lives(self) -> bool:
        holder = self.lock.holder()
        return holder.get("run_id") == self.run_id and process.is_alive(holder.get("pid", 0), holder.get("started"))

    def _replace_guardian(self) -> None:
        """The guardian was killed: do what it would have done."""
        end = time.monotonic() + 5
        # Its pipe to us may close a moment before its lock does.
        while os.path.isdir(self.state_dir) and time.monotonic() < end:
            if self.lock.try_acquire():
                self.undone += self.ledger.undo()
                self.lock.remove()
                os.close(self.lock.handle)
                return
            time.sleep(0.05)

    def _remove_abandoned(self) -> None:
        """Results of other runs whose guardian died before it could remove them; one that lives holds its result."""
        for run_id in os.listdir(self.state_dir):
            folder = os.path.join(self.state_dir, run_id)
            if run_id == self.run_id or not os.path.isdir(folder):
                continue
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError), open(path, "rb") as result:
                    fcntl.flock(result, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(path)
            with contextlib.suppress(OSError):
                os.rmdir(folder)

    def _remove_result(self, handle: int) -> None:
        """Remove the result if it is the file of this handle: a resume may have begun another in its place."""
        folder = os.path.dirname(self.result_path)
        with contextlib.suppress(OSError):
            with _alone_in(folder) as is_locked:
                if is_locked and _stands_at(self.result_path, handle):
                    os.unlink(self.result_path)
                    os.rmdir(folder)
            os.rmdir(self.state_dir)

    # The node, for one at a time ---------------------------------------------------------------------------------

    def acquire(self, seconds: float) -> None:
        """Take machine and lock, and wait for their holders. Raise ReasonedError, which names the holder, if they do not become free."""
        end = time.monotonic() + seconds
        patience = max(end, time.monotonic() + MEETING_S)
        while not self.machine.try_acquire():
            if time.monotonic() > patience:
                raise ReasonedError(
                    "duplicate_identity",
                    f"{self.machine.holder} measures this very machine at the moment: an inventory has it twice, by itself and as a node"
                    " of a cluster, or behind two clusters; name it once, or raise acceptance_lock_wait",
                )
            time.sleep(random.uniform(0.05, 0.2))
        ended_own = False
        while not self.lock.try_acquire():
            holder = self.lock.holder()
            own_name = self.driven.get("host")
            if own_name and holder.get("run_id") == self.run_id and holder.get("host", own_name) != own_name:
                words = f"{holder['host']} and {own_name} are one machine, which this run measures by its first name: name it once"
                raise ReasonedError("duplicate_identity", words)
            if holder.get("run_id") == self.run_id and not ended_own:
                # Our own run, from before its controller died: its guardian cleans up when told to end.
                ended_own = True
                self.lock.tell_to_end(self.run_id)
                end = max(end, time.monotonic() + 20)
            if time.monotonic() > end:
                raise ReasonedError(
                    "busy_run",
                    f"run {holder.get('run_id', '?')} (stage {holder.get('stage', '?')}, pid {holder.get('pid', '?')})"
                    " holds this node; wait for its end, or raise acceptance_lock_wait",
                )
            time.sleep(0.1)

    def release(self) -> None:
        """Give both back. Remove the folder if it is empty."""
        with contextlib.suppress(OSError):
            self.lock.remove()
        os.close(self.lock.handle)
        self.machine.release()
        with contextlib.suppress(OSError):
            os.rmdir(self.state_dir)


class ProbeGuardian:
    """The guardian of a probe: it ends the probe and undoes its leases, whichever process dies first."""

    def __init__(self, session: Session, alive: int, done_pipe: int) -> None:
        self.session = session
        self.alive = alive
        self.done = done_pipe
        self.probe = 0
        self.attached = True
        self.told_to_end = False
        self.heartbeat = session.heartbeat
        self.subreaper = False
        self.result = -1

    def guard(self, probe: t.Callable[[], t.Iterable[dict[str, t.Any]]]) -> None:
        """Does not return."""
        self._leave_terminal()
        # Locked while the guardian lives: a result without a lock is abandoned.
        self.result = os.open(self.session.result_path, os.O_RDONLY)
        fcntl.flock(self.result, fcntl.LOCK_SH)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_term)
        self.subreaper = process.prctl(process.PR_SET_CHILD_SUBREAPER, 1)
        me = os.getpid()
        deadline = time.monotonic() + self.session.deadline_s
        self.session.lock.sign(
            run_id=self.session.run_id, stage=self.session.stage, pid=me, started=process.start_time(me),
            since=int(time.time()), until=int(time.time() + self.session.deadline_s), outlives=self.session.continues,
            heartbeat=self.heartbeat.path if self.heartbeat else "", **self.session.driven,
        )  # fmt: skip
        self.probe = os.fork()
        if self.probe == 0:
            _Probe(self.session, (self.alive, self.done), me).run(probe)
        how = self._wait(deadline)
        self._clear_up(how)
        os.close(self.done)
        self._outstay(deadline + KEEP_S)
        os._exit(0)

    def _leave_terminal(self) -> None:
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.chdir("/")
        keep = {0, 1, 2, self.alive, self.done, self.session.lock.handle, self.session.machine.handle}
        keep |= {self.heartbeat.handle} if self.heartbeat else set()
        keep |= {self.session.output.handle} if self.session.output else set()
        for name in os.listdir("/proc/self/fd"):
            if int(name) not in keep:
                with contextlib.suppress(OSError):
                    os.close(int(name))

    def _on_term(self, _number: int, _frame: t.Any) -> None:
        self.told_to_end = True

    def _wait(self, deadline: float) -> str:
        poll = select.poll()
        poll.register(self.alive, select.POLLIN | select.POLLHUP)
        while True:
            pid, status = os.waitpid(self.probe, os.WNOHANG)
            if pid:
                self.probe = 0
                return "done" if status == 0 else f"the probe ended with wait status {status}"
            if self.told_to_end or self.session.lock.told_to_end() or (self.heartbeat and self.heartbeat.is_told_to_end()):
                return "interrupted"
            if self.heartbeat and not self.attached and self.heartbeat.has_lapsed():
                return "controller lost"
            if time.monotonic() > deadline:
                return "timeout"
            if poll.poll(50) and not self._heard():
                poll.unregister(self.alive)
                if self.attached:
                    return "connection lost"

    def _heard(self) -> bool:
        """Read a byte of the module's, which may have been written before it ended. Return False if it has ended and left none."""
        word = os.read(self.alive, 1)
        if word:
            self.attached = False
        return bool(word)

    def _clear_up(self, how: str) -> None:
        # The probe first: it would say of a tool that we end that it has failed.
        if self.probe:
            os.kill(self.probe, signal.SIGKILL)
        # As their subreaper we see every process the tools left, whatever session it moved to.
        for _round in range(20):
            survivors = process.descendants(os.getpid())
            for pid in survivors:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if not survivors:
                break
            time.sleep(0.02)
        undone = self.session.ledger.undo(processes=not self.subreaper or bool(survivors))
        if how == "connection lost":
            _remove_payload()
        path = self.session.result_path
        if how in ("connection lost", "controller lost", "interrupted") and not (self.session.keeps and checkpoints.has_finished(path)):
            self.session._remove_result(self.result)  # nobody will come for it: a resume measures again
        else:
            with contextlib.suppress(OSError):  # a full disk: the module finds no end and says why
                append(path, checkpoints.trailer(path, how, undone))
        self.told_to_end = False  # what was finished is kept all the same; told once more, that goes too
        self.session.release()

    def _outstay(self, until: float) -> None:
        """Remove a result that nobody has fetched, if it is still ours: for an attached probe as soon as its module is gone, unless a
        resume may come for it; else, and for a detached probe, after a while."""
        poll = select.poll()
        poll.register(self.alive, select.POLLIN | select.POLLHUP)
        while time.monotonic() < until and not self.told_to_end:
            if not _stands_at(self.session.result_path, self.result):
                return
            if poll.poll(1000 if self.attached else 5000) and not self._heard():
                if self.attached and not (self.session.keeps and checkpoints.has_finished(self.session.result_path)):
                    break
                self.attached = False
                poll.unregister(self.alive)
        self.session._remove_result(self.result)


@contextlib.contextmanager
def _alone_in(folder: str) -> t.Iterator[bool]:
    """Lock a run's folder while a file in it is removed or replaced. Yield False if the folder is missing."""
    while True:
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            yield False
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if _stands_at(folder, handle):  # nobody has removed it between our open and our lock
                yield True
                return
        finally:
            os.close(handle)


def _watching_output() -> select.poll:
    """Return a poll object with an event as soon as nobody can read the output of this process any more."""
    poll = select.poll()
    poll.register(sys.__stdout__.fileno() if sys.__stdout__ else 1, 0)
    return poll


def _stands_at(path: str, handle: int) -> bool:
    """Return True if a path leads to the file of this handle. An open file keeps its number, so that no other file has it."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def _full_disk(folder: str) -> str | None:
    """Return a text with the folder and the error of the system if the disk is full; None if it is not."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None
    return f"{folder}: {os.strerror(errno.ENOSPC)}" if disk.f_bavail * disk.f_frsize < 1 << 16 else None


def _remove_payload() -> None:
    """Remove the folder that Ansible unpacked the module into: a killed module could not."""
    for path in sys.path:
        folder = os.path.dirname(path)
        if path.endswith("_payload.zip") and os.path.basename(folder).startswith("ansible_"):
            shutil.rmtree(folder, ignore_errors=True)


class _Probe:
    def __init__(self, session: Session, pipes: tuple[int, int], guardian: int) -> None:
        self.session = session
        self.pipes = pipes
        self.guardian = guardian

    def run(self, probe: t.Callable[[], t.Iterable[dict[str, t.Any]]]) -> None:
        code = 1
        try:
            process.die_with(self.guardian)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            for handle in (*self.pipes, self.session.lock.handle, *([self.session.heartbeat.handle] if self.session.heartbeat else [])):
                os.close(handle)
            self.session.machine.release()
            os.environ[MARK] = mark = os.urandom(16).hex()
            self.session.ledger.record("session", mark=mark)
            for record in probe():
                append(self.session.result_path, record)
                if self.session.continues and not checkpoints.is_result(record):
                    _sync(self.session.result_path)
            code = 0
        except OSError as error:
            code = 3 if error.errno in (errno.ENOSPC, errno.EDQUOT) else 1
            self._note(error)
        except Exception as error:  # whatever went wrong must reach the controller as one line, not as silence
            self._note(error)
        finally:
            os._exit(code)

    def _note(self, error: Exception) -> None:
        with contextlib.suppress(OSError):
            append(self.session.result_path, {"fault": f"{type(error).__name__}: {error}"[:500]})


def append(path: str, record: dict[str, t.Any]) -> None:
    """One JSON line."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        _write_all(handle, (json.dumps(record, allow_nan=False, default=str) + "\n").encode())
    finally:
        os.close(handle)


def _sync(path: str) -> None:
    """Bring a file to its disk: the machine may lose its power at any moment, and the kernel keeps data for half a minute."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]
