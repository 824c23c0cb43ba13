# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes and signs the archive with which an acceptance is handed over."""

from __future__ import annotations

import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover import request
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import progress
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.plain import plain


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        variables = task_vars or {}
        super().run(tmp, variables)
        validated = ArgumentSpecValidator(request.OPTIONS).validate(dict(self._task.args))
        if validated.error_messages:
            return {"failed": True, "msg": "; ".join(validated.error_messages)}
        try:
            options = {name: plain(value, name) for name, value in validated.validated_parameters.items()}
            groups = {str(group): list(map(str, hosts)) for group, hosts in (variables.get("groups") or {}).items()}
            with progress.still("making the hand-over"):
                made = request.make(options, groups, bool(self._task.check_mode))
        except RunError as error:
            return {"failed": True, "msg": str(error)}
        for line in made.lines:
            Display().display(line)
        return {
            "changed": not self._task.check_mode,
            "pack": made.path,
            "accepted": made.accepted,
            "lines": made.lines,
            "msg": made.lines[0],
        }
