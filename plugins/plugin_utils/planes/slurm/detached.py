# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs that go on without their controller (acceptance_detach): submitted by sbatch, one for each node, and waited for by a later one.

The program of a job travels with it, and its answer stays on the node (module_utils/program/keeping.py), so that no file system is shared.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import concurrent.futures
import re
import time
import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import jobs, reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.client import Client, SlurmError

# Submissions at once.
AT_ONCE = 8
LOOK_S, SAY_S = 5.0, 60.0
# What `sbatch --parsable` prints: the number of the job, and its cluster where there are several.
_NUMBER = re.compile(r"(\d{1,19})(?:;\S*)?")


def script_of(python: str, common: str, job: jobs.Job) -> str:
    """Return the script of a job. It is Python: sbatch takes any interpreter."""
    return f"#!{python if '/' in python else f'/usr/bin/env {python}'}\n{common}{job.own()}"


def submitted(client: Client, python: str, made: t.Mapping[str, jobs.Job], common: str) -> dict[str, tuple[str, str]]:
    """Submit a job for each node. Return {node: (number of its job, why there is none)}. `common`: what the program of each job begins
    with."""

    def submit(job: jobs.Job) -> tuple[str, str]:
        try:
            said = client.run(*job.argv, text=script_of(python, common, job)).strip()
        except SlurmError as error:
            return "", error.reason
        match = _NUMBER.fullmatch(said)
        return (match[1], "") if match else ("", f"{client.host}: sbatch says no number of a job: {reasons.printable(said)}")

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
        return dict(zip(made, threads.map(submit, made.values()), strict=True))


def wait(client: Client, name: str, numbers: t.Collection[str], patience_s: float) -> None:
    """Wait until none of these jobs waits or runs any more. One that still waits for its node after `patience_s` is cancelled. Raise
    SlurmError if Slurm does not answer. An empty number is a job that may have been submitted: all of the name are waited for
    then."""
    until = time.monotonic() + patience_s
    said_at = 0.0
    while True:
        left = [job for job in client.jobs(name) if job.id in numbers or "" in numbers]
        if not left:
            return
        now = time.monotonic()
        queued = [job.id for job in left if job.state == "PENDING"]
        if queued and now > until:
            client.run("scancel", *queued)
            until = now + SAY_S
        if now > said_at + SAY_S or not said_at:
            said_at = now
            job = left[0]
            words = f"{client.host}: {len(left)} jobs of the detached run have not ended: job {job.id} for {job.node} is {job.state}"
            Display().display(f"{words}, {reasons.printable(job.reason)}")
        time.sleep(LOOK_S)
