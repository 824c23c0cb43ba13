# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Collects what goes with a part that is sent back, on a machine for which a punch list has an open row of a part."""

from __future__ import annotations

import pathlib
import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover import support
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import sent_back
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        variables = task_vars or {}
        super().run(tmp, variables)
        args = dict(self._task.args)
        results_dir = args.pop("results_dir", "")
        if not results_dir:
            return dict(self._execute_module(module_args=args, task_vars=variables))
        host = str(variables.get("inventory_hostname"))
        folder = pathlib.Path(str(results_dir)) / sent_back.FOLDER
        try:
            nodes = sent_back.nodes(str(results_dir), host)
            if not nodes:
                return {"skipped": True, "changed": False, "skip_reason": "the punch list has no open row of a part of it"}
            result = dict(self._execute_module(module_args=args, task_vars=variables))
            if result.get("failed") or self._task.check_mode:
                return {**result, "files": support.summary(result.get("files")), "found": True}
            path, words = support.keep(folder, nodes[0], result.get("files"), int(args.get("max_mib") or 32) << 20)
        except RunError as error:
            return {"failed": True, "msg": str(error)}
        for line in [f"{host}: support files are in {path}", *(f"{host}: {sentence}" for sentence in words)]:
            Display().display(line)
        return {"changed": True, "found": True, "files": support.summary(result.get("files")), "path": str(path)}
