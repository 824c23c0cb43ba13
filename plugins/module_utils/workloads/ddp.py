# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Training over nodes with PyTorch: the workload of the stage `ddp`.

    torchrun --nproc_per_node 2 ddp.py '{"parts": ["collectives", "bandwidth", "training", "pace"]}'    a rank
    NODE_RANK=0 ... python ddp.py '{"role": "agent", "nodes": ["gpu-01", "gpu-02"], ...}'               a node's agent, which runs torchrun

Runs with PyTorch 1.13 to 2.x over NCCL, gloo or HCCL. Prints lines of JSON, each with a `kind`, and lines for people that begin with
[ENV], [COMPUTE], [TRAIN], [DDP] or [RESULT].

Ranks say what they are through the store before they say anything by a collective, as agents do before them (agent.py). From then on
each has a pulse, a thread that says which operation it is in, the how manieth that is and for how long; it ends its rank where an
operation takes too long, or where the agent is gone, which torchrun itself does not notice.

    collectives   fresh tensors each round, values that are exact in their type, every element compared
    bandwidth     busbw as nccl-tests defines it, many operations in flight, by the device's own clock
    training      steps of DistributedDataParallel: loss, and every rank's parameters and gradients after each step, bit for bit; twice
    pace          time per step and rank, and how much of it is computing

This workload is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import inspect
import json
import math
import os
import pickle
import re
import signal
import socket
import statistics
import sys
import threading
import time
import typing as t

if "Training" not in globals():  # else they stand above: workloads/packing.py
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.agent import (
        MARK,
        PLANTED,
        Agent,
        CannotTrain,
        code_of,
        put,
        say,
        words,
    )
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.stacks import STACKS, answer_with_stacks
    from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads.training import (
        Clock,
        Training,
        curve,
        deterministic,
        learnt,
    )

# As in module_utils/answer/plain_data.py, which does not travel with this file.
PlainData = t.Dict[str, t.Any]

DEFAULTS: PlainData = {
    "backend": "nccl",
    "device": "cuda",
    "plugin": "",
    "lacks": (),
    "parts": ["collectives", "bandwidth", "training", "pace"],
    "ops": ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"],
    "types": ["int32", "int64", "float32", "float64", "float16", "bfloat16"],
    "elements": 1 << 20,
    "rounds": 3,
    "bandwidth_ops": ["all_reduce"],
    "bandwidth_type": "float32",
    "sizes": [8 << 20, 64 << 20, 256 << 20, 1 << 30],
    "iterations": 20,
    "warmup": 5,
    "blocks": 3,
    "fill_seconds": 0.3,
    "steps": 30,
    "width": 1024,
    "batch": 512,
    "seed": 1,
    "pace_steps": 20,
    "straggler_percent": 10.0,
    "join_timeout": 120.0,
    "collective_timeout": 60.0,
    "beat": 2.0,
}
# The smallest (width, batch) that a GPU's pace is taken with: 30 ms a step on an H200. In a step of 2 ms the host launches kernels and the
# GPU waits for it: of two healthy GPUs one was 22 % slower in it, and with these 0.05 %; one that another process used was the faster one.
PACED = (4096, 2048)
# Largest whole number up to which every one is exact.
EXACT = {"int32": 2**31 - 1, "int64": 2**63 - 1, "float32": 2**24, "float64": 2**53, "float16": 2**11, "bfloat16": 2**8}
# A row's busbw over its algbw, of n ranks (nccl-tests, doc/PERFORMANCE.md).
FACTORS: t.Dict[str, t.Callable[[int], float]] = {
    "all_reduce": lambda n: 2.0 * (n - 1) / n,
    "all_gather": lambda n: (n - 1.0) / n,
    "reduce_scatter": lambda n: (n - 1.0) / n,
    "broadcast": lambda n: 1.0,
    "all_to_all": lambda n: (n - 1.0) / n,
}

# Operations and types that a healthy gloo may lack; whatever else a backend refuses is no matter of what there is.
GLOO_LACKS = ("reduce_scatter", "bfloat16")
# So long before an operation takes too long a rank asks its head to look at all ranks, and how the line begins by which it asks. The
# head needs 15 s at most (groups/launching.py).
LOOKED_AT_S = 20.0
PLEA = b'{"kind":"stuck"'
# The variables by which PyTorch keeps a record of its last collectives, if one is more than 0.
FLIGHT = ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE")
# So many operations are kept of each process group from the first on that is not completed, without these fields.
FLIGHT_FIRST = 4
FLIGHT_WITHOUT = ("frames", "thread_name", "thread_id", "input_dtypes", "output_dtypes", "retired", "record_id", "pg_id", "op_id")
# Bytes of an element.
WIDTHS = {"float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "int64": 8, "float64": 8}
# Operations in which each rank has a part of its own of the tensor.
PARTED = ("all_gather", "reduce_scatter", "all_to_all")


def share(op: str, elements: int, world: int) -> int:
    """Return how many elements a rank has, or sends to one other rank, if the tensor has `elements`."""
    return max(16, elements // (world if op in PARTED else 1))


def compared(op: str, elements: int, world: int) -> int:
    """Return how many values each rank compares in a round."""
    return share(op, elements, world) * (world if op in ("all_gather", "all_to_all") else 1)


def counted(op: str, size: int, kind: str, world: int) -> int:
    """Return how many elements the tensor of a bandwidth test has: no more than fit, the same number on each rank."""
    width = WIDTHS[kind]
    return max(world, size // width // world * world) if op in PARTED else max(1, size // width)


def slower(times: t.Sequence[float], nodes: t.Sequence[str], devices: t.Sequence[str]) -> t.List[float]:
    """Return by how many percent the time of each rank is longer than that of the fastest node with the same kind of device.

    A node's time is the (lower) median of its ranks with that device. The fastest node is the reference, and not the median of the
    group, because most nodes of a group can be slow. The median within the node keeps one GPU that is a little faster than usual from
    being the reference. Devices are told apart by their name, without the number that a CPU or an NPU has behind it.
    """
    kinds = [re.sub(r":\d+$", "", str(device)) for device in devices]
    of_node: t.Dict[t.Tuple[str, str], t.List[float]] = {}
    for kind, node, seconds in zip(kinds, nodes, times):
        of_node.setdefault((kind, node), []).append(seconds)
    fastest: t.Dict[str, float] = {}
    for (kind, _node), of in of_node.items():
        fastest[kind] = min(fastest.get(kind, math.inf), statistics.median_low(of))
    return [(seconds / fastest[kind] - 1) * 100 for kind, seconds in zip(kinds, times)]


# The pulse of a rank ---------------------------------------------------------------------------------------------------


class Pulse(threading.Thread):
    """The pulse of a rank: it prints what the rank is doing, and ends the rank if that takes too long or if its agent is gone."""

    def __init__(self, rank: int, node: str, order: PlainData) -> None:
        super().__init__(daemon=True)
        self.rank = rank
        self.node = node
        self.beat = order["beat"]
        self.limit = order["collective_timeout"]
        self.join_limit = order["join_timeout"]
        self.agent = os.getppid()
        self.number = 0
        self.name_of = "start"
        self.since = time.monotonic()
        self.within = self.join_limit
        self.quiet = False
        self.asked = False

    def doing(self, operation: str, within: float | None = None) -> None:
        """Note that the rank is in this operation from now on, for at most `within` seconds."""
        self.number, self.since, self.within, self.asked = self.number + 1, time.monotonic(), within or self.limit, False
        self.name_of = operation

    def run(self) -> None:
        spoke = time.monotonic()
        while not self.quiet:
            time.sleep(min(0.5, self.beat))
            current_s = time.monotonic()
            if os.getppid() != self.agent:
                self._end("agent_lost", "the agent that had started it is gone")
            # The watchdog of NCCL, and gloo, speak at their timeout; this is what ends a rank of which they do not.
            if current_s - self.since > self.within + 5:
                self._end("timeout", f"it was in {self.name_of} (operation {self.number}) for {current_s - self.since:.0f} s")
            if not self.asked and current_s - self.since > self.within - min(LOOKED_AT_S, self.within / 2):
                self.asked = True
                threading.Thread(target=write_flight, args=(self.number,), daemon=True).start()
                say(kind="stuck", rank=self.rank, node=self.node, op=self.name_of, seq=self.number)
            if current_s - spoke >= self.beat:
                spoke = current_s
                say(kind="at", rank=self.rank, node=self.node, op=self.name_of, seq=self.number, busy=round(current_s - self.since, 1))

    def _end(self, code: str, reason: str) -> None:
        if self.quiet:
            return
        say(kind="fault", rank=self.rank, node=self.node, code=code, reason=reason, op=self.name_of, seq=self.number)
        os._exit(4)


def write_flight(operation: int = 0) -> None:
    """Write PyTorch's record of the last collectives (its flight recorder) beside the stacks, if it is on. `operation`: the number of the
    operation of this workload that the rank is in."""
    library = getattr(getattr(sys.modules.get("torch"), "_C", None), "_distributed_c10d", None)
    if STACKS in os.environ and any(os.environ.get(name, "0") not in ("", "0") for name in FLIGHT):
        with contextlib.suppress(Exception):
            record = flight(library)
            if record:
                with open(os.path.join(os.environ[STACKS], f"{os.getpid()}.flight"), "w", encoding="utf-8") as target:
                    target.write(json.dumps({"operation": operation, **record}, default=str))


def flight(library: t.Any) -> PlainData | None:
    """Return the shortened record of the flight recorder; None if it has none. PyTorch up to 2.4 has it as a pickle alone."""
    for name in ("_dump_nccl_trace_json", "_dump_fr_trace_json", "_dump_nccl_trace"):
        dump = getattr(library, name, None)
        with contextlib.suppress(Exception):
            if dump and name.endswith("_json"):
                record = json.loads(dump(True, False))
            elif dump:
                try:
                    record = pickle.loads(dump(True, False, False))
                except TypeError:  # of PyTorch 2.2
                    record = pickle.loads(dump())
            else:
                continue
            record = {"entries": record} if isinstance(record, list) else record
            if record.get("entries"):
                return shortened(record)
    return None


def shortened(record: PlainData) -> PlainData:
    """Return a record of the flight recorder with what a hang is read from: of each process group, and of its operations between two ranks,
    the last operation that is completed, the first that are not, and the last. All of it has megabytes."""
    groups: t.Dict[str, t.List[PlainData]] = {}
    for entry in record["entries"]:
        key = repr((entry.get("process_group") or entry.get("pg_name") or entry.get("pg_id"), bool(entry.get("is_p2p"))))
        groups.setdefault(key, []).append({name: value for name, value in entry.items() if name not in FLIGHT_WITHOUT})
    kept: t.List[PlainData] = []
    for entries in groups.values():
        is_open = [entry.get("state") != "completed" for entry in entries]
        first = is_open.index(True) if True in is_open else len(entries)
        numbers = {*range(max(0, first - 1), min(len(entries), first + FLIGHT_FIRST)), len(entries) - 1}
        kept += [entries[number] for number in sorted(numbers)]
    without = {name: value for name, value in record.items() if name not in ("entries", "nccl_comm_state", "pg_config")}
    if isinstance(record.get("pg_config"), dict):  # a group of thousands of ranks lists all of them
        without["pg_config"] = {name: str(config)[:200] for name, config in record["pg_config"].items()}
    open_ones = sum(entry.get("state") != "completed" for entry in record["entries"])
    return {**without, "open": open_ones, "entries": kept, "entries_of_all": len(record["entries"])}


# A rank ----------------------------------------------------------------------------------------------------------------


class Rank:
    """One process of the group, on one device."""

    def __init__(self, order: PlainData) -> None:
        self.order = order
        self.rank, self.world, self.local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        self.node = order.get("node") or socket.gethostname()
        self.first = self.rank == 0
        self.planted: PlainData = json.loads(os.environ.get(PLANTED, "{}"))
        self.pulse = Pulse(self.rank, self.node, order)
        self.wrong = 0
        self.exchanges = 0

    def run(self) -> None:
        answer_with_stacks()
        self.pulse.start()
        self.pulse.doing("import torch", self.order["join_timeout"])
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "1"))))
        deterministic(torch)
        self._join()
        if self.planted:
            put(f"# a fault is planted: {MARK}")
        for part in self.order["parts"]:
            PARTS[part](self).run()
        self._leave()

    # Coming and going ------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        backend = self.order["backend"]
        self.pulse.doing("rendezvous of the ranks", self.order["join_timeout"])
        patience = datetime.timedelta(seconds=self.order["join_timeout"])
        store, _rank, _world = next(self.dist.rendezvous("env://", timeout=patience))
        store.set_timeout(patience)
        self.store = self.dist.PrefixStore("gpufleet", store)
        if self.order["plugin"]:
            importlib.import_module(self.order["plugin"])
        device = self.order["device"]
        if device != "cpu":
            getattr(self.torch, device).set_device(self.local)
            self.device = self.torch.device(device, self.local)
        else:
            self.device = self.torch.device("cpu")
        description = self.describe()
        say(kind="rank", **description)
        self._agree(description)
        self.pulse.doing("init_process_group", self.order["join_timeout"])
        options: PlainData = {"timeout": datetime.timedelta(seconds=self.order["collective_timeout"])}
        if device == "cuda" and "device_id" in inspect.signature(self.dist.init_process_group).parameters:
            options["device_id"] = self.device  # connects now, not in the middle of the first operation
        self.dist.init_process_group(backend, store=self.dist.PrefixStore("group", store), rank=self.rank, world_size=self.world, **options)
        self.clock = Clock(self.torch, self.device)

    def describe(self) -> PlainData:
        description: PlainData = {
            "rank": self.rank,
            "world": self.world,
            "node": self.node,
            "local": self.local,
            "nnodes": self.order.get("nnodes"),
            "pid": os.getpid(),
            "torch": self.torch.__version__,
            "nccl": "",
            "backend": self.order["backend"],
            "device": str(self.device),
            "uuid": "",
        }
        if self.device.type == "cuda":
            with contextlib.suppress(Exception):
                description["nccl"] = ".".join(map(str, self.torch.cuda.nccl.version()))
            of = self.torch.cuda.get_device_properties(self.device)
            description["device"] = of.name
            uuid = getattr(of, "uuid", None)
            description["uuid"] = f"GPU-{uuid}" if uuid else ""
        return description

    def _agree(self, description: PlainData) -> None:
        """Ranks of different sizes of tensors pass all the same, with status 0, and other things are found after a long wait."""
        self.pulse.doing("comparison of the ranks", self.order["join_timeout"])
        elements = self.order["elements"]
        if self.plant("size"):
            elements += 1
        same = {key: description[key] for key in ("world", "nnodes", "torch", "nccl", "backend")}
        compared = ("parts", "ops", "types", "rounds", "bandwidth_ops", "sizes", "steps", "seed", "width", "batch")
        same["what is measured"] = {**{key: self.order[key] for key in compared}, "elements of a tensor": elements}
        every = self.collect("about", {"node": self.node, "local": self.local, **same})
        refusal = ""
        if every:
            for key in same:
                values: t.Dict[str, t.List[str]] = {}
                for rank, entry in enumerate(every):
                    values.setdefault(json.dumps(entry[key], sort_keys=True), []).append(f"rank {rank} on {entry['node']}")
                if len(values) > 1:
                    listed = _differ(values)
                    refusal = f"{key} differs between ranks: {listed}"
                    break
            self.store.set("agreed", refusal or "yes")
        answer = self.store.get("agreed").decode()
        if answer != "yes":
            raise CannotTrain("rank_mismatch", answer)

    def _leave(self) -> None:
        """Leave the group. The rank that keeps the store stays until all are done."""
        self.pulse.doing("end")
        say(kind="end", rank=self.rank, node=self.node, wrong=self.wrong)
        if self.collect("done", self.wrong) is not None:
            self.store.set("bye", "yes")
        try:
            self.store.get("bye")
        except Exception:
            # All ranks have sent their last word by now, or the rank that keeps the store says which one has not. It does not wait to be
            # asked: on a busy machine the store may be gone before this rank has asked.
            if self.first:
                raise
        self.pulse.quiet = True
        with contextlib.suppress(Exception):
            self.dist.destroy_process_group()

    def collect(self, name: str, value: t.Any) -> t.List[t.Any] | None:
        """Return the values of every rank on rank 0; None elsewhere. By the store, which no broken collective reaches."""
        self.exchanges += 1
        key = f"{name}/{self.exchanges}"
        self.store.set(f"{key}/{self.rank}", json.dumps(value))
        if not self.first:
            return None
        values, missing = [], []
        until = time.monotonic() + (self.order["join_timeout"] if name == "about" else self.order["collective_timeout"])
        for rank in range(self.world):
            try:
                self.store.wait([f"{key}/{rank}"], datetime.timedelta(seconds=max(0.05, until - time.monotonic())))
            except Exception:
                missing.append(rank)
                continue
            values.append(json.loads(self.store.get(f"{key}/{rank}")))
        if missing:
            raise CannotTrain("timeout", f"rank {', '.join(map(str, missing[:8]))} did not come to {self.pulse.name_of}")
        return values

    def tell(self, name: str, value: t.Any = None) -> t.Any:
        """Return the value of rank 0 on all ranks."""
        self.exchanges += 1
        if self.first:
            self.store.set(f"{name}/{self.exchanges}", json.dumps(value))
        return json.loads(self.store.get(f"{name}/{self.exchanges}"))

    # Planted faults --------------------------------------------------------------------------------------------------

    def plant(self, kind: str, where: str = "") -> bool:
        """Return True if a test wants this rank broken in this way here."""
        p = self.planted
        return self._is_planted_here() and p["kind"] == kind and p.get("at", where) == where

    def _is_planted_here(self) -> bool:
        p = self.planted
        return bool(p) and p.get("rank", self.rank) == self.rank and p.get("node", self.node) == self.node

    def break_here(self, where: str) -> None:
        """Break this rank, if a test asks for it, at the beginning of an operation."""
        p = self.planted
        if not self._is_planted_here() or p.get("at", "all_reduce") != where:
            return
        kind = p["kind"]
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif kind == "hang":
            time.sleep(1e6)
        elif kind == "raise":
            raise RuntimeError("planted: this rank raises")
        elif kind == "exit":
            os._exit(3)
        elif kind == "memory":
            self.torch.empty(1 << 55, dtype=self.torch.uint8, device=self.device)
        elif kind == "kernel":
            self.torch.cuda._sleep(1 << 62)  # a kernel that does not end: what comes after it on this GPU waits
        elif kind == "agent":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(1e6)

    def lacks(self, op: str, kind: str, error: BaseException) -> bool:
        """Return True if an error says that the backend lacks an operation or a type that it need not have. A device that is broken says
        "operation not supported", too."""
        if not {op, kind} & {*self.order["lacks"]}:
            return False
        message = str(error).lower()
        marks = ("not support", "no support", "invalid scalar type")
        return isinstance(error, NotImplementedError) or any(mark in message for mark in marks)

    def model(self, width: int, batch: int) -> t.Any:
        self.pulse.doing("model")
        of_device = [self.local] if self.device.type != "cpu" else None
        parallel = self.torch.nn.parallel.DistributedDataParallel
        return Training(
            self.torch, self.device, self.order["seed"], self.rank, width, batch,
            wrap=lambda net: parallel(net, device_ids=of_device),
        )  # fmt: skip


# The parts of the workload -----------------------------------------------------------------------------------------------


class RankPart:
    """A part of the workload on one rank, which has joined its group."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.order, self.pulse, self.world, self.first = rank.order, rank.pulse, rank.world, rank.first
        self.torch, self.dist, self.device, self.clock = rank.torch, rank.dist, rank.device, rank.clock

    def run(self) -> None:
        raise NotImplementedError


class Collectives(RankPart):
    """Every operation on fresh tensors, in every type, compared element by element."""

    def run(self) -> None:
        for op in self.order["ops"]:
            for kind in self.order["types"]:
                problem = self._checked(op, kind)
                every = self.rank.collect("checked", problem)
                if every is not None:
                    self._say_checked(op, kind, every)

    def _checked(self, op: str, kind: str) -> PlainData:
        """Return the result of a rank for an operation: {"wrong": number of elements, "from": {rank: wrong elements that it sent},
        "example"}."""
        result: PlainData = {"wrong": 0, "of": 0, "from": {}, "example": "", "unsupported": ""}
        for number in range(self.order["rounds"]):
            self.rank.break_here(op)
            self.pulse.doing(f"{op} {kind}")
            try:
                received, expected, senders = self._once(op, kind, number)
            except (RuntimeError, ValueError, NotImplementedError) as error:
                if result["of"] or not self.rank.lacks(op, kind, error):
                    raise
                result["unsupported"] = words(error)[:200]
                return result
            differ = received != expected
            count = int(differ.sum().item())
            result["of"] += received.numel()
            if count:
                at = int(differ.view(-1).to(self.torch.uint8).argmax().item())
                result["wrong"] += count
                result["example"] = f"element {at} is {received.view(-1)[at].item()}, expected {expected.view(-1)[at].item()}"
                for sender, of in enumerate(differ.view(len(senders), -1)):
                    bad = int(of.sum().item())
                    if bad and senders[sender] >= 0:
                        result["from"][senders[sender]] = result["from"].get(senders[sender], 0) + bad
        self.rank.wrong += result["wrong"]
        return result

    def _once(self, op: str, kind: str, number: int) -> t.Tuple[t.Any, t.Any, t.List[int]]:
        """Return (received values, expected values, sender of each part; -1 for all ranks)."""
        dist, n, me = self.dist, self.world, self.rank.rank
        pattern = Pattern(self.torch, self.device, kind, n, number)
        each = share(op, self.order["elements"], n)
        sent = self.prepare(pattern, op, each, number)
        if op == "all_reduce":
            dist.all_reduce(sent)
            return sent, pattern.sums(each), [-1]
        if op == "broadcast":
            root = number % n
            dist.broadcast(sent, root)
            return sent, pattern.own(each, root), [root]
        if op == "all_gather":
            parts = [self.torch.full_like(sent, 1) for _unused in range(n)]
            if self.device.type == "cpu":
                dist.all_gather(parts, sent)
                gathered = self.torch.cat(parts)
            else:
                gathered = self.torch.cat(parts)
                _first_function(dist, "all_gather_into_tensor", "_all_gather_base")(gathered, sent)
            return gathered, self.torch.cat([pattern.own(each, sender) for sender in range(n)]), list(range(n))
        if op == "reduce_scatter":
            out = self.torch.full((each,), 1, dtype=sent.dtype, device=self.device)
            _first_function(dist, "reduce_scatter_tensor", "_reduce_scatter_base")(out, sent)
            return out, pattern.sums(each, shift=me), [-1]
        received = self.torch.full_like(sent, 1)
        dist.all_to_all_single(received, sent)
        return received, self.torch.cat([pattern.own(each, sender, shift=5 * me) for sender in range(n)]), list(range(n))

    def prepare(self, pattern: Pattern, op: str, each: int, number: int) -> t.Any:
        """Return what this rank sends, once its device has it. A rank that stands here waits for nothing but its own device: hangs are
        judged by the name of this function (localise/hang.py)."""
        n, me = self.world, self.rank.rank
        if op == "reduce_scatter":
            sent = self.torch.cat([pattern.own(each, me, shift=part) for part in range(n)])
        elif op == "all_to_all":
            sent = self.torch.cat([pattern.own(each, me, shift=5 * to) for to in range(n)])
        else:
            sent = pattern.own(each, me)
        if self.rank.plant("wrong", op) and number == 0:
            sent[0 if op in ("reduce_scatter", "all_to_all") else each // 2] += 1
        if self.device.type != "cpu":
            getattr(self.torch, self.device.type).synchronize()
        return sent

    def _say_checked(self, op: str, kind: str, every: t.List[PlainData]) -> None:
        bad = [rank for rank, result in enumerate(every) if result["wrong"]]
        senders: t.Dict[str, int] = {}
        for result in every:
            for sender, count in result["from"].items():
                senders[sender] = senders.get(sender, 0) + count
        lacking = [rank for rank, result in enumerate(every) if result["unsupported"]]
        if lacking and len(lacking) < len(every):
            raise CannotTrain("rank_mismatch", f"{op} {kind}: only ranks {lacking[:8]} say that the backend does not have it")
        unsupported = every[0]["unsupported"]
        example = f"rank {bad[0]}: {every[bad[0]]['example']}" if bad else ""
        wrong = sum(result["wrong"] for result in every)
        say(kind="checked", op=op, type=kind, elements=sum(result["of"] for result in every), wrong=wrong, ranks=bad[:64], senders=senders,
            example=example, unsupported=unsupported)  # fmt: skip
        if unsupported:
            put(f"[DDP] {op} {kind}: {self.order['backend']} does not have it")
        elif wrong:
            put(f"[DDP] {op} {kind}: {wrong} WRONG values on ranks {bad[:16]}: {example}")
        else:
            put(f"[DDP] {op} {kind}: {every[0]['of']} values on each of {self.world} ranks, all right")


class Bandwidth(RankPart):
    """The bandwidth of operations, many of them in flight."""

    def run(self) -> None:
        for op in self.order["bandwidth_ops"]:
            for size in self.order["sizes"]:
                self._row(op, size)

    def _row(self, op: str, size: int) -> None:
        self.rank.break_here(f"bandwidth {op}")
        self.pulse.doing(f"{op} of {size} bytes")
        call, real = self._call(op, size, getattr(self.torch, self.order["bandwidth_type"]))
        try:
            warm = self._queue(call, self.order["warmup"])
        except (RuntimeError, NotImplementedError) as error:
            if not self.rank.lacks(op, self.order["bandwidth_type"], error):
                raise
            if self.first:
                say(kind="unsupported", op=op, size=size)
            return
        # What follows lasts long enough for clocks and queues to settle; how many that are is one number for all ranks.
        per = warm / max(1, self.order["warmup"])
        count = self.rank.tell("count", max(self.order["iterations"], min(500, int(self.order["fill_seconds"] / max(per, 1e-7)))))
        self._queue(call, count if self.order["fill_seconds"] else 0)
        blocks = []
        for _unused in range(self.order["blocks"]):
            self.pulse.doing(f"{op} of {size} bytes", self.order["collective_timeout"] + 3 * per * count)
            self.dist.barrier()
            self.clock.settle()
            blocks.append(self._queue(call, count) / count)
        every = self.rank.collect("row", statistics.median(blocks))
        if every is not None:
            mean = sum(every) / len(every)  # of all ranks, as nccl-tests has it
            algbw = real / mean / 1e9
            busbw = algbw * FACTORS[op](self.world)
            row = {"op": op, "size": real, "type": self.order["bandwidth_type"], "iterations": count * self.order["blocks"]}
            times = {"time_us": mean * 1e6, "slowest_us": max(every) * 1e6, "fastest_us": min(every) * 1e6}
            say(kind="bandwidth", **row, **times, algbw=algbw, busbw=busbw)
            put(f"[DDP] {op} {real} bytes: {mean * 1e6:.1f} us, busbw {busbw:.2f} GB/s")

    def _call(self, op: str, size: int, kind: t.Any) -> t.Tuple[t.Any, int]:
        """Return a function that starts the operation once, and its size in bytes as nccl-tests counts it."""
        dist, n = self.dist, self.world
        count = counted(op, size, self.order["bandwidth_type"], n)
        tensor = self._tensor(count, kind)
        real = count * WIDTHS[self.order["bandwidth_type"]]
        if op == "all_reduce":
            return lambda: dist.all_reduce(tensor, async_op=True), real
        if op == "broadcast":
            return lambda: dist.broadcast(tensor, 0, async_op=True), real
        if op == "all_to_all":
            output = self._tensor(count, kind)
            return lambda: dist.all_to_all_single(output, tensor, async_op=True), real
        part = self._tensor(count // n, kind)
        if op == "reduce_scatter":
            return lambda: _first_function(dist, "reduce_scatter_tensor", "_reduce_scatter_base")(part, tensor, async_op=True), real
        if self.device.type == "cpu":
            parts = list(tensor.view(n, -1))
            return lambda: dist.all_gather(parts, part, async_op=True), real
        return lambda: _first_function(dist, "all_gather_into_tensor", "_all_gather_base")(tensor, part, async_op=True), real

    def _tensor(self, count: int, kind: t.Any) -> t.Any:
        return self.torch.ones(count, dtype=kind, device=self.device)

    def _queue(self, call: t.Callable[[], t.Any], count: int) -> float:
        """Seconds that so many of them take, all of them in flight."""
        if not count:
            return 0.0
        self.clock.settle()
        marks = [self.torch.cuda.Event(enable_timing=True) for _unused in range(2)] if self.clock.events else []
        began = time.perf_counter()
        if marks:
            marks[0].record()
        for work in [call() for _unused in range(count)]:
            work.wait()
        if marks:
            marks[1].record()
        self.clock.settle()
        return float(marks[0].elapsed_time(marks[1]) / 1e3) if marks else time.perf_counter() - began


class RepeatedTraining(RankPart):
    """The same training twice: what ranks have after each step must be the same bits, and so must both runs of one rank."""

    def run(self) -> None:
        runs = [self._train(), self._train()]
        losses, digests = runs[0]
        repeated = curve(losses) == curve(runs[1][0]) and digests == runs[1][1]
        every = self.rank.collect("training", {"losses": losses, "digests": digests, "again": repeated})
        if every is None:
            return
        start, end = ([learnt(result["losses"])[at] for result in every] for at in (0, 1))
        differ = next((step for step in range(len(digests)) if len({tuple(result["digests"][step]) for result in every}) > 1), None)
        odd: t.List[int] = []
        if differ is not None:
            rank_digests = [tuple(result["digests"][differ]) for result in every]
            usual = max(set(rank_digests), key=rank_digests.count)
            odd = [rank for rank, digest in enumerate(rank_digests) if digest != usual]
            odd = odd if len(odd) * 2 < len(rank_digests) else []  # of two halves neither is the odd one
        finite = all(abs(loss) < 1e30 for result in every for loss in result["losses"])
        first, last = sum(start) / len(start), sum(end) / len(end)
        summary: PlainData = {
            "steps": len(losses), "first": first if finite else None, "last": last if finite else None,
            "ratio": last / first if finite and first else None, "finite": finite,
            "not_finite": [rank for rank, result in enumerate(every) if not all(abs(loss) < 1e30 for loss in result["losses"])][:16],
            "identical": differ is None, "differs_at": differ, "odd": odd[:16], "repeatable": all(result["again"] for result in every),
            "other_again": [rank for rank, result in enumerate(every) if not result["again"]][:16],
            "curve": curve([loss for result in every for loss in result["losses"]]), "seed": self.order["seed"],
        }  # fmt: skip
        say(kind="training", **summary)
        words = f"loss {first:.4f} to {last:.4f}" if finite else f"loss not finite on ranks {summary['not_finite']}"
        same = "the same bits on all ranks" if differ is None else f"ranks differ after step {differ}" + (f": {odd[:16]}" if odd else "")
        twice = "the same again" if summary["repeatable"] else "not the same when it was repeated"
        put(f"[TRAIN] {len(losses)} steps: {words}, {same}, {twice}")

    def _train(self) -> t.Tuple[t.List[float], t.List[t.List[int]]]:
        training = self.rank.model(self.order["width"], self.order["batch"])
        losses, digests = [], []
        for number in range(self.order["steps"]):
            self.rank.break_here("training")
            self.pulse.doing(f"training step {number}")
            if self.rank.plant("nan", "") and number == 2:
                with self.torch.no_grad():
                    training.net[0].weight[0, 0] = float("nan")
            losses.append(training.step(number))
            if self.rank.plant("diverge", "") and number == 3:
                with self.torch.no_grad():
                    training.net[0].weight[0, 0] += 1e-3
            digests.append(list(training.digests()))
        values = [float(loss.item()) for loss in losses]
        return [loss if math.isfinite(loss) else 1e38 for loss in values], digests  # JSON knows no infinity


class Pace(RankPart):
    """The time of a step on each rank. Whole steps wait for one another, so a slow rank is slow in what it does alone."""

    def run(self) -> None:
        min_size = PACED if self.device.type != "cpu" else (0, 0)
        training = self.rank.model(max(self.order["width"], min_size[0]), max(self.order["batch"], min_size[1]))
        count = self.order["pace_steps"]
        repeats = 3 if self.rank.plant("slow", "") else 1

        def alone(number: int) -> None:
            for _unused in range(repeats):
                training.compute(number)

        def whole(number: int) -> None:
            for _unused in range(repeats - 1):
                training.compute(number)
            training.step(number)

        self.pulse.doing("computing of steps")
        self.clock.times(alone, max(2, count // 4))
        self.dist.barrier()  # all compute at the same time, as they do in training
        compute = self.clock.typical(self.clock.times(alone, count, cpu_time=True))
        self.pulse.doing("whole steps")
        self.dist.barrier()
        step = self.clock.typical(self.clock.times(whole, count))
        local: PlainData = {"compute_ms": compute, "step_ms": step, "communication_ms": max(0.0, step - compute)}
        description = self.rank.describe()
        local.update(node=self.rank.node, local=self.rank.local, uuid=description["uuid"], device=description["device"])
        every = self.rank.collect("pace", local)
        if every is None:
            return
        behind = slower(*([rank_pace[key] for rank_pace in every] for key in ("compute_ms", "node", "device")))
        for rank, (rank_pace, by) in enumerate(zip(every, behind)):
            say(kind="pace", rank=rank, **rank_pace)
            slow = f", {by:.0f} % slower than the fastest node: STRAGGLER" if by > self.order["straggler_percent"] else ""
            share = f"{rank_pace['compute_ms']:.2f} ms of {rank_pace['step_ms']:.2f} ms a step"
            put(f"[COMPUTE] rank {rank} on {rank_pace['node']}: computing {share}{slow}")


PARTS: t.Dict[str, t.Type[RankPart]] = {"collectives": Collectives, "bandwidth": Bandwidth, "training": RepeatedTraining, "pace": Pace}


class Pattern:
    """Values of one round that are exact in their type, as are all their sums, in whatever order they are added.

    Element i of rank r is small((3 i + 7 round + shift + r) mod period), times what the type has room for: ranks and rounds differ, and a
    contribution that is lost, doubled or somebody else's changes the sum.
    """

    def __init__(self, torch: t.Any, device: t.Any, kind: str, world: int, number: int) -> None:
        self.torch = torch
        self.device = device
        self.kind = getattr(torch, kind)
        self.world = world
        self.number = number
        limit = EXACT[kind] // world
        self.period = 13 if limit or world // 13 < EXACT[kind] else world // EXACT[kind] + 2
        # Where there are more ranks than the type can count, few of them have anything to add to an element.
        self.small = [x % max(2, min(self.period, limit + 1)) if limit else int(x == 0) for x in range(self.period)]
        largest = max(sum(self.small[(c + r) % self.period] for r in range(world)) for c in range(self.period))
        self.scale = max(1, EXACT[kind] // largest)

    def _index(self, count: int, shift: int) -> t.Any:
        return (self.torch.arange(count, device=self.device) * 3 + 7 * self.number + shift) % self.period

    def _table(self, values: list[int]) -> t.Any:
        return self.torch.tensor(values, device=self.device, dtype=self.torch.int64).to(self.kind)

    def own(self, count: int, rank: int, shift: int = 0) -> t.Any:
        return self._table([self.small[(c + rank) % self.period] * self.scale for c in range(self.period)])[self._index(count, shift)]

    def sum_of(self, c: int) -> int:
        """Return the sum over all ranks in an element of class c."""
        return sum(self.small[(c + rank) % self.period] for rank in range(self.world)) * self.scale

    def sums(self, count: int, shift: int = 0) -> t.Any:
        return self._table([self.sum_of(c) for c in range(self.period)])[self._index(count, shift)]


def _first_function(dist: t.Any, *names: str) -> t.Any:
    """The first of these functions that this PyTorch has."""
    return next(getattr(dist, name) for name in names if hasattr(dist, name))


def _differ(values: t.Dict[str, t.List[str]]) -> str:
    """Return the differing values without the common ones; the values are JSON."""
    parsed = [json.loads(value) for value in values]
    if all(isinstance(value, dict) for value in parsed):
        keys = [key for key in parsed[0] if len({json.dumps(value.get(key)) for value in parsed}) > 1]
        texts = [", ".join(f"{key} {value.get(key)}" for key in keys) for value in parsed]
    else:
        texts = [str(value) for value in parsed]
    return "; ".join(f"{text[:200]} on {', '.join(ranks[:4])}" for text, ranks in zip(texts, values.values()))


def rank_main(order: PlainData) -> int:
    rank = Rank({**DEFAULTS, **order})
    try:
        rank.run()
    except Exception as error:
        rank.pulse.quiet = True
        message = str(error) if isinstance(error, CannotTrain) else words(error)
        say(kind="fault", rank=rank.rank, node=rank.node, code=code_of(error, "tool_failed", order), reason=message, op=rank.pulse.name_of,
            seq=rank.pulse.number)  # fmt: skip
        put(f"[RESULT] rank {rank.rank} on {rank.node}: {message}")
        # Threads of NCCL, gloo and the store may wait for others: nothing of them is worth waiting for.
        os._exit(1)
    if rank.first:
        put(f"[RESULT] {'every value was right' if not rank.wrong else 'WRONG values'} on rank 0 of {rank.world}")
    return 0


def main() -> int:
    text = sys.argv[1] if len(sys.argv) > 1 else "{}"
    if not text.lstrip().startswith("{"):
        with open(text, encoding="utf-8") as source:
            text = source.read()
    order = json.loads(text)
    if order.get("role") == "agent":
        return Agent(order).run()
    return rank_main(order)


if __name__ == "__main__":
    raise SystemExit(main())
