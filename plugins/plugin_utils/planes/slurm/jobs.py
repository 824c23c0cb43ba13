# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The jobs of one stage, each over one node or over a group of nodes, started together over one connection, and their answers as they
arrive.

module_utils/program/feeding.py runs on the machine with the client commands: it has an srun for each job, and ends them all when it
hears nothing of us. program/job.py runs on each node. The answer of a job of one node is that of the node that Slurm gave it, whatever
the job prints. In a job of several nodes srun labels each line with the number of the task that printed it, and a task has the node that
Slurm says on its first line; a node that two tasks say is nobody's.

Nodes that work each for itself may share a job (`Job.alone`). The answer of each is taken when it is whole, and a node on which that job
does not begin gets a job of its own. What has begun is not begun again: what ended it may be a fault of the node.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import queue
import re
import secrets
import signal
import subprocess
import tempfile
import threading
import time
import types
import typing as t
import zlib

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import frame
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program.job import BEGUN
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import live_output
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.client import Client, SlurmError, environment
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import node_messages
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer, NodeWork

# What python3 -c gets to read a program of a known length, and nothing behind it: orders and beats follow.
READ_EXACTLY = """\
import sys
source, text = open(0, "rb", 0, closefd=False), b""
length = int(source.readline() or 0)
while len(text) < length:
    text += source.read(length - len(text)) or sys.exit("the program was cut")
exec(text)
"""
BEAT_S, LOOK_S = 5.0, 0.5
# How long answers are gathered before Slurm is asked for the states of their nodes.
GATHER_S = 1.0
# After which time a job that nodes share must not be in the queue any more, or they get jobs of their own: one has become busy.
SHARED_S = 20.0
# How long a job that nodes share may go on when all have answered: what their tasks have left must end (program/job.py).
LINGER_S = 30.0
# How many nodes of a job are named.
SHOWN = 8
# How long jobs may take to end when we are done, or are interrupted.
END_S = 60.0
# How long a step that reads the output of a tool may wait for its node.
OUTPUT_S = 10.0
# Reasons of a job that waits which time may end; any other, such as PartitionDown or QOSMaxJobsPerUserLimit, is a refusal.
_OF_TIME = ("Resources", "Priority", "None", "ReqNodeNotAvail", "BeginTime", "Cleaning", "Prolog")


# {node or nodes: (reason code, why no job starts there)}
Whys = dict[str, tuple[str, str]]
# What slurmstepd says if it cannot start a program.
_NO_PROGRAM = "execve():"
# What srun says where somebody has ended a job on purpose: nothing of it is begun again, unless Slurm has ended it for another job or node.
_CANCELLED = ("CANCELLED", "cancelled", "canceled", "DUE TO TIME LIMIT")
_BY_SLURM = ("DUE TO PREEMPTION", "DUE TO NODE FAILURE")
# The label of a task, which srun sets before each line of a job of several tasks.
_LABELLED = re.compile(r" *(\d{1,6}): (.*)", re.DOTALL)


def _packed(value: t.Any) -> str:
    return base64.b64encode(zlib.compress(json.dumps(value).encode())).decode()


class Task:
    """One task of a job by its output: the node that it says to be on, and its answer."""

    def __init__(self, nonce: str) -> None:
        self.node = ""
        self.reader = frame.Reader(nonce)


@dataclasses.dataclass
class Job:
    """A job over `nodes`, with one task on each. `requests`: the request to each node, {"": the request to those that are not named};
    `own_options`: options of single nodes, which each of them has besides those of its request.
    `begun_at`, by our clock, is 0.0 while it waits for its nodes; `number` is Slurm's; `unread`: what Slurm
    did not say of its nodes behind its end. `alone` makes the job of one of the nodes, if they share this one and each works for itself."""

    nodes: tuple[str, ...]
    argv: list[str]
    requests: dict[str, NodeWork]
    nonce: str = dataclasses.field(default_factory=lambda: secrets.token_hex(16))
    asked_at: float = 0.0
    begun_at: float = 0.0
    number: str = ""
    unread: str = ""
    alone: t.Callable[[str], Job] | None = None
    own_options: t.Mapping[str, t.Mapping[str, t.Any]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        # The nodes whose answers are taken, and when the last one was.
        self.answered: set[str] = set()
        self.answered_at = 0.0
        # When it is looked whether a shared job is still in the queue.
        self.look_at = 0.0

    @property
    def name(self) -> str:
        """The job for people, and among the orders of one launch."""
        return ",".join(self.nodes) if len(self.nodes) <= SHOWN else f"{self.nodes[0]} and {len(self.nodes) - 1} more nodes"

    def own(self) -> str:
        """Return what the program of this job has behind the common text. Without the variables of the job: they are options of mpirun and
        of MPI libraries, which would start steps of it."""
        packed = {node: _packed(request) for node, request in self.requests.items()}
        return (
            f"\nimport base64, json, os, zlib\nfrom {payload.PACKAGE}.program import job\n"
            "node, number = (os.environ.get(name, '') for name in ('SLURMD_NODENAME', 'SLURM_JOB_ID'))\n"
            "for name in [name for name in os.environ if name.startswith(('SLURM', 'PMI_', 'PMIX_')) and name != 'SLURM_CONF']:\n"
            "    del os.environ[name]\n"
            f"requests = {packed!r}\n"
            "read = lambda packed: json.loads(zlib.decompress(base64.b64decode(packed)))\n"
            "request = read(requests.get(node) or requests[''])\n"
            f"request['params'].update(read({_packed(self.own_options)!r}).get(node, {{}}))\n"
            f"job.main(request, {self.nonce!r}, number, node)\n"
        )

    def take(self, text: str) -> None:
        """Take a line that the job has printed."""
        label, line = "", text
        if len(self.nodes) > 1:
            match = _LABELLED.fullmatch(text)
            if not match or int(match[1]) >= len(self.nodes):
                return
            label, line = match[1], match[2]
        task = self.tasks.setdefault(label, Task(self.nonce))
        words = line.split(" ")
        if words[:3] == [BEGUN, self.nonce, "begun"] and not task.node:
            task.node = self.nodes[0] if len(self.nodes) == 1 else words[-1]
            self.number = self.number or (words[3] if words[3].isdecimal() and len(words[3]) < 20 else "")
            self.begun_at = self.begun_at or time.monotonic()
        task.reader.feed(line.encode("utf-8", "replace"))

    def of(self, node: str) -> list[Task]:
        """Return the tasks that say to be on a node: one, unless the job did not begin there, or somebody lies."""
        return [task for task in self.tasks.values() if task.node == node]

    @property
    def unanswered(self) -> list[str]:
        """The nodes whose answers are not taken yet."""
        return [node for node in self.nodes if node not in self.answered]

    def finished(self) -> list[str]:
        """Return the nodes of a shared job with a whole answer that is not taken yet. None before each task has said a node of its own:
        until then two may say the same."""
        of_node = {task.node: task for task in self.tasks.values()}
        if self.alone is None or len(self.tasks) != len(self.nodes) or set(of_node) != set(self.nodes):
            return []
        return [node for node in self.unanswered if of_node[node].reader.is_whole]

    def facts(self) -> dict[str, t.Any]:
        """Return what is known of the job besides its answer."""
        waited = {"slurm_waited_s": round(self.begun_at - self.asked_at, 1)} if self.begun_at else {}
        unread = {"slurm_unread": self.unread} if self.unread else {}
        return {**({"slurm_job": self.number} if self.number else {}), **waited, **unread}


class Answered(t.NamedTuple):
    """The answers of the nodes of a job, or what stands in their place. `blockers`: if the job has not begun, why not, by those of its
    nodes to which that is due."""

    job: Job
    answers: dict[str, NodeAnswer]
    blockers: t.Mapping[str, NodeAnswer] = types.MappingProxyType({})


class Launch:
    """The jobs of one stage. `name` is that of all its jobs; `wait_s`: how long one may wait for its node; `run_s`: how long it may run;
    `reservation`: that in which they run."""

    def __init__(self, client: Client, python: str, name: str, wait_s: float, run_s: float, reservation: str = "") -> None:
        self.client = client
        self.name = name
        self.wait_s = wait_s
        self.run_s = run_s
        self.reservation = reservation
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._feeder = subprocess.Popen(
            client.words([python, "-c", READ_EXACTLY]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._words,
            env=environment(), start_new_session=True,  # Ctrl-C at the terminal is not for it: we tell it
        )  # fmt: skip
        self._writing = threading.Lock()
        self._news: queue.Queue[dict[str, t.Any] | None] = queue.Queue()
        self._closed = threading.Event()
        # The jobs that have not ended, by their names.
        self._waiting: dict[str, Job] = {}

    def last_output(self, node: str, path: str) -> str:
        """Return what the tool on a node has printed last to the file at `path`, empty if none runs there. Raise SlurmError if it cannot be
        read: Slurm starts a step in the job, which shares all that the job has."""
        job = next((job for job in list(self._waiting.values()) if node in job.nodes and job.number), None)
        if job is None:
            return ""
        step = ("srun", f"--jobid={job.number}", f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--overlap", "--mem=0", "--mpi=none")
        read = f'tail -c {live_output.LIMIT} "$0" 2>/dev/null || :'  # no tool has run for a second yet
        return self.client.run(*step, f"--immediate={OUTPUT_S:.0f}", "--chdir=/", "--quiet", "sh", "-c", read, path)

    def run(self, jobs: t.Sequence[Job], common: str) -> t.Iterator[Answered]:
        """Run all jobs. Yield the answers as they arrive. `common`: what the program of each job begins with."""
        program = payload.sources()[f"{payload.PACKAGE}.program.feeding"].encode() + b"\nmain()\n"
        self._write(b"%d\n%s" % (len(program), program))
        for work in (self._read, self._beat):
            threading.Thread(target=work, daemon=True).start()
        self._order({"common": common})
        self._order({"finally": ["scancel", f"--name={self.name}"]})
        self._waiting = {}
        waiting = self._waiting
        for job in jobs:
            self._start(job, time.monotonic())
        gathered: list[Answered] = []
        due = 0.0
        while waiting or gathered:
            with contextlib.suppress(queue.Empty):
                news = self._news.get(timeout=LOOK_S if waiting else 0.0)
                if news is None:
                    break
                answered = self._take(news, waiting)
                if answered is not None:
                    due = due if gathered else time.monotonic() + GATHER_S
                    gathered.append(answered)
            if gathered and (not waiting or time.monotonic() > due):
                yield from self._looked_after(gathered)
                gathered = []
            yield from self._late(waiting)
        yield from self._looked_after(gathered)
        for job in waiting.values():
            yield self._all(job, self._lost())

    def _start(self, job: Job, asked_at: float) -> None:
        """Start a job. `asked_at`: since when its nodes are waited for."""
        job.asked_at, job.look_at = asked_at, asked_at + self._patience
        self._waiting[job.name] = job
        self._order({"start": job.name, "argv": job.argv, "own": job.own(), "tasks": len(job.nodes)})

    def _apart(self, job: Job, nodes: t.Sequence[str]) -> None:
        """Start a job for each of some nodes that shared one."""
        for node in nodes:
            self._start(t.cast("t.Callable[[str], Job]", job.alone)(node), time.monotonic() if job.begun_at else job.asked_at)

    def _looked_after(self, ended: t.Sequence[Answered]) -> t.Iterator[Answered]:
        """Yield answers, without those of nodes that somebody has taken out of service since their jobs were asked for."""
        nodes = sorted({node for answered in ended for node, answer in answered.answers.items() if answer.get("state") == "done"})
        if not nodes:
            yield from ended
            return
        taken: dict[str, NodeAnswer] = {}
        try:
            for node in self.client.nodes(*nodes):
                obstacle = node.obstacle() if node.name in nodes and node.is_out_of_service else None
                if obstacle:
                    words = f"taken out of service while it was measured, so its numbers are not used: {obstacle[1]}"
                    taken[node.name] = node_messages.refused(obstacle[0], words)
        except SlurmError as error:
            for answered in ended:
                answered.job.unread = f"whether the node was taken out of service meanwhile could not be read: {error.reason}"
        for answered in ended:
            yield answered._replace(answers={node: taken.get(node, answer) for node, answer in answered.answers.items()})

    def _take(self, news: dict[str, t.Any], waiting: dict[str, Job]) -> Answered | None:
        job = waiting.get(str(news.get("line") or news.get("ended") or ""))
        if job is None:
            return None
        if "ended" in news:
            del waiting[job.name]
            return self._ended(job, news)
        job.take(str(news["text"]))
        nodes = job.finished()
        if not nodes:
            return None
        job.answered.update(nodes)
        job.answered_at = time.monotonic()
        return Answered(job, {node: self._answer(job, node, "") for node in nodes})

    @staticmethod
    def _all(job: Job, answer: NodeAnswer) -> Answered:
        """Return one answer for all nodes of a job that have none."""
        return Answered(job, dict.fromkeys(job.unanswered, answer))

    def _ended(self, job: Job, news: dict[str, t.Any]) -> Answered | None:
        """Return the answers of a job that has ended, as far as they are not taken and their nodes do not get jobs of their own."""
        apart = self._not_begun(job, str(news["words"]))
        self._apart(job, apart)
        job.answered.update(apart)
        return self._last_answers(job, news) if job.unanswered else None

    @staticmethod
    def _not_begun(job: Job, words: str) -> list[str]:
        """Return the nodes of a shared job that has ended on which it did not begin, unless somebody has cancelled it."""
        is_cancelled = any(said in words for said in _CANCELLED) and not any(said in words for said in _BY_SLURM)
        return [] if job.alone is None or is_cancelled else [node for node in job.unanswered if not job.of(node)]

    def _last_answers(self, job: Job, news: dict[str, t.Any]) -> Answered:
        said = reasons.words_of(str(news["words"]))
        why = f": {said}" if said else f" with status {news['status']}"
        if not job.begun_at:
            code = "no_python" if _NO_PROGRAM in said else "job_refused"
            return self._all(job, node_messages.refused(code, f"no job of ours runs on {job.name}{why}"))
        return Answered(job, {node: self._answer(job, node, why) for node in job.unanswered})

    @staticmethod
    def _answer(job: Job, node: str, why: str) -> NodeAnswer:
        """Return the answer of one node of a job that has ended. `why` it has ended."""
        tasks = job.of(node)
        if len(tasks) > 1:
            reason = f"output of job {job.number}: {len(tasks)} of its tasks say that they are on {node}"
            return node_messages.refused("forged_frame", reason)
        try:
            if tasks:
                return t.cast(NodeAnswer, tasks[0].reader.result())
        except ReasonedError as error:
            if error.reason_code != "no_result":
                return node_messages.refused(error.reason_code, f"output of job {job.number} on {node}: {error.reason}")
        if not tasks and _NO_PROGRAM in why:
            return node_messages.refused("no_python", f"no task of job {job.number} runs on {node}{why}")
        return node_messages.refused("job_ended", f"job {job.number} on {node} ended before its answer{why}")

    def _late(self, waiting: dict[str, Job]) -> t.Iterator[Answered]:
        """Give up jobs that have waited or run for too long."""
        now = time.monotonic()
        shared = [job for job in waiting.values() if job.alone]
        for job in shared:
            if not job.begun_at and now > job.look_at:
                job.look_at = now + self._patience
                if now > job.asked_at + self.wait_s or self._is_queued(waiting):
                    self._give_up(job, waiting)
                    self._apart(job, job.nodes)
            elif not job.unanswered and now > job.answered_at + LINGER_S:
                self._give_up(job, waiting)
        unbegun = [job for job in waiting.values() if not job.begun_at and now > job.asked_at + self.wait_s]
        if unbegun:
            states = self._states()
            for job in unbegun:
                self._give_up(job, waiting)
                yield self._not_free(job, *states)
        for job in [job for job in waiting.values() if job.begun_at and now > job.begun_at + self.run_s]:
            self._give_up(job, waiting)
            yield self._all(job, {"state": "running"})

    @property
    def _patience(self) -> float:
        return min(SHARED_S, self.wait_s / 2)

    def _is_queued(self, waiting: dict[str, Job]) -> bool:
        """Return True if a job that nodes share is in the queue. A job of one node is there by the name of the node."""
        single = {job.nodes[0] for job in waiting.values() if len(job.nodes) == 1}
        with contextlib.suppress(SlurmError):
            return any(job.state == "PENDING" and job.node not in single for job in self.client.jobs(self.name))
        return False

    def _give_up(self, job: Job, waiting: dict[str, Job]) -> None:
        self._order({"end": job.name})
        del waiting[job.name]

    def _states(self) -> tuple[Whys, Whys, Whys]:
        """Return why jobs do not start, as (reason code, sentence in Slurm's words): by the nodes that a job asks for, as squeue writes
        them; by nodes on which none starts; and by nodes that somebody uses."""
        of_jobs: Whys = {}
        obstacles: Whys = {}
        busy: Whys = {}
        with contextlib.suppress(SlurmError):
            for job in self.client.jobs(self.name):
                code = "node_busy" if job.reason.startswith(_OF_TIME) else "job_refused"
                of_jobs[job.node] = code, f"job {job.id} is {job.state}, {reasons.printable(job.reason)}"
        with contextlib.suppress(SlurmError):
            nodes = self.client.nodes()
            obstacles = {node.name: obstacle for node in nodes if (obstacle := node.obstacle(self.reservation))}
            busy = {node.name: ("node_busy", f"node {node.name} is in use") for node in nodes if node.is_busy}
        return of_jobs, obstacles, busy

    def _not_free(self, job: Job, of_jobs: Whys, obstacles: Whys, busy: Whys) -> Answered:
        """Return the answers for a job that has not begun in time."""
        words = f"no job of ours started on {job.name} in the {self.wait_s:.0f} s of acceptance_slurm_wait"

        def answer(code: str, why: str) -> NodeAnswer:
            return node_messages.refused(code, f"{words}: {why}" if why else words)

        unknown = ("node_busy", "")
        if len(job.nodes) == 1:
            return self._all(job, answer(*(obstacles.get(job.nodes[0]) or of_jobs.get(job.nodes[0]) or unknown)))
        taken = {**busy, **obstacles}
        why = next(iter(of_jobs.values()), unknown)  # the job of a group is the only one of its name
        return self._all(job, answer(*why))._replace(blockers={node: answer(*taken[node]) for node in job.nodes if node in taken})

    def _lost(self) -> NodeAnswer:
        self._words.seek(0)
        said = reasons.printable(" ".join(self._words.read(4096).decode("utf-8", "replace").split()))
        words = f"{self.client.host}: the connection was lost{f': {said}' if said else ''}; its jobs end by themselves"
        return node_messages.refused("slurm_unreachable", words)

    # The connection ----------------------------------------------------------------------------------------------

    def _order(self, order: dict[str, t.Any]) -> None:
        self._write(json.dumps(order).encode() + b"\n")

    def _write(self, data: bytes) -> None:
        with self._writing, contextlib.suppress(OSError, ValueError):  # it is gone: _read says so
            stdin = t.cast("t.IO[bytes]", self._feeder.stdin)
            stdin.write(data)
            stdin.flush()

    def _read(self) -> None:
        for line in t.cast("t.IO[bytes]", self._feeder.stdout):
            with contextlib.suppress(ValueError):  # a shell's greeting
                news = json.loads(line)
                if isinstance(news, dict):
                    self._news.put(news)
        self._news.put(None)

    def _beat(self) -> None:
        while not self._closed.wait(BEAT_S):
            self._order({})

    def close(self) -> None:
        """End all jobs, and wait until they have ended."""
        self._closed.set()
        with self._writing, contextlib.suppress(OSError):
            t.cast("t.IO[bytes]", self._feeder.stdin).close()
        try:
            status = self._feeder.wait(END_S)
        except subprocess.TimeoutExpired:
            self._feeder.kill()
            status = self._feeder.wait()
        if status:  # it was killed, or the connection was lost: a job that waits for its node is still in the queue
            with contextlib.suppress(SlurmError):
                self.client.run("scancel", f"--name={self.name}")
        self._words.close()


@contextlib.contextmanager
def ended_with(launch: Launch, controller: int) -> t.Iterator[None]:
    """End the jobs of a launch at the end of the context, also after Ctrl-C and SIGTERM, and when our parent process `controller` is gone.
    After a SIGKILL of this process the machine with the client commands does it."""
    stop = threading.Event()

    def orphaned() -> None:
        while not stop.wait(0.5):
            if os.getppid() != controller:
                launch.close()
                os._exit(1)

    def end(_number: int, _frame: t.Any) -> None:
        for number in old_handlers:
            signal.signal(number, signal.SIG_IGN)  # Ansible sends both: the second must not interrupt what the first has begun
        raise SystemExit(1)

    threading.Thread(target=orphaned, daemon=True).start()
    old_handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in old_handlers:
        signal.signal(number, end)
    try:
        yield
    finally:
        launch.close()
        stop.set()
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
