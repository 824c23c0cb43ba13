# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plane `ssh`: an inventory host is one machine, and a stage is one task on it.

A host always stays in the play. A lost host has the reason code `unreachable` in the journal, and later stages do not connect to it again.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import contextlib
import copy
import getpass
import hashlib
import json
import os
import signal
import socket
import threading
import time
import typing as t

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible_collections.gpufleet.acceptance.plugins.module_utils.answer.plain_data import Observation
from ansible_collections.gpufleet.acceptance.plugins.module_utils.program.runner import COMMON
from ansible_collections.gpufleet.acceptance.plugins.module_utils.system import checkpoints, heartbeat, process
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import base, interruption, payload, registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.answers import interpret, one_line, why_nothing
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.node_control import NodeControl
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.ssh import heartbeats, operations, reaching
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import driver
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.files import file_name
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.mailbox import HEARTBEAT
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, PlannedRun, Variables, is_number
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeAnswer, NodeWork
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages.base import ALONE, CLUSTER, MANIFEST, Stage

# How long a machine may be away that a stage continues on, seconds between two tries, and what no try to connect takes.
RETURN_S, RETRY_S, CONNECT_S = 3600.0, 15.0, 120.0
# Seconds between two looks at whether somebody looks at the output of a tool.
LOOK_S = 1.0

# What a shell says of a program that it cannot start.
NOT_STARTED = (126, 127)


class StageOnHost(base.StageOnTarget):
    """One stage on one machine behind SSH."""

    def run(self) -> PlainData:
        if not self.planned:
            return {"skipped": True, "changed": False, "skip_reason": "not in the plan of this run"}
        if self.phase == "collect" and self.acting.mailbox.is_finished(self.stage, self.host):
            return {"skipped": True, "changed": False, "skip_reason": "already measured"}
        begins = self.phase == "start"  # also where it collects at once, which no later task may do again
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
        if begins:
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
        confirmed = False
        while True:
            called_at = time.monotonic()
            try:
                result = self._execute(self.args(), self.request)
                kept = self._keep_alive(result)
                if result.get("state") != "running":
                    return result
                if self.phase == "start" and not kept and not self.description.continues:
                    self.phase = "collect"  # it would end a minute from now
                elif self.phase == "start" and not kept and not confirmed:
                    confirmed = True  # a second start finds it running and is its first sign of life
                elif not waits:  # its guardian ends it at its deadline
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

    def _keep_alive(self, result: NodeAnswer) -> bool:
        """See to it that a detached probe hears from its controller. Return False if there is none, or if this host cannot be reached
        beside Ansible."""
        file = self.acting.mailbox.path(HEARTBEAT, target=self.host)
        if result.get("state") != "running":
            file.unlink(missing_ok=True)
            return False
        path = str(result.get("heartbeat") or "")
        if not heartbeat.PATH.fullmatch(path):  # the node is not believed: the path becomes a word of a command
            return False
        reach = reaching.words(self.action._connection)
        if reach is None:
            return False
        pipes = interruption.inherited()
        if pipes is None:
            return False
        host = heartbeats.Host(self.host, tuple(reach), path, self.description.continues, self.stage, self.output_path)
        stop = f"ansible-playbook {collection.playbook('stop')} -e run_id={self.acting.id}"
        if not heartbeats.begin(file.parent, self.controller, *pipes, stop):
            file.unlink(missing_ok=True)
            return False
        heartbeats.write(file, host)  # before the first call: from now on Ctrl-C tells it
        if host.call(heartbeats.LIVES) == heartbeats.TOLD:
            return True
        file.unlink(missing_ok=True)
        return False

    def _known_heartbeat(self) -> str:
        """Return the heartbeat file by which this host's probe is told to end. A collection that begins the probe again makes the same
        file, so that Ctrl-C still reaches it."""
        known = heartbeats.read(self.acting.mailbox.path(HEARTBEAT, target=self.host))
        return known.path if known else ""

    def _finished_before(self) -> NodeAnswer:
        """Return the machine's checkpoints of an interrupted attempt."""
        task_args = {name: value for name, value in self.given.items() if name in COMMON}
        return self._execute({**self.settled(COMMON), **task_args, "run": {**self.run_options(), "phase": "all"}}, payload.checkpoint_query)

    def _execute(self, args: PlainData, request: t.Callable[[PlainData], NodeWork]) -> NodeAnswer:
        self.action.request = request(args)
        asked = time.time()
        answer = t.cast(NodeAnswer, dict(self.action._execute_module(module_args=args, task_vars=self.vars)))
        self.completer.skew_s = _skew(asked, answer.get("clock"), time.time())
        return answer

    def run_options(self) -> PlainData:
        """Return the option `run` with the attempt of each check, by which a node finds its checkpoints. For a stage between nodes it has a
        hash of the plan's settings too: the module's options differ in each attempt, the settings from which they are made do not."""
        options = {**super().run_options(), "driver": driver.of(self.controller), "by": _starter(), "host": self.host}
        continues = self.description.continues
        if self.description.topology != ALONE or continues:
            if not (self.description.saves_checkpoints or continues):
                return options
            text = json.dumps([collection.version(), self.public_settings, self.given], sort_keys=True, default=str)
            options["settings"] = hashlib.sha256(text.encode()).hexdigest()
        if continues:
            options["continues"] = True
            options["heartbeat"] = self._known_heartbeat()
        return {**options, "attempts": {checkpoints.name_of(item): item["attempt"] for item in self.planned.values()}}

    def _answer(self, ask: t.Callable[[], NodeAnswer]) -> NodeAnswer:
        """Return the result of `ask`, or one that says why there is none."""
        lost = self.acting.mailbox.lost(self.host)
        if lost:
            return {"lost": lost}
        try:
            with self._ending_with_controller():
                answer = ask()
            if answer.get("failed") and answer.get("rc") in NOT_STARTED:
                code, reason, _outcome = why_nothing(answer, self.host)
                if code == "no_python":  # no later stage has one
                    self.acting.mailbox.lose(self.host, code, reason)
                    return {"lost": (code, reason)}
            return answer
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
        for work in (self._end_with_controller, self._answer_looks):
            threading.Thread(target=work, args=(stop,), daemon=True).start()
        try:
            yield
        finally:
            stop.set()

    def _end_with_controller(self, stop: threading.Event) -> None:
        """End this worker and its ssh processes when the controller is gone: a killed controller cannot end them. The node's guardian ends
        the probe."""
        self.progress.pulse()  # a worker that starts a detached probe is gone before the first wait ends
        while not stop.wait(0.5):
            if os.getppid() != self.controller:
                for pid in process.descendants(os.getpid()):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)
                os._exit(1)
            self.progress.pulse()

    def _answer_looks(self, stop: threading.Event) -> None:
        """Answer whoever looks at the output of the tool on this host. If its probe is detached, the process that keeps it alive does."""
        folder, stem = self.acting.mailbox.folder, file_name(self.host)
        heartbeat_file = self.acting.mailbox.path(HEARTBEAT, target=self.host)
        host: heartbeats.Host | None = None
        while not stop.wait(LOOK_S):
            if not heartbeats.is_due(folder, stem) or heartbeat_file.exists():
                continue
            if host is None:
                # Of a copy: to make the words, the connection plugin may replace a pipe that the call in progress uses.
                reach = reaching.words(copy.copy(self.action._connection))
                if reach is None:
                    return
                host = heartbeats.Host(self.host, tuple(reach), "", False, self.stage, self.output_path)
            heartbeats.answer(folder, stem, host)


def _skew(asked: float, clock: t.Any, answered: float) -> float:
    """Return by how many seconds the clock of a node is at least ahead of ours, negative if behind; 0.0 if that cannot be told. `clock` is
    when the node began and ended, by its own clock."""
    if not (isinstance(clock, list) and len(clock) == 2 and all(map(is_number, clock))):
        return 0.0
    began, ended = clock
    return float(max(0.0, ended - answered) + min(0.0, began - asked))


def _starter() -> str:
    """Return the user and the machine that run the controller, for people."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _no_such_host(words: str) -> str:
    """Return a hint for a host name that cannot be resolved, empty for other errors."""
    if "Could not resolve hostname" not in words and "Name or service not known" not in words:
        return ""
    names = " or ".join(name for name, plane in registry.shipped().items() if plane.nodes_behind)
    return f"; set ansible_host, or acceptance_plane: {names} where it is a cluster"


class Ssh(base.Plane):
    name = "ssh"
    nodes_behind = False
    outlives_controller = True
    operations = operations.OPERATIONS

    def subjects(self, host: str, settings: Variables) -> tuple[list[str], list[str]]:
        return [host], []

    def refuses(self, stage: Stage) -> str | None:
        return {MANIFEST: "a manifest is for nodes of clusters only", CLUSTER: "it is for clusters only"}.get(stage.topology)

    def why_not_detachable(self, host: str, settings: Variables, stages: t.Sequence[Stage]) -> str | None:
        return (
            "acceptance_detach is for clusters: machines behind SSH keep a result until the deadline of its test only; "
            f"leave out {host}, by --limit for example"
        )

    def node_control(self, host: str, variable: t.Callable[[str], t.Any]) -> NodeControl | None:
        from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes.ssh import control

        hook = control.hook_of(host, variable(control.VARIABLE))
        return control.HookControl(host, hook) if hook else None

    def on(self, action: t.Any, planned: PlannedRun, task_vars: Variables) -> base.StageOnTarget:
        return StageOnHost(action, planned, task_vars, self.name)


PLANE = Ssh()
