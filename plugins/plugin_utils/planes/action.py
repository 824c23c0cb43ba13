# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action plugin of every probe module, on any plane.

Outside a run it runs the bare module. In a run it looks up the host's part of the plan, runs the module, and writes the result, or the
reason why there is none, into the journal.

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shlex
import typing as t

from ansible import constants
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import module_loader
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import collection, compiled
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import base, payload, registry
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, PlannedRun, Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.node_messages import NodeWork
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.stages import registry as stages

# Control characters that could steer a terminal. JSON contains none of them, apart from line ends.
_CONTROL = re.compile(r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

# Ansible compiles and packs a module file with all that it imports, half a second of each module and some milliseconds of each host, before
# we replace the result. In place of the module it gets a file from which it makes no program, but finds the interpreter.
STAND_IN = "gpufleet_acceptance_stand_in"
_STAND_IN_TEXT = "#!/usr/bin/python\n# <<INCLUDE_ANSIBLE_MODULE_JSON_ARGS>>\n"


class StageAction(ActionBase):
    """Runs the probe module of its name on this host and writes the observations into the journal.

    It is loaded once, before Ansible forks. Whatever a worker imports is imported again for every host.
    """

    module: str
    spec: PlainData

    # The request (planes/payload.py) that is sent to the node instead of the module file.
    request: NodeWork | None = None

    def _configure_module(self, module_name: str, module_args: PlainData, task_vars: Variables) -> t.Any:
        """Replace the text of the module. Ansible does the rest: interpreter, pipelining, become, reading the answer."""
        if self.request is None:
            return super()._configure_module(module_name=module_name, module_args=module_args, task_vars=task_vars)
        configured = super()._configure_module(module_name=f"ansible.legacy.{STAND_IN}", module_args={}, task_vars=task_vars)
        program = payload.program(self.request)
        if len(configured) == 4:  # core 2.18: style, interpreter line, text, path
            return configured[0], configured[1], program, configured[3]
        return dataclasses.replace(configured[0], b_module_data=program), configured[1]

    def _low_level_execute_command(self, cmd: str, sudoable: bool = True, in_data: t.Any = None, **options: t.Any) -> t.Any:
        """Let Python read a program that comes over the connection in one piece: it would read a script on standard input byte by byte."""
        if in_data and self.request is not None:
            cmd = f"{cmd} -c {shlex.quote(payload.READ_PROGRAM)}"
        return super()._low_level_execute_command(cmd, sudoable=sudoable, in_data=in_data, **options)

    def _parse_returned_data(self, res: PlainData, *args: t.Any, **kwargs: t.Any) -> t.Any:
        """Remove control characters from the output around the answer, because Ansible shows it on the terminal."""
        printable = {name: _CONTROL.sub("?", res[name]) for name in ("stdout", "stderr") if isinstance(res.get(name), str)}
        return super()._parse_returned_data({**res, **printable}, *args, **kwargs)

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> PlainData:
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        planned = task_vars.get("acceptance_run")
        if not planned:
            return dict(self._execute_module(task_vars=task_vars))
        try:
            stage = self._on(planned, task_vars)
            if self._task.check_mode:
                return stage.in_check_mode()
            return stage.look() if stage.phase == "look" else stage.run()
        except RunError as error:
            return {"failed": True, "msg": str(error)}
        except OSError as error:
            cause = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
            run = f"run {planned['run_id']} in {planned['results_dir']}"
            resume = collection.playbook("resume")
            return {"failed": True, "msg": f"{run}: {cause}; what was measured is kept: put it right, then go on by {resume}"}

    def _on(self, planned: PlannedRun, task_vars: Variables) -> base.StageOnTarget:
        return registry.of(task_vars, str(task_vars["inventory_hostname"])).on(self, planned, task_vars)


def action_of(module: str) -> type[StageAction]:
    """Return the action plugin of a probe module, with everything loaded that a task needs, before Ansible forks.

    Each probe module has a file of its own in plugins/action/. One file for all, by redirects in meta/runtime.yml, would be loaded without
    the name of the module: each worker would then load the probe for its host, some tenths of a second each time, or the first would load
    the probes of all stages.
    """
    with compiled.cached():
        payload.unpacking(payload.probe_module(module).PROBE)
        stages.shipped()
        registry.of({}, "")
    _write_stand_in()
    return type("ActionModule", (StageAction,), {"module": module, "spec": payload.options(module)})


def _write_stand_in() -> None:
    """Make Ansible find the stand-in, in its temporary folder of this run. The workers know its path from their parent."""
    folder = pathlib.Path(constants.DEFAULT_LOCAL_TMP, STAND_IN)
    if folder.is_dir():
        return
    folder.mkdir()
    (folder / STAND_IN).write_text(_STAND_IN_TEXT, encoding="utf-8")
    module_loader.add_directory(os.fspath(folder))
    module_loader.find_plugin_with_context(f"ansible.legacy.{STAND_IN}")
