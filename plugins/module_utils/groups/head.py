# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The head of a group whose workers a launcher has started: it waits until every worker can be entered by ssh, then does the group's work.

Where a worker does not come, it says which step failed: its name does not resolve, its port is closed, or its sshd refuses.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import socket
import tempfile
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params, PlainData
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import group, launching
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import probing
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

CHECK = "command"
# What of a command's output comes back as text, each of stdout and stderr.
OUTPUT_LIMIT = 2 << 20
_TRY_S = 3.0


class Hints(t.NamedTuple):
    """Advice of the plane that launched the group, for complaints about a worker: the variable of the port, and where to look if a
    worker's name does not resolve, or if its port is closed."""

    port_variable: str = "the port"
    unresolved: str = "DNS fails"
    closed: str = "see firewalls"


NO_HINTS = Hints()


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """`params`: {"members": [{"name", "address", "host", "gpus", "problem"}], "port", "identity": path of the private key, "join_timeout",
    "hints": the Hints of the plane, "work": the request of the stage's probe} or, without work, {"argv", "env", "ranks_per_node",
    "launcher", "mpirun", "mpi_args", "command_timeout"}."""
    with tempfile.TemporaryDirectory(prefix="gpufleet-") as folder:
        nodes = meet(params["members"], params["port"], min(params["join_timeout"], node.remaining()), Hints(**params.get("hints") or {}))
        settings = {"members": nodes, "ssh_args": ssh_args(params["port"], _identity(params["identity"], folder))}
        work = params["work"]
        if work:
            yield from probing.of(work)({**work["params"], **settings}, node)
        else:
            yield UserCommand({**params, **settings}, node).run()


def ssh_args(port: int, identity: str) -> list[str]:
    """Return the options of ssh for the workers. The image's and the user's own settings are ignored. The host keys of the workers are new
    in each run."""
    words = ["-F", "/dev/null", "-p", str(port), "-i", identity]
    for setting in (
        "IdentitiesOnly=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "GlobalKnownHostsFile=/dev/null",
        "LogLevel=ERROR", "ConnectionAttempts=3", "ServerAliveInterval=10",
    ):  # fmt: skip
        words += ["-o", setting]
    return words


def _identity(path: str, folder: str) -> str:
    """Return the path of a private copy of the key: ssh refuses a key that a group may read, as a mounted one may be."""
    private_copy = f"{folder}/identity"
    handle = os.open(private_copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as target, open(path, "rb") as source:
        shutil.copyfileobj(source, target)
    return private_copy


def meet(nodes: list[PlainData], port: int, seconds: float, hints: Hints = NO_HINTS) -> list[PlainData]:
    """The nodes, each that cannot be reached within so many seconds with the step that fails as its `problem`."""
    until = time.monotonic() + seconds

    def reach(worker: PlainData) -> PlainData:
        problem = worker.get("problem")
        while not problem:
            problem = _unreachable(worker["address"], worker["host"], port, hints)
            if not problem:
                return worker
            if time.monotonic() < until:
                problem = ""
                time.sleep(0.5)
        return {**worker, "problem": problem}

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        return list(pool.map(reach, nodes))


def _unreachable(address: str, host: str, port: int, hints: Hints) -> str:
    """Return why a worker cannot be entered, and whether its name resolves, which says where to look; empty if it can be entered."""
    failure = ""
    try:
        with socket.create_connection((address, port), timeout=_TRY_S) as connection:
            return _stranger(connection, f"port {port} of {address}", hints)
    except OSError as error:
        failure = f"port {port} of {address} cannot be reached from the head ({error.strerror or error})"
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except OSError as error:
        cause = f"its name {host} does not resolve there ({error.strerror or error})"
        return f"{failure}; {cause}: {hints.unresolved}"
    resolved = f"its name {host} resolves to {', '.join(sorted(map(str, addresses)))}"
    return f"{failure}; {resolved}: {hints.closed}, and whether its sshd runs"


def _stranger(connection: socket.socket, where: str, hints: Hints) -> str:
    """Return a complaint if the program on the port is not an SSH server; empty if it is. A server sends its version first (RFC 4253,
    section 4.2). In the network of the node any program may answer on the port."""
    try:
        first = connection.recv(4)
    except OSError:
        first = b""
    if first == b"SSH-":
        return ""
    return f"what answers on {where} is no sshd: where another program uses it, set {hints.port_variable} to a free one"


# A launch of `hostname` takes a second or two.
PREFLIGHT_S = 45.0


class UserCommand:
    """A command of the user's by whichever launcher, over every node or not at all."""

    def __init__(self, params: Params, node: Node) -> None:
        self.params = params
        self.node = node
        self.env = {str(name): str(value) for name, value in params["env"].items()}
        self.launcher = launching.of(params)

    def run(self) -> PlainData:
        refusal = self.launcher.refusal(self.node)
        if refusal:
            return self._failed(refusal[0], f"{refusal[1]} (in the image of the head)")
        with group.Group({**self.params, "token": "", "key": None}, self.node, None) as group_:
            group_.gather(self.params["join_timeout"])
            absent = group_.absent()
            if absent:
                words = "; ".join(f"{name}: {reason}" for name, (_code, reason) in absent.items())
                return self._failed("member", f"{len(absent)} of {len(group_.members)} nodes did not come: {words}")
            confused = group.confused(group_.members)
            if confused:
                return self._failed(*confused)
            return self._covered(group_) or self._command(group_)

    def _covered(self, group_: group.Group) -> PlainData | None:
        """Return an observation of what is wrong with the places of the ranks; None if they are right. Open MPI 5 ignores the variables
        that the operator sets for Open MPI 4, starts every rank on the launcher's node, and reports success. So the host names are compared
        first, with the same launcher over the same nodes."""
        job = self._job(group_, ["hostname"], PREFLIGHT_S)
        each = self.launcher.processes(self.params["ranks_per_node"])
        counts: dict[str, int] = {}
        for line in job.out.splitlines():
            name = line.strip().split(".")[0]
            if name:
                counts[name] = counts.get(name, 0) + 1
        expected = {member.hostname: each for member in group_.members}
        if job.rc == 0 and counts == expected:
            return None
        if job.timed_out:
            reason = f"{self.launcher.version} did not run `hostname` on every node within {PREFLIGHT_S:.0f} s: do its daemons meet?"
            return self._failed("timeout", reason, outcome="timeout", context={"hosts": counts}, **self._about(job))
        if job.rc != 0 or job.missing:
            return self._ended_badly(job, group_, "launch_failed", context={"hosts": counts})
        names = {member.hostname: member.name for member in group_.members}
        listed = ", ".join(f"{names.get(host, host)}: {count}" for host, count in sorted(counts.items()))
        reason = f"each of {len(expected)} nodes should have {each} ranks, {self.launcher.version} started {listed or 'none'}"
        return self._failed("rank_mismatch", reason, context={"hosts": counts})

    def _command(self, group_: group.Group) -> PlainData:
        job = self._job(group_, self.params["argv"], self.params["command_timeout"])
        names = {member.hostname: member.name for member in group_.members}
        context = {
            "launcher": self.launcher.version,
            "rc": job.rc,
            "stdout": job.out[:OUTPUT_LIMIT],
            "stderr": job.err[:OUTPUT_LIMIT],
            "cut": max(len(job.out), len(job.err)) > OUTPUT_LIMIT,
            "ranks": {names[member.hostname]: self.params["ranks_per_node"] for member in group_.members},
        }
        if job.rc != 0 or job.missing or job.timed_out:
            return self._ended_badly(job, group_, "tool_failed", context=context)
        return observation.measured(CHECK, **self._about(job), context=context, metrics={"elapsed": {"value": job.duration_s, "unit": "s"}})

    def _job(self, group_: group.Group, argv: list[str], timeout: float) -> launching.Job:
        each = self.params["ranks_per_node"]
        members = group_.members
        job = group_.job(self.launcher, members, each, argv, self.env, timeout, ranks=each * len(members))
        launching.run([job], self.node, 1)
        return job

    def _ended_badly(self, job: launching.Job, group_: group.Group, code: str, context: PlainData) -> PlainData:
        if job.missing:
            return self._failed("tool_missing", f"{job.argv[0]}: {job.missing}", context=context)
        if job.timed_out:
            words = f"{self.params['argv'][0]} did not end within {job.timeout:.0f} s and was ended"
            return self._failed("timeout", words, outcome="timeout", context=context, **self._about(job))
        complaint = self.launcher.complaint(f"{job.out}\n{job.err}", group_.names())
        last = " ".join((job.err or job.out).split())[-400:]
        code, reason = complaint or (code, f"{self.launcher.version} ended with status {job.rc}: {last or 'without a word'}")
        return self._failed(code, reason, context=context, **self._about(job))

    def _about(self, job: launching.Job) -> PlainData:
        return {
            "command": job.shown(),
            "duration_s": job.duration_s,
            "started_at": observation.utc(job.started_at),
            "raw": job.out + job.err,
        }

    def _failed(self, code: str, reason: str, **fields: t.Any) -> PlainData:
        return observation.failed(CHECK, code, reason[:2000], **fields)
