# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Training over the nodes of a group with PyTorch: torchrun on every node, started by the group's head.

One launch gives all checks of a group. If the output of the ranks names the cause of a failure, that is a finding. If the group is slow,
or the cause is unknown, its parts are measured by the search of nccl_fabric (groups/collective.py), with the same workload.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import base64
import json
import math
import typing as t
import uuid
import zlib

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import base, nccl, registry
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import jsonlines, observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import collective, group, hangs, launching, membership
from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise import hang
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import ddp as reading
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import left_files
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import agent, packing, stacks, training
from ansible_collections.gpufleet.acceptance.plugins.module_utils.workloads import ddp as workload

# Read at import: a detached probe outlives the archive that Ansible runs it from.
SOURCE = packing.packed(stacks, training, agent, workload)
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


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """On the head one observation per check of the group, and one per finding; on every node its own as a member."""
    purpose = f"training with ddp_backend {params['backend']}"

    def measure(local_facts: dict[str, t.Any] | None, checks: list[dict[str, str]]) -> t.Iterator[Observation]:
        return Trainer(params, node, local_facts).measure(checks)

    yield from membership.take_part(params, node, measure, purpose, kinds_of(params["backend"]))


def kinds_of(backend: str) -> list[str] | None:
    """Return the kinds of accelerators that are measured by a backend: those whose collectives it carries. gloo trains on the CPUs of nodes
    with GPUs that PyTorch knows by the usual name; None, every kind, for `auto`."""
    if backend == "auto":
        return None
    carried = [kind for kind, of in registry.KINDS.items() if of.collectives == backend]
    return carried or [kind for kind, of in registry.KINDS.items() if of.torch == registry.DEFAULT.torch]


def default_checks(params: Params) -> list[dict[str, str]]:
    """Return the default checks, for a call that names none."""
    pairs = checks_of(params["ops"], params["gpus"], params["sizes"], params["type"], params["backend"])
    return [{"check": check, "variant": variant} for check, variant in pairs]


def checks_of(
    ops: t.Iterable[str], gpus: str | int, sizes: str, type_: str, backend: str, rail: str | None = None
) -> list[tuple[str, str]]:
    """(check, variant) of one launch; over a single rail values and bandwidth, which is what a rail can spoil."""
    keys = {"backend": backend, "gpus": gpus, "rail": rail}
    common = observation.variant(**keys)
    rows = [(op, observation.variant(**keys, sizes=sizes, type=type_)) for op in ops]
    return [("collectives", common), *rows, *([] if rail else [("training", common), ("pace", common)])]


def _device(backend: str, own: type[base.Accelerator]) -> dict[str, t.Any]:
    """Return the type of the devices whose collectives this backend carries, on nodes of the kind `own`, the package that adds the type to
    PyTorch or the build that has it, and the operations and element types that the backend may lack."""
    kind = registry.carried_by(backend, own)
    if kind is None:
        return {"device": "cpu", "plugin": "", "lacks": workload.GLOO_LACKS}
    return {"device": kind.torch, "lacks": kind.lacks, "visible": kind.visible, "device_files": kind.device_files, **kind.torch_order()}


class TorchHead(collective.GroupHead):
    """The head of a group that measures bandwidth with PyTorch: for nccl_fabric without nccl-tests."""

    def measured_kind(self) -> type[base.Accelerator]:
        return registry.carried_by(self.params.get("backend") or "", self.own_kind) or self.own_kind

    def make_launcher(self) -> launching.Launcher:
        return launching.Agents(self.params["port"])

    def _backend(self, keys: dict[str, str]) -> str:
        """Return the backend that carries the collectives of a check."""
        backend = keys.get("backend", self.own_kind.collectives)
        return self.own_kind.collectives if backend == "auto" else backend

    # The launch ------------------------------------------------------------------------------------------------------

    def order(self, checks: t.Sequence[dict[str, str]], members: list[group.GroupMember]) -> dict[str, t.Any]:
        """Return the order to each rank for these checks."""
        params = {**workload.DEFAULTS, "collectives": [], **self.params}
        keys = observation.fields(checks[0]["variant"])
        rows = [(check["check"], observation.fields(check["variant"])) for check in checks if check["check"] not in PARTS]
        sizes = sorted({size for _op, of in rows for size in self._steps(members, of)})
        parts = [PARTS[check["check"]] for check in checks if check["check"] in PARTS]
        parts += ["bandwidth"] if rows else []
        kinds = {of.get("type", "float") for _op, of in rows}
        kind = kinds.pop() if kinds else "float"
        options = (
            "rounds", "elements", "iterations", "warmup", "steps", "seed", "width", "batch", "straggler_percent", "collective_timeout",
            "join_timeout",
        )  # fmt: skip
        return {
            **{name: params[name] for name in options},
            "backend": self._backend(keys),
            **_device(self._backend(keys), self.own_kind),
            "parts": [part for part in ("collectives", "bandwidth", "training", "pace") if part in parts],
            "ops": params["collectives"] or [OPS.get(op, op) for op, _of in rows],
            "types": params["types"] if params["collectives"] else [TYPES.get(kind, kind)],
            "bandwidth_ops": list(dict.fromkeys(OPS.get(op, op) for op, _of in rows)),
            "bandwidth_type": TYPES.get(kind, kind),
            "sizes": sizes,
            "fill_seconds": params["fill_seconds"],
        }

    def _steps(self, members: list[group.GroupMember], keys: dict[str, str]) -> list[int]:
        smallest, largest = (nccl.size(word) for word in self._sizes(members, keys))
        sizes, factor = [smallest], max(2, self.params.get("factor", FACTOR))
        while sizes[-1] < largest:
            sizes.append(min(largest, sizes[-1] * factor))
        return sizes

    def launch_of(
        self, checks: t.Sequence[dict[str, str]], members: list[group.GroupMember], slots: t.Sequence[int], timeout: float
    ) -> launching.Job:
        """Return a launch over `slots` of each of `members`, the head first if it is one of them."""
        members = self._head_first(members)
        mixed = any("NCCL_SOCKET_IFNAME" in (member.nccl or {}) for member in members)
        rank_order = self.order(checks, members)
        order = {
            "role": "agent",
            "id": uuid.uuid4().hex[:16],
            "nodes": [member.name for member in members],
            "addresses": [member.address for member in members],
            "rendezvous": self.params.get("rendezvous", "c10d"),
            "join_timeout": self.params["join_timeout"],
            "socket_interface": not mixed,
            "order": rank_order,
        }
        source = base64.b64encode(zlib.compress(SOURCE.encode(), 9)).decode()
        argv = [self.params["python"] or "python3", "-c", BOOT, source, json.dumps(order)]
        keys = observation.fields(checks[0]["variant"])
        env = self._seeing(members, slots, keys)
        if self.node.contained:
            argv = self.node.container_argv(argv, env, "")
        job = self.group.job(self.launcher, members, len(slots), argv, env, timeout, ranks=len(members) * len(slots))
        job.order = {**rank_order, "rail": keys.get("rail")}
        job.plea = workload.PLEA
        job.words = [argv[0], "-m", "torch.distributed.run", f"--nnodes={len(members)}", f"--nproc_per_node={len(slots)}", "ddp.py"]
        return job

    def job_of(
        self,
        op: str,
        keys: dict[str, str],
        members: list[group.GroupMember],
        slots: t.Sequence[int],
        sizes: tuple[str, str],
        timeout: float,
    ) -> launching.Job:
        """A launch of one operation: its values are checked, too."""
        op_fields = {**keys, "sizes": ":".join(sizes)}
        checks = [{"check": check, "variant": observation.variant(**op_fields)} for check in ("collectives", op)]
        return self.launch_of(checks, members, slots, timeout)

    def evidence_of(self, job: launching.Job) -> hangs.Evidence:
        evidence = super().evidence_of(job)
        evidence.python = "" if self.node.contained else self.params["python"] or ""  # it is looked at from outside of containers
        evidence.on_cpu = job.order["device"] == "cpu"

        def gather(job: launching.Job) -> str:
            return evidence.gather(job, reading.places(reading.parse(job.printed())))

        job.on_hang = gather
        return evidence

    def hang_findings(self, check: dict[str, str], launch: collective.LaunchResult, slots: list[int]) -> t.Iterator[Observation]:
        if launch.code == "rank_hung":
            yield from LaunchReport(self, launch.job, self.evidence.get(launch.job)).findings(check)

    def read_job(self, job: launching.Job) -> collective.LaunchResult:
        """Return the result of a launch in the form that collective.Search reads."""
        report = LaunchReport(self, job, self.evidence.get(job))
        read = {**table(report.parsed, None), "tool_version": report.parsed["version"], "nccl_version": report.context()["nccl_version"]}
        read["ranks"] = [{"host": record["node"]} for record in report.parsed["ranks"].values()]
        wrong = report.wrong()
        if wrong:
            return collective.LaunchResult("error", "wrong_results", wrong[0], read, job)
        unsure = report.cause or report.uncompared() or next(filter(None, map(report.unmeasured, job.order["bandwidth_ops"])), None)
        if unsure:
            outcome = "timeout" if unsure.code in ("timeout", "rank_hung") else "error"
            return collective.LaunchResult(outcome, unsure.code, unsure.reason, read, job)
        return collective.LaunchResult("measured", None, None, read, job)


class Trainer(TorchHead):
    """Trains over a group."""

    stage = "ddp"

    def batches(self, checks: list[dict[str, str]]) -> list[list[dict[str, str]]]:
        by_launch: dict[tuple[str, ...], list[dict[str, str]]] = {}
        for check in checks:
            by_launch.setdefault(self._common(check), []).append(check)
        return [*by_launch.values()]

    def _common(self, check: dict[str, str]) -> tuple[str, ...]:
        keys = observation.fields(check["variant"])
        return self._backend(keys), keys.get("gpus", "all"), keys.get("rail", "")

    def measure_checks(self, checks: list[dict[str, str]]) -> t.Iterator[Observation]:
        """Checks with the same GPUs and backend: one launch."""
        self.searched = False
        keys = observation.fields(checks[0]["variant"])
        members, absent = self.group.present(), self.group.absent()
        if len(members) < 2:
            reason = f"{len(members)} of {len(self.group.members)} nodes take part: {self._without(absent)}"
            refusal: tuple[str, str] | None = ("member", reason)
        else:
            refusal = self._agree(members, keys)
        trains = "rail" not in keys
        if refusal:
            self._leave({} if trains else None)
            yield from (self._failed(check, *refusal) for check in checks)
            return
        slots = self._slots(members, keys)
        job = self.launch_of(checks, members, slots, self.params["test_timeout"])
        evidence = self.evidence_of(job)
        launching.run([job], self.node, 1)
        report = LaunchReport(self, job, evidence)
        self._leave(report.files(absent) if trains else None)
        for check in checks:
            yield self._observed_of(check, report, members, slots, absent)
        findings = report.findings(checks[0])
        yield from findings
        if not findings:
            yield from self._searched(checks, report, members, slots)

    # What came of it -------------------------------------------------------------------------------------------------

    def _observed_of(
        self,
        check: dict[str, str],
        report: LaunchReport,
        members: list[group.GroupMember],
        slots: list[int],
        absent: dict[str, tuple[str, str]],
    ) -> Observation:
        keys = observation.fields(check["variant"])
        common: dict[str, t.Any] = {
            "variant": check["variant"],
            "subject": self.subject_of(),
            "command": report.job.shown(),
            "duration_s": report.job.duration_s,
            "started_at": observation.utc(report.job.started_at),
            "raw": report.job.raw,
            "tool_version": report.parsed["version"],
            "simulated": self.group.simulated,
            "context": {**self.context_of(check["check"], keys, members, slots), **report.context(), "backend": self._backend(keys),
                        "warnings": self.warnings},
        }
        code, reason, details = report.of(check["check"])
        common["context"].update(details.pop("context", {}))
        common.update(details)
        if absent:
            present = len(self.group.members) - len(absent)
            measured_text = f"; the other {present} were measured" if not code else ""
            sentence = f"{len(absent)} of {len(self.group.members)} nodes did not take part{measured_text}: {self._without(absent)}"
            return observation.failed(check["check"], "member", sentence[:2000], **common)
        if code:
            outcome = "timeout" if code in ("timeout", "rank_hung") else "error"
            return observation.failed(check["check"], code, reason[:2000], outcome, **common)
        return observation.measured(check["check"], **common)

    def _searched(
        self, checks: list[dict[str, str]], report: LaunchReport, members: list[group.GroupMember], slots: list[int]
    ) -> t.Iterator[Observation]:
        """Yield the findings of a search over parts of the group, if the group is slow, or fails without naming the cause."""
        if not self.params["localise"] or len(members) < 3:
            return
        for check in checks:
            if check["check"] in PARTS:
                continue
            keys = observation.fields(check["variant"])
            launch = self.read_job(report.job)._replace(read=table(report.parsed, check["check"]))
            floors = collective.Floors(self.params["floors"], check["check"], self.context_of(check["check"], keys, members, slots))
            missed = floors.missed(launch) if launch.read["rows"] else None
            why = "slow" if missed else launch.code if launch.outcome != "measured" else None
            if why in SEARCHED:
                self.searched = True
                size = missed or floors.size(self._steps(members, keys)[-1])
                yield from collective.Search(self, check, members, slots, size, floors, launch).findings()
                if why != "slow":
                    return

    def _leave(self, files: dict[str, t.Any] | None) -> None:
        """Write the files that other tools read, if `results_dir` is set. `files` is None for a launch without training."""
        if self.params["results_dir"] and files is not None:
            problem = left_files.write(self.params["results_dir"], files, FILES)
            self.warnings += [problem] if problem else []


# What is left in a folder of the user's.
FILES = ("summary.json", "ddp_tests_result.json", "ddp_training_result.json")
# So many stragglers the check `pace` names; each has a finding of its own besides.
NAMED = 32
# After these the parts of a group are measured.
SEARCHED = (*collective.SEARCHED, "cuda_failed", "partner", "rank_died", "rank_hung")


class LaunchReport:
    """The report of one launch: the result of each check, and the ranks that caused a failure."""

    def __init__(self, head: TorchHead, job: launching.Job, evidence: hangs.Evidence | None = None) -> None:
        self.head = head
        self.job = job
        self.parsed = reading.parse(job.out)
        self.evidence = evidence
        # Who held the ranks up, by the evidence that was gathered while they hung; None without any.
        self.ruling: hang.Ruling | None = None
        self.cause = self._cause()
        if self.cause and self.cause.code in ("timeout", "rank_hung") and evidence and evidence.gathered:
            self.cause = self._looked_at(self.cause, evidence)

    def _cause(self) -> reading.Failure | None:
        job = self.job
        if job.missing:
            return reading.Failure("tool_missing", f"{job.argv[0]}: {job.missing}")
        cause = reading.cause(self.parsed, job.ends, job.err, job.ranks)
        if job.timed_out and (cause is None or cause.code == "incomplete_output"):
            hung = f"; {cause.reason}" if cause else ""
            return reading.Failure("timeout", f"the group did not end within {job.timeout:.0f} s and was ended{hung}")
        if cause is None:
            problem = self._covered()
            if problem:
                return reading.Failure("rank_mismatch", problem)
            if job.rc:
                return reading.Failure("tool_failed", f"torchrun ended with status {job.rc}: {_last(job.err)}")
            problem = collective.off_rail(job)
            return reading.Failure("other_way", problem) if problem else None
        if cause.code in ("incomplete_output", "partner", "lost_node"):
            complaint = self.head.launcher.complaint(f"{job.out}\n{job.err}", self.head.group.names())
            lost = self.head.group.gone([member for member in job.members if not member.local])
            if complaint:
                return reading.Failure(*complaint)
            if lost:
                return reading.Failure("lost_node", f"{', '.join(lost)} went away while the group ran: {cause.reason}")
            if cause.code == "incomplete_output" and job.rc:
                silent = [member.name for member in job.members if member.name not in self.parsed["nodes"]]
                suffix = f" of {', '.join(silent[:4])}" if silent else ""
                return reading.Failure("tool_failed", f"the agent{suffix} ended with status {job.rc}: {_last(job.err)}")
        return cause

    def _looked_at(self, cause: reading.Failure, evidence: hangs.Evidence) -> reading.Failure:
        """Return the cause of a hang by what was seen of the ranks while they hung. If nothing was seen, or the group has moved on since,
        it is what the ranks themselves have said."""
        places = reading.places(self.parsed)
        if not evidence.answers or evidence.is_past(places):
            return cause._replace(reason=f"{cause.reason}; {evidence.worth('it is of an earlier operation')}")
        homes = {rank: record["node"] for rank, record in self.parsed["ranks"].items()}
        self.ruling = evidence.ruling(self.job, places, self.parsed["done"], homes, ended=reading.waited(self.parsed))
        # By their words alone other ranks may seem to hold the group up than those that were seen to.
        is_other = cause.code == "rank_hung" and not set(cause.ranks) <= set(self.ruling.ranks)
        reason = reading.waiting(self.parsed, self.job.err, self.job.ranks) if is_other else cause.reason
        if not self.ruling.named:
            return reading.Failure("timeout", f"{reason}; {evidence.worth(self.ruling.text[None])}")
        names = [f"{reading.name(self.parsed, rank, evidence.place(rank)[0])} {self.ruling.text[rank]}" for rank in self.ruling.ranks[:8]]
        if not names:
            names = [f"{self.ruling.node} {self.ruling.text[None]}"]
        return reading.Failure("rank_hung", f"{'; '.join(names)}; {reason}", self.ruling.ranks)

    def _covered(self) -> str | None:
        """Return what is wrong with the places of the ranks; None if every requested node has its ranks and no other node has any."""
        if self.parsed["twice"]:
            return f"{self.parsed['twice'][0]} was printed more than once: these are not the ranks of one group"
        world = self.job.ranks
        strange = [rank for rank, record in self.parsed["ranks"].items() if rank not in range(world) or record["world"] != world]
        if strange:
            claim = f"rank {strange[0]} is one of {self.parsed['ranks'][strange[0]]['world']}"
            return f"{claim}, where {world} ranks with numbers from 0 were asked for"
        each = self.job.ranks // len(self.job.members)
        uuids: dict[str, int] = {}
        for rank, record in self.parsed["ranks"].items():
            uuid = str(record.get("uuid") or f"of rank {rank}")
            if uuid in uuids:
                return f"ranks {uuids[uuid]} and {rank} are both on {uuid}: other GPUs were not looked at"
            uuids[uuid] = rank
        counts: dict[str, int] = {}
        for record in self.parsed["ranks"].values():
            counts[record["node"]] = counts.get(record["node"], 0) + 1
        expected = {member.name: each for member in self.job.members}
        if counts == expected:
            return None
        listed = ", ".join(f"{name}: {count}" for name, count in sorted(counts.items()))
        return f"each of {len(expected)} nodes should have {each} ranks, there were {listed or 'none'}"

    def context(self) -> dict[str, t.Any]:
        ranks = {str(rank): f"{record['node']} {record['local']}" for rank, record in sorted(self.parsed["ranks"].items())}
        versions = {name: record.get("torch") for name, record in self.parsed["nodes"].items()}
        nccl_version = next((record.get("nccl") for record in self.parsed["nodes"].values() if record.get("nccl")), None)
        interfaces = {name: record.get("interface") for name, record in self.parsed["nodes"].items()}
        fields: dict[str, t.Any] = {"ranks": ranks, "torch": versions, "nccl_version": nccl_version, "interfaces": interfaces}
        if self.evidence and self.evidence.gathered:
            fields["hang"] = self.evidence.summary()
        return {**fields, "launcher": self.head.launcher.version}

    def wrong(self) -> tuple[str, tuple[int, ...]] | None:
        return reading.wrong(self.parsed)

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
        checked = self.parsed["checked"]
        rows = [{key: record[key] for key in ("op", "type", "elements", "wrong")} for record in checked if not record["unsupported"]]
        lacks = sorted({f"{record['op']} {record['type']}" for record in checked if record["unsupported"]})
        details = {"series": rows, "context": {"not_of_the_backend": lacks}}
        if wrong:
            return "wrong_results", wrong[0], details
        unsure = self.cause or self.uncompared()
        return (unsure.code, unsure.reason, details) if unsure else ("", "", details)

    def uncompared(self) -> reading.Failure | None:
        """Return the first gap in the comparison of values, as a failure; None if all ordered values were compared."""
        order, world = self.job.order, self.job.ranks
        if "collectives" not in order["parts"]:
            return None
        pairs = [(op, kind) for op in order["ops"] for kind in order["types"]]
        lacks = order["lacks"]
        unsupported: set[tuple[str, str]] = set()
        for record in self.parsed["checked"]:
            if record["unsupported"] and not {record["op"], record["type"]} & {*lacks}:
                reason = f"{order['backend']} refused {record['op']} of {record['type']}: {record['unsupported']}"
                return reading.Failure("unsupported", reason)
            unsupported |= {(record["op"], record["type"])} if record["unsupported"] else set()
        compared = dict.fromkeys(pairs, 0)
        for record in self.parsed["checked"]:
            if (record["op"], record["type"]) in compared:
                compared[record["op"], record["type"]] += record["elements"]
        for (op, kind), count in compared.items():
            expected = workload.compared(op, order["elements"], world) * world * order["rounds"]
            if (count != expected or not expected) and ((op, kind) not in unsupported or count):
                return reading.Failure("incomplete_output", f"{op} of {kind}: {count} values were compared, expected {max(expected, 1)}")
        if not sum(compared.values()):
            return reading.Failure("unsupported", f"nothing was compared: {order['backend']} has none of the requested operations")
        return None

    def _bandwidth(self, op: str) -> tuple[str, str, dict[str, t.Any]]:
        unsure = self.cause or self.unmeasured(op)
        if unsure:
            return unsure.code, unsure.reason, {}
        read = table(self.parsed, op)
        rows = [{"size": row["size"], **row["in_place"]} for row in read["rows"]]
        return "", "", {"series": rows, "metrics": {"busbw": {"value": read["peak_busbw"]["value"], "unit": "GB/s"}}}

    def unmeasured(self, op: str) -> reading.Failure | None:
        """Return what is missing or impossible in the bandwidths of an operation, as a failure; None if nothing is."""
        order, world = self.job.order, self.job.ranks
        if any(record["op"] == op for record in self.parsed["unsupported"]):
            return reading.Failure("unsupported", f"the backend does not have {op}")
        kind, rows = order["bandwidth_type"], [row for row in self.parsed["rows"] if row["op"] == op]
        expected = sorted(workload.counted(op, size, kind, world) * workload.WIDTHS[kind] for size in order["sizes"])
        measured = sorted(row["size"] for row in rows)
        if measured != expected or not expected:
            return reading.Failure("incomplete_output", f"{op} was measured at {measured or 'no'} bytes, expected {expected or 'some'}")
        for row in rows:
            busbw = row["size"] / row["time_us"] / 1e3 * workload.FACTORS[op](world) if row["time_us"] > 0 else 0.0
            if row.get("type") != kind or busbw <= 0 or not math.isclose(busbw, row["busbw"], rel_tol=1e-3):
                numbers = f"{row['time_us']} us and a bus bandwidth of {row['busbw']} GB/s in {row.get('type')}"
                return reading.Failure("bad_output", f"{op} of {row['size']} bytes: found {numbers}, expected numbers of {kind} that agree")
        return None

    def _training(self) -> tuple[str, str, dict[str, t.Any]]:
        record = self.parsed["training"]
        if record is None:
            return self._failed("the training")
        details: dict[str, t.Any] = {"context": {"training": {**{key: record.get(key) for key in TRAINED}, "limit": training.LEARNT}}}
        if not record["identical"]:
            who = "; ".join(self.name(rank) for rank in record["odd"] if isinstance(rank, int))
            place = f"step {record.get('differs_at')} of {record['steps']}"
            sentence = f"after {place} the ranks' parameters or gradients are not the same bits"
            return "wrong_results", sentence + (f": those of {who} are others" if who else ""), details
        if not record["finite"]:
            who = ", ".join(self.name(rank) for rank in record.get("not_finite") or [] if isinstance(rank, int))
            return "not_trained", f"the loss was not finite on {who}", details
        steps = self.job.order["steps"]
        has_losses = jsonlines.numbers(record.get("first"), record.get("last")) and record["first"] > 0 and record["last"] >= 0
        if has_losses and record["steps"] == steps and not record["last"] < training.LEARNT * record["first"]:
            sentence = f"after {steps} steps the loss was {record['last']:.4g}, at its start {record['first']:.4g}"
            return "not_trained", f"{sentence}: expected less than {training.LEARNT} of that", details
        if self.cause:
            return self.cause.code, self.cause.reason, details
        if record["steps"] != steps:
            return "incomplete_output", f"the training had {record['steps']} steps, expected {steps}", details
        if not has_losses:
            return "bad_output", f"the training's loss went from {record.get('first')} to {record.get('last')}, expected numbers", details
        if not record["repeatable"]:
            who = ", ".join(self.name(rank) for rank in record.get("other_again") or [] if isinstance(rank, int))
            text = f"the same training with seed {record.get('seed')} gave other bits the second time on {who}"
            details["context"]["findings"] = [{"code": "not_repeatable", "text": text}]
        return "", "", details

    def _pace(self) -> tuple[str, str, dict[str, t.Any]]:
        paces = [pace for _rank, pace in sorted(self.parsed["pace"].items())]
        if self.cause or [pace["rank"] for pace in paces] != list(range(self.job.ranks)):
            return self._failed("the pace of ranks")
        bad = [pace for pace in paces if not pace["compute_ms"] > 0 or not pace["step_ms"] > 0]
        if bad:
            times = f"{bad[0]['compute_ms']} ms of computing in {bad[0]['step_ms']} ms"
            return "bad_output", f"a step of rank {bad[0]['rank']} is {times}, expected times", {}
        keys = ("rank", "node", "compute_ms", "step_ms", "communication_ms")
        devices = [str(self.parsed["ranks"].get(pace["rank"], {}).get("device") or "") for pace in paces]
        slower = workload.slower([pace["compute_ms"] for pace in paces], [pace["node"] for pace in paces], devices)
        rows = [{**{key: pace.get(key) for key in keys}, "slower_percent": by} for pace, by in zip(paces, slower)]
        details: dict[str, t.Any] = {"series": rows}
        behind = self.stragglers(rows)
        if behind:
            texts = [f"{self.name(rank)}: {text}" for rank, text in behind.items()]
            remaining = [f"and {len(texts) - NAMED} more stragglers"] if len(texts) > NAMED else []
            details["context"] = {"findings": [{"code": "straggler", "text": text} for text in (*texts[:NAMED], *remaining)]}
        return "", "", details

    def stragglers(self, rows: t.Iterable[dict[str, t.Any]]) -> dict[int, str]:
        """Return for each rank that is more than `straggler_percent` behind the fastest node how slow it is, in words.

        The default of 10 % is well above the few percent by which healthy GPUs of one model differ under their power limit.
        """
        texts = {}
        for row in rows:
            if row["slower_percent"] > self.job.order["straggler_percent"]:
                slower = f"{row['slower_percent']:.0f} % more than on the fastest node with the same device"
                texts[row["rank"]] = f"computing takes {row['compute_ms']:.2f} ms of a step, {slower}"
        return texts

    # Findings --------------------------------------------------------------------------------------------------------

    def name(self, rank: int) -> str:
        return f"rank {rank} ({self.gpu(rank)[1]})"

    def gpu(self, rank: int) -> tuple[str, str]:
        """(node, id of the GPU's subject) of a rank."""
        record = self.parsed["ranks"].get(rank, {})
        node, local = record.get("node"), record.get("local")
        if not record and self.evidence:  # a rank that hangs before it has said who it is
            node, local = self.evidence.place(rank)
        member = next((member for member in self.job.members if member.name == node), None)
        if member is None or local is None:
            return "", f"rank {rank}"
        if not record and self.job.ranks != len(self.job.members) * len(member.gpus):
            return "", f"rank {rank}"  # which of its GPUs this launch uses is not known
        gpu_id = record.get("uuid") or (member.gpus[local] if local < len(member.gpus) else f"slot-{local}")
        return member.name, f"{member.name}/gpu/{gpu_id}"

    def findings(self, check: dict[str, str]) -> list[Observation]:
        """Return a finding for each rank that the output itself names: convicted by values or times, unresolved if the rank died or hung,
        as the cause is unknown then."""
        blamed: dict[int, tuple[str, str, str]] = {}
        record = self.parsed["training"] or {}
        for rank in [rank for rank in record.get("odd") or [] if isinstance(rank, int)]:
            text = f"after step {record.get('differs_at')} its parameters or gradients differ from those of all other ranks"
            blamed[rank] = ("training", "wrong_results", text)
        for rank, text in self.stragglers(self._pace()[2].get("series", ())).items():
            blamed[rank] = ("pace", "straggler", text)
        wrong = self.wrong()
        for rank in wrong[1] if wrong else ():
            blamed[rank] = ("collectives", "wrong_results", f"what it sent, or got, was wrong: {wrong[0] if wrong else ''}")
        observations = [self._observed_finding(check, rank, *why, True) for rank, why in sorted(blamed.items()) if self.gpu(rank)[0]]
        if self.cause and not observations and self.cause.code in ("rank_died", "rank_hung", "out_of_memory"):
            why = ("training", self.cause.code, self.cause.reason)
            observations = [self._observed_finding(check, rank, *why, False) for rank in self.cause.ranks if self.gpu(rank)[0]]
            if self.ruling and self.ruling.node and not self.ruling.ranks:
                observations = [self.head.observed_hang(check, ("node", self.ruling.node), self.ruling.node, self.cause.reason, self.job)]
        return observations

    def _observed_finding(self, check: dict[str, str], rank: int, op: str, code: str, text: str, sure: bool) -> Observation:
        node, gpu = self.gpu(rank)
        keys = observation.fields(check["variant"])
        fields: dict[str, t.Any] = {
            "variant": observation.variant(op=op, backend=keys.get("backend"), gpus=keys.get("gpus"), rail=keys.get("rail")),
            "subject": {"kind": "gpu", "id": gpu, "members": [node]},
            "simulated": self.head.group.simulated,
            "started_at": observation.utc(self.job.started_at),
            "duration_s": self.job.duration_s,
            "context": {"rank": rank, "confidence": "convicted" if sure else "unresolved"},
        }
        if self.ruling and rank in self.ruling.ranks:
            fields["raw"] = self.job.evidence
        reason = f"gpu {gpu}: rank {rank}: {text}"[:2000]
        if not sure:
            return observation.failed("localise", code, reason, **fields)
        fields["context"]["findings"] = [{"code": code, "text": reason}]
        return observation.measured("localise", **fields)

    # Files -----------------------------------------------------------------------------------------------------------

    def files(self, absent: t.Collection[str] = ()) -> dict[str, t.Any]:
        """Return the files in the form that acceptance images use, {name: content}. If members are absent, no test is `ok`."""
        record = self.parsed["training"] or {}
        code, why, _more = self._collectives()
        why = why or (f"did not take part: {', '.join(absent)}" if absent else "")
        ok, improved = not code and not absent, self._training()[0] == "" and not absent
        first: dict[str, t.Any] = next(iter(self.parsed["nodes"].values()), {})
        order = self.job.order
        tests = {"world": self.job.ranks, "iters": order["rounds"], "numel": order["elements"], "time": round(self.job.duration_s, 3)}
        trained = {"world": self.job.ranks, "epochs": 1, "batch_size": order["batch"], "steps": record.get("steps")}
        loss = {"loss_start": record.get("first"), "loss_end": record.get("last")}
        summary = {
            "env": left_files.environment(first.get("torch"), first.get("devices", 0)),
            "ddp_tests": left_files.printed(0 if ok else 3, self.job.out, self.job.err),
            "ddp_train": left_files.printed(0 if improved else 3, self.job.out, self.job.err),
        }
        return dict(zip(FILES, (summary, {**tests, "ok": ok, "reason": why or None}, {**trained, **loss, "improved": improved})))


TRAINED = ("steps", "first", "last", "ratio", "identical", "repeatable", "curve", "seed")


def table(parsed: dict[str, t.Any], op: str | None) -> dict[str, t.Any]:
    """Rows of a bandwidth in the form of the parser of nccl-tests."""
    rows = [
        {
            "size": row["size"], "count": None, "type": row.get("type"), "redop": None, "root": None, "out_of_place": None,
            "in_place": {key: row[key] for key in ("time_us", "algbw", "busbw")},
        }
        for row in parsed["rows"]
        if op in (None, row["op"])
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
