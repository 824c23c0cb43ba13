# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operations on runs from beside them: show, end or remove what they have on the hosts of an inventory.

playbooks/status.yml and its neighbours have one task each, the action `upkeep`, which does the operation as the plane of each host says
(Plane.operations).

This plugin util is PRIVATE to the collection.
"""

from __future__ import annotations

import typing as t

from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.model import PlainData, Variables
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.plain import plain

# Each has a playbook of its name.
OPERATIONS = ("status", "stop", "logs", "restore", "cleanup", "support_files", "observability_preflight")
# Those that cannot keep to one run: what is left does not say of which run it is.
OF_ALL_RUNS = ("restore",)
# The options of the module besides `operation`: what the user of the playbook has set.
OPTIONS: PlainData = {
    **{name: {"type": "str", "default": ""} for name in ("run_id", "stage", "node")},
    "tail": {"type": "int", "default": 0},
    "previous": {"type": "bool", "default": False},
    "follow": {"type": "float", "default": 0},
    "storage_class": {"type": "str", "default": "csi-s3"},
    "claims_namespace": {"type": "str", "default": "monitoring"},
}


class Upkeep:
    """One operation on one inventory host. `options` has a value for each of OPTIONS."""

    def __init__(self, action: t.Any, options: PlainData, task_vars: Variables) -> None:
        self.action = action
        self.options = options
        self.task_vars = task_vars
        self.host = str(task_vars["inventory_hostname"])
        # Empty: all runs.
        self.run_id = str(options["run_id"])
        # True if nothing may be changed.
        self.check_mode = bool(action._task.check_mode)

    def variable(self, name: str, default: t.Any = "") -> t.Any:
        """Return the value of a variable of the host. Raise PlainError if it is no data."""
        if name not in self.task_vars:
            return default
        return plain(self.action._templar.template(self.task_vars[name]), name)

    def given(self, *names: str) -> PlainData:
        """Return {option: value} of those of the options."""
        return {name: self.options[name] for name in names}

    def show(self, line: str) -> None:
        """Show a line to the user."""
        Display().display(line)

    def module(self, name: str, /, **args: t.Any) -> PlainData:
        """Run an Ansible module on the host, by its action plugin if it has one, with the connection and the privileges of the task. Return
        its result. In check mode it runs in check mode."""
        action, loader = self.action, self.action._shared_loader_obj.action_loader
        task = action._task.copy()
        task.action, task.args = name, args
        plugin = loader.get(
            name if loader.has_plugin(name) else "ansible.legacy.normal",
            task=task, connection=action._connection, play_context=action._play_context, loader=action._loader, templar=action._templar,
            shared_loader_obj=action._shared_loader_obj,
        )  # fmt: skip
        return dict(plugin.run(task_vars=self.task_vars))


# Does an operation and returns the result of the task: "changed", "failed" with "msg", and whatever else there is. "found" says whether the
# host has something of the run, or of any run if none is named; playbooks refuse the id of a run that no host has.
Operation = t.Callable[[Upkeep], PlainData]
