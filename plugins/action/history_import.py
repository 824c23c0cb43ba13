# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Brings what is missing of a results folder into the history."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.history import folders, store
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        results = str(self._task.args["results_dir"])
        try:
            with store.Store(store.url_of(results, str(self._task.args.get("url") or "")), make=True) as history:
                brought = folders.bring(history, results, Display().display)
                line = f"history {history.where}: {len(brought.new)} of {brought.runs} runs were new, {brought.metrics} numbers"
        except RunError as error:
            return {"failed": True, "msg": str(error)}
        line += f"; {len(brought.left_out)} runs were left out" if brought.left_out else ""
        Display().display(line)
        return {"changed": bool(brought.new), "msg": line, "runs": brought.new, "left_out": brought.left_out}
