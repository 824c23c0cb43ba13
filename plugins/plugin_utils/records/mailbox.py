# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder `todo/` of a run: small files by which the processes of one controller tell each other what they need to know.

The action plugin `plan` writes what there is to do before Ansible forks; the workers, one for each target and stage, read it and leave
word for the workers after them. `KINDS` lists every file of the folder with its writers and readers. Nothing in the folder is needed
once the run is judged, and a resume begins with an empty one: what has to outlive a controller is in the journal, or in `detached/`.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import pathlib
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import file_name, write_atomically
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, Todo, encode


@dataclasses.dataclass(frozen=True)
class FileKind:
    """One kind of file. `name` is the pattern of its name, `holds` its content; `writer` and `reader` are who writes and who reads it."""

    name: str
    holds: str
    writer: str
    reader: str


TODO = FileKind(
    "{target}.json",
    "the target's items of the plan by stage, its settings, and the names of its secret variables",
    "the plan, for each target",
    "each worker of the target; the first worker of a stage between nodes, for all targets",
)
TASKS = FileKind("tasks.yml", "the tasks of the play, one for each stage and phase, as JSON", "the plan", "Ansible, which includes it once")
CUT_OFF = FileKind(
    "begun",
    "names of the stages between nodes that an earlier controller of this run began, as a JSON list",
    "the plan, before it makes the folder anew",
    "the plan of the next controller",
)
TOTALS = FileKind(
    "totals",
    "how many subjects the progress of each stage counts, and the seconds that it takes, {stage: [number, seconds]} in their order",
    "the plan",
    "workers that show progress",
)
CHECKPOINTS = FileKind(
    "{target}.{stage}.checkpoints",
    "keys of the checkpoints that the target holds of a stage that was cut off, as a JSON list",
    "the target's worker in the phase `look`",
    "the first worker of the stage, for all targets",
)
LOCK = FileKind("{stage}.lock", "nothing; locked while the work of a stage is computed", "workers of the stage", "workers of the stage")
PART = FileKind(
    "{target}.{stage}.share",
    "the target's work in a stage between nodes; mode 0600, since it may hold a key",
    "the first worker of the stage",
    "the target's worker",
)
COMPUTED = FileKind(
    "{stage}.shared",
    "nothing; it exists once the parts of all targets are written",
    "the first worker of the stage",
    "all other workers of the stage; the plan of the next controller, for which the stage was begun",
)
DONE = FileKind(
    "{target}.{stage}.done",
    "nothing; it exists if the target has delivered its results in the phase `start`",
    "the target's worker in the phase `start`",
    "the target's worker in the phase `collect`",
)
DONE_COUNT = FileKind(
    "{stage}.finished", "one byte for each target that is done; its length is their number", "workers in the phase `start`", "the same"
)
DONE_EVERYWHERE = FileKind(
    "{stage}.everywhere",
    "nothing; it exists once all targets are done, so that the phase `collect` runs on one host only",
    "the last worker in the phase `start`",
    "the task of the phase `collect`",
)
LOST = FileKind(
    "{target}.lost",
    "reason code and reason for which the target is not contacted again in this run",
    "the worker that lost the target",
    "each later worker of the target; the first worker of a stage between nodes",
)
HEARTBEAT = FileKind(
    "{target}.heartbeat",
    "the words that reach a host with a detached probe, its heartbeat file there, whether it may outlive the controller, its stage, and the"
    " file there that shows the output of its tool, as JSON",
    "the target's worker, when it has started the probe; it is removed when the probe is collected",
    "the process that keeps probes alive",
)
LOOK = FileKind(
    "{target}.look",
    "the id of the node; its time of change is when somebody last looked at the output of the node's tool",
    "the console",
    "whatever drives the stage on the node: a worker, or the process that keeps probes alive",
)
LIVE = FileKind(
    "{target}.live",
    "the last lines of that output, their stage and time, or why there are none, as JSON",
    "whatever drives the stage on the node",
    "the console",
)
COUNT = FileKind(
    "{stage}.count",
    "one byte for each node that is done, `x` for a node without a result and `.` for any other",
    "workers of the stage",
    "workers that show progress",
)
SHOWN = FileKind(
    "{stage}.shown",
    "when the first node of the stage was done; its time of change is when progress was last shown",
    "workers of the stage",
    "workers of the stage",
)
PULSE = FileKind(
    "{stage}.told",
    "when the stage began, then each time at which somebody was told that it still works; locked while it is written",
    "workers of the stage",
    "workers of the stage",
)
SINK_SPENT = FileKind("{sink}.spent", "one byte for each hundredth of a second that calls of a sink took too long", "workers", "workers")
SINK_NOTED = FileKind(
    "{sink}.{event}.said", "nothing; it exists once a failure of a sink was shown for this event", "the plan and workers", "the same"
)

KINDS = (
    TODO, TASKS, CUT_OFF, TOTALS, CHECKPOINTS, LOCK, PART, COMPUTED, DONE, DONE_COUNT, DONE_EVERYWHERE, LOST, HEARTBEAT, LOOK, LIVE,
    COUNT, SHOWN, PULSE, SINK_SPENT, SINK_NOTED,
)  # fmt: skip


class Mailbox:
    """The folder `todo/` of the run in `run_dir`."""

    def __init__(self, run_dir: pathlib.Path) -> None:
        self.folder = run_dir / "todo"

    def make(self) -> None:
        self.folder.mkdir(exist_ok=True)

    def clear(self) -> None:
        """Remove the folder. Does nothing if there is none."""
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                path.unlink()
            self.folder.rmdir()

    def path(self, kind: FileKind, *, target: str = "", **names: str) -> pathlib.Path:
        """Return the path of a file: `names` are what the pattern of its kind asks for, `stage`, `sink` or `event`."""
        return self.folder / kind.name.format(target=file_name(target), **names)

    # Written by the plan ---------------------------------------------------------------------------------------------

    def assign(self, target: str, todo: Todo) -> None:
        """Write what a target has to do. Each target has its own file, so that no worker reads the whole plan."""
        self.path(TODO, target=target).write_text(json.dumps({"target": target, **todo}), encoding="utf-8")

    def todo(self, target: str) -> Todo:
        """Return what a target has to do, empty if that is nothing."""
        try:
            todo = json.loads(self.path(TODO, target=target).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        todo.pop("target")
        return t.cast(Todo, todo)

    def todos(self, stage: str) -> dict[str, Todo]:
        """Return the todo of every target. "finished" in it are the keys of the target's checkpoints of this stage, if it was asked."""
        todos = {}
        for path in sorted(self.folder.glob(TODO.name.format(target="*"))):
            todo = json.loads(path.read_text(encoding="utf-8"))
            target = todo.pop("target")
            checkpoints = self.path(CHECKPOINTS, target=target, stage=stage)
            if checkpoints.exists():
                todo["finished"] = json.loads(checkpoints.read_text(encoding="utf-8"))
            todos[target] = todo
        return todos

    def write_tasks(self, tasks: list[PlainData]) -> str:
        """Write the tasks of the play; return the path of the file. If Ansible includes a role in a loop, its main process copies the role
        for every host and item (12 ms each, 10 minutes for 2,000 hosts and 12 stages); one file of tasks is included once."""
        path = self.path(TASKS)
        write_atomically(path, json.dumps(tasks, indent=1))
        return str(path.absolute())

    def mark_cut_off(self, stages: t.Iterable[str]) -> None:
        """Write which stages between nodes earlier controllers of this run began."""
        write_atomically(self.path(CUT_OFF), json.dumps(sorted(stages)))

    def cut_off(self) -> set[str]:
        """Return the stages between nodes that any controller of this run began, and that may have left something on the nodes."""
        earlier = self.path(CUT_OFF)
        saved_stages = json.loads(earlier.read_text(encoding="utf-8")) if earlier.exists() else []
        return {*saved_stages, *(path.stem for path in self.folder.glob(COMPUTED.name.format(stage="*")))}

    def set_totals(self, totals: t.Mapping[str, int], seconds: t.Mapping[str, float] | None = None) -> None:
        """Write how many subjects the progress of each stage counts, and the seconds that each stage is expected to take, in the order of
        the stages."""
        told = {stage: [total, (seconds or {}).get(stage, 0.0) if total else 0.0] for stage, total in totals.items()}
        self.path(TOTALS).write_text(json.dumps(told), encoding="utf-8")

    def _totals(self) -> dict[str, tuple[int, float]]:
        """Return {stage: (number of subjects, expected seconds)}. Raises OSError without the file."""
        return t.cast("dict[str, tuple[int, float]]", json.loads(self.path(TOTALS).read_text(encoding="utf-8")))

    def total(self, stage: str) -> int:
        """Return how many subjects the progress of a stage counts. Raises KeyError for another stage, OSError without the file."""
        return int(self._totals()[stage][0])

    def expected_seconds(self, stage: str) -> tuple[float, float]:
        """Return the seconds that a stage is expected to take, and those of all stages behind it; 0.0 if that is not known."""
        totals = self._totals()
        behind = list(totals)[list(totals).index(stage) + 1 :]
        return totals[stage][1], sum(totals[name][1] for name in behind)

    # A stage between nodes -------------------------------------------------------------------------------------------

    def save_checkpoints(self, stage: str, target: str, keys: list[t.Any]) -> None:
        """Write the keys of the checkpoints that a target holds of a stage that was cut off."""
        write_atomically(self.path(CHECKPOINTS, target=target, stage=stage), json.dumps(keys))

    def compute_once(self, stage: str, target: str, compute: t.Callable[[], dict[str, PlainData]]) -> PlainData:
        """Return the target's part of what `compute` returns, {target: part}; empty if it has none. The first worker of the stage calls
        `compute` and writes a file for each target, so that no worker reads the parts of all."""
        computed = self.path(COMPUTED, stage=stage)
        with open(self.path(LOCK, stage=stage), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not computed.exists():
                for name, part in compute().items():
                    write_atomically(self.path(PART, target=name, stage=stage), json.dumps(part, default=encode), 0o600)
                computed.touch()
        try:
            return t.cast(PlainData, json.loads(self.path(PART, target=target, stage=stage).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}

    # A stage in two phases, `start` and `collect` --------------------------------------------------------------------

    def finish(self, stage: str, target: str, of: int) -> None:
        """Remember that a target needs no collecting, and, with the last of `of` targets, that none does. The file's length counts them, so
        that no worker looks for the marks of all."""
        self.path(DONE, target=target, stage=stage).touch()
        with open(self.path(DONE_COUNT, stage=stage), "ab", buffering=0) as count:
            count.write(b".")
            if count.tell() == of:
                self.path(DONE_EVERYWHERE, stage=stage).touch()

    def is_finished(self, stage: str, target: str) -> bool:
        return self.path(DONE, target=target, stage=stage).exists()

    def finished_everywhere(self, stage: str) -> str:
        """Return the path of a file that exists as soon as a stage is finished on each of its targets."""
        return str(self.path(DONE_EVERYWHERE, stage=stage).absolute())

    # Lost targets ----------------------------------------------------------------------------------------------------

    def lose(self, target: str, reason_code: str, reason: str) -> None:
        """Remember that a target is not to be contacted again in this run."""
        self.path(LOST, target=target).write_text(json.dumps([reason_code, reason]), encoding="utf-8")

    def lost(self, target: str) -> tuple[str, str] | None:
        """Return reason code and reason if a target is not to be contacted again, else None."""
        try:
            code, reason = json.loads(self.path(LOST, target=target).read_text(encoding="utf-8"))
            return code, reason
        except (OSError, ValueError):
            return None
