# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes the plan of a run before the first measurement, or what is left to do of an old one."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsiblePromptNoninteractive
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.needed import prepare as planning
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.planes import progress
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import driver
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        try:
            with progress.still("planning the run"):
                planned, lines = planning.prepare(
                    self._task.args, self._task.play, self._loader, task_vars, controller=driver.parent(), check=self._task.check_mode
                )
        except RunError as error:
            return {"failed": True, "msg": str(error)}
        except OSError as error:
            return {"failed": True, "msg": f"acceptance_results_dir {self._task.args['results_dir']}: {error}"}
        for line in lines:
            Display().display(line)
        for question in planned.pop("questions"):
            if not confirmed(question):
                return {"failed": True, "msg": "nothing was measured: the plan was not confirmed"}
        return {"changed": False, **planned}


def confirmed(question: str) -> bool:
    """Return the answer of a person at the terminal; True if there is no terminal."""
    try:
        answer = Display().prompt_until(f"{question}. Go on? [y/N]\r\n")
    except AnsiblePromptNoninteractive:
        return True
    return bool(answer.strip().lower() in (b"y", b"yes"))
