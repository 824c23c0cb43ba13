# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launchers, which run one command over the nodes of a group, and the result of one launch.

    Mpi      mpirun, which starts every rank itself: nccl-tests, HCCL test
    Steps    srun within the job that has the nodes, whose ranks meet by PMIx: nccl-tests
    Agents   the command once on each node, with the head's address and its own number: torchrun, anything with a rendezvous of its own

A launcher knows nothing about the command that it runs. It knows the members of a group and how to enter them. The parameter `launcher` of
a probe names it.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
import signal
import socket
import subprocess
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import mpi, steps
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import live_output, process, session
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

OUTPUT_LIMIT = 8 << 20
# How long a launcher gets, after it was told to end, to end its ranks on all nodes.
END_S = 10.0
# How long a launch that hangs is looked at before it is ended.
HANG_S = 15.0
# How often the output of a launch is read for a rank that asks to be looked at, and how often a launch is looked at for that.
ASKED_S, LOOKS = 0.5, 3
# Where the first node of a launch by agents is met. Each launch has one of its own: the last one's may not be free yet.
MEETING_PORT, MEETING_PORTS = 29500, 200


class LaunchMember(t.Protocol):
    """A node as a launcher needs it."""

    name: str
    address: str
    local: bool
    node: str


class LaunchCommand(t.NamedTuple):
    """One program of a launch. `name`: name of its node, if there are several programs. `leashed`: True if the remote command ends when the
    program's standard input does."""

    argv: list[str]
    env: dict[str, str]
    name: str = ""
    leashed: bool = False


class Entry(t.NamedTuple):
    """Access to the nodes of a group. `ssh`: the program, with its options, that enters a node. `folder`: a folder for files on this
    machine. `scratch`: a folder on every node that somebody removes, or empty. `token`: the mark by which the processes of the group are
    found. `number`: number of this launch in the group."""

    ssh: list[str]
    folder: str
    scratch: str
    token: str
    number: int


class Launcher:
    """One way to run a command over nodes."""

    # Its name for people, once refusal() has returned None.
    version = ""
    # The program that starts the ranks, for people.
    program = "the launcher"

    def refusal(self, node: Node) -> tuple[str, str] | None:
        """Return (reason code, reason) if the launcher cannot be used on this node, else None."""
        raise NotImplementedError

    def processes(self, each: int) -> int:
        """Return how many processes the launcher itself starts on a node that is to have `each` ranks."""
        return each

    def commands(
        self, entry: Entry, members: t.Sequence[LaunchMember], each: int, argv: list[str], env: dict[str, str]
    ) -> list[LaunchCommand]:
        """Return the commands to run on this machine so that `argv` runs with `each` ranks on every one of `members`."""
        raise NotImplementedError

    def complaint(self, text: str, names: t.Mapping[str, str]) -> tuple[str, str] | None:
        """Return (reason code, sentence) if the output of launcher and ssh says why it did not start everything, else None."""
        return mpi.failure(text, names)


class Mpi(Launcher):
    """mpirun of any known MPI library."""

    def __init__(self, program: str = "mpirun", extra: t.Sequence[str] = (), setting: str = "mpirun") -> None:
        """`setting`: the variable that names another program."""
        self.program = program
        self.extra = extra
        self.setting = setting
        self.flavour = ""

    def refusal(self, node: Node) -> tuple[str, str] | None:
        if node.contained and node.exec["kind"] not in ("apptainer", "enroot"):
            return "unsupported", f"mpirun cannot enter a container of {node.exec['kind']} on every node; use apptainer or enroot"
        result = node.run([self.program, "--version"], timeout=30)
        if result.missing:
            return "tool_missing", f"{self.program}: {result.missing}; install Open MPI or MPICH, or set {self.setting}"
        kind = mpi.flavour(result.out + result.err)
        if kind is None:
            return "unsupported", f"{self.program} is neither of Open MPI nor of Hydra: {' '.join((result.out + result.err).split())[:200]}"
        self.flavour, self.version = kind
        return None

    def commands(
        self, entry: Entry, members: t.Sequence[LaunchMember], each: int, argv: list[str], env: dict[str, str]
    ) -> list[LaunchCommand]:
        hosts = [(member.address, each) for member in members]
        path = f"{entry.folder}/hosts-{entry.number}"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as target:
            target.write(mpi.hostfile(self.flavour, hosts))
        rank_env = {**env, **({session.MARK: entry.token} if entry.token else {})}
        words, launcher_env = mpi.command(
            self.flavour, self.program, hosts, path, argv, env=rank_env, ssh=entry.ssh, extra=self.extra, scratch=entry.scratch,
            root=os.geteuid() == 0, head_address=own_address(members) if self.flavour == mpi.HYDRA else "",
        )  # fmt: skip
        return [LaunchCommand(words, launcher_env)]


# A tool that a step cannot start, by the one who starts its tasks or by env.
_NO_TOOL = re.compile(
    r"(?m)^(?:\S{1,300}: error: execve\(\)|(?:\S{1,99}/)?env): \W?(?P<tool>[\w/][^\n:]{0,300}?)\W?: "
    r"(?:No such file|Permission)[^\n]{0,50}"
)


class Steps(Launcher):
    """srun within a job: the ranks are a step of it on the nodes, and meet by PMIx, without mpirun and without ssh.

    `extra` are options of mpirun. Those that set a parameter of Open MPI or a variable of the ranks become variables; srun has no others.
    """

    program = "srun"

    def __init__(self, job: str, extra: t.Sequence[str] = ()) -> None:
        self.job = job
        self.extra_env, self.unknown = mpi.variables(extra)

    def refusal(self, node: Node) -> tuple[str, str] | None:
        if self.unknown:
            words = f"srun starts the ranks and takes no option {self.unknown} of mpirun"
            return "unsupported", f"{words}: set a variable of the ranks in its place, or have mpirun start them"
        if node.contained and node.exec["kind"] not in ("apptainer", "enroot"):
            return "unsupported", f"srun cannot enter a container of {node.exec['kind']} on every node; use apptainer or enroot"
        result = node.run([self.program, "--mpi=list"], timeout=30)
        if result.missing:
            return "tool_missing", f"{self.program}: {result.missing}: expected the client commands on the first node of the group"
        kinds = sorted(set(re.findall(r"\bpmix\w*", result.out + result.err)))
        if not kinds:
            said = " ".join((result.out + result.err).split())[:200]
            return "unsupported", f"srun has no PMIx by which the ranks of MPI meet (srun --mpi=list: {said}); install its plugin"
        self.version = f"srun, {kinds[-1]}"
        return None

    def commands(
        self, entry: Entry, members: t.Sequence[LaunchMember], each: int, argv: list[str], env: dict[str, str]
    ) -> list[LaunchCommand]:
        rank_env = {**self.extra_env, **env, **({session.MARK: entry.token} if entry.token else {})}
        if entry.scratch:
            rank_env = {**mpi.scratch_variables(entry.scratch), **rank_env}
        nodes = [member.node for member in members]
        words = [*steps.words(self.job, len(nodes), each), "--mpi=pmix", f"--nodelist={','.join(nodes)}"]
        return [LaunchCommand([*words, "env", *(f"{name}={value}" for name, value in rank_env.items()), *argv], {})]

    def complaint(self, text: str, names: t.Mapping[str, str]) -> tuple[str, str] | None:
        missing = _NO_TOOL.search(text)
        if missing:
            ended = re.search(r"srun: error: (?P<node>\S{1,255}): tasks? [\d,-]{1,99}: Exited with exit code (?:2|126|127)\b", text)
            node = names.get(ended["node"], ended["node"]) if ended else "a node"
            return "tool_missing", f"{node} does not have {missing['tool']}, or cannot execute it: {missing.group()}"
        refused = re.search(r"srun: error: (?:Unable to create step|Invalid MPI type|MPI: |Task launch)[^\n]{0,200}", text)
        if refused:
            return "launch_failed", f"srun could not start the ranks: {refused.group()}"
        return super().complaint(text, names)


# On the other node: the command, ended when our end of the connection closes, whatever the login has to say. A killed ssh does not end
# what it has started, and the port of the rendezvous would stay in use.
_LEASHED = (
    'exec 3<&0; setsid "$@" </dev/null & a=$!; '
    "(cat <&3 >/dev/null; kill -TERM -$a; sleep 5; kill -KILL -$a) 2>/dev/null & w=$!; "
    "wait $a; r=$?; kill $w 2>/dev/null; exit $r"
)


class Agents(Launcher):
    """The command once on each node: an agent that starts the node's ranks itself and meets the others at the first node's address.

    It finds in its environment MASTER_ADDR, MASTER_PORT, NNODES, NODE_RANK and NPROC_PER_NODE, and the same as torchrun reads its own
    options (PET_NNODES and so on).
    """

    def __init__(self, port: int = MEETING_PORT) -> None:
        self.port = port

    def refusal(self, node: Node) -> tuple[str, str] | None:
        if node.contained and node.exec["kind"] not in ("apptainer", "enroot"):
            return "unsupported", f"an agent cannot enter a container of {node.exec['kind']} on every node; use apptainer or enroot"
        self.version = "one agent per node"
        return None

    def processes(self, each: int) -> int:
        return 1

    def commands(
        self, entry: Entry, members: t.Sequence[LaunchMember], each: int, argv: list[str], env: dict[str, str]
    ) -> list[LaunchCommand]:
        port = self.port + (entry.number - 1) % MEETING_PORTS
        meeting = {"MASTER_ADDR": members[0].address, "MASTER_PORT": str(port), "NNODES": str(len(members)), "NPROC_PER_NODE": str(each)}
        commands = []
        for rank, member in enumerate(members):
            rendezvous = {**meeting, "NODE_RANK": str(rank)}
            agent_env = {**rendezvous, **{f"PET_{name}": value for name, value in rendezvous.items()}, **env}
            if entry.token:
                agent_env[session.MARK] = entry.token
            if entry.scratch:
                agent_env["TMPDIR"] = entry.scratch
            if member.local:
                commands.append(LaunchCommand(argv, agent_env, member.name))
            else:
                remote = ["env", *(f"{name}={value}" for name, value in agent_env.items()), "sh", "-c", _LEASHED, "sh", *argv]
                commands.append(LaunchCommand([*entry.ssh, member.address, shlex.join(remote)], {}, member.name, True))
        return commands


def of(params: dict[str, t.Any], setting: str = "mpirun") -> Launcher:
    """Return the launcher that a probe's parameters name: {"launcher": "mpirun" (also if it is missing) or "agents", "mpirun", "mpi_args",
    "meeting_port"}."""
    if params.get("launcher", "mpirun") == "agents":
        return Agents(params.get("meeting_port") or MEETING_PORT)
    return Mpi(params["mpirun"], params["mpi_args"], setting)


# Around every rank: how it ended, since a tool's output may not say which ranks there were, its status may be 0 whatever happened, and
# mpirun of MPICH waits for ever for the others where one ends by itself. A rank that fails is killed by our hand, which mpirun sees; one
# that is told to end says nothing.
_WATCHED = (
    "trap 't=1; kill -TERM $p 2>/dev/null' TERM INT; "  # before it runs: it may have said something, and been told to end, at once
    '"$@" & p=$!; [ -z "$t" ] || kill -TERM $p 2>/dev/null; wait $p; r=$?; [ -z "$t" ] || { wait $p; exit 143; }; '
    'n=${PMI_RANK:-${PMIX_RANK:-${OMPI_COMM_WORLD_RANK:-?}}}; '
    'printf "gpufleet: rank %s on %s ended with status %s.\\n" "$n" "$(uname -n)" $r >&2; '
    "[ $r = 0 ] || { sleep 1; kill -KILL $$; }"
)
_ENDED = re.compile(r"gpufleet: rank (\d{1,7}|\?) on (\S{1,255}) ended with status (\d{1,3})\.\n?")


# Lines of mpirun itself about ranks that ended.
OF_MPIRUN = re.compile(
    r"^\s*(?:=|\[(?:proxy|mpiexec)\b|-{20,}|prterun|mpirun|Primary job|a non-zero exit|YOU CAN IGNORE|YOUR APPLICATION TERMINATED"
    r"|This typically refers to a problem with your application|Please see the FAQ page)"
)


class End(t.NamedTuple):
    """The end of a rank that ended by itself."""

    rank: str
    host: str
    status: int


def watched(argv: t.Sequence[str]) -> list[str]:
    """A command line of ranks that say how they end."""
    return ["/bin/sh", "-c", _WATCHED, "sh", *argv]


def ends(text: str) -> tuple[list[End], str]:
    """Return the ends of watched ranks that this error output reports, in the order in which they ended, and the text without these
    lines."""
    return [End(rank, host.split(".")[0], int(status)) for rank, host, status in _ENDED.findall(text)], _ENDED.sub("", text)


def own_address(members: t.Sequence[LaunchMember]) -> str:
    """Return the address by which this machine reaches the first other node of these; empty if that cannot be found out."""
    for member in members:
        if not member.local:
            with contextlib.suppress(OSError):
                family, kind, protocol, _name, where = socket.getaddrinfo(member.address, 9, type=socket.SOCK_DGRAM)[0]
                with socket.socket(family, kind, protocol) as connection:
                    connection.connect(where)  # chooses a route and sends nothing
                    return str(connection.getsockname()[0])
    return ""


class Job:
    """One launch. After run(): `rc` (of the first of its programs that failed), `out`, `err`, `timed_out`, `missing`, `started_at`,
    `duration_s`, `ends`: {node: status} of its programs in the order in which they ended by themselves. `timeout` is shorter than
    `requested_timeout` if the probe's own deadline comes first."""

    def __init__(self, commands: list[LaunchCommand], members: t.Sequence[t.Any], ranks: int, timeout: float, path: str) -> None:
        self.commands = commands
        self.members = members
        self.ranks = ranks
        self.timeout = self.requested_timeout = timeout
        self.path = path
        # Its command line as a person would have typed it, where it is another.
        self.words: list[str] = []
        # The order to its ranks; readers of the output compare the output with it.
        self.order: dict[str, t.Any] = {}
        self.rc: int | None = None
        self.out = self.err = ""
        self.dropped = 0  # bytes of either beyond the limit
        self.timed_out = False
        self.missing: str | None = None
        self.ends: dict[str, int] = {}
        self.started_at = time.time()
        self.duration_s = 0.0
        self._began = 0.0
        # By when those that are left must have ended, once one has failed.
        self._end = float("inf")
        self._children: list[subprocess.Popen[bytes]] = []
        self._shown: live_output.RunningTool | None = None
        # Called while the job hangs, before any of it is ended: at its deadline, and when `plea` is in its output. What it returned last is
        # kept behind the output.
        self.on_hang: t.Callable[[Job], str] | None = None
        self.plea = b""
        self.evidence = ""
        self._looks = LOOKS
        self._offsets: dict[str, int] = {}
        self._asked_at = 0.0

    @property
    def argv(self) -> list[str]:
        """The first of its command lines."""
        return self.commands[0].argv if self.commands else []

    @property
    def raw(self) -> str:
        """All that was kept of what it printed, and how much was not."""
        return process.shown(self.out, self.err, self.dropped) + self.evidence

    @property
    def too_much(self) -> str:
        """Return a sentence for output that lacks something because it was not read to its end."""
        return process.too_much(self.out, self.err, self.dropped, OUTPUT_LIMIT)

    def shown(self) -> list[str]:
        """Return the command line for people: without the mark by which ranks are found, and without the shell around them."""
        if self.words:
            return self.words
        words: list[str] = []
        for word in self.argv:
            if word == "sh" and words[-3:] == watched([])[:-1]:
                del words[-3:]
            elif word.startswith(f"{session.MARK}="):
                if words[-1:] == ["-x"]:
                    words.pop()
            elif words[-2:] == ["-genv", session.MARK]:
                del words[-2:]
            else:
                words.append(word)
        return words

    def start(self, node: Node) -> None:
        self.started_at, self._began = time.time(), time.monotonic()
        for number, command in enumerate(self.commands):
            with open(f"{self.path}-{number}.out", "wb") as out, open(f"{self.path}-{number}.err", "wb") as err:
                try:
                    stdin = subprocess.PIPE if command.leashed else subprocess.DEVNULL
                    child = process.spawn(command.argv, stdin=stdin, stdout=out, stderr=err, env=dict(os.environ, **command.env))
                except OSError as error:
                    self.missing = os.strerror(error.errno or 0)
                    self._end = 0.0
                    return
                self._children.append(child)
                node.record(child.pid)
        if node.live:
            self._shown = node.live.begin(self.shown(), self._last)

    def finished(self) -> bool:
        """Return True if the job has ended. End it at its deadline, or END_S after a part of it has failed."""
        if not self._children:
            return True
        current_s = time.monotonic()
        ends = [_status(child) for child in self._children]
        for command, status in zip(self.commands, ends):
            if status is not None:
                self.ends.setdefault(command.name, status)
        if self.rc is None and any(ends):
            self.rc, self._end = next(status for status in ends if status), min(self._end, current_s + END_S)
        running = None in ends
        is_due = current_s >= self._began + self.timeout
        if self.on_hang and running and self.rc is None and (is_due or self._asks(current_s)):
            try:
                self.evidence = self.on_hang(self)
            except OSError as error:  # whatever becomes of the evidence, the ranks are ended
                self.evidence = f"\n[the hang could not be looked at: {error}]\n"
            self._asks(math.inf)  # what was printed meanwhile is of the same hang
            self._looks -= 1
            if is_due:
                self.on_hang = None
        if running and not is_due and current_s < self._end:
            return False
        self.timed_out = running and self.rc is None and not self.missing
        self.duration_s = current_s - self._began
        for child in self._children:  # they end side by side
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGTERM)
            if child.stdin:
                child.stdin.close()
        for child in self._children:
            process.end(child, grace=END_S)
        if self._shown:
            self._shown.end()
            self._shown = None
        if self.rc is None:
            self.rc = next((child.returncode for child in self._children if child.returncode), 0)
        self._read()
        self._children = []
        return True

    def _asks(self, current_s: float) -> bool:
        """Return True if a rank has asked to be looked at in what was printed since the last call."""
        if not self.plea or self._looks < 1 or current_s < self._asked_at + ASKED_S:
            return False
        self._asked_at = time.monotonic()
        asks = False
        for number in range(len(self._children)):
            path = f"{self.path}-{number}.out"
            offset = self._offsets.get(path, 0)
            with open(path, "rb") as source:
                source.seek(max(0, offset - len(self.plea)))
                piece = source.read(OUTPUT_LIMIT)
                self._offsets[path] = source.tell()
            asks = asks or self.plea in piece
        return asks

    def printed(self) -> str:
        """Return what the programs of a job that runs have printed on their standard output so far."""
        paths = (f"{self.path}-{number}.out" for number in range(len(self._children)))
        return b"".join(live_output.end_of_file(path, OUTPUT_LIMIT) for path in paths).decode("utf-8", "replace")

    def _last(self, most: int) -> bytes:
        """Return the last bytes that the job has printed, at most so many."""
        paths = [f"{self.path}-{number}.{stream}" for number in range(len(self._children)) for stream in ("err", "out")]
        return b"".join(live_output.end_of_file(path, most // len(paths)) for path in paths) if paths else b""

    def _read(self) -> None:
        several = len(self._children) > 1
        for number, command in enumerate(self.commands[: len(self._children)]):
            (out, dropped), (err, more_err) = text_of(f"{self.path}-{number}.out"), text_of(f"{self.path}-{number}.err")
            self.dropped += dropped + more_err
            self.out += out
            self.err += f"{command.name}: {err.strip()}\n" if several and err.strip() else err


def run(jobs: t.Sequence[Job], node: Node, parallel: int) -> None:
    """Run all of them, at most so many at a time, each to its own deadline."""
    waiting = list(jobs)
    running: list[Job] = []
    while waiting or running:
        while waiting and len(running) < parallel:
            job = waiting.pop(0)
            job.timeout = min(job.timeout, max(1.0, node.remaining() - END_S - (HANG_S if job.on_hang else 0.0)))
            job.start(node)
            running.append(job)
        running = [job for job in running if not job.finished()]
        if node.live:
            node.live.tick()
        time.sleep(0.05)


def _status(child: subprocess.Popen[bytes]) -> int | None:
    """Return the status of a child as subprocess does, without reaping it; None if it still runs."""
    try:
        ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return child.returncode or 0
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def text_of(path: str) -> tuple[str, int]:
    """Return the content of a file and the number of its bytes that were not read. Remove the file."""
    with open(path, "rb") as source:
        data = source.read(OUTPUT_LIMIT)
        unread = os.fstat(source.fileno()).st_size - len(data)
    os.unlink(path)
    return data.decode("utf-8", "replace"), unread
