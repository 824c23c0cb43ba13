# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plane `ssh`: an inventory host is one machine, and a stage is one task on it.

A host always stays in the play. A lost host has the reason code `unreachable` in the journal, and later stages do not connect to it again.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import threading
import time
import typing as t

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible_collections.gpufleet.acceptance.plugins.module_utils import checkpoints, process
from ansible_collections.gpufleet.acceptance.plugins.module_utils.plain_data import Observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.runner import COMMON
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import base, payload, registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.answers import interpret, one_line
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, PlannedRun, Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer, NodeWork
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import ALONE, CLUSTER, MANIFEST, Stage

# How long a machine may be away that a stage continues on, seconds between two tries, and what no try to connect takes.
RETURN_S, RETRY_S, CONNECT_S = 3600.0, 15.0, 120.0


class StageOnHost(base.StageOnTarget):
    """One stage on one machine behind SSH."""

    def run(self) -> PlainData:
        if not self.planned:
            return {"skipped": True, "changed": False, "skip_reason": "not in the plan of this run"}
        if self.phase == "collect" and self.acting.mailbox.is_finished(self.stage, self.host):
            return {"skipped": True, "changed": False, "skip_reason": "already measured"}
        answer = self._answer(self._stage_result)
        if answer.get("state") == "running" and self.phase == "start":
            return {"changed": False, "msg": "started"}
        observations = answer.get("observations")
        own = self._own_observations()
        if own:
            answer["observations"] = [*(observations if isinstance(observations, list) else []), *own]
        measurements = interpret(answer, self.completer)
        self.keep(measurements)
        self.progress.add(measurements)
        if self.phase == "start":
            self.acting.mailbox.finish(self.stage, self.host, int(self.vars["acceptance_stage"]["hosts"]))
        facts = answer.get("ansible_facts")
        return {**self.result(measurements), **({"ansible_facts": facts} if facts else {})}

    def look(self) -> PlainData:
        """Query the host's checkpoints once and save them for `Stage.work`. A host that does not answer has no checkpoints."""
        if not self.planned:
            return {"skipped": True, "changed": False, "skip_reason": "not in the plan of this run"}
        answer = self._answer(self._finished_before)
        finished = answer.get("finished")
        self.acting.mailbox.save_checkpoints(self.stage, self.host, finished if isinstance(finished, list) else [])
        return {"changed": False, "msg": "looked"}

    def _stage_result(self) -> NodeAnswer:
        """Return the result of the stage's module, or the answer that the stage's work has for this machine. A machine that is lost while a
        stage that continues is collected has RETURN_S seconds to come back."""
        answer = self.work.answer
        if answer is not None:
            return answer.copy()
        waits = self.description.continues and self.phase == "collect"
        lost_at: float | None = None
        while True:
            called_at = time.monotonic()
            try:
                result = self._execute(self.args(), self.request)
                if not (waits and result.get("state") == "running"):  # its guardian ends it at its deadline
                    return result
                lost_at = None
                continue
            except AnsibleConnectionFailure:
                now = time.monotonic()
                if lost_at is None or now - called_at > CONNECT_S:  # the host was there in between
                    lost_at = now
                if not waits or now - lost_at > RETURN_S:
                    raise
            time.sleep(RETRY_S)
            self.action._connection.reset()

    def _finished_before(self) -> NodeAnswer:
        """Return the machine's checkpoints of an interrupted attempt."""
        task_args = {name: value for name, value in self.given.items() if name in COMMON}
        return self._execute({**self.settled(COMMON), **task_args, "run": {**self.run_options(), "phase": "all"}}, payload.checkpoint_query)

    def _execute(self, args: PlainData, request: t.Callable[[PlainData], NodeWork]) -> NodeAnswer:
        self.action.request = request(args)
        return t.cast(NodeAnswer, dict(self.action._execute_module(module_args=args, task_vars=self.vars)))

    def run_options(self) -> PlainData:
        """Return the option `run` with the attempt of each check, by which a node finds its checkpoints. For a stage between nodes it has a
        hash of the plan's settings too: the module's options differ in each attempt, the settings from which they are made do not."""
        options = super().run_options()
        continues = self.description.continues
        if self.description.topology != ALONE or continues:
            if not (self.description.saves_checkpoints or continues):
                return options
            text = json.dumps([collection.version(), self.public_settings, self.given], sort_keys=True, default=str)
            options["settings"] = hashlib.sha256(text.encode()).hexdigest()
        if continues:
            options["continues"] = True
        return {**options, "attempts": {checkpoints.name_of(item): item["attempt"] for item in self.planned.values()}}

    def _answer(self, ask: t.Callable[[], NodeAnswer]) -> NodeAnswer:
        """Return the result of `ask`, or one that says why there is none."""
        lost = self.acting.mailbox.lost(self.host)
        if lost:
            return {"lost": lost}
        try:
            with self._ending_with_controller():
                return ask()
        except ValueError as error:
            return {"failed": True, "msg": f"wrong arguments: {error}"}
        except AnsibleConnectionFailure as error:
            # The host was lost or never reached. In both cases the state of the node is unknown.
            lost = ("unreachable", one_line(f"{self.host} cannot be reached: {error}{_no_such_host(str(error))}"))
            self.acting.mailbox.lose(self.host, *lost)
            return {"lost": lost}
        except AnsibleError as error:
            return {"failed": True, "msg": str(error)}

    def _own_observations(self) -> list[Observation]:
        """Return the observations of the checks that the controller makes itself, also of a machine that is lost."""
        own = [(check, variant) for check, variant, _subject in self.planned if check in self.description.by_controller]
        with self._ending_with_controller():
            return [self.description.observe(check, variant, self.settings) for check, variant in own]

    @contextlib.contextmanager
    def _ending_with_controller(self) -> t.Iterator[None]:
        stop = threading.Event()
        threading.Thread(target=self._end_with_controller, args=(stop,), daemon=True).start()
        try:
            yield
        finally:
            stop.set()

    def _end_with_controller(self, stop: threading.Event) -> None:
        """End this worker and its ssh processes when the controller is gone: a killed controller cannot end them. The node's guardian ends
        the probe."""
        while not stop.wait(0.5):
            if os.getppid() != self.controller:
                for pid in process.descendants(os.getpid()):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)
                os._exit(1)
            self.progress.pulse()


def _no_such_host(words: str) -> str:
    """Return a hint for a host name that cannot be resolved, empty for other errors."""
    if "Could not resolve hostname" not in words and "Name or service not known" not in words:
        return ""
    names = " or ".join(name for name, plane in registry.shipped().items() if plane.nodes_behind)
    return f"; set ansible_host, or acceptance_plane: {names} where it is a cluster"


class Ssh(base.Plane):
    name = "ssh"
    nodes_behind = False

    def subjects(self, host: str, settings: Variables) -> tuple[list[str], list[str]]:
        return [host], []

    def refuses(self, stage: Stage) -> str | None:
        return {MANIFEST: "a manifest is for nodes of clusters only", CLUSTER: "it is for clusters only"}.get(stage.topology)

    def why_not_detachable(self, host: str, settings: Variables, stages: t.Sequence[Stage]) -> str | None:
        return (
            "acceptance_detach is for clusters: machines behind SSH keep a result until the deadline of its test only; "
            f"leave out {host}, by --limit for example"
        )

    def on(self, action: t.Any, planned: PlannedRun, task_vars: Variables) -> base.StageOnTarget:
        return StageOnHost(action, planned, task_vars, self.name)


PLANE = Ssh()
