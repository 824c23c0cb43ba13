# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judges a run, writes its report and says whether the fleet is accepted."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils import conclude
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import progress
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        planned = task_vars.get("acceptance_run")
        if planned and not planned.get("run_id"):
            return {"skipped": True, "changed": False, "skip_reason": "check mode: there is no run to judge"}
        try:
            with progress.still("judging the run and writing its report"):
                result = conclude.judge(self._task.args, self._task.play, self._loader, task_vars, check=self._task.check_mode)
        except RunError as error:
            return {"failed": True, "msg": str(error)}
        except OSError as error:
            return {"failed": True, "msg": f"acceptance_results_dir {self._task.args['results_dir']}: {error}"}
        for line, colour in result.pop("lines"):
            Display().display(line, color=colour)
        # Nothing that sinks do changes what was said, and nobody waits for them to hear it.
        for line, colour in result.pop("tell", list)():
            Display().display(line, color=colour)
        for line in conclude.left_behind(task_vars):
            Display().warning(line)
        refused = not result["passed"] and self._task.args.get("refuse") != "play"
        return {"changed": False, "failed": refused, "msg": result["last"], **result}
