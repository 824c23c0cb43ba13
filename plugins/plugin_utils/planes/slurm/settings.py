# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of a Slurm cluster, and the arguments of srun that are made of them.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import math
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

PREFIX = "acceptance_slurm_"
# Options of srun that are ours alone: by another one the jobs would not be found, not end, not be on the node that is measured or not have
# it whole, have what the caller's environment has, change a setting of the node, or not say what Slurm says.
OURS = (
    "--nodelist", "--nodes", "--ntasks", "--job-name", "--comment", "--input", "--output", "--error", "--time", "--time-min", "--pty",
    "--label", "--jobid", "--het-group", "--no-allocate", "--exclude", "--exclusive", "--oversubscribe", "--overlap", "--exact",
    "--overcommit", "--test-only", "--immediate", "--kill-on-bad-exit", "--no-kill", "--ntasks-per-core", "--ntasks-per-gpu",
    "--ntasks-per-node", "--ntasks-per-socket", "--ntasks-per-tres", "--unbuffered", "--wait", "--export", "--export-file",
    "--preserve-env", "--chdir", "--mem", "--mem-per-cpu", "--mem-per-gpu", "--mem-bind", "--cpu-bind", "--cpus-per-task", "--cpus-per-gpu",
    "--gpus-per-task", "--gpus-per-node", "--gpus-per-socket", "--gpus", "--gpu-bind", "--tres-per-task", "--tres-bind", "--gpu-freq",
    "--cpu-freq", "--mpi", "--multi-prog", "--bcast", "--uid", "--gid", "--clusters", "--relative", "--hold", "--reboot", "--quiet",
    "--quit-on-interrupt", "--propagate", "--container", "--container-id", "--container-image", "--container-name", "--attach",
)  # fmt: skip
# Options of srun that have a variable of their own.
WITH_VARIABLES = ("partition", "account", "qos", "reservation", "constraint", "gres")
_NODE_KEYS = {"names", "feature", "expected"}
# srun gives a job the environment of its caller, with secrets and settings such as NCCL_ALGO, unless it is told what a job has.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Limits (ulimit) are those of slurmd. srun gives a job those of its caller, such as the locked memory of a login, too little for RDMA.
LIMITS = "--propagate=NONE"
# How the names of our jobs begin.
JOBS = "gpufleet-"
# What a job may take beside the probe's own deadline: its guardian gives back what was changed, and Slurm starts and ends the job.
MORE_S = 120.0


# Minutes of a job that fetches or removes a kept answer.
FETCHING_MIN = 5
_STEP = ("--cpu-bind=none", "--mpi=none")
_ONE_TASK = ["--kill-on-bad-exit=1", "--unbuffered"]


def look_into(job: str, node: str) -> list[str]:
    """Return the arguments of srun for a short step of a job that runs, on one of its nodes or on all, beside the step that measures."""
    return [
        "srun", f"--jobid={job}", "--overlap", *([f"--nodelist={node}", "--nodes=1"] if node else []), "--ntasks-per-node=1", "--mem=0",
        "--gres=none", "--immediate=20", "--chdir=/", "--mpi=none", f"--export=PATH={PATH}", LIMITS,
    ]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Settings:
    """The variables `acceptance_slurm_*` without their prefix. `time` is in minutes, 0 for what the stage needs; `wait` in seconds.
    `nodes_per_job`: how many free nodes share a job in stages of single nodes."""

    ssh: tuple[str, ...] = ()
    partition: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    constraint: str = ""
    gres: str = ""
    time: int = 0
    extra: tuple[str, ...] = ()
    wait: float = 600.0
    nodes_per_job: int = 1
    python: str = "/usr/bin/python3"
    launcher: str = "auto"

    def minutes(self, timeout: float, most: int = 0) -> int:
        """Return the time limit of a job for a probe with this deadline in seconds. `most`: the limit of its partition in minutes, 0 for
        none; a job beyond it would wait for ever."""
        needed = math.ceil((timeout + MORE_S) / 60)
        return self.time or (min(needed, most) if most else needed)

    def job(self, name: str, comment: str, nodes: t.Sequence[str], gpus: str, timeout: float, most: int = 0) -> list[str]:
        """Return the arguments of srun for one job that has these nodes whole, with a task on each. `gpus`: all GPUs of a node, as --gres
        takes them. `most`: the time limit of its partition, as minutes() takes it. Lines of several tasks have the label of their task, for
        which srun must not pass on pieces of lines. Tasks of other nodes go on if one fails, or its node is lost.

        --exclusive of srun also means --exact: with a number of tasks the task would have one processor of its node. Without it, srun takes
        a task for each node and all processors of the job.
        """
        tasks = _ONE_TASK if len(nodes) == 1 else ["--kill-on-bad-exit=0", "--no-kill", "--label", "--wait=0"]
        whole = ["--exclusive", "--mem=0"]
        return ["srun", *whole, *_STEP, *tasks, *self._of_all(name, comment, nodes, self.gres or gpus, self.minutes(timeout, most))]

    def detached(self, name: str, comment: str, node: str, gpus: str, timeout: float, most: int = 0) -> list[str]:
        """Return the arguments of sbatch for a job like that of job() over one node, which goes on without us. Its program comes by
        standard input."""
        own = ["--parsable", "--no-requeue", "--output=/dev/null", "--error=/dev/null", "--exclusive", "--mem=0"]
        return ["sbatch", *own, *self._of_all(name, comment, [node], self.gres or gpus, self.minutes(timeout, most))]

    def fetching(self, name: str, comment: str, node: str) -> list[str]:
        """Return the arguments of srun for a short job beside those of others, which reads or removes a file on a
        node."""
        return ["srun", "--ntasks=1", "--mem=100M", *_STEP, *_ONE_TASK, *self._of_all(name, comment, [node], "", FETCHING_MIN)]

    def _of_all(self, name: str, comment: str, nodes: t.Sequence[str], gres: str, minutes: int) -> list[str]:
        """Return the options that all our jobs have."""
        chosen = {**{option: getattr(self, option) for option in WITH_VARIABLES}, "gres": gres}
        return [
            f"--job-name={name}", f"--comment={comment}", f"--nodelist={','.join(nodes)}", f"--nodes={len(nodes)}", f"--time={minutes}",
            "--chdir=/", f"--export=PATH={PATH}", LIMITS,
            *(f"--{option}={value}" for option, value in chosen.items() if value), *self.extra,
        ]  # fmt: skip


def of(host: str, variables: t.Mapping[str, t.Any]) -> Settings:
    """Return the settings in the variables of a cluster. Raise RunError for a wrong one."""
    values: dict[str, t.Any] = {}
    for field in dataclasses.fields(Settings):
        value = variables.get(PREFIX + field.name)
        if value is None:
            continue
        values[field.name] = tuple(map(str, value)) if isinstance(value, (list, tuple)) else value
    settings = Settings(**values)
    for option in settings.extra:
        name = option.partition("=")[0]
        # srun takes a long option by its beginning: --node is --nodelist or --nodes.
        if not name.startswith("--") or any(ours.startswith(name) for ours in OURS):
            words = "long options of srun, each with its value behind '=', and none by which a job is found, ends, or has its node"
            raise RunError(f"{host}: {PREFIX}extra: found {option!r}, expected {words} (docs/slurm.md)")
        own = next((own for own in WITH_VARIABLES if f"--{own}".startswith(name)), None)
        if own:
            raise RunError(f"{host}: {PREFIX}extra: found {option!r}, expected it in {PREFIX}{own}")
    for name in (*WITH_VARIABLES, "python"):
        value = str(getattr(settings, name))
        if not value.isprintable() or value.startswith("-"):
            raise RunError(f"{host}: {PREFIX}{name}: found {value!r}, expected a value of srun's option")
    return settings


def jobs_of(run_id: str, stage: str = "") -> str:
    """Return the name of the jobs of a stage, or the beginning of the names of all jobs of a run, or of all runs."""
    return JOBS + (f"{run_id}-{stage}" if run_id else "")


class Selection(t.NamedTuple):
    """The variable acceptance_nodes of a Slurm cluster: the nodes by name, a feature, and those that must exist by name or number."""

    names: tuple[str, ...]
    feature: str
    expected: tuple[str, ...]
    number: int


def selection(host: str, variables: t.Mapping[str, t.Any]) -> Selection:
    """Return which nodes are meant. Raise RunError if the variable is wrong."""
    value = variables.get("acceptance_nodes") or {}
    names, feature, expected = (value.get(key) for key in ("names", "feature", "expected")) if isinstance(value, dict) else (None,) * 3
    number = expected if isinstance(expected, int) and not isinstance(expected, bool) else 0
    listed = [] if number else expected
    is_known = isinstance(value, dict) and set(value) <= _NODE_KEYS and isinstance(feature or "", str) and number >= 0
    if not is_known or not _are_names(names or []) or not _are_names(listed or []):
        words = "{names: list, feature: text, expected: list or number}"
        raise RunError(f"{host}: acceptance_nodes: found {value!r}, expected {words} on a Slurm cluster")
    return Selection(tuple(names or ()), str(feature or ""), tuple(listed or ()), number)


def _are_names(value: t.Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) and name for name in value)
