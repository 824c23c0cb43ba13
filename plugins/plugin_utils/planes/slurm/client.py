# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's client commands, on this machine or over ssh.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import os
import secrets
import shlex
import subprocess
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.reasons import ReasonedError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm import reading, reasons
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.slurm.records import Partition, SlurmJob, SlurmNode
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import AcceptanceError

ANSWER_S = 90.0
# Behind the words of the user, so that theirs count: ssh takes the first value of an option.
SSH_OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=4")
NOT_REACHED = 255
# Times as seconds since 1970, and no column cut for a narrow terminal.
ENVIRONMENT = ("env", "LC_ALL=C", "SLURM_TIME_FORMAT=%s")


class SlurmError(AcceptanceError, ReasonedError):
    """The cluster cannot be reached, or a client command fails, in Slurm's own words."""


def environment() -> dict[str, str]:
    """Return the environment of client commands: ours without the variables that are options of theirs. Within an allocation, srun would
    start a step there, with its time and nodes, and no job of ours."""
    ours = ("SLURM_", "SRUN_", "SINFO_", "SQUEUE_", "SCANCEL_", "SBATCH_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours) or name == "SLURM_CONF"}


class Client:
    """The client commands of one cluster. `ssh`: the words of ssh with the machine that has them; empty for this machine."""

    def __init__(self, host: str, ssh: t.Sequence[str]) -> None:
        self.host = host
        self.ssh = tuple(ssh)
        # How nodes are read here, the way that worked last first.
        self._ways: tuple[t.Callable[[t.Sequence[str]], tuple[str, ...]], ...] = (_by_scontrol, _by_sinfo)

    def words(self, argv: t.Sequence[str]) -> list[str]:
        """Return the argument list that runs a command there. ssh gives its last argument to a shell, so it is quoted."""
        return [*self.ssh, *SSH_OPTIONS, "--", shlex.join(argv)] if self.ssh else list(argv)

    def run(self, *argv: str, text: str = "") -> str:
        """Return what a client command prints that reads `text`. Raise SlurmError if it fails."""
        done = self._run(argv, text)
        if done.returncode:
            raise SlurmError(*self._problem(argv[0], done.returncode, done.stderr))
        return done.stdout

    def _run(self, argv: t.Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
        command = self.words([*ENVIRONMENT, *argv])
        try:
            return subprocess.run(
                command, input=text, capture_output=True, text=True, errors="replace", timeout=ANSWER_S, check=False, env=environment(),
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise SlurmError("slurm_unreachable", f"{self.host}: {argv[0]} did not answer in {ANSWER_S:.0f} s") from error
        except OSError as error:
            raise SlurmError("slurm_unreachable", f"{self.host}: {command[0]}: {error.strerror}") from error

    def _problem(self, program: str, status: int, text: str) -> tuple[str, str]:
        words = reasons.words_of(text) or f"exit status {status}"
        if self.ssh and status == NOT_REACHED:
            return "slurm_unreachable", f"{self.host}: cannot be reached by {self.ssh[0]}: {words}"
        hint = "; expected Slurm's client commands there: see acceptance_slurm_ssh" if status == 127 else ""
        return "slurm_unreachable", f"{self.host}: {program} fails: {words}{hint}"

    def nodes(self, *names: str) -> list[SlurmNode]:
        """Return all nodes; with names those, and others if Slurm tells of them all the same. Raise SlurmError if none of the ways to read
        them works."""
        for way in self._ways:
            done = self._run(way(names))
            if done.returncode == NOT_REACHED and self.ssh:
                break
            found = reading.nodes_of_json(done.stdout) if done.returncode == 0 else None
            if found is not None:
                self._ways = (way, *(other for other in self._ways if other is not way))
                return found
        mark = secrets.token_hex(8)
        return reading.nodes_of_lines(
            self.run("sinfo", "-h", "-a", "-N", *_named(names), "-o", reading.form(mark, reading.NODE_FIELDS)), mark
        )

    def partitions(self) -> list[Partition]:
        """Return all partitions."""
        mark = secrets.token_hex(8)
        return reading.partitions_of_lines(self.run("sinfo", "-h", "-a", "-o", reading.form(mark, reading.PARTITION_FIELDS)), mark)

    def now(self) -> int:
        """Return the time of slurmctld in seconds since 1970, 0 if its answer does not have it."""
        return reading.time_of_sdiag(self.run("sdiag"))

    def jobs(self, name: str) -> list[SlurmJob]:
        """Return the jobs of a name that wait or run."""
        return self._jobs(f"--name={name}")

    def own_jobs(self, beginning: str) -> list[SlurmJob]:
        """Return the jobs of this user that wait or run and whose names begin so."""
        return [job for job in self._jobs("--me") if job.name.startswith(beginning)]

    def _jobs(self, chosen: str) -> list[SlurmJob]:
        mark = secrets.token_hex(8)
        return reading.jobs_of_lines(self.run("squeue", "-h", chosen, "-o", reading.form(mark, reading.JOB_FIELDS)), mark)


def _by_scontrol(names: t.Sequence[str]) -> tuple[str, ...]:
    return ("scontrol", "show", "nodes", *([",".join(names)] if names else []), "--json")


def _by_sinfo(names: t.Sequence[str]) -> tuple[str, ...]:
    return ("sinfo", *_named(names), "--json")


def _named(nodes: t.Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of sinfo for some nodes, none for all."""
    return ("-n", ",".join(nodes)) if nodes else ()
