# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Returns what runs of a results folder found."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.report import info

OPTIONS: dict[str, dict[str, t.Any]] = {
    "results_dir": {"type": "str", "required": True},
    "run_id": {"type": "str", "default": ""},
    "since": {"type": "str", "default": ""},
    "limit": {"type": "int", "default": 1},
    "node": {"type": "str", "default": ""},
    "check": {"type": "str", "default": ""},
    "verdict": {"type": "list", "elements": "str", "default": []},
    "verdicts": {"type": "bool", "default": False},
}


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        validated = ArgumentSpecValidator(OPTIONS).validate(dict(self._task.args))
        if validated.error_messages:
            return {"failed": True, "msg": "; ".join(validated.error_messages)}
        args = validated.validated_parameters
        try:
            asked = info.Filter(
                args["run_id"], args["since"], args["limit"], args["node"], args["check"], tuple(args["verdict"])
            )  # fmt: skip
            answer = info.info(args["results_dir"], asked, args["verdicts"])
        except RunError as error:
            return {"failed": True, "msg": str(error)}
        return {"changed": False, **dataclasses.asdict(answer)}
