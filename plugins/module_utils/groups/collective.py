# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL between nodes, by nccl-tests under mpirun, and the search for what makes a group slow.

One node of a group is its head: it launches everything, over the other nodes, its members. The controller takes no part. If the group
misses its floor, or hangs, the head itself measures parts of it until it has found the cause (module_utils/localise/search.py).

A member lets the head log in, sends its description, watches its own GPUs meanwhile, and ends when the head is gone
(member.py). The head is a member, too. Without a token there are no member processes: the nodes reach one another already,
and `members` describes them.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import base, nccl, nccl_settings, registry
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer import observation, reasons
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params
from ansible_collections.gpufleet.acceptance.plugins.module_utils.expected import matching
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import group, hangs, launching, mnnvl, rails, steps
from ansible_collections.gpufleet.acceptance.plugins.module_utils.localise import search as localise
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import nccl_tests
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import checkpoints
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

# Outcomes of a whole group after which its parts are measured: it is slow, hangs, breaks or computes wrong values.
SEARCHED = ("slow", "timeout", "tool_failed", "wrong_results", "lost_node")
# So long after a search its members must still be there: what it saw of members on their way out is no finding.
SETTLE_S = 2.0
# From this version on NCCL finds the index of a GID by itself, on every node its own.
GID_BY_ITSELF = (2, 21, 5)


class LaunchResult(t.NamedTuple):
    """The result of one launch. `outcome` is `measured`, `timeout` or `error`; `read` is the parser's dict."""

    outcome: str
    code: str | None
    reason: str | None
    read: dict[str, t.Any]
    job: launching.Job

    def busbw(self, size: int) -> float | None:
        """GB/s at a message size, the better half of its row."""
        rows = [row for row in self.read.get("rows", ()) if row["size"] == size]
        return max((half["busbw"] for row in rows for half in (row["out_of_place"], row["in_place"]) if half), default=None)


class GroupHead:
    """The head of a group, which measures the group from one of its nodes. `local_facts`: the node's description of itself, None if
    `members` has all that is needed."""

    # Whose variables people are told of.
    stage = "nccl_fabric"
    # What the tool's output has once it has begun.
    begins = "nThread"
    # The kind of accelerators where nothing says which kind the nodes have.
    usual: type[base.Accelerator] = registry.DEFAULT
    # How many nodes make a group.
    min_nodes = 2

    def __init__(self, params: Params, node: Node, local_facts: dict[str, t.Any] | None) -> None:
        self.params = params
        self.node = node
        self.group = group.Group(params, node, local_facts)
        # The kind of accelerators of the head's own node, and the one that is measured.
        self.own_kind = registry.KINDS[local_facts["kind"]] if local_facts and local_facts.get("kind") in registry.KINDS else self.usual
        self.kind = self.measured_kind()
        # The variable that says which devices of a node a process sees.
        self.visible = self.kind.visible
        set_by_kind = registry.make(self.kind.kind, node).environment()
        self.env = {**set_by_kind, **{str(name): str(value) for name, value in params["env"].items()}}
        self.launcher = self.make_launcher()
        self.warnings: list[str] = []
        self.nccl_version: str | None = None
        # Whether NCCL_IB_GID_INDEX is ours.
        self.chose_gid = False
        # Whether the cause of what the last check gave was searched.
        self.searched = False
        # What was seen of launches that hung.
        self.evidence: dict[launching.Job, hangs.Evidence] = {}

    def measured_kind(self) -> type[base.Accelerator]:
        """Return the kind of accelerators that the group is measured on."""
        return self.own_kind

    def make_launcher(self) -> launching.Launcher:
        job = steps.job_of(self.params)
        if job:
            return launching.Steps(job, self.params["mpi_args"])
        return launching.Mpi(self.params["mpirun"], self.params["mpi_args"], "nccl_fabric_mpirun")

    def measure(self, checks: list[dict[str, str]]) -> t.Iterator[Observation]:
        """Gather the group, measure each check over it, and search for the cause of a failure."""
        if not checks:
            return
        with self.group:
            self.group.gather(self.params["join_timeout"])  # also where nothing can be launched: the members wait
            refusal = self.launcher.refusal(self.node)
            finished = self.group.finished()
            for several in self.batches(checks):
                names = [self._name(check) for check in several]
                if all(name in finished for name in names):
                    for name in names:
                        yield from finished[name]
                elif refusal:
                    yield from (self._failed(check, *refusal) for check in several)
                else:
                    yield from self._remembered(names, self.measure_checks(several))

    def batches(self, checks: list[dict[str, str]]) -> t.Iterable[list[dict[str, str]]]:
        """The checks by launches: of what one launch gives all is finished, or nothing is."""
        return [[check] for check in checks]

    def measure_checks(self, checks: list[dict[str, str]]) -> t.Iterator[Observation]:
        """Yield the observations of the checks of one launch, then the findings."""
        yield from self._check(checks[0])

    # One check -------------------------------------------------------------------------------------------------------

    def _name(self, check: dict[str, str]) -> str:
        return checkpoints.name_of({**check, "subject": self.subject_of()})

    def _remembered(self, names: list[str], observations: t.Iterable[Observation]) -> t.Iterator[Observation]:
        """Yield the observations of the checks of a launch, then checkpoints of them if they hold whatever becomes of the group. An error
        does not hold: the last thing that a head sees of members that are ended is one."""
        by_check: dict[str, list[Observation]] = {name: [] for name in names}
        stands = True
        for record in observations:
            name = checkpoints.name_of(record)
            by_check[name if name in by_check else names[0]].append(record)
            stands = stands and (name not in by_check or record["outcome"] == "measured" or record["reason_code"] in reasons.FATAL)
            yield record
        if self.node.checkpoints is not None and stands and self.group.hold(SETTLE_S if self.searched else 0.0):
            yield from (self.group.checkpoint(name, of) for name, of in by_check.items())

    def _check(self, check: dict[str, str]) -> t.Iterator[Observation]:
        op, keys = check["check"], observation.fields(check["variant"])
        members = self.group.present()
        absent = self.group.absent()
        if len(members) < self.min_nodes:
            yield self._failed(check, "member", f"{len(members)} of {len(self.group.members)} nodes take part: {self._without(absent)}")
            return
        repeated = mnnvl.refusal(keys, {member.gpu or "unknown" for member in members})
        if repeated:
            yield self._failed(check, *repeated, outcome="not_applicable")
            return
        refusal = self._agree(members, keys) or self.choose_gids(members, op, keys)
        if refusal:
            yield self._failed(check, *refusal)
            return
        slots = self._slots(members, keys)
        sizes = self._sizes(members, keys)
        job = self.job_of(op, keys, members, slots, sizes, self.params["test_timeout"])
        evidence = self.evidence_of(job)
        launch = self._launch([job])[0]
        context = self.context_of(op, keys, members, slots)
        if evidence.gathered:
            context["hang"] = evidence.summary()
        context["findings"] += mnnvl.findings(f"{launch.job.out}\n{launch.job.err}")
        yield self._observed(check, launch, context, absent)
        yield from self.hang_findings(check, launch, slots)
        floors = Floors(self.params["floors"], op, context)
        missed = floors.missed(launch)
        why = "slow" if missed else launch.code if launch.outcome != "measured" else None
        self.searched = why in SEARCHED and self.params["localise"] and len(members) > 2
        if self.searched:
            size = missed or floors.size(nccl.size(sizes[1]))
            yield from Search(self, check, members, slots, size, floors, launch).findings()

    def _observed(
        self, check: dict[str, str], launch: LaunchResult, context: dict[str, t.Any], absent: dict[str, tuple[str, str]]
    ) -> Observation:
        read = launch.read
        common: dict[str, t.Any] = {
            "variant": check["variant"],
            "subject": self.subject_of(),
            "command": launch.job.shown(),
            "duration_s": launch.job.duration_s,
            "started_at": observation.utc(launch.job.started_at),
            "raw": launch.job.raw,
            "tool_version": read.get("tool_version"),
            "simulated": self.group.simulated,
            "context": {
                **context,
                "nccl_version": read.get("nccl_version"),
                "launcher": self.launcher.version,
                "warnings": [*self.warnings, *(read.get("warnings") or [])],
                "hosts": _ranks_by_host(read),
            },
        }
        if launch.outcome == "measured":
            common.update(metrics=nccl.metrics(read), series=nccl.series(read))
        if absent:
            present = len(self.group.members) - len(absent)
            measured_text = f"; the other {present} were measured" if launch.outcome == "measured" else ""
            sentence = f"{len(absent)} of {len(self.group.members)} nodes did not take part{measured_text}: {self._without(absent)}"
            return observation.failed(check["check"], "member", sentence[:2000], **common)
        if launch.outcome == "measured":
            return observation.measured(check["check"], **common)
        outcome = "timeout" if launch.outcome == "timeout" else "error"
        return observation.failed(check["check"], launch.code or "tool_failed", str(launch.reason)[:2000], outcome, **common)

    def _without(self, absent: dict[str, tuple[str, str]]) -> str:
        """Return a text that names the absent members with their reasons, and what to do if the group mixes accelerators."""
        listed = "; ".join(f"{name}: {reason}" for name, (_code, reason) in absent.items())
        strangers = any(code == "other_accelerator" for code, _reason in absent.values())
        do = f"nodes with other accelerators want {self.stage}_group: '' or a group of their own"
        return f"{do}; {listed}" if strangers else listed

    def _failed(self, check: dict[str, str], code: str, reason: str, outcome: str = "error") -> Observation:
        fields = {"variant": check["variant"], "subject": self.subject_of(), "simulated": self.group.simulated}
        return observation.failed(check["check"], code, reason[:2000], outcome, **fields)

    def subject_of(self) -> dict[str, t.Any] | None:
        return {"kind": "group", "id": self.params["group"], "members": [member.name for member in self.group.members]}

    # What is asked for -----------------------------------------------------------------------------------------------

    def _agree(self, members: list[group.GroupMember], keys: dict[str, str]) -> tuple[str, str] | None:
        """Return why the nodes cannot be one group, as (reason code, reason); None if they can."""
        confused = group.confused(members)
        if confused:
            return confused
        counts = {member.name: len(member.gpus) for member in members}
        requested = keys.get("gpus", "all")
        if requested == "all" and len(set(counts.values())) > 1:
            few = min(counts, key=lambda name: counts[name])
            many = max(counts, key=lambda name: counts[name])
            return "gpu_count", f"{few} has {counts[few]} GPUs and {many} {counts[many]}: set {self.stage}_gpus, or make two groups of them"
        short = [name for name, count in counts.items() if requested != "all" and count < int(requested)]
        if short:
            return "gpu_count", f"{requested} GPUs of each node were asked for, {short[0]} has {counts[short[0]]}"
        return rails.lacking(members, keys["rail"]) if "rail" in keys else None

    def _slots(self, members: list[group.GroupMember], keys: dict[str, str]) -> list[int]:
        requested = keys.get("gpus", "all")
        if "rail" in keys:
            return [rails.slot(members, keys["rail"])]
        return list(range(len(members[0].gpus) if requested == "all" else int(requested)))

    def _sizes(self, members: list[group.GroupMember], keys: dict[str, str]) -> tuple[str, str]:
        """Return the smallest and the largest message size, as requested."""
        smallest, _colon, largest = keys.get("sizes", "8M:auto").partition(":")
        if largest in ("", "auto"):
            largest = str(nccl.largest_that_fits([{"memory_total_mib": member.memory_mib} for member in members]))
        return smallest, largest

    def _env_of(self, keys: dict[str, str]) -> dict[str, str]:
        """Return the environment of the ranks of a check: the requested variables, and those of the rail or the network."""
        of_rail = rails.environment(keys["rail"]) if "rail" in keys else {}
        return {**self.env, **of_rail, **mnnvl.environment(keys)}

    def choose_gids(self, members: list[group.GroupMember], op: str, keys: dict[str, str]) -> tuple[str, str] | None:
        """Set NCCL_IB_GID_INDEX if this NCCL needs it. There is one number for all nodes, so it must be right on each. Return (reason code,
        reason) if no number is."""
        if self.chose_gid:  # for the ports of an earlier check, which may have been those of another rail
            del self.env["NCCL_IB_GID_INDEX"]
            self.chose_gid = False
            self.warnings = [warning for warning in self.warnings if not warning.startswith("NCCL_IB_GID_INDEX=")]
        ports = {member.name: group.left_by(self._env_of(keys).get("NCCL_IB_HCA", ""), member.ports) for member in members}
        tables = {f"{name} {p['device']}/{p['port']}": p["gids"] for name, of in ports.items() for p in of if p["link_layer"] == "Ethernet"}
        if not tables or self.env.get("NCCL_IB_DISABLE") == "1":
            return None
        chosen = self.env.get("NCCL_IB_GID_INDEX", "")
        if chosen.lstrip("-").isdigit() and int(chosen) >= 0:
            bad = [where for where, gids in tables.items() if int(chosen) not in {index for index, _type, _address in gids}]
            return ("no_gid", f"NCCL_IB_GID_INDEX={chosen} holds no GID on {', '.join(bad[:4])}") if bad else None
        if chosen:
            return None
        version = self._version(members, op)
        if version is None or version >= GID_BY_ITSELF:
            return None
        good = {where: group.routable(gids) for where, gids in tables.items()}
        common = sorted(set.intersection(*(set(of) for of in good.values())))
        if not common:
            listed = "; ".join(f"{where}: {of or 'none'}" for where, of in list(good.items())[:4])
            return "no_gid", f"NCCL {'.'.join(map(str, version))} needs one GID index for all nodes and they have none in common: {listed}"
        self.env["NCCL_IB_GID_INDEX"], self.chose_gid = str(common[0]), True
        self.warnings.append(f"NCCL_IB_GID_INDEX={common[0]} was set: NCCL before 2.21.5 does not find it")
        return None

    def _version(self, members: list[group.GroupMember], op: str) -> tuple[int, ...] | None:
        """NCCL's version, as a test of a few bytes on two nodes prints it."""
        if self.nccl_version is None:
            self.env.setdefault("NCCL_DEBUG", "VERSION")
            job = self.job_of(op, {}, members[:2], [0], ("1K", "1K"), min(60.0, self.params["test_timeout"]))
            self.nccl_version = self._launch([job])[0].read.get("nccl_version") or ""
        words = self.nccl_version.split(".")
        return tuple(int(word) for word in words) if all(word.isdigit() for word in words) else None

    def context_of(self, op: str, keys: dict[str, str], members: list[group.GroupMember], slots: list[int]) -> dict[str, t.Any]:
        given = self._env_of(keys)
        settings = {**self._shared(members), **given}
        models = sorted({member.gpu or "unknown" for member in members})
        nics = group.nics_of(members, given.get("NCCL_IB_HCA", ""), settings.get("NCCL_IB_HCA", ""))
        if given.get("NCCL_IB_DISABLE") == "1":
            nics = {**dict.fromkeys(nics), "nics": 0, "nics_used": 0, "nics_beside": 0, "nics_down": 0, "bonded": False}
        elif settings.get("NCCL_IB_DISABLE") == "1":
            nics["nics_used"] = 0
        across = nccl.mnnvl(models) and not mnnvl.is_off(keys, given)
        domains = {member.nvlink_domain for member in members}
        if settings.get("NCCL_IB_HCA", "").lstrip("^=") == "lo":
            self.warnings = [*{*self.warnings, "NCCL_IB_HCA names lo, which is no RDMA device: it chooses nothing"}]
        return {
            "op": op,
            "type": keys.get("type", "float"),
            "gpu": models[0] if len(models) == 1 else "mixed: " + ", ".join(models),
            "gpus": len(slots),
            "nodes": len(members),
            "world_size": len(members) * len(slots),
            "identities": {member.name: member.identity for member in members if member.identity},
            **({"rail": keys["rail"], "slot": slots[0]} if "rail" in keys else {}),
            **nics,
            "mnnvl": across,
            "nvlink_domains": len(domains) if across and "" not in domains else None,
            # Where NVLink leaves the node the switches reduce over the whole group, of however few GPUs a node has.
            **nccl.selection(models, len(slots) * (len(members) if across else 1), given, settings),
            "findings": settings_that_differ(members),
            "nccl_env": {name: value for name, value in sorted(settings.items()) if name.startswith("NCCL_")},
            "nccl_machine": self._shared(members),
            "series_units": {"size": "B", "time_us": "us", "algbw": "GB/s", "busbw": "GB/s"},
        }

    def _shared(self, members: list[group.GroupMember]) -> dict[str, str]:
        """NCCL's settings that the nodes have by themselves, all of them: what one alone has selects no other expectation."""
        settings = [member.nccl for member in members if member.nccl is not None] or [nccl_settings.of_machine(self.node, self.env)]
        return {name: value for name, value in settings[0].items() if all(node_settings.get(name) == value for node_settings in settings)}

    # A hang ----------------------------------------------------------------------------------------------------------

    def evidence_of(self, job: launching.Job) -> hangs.Evidence:
        """Let all ranks of a launch be looked at if it hangs, before anything is ended."""
        tool = [self.own_kind.tool, *self.own_kind.glance] if self.own_kind.glance else []
        evidence = self.evidence[job] = hangs.Evidence(self.group, tool=tool)
        job.on_hang = evidence.gather
        return evidence

    def _hung(self, launch: LaunchResult) -> LaunchResult:
        """Return the result of a launch that hung, with who held the others up, if what was seen of the ranks shows it."""
        evidence = self.evidence.get(launch.job)
        if evidence is None or not evidence.gathered:
            return launch
        ruling = evidence.ruling(launch.job, done=_finished(launch.job), world=self.processes(launch.job))
        if not ruling.named:
            return launch._replace(reason=f"{launch.reason}; {evidence.worth(ruling.text[None])}")
        names = [f"rank {rank} on {evidence.place(rank)[0] or ruling.node} {ruling.text[rank]}" for rank in ruling.ranks[:8]]
        words = "; ".join(names) or f"{ruling.node} {ruling.text[None]}"
        return launch._replace(code="rank_hung", reason=f"{words}; {launch.reason}")

    def processes(self, job: launching.Job) -> int:
        """Return how many processes the ranks of a launch are."""
        return job.ranks if self.params.get("layout", "gpu") == "gpu" else len(job.members)

    def hang_findings(self, check: dict[str, str], launch: LaunchResult, slots: list[int]) -> t.Iterator[Observation]:
        """Yield a finding for each rank that held the others up, or for its node."""
        evidence = self.evidence.get(launch.job)
        if launch.code != "rank_hung" or evidence is None or not evidence.gathered:
            return
        ruling = evidence.ruling(launch.job, done=_finished(launch.job), world=self.processes(launch.job))
        members = {member.name: member for member in launch.job.members}
        subjects: dict[tuple[str, str], tuple[str, str]] = {}
        for rank in ruling.ranks:
            node, local = evidence.place(rank)
            member = members.get(node or ruling.node)
            if member is None:
                continue
            by_gpu = self.processes(launch.job) == launch.job.ranks and local is not None and local < len(slots)
            gpu = f"{member.name}/gpu/{member.gpus[slots[t.cast(int, local)]]}" if by_gpu else member.name
            subjects.setdefault(("gpu" if by_gpu else "node", gpu), (member.name, f"rank {rank} {ruling.text[rank]}"))
        if ruling.node and not ruling.ranks:
            subjects["node", ruling.node] = (ruling.node, ruling.text[None])
        for subject, (name, words) in subjects.items():
            yield self.observed_hang(check, subject, name, words, launch.job)

    def observed_hang(self, check: dict[str, str], subject: tuple[str, str], node: str, words: str, job: launching.Job) -> Observation:
        """Return a finding about a subject, (kind, id), that held the ranks of a launch up: it says who, and not why."""
        kind, name = subject
        fields: dict[str, t.Any] = {
            "variant": observation.variant(op=check["check"], **observation.fields(check["variant"])),
            "subject": {"kind": kind, "id": name, "members": [node]},
            "simulated": self.group.simulated,
            "started_at": observation.utc(job.started_at),
            "duration_s": job.duration_s,
            "raw": job.evidence,
            "context": {"confidence": "unresolved"},
        }
        return observation.failed("localise", "rank_hung", f"{kind} {name}: {words}"[:2000], **fields)

    # Launching -------------------------------------------------------------------------------------------------------

    def _head_first(self, members: list[group.GroupMember]) -> list[group.GroupMember]:
        """The head comes first, as mpirun would have it: a ring has no first node, and the others keep their order."""
        local = next((i for i, member in enumerate(members) if member.local), 0)
        return [*members[local:], *members[:local]]

    def _seeing(self, members: list[group.GroupMember], slots: t.Sequence[int], keys: dict[str, str]) -> dict[str, str]:
        """Return the environment in which ranks see these slots of their nodes. For all slots the variable of visible devices stays as it
        is."""
        env = self._env_of(keys)
        if list(slots) != list(range(len(members[0].gpus))):
            visible = [word for word in env.get(self.visible, "").split(",") if word]
            env[self.visible] = ",".join(visible[slot] if visible else str(slot) for slot in slots)
        return env

    def job_of(
        self,
        op: str,
        keys: dict[str, str],
        members: list[group.GroupMember],
        slots: t.Sequence[int],
        sizes: tuple[str, str],
        timeout: float,
    ) -> launching.Job:
        """A launch over `slots` of each of `members`, still to be run."""
        members = self._head_first(members)
        params = self.params
        by_rank = params["layout"] == "gpu"
        name = op + "_perf" + params["binary_suffix"]
        argv = [os.path.join(params["binary_dir"], name) if params["binary_dir"] else name]
        argv += ["-b", sizes[0], "-e", sizes[1], "-f", str(params["factor"]), "-g", str(1 if by_rank else len(slots))]
        for flag, value in (("-n", params["iterations"]), ("-w", params["warmup"])):
            argv += [flag, str(value)] if value else []
        argv += ["-d", keys["type"]] if keys.get("type", "float") != "float" else []
        argv += params["extra_args"]
        env = self._seeing(members, slots, keys)
        if any(member.nvlink_domain for member in members):
            env.setdefault("NCCL_DEBUG", "WARN")  # without it NCCL does not say that it cannot use the NVLink domain
        if self.node.contained:
            argv = self.node.container_argv(argv, env, "")
        job = self.group.job(self.launcher, members, len(slots) if by_rank else 1, argv, env, timeout, ranks=len(members) * len(slots))
        job.order = {"sizes": [nccl.size(word) for word in sizes], **({"rail": keys["rail"]} if "rail" in keys else {})}
        return job

    def _launch(self, jobs: list[launching.Job]) -> list[LaunchResult]:
        """Run them, all at the same time, and read what they printed."""
        launching.run(jobs, self.node, self.params["parallel"])
        return [self.read_job(job) for job in jobs]

    def _away(self, lost: t.Sequence[str]) -> str:
        """Return lost nodes in words, after the NVLink domains that were lost as a whole."""
        domains = mnnvl.lost_domains(lost, self.group.members)
        whole = "".join(f"all other nodes of NVLink domain {domain}, whose switch trays come first: " for domain in domains)
        return whole + ", ".join(lost)

    def parse_output(self, job: launching.Job) -> dict[str, t.Any]:
        largest = job.order["sizes"][-1] if job.order else None
        return nccl_tests.parse(job.out, rc=0 if job.timed_out else job.rc or 0, expect_ranks=job.ranks, expect_max_bytes=largest)

    def read_job(self, job: launching.Job) -> LaunchResult:
        if job.missing:
            return LaunchResult("error", "tool_missing", f"{job.argv[0]}: {job.missing}", {}, job)
        lost = self.group.gone([member for member in job.members if not member.local])
        read = self.parse_output(job)
        if job.timed_out and read["reason_code"] != "wrong_results":
            if read["outcome"] == "measured":  # the test was done, no node hung: nobody is to blame for what follows
                program = self.launcher.program
                reason = f"the table is whole, but {program} did not end within {job.timeout:.0f} s: the MPI library hangs at its end"
                return LaunchResult("error", "launch_failed", reason, read, job)
            if lost:
                reason = f"{self._away(lost)} went away while the test ran, which then never ended"
                return LaunchResult("error", "lost_node", reason, read, job)
            reason = f"the group did not end within {job.timeout:.0f} s and was ended"
            return self._hung(LaunchResult("timeout", "timeout", reason, read, job))
        if read["outcome"] == "measured":
            problem = _covered(read, job)
            if problem:
                return LaunchResult("error", "rank_mismatch", problem, read, job)
            problem = off_rail(job)
            if problem:
                return LaunchResult("error", "other_way", problem, read, job)
            return LaunchResult("measured", None, None, read, job)
        code, reason = read["reason_code"], read["reason"]
        complaint = self.launcher.complaint(f"{job.out}\n{job.err}", self.group.names())
        if complaint and code not in ("wrong_results", "not_mpi", "rank_mismatch", "min_bw", "unchecked"):
            code, reason = complaint
        elif lost:
            code, reason = "lost_node", f"{self._away(lost)} went away while the test ran: {reason}"
        elif job.dropped and code in ("bad_output", "incomplete_output"):
            code, reason = "incomplete_output", job.too_much
        elif self.begins not in job.out:
            last = " ".join(job.err.split())[-400:]
            code, reason = "launch_failed", f"{self.launcher.program} ended with status {job.rc} and no table: {last}"
        return LaunchResult("error", code, reason, read, job)


def settings_that_differ(members: list[group.GroupMember]) -> list[dict[str, str]]:
    """Findings: NCCL's settings that some nodes of a group have by themselves and others have not, or not so."""
    by_node = {member.name: member.nccl for member in members if member.nccl is not None}
    findings = []
    for name in sorted({name for settings in by_node.values() for name in settings}):
        values: dict[str, list[str]] = {}
        for node, settings in by_node.items():
            values.setdefault(settings.get(name, "not set"), []).append(node)
        if len(values) > 1:
            by_count = sorted(values.items(), key=lambda item: (len(item[1]), item[0]))
            listed = ", ".join(f"{value} on {', '.join(nodes[:4])}{' ...' if len(nodes) > 4 else ''}" for value, nodes in by_count[:4])
            findings.append({"code": "settings_differ", "text": f"{name} of the nodes themselves is {listed}"})
    return findings


def _finished(job: launching.Job) -> set[int]:
    """Return the ranks that ended with status 0, by what their shells reported: they have no process, and are not dead."""
    return {int(end.rank) for end in launching.ends(job.err)[0] if end.status == 0 and end.rank.isdigit()}


def off_rail(job: launching.Job) -> str:
    """Return why a launch that was to use one rail may have used another path; empty if it used the rail."""
    rail = job.order.get("rail")
    doubt = rails.doubt(f"{job.out}\n{job.err}", rail, [member.hostname for member in job.members]) if rail else ""
    return f"{doubt}: what was measured may not be rail {rail}" if doubt else ""


def _ranks_by_host(read: dict[str, t.Any]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for rank in read.get("ranks") or ():
        counts[rank["host"]] = counts.get(rank["host"], 0) + 1
    return counts


def _covered(read: dict[str, t.Any], job: launching.Job) -> str | None:
    """Return what is wrong with the places of the ranks in the output; None if every requested node has its ranks and no other node has
    any."""
    counts = _ranks_by_host(read)
    each = job.ranks // len(job.members)
    names = {member.hostname: member.name for member in job.members}
    if counts == dict.fromkeys(names, each):
        return None
    if len(counts) == 1 and len(names) > 1:
        only = next(iter(counts))
        return f"all {job.ranks} ranks ran on {names.get(only, only)}: the launcher did not use the other {len(names) - 1} nodes"
    listed = ", ".join(f"{names.get(host, host)}: {count}" for host, count in sorted(counts.items()))
    missing = ", ".join(name for host, name in names.items() if host not in counts)
    lacks = f"; none on {missing}" if missing else ""
    return f"each of {len(names)} nodes should have {each} ranks, the output has {listed}{lacks}"


class Floors:
    """The floors for tests over parts of a group, from the expectations for the hardware of the whole fleet.

    `entries` are expectations of busbw in GB/s of the stage as {"match", "value", "rank"}.
    """

    def __init__(self, entries: list[dict[str, t.Any]], op: str, context: dict[str, t.Any]) -> None:
        self.rules = [matching.Rule(entry["match"], "busbw", entry["value"], entry["rank"]) for entry in entries]
        self.op = op
        # Nobody is convicted for NICs that are not in use on any node.
        self.context = {**context, "nics": context["nics_used"]} if context.get("nics_used") else context

    def expected(self, nodes: int) -> dict[t.Any, float]:
        """Return the floor by message size (bytes, `plateau`, or None: the peak) for a group of `nodes` nodes."""
        context = {**self.context, "nodes": nodes, "check": self.op}
        # Nobody is convicted by a floor that this hardware may not be able to reach.
        return {size: rule.value for (_metric, size), rule in matching.choose(self.rules, context, certain=True).items()}

    def missed(self, launch: LaunchResult) -> int | None:
        """Return the message size at which the whole group is furthest below its floor; None if it is not below."""
        if launch.outcome != "measured":
            return None
        worst: tuple[float, int] | None = None
        for size, value in self.expected(self.context["nodes"]).items():
            at = self._row(size, launch.read)
            busbw = launch.busbw(at) if at else None
            if busbw is not None and busbw < matching.WARN_FROM * value and (worst is None or busbw / value < worst[0]):
                worst = (busbw / value, t.cast(int, at))
        return worst[1] if worst else None

    def _row(self, size: t.Any, read: dict[str, t.Any]) -> int | None:
        if size is None:
            return int(read["peak_busbw"]["size"])
        return matching.row_of(size, [row["size"] for row in read["rows"]])

    def size(self, largest: int) -> int:
        """At which size to measure parts of a group that gave no number: the largest one that has an expectation, else the largest."""
        sizes = [size for size in self.expected(self.context["nodes"]) if isinstance(size, int) and size <= largest]
        return max(sizes, default=largest)

    def floor(self, size: int, nodes: int, slots: int) -> float:
        """Return the floor in GB/s for `slots` GPUs of each of `nodes` nodes: one of n GPUs has at least 1/n of the bandwidth of its node.
        0 if no floor is known; then only hangs and failures are found. No floor is known for a part of a group over several NVLink domains,
        which may lie in one or in several of them."""
        full_group = (self.context["nodes"], self.context["gpus"])
        if self.context.get("mnnvl") and self.context.get("nvlink_domains") != 1 and (nodes, slots) != full_group:
            return 0.0
        for count in (nodes, self.context["nodes"]):
            expected = self.expected(count)
            for key in matching.slots_of(size):
                if key in expected:
                    return matching.WARN_FROM * expected[key] * slots / int(self.context["gpus"])
        return 0.0


class Search:
    """The localisation of one failed check."""

    def __init__(
        self,
        head: GroupHead,
        check: dict[str, str],
        members: list[group.GroupMember],
        slots: list[int],
        size: int,
        floors: Floors,
        failed: LaunchResult,
    ) -> None:
        self.head = head
        self.check = check
        self.keys = observation.fields(check["variant"])
        self.members = {member.name: member for member in members}
        self.slots = slots
        self.size = size
        self.floors = floors
        params = head.params
        # The duration of a test that ended limits that of its parts, which measure one size and not a sweep.
        ended = failed.outcome == "measured" or failed.code == "wrong_results"
        took = failed.job.duration_s if ended else params["test_timeout"]
        self.timeout = min(params["test_timeout"], max(30.0, 3 * took))
        topology = {name: params["topology"][name] for name in self.members if name in params["topology"]}
        if floors.context.get("mnnvl"):
            topology = mnnvl.topology(members)  # no leaf switch takes part
        mesh = check["check"] in ("alltoall", "alltoallv", "hypercube")
        self.localiser = localise.Localiser(
            [*self.members],
            gpus={name: [member.gpus[slot] for slot in slots] for name, member in self.members.items()},
            topology=topology,
            paths="mesh" if mesh else "ring",
            repeats=params["repeats"],
        )

    def findings(self) -> t.Iterator[Observation]:
        began, started = time.monotonic(), observation.utc()
        while self.head.node.remaining() > self.timeout:
            tests = self.localiser.next_round()
            if not tests:
                break
            self.localiser.record(self._round(tests))
        common: dict[str, t.Any] = {"started_at": started, "duration_s": time.monotonic() - began}
        for number, finding in enumerate(self.localiser.findings(), 1):
            yield self._observed_finding(number, finding, common)

    def _round(self, tests: list[localise.GroupTest]) -> dict[int, localise.GroupTestResult]:
        """All tests of a round at the same time; each again and again, until it is settled."""
        values: dict[int, list[float]] = {test.id: [] for test in tests}
        results: dict[int, localise.GroupTestResult] = {}
        while len(results) < len(tests):
            open_tests = [test for test in tests if test.id not in results]
            jobs = [self.job_of(test) for test in open_tests]
            for test, launch in zip(open_tests, self.head._launch(jobs)):
                result = self._result(test, launch, values[test.id])
                if result:
                    results[test.id] = result
        return results

    def job_of(self, test: localise.GroupTest) -> launching.Job:
        members = [self.members[name] for name in test.nodes]
        slots = self.slots if test.gpus is None else [self.slots[slot] for slot in test.gpus]
        return self.head.job_of(self.check["check"], self.keys, members, slots, (str(self.size), str(self.size)), self.timeout)

    def _floor(self, test: localise.GroupTest) -> float:
        return self.floors.floor(self.size, len(test.nodes), len(self.slots if test.gpus is None else test.gpus))

    def _result(self, test: localise.GroupTest, launch: LaunchResult, values: list[float]) -> localise.GroupTestResult | None:
        """Return the result that settles the test; None if it needs more repetitions."""
        floor = self._floor(test)
        value = launch.busbw(self.size) if launch.outcome == "measured" else None
        if launch.outcome == "timeout" and launch.job.timeout >= launch.job.requested_timeout:
            return localise.GroupTestResult("hang", tuple(values), floor, reason=str(launch.reason))
        if launch.code == "wrong_results":
            return localise.GroupTestResult("fail", (*values, 0.0), floor, reason=str(launch.reason))
        if value is None:
            return localise.GroupTestResult("unknown", tuple(values), floor, reason=str(launch.reason or "its row is missing"))
        values.append(value)
        return localise.GroupTestResult.so_far(values, floor, test.repeats)

    def _observed_finding(self, number: int, finding: localise.SearchFinding, common: dict[str, t.Any]) -> Observation:
        op = self.check["check"]
        kind, members = finding.kind, list(finding.members)
        name = f"{self.head.params['group']}/part-{number}" if kind == "group" else finding.id
        record = finding.as_dict()
        fields: dict[str, t.Any] = {
            **common,
            "variant": observation.variant(op=op, **self.keys),
            "subject": {"kind": kind, "id": name, "members": members},
            "simulated": self.head.group.simulated,
            "context": {
                "size": self.size,
                "rounds": self.localiser.rounds,
                "tests": self.localiser.tests,
                "confidence": finding.confidence,
                "tested": record["evidence"],
                "indistinguishable": record["indistinguishable"],
                "not_looked_at": record["not_looked_at"],
            },
        }
        alike = ", ".join(f"{alternative['kind']} {alternative['id']}" for alternative in finding.indistinguishable)
        on_rail = f"over rail {self.keys['rail']}: " if "rail" in self.keys else ""
        reason = f"{kind} {name}: {on_rail}{finding.reason}" + (f"; the tests cannot tell it from: {alike}" if alike else "")
        if finding.not_looked_at:
            reason += f"; not looked at behind it: {', '.join(finding.not_looked_at[:4])}"
            reason += f" and {len(finding.not_looked_at) - 4} more" if len(finding.not_looked_at) > 4 else ""
        if finding.confidence != "convicted":
            return observation.failed("localise", "unresolved", reason[:2000], **fields)
        fields["context"]["findings"] = [{"code": "localised", "text": reason[:2000]}]
        return observation.measured("localise", **fields)
