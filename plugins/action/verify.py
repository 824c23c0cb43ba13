# Copyright: (c) 2026, gpufleet.acceptance contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Says in one line whether a run's folder, or a hand-over pack, is as it was written."""

from __future__ import annotations

import os
import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.handover import checker
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records import integrity
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.errors import RunError
from ansible_collections.gpufleet.acceptance.plugins.plugin_utils.records.run import Run


class ActionModule(ActionBase):
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        super().run(tmp, task_vars)
        args = self._task.args
        pack, signers = (os.path.expanduser(str(args.get(name) or "")) for name in ("pack", "signers"))
        try:
            if not pack:
                line, is_signed = integrity.verify(Run.open(str(args["results_dir"]), str(args["run_id"]))), True
            elif args.get("run_id"):
                raise RunError("run_id, pack: found both, expected one")
            else:
                checked = checker.check(pack, signers or None)
                line, is_signed = checked.line(bool(signers)), bool(checked.signatures)
        except (RunError, checker.Refused) as error:
            return {"failed": True, "msg": str(error)}
        Display().display(line, color="green" if is_signed else "red")
        return {"changed": False, "failed": not is_signed, "msg": line}
