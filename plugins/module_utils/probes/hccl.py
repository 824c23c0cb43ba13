# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HCCL between nodes, by CANN's hccl_test under mpirun, as probes/fabric.py does it for NCCL.

hccl_test says neither how many ranks took part nor where they were, and ends with status 0 after many a failure. So each rank says by
itself how it ended (launching.watched), and a table counts only where all that were asked for ended well, on the nodes that were asked for,
and there is one table: ranks whose mpirun is of another MPI library than the program run alone, and each prints its own.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import signal
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils import group, launching, membership
from ansible_collections.gpufleet.acceptance.plugins.module_utils.accelerators import ascend
from ansible_collections.gpufleet.acceptance.plugins.module_utils.node import Node
from ansible_collections.gpufleet.acceptance.plugins.module_utils.parsers import hccl_test
from ansible_collections.gpufleet.acceptance.plugins.module_utils.probes import fabric

Observation = t.Dict[str, t.Any]
WHAT, KIND = "HCCL numbers", "ascend"
# The programs of hccl_test, each with _test behind its name, and those that compute and so are told with what.
OPS = (
    "all_gather", "all_gatherv", "all_reduce", "alltoall", "alltoallv", "alltoallvc", "broadcast", "reduce", "reduce_scatter",
    "reduce_scatterv", "scatter",
)  # fmt: skip
REDUCING = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatterv")
# The status of what was told to end.
ENDED = 128 + signal.SIGTERM
# Which of a node's NPUs a process sees, in CANN of any version.
VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"


def probe(params: dict[str, t.Any], node: Node) -> t.Iterator[Observation]:
    """On the head one observation per check of the group, and one per finding of the search; on every node its own as a member."""
    yield from membership.take_part(params, node, lambda here, checks: Head(params, node, here).measure(checks), WHAT, KIND)


class Head(fabric.Head):
    """Measures a group of nodes with NPUs from one of them."""

    stage = "hccl"
    begins = "data_size"

    def __init__(self, params: dict[str, t.Any], node: Node, here: dict[str, t.Any] | None) -> None:
        super().__init__(params, node, here)
        self.env = {**ascend.environment(node), **self.env}

    def _launcher(self) -> launching.Launcher:
        return launching.Mpi(self.params["mpirun"], self.params["mpi_args"], f"{self.stage}_mpirun")

    def _choose_gids(self, seats: list[group.Seat], op: str) -> tuple[str, str] | None:
        """The network ports of NPUs are HCCL's own affair."""
        return None

    def _context(self, op: str, keys: dict[str, str], seats: list[group.Seat], slots: list[int]) -> dict[str, t.Any]:
        settings = {**self._shared(seats), **self.env}
        models = sorted({seat.gpu or "unknown" for seat in seats})
        model = models[0] if len(models) == 1 else "mixed: " + ", ".join(models)
        return {
            "op": op,
            "type": keys.get("type", "fp32"),
            "gpu": model,
            "gpus": len(slots),
            "nodes": len(seats),
            "world_size": len(seats) * len(slots),
            "identities": {seat.name: seat.identity for seat in seats if seat.identity},
            "findings": fabric.settings_that_differ(seats),
            "hccl_env": {name: value for name, value in sorted(settings.items()) if name.startswith("HCCL_")},
            "series_units": {"size": "B", "time_us": "us", "algbw": "GB/s", "busbw": "GB/s"},
        }

    def _job(
        self, op: str, keys: dict[str, str], seats: list[group.Seat], slots: t.Sequence[int], sizes: tuple[str, str], timeout: float
    ) -> launching.Job:
        """A launch over `slots` of each of `seats`, still to be run; the head comes first, the others keep their order."""
        local = next((i for i, seat in enumerate(seats) if seat.local), 0)
        seats = [*seats[local:], *seats[:local]]
        params = self.params
        name = f"{op}_test"
        argv = [os.path.join(params["binary_dir"], name) if params["binary_dir"] else name]
        argv += ["-p", str(len(slots)), "-b", sizes[0], "-e", sizes[1], "-f", str(params["factor"]), "-d", keys.get("type", "fp32")]
        argv += ["-o", params["reduction"]] if op in REDUCING else []
        for flag, value in (("-n", params["iterations"]), ("-w", params["warmup"])):
            argv += [flag, str(value)] if value else []
        argv += params["extra_args"]
        env = dict(self.env)
        if list(slots) != list(range(len(seats[0].gpus))):
            visible = [word for word in env.get(VISIBLE, "").split(",") if word]
            env[VISIBLE] = ",".join(visible[slot] if visible else str(slot) for slot in slots)
        if self.node.contained:
            argv = self.node.container_argv(argv, env, "")
        argv = launching.watched(argv)
        return self.group.job(self.launcher, seats, len(slots), argv, env, timeout, ranks=len(seats) * len(slots))

    # What it gave ----------------------------------------------------------------------------------------------------

    def _parse(self, job: launching.Job) -> dict[str, t.Any]:
        """As hccl_test.parse reads it, in GB/s, with the ranks that ended well."""
        names = (os.path.basename(word) for word in job.argv)
        op = next((name[: -len("_test")] for name in names if name.endswith("_test") and name[: -len("_test")] in OPS), None)
        read = hccl_test.parse(job.out, rc=0 if job.timed_out else job.rc or 0, op=op, ranks=job.ranks, factor=self.params["factor"])
        scale = hccl_test.UNITS.get(read["bandwidth_unit"] or "", 1e3) / 1e3
        for half in (row["out_of_place"] for row in read["rows"]):
            half.update({name: half[name] * scale for name in ("algbw", "busbw") if half[name] is not None})
        if read["peak_busbw"]:
            read["peak_busbw"] = {**read["peak_busbw"], "value": read["peak_busbw"]["value"] * scale, "unit": "GB/s"}
        found, _rest = launching.ends(job.err)
        read["ranks"] = [{"rank": end.rank, "host": end.host} for end in found if end.status == 0]
        return read

    def _read(self, job: launching.Job) -> fabric.Launch:
        launch = super()._read(job)
        ends, _rest = launching.ends(job.err)
        if launch.outcome == "measured" or launch.code in ("wrong_results", "not_mpi"):
            return launch
        names = {seat.hostname: seat.name for seat in job.seats}
        # At the deadline we end them all, and a rank may know that before its shell does.
        ends = [end for end in ends if not (job.timed_out and end.status == ENDED)]
        failed = [end for end in ends if end.status]
        if failed and not self.group.gone([seat for seat in job.seats if not seat.local]):
            code, reason = self._failed_rank(failed[0], names, job)
            return launch._replace(outcome="error", code=code, reason=reason)
        early = [f"{end.rank} on {names.get(end.host, end.host)}" for end in ends]
        if launch.outcome == "timeout" and early and len(early) < job.ranks:
            more = " ..." if len(early) > 4 else ""
            reason = f"{launch.reason}; ranks that had ended before the others, which wait for them: {', '.join(early[:4])}{more}"
            return launch._replace(outcome="error", code="rank_died", reason=reason)
        return launch

    def _failed_rank(self, end: launching.End, names: dict[str, str], job: launching.Job) -> tuple[str, str]:
        where = names.get(end.host, end.host)
        words = self._own_words(job)
        if end.status == 127 and ("not found" in words or "No such file" in words):
            return "tool_missing", f"{where} does not have the program: {words}; install hccl_test there, or set {self.stage}_binary_dir"
        if end.status == 126:
            return "tool_not_executable", f"{where} cannot execute the program: {words}"
        how = f"was killed (status {end.status})" if end.status > 128 else f"ended with status {end.status}"
        return "rank_died", f"rank {end.rank} on {where} {how} before the test was done; the tool's last words: {words or 'none'}"

    def _own_words(self, job: launching.Job) -> str:
        """What ranks and their shells printed, of which what mpirun says of our killing them is no part."""
        _ends, said = launching.ends(f"{job.err}\n")
        lines = [line for line in f"{said}\n{job.out}".splitlines() if line.strip() and not launching.OF_MPIRUN.search(line)]
        return " ".join(" ".join(lines).split())[-300:]
