# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent of a node in a training over nodes: it describes its node, meets the other agents, and runs torchrun.

Agents meet before torchrun does, at the address and port of its rendezvous. torchrun waits for minutes for a node that does not come and
does not name it; it waits for ever if another program has its port; and it runs even if versions or numbers of nodes differ. The agent of
the first node answers all others whether to go on, or why not.

The module also has what agents and ranks share: their output and their codes of failures. It travels in front of the ranks' own text
(workloads/packing.py), so it imports nothing of this collection but stacks.py, which travels, too.

This workload is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import glob
import importlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import typing as t
import warnings

if "answer_with_stacks" not in globals():  # else it stands above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.stacks import STACKS

# As in module_utils/answer/plain_data.py, which does not travel with this file.
PlainData = t.Dict[str, t.Any]

# Its own text, which agents hand on to their ranks. The program that runs it from memory has set it.
SOURCE: str = globals().get("SOURCE", "")
# The variable by which a test plants a fault into ranks and agents. Only tests set it, and all output is marked then.
PLANTED = "GPUFLEET_PLANTED_FAULT"
MARK = "simulated by gpufleet.acceptance"
LINE = 60000
# Seconds that the first node of a group that cannot train waits for agents that do not know it yet.
LATECOMERS_S = 5.0
# What a rank says that lost another one: it is not the cause.
LOST = ("connection closed", "connection reset", "broken pipe", "connection refused", "remote process exited", "unhandled system error")


def put(text: str) -> None:
    """One line in one write: ranks share a pipe."""
    os.write(1, text.encode() + b"\n")


def say(**record: t.Any) -> None:
    put(json.dumps(record, separators=(",", ":")))


class CannotTrain(Exception):
    """The group cannot train: a reason code and a sentence."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def words(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:600]


def code_of(error: BaseException, otherwise: str, order: PlainData) -> str:
    """Return the reason code of an error; `order` is what each rank is told."""
    message = f"{type(error).__name__} {error}".lower()
    if isinstance(error, CannotTrain):
        return error.code
    if "outofmemory" in message or "out of memory" in message or "can't allocate memory" in message or isinstance(error, MemoryError):
        return "out_of_memory"
    if "rendezvous" in message and "timeout" in message:
        return "rendezvous"
    if "timed out" in message or "timeout" in message:
        return "timeout"
    if any(word in message for word in LOST):
        return "partner"
    if any(word in message for word in ("cuda", "nccl", order.get("device"), order.get("backend")) if word not in (None, "cpu", "gloo")):
        return "cuda_failed"
    return otherwise


# The agent -------------------------------------------------------------------------------------------------------------


class Agent:
    """The agent of a node: it describes its node, meets the other agents, and runs torchrun.

    Order: {"role": "agent", "id", "nodes": names by NODE_RANK, "addresses": the same of their own, "rendezvous": "c10d" or "static",
    "join_timeout", "socket_interface": whether NCCL is told the interface too, "order": what each rank is told}.
    MASTER_ADDR, MASTER_PORT, NNODES, NODE_RANK and NPROC_PER_NODE are in its environment.
    """

    def __init__(self, order: PlainData) -> None:
        self.began = time.monotonic()
        self.order = order
        self.number = int(os.environ["NODE_RANK"])
        self.nodes: t.List[str] = order["nodes"]
        self.name = self.nodes[self.number] if self.number < len(self.nodes) else socket.gethostname()
        self.master = os.environ["MASTER_ADDR"]
        self.port = int(os.environ["MASTER_PORT"])
        self.each = int(os.environ["NPROC_PER_NODE"])
        self.description: PlainData = {}

    def run(self) -> int:
        signal.signal(signal.SIGTERM, _leave)
        with tempfile.TemporaryDirectory(prefix="gpufleet-ddp-") as scratch, _swept(scratch):
            self._interface()
            self.description = self.describe()
            self._break()
            say(kind="node", **self.description)
            self._log()
            try:
                Meeting(self.order, self.description, self.number, self.master, self.port).attend()
            except CannotTrain as refused:
                say(kind="fault", node=self.name, code=refused.code, reason=str(refused))
                put(f"[RESULT] {self.name}: {refused}")
                return 1
            return self._torchrun(scratch)

    def _break(self) -> None:
        """Break this node in the way that a test asks for."""
        planted = json.loads(os.environ.get(PLANTED, "{}"))
        if planted.get("node") != self.name:
            return
        put(f"# a fault is planted: {MARK}")
        if planted["kind"] == "absent":
            time.sleep(1e6)
        elif planted["kind"] == "version":
            self.description["torch"] = "0.4.1"
        elif planted["kind"] == "nnodes":
            self.description["nnodes"] += 1

    def describe(self) -> PlainData:
        description: PlainData = {
            "id": self.order["id"],
            "node": self.name,
            "node_rank": self.number,
            "nnodes": int(os.environ["NNODES"]),
            "nproc": self.each,
            "nodes": len(self.nodes),
            "hostname": socket.gethostname(),
            "python": sys.version.split()[0],
            "backend": self.order["order"].get("backend", "nccl"),
            "interface": os.environ.get("GLOO_SOCKET_IFNAME", ""),
            "problem": None,
        }
        if self.number >= len(self.nodes):
            description["problem"] = ["rank_mismatch", f"it was given NODE_RANK {self.number} of {len(self.nodes)} nodes"]
            return description
        try:
            import torch
        except (ImportError, OSError) as error:  # OSError: a library of it that does not load
            description["problem"] = ["torch_missing", f"{sys.executable} cannot import PyTorch: {error}"[:400]]
            return description
        description.update(torch=torch.__version__, cuda=torch.version.cuda or "")
        if not torch.distributed.is_available():
            description["problem"] = ["torch_missing", f"torch {torch.__version__} is built without torch.distributed"]
        elif self.order["order"].get("plugin"):
            description.update(_plugged(torch, self.order["order"]["device"], self.order["order"]["plugin"], self.each))
        elif self.order["order"].get("device", "cuda") == "cuda":
            build = self.order["order"]
            description.update(cuda=getattr(torch.version, build.get("build", "cuda"), None) or "")
            description.update(_cuda(torch, self.each, build))
        return description

    def _log(self) -> None:
        a = self.description
        words = f"torch {a.get('torch', 'missing')}, CUDA {a.get('cuda') or 'none'}, NCCL {a.get('nccl') or 'none'}"
        devices = f"{a.get('devices', 0)} devices, {a['nproc']} ranks, interface {a['interface'] or 'not known'}"
        put(f"[ENV] {self.name}: Python {a['python']}, {words}, {devices}")

    def _interface(self) -> None:
        """Let gloo, and NCCL unless it is configured, use the interface by which the nodes find one another."""
        address = self.order["addresses"][self.number] if self.number < len(self.order["addresses"]) else ""
        name = interface_of(address)
        if name:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
            if self.order.get("socket_interface"):
                os.environ.setdefault("NCCL_SOCKET_IFNAME", name)

    def _torchrun(self, scratch: str) -> int:
        from torch.distributed import run
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

        script, order = os.path.join(scratch, "ddp.py"), os.path.join(scratch, "order.json")
        with open(script, "w", encoding="utf-8") as target:
            target.write(SOURCE or _own_text())
        with open(order, "w", encoding="utf-8") as target:
            settings = {"join_timeout": self.order["join_timeout"], "node": self.name, "nnodes": len(self.nodes)}
            json.dump({**self.order["order"], **settings}, target)
        for name in [name for name in os.environ if name.startswith("PET_")]:
            del os.environ[name]  # torchrun would read its options there, too
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ["TMPDIR"] = tempfile.tempdir = scratch
        os.environ[STACKS] = os.path.join(scratch, "stacks")
        os.mkdir(os.environ[STACKS])
        options = {word for action in run.get_args_parser()._actions for word in action.option_strings}
        address = self.order["addresses"][self.number]
        _mend(run, "" if "--local_addr" in options else address)
        wait = int(self.order["join_timeout"])
        argv = [f"--nnodes={len(self.nodes)}", f"--nproc_per_node={self.each}", "--max_restarts=0", "--monitor_interval=0.5"]
        argv.append(f"--log_dir={os.path.join(scratch, 'logs')}")
        argv += rendezvous_options(self.order["rendezvous"], self.master, self.port, self.number, self.order["id"], wait)
        if self.order["rendezvous"] == "c10d" and "--local_addr" in options:
            argv.append(f"--local_addr={address}")
        try:
            run.run(run.parse_args([*argv, script, order]))
        except ChildFailedError as failed:
            for rank, failure in failed.failures.items():
                say(kind="ended", node=self.name, rank=rank, local=failure.local_rank, exitcode=failure.exitcode)
            return 1
        except Exception as error:
            if type(error).__name__ == "SignalException":  # the group was ended, for a reason that others know
                return 1
            code = code_of(error, "rendezvous", self.order["order"])
            say(kind="fault", node=self.name, by="torchrun", code=code, reason=f"{self.name}: {words(error)}")
            return 1
        say(kind="agent", node=self.name, seconds=round(time.monotonic() - self.began, 2))
        return 0


def rendezvous_options(rendezvous: str, address: str, port: int, number: int, name: str, wait: int) -> t.List[str]:
    """Return the rendezvous of node `number`, as options of torchrun."""
    if rendezvous == "c10d":
        where = f"[{address}]" if ":" in address else address
        # Which agent keeps the store is known; torchrun would compare names of hosts.
        conf = f"is_host={'true' if number == 0 else 'false'},join_timeout={wait},read_timeout={wait},timeout={wait}"
        return ["--rdzv_backend=c10d", f"--rdzv_endpoint={where}:{port}", f"--rdzv_id={name}", f"--rdzv_conf={conf}"]
    return [f"--node_rank={number}", f"--master_addr={address}", f"--master_port={port}", f"--rdzv_conf=timeout={wait}"]


def _leave(*_about: object) -> None:
    """End by an exception, so that files and processes are cleaned up."""
    raise SystemExit(143)


@contextlib.contextmanager
def _swept(folder: str) -> t.Iterator[None]:
    """Let a second process remove the folder if this one is killed: torchrun needs minutes to end and ignores signals meanwhile."""
    argv = ["sh", "-c", 'cat >/dev/null; rm -rf "$1"', "sh", folder]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True):
        yield


def _own_text() -> str:
    with open(__file__, encoding="utf-8") as source:
        return source.read()


def _mend(run: t.Any, address: str) -> None:
    """Work around two defects of torchrun. torch 1.13 under Python 3.11 rejects its own default for the redirection of output. Versions
    without --local_addr give the ranks the host name of the first rank, which other nodes need not know: `address` is one that they
    know."""
    from torch.distributed.elastic.agent.server import api

    if address and hasattr(api, "_get_fq_hostname"):
        api._get_fq_hostname = lambda: address
    std = getattr(run, "Std", None)
    if std is not None and std.from_str("0") is None:
        from_str = std.from_str
        std.from_str = classmethod(lambda cls, text: cls(0) if text == "0" else from_str(text))


def _cuda(torch: t.Any, ranks: int, order: PlainData) -> PlainData:
    """Return the number of devices and the version of the collective library of this node, and why it cannot take part. `order` has the
    build of PyTorch that its devices need, and how people call it."""
    build, word = order.get("build", "cuda"), order.get("build_word", "CUDA")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
        count = torch.cuda.device_count()
    messages = " ".join(str(warning.message) for warning in caught)
    facts: PlainData = {"devices": count, "nccl": ""}
    with contextlib.suppress(Exception):
        version = torch.cuda.nccl.version()
        facts["nccl"] = ".".join(map(str, version)) if isinstance(version, tuple) else str(version)
    variable = order.get("visible") or "CUDA_VISIBLE_DEVICES"
    visible = os.environ.get(variable)
    visible_text = "" if visible is None else f", {variable} is {visible!r}"
    if not getattr(torch.version, build, None):
        facts["problem"] = ["torch_missing", f"torch {torch.__version__} is built without {word}"]
    elif "too old" in messages:
        number = re.search(r"found version (\d+)", messages)
        driver = f" for CUDA {int(number.group(1)) // 1000}.{int(number.group(1)) % 1000 // 10}" if number else ""
        built = f"torch {torch.__version__} is built for CUDA {torch.version.cuda}"
        facts["problem"] = ["driver_too_old", f"{built}, newer than the driver{driver}"]
    elif not available or not count:
        pattern = order.get("device_files") or r"/dev/nvidia\d+"
        nodes = [path for path in (*glob.glob("/dev/*"), *glob.glob("/dev/*/*")) if path == "/dev/dxg" or re.fullmatch(pattern, path)]
        where = f"{len(nodes)} device files of GPUs in /dev" if nodes else "no device file of a GPU in /dev"
        facts["problem"] = ["gpu_invisible", f"torch sees no GPU: {where}{visible_text}{'; ' + messages if messages else ''}"[:500]]
    elif count < ranks:
        facts["problem"] = ["gpu_invisible", f"{ranks} ranks need a GPU each, and torch sees {count}{visible_text}"]
    return facts


def _plugged(torch: t.Any, device: str, plugin: str, ranks: int) -> PlainData:
    """Return the number of devices of a type that the package `plugin` adds to PyTorch, its version, and why the node cannot take part."""
    try:
        version = getattr(importlib.import_module(plugin), "__version__", "")
        count = getattr(torch, device).device_count()
    except (ImportError, OSError, AttributeError, RuntimeError) as error:
        return {"problem": ["torch_missing", f"{plugin} cannot be used: {error}"[:400]]}
    facts: PlainData = {"devices": count, "plugin": f"{plugin} {version}"}
    if count < ranks:
        facts["problem"] = ["gpu_invisible", f"{ranks} ranks were asked for and {plugin} sees {count} devices"]
    return facts


def interface_of(address: str) -> str:
    """Return the network interface that has this address; empty if none has."""
    import array
    import fcntl

    if ":" in address:
        with contextlib.suppress(OSError, ValueError):
            hex_address = socket.inet_pton(socket.AF_INET6, address.partition("%")[0]).hex()
            with open("/proc/net/if_inet6", encoding="ascii") as source:
                return next((row[-1] for row in map(str.split, source) if row[0] == hex_address), "")
        return ""
    room = array.array("B", bytes(256 * 40))
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        wanted_v4 = socket.inet_aton(socket.gethostbyname(address)) if address else b""
        request = struct.pack("iL", len(room), room.buffer_info()[0])
        used = struct.unpack("iL", fcntl.ioctl(sock.fileno(), 0x8912, request))[0]  # SIOCGIFCONF
        entries = room.tobytes()[:used]
        for at in range(0, used, 40):
            if entries[at + 20 : at + 24] == wanted_v4:
                return entries[at : at + 16].split(b"\0")[0].decode().partition(":")[0]
    return ""


# The meeting of the agents ---------------------------------------------------------------------------------------------


class Meeting:
    """The meeting of all agents: each describes itself to the first one, which answers with a go or a refusal."""

    # What must be the same on all nodes, with its name for people.
    ALIKE = (("torch", "PyTorch"), ("nccl", "NCCL"), ("cuda", "the CUDA of PyTorch"), ("nnodes", "--nnodes"), ("nproc", "--nproc_per_node"),
             ("plugin", "the package that adds the devices to PyTorch"), ("backend", "the backend"))  # fmt: skip

    def __init__(self, order: PlainData, description: PlainData, number: int, address: str, port: int) -> None:
        self.order = order
        self.description = description
        self.number = number
        self.address = address
        self.port = port
        self.until = time.monotonic() + order["join_timeout"]

    def attend(self) -> None:
        """Return once every agent may start torchrun. Raise CannotTrain if this group cannot train."""
        answer = self._receive() if self.number == 0 else self._visit()
        if answer:
            raise CannotTrain(*answer)

    def left(self) -> float:
        return float(max(0.1, self.until - time.monotonic()))

    def stop_waiting(self) -> None:
        """Wait LATECOMERS_S more at most, because this group cannot train. A node that comes within that time is told why."""
        self.until = min(self.until, time.monotonic() + LATECOMERS_S)

    def _receive(self) -> t.List[str] | None:
        guests: t.Dict[str, t.Tuple[socket.socket, PlainData]] = {}
        try:
            listener = _listener(self.port)
        except OSError as error:
            return ["port_in_use", f"port {self.port} of the first node cannot be had: {error.strerror}: set ddp_port, or end what has it"]
        with listener, contextlib.ExitStack() as open_ones:
            if self.description["problem"]:
                self.stop_waiting()
            while len(guests) < len(self.order["nodes"]) - 1 and time.monotonic() < self.until:
                listener.settimeout(self.left())
                try:
                    guest, _where = listener.accept()
                except OSError:
                    break
                open_ones.callback(guest.close)
                guest.settimeout(5)
                greeting = _read_line(guest)
                if greeting and greeting.get("id") == self.order["id"]:  # a stranger, else
                    guests[str(greeting.get("node_rank"))] = (guest, greeting)
                    if greeting.get("problem"):
                        self.stop_waiting()
            everybody = [self.description, *(greeting for _guest, greeting in guests.values())]
            missing = [name for name in self.order["nodes"] if name not in {node["node"] for node in everybody}]
            refusal = self.compare(everybody, missing)
            words = json.dumps({"refused": refusal, "id": self.order["id"]}).encode() + b"\n"
            for guest, _told in guests.values():
                with contextlib.suppress(OSError):
                    guest.sendall(words)
            for guest, _told in guests.values():  # they go first: whose side closes first keeps the port for a while
                with contextlib.suppress(OSError):
                    guest.recv(1)
        return refusal

    def compare(self, everybody: t.List[PlainData], missing: t.List[str]) -> t.List[str] | None:
        """Return why these nodes cannot train together, as [reason code, reason]; None if they can."""
        problems = [(node["problem"], node["node"]) for node in everybody if node.get("problem")]
        if problems:
            codes = [problem[0] for problem, _node in problems]
            return [codes[0], "; ".join(f"{node}: {problem[1]}" for problem, node in problems[:4])]
        if missing:
            wait = self.order["join_timeout"]
            words = f"{', '.join(missing[:8])} did not come to the rendezvous at {self.address} port {self.port} within {wait:.0f} s"
            return ["rendezvous", f"{words}; {len(everybody)} of {len(self.order['nodes'])} nodes did"]
        for key, name in self.ALIKE:
            values: t.Dict[str, t.List[str]] = {}
            for node in everybody:
                values.setdefault(str(node.get(key) or "missing"), []).append(node["node"])
            if len(values) > 1:
                listed = ", ".join(f"{value} on {', '.join(of[:4])}" for value, of in sorted(values.items(), key=lambda item: len(item[1])))
                return ["rank_mismatch" if name.startswith("--") else "versions_differ", f"{name} is {listed}: it must be one on all nodes"]
        wrong = [node for node in everybody if node["nnodes"] != len(self.order["nodes"])]
        if wrong:
            return ["rank_mismatch", f"--nnodes is {wrong[0]['nnodes']} and {len(self.order['nodes'])} nodes take part"]
        return None

    def _visit(self) -> t.List[str]:
        problem = "nobody tried"
        code = "unreachable"
        while time.monotonic() < self.until:
            try:
                with socket.create_connection((self.address, self.port), timeout=min(3.0, self.left())) as link:
                    link.sendall(json.dumps(self.description).encode() + b"\n")
                    link.settimeout(self.left() + 5)
                    answer = _read_line(link)
                if answer is not None and answer.get("id") == self.order["id"]:
                    return t.cast("t.List[str]", answer["refused"])
                code, problem = "port_in_use", f"what answers on port {self.port} of {self.address} is not the first node of this group"
            except socket.gaierror as error:
                code, problem = "name_resolution", f"the name {self.address} of the first node does not resolve here: {error.strerror}"
            except OSError as error:
                where = f"port {self.port} of the first node, {self.address},"
                code, problem = "unreachable", f"{where} cannot be reached: {error.strerror or error}"
            time.sleep(0.2)
        return [code, f"{self.description['node']}: {problem}"]


def _listener(port: int) -> socket.socket:
    """Return a listening socket for both families. Raise OSError if another program has the port of either."""
    family = socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError:  # a kernel without IPv6
        family, listener = socket.AF_INET, socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("", port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


def _read_line(link: socket.socket) -> PlainData | None:
    """Return the object in a line of JSON; None for anything else."""
    received = b""
    try:
        while not received.endswith(b"\n") and len(received) < LINE:
            piece = link.recv(4096)
            if not piece:
                break
            received += piece
        parsed = json.loads(received)
    except (OSError, ValueError):
        return None
    return parsed if isinstance(parsed, dict) else None
