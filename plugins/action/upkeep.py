# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does an operation on a host as its plane says."""

from __future__ import annotations

import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import registry, upkeep
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError

SPEC = {"operation": {"type": "str", "choices": list(upkeep.OPERATIONS), "required": True}, **upkeep.OPTIONS}
registry.shipped()  # before Ansible forks: else each host's worker imports them


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        variables = task_vars or {}
        super().run(tmp, variables)
        validated = ArgumentSpecValidator(SPEC).validate(dict(self._task.args))
        if validated.error_messages:
            return {"failed": True, "msg": "; ".join(validated.error_messages)}
        wanted = upkeep.Upkeep(self, validated.validated_parameters, variables)
        operation = wanted.options["operation"]
        try:
            if wanted.run_id and operation in upkeep.OF_ALL_RUNS:
                words = "what is left does not say of which run it is; stop.yml and cleanup.yml keep to one"
                Display().warning(f"run_id is not used: {operation} gives back what all runs have left that have ended, for {words}")
            plane = registry.of({registry.VARIABLE: wanted.variable(registry.VARIABLE)}, wanted.host)
            do = plane.operations.get(operation)
            if do is None:
                return {"skipped": True, "changed": False, "skip_reason": f"plane {plane.name} has no operation {operation}"}
            return {"changed": False, **do(wanted)}
        except RunError as error:
            return {"failed": True, "msg": str(error)}
