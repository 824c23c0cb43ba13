# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operations on the runs of a Slurm cluster, by its client commands. Only jobs of runs are seen, and of them those of this user.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import settings as of_variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.client import Client, SlurmError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.records import SlurmJob
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.upkeep import Operation, Upkeep
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData


def _jobs(upkeep: Upkeep) -> tuple[Client, list[SlurmJob]]:
    """Return the client commands of a cluster, and the jobs of one run or of all runs."""
    names = (f"{of_variables.PREFIX}{field.name}" for field in dataclasses.fields(of_variables.Settings))
    variables = {name: upkeep.variable(name, None) for name in names}
    client = Client(upkeep.host, of_variables.of(upkeep.host, variables).ssh)
    try:
        return client, client.own_jobs(of_variables.jobs_of(upkeep.run_id))
    except SlurmError as error:
        raise RunError(error.reason) from error


def status(upkeep: Upkeep) -> PlainData:
    """Show the jobs of runs."""
    _client, jobs = _jobs(upkeep)
    for job in jobs:
        upkeep.show(f"{upkeep.host}: job {job.id}, {job.name}, for {job.node}: {job.state}, {reasons.printable(job.reason)}")
    return {"found": bool(jobs), "msg": f"{len(jobs)} jobs of runs"}


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


OPERATIONS: dict[str, Operation] = {"status": status, "stop": stop, "cleanup": cleanup}
