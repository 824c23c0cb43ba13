# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HCCL between nodes, by CANN's hccl_test under mpirun, as groups/collective.py does it for NCCL.

hccl_test prints neither the number of ranks nor their nodes, and ends with status 0 after many failures. So each rank reports its own end
(launching.watched). A table counts only if all requested ranks ended well on the requested nodes, and if it is the only one: with an mpirun
of another MPI library than the program's each rank runs alone and prints its own table.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import signal
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import ascend, nccl
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation, Params
from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import collective, group, launching, membership
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import hccl_test
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system.node import Node

WHAT, KINDS = "HCCL numbers", (ascend.Ascend.kind,)
# The programs of hccl_test, each with _test behind its name, and those that compute and so are told with what.
OPS = (
    "all_gather", "all_gatherv", "all_reduce", "alltoall", "alltoallv", "alltoallvc", "broadcast", "reduce", "reduce_scatter",
    "reduce_scatterv", "scatter",
)  # fmt: skip
# How it is called, over one node or many: options of both modules.
OPTIONS: dict[str, dict[str, t.Any]] = {
    "ops": {"type": "list", "elements": "str", "choices": list(OPS), "default": ["all_reduce"]},
    "gpus": {"type": "str", "default": "all"},
    "sizes": {"type": "str", "default": "8K:64M"},
    "type": {"type": "str", "default": "fp32"},
    "reduction": {"type": "str", "choices": ["sum", "prod", "max", "min"], "default": "sum"},
    "factor": {"type": "int", "default": 2},
    "iterations": {"type": "int", "default": 20},
    "warmup": {"type": "int", "default": 5},
    "binary_dir": {"type": "str", "default": ""},
    "extra_args": {"type": "list", "elements": "str", "default": []},
    "test_timeout": {"type": "float", "default": 600.0},
}
REDUCING = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatterv")
# The status of what was told to end.
ENDED = 128 + signal.SIGTERM
# Codes of a launch of which only mpirun knows why it ended.
UNEXPLAINED = ("tool_failed", "launch_failed", "incomplete_output", "bad_output")


def probe(params: Params, node: Node) -> t.Iterator[Observation]:
    """On the head one observation per check of the group, and one per finding of the search; on every node its own as a member."""

    def measure(local_facts: dict[str, t.Any] | None, checks: list[dict[str, str]]) -> t.Iterator[Observation]:
        return HcclHead(params, node, local_facts).measure(checks)

    yield from membership.take_part(params, node, measure, WHAT, KINDS)


class HcclHead(collective.GroupHead):
    """Measures a group of nodes with NPUs from one of them."""

    stage = "hccl"
    begins = "data_size"
    usual = ascend.Ascend

    def make_launcher(self) -> launching.Launcher:
        return launching.Mpi(self.params["mpirun"], self.params["mpi_args"], f"{self.stage}_mpirun")

    def choose_gids(self, members: list[group.GroupMember], op: str, keys: dict[str, str]) -> tuple[str, str] | None:
        """The network ports of NPUs are HCCL's own affair."""
        return None

    def context_of(self, op: str, keys: dict[str, str], members: list[group.GroupMember], slots: list[int]) -> dict[str, t.Any]:
        settings = {**self._shared(members), **self.env}
        models = sorted({member.gpu or "unknown" for member in members})
        model = models[0] if len(models) == 1 else "mixed: " + ", ".join(models)
        return {
            "op": op,
            "type": keys.get("type", "fp32"),
            "gpu": model,
            "gpus": len(slots),
            "nodes": len(members),
            "world_size": len(members) * len(slots),
            "identities": {member.name: member.identity for member in members if member.identity},
            "findings": collective.settings_that_differ(members),
            "hccl_env": {name: value for name, value in sorted(settings.items()) if name.startswith("HCCL_")},
            "series_units": {"size": "B", "time_us": "us", "algbw": "GB/s", "busbw": "GB/s"},
        }

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
        name = f"{op}_test"
        argv = [os.path.join(params["binary_dir"], name) if params["binary_dir"] else name]
        argv += ["-p", str(len(slots)), "-b", sizes[0], "-e", sizes[1], "-f", str(params["factor"]), "-d", keys.get("type", "fp32")]
        argv += ["-o", params["reduction"]] if op in REDUCING else []
        for flag, value in (("-n", params["iterations"]), ("-w", params["warmup"])):
            argv += [flag, str(value)] if value else []
        argv += params["extra_args"]
        env = self._seeing(members, slots, keys)
        if self.node.contained:
            argv = self.node.container_argv(argv, env, "")
        argv = launching.watched(argv)
        job = self.group.job(self.launcher, members, len(slots), argv, env, timeout, ranks=len(members) * len(slots))
        job.order = {"sizes": [nccl.size(word) for word in sizes], "type": keys.get("type", "fp32")}
        return job

    # What it gave ----------------------------------------------------------------------------------------------------

    def parse_output(self, job: launching.Job) -> dict[str, t.Any]:
        """Return the dict of hccl_test.parse, with bandwidths in GB/s and the ranks that ended with status 0."""
        read = self._table(job, job.out, 0 if job.timed_out else job.rc or 0)
        scale = hccl_test.UNITS.get(read["bandwidth_unit"] or "", 1e3) / 1e3
        for half in (row["out_of_place"] for row in read["rows"]):
            half.update({name: half[name] * scale for name in ("algbw", "busbw") if half[name] is not None})
        if read["peak_busbw"]:
            read["peak_busbw"] = {**read["peak_busbw"], "value": read["peak_busbw"]["value"] * scale, "unit": "GB/s"}
        ends, _rest = launching.ends(job.err)
        read["ranks"] = [{"rank": end.rank, "host": end.host} for end in ends if end.status == 0]
        return read

    def _table(self, job: launching.Job, text: str, rc: int) -> dict[str, t.Any]:
        names = (os.path.basename(word) for word in job.argv)
        op = next((name[: -len("_test")] for name in names if name.endswith("_test") and name[: -len("_test")] in OPS), None)
        asked = {"iterations": self.params["iterations"] or None, "warmup": self.params["warmup"] or None}
        if self.params["extra_args"]:  # they may say something else
            asked = {}
        return hccl_test.parse(
            text, rc=rc, op=op, ranks=job.ranks, factor=self.params["factor"], asked_sizes=job.order.get("sizes"),
            dtype=job.order.get("type"), seconds=job.duration_s or None, **asked,
        )  # fmt: skip

    def read_job(self, job: launching.Job) -> collective.LaunchResult:
        launch = super().read_job(job)
        ends, _rest = launching.ends(job.err)
        if launch.outcome == "measured" or launch.code in ("wrong_results", "not_mpi"):
            return launch
        # At the deadline we end them all, and a rank may know that before its shell does.
        ends = [end for end in ends if not (job.timed_out and end.status == ENDED)]
        if not ends or self.group.gone([member for member in job.members if not member.local]):
            return launch
        names = {member.hostname: member.name for member in job.members}
        table = self._table(job, "\n".join(_without_mpirun(job.out)), 0)
        failed = [end for end in ends if end.status]
        if failed:
            code, reason = self._failed_rank(_first(ends, failed, table), ends, names, job)
            return launch._replace(outcome="error", code=code, reason=reason)
        if launch.code in UNEXPLAINED and table["reason_code"] == "tool_failed":
            return launch._replace(code="tool_failed", reason=table["reason"])
        if len(ends) == job.ranks:
            return launch
        if launch.outcome == "timeout":
            early = [f"{end.rank} on {names.get(end.host, end.host)}" for end in ends]
            suffix = " ..." if len(early) > 4 else ""
            reason = f"{launch.reason}; ranks that had ended before the others, which wait for them: {', '.join(early[:4])}{suffix}"
            return launch._replace(outcome="error", code="rank_died", reason=reason)
        # mpirun may or may not see that a rank of status 0 was not done, and then ends the others itself.
        if job.rc and launch.code in UNEXPLAINED and not table["complete"]:
            code, reason = self._failed_rank(ends[0], ends, names, job)
            return launch._replace(outcome="error", code=code, reason=reason)
        return launch

    def _failed_rank(
        self, end: launching.End, ends: list[launching.End], names: dict[str, str], job: launching.Job
    ) -> tuple[str, str]:
        where = names.get(end.host, end.host)
        words = self._own_words(job)
        if end.status == 127 and ("not found" in words or "No such file" in words):
            return "tool_missing", f"{where} does not have the program: {words}; install hccl_test there, or set {self.stage}_binary_dir"
        if end.status == 126:
            return "tool_not_executable", f"{where} cannot execute the program: {words}"
        other_ends = [_how(other_end, names) for other_end in ends if other_end is not end]
        besides = f"; besides {', '.join(other_ends[:4])}{' ...' if len(other_ends) > 4 else ''}" if other_ends else ""
        return "rank_died", f"{_how(end, names)} before the test was done{besides}; the tool's last words: {words or 'none'}"

    def _own_words(self, job: launching.Job) -> str:
        """Return the last output of the ranks and their shells, without mpirun's lines about ranks that we killed."""
        _ends, printed = launching.ends(f"{job.err}\n")
        return " ".join(" ".join(_without_mpirun(f"{printed}\n{job.out}")).split())[-300:]


def _first(ends: list[launching.End], failed: list[launching.End], table: dict[str, t.Any]) -> launching.End:
    """Return the rank that ended first and made the others fail, which crash when they lose a connection. Lines of several nodes come in
    any order. In a finished test no rank left the others by ending with status 0."""
    absent = [end for end in failed if end.status in (126, 127)]
    ended_well = [] if table["complete"] or table["reason_code"] == "tool_failed" else [end for end in ends if not end.status]
    return (absent or ended_well or (failed if table["complete"] else ends))[0]


def _without_mpirun(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and not launching.OF_MPIRUN.search(line)]


def _how(end: launching.End, names: dict[str, str]) -> str:
    how = f"was killed (status {end.status})" if end.status > 128 else f"ended with status {end.status}"
    return f"rank {end.rank} on {names.get(end.host, end.host)} {how}"
