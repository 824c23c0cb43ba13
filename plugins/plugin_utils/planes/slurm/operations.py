# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operations on the runs of a Slurm cluster, by its client commands. Only jobs of runs are seen, and of them those of this user.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import re
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import payload
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import jobs as of_a_launch
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import settings as of_variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.client import Client, SlurmError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.records import SlurmJob
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.upkeep import Operation, Upkeep
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData

# The name of a job: whose it is, the run and the stage.
_NAME = re.compile(rf"{of_variables.JOBS}(?P<run>\d{{8}}T\d{{6}}Z-[0-9a-f]{{6}})-(?P<stage>\w+)")
# Jobs that are looked into at once.
AT_ONCE = 8
_SHOWN = re.compile(r"(?P<node>[\w.-]+): (?P<line>\".*\")")


def _settings(upkeep: Upkeep) -> of_variables.Settings:
    names = (f"{of_variables.PREFIX}{field.name}" for field in dataclasses.fields(of_variables.Settings))
    return of_variables.of(upkeep.host, {name: upkeep.variable(name, None) for name in names})


def _jobs(upkeep: Upkeep) -> tuple[Client, list[SlurmJob]]:
    """Return the client commands of a cluster, and the jobs of one run or of all runs."""
    client = Client(upkeep.host, _settings(upkeep).ssh)
    try:
        return client, client.own_jobs(of_variables.jobs_of(upkeep.run_id))
    except SlurmError as error:
        raise RunError(error.reason) from error


def _none(upkeep: Upkeep) -> str:
    """Return the sentence for a cluster that has no jobs of one run or of all runs."""
    if not upkeep.run_id:
        return f"{upkeep.host}: no job of a run waits or runs"
    playbook = collection.playbook("resume")
    return f"{upkeep.host}: no job of run {upkeep.run_id} waits or runs; if it is detached, {playbook} collects its results"


def status(upkeep: Upkeep) -> PlainData:
    """Show the jobs of runs."""
    _client, jobs = _jobs(upkeep)
    if not jobs:
        upkeep.show(_none(upkeep))
    for job in jobs:
        upkeep.show(f"{upkeep.host}: job {job.id}, {job.name}, for {job.node}: {job.state}, {reasons.printable(job.reason)}")
    return {"found": bool(jobs), "msg": f"{len(jobs)} jobs of runs"}


def logs(upkeep: Upkeep) -> PlainData:
    """Show which checks the jobs of runs have finished on their nodes, and which tools run there. A short step of each job reads it."""
    client, jobs = _jobs(upkeep)
    if not jobs:
        upkeep.show(_none(upkeep))
    stage, node = (str(upkeep.options[name]) for name in ("stage", "node"))
    matched = ((job, _NAME.fullmatch(job.name)) for job in jobs)
    chosen = [(job, match) for job, match in matched if match and (not stage or match["stage"] == stage)]
    if node:
        chosen = [(job, match) for job, match in chosen if _may_be_on(job, node.removeprefix(f"{upkeep.host}/"))]

    def look(item: tuple[SlurmJob, re.Match[str]]) -> list[str]:
        job, match = item
        if job.state != "RUNNING":
            return [f"{upkeep.host}: job {job.id}, {job.name}, for {job.node}: {job.state}, {reasons.printable(job.reason)}"]
        own_name = node.removeprefix(f"{upkeep.host}/")
        return [f"{upkeep.host}/{line}" for line in _looked_into(upkeep, client, job, match, own_name, unpacking)]

    unpacking = payload.unpacking("", "showing")
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        shown = [line for lines in pool.map(look, chosen) for line in lines]
    for line in shown:
        upkeep.show(line)
    return {"found": bool(jobs), "msg": f"{len(shown)} lines of {len(chosen)} jobs of runs"}


def _may_be_on(job: SlurmJob, node: str) -> bool:
    """Return True if a job is for this node, or for several: their names are written short, as `n[1-3]`."""
    return job.node == node or not job.node or "[" in job.node or node in job.node.split(",")


def _looked_into(upkeep: Upkeep, client: Client, job: SlurmJob, match: re.Match[str], node: str, unpacking: str) -> t.Iterator[str]:
    """Yield the lines about one job. One that Slurm lets nobody look into, since it has just ended for example, is said as a line too."""
    own = (
        f"\nimport os\nfrom {payload.PACKAGE}.program import job, showing\n"
        f"state_dir = {upkeep.variable('acceptance_state_dir')!r} or job.state_dir()\n"
        f"showing.main(state_dir, {match['run']!r}, {match['stage']!r}, os.environ['SLURMD_NODENAME'], {int(upkeep.options['tail'])})\n"
    )
    program = unpacking + own
    argv = [*of_variables.look_into(job.id, node), _settings(upkeep).python, "-c", of_a_launch.READ_EXACTLY]
    try:
        answer = client.run(*argv, text=f"{len(program.encode())}\n{program}")
    except SlurmError as error:
        yield f"{job.node}: {error.reason}"
        return
    for found in map(_SHOWN.fullmatch, answer.splitlines()):
        if found:
            yield f"{found['node']}: {reasons.printable(str(json.loads(found['line'])))}"


def stop(upkeep: Upkeep) -> PlainData:
    """Cancel the jobs of one run or of all runs. Their probes give back what they have changed."""
    client, jobs = _jobs(upkeep)
    if jobs and not upkeep.check_mode:
        try:
            client.run("scancel", *(job.id for job in jobs))
        except SlurmError as error:
            raise RunError(error.reason) from error
    return {"changed": bool(jobs), "found": bool(jobs), "msg": f"cancelled {len(jobs)} jobs of runs"}


def cleanup(upkeep: Upkeep) -> PlainData:
    """Cancel the jobs of one run. Nothing else is left by runs: jobs end without their controller."""
    return stop(upkeep) if upkeep.run_id else {"changed": False, "found": False, "msg": "jobs end without their controller"}


OPERATIONS: dict[str, Operation] = {"status": status, "logs": logs, "stop": stop, "cleanup": cleanup}
