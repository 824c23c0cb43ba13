# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A group of nodes as its head sees it: who takes part, how they are entered, and what is needed to launch over some of them.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import json
import os
import re
import selectors
import shlex
import shutil
import subprocess
import tempfile
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import slots
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import launching, steps
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import member as member_files
from ansible_collections.gpufleet.acceptance.plugins.module_utils.state.evidence import quiet
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import checkpoints, process
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

CONNECT_S = 10
# So many connections are opened at a time: sshd refuses some of a crowd, and a head has only so many cores.
AT_ONCE = 64
HELLO_LIMIT = 1 << 18
# A member looks some times a second; where it says nothing for so long it never will.
NOTICED_S = 10.0


@dataclasses.dataclass
class GroupMember:
    """One node of a group. `problem` is (reason code, reason) if it does not take part, else None."""

    name: str
    address: str
    local: bool = False
    hostname: str = ""
    # What the job calls it within which the head enters the nodes (steps.py).
    node: str = ""
    gpu: str | None = None
    gpus: list[str] = dataclasses.field(default_factory=list)
    memory_mib: int = 0
    ports: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    down: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    identity: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    nccl: dict[str, str] | None = None
    nvlink_domain: str = ""
    # The farthest way of a GPU to its nearest NIC (slots.PATHS), None if unknown.
    nic_path: str | None = None
    # The state that shows whether anything has happened on the node (evidence.quiet); None if it cannot show that.
    state: dict[str, t.Any] | None = None
    problem: tuple[str, str] | None = None
    leash: Leash | None = None

    def apply_hello(self, hello: dict[str, t.Any]) -> None:
        """Take over the description that the node has sent."""
        for key in ("gpu", "gpus", "memory_mib", "ports", "nvlink_domain"):
            setattr(self, key, hello[key])
        self.identity = dict(hello.get("identity") or {})
        self.down = hello.get("down") or []
        self.nccl = hello.get("nccl")
        way = hello.get("nic_path")
        self.nic_path = way if way in slots.PATHS else None
        self.state = hello.get("state")
        self.hostname = hello["hostname"].split(".")[0]  # as nccl-tests prints it
        refused = hello["refused"]
        self.problem = (refused[1], refused[2]) if refused else None


class Leash:
    """The head's hold on a member: an SSH connection that lives as long as the head does."""

    def __init__(self, argv: list[str]) -> None:
        self.argv = argv
        self.child: subprocess.Popen[bytes] | None = None
        self.output = b""
        self.due = 0.0
        self.error = "no answer"

    def start(self) -> None:
        self.output = b""
        self.child = process.spawn(self.argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    @property
    def alive(self) -> bool:
        return self.child is not None and self.child.poll() is None

    def fail(self) -> None:
        """Record why the connection ended without a hello, and when to try again."""
        if self.child:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(timeout=1)
            if self.child.poll() is None:  # it talks, but says nothing that we know
                process.end(self.child)
                self.child, self.due = None, time.monotonic() + 1
                self.error = f"its output is no hello: {self.output[-100:].decode('utf-8', 'replace')}"
                return
            words = self.child.stderr.read(4096).decode("utf-8", "replace") if self.child.stderr else ""
            self.error = " ".join(words.split())[-300:] or f"ssh ended with status {self.child.returncode}"
        self.release()
        self.due = time.monotonic() + 1

    def let_go(self) -> None:
        """Begin to release: of many members all are let go before one is waited for."""
        if self.child:
            with contextlib.suppress(ProcessLookupError):
                self.child.terminate()

    def release(self) -> None:
        if self.child:
            process.end(self.child)
            self.child = None


class Group:
    """The members of a group, and the launches over them: `with Group(params, node, local_facts) as group:`. It has a folder for its files.
    At the end every connection to a member is closed."""

    def __init__(self, params: dict[str, t.Any], node: Node, local_facts: dict[str, t.Any] | None) -> None:
        self.params = params
        self.node = node
        self.members: list[GroupMember] = []
        self.simulated = bool(local_facts and local_facts["simulated"])
        for entry in params["members"]:
            gpus = [f"slot-{slot}" for slot in range(entry.get("gpus") or 0)]
            member = GroupMember(entry["name"], entry["address"], bool(entry.get("local")), entry.get("hostname") or "", gpus=gpus)
            member.node = str(((params.get("job_steps") or {}).get("nodes") or {}).get(member.name, ""))
            if entry.get("problem"):
                member.problem = ("unreachable", entry["problem"])
            self.members.append(member)
            if member.local and local_facts:
                member.apply_hello(local_facts)
        self.folder = ""
        self._own_folder = ""  # the folder, where it is to be removed
        self.ssh: list[str] = []
        self._jobs = 0

    @property
    def seats(self) -> list[GroupMember]:
        """The former name of `members`, for probes of teams. It goes with the next release."""
        return self.members

    def __enter__(self) -> Group:
        token = self.params["token"]
        # A member's folder is in the ledger already; without members there is nothing in it worth hiding.
        self._own_folder = "" if token else tempfile.mkdtemp(prefix="gpufleet-")
        self.folder = self._own_folder or member_files.folder(token)
        self.ssh = self._ssh()
        return self

    def __exit__(self, kind: object, *_exception: object) -> None:
        if kind is None:  # else somebody is waiting for us to end
            self.noticed(NOTICED_S)
        for member in self.members:
            if member.leash:  # they end side by side
                member.leash.let_go()
        for member in self.members:
            if member.leash:
                member.leash.release()
        if self._own_folder:  # what it was told by others to use is not its own to remove
            shutil.rmtree(self._own_folder, ignore_errors=True)

    def _ssh(self) -> list[str]:
        """The program that enters a node. With a key of our own nothing of the user's settings takes part."""
        job = steps.job_of(self.params)
        if job:
            nodes = {member.address: member.node for member in self.members if member.node}
            return ["/bin/sh", self._write("enter", steps.entering(job, nodes))]  # /tmp may be mounted without programs
        private = (self.params["key"] or {}).get("private")
        if not private:
            return ["ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}", *self.params["ssh_args"]]
        self._write("key", private if private.endswith("\n") else private + "\n")
        settings = {
            "BatchMode": "yes",
            "ConnectTimeout": CONNECT_S,
            "ServerAliveInterval": 10,
            "IdentityFile": f"{self.folder}/key",
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "UserKnownHostsFile": f"{self.folder}/known_hosts",
            "GlobalKnownHostsFile": "none",
            "StrictHostKeyChecking": "accept-new",
            "LogLevel": "ERROR",
        }
        lines = "".join(f"  {name} {value}\n" for name, value in settings.items())
        return ["ssh", "-F", self._write("ssh_config", f"Host *\n{lines}"), *self.params["ssh_args"]]

    def _write(self, name: str, text: str) -> str:
        path = f"{self.folder}/{name}"
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as target:
            target.write(text)
        return path

    # Who takes part --------------------------------------------------------------------------------------------------

    def gather(self, seconds: float) -> None:
        """Connect to every member, within `seconds`. A member that has not answered by then does not take part."""
        if not self.params["token"]:
            self._ask_hostnames(seconds)
            return
        words = shlex.join(member_files.reading(self.params["token"]))
        waiting = [member for member in self.members if not member.local and not member.problem]
        for member in waiting:
            member.leash = Leash([*self.ssh, member.address, words])
        until = time.monotonic() + min(seconds, self.node.remaining())
        with selectors.DefaultSelector() as selector:
            trying: list[GroupMember] = []
            while waiting and time.monotonic() < until:
                for member in waiting:
                    leash = t.cast(Leash, member.leash)
                    if len(trying) < AT_ONCE and member not in trying and leash.due <= time.monotonic():
                        leash.start()
                        if leash.child and leash.child.stdout:
                            self.node.record(leash.child.pid)
                            selector.register(leash.child.stdout, selectors.EVENT_READ, member)
                        trying.append(member)
                for key, _events in selector.select(0.2):
                    member = key.data
                    leash = t.cast(Leash, member.leash)
                    piece = os.read(key.fd, 1 << 16)
                    leash.output += piece
                    greeted = _hello(member, leash.output)
                    if piece and not greeted and len(leash.output) < HELLO_LIMIT:
                        continue
                    selector.unregister(key.fileobj)
                    trying.remove(member)
                    if greeted:
                        waiting.remove(member)
                    else:
                        leash.fail()
        for member in waiting:
            leash = t.cast(Leash, member.leash)
            code = "no_permission" if "Permission denied" in leash.error else "unreachable"
            member.problem = (code, f"it did not let the head in within {seconds:.0f} s: {leash.error}")
            leash.release()

    def _ask_hostnames(self, seconds: float) -> None:
        """Ask nodes without a member process for their host names, unless `members` has them."""
        for member in self.members:
            if not member.hostname and not member.problem:
                argv = ["hostname"] if member.local else [*self.ssh, member.address, "hostname"]
                result = self.node.run(argv, timeout=seconds)
                member.hostname = result.out.strip().split(".")[0]
                if not result.ok or not member.hostname:
                    words = " ".join((result.err or result.out).split())[-300:]
                    member.problem = ("unreachable", f"it did not report its hostname: {words or 'no answer'}")
            if not member.gpus and not member.problem:
                member.problem = ("gpu_count", "its number of GPUs is not known")

    def present(self) -> list[GroupMember]:
        for member in self.members:
            if member.leash and not member.problem and not member.leash.alive:
                member.problem = ("lost_node", "its connection to the head is lost")
        return [member for member in self.members if not member.problem]

    def absent(self) -> dict[str, tuple[str, str]]:
        return {member.name: member.problem for member in self.members if member.problem}

    def gone(self, members: list[GroupMember]) -> list[str]:
        """Return the names of members whose connection has ended."""
        return [member.name for member in members if member.leash and not member.leash.alive]

    def heard(self, members: t.Iterable[GroupMember]) -> set[str]:
        """Return the names of members that have given a sign of life since the last call, without waiting for one."""
        names = set()
        with selectors.DefaultSelector() as selector:
            for member in members:
                leash = member.leash
                if leash and leash.alive and leash.child and leash.child.stdout:
                    selector.register(leash.child.stdout, selectors.EVENT_READ, member)
            for key, _events in selector.select(0) if selector.get_map() else ():
                piece = os.read(key.fd, 1 << 16)
                key.data.leash.output += piece  # noticed() looks for a beat in it
                if piece:
                    names.add(key.data.name)
        return names

    # What is finished ------------------------------------------------------------------------------------------------

    def checkpoint(self, name: str, observations: list[dict[str, t.Any]]) -> dict[str, t.Any]:
        """Return a checkpoint of the check `name`: its observations, and the state of every node before it was measured."""
        states = {member.name: member.state for member in self.members}
        return checkpoints.checkpoint(name, name, members=states, observations=observations)

    def finished(self) -> dict[str, list[dict[str, t.Any]]]:
        """Return the observations of finished checks, by the name of the check: those measured over the present nodes, on none of which
        anything has happened since that would be evidence against them. The members' own evidence of that time is lost."""
        states = {member.name: member.state for member in self.present()}
        finished: dict[str, list[dict[str, t.Any]]] = {}
        for checkpoint in self.node.checkpoints or ():
            finished.pop(checkpoint["of"], None)  # the last word on it counts
            states_before = checkpoint["members"]
            same_nodes = set(states_before) == set(states) and len(states) == len(self.members)
            if same_nodes and all(quiet(states_before[name], states[name]) for name in states):
                finished[checkpoint["of"]] = checkpoint["observations"]
        return finished

    def hold(self, seconds: float) -> bool:
        """Return True if every member is still connected `seconds` later. Members that are ended one by one make a measurement
        worthless."""
        time.sleep(seconds)
        return not self.gone(self.members)

    def noticed(self, seconds: float) -> None:
        """Wait until every member has noticed the head, which it shows by a beat. A member that is connected for less than its polling
        interval would wait for a head that is gone."""
        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            for leash in (member.leash for member in self.members):  # who does not take part waits for us too
                if leash and leash.alive and leash.child and leash.child.stdout and not leash.output.endswith(b"\n\n"):
                    selector.register(leash.child.stdout, selectors.EVENT_READ)
            while selector.get_map() and time.monotonic() < until:
                for key, _events in selector.select(0.2):
                    os.read(key.fd, 1 << 16)
                    selector.unregister(key.fileobj)

    def names(self) -> dict[str, str]:
        """Names by address and by host name."""
        return {key: member.name for member in self.members for key in (member.hostname, member.address) if key}

    # Launching -------------------------------------------------------------------------------------------------------

    def job(
        self,
        launcher: launching.Launcher,
        members: list[GroupMember],
        each: int,
        argv: list[str],
        env: dict[str, str],
        timeout: float,
        ranks: int,
    ) -> launching.Job:
        """A launch of `argv` with `each` ranks on every one of `members`; `ranks` in all, of what it computes."""
        self._jobs += 1
        token = self.params["token"]
        entry = launching.Entry(self.ssh, self.folder, self.folder if token else "", token, self._jobs)
        commands = launcher.commands(entry, members, each, argv, env)
        commands = [command._replace(env={**command.env, "TMPDIR": self.folder}) for command in commands]
        return launching.Job(commands, members, ranks, timeout, f"{self.folder}/out-{self._jobs}")


def _hello(member: GroupMember, output: bytes) -> bool:
    """Return True if the output of a login has a whole hello. The hello is applied to `member`; other lines of the login are ignored."""
    line = re.search(rb"(?m)^\{.*\}\n", output)
    try:
        member.apply_hello(json.loads(line.group() if line else ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    return True


# Ports ---------------------------------------------------------------------------------------------------------------


def left_by(hca: str, ports: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """The ports that NCCL_IB_HCA leaves: `^` excludes, `=` wants whole names, a word may end in `:PORT` (parseStringList and
    matchIfList of NCCL)."""
    exclude, names = hca.startswith("^"), hca.lstrip("^")
    exact, names = names.startswith("="), names.lstrip("=")
    words = [word.partition(":") for word in names.split(",") if word]

    def listed(port: dict[str, t.Any]) -> bool:
        return any(
            (port["device"] == name if exact else port["device"].startswith(name)) and number in ("", str(port["port"]))
            for name, _colon, number in words
        )

    return [port for port in ports if not words or listed(port) != exclude]


def of_gpus(ports: list[dict[str, t.Any]], gpus: int) -> list[dict[str, t.Any]]:
    """Return the ports by which GPUs send. Ports of storage stand out: rates differ, or there are more ports than `gpus`. NCCL takes the
    ports nearest to each GPU; a port that is nearest to none is left out, if the PCI tree shows the nearest GPUs (`near`) of any port."""
    near = [port for port in ports if port.get("near")]
    crowded = len(ports) > gpus or len({port.get("rate_gbps") for port in ports} - {None}) > 1
    return near if near and crowded else ports


def nics_of(members: t.Sequence[GroupMember], given: str, in_force: str) -> dict[str, t.Any]:
    """Return what the NICs of a group select, and what of them is in use.

    `given` is NCCL_IB_HCA as the run sets it, `in_force` as the machines have it. `nics` of each node are those that are there, whatever
    their ports do now: what is not active, or is left out by the machine alone, is missing in `nics_used`. `nic_gbps` is the best rate of
    their model. None where nodes differ.
    """
    there, used, beside, down = [], [], [], []
    for member in members:
        models = {port.get("model") for port in member.ports}
        allowed = left_by(given, [*member.ports, *(port for port in member.down if port.get("model") in {None, *models})])
        there.append(of_gpus(allowed, len(member.gpus)))
        beside.append(len(allowed) - len(there[-1]))
        active = left_by(in_force, member.ports)
        used.append(sum(port in active for port in there[-1]))
        down.append(len(left_by(in_force, [port for port in there[-1] if port in member.down])))
    ports = [port for of in there for port in of]
    best: dict[t.Any, float] = {}
    for port in ports:
        if port.get("rate_gbps"):
            kind = port.get("model") or port["rate_gbps"]
            best[kind] = max(port["rate_gbps"], best.get(kind, 0.0))
    counts, rates = {len(of) for of in there}, set(best.values())
    ways = [member.nic_path for member in members]
    layers = {port["link_layer"] for port in ports if port.get("link_layer")}
    return {
        "nics": counts.pop() if len(counts) == 1 else None,
        "nics_used": min(used, default=None),
        # Those of storage, which are nearest to no GPU.
        "nics_beside": max(beside, default=0),
        # Those that are there, not ruled out by NCCL_IB_HCA, and not active.
        "nics_down": max(down, default=0),
        "nic_gbps": rates.pop() if len(rates) == 1 else None,
        "link_layer": layers.pop() if len(layers) == 1 else None,
        "nic_path": None if None in ways else max(map(str, ways), key=slots.PATHS.index, default=None),
        # A bond of two ports may report the rate of one of them.
        "bonded": any("bond" in port["device"] for port in ports),
    }


def confused(members: t.Iterable[GroupMember]) -> tuple[str, str] | None:
    """Return (reason code, reason) if two nodes cannot be told apart: launchers merge nodes with one address, and ranks are counted by host
    name. None if they can."""
    for field in ("address", "hostname"):
        owners: dict[str, str] = {}
        for member in members:
            value = getattr(member, field)
            owner = owners.setdefault(value, member.name)
            if value and owner != member.name:
                words = f"both have the address {value}" if field == "address" else f"both call themselves {value}"
                return "duplicate_identity", f"{owner} and {member.name} {words}: ranks cannot be told apart"
    return None


def routable(gids: t.Iterable[t.Sequence[t.Any]]) -> list[int]:
    """Indexes of a table's [index, type, address] that NCCL could use by default: RoCE v2 over IPv4, not link-local."""
    return [
        index
        for index, kind, address in gids
        if kind == "RoCE v2" and ":" not in address and not ipaddress.ip_address(address).is_link_local
    ]
