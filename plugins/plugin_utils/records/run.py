# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run on disk, results/<run_id>/: its paths, its plan, and the controller that drives it.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import pathlib
import re
import secrets
import time
import typing as t

from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import driver, journal, versions
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import file_name, write_atomically
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.journal import Journal
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.mailbox import Mailbox
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, Plan, plan_of

# RunError has been moved to records/errors.py; a team's own stage may still import it from here.
__all__ = ["RUN_ID", "Run", "RunError", "facts_of", "has_facts", "new_run_id", "node_file", "readable"]

RUN_ID = re.compile(r"^[0-9]{8}T[0-9]{6}Z-[0-9a-f]{6}$")


# Seconds that a takeover waits for a controller that is still alive.
ENDING_S = 20.0


def new_run_id() -> str:
    return time.strftime("%Y%m%dT%H%M%SZ-", time.gmtime()) + secrets.token_hex(3)


def has_facts(measurement: t.Mapping[str, t.Any]) -> bool:
    """Return True if a measurement holds the facts of a node, which stand in a file of `nodes/` too."""
    context = measurement.get("context")
    return measurement.get("outcome") == "measured" and isinstance(context, dict) and "facts" in context


def node_file(node: str) -> str:
    """The name of a node's file in `nodes/`."""
    return f"{file_name(node)}.json"


def facts_of(measurement: t.Mapping[str, t.Any]) -> PlainData:
    """The content of a node's file in `nodes/`, by the measurement that has its facts."""
    return {"node": measurement["subject"]["id"], **measurement["context"]}


def readable(record: PlainData) -> str:
    """JSON for people, a line for each entry of the record and of the objects in it. What is written with an indent takes ten times as
    long, which counts for thousands of nodes."""

    def lines(entries: PlainData, indent: str, deeper: bool) -> str:
        texts = []
        for name, value in sorted(entries.items()):
            inner = deeper and isinstance(value, dict) and value
            text = lines(value, indent + " ", False) if inner else json.dumps(value, sort_keys=True)
            texts.append(f"\n{indent}{json.dumps(name)}: {text}")
        return "{" + ",".join(texts) + f"\n{indent[1:]}}}"

    return lines(record, " ", True) + "\n"


class Run:
    """One run: `id`, `dir` and what lies in it."""

    def __init__(self, results_dir: str | os.PathLike[str], run_id: str) -> None:
        self.id = run_id
        self.dir = pathlib.Path(results_dir) / run_id
        self.journal = Journal(journal.path_in(self.dir))
        self.mailbox = Mailbox(self.dir)

    def make(self) -> None:
        """The run's folders; nothing that is there is overwritten."""
        try:
            for folder in (self.dir / "raw", self.dir / "nodes", self.mailbox.folder):
                folder.mkdir(parents=True)
            self.journal.path.touch()
        except OSError as error:
            raise RunError(
                f"acceptance_results_dir {self.dir.parent}: {error.strerror}: {error.filename}; expected a folder that can be written"
            ) from error

    @classmethod
    def new(cls, results_dir: str, run_id: str) -> Run:
        """A run that is still to be made, under an id that nobody has."""
        run = cls._named(results_dir, run_id)
        if run.dir.exists():
            resume = collection.playbook("resume")
            raise RunError(f"run_id: found {run_id}, which is in {os.path.abspath(results_dir)}; {resume} goes on with it")
        return run

    @classmethod
    def _named(cls, results_dir: str, run_id: str) -> Run:
        if not RUN_ID.match(str(run_id)):
            raise RunError(f"run_id: found {run_id!r}, expected the id of a run, like 20260101T000000Z-0a1b2c")
        return cls(results_dir, run_id)

    @classmethod
    def open(cls, results_dir: str, run_id: str) -> Run:
        run = cls._named(results_dir, run_id)
        if not (run.dir / "plan.json").is_file():
            run_ids = sorted(p.parent.name for p in pathlib.Path(results_dir).glob("*/plan.json"))
            near = difflib.get_close_matches(run_id, run_ids, 1, 0.85)
            hint = f"did you mean {near[0]}? The latest there: " if near else "the latest there: "
            raise RunError(
                f"run {run_id} does not exist in {os.path.abspath(results_dir)}; "
                + (
                    f"{hint}{', '.join(run_ids[-5:])}"
                    if run_ids
                    else "there is no run; set acceptance_results_dir to the folder of the run"
                )
            )
        return run

    def plan(self) -> Plan:
        """Return the plan of the run. Raises RunError if it cannot be read."""
        path = self.dir / "plan.json"
        text = b""
        try:
            text = path.read_bytes()
            return plan_of(text)
        except (OSError, ValueError) as error:
            other_version = versions.problem_of_text(text, "plan/v1")
            if other_version:
                raise RunError(f"run {self.id}: plan.json: {other_version}") from error
            raise RunError(f"{path}: {error}; expected the plan of run {self.id}") from error

    def claim(self, pid: int, take_over: bool = False) -> None:
        """Make `pid` this run's one controller. A second one is refused while it lives, and where nobody can tell, unless it is to be
        taken over: then one that is just ending is waited for, too."""
        own_driver = driver.of(pid)
        if driver.state(own_driver) != "alive":
            raise RunError(f"run {self.id}: process {pid}, which was to drive it, has ended")
        end = time.monotonic() + (ENDING_S if take_over else 0)
        while self.driven() == "alive" and self._driver() != own_driver and time.monotonic() < end:
            time.sleep(0.2)
        current_driver = self._driver()
        if current_driver and current_driver != own_driver:
            how = driver.state(current_driver)
            if how == "alive":
                raise RunError(f"run {self.id} is still being driven by process {current_driver.split('/')[-2]}; wait for it or end it")
            if how == "elsewhere" and not take_over:
                raise RunError(
                    f"run {self.id} is driven by a controller on another machine or in another container, whose state cannot be read from "
                    "here; if it is certainly gone, resume with -e acceptance_take_over=true"
                )
        self.mailbox.make()
        write_atomically(self.dir / "controller.json", json.dumps({"driver": own_driver}))

    def driven(self) -> str:
        """Return the state of the run's driver by driver.state(); empty if there never was one, or if the last one was through."""
        current_driver = self._driver()
        return driver.state(current_driver) if current_driver else ""

    def is_mine(self, pid: int) -> bool:
        """Return True if `pid` still is the controller: a worker that outlived its own must not write into a resumed run."""
        return self._driver() == driver.of(pid)

    def release(self) -> None:
        """Remove the driver of this run."""
        with contextlib.suppress(OSError):
            (self.dir / "controller.json").unlink()

    def _driver(self) -> str:
        try:
            return str(json.loads((self.dir / "controller.json").read_text(encoding="utf-8"))["driver"])
        except (OSError, ValueError, KeyError):
            return ""

    @property
    def removing(self) -> pathlib.Path:
        """The folder in which stages leave a file for each removal of pods that goes on after them (kubernetes/pods/cleanup_guard.py)."""
        return self.dir / "removing"

    # Detached stages, which run on a cluster without a controller. A file for each stage and target holds what a later controller needs to
    # collect the results, a secret among it.

    @property
    def detached(self) -> pathlib.Path:
        return self.dir / "detached"

    def _detached_file(self, stage: str, target: str) -> pathlib.Path:
        return self.detached / f"{stage}.{file_name(target)}.json"

    def save_detached(self, stage: str, target: str, record: PlainData) -> None:
        """Save what a later controller needs to collect a detached stage."""
        self.detached.mkdir(exist_ok=True)
        write_atomically(self._detached_file(stage, target), json.dumps(record), 0o600)

    def load_detached(self, stage: str, target: str) -> PlainData | None:
        """Return the record of a detached stage, None if the stage is not detached on this target."""
        try:
            return t.cast(PlainData, json.loads(self._detached_file(stage, target).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def detached_nodes(self) -> int:
        """Return on how many nodes detached stages of this run are, each node once."""
        found = set()
        for path in self.detached.glob("*.json"):
            target = path.name.partition(".")[2]
            found |= {(target, node) for node in json.loads(path.read_text(encoding="utf-8"))["nodes"]}
        return len(found)

    def drop_detached(self, stage: str, target: str) -> None:
        """Remove the record of a detached stage, whose results are collected."""
        self._detached_file(stage, target).unlink()
        with contextlib.suppress(OSError):
            self.detached.rmdir()
