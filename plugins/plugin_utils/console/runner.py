# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of an action: the collection's own playbooks in a process of their own.

Each action has a folder with what its run is told. The run outlives whoever started it, and holds a lock there while it lives: whoever
comes after a killed console finds it running, or goes on with it by playbooks/resume.yml, and never begins it twice. The folder of a run is
made by the run, under the id that it is given, and that can be done once.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.console.request import Request, written
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry as planes
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import journal
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import write_atomically
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import RUN_ID, Run

KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}\Z")
# Kinds of subjects that are a part of a planned one.
PARTS = ("gpu", "nic")
# Runs whose measured checks are remembered between two looks.
MOST_JOURNALS = 32
# A run whose controller dies again and again is not begun for ever.
MOST_BEGINS = 20
# How long one is waited for that somebody else drives.
DRIVEN_S = 12 * 3600.0
# Of what a run has printed.
TAIL_BYTES, TAIL_CHARACTERS = 65536, 600
# What Ansible prints before the reason why it goes no further.
_REASON = re.compile(r"^(?:\[ERROR\]: |ERROR! |fatal: .*?=> )(.*)$", re.MULTILINE)
_MESSAGE = re.compile(r"^\s*(?:\"msg\"|msg): (.*)$", re.MULTILINE)
# What programs print of a disk without room, or of a quota that is used up.
_FULL = re.compile(r"No space left on device|Disk quota exceeded")
# A run of some thousand nodes writes tens of megabytes.
LEAST_FREE_BYTES = 64 * 1024 * 1024
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclasses.dataclass(frozen=True)
class RunOutcome:
    """The outcome of a run that nobody drives any more. Without a verdict it was `cut_off` and can be resumed, or it cannot. `waits_for`
    says what is needed before it can be resumed, empty if nothing."""

    judged: bool = False
    accepted: bool = False
    counts: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    why: str = ""
    cut_off: bool = False
    waits_for: str = ""


class MeasuredChecks:
    """The checks of a run with at least one measurement in its journal, without those of single GPUs and ports, which no plan lists. A
    journal has hundreds of thousands of lines: only what is new since the last look is read."""

    def __init__(self, run: pathlib.Path) -> None:
        self._run = run
        self._read_bytes = 0
        self._outcomes: dict[tuple[str, str, str, str], str] = {}

    def count(self) -> int:
        """Return the number of checks. Raises OSError if there is no journal."""
        return len(self.outcomes())

    def outcomes(self) -> t.Mapping[tuple[str, str, str, str], str]:
        """Return {(stage, check, variant, subject): outcome of its last attempt}. Raises OSError if there is no journal."""
        path = journal.path_in(self._run)
        if path.stat().st_size < self._read_bytes:  # another journal
            self._read_bytes = 0
            self._outcomes.clear()
        for lines, end in journal.Journal(path).blocks(self._read_bytes):
            self._read_bytes = end
            for line in lines:
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    record = json.loads(line)
                    if record["subject"]["kind"] not in PARTS:
                        key = (record["stage"], record["check"], record["variant"], record["subject"]["id"])
                        self._outcomes[key] = str(record.get("outcome"))
        return self._outcomes


class Runner:
    """Begins runs, and finds those that others have begun. `told` are variables of the console's own, for every run."""

    def __init__(self, folder: pathlib.Path, inventory: str, results: pathlib.Path, told: t.Mapping[str, t.Any] | None = None) -> None:
        self.folder = folder
        self.inventory = inventory
        self.results = results
        self.told = dict(told or {})
        self.children: t.Dict[str, subprocess.Popen[bytes]] = {}
        self._measured: t.Dict[str, MeasuredChecks] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def work(self, key: str) -> Work:
        """The run of the action with this key."""
        if not KEY.match(key):
            raise ValueError(f"found {key[:80]!r}, expected the id of an action")
        return Work(self, key)

    def measured(self, run_id: str) -> int:
        """Return the number of checks that a run has measured. Raises OSError if it has no journal."""
        if run_id not in self._measured and len(self._measured) >= MOST_JOURNALS:
            self._measured.clear()
        checks = self._measured.setdefault(run_id, MeasuredChecks(self.results / run_id))
        return checks.count()

    def kept(self) -> t.List[str]:
        """The keys of all actions that have a folder."""
        return sorted(path.name for path in self.folder.iterdir() if path.is_dir())


def has_room(folder: pathlib.Path) -> bool:
    """Return True if the results of a run can be written to a folder. Raises OSError if the folder does not exist."""
    free = os.statvfs(folder)
    return free.f_bavail * free.f_frsize >= LEAST_FREE_BYTES and not (free.f_files and not free.f_favail)


def program() -> str:
    """ansible-playbook of the Python that we are."""
    own_program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    return str(own_program) if own_program.exists() else "ansible-playbook"


def environment() -> t.Dict[str, str]:
    """As ours, with this collection among those that Ansible finds."""
    root = str(pathlib.Path(__file__).parents[5].parent)
    configured = os.environ.get("ANSIBLE_COLLECTIONS_PATH", "")
    paths = [*filter(None, configured.split(os.pathsep)), root]
    return {**os.environ, "ANSIBLE_COLLECTIONS_PATH": os.pathsep.join(dict.fromkeys(paths)), "ANSIBLE_NOCOLOR": "1"}


class Work:
    """The run of one action."""

    def __init__(self, runner: Runner, key: str) -> None:
        self.runner = runner
        self.key = key
        self.folder = runner.folder / key

    # Begin and end --------------------------------------------------------------------------------------------------

    def begin(self, request: Request | None, run_id: str, take_over: bool = False) -> bool:
        """Begin the run with this id, or go on with it where it was begun; without a request, as it was told before. Whether it runs now
        by our doing: where somebody else drives it, it is left alone."""
        if not RUN_ID.fullmatch(run_id):
            raise ValueError(f"found {run_id[:80]!r}, expected the id of a run")
        self.folder.mkdir(exist_ok=True)
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            resume = (self.runner.results / run_id / "plan.json").is_file()
            if not resume:  # nothing was measured before there was a plan
                shutil.rmtree(self.runner.results / run_id, ignore_errors=True)
            if resume and self._run(run_id).driven() == "alive":  # by a playbook that somebody else has begun
                return False
            self._tell(request, run_id, resume and take_over)
            self._note(begins=self._noted().get("begins", 0) + 1, rc=None, pid=None, asked=False, driven_since=None)
            words = (request or _NOBODYS).argv(self.runner.inventory, str(self.folder / "variables.yml"), resume)
            with open(self.folder / "log", "ab") as log:
                self._note(log_begins=log.tell())
                child = subprocess.Popen(
                    [program(), *words[1:]], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment(),
                    start_new_session=True, pass_fds=(lock,),
                )  # fmt: skip
            self.runner.children[self.key] = child
            self._note(pid=child.pid)
            return True
        except BlockingIOError:
            return False
        finally:
            os.close(lock)

    def _tell(self, request: Request | None, run_id: str, take_over: bool) -> None:
        """The variables of the run, written once: whoever goes on with it measures what it was begun with."""
        path = self.folder / "variables.json"
        if request is not None and not path.exists():
            write_atomically(path, json.dumps(request.variables()), 0o600)
        variables = {
            **self.runner.told, **json.loads(path.read_text(encoding="utf-8")),
            "run_id": run_id, "acceptance_results_dir": str(self.runner.results.absolute()), "acceptance_take_over": take_over,
        }  # fmt: skip
        write_atomically(self.folder / "variables.yml", written(variables), 0o600)

    def alive(self) -> bool:
        """Return True if a process of the run is alive, whoever started it."""
        child = self.runner.children.get(self.key)
        if child is not None and child.poll() is not None:
            self._note(rc=child.returncode)
            del self.runner.children[self.key]
        try:
            lock = os.open(self.folder / "lock", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(lock)

    def end(self, hard: bool = False) -> None:
        """Ask the run to end, which gives everything back; `hard` kills it, and its guardians do that."""
        pid = self._noted().get("pid") if self.alive() else None
        self._note(asked=True)
        # It leads a group of its own; after it is gone nobody else gets its id while one of the group lives.
        if isinstance(pid, int) and pid > 1:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(pid) == pid:
                    os.killpg(pid, signal.SIGKILL if hard else signal.SIGTERM)

    def forget(self) -> None:
        """Its folder, not the run's."""
        shutil.rmtree(self.folder, ignore_errors=True)

    # What is known of it --------------------------------------------------------------------------------------------

    def _noted(self) -> PlainData:
        try:
            state = json.loads((self.folder / "state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def _note(self, **values: t.Any) -> None:
        if self.folder.is_dir():
            write_atomically(self.folder / "state.json", json.dumps({**self._noted(), **values}), 0o600)

    def nodes(self) -> t.Tuple[str, ...]:
        """The nodes that it was begun with; none where it was not."""
        try:
            variables = json.loads((self.folder / "variables.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return ()
        return tuple(planes.chosen_by(variables))

    def progress(self, run_id: str) -> str:
        """How many checks are measured of how many; empty before there is a plan."""
        folder = self.runner.results / run_id
        try:
            planned = self._noted().get("planned") or len(json.loads((folder / "plan.json").read_text(encoding="utf-8"))["items"])
            measured = self.runner.measured(run_id)
        except (OSError, ValueError, KeyError):
            return ""
        if not self._noted().get("planned"):
            self._note(planned=planned)
        return f"{min(measured, planned)}/{planned}"

    def outcome(self, run_id: str) -> RunOutcome:
        """Return the outcome of a run that is not alive."""
        folder = self.runner.results / run_id
        reports = [*folder.glob("report.json"), *folder.glob("judged/*/report.json")]
        for path in sorted(reports, key=lambda path: path.stat().st_mtime, reverse=True):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                report = json.loads(path.read_text(encoding="utf-8"))
                counts = {str(name): int(count) for name, count in report["counts"].items()}
                return RunOutcome(True, report["accepted"] is True, counts, str(report.get("why") or ""))
        if self._run(run_id).driven() == "alive":
            return self._driven(run_id)
        noted = self._noted()
        rc, begins = noted.get("rc"), noted.get("begins", 0)
        was_full = _FULL.search(self._log_end()) is not None
        if was_full and not has_room(self.runner.results):
            return RunOutcome(cut_off=True, waits_for=f"room in {self.runner.results}")
        if rc is None or rc < 0 or rc > 128 or noted.get("asked") or noted.get("driven_since") or was_full:
            if begins < MOST_BEGINS:
                return RunOutcome(cut_off=True)
            return RunOutcome(why=f"it was begun {begins} times, and something ended it each time; see its log")
        return RunOutcome(why=self.tail() or f"ansible-playbook ended with status {rc} without a verdict")

    def _driven(self, run_id: str) -> RunOutcome:
        """Wait, for a limited time, for another live controller of this run to finish. Never drive a run that another controller drives."""
        since = self._noted().get("driven_since")
        if since is None:
            self._note(driven_since=time.time())
        elif time.time() > since + DRIVEN_S:
            return RunOutcome(why=f"run {run_id} is driven by another process than the console's, since more than {DRIVEN_S / 3600:g} h")
        return RunOutcome(cut_off=True)

    def _run(self, run_id: str) -> Run:
        return Run(self.runner.results, run_id)

    def _log_end(self) -> str:
        """Return the last TAIL_BYTES of the log of the last begin, without colours; empty if there is no log."""
        try:
            with open(self.folder / "log", "rb") as log:
                log.seek(max(self._noted().get("log_begins", 0), log.seek(0, os.SEEK_END) - TAIL_BYTES))
                return _COLOURS.sub("", log.read().decode(errors="replace"))
        except OSError:
            return ""

    def tail(self) -> str:
        """Why it went no further, as far as its log says, in one line."""
        text = self._log_end()
        matches = _MESSAGE.findall(text) or _REASON.findall(text)
        words = " ".join((matches[-1] if matches else "").split())
        return words if len(words) <= TAIL_CHARACTERS else f"{words[: TAIL_CHARACTERS - 4]} ..."


# Of a run that goes on nothing is asked but its id.
_NOBODYS = Request(kind="stages", plane="", stages=(), settings={})
