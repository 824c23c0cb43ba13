# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""srun in place of ssh: a head within a job enters the other nodes of the job, and starts ranks on them, by further steps of it.

No node needs an sshd then. `steps` of a head's parameters is {"when": "always" or "auto", "nodes": {name of a member: what the job calls
its node}, "job": its number}; "auto" means that the head has no sshd.

This module util is PRIVATE to the collection.
"""

from __future__ import annotations

import shlex
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.groups import worker

ALWAYS, AUTO = "always", "auto"


def job_of(params: dict[str, t.Any]) -> str:
    """Return the number of the job by whose steps the nodes of a group are entered; empty if they are entered by ssh."""
    steps = params.get("job_steps") or {}
    number = str(steps.get("job") or "")
    return number if number and (steps.get("when") == ALWAYS or worker.sshd() is None) else ""


def words(job: str, nodes: int, tasks: int) -> list[str]:
    """Return the arguments of srun for a step with so many tasks on each of so many nodes, beside the other steps of the job."""
    return [
        "srun", "--quiet", f"--jobid={job}", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes * tasks}", f"--ntasks-per-node={tasks}",
        "--cpu-bind=none", "--kill-on-bad-exit=1",
    ]  # fmt: skip


def entering(job: str, nodes: t.Mapping[str, str]) -> str:
    """Return a script that is called like ssh, with the address of a node and a command line for its shell, for `nodes`, {address: node}.
    Hydra gives every ssh an option of its own, -x."""
    cases = "".join(f"{shlex.quote(address)}) node={shlex.quote(node)};;\n" for address, node in nodes.items())
    return (
        '[ "$1" = -x ] && shift\n'
        f'case $1 in\n{cases}*) echo "$1 is no node of the job" >&2; exit 255;;\nesac\nshift\n'
        f'exec {shlex.join(words(job, 1, 1))} --unbuffered --mpi=none --nodelist="$node" /bin/sh -c "$*"\n'
    )
