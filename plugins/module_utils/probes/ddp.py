# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Training over the nodes of a group with PyTorch: torchrun on every node, started by the group's head.

One launch gives all checks of a group. Where the ranks themselves say who is to blame, that is a finding; where the group is slow, or
nobody knows, its parts are measured by the search of nccl_fabric (probes/fabric.py), with the same workload.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import base64
import json
import math
import typing as t
import uuid
import zlib

from ansible_collections.gpufleet.acceptance.plugins.module_utils import (
    group,
    jsonlines,
    launching,
    left_files,
    membership,
    observation,
)
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import registry
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import ddp as reading
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import fabric, nccl
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import agent, packing, training
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import ddp as workload

Observation = t.Dict[str, t.Any]
# Read at import: a detached probe outlives the archive that Ansible runs it from.
SOURCE = packing.packed(training, agent, workload)
# The workload travels in its own command line: there is no file of ours on a node, and standard input is the leash.
BOOT = (
    "import base64,sys,zlib;SOURCE=zlib.decompress(base64.b64decode(sys.argv.pop(1))).decode();"
    "exec(compile(SOURCE,'ddp.py','exec'),{'__name__':'__main__','SOURCE':SOURCE})"
)
# What is checked besides the bandwidth of collectives, and the part of the workload that does it.
PARTS = {"collectives": "collectives", "training": "training", "pace": "pace"}
TYPES = {"float": "float32", "double": "float64", "half": "float16"}
OPS = {"alltoall": "all_to_all"}
# Between the smallest and the largest size of a sweep.
FACTOR = 4


def probe(params: dict[str, t.Any], node: Node) -> t.Iterator[Observation]:
    """On the head one observation per check of the group, and one per finding; on every node its own as a member."""
    # gloo trains on the CPUs of nodes with GPUs.
    carried = registry.carried_by(params["backend"]) or registry.DEFAULT
    kind = None if params["backend"] == "auto" else carried.kind
    what = f"training with ddp_backend {params['backend']}"
    yield from membership.take_part(params, node, lambda here, checks: Trainer(params, node, here).measure(checks), what, kind)


def default_checks(params: dict[str, t.Any]) -> list[dict[str, str]]:
    """The checks of a call that names none."""
    made = checks_of(params["ops"], params["gpus"], params["sizes"], params["type"], params["backend"])
    return [{"check": check, "variant": variant} for check, variant in made]


def checks_of(
    ops: t.Iterable[str], gpus: str | int, sizes: str, type_: str, backend: str, rail: str | None = None
) -> list[tuple[str, str]]:
    """(check, variant) of one launch; over a single rail values and bandwidth, which is what a rail can spoil."""
    which = {"backend": backend, "gpus": gpus, "rail": rail}
    common = observation.variant(**which)
    rows = [(op, observation.variant(**which, sizes=sizes, type=type_)) for op in ops]
    return [("collectives", common), *rows, *([] if rail else [("training", common), ("pace", common)])]


def _device(backend: str) -> dict[str, t.Any]:
    """Return the type of the devices whose collectives this backend carries, the package that adds the type to PyTorch, and the operations
    and element types that the backend may lack."""
    kind = registry.carried_by(backend)
    if kind is None:
        return {"device": "cpu", "plugin": "", "lacks": workload.GLOO_LACKS}
    return {"device": kind.torch, "plugin": kind.torch_plugin, "lacks": kind.lacks}


class ByTorch(fabric.Head):
    """Measures bandwidth over a group with PyTorch: nccl_fabric where nccl-tests is not installed."""

    def __init__(self, params: dict[str, t.Any], node: Node, here: dict[str, t.Any] | None) -> None:
        super().__init__(params, node, here)
        own = registry.KINDS[here["kind"]] if here and "kind" in here else registry.DEFAULT
        self.own_backend = own.collectives
        kind = registry.carried_by(params.get("backend") or "") or own
        self.visible = kind.visible
        self.env = {**registry.make(kind.kind, node).environment(), **self.env}

    def _launcher(self) -> launching.Launcher:
        return launching.Agents(self.params["port"])

    def _backend(self, keys: dict[str, str]) -> str:
        """What carries the collectives of a check."""
        backend = keys.get("backend", registry.DEFAULT.collectives)
        return self.own_backend if backend == "auto" else backend

    # The launch ------------------------------------------------------------------------------------------------------

    def order(self, checks: t.Sequence[dict[str, str]], seats: list[group.Seat]) -> dict[str, t.Any]:
        """What each rank is told to do for these checks."""
        params = {**workload.DEFAULTS, "collectives": [], **self.params}
        keys = nccl.fields(checks[0]["variant"])
        rows = [(check["check"], nccl.fields(check["variant"])) for check in checks if check["check"] not in PARTS]
        sizes = sorted({size for _op, of in rows for size in self._steps(seats, of)})
        parts = [PARTS[check["check"]] for check in checks if check["check"] in PARTS]
        wanted = [part for part in ("collectives", "bandwidth", "training", "pace") if part in parts or (part == "bandwidth" and rows)]
        kinds = {of.get("type", "float") for _op, of in rows}
        kind = kinds.pop() if kinds else "float"
        given = ("rounds", "elements", "iterations", "warmup", "steps", "seed", "width", "batch", "straggler_percent", "collective_timeout")
        return {
            **{name: params[name] for name in (*given, "join_timeout")},
            "backend": self._backend(keys),
            **_device(self._backend(keys)),
            "parts": wanted,
            "ops": params["collectives"] or [OPS.get(op, op) for op, _of in rows],
            "types": params["types"] if params["collectives"] else [TYPES.get(kind, kind)],
            "bandwidth_ops": list(dict.fromkeys(OPS.get(op, op) for op, _of in rows)),
            "bandwidth_type": TYPES.get(kind, kind),
            "sizes": sizes,
            "fill_seconds": params["fill_seconds"],
        }

    def _steps(self, seats: list[group.Seat], keys: dict[str, str]) -> list[int]:
        smallest, largest = (nccl.size(word) for word in self._sizes(seats, keys))
        found, factor = [smallest], max(2, self.params.get("factor", FACTOR))
        while found[-1] < largest:
            found.append(min(largest, found[-1] * factor))
        return found

    def launch_of(
        self, checks: t.Sequence[dict[str, str]], seats: list[group.Seat], slots: t.Sequence[int], timeout: float
    ) -> launching.Job:
        """A launch over `slots` of each of `seats`, the head first, where it is one of them."""
        seats = self._head_first(seats)
        mixed = any("NCCL_SOCKET_IFNAME" in (seat.nccl or {}) for seat in seats)
        asked = self.order(checks, seats)
        order = {
            "role": "agent",
            "id": uuid.uuid4().hex[:16],
            "nodes": [seat.name for seat in seats],
            "addresses": [seat.address for seat in seats],
            "rendezvous": self.params.get("rendezvous", "c10d"),
            "join_timeout": self.params["join_timeout"],
            "socket_interface": not mixed,
            "order": asked,
        }
        source = base64.b64encode(zlib.compress(SOURCE.encode(), 9)).decode()
        argv = [self.params["python"] or "python3", "-c", BOOT, source, json.dumps(order)]
        keys = nccl.fields(checks[0]["variant"])
        env = self._seeing(seats, slots, keys)
        if self.node.contained:
            argv = self.node.container_argv(argv, env, "")
        job = self.group.job(self.launcher, seats, len(slots), argv, env, timeout, ranks=len(seats) * len(slots))
        job.order = {**asked, "rail": keys.get("rail")}
        job.words = [argv[0], "-m", "torch.distributed.run", f"--nnodes={len(seats)}", f"--nproc_per_node={len(slots)}", "ddp.py"]
        return job

    def _job(
        self, op: str, keys: dict[str, str], seats: list[group.Seat], slots: t.Sequence[int], sizes: tuple[str, str], timeout: float
    ) -> launching.Job:
        """A launch of one operation: its values are checked, too."""
        asked = {**keys, "sizes": ":".join(sizes)}
        checks = [{"check": check, "variant": observation.variant(**asked)} for check in ("collectives", op)]
        return self.launch_of(checks, seats, slots, timeout)

    def _read(self, job: launching.Job) -> fabric.Launch:
        """What a launch gave, in the form in which the search wants it."""
        told = Told(self, job)
        read = {**table(told.found, None), "tool_version": told.found["version"], "nccl_version": told.context()["nccl_version"]}
        read["ranks"] = [{"host": about["node"]} for about in told.found["ranks"].values()]
        wrong = told.wrong()
        if wrong:
            return fabric.Launch("error", "wrong_results", wrong[0], read, job)
        unsure = told.cause or told.uncompared() or next(filter(None, map(told.unmeasured, job.order["bandwidth_ops"])), None)
        if unsure:
            outcome = "timeout" if unsure.code in ("timeout", "rank_hung") else "error"
            return fabric.Launch(outcome, unsure.code, unsure.reason, read, job)
        return fabric.Launch("measured", None, None, read, job)


class Trainer(ByTorch):
    """Trains over a group."""

    stage = "ddp"

    def _together(self, checks: list[dict[str, str]]) -> list[list[dict[str, str]]]:
        found: dict[tuple[str, ...], list[dict[str, str]]] = {}
        for check in checks:
            found.setdefault(self._common(check), []).append(check)
        return [*found.values()]

    def _common(self, check: dict[str, str]) -> tuple[str, ...]:
        keys = nccl.fields(check["variant"])
        return self._backend(keys), keys.get("gpus", "all"), keys.get("rail", "")

    def _measured(self, checks: list[dict[str, str]]) -> t.Iterator[Observation]:
        """Checks with the same GPUs and backend: one launch."""
        self.searched = False
        keys = nccl.fields(checks[0]["variant"])
        seats, absent = self.group.present(), self.group.absent()
        if len(seats) < 2:
            said = f"{len(seats)} of {len(self.group.seats)} nodes take part: {self._without(absent)}"
            refusal: tuple[str, str] | None = ("member", said)
        else:
            refusal = self._agree(seats, keys)
        trains = "rail" not in keys
        if refusal:
            self._leave({} if trains else None)
            yield from (self._failed(check, *refusal) for check in checks)
            return
        slots = self._slots(seats, keys)
        job = self.launch_of(checks, seats, slots, self.params["test_timeout"])
        launching.run([job], self.node, 1)
        told = Told(self, job)
        self._leave(told.files(absent) if trains else None)
        for check in checks:
            yield self._observed_of(check, told, seats, slots, absent)
        findings = told.findings(checks[0])
        yield from findings
        if not findings:
            yield from self._searched(checks, told, seats, slots)

    # What came of it -------------------------------------------------------------------------------------------------

    def _observed_of(
        self, check: dict[str, str], told: Told, seats: list[group.Seat], slots: list[int], absent: dict[str, tuple[str, str]]
    ) -> Observation:
        keys = nccl.fields(check["variant"])
        common: dict[str, t.Any] = {
            "variant": check["variant"],
            "subject": self._subject(),
            "command": told.job.shown(),
            "duration_s": told.job.duration_s,
            "started_at": observation.utc(told.job.started_at),
            "raw": told.job.raw,
            "tool_version": told.found["version"],
            "simulated": self.group.simulated,
            "context": {**self._context(check["check"], keys, seats, slots), **told.context(), "backend": self._backend(keys),
                        "warnings": self.warnings},
        }
        code, reason, more = told.of(check["check"])
        common["context"].update(more.pop("context", {}))
        common.update(more)
        if absent:
            there = len(self.group.seats) - len(absent)
            rest = f"; the other {there} were measured" if not code else ""
            said = f"{len(absent)} of {len(self.group.seats)} nodes did not take part{rest}: {self._without(absent)}"
            return observation.failed(check["check"], "member", said[:2000], **common)
        if code:
            outcome = "timeout" if code in ("timeout", "rank_hung") else "error"
            return observation.failed(check["check"], code, reason[:2000], outcome, **common)
        return observation.measured(check["check"], **common)

    def _searched(
        self, checks: list[dict[str, str]], told: Told, seats: list[group.Seat], slots: list[int]
    ) -> t.Iterator[Observation]:
        """Parts of the group are measured where it is slow, or fails and does not say whose fault it is."""
        if not self.params["localise"] or len(seats) < 3:
            return
        for check in checks:
            if check["check"] in PARTS:
                continue
            keys = nccl.fields(check["variant"])
            launch = self._read(told.job)._replace(read=table(told.found, check["check"]))
            floors = fabric.Floors(self.params["floors"], check["check"], self._context(check["check"], keys, seats, slots))
            missed = floors.missed(launch) if launch.read["rows"] else None
            why = "slow" if missed else launch.code if launch.outcome != "measured" else None
            if why in SEARCHED:
                self.searched = True
                size = missed or floors.size(self._steps(seats, keys)[-1])
                yield from fabric.Search(self, check, seats, slots, size, floors, launch).findings()
                if why != "slow":
                    return

    def _leave(self, files: dict[str, t.Any] | None) -> None:
        """The files that other tools look for, where a folder for them is given; None of a launch that they say nothing of."""
        if self.params["results_dir"] and files is not None:
            problem = left_files.write(self.params["results_dir"], files, FILES)
            self.warnings += [problem] if problem else []


# What is left in a folder of the user's.
FILES = ("summary.json", "ddp_tests_result.json", "ddp_training_result.json")
# So many stragglers the check `pace` names; each has a finding of its own besides.
NAMED = 32
# After these the parts of a group are measured.
SEARCHED = (*fabric.SEARCHED, "cuda_failed", "partner", "rank_died", "rank_hung")


class Told:
    """What a launch has said: of each check, and of whose fault it is."""

    def __init__(self, head: ByTorch, job: launching.Job) -> None:
        self.head = head
        self.job = job
        self.found = reading.parse(job.out)
        self.cause = self._cause()

    def _cause(self) -> reading.Cause | None:
        job = self.job
        if job.missing:
            return reading.Cause("tool_missing", f"{job.argv[0]}: {job.missing}")
        found = reading.cause(self.found, job.ends, job.err, job.ranks)
        if job.timed_out and (found is None or found.code == "incomplete_output"):
            hung = f"; {found.reason}" if found else ""
            return reading.Cause("timeout", f"the group did not end within {job.timeout:.0f} s and was ended{hung}")
        if found is None:
            problem = self._covered()
            if problem:
                return reading.Cause("rank_mismatch", problem)
            if job.rc:
                return reading.Cause("tool_failed", f"torchrun ended with status {job.rc}: {_last(job.err)}")
            problem = fabric.off_rail(job)
            return reading.Cause("other_way", problem) if problem else None
        if found.code in ("incomplete_output", "partner", "lost_node"):
            said = self.head.launcher.complaint(f"{job.out}\n{job.err}", self.head.group.names())
            gone = self.head.group.gone([seat for seat in job.seats if not seat.local])
            if said:
                return reading.Cause(*said)
            if gone:
                return reading.Cause("lost_node", f"{', '.join(gone)} went away while the group ran: {found.reason}")
            if found.code == "incomplete_output" and job.rc:
                silent = [seat.name for seat in job.seats if seat.name not in self.found["nodes"]]
                which = f" of {', '.join(silent[:4])}" if silent else ""
                return reading.Cause("tool_failed", f"the agent{which} ended with status {job.rc}: {_last(job.err)}")
        return found

    def _covered(self) -> str | None:
        """Whether every asked node has its ranks, and nobody else has; what is wrong with it."""
        if self.found["twice"]:
            return f"{self.found['twice'][0]} was printed more than once: these are not the ranks of one group"
        world = self.job.ranks
        strange = [rank for rank, about in self.found["ranks"].items() if rank not in range(world) or about["world"] != world]
        if strange:
            said = f"rank {strange[0]} is one of {self.found['ranks'][strange[0]]['world']}"
            return f"{said}, where {world} ranks with numbers from 0 were asked for"
        each = self.job.ranks // len(self.job.seats)
        uuids: dict[str, int] = {}
        for rank, about in self.found["ranks"].items():
            uuid = str(about.get("uuid") or f"of rank {rank}")
            if uuid in uuids:
                return f"ranks {uuids[uuid]} and {rank} are both on {uuid}: other GPUs were not looked at"
            uuids[uuid] = rank
        counts: dict[str, int] = {}
        for about in self.found["ranks"].values():
            counts[about["node"]] = counts.get(about["node"], 0) + 1
        wanted = {seat.name: each for seat in self.job.seats}
        if counts == wanted:
            return None
        shown = ", ".join(f"{name}: {count}" for name, count in sorted(counts.items()))
        return f"each of {len(wanted)} nodes should have {each} ranks, there were {shown or 'none'}"

    def context(self) -> dict[str, t.Any]:
        ranks = {str(rank): f"{about['node']} {about['local']}" for rank, about in sorted(self.found["ranks"].items())}
        versions = {name: about.get("torch") for name, about in self.found["nodes"].items()}
        nccl_version = next((about.get("nccl") for about in self.found["nodes"].values() if about.get("nccl")), None)
        interfaces = {name: about.get("interface") for name, about in self.found["nodes"].items()}
        known = {"ranks": ranks, "torch": versions, "nccl_version": nccl_version, "interfaces": interfaces}
        return {**known, "launcher": self.head.launcher.version}

    def wrong(self) -> tuple[str, tuple[int, ...]] | None:
        return reading.wrong(self.found)

    def of(self, check: str) -> tuple[str, str, dict[str, t.Any]]:
        """(reason code or nothing, reason, more of the observation) of one check."""
        if check == "collectives":
            return self._collectives()
        if check == "training":
            return self._training()
        if check == "pace":
            return self._pace()
        return self._bandwidth(check)

    def _failed(self, part: str) -> tuple[str, str, dict[str, t.Any]]:
        if self.cause:
            return self.cause.code, self.cause.reason, {}
        return "incomplete_output", f"the group ended with status 0 and reported nothing about {part}", {}

    # Of each check: what is wrong for sure is a fault whatever else happened; what is right counts only in a group that came to its end,
    # of the ranks that were asked for, and where all was looked at that was ordered.

    def _collectives(self) -> tuple[str, str, dict[str, t.Any]]:
        wrong = self.wrong()
        rows = [{key: one[key] for key in ("op", "type", "elements", "wrong")} for one in self.found["checked"] if not one["unsupported"]]
        lacks = sorted({f"{one['op']} {one['type']}" for one in self.found["checked"] if one["unsupported"]})
        more = {"series": rows, "context": {"not_of_the_backend": lacks}}
        if wrong:
            return "wrong_results", wrong[0], more
        unsure = self.cause or self.uncompared()
        return (unsure.code, unsure.reason, more) if unsure else ("", "", more)

    def uncompared(self) -> reading.Cause | None:
        """What of the values that were ordered nobody compared."""
        order, world = self.job.order, self.job.ranks
        if "collectives" not in order["parts"]:
            return None
        pairs = [(op, kind) for op in order["ops"] for kind in order["types"]]
        lacks = order["lacks"]
        known: set[tuple[str, str]] = set()
        for one in self.found["checked"]:
            if one["unsupported"] and not {one["op"], one["type"]} & {*lacks}:
                return reading.Cause("unsupported", f"{order['backend']} refused {one['op']} of {one['type']}: {one['unsupported']}")
            known |= {(one["op"], one["type"])} if one["unsupported"] else set()
        found = dict.fromkeys(pairs, 0)
        for one in self.found["checked"]:
            if (one["op"], one["type"]) in found:
                found[one["op"], one["type"]] += one["elements"]
        for (op, kind), count in found.items():
            wanted = workload.compared(op, order["elements"], world) * world * order["rounds"]
            if (count != wanted or not wanted) and ((op, kind) not in known or count):
                return reading.Cause("incomplete_output", f"{op} of {kind}: {count} values were compared, expected {max(wanted, 1)}")
        if not sum(found.values()):
            return reading.Cause("unsupported", f"nothing was compared: {order['backend']} has none of the operations that were asked for")
        return None

    def _bandwidth(self, op: str) -> tuple[str, str, dict[str, t.Any]]:
        unsure = self.cause or self.unmeasured(op)
        if unsure:
            return unsure.code, unsure.reason, {}
        read = table(self.found, op)
        rows = [{"size": row["size"], **row["in_place"]} for row in read["rows"]]
        return "", "", {"series": rows, "metrics": {"busbw": {"value": read["peak_busbw"]["value"], "unit": "GB/s"}}}

    def unmeasured(self, op: str) -> reading.Cause | None:
        """What is missing or absurd in the bandwidths of an operation."""
        order, world = self.job.order, self.job.ranks
        if any(one["op"] == op for one in self.found["unsupported"]):
            return reading.Cause("unsupported", f"the backend does not have {op}")
        kind, mine = order["bandwidth_type"], [one for one in self.found["rows"] if one["op"] == op]
        wanted = sorted(workload.counted(op, size, kind, world) * workload.WIDTHS[kind] for size in order["sizes"])
        found = sorted(one["size"] for one in mine)
        if found != wanted or not wanted:
            return reading.Cause("incomplete_output", f"{op} was measured at {found or 'no'} bytes, expected {wanted or 'some'}")
        for one in mine:
            busbw = one["size"] / one["time_us"] / 1e3 * workload.FACTORS[op](world) if one["time_us"] > 0 else 0.0
            if one.get("type") != kind or busbw <= 0 or not math.isclose(busbw, one["busbw"], rel_tol=1e-3):
                shown = f"{one['time_us']} us and a bus bandwidth of {one['busbw']} GB/s in {one.get('type')}"
                return reading.Cause("bad_output", f"{op} of {one['size']} bytes: found {shown}, expected numbers of {kind} that agree")
        return None

    def _training(self) -> tuple[str, str, dict[str, t.Any]]:
        one = self.found["training"]
        if one is None:
            return self._failed("the training")
        more: dict[str, t.Any] = {"context": {"training": {**{key: one.get(key) for key in TRAINED}, "limit": training.LEARNT}}}
        if not one["identical"]:
            who = "; ".join(self.name(rank) for rank in one["odd"] if isinstance(rank, int))
            said = f"after step {one.get('differs_at')} of {one['steps']} the ranks' parameters or gradients are not the same bits"
            return "wrong_results", said + (f": those of {who} are others" if who else ""), more
        if not one["finite"]:
            who = ", ".join(self.name(rank) for rank in one.get("not_finite") or [] if isinstance(rank, int))
            return "not_trained", f"the loss was not finite on {who}", more
        wanted = self.job.order["steps"]
        known = jsonlines.numbers(one.get("first"), one.get("last")) and one["first"] > 0 and one["last"] >= 0
        if known and one["steps"] == wanted and not one["last"] < training.LEARNT * one["first"]:
            said = f"after {wanted} steps the loss was {one['last']:.4g}, at its start {one['first']:.4g}"
            return "not_trained", f"{said}: expected less than {training.LEARNT} of that", more
        if self.cause:
            return self.cause.code, self.cause.reason, more
        if one["steps"] != wanted:
            return "incomplete_output", f"the training had {one['steps']} steps, expected {wanted}", more
        if not known:
            return "bad_output", f"the training's loss went from {one.get('first')} to {one.get('last')}, expected numbers", more
        if not one["repeatable"]:
            who = ", ".join(self.name(rank) for rank in one.get("other_again") or [] if isinstance(rank, int))
            text = f"the same training with seed {one.get('seed')} gave other bits the second time on {who}"
            more["context"]["findings"] = [{"code": "not_repeatable", "text": text}]
        return "", "", more

    def _pace(self) -> tuple[str, str, dict[str, t.Any]]:
        paces = [one for _rank, one in sorted(self.found["pace"].items())]
        if self.cause or [one["rank"] for one in paces] != list(range(self.job.ranks)):
            return self._failed("the pace of ranks")
        bad = [one for one in paces if not one["compute_ms"] > 0 or not one["step_ms"] > 0]
        if bad:
            shown = f"{bad[0]['compute_ms']} ms of computing in {bad[0]['step_ms']} ms"
            return "bad_output", f"a step of rank {bad[0]['rank']} is {shown}, expected times", {}
        keys = ("rank", "node", "compute_ms", "step_ms", "communication_ms")
        devices = [str(self.found["ranks"].get(one["rank"], {}).get("device") or "") for one in paces]
        slower = workload.slower([one["compute_ms"] for one in paces], [one["node"] for one in paces], devices)
        rows = [{**{key: one.get(key) for key in keys}, "slower_percent": by} for one, by in zip(paces, slower)]
        more: dict[str, t.Any] = {"series": rows}
        behind = self.stragglers(rows)
        if behind:
            texts = [f"{self.name(rank)}: {text}" for rank, text in behind.items()]
            rest = [f"and {len(texts) - NAMED} more stragglers"] if len(texts) > NAMED else []
            more["context"] = {"findings": [{"code": "straggler", "text": text} for text in (*texts[:NAMED], *rest)]}
        return "", "", more

    def stragglers(self, rows: t.Iterable[dict[str, t.Any]]) -> dict[int, str]:
        """Return for each rank that is more than `straggler_percent` behind the fastest node how slow it is, in words.

        The default of 10 % is well above the few percent by which healthy GPUs of one model differ under their power limit.
        """
        found = {}
        for row in rows:
            if row["slower_percent"] > self.job.order["straggler_percent"]:
                slower = f"{row['slower_percent']:.0f} % more than on the fastest node with the same device"
                found[row["rank"]] = f"computing takes {row['compute_ms']:.2f} ms of a step, {slower}"
        return found

    # Findings --------------------------------------------------------------------------------------------------------

    def name(self, rank: int) -> str:
        return f"rank {rank} ({self.gpu(rank)[1]})"

    def gpu(self, rank: int) -> tuple[str, str]:
        """(node, id of the GPU's subject) of a rank."""
        about = self.found["ranks"].get(rank, {})
        seat = next((seat for seat in self.job.seats if seat.name == about.get("node")), None)
        if seat is None:
            return "", f"rank {rank}"
        local = about["local"]
        known = about.get("uuid") or (seat.gpus[local] if local < len(seat.gpus) else f"slot-{local}")
        return seat.name, f"{seat.name}/gpu/{known}"

    def findings(self, check: dict[str, str]) -> list[Observation]:
        """Of whom the ranks themselves say that they are to blame: convicted where values or times say so; a rank that died or hung is
        named, and what it was that ended it is not known."""
        blamed: dict[int, tuple[str, str, str]] = {}
        one = self.found["training"] or {}
        for rank in [rank for rank in one.get("odd") or [] if isinstance(rank, int)]:
            said = f"after step {one.get('differs_at')} its parameters or gradients differ from those of all other ranks"
            blamed[rank] = ("training", "wrong_results", said)
        for rank, said in self.stragglers(self._pace()[2].get("series", ())).items():
            blamed[rank] = ("pace", "straggler", said)
        wrong = self.wrong()
        for rank in wrong[1] if wrong else ():
            blamed[rank] = ("collectives", "wrong_results", f"what it sent, or got, was wrong: {wrong[0] if wrong else ''}")
        made = [self._told(check, rank, *why, True) for rank, why in sorted(blamed.items()) if self.gpu(rank)[0]]
        if self.cause and not made and self.cause.code in ("rank_died", "rank_hung", "out_of_memory"):
            why = ("training", self.cause.code, self.cause.reason)
            made = [self._told(check, rank, *why, False) for rank in self.cause.ranks if self.gpu(rank)[0]]
        return made

    def _told(self, check: dict[str, str], rank: int, op: str, code: str, text: str, sure: bool) -> Observation:
        node, gpu = self.gpu(rank)
        keys = nccl.fields(check["variant"])
        fields: dict[str, t.Any] = {
            "variant": observation.variant(op=op, backend=keys.get("backend"), gpus=keys.get("gpus"), rail=keys.get("rail")),
            "subject": {"kind": "gpu", "id": gpu, "members": [node]},
            "simulated": self.head.group.simulated,
            "started_at": observation.utc(self.job.started_at),
            "duration_s": self.job.duration_s,
            "context": {"rank": rank, "confidence": "convicted" if sure else "unresolved"},
        }
        reason = f"gpu {gpu}: rank {rank}: {text}"[:2000]
        if not sure:
            return observation.failed("localise", code, reason, **fields)
        fields["context"]["findings"] = [{"code": code, "text": reason}]
        return observation.measured("localise", **fields)

    # Files -----------------------------------------------------------------------------------------------------------

    def files(self, absent: t.Collection[str] = ()) -> dict[str, t.Any]:
        """By the names, and with the keys, that acceptance images use. Of a group that is not whole nothing is well."""
        one = self.found["training"] or {}
        code, why, _more = self._collectives()
        why = why or (f"did not take part: {', '.join(absent)}" if absent else "")
        ok, improved = not code and not absent, self._training()[0] == "" and not absent
        first: dict[str, t.Any] = next(iter(self.found["nodes"].values()), {})
        order = self.job.order
        tests = {"world": self.job.ranks, "iters": order["rounds"], "numel": order["elements"], "time": round(self.job.duration_s, 3)}
        trained = {"world": self.job.ranks, "epochs": 1, "batch_size": order["batch"], "steps": one.get("steps")}
        loss = {"loss_start": one.get("first"), "loss_end": one.get("last")}
        summary = {
            "env": left_files.environment(first.get("torch"), first.get("devices", 0)),
            "ddp_tests": left_files.printed(0 if ok else 3, self.job.out, self.job.err),
            "ddp_train": left_files.printed(0 if improved else 3, self.job.out, self.job.err),
        }
        return dict(zip(FILES, (summary, {**tests, "ok": ok, "reason": why or None}, {**trained, **loss, "improved": improved})))


TRAINED = ("steps", "first", "last", "ratio", "identical", "repeatable", "curve", "seed")


def table(found: dict[str, t.Any], op: str | None) -> dict[str, t.Any]:
    """Rows of a bandwidth in the form of the parser of nccl-tests."""
    rows = [
        {
            "size": one["size"], "count": None, "type": one.get("type"), "redop": None, "root": None, "out_of_place": None,
            "in_place": {key: one[key] for key in ("time_us", "algbw", "busbw")},
        }
        for one in found["rows"]
        if op in (None, one["op"])
    ]  # fmt: skip
    peak = max(rows, key=lambda row: row["in_place"]["busbw"], default=None)
    read: dict[str, t.Any] = {"rows": rows}
    if peak:
        read["peak_busbw"] = {"value": peak["in_place"]["busbw"], "size": peak["size"]}
    return read


def _last(text: str) -> str:
    """The last words of a traceback, or of whatever else it is."""
    lines = [line for line in text.splitlines() if line.strip()]
    return " ".join(" ".join(lines[-6:]).split())[-500:] or "without a word"
